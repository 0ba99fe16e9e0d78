//! The handle of one shard's storage, and what its parts share.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use cache::Cache;
use commitlog::{AppendError, CommitLog, SyncMode};
use compaction::{KeptTokens, Throttle};
use memtable::OnlyRow;
use mutation::purge::PurgeRule;
use mutation::{DecoratedKey, PartitionUpdate, Repaired, Seconds, Slices};
use rt::sync::{Notify, Semaphore};
use rt::{DiskError, Instant, Rt, Task};
use schema::{Schema, Table, TableId};
use sstable::{Owner, table_dir};
use stdx::{HashMap, HashSet};

use crate::compact::RunningTask;
use crate::counter_id::CounterIds;
use crate::error::is_shortage;
use crate::figures;
use crate::live::Trash;
use crate::locks::PartitionLocks;
use crate::marks::{Mark, Marked};
use crate::observer::Observers;
use crate::read::{Read, ReadSources};
use crate::store::{Store, count};
use crate::{
    CompactionRecord, EngineConfig, EngineReader, EngineStats, FailurePolicy, MaintenanceError, OpenError,
    ReadError, TableStats, WriteError,
};

/// One shard's storage. Cheap to clone; belongs to one shard.
#[derive(Clone)]
pub struct Engine(pub(crate) Rc<Inner>);

pub(crate) struct Inner {
    pub(crate) rt: Rt,
    pub(crate) config: EngineConfig,
    pub(crate) log: CommitLog,
    pub(crate) stores: RefCell<HashMap<TableId, Rc<Store>>>,
    /// Tables that are in no schema any more and whose files are not all removed.
    pub(crate) dropping: RefCell<HashSet<TableId>>,
    pub(crate) cache: Cache,
    pub(crate) blocks: Rc<dyn sstable::BlockCache>,
    pub(crate) trash: Rc<Trash>,
    /// Bytes in memtables, those being flushed included.
    pub(crate) memtable_bytes: Cell<usize>,
    /// Told when memtables gave memory back.
    pub(crate) memory_freed: Notify,
    pub(crate) throttled: Cell<u64>,
    /// Why the last flush failed, until one succeeds.
    pub(crate) flush_failure: RefCell<Option<String>>,
    /// Told when there may be something to flush.
    pub(crate) flush_check: Notify,
    pub(crate) flushes: Cell<u64>,
    pub(crate) flushes_failed: Cell<u64>,
    pub(crate) flushes_running: Cell<u64>,
    /// Told when there may be something to compact.
    pub(crate) compaction_check: Notify,
    pub(crate) compactions_running: Cell<u64>,
    pub(crate) compactions_done: Cell<u64>,
    pub(crate) compactions_failed: Cell<u64>,
    /// Why the last compaction failed.
    pub(crate) compaction_failure: RefCell<String>,
    /// Compactions that run now.
    pub(crate) compaction_tasks: RefCell<Vec<Weak<RunningTask>>>,
    pub(crate) compaction_bytes_in: Cell<u64>,
    pub(crate) compaction_bytes_out: Cell<u64>,
    pub(crate) compaction_history: RefCell<VecDeque<CompactionRecord>>,
    pub(crate) throttle: Throttle,
    /// The log is being replayed.
    pub(crate) replaying: Cell<bool>,
    /// Writes are refused.
    pub(crate) stopped: Cell<bool>,
    /// See [`Engine::stop_reason`].
    pub(crate) stop_reason: RefCell<Option<String>>,
    /// Reads are refused, too.
    pub(crate) reads_stopped: Cell<bool>,
    /// The last flush failed because something has run out: space, descriptors, memory.
    pub(crate) shortage: Cell<bool>,
    /// What was logged last of a failure of the commit log that goes by.
    pub(crate) log_trouble: RefCell<String>,
    /// Taken by flushes that write: however many tables wait, so many have files open.
    pub(crate) flush_slots: Semaphore,
    /// The table that a compaction was started of last.
    pub(crate) compacted_last: Cell<Option<TableId>>,
    /// Tables whose compactions failed: how often in a row, and until when none is started.
    pub(crate) compaction_pauses: RefCell<HashMap<TableId, (u32, Instant)>>,
    /// Bytes that compactions under way may still write.
    pub(crate) compaction_bytes_claimed: Cell<u64>,
    /// The disk failed, and the policy is to end the process: why.
    pub(crate) died: RefCell<Option<String>>,
    /// Locks of partitions whose counters are being changed.
    pub(crate) counter_locks: PartitionLocks,
    /// Who sees writes before they are applied.
    pub(crate) observers: Observers,
    /// Under which ids counters are raised.
    pub(crate) counter_ids: CounterIds,
    /// Increments that are in memtables but not in the log, whose writing failed.
    pub(crate) unlogged_counters: RefCell<HashMap<(TableId, bytes::Bytes), PartitionUpdate>>,
    /// See [`Engine::truncated_latest`].
    pub(crate) truncated_latest: Cell<i64>,
    pub(crate) tasks: RefCell<Vec<Task<()>>>,
}

