//! A flush brings its rows into the row cache.

use std::rc::Rc;
use std::sync::Arc;

use memtable::{Memtable, Within};
use mutation::Slices;
use sstable::filter::HashedKey;

use crate::engine::Inner;
use crate::live::LiveSstable;
use crate::store::Store;

/// Brings the flushed rows into the cache: into partitions that are there, and as partitions of its own where no
/// other SSTable holds anything of them. The memtable stays readable until this is done.
pub(crate) async fn merge_into_cache(
    inner: &Inner,
    store: &Store,
    memtable: &Memtable,
    flushed: &Rc<LiveSstable>,
) {
    if !store.of_table(|table| table.options.is_cached()) {
        // It may have been cached before.
        return inner.cache.forget_table(store.id);
    }
    let epoch = inner.cache.epoch(store.id);
    let mut next = memtable.key_after(None);
    while let Some(key) = next {
        let table = store.table();
        if !Arc::ptr_eq(&memtable.table(), &table) {
            // Columns were dropped since it was filled: its rows have other ids.
            return inner.cache.forget_table(store.id);
        }
        let known = inner.cache.known(store.id, &key);
        let elsewhere = || {
            let mut is_elsewhere = false;
            let set = store.sstables.current();
            set.holding(&HashedKey::new(&key), |live| is_elsewhere |= !Rc::ptr_eq(live, flushed));
            is_elsewhere
        };
        let bytes_max = inner.cache.partition_bytes_max();
        match known {
            Some(known) => match memtable.update_within(&key, &known, bytes_max) {
                Within::Nothing => {}
                Within::Update(update) => inner.cache.merge(&table, *update),
                Within::TooLarge => inner.cache.forget_partition(store.id, &key),
            },
            None if elsewhere() => {}
            None => {
                if let Within::Update(update) = memtable.update_within(&key, &Slices::all(), bytes_max) {
                    inner.cache.insert(&table, epoch, *update, Slices::all());
                }
            }
        }
        inner.rt.maybe_yield().await;
        next = memtable.key_after(Some(&key));
        assert!(next.as_ref().is_none_or(|next| *next > key), "a flush takes keys in ring order");
    }
}
