//! The conditions on key columns in a view's WHERE.

use std::cmp::Ordering;

use bytes::Bytes;
use types::CqlType;

/// How a value is compared with that of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `=`
    Equal,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// A condition on one column. `IS NOT NULL` needs none: a row without a value in its key is in no view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Compared with one value, as serialised.
    Compare(Operator, Bytes),
    /// Equal to one of these values, as serialised.
    In(Vec<Bytes>),
}

impl Condition {
    /// Whether a value fulfils it.
    pub(crate) fn holds(&self, ty: &CqlType, value: &[u8]) -> bool {
        match self {
            Self::Compare(operator, with) => {
                let order = ty.compare(value, with);
                match operator {
                    Operator::Equal => order == Ordering::Equal,
                    Operator::Less => order == Ordering::Less,
                    Operator::LessOrEqual => order != Ordering::Greater,
                    Operator::Greater => order == Ordering::Greater,
                    Operator::GreaterOrEqual => order != Ordering::Less,
                }
            }
            Self::In(values) => values.iter().any(|with| ty.compare(value, with) == Ordering::Equal),
        }
    }
}
