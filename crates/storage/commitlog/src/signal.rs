//! Waking one task of the shard when there is something to do.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// A flag that one task waits for.
#[derive(Default)]
pub(crate) struct Signal {
    set: Cell<bool>,
    waiter: RefCell<Option<Waker>>,
}

impl Signal {
    /// Sets the flag and wakes the waiting task.
    pub(crate) fn set(&self) {
        if !self.set.replace(true)
            && let Some(waker) = self.waiter.borrow_mut().take()
        {
            waker.wake();
        }
    }

    /// Waits for the flag and takes it.
    pub(crate) async fn wait(&self) {
        poll_fn(|cx| {
            if self.set.replace(false) {
                return Poll::Ready(());
            }
            *self.waiter.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
