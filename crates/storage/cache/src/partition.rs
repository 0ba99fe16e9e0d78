//! A partition of the row cache.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use memtable::{OnlyRow, Partition, PartitionCursor, Progress};
use mutation::{DecoratedKey, FragmentBuffer, Slices, TableLayouts};
use stdx::HashMap;

use crate::known::Known;

/// The cached partitions of a table.
#[derive(Default)]
pub(crate) struct TableRows {
    pub(crate) partitions: HashMap<Bytes, Rc<RefCell<Entry>>>,
    pub(crate) epoch: u64,
    /// The layouts of their rows.
    pub(crate) layouts: TableLayouts,
}

/// A cached partition with the ranges that are known of it.
pub(crate) struct Entry {
    pub(crate) partition: Partition,
    /// Within these ranges every row and every range deletion of the SSTables is here.
    pub(crate) known: Known,
    pub(crate) bytes: usize,
    pub(crate) rows: usize,
    /// Its place in the order of use; [`NONE`](crate::lru::NONE) when its memory is given back.
    pub(crate) node: Cell<u32>,
}

/// A partition of the cache. Holding it keeps it in memory, evicted or not, and sees rows merged into it.
#[derive(Clone)]
pub struct CachedPartition {
    pub(crate) entry: Rc<RefCell<Entry>>,
    pub(crate) key: DecoratedKey,
}

impl CachedPartition {
    /// Whether nothing in it hides another part of it.
    pub fn is_plain(&self) -> bool {
        !self.entry.borrow().partition.has_deletions()
    }

    /// Hands its only row to `visit`, as [`Partition::only_row`] says it.
    pub fn only_row<T>(&self, slices: &Slices, visit: impl FnOnce(OnlyRow<'_>) -> T) -> T {
        visit(self.entry.borrow().partition.only_row(slices))
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
