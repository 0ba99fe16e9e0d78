//! Tests of the crate.

mod options;
mod queries;
mod terms;
