//! Prints SELECT, selectors and relations.

use super::Printer;
use crate::ast::{
    CellMetadata, Constant, Direction, Ident, InValues, Predicate, Relation, Select, Selection, Selector,
    SelectorKind, Target, Term,
};
use crate::ident::push_name_if;
use crate::keyword::Keyword;

impl Printer {
    pub(super) fn select(&mut self, select: &Select) {
        self.push("SELECT ");
        self.push_if(select.json, "JSON ");
        self.push_if(select.distinct, "DISTINCT ");
        self.selection(&select.selection);
        self.push(" FROM ");
        if select.mutation_fragments {
            self.push("MUTATION_FRAGMENTS(");
            self.qualified_name(&select.from);
            self.push(")");
        } else {
            self.qualified_name(&select.from);
        }
        self.where_clause(&select.filter);
        if !select.group_by.is_empty() {
            self.push(" GROUP BY ");
            self.separated(&select.group_by, ", ", Self::selector);
        }
        if !select.order_by.is_empty() {
            self.push(" ORDER BY ");
            self.separated(&select.order_by, ", ", |printer, ordering| {
                match &ordering.bm25 {
                    Some(term) => printer.bm25(&ordering.column, term),
                    None => printer.ident(&ordering.column),
                }
                if let Some(term) = &ordering.ann_of {
                    printer.push(" ANN OF ");
                    printer.term(term);
                }
                printer.push_if(ordering.direction == Direction::Descending, " DESC");
            });
        }
        if let Some(limit) = &select.per_partition_limit {
            self.push(" PER PARTITION LIMIT ");
            self.term(limit);
        }
        if let Some(limit) = &select.limit {
            self.push(" LIMIT ");
            self.term(limit);
        }
        self.push_if(select.allow_filtering, " ALLOW FILTERING");
        self.push_if(select.bypass_cache, " BYPASS CACHE");
        self.using(&select.using);
    }

    pub(super) fn selection(&mut self, selection: &Selection) {
        match selection {
            Selection::All => self.push("*"),
            Selection::Selectors(selectors) => self.separated(selectors, ", ", |printer, aliased| {
                printer.selector(&aliased.selector);
                if let Some(alias) = &aliased.alias {
                    printer.push(" AS ");
                    printer.ident(alias);
                }
            }),
        }
    }

    pub(super) fn selector(&mut self, selector: &Selector) {
        match &selector.kind {
            SelectorKind::Column(column) => self.selected_column(column),
            SelectorKind::Constant(constant) => self.constant(constant),
            SelectorKind::Null => self.push("NULL"),
            SelectorKind::Marker(marker) => self.marker(marker),
            SelectorKind::CountRows => self.push("count(*)"),
            SelectorKind::Metadata(metadata, inner) => {
                self.push(match metadata {
                    CellMetadata::WriteTime => "writetime(",
                    CellMetadata::MaxWriteTime => "maxwritetime(",
                    CellMetadata::Ttl => "ttl(",
                });
                self.selector(inner);
                self.push(")");
            }
            SelectorKind::Cast(inner, native) => {
                self.push("CAST(");
                self.selector(inner);
                self.push(&format!(" AS {})", native.name()));
            }
            SelectorKind::Function(call) => self.call(call, Self::selector),
            SelectorKind::Field(inner, field) => {
                self.selector(inner);
                // `1.a` would be the number `1.` and a name.
                self.push(if ends_in_number(inner) { " ." } else { "." });
                self.ident(field);
            }
            SelectorKind::Element(inner, key) => {
                self.selector(inner);
                self.push("[");
                self.term(key);
                self.push("]");
            }
            SelectorKind::Slice(inner, from, to) => {
                self.selector(inner);
                self.push("[");
                from.iter().for_each(|term| self.term(term));
                self.push("..");
                to.iter().for_each(|term| self.term(term));
                self.push("]");
            }
            SelectorKind::TypeHint(data_type, inner) => {
                self.push("(");
                self.data_type(data_type);
                self.push(") ");
                self.selector(inner);
            }
            SelectorKind::Arithmetic(left, operator, right) => {
                self.selector(left);
                self.push(&format!(" {} ", operator.symbol()));
                self.selector(right);
            }
            SelectorKind::Negate(inner) => {
                self.push("- ");
                self.selector(inner);
            }
            _ => self.composed_selector(selector),
        }
    }

