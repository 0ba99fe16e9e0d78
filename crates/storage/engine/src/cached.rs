//! How reads meet the row cache: a partition that it knows is a source in memory; one that it does not know is read
//! from SSTables and given to it on the way.

use std::sync::Arc;

use cache::{Cache, CachedPartition};
use memtable::{PartitionCursor, Progress};
use mutation::fragment::FILL_BYTES_MAX;
use mutation::merge::{Merger, Step};
use mutation::{
    Bound, DecoratedKey, DeletionTime, Fragment, FragmentBuffer, PartitionUpdate, RangeTombstone, Row,
    RowRange, Slices,
};
use schema::Table;

use crate::ReadError;
use crate::input::SstableInput;

/// A cached partition as a source.
pub(crate) struct CachedSource {
    partition: CachedPartition,
    cursor: PartitionCursor,
    slices: Slices,
    reversed: bool,
    done: bool,
}

impl CachedSource {
    /// Resumes at `cursor`.
    pub(crate) fn new(
        partition: CachedPartition,
        cursor: PartitionCursor,
        slices: &Slices,
        reversed: bool,
    ) -> Self {
        Self { partition, cursor, slices: slices.clone(), reversed, done: false }
    }

    /// Appends a batch; false at the end.
    pub(crate) fn fill_now(&mut self, out: &mut FragmentBuffer) -> bool {
        if self.done {
            return false;
        }
        let (slices, reversed) = (&self.slices, self.reversed);
        let progress = self.partition.read(slices, reversed, &mut self.cursor, out, FILL_BYTES_MAX);
        self.done = progress != Progress::More;
        true
    }
}

/// The SSTables of one partition, merged, and shown to the cache as they pass.
pub(crate) struct PopulatingInput {
    merger: Merger,
    inputs: Vec<SstableInput>,
    collector: Collector,
}

impl PopulatingInput {
    pub(crate) fn new(merger: Merger, inputs: Vec<SstableInput>, collector: Collector) -> Self {
        assert!(!inputs.is_empty(), "the row cache is filled from an SSTable");
        Self { merger, inputs, collector }
    }

    /// Appends a batch; false at the end.
    pub(crate) async fn fill(&mut self, out: &mut FragmentBuffer) -> Result<bool, ReadError> {
        let mut bytes = 0;
        loop {
            match self.merger.next() {
                Step::Fragment(fragment) => {
                    self.collector.take(&fragment);
                    bytes += fragment.memory_size();
                    out.push_back(fragment);
                    if bytes >= FILL_BYTES_MAX {
                        return Ok(true);
                    }
                }
                Step::Need(_) if bytes > 0 => return Ok(true),
                Step::Need(input) => {
                    if !self.inputs[input].fill(self.merger.buffer(input)).await? {
                        self.merger.end(input);
                    }
                }
                Step::End => {
                    self.collector.finish();
                    return Ok(bytes > 0);
                }
            }
        }
    }
}

/// Bytes of rows that are given to the cache at once.
const GIVEN_AT_ONCE: usize = 64 << 10;

/// Gathers the rows that a read sees in a partition's SSTables, and gives them to the cache some at a time, at the end, and when the reader stops
/// early.
pub(crate) struct Collector {
    cache: Cache,
    epoch: u64,
    /// Those of which the cache was not yet given the rows.
    slices: Slices,
    reversed: bool,
    /// The partition's deletion and static row, which go with every part of it.
    header: PartitionUpdate,
    header_bytes: usize,
    /// Of the part that was not given yet, in the order in which they were read.
    rows: Vec<Row>,
    ranges: Vec<RangeTombstone>,
    bytes: usize,
    /// A range deletion in force, and from where.
    open: Option<(Bound, DeletionTime)>,
    /// Everything was given, or something is too large for the cache.
    done: bool,
}

impl Collector {
    pub(crate) fn new(
        cache: &Cache,
        table: Arc<Table>,
        key: &DecoratedKey,
        slices: &Slices,
        reversed: bool,
    ) -> Self {
        Self {
            cache: cache.clone(),
            epoch: cache.epoch(table.id),
            slices: slices.clone(),
            reversed,
            header: PartitionUpdate::new(table, key.clone()),
            header_bytes: 0,
            rows: Vec::new(),
            ranges: Vec::new(),
            bytes: 0,
            open: None,
            done: false,
        }
    }

    fn take(&mut self, fragment: &Fragment) {
        if self.done {
            return;
        }
        let size = fragment.memory_size();
        self.bytes += size;
        if !matches!(fragment, Fragment::Row(_)) {
            self.header_bytes += size;
        }
        if size.max(self.header_bytes) > self.cache.item_bytes_max() {
            self.done = true;
            (self.rows, self.ranges) = (Vec::new(), Vec::new());
            return;
        }
        match fragment {
            Fragment::PartitionStart { deletion, .. } => self.header.add_deletion(*deletion),
            Fragment::StaticRow(row) => self.header.add_static(row.clone()),
            Fragment::Row(row) => {
                self.rows.push(row.clone());
                if self.bytes >= GIVEN_AT_ONCE {
                    self.give_rows();
                }
            }
            Fragment::RangeTombstoneChange { bound, deletion } => self.change(bound, *deletion),
            Fragment::PartitionEnd => {}
        }
    }

    fn change(&mut self, bound: &Bound, deletion: DeletionTime) {
        if let Some((from, deletion)) = self.open.take() {
            let (start, end) = if self.reversed { (bound.clone(), from) } else { (from, bound.clone()) };
            self.ranges.push(RangeTombstone { start, end, deletion });
        }
        if !deletion.is_live() {
            self.open = Some((bound.clone(), deletion));
        }
    }

    /// Everything was seen.
    fn finish(&mut self) {
        if self.done {
            return;
        }
        assert!(self.open.is_none(), "a range deletion ends in the slices that are cached");
        self.done = true;
        let known = std::mem::replace(&mut self.slices, Slices::none());
        self.give(known);
    }

    /// Gives the rows up to the last one that was seen.
    fn give_rows(&mut self) {
        let Some(last) = self.rows.last().map(|row| row.clustering.clone()) else { return };
        let cut = match self.reversed {
            true => Bound::before_row(&last),
            false => Bound::after_row(&last),
        };
        if let Some((_, deletion)) = self.open {
            self.change(&cut, deletion);
        }
        let rest = self.slices.after(&last, self.reversed);
        let clip = |range: &RowRange| {
            let (mut start, mut end) = (range.start.clone(), range.end.clone());
            if self.reversed {
                start = start.max(cut.clone())
            } else {
                end = end.min(cut.clone())
            }
            RowRange { start, end }
        };
        let known = Slices::new(self.slices.ranges().iter().map(clip).collect());
        self.slices = rest;
        self.give(known);
    }

    fn give(&mut self, known: Slices) {
        let mut update = self.header.clone();
        let mut rows = std::mem::take(&mut self.rows);
        if self.reversed {
            rows.reverse();
        }
        rows.into_iter().for_each(|row| update.add_row(row));
        self.ranges.drain(..).for_each(|range| update.add_range_tombstone(range));
        self.bytes = 0;
        let table = update.table.clone();
        self.cache.insert(&table, self.epoch, update, known);
    }
}

impl Drop for Collector {
    /// A reader that stops early, at a limit, leaves the rows up to its last one.
    fn drop(&mut self) {
        if !self.done {
            self.give_rows();
        }
    }
}
