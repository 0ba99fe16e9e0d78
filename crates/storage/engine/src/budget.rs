//! The memory that a shard's memtables, cache and the metadata of its SSTables share: memory that memtables do not use is lent to the cache, and
//! comes back before they need it (docs/design/engine.md).

use rt::preempt::Pace;

use crate::engine::Inner;
use crate::store::Store;

/// The part of their limit that memtables may grow by until the cache has given the memory back.
const GROWTH_PART: usize = 4;
/// The part of its own memory that the cache keeps however much others take.
const KEPT_PART: usize = 4;
/// Ranges and blocks that leave the cache between two looks at other tasks.
const EVICTIONS: usize = 64;

/// The memory of the cache: its own, and the rest of that of memtables, without the metadata of SSTables.
fn cache_bytes(own: usize, memtables: usize, memtables_max: usize, metadata: u64) -> usize {
    let taken = memtables.saturating_add(memtables_max / GROWTH_PART);
    let lent = memtables_max.saturating_sub(taken);
    let metadata = usize::try_from(metadata).unwrap_or(usize::MAX);
    own.saturating_add(lent).saturating_sub(metadata).max(own / KEPT_PART)
}

/// Gives the cache the memory that is left, and evicts from it down to that.
pub(crate) async fn adjust(inner: &Inner) {
    let metadata = inner.stores_in_order().iter().map(|store| metadata_bytes(store)).sum();
    let config = &inner.config;
    let bytes =
        cache_bytes(config.cache_bytes_max, inner.memory.bytes(), config.memtable_bytes_max, metadata);
    assert!(bytes >= config.cache_bytes_max / KEPT_PART, "the cache keeps a part of its memory");
    inner.cache.set_bytes_max(bytes);
    let mut pace = Pace::new();
    while inner.cache.shrink(EVICTIONS) {
        pace.steps(EVICTIONS).await;
    }
}

/// The bytes of the metadata of a table's SSTables.
fn metadata_bytes(store: &Store) -> u64 {
    let set = store.set();
    let bytes = || set.iter().map(|live| live.sstable.memory_size() as u64).sum();
    store.metadata_bytes.get(&set, |_| true, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_moves_between_memtables_and_cache() {
        let cache = |memtables, metadata| cache_bytes(1_000, memtables, 2_000, metadata);
        // Idle memtables leave all but the part by which they may grow.
        assert_eq!(
            [0, 500, 1_000, 1_500, 2_000].map(|bytes| cache(bytes, 0)),
            [2_500, 2_000, 1_500, 1_000, 1_000]
        );
        assert_eq!(cache(0, 700), 1_800);
        assert_eq!(cache(2_000, 700), 300);
        // The cache is never without memory.
        assert_eq!([cache(2_000, 5_000), cache(usize::MAX, u64::MAX)], [250, 250]);
    }
}
