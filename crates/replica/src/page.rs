//! From a merged stream of fragments to a page of live rows: counting, limits, and where the next page begins. Pure.

use mutation::{Bound, DecoratedKey, DeletionTime, Fragment, RangeTombstone, Row, Seconds};

use crate::{Limits, PartitionResult, ReadPage, Resume};

/// What to do with the stream after a fragment was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Go on.
    More,
    /// Nothing further of this partition is wanted; skip to the next.
    SkipPartition,
    /// The page is full.
    Full,
}

/// Builds one page.
#[derive(Debug)]
pub struct PageBuilder {
    now: Seconds,
    limits: Limits,
    reversed: bool,
    page: ReadPage,
    rows: u64,
    bytes: usize,
    /// Rows of the partition that earlier pages returned.
    resumed: Option<(DecoratedKey, u64)>,
    /// The last of the page's partitions is still being filled.
    open: Option<OpenPartition>,
}

#[derive(Debug)]
struct OpenPartition {
    rows_before: u64,
    /// Where the range deletion in force began, and which it is.
    range: Option<(Bound, DeletionTime)>,
    /// No more of its rows are wanted.
    done: bool,
}

impl PageBuilder {
    /// An empty page.
    pub fn new(now: Seconds, limits: Limits, reversed: bool) -> Self {
        Self {
            now,
            limits,
            reversed,
            page: ReadPage::default(),
            rows: 0,
            bytes: 0,
            resumed: None,
            open: None,
        }
    }

    /// Says that `rows` rows of this partition were returned by earlier pages.
    pub fn resume(&mut self, key: DecoratedKey, rows: u64) {
        self.resumed = Some((key, rows));
    }

    /// Takes the next fragment.
    pub fn push(&mut self, fragment: Fragment) -> Progress {
        match fragment {
            Fragment::PartitionStart { key, deletion } => self.start(key, deletion),
            Fragment::StaticRow(row) => {
                self.page.tombstones += row.tombstones(self.now) as u64;
                self.open_partition().0.static_row = Some(row);
                Progress::More
            }
            Fragment::Row(row) => self.row(row),
            Fragment::RangeTombstoneChange { bound, deletion } => {
                self.page.tombstones += u64::from(!deletion.is_live());
                self.range_change(bound, deletion);
                Progress::More
            }
            Fragment::PartitionEnd => self.end(),
        }
    }

    /// Tombstones stepped over so far.
    pub fn tombstones(&self) -> u64 {
        self.page.tombstones
    }

    /// The page, when the stream has ended or the page is full.
    pub fn finish(self) -> ReadPage {
        assert!(self.open.is_none(), "a page is finished between partitions or when it is full");
        self.page
    }

    fn open_partition(&mut self) -> (&mut PartitionResult, &mut OpenPartition) {
        let open = self.open.as_mut().expect("rows lie inside a partition");
        (self.page.partitions.last_mut().expect("the open partition is the last"), open)
    }

    fn start(&mut self, key: DecoratedKey, deletion: DeletionTime) -> Progress {
        assert!(self.open.is_none(), "partitions do not nest");
        let rows_before = match &self.resumed {
            Some((resumed, rows)) if *resumed == key => *rows,
            _ => 0,
        };
        self.page.tombstones += u64::from(!deletion.is_live());
        self.page.partitions.push(PartitionResult { deletion, ..PartitionResult::new(key) });
        self.open = Some(OpenPartition { rows_before, range: None, done: false });
        Progress::More
    }

    fn row(&mut self, row: Row) -> Progress {
        let now = self.now;
        self.page.tombstones += row.tombstones(now) as u64;
        let limits = self.limits;
        let (result, partition) = self.open_partition();
        if partition.done {
            return Progress::SkipPartition;
        }
        if !row.is_live(now) {
            return Progress::More;
        }
        let bytes = row.memory_size();
        result.rows.push(row);
        let in_partition = partition.rows_before + result.rows.len() as u64;
        partition.done = in_partition >= limits.rows_per_partition;
        let partition_done = partition.done;
        self.rows += 1;
        self.bytes += bytes;
        if self.rows >= limits.rows || self.bytes >= limits.bytes {
            self.cut(partition_done, in_partition);
            return Progress::Full;
        }
        if partition_done { Progress::SkipPartition } else { Progress::More }
    }

    fn range_change(&mut self, bound: Bound, deletion: DeletionTime) {
        let reversed = self.reversed;
        let (result, partition) = self.open_partition();
        if let Some((from, before)) = partition.range.take() {
            let (start, end) = if reversed { (bound.clone(), from) } else { (from, bound.clone()) };
            result.range_tombstones.insert(RangeTombstone { start, end, deletion: before });
        }
        if !deletion.is_live() {
            partition.range = Some((bound, deletion));
        }
    }

    fn end(&mut self) -> Progress {
        let open = self.open.take().expect("partitions end inside of themselves");
        let result = self.page.partitions.last().expect("the open partition is the last");
        // The static row was returned with the rows of an earlier page.
        let seen = open.rows_before > 0 && result.rows.is_empty();
        if seen || result.row_count(self.now) == 0 {
            self.page.partitions.pop();
            return Progress::More;
        }
        if result.rows.is_empty() {
            self.rows += 1;
        }
        if self.rows >= self.limits.rows || self.bytes >= self.limits.bytes {
            let key = result.key.clone();
            self.page.more = Some(Resume { key, clustering: None, rows_in_partition: 0 });
            return Progress::Full;
        }
        Progress::More
    }

    /// Ends the page after the row just pushed, the last one wanted of its partition or not.
    fn cut(&mut self, partition_done: bool, rows_in_partition: u64) {
        self.open = None;
        let result = self.page.partitions.last().expect("a row was just pushed");
        let last: Option<&Row> = result.rows.last().filter(|_| !partition_done);
        let (key, clustering) = (result.key.clone(), last.map(|row| row.clustering.clone()));
        self.page.more = Some(Resume { key, clustering, rows_in_partition });
    }
}
