//! Collects [`EngineStats`].

use crate::backlog;
use crate::engine::Inner;
use crate::store::Store;
use crate::{EngineStats, TableSize, TableStats};

pub(crate) fn collect(inner: &Inner) -> EngineStats {
    let (log, cached) = (inner.log.stats(), inner.cache.stats());
    let stores = inner.stores_in_order();
    EngineStats {
        tables: stores.iter().map(|store| (store.id, table(inner, store))).collect(),
        memtable_bytes: inner.memory.bytes() as u64,
        memtable_bytes_max: inner.config.memtable_bytes_max as u64,
        flushes: inner.flushes.figures().0,
        flushes_pending: stores.iter().map(|store| store.memtables.flushing() as u64).sum(),
        writes_throttled: inner.memory.waiting(),
        commitlog_disk_bytes: log.disk_bytes,
        commitlog_segments: log.segments,
        commitlog_written_bytes: log.written_bytes,
        commitlog_entries: log.entries,
        commitlog_syncs: log.syncs,
        commitlog_pending: log.pending,
        cache_bytes_max: inner.cache.bytes_max() as u64,
        row_cache_bytes: cached.row_bytes,
        row_cache_rows: cached.rows,
        row_cache_partitions: cached.partitions,
        row_cache_evictions: cached.row_evictions,
        row_cache_partition_evictions: cached.partition_evictions,
        block_cache_bytes: cached.block_bytes,
        block_cache_hits: cached.block_hits,
        block_cache_misses: cached.block_misses,
        compactions_running: inner.compactions.running(),
        compactions_done: inner.compactions.totals().done,
        compaction_bytes_in: inner.compactions.totals().bytes_in,
        compaction_bytes_out: inner.compactions.totals().bytes_out,
        compactions_failed: inner.compactions.failed(),
        flushes_failed: inner.flushes.figures().1,
        commitlog_failures: log.failures,
        compaction_tasks: inner.compactions.tasks(),
        compaction_history: inner.compactions.history(),
        large: stores.iter().flat_map(|store| crate::large::of_table(store)).collect(),
    }
}

pub(crate) fn table(inner: &Inner, store: &Store) -> TableStats {
    let set = store.set();
    let memtables = store.memtables.all();
    let counters = &store.counters;
    let sum = |of: &dyn Fn(&sstable::Sstable) -> u64| set.iter().map(|live| of(&live.sstable)).sum::<u64>();
    let mut levels = vec![0u64];
    for live in set.iter() {
        let level = live.sstable.level() as usize;
        if levels.len() <= level {
            levels.resize(level + 1, 0);
        }
        levels[level] += 1;
    }
    assert_eq!(levels.iter().sum::<u64>(), set.len() as u64, "each SSTable is in one level");
    let now = inner.now_seconds();
    let gc_before = store.purge_rule(now).gc_before_of(i64::MIN, i64::MAX);
    let weight: u64 = sum(&|sstable| sstable.data_len()).max(1);
    let droppable = |live: &std::rc::Rc<crate::live::LiveSstable>| {
        live.sstable.droppable_tombstone_ratio(gc_before) * live.sstable.data_len() as f64
    };
    let disk_bytes = sum(&|sstable| sstable.disk_len());
    let in_memtables: u64 = memtables.iter().map(|memtable| memtable.partitions() as u64).sum();
    TableStats {
        memtable_bytes: store.memtables.bytes() as u64,
        memtable_partitions: in_memtables,
        memtable_rows: memtables.iter().map(|memtable| memtable.rows() as u64).sum(),
        memtable_cells: memtables.iter().map(|memtable| memtable.stats().cells).sum(),
        flushes_pending: store.memtables.flushing() as u64,
        memtable_switches: store.memtables.switches(),
        sstables: set.len() as u64,
        damaged_sstables: (store.damages.len() + set.iter().filter(|live| live.suspect.get()).count()) as u64,
        disk_bytes,
        sstable_bytes_max: set.iter().map(|live| live.sstable.disk_len()).max().unwrap_or(0),
        sstable_micros_max: set.iter().map(|live| span(&live.sstable)).max().unwrap_or(0),
        data_bytes: sum(&|sstable| sstable.data_len()),
        repaired_bytes: set
            .iter()
            .filter(|live| store.marks.is_repaired(live.covered_by.get()))
            .map(|live| live.sstable.data_len())
            .sum(),
        total_disk_bytes: disk_bytes + inner.trash.bytes(),
        partitions_estimate: in_memtables + sum(&|sstable| sstable.estimated_partitions()),
        bloom_false_positives: counters.bloom_false.get(),
        bloom_true_positives: counters.bloom_positives.get().saturating_sub(counters.bloom_false.get()),
        bloom_negatives: counters.bloom_negatives.get(),
        reads: counters.reads.get(),
        writes: counters.writes.get(),
        sstables_per_read_sum: counters.sstables_read.get(),
        cache_hits: counters.cache_hits.get(),
        cache_misses: counters.cache_misses.get(),
        uncompressed_bytes: sum(&|sstable| sstable.uncompressed_len()),
        partition_bytes_sum: sum(&|sstable| {
            let sizes = &sstable.metadata().stats.partition_sizes;
            sizes.mean().saturating_mul(sizes.count())
        }),
        partition_bytes_max: set
            .iter()
            .map(|live| live.sstable.metadata().stats.partition_sizes.percentile(1.0))
            .max()
            .unwrap_or(0),
        auto_compaction_stopped: store.auto_compaction_stopped.get(),
        tombstone_gc_stopped: store.tombstone_gc_stopped.get(),
        compactions_pending: backlog::of_table(inner, store, &set).compactions,
        droppable_tombstone_ratio: set.iter().map(droppable).sum::<f64>() / weight as f64,
        sstables_per_level: levels,
        metadata_bytes: sum(&|sstable| sstable.memory_size() as u64),
    }
}

/// About how much a table holds.
pub(crate) fn size(store: &Store) -> TableSize {
    let memtable_bytes = store.memtables.bytes() as u64;
    let memtable_rows = store.memtables.all().iter().map(|memtable| memtable.rows() as u64).sum();
    let mut size =
        TableSize { rows: memtable_rows, bytes: memtable_bytes, partition_bytes_max: memtable_bytes };
    for live in store.set().iter() {
        let stats = &live.sstable.metadata().stats;
        size.rows += stats.total_rows;
        size.bytes += live.sstable.uncompressed_len();
        size.partition_bytes_max += stats.partition_sizes.percentile(1.0);
    }
    size
}

/// Microseconds between the oldest and the newest write of an SSTable; 0 for one that has none with a time.
fn span(sstable: &sstable::Sstable) -> u64 {
    let stats = &sstable.metadata().stats;
    match (stats.min_timestamp, stats.max_timestamp) {
        (i64::MIN, i64::MAX) => 0,
        (oldest, newest) => u64::try_from(i128::from(newest) - i128::from(oldest)).unwrap_or(0),
    }
}
