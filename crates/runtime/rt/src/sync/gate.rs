//! Counting the operations in flight, so that an owner can stop: refuse new ones and wait for the rest.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use super::Notify;

#[derive(Default)]
struct State {
    inside: Cell<usize>,
    closed: Cell<bool>,
    left: Notify,
}

/// A gate through which operations enter; closing it waits until all have left.
#[derive(Clone, Default)]
pub struct Gate {
    state: Rc<State>,
}

/// The gate was closed: its service is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateClosed;

impl fmt::Display for GateClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is being stopped")
    }
}

impl std::error::Error for GateClosed {}

impl Gate {
    /// An open gate with nobody inside.
    pub fn new() -> Gate {
        Gate::default()
    }

    /// Enters until the guard is dropped.
    ///
    /// # Errors
    /// [`GateClosed`] when the gate was closed.
    pub fn enter(&self) -> Result<GateGuard, GateClosed> {
        if self.state.closed.get() {
            return Err(GateClosed);
        }
        self.state.inside.set(self.state.inside.get() + 1);
        Ok(GateGuard { state: Rc::clone(&self.state) })
    }

    /// Operations inside.
    pub fn count(&self) -> usize {
        self.state.inside.get()
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.state.closed.get()
    }

    /// Lets nobody in any more, and waits until all have left. It stays closed when the future is dropped.
    pub async fn close(&self) {
        self.state.closed.set(true);
        while self.state.inside.get() > 0 {
            self.state.left.notified().await;
        }
    }
}

/// An operation inside a [`Gate`]; leaves when dropped.
#[must_use = "the operation leaves the gate when the guard is dropped"]
pub struct GateGuard {
    state: Rc<State>,
}

impl Clone for GateGuard {
    /// Another guard, also when the gate was closed meanwhile.
    fn clone(&self) -> Self {
        self.state.inside.set(self.state.inside.get() + 1);
        GateGuard { state: Rc::clone(&self.state) }
    }
}

impl Drop for GateGuard {
    fn drop(&mut self) {
        self.state.inside.set(self.state.inside.get() - 1);
        if self.state.inside.get() == 0 && self.state.closed.get() {
            self.state.left.notify_all();
        }
    }
}
