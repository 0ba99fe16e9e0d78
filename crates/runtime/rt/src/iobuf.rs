//! Owned, aligned buffers for file operations.
//!
//! The kernel writes into a buffer until the operation completes, even when the future that asked for it is
//! gone; so the operation owns its buffer. Direct IO wants aligned memory; a bounded pool a thread saves the
//! allocator the large, short-lived blocks.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Alignment of every buffer's first byte, and of positions and lengths in direct IO.
pub const IO_ALIGNMENT: usize = 4096;

/// The largest buffer that is pooled for reuse.
const POOLED_CAPACITY_MAX: usize = 1 << 20;
/// Size classes: 4 KiB, 8 KiB, … 1 MiB.
const CLASSES: usize = 9;
/// The limit of one thread's pool.
const POOL_BYTES_MAX: usize = 8 << 20;

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { bytes: 0, classes: [const { Vec::new() }; CLASSES] }) };
}

struct Pool {
    bytes: usize,
    classes: [Vec<Storage>; CLASSES],
}

/// Memory with an aligned part. A vector that is never resized, so that its address is stable.
struct Storage {
    memory: Vec<u8>,
    offset: usize,
    capacity: usize,
}

impl Storage {
    /// `capacity` must be a multiple of the alignment.
    fn new(capacity: usize) -> Storage {
        let memory = vec![0u8; capacity + IO_ALIGNMENT - 1];
        let offset = memory.as_ptr().align_offset(IO_ALIGNMENT);
        assert!(
            offset < IO_ALIGNMENT,
            "an address can always be aligned by skipping less than the alignment"
        );
        Storage { memory, offset, capacity }
    }

    fn empty() -> Storage {
        Storage { memory: Vec::new(), offset: 0, capacity: 0 }
    }
}

fn class_of(capacity: usize) -> Option<usize> {
    if capacity == 0 || capacity > POOLED_CAPACITY_MAX {
        return None;
    }
    let rounded = capacity.max(IO_ALIGNMENT).next_power_of_two();
    Some((rounded / IO_ALIGNMENT).trailing_zeros() as usize)
}

fn take(capacity: usize) -> Storage {
    if capacity == 0 {
        return Storage::empty();
    }
    let Some(class) = class_of(capacity) else {
        return Storage::new(capacity.next_multiple_of(IO_ALIGNMENT));
    };
    let pooled = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        let storage = pool.classes[class].pop()?;
        pool.bytes -= storage.capacity;
        Some(storage)
    });
    pooled.ok().flatten().unwrap_or_else(|| Storage::new(IO_ALIGNMENT << class))
}

fn give_back(storage: Storage) {
    let Some(class) = class_of(storage.capacity) else { return };
    if storage.capacity != IO_ALIGNMENT << class {
        return;
    }
    // Fails only while the thread ends; then the memory is simply freed.
    let _ = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        if pool.bytes + storage.capacity <= POOL_BYTES_MAX {
            pool.bytes += storage.capacity;
            pool.classes[class].push(storage);
        }
    });
}

/// An owned buffer whose memory begins at a multiple of [`IO_ALIGNMENT`]. Behaves as a byte slice of `len()`.
pub struct IoBuf {
    storage: Storage,
    start: usize,
    len: usize,
}

impl IoBuf {
    /// An empty buffer without memory.
    pub fn new() -> IoBuf {
        IoBuf { storage: Storage::empty(), start: 0, len: 0 }
    }

    /// An empty buffer with room for at least `capacity` bytes (rounded up to the alignment).
    pub fn with_capacity(capacity: usize) -> IoBuf {
        IoBuf { storage: take(capacity), start: 0, len: 0 }
    }

