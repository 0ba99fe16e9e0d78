//! Relations on the elements of collections: `CONTAINS`, and `m[key] = value`.

use cql::ast::{ComparisonOperator, Predicate, Term};
use schema::{Column, IndexedPart};
use types::CqlType;

use super::Collector;
use super::filter::Test;
use super::index::analysis_of;
use crate::error::{Result, invalid};
use crate::expr::literal::term_text;
use crate::expr::resolve::Receiver;

impl<'a> Collector<'_, 'a> {
    pub(super) fn contains(
        &mut self,
        column: &'a Column,
        negated: bool,
        key: bool,
        value: &Term,
    ) -> Result<()> {
        let (name, ty) = match (&column.ty, key) {
            (CqlType::Map { key, .. }, true) => ("key", key),
            (CqlType::Map { value, .. }, false) => ("value", value),
            (CqlType::List { element, .. } | CqlType::Set { element, .. }, false) => ("value", element),
            (CqlType::List { .. } | CqlType::Set { .. }, true) => {
                return invalid!("Cannot use CONTAINS KEY on non-map column {}", column.name);
            }
            _ => {
                let not = if negated { "NOT " } else { "" };
                let operator = format!("{not}CONTAINS{}", if key { " KEY" } else { "" });
                return invalid!("Cannot use {operator} on non-collection column {}", column.name);
            }
        };
        let receiver = Receiver::new(format!("{name}({})", column.name), ty);
        let expr = self.resolver.term(value, &receiver)?;
        let test = if key { Test::ContainsKey(expr) } else { Test::Contains(expr) };
        let part = if key { IndexedPart::Keys } else { IndexedPart::Values };
        let text = analysis_of(self.table, column, part);
        let test = if negated { Test::Not(Box::new(test)) } else { test.analyzed_by(text) };
        self.filter(column, test);
        Ok(())
    }

    /// A relation on an element of a collection. `=` on an entry of a map is Cassandra's, the others are ScyllaDB's and filter.
    pub(super) fn element(&mut self, column: &'a Column, key: &Term, predicate: &Predicate) -> Result<()> {
        let (key_receiver, element) = match &column.ty {
            CqlType::Map { key, value, .. } => (Receiver::new(format!("key({})", column.name), key), value),
            CqlType::List { element, .. } if self.statement.filtering() => {
                (Receiver::owned(format!("idx({})", column.name), CqlType::Int), element)
            }
            CqlType::List { .. } => {
                return invalid!(
                    "Indexes on list entries ({}[index] = value) are not currently supported.",
                    column.name
                );
            }
            _ => return invalid!("Column {} cannot be used as a map", column.name),
        };
        // Those on other operators are ScyllaDB's, which has no such limit.
        if matches!(
            (&column.ty, predicate),
            (CqlType::Map { frozen: true, .. }, Predicate::Compare(ComparisonOperator::Equal, _))
        ) {
            return invalid!(
                "Map-entry equality predicates on frozen map column {} are not supported",
                column.name
            );
        }
        let equal = matches!(predicate, Predicate::Compare(ComparisonOperator::Equal, _));
        if let Predicate::Compare(ComparisonOperator::NotEqual, term) = predicate {
            let (key, term) = (term_text(key), term_text(term));
            return invalid!("Unsupported \"!=\" relation: {}[{key}] != {term}", column.name);
        }
        if !equal && !self.statement.filtering() {
            return invalid!("Only EQ relations are supported on map entries");
        }
        let key = self.resolver.term(key, &key_receiver)?;
        let receiver = Receiver::new(format!("value({})", column.name), element);
        for test in self.element_tests(predicate, &receiver)? {
            let (key, ty, test) = (key.clone(), CqlType::clone(element), Box::new(test));
            self.filter(column, Test::Element { key, ty, test });
        }
        Ok(())
    }

    fn element_tests(&mut self, predicate: &Predicate, receiver: &Receiver<'_>) -> Result<Vec<Test>> {
        Ok(match predicate {
            Predicate::Compare(operator, term) => {
                vec![Test::Compare(*operator, self.resolver.term(term, receiver)?)]
            }
            Predicate::Between(low, high) => {
                let [low, high] = self.between(low, high, receiver)?;
                vec![
                    Test::Compare(ComparisonOperator::GreaterOrEqual, low),
                    Test::Compare(ComparisonOperator::LessOrEqual, high),
                ]
            }
            Predicate::In { negated, values } => {
                let test = Test::In(self.choice(receiver, values)?);
                vec![if *negated { Test::Not(Box::new(test)) } else { test }]
            }
            Predicate::Like(term) if matches!(*receiver.ty, CqlType::Text | CqlType::Ascii) => {
                vec![Test::Matches(self.resolver.term(term, receiver)?)]
            }
            _ => return invalid!("This relation is not supported on elements of collections"),
        })
    }
}
