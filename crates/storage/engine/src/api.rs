//! Queries of a shard's storage, apart from writes ([`crate::write`]).

use std::sync::Arc;
use std::time::Duration;

use commitlog::SyncMode;
use compaction::OwnedRanges;
use mutation::purge::PurgeRule;
use mutation::{DecoratedKey, PartitionUpdate, Repaired, Row, Seconds, Slices};
use rt::{Instant, Rt};
use schema::{Schema, Table, TableId};

use crate::config::EngineSettings;
use crate::engine::Engine;
use crate::error::log_failure;
use crate::figures;
use crate::read::ReadSources;
use crate::read_request::{Read, RowLookup};
use crate::watermark::{Marked, RepairedWatermark};
use crate::{
    Candidates, EngineConfig, EngineReader, EngineStats, MaintenanceError, NearestQuery, OpenError,
    OrderedPlaces, OrderedScan, ReadError, Sampled, TableSize, TableStats, WriteError,
};

/// How long a table may take to be flushed of which writes are not in the commit log, when the engine stops.
const UNLOGGED_FLUSH_MAX: Duration = Duration::from_secs(120);

impl Engine {
    /// Opens this shard's part of the data directory: SSTables, then the commit log, which is replayed. With one
    /// shard it also does the work of [`crate::prepare`].
    ///
    /// # Errors
    /// [`OpenError::CommitLog`] when durable entries are damaged or missing, [`OpenError::NewerVersion`] and
    /// [`OpenError::Sstable`] when a later version wrote the record of a truncation or it is damaged,
    /// [`OpenError::Disk`]. A damaged SSTable is quarantined and fails nothing here.
    pub async fn open(rt: Rt, config: EngineConfig, schema: Arc<Schema>) -> Result<Engine, OpenError> {
        crate::open::open(rt, config, schema).await
    }

    /// Makes stores for tables that are new in `schema` and takes over changed definitions. Tables that are gone stay
    /// until [`Engine::drop_table`]. Its cost is proportional to the changes; it yields meanwhile.
    ///
    /// # Panics
    /// When it is called before an earlier call has ended.
    pub async fn set_schema(&self, schema: Arc<Schema>) {
        crate::schema_change::set_schema(&self.0, &schema).await;
    }

    /// Sets the repair times of a table's ranges.
    pub fn set_repaired(&self, table: TableId, repaired: Arc<Repaired>) {
        if let Some(store) = self.0.store(table) {
            *store.repaired.borrow_mut() = repaired;
        }
    }

    /// The repair times of a table's ranges, as set by [`Engine::set_repaired`].
    pub fn repaired(&self, table: TableId) -> Arc<Repaired> {
        self.0.store(table).map_or_else(Arc::default, |store| store.repaired.borrow().clone())
    }

    /// The deletions of a table that a compaction of everything might forget at `now`.
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

    /// The places of this shard's part of a table whose vectors are nearest to one, nearest first, or whose texts are the most relevant.
    ///
    /// # Errors
    /// [`ReadError::IndexUnavailable`] while the index is being built; when the index is not one of such vectors; when the table is not
    /// there, part of it is damaged, or the disk fails.
    pub async fn nearest(&self, table: TableId, query: &NearestQuery) -> Result<Candidates, ReadError> {
        self.0.admit_read()?;
        crate::index_reader::nearest(&self.0, table, query).await
    }

    /// The first places of this shard's part of a table in the order of an ordered index.
    ///
    /// # Errors
    /// [`ReadError::IndexUnavailable`] while the index, or that of the scan's other query, is being built; when the index is not ordered;
    /// when the table is not there, part of it is damaged, or the disk fails.
    pub async fn scan_index(&self, table: TableId, scan: &OrderedScan) -> Result<OrderedPlaces, ReadError> {
        self.0.admit_read()?;
        crate::index_reader::scan(&self.0, table, scan).await
    }

