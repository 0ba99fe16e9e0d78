//! A reader's place in one partition of a memtable, kept between batches while the memtable is written.

use std::collections::BTreeMap;
use std::ops::Bound::Excluded;
use std::rc::Rc;

use mutation::{Clustering, DecoratedKey, Fragment, FragmentBuffer, RangeChanges, Row, RowRange, Slices};

use crate::Memtable;
use crate::partition::{ManyRows, Partition, Rows};
use crate::snapshot::Snapshot;

/// Where a reader of one partition is. Everything is handed on as it was when the reading of the partition began,
/// regardless of writes between the batches.
#[derive(Debug, Default)]
pub struct PartitionCursor {
    started: bool,
    /// The last row handed on.
    last: Option<Clustering>,
    /// The data that was written since the reading began, from the end of the first batch on.
    snapshot: Option<Rc<Snapshot>>,
    /// The only row of the partition, of a reader that stopped before it: no snapshot keeps the versions of an only row.
    only: Option<Row>,
    /// Index of the slice being read, counted in the direction of the read.
    slice: usize,
    /// The rest of its range tombstones; none where it has none.
    changes: Option<Box<RangeChanges>>,
}

/// The result of [`Memtable::read_partition`] or [`Partition::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The memtable has nothing of the partition.
    Absent,
    /// The partition's end was handed on.
    Finished,
    /// The batch is full; call again.
    More,
}

/// The content of a partition within slices, when that is simple.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OnlyRow<'a> {
    /// Nothing.
    Absent,
    /// One row, and nothing beside it.
    Row(&'a Row),
    /// More: several rows, deletions, or a static row.
    More,
}

impl Memtable {
    /// Hands the only row of a partition within `slices` to `visit` where it lies; see [`Partition::only_row`]. Nothing is to be written meanwhile.
    #[inline]
    pub fn only_row<T>(
        &self,
        key: &DecoratedKey,
        slices: &Slices,
        with_static: bool,
        visit: impl FnOnce(OnlyRow<'_>) -> T,
    ) -> T {
        match self.partition(key) {
            Some(partition) => visit(partition.only_row(slices, with_static)),
            None => visit(OnlyRow::Absent),
        }
    }

    /// Hands on fragments of one partition: about `bytes_max` bytes, at least one fragment. With `reversed` the
    /// rows come in descending order.
    pub fn read_partition(
        &self,
        key: &DecoratedKey,
        slices: &Slices,
        reversed: bool,
        cursor: &mut PartitionCursor,
        out: &mut FragmentBuffer,
        bytes_max: usize,
    ) -> Progress {
        match self.partition(key) {
            Some(partition) => partition.read(key, slices, reversed, cursor, out, bytes_max),
            None => {
                assert!(!cursor.started, "a memtable does not lose partitions");
                Progress::Absent
            }
        }
    }

    /// Whether fragments of this partition can be handed on without a merge, because nothing in it hides another part
    /// of it.
    pub fn is_plain(&self, key: &DecoratedKey) -> bool {
        !self.has_deletions() || self.partition(key).is_none_or(|partition| !partition.has_deletions())
    }
}

impl Partition {
    /// Its only row within `slices`. The static row does not count unless it is wanted, `with_static`.
    #[inline]
    pub fn only_row(&self, slices: &Slices, with_static: bool) -> OnlyRow<'_> {
        if self.has_deletions() || with_static && self.static_row.is_some() {
            return OnlyRow::More;
        }
        match &self.rows {
            Rows::None => OnlyRow::Absent,
            Rows::One(row) if slices.contains(&row.clustering) => OnlyRow::Row(row),
            Rows::One(_) => OnlyRow::Absent,
            Rows::Many(_) => self.only_row_of_many(slices),
        }
    }

    fn only_row_of_many(&self, slices: &Slices) -> OnlyRow<'_> {
        let [range] = slices.ranges() else { return OnlyRow::More };
        let mut rows = self.rows.within(range);
        match (rows.next(), rows.next()) {
            (None, _) => OnlyRow::Absent,
            (Some(row), None) => OnlyRow::Row(row),
            (Some(_), Some(_)) => OnlyRow::More,
        }
    }

    /// Hands on its fragments, as [`Memtable::read_partition`] does.
    pub fn read(
        &self,
        key: &DecoratedKey,
        slices: &Slices,
        reversed: bool,
        cursor: &mut PartitionCursor,
        out: &mut FragmentBuffer,
        bytes_max: usize,
    ) -> Progress {
        let mut budget = bytes_max;
        if !cursor.started {
            cursor.started = true;
            out.push_back(Fragment::PartitionStart { key: key.clone(), deletion: self.deletion });
            if let Some(row) = &self.static_row {
                budget = budget.saturating_sub(row.memory_size());
                out.push_back(Fragment::StaticRow((**row).clone()));
            }
            if !self.ranges.is_empty() {
                cursor.changes = Some(Box::new(RangeChanges::new(&self.ranges, reversed)));
            }
        }
        while let Some(range) = nth_slice(slices, cursor.slice, reversed) {
            if !cursor.rows(self, (slices, range), reversed, out, &mut budget) {
                cursor.stop(self, reversed);
                return Progress::More;
            }
            cursor.slice += 1;
        }
        if !cursor.changes_before(None, slices, reversed, out, &mut budget) {
            cursor.stop(self, reversed);
            return Progress::More;
        }
        out.push_back(Fragment::PartitionEnd);
        Progress::Finished
    }
}

