//! Restrictions of rows and tokens: the prefix of the clustering columns that finds rows, and `token(…)`.

use super::choice::{Choice, TupleChoice, TupleValue};
use crate::expr::Expr;

/// One end of a slice.
#[derive(Clone, Debug)]
pub struct SliceEnd {
    /// As many values as columns are restricted.
    pub value: TupleValue,
    /// Whether rows equal to the value belong to the slice.
    pub inclusive: bool,
    /// How many columns it restricts.
    pub width: usize,
    /// Whether it is written as a tuple, of one column as well: its nulls are refused.
    pub is_tuple: bool,
}

/// The restriction of the clustering columns from some position on.
#[derive(Clone, Debug)]
pub enum RowRestriction {
    /// One column by `=` or `IN`.
    Single(Choice),
    /// Several columns by `=` or `IN`.
    Multi(usize, TupleChoice),
    /// A slice; no restriction comes after it.
    Slice {
        /// Greater than this.
        start: Option<SliceEnd>,
        /// Less than this.
        end: Option<SliceEnd>,
        /// `NOT IN`: rows with these values do not belong to the slice.
        except: Vec<RowRestriction>,
    },
}

/// The restriction of the token of the partition key.
#[derive(Clone, Debug, Default)]
pub struct TokenRange {
    /// Greater than, and whether equal belongs to it.
    pub start: Option<(Expr, bool)>,
    /// Less than, and whether equal belongs to it.
    pub end: Option<(Expr, bool)>,
    /// Whether both are one value, by `=`.
    pub equal: bool,
}
