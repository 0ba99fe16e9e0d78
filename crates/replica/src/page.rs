//! From a merged stream of fragments to a page of live rows: counting, limits, and where the next page begins. Pure.

use mutation::{Bound, Clustering, DecoratedKey, DeletionTime, Fragment, RangeTombstone, Row, Seconds};

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
    open: Option<OpenPartition>,
}

#[derive(Debug)]
struct OpenPartition {
    result: PartitionResult,
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
                self.partition().result.static_row = Some(row);
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

    fn partition(&mut self) -> &mut OpenPartition {
        self.open.as_mut().expect("rows lie inside a partition")
    }

    fn start(&mut self, key: DecoratedKey, deletion: DeletionTime) -> Progress {
        assert!(self.open.is_none(), "partitions do not nest");
        let rows_before = match &self.resumed {
            Some((resumed, rows)) if *resumed == key => *rows,
            _ => 0,
        };
        self.page.tombstones += u64::from(!deletion.is_live());
        let mut result = PartitionResult::new(key);
        result.deletion = deletion;
        self.open = Some(OpenPartition { result, rows_before, range: None, done: false });
        Progress::More
    }

    fn row(&mut self, row: Row) -> Progress {
        let now = self.now;
        self.page.tombstones += row.tombstones(now) as u64;
        let limits = self.limits;
        let partition = self.open.as_mut().expect("rows lie inside a partition");
        if partition.done {
            return Progress::SkipPartition;
        }
        if !row.is_live(now) {
            return Progress::More;
        }
        self.rows += 1;
        self.bytes += row.memory_size();
        partition.result.rows.push(row);
        let in_partition = partition.rows_before + partition.result.rows.len() as u64;
        partition.done = in_partition >= limits.rows_per_partition;
        let partition_done = partition.done;
        if self.rows >= limits.rows || self.bytes >= limits.bytes {
            let last = partition.result.rows.last().expect("a row was just pushed").clustering.clone();
            self.cut(if partition_done { None } else { Some(last) }, in_partition);
            return Progress::Full;
        }
        if partition_done { Progress::SkipPartition } else { Progress::More }
    }

    fn range_change(&mut self, bound: Bound, deletion: DeletionTime) {
        let reversed = self.reversed;
        let partition = self.partition();
        if let Some((from, before)) = partition.range.take() {
            let (start, end) = if reversed { (bound.clone(), from) } else { (from, bound.clone()) };
            partition.result.range_tombstones.insert(RangeTombstone { start, end, deletion: before });
        }
        if !deletion.is_live() {
            partition.range = Some((bound, deletion));
        }
    }

    fn end(&mut self) -> Progress {
        let resumed = self.partition().rows_before > 0;
        let partition = self.open.take().expect("checked above");
        let result = partition.result;
        let mut count = result.row_count(self.now);
        if resumed && result.rows.is_empty() {
            // The static row was returned with the rows of an earlier page.
            count = 0;
        }
        if count == 0 {
            return Progress::More;
        }
        let key = result.key.clone();
        if result.rows.is_empty() {
            self.rows += 1;
        }
        self.page.partitions.push(result);
        if self.rows >= self.limits.rows || self.bytes >= self.limits.bytes {
            self.page.more = Some(Resume { key, clustering: None, rows_in_partition: 0 });
            return Progress::Full;
        }
        Progress::More
    }

    /// Ends the page after the row just pushed.
    fn cut(&mut self, clustering: Option<Clustering>, rows_in_partition: u64) {
        let partition = self.open.take().expect("a row was just pushed");
        let key = partition.result.key.clone();
        self.page.partitions.push(partition.result);
        self.page.more = Some(Resume { key, clustering, rows_in_partition });
    }
}
