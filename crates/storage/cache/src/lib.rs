//! The cache of a shard's SSTables: rows, and blocks of files, under one budget.
//!
//! A cached partition holds the merged content of all SSTables of its table, within the clustering ranges that it
//! knows; memtables lie beside it. A flush merges the memtable into the cached rows. Ranges of rows and blocks leave in the
//! order in which they were last used: a range is one row, or some small ones that follow each other, so that of a partition
//! of any size the rows stay that are used. The cache knows nothing of files or of the source of its content; the caller that
//! fills it passes the epoch under which the content was read, so that late content is not accepted.

mod known;
mod lru;
mod partition;
mod ranges;
mod rows;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::collections::hash_map::IntoValues;
use std::rc::Rc;

use bytes::Bytes;
use mutation::Bound;
use schema::TableId;
use stdx::HashMap;

use crate::lru::Lru;
pub use crate::partition::CachedPartition;
use crate::partition::{Entry, Item, TableRows};

/// A verified piece of a file.
pub type Block = Rc<Vec<u8>>;

/// The cost of a block beside its bytes.
const BLOCK_OVERHEAD: usize = 96;
/// For each range that leaves, ranges that may be passed over because a reader holds their partition. The cache is too large by this share at
/// most while readers hold all that is old.
const PASSED_OVER_MAX: usize = 32;
/// Evictions of one insertion at most, which is more than it needs while the budget stays: the rest of a smaller budget is for [`Cache::shrink`].
const EVICTIONS_MAX: usize = 1024;

/// The cache of a shard. Cheap to clone.
#[derive(Clone)]
pub struct Cache(Rc<Inner>);

struct Inner {
    bytes_max: Cell<usize>,
    item_bytes_max: usize,
    state: RefCell<State>,
    next_file: Cell<u64>,
    block_hits: Cell<u64>,
    block_misses: Cell<u64>,
}

#[derive(Default)]
struct State {
    lru: Lru<Item>,
    tables: HashMap<TableId, TableRows>,
    /// By file, so that a file's blocks are found without the others'.
    blocks: HashMap<u64, HashMap<u64, (Block, u32)>>,
    row_bytes: usize,
    partitions: usize,
    rows: usize,
    /// Partitions that were forgotten, whose memory is given back in steps; it is counted until then.
    leaving: VecDeque<Rc<RefCell<Entry>>>,
    /// The same of whole tables.
    leaving_tables: Vec<IntoValues<Bytes, Rc<RefCell<Entry>>>>,
    block_bytes: usize,
    row_evictions: u64,
    partition_evictions: u64,
}

/// Figures of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Bytes of cached partitions.
    pub row_bytes: u64,
    /// Cached partitions.
    pub partitions: u64,
    /// Rows in them.
    pub rows: u64,
    /// Rows that were evicted.
    pub row_evictions: u64,
    /// Partitions of which the last row was evicted.
    pub partition_evictions: u64,
    /// Bytes of cached blocks.
    pub block_bytes: u64,
    /// Blocks found.
    pub block_hits: u64,
    /// Blocks not found.
    pub block_misses: u64,
}

impl Cache {
    /// An empty cache that takes at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self(Rc::new(Inner {
            bytes_max: Cell::new(bytes_max),
            item_bytes_max: (bytes_max / 8).min(1 << 20),
            state: RefCell::default(),
            next_file: Cell::new(1),
            block_hits: Cell::new(0),
            block_misses: Cell::new(0),
        }))
    }

    /// The largest row that is kept, and the largest static row with range deletions of a partition; bytes.
    pub fn item_bytes_max(&self) -> usize {
        self.0.item_bytes_max
    }

    /// A number for a file whose blocks are to be cached.
    pub fn new_file(&self) -> u64 {
        self.0.next_file.replace(self.0.next_file.get() + 1)
    }

    /// A block of a file.
    pub fn block(&self, file: u64, block: u64) -> Option<Block> {
        let mut state = self.0.state.borrow_mut();
        let found = state.blocks.get(&file).and_then(|blocks| blocks.get(&block)).cloned();
        let counter = if found.is_some() { &self.0.block_hits } else { &self.0.block_misses };
        counter.set(counter.get() + 1);
        let (bytes, node) = found?;
        state.lru.touch(node);
        Some(bytes)
    }

    /// Takes a block that was read.
    pub fn insert_block(&self, file: u64, block: u64, bytes: &Block) {
        let size = bytes.len() + BLOCK_OVERHEAD;
        if size > self.0.bytes_max.get() / 2 {
            return;
        }
        let mut state = self.0.state.borrow_mut();
        if state.blocks.get(&file).is_some_and(|blocks| blocks.contains_key(&block)) {
            return;
        }
        let node = state.lru.push(Item::Block { file, block });
        state.blocks.entry(file).or_default().insert(block, (bytes.clone(), node));
        state.block_bytes += size;
        state.shrink(self.0.bytes_max.get(), EVICTIONS_MAX);
    }

    /// Changes the budget. Content beyond a smaller one leaves as other content comes in, and by [`Cache::shrink`].
    pub fn set_bytes_max(&self, bytes_max: usize) {
        self.0.bytes_max.set(bytes_max);
    }

    /// The budget, bytes.
    pub fn bytes_max(&self) -> usize {
        self.0.bytes_max.get()
    }

    /// Evicts so many ranges and blocks beyond the budget; whether there may be more.
    pub fn shrink(&self, most: usize) -> bool {
        self.0.state.borrow_mut().shrink(self.0.bytes_max.get(), most)
    }

    /// Forgets the blocks of a file.
    pub fn forget_file(&self, file: u64) {
        let mut guard = self.0.state.borrow_mut();
        let state = &mut *guard;
        for (bytes, node) in state.blocks.remove(&file).into_iter().flat_map(HashMap::into_values) {
            state.lru.remove(node);
            state.block_bytes -= bytes.len() + BLOCK_OVERHEAD;
        }
    }

    /// Figures of this moment.
    pub fn stats(&self) -> CacheStats {
        let state = self.0.state.borrow();
        CacheStats {
            row_bytes: state.row_bytes as u64,
            partitions: state.partitions as u64,
            rows: state.rows as u64,
            row_evictions: state.row_evictions,
            partition_evictions: state.partition_evictions,
            block_bytes: state.block_bytes as u64,
            block_hits: self.0.block_hits.get(),
            block_misses: self.0.block_misses.get(),
        }
    }
}

