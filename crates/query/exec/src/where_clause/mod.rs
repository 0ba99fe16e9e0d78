//! The WHERE clause: relations are sorted into those that find partitions, those that find rows, and those that filter them.
//!
//! Pure: from syntax and table to [`Restrictions`], with Cassandra's messages for invalid combinations.

pub mod access;
pub mod bounds;
pub mod choice;
mod elements;
pub mod filter;
pub mod index;
pub mod like;
mod multi;
mod relation;
pub mod rows;
pub mod texts;

use cql::ast::{ComparisonOperator, InValues, Predicate, Relation, Target, Term, TermKind};
use schema::{Column, ColumnKind, Index, IndexedPart, Table};
use types::CqlType;

use self::access::{AccessPath, IndexAccess, IndexScope, KeyAccess, RangeAccess};
use self::choice::{Choice, TupleChoice, TupleValue};
use self::filter::{Filter, Test};
use self::index::Restriction;
use self::relation::{Multi, MultiKind, Single, is_start};
use self::rows::{RowRestriction, SliceEnd, TokenRange};
use crate::error::{ExecError, Result, invalid};
use crate::expr::literal::term_text;
use crate::expr::resolve::{Receiver, Resolver};
use crate::expr::row::ColumnRef;
use crate::expr::{Expr, Kind};

/// The WHERE clause of a statement.
#[derive(Clone, Debug, Default)]
pub struct Restrictions {
    /// One choice a partition key column, when all are restricted by `=` or `IN`.
    pub keys: Option<Vec<Choice>>,
    /// `token(…)`
    pub token: Option<TokenRange>,
    /// Restrictions of a prefix of the clustering columns.
    pub rows: Vec<RowRestriction>,
    /// Everything else.
    pub filters: Vec<Filter>,
    /// Whether a clustering column is restricted, by any relation.
    pub restricts_clustering: bool,
    /// Whether a static or regular column is restricted.
    pub restricts_values: bool,
    /// Whether a regular column is restricted, so that partitions without rows do not match.
    pub restricts_regular: bool,
    /// For each partition key column the marker bound to it by `=`, or the last one of its `IN`.
    pub key_markers: Vec<Option<u32>>,
    /// Whether a secondary index finds some of the rows, so that Cassandra would use it.
    pub uses_index: bool,
    /// The index that finds the rows.
    pub index: Option<IndexAccess>,
    /// The column and the query of `BM25(column, query) > 0`.
    pub relevance: Option<(String, Expr)>,
}

impl Restrictions {
    /// The path by which the rows are found.
    pub fn access_path(&self, table: &Table) -> AccessPath {
        let (token, rows) = (self.token.clone(), self.rows.clone());
        if let Some(index) = &self.index {
            return AccessPath::Index(index.clone());
        }
        match self.keys.clone() {
            Some(keys) => AccessPath::of_keys(KeyAccess { keys, rows, token }, table),
            None if rows.is_empty() && self.filters.is_empty() => {
                AccessPath::Range(RangeAccess { token, rows })
            }
            None => AccessPath::Full(RangeAccess { token, rows }),
        }
    }

    /// Whether every clustering column is restricted by `=` or `IN`.
    pub fn is_full_row(&self, table: &Table) -> bool {
        self.width() == Some(table.clustering().len())
    }

    /// How many clustering columns are restricted by `=` or `IN`; none when there is a slice.
    pub fn width(&self) -> Option<usize> {
        self.rows.iter().try_fold(0, |width, row| match row {
            RowRestriction::Single(_) => Some(width + 1),
            RowRestriction::Multi(n, _) => Some(width + n),
            RowRestriction::Slice { .. } => None,
        })
    }

    /// Whether the partition key is restricted by `IN`.
    pub fn is_key_in(&self) -> bool {
        self.keys.as_ref().is_some_and(|keys| keys.iter().any(|choice| !choice.is_one()))
    }
}

/// Collects relations.
struct Collector<'r, 'a> {
    resolver: &'r mut Resolver<'a>,
    table: &'a Table,
    statement: StatementKind,
    singles: Vec<Vec<Single>>,
    multis: Vec<Multi>,
    token: Option<TokenRange>,
    filters: Vec<Filter>,
    /// Whether an index finds one of the restrictions: the others may filter its rows.
    has_index: bool,
    relevance: Option<(String, Expr)>,
}

