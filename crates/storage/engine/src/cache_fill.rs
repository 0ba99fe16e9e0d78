//! A flush brings its rows into the row cache.

use std::rc::Rc;
use std::sync::Arc;

use memtable::{Memtable, Part};
use mutation::{Clustering, DecoratedKey, Slices};
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
    let filling = Filling { inner, store, memtable, flushed, epoch: inner.cache.epoch(store.id) };
    let mut next = memtable.key_after(None);
    while let Some(key) = next {
        let mut after: Option<Clustering> = None;
        let is_new = !inner.cache.has_partition(store.id, &key);
        if !is_new || !filling.is_elsewhere(&key) {
            loop {
                if !Arc::ptr_eq(&memtable.table(), &store.table()) {
                    // Columns were dropped since it was filled: its rows have other ids.
                    return inner.cache.forget_table(store.id);
                }
                after = filling.bring(&key, after.as_ref(), is_new);
                if after.is_none() {
                    break;
                }
                inner.rt.maybe_yield().await;
            }
        }
        inner.rt.maybe_yield().await;
        next = memtable.key_after(Some(&key));
        assert!(next.as_ref().is_none_or(|next| *next > key), "a flush takes keys in ring order");
    }
}

struct Filling<'a> {
    inner: &'a Inner,
    store: &'a Store,
    memtable: &'a Memtable,
    flushed: &'a Rc<LiveSstable>,
    /// Of the SSTables with the flushed one.
    epoch: u64,
}

impl Filling<'_> {
    /// Whether another SSTable may hold something of a partition.
    fn is_elsewhere(&self, key: &DecoratedKey) -> bool {
        let mut is_elsewhere = false;
        let set = self.store.sstables.current();
        set.holding(&HashedKey::new(key), |live| is_elsewhere |= !Rc::ptr_eq(live, self.flushed));
        is_elsewhere
    }

    /// Brings rows of a partition that follow a row; the last one of them, where there are more.
    fn bring(&self, key: &DecoratedKey, after: Option<&Clustering>, is_new: bool) -> Option<Clustering> {
        let (cache, table) = (&self.inner.cache, self.store.table());
        let bytes_max = cache.item_bytes_max();
        let part = match is_new {
            true => self.memtable.part(key, after, |_| true, bytes_max),
            false => {
                cache.with_known(table.id, key, |knows| self.memtable.part(key, after, knows, bytes_max))
            }
        };
        let part = match part {
            Part::Absent => return None,
            Part::TooLarge => {
                cache.forget_partition(table.id, key);
                return None;
            }
            Part::Rows(part) => *part,
        };
        if part.update.rows().iter().any(|row| row.memory_size() > bytes_max) {
            cache.forget_partition(table.id, key);
            return None;
        }
        match is_new {
            true => cache.insert(&table, self.epoch, part.update, Slices::new(vec![part.range])),
            false => cache.merge(&table, part.update),
        }
        part.rest
    }
}
