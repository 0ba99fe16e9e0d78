//! The flushes of a shard: how many run, and how they fare.

use std::cell::{Cell, RefCell};

use rt::sync::{Notify, Permit, Semaphore};

/// Flushes of different tables that write at once, for any reason: however many tables wait, so many have files open.
pub(crate) const SLOTS: usize = 4;

/// The flushes of a shard.
pub(crate) struct Flushes {
    /// Notified when there may be something to flush.
    pub(crate) check: Notify,
    slots: Semaphore,
    running: Cell<u64>,
    done: Cell<u64>,
    failed: Cell<u64>,
    /// Why the last one failed, until one succeeds.
    failure: RefCell<Option<String>>,
    /// The last one failed because something has run out: space, descriptors, memory.
    shortage: Cell<bool>,
}

impl Flushes {
    pub(crate) fn new() -> Self {
        Self {
            check: Notify::new(),
            slots: Semaphore::new(SLOTS),
            running: Cell::new(0),
            done: Cell::new(0),
            failed: Cell::new(0),
            failure: RefCell::default(),
            shortage: Cell::new(false),
        }
    }

    /// Waits until one more may write.
    pub(crate) async fn slot(&self) -> Permit {
        self.slots.acquire(1).await.expect("it is never closed")
    }

    /// A table's memtables begin to be flushed.
    pub(crate) fn begin(&self) {
        self.running.set(self.running.get() + 1);
    }

    /// None of a table's memtables is left to flush.
    pub(crate) fn end(&self) {
        let running = self.running.get();
        assert!(running > 0, "a flush that ends has begun");
        self.running.set(running - 1);
        self.check.notify_one();
    }

    /// Tables whose memtables are being flushed.
    pub(crate) fn running(&self) -> u64 {
        self.running.get()
    }

    /// A memtable is in an SSTable; whether the one before had failed.
    pub(crate) fn succeeded(&self) -> bool {
        assert!(self.running.get() > 0, "a memtable is written by a flush that was begun");
        self.done.set(self.done.get() + 1);
        self.shortage.set(false);
        self.failure.take().is_some()
    }

    /// A memtable could not be written; whether the one before could.
    pub(crate) fn has_failed(&self, reason: String, is_shortage: bool) -> bool {
        assert!(self.running.get() > 0, "an attempt is part of a flush that was begun");
        self.failed.set(self.failed.get() + 1);
        self.shortage.set(is_shortage);
        self.failure.replace(Some(reason)).is_none()
    }

    /// Why the last one failed, until one succeeds.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    /// Whether the last one failed because something has run out.
    pub(crate) fn is_short(&self) -> bool {
        self.shortage.get()
    }

    /// Memtables that were written, and attempts that failed, since start.
    pub(crate) fn figures(&self) -> (u64, u64) {
        (self.done.get(), self.failed.get())
    }
}
