//! Materialized views: what a write of a base table changes in a view, as a function of the view's definition, the rows
//! before the write, and the write (docs/design/views.md).
//!
//! A view row is a copy of its base row: every deletion, cell and time to live with the timestamp that it has there, so that versions of a
//! view row merge as those of the base row do, whichever replicas they come from and in whatever order. A view's hidden column
//! ([`schema::HIDDEN`]) has what is beside that needed to tell whether a view row is there.

mod changes;
mod definition;
mod image;
mod verification;

pub use definition::{InvalidView, View};
pub use verification::Difference;
