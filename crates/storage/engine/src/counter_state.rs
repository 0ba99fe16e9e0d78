//! The state of a shard for counters: locks of partitions, its ids, and increments that the log did not take.

use std::cell::RefCell;

use bytes::Bytes;
use mutation::PartitionUpdate;
use schema::TableId;
use stdx::HashMap;

use crate::counter_id::CounterIds;
use crate::locks::PartitionLocks;

/// Partitions with increments that the log did not take; more are refused until it works again.
const UNLOGGED_MAX: usize = 4096;

/// A partition.
pub(crate) type PartitionId = (TableId, Bytes);

/// The counters of a shard.
pub(crate) struct CounterState {
    /// Locks of partitions whose counters are being changed.
    pub(crate) locks: PartitionLocks,
    /// Under which ids counters are raised.
    pub(crate) ids: CounterIds,
    /// Increments that are in memtables but not in the log, whose writing failed.
    unlogged: RefCell<HashMap<PartitionId, PartitionUpdate>>,
}

impl CounterState {
    pub(crate) fn new(ids: CounterIds) -> Self {
        Self { locks: PartitionLocks::default(), ids, unlogged: RefCell::default() }
    }

    /// Increments of a partition that the log did not take.
    pub(crate) fn unlogged(&self, key: &PartitionId) -> Option<PartitionUpdate> {
        self.unlogged.borrow().get(key).cloned()
    }

    /// A partition with increments that the log did not take.
    pub(crate) fn any_unlogged(&self) -> Option<PartitionId> {
        self.unlogged.borrow().keys().next().cloned()
    }

    /// Whether there are increments that the log did not take.
    pub(crate) fn has_unlogged(&self) -> bool {
        !self.unlogged.borrow().is_empty()
    }

    /// Whether no further partition may have increments that the log did not take.
    pub(crate) fn is_full(&self) -> bool {
        self.unlogged.borrow().len() >= UNLOGGED_MAX
    }

    /// The log did not take all that was counted in a partition.
    pub(crate) fn set_unlogged(&self, key: PartitionId, counted: PartitionUpdate) {
        assert_eq!(counted.table.id, key.0, "increments are kept with their table");
        assert_eq!(counted.key.key, key.1, "increments of a partition are kept with it");
        self.unlogged.borrow_mut().insert(key, counted);
    }

    /// The log took all that was counted in a partition.
    pub(crate) fn logged(&self, key: &PartitionId) {
        self.unlogged.borrow_mut().remove(key);
    }

    /// A table was truncated.
    pub(crate) fn forget_table(&self, table: TableId) {
        self.unlogged.borrow_mut().retain(|(of, _), _| *of != table);
    }
}
