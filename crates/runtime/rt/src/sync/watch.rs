//! A value that changes, and tasks that follow it: each sees the latest value, not every one.

use std::cell::{Cell, Ref, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use super::Disconnected;
use super::waiters::Waiters;

struct State<T> {
    value: RefCell<T>,
    version: Cell<u64>,
    writer_gone: Cell<bool>,
    waiters: Waiters,
}

/// Holds and changes the value.
pub struct Watch<T> {
    state: Rc<State<T>>,
}

/// Follows the value.
pub struct WatchReader<T> {
    state: Rc<State<T>>,
    seen: u64,
}

impl<T> Watch<T> {
    /// A value to follow.
    pub fn new(value: T) -> Watch<T> {
        Watch {
            state: Rc::new(State {
                value: RefCell::new(value),
                version: Cell::new(0),
                writer_gone: Cell::new(false),
                waiters: Waiters::default(),
            }),
        }
    }

    /// Changes the value and wakes its followers.
    pub fn set(&self, value: T) {
        let old = self.state.value.replace(value);
        self.state.version.set(self.state.version.get() + 1);
        self.state.waiters.wake_all();
        drop(old);
    }

    /// The value. Do not hold it over an `await`.
    pub fn get(&self) -> Ref<'_, T> {
        self.state.value.borrow()
    }

    /// A reader for which the present value is seen already.
    pub fn reader(&self) -> WatchReader<T> {
        WatchReader { state: Rc::clone(&self.state), seen: self.state.version.get() }
    }
}

impl<T> Drop for Watch<T> {
    fn drop(&mut self) {
        self.state.writer_gone.set(true);
        self.state.waiters.wake_all();
    }
}

impl<T> WatchReader<T> {
    /// The value. Do not hold it over an `await`.
    pub fn get(&self) -> Ref<'_, T> {
        self.state.value.borrow()
    }

    /// Waits until the value has changed since the last time this returned.
    ///
    /// # Errors
    /// [`Disconnected`] when the writer is gone and the last value has been seen.
    pub async fn changed(&mut self) -> Result<(), Disconnected> {
        let mut place = Place { state: Rc::clone(&self.state), key: None };
        let seen = &mut self.seen;
        poll_fn(|cx| {
            let version = place.state.version.get();
            if version != *seen {
                *seen = version;
                return Poll::Ready(Ok(()));
            }
            if place.state.writer_gone.get() {
                return Poll::Ready(Err(Disconnected));
            }
            place.state.waiters.register(&mut place.key, cx.waker());
            Poll::Pending
        })
        .await
    }
}

struct Place<T> {
    state: Rc<State<T>>,
    key: Option<u64>,
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.state.waiters.remove(key);
        }
    }
}

impl<T> Clone for WatchReader<T> {
    fn clone(&self) -> Self {
        WatchReader { state: Rc::clone(&self.state), seen: self.seen }
    }
}
