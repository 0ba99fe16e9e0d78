//! Collects [`EngineStats`].

use crate::engine::Inner;
use crate::store::Store;
use crate::{EngineStats, TableStats};

pub(crate) fn collect(inner: &Inner) -> EngineStats {
    let log = inner.log.stats();
    let stores = inner.stores_in_order();
    EngineStats {
        tables: stores.iter().map(|store| (store.id, table(store))).collect(),
        memtable_bytes: inner.memtable_bytes.get() as u64,
        memtable_bytes_max: inner.config.memtable_bytes_max as u64,
        flushes: inner.flushes.get(),
        flushes_pending: stores.iter().map(|store| store.flushing.borrow().len() as u64).sum(),
        writes_throttled: inner.throttled.get(),
        commitlog_disk_bytes: log.disk_bytes,
        commitlog_segments: log.segments,
        commitlog_written_bytes: log.written_bytes,
        commitlog_entries: log.entries,
        commitlog_syncs: log.syncs,
        commitlog_pending: log.pending,
        ..EngineStats::default()
    }
}

fn table(store: &Store) -> TableStats {
    let set = store.set();
    let memtables = store.memtables();
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
    let disk_bytes = sum(&|sstable| sstable.disk_len());
    let in_memtables: u64 = memtables.iter().map(|memtable| memtable.partitions() as u64).sum();
    TableStats {
        memtable_bytes: store.memtable_bytes() as u64,
        memtable_partitions: in_memtables,
        memtable_rows: memtables.iter().map(|memtable| memtable.rows() as u64).sum(),
        memtable_switches: counters.switches.get(),
        sstables: set.len() as u64,
        disk_bytes,
        total_disk_bytes: disk_bytes,
        partitions_estimate: in_memtables + sum(&|sstable| sstable.estimated_partitions()),
        bloom_false_positives: counters.bloom_false.get(),
        bloom_true_positives: counters.bloom_positives.get().saturating_sub(counters.bloom_false.get()),
        bloom_negatives: counters.bloom_negatives.get(),
        reads: counters.reads.get(),
        writes: counters.writes.get(),
        sstables_per_read_sum: counters.sstables_read.get(),
        cache_hits: counters.cache_hits.get(),
        cache_misses: counters.cache_misses.get(),
        sstables_per_level: levels,
        ..TableStats::default()
    }
}
