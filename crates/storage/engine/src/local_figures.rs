//! Figures of the requests of one table on this shard: how long they took, and how much a read met.

use std::path::PathBuf;
use std::rc::Rc;

use mutation::{DecoratedKey, FragmentBuffer, PartitionRange};
use rt::Instant;
use schema::TableId;
use sstable::Component;
use sstable::metadata::SizeHistogram;
use stdx::RecentFigures;

use crate::engine::Inner;
use crate::local_counters::LocalCounters;
use crate::store::Store;
use crate::{Engine, MaintenanceError};

/// The requests of one table on this shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalFigures {
    /// Reads of partitions, microseconds.
    pub reads: RecentFigures,
    /// Reads of token ranges, microseconds.
    pub scans: RecentFigures,
    /// Updates of partitions, microseconds.
    pub writes: RecentFigures,
    /// Rows that a read found.
    pub rows: RecentFigures,
    /// Tombstones that a read stepped over.
    pub tombstones: RecentFigures,
    /// SSTables that a read of a partition opened; 0 for one that memtables and the row cache answered.
    pub sstables: RecentFigures,
}

/// An SSTable in service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SstableFigures {
    /// Which of the table's SSTables it is.
    pub generation: String,
    /// Version of its format.
    pub version: &'static str,
    /// Level in leveled compaction.
    pub level: u32,
    /// Bytes of all its files.
    pub disk_bytes: u64,
    /// Bytes of its data file.
    pub data_bytes: u64,
    /// Bytes of its index of partitions.
    pub index_bytes: u64,
    /// Bytes of its bloom filter; 0 for none.
    pub filter_bytes: u64,
    /// When it was written, microseconds since the epoch; none when it was there at the start.
    pub created_micros: Option<i64>,
}

impl LocalFigures {
    /// Adds the figures of another shard.
    pub fn merge(&mut self, other: &Self) {
        self.reads.merge(&other.reads);
        self.scans.merge(&other.scans);
        self.writes.merge(&other.writes);
        self.rows.merge(&other.rows);
        self.tombstones.merge(&other.tombstones);
        self.sstables.merge(&other.sstables);
    }
}

/// The distributions of one table's requests and partitions, on one shard or several.
#[derive(Clone, Debug, PartialEq)]
pub struct TableHistograms {
    /// Its requests of the last one to two minutes.
    pub requests: LocalFigures,
    /// Bytes of the partitions of its SSTables; a partition counts once in each SSTable that has a part of it.
    pub partition_bytes: SizeHistogram,
    /// Cells of these partitions.
    pub cells: SizeHistogram,
    /// SSTables.
    pub sstables: u64,
}

impl Default for TableHistograms {
    fn default() -> Self {
        Self {
            requests: LocalFigures::default(),
            partition_bytes: SizeHistogram::of_partition_sizes(),
            cells: SizeHistogram::of_cell_counts(),
            sstables: 0,
        }
    }
}

impl TableHistograms {
    /// Adds the counts of another shard.
    pub fn merge(&mut self, other: &Self) {
        self.requests.merge(&other.requests);
        self.partition_bytes.merge(&other.partition_bytes);
        self.cells.merge(&other.cells);
        self.sstables += other.sstables;
    }
}

fn figures(local: &LocalCounters, now: u64) -> LocalFigures {
    LocalFigures {
        reads: local.reads.figures(now),
        scans: local.scans.figures(now),
        writes: local.writes.figures(now),
        rows: local.rows.figures(now),
        tombstones: local.tombstones.figures(now),
        sstables: local.sstables.figures(now),
    }
}

/// A read that is measured.
pub struct MeasuredRead {
    store: Rc<Store>,
    is_scan: bool,
    weight: u32,
    began: Instant,
}

/// A write that is measured.
pub(crate) struct MeasuredWrite {
    store: Rc<Store>,
    weight: u32,
    began: Instant,
}

/// Nanoseconds of the clock since it began.
fn nanos(now: Instant) -> u64 {
    now.as_nanos()
}

