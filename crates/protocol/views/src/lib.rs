//! Materialized views: what a write of a base table changes in a view, as a function of the view's definition, the rows
//! before the write, and the write (docs/design/views.md).
//!
//! A view row is a copy of its base row: every deletion, cell and time to live with the timestamp that it has there, so that versions of a
//! view row merge as those of the base row do, whichever replicas they come from and in whatever order. A view's hidden column
//! ([`HIDDEN`]) has what is beside that needed to tell whether a view row is there.

mod changes;
mod condition;
mod definition;
mod image;

pub use condition::{Condition, Operator};
pub use definition::{InvalidView, View};

/// Name of the column of a view that clients do not see. No CQL statement can name it.
///
/// In a view whose key has a regular column of the base table it is a copy of that column's cell, and a row of the view is there while
/// the hidden cell is live and equal to the key's value. In another view it is a map with an element for each cell
/// of a base column that the view does not show: a view row without anything else is there as long as one of them lives.
pub const HIDDEN: &str = "";