impl Engine {
    /// Opens this shard's part of the data directory: SSTables, then the commit log, which is replayed. With one
    /// shard it also does what [`crate::prepare`] does.
    pub async fn open(rt: Rt, config: EngineConfig, schema: Arc<Schema>) -> Result<Engine, OpenError> {
        crate::open::open(rt, config, schema).await
    }

    /// Makes stores for tables that are new in `schema` and takes over changed definitions. Tables that are gone stay
    /// until [`Engine::drop_table`].
    pub fn set_schema(&self, schema: Arc<Schema>) {
        self.0.set_schema(&schema);
    }

    /// Takes over when what of a table was repaired.
    pub fn set_repaired(&self, table: TableId, repaired: Arc<Repaired>) {
        if let Some(store) = self.0.store(table) {
            *store.repaired.borrow_mut() = repaired;
        }
    }

    /// When what of a table was repaired, as [`Engine::set_repaired`] told.
    pub fn repaired(&self, table: TableId) -> Arc<Repaired> {
        self.0.store(table).map_or_else(Arc::default, |store| store.repaired.borrow().clone())
    }

    /// What of a table a compaction of everything might forget at `now`.
    pub fn purge_rule(&self, table: &Table, now: Seconds) -> PurgeRule {
        match self.0.store(table.id) {
            Some(store) => PurgeRule::for_table(table, now, &store.repaired.borrow()),
            None => PurgeRule::for_table(table, now, &Arc::default()),
        }
    }

    /// Figures of one table; none when it is not there.
    pub fn table_stats(&self, table: TableId) -> Option<TableStats> {
        let store = self.0.store(table)?;
        Some(figures::table(&self.0, &store))
    }

    /// Reads, in ring order.
    ///
    /// # Errors
    ///
    /// [`ReadError::Stopped`], [`ReadError::UnknownTable`]; [`ReadError::Source`] when an SSTable of the range is out of service, or the
    /// mark above which is to be read means nothing any more.
    pub fn read(&self, read: &Read<'_>) -> Result<EngineReader, ReadError> {
        self.0.admit_read()?;
        self.0.read(read)
    }

    /// The only row of a partition, where memory knows all of it and nothing has to be merged or read: the commonest
    /// read without the price of a stream. [`OnlyRow::More`] asks for [`Engine::read`].
    pub fn only_row(
        &self,
        table: &Table,
        key: &DecoratedKey,
        slices: &Slices,
        bypass_cache: bool,
    ) -> Result<OnlyRow, ReadError> {
        self.0.admit_read()?;
        self.0.only_row(table.id, key, slices, bypass_cache)
    }