    /// Hands the row that a lookup finds to `visit` where it lies (none when there is no row), where memory knows all of
    /// it: the commonest read without the price of a stream. Versions of the row in memtables and in the cache are merged first. None, as of `visit`, asks for
    /// [`Engine::read`]. Nothing is to be asked of the engine by `visit`.
    ///
    /// # Errors
    /// [`ReadError::Stopped`], [`ReadError::UnknownTable`].
    #[inline]
    pub fn visit_only_row<T>(
        &self,
        table: &Table,
        lookup: &RowLookup<'_>,
        visit: impl FnOnce(Option<&Row>) -> Option<T>,
    ) -> Result<Option<T>, ReadError> {
        self.0.admit_read()?;
        self.0.visit_only_row(table.id, lookup, visit)
    }

    /// The content of the present SSTables is covered by the mark that this gives; after flushing, if that is wanted, so is everything
    /// that was written before.
    ///
    /// # Errors
    /// [`MaintenanceError::UnknownTable`]; [`MaintenanceError::Source`] when an SSTable is out of service or the flush
    /// fails; [`MaintenanceError::Disk`] when the mark cannot be written; [`MaintenanceError::Cancelled`] when the
    /// marks were reset meanwhile; [`MaintenanceError::Stopped`].
    pub async fn take_mark(&self, table: TableId, flush: bool) -> Result<Marked, MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        crate::begin_repair::take_mark(&self.0, &store, flush).await
    }

    /// Whether data above a watermark of a table can still be distinguished from data below.
    pub fn knows_watermark(&self, table: TableId, watermark: RepairedWatermark) -> bool {
        self.0.store(table).is_some_and(|store| store.marks.knows(watermark))
    }

    /// Has compaction keep data that this watermark covers apart from later data.
    pub fn set_repaired_upto(&self, table: TableId, mark: RepairedWatermark) {
        if let Some(store) = self.0.store(table) {
            store.marks.set_floor(mark);
        }
    }

    /// Returns when a power failure cannot undo the earlier writes to a table.
    ///
    /// # Errors
    /// [`MaintenanceError::UnknownTable`]; those of the commit log or, for a table without one, of [`Engine::flush`].
    pub async fn make_durable(&self, table: TableId) -> Result<(), MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        if store.durable.get() {
            return self.0.log.sync().await.map_err(log_failure);
        }
        crate::flush::flush(&self.0, &store).await
    }

    /// The sources from which a read of a partition would be answered now, for traces.
    pub fn sources_of(&self, table: TableId, key: &DecoratedKey, slices: &Slices) -> ReadSources {
        self.0.sources_of(table, key, slices)
    }

    /// Why the storage takes no more writes, if a failure of the disk has stopped it.
    pub fn stop_reason(&self) -> Option<String> {
        self.0.health.stop_reason()
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
    /// node that result, as other replicas must store them. Reads and writes under a lock of the partition. Increments that a power failure
    /// undoes later are not counted upon again: see docs/design/engine.md, *Counters*.
    ///
    /// # Errors
    /// [`WriteError::Read`] when the present values cannot be read, [`WriteError::CommitLog`] when the counter id or
    /// the write cannot be stored, and those of [`Engine::apply`].
    pub async fn increment(&self, update: PartitionUpdate) -> Result<PartitionUpdate, WriteError> {
        crate::counter::increment(self, update).await
    }

    /// Writes a table's memtable to an SSTable and waits for it.
    ///
    /// # Errors
    /// [`MaintenanceError::UnknownTable`]; [`MaintenanceError::Source`] when the SSTable cannot be written (it is tried
    /// again in the background); [`MaintenanceError::Stopped`].
    pub async fn flush(&self, table: TableId) -> Result<(), MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        crate::flush::flush(&self.0, &store).await
    }

    /// Flushes every table.
    ///
    /// # Errors
    /// As [`Engine::flush`], of the first table that fails.
    pub async fn flush_all(&self) -> Result<(), MaintenanceError> {
        let stores = self.0.stores_in_order();
        for store in &stores {
            crate::flush::start(&self.0, store, None);
        }
        for store in &stores {
            crate::flush::flush(&self.0, store).await?;
        }
        Ok(())
    }

    /// Merges all of a table's SSTables into one (major compaction) and waits for it.
    ///
    /// # Errors
    /// [`MaintenanceError::UnknownTable`], [`MaintenanceError::Source`] when an SSTable is out of service, damaged or
    /// cannot be written, [`MaintenanceError::Disk`], [`MaintenanceError::Stopped`] or [`MaintenanceError::Cancelled`]
    /// when the engine stops.
    pub async fn compact(&self, table: TableId) -> Result<(), MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        crate::compact::major(&self.0, &store).await
    }

    /// Writes those of a table's SSTables anew that have partitions of other tokens than `kept` says, without these; how many. It
    /// is called when the SSTables are chosen.
    ///
    /// # Errors
    /// As [`Engine::compact`].
    pub async fn cleanup(
        &self,
        table: TableId,
        kept: impl Fn() -> OwnedRanges,
    ) -> Result<u64, MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        if self.0.config.canaries.skipped_cleanup {
            return Ok(0);
        }
        crate::rewrite::cleanup(&self.0, &store, kept).await
    }

    /// Removes everything that was written before the call, and keeps that this was at `at_micros` (now), which also names
    /// the automatic snapshot. All of it happens or nothing; when it fails because the disk did, and it could not be undone
    /// either, the shard stops and the next start decides.
    ///
    /// # Errors
    /// [`MaintenanceError::Expired`] when it cannot be carried out until `expires`: later writes stay.
    pub async fn truncate(
        &self,
        table: TableId,
        at_micros: i64,
        expires: Instant,
    ) -> Result<(), MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        crate::truncation::truncate(&self.0, &store, at_micros, expires).await
    }

    /// The largest entry of the commit log, bytes: a larger write is refused with [`WriteError::MutationTooLarge`](crate::WriteError::MutationTooLarge).
    pub fn entry_len_max(&self) -> usize {
        self.0.log.entry_len_max()
    }

    /// When this shard truncated a table last, microseconds since the epoch; [`i64::MIN`] for never.
    pub fn truncated_at(&self, table: TableId) -> i64 {
        self.0.store(table).map_or(i64::MIN, |store| store.truncated.get())
    }

    /// Records that a table was truncated at this time, when this shard had nothing of it: late writes begun before are left out
    /// from here on, after a restart too. Present rows stay.
    ///
    /// # Errors
    /// [`MaintenanceError::UnknownTable`]; [`MaintenanceError::Disk`] when the time cannot be stored;
    /// [`MaintenanceError::Stopped`].
    pub async fn learn_truncation(&self, table: TableId, at_micros: i64) -> Result<(), MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        crate::truncation::learn(&self.0, &store, at_micros).await
    }

    /// Another node has truncated a table at this time, though this shard has not: see [`Engine::truncated_latest`].
    pub fn note_truncation(&self, at_micros: i64) {
        crate::truncation::note(&self.0, at_micros);
    }

    /// The latest time of a truncation that this shard knows of, of any table, [`i64::MIN`] for none. Writes accepted
    /// from now on must count as later, also when the wall clock is behind.
    pub fn truncated_latest(&self) -> i64 {
        self.0.truncated_latest.get()
    }

    /// Forgets a table and removes this shard's files of it, after a snapshot where that is set, which `at_micros` (now)
    /// names. The directory stays until [`crate::remove_dropped_dir`].
    ///
    /// # Errors
    /// [`MaintenanceError::UnknownTable`]; [`MaintenanceError::Disk`] or [`MaintenanceError::Source`] when the snapshot
    /// or the removal fails, which the next start finishes; [`MaintenanceError::Stopped`].
    pub async fn drop_table(&self, table: TableId, at_micros: i64) -> Result<(), MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        crate::drop_table::drop_table(&self.0, &store, at_micros).await
    }

    /// Removes the directory of a table that every shard has dropped, unless a reader still holds files or this shard has not
    /// dropped it yet; whether nothing is left to do.
    ///
    /// # Errors
    /// A [`rt::DiskError`] when the directory cannot be listed or removed.
    pub async fn remove_dropped_dir(
        &self,
        keyspace: &str,
        name: &str,
        id: TableId,
    ) -> Result<bool, rt::DiskError> {
        // The caller may know of a drop before this shard does: a flush would find its directory gone.
        if self.0.store(id).is_some() || self.0.tables.is_dropping(id) {
            return Ok(false);
        }
        let dir = sstable::named_table_dir(&self.0.config.data_directory, keyspace, name, id);
        // The next table of the keyspace may be about to make its directory.
        let in_use = self.0.tables.current().values().any(|store| store.dir.parent() == dir.parent());
        crate::drop_table::remove_dropped_dir(self.0.rt.disk(), &dir, in_use).await
    }

    /// Changes the settings of a running engine. Compactions under way keep their thresholds and go on, at the new rate.
    pub fn set_settings(&self, settings: EngineSettings) {
        self.0.settings.set(settings);
        self.0.compactions.throttle.set(settings.compaction_bytes_per_second);
        crate::compact::start_due(&self.0);
    }

    /// Stops the compactions of a table that begin by themselves, those under way excepted, or allows them again. It lasts until the
    /// engine stops; an operator's compaction runs anyway.
    ///
    /// # Errors
    /// [`MaintenanceError::UnknownTable`].
    pub fn set_auto_compaction(&self, table: TableId, is_on: bool) -> Result<(), MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        store.auto_compaction_stopped.set(!is_on);
        if is_on {
            self.0.compactions.check.notify_one();
        }
        Ok(())
    }

    /// Has compactions purge no tombstone of a table that begin from now on, or purge them again. It lasts until the engine stops.
    ///
    /// # Errors
    /// [`MaintenanceError::UnknownTable`].
    pub fn set_tombstone_gc(&self, table: TableId, is_on: bool) -> Result<(), MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        store.tombstone_gc_stopped.set(!is_on);
        if is_on {
            self.0.compactions.check.notify_one();
        }
        Ok(())
    }

    /// Names of the commit log's segments that hold entries, and of those that wait for the archive.
    pub fn commitlog_segments(&self) -> [Vec<String>; 2] {
        self.0.log.segment_names()
    }

    /// Flushes a table and hard-links its SSTables into `snapshots/<name>/`. The other shards of the node make their parts of it: that there is no
    /// snapshot of that name yet is for the caller to see to, before the first shard begins.
    ///
    /// # Errors
    /// [`MaintenanceError::SnapshotName`]; [`MaintenanceError::SnapshotExists`]; [`MaintenanceError::Disk`] when a file cannot be linked; those of
    /// [`Engine::flush`].
    pub async fn snapshot(&self, table: TableId, name: &str) -> Result<(), MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        crate::flush::flush(&self.0, &store).await?;
        self.snapshot_of_flushed(table, name).await
    }

    /// [`Engine::snapshot`] without the rows that are in memtables only.
    ///
    /// # Errors
    /// As [`Engine::snapshot`].
    pub async fn snapshot_of_flushed(&self, table: TableId, name: &str) -> Result<(), MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        crate::links::link_snapshot(&self.0, &store, name).await?;
        // Memtables and SSTables of a table that is dropped meanwhile may be missing.
        if store.dropped.get() { Err(MaintenanceError::UnknownTable(table)) } else { Ok(()) }
    }

    /// [`Engine::snapshot`] of a table all of whose SSTables can be read.
    ///
    /// # Errors
    /// As [`Engine::snapshot`]; [`MaintenanceError::Source`] when a damaged SSTable is not or not wholly in service.
    pub async fn snapshot_of_sound(&self, table: TableId, name: &str) -> Result<(), MaintenanceError> {
        self.snapshot(table, name).await?;
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        store.damages.refuse_any()?;
        match store.set().iter().find(|live| live.suspect.get()) {
            Some(live) => {
                Err(MaintenanceError::Source(format!("{} is damaged", live.sstable.descriptor()).into()))
            }
            None => Ok(()),
        }
    }

    /// Makes these indexes of a table anew, or all of them, from its rows. Queries of an index fail meanwhile.
    ///
    /// # Errors
    /// [`MaintenanceError::UnknownTable`], also when it is dropped meanwhile; [`MaintenanceError::UnknownIndex`];
    /// [`MaintenanceError::Stopped`]. An index that cannot be written is tried again until it can.
    pub async fn rebuild_indexes(&self, table: TableId, names: &[String]) -> Result<(), MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        crate::indexes::rebuild(&self.0, &store, names).await
    }

    /// The indexes that can be queried, by table and name.
    pub fn built_indexes(&self) -> Vec<(TableId, String)> {
        self.0.stores_in_order().iter().flat_map(|store| store.built_indexes()).collect()
    }

    /// About how much a table holds on this shard; nothing of one that is not stored.
    pub fn table_size(&self, table: TableId) -> TableSize {
        self.0.store(table).map(|store| crate::figures::size(&store)).unwrap_or_default()
    }

    /// Figures of this moment.
    pub fn stats(&self) -> EngineStats {
        crate::figures::collect(&self.0)
    }

    /// Flushes the writes that a replay of the commit log would not bring back (`durable_writes = false`): they may be lost in a crash, not in an
    /// orderly stop. A disk that fails or is full keeps nobody from stopping.
    async fn flush_unlogged(&self) {
        let inner = &self.0;
        for store in inner.stores_in_order() {
            if !store.unlogged.get() || store.dropped.get() {
                continue;
            }
            let name = store.table().full_name();
            match inner.rt.timeout(UNLOGGED_FLUSH_MAX, crate::flush::flush(inner, &store)).await {
                Ok(Ok(()) | Err(MaintenanceError::Stopped)) => {}
                Ok(Err(error)) => {
                    tracing::error!(
                        "{name} is not flushed, and its writes are not in the commit log (durable_writes): {error}"
                    );
                }
                Err(_) => tracing::error!(
                    "{name} is not flushed in {UNLOGGED_FLUSH_MAX:?}, and its writes are not in the commit log (durable_writes)"
                ),
            }
        }
    }

    /// Flushes tables of which writes did not go to the commit log, ends background tasks, syncs and closes the log. Other memtables are not
    /// flushed: the next start replays them.
    ///
    /// # Errors
    /// [`MaintenanceError::Source`] with the reason when the engine ended because the disk failed;
    /// [`MaintenanceError::Disk`] when the commit log cannot be synced. Writes may not survive a power failure then.
    pub async fn stop(&self) -> Result<(), MaintenanceError> {
        let inner = &self.0;
        self.flush_unlogged().await;
        let failed_before = inner.health.stop();
        inner.memory.freed.notify_all();
        for task in inner.take_tasks() {
            task.cancel().await;
        }
        // Flushes are not tried again: their waiters are notified.
        for store in inner.stores_in_order() {
            store.memtables.wake_waiting();
        }
        let emptied = inner.trash.empty(inner.rt.disk()).await;
        let closed = inner.log.close().await.map_err(log_failure);
        // Entries appended while the log was being closed are written, and perhaps not synced.
        let synced = inner.log.sync().await;
        if !failed_before && closed.is_ok() && synced.is_ok() && !inner.counters.has_unlogged() {
            // Without it the next start counts under another id.
            let _ = inner.counters.ids.close(&inner.rt).await;
        }
        if let Some(reason) = inner.health.take_death() {
            return Err(MaintenanceError::Source(reason.into()));
        }
        emptied?;
        closed
    }

    /// Begins to count a table's partitions anew in so many places each, or ends that with none. Returns the counts until now.
    pub fn sample(&self, table: TableId, places: Option<usize>) -> Option<Sampled> {
        let store = self.0.store(table)?;
        let before = store.sampled.replace(places.map(|places| Box::new(Sampled::new(places))));
        before.map(|sampled| *sampled)
    }
}
