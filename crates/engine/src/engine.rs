//! The handle of one shard's storage.

use std::rc::Rc;
use std::sync::Arc;

use mutation::counter::CounterId;
use mutation::{ColumnSelection, PartitionRange, PartitionUpdate, Slices};
use rt::Rt;
use schema::{Schema, Table, TableId};

use crate::{EngineConfig, EngineReader, EngineStats, MaintenanceError, OpenError, ReadError, WriteError};

/// Stands for bodies that land in the next commits.
pub(crate) fn pending() -> ! {
    panic!("the engine's body has not landed yet")
}

/// One shard's storage. Cheap to clone; belongs to one shard.
#[derive(Clone)]
pub struct Engine(Rc<Inner>);

struct Inner {}

/// To be called once a node, on one shard, before any [`Engine::open`]: finishes or undoes what a crash interrupted,
/// and splits SSTables and commit logs that were written for another number of shards or copied in from elsewhere.
pub async fn prepare(rt: &Rt, config: &EngineConfig, schema: &Arc<Schema>) -> Result<(), OpenError> {
    let _ = (rt, config, schema);
    pending()
}

impl Engine {
    /// Opens this shard's part of the data directory: SSTables, then the commit log, which is replayed. With one
    /// shard it also does what [`prepare`] does.
    pub async fn open(rt: Rt, config: EngineConfig, schema: Arc<Schema>) -> Result<Engine, OpenError> {
        let _ = (rt, config, schema);
        pending()
    }

    /// Makes stores for tables that are new in `schema` and takes over changed definitions. Tables that are gone stay
    /// until [`Engine::drop_table`].
    pub fn set_schema(&self, schema: Arc<Schema>) {
        let _ = (&self.0, schema);
        pending()
    }

    /// Applies updates as one: after a crash all of them are there or none. Waits while memtables are over their
    /// budget, and until the commit log's mode allows the acknowledgement.
    pub async fn apply(&self, updates: Vec<PartitionUpdate>) -> Result<(), WriteError> {
        let _ = updates;
        pending()
    }

    /// [`Engine::apply`] of one update.
    pub async fn apply_one(&self, update: PartitionUpdate) -> Result<(), WriteError> {
        let _ = update;
        pending()
    }

    /// Reads the partitions of `range`, of each the rows of `slices`. Cells outside of `columns` may be there too.
    pub async fn read(
        &self,
        table: &Arc<Table>,
        range: &PartitionRange,
        slices: &Slices,
        columns: &ColumnSelection,
        reversed: bool,
    ) -> Result<EngineReader, ReadError> {
        let _ = (table, range, slices, columns, reversed);
        pending()
    }

    /// [`Engine::read`] that leaves the row cache as it is (`BYPASS CACHE`).
    pub async fn read_bypassing_cache(
        &self,
        table: &Arc<Table>,
        range: &PartitionRange,
        slices: &Slices,
        columns: &ColumnSelection,
        reversed: bool,
    ) -> Result<EngineReader, ReadError> {
        let _ = (table, range, slices, columns, reversed);
        pending()
    }

    /// Adds counter deltas: `update`'s cells hold 8-byte big-endian deltas, and the result holds the shards of `host`
    /// that they lead to, as other replicas must store them. Reads and writes under a lock of the partition.
    pub async fn increment(
        &self,
        update: PartitionUpdate,
        host: CounterId,
    ) -> Result<PartitionUpdate, WriteError> {
        let _ = (update, host);
        pending()
    }

    /// Writes a table's memtable to an SSTable and waits for it.
    pub async fn flush(&self, table: TableId) -> Result<(), MaintenanceError> {
        let _ = table;
        pending()
    }

    /// Flushes every table.
    pub async fn flush_all(&self) -> Result<(), MaintenanceError> {
        pending()
    }

    /// Merges all of a table's SSTables into one (major compaction) and waits for it.
    pub async fn compact(&self, table: TableId) -> Result<(), MaintenanceError> {
        let _ = table;
        pending()
    }

    /// Removes everything that was written before the call. `at_micros` (now) names the automatic snapshot.
    pub async fn truncate(&self, table: TableId, at_micros: i64) -> Result<(), MaintenanceError> {
        let _ = (table, at_micros);
        pending()
    }

    /// Forgets a table and removes its files, after a snapshot where that is set.
    pub async fn drop_table(&self, table: TableId) -> Result<(), MaintenanceError> {
        let _ = table;
        pending()
    }

    /// Flushes a table and hard-links its SSTables into `snapshots/<name>/`.
    pub async fn snapshot(&self, table: TableId, name: &str) -> Result<(), MaintenanceError> {
        let _ = (table, name);
        pending()
    }

    /// Removes a table's snapshot of this name, or all of them.
    pub async fn clear_snapshot(&self, table: TableId, name: Option<&str>) -> Result<(), MaintenanceError> {
        let _ = (table, name);
        pending()
    }

    /// Figures of this moment.
    pub fn stats(&self) -> EngineStats {
        pending()
    }

    /// Ends background tasks, syncs and closes the commit log. Memtables are not flushed: the next start replays them.
    pub async fn stop(&self) -> Result<(), MaintenanceError> {
        pending()
    }
}
