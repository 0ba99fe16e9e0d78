//! Laws of reconciliation, checked on random data against definitions that are obviously right.

mod merge;
mod ranges;
mod rows;
