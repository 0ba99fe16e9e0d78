//! Cached partitions, each with the ranges of rows that it knows completely.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use memtable::WriteStats;
use mutation::{Bound, Clustering, DecoratedKey, PartitionUpdate, Slices};
use schema::{Table, TableId};

use crate::known::Known;
use crate::partition::{CachedPartition, Entry};
use crate::{Cache, EVICTIONS_MAX, State};

/// Ranges of forgotten partitions whose memory is given back in one step, without others waiting long.
const FREED_AT_ONCE: usize = 1_000;
/// The same, with each partition that comes in.
const FREED_WITH_EACH: usize = 16;

impl Cache {
    /// The partition, if it knows all of `slices`.
    pub fn partition(&self, table: TableId, key: &DecoratedKey, slices: &Slices) -> Option<CachedPartition> {
        let mut guard = self.0.state.borrow_mut();
        let State { lru, tables, .. } = &mut *guard;
        let entry = tables.get(&table)?.partitions.get(&key.key[..])?;
        let covers = entry.borrow().known.covers(slices, |node| lru.touch(node));
        covers.then(|| CachedPartition::new(entry, key))
    }

    /// Whether anything of the partition is cached.
    pub fn has_partition(&self, table: TableId, key: &DecoratedKey) -> bool {
        let state = self.0.state.borrow();
        state.found(table, key).is_some()
    }

    /// Which rows of the partition are known; none when nothing of it is cached.
    pub fn known(&self, table: TableId, key: &DecoratedKey) -> Option<Slices> {
        let state = self.0.state.borrow();
        Some(state.found(table, key)?.borrow().known.slices())
    }

    /// Gives `visit` the function that says whether a row of the partition lies in a known range. The cache is not to be used meanwhile.
    pub fn with_known<T>(
        &self,
        table: TableId,
        key: &DecoratedKey,
        visit: impl FnOnce(&dyn Fn(&Clustering) -> bool) -> T,
    ) -> T {
        let state = self.0.state.borrow();
        let entry = state.found(table, key).map(|entry| entry.borrow());
        visit(&|row| entry.as_ref().is_some_and(|entry| entry.known.start_of(row).is_some()))
    }

    /// Forgets a partition. The memory of a large one is given back in steps, as other content comes in.
    pub fn forget_partition(&self, table: TableId, key: &DecoratedKey) {
        let mut guard = self.0.state.borrow_mut();
        let state = &mut *guard;
        let Some(rows) = state.tables.get_mut(&table) else { return };
        let Some(entry) = rows.partitions.remove(&key.key[..]) else { return };
        state.leaving.push_front(entry);
        state.free_some(FREED_WITH_EACH);
    }

    /// Names the present content of a table's SSTables; content read under one epoch is accepted only in the same.
    pub fn epoch(&self, table: TableId) -> u64 {
        self.0.state.borrow_mut().tables.entry(table).or_default().epoch
    }

    /// To be called when the content of a table's SSTables grows, before anything reads the new ones.
    pub fn next_epoch(&self, table: TableId) {
        self.0.state.borrow_mut().tables.entry(table).or_default().epoch += 1;
    }

    /// Accepts the SSTables' content of a partition within `known`, read under `epoch`: its deletion and static row, the range deletions and rows
    /// there, none larger than [`Cache::item_bytes_max`].
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
        guard.free_some(FREED_WITH_EACH);
        let key = update.key.key.clone();
        let entry = guard.entry(table.id, &key);
        let State { lru, tables, row_bytes, rows, .. } = &mut *guard;
        let table_rows = tables.get_mut(&table.id).expect("it has the entry");
        let is_too_large = {
            let held = &mut *entry.borrow_mut();
            let (bytes_before, known_before) = (held.bytes, held.known.bytes());
            let (mut update, grown) = match also_known {
                Some(_) => (update, Vec::new()),
                None => only_known(update, &held.known),
            };
            let change =
                held.partition.apply(&mut update, table, &table_rows.layouts, &mut WriteStats::EMPTY.clone());
            held.bytes = held.bytes.checked_add_signed(change.bytes).expect("sizes are positive");
            held.rows += change.rows;
            match also_known {
                Some(more) => held.learn(&entry, &more, lru),
                None => grown.iter().for_each(|start| held.divide(&entry, start, lru)),
            }
            held.bytes += held.known.bytes() - known_before;
            *row_bytes = *row_bytes + held.bytes - bytes_before;
            *rows += change.rows;
            held.partition.header_bytes() > self.0.item_bytes_max
        };
        if is_too_large {
            table_rows.partitions.remove(&key);
            guard.leaving.push_front(entry);
        }
        guard.shrink(self.0.bytes_max.get(), EVICTIONS_MAX);
    }

    /// Removes everything of a table, and does not accept content whose read has begun. The memory of a large table is given back in
    /// steps, as other content comes in.
    pub fn forget_table(&self, table: TableId) {
        let mut guard = self.0.state.borrow_mut();
        let state = &mut *guard;
        let rows = state.tables.entry(table).or_default();
        rows.epoch += 1;
        let entries = std::mem::take(&mut rows.partitions);
        state.leaving_tables.push(entries.into_values());
        state.free_some(FREED_AT_ONCE);
    }
}

impl State {
    /// The entry of a partition, if anything of it is cached.
    fn found(&self, table: TableId, key: &DecoratedKey) -> Option<&Rc<RefCell<Entry>>> {
        self.tables.get(&table)?.partitions.get(&key.key[..])
    }

    /// The entry of a partition, which may be new.
    fn entry(&mut self, table: TableId, key: &[u8]) -> Rc<RefCell<Entry>> {
        let partitions = &mut self.tables.entry(table).or_default().partitions;
        if let Some(entry) = partitions.get(key) {
            return entry.clone();
        }
        let key = Bytes::copy_from_slice(key);
        let entry = Rc::new(RefCell::new(Entry::new(table, key.clone())));
        self.row_bytes += entry.borrow().bytes;
        self.partitions += 1;
        partitions.insert(key, entry.clone());
        entry
    }
}

/// The update without the rows that lie outside of the known ranges, beside which unknown ones could lie; and where the ranges begin in which rows lie.
fn only_known(mut update: PartitionUpdate, known: &Known) -> (PartitionUpdate, Vec<Bound>) {
    let mut grown: Vec<Bound> = Vec::new();
    for row in update.take_rows() {
        let Some(start) = known.start_of(&row.clustering) else { continue };
        if grown.last() != Some(start) {
            grown.push(start.clone());
        }
        update.add_row(row);
    }
    (update, grown)
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
