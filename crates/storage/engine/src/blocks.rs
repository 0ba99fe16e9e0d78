//! The blocks of files in the shard's cache.

use cache::Cache;
use sstable::{Block, BlockCache, BlockKey};

/// The blocks of files in the shard's cache.
pub(crate) struct Blocks(pub(crate) Cache);

impl BlockCache for Blocks {
    fn new_file(&self) -> u64 {
        self.0.new_file()
    }

    fn get(&self, key: BlockKey) -> Option<Block> {
        self.0.block(key.file, key.block)
    }

    fn insert(&self, key: BlockKey, block: &Block) {
        self.0.insert_block(key.file, key.block, block);
    }

    fn forget_file(&self, file: u64) {
        self.0.forget_file(file);
    }
}
