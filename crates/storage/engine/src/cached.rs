//! How reads meet the row cache: a partition that it knows is a source in memory; one that it does not know is read
//! from SSTables and given to it on the way.

use std::rc::Rc;
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

/// Gathers the rows that a read sees in a partition's SSTables, and gives them to the cache at the end, or when the reader stops
/// early.
pub(crate) struct Collector {
    cache: Cache,
    epoch: u64,
    slices: Rc<Slices>,
    reversed: bool,
    /// None when it became too large, or was given away.
    update: Option<PartitionUpdate>,
    rows: Vec<Row>,
    bytes: usize,
    /// A range deletion in force, and from where.
    open: Option<(Bound, DeletionTime)>,
}

impl Collector {
    pub(crate) fn new(
        cache: &Cache,
        table: Arc<Table>,
        key: &DecoratedKey,
        slices: Rc<Slices>,
        reversed: bool,
    ) -> Self {
        Self {
            cache: cache.clone(),
            epoch: cache.epoch(table.id),
            slices,
            reversed,
            update: Some(PartitionUpdate::new(table, key.clone())),
            rows: Vec::new(),
            bytes: 0,
            open: None,
        }
    }

    fn take(&mut self, fragment: &Fragment) {
        let Some(update) = &mut self.update else { return };
        self.bytes += fragment.memory_size();
        if self.bytes > self.cache.partition_bytes_max() {
            self.update = None;
            self.rows = Vec::new();
            return;
        }
        match fragment {
            Fragment::PartitionStart { deletion, .. } => update.add_deletion(*deletion),
            Fragment::StaticRow(row) => update.add_static(row.clone()),
            Fragment::Row(row) => self.rows.push(row.clone()),
            Fragment::RangeTombstoneChange { bound, deletion } => self.change(bound, *deletion),
            Fragment::PartitionEnd => {}
        }
    }

    fn change(&mut self, bound: &Bound, deletion: DeletionTime) {
        let (before, update) = (self.open.take(), self.update.as_mut().expect("asked before"));
        if let Some((from, deletion)) = before {
            let (start, end) = if self.reversed { (bound.clone(), from) } else { (from, bound.clone()) };
            update.add_range_tombstone(RangeTombstone { start, end, deletion });
        }
        if !deletion.is_live() {
            self.open = Some((bound.clone(), deletion));
        }
    }

    /// Everything was seen.
    fn finish(&mut self) {
        let known = (*self.slices).clone();
        self.give(known);
    }

    fn give(&mut self, known: Slices) {
        let Some(mut update) = self.update.take() else { return };
        assert!(self.open.is_none(), "a range deletion ends in the slices that are cached");
        let mut rows = std::mem::take(&mut self.rows);
        if self.reversed {
            rows.reverse();
        }
        rows.into_iter().for_each(|row| update.add_row(row));
        let table = update.table.clone();
        self.cache.insert(&table, self.epoch, update, known);
    }
}

impl Drop for Collector {
    /// A reader that stops early, at a limit, leaves the rows up to its last one.
    fn drop(&mut self) {
        let (Some(update), Some(last)) = (&self.update, self.rows.last()) else { return };
        let cut = if self.reversed {
            Bound::before_row(&update.table, &last.clustering)
        } else {
            Bound::after_row(&update.table, &last.clustering)
        };
        if self.open.is_some() {
            self.change(&cut, DeletionTime::LIVE);
        }
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
        self.give(known);
    }
}
