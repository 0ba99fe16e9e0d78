//! The cache of a shard's SSTables: rows, and blocks of files, under one budget.
//!
//! A cached partition holds the merged content of all SSTables of its table, within the clustering ranges that it
//! knows; memtables lie beside it. A flush merges the memtable into the cached rows. Partitions and blocks leave in the
//! order in which they were last used. The cache knows nothing of files or of the source of its content; the caller that
//! fills it passes the epoch under which the content was read, so that late content is not accepted.

mod known;
mod lru;
mod partition;
mod rows;

use std::cell::{Cell, RefCell};
use std::collections::hash_map::IntoValues;
use std::rc::Rc;

use bytes::Bytes;
use schema::TableId;
use stdx::HashMap;

use crate::lru::{Item, Lru};
pub use crate::partition::CachedPartition;
use crate::partition::{Entry, TableRows};

/// A verified piece of a file.
pub type Block = Rc<Vec<u8>>;

/// The cost of a block beside its bytes.
const BLOCK_OVERHEAD: usize = 96;

/// The cache of a shard. Cheap to clone.
#[derive(Clone)]
pub struct Cache(Rc<Inner>);

struct Inner {
    bytes_max: usize,
    /// A larger partition is not kept.
    partition_bytes_max: usize,
    state: RefCell<State>,
    next_file: Cell<u64>,
    block_hits: Cell<u64>,
    block_misses: Cell<u64>,
}

#[derive(Default)]
struct State {
    lru: Lru,
    tables: HashMap<TableId, TableRows>,
    /// By file, so that a file's blocks are found without the others'.
    blocks: HashMap<u64, HashMap<u64, (Block, u32)>>,
    row_bytes: usize,
    partitions: usize,
    rows: usize,
    /// Partitions of tables that were forgotten, whose memory is given back in steps; it is counted until then.
    leaving: Vec<IntoValues<Bytes, Rc<RefCell<Entry>>>>,
    block_bytes: usize,
    evictions: u64,
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
    /// Partitions that were evicted.
    pub evictions: u64,
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
            bytes_max,
            partition_bytes_max: (bytes_max / 8).min(1 << 20),
            state: RefCell::default(),
            next_file: Cell::new(1),
            block_hits: Cell::new(0),
            block_misses: Cell::new(0),
        }))
    }

    /// The largest partition that is kept, bytes.
    pub fn partition_bytes_max(&self) -> usize {
        self.0.partition_bytes_max
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
        if size > self.0.bytes_max / 2 {
            return;
        }
        let mut state = self.0.state.borrow_mut();
        if state.blocks.get(&file).is_some_and(|blocks| blocks.contains_key(&block)) {
            return;
        }
        let node = state.lru.push(Item::Block { file, block });
        state.blocks.entry(file).or_default().insert(block, (bytes.clone(), node));
        state.block_bytes += size;
        state.shrink(self.0.bytes_max);
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
            evictions: state.evictions,
            block_bytes: state.block_bytes as u64,
            block_hits: self.0.block_hits.get(),
            block_misses: self.0.block_misses.get(),
        }
    }
}

impl State {
    /// Evicts until the budget is kept.
    fn shrink(&mut self, bytes_max: usize) {
        while self.row_bytes + self.block_bytes > bytes_max {
            let Some(item) = self.lru.pop_oldest() else { return };
            match item {
                Item::Block { file, block } => {
                    let blocks = self.blocks.get_mut(&file).expect("listed blocks have a file");
                    let (bytes, _) = blocks.remove(&block).expect("listed blocks are held");
                    if blocks.is_empty() {
                        self.blocks.remove(&file);
                    }
                    self.block_bytes -= bytes.len() + BLOCK_OVERHEAD;
                }
                Item::Partition { table, key, entry } => {
                    let rows = self.tables.get_mut(&table).expect("listed partitions have a table");
                    // A later one may have its key.
                    if rows.partitions.get(&key).is_some_and(|held| Rc::ptr_eq(held, &entry)) {
                        rows.partitions.remove(&key);
                    }
                    entry.borrow().node.set(lru::NONE);
                    self.uncount(&entry);
                    self.evictions += 1;
                }
            }
        }
    }

    /// An entry that is in no table any more leaves the order of use, unless it has left it.
    fn forget(&mut self, entry: &Rc<RefCell<Entry>>) {
        let node = entry.borrow().node.replace(lru::NONE);
        if node != lru::NONE {
            self.lru.remove(node);
            self.uncount(entry);
        }
    }

    /// Counts an entry's memory as given back.
    fn uncount(&mut self, entry: &RefCell<Entry>) {
        let entry = entry.borrow();
        self.row_bytes -= entry.bytes;
        self.rows -= entry.rows;
        self.partitions -= 1;
    }

    /// Gives back the memory of so many partitions of forgotten tables.
    fn free_some(&mut self, most: usize) {
        for _ in 0..most {
            let Some(entries) = self.leaving.last_mut() else { return };
            match entries.next() {
                Some(entry) => self.forget(&entry),
                None => drop(self.leaving.pop()),
            }
        }
    }
}
