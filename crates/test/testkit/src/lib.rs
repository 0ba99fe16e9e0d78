//! Helpers that the tests of several crates share. Nothing that is released links it.

pub mod certificates;
pub mod data;
pub mod fuzz;
pub mod updates;
