//! Cached partitions, each with the ranges of rows that it knows completely.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use memtable::{PARTITION_OVERHEAD, Partition, WriteStats};
use mutation::{DecoratedKey, PartitionUpdate, Slices};
use schema::{Table, TableId};

use crate::Cache;
use crate::known::Known;
use crate::lru::{Item, NONE};
use crate::partition::{CachedPartition, Entry};

/// The cost of an entry beside its partition.
const ENTRY_OVERHEAD: usize = PARTITION_OVERHEAD + 168;
/// Partitions of a forgotten table whose memory is given back in one step, without others waiting long.
const FREED_AT_ONCE: usize = 1_000;
/// The same, with each partition that comes in.
const FREED_WITH_EACH: usize = 16;

impl Cache {
    /// The partition, if it knows all of `slices`.
    pub fn partition(&self, table: TableId, key: &DecoratedKey, slices: &Slices) -> Option<CachedPartition> {
        let mut state = self.0.state.borrow_mut();
        let entry = state.tables.get(&table)?.partitions.get(&key.key[..])?.clone();
        let node = {
            let entry = entry.borrow();
            entry.known.covers(slices).then_some(entry.node.get())
        }?;
        state.lru.touch(node);
        Some(CachedPartition { entry, key: key.clone() })
    }

    fn has_partition(&self, table: TableId, key: &DecoratedKey) -> bool {
        let state = self.0.state.borrow();
        state.tables.get(&table).is_some_and(|rows| rows.partitions.contains_key(&key.key[..]))
    }

    /// Which rows of the partition are known; none when nothing of it is cached.
    pub fn known(&self, table: TableId, key: &DecoratedKey) -> Option<Slices> {
        let state = self.0.state.borrow();
        Some(state.tables.get(&table)?.partitions.get(&key.key[..])?.borrow().known.slices())
    }

    /// Forgets a partition.
    pub fn forget_partition(&self, table: TableId, key: &DecoratedKey) {
        let mut guard = self.0.state.borrow_mut();
        let state = &mut *guard;
        let Some(rows) = state.tables.get_mut(&table) else { return };
        let Some(entry) = rows.partitions.remove(&key.key[..]) else { return };
        state.forget(&entry);
    }

    /// Names the present content of a table's SSTables; content read under one epoch is accepted only in the same.
    pub fn epoch(&self, table: TableId) -> u64 {
        self.0.state.borrow_mut().tables.entry(table).or_default().epoch
    }

    /// To be called when the content of a table's SSTables grows, before anything reads the new ones.
    pub fn next_epoch(&self, table: TableId) {
        self.0.state.borrow_mut().tables.entry(table).or_default().epoch += 1;
    }

    /// Accepts the SSTables' content of a partition within `known`, read under `epoch`.
    pub fn insert(&self, table: &Table, epoch: u64, update: PartitionUpdate, known: Slices) {
        if self.epoch(table.id) == epoch {
            self.put(table, update, Some(known));
        }
    }

    /// Merges a flushed memtable's rows of a partition into its cached rows; rows outside of the known ranges
    /// are left out.
    pub fn merge(&self, table: &Table, update: PartitionUpdate) {
        if self.has_partition(table.id, &update.key) {
            self.put(table, update, None);
        }
    }

    fn put(&self, table: &Table, update: PartitionUpdate, also_known: Option<Slices>) {
        let mut guard = self.0.state.borrow_mut();
        let state = &mut *guard;
        state.free_some(FREED_WITH_EACH);
        let rows = state.tables.entry(table.id).or_default();
        let entry = match rows.partitions.get(&update.key.key[..]) {
            Some(entry) => entry.clone(),
            None => {
                let key = Bytes::copy_from_slice(&update.key.key);
                let bytes = ENTRY_OVERHEAD + 2 * key.len();
                let (partition, known, node) = (Partition::default(), Known::default(), Cell::new(NONE));
                let entry = Rc::new(RefCell::new(Entry { partition, known, bytes, rows: 0, node }));
                rows.partitions.insert(key.clone(), entry.clone());
                let node = state.lru.push(Item::Partition { table: table.id, key, entry: entry.clone() });
                entry.borrow().node.set(node);
                state.row_bytes += bytes;
                state.partitions += 1;
                entry
            }
        };
        let key = update.key.key.clone();
        let bytes = {
            let entry = &mut *entry.borrow_mut();
            let known_bytes = entry.known.bytes();
            let (mut update, more) = match also_known {
                Some(more) => (update, Some(more)),
                None => (only_known(update, &entry.known), None),
            };
            let change =
                entry.partition.apply(&mut update, table, &rows.layouts, &mut WriteStats::EMPTY.clone());
            if let Some(more) = more {
                entry.known.add(&more, |range| entry.partition.has_rows_within(range));
            }
            let change_bytes = change.bytes + entry.known.bytes() as isize - known_bytes as isize;
            let bytes = usize::try_from(entry.bytes as isize + change_bytes).expect("sizes are positive");
            state.row_bytes = state.row_bytes - entry.bytes + bytes;
            entry.bytes = bytes;
            entry.rows += change.rows;
            state.rows += change.rows;
            bytes
        };
        if bytes > self.0.partition_bytes_max {
            let rows = state.tables.get_mut(&table.id).expect("just used");
            rows.partitions.remove(&key[..]);
            state.forget(&entry);
        }
        state.shrink(self.0.bytes_max);
    }

    /// Removes everything of a table, and does not accept content whose read has begun. The memory of a large table is given back in
    /// steps, as other content comes in.
    pub fn forget_table(&self, table: TableId) {
        let mut guard = self.0.state.borrow_mut();
        let state = &mut *guard;
        let rows = state.tables.entry(table).or_default();
        rows.epoch += 1;
        let entries = std::mem::take(&mut rows.partitions);
        state.leaving.push(entries.into_values());
        state.free_some(FREED_AT_ONCE);
    }
}

/// The update without the rows that lie outside of the known ranges: beside them unknown ones could lie.
fn only_known(update: PartitionUpdate, known: &Known) -> PartitionUpdate {
    if known.is_all() {
        return update;
    }
    let mut kept = PartitionUpdate::new(Arc::clone(&update.table), update.key.clone());
    kept.add_deletion(update.deletion);
    kept.set_static_row(update.static_row().cloned());
    kept.range_tombstones = update.range_tombstones.clone();
    update
        .into_rows()
        .into_iter()
        .filter(|row| known.contains(&row.clustering))
        .for_each(|row| kept.add_row(row));
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_forgotten_without_the_others() {
        let cache = Cache::new(64 << 20);
        let block = crate::Block::new(vec![0; 100]);
        for n in 0..100 {
            (0..3).for_each(|file| cache.insert_block(file, n, &block));
        }
        let before = cache.stats().block_bytes;
        cache.forget_file(1);
        cache.forget_file(9);
        assert_eq!(cache.stats().block_bytes, before / 3 * 2);
        assert!(cache.block(1, 5).is_none() && cache.block(0, 5).is_some() && cache.block(2, 99).is_some());
    }
}
