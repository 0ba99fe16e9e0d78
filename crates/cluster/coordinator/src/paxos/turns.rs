//! Turns: those who would work on the same partition wait for each other instead of getting in each other's way.

use std::cell::RefCell;
use std::rc::Rc;

use mutation::DecoratedKey;
use rt::sync::{Permit, Semaphore};
use schema::TableId;
use stdx::HashMap;

type Key = (TableId, DecoratedKey);

/// The partitions that somebody works on, each with those who wait for it in the order in which they came. There are never
/// more of them than requests in flight.
#[derive(Clone, Default)]
pub(crate) struct Turns(Rc<RefCell<HashMap<Key, Rc<Semaphore>>>>);

/// One's turn, until it is dropped.
pub(crate) struct Turn {
    turns: Turns,
    key: Key,
    gate: Rc<Semaphore>,
    permit: Option<Permit>,
}

impl Turns {
    /// Waits until nobody who came before works on the partition.
    pub(crate) async fn take(&self, table: TableId, key: &DecoratedKey) -> Turn {
        let key = (table, key.clone());
        let new = || Rc::new(Semaphore::new(1));
        let gate = self.0.borrow_mut().entry(key.clone()).or_insert_with(new).clone();
        // Dropped with the future when it is given up while it waits, so that nothing stays behind.
        let mut turn = Turn { turns: self.clone(), key, gate, permit: None };
        let permit = turn.gate.acquire(1).await;
        turn.permit = Some(permit.expect("the gate of a partition is never closed"));
        turn
    }

    /// How many partitions are worked on.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        drop(self.permit.take());
        // Held by the map and by this turn alone: nobody works on the partition or waits for it.
        if Rc::strong_count(&self.gate) == 2 {
            self.turns.0.borrow_mut().remove(&self.key);
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
        let turns = Turns::default();
        let table = TableId([1; 16]);
        let key = |name: &'static [u8]| DecoratedKey::new(Bytes::from_static(name));
        let Poll::Ready(first) = poll(pin!(turns.take(table, &key(b"a")))) else { panic!("nobody is there") };
        let Poll::Ready(other) = poll(pin!(turns.take(table, &key(b"b")))) else { panic!("another key") };
        let (a, b) = (key(b"a"), key(b"a"));
        let mut second = Box::pin(turns.take(table, &a));
        let mut third = Box::pin(turns.take(table, &b));
        assert!(poll(second.as_mut()).is_pending() && poll(third.as_mut()).is_pending());
        drop(first);
        assert!(poll(third.as_mut()).is_pending(), "whoever came first goes first");
        let Poll::Ready(turn) = poll(second.as_mut()) else { panic!("the turn is free") };
        drop(third);
        assert_eq!(turns.len(), 2);
        drop((turn, other, second));
        assert_eq!(turns.len(), 0);
    }
}
