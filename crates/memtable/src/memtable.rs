//! The memtable itself: partitions in ring order, what they take, and what a flush must know of them beforehand.

use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::rc::Rc;
use std::sync::Arc;

use mutation::{
    Cell as DataCell, Clustering, ColumnData, DecoratedKey, DeletionTime, NO_DELETION, PartitionUpdate,
    RangeTombstones, Row, Seconds, Timestamp,
};
use schema::Table;

use crate::own::{copy, own_values};

/// What a map entry costs beside its content: its share of tree nodes, which are between half and wholly full, and
/// the allocator's rounding.
const PARTITION_OVERHEAD: usize = size_of::<DecoratedKey>() + size_of::<Partition>() + 64;
const ROW_OVERHEAD: usize = size_of::<Clustering>() + 96;

/// The rows of a partition. Most tables hold one row a partition, or many.
pub(crate) enum Rows {
    None,
    One(Row),
    Many(BTreeMap<Clustering, Row>),
}

/// One partition.
pub(crate) struct Partition {
    pub(crate) deletion: DeletionTime,
    pub(crate) static_row: Option<Box<Row>>,
    pub(crate) ranges: RangeTombstones,
    pub(crate) rows: Rows,
}

impl Partition {
    fn empty() -> Self {
        Self {
            deletion: DeletionTime::LIVE,
            static_row: None,
            ranges: RangeTombstones::new(),
            rows: Rows::None,
        }
    }

    /// Whether something in it may hide something else of it.
    pub(crate) fn has_deletions(&self) -> bool {
        !self.deletion.is_live() || !self.ranges.is_empty()
    }
}

/// Bounds of what was written: an SSTable's header stores values relative to the minima, and compaction asks for the
/// smallest timestamp before it forgets tombstones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteStats {
    /// Smallest timestamp; [`Timestamp::MAX`] when nothing was written.
    pub timestamp_min: Timestamp,
    /// Largest timestamp; [`Timestamp::MIN`] when nothing was written.
    pub timestamp_max: Timestamp,
    /// Smallest local deletion time; [`NO_DELETION`] for none.
    pub local_deletion_min: Seconds,
    /// Smallest TTL of expiring cells; `Seconds::MAX` for none.
    pub ttl_min: Seconds,
}

impl WriteStats {
    /// Of nothing.
    pub const EMPTY: Self = Self {
        timestamp_min: Timestamp::MAX,
        timestamp_max: Timestamp::MIN,
        local_deletion_min: NO_DELETION,
        ttl_min: Seconds::MAX,
    };

    fn timestamp(&mut self, timestamp: Timestamp) {
        self.timestamp_min = self.timestamp_min.min(timestamp);
        self.timestamp_max = self.timestamp_max.max(timestamp);
    }

    fn deletion(&mut self, deletion: DeletionTime) {
        if !deletion.is_live() {
            self.timestamp(deletion.timestamp);
            self.local_deletion_min = self.local_deletion_min.min(deletion.local);
        }
    }

    fn cell(&mut self, cell: &DataCell) {
        self.timestamp(cell.timestamp);
        self.local_deletion_min = self.local_deletion_min.min(cell.local_deletion);
        if cell.ttl != 0 {
            self.ttl_min = self.ttl_min.min(cell.ttl);
        }
    }

    fn row(&mut self, row: &Row) {
        if !row.liveness.is_none() {
            self.timestamp(row.liveness.timestamp);
            if row.liveness.ttl != 0 {
                self.ttl_min = self.ttl_min.min(row.liveness.ttl);
                self.local_deletion_min = self.local_deletion_min.min(row.liveness.expires);
            }
        }
        self.deletion(row.deletion);
        for (_, data) in row.columns() {
            match data {
                ColumnData::Simple(cell) => self.cell(cell),
                ColumnData::Complex(complex) => {
                    self.deletion(complex.deletion);
                    complex.cells.iter().for_each(|element| self.cell(&element.cell));
                }
            }
        }
    }
}

/// One memtable. Cheap to clone; clones are the same memtable.
#[derive(Clone)]
pub struct Memtable(Rc<Inner>);

struct Inner {
    table: RefCell<Arc<Table>>,
    partitions: RefCell<BTreeMap<DecoratedKey, Partition>>,
    bytes: Cell<usize>,
    rows: Cell<usize>,
    operations: Cell<u64>,
    stats: Cell<WriteStats>,
    deletions: Cell<bool>,
}

impl Memtable {
    /// An empty one.
    pub fn new(table: Arc<Table>) -> Self {
        Self(Rc::new(Inner {
            table: RefCell::new(table),
            partitions: RefCell::default(),
            bytes: Cell::new(0),
            rows: Cell::new(0),
            operations: Cell::new(0),
            stats: Cell::new(WriteStats::EMPTY),
            deletions: Cell::new(false),
        }))
    }

    /// Its table as last known.
    pub fn table(&self) -> Arc<Table> {
        self.0.table.borrow().clone()
    }