impl State {
    /// Evicts until the budget is kept, or so many left; whether more have to leave and can.
    fn shrink(&mut self, bytes_max: usize, most: usize) -> bool {
        let (mut passed_over, mut evicted) = (0, 0);
        while self.row_bytes + self.block_bytes > bytes_max {
            if evicted >= most {
                return true;
            }
            match self.lru.oldest() {
                None => return false,
                Some((at, Item::Range { entry, .. })) if entry.borrow().is_read() => {
                    passed_over += 1;
                    if passed_over > PASSED_OVER_MAX {
                        return false;
                    }
                    self.lru.touch(at);
                }
                Some(_) => {
                    (passed_over, evicted) = (0, evicted + 1);
                    self.evict_oldest();
                }
            }
        }
        false
    }

    fn evict_oldest(&mut self) {
        match self.lru.pop_oldest() {
            None => {}
            Some(Item::Block { file, block }) => {
                let blocks = self.blocks.get_mut(&file).expect("listed blocks have a file");
                let (bytes, _) = blocks.remove(&block).expect("listed blocks are held");
                if blocks.is_empty() {
                    self.blocks.remove(&file);
                }
                self.block_bytes -= bytes.len() + BLOCK_OVERHEAD;
            }
            Some(Item::Range { entry, start }) => {
                let (rows, partitions) = (self.rows, self.partitions);
                self.drop_range(&entry, &start).expect("listed ranges are known");
                self.row_evictions += (rows - self.rows) as u64;
                self.partition_evictions += (partitions - self.partitions) as u64;
            }
        }
    }

    /// Drops a range of a partition, and the partition with its last one; the range's place in the order of use, which is left as it is.
    fn drop_range(&mut self, entry: &Rc<RefCell<Entry>>, start: &Bound) -> Option<u32> {
        let mut held = entry.borrow_mut();
        let (dropped, node) = held.drop_range(start)?;
        self.row_bytes = self.row_bytes.checked_add_signed(-dropped.bytes).expect("all bytes are counted");
        self.rows -= dropped.rows;
        if held.known.len() == 0 {
            self.partitions -= 1;
            let partitions = self.tables.get_mut(&held.table).map(|table| &mut table.partitions);
            // A later one may have its key.
            if let Some(partitions) = partitions
                && partitions.get(&held.key).is_some_and(|other| Rc::ptr_eq(other, entry))
            {
                partitions.remove(&held.key);
            }
        }
        Some(node)
    }

    /// Gives back the memory of so many ranges of partitions that were forgotten.
    fn free_some(&mut self, most: usize) {
        for _ in 0..most {
            let next = self.leaving.pop_front().or_else(|| self.next_of_a_forgotten_table());
            let Some(entry) = next else { return };
            if entry.borrow().is_read() {
                // Its turn comes when its readers are gone.
                self.leaving.push_back(entry);
                continue;
            }
            // None where it was evicted meanwhile.
            let Some(start) = entry.borrow().known.first().cloned() else { continue };
            let node = self.drop_range(&entry, &start).expect("it was just seen");
            self.lru.remove(node);
            if entry.borrow().known.len() > 0 {
                self.leaving.push_front(entry);
            }
        }
    }

    fn next_of_a_forgotten_table(&mut self) -> Option<Rc<RefCell<Entry>>> {
        while let Some(entries) = self.leaving_tables.last_mut() {
            match entries.next() {
                Some(entry) => return Some(entry),
                None => drop(self.leaving_tables.pop()),
            }
        }
        None
    }
}
