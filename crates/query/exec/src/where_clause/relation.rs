//! Relations as they are collected: on one column and on several, before they are sorted into restrictions.

use cql::ast::ComparisonOperator;

use super::choice::{Choice, TupleChoice, TupleValue};
use crate::expr::Expr;

/// One relation on one column, before it is sorted.
pub(super) enum Single {
    Equal(Expr),
    In(Choice),
    Slice(ComparisonOperator, Expr),
    NotIn(Choice),
}

impl Single {
    /// Whether it leaves a range of values and not a choice among them.
    pub(super) fn is_slice(&self) -> bool {
        matches!(self, Self::Slice(..) | Self::NotIn(_))
    }
}

/// A relation on several clustering columns.
pub(super) struct Multi {
    pub(super) first: usize,
    pub(super) width: usize,
    pub(super) names: Vec<String>,
    pub(super) kind: MultiKind,
}

pub(super) enum MultiKind {
    Choice(TupleChoice),
    Slice(ComparisonOperator, TupleValue),
    NotIn(TupleChoice),
}

/// Whether an operator gives the lower end of a slice.
pub(super) fn is_start(operator: ComparisonOperator) -> bool {
    matches!(operator, ComparisonOperator::Greater | ComparisonOperator::GreaterOrEqual)
}