fn micros_between(began: Instant, now: Instant) -> u64 {
    u64::try_from((now - began).as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}

impl Engine {
    /// Counts a read of a table. To be ended by [`Engine::read_ended`] when it is one of those that are measured.
    #[inline]
    pub fn read_begins(&self, table: TableId, is_scan: bool) -> Option<MeasuredRead> {
        self.count_read(table, is_scan, || self.0.rt.now())
    }

    /// Counts a read of a partition that began some time ago, as [`Engine::read_begins`] does.
    #[inline]
    pub fn read_began(&self, table: TableId, began: Instant) -> Option<MeasuredRead> {
        self.count_read(table, false, || began)
    }

    #[inline]
    fn count_read(
        &self,
        table: TableId,
        is_scan: bool,
        began: impl FnOnce() -> Instant,
    ) -> Option<MeasuredRead> {
        let stores = self.0.tables.current();
        let store = stores.get(&table)?;
        let weight = if is_scan { store.local.scans.begin() } else { store.local.reads.begin() };
        (weight > 0).then(|| MeasuredRead { store: store.clone(), is_scan, weight, began: began() })
    }

    /// A read that is measured has found so many rows and tombstones.
    pub fn read_ended(&self, read: MeasuredRead, rows: u64, tombstones: u64) {
        let now = self.0.rt.now();
        let (local, at) = (&read.store.local, nanos(now));
        let latencies = if read.is_scan { &local.scans } else { &local.reads };
        latencies.measured(micros_between(read.began, now), read.weight, at);
        local.rows.measured(rows, read.weight, at);
        local.tombstones.measured(tombstones, read.weight, at);
    }

    /// Measures how many SSTables a read of a partition opens.
    #[inline]
    pub(crate) fn read_opens(inner: &Inner, store: &Store, sstables: usize) {
        let weight = store.local.sstables.begin();
        if weight > 0 {
            store.local.sstables.measured(sstables as u64, weight, nanos(inner.rt.now()));
        }
    }

    /// Measures a write by the table of its first update; the updates were not yet counted.
    #[inline]
    pub(crate) fn write_begins(&self, table: Option<TableId>) -> Option<MeasuredWrite> {
        let stores = self.0.tables.current();
        let store = stores.get(&table?)?;
        let weight = store.local.writes.begin();
        (weight > 0).then(|| MeasuredWrite { store: store.clone(), weight, began: self.0.rt.now() })
    }

    pub(crate) fn write_ended(&self, write: MeasuredWrite) {
        self.write_measured(&write.store, write.weight, write.began);
    }

    /// A write of this table that began some time ago has ended.
    pub(crate) fn write_measured(&self, store: &Store, weight: u32, began: Instant) {
        let now = self.0.rt.now();
        store.local.writes.measured(micros_between(began, now), weight, nanos(now));
    }

    /// The requests of each table that had any on this shard.
    pub fn local_figures(&self) -> Vec<(TableId, LocalFigures)> {
        let now = nanos(self.0.rt.now());
        let one = |store: Rc<Store>| (store.id, figures(&store.local, now));
        self.0.stores_in_order().into_iter().map(one).collect()
    }

    /// The distributions of one table's requests and partitions on this shard; none when there is no such table.
    pub fn table_histograms(&self, table: TableId) -> Option<TableHistograms> {
        let store = self.0.store(table)?;
        let requests = figures(&store.local, nanos(self.0.rt.now()));
        let mut histograms = TableHistograms { requests, ..TableHistograms::default() };
        for live in store.set().iter() {
            let stats = &live.sstable.metadata().stats;
            histograms.partition_bytes.merge(&stats.partition_sizes);
            histograms.cells.merge(&stats.cell_counts);
            histograms.sstables += 1;
        }
        Some(histograms)
    }

    /// The tokens of sampled partitions of a table's SSTables on this shard, in order: some of them, evenly.
    pub fn sampled_tokens(&self, table: TableId) -> Vec<i64> {
        let Some(store) = self.0.store(table) else { return Vec::new() };
        let mut tokens: Vec<i64> =
            store.set().iter().flat_map(|live| live.sstable.sampled_tokens().collect::<Vec<_>>()).collect();
        tokens.sort_unstable();
        tokens.dedup();
        tokens
    }

    /// The SSTables of a table on this shard.
    ///
    /// # Errors
    /// [`MaintenanceError::UnknownTable`]; [`MaintenanceError::Disk`] when the size of a file cannot be read.
    pub async fn sstable_figures(&self, table: TableId) -> Result<Vec<SstableFigures>, MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        let mut all = Vec::new();
        for live in store.set().iter() {
            let descriptor = live.sstable.descriptor();
            let mut bytes = [0, 0];
            for (bytes, component) in bytes.iter_mut().zip([Component::Index, Component::Filter]) {
                *bytes = match self.0.rt.disk().len(descriptor.path(component)).await {
                    Err(error) if error.is_not_found() => 0,
                    len => len?,
                };
            }
            let [index_bytes, filter_bytes] = bytes;
            all.push(SstableFigures {
                generation: descriptor.generation.to_string(),
                version: descriptor.version.name(),
                level: live.sstable.level(),
                disk_bytes: live.sstable.disk_len(),
                data_bytes: live.sstable.data_len(),
                index_bytes,
                filter_bytes,
                created_micros: Some(live.since_micros).filter(|micros| *micros > 0),
            });
        }
        Ok(all)
    }

    /// Paths of the data files of those SSTables on this shard that hold rows or deletions of a partition.
    ///
    /// # Errors
    /// [`MaintenanceError::UnknownTable`]; those of a file that cannot be read.
    pub async fn sstables_of(
        &self,
        table: TableId,
        key: &DecoratedKey,
    ) -> Result<Vec<PathBuf>, MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        let range = PartitionRange::single(key);
        let mut paths = Vec::new();
        for live in store.set().iter().filter(|live| live.sstable.may_contain(key)) {
            let found = live.sstable.scan(&range).fill_next(&mut FragmentBuffer::new()).await;
            if found.map_err(|error| store.read_failed(live, error))? {
                paths.push(live.sstable.descriptor().path(Component::Data));
            }
        }
        Ok(paths)
    }
}