    /// What the present SSTables hold is covered by the mark that this gives; after flushing, if that is wanted, so is everything
    /// that was written before.
    pub async fn take_mark(&self, table: TableId, flush: bool) -> Result<Marked, MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        crate::marks::take(&self.0, &store, flush).await
    }

    /// Has compaction keep what this mark covers apart from what came later.
    pub fn set_repaired_upto(&self, table: TableId, mark: Mark) {
        if let Some(store) = self.0.store(table) {
            store.marks.set_floor(mark);
        }
    }

    /// Returns when a loss of power cannot undo what was written to a table before.
    pub async fn make_durable(&self, table: TableId) -> Result<(), MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        if store.durable.get() {
            return self.0.log.sync().await.map_err(log_failure);
        }
        self.0.flush(&store).await
    }

    /// From what a read of a partition would be answered now, for traces.
    pub fn sources_of(&self, table: TableId, key: &DecoratedKey, slices: &Slices) -> ReadSources {
        self.0.sources_of(table, key, slices)
    }

    /// Why the storage takes no more writes, if a failure of the disk has stopped it.
    pub fn stop_reason(&self) -> Option<String> {
        self.0.stop_reason.borrow().clone()
    }

    /// How many SSTables a table has on this shard.
    pub fn sstable_count(&self, table: TableId) -> usize {
        self.0.store(table).map_or(0, |store| store.set().len())
    }

    /// The name of the commit log's mode: when writes are acknowledged.
    pub fn sync_mode_name(&self) -> &'static str {
        match self.0.config.commitlog.sync {
            SyncMode::Periodic { .. } => "periodic: written, synced later",
            SyncMode::Batch => "batch: synced",
            SyncMode::Group { .. } => "group: synced",
        }
    }

    /// Adds counter deltas: `update`'s cells hold 8-byte big-endian deltas, and the result holds the counter shards of this
    /// node that they lead to, as other replicas must store them. Reads and writes under a lock of the partition. What a power failure
    /// undoes of it later is not counted upon again: see docs/design/engine.md, *Counters*.
    pub async fn increment(&self, update: PartitionUpdate) -> Result<PartitionUpdate, WriteError> {
        crate::counter::increment(self, update).await
    }

    /// Writes a table's memtable to an SSTable and waits for it.
    pub async fn flush(&self, table: TableId) -> Result<(), MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        self.0.flush(&store).await
    }

    /// Flushes every table.
    pub async fn flush_all(&self) -> Result<(), MaintenanceError> {
        let stores = self.0.stores_in_order();
        for store in &stores {
            self.0.start_flush(store, None);
        }
        for store in &stores {
            self.0.flush(store).await?;
        }
        Ok(())
    }

    /// Merges all of a table's SSTables into one (major compaction) and waits for it.
    pub async fn compact(&self, table: TableId) -> Result<(), MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        crate::compact::major(&self.0, &store).await
    }

    /// Writes those of a table's SSTables anew that have partitions of other tokens than `kept` says, without these; how many. It
    /// is asked when the SSTables are chosen.
    pub async fn cleanup(
        &self,
        table: TableId,
        kept: impl Fn() -> KeptTokens,
    ) -> Result<u64, MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        crate::compact::cleanup(&self.0, &store, kept).await
    }

    /// Removes everything that was written before the call, and keeps that this was at `at_micros` (now), which also names
    /// the automatic snapshot. All of it happens or nothing; when it fails because the disk did, and it could not be undone
    /// either, the shard stops and the next start tells.
    pub async fn truncate(&self, table: TableId, at_micros: i64) -> Result<(), MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        crate::truncation::truncate(&self.0, &store, at_micros).await
    }

    /// When this shard truncated a table last, microseconds since the epoch; [`i64::MIN`] for never.
    pub fn truncated_at(&self, table: TableId) -> i64 {
        self.0.store(table).map_or(i64::MIN, |store| store.truncated.get())
    }

    /// Remembers that a table was truncated at this time, when this shard had nothing of it: what began before and comes late is left out
    /// from here on, after a restart too. What is there stays.
    pub async fn learn_truncation(&self, table: TableId, at_micros: i64) -> Result<(), MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        crate::truncation::learn(&self.0, &store, at_micros).await
    }

    /// Another node has truncated a table at this time, though this shard has not: see [`Engine::truncated_latest`].
    pub fn note_truncation(&self, at_micros: i64) {
        self.0.note_truncation(at_micros);
    }

    /// The latest time of a truncation that this shard knows of, of whatever table, [`i64::MIN`] for none. What is taken up
    /// from now on must count as later, wherever the wall clock stands.
    pub fn truncated_latest(&self) -> i64 {
        self.0.truncated_latest.get()
    }

    /// Forgets a table and removes this shard's files of it, after a snapshot where that is set, which `at_micros` (now)
    /// names. The directory stays until [`crate::remove_dropped_dir`].
    pub async fn drop_table(&self, table: TableId, at_micros: i64) -> Result<(), MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        crate::maintain::drop_table(&self.0, &store, at_micros).await
    }

    /// Removes the directory of a table that every shard has dropped, unless a reader still holds files or this shard has not
    /// dropped it yet; whether nothing is left to do.
    pub async fn remove_dropped_dir(
        &self,
        keyspace: &str,
        name: &str,
        id: TableId,
    ) -> Result<bool, rt::DiskError> {
        // Who asks may know of a drop before this shard does: a flush would find its directory gone.
        if self.0.store(id).is_some() || self.0.dropping.borrow().contains(&id) {
            return Ok(false);
        }
        let dir = sstable::named_table_dir(&self.0.config.data_directory, keyspace, name, id);
        // The next table of the keyspace may be about to make its directory.
        let in_use = self.0.stores.borrow().values().any(|store| store.dir.parent() == dir.parent());
        crate::maintain::remove_dropped_dir(self.0.rt.disk(), &dir, in_use).await
    }

    /// Flushes a table and hard-links its SSTables into `snapshots/<name>/`.
    pub async fn snapshot(&self, table: TableId, name: &str) -> Result<(), MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        self.0.flush(&store).await?;
        crate::maintain::link_snapshot(&self.0, &store, name).await
    }

    /// Removes a table's snapshot of this name, or all of them.
    pub async fn clear_snapshot(&self, table: TableId, name: Option<&str>) -> Result<(), MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        crate::maintain::clear_snapshot(&self.0, &store, name).await
    }

    /// Figures of this moment.
    pub fn stats(&self) -> EngineStats {
        crate::figures::collect(&self.0)
    }

    /// Ends background tasks, syncs and closes the commit log. Memtables are not flushed: the next start replays them.
    pub async fn stop(&self) -> Result<(), MaintenanceError> {
        let inner = &self.0;
        let failed_before = inner.stopped.replace(true);
        inner.memory_freed.notify_all();
        let tasks = std::mem::take(&mut *inner.tasks.borrow_mut());
        for task in tasks {
            task.cancel().await;
        }
        // Flushes are not tried again: who waits for one learns that.
        for store in inner.stores_in_order() {
            store.flushing.borrow().iter().for_each(|flushing| flushing.attempted.notify_all());
        }
        let emptied = inner.trash.empty(inner.rt.disk()).await;
        let closed = inner.log.close().await.map_err(log_failure);
        // What came to the log while it was being closed is written, and perhaps not synced.
        let synced = inner.log.sync().await;
        if !failed_before && closed.is_ok() && synced.is_ok() && inner.unlogged_counters.borrow().is_empty() {
            // Without it the next start counts under another id.
            let _ = inner.counter_ids.close(&inner.rt).await;
        }
        if let Some(reason) = inner.died.borrow_mut().take() {
            return Err(MaintenanceError::Source(reason.into()));
        }
        emptied?;
        closed
    }
}

