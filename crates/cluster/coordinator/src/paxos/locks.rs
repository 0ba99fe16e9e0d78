//! Locks of partitions, in the order of arrival: requests on one partition wait for each other instead of contending with ever higher ballots.

use std::cell::RefCell;
use std::rc::Rc;

use mutation::DecoratedKey;
use rt::sync::{Permit, Semaphore};
use schema::TableId;
use stdx::HashMap;

type Key = (TableId, DecoratedKey);

/// The locked partitions, each with its waiters in the order of arrival. Never more than requests in flight.
#[derive(Clone, Default)]
pub(crate) struct PartitionLocks(Rc<RefCell<HashMap<Key, Rc<Semaphore>>>>);

/// A lock of a partition, released on drop.
pub(crate) struct PartitionLock {
    locks: PartitionLocks,
    key: Key,
    gate: Rc<Semaphore>,
    permit: Option<Permit>,
}

impl PartitionLocks {
    /// Locks a partition; waits for earlier requests.
    pub(crate) async fn lock(&self, table: TableId, key: &DecoratedKey) -> PartitionLock {
        let key = (table, key.clone());
        let new = || Rc::new(Semaphore::new(1));
        let gate = self.0.borrow_mut().entry(key.clone()).or_insert_with(new).clone();
        // Dropped with the future when a waiter is cancelled, so that no entry is left.
        let mut lock = PartitionLock { locks: self.clone(), key, gate, permit: None };
        let permit = lock.gate.acquire(1).await;
        assert_eq!(lock.gate.available(), 0, "one request at a time holds a partition");
        lock.permit = Some(permit.expect("the gate of a partition is never closed"));
        lock
    }

    /// Number of locked partitions.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

impl Drop for PartitionLock {
    fn drop(&mut self) {
        drop(self.permit.take());
        // Only the map and this lock hold it: the partition has no other owner or waiter.
        if Rc::strong_count(&self.gate) == 2 {
            let known = self.locks.0.borrow_mut().remove(&self.key);
            assert!(known.is_some(), "a lock that is held is known until it is released");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use bytes::Bytes;

    use super::*;

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn turns_of_one_partition_come_one_after_the_other_and_leave_nothing_behind() {
        let locks = PartitionLocks::default();
        let table = TableId([1; 16]);
        let key = |name: &'static [u8]| DecoratedKey::new(Bytes::from_static(name));
        let Poll::Ready(first) = poll(pin!(locks.lock(table, &key(b"a")))) else { panic!("nobody is there") };
        let Poll::Ready(other) = poll(pin!(locks.lock(table, &key(b"b")))) else { panic!("another key") };
        let (a, b) = (key(b"a"), key(b"a"));
        let mut second = Box::pin(locks.lock(table, &a));
        let mut third = Box::pin(locks.lock(table, &b));
        assert!(poll(second.as_mut()).is_pending() && poll(third.as_mut()).is_pending());
        drop(first);
        assert!(poll(third.as_mut()).is_pending(), "the lock is granted in order of arrival");
        let Poll::Ready(lock) = poll(second.as_mut()) else { panic!("the lock is free") };
        drop(third);
        assert_eq!(locks.len(), 2);
        drop((lock, other, second));
        assert_eq!(locks.len(), 0);
    }
}
