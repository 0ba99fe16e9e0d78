//! One partition in memory: of a memtable, or of the row cache.

use std::collections::BTreeMap;
use std::ops::Bound::Excluded;
use std::sync::Arc;

use mutation::{
    Bound, Clustering, DecoratedKey, DeletionTime, PartitionUpdate, RangeTombstones, Row, RowRange,
    TableLayouts,
};
use schema::Table;

use crate::WriteStats;
use crate::own::own_values;
use crate::snapshot::Snapshots;

/// The cost of a map entry beside its content: its share of tree nodes, which are between half and wholly full, and
/// the allocator's rounding.
pub const PARTITION_OVERHEAD: usize = size_of::<DecoratedKey>() + size_of::<Partition>() + 64;
const ROW_OVERHEAD: usize = size_of::<Clustering>() + 96;

/// The rows of a partition. Most tables hold one row a partition, or many.
#[derive(Default)]
pub(crate) enum Rows {
    #[default]
    None,
    One(Row),
    Many(ManyRows),
}

/// More than one row: only among them can a reader stop.
#[derive(Default)]
pub(crate) struct ManyRows {
    pub(crate) map: BTreeMap<Clustering, Row>,
    /// Readers that stopped among the rows.
    pub(crate) readers: Snapshots,
}

/// Everything that is known of one partition. Nothing is dropped here; rows hidden by deletions are dropped by the reader's merge.
#[derive(Default)]
pub struct Partition {
    pub(crate) deletion: DeletionTime,
    pub(crate) static_row: Option<Box<Row>>,
    pub(crate) ranges: RangeTombstones,
    pub(crate) rows: Rows,
}

/// Rows that are looked at, and bytes of rows, in one step through a partition.
const PART_ROWS_MAX: usize = 1_024;
const PART_BYTES_MAX: usize = 64 << 10;

/// A part of a partition: rows that follow each other.
#[derive(Clone, Debug)]
pub struct PartOfPartition {
    /// Its rows, the partition's deletion and static row, and the range deletions that overlap `range`.
    pub update: PartitionUpdate,
    /// Where its rows lie.
    pub range: RowRange,
    /// The row behind which the next part begins; none at the end.
    pub rest: Option<Clustering>,
}

/// The content that left a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Bytes less; below zero where the rest of a range deletion takes more than the whole did.
    pub bytes: isize,
    /// Rows fewer.
    pub rows: usize,
}

/// The changes of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Bytes more, or less.
    pub bytes: isize,
    /// Rows more.
    pub rows: usize,
}

impl Partition {
    /// Whether something in it may hide something else of it.
    pub fn has_deletions(&self) -> bool {
        !self.deletion.is_live() || !self.ranges.is_empty()
    }

    /// Adopts the content of an update; values are copied out of the buffers that they came in.
    pub fn apply(
        &mut self,
        update: &mut PartitionUpdate,
        table: &Table,
        layouts: &TableLayouts,
        stats: &mut WriteStats,
    ) -> Change {
        let mut change = Change { bytes: 0, rows: 0 };
        if !update.deletion.is_live() {
            stats.deletion(update.deletion);
            self.deletion = self.deletion.max(update.deletion);
        }
        if !update.range_tombstones.is_empty() {
            let before = self.ranges.memory_size() as isize;
            for range in std::mem::take(&mut update.range_tombstones) {
                stats.deletion(range.deletion);
                self.ranges.insert(range);
            }
            change.bytes += self.ranges.memory_size() as isize - before;
        }
        if let Some(row) = update.take_static_row() {
            stats.row(&row);
            let row = own_values(row, layouts, &update.table);
            match &mut self.static_row {
                Some(mine) => {
                    change.bytes += mine.merge(row, table);
                }
                none => {
                    change.bytes += row.memory_size() as isize;
                    *none = Some(Box::new(row));
                }
            }
        }
        for mut row in update.take_rows() {
            stats.row(&row);
            row.normalise();
            let row = own_values(row, layouts, &update.table);
            change.rows += self.rows.add(row, table, &mut change.bytes);
        }
        change
    }

    /// Rows behind `after`, with the deletions that may hide them. Only rows that `keeps` wants are in it. None when its
    /// [header](Self::header_bytes) takes more than `header_bytes_max`.
    pub(crate) fn part(
        &self,
        (table, key): (Arc<Table>, DecoratedKey),
        after: Option<&Clustering>,
        keeps: impl Fn(&Clustering) -> bool,
        header_bytes_max: usize,
    ) -> Option<PartOfPartition> {
        if self.header_bytes() > header_bytes_max {
            return None;
        }
        let start = after.map_or_else(Bound::bottom, Bound::after_row);
        let (mut rows, mut bytes, mut last) = (Vec::new(), 0, None);
        for (looked_at, row) in
            self.rows.within(&RowRange { start: start.clone(), end: Bound::top() }).enumerate()
        {
            if looked_at == PART_ROWS_MAX || bytes >= PART_BYTES_MAX {
                break;
            }
            last = Some(&row.clustering);
            if keeps(&row.clustering) {
                bytes += row.memory_size();
                rows.push(row.clone());
            }
        }
        let rest = last.filter(|last| {
            let behind = RowRange { start: Bound::after_row(last), end: Bound::top() };
            self.has_rows_within(&behind)
        });
        let end = rest.map_or_else(Bound::top, Bound::after_row);
        let (range, rest) = (RowRange { start, end }, rest.cloned());
        let mut update = PartitionUpdate::with_rows(table, key, rows);
        update.add_deletion(self.deletion);
        update.set_static_row(self.static_row.as_deref().cloned());
        self.ranges.overlapping(&range).for_each(|deletion| update.add_range_tombstone(deletion.clone()));
        Some(PartOfPartition { update, range, rest })
    }

