//! Tests of the content of computed tables, by reads.

mod stored;
