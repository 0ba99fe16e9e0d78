//! The values of `=` and `IN`: of one column, and of several together.

use crate::expr::Expr;

/// The values that a column is compared with by `=` or `IN`.
#[derive(Clone, Debug)]
pub enum Choice {
    /// `= x`
    One(Expr),
    /// `IN (x, y)`
    List(Vec<Expr>),
    /// `IN ?`: an expression whose value is a list.
    Marker(Expr),
}

impl Choice {
    /// Whether it is `=`.
    pub fn is_one(&self) -> bool {
        matches!(self, Self::One(_))
    }
}

/// A tuple of values for several clustering columns.
#[derive(Clone, Debug)]
pub enum TupleValue {
    /// `(x, y)`
    Parts(Vec<Expr>),
    /// `?`: an expression whose value is a tuple.
    Whole(Expr),
}

/// The tuples that several columns are compared with by `=` or `IN`.
#[derive(Clone, Debug)]
pub enum TupleChoice {
    /// `= (x, y)`
    One(TupleValue),
    /// `IN ((x, y), ?)`
    List(Vec<TupleValue>),
    /// `IN ?`: an expression whose value is a list of tuples.
    Marker(Expr),
}
