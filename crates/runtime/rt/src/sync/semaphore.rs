//! A fair counting semaphore: bytes of memory, requests in flight, anything that must not exceed a limit.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

struct Waiter {
    key: u64,
    units: usize,
    waker: Waker,
}

struct State {
    available: Cell<usize>,
    closed: Cell<bool>,
    next_key: Cell<u64>,
    /// In order of arrival. The first `granted` of them have their units already.
    waiters: RefCell<VecDeque<Waiter>>,
    granted: Cell<usize>,
}

impl State {
    fn release(&self, units: usize) {
        let sum = self.available.get().checked_add(units).expect("units of a semaphore do not overflow");
        self.available.set(sum);
        self.grant();
    }

    /// Gives units to waiters from the front, as far as they reach.
    fn grant(&self) {
        loop {
            let waker = {
                let waiters = self.waiters.borrow();
                let Some(waiter) = waiters.get(self.granted.get()) else { return };
                if waiter.units > self.available.get() {
                    return;
                }
                self.available.set(self.available.get() - waiter.units);
                self.granted.set(self.granted.get() + 1);
                waiter.waker.clone()
            };
            waker.wake();
        }
    }

    /// Takes a waiter out; whether it had its units.
    fn remove(&self, key: u64) -> bool {
        let mut waiters = self.waiters.borrow_mut();
        let index = waiters.binary_search_by_key(&key, |waiter| waiter.key);
        let index = index.expect("a waiter stays in the list until it takes itself out");
        let removed = waiters.remove(index);
        drop(waiters);
        drop(removed);
        let granted = index < self.granted.get();
        if granted {
            self.granted.set(self.granted.get() - 1);
        }
        granted
    }
}

/// The semaphore was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SemaphoreClosed;

impl fmt::Display for SemaphoreClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the semaphore was closed")
    }
}

impl std::error::Error for SemaphoreClosed {}

/// A semaphore. A waiter for many units is not overtaken by one that wants few.
#[derive(Clone)]
pub struct Semaphore {
    state: Rc<State>,
}

impl Semaphore {
    /// A semaphore with so many units.
    pub fn new(units: usize) -> Semaphore {
        Semaphore {
            state: Rc::new(State {
                available: Cell::new(units),
                closed: Cell::new(false),
                next_key: Cell::new(0),
                waiters: RefCell::new(VecDeque::new()),
                granted: Cell::new(0),
            }),
        }
    }

    /// Takes units, waiting for them and for earlier waiters. More units than there ever are wait for
    /// ever: bound the request first.
    pub fn acquire(&self, units: usize) -> Acquire {
        Acquire { state: Rc::clone(&self.state), units, key: None }
    }

    /// Takes units if they are there and nobody waits.
    pub fn try_acquire(&self, units: usize) -> Option<Permit> {
        let state = &self.state;
        let nobody_waits = state.waiters.borrow().len() == state.granted.get();
        if state.closed.get() || !nobody_waits || state.available.get() < units {
            return None;
        }
        state.available.set(state.available.get() - units);
        Some(Permit { state: Rc::clone(state), units })
    }

    /// Units that are free.
    pub fn available(&self) -> usize {
        self.state.available.get()
    }

    /// Tasks that wait for units.
    pub fn waiting(&self) -> usize {
        self.state.waiters.borrow().len() - self.state.granted.get()
    }

    /// Adds units.
    pub fn add(&self, units: usize) {
        self.state.release(units);
    }

    /// Removes free units; returns how many were.
    pub fn remove(&self, units: usize) -> usize {
        let removed = units.min(self.state.available.get());
        self.state.available.set(self.state.available.get() - removed);
        removed
    }

    /// Refuses all present and future waiters.
    pub fn close(&self) {
        self.state.closed.set(true);
        let waiting: Vec<Waker> = {
            let waiters = self.state.waiters.borrow();
            waiters.iter().skip(self.state.granted.get()).map(|waiter| waiter.waker.clone()).collect()
        };
        for waker in waiting {
            waker.wake();
        }
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.state.closed.get()
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Semaphore {{ available: {}, waiting: {} }}", self.available(), self.waiting())
    }
}

/// Units taken; given back when dropped.
#[must_use = "the units are given back when the permit is dropped"]
pub struct Permit {
    state: Rc<State>,
    units: usize,
}

impl Permit {
    /// How many units it stands for.
    pub fn units(&self) -> usize {
        self.units
    }

    /// Keeps the units for ever (until [`Semaphore::add`]).
    pub fn forget(mut self) {
        self.units = 0;
    }

    /// Gives back a part of the units early.
    pub fn release(&mut self, units: usize) {
        assert!(units <= self.units, "gives back no more than was taken");
        self.units -= units;
        self.state.release(units);
    }

    /// Takes a part of the units into a permit of its own.
    pub fn split(&mut self, units: usize) -> Permit {
        assert!(units <= self.units, "splits off no more than was taken");
        self.units -= units;
        Permit { state: Rc::clone(&self.state), units }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.units > 0 {
            self.state.release(self.units);
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permit({})", self.units)
    }
}

/// The future of [`Semaphore::acquire`].
#[must_use = "takes units only when awaited"]
pub struct Acquire {
    state: Rc<State>,
    units: usize,
    key: Option<u64>,
}

impl Future for Acquire {
    type Output = Result<Permit, SemaphoreClosed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let state = Rc::clone(&self.state);
        let permit = |units| Permit { state: Rc::clone(&state), units };
        if let Some(key) = self.key {
            let mut waiters = state.waiters.borrow_mut();
            let index = waiters.binary_search_by_key(&key, |waiter| waiter.key);
            let index = index.expect("a waiter stays in the list until it takes itself out");
            if index >= state.granted.get() && !state.closed.get() {
                waiters[index].waker.clone_from(cx.waker());
                return Poll::Pending;
            }
            drop(waiters);
            self.key = None;
            let granted = state.remove(key);
            return Poll::Ready(if granted { Ok(permit(self.units)) } else { Err(SemaphoreClosed) });
        }
        if state.closed.get() {
            return Poll::Ready(Err(SemaphoreClosed));
        }
        let nobody_waits = state.waiters.borrow().len() == state.granted.get();
        if nobody_waits && state.available.get() >= self.units {
            state.available.set(state.available.get() - self.units);
            return Poll::Ready(Ok(permit(self.units)));
        }
        let key = state.next_key.get();
        state.next_key.set(key + 1);
        let waiter = Waiter { key, units: self.units, waker: cx.waker().clone() };
        state.waiters.borrow_mut().push_back(waiter);
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        if self.state.remove(key) {
            self.state.release(self.units);
        } else {
            // A large request that gives up may have held back small ones.
            self.state.grant();
        }
    }
}