/// Which statement the clause belongs to: modifications allow less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// SELECT.
    Select {
        /// `ALLOW FILTERING`, or a table that is always filtered.
        filtering: bool,
        /// Rows are ordered by ANN OF or BM25.
        nearest: bool,
    },
    /// UPDATE.
    Update,
    /// DELETE.
    Delete,
}

impl StatementKind {
    fn name(self) -> &'static str {
        match self {
            Self::Select { .. } => "SELECT",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }

    fn filtering(self) -> bool {
        matches!(self, Self::Select { filtering: true, .. })
    }

    fn is_select(self) -> bool {
        matches!(self, Self::Select { .. })
    }
}

/// Whether a column has vectors and an index on them.
fn is_indexed_vector(table: &Table, name: &str) -> bool {
    table.column(name).is_some_and(|column| index::of_vectors(table, column).is_some())
}

const FILTERING_NEEDED: &str = "Cannot execute this query as it might involve data filtering and thus may have \
    unpredictable performance. If you want to execute this query despite the performance unpredictability, use ALLOW \
    FILTERING";

fn filtering_needed<T>() -> Result<T> {
    Err(ExecError::Invalid(FILTERING_NEEDED.to_owned()))
}

/// Resolves a WHERE clause.
///
/// # Errors
/// [`ExecError::Invalid`](crate::ExecError::Invalid) when a relation names an unknown column, an operator that the
/// column does not have, a value that does not fit, or the restrictions cannot be combined.
pub fn resolve(
    relations: &[Relation],
    statement: StatementKind,
    resolver: &mut Resolver<'_>,
) -> Result<Restrictions> {
    let table = resolver.table;
    let mut collector = Collector {
        resolver,
        table,
        statement,
        singles: std::iter::repeat_with(Vec::new).take(table.columns().len()).collect(),
        multis: Vec::new(),
        token: None,
        filters: Vec::new(),
        has_index: false,
        relevance: None,
    };
    for relation in relations {
        if let Predicate::Contains { negated, key, .. } = &relation.predicate
            && !statement.is_select()
        {
            let (not, key) = (if *negated { "NOT " } else { "" }, if *key { " KEY" } else { "" });
            return invalid!("Cannot use {} with {not}CONTAINS{key}", statement.name());
        }
        collector.add(relation)?;
    }
    collector.finish()
}