/// A row as a reader that stopped must see it; none when it was not there yet. Cells not written since are unchanged.
fn as_it_was<'a>(
    key: &Clustering,
    row: &'a Row,
    written: Option<&'a BTreeMap<Clustering, Option<Row>>>,
) -> Option<&'a Row> {
    match written.and_then(|written| written.get(key.position())) {
        None => Some(row),
        Some(before) => before.as_ref(),
    }
}

fn nth_slice(slices: &Slices, n: usize, reversed: bool) -> Option<&RowRange> {
    let ranges = slices.ranges();
    if reversed { ranges.get(ranges.len().checked_sub(n + 1)?) } else { ranges.get(n) }
}

impl PartitionCursor {
    /// Hands on the rows of one of the slices from the cursor's place; false when the batch is full.
    fn rows(
        &mut self,
        partition: &Partition,
        (slices, range): (&Slices, &RowRange),
        reversed: bool,
        out: &mut FragmentBuffer,
        budget: &mut usize,
    ) -> bool {
        let (mut low, mut high) = (range.start.position(), range.end.position());
        let last = self.last.clone();
        if let Some(last) = &last {
            if reversed { high = high.min(last.position()) } else { low = low.max(last.position()) }
        }
        if low >= high {
            return true;
        }
        let within = |row: &Row| low < row.clustering.position() && row.clustering.position() < high;
        if let Some(row) = self.only.take() {
            let is_passed = !within(&row) || self.only_row(&row, slices, reversed, out, budget);
            self.only = Some(row);
            return is_passed;
        }
        let snapshot = self.snapshot.clone();
        match &partition.rows {
            Rows::None => true,
            Rows::One(row) => {
                let is_passed = !within(row) || self.only_row(row, slices, reversed, out, budget);
                if !is_passed {
                    self.only = Some(row.clone());
                }
                is_passed
            }
            Rows::Many(many) => {
                let written = snapshot.as_ref().map(|snapshot| snapshot.written());
                let written = written.as_deref().filter(|written| !written.is_empty());
                let mut rows = many.map.range::<[u8], _>((Excluded(low), Excluded(high)));
                let mut before: Option<&Row> = None;
                loop {
                    let next = if reversed { rows.next_back() } else { rows.next() };
                    let Some((key, row)) = next else { return true };
                    let Some(row) = as_it_was(key, row, written) else { continue };
                    if *budget == 0 {
                        return false;
                    }
                    if !self.changes_before(Some(row), slices, reversed, out, budget) {
                        self.last = before.map(|row| row.clustering.clone()).or(self.last.take());
                        return false;
                    }
                    self.row(row, out, budget);
                    before = Some(row);
                }
            }
        }
    }

    /// Stops until the next batch; writes to the partition meanwhile are hidden from it.
    fn stop(&mut self, partition: &Partition, reversed: bool) {
        let Rows::Many(ManyRows { readers, .. }) = &partition.rows else { return };
        match &self.snapshot {
            Some(snapshot) => snapshot.advance(self.last.as_ref()),
            None => self.snapshot = Some(readers.open(self.last.clone(), reversed)),
        }
    }

    /// Hands on the range deletions that change before a row, or all that are left; false when the batch is full.
    fn changes_before(
        &mut self,
        row: Option<&Row>,
        slices: &Slices,
        reversed: bool,
        out: &mut FragmentBuffer,
        budget: &mut usize,
    ) -> bool {
        let Some(changes) = &mut self.changes else { return true };
        while let Some((bound, _)) = changes.peek(slices) {
            if let Some(row) = row {
                let (change, place) = (bound.position(), row.clustering.position());
                if if reversed { change < place } else { change > place } {
                    break;
                }
            }
            if *budget == 0 {
                return false;
            }
            let (bound, deletion) = changes.pop().expect("just seen");
            let change = Fragment::RangeTombstoneChange { bound, deletion };
            *budget = budget.saturating_sub(change.memory_size());
            out.push_back(change);
        }
        true
    }

    /// Hands on the only row of the partition; false when the batch is full before it.
    fn only_row(
        &mut self,
        row: &Row,
        slices: &Slices,
        reversed: bool,
        out: &mut FragmentBuffer,
        budget: &mut usize,
    ) -> bool {
        let is_reached = self.changes_before(Some(row), slices, reversed, out, budget);
        if is_reached {
            self.row(row, out, budget);
        }
        is_reached
    }

    fn row(&mut self, row: &Row, out: &mut FragmentBuffer, budget: &mut usize) {
        *budget = budget.saturating_sub(row.memory_size());
        if *budget == 0 {
            // The batch ends here; until then the map's own iterator knows the place.
            self.last = Some(row.clustering.clone());
        }
        out.push_back(Fragment::Row(row.clone()));
    }
}
