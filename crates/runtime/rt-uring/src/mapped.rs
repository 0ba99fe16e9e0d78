//! Files in memory, shared with the system's page cache.
//!
//! A store to a mapping cannot return an error: where the system finds no block for it, or cannot read the page, it ends
//! the process with SIGBUS. So only files that have all their blocks are mapped, on file systems that write a block where
//! it lies. The remaining case is a disk that cannot read a page back which was written, synced and evicted: it ends the process,
//! as a power failure does.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;

use rt::driver::MappingDriver;

/// Unit of [`std::os::unix::fs::MetadataExt::blocks`], bytes.
const BLOCK_UNIT: u64 = 512;
/// `f_type` of the file systems that write a block where it lies (statfs(2)): ext4, XFS, tmpfs.
const IN_PLACE: [i64; 3] = [0xef53, 0x5846_5342, 0x0102_1994];

/// The first bytes of a file.
pub(crate) struct Mapped {
    memory: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to this value alone, and no method but `write` refers to it.
unsafe impl Send for Mapped {}

impl Mapped {
    /// Maps a file and reads it in, which may take as long as reading takes.
    pub(crate) fn new(file: &File, len: u64) -> io::Result<Self> {
        if file.metadata()?.blocks().saturating_mul(BLOCK_UNIT) < len || !writes_in_place(file)? {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: the system chooses the address, the descriptor is open; the result is checked.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), len, access, shared, file.as_raw_fd(), 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).expect("a mapping does not begin at zero");
        let mapped = Self { memory, len };
        mapped.populate()?;
        Ok(mapped)
    }

    /// Reads the pages in: a store finds its page in memory. They stay clean, so that pages never written cost no IO.
    fn populate(&self) -> io::Result<()> {
        // SAFETY: the range is this mapping.
        let done = unsafe { libc::madvise(self.memory.as_ptr().cast(), self.len, libc::MADV_POPULATE_READ) };
        let error = io::Error::last_os_error();
        match (done, error.raw_os_error()) {
            (0, _) => Ok(()),
            // Before Linux 5.14 the first store to a page reads it.
            (_, Some(libc::EINVAL)) => Ok(()),
            _ => Err(error),
        }
    }
}

impl MappingDriver for Mapped {
    fn write(&self, position: u64, bytes: &[u8]) {
        let start = usize::try_from(position).expect("a position within a mapping fits");
        assert!(start <= self.len && bytes.len() <= self.len - start, "a store lies within the mapping");
        // SAFETY: the range was just checked; `bytes` is no part of the mapping, which nobody has a reference to.
        unsafe { self.memory.add(start).as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length, and nobody refers to it any more.
        let done = unsafe { libc::munmap(self.memory.as_ptr().cast(), self.len) };
        debug_assert_eq!(done, 0, "a mapping is removed once");
    }
}

/// Whether the file's blocks stay where they are when they are written again.
fn writes_in_place(file: &File) -> io::Result<bool> {
    // SAFETY: statfs is a plain structure of numbers, for which all zeros is a valid value.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, the pointer lives through the call.
    if unsafe { libc::fstatfs(file.as_raw_fd(), &mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(IN_PLACE.contains(&(stat.f_type as i64)))
}
