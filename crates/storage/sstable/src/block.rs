//! Blocks of files in memory, and the hook through which a shard puts one budget over all of them.

use std::rc::Rc;

/// A verified, uncompressed piece of a file. Shared; never changes.
pub type Block = Rc<Vec<u8>>;

/// Names a block within one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockKey {
    /// The file, by the number that [`BlockCache::new_file`] gave.
    pub file: u64,
    /// Number of the block in the file, from 0.
    pub block: u64,
}

/// Where readers look for blocks before they go to the disk. One shard's; never blocks.
pub trait BlockCache {
    /// A number for a file that was just opened, not used before.
    fn new_file(&self) -> u64;
    /// A block, if it is there.
    fn get(&self, key: BlockKey) -> Option<Block>;
    /// Offers a block that was read; the cache may keep it or not.
    fn insert(&self, key: BlockKey, block: &Block);
    /// Forgets the blocks of a file that was closed.
    fn forget_file(&self, file: u64);
}

/// A cache that keeps nothing, for tools.
#[derive(Debug, Default)]
pub struct NoCache;

impl BlockCache for NoCache {
    fn new_file(&self) -> u64 {
        0
    }
    fn get(&self, _: BlockKey) -> Option<Block> {
        None
    }
    fn insert(&self, _: BlockKey, _: &Block) {}
    fn forget_file(&self, _: u64) {}
}
