//! A reader's place in one partition of a memtable, kept between batches while the memtable is written.

use std::ops::Bound::Excluded;

use mutation::slice::clip;
use mutation::{
    Bound, Clustering, DecoratedKey, DeletionTime, Fragment, FragmentBuffer, Row, RowRange, Slices,
};

use crate::Memtable;
use crate::partition::{Partition, Rows};

/// Where a reader of one partition is. Range deletions are taken as they are when the reading begins; rows as they are
/// when they are handed on.
#[derive(Clone, Debug, Default)]
pub struct PartitionCursor {
    started: bool,
    /// The last row handed on.
    last: Option<Clustering>,
    /// Index of the slice being read, counted in the direction of the read.
    slice: usize,
    /// Range tombstone changes still to come, the next one last.
    changes: Vec<(Bound, DeletionTime)>,
}

/// What [`Memtable::read_partition`] or [`Partition::read`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The memtable has nothing of the partition.
    Absent,
    /// The partition's end was handed on.
    Finished,
    /// The batch is full; call again.
    More,
}

/// What a partition is when it is simple.
#[derive(Clone, Debug, PartialEq)]
pub enum OnlyRow {
    /// It says nothing within the slices.
    Absent,
    /// One row is all that there is of it.
    Row(Row),
    /// It has more: several rows, deletions, or a static row.
    More,
}

impl Memtable {
    /// The only row of a partition.
    pub fn only_row(&self, key: &DecoratedKey, slices: &Slices) -> OnlyRow {
        self.partition(key).map_or(OnlyRow::Absent, |partition| partition.only_row(slices))
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
    /// Its only row.
    pub fn only_row(&self, slices: &Slices) -> OnlyRow {
        if self.has_deletions() || self.static_row.is_some() {
            return OnlyRow::More;
        }
        match &self.rows {
            Rows::None => OnlyRow::Absent,
            Rows::One(row) if slices.contains(&row.clustering) => OnlyRow::Row(row.clone()),
            Rows::One(_) => OnlyRow::Absent,
            Rows::Many(_) => OnlyRow::More,
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
                cursor.changes = clip(&self.ranges, slices).changes(reversed);
                cursor.changes.reverse();
            }
        }
        while let Some(range) = nth_slice(slices, cursor.slice, reversed) {
            if !cursor.rows(self, range, reversed, out, &mut budget) {
                return Progress::More;
            }
            cursor.slice += 1;
        }
        while let Some((bound, deletion)) = cursor.changes.pop() {
            out.push_back(Fragment::RangeTombstoneChange { bound, deletion });
        }
        out.push_back(Fragment::PartitionEnd);
        Progress::Finished
    }
}

fn nth_slice(slices: &Slices, n: usize, reversed: bool) -> Option<&RowRange> {
    let ranges = slices.ranges();
    if reversed { ranges.get(ranges.len().checked_sub(n + 1)?) } else { ranges.get(n) }
}

impl PartitionCursor {
    /// Hands on the rows of one slice from the cursor's place; false when the batch is full.
    fn rows(
        &mut self,
        partition: &Partition,
        range: &RowRange,
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
        match &partition.rows {
            Rows::None => true,
            Rows::One(row) => {
                let position = row.clustering.position();
                if low < position && position < high {
                    self.row(row, reversed, out, budget);
                }
                true
            }
            Rows::Many(map) => {
                let mut rows = map.range::<[u8], _>((Excluded(low), Excluded(high)));
                loop {
                    let next = if reversed { rows.next_back() } else { rows.next() };
                    let Some((_, row)) = next else { return true };
                    if *budget == 0 {
                        return false;
                    }
                    self.row(row, reversed, out, budget);
                }
            }
        }
    }

    fn row(&mut self, row: &Row, reversed: bool, out: &mut FragmentBuffer, budget: &mut usize) {
        while let Some((bound, _)) = self.changes.last() {
            let (change, place) = (bound.position(), row.clustering.position());
            if if reversed { change < place } else { change > place } {
                break;
            }
            let (bound, deletion) = self.changes.pop().expect("just seen");
            out.push_back(Fragment::RangeTombstoneChange { bound, deletion });
        }
        *budget = budget.saturating_sub(row.memory_size());
        if *budget == 0 {
            // The batch ends here; until then the map's own iterator knows the place.
            self.last = Some(row.clustering.clone());
        }
        out.push_back(Fragment::Row(row.clone()));
    }
}
