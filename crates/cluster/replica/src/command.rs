//! The requests to a replica, and its answers: plain data that may cross shards and, later, nodes.

use std::sync::Arc;

use engine::IndexQuery;
use mutation::{
    Bound, Clustering, ColumnSelection, DecoratedKey, DeletionTime, PartitionRange, RangeTombstones, Row,
    RowRange, Seconds, Slices, range,
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
    /// The last row; none when the partition was finished, so that the read resumes after it.
    pub clustering: Option<Clustering>,
    /// How many rows of that partition were returned so far.
    pub rows_in_partition: u64,
}

/// The part of a partition that a page holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Live rows: those that a client is to see.
    #[default]
    Live,
    /// Dead rows and deletions too, those past their grace left out: the form in which replicas' answers are compared. Where two
    /// replicas hold the same data, the pages are the same.
    Full,
    /// [`Form::Full`], and nothing is left out up to the page's end: where a partition's limit is reached the page ends too.
    /// The inputs of the merge of replicas' answers.
    Reconcilable,
    /// [`Form::Reconcilable`] with deletions past their grace: everything that the replica knows, as repair needs it.
    Whole,
}

impl Form {
    /// Whether a page is complete up to its end.
    pub fn is_unbroken(self) -> bool {
        matches!(self, Self::Reconcilable | Self::Whole)
    }
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
    /// The limits of the page.
    pub form: Form,
    /// Of a range: instead of its rows, the places that an index finds. Such a page has rows without columns, and a static row with
    /// one empty cell where the index finds the static row; they are live, even if the rows are not.
    pub index: Option<Arc<IndexQuery>>,
}

impl ReadCommand {
    /// All live rows and columns of these partitions, without limits, by way of the row cache.
    pub fn all_of(table: Arc<Table>, partitions: Partitions, now: Seconds) -> Self {
        Self {
            table,
            partitions,
            slices: Slices::all(),
            columns: ColumnSelection::All,
            reversed: false,
            limits: Limits::NONE,
            resume: None,
            now,
            bypass_cache: false,
            form: Form::Live,
            index: None,
        }
    }
}

/// A look for the only row that slices of one partition have, without paging and limits.
#[derive(Clone, Copy, Debug)]
pub struct RowLookup<'a> {
    /// Which table.
    pub table: &'a Table,
    /// Which partition.
    pub key: &'a DecoratedKey,
    /// Which rows of it.
    pub slices: &'a Slices,
    /// The time at which cells are live or expired, in seconds.
    pub now: Seconds,
    /// Leave the row cache as it is.
    pub bypass_cache: bool,
    /// See [`engine::RowLookup::values_only`].
    pub values_only: bool,
}

/// The rows that a read found in one partition. Rows are reconciled, and in the order of the read; in a page of [`Form::Live`] every
/// row is live at the command's `now`, but may hold dead cells beside live ones.
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

    /// How many rows it counts for: its live rows, or one when only the static row lives.
    pub fn row_count(&self, now: Seconds) -> u64 {
        match self.live_rows(now) {
            0 => u64::from(self.static_row.as_ref().is_some_and(|row| row.has_live_cell(now))),
            live => live,
        }
    }

    /// How many of its rows are live.
    pub fn live_rows(&self, now: Seconds) -> u64 {
        self.rows.iter().filter(|row| row.is_live(now)).count() as u64
    }

    /// Keeps the first `rows` rows (one at least) in the order of the read, and the parts of range tombstones up to there.
    pub fn truncate(&mut self, rows: usize, reversed: bool) {
        self.rows.truncate(rows);
        let last = self.rows.last().expect("a row is kept").clustering.clone();
        self.clip_ranges(&last, reversed);
    }

    /// Keeps the parts of range tombstones up to the row `last` (included) in the order of the read.
    pub fn clip_ranges(&mut self, last: &Clustering, reversed: bool) {
        if self.range_tombstones.is_empty() {
            return;
        }
        let range = Self::upto(last, reversed);
        self.range_tombstones = range::clip(&self.range_tombstones, &Slices::new(vec![range]));
    }

    /// Up to the row `last` (included) in the order of a read.
    pub(crate) fn upto(last: &Clustering, reversed: bool) -> RowRange {
        if reversed {
            RowRange { start: Bound::before_row(last), end: Bound::top() }
        } else {
            RowRange { start: Bound::bottom(), end: Bound::after_row(last) }
        }
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.deletion.is_live()
            && self.static_row.as_ref().is_none_or(Row::is_empty)
            && self.rows.is_empty()
            && self.range_tombstones.is_empty()
    }
}

/// One page of a read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadPage {
    /// Partitions with at least one live row (or live static row; in full forms with anything), in the order of the read.
    pub partitions: Vec<PartitionResult>,
    /// Where the next page begins; none when the read is complete.
    pub more: Option<Resume>,
    /// Tombstones stepped over.
    pub tombstones: u64,
    /// When the shards that were read had truncated the table last, before they were read: the earliest, microseconds since 1970.
    /// in [`Form::Reconcilable`], for a read repair takes nothing of before a truncation to a replica that has truncated
    /// since; other forms have 0.
    pub truncated_at: i64,
}