/// Counts one more while it lives: also when the write that waits is given up.
struct Waiting<'a>(&'a Cell<u64>);

impl<'a> Waiting<'a> {
    fn new(counter: &'a Cell<u64>) -> Self {
        count(counter, 1);
        Self(counter)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A failure of the log in a maintenance operation.
pub(crate) fn log_failure(error: AppendError) -> MaintenanceError {
    match error {
        AppendError::Disk(error) => MaintenanceError::Disk((*error).clone()),
        AppendError::Closed => MaintenanceError::Stopped,
        AppendError::TooLarge { .. } => MaintenanceError::Source(error.to_string().into()),
    }
}

pub(crate) fn write_error(error: AppendError) -> WriteError {
    match error {
        AppendError::TooLarge { size, size_max } => WriteError::MutationTooLarge { size, size_max },
        AppendError::Disk(error) => WriteError::CommitLog(error.to_string()),
        AppendError::Closed => WriteError::Stopped,
    }
}

impl Inner {
    /// This shard, as SSTables name it.
    pub(crate) fn owner(&self) -> Owner {
        Owner { shard: self.rt.shard().0, shards: self.rt.shard_count() }
    }

    pub(crate) fn store(&self, table: TableId) -> Option<Rc<Store>> {
        self.stores.borrow().get(&table).cloned()
    }

    pub(crate) fn store_of_write(&self, table: TableId) -> Result<Rc<Store>, WriteError> {
        self.store(table).ok_or(WriteError::UnknownTable(table))
    }

    /// All tables, by id: an order that does not depend on history.
    pub(crate) fn stores_in_order(&self) -> Vec<Rc<Store>> {
        let mut stores: Vec<Rc<Store>> = self.stores.borrow().values().cloned().collect();
        stores.sort_by_key(|store| store.id);
        stores
    }

    pub(crate) fn set_schema(&self, schema: &Arc<Schema>) {
        let mut stores = self.stores.borrow_mut();
        for keyspace in schema.keyspaces() {
            for table in keyspace.tables.values() {
                let store = stores.entry(table.id).or_insert_with(|| {
                    let dir = table_dir(&self.config.data_directory, table);
                    Store::new(table.clone(), dir, keyspace.durable_writes)
                });
                store.durable.set(keyspace.durable_writes);
                self.take_over(store, table);
            }
        }
    }

    /// Takes over a changed definition.
    fn take_over(&self, store: &Store, table: &Arc<Table>) {
        if Arc::ptr_eq(&*store.table.borrow(), table) {
            return;
        }
        *store.table.borrow_mut() = table.clone();
        store.memtables().iter().for_each(|memtable| memtable.set_table(table.clone()));
        for live in store.set().iter() {
            // A definition that does not fit its files was refused when it was made; a file that was copied in may
            // still not fit, and is then read by the definition that it was opened with.
            let _ = live.sstable.set_table(table.clone());
        }
    }

    #[inline]
    fn has_full_memtables(&self) -> bool {
        self.memtable_bytes.get() > self.config.memtable_bytes_max
            && !self.config.canaries.unlimited_memtables
    }

    #[inline]
    pub(crate) fn can_write_now(&self) -> bool {
        !self.stopped.get() && !self.has_full_memtables() && self.log.has_room()
    }

    #[cold]
    async fn wait_to_write(&self) -> Result<(), WriteError> {
        while self.has_full_memtables() && !self.stopped.get() {
            self.flush_check.notify_one();
            let waiting = Waiting::new(&self.throttled);
            self.memory_freed.notified().await;
            drop(waiting);
            if let Some(reason) = &*self.flush_failure.borrow()
                && self.has_full_memtables()
            {
                return Err(WriteError::CommitLog(format!(
                    "memtables are full and cannot be flushed: {reason}"
                )));
            }
        }
        self.log.wait_for_room().await;
        if self.stopped.get() { Err(WriteError::Stopped) } else { Ok(()) }
    }

    /// Waits until a write may begin.
    pub(crate) async fn admit_write(&self) -> Result<(), WriteError> {
        while !self.can_write_now() {
            self.wait_to_write().await?;
        }
        Ok(())
    }

    /// Applies an update to its memtable.
    pub(crate) fn apply_to(&self, store: &Store, update: PartitionUpdate, number: Option<u64>) {
        let active = store.active.borrow();
        if active.is_empty() {
            store.active_since.set(self.rt.now());
        }
        if store.active_first.get().is_none() {
            store.active_first.set(number);
        }
        store.sample_write(&update.key);
        let before = active.bytes();
        active.apply(update);
        let after = active.bytes();
        let total = (self.memtable_bytes.get() + after).saturating_sub(before);
        self.memtable_bytes.set(total);
        count(&store.counters.writes, 1);
        if total > self.config.memtable_bytes_max / 2 {
            self.flush_check.notify_one();
        }
    }

    /// The disk failed the commit log, whether somebody waits for it or not.
    pub(crate) fn commit_log_failed(&self, error: &DiskError) {
        let policy = self.config.commit_failure_policy;
        if is_shortage(error) {
            return self.warn_of_log(format!("the commit log is tried again: {error}"));
        }
        if policy == FailurePolicy::Ignore {
            let text = format!("the commit log failed, which commit_failure_policy ignores: {error}");
            return self.warn_of_log(text);
        }
        if matches!(policy, FailurePolicy::Stop | FailurePolicy::Die) {
            self.reads_stopped.set(true);
        }
        self.stop_by_failure(error, policy);
    }

    /// Logs what is not the same as before.
    fn warn_of_log(&self, text: String) {
        if *self.log_trouble.borrow() != text {
            tracing::error!("{text}");
            *self.log_trouble.borrow_mut() = text;
        }
    }

    #[inline]
    fn admit_read(&self) -> Result<(), ReadError> {
        if self.reads_stopped.get() { Err(ReadError::Stopped) } else { Ok(()) }
    }

    /// Refuses writes from now on, because the disk failed; by the policy `Die` the whole node ends.
    pub(crate) fn stop_by_failure(&self, reason: &dyn std::fmt::Display, policy: FailurePolicy) {
        if self.stopped.replace(true) {
            return;
        }
        *self.stop_reason.borrow_mut() = Some(reason.to_string());
        tracing::error!(
            shard = self.rt.shard().0,
            "the storage of this shard stops taking requests: {reason}. Mend the cause and start the node again"
        );
        if policy == FailurePolicy::Die {
            *self.died.borrow_mut() = Some(format!("the node ends because the disk failed: {reason}"));
            self.rt.request_stop();
        }
        self.memory_freed.notify_all();
    }
}
