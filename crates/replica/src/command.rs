//! What a replica can be asked, and what it answers: plain data that may cross shards and, later, nodes.

use std::sync::Arc;

use mutation::{
    Clustering, ColumnSelection, DecoratedKey, DeletionTime, PartitionRange, RangeTombstones, Row, Seconds,
    Slices,
};
use schema::Table;
use smallvec::SmallVec;

/// Keys of partitions; most reads name one.
pub type Keys = SmallVec<[DecoratedKey; 1]>;

/// Which partitions a read visits.
#[derive(Clone, Debug, PartialEq)]
pub enum Partitions {
    /// These, in this order.
    Keys(Keys),
    /// All of a range, in ring order.
    Range(PartitionRange),
}

/// When a page is full. Counts live rows; a partition of which only the static row lives counts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows in all.
    pub rows: u64,
    /// Rows of one partition (over all pages).
    pub rows_per_partition: u64,
    /// Bytes held by the result; a page is cut at the row that passes it.
    pub bytes: usize,
}

impl Limits {
    /// No limits.
    pub const NONE: Self = Self { rows: u64::MAX, rows_per_partition: u64::MAX, bytes: usize::MAX };
}

/// Where the page before ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Resume {
    /// The partition of the last row.
    pub key: DecoratedKey,
    /// The last row; none when the partition was finished, so that reading goes on behind it.
    pub clustering: Option<Clustering>,
    /// How many rows of that partition were returned so far.
    pub rows_in_partition: u64,
}

/// A read of one table.
#[derive(Clone, Debug)]
pub struct ReadCommand {
    /// Which table.
    pub table: Arc<Table>,
    /// Which partitions.
    pub partitions: Partitions,
    /// Which rows of each.
    pub slices: Slices,
    /// Which columns.
    pub columns: ColumnSelection,
    /// Rows in descending clustering order.
    pub reversed: bool,
    /// How much at most.
    pub limits: Limits,
    /// Go on after this place.
    pub resume: Option<Resume>,
    /// The time at which cells are live or expired, in seconds.
    pub now: Seconds,
    /// Leave the row cache as it is.
    pub bypass_cache: bool,
}

/// What a read found in one partition. Rows are reconciled, and in the order of the read; every row is live at the
/// command's `now`, but may hold dead cells beside live ones.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionResult {
    /// Which partition.
    pub key: DecoratedKey,
    /// Its deletion.
    pub deletion: DeletionTime,
    /// Its static row, live or not.
    pub static_row: Option<Row>,
    /// Its rows.
    pub rows: Vec<Row>,
    /// Its range tombstones within the rows read.
    pub range_tombstones: RangeTombstones,
}

impl PartitionResult {
    /// An empty result.
    pub fn new(key: DecoratedKey) -> Self {
        Self {
            key,
            deletion: DeletionTime::LIVE,
            static_row: None,
            rows: Vec::new(),
            range_tombstones: RangeTombstones::new(),
        }
    }

    /// How many rows it counts for: its rows, or one when only the static row lives.
    pub fn row_count(&self, now: Seconds) -> u64 {
        match self.rows.len() {
            0 => u64::from(self.static_row.as_ref().is_some_and(|row| row.has_live_cell(now))),
            n => n as u64,
        }
    }
}

/// One page of a read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadPage {
    /// Partitions with at least one live row (or live static row), in the order of the read.
    pub partitions: Vec<PartitionResult>,
    /// Where the next page begins; none when the read is complete.
    pub more: Option<Resume>,
    /// Tombstones stepped over.
    pub tombstones: u64,
}