    /// Bytes of its static row and its range deletions.
    pub fn header_bytes(&self) -> usize {
        self.ranges.memory_size() + self.static_row.as_deref().map_or(0, Row::memory_size)
    }

    /// Whether a row of it lies in a range.
    fn has_rows_within(&self, range: &RowRange) -> bool {
        self.rows.within(range).next().is_some()
    }

    /// Where to divide a range so that each part has one row or takes about `bytes_max` at most; in order.
    pub fn cuts(&self, range: &RowRange, bytes_max: usize) -> Vec<Bound> {
        let (mut cuts, mut bytes) = (Vec::new(), 0);
        for row in self.rows.within(range) {
            let size = row.memory_size() + ROW_OVERHEAD;
            if bytes > 0 && bytes + size > bytes_max {
                cuts.push(Bound::before_row(&row.clustering));
                bytes = 0;
            }
            bytes += size;
        }
        cuts
    }

    /// Drops the rows and the range deletions within a range. No reader may have stopped in the partition.
    pub fn drop_within(&mut self, range: &RowRange) -> Dropped {
        let before = self.ranges.memory_size() as isize;
        self.ranges.remove_within(range);
        let mut dropped = Dropped { bytes: before - self.ranges.memory_size() as isize, rows: 0 };
        let gone: Vec<Clustering> = self.rows.within(range).map(|row| row.clustering.clone()).collect();
        let mut count = |row: Row| {
            dropped.bytes += (row.memory_size() + ROW_OVERHEAD) as isize;
            dropped.rows += 1;
        };
        match &mut self.rows {
            Rows::None => {}
            rows @ Rows::One(_) if !gone.is_empty() => {
                let Rows::One(row) = std::mem::take(rows) else { unreachable!("just seen") };
                count(row);
            }
            Rows::One(_) => {}
            Rows::Many(ManyRows { map, readers }) => {
                assert!(!readers.has_readers(), "rows are not dropped under a reader");
                gone.iter().filter_map(|key| map.remove(key)).for_each(count);
            }
        }
        dropped
    }
}

impl Rows {
    /// The rows of a range, in order.
    pub(crate) fn within(&self, range: &RowRange) -> impl Iterator<Item = &Row> {
        let (only, map) = match self {
            Self::One(row) if range.contains(&row.clustering) => (Some(row), None),
            Self::Many(many) if !range.is_empty() => (None, Some(&many.map)),
            _ => (None, None),
        };
        let bounds = (Excluded(range.start.position()), Excluded(range.end.position()));
        only.into_iter()
            .chain(map.into_iter().flat_map(move |map| map.range::<[u8], _>(bounds)).map(|(_, row)| row))
    }
}

impl Rows {
    /// Adds or merges a row; how many rows there are more.
    fn add(&mut self, row: Row, table: &Table, bytes: &mut isize) -> usize {
        match self {
            Self::None => {
                *bytes += (row.memory_size() + ROW_OVERHEAD) as isize;
                *self = Self::One(row);
                1
            }
            Self::One(mine) if mine.clustering == row.clustering => {
                *bytes += mine.merge(row, table);
                0
            }
            Self::One(_) => {
                let Self::One(first) = std::mem::replace(self, Self::None) else { unreachable!("just seen") };
                *bytes += (row.memory_size() + ROW_OVERHEAD) as isize;
                let map = BTreeMap::from([(first.clustering.clone(), first), (row.clustering.clone(), row)]);
                *self = Self::Many(ManyRows { map, readers: Snapshots::default() });
                1
            }
            Self::Many(ManyRows { map, readers }) => match map.get_mut(row.clustering.position()) {
                Some(mine) => {
                    if !readers.is_empty() {
                        readers.before_write(&mine.clustering, Some(mine));
                    }
                    *bytes += mine.merge(row, table);
                    0
                }
                None => {
                    if !readers.is_empty() {
                        readers.before_write(&row.clustering, None);
                    }
                    *bytes += (row.memory_size() + ROW_OVERHEAD) as isize;
                    map.insert(row.clustering.clone(), row);
                    1
                }
            },
        }
    }
}
