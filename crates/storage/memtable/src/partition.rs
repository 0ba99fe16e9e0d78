//! One partition in memory: of a memtable, or of the row cache.

use std::collections::BTreeMap;
use std::ops::Bound::Excluded;
use std::sync::Arc;

use mutation::{
    Clustering, DecoratedKey, DeletionTime, PartitionUpdate, RangeTombstones, Row, RowRange, Slices,
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

    /// Its content within `slices`, with all of its deletions; none when that takes more than about `bytes_max` bytes.
    pub(crate) fn to_update(
        &self,
        table: Arc<Table>,
        key: DecoratedKey,
        slices: &Slices,
        bytes_max: usize,
    ) -> Option<PartitionUpdate> {
        let mut bytes = self.ranges.memory_size() + self.static_row.as_deref().map_or(0, Row::memory_size);
        if bytes > bytes_max {
            return None;
        }
        let mut rows = Vec::new();
        for row in slices.ranges().iter().flat_map(|range| self.rows.within(range)) {
            bytes += row.memory_size();
            if bytes > bytes_max {
                return None;
            }
            rows.push(row.clone());
        }
        let mut update = PartitionUpdate::with_rows(table, key, rows);
        update.add_deletion(self.deletion);
        update.set_static_row(self.static_row.as_deref().cloned());
        update.range_tombstones = self.ranges.clone();
        Some(update)
    }

    /// Whether a row of it lies in a range.
    pub fn has_rows_within(&self, range: &RowRange) -> bool {
        self.rows.within(range).next().is_some()
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
