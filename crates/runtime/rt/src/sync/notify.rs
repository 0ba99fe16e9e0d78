//! Waking tasks that wait for a condition to change.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::waiters::Waiters;

#[derive(Default)]
struct State {
    permit: Cell<bool>,
    waiters: Waiters,
}

/// A condition variable of one shard. As no other task runs between a check and the following `await`, a loop
/// `while !condition { notify.notified().await }` misses nothing.
#[derive(Clone, Default)]
pub struct Notify {
    state: Rc<State>,
}

impl Notify {
    /// Nobody waits, nothing was notified.
    pub fn new() -> Notify {
        Notify::default()
    }

    /// Wakes the task that waits longest; when none does, the next one that waits resumes at once.
    pub fn notify_one(&self) {
        if !self.state.waiters.wake_one() {
            self.state.permit.set(true);
        }
    }

    /// Wakes all tasks that wait now.
    pub fn notify_all(&self) {
        self.state.waiters.wake_all();
    }

    /// Waits for a notification from the first poll on.
    pub fn notified(&self) -> Notified {
        Notified { state: Rc::clone(&self.state), key: None }
    }

    /// Number of tasks that wait.
    pub fn waiting(&self) -> usize {
        self.state.waiters.len()
    }
}

/// The future of [`Notify::notified`].
#[must_use = "waits only when awaited"]
pub struct Notified {
    state: Rc<State>,
    key: Option<u64>,
}

impl Future for Notified {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.key {
            Some(key) if self.state.waiters.renew(key, cx.waker()) => Poll::Pending,
            Some(_) => {
                self.key = None;
                Poll::Ready(())
            }
            None if self.state.permit.replace(false) => Poll::Ready(()),
            None => {
                self.key = Some(self.state.waiters.push(cx.waker()));
                Poll::Pending
            }
        }
    }
}

impl Drop for Notified {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        // Woken but dropped before it could go on: the notification belongs to the next one.
        if !self.state.waiters.remove(key) {
            self.state.waiters.wake_one();
        }
    }
}