    /// A buffer of `len` zeros.
    pub fn zeroed(len: usize) -> IoBuf {
        let mut buf = IoBuf::with_capacity(len);
        buf.resize(len, 0);
        buf
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> IoBuf {
        let mut buf = IoBuf::with_capacity(bytes.len());
        buf.extend_from_slice(bytes);
        buf
    }

    /// Number of bytes in the buffer.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes in the buffer.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes fit without taking more memory.
    pub fn capacity(&self) -> usize {
        self.storage.capacity - self.start
    }

    /// Bytes that can still be appended without taking more memory.
    pub fn remaining(&self) -> usize {
        self.capacity() - self.len
    }

    /// Drops the content, and undoes [`IoBuf::narrow`]; the memory stays.
    pub fn clear(&mut self) {
        self.start = 0;
        self.len = 0;
    }

    /// Keeps the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Makes the content `len` bytes long; new bytes are `fill`.
    pub fn resize(&mut self, len: usize, fill: u8) {
        if len > self.len {
            self.reserve(len - self.len);
            let from = self.storage.offset + self.start + self.len;
            let upto = self.storage.offset + self.start + len;
            self.storage.memory[from..upto].fill(fill);
        }
        self.len = len;
    }

    /// Appends `bytes`, taking more memory when they do not fit.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        let from = self.storage.offset + self.start + self.len;
        self.storage.memory[from..from + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Appends zeros until the length is a multiple of `alignment`.
    pub fn pad_to(&mut self, alignment: usize) {
        self.resize(self.len.next_multiple_of(alignment), 0);
    }

    /// Makes room for `additional` more bytes; the content stays, its address may change.
    pub fn reserve(&mut self, additional: usize) {
        let needed = self.len + additional;
        if needed <= self.capacity() {
            return;
        }
        let mut larger = IoBuf::with_capacity(needed.max(self.len * 2));
        larger.len = self.len;
        let len = self.len;
        larger[..len].copy_from_slice(self);
        *self = larger;
    }

    /// Keeps only `len` bytes from `start` on, without copying. The first byte is then no longer aligned.
    ///
    /// # Panics
    /// When the range does not lie inside the content.
    pub fn narrow(&mut self, start: usize, len: usize) {
        assert!(start <= self.len && len <= self.len - start, "a range outside of the buffer");
        self.start += start;
        self.len = len;
    }

    /// For backends: the memory behind `[start, start + len)`, which may lie beyond the content.
    ///
    /// # Panics
    /// When the range does not lie inside the capacity.
    pub fn io_area_mut(&mut self, start: usize, len: usize) -> &mut [u8] {
        assert!(start <= self.capacity() && len <= self.capacity() - start, "a range outside of the memory");
        let from = self.storage.offset + self.start + start;
        &mut self.storage.memory[from..from + len]
    }

    /// Sets the length after a backend has filled the memory.
    pub(crate) fn set_filled(&mut self, len: usize) {
        assert!(len <= self.capacity(), "more bytes than the memory holds");
        self.len = len;
    }
}

impl Drop for IoBuf {
    fn drop(&mut self) {
        give_back(std::mem::replace(&mut self.storage, Storage::empty()));
    }
}

impl Default for IoBuf {
    fn default() -> Self {
        IoBuf::new()
    }
}

impl Deref for IoBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let from = self.storage.offset + self.start;
        &self.storage.memory[from..from + self.len]
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let from = self.storage.offset + self.start;
        &mut self.storage.memory[from..from + self.len]
    }
}

impl AsRef<[u8]> for IoBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IoBuf {{ len: {}, capacity: {} }}", self.len, self.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_survives_growth() {
        for capacity in [1, 4096, 5000, 1 << 20, (1 << 20) + 1] {
            let mut buf = IoBuf::with_capacity(capacity);
            assert!(buf.capacity() >= capacity);
            assert_eq!(buf.io_area_mut(0, 1).as_ptr().align_offset(IO_ALIGNMENT), 0);
            buf.extend_from_slice(&[7; 3]);
            buf.reserve(2 * capacity + 9000);
            assert_eq!(&buf[..], &[7; 3]);
            assert_eq!(buf.as_ptr().align_offset(IO_ALIGNMENT), 0);
        }
    }

    #[test]
    fn reused_memory_shows_no_old_bytes() {
        let mut buf = IoBuf::with_capacity(4096);
        buf.resize(4096, 0xff);
        drop(buf);
        let buf = IoBuf::zeroed(4096);
        assert!(buf.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn narrowing_and_padding() {
        let mut buf = IoBuf::copy_of(b"0123456789");
        buf.narrow(2, 5);
        assert_eq!(&buf[..], b"23456");
        buf.narrow(1, 4);
        assert_eq!(&buf[..], b"3456");
        buf.pad_to(8);
        assert_eq!(&buf[..], b"3456\0\0\0\0");
        buf.clear();
        assert_eq!(buf.capacity(), 4096);
    }

    #[test]
    fn the_pool_is_bounded() {
        let many: Vec<IoBuf> = (0..64).map(|_| IoBuf::with_capacity(1 << 20)).collect();
        drop(many);
        POOL.with(|pool| {
            let pool = pool.borrow();
            assert!(pool.bytes <= POOL_BYTES_MAX);
            assert_eq!(
                pool.bytes,
                pool.classes.iter().flatten().map(|storage| storage.capacity).sum::<usize>()
            );
        });
    }
}
