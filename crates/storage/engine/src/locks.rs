//! Locks of partitions, for writes that read first.

use std::cell::RefCell;

use bytes::Bytes;
use rt::sync::{Permit, Semaphore};
use schema::TableId;
use stdx::HashMap;

use crate::WriteError;

/// Locks that are remembered before those that nobody holds or waits for are dropped.
const LOCKS_MAX: usize = 1024;

/// A lock for each partition that was locked lately.
#[derive(Default)]
pub(crate) struct PartitionLocks(RefCell<HashMap<(TableId, Bytes), Semaphore>>);

impl PartitionLocks {
    /// Waits for the lock of a partition, which is held until the result is dropped.
    pub(crate) async fn lock(&self, key: &(TableId, Bytes)) -> Result<Permit, WriteError> {
        let lock = self.of(key);
        lock.acquire(1).await.map_err(|_| WriteError::Stopped)
    }

    fn of(&self, key: &(TableId, Bytes)) -> Semaphore {
        let mut locks = self.0.borrow_mut();
        if locks.len() > LOCKS_MAX {
            locks.retain(|_, lock| lock.available() == 0 || lock.waiting() > 0);
        }
        locks.entry(key.clone()).or_insert_with(|| Semaphore::new(1)).clone()
    }
}
