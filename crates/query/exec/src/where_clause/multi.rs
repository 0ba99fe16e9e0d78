//! Relations on several clustering columns: `(a, b) > (1, 2)`.

use cql::ast::{ComparisonOperator, InValues, Predicate, Term, TermKind};
use schema::{Column, ColumnKind};
use types::CqlType;

use super::choice::{TupleChoice, TupleValue};
use super::relation::{Multi, MultiKind, Single, is_start};
use super::{Collector, check_same_end, not_starting_together};
use crate::error::{Result, invalid};
use crate::expr::literal::term_text;
use crate::expr::resolve::Receiver;
use crate::expr::{Expr, Kind};

impl<'a> Collector<'_, 'a> {
    pub(super) fn multi(&mut self, names: &[String], predicate: &Predicate) -> Result<()> {
        let mut columns: Vec<&'a Column> = Vec::with_capacity(names.len());
        for name in names {
            let column = self.resolver.column(name)?;
            if column.kind != ColumnKind::Clustering {
                return invalid!(
                    "Multi-column relations can only be applied to clustering columns but was applied to: {name}"
                );
            }
            if columns.iter().any(|c| c.id == column.id) {
                return invalid!(
                    "Column \"{name}\" appeared twice in a relation: ({}) {}",
                    names.join(", "),
                    shown(predicate)
                );
            }
            columns.push(column);
        }
        let Some(first) = columns.first().map(|column| usize::from(column.position)) else {
            return invalid!("A multi-column relation needs columns");
        };
        if columns.iter().enumerate().any(|(at, column)| usize::from(column.position) != first + at) {
            let values = shown(predicate);
            return invalid!(
                "Clustering columns must appear in the PRIMARY KEY order in multi-column relations: ({}) {values}",
                names.join(", ")
            );
        }
        let of_kind = |kind| Multi { first, width: names.len(), names: names.to_vec(), kind };
        if let Predicate::Between(low, high) = predicate {
            let [low, high] = self.tuple_between(&columns, low, high)?;
            self.merge_multi(of_kind(low))?;
            return self.merge_multi(of_kind(high));
        }
        let kind = self.multi_kind(names, &columns, predicate)?;
        self.merge_multi(of_kind(kind))
    }

    fn multi_kind(
        &mut self,
        names: &[String],
        columns: &[&Column],
        predicate: &Predicate,
    ) -> Result<MultiKind> {
        Ok(match predicate {
            Predicate::Compare(ComparisonOperator::Equal, term) => {
                MultiKind::Choice(TupleChoice::One(self.tuple_value(columns, term)?))
            }
            Predicate::Compare(ComparisonOperator::NotEqual, term) => {
                return invalid!(
                    "Unsupported \"!=\" relation: ({}) != {}",
                    names.join(", "),
                    term_text(term)
                );
            }
            Predicate::Compare(operator, term) => {
                MultiKind::Slice(*operator, self.tuple_value(columns, term)?)
            }
            Predicate::In { negated, values } => {
                let choice = self.tuple_choice(names, columns, values)?;
                if *negated { MultiKind::NotIn(choice) } else { MultiKind::Choice(choice) }
            }
            _ => return invalid!("Unsupported multi-column relation on ({})", names.join(", ")),
        })
    }

    fn tuple_choice(
        &mut self,
        names: &[String],
        columns: &[&Column],
        values: &InValues,
    ) -> Result<TupleChoice> {
        match values {
            InValues::List(terms) => {
                let values = terms.iter().map(|term| self.tuple_value(columns, term));
                let mut values = values.collect::<Result<Vec<_>>>()?;
                // A list of one is an equality.
                Ok(match values.len() {
                    1 => TupleChoice::One(values.remove(0)),
                    _ => TupleChoice::List(values),
                })
            }
            InValues::Marker(marker) => {
                let ty = CqlType::tuple(columns.iter().map(|c| c.ty.clone()));
                let receiver = Receiver::choice(&names.join(","), ty);
                let term = Term::new(TermKind::Marker(marker.clone()));
                Ok(TupleChoice::Marker(self.resolver.term(&term, &receiver)?))
            }
        }
    }

    /// The ends of BETWEEN on several columns, as tuples that are ordered when their values are known.
    fn tuple_between(&mut self, columns: &[&Column], low: &Term, high: &Term) -> Result<[MultiKind; 2]> {
        let ty = CqlType::tuple(columns.iter().map(|column| column.ty.clone()));
        let mut tuple = |term: &Term| -> Result<Expr> {
            match self.tuple_value(columns, term)? {
                TupleValue::Whole(expr) => Ok(expr),
                TupleValue::Parts(parts) => Ok(Expr { ty: ty.clone(), kind: Kind::Build(parts) }),
            }
        };
        let [low, high] = Expr::ordered(tuple(low)?, tuple(high)?).map(TupleValue::Whole);
        Ok([
            MultiKind::Slice(ComparisonOperator::GreaterOrEqual, low),
            MultiKind::Slice(ComparisonOperator::LessOrEqual, high),
        ])
    }

    fn merge_multi(&mut self, new: Multi) -> Result<()> {
        let key_len = self.table.partition_key().len();
        let is_one = |kind: &MultiKind| matches!(kind, MultiKind::Choice(TupleChoice::One(_)));
        let more_than_one = |name: &str, what| {
            invalid!("{name} cannot be restricted by more than one relation if it includes {what}")
        };
        for (at, name) in new.names.iter().enumerate() {
            let singles = &self.singles[key_len + new.first + at];
            let Some(held) = singles.first() else { continue };
            if matches!(held, Single::Equal(_)) || is_one(&new.kind) {
                return more_than_one(name, "an Equal");
            }
            match &new.kind {
                MultiKind::Slice(..) if held.is_slice() && at > 0 => return not_starting_together(&[name]),
                MultiKind::Slice(operator, _) if held.is_slice() => check_same_end(singles, *operator, name)?,
                MultiKind::NotIn(_) if held.is_slice() => {}
                _ => return more_than_one(name, "a IN"),
            }
        }
        for held in &self.multis {
            let Some(name) = held.names.iter().find(|name| new.names.contains(name)) else { continue };
            match (&held.kind, &new.kind) {
                (MultiKind::Slice(..), MultiKind::Slice(..)) if held.first != new.first => {
                    let common = new.names.iter().filter(|name| held.names.contains(name));
                    return not_starting_together(&common.collect::<Vec<_>>());
                }
                (MultiKind::Slice(a, _), MultiKind::Slice(b, _)) if is_start(*a) != is_start(*b) => {}
                (MultiKind::Slice(a, _), MultiKind::Slice(..)) => {
                    let end = if is_start(*a) { "start" } else { "end" };
                    return invalid!(
                        "More than one restriction was found for the {end} bound on {}",
                        new.names.join(" ,")
                    );
                }
                (MultiKind::NotIn(_), MultiKind::Slice(..) | MultiKind::NotIn(_)) => {}
                (MultiKind::Slice(..), MultiKind::NotIn(_)) => {}
                (MultiKind::Slice(..), MultiKind::Choice(_)) => {
                    let common = new.names.iter().filter(|name| held.names.contains(name));
                    let common = common.map(String::as_str).collect::<Vec<_>>().join(" ,");
                    return invalid!(
                        "Column \"{common}\" cannot be restricted by both an equality and an inequality relation"
                    );
                }
                (a, b) if is_one(a) || is_one(b) => return more_than_one(name, "an Equal"),
                _ => return more_than_one(name, "a IN"),
            }
        }
        self.multis.push(new);
        Ok(())
    }

    fn tuple_value(&mut self, columns: &[&Column], term: &Term) -> Result<TupleValue> {
        match &term.kind {
            TermKind::Tuple(parts) => {
                if parts.len() != columns.len() {
                    return invalid!(
                        "Expected {} elements in value tuple, but got {}: {}",
                        columns.len(),
                        parts.len(),
                        term_text(term)
                    );
                }
                let exprs = parts
                    .iter()
                    .zip(columns)
                    .map(|(part, column)| self.resolver.term(part, &Receiver::column(column)));
                exprs.collect::<Result<_>>().map(TupleValue::Parts)
            }
            TermKind::Marker(_) => {
                let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
                let ty = CqlType::tuple(columns.iter().map(|c| c.ty.clone()));
                let receiver = Receiver::owned(format!("({})", names.join(",")), ty);
                Ok(TupleValue::Whole(self.resolver.term(term, &receiver)?))
            }
            _ => match columns {
                [column] => Ok(TupleValue::Parts(vec![self.resolver.term(term, &Receiver::column(column))?])),
                _ => invalid!(
                    "Expected {} elements in value tuple, but got 1: {}",
                    columns.len(),
                    term_text(term)
                ),
            },
        }
    }
}

/// The right side of a relation in messages.
fn shown(predicate: &Predicate) -> String {
    match predicate {
        Predicate::Compare(operator, term) => format!("{} {}", operator.symbol(), term_text(term)),
        _ => "IN (...)".to_owned(),
    }
}
