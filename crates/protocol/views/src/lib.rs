//! Materialized views: the changes of a view by a write of its base table, as a function of the view's definition, the rows
//! before the write, and the write (docs/design/views.md).
//!
//! A view row is a copy of its base row: every deletion, cell and time to live with the timestamp that it has there, so that versions of a
//! view row merge as those of the base row do, from any replicas and in any order. A view's hidden column
//! ([`schema::HIDDEN`]) has the rest of the state that decides whether a view row is there.

mod changes;
mod definition;
mod image;
mod verification;

pub use definition::{InvalidView, View};
pub use verification::Difference;
