//! Tests of the crate.

mod options;
mod terms;
