//! Tests of what computed tables contain, by their reads.

mod stored;