impl<'a> Collector<'_, 'a> {
    fn add(&mut self, relation: &Relation) -> Result<()> {
        match &relation.target {
            Target::Column(name) => {
                let column = self.resolver.column(&name.name)?;
                self.single(column, &relation.predicate)
            }
            Target::Element(name, key) => {
                let column = self.resolver.column(&name.name)?;
                self.element(column, key, &relation.predicate)
            }
            Target::Tuple(names) => {
                let names: Vec<String> = names.iter().map(|name| name.name.clone()).collect();
                self.multi(&names, &relation.predicate)
            }
            Target::Token(names) => {
                let names: Vec<String> = names.iter().map(|name| name.name.clone()).collect();
                self.token(&names, &relation.predicate)
            }
            Target::Field(column, field) => {
                invalid!("Fields of user types cannot be restricted in WHERE: {}.{}", column.name, field.name)
            }
            Target::Index(name) => {
                Err(ExecError::unsupported(format_args!("An expression on index {}", name.name)))
            }
            Target::Reference(_) => Err(ExecError::unsupported("A reference to a row of a transaction")),
            Target::Relevance(name, query) => self.relevance(&name.name, query, &relation.predicate),
        }
    }

    /// `BM25(column, query) > 0`.
    fn relevance(&mut self, name: &str, query: &Term, predicate: &Predicate) -> Result<()> {
        let column = self.resolver.column(name)?;
        let is_positive = matches!(predicate, Predicate::Compare(ComparisonOperator::Greater, zero) if term_text(zero) == "0");
        if !is_positive {
            return invalid!("BM25() in the WHERE clause must be compared as BM25({name}, query) > 0");
        }
        if self.relevance.is_some() {
            return invalid!("BM25() can be in the WHERE clause once");
        }
        if !matches!(self.statement, StatementKind::Select { nearest: true, .. }) {
            return invalid!(
                "BM25() in the WHERE clause requires ORDER BY BM25() on the same column with the same query"
            );
        }
        let query = self.resolver.term(query, &Receiver::column(column))?;
        self.relevance = Some((name.to_owned(), query));
        Ok(())
    }

    fn check_comparable(&self, column: &Column, operator: &str) -> Result<()> {
        if !column.is_complex() {
            return Ok(());
        }
        if column.ty.is_udt() {
            return invalid!(
                "Non-frozen UDT column '{}' ({}) cannot be restricted by any relation",
                column.name,
                column.ty.cql_name()
            );
        }
        invalid!(
            "Collection column '{}' ({}) cannot be restricted by a '{operator}' relation",
            column.name,
            column.ty.cql_name()
        )
    }

    fn single(&mut self, column: &'a Column, predicate: &Predicate) -> Result<()> {
        let receiver = Receiver::column(column);
        match predicate {
            Predicate::Compare(ComparisonOperator::NotEqual, term) => {
                invalid!("Unsupported \"!=\" relation: {} != {}", column.name, term_text(term))
            }
            Predicate::Compare(ComparisonOperator::Equal, term) => {
                self.check_comparable(column, "=")?;
                let expr = self.resolver.term(term, &receiver)?;
                self.merge(column, Single::Equal(expr))
            }
            Predicate::Compare(operator, term) => {
                check_slice(column)?;
                self.check_comparable(column, operator.symbol())?;
                let expr = self.resolver.term(term, &receiver)?;
                self.merge(column, Single::Slice(*operator, expr))
            }
            Predicate::Between(low, high) => {
                check_slice(column)?;
                self.check_comparable(column, "BETWEEN")?;
                let [low, high] = self.between(low, high, &receiver)?;
                self.merge(column, Single::Slice(ComparisonOperator::GreaterOrEqual, low))?;
                self.merge(column, Single::Slice(ComparisonOperator::LessOrEqual, high))
            }
            Predicate::In { negated: true, values } => {
                self.check_comparable(column, "NOT IN")?;
                let choice = self.choice(&receiver, values)?;
                self.merge(column, Single::NotIn(choice))
            }
            Predicate::In { negated: false, values } => {
                self.check_comparable(column, "IN")?;
                let single = match self.choice(&receiver, values)? {
                    // A list of one is an equality.
                    Choice::List(mut exprs) if exprs.len() == 1 => {
                        Single::Equal(exprs.pop().expect("there is one"))
                    }
                    choice => Single::In(choice),
                };
                self.merge(column, single)
            }
            Predicate::Contains { negated, key, value } => self.contains(column, *negated, *key, value),
            Predicate::Like(term) => {
                let pattern = self.resolver.term(term, &receiver)?;
                if self.statement.is_select()
                    && let Some(texts) = index::like_texts(self.table, column)
                {
                    self.filter(column, Test::Like(texts, pattern));
                    return Ok(());
                }
                if self.statement.filtering() && matches!(column.ty, CqlType::Text | CqlType::Ascii) {
                    self.filter(column, Test::Matches(pattern));
                    return Ok(());
                }
                invalid!(
                    "LIKE restriction is only supported on properly indexed columns. {} LIKE {} is not valid.",
                    column.name,
                    term_text(term)
                )
            }
            Predicate::Matches(term) => self.analyzed(column, term),
            Predicate::IsNotNull => invalid!("Unsupported restriction: {} IS NOT NULL", column.name),
            Predicate::IsNull => invalid!("Unsupported restriction: {} IS NULL", column.name),
            Predicate::Expression(_) => Err(ExecError::unsupported("expr()")),
        }
    }

    /// `:`, which is `=` of a column whose texts an index of SAI analyzes.
    fn analyzed(&mut self, column: &Column, term: &Term) -> Result<()> {
        if !self.statement.is_select() {
            return invalid!("{} does not support the analyzer operator (:)", self.statement.name());
        }
        let Some(text) = index::analysis_of(self.table, column, IndexedPart::Whole) else {
            return invalid!(
                "The analyzer operator (:) requires an index of SAI that analyzes the column. {} : {} is not valid.",
                column.name,
                term_text(term)
            );
        };
        let value = self.resolver.term(term, &Receiver::column(column))?;
        let test = Test::Compare(ComparisonOperator::Equal, value);
        self.filter(column, test.analyzed_by(Some(text)));
        Ok(())
    }

    /// The ends of BETWEEN, which may be written in either order.
    fn between(&mut self, low: &Term, high: &Term, receiver: &Receiver<'_>) -> Result<[Expr; 2]> {
        let low = self.resolver.term(low, receiver)?;
        Ok(Expr::ordered(low, self.resolver.term(high, receiver)?))
    }

    fn choice(&mut self, receiver: &Receiver<'_>, values: &InValues) -> Result<Choice> {
        match values {
            InValues::List(terms) => {
                let exprs = terms.iter().map(|term| self.resolver.term(term, receiver));
                exprs.collect::<Result<_>>().map(Choice::List)
            }
            InValues::Marker(marker) => {
                let receiver = Receiver::choice(&receiver.name, CqlType::clone(&receiver.ty));
                let term = Term::new(TermKind::Marker(marker.clone()));
                self.resolver.term(&term, &receiver).map(Choice::Marker)
            }
        }
    }

    fn filter(&mut self, column: &Column, test: Test) {
        self.filters.push(Filter { column: ColumnRef::from(column), name: column.name.clone(), test });
    }

    /// Adds a relation to a column's, or says why it does not go with those that are there.
    fn merge(&mut self, column: &Column, new: Single) -> Result<()> {
        let name = &column.name;
        let more_than_one = |what: &str| {
            invalid!("{name} cannot be restricted by more than one relation if it includes {what}")
        };
        if let Some(multi) = self.multis.iter().find(|m| m.names.contains(name)) {
            let is_one = matches!(multi.kind, MultiKind::Choice(TupleChoice::One(_)));
            if matches!(multi.kind, MultiKind::Slice(..)) && !new.is_slice() {
                return invalid!(
                    "Column \"{name}\" cannot be restricted by both an equality and an inequality relation"
                );
            }
            if is_one || matches!(new, Single::Equal(_)) {
                return more_than_one("an Equal");
            }
            let slices = matches!(multi.kind, MultiKind::Slice(..) | MultiKind::NotIn(_));
            if !(slices && new.is_slice()) {
                return more_than_one("a IN");
            }
            if multi.first != usize::from(column.position) {
                return not_starting_together(&[name]);
            }
            if let (MultiKind::Slice(held, _), Single::Slice(operator, _)) = (&multi.kind, &new)
                && is_start(*held) == is_start(*operator)
            {
                let end = if is_start(*operator) { "start" } else { "end" };
                return invalid!("More than one restriction was found for the {end} bound on {name}");
            }
        }
        let at = self.table.columns().iter().position(|c| c.id == column.id).expect("a column of the table");
        let held = &mut self.singles[at];
        if let Some(first) = held.first() {
            match (first, &new) {
                (Single::Equal(_), _) => return more_than_one("an Equal"),
                (Single::In(_), _) => return more_than_one("a IN"),
                (Single::Slice(..) | Single::NotIn(_), Single::Equal(_) | Single::In(_)) => {
                    return invalid!(
                        "Column \"{name}\" cannot be restricted by both an equality and an inequality relation"
                    );
                }
                (_, Single::Slice(operator, _)) => check_same_end(held, *operator, name)?,
                (_, Single::NotIn(_)) => {}
            }
        }
        held.push(new);
        Ok(())
    }

    fn token(&mut self, names: &[String], predicate: &Predicate) -> Result<()> {
        if !self.statement.is_select() {
            return invalid!(
                "The token function cannot be used in WHERE clauses for {} statements",
                self.statement.name()
            );
        }
        for name in names {
            self.resolver.column(name)?;
        }
        let key: Vec<&str> = self.table.partition_key().iter().map(|c| c.name.as_str()).collect();
        if !key.iter().all(|column| names.iter().any(|name| name == column)) {
            return invalid!(
                "The token() function must be applied to all partition key components or none of them"
            );
        }
        if names.iter().enumerate().any(|(at, name)| names[..at].contains(name)) {
            return invalid!("The token() function contains duplicate partition key components");
        }
        if names.len() != key.len() {
            return invalid!("The token() function must contains only partition key components");
        }
        let key_text = key.join(", ");
        if names.iter().zip(&key).any(|(a, b)| a != b) {
            return invalid!("The token function arguments must be in the partition key order: {key_text}");
        }
        let receiver = Receiver::owned("partition key token", CqlType::Bigint);
        if let Predicate::Between(low, high) = predicate {
            let [low, high] = self.between(low, high, &receiver)?;
            self.token_end(&key_text, ComparisonOperator::GreaterOrEqual, low)?;
            return self.token_end(&key_text, ComparisonOperator::LessOrEqual, high);
        }
        let Predicate::Compare(operator, term) = predicate else {
            return invalid!("The token() function can only be compared by =, <, <=, > and >=");
        };
        let expr = self.resolver.term(term, &receiver)?;
        if *operator == ComparisonOperator::NotEqual {
            return invalid!("Unsupported \"!=\" relation: token({key_text}) != {}", term_text(term));
        }
        self.token_end(&key_text, *operator, expr)
    }

    /// Adds a bound of the token, or both when it is equal.
    fn token_end(&mut self, key_text: &str, operator: ComparisonOperator, expr: Expr) -> Result<()> {
        let held = self.token.get_or_insert_default();
        let more = |end| invalid!("More than one restriction was found for the {end} bound on {key_text}");
        match operator {
            _ if held.equal => {
                return invalid!(
                    "{key_text} cannot be restricted by more than one relation if it includes an Equal"
                );
            }
            ComparisonOperator::Equal if held.start.is_some() || held.end.is_some() => {
                return invalid!(
                    "Columns \"{key_text}\" cannot be restricted by both an equality and an inequality relation"
                );
            }
            ComparisonOperator::Equal => {
                held.equal = true;
                held.start = Some((expr.clone(), true));
                held.end = Some((expr, true));
            }
            _ if is_start(operator) && held.start.is_some() => return more("start"),
            _ if is_start(operator) => {
                held.start = Some((expr, operator == ComparisonOperator::GreaterOrEqual));
            }
            _ if held.end.is_some() => return more("end"),
            _ => held.end = Some((expr, operator == ComparisonOperator::LessOrEqual)),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Restrictions> {
        let (token, relevance) = (self.token.take(), self.relevance.take());
        let mut out = Restrictions { token, relevance, ..Restrictions::default() };
        let table = self.table;
        let restrictions = match self.statement.is_select() && !table.indexes.is_empty() {
            true => Restriction::collect(table, &self.singles, &self.multis, &self.filters),
            false => Vec::new(),
        };
        let key_singles = &self.singles[..table.partition_key().len()];
        let is_key_whole = key_singles.iter().all(|singles| matches!(singles.as_slice(), [Single::Equal(_)]));
        let indexes = table.indexes.values().filter(|index| is_key_whole || !index.local);
        let indexes: Vec<&Index> = indexes.collect();
        self.has_index = restrictions.iter().any(|one| one.has_index(&indexes));
        let key_in = self.singles[..table.partition_key().len()].iter().any(|singles| index::is_in(singles));
        self.partition_key(&mut out)?;
        self.clustering(&mut out)?;
        self.values()?;
        out.filters.append(&mut self.filters);
        let restricts = |kind| out.filters.iter().any(|f| f.column.kind == kind);
        let clustering_filtered = restricts(ColumnKind::Clustering);
        out.restricts_clustering |= clustering_filtered;
        out.restricts_regular = restricts(ColumnKind::Regular);
        out.restricts_values = out.restricts_regular || restricts(ColumnKind::Static);
        if out.restricts_values && !self.statement.is_select() {
            // Each name has a blank behind it.
            let value = |f: &&Filter| matches!(f.column.kind, ColumnKind::Static | ColumnKind::Regular);
            let named: String = out.filters.iter().filter(value).map(|f| format!("{} ", f.name)).collect();
            return invalid!("Non PRIMARY KEY columns found in where clause: {named}");
        }
        if !self.statement.filtering()
            && out.filters.iter().any(|filter| is_indexed_vector(table, &filter.name))
        {
            return invalid!("Vector indexes only support ANN queries");
        }
        let by_index = self.by_index(&mut out, &restrictions, &indexes);
        if out.uses_index && key_in {
            return invalid!(
                "Select on indexed columns and with IN clause for the PRIMARY KEY are not supported"
            );
        }
        let filtered = match out.uses_index {
            true => !by_index,
            false => !out.filters.is_empty() || (out.keys.is_none() && !out.rows.is_empty()),
        };
        if filtered && !self.statement.filtering() {
            if matches!(self.statement, StatementKind::Select { nearest: true, .. }) {
                return invalid!("ANN ordering by vector requires all restricted column(s) to be indexed");
            }
            return filtering_needed();
        }
        // The values of IN narrow down a filter of all partitions.
        let narrows = self.statement.filtering() && out.keys.is_none();
        if (out.uses_index || narrows)
            && let Some(within) = self.index_scope(&out)
        {
            out.index = index::choose(&indexes, &restrictions, within, !out.uses_index);
        }
        Ok(out)
    }

    /// Where an index is queried, if it is: not for a row that its key names, nor where the nearest vectors are looked for in a partition.
    fn index_scope(&self, out: &Restrictions) -> Option<IndexScope> {
        let (token, rows) = (out.token.clone(), out.rows.clone());
        let Some(keys) = out.keys.clone() else {
            return Some(IndexScope::Range(RangeAccess { token, rows }));
        };
        let is_nearest = matches!(self.statement, StatementKind::Select { nearest: true, .. });
        let is_one_row = access::names_one_row(&rows, self.table);
        let is_plain = !is_nearest && !is_one_row && token.is_none();
        is_plain.then(|| IndexScope::Partition(KeyAccess { keys, rows, token }))
    }

    /// Whether an index is used, in Cassandra's order of decisions, and whether indexes alone find the rows then:
    /// a clustering column counts where its restriction filters.
    fn by_index<'t>(
        &self,
        out: &mut Restrictions,
        restrictions: &[Restriction<'t>],
        indexes: &[&'t Index],
    ) -> bool {
        if !self.has_index {
            return false;
        }
        let of = |kind: ColumnKind| restrictions.iter().filter(move |one| one.kind() == Some(kind));
        let partial = out.keys.is_none() && of(ColumnKind::PartitionKey).next().is_some();
        let mut uses = out.keys.is_none() && (out.token.is_none() || partial);
        let keys_filter = uses;
        let gap = out.filters.iter().any(|filter| filter.column.kind == ColumnKind::Clustering);
        uses |= gap;
        uses |= out.keys.is_none() && of(ColumnKind::Clustering).any(|one| one.has_index(indexes));
        let rows_filter = uses;
        uses |= out.restricts_values;
        out.uses_index = uses;
        let filters = restrictions.iter().filter(|one| match one.kind() {
            Some(ColumnKind::PartitionKey) => keys_filter,
            Some(ColumnKind::Clustering) => rows_filter,
            Some(ColumnKind::Static | ColumnKind::Regular) | None => true,
        });
        index::covers(indexes, filters)
    }

    fn partition_key(&mut self, out: &mut Restrictions) -> Result<()> {
        let key = self.table.partition_key();
        let singles: Vec<Vec<Single>> = self.singles[..key.len()].iter_mut().map(std::mem::take).collect();
        out.key_markers = singles
            .iter()
            .map(|singles| match singles.as_slice() {
                [Single::Equal(Expr { kind: Kind::Bind(at), .. })] => Some(*at),
                // The last one, as in Cassandra.
                [Single::In(Choice::List(exprs))] => exprs.iter().rev().find_map(|expr| match expr.kind {
                    Kind::Bind(at) => Some(at),
                    _ => None,
                }),
                _ => None,
            })
            .collect();
        let restricted = singles.iter().filter(|s| !s.is_empty()).count();
        let sliced = singles.iter().flatten().any(Single::is_slice);
        if !self.statement.is_select() {
            if sliced {
                return invalid!(
                    "Only EQ and IN relation are supported on the partition key (unless you use the token() function) \
                     for {} statements",
                    self.statement.name()
                );
            }
            if restricted < key.len() {
                let missing = key.iter().zip(&singles).filter(|(_, s)| s.is_empty());
                let missing: Vec<&str> = missing.map(|(c, _)| c.name.as_str()).collect();
                return invalid!("Some partition key parts are missing: {}", missing.join(", "));
            }
        }
        if restricted == 0 {
            return Ok(());
        }
        if restricted == key.len() && !sliced {
            let choices = singles.into_iter().flatten().map(|single| match single {
                Single::Equal(expr) => Choice::One(expr),
                Single::In(choice) => choice,
                Single::Slice(..) | Single::NotIn(_) => unreachable!("no slice was found"),
            });
            out.keys = Some(choices.collect());
            return Ok(());
        }
        if !self.statement.filtering() && !self.has_index {
            return filtering_needed();
        }
        for (column, singles) in key.iter().zip(singles) {
            self.filter_singles(column, singles);
        }
        Ok(())
    }

    fn filter_singles(&mut self, column: &Column, singles: Vec<Single>) {
        let text = index::analysis_of(self.table, column, IndexedPart::Whole);
        for single in singles {
            let test = match single {
                Single::Equal(expr) => {
                    let test = Test::Compare(ComparisonOperator::Equal, expr);
                    test.analyzed_by(text.clone())
                }
                Single::Slice(operator, expr) => Test::Compare(operator, expr),
                Single::In(choice) => Test::In(choice),
                Single::NotIn(choice) => Test::Not(Box::new(Test::In(choice))),
            };
            self.filter(column, test);
        }
    }

    /// Takes the longest prefix of restrictions that finds rows; the rest must filter.
    fn clustering(&mut self, out: &mut Restrictions) -> Result<()> {
        let (key_len, columns) = (self.table.partition_key().len(), self.table.clustering());
        let mut multis = std::mem::take(&mut self.multis);
        out.restricts_clustering =
            !multis.is_empty() || self.singles[key_len..][..columns.len()].iter().any(|s| !s.is_empty());
        let scans = out.keys.is_none();
        let mut at = 0;
        let mut sliced: Option<usize> = None;
        while at < columns.len() {
            let singles = &self.singles[key_len + at];
            let starting = multis.iter().position(|m| m.first == at);
            let is_slice = singles.iter().any(Single::is_slice)
                || multis.iter().any(|m| m.first == at && !matches!(m.kind, MultiKind::Choice(_)));
            if is_slice {
                out.rows.push(self.slice_at(key_len + at, &mut multis, at));
                sliced = Some(at);
                break;
            }
            if let Some(index) = starting {
                let multi = multis.remove(index);
                let MultiKind::Choice(choice) = multi.kind else { unreachable!("slices were taken before") };
                out.rows.push(RowRestriction::Multi(multi.width, choice));
                at += multi.width;
                continue;
            }
            let Some(single) = self.singles[key_len + at].pop() else { break };
            let choice = match single {
                Single::Equal(expr) => Choice::One(expr),
                Single::In(choice) => choice,
                Single::Slice(..) | Single::NotIn(_) => unreachable!("slices were taken before"),
            };
            out.rows.push(RowRestriction::Single(choice));
            at += 1;
        }
        self.leftover_clustering(multis, sliced, at, scans)
    }

    /// Takes the slice that begins at a clustering column.
    fn slice_at(&mut self, single: usize, multis: &mut Vec<Multi>, first: usize) -> RowRestriction {
        let (mut start, mut end, mut except) = (None, None, Vec::new());
        let mut put = |operator: ComparisonOperator, value: TupleValue, width: usize, is_tuple: bool| {
            let inclusive =
                matches!(operator, ComparisonOperator::GreaterOrEqual | ComparisonOperator::LessOrEqual);
            let slot = if is_start(operator) { &mut start } else { &mut end };
            *slot = Some(SliceEnd { value, inclusive, width, is_tuple });
        };
        for slice in std::mem::take(&mut self.singles[single]) {
            match slice {
                Single::Slice(operator, expr) => put(operator, TupleValue::Parts(vec![expr]), 1, false),
                Single::NotIn(choice) => except.push(RowRestriction::Single(choice)),
                Single::Equal(_) | Single::In(_) => {}
            }
        }
        let mut rest = Vec::new();
        for multi in multis.drain(..) {
            match multi.kind {
                MultiKind::Slice(operator, value) if multi.first == first => {
                    put(operator, value, multi.width, true)
                }
                MultiKind::NotIn(choice) if multi.first == first => {
                    except.push(RowRestriction::Multi(multi.width, choice));
                }
                kind => rest.push(Multi { kind, ..multi }),
            }
        }
        *multis = rest;
        RowRestriction::Slice { start, end, except }
    }

    /// Restrictions behind a gap or a slice filter rows, where that is allowed.
    fn leftover_clustering(
        &mut self,
        multis: Vec<Multi>,
        sliced: Option<usize>,
        next: usize,
        scans: bool,
    ) -> Result<()> {
        let (key_len, columns) = (self.table.partition_key().len(), self.table.clustering());
        let has_multi = |at: usize| multis.iter().any(|m| (m.first..m.first + m.width).contains(&at));
        let is_open = |at: usize| at >= next && self.singles[key_len + at].is_empty() && !has_multi(at);
        let unrestricted: Vec<&str> =
            columns.iter().enumerate().filter(|(at, _)| is_open(*at)).map(|(_, c)| c.name.as_str()).collect();
        for (at, column) in columns.iter().enumerate() {
            let singles = std::mem::take(&mut self.singles[key_len + at]);
            if singles.is_empty() && !multis.iter().any(|m| m.first == at) {
                continue;
            }
            if !self.statement.filtering() && !self.has_index {
                if let Some(slice) = sliced {
                    return invalid!(
                        "Clustering column \"{}\" cannot be restricted (preceding column \"{}\" is restricted by a \
                         non-EQ relation)",
                        column.name,
                        columns[slice.min(at.saturating_sub(1))].name
                    );
                }
                if scans {
                    return filtering_needed();
                }
                if self.statement == StatementKind::Update {
                    return invalid!("Some clustering keys are missing: {}", unrestricted.join(", "));
                }
                return invalid!(
                    "PRIMARY KEY column \"{}\" cannot be restricted as preceding column \"{}\" is not restricted",
                    column.name,
                    columns[next].name
                );
            }
            self.filter_singles(column, singles);
        }
        multis.into_iter().try_for_each(|multi| self.filter_multi(multi))
    }

    /// Several columns that filter rows.
    fn filter_multi(&mut self, multi: Multi) -> Result<()> {
        let columns = &self.table.clustering()[multi.first..][..multi.width];
        let value = match multi.kind {
            MultiKind::Choice(TupleChoice::One(value)) => value,
            // The choice among values of one column is an IN of it.
            MultiKind::Choice(TupleChoice::List(values)) if multi.width == 1 => {
                let values = values.into_iter().map(|value| tuple_parts(value, columns));
                let choice = Choice::List(values.flatten().collect());
                self.filter_singles(&columns[0], vec![Single::In(choice)]);
                return Ok(());
            }
            MultiKind::Choice(_) => return invalid!("Multicolumn IN filters are not supported"),
            MultiKind::Slice(..) | MultiKind::NotIn(_) => {
                return invalid!("Multi-column slice restrictions cannot be used for filtering.");
            }
        };
        for (column, expr) in columns.iter().zip(tuple_parts(value, columns)) {
            self.filter_singles(column, vec![Single::Equal(expr)]);
        }
        Ok(())
    }

    fn values(&mut self) -> Result<()> {
        let key_len = self.table.partition_key().len() + self.table.clustering().len();
        for at in key_len..self.table.columns().len() {
            let singles = std::mem::take(&mut self.singles[at]);
            let column = &self.table.columns()[at];
            self.filter_singles(column, singles);
        }
        Ok(())
    }
}

/// The values of several columns, one by one.
fn tuple_parts(value: TupleValue, columns: &[Column]) -> Vec<Expr> {
    match value {
        TupleValue::Parts(parts) => parts,
        TupleValue::Whole(tuple) => {
            let part = |(at, column): (usize, &Column)| Expr {
                ty: column.ty.clone(),
                kind: Kind::Field(Box::new(tuple.clone()), at),
            };
            columns.iter().enumerate().map(part).collect()
        }
    }
}

/// Refuses slices that overlap and begin at different columns.
fn not_starting_together<T>(columns: &[&String]) -> Result<T> {
    let columns = columns.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ,");
    invalid!(
        "Column \"{columns}\" cannot be restricted by two inequalities not starting with the same column"
    )
}

fn check_same_end(held: &[Single], operator: ComparisonOperator, name: &str) -> Result<()> {
    let same = |s: &Single| matches!(s, Single::Slice(o, _) if is_start(*o) == is_start(operator));
    if held.iter().any(same) {
        let end = if is_start(operator) { "start" } else { "end" };
        return invalid!("More than one restriction was found for the {end} bound on {name}");
    }
    Ok(())
}

fn check_slice(column: &Column) -> Result<()> {
    if !column.ty.is_or_contains_duration() {
        return Ok(());
    }
    let what = match &column.ty {
        CqlType::Duration => return invalid!("Slice restrictions are not supported on duration columns"),
        ty if ty.is_collection() => "collections",
        ty if ty.is_tuple() => "tuples",
        _ => "UDTs",
    };
    invalid!("Slice restrictions are not supported on {what} containing durations")
}
