//! The memtable itself: partitions in ring order, their memory, and the statistics that a flush needs beforehand.

use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::rc::Rc;
use std::sync::Arc;

use mutation::range::RANGES_FREED_AT_ONCE;
use mutation::{Clustering, DecoratedKey, PartitionUpdate, TableLayouts};
use schema::Table;

use crate::WriteStats;
use crate::own::copy;
use crate::partition::{PARTITION_OVERHEAD, PartOfPartition, Partition, Rows};

/// The result of [`Memtable::part`].
#[derive(Clone, Debug)]
pub enum Part {
    /// Nothing of the partition is there.
    Absent,
    /// The next rows.
    Rows(Box<PartOfPartition>),
    /// Its static row and range deletions take more than was allowed.
    TooLarge,
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
    layouts: TableLayouts,
}

/// Partitions and rows that are freed in one go, and bytes of everything.
const FREED_AT_ONCE_MAX: usize = 256;
const FREED_BYTES_AT_ONCE_MAX: usize = 256 << 10;

impl Drop for Inner {
    /// A large one is freed by a task that gives way to others: the last of its readers may be a request.
    fn drop(&mut self) {
        let partitions = std::mem::take(self.partitions.get_mut());
        if partitions.len() + self.rows.get() > FREED_AT_ONCE_MAX
            || self.bytes.get() > FREED_BYTES_AT_ONCE_MAX
        {
            rt::preempt::spawn(rt::Group::Flush, free(partitions));
        }
    }
}

async fn free(partitions: BTreeMap<DecoratedKey, Partition>) {
    let mut pace = rt::preempt::Pace::new();
    for (_, mut partition) in partitions {
        while partition.ranges.free_some() {
            pace.count(RANGES_FREED_AT_ONCE);
            pace.step().await;
        }
        if let Rows::Many(many) = partition.rows {
            for row in many.map {
                drop(row);
                pace.step().await;
            }
        }
        pace.step().await;
    }
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
            layouts: TableLayouts::default(),
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
    pub fn apply(&self, mut update: PartitionUpdate) {
        let inner = &*self.0;
        let table = inner.table.borrow();
        assert_eq!(update.table.id, table.id, "an update goes to its own table");
        let mut stats = inner.stats.get();
        let mut bytes = inner.bytes.get() as isize;
        let mut partitions = inner.partitions.borrow_mut();
        let partition = match partitions.get_mut(&update.key) {
            Some(partition) => partition,
            None => {
                let key = DecoratedKey { token: update.key.token, key: copy(&update.key.key) };
                bytes += (key.key.len() + PARTITION_OVERHEAD) as isize;
                partitions.entry(key).or_default()
            }
        };
        if !update.deletion.is_live() || !update.range_tombstones.is_empty() {
            inner.deletions.set(true);
        }
        let change = partition.apply(&mut update, &table, &inner.layouts, &mut stats);
        bytes += change.bytes;
        inner.stats.set(stats);
        inner.bytes.set(usize::try_from(bytes).expect("a memtable never holds less than nothing"));
        inner.rows.set(inner.rows.get() + change.rows);
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

    /// Bounds of the writes.
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

    /// A part of a partition that begins behind a row: as many rows as can be looked at in one step without other tasks waiting. Of them those
    /// that `keeps` wants, unless the static row and the range deletions of the partition take more than `header_bytes_max`.
    pub fn part(
        &self,
        key: &DecoratedKey,
        after: Option<&Clustering>,
        keeps: impl Fn(&Clustering) -> bool,
        header_bytes_max: usize,
    ) -> Part {
        match self.partition(key) {
            None => Part::Absent,
            Some(partition) => {
                let part = partition.part((self.table(), key.clone()), after, keeps, header_bytes_max);
                part.map_or(Part::TooLarge, |part| Part::Rows(Box::new(part)))
            }
        }
    }

    /// The first key after `key`, or the first of all.
    pub fn key_after(&self, key: Option<&DecoratedKey>) -> Option<DecoratedKey> {
        let partitions = self.0.partitions.borrow();
        let found = match key {
            Some(key) => partitions.range((Excluded(key), Unbounded)).next(),
            None => partitions.iter().next(),
        };
        found.map(|(key, _)| key.clone())
    }

    /// The partition of this key, while nothing is written.
    pub(crate) fn partition(&self, key: &DecoratedKey) -> Option<Ref<'_, Partition>> {
        Ref::filter_map(self.0.partitions.borrow(), |partitions| partitions.get(key)).ok()
    }
}
