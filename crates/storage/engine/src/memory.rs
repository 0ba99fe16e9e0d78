//! The budget of a shard's memtables.

use std::cell::Cell;

use rt::sync::Notify;

/// The memory of a shard's memtables, and its limit.
pub(crate) struct Memory {
    /// Bytes in memtables, those being flushed included.
    bytes: Cell<usize>,
    bytes_max: usize,
    /// An injected bug: there is no limit.
    is_unlimited: bool,
    /// Notified when memtables gave memory back.
    pub(crate) freed: Notify,
    /// Writes that wait for memory.
    waiting: Cell<u64>,
}

impl Memory {
    pub(crate) fn new(bytes_max: usize, is_unlimited: bool) -> Self {
        Self { bytes: Cell::new(0), bytes_max, is_unlimited, freed: Notify::new(), waiting: Cell::new(0) }
    }

    /// Bytes in memtables.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Whether writes have to wait.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.get() > self.bytes_max && !self.is_unlimited
    }

    /// Whether something has to be flushed.
    #[inline]
    pub(crate) fn is_half_full(&self) -> bool {
        self.bytes.get() > self.bytes_max / 2
    }

    /// A memtable took `before` bytes and takes `after`.
    #[inline]
    pub(crate) fn changed(&self, before: usize, after: usize) {
        let bytes = self.bytes.get() + after;
        assert!(bytes >= before, "a memtable's bytes are part of the shard's");
        self.bytes.set(bytes - before);
    }

    /// A memtable of so many bytes is in an SSTable. [`Memory::freed`] notifies the waiters.
    pub(crate) fn give_back(&self, bytes: usize) {
        assert!(bytes <= self.bytes.get(), "memtables give back what they took");
        self.bytes.set(self.bytes.get() - bytes);
    }

    /// Writes that wait for memory.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.get()
    }

    /// Counts a write that waits, until the result is dropped: also when the write is given up.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.waiting.set(self.waiting.get() + 1);
        Waiting(&self.waiting)
    }
}

/// A write that waits.
pub(crate) struct Waiting<'a>(&'a Cell<u64>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let waiting = self.0.get();
        assert!(waiting > 0, "a write that waited was counted");
        self.0.set(waiting - 1);
    }
}
