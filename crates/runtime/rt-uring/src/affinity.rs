//! Which cores and how many files the process may use, and binding a thread to a core.
#![allow(unsafe_code)]

use std::io;

/// The cores that this process may use, ascending.
pub(crate) fn allowed_cores() -> Vec<usize> {
    // SAFETY: cpu_set_t is a plain array of bits, for which all zeros is a valid value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours and its size is given.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
    if result != 0 {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        return (0..count).collect();
    }
    // SAFETY: CPU_ISSET reads the set at an index below its size.
    (0..libc::CPU_SETSIZE as usize).filter(|core| unsafe { libc::CPU_ISSET(*core, &set) }).collect()
}

/// Binds the calling thread to a core.
pub(crate) fn pin_to(core: usize) -> io::Result<()> {
    // SAFETY: cpu_set_t is a plain array of bits, for which all zeros is a valid value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `core` came from `allowed_cores`, so it lies below the size of the set.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: the set is ours and its size is given; 0 is the calling thread.
    let result = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets the process have as many files and sockets open as its hard limit allows; returns the limit then, if the system reports it.
pub(crate) fn raise_open_files() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is ours and is written by the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return None;
    }
    let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
    // SAFETY: the structure is ours and is only read.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) } == 0;
    Some(if done { raised.rlim_cur } else { limit.rlim_cur })
}