    /// Takes over a changed definition of its table; rows keep their meaning by their columns' ids.
    pub fn set_table(&self, table: Arc<Table>) {
        assert_eq!(table.id, self.0.table.borrow().id, "a table keeps its id");
        *self.0.table.borrow_mut() = table;
    }

    /// Takes over an update. Never waits.
    pub fn apply(&self, update: PartitionUpdate) {
        let inner = &*self.0;
        let table = inner.table.borrow();
        assert_eq!(update.table.id, table.id, "an update goes to its own table");
        let mut stats = inner.stats.get();
        let (mut bytes, mut rows) = (inner.bytes.get() as isize, 0);
        let mut partitions = inner.partitions.borrow_mut();
        let partition = match partitions.get_mut(&update.key) {
            Some(partition) => partition,
            None => {
                let key = DecoratedKey { token: update.key.token, key: copy(&update.key.key) };
                bytes += (key.key.len() + PARTITION_OVERHEAD) as isize;
                partitions.entry(key).or_insert_with(Partition::empty)
            }
        };
        if !update.deletion.is_live() {
            stats.deletion(update.deletion);
            partition.deletion = partition.deletion.max(update.deletion);
            inner.deletions.set(true);
        }
        if !update.range_tombstones.is_empty() {
            let before = partition.ranges.memory_size() as isize;
            for range in update.range_tombstones.iter() {
                stats.deletion(range.deletion);
                partition.ranges.insert(range.clone());
            }
            bytes += partition.ranges.memory_size() as isize - before;
            inner.deletions.set(true);
        }
        if update.static_row.is_some() || update.rows().len() != 1 {
            let (more_bytes, more_rows) = apply_rows(partition, update, &table, &mut stats);
            bytes += more_bytes;
            rows += more_rows;
        } else {
            for row in update.into_rows() {
                stats.row(&row);
                rows += partition.rows.add(own_values(row), &table, &mut bytes);
            }
        }
        inner.stats.set(stats);
        inner.bytes.set(usize::try_from(bytes).expect("a memtable never holds less than nothing"));
        inner.rows.set(inner.rows.get() + rows);
        inner.operations.set(inner.operations.get() + 1);
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.0.bytes.get()
    }

    /// Rows that it holds, static ones left out.
    pub fn rows(&self) -> usize {
        self.0.rows.get()
    }

    /// Updates that it has taken.
    pub fn operations(&self) -> u64 {
        self.0.operations.get()
    }

    /// Partitions that it holds.
    pub fn partitions(&self) -> usize {
        self.0.partitions.borrow().len()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.0.operations.get() == 0
    }

    /// Bounds of what was written.
    pub fn stats(&self) -> WriteStats {
        self.0.stats.get()
    }

    /// Whether it holds deletions of partitions or ranges, which may hide other rows of it.
    pub fn has_deletions(&self) -> bool {
        self.0.deletions.get()
    }

    /// Whether it holds anything of this partition.
    pub fn contains(&self, key: &DecoratedKey) -> bool {
        self.0.partitions.borrow().contains_key(key)
    }

    /// The first key at or after a place that `before` describes: it says whether a key lies before that place.
    pub(crate) fn first_key(
        &self,
        from: &mutation::RingPosition,
        end: &mutation::RingPosition,
    ) -> Option<DecoratedKey> {
        use mutation::RingPosition::{AfterKey, AfterToken, BeforeKey, BeforeToken};
        let partitions = self.0.partitions.borrow();
        let lowest = |token| DecoratedKey { token, key: bytes::Bytes::new() };
        let found = match from {
            BeforeToken(token) => partitions.range(lowest(*token)..).next(),
            AfterToken(i64::MAX) => None,
            AfterToken(token) => partitions.range(lowest(token + 1)..).next(),
            BeforeKey(key) => partitions.range(key..).next(),
            AfterKey(key) => partitions.range((Excluded(key), Unbounded)).next(),
        };
        found.map(|(key, _)| key).filter(|key| !end.is_before(key)).cloned()
    }

    /// The partition of this key, while nothing is written.
    pub(crate) fn partition(&self, key: &DecoratedKey) -> Option<Ref<'_, Partition>> {
        Ref::filter_map(self.0.partitions.borrow(), |partitions| partitions.get(key)).ok()
    }
}

/// Takes over static row and rows; what changed in bytes and in the number of rows.
fn apply_rows(
    partition: &mut Partition,
    mut update: PartitionUpdate,
    table: &Table,
    stats: &mut WriteStats,
) -> (isize, usize) {
    let (mut bytes, mut rows) = (0isize, 0);
    if let Some(row) = update.static_row.take() {
        stats.row(&row);
        let row = own_values(row);
        match &mut partition.static_row {
            Some(mine) => {
                bytes -= mine.memory_size() as isize;
                mine.merge(row, table);
                bytes += mine.memory_size() as isize;
            }
            none => {
                bytes += row.memory_size() as isize;
                *none = Some(Box::new(row));
            }
        }
    }
    for row in update.into_rows() {
        stats.row(&row);
        rows += partition.rows.add(own_values(row), table, &mut bytes);
    }
    (bytes, rows)
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
