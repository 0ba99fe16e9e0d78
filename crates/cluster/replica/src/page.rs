//! From a merged stream of fragments to a page of rows: counting, limits, and where the next page begins. Pure.

use mutation::{Bound, DecoratedKey, DeletionTime, Fragment, RangeTombstone, Row, Seconds};

use crate::{Form, Limits, PartitionResult, ReadCommand, ReadPage, Resume};

/// The next step of the stream after a fragment was taken.
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
    form: Form,
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
    /// Live rows of this page.
    live: u64,
    /// Where the range deletion in force began, and which it is.
    range: Option<(Bound, DeletionTime)>,
    /// No more of its rows are wanted.
    done: bool,
}

impl PageBuilder {
    /// An empty page for a read.
    pub fn new(command: &ReadCommand) -> Self {
        Self {
            now: command.now,
            limits: command.limits,
            reversed: command.reversed,
            form: command.form,
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
                // As in Cassandra, which counts the marks at both ends.
                self.page.tombstones += 1;
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

    /// Ends the page inside the open partition, of which the stream has no more; how many live rows of it there were in
    /// all. A partition without any is left to the page that resumes there.
    pub fn break_off(&mut self) -> u64 {
        let open = self.open.take().expect("a page is broken off inside a partition");
        if open.live == 0 {
            self.page.partitions.pop();
        }
        open.rows_before + open.live
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
        if self.form != Form::Live {
            // Dead partitions have no rows that would end a page.
            self.bytes += size_of::<PartitionResult>() + key.key.len();
        }
        self.page.partitions.push(PartitionResult { deletion, ..PartitionResult::new(key) });
        self.open = Some(OpenPartition { rows_before, live: 0, range: None, done: false });
        Progress::More
    }

    fn row(&mut self, row: Row) -> Progress {
        let now = self.now;
        self.page.tombstones += row.tombstones(now) as u64;
        let (limits, form) = (self.limits, self.form);
        let (result, partition) = self.open_partition();
        if partition.done {
            return Progress::SkipPartition;
        }
        let live = row.is_live(now);
        if !live && form == Form::Live {
            return Progress::More;
        }
        let bytes = row.memory_size();
        result.rows.push(row);
        partition.live += u64::from(live);
        let in_partition = partition.rows_before + partition.live;
        partition.done = in_partition >= limits.rows_per_partition;
        let partition_done = partition.done;
        // Whether a static row is returned alone is known at the partition's end: a page without a row of it does not end
        // before.
        let undecided =
            in_partition == 0 && result.static_row.as_ref().is_some_and(|row| row.has_live_cell(now));
        self.rows += u64::from(live);
        self.bytes += bytes;
        if self.rows >= limits.rows
            || self.bytes >= limits.bytes && !undecided
            || partition_done && form.is_unbroken()
        {
            self.cut(partition_done && !form.is_unbroken(), in_partition);
            return Progress::Full;
        }
        if partition_done {
            self.close_range();
            return Progress::SkipPartition;
        }
        Progress::More
    }

    fn range_change(&mut self, bound: Bound, deletion: DeletionTime) {
        if self.form == Form::Live {
            // The stream has left out the rows that it hides; it has no other use.
            return;
        }
        let reversed = self.reversed;
        let mut bytes = 0;
        let (result, partition) = self.open_partition();
        if partition.done {
            return;
        }
        if let Some((from, before)) = partition.range.take() {
            bytes = size_of::<RangeTombstone>() + from.memory_size() + bound.memory_size();
            add_range(result, reversed, from, bound.clone(), before);
        }
        if !deletion.is_live() {
            partition.range = Some((bound, deletion));
        }
        self.bytes += bytes;
    }

    /// Ends the range deletion in force behind the last row: rows further on are not in the page.
    fn close_range(&mut self) {
        let reversed = self.reversed;
        let (result, partition) = self.open_partition();
        let Some((from, deletion)) = partition.range.take() else { return };
        let last = result.rows.last().expect("a range is closed behind a row");
        let bound =
            if reversed { Bound::before_row(&last.clustering) } else { Bound::after_row(&last.clustering) };
        add_range(result, reversed, from, bound, deletion);
    }

    fn end(&mut self) -> Progress {
        let open = self.open.take().expect("partitions end inside of themselves");
        let result = self.page.partitions.last().expect("the open partition is the last");
        let static_lives = result.static_row.as_ref().is_some_and(|row| row.has_live_cell(self.now));
        // The static row was returned with the rows of an earlier page.
        let counts_static = open.live == 0 && open.rows_before == 0 && static_lives;
        let kept = match self.form {
            Form::Live => open.live > 0 || counts_static,
            Form::Full | Form::Reconcilable | Form::Whole => !result.is_empty(),
        };
        if !kept {
            self.page.partitions.pop();
            return Progress::More;
        }
        self.rows += u64::from(counts_static);
        if self.rows >= self.limits.rows || self.bytes >= self.limits.bytes {
            let key = result.key.clone();
            self.page.more = Some(Resume { key, clustering: None, rows_in_partition: 0 });
            return Progress::Full;
        }
        Progress::More
    }

    /// Ends the page after the row just pushed, the last one wanted of its partition or not.
    fn cut(&mut self, partition_done: bool, rows_in_partition: u64) {
        self.close_range();
        self.open = None;
        let result = self.page.partitions.last().expect("a row was just pushed");
        let last: Option<&Row> = result.rows.last().filter(|_| !partition_done);
        let (key, clustering) = (result.key.clone(), last.map(|row| row.clustering.clone()));
        self.page.more = Some(Resume { key, clustering, rows_in_partition });
    }
}

fn add_range(result: &mut PartitionResult, reversed: bool, from: Bound, to: Bound, deletion: DeletionTime) {
    let (start, end) = if reversed { (to, from) } else { (from, to) };
    result.range_tombstones.insert(RangeTombstone { start, end, deletion });
}
