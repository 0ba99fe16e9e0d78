//! One partition in memory: of a memtable, or of the row cache.

use std::collections::BTreeMap;
use std::sync::Arc;

use mutation::{Clustering, DecoratedKey, DeletionTime, PartitionUpdate, RangeTombstones, Row};
use schema::Table;

use crate::WriteStats;
use crate::own::own_values;

/// What a map entry costs beside its content: its share of tree nodes, which are between half and wholly full, and
/// the allocator's rounding.
pub const PARTITION_OVERHEAD: usize = size_of::<DecoratedKey>() + size_of::<Partition>() + 64;
const ROW_OVERHEAD: usize = size_of::<Clustering>() + 96;

/// The rows of a partition. Most tables hold one row a partition, or many.
#[derive(Default)]
pub(crate) enum Rows {
    #[default]
    None,
    One(Row),
    Many(BTreeMap<Clustering, Row>),
}

/// Everything that is known of one partition. It never forgets; what deletions hide is dropped by the reader's merge.
#[derive(Default)]
pub struct Partition {
    pub(crate) deletion: DeletionTime,
    pub(crate) static_row: Option<Box<Row>>,
    pub(crate) ranges: RangeTombstones,
    pub(crate) rows: Rows,
}

/// What an update changed.
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

    /// Takes over an update; values are copied out of the buffers that they came in.
    pub fn apply(&mut self, mut update: PartitionUpdate, table: &Table, stats: &mut WriteStats) -> Change {
        let mut change = Change { bytes: 0, rows: 0 };
        if !update.deletion.is_live() {
            stats.deletion(update.deletion);
            self.deletion = self.deletion.max(update.deletion);
        }
        if !update.range_tombstones.is_empty() {
            let before = self.ranges.memory_size() as isize;
            for range in update.range_tombstones.iter() {
                stats.deletion(range.deletion);
                self.ranges.insert(range.clone());
            }
            change.bytes += self.ranges.memory_size() as isize - before;
        }
        if let Some(row) = update.static_row.take() {
            stats.row(&row);
            let row = own_values(row);
            match &mut self.static_row {
                Some(mine) => {
                    change.bytes -= mine.memory_size() as isize;
                    mine.merge(row, table);
                    change.bytes += mine.memory_size() as isize;
                }
                none => {
                    change.bytes += row.memory_size() as isize;
                    *none = Some(Box::new(row));
                }
            }
        }
        for row in update.into_rows() {
            stats.row(&row);
            change.rows += self.rows.add(own_values(row), table, &mut change.bytes);
        }
        change
    }

    /// Everything in it as one update.
    pub(crate) fn to_update(&self, table: Arc<Table>, key: DecoratedKey) -> PartitionUpdate {
        let mut update = PartitionUpdate::new(table, key);
        update.add_deletion(self.deletion);
        update.static_row = self.static_row.as_deref().cloned();
        update.range_tombstones = self.ranges.clone();
        match &self.rows {
            Rows::None => {}
            Rows::One(row) => update.add_row(row.clone()),
            Rows::Many(map) => map.values().for_each(|row| update.add_row(row.clone())),
        }
        update
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
                merge(mine, row, table, bytes);
                0
            }
            Self::One(_) => {
                let Self::One(first) = std::mem::replace(self, Self::None) else { unreachable!("just seen") };
                *bytes += (row.memory_size() + ROW_OVERHEAD) as isize;
                *self = Self::Many(BTreeMap::from([
                    (first.clustering.clone(), first),
                    (row.clustering.clone(), row),
                ]));
                1
            }
            Self::Many(map) => match map.get_mut(row.clustering.position()) {
                Some(mine) => {
                    merge(mine, row, table, bytes);
                    0
                }
                None => {
                    *bytes += (row.memory_size() + ROW_OVERHEAD) as isize;
                    map.insert(row.clustering.clone(), row);
                    1
                }
            },
        }
    }
}

fn merge(mine: &mut Row, row: Row, table: &Table, bytes: &mut isize) {
    *bytes -= mine.memory_size() as isize;
    mine.merge(row, table);
    *bytes += mine.memory_size() as isize;
}
