//! A partition of the row cache.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use memtable::{Dropped, OnlyRow, PARTITION_OVERHEAD, Partition, PartitionCursor, Progress};
use mutation::{Bound, DecoratedKey, FragmentBuffer, RowRange, Slices, TableLayouts};
use schema::TableId;
use stdx::HashMap;

use crate::known::Known;
use crate::lru::Lru;

/// The cost of an entry beside its partition and its ranges.
const ENTRY_OVERHEAD: usize = PARTITION_OVERHEAD + 128;
/// About the bytes of rows that leave the cache together: more rows than one where they are small, so that the order of use has fewer places than rows.
const RANGE_BYTES_MAX: usize = 8 << 10;

/// An item of the order of use.
pub(crate) enum Item {
    /// The range of a cached partition that begins at `start`. The partition may have left its table.
    Range { entry: Rc<RefCell<Entry>>, start: Bound },
    /// A block of a file.
    Block { file: u64, block: u64 },
}

/// The cached partitions of a table.
#[derive(Default)]
pub(crate) struct TableRows {
    pub(crate) partitions: HashMap<Bytes, Rc<RefCell<Entry>>>,
    pub(crate) epoch: u64,
    /// The layouts of their rows.
    pub(crate) layouts: TableLayouts,
}

/// A cached partition with the ranges that are known of it, at least one.
pub(crate) struct Entry {
    pub(crate) table: TableId,
    pub(crate) key: Bytes,
    pub(crate) partition: Partition,
    /// Within these ranges every row and every range deletion of the SSTables is here.
    pub(crate) known: Known,
    /// Of everything, this included.
    pub(crate) bytes: usize,
    pub(crate) rows: usize,
    /// Readers that hold it: no row leaves under them.
    readers: Cell<u32>,
}

impl Entry {
    pub(crate) fn new(table: TableId, key: Bytes) -> Self {
        let bytes = ENTRY_OVERHEAD + key.len();
        let (partition, known, readers) = (Partition::default(), Known::default(), Cell::new(0));
        Self { table, key, partition, known, bytes, rows: 0, readers }
    }

    /// Whether a reader holds it.
    pub(crate) fn is_read(&self) -> bool {
        self.readers.get() > 0
    }

    /// Knows more, of which the rows are here.
    pub(crate) fn learn(&mut self, this: &Rc<RefCell<Self>>, more: &Slices, lru: &mut Lru<Item>) {
        for gap in self.known.gaps(more) {
            let start = gap.start.clone();
            self.add_range(this, gap, lru);
            self.divide(this, &start, lru);
        }
        if self.known.len() == 0 {
            // The static row alone was read. A range behind all rows stands for it.
            self.add_range(this, RowRange { start: Bound::top(), end: Bound::top() }, lru);
        }
    }

    fn add_range(&mut self, this: &Rc<RefCell<Self>>, range: RowRange, lru: &mut Lru<Item>) {
        let node = lru.push(Item::Range { entry: this.clone(), start: range.start.clone() });
        self.known.add(range, node);
    }

    /// Divides the range that begins at `start` if it became too large.
    pub(crate) fn divide(&mut self, this: &Rc<RefCell<Self>>, start: &Bound, lru: &mut Lru<Item>) {
        if self.bytes <= RANGE_BYTES_MAX {
            return;
        }
        let cuts = self.partition.cuts(&self.known.range(start), RANGE_BYTES_MAX);
        self.known
            .divide(start, cuts, |start| lru.push(Item::Range { entry: this.clone(), start: start.clone() }));
    }

    /// Drops the range that begins at `start`: the content that left, and the range's place in the order of use. With the last one goes everything.
    pub(crate) fn drop_range(&mut self, start: &Bound) -> Option<(Dropped, u32)> {
        assert!(!self.is_read(), "no row leaves under a reader");
        let before = self.known.bytes();
        let (range, node) = self.known.remove(start)?;
        let dropped = match self.known.len() {
            0 => {
                self.partition = Partition::default();
                Dropped { bytes: self.bytes as isize, rows: self.rows }
            }
            _ => {
                let Dropped { bytes, rows } = self.partition.drop_within(&range);
                Dropped { bytes: bytes + (before - self.known.bytes()) as isize, rows }
            }
        };
        self.bytes = self.bytes.checked_add_signed(-dropped.bytes).expect("no more leaves than is there");
        self.rows -= dropped.rows;
        Some((dropped, node))
    }
}

/// A partition of the cache. Holding it keeps it in memory, and sees rows merged into it.
pub struct CachedPartition {
    entry: Rc<RefCell<Entry>>,
    key: DecoratedKey,
}

impl CachedPartition {
    pub(crate) fn new(entry: &Rc<RefCell<Entry>>, key: &DecoratedKey) -> Self {
        let readers = entry.borrow().readers.get();
        entry.borrow().readers.set(readers + 1);
        Self { entry: entry.clone(), key: key.clone() }
    }

    /// Whether nothing in it hides another part of it.
    pub fn is_plain(&self) -> bool {
        !self.entry.borrow().partition.has_deletions()
    }

    /// Hands its only row to `visit`, as [`Partition::only_row`] says it.
    pub fn only_row<T>(&self, slices: &Slices, with_static: bool, visit: impl FnOnce(OnlyRow<'_>) -> T) -> T {
        visit(self.entry.borrow().partition.only_row(slices, with_static))
    }

    /// Hands on its fragments, as [`Partition::read`] does.
    pub fn read(
        &self,
        slices: &Slices,
        reversed: bool,
        cursor: &mut PartitionCursor,
        out: &mut FragmentBuffer,
        bytes_max: usize,
    ) -> Progress {
        self.entry.borrow().partition.read(&self.key, slices, reversed, cursor, out, bytes_max)
    }
}

impl Clone for CachedPartition {
    fn clone(&self) -> Self {
        Self::new(&self.entry, &self.key)
    }
}

impl Drop for CachedPartition {
    fn drop(&mut self) {
        let entry = self.entry.borrow();
        entry.readers.set(entry.readers.get() - 1);
    }
}
