//! A first-in-first-out list of wakers, from which a waiter that gives up can be taken out.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::Waker;

/// Waiters in order of arrival. A waiter that is no longer in the list has been woken.
#[derive(Default)]
pub(crate) struct Waiters {
    queue: RefCell<VecDeque<(u64, Waker)>>,
    next: Cell<u64>,
}

impl Waiters {
    /// Appends a waiter and gives its key.
    pub(crate) fn push(&self, waker: &Waker) -> u64 {
        let key = self.next.get();
        self.next.set(key + 1);
        self.queue.borrow_mut().push_back((key, waker.clone()));
        key
    }

    /// Renews the waker of a waiter; false when it has been woken.
    pub(crate) fn renew(&self, key: u64, waker: &Waker) -> bool {
        let mut queue = self.queue.borrow_mut();
        match queue.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(index) => {
                queue[index].1.clone_from(waker);
                true
            }
            Err(_) => false,
        }
    }

    /// Takes a waiter out; false when it has been woken.
    pub(crate) fn remove(&self, key: u64) -> bool {
        let mut queue = self.queue.borrow_mut();
        match queue.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(index) => {
                let removed = queue.remove(index);
                drop(queue);
                drop(removed);
                true
            }
            Err(_) => false,
        }
    }

    /// Registers at the first call, renews at the others; for loops that check a condition at every poll.
    pub(crate) fn register(&self, key: &mut Option<u64>, waker: &Waker) {
        match *key {
            Some(known) if self.renew(known, waker) => {}
            _ => *key = Some(self.push(waker)),
        }
    }

    /// Wakes the longest waiting; false when nobody waits.
    pub(crate) fn wake_one(&self) -> bool {
        let first = self.queue.borrow_mut().pop_front();
        match first {
            Some((_, waker)) => {
                waker.wake();
                true
            }
            None => false,
        }
    }

    /// Wakes all.
    pub(crate) fn wake_all(&self) {
        let all = std::mem::take(&mut *self.queue.borrow_mut());
        for (_, waker) in all {
            waker.wake();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.borrow().len()
    }
}
