//! The figures of SSTables and of their table by which a strategy decides.

use mutation::{Seconds, Timestamp};

/// The view that a strategy has of an SSTable that takes part in no compaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The caller's name for it.
    pub id: usize,
    /// Bytes of its data.
    pub bytes: u64,
    /// Its level; 0 outside of leveled compaction.
    pub level: u32,
    /// Token of its first partition.
    pub first: i64,
    /// Token of its last partition.
    pub last: i64,
    /// Largest write timestamp in it.
    pub timestamp_max: Timestamp,
    /// Estimated share of cells that are tombstones past their grace.
    pub droppable: f64,
    /// Seconds since it was written.
    pub age: u64,
    /// Whether all of it has expired and it hides nothing elsewhere that has not.
    pub expired: bool,
    /// Whether other SSTables overlap its tokens, so that its tombstones may be needed.
    pub overlapped: bool,
}

/// Figures of a table beside those of its SSTables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFigures {
    /// The server's clock.
    pub now: Seconds,
    /// Bytes of data of a flushed SSTable, on average; 0 while nothing was flushed.
    pub flush_bytes: u64,
}
