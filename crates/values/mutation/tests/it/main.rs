//! Laws of reconciliation, checked on random data against definitions that are obviously right; and the encoding of updates.

mod codec;
mod fuzz;
mod merge;
mod ranges;
mod rows;
