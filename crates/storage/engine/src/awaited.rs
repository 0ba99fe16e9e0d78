//! SSTables that a table awaits from elsewhere.

use std::rc::Rc;

use crate::store::Store;

/// Files are awaited: no compaction of the table forgets anything while it lives.
pub struct AwaitedFiles {
    pub(crate) store: Rc<Store>,
    pub(crate) truncated: i64,
}

impl Drop for AwaitedFiles {
    fn drop(&mut self) {
        self.store.edits.end_await();
    }
}

impl AwaitedFiles {
    /// When this shard had truncated the table last when the files were begun to be awaited, microseconds; [`i64::MIN`] for never.
    pub fn truncated_at(&self) -> i64 {
        self.truncated
    }
}