    /// Tuples and collections.
    fn composed_selector(&mut self, selector: &Selector) {
        match &selector.kind {
            SelectorKind::Tuple(items) => self.bracketed(items, Self::selector),
            SelectorKind::List(items) => {
                self.push("[");
                self.separated(items, ", ", Self::selector);
                self.push("]");
            }
            SelectorKind::Set(items) => {
                self.push("{");
                self.separated(items, ", ", Self::selector);
                self.push("}");
            }
            SelectorKind::Map(entries) => {
                self.push("{");
                self.separated(entries, ", ", |printer, (key, value)| {
                    printer.selector(key);
                    printer.push(": ");
                    printer.selector(value);
                });
                self.push("}");
            }
            _ => unreachable!("Printer::selector prints the other kinds"),
        }
    }

    /// A column in a select clause: quoted too when the bare word could be read as part of the clause.
    fn selected_column(&mut self, column: &Ident) {
        push_name_if(&mut self.out, &column.name, |keyword| {
            keyword.is_name()
                && !matches!(keyword, Keyword::Json | Keyword::Distinct | Keyword::As | Keyword::Per)
        });
    }

    pub(super) fn where_clause(&mut self, filter: &[Relation]) {
        if !filter.is_empty() {
            self.push(" WHERE ");
            self.separated(filter, " AND ", Self::relation);
        }
    }

    fn bm25(&mut self, column: &Ident, term: &Term) {
        self.push("BM25(");
        self.ident(column);
        self.push(", ");
        self.term(term);
        self.push(")");
    }

    pub(super) fn relation(&mut self, relation: &Relation) {
        match &relation.target {
            Target::Column(column) => self.ident(column),
            Target::Element(column, key) => {
                self.ident(column);
                self.push("[");
                self.term(key);
                self.push("]");
            }
            Target::Field(column, field) => {
                self.ident(column);
                self.push(".");
                self.ident(field);
            }
            Target::Tuple(columns) => self.idents(columns),
            Target::Token(columns) => {
                self.push("token");
                self.idents(columns);
            }
            Target::Index(index) => {
                self.push("expr(");
                self.qualified_name(index);
            }
            Target::Reference(reference) => self.row_reference(reference),
            Target::Relevance(column, term) => self.bm25(column, term),
        }
        self.predicate(&relation.predicate);
    }

    fn predicate(&mut self, predicate: &Predicate) {
        match predicate {
            Predicate::Compare(operator, term) => {
                self.push(&format!(" {} ", operator.symbol()));
                self.term(term);
            }
            Predicate::In { negated, values } => {
                self.push(if *negated { " NOT IN " } else { " IN " });
                match values {
                    InValues::List(terms) => self.bracketed(terms, Self::term),
                    InValues::Marker(marker) => self.marker(marker),
                }
            }
            Predicate::Between(low, high) => {
                self.push(" BETWEEN ");
                self.term(low);
                self.push(" AND ");
                self.term(high);
            }
            Predicate::Contains { negated, key, value } => {
                self.push_if(*negated, " NOT");
                self.push(if *key { " CONTAINS KEY " } else { " CONTAINS " });
                self.term(value);
            }
            Predicate::Like(term) => {
                self.push(" LIKE ");
                self.term(term);
            }
            Predicate::Matches(term) => {
                self.push(" : ");
                self.term(term);
            }
            Predicate::IsNotNull => self.push(" IS NOT NULL"),
            Predicate::IsNull => self.push(" IS NULL"),
            Predicate::Expression(term) => {
                self.push(", ");
                self.term(term);
                self.push(")");
            }
        }
    }
}

/// Whether the text of the selector ends in a number, which would take a following point for its own.
fn ends_in_number(selector: &Selector) -> bool {
    match &selector.kind {
        SelectorKind::Constant(Constant::Integer(_) | Constant::Float(_)) => true,
        SelectorKind::TypeHint(_, inner) => ends_in_number(inner),
        _ => false,
    }
}
