//! One timerfd a shard, armed for the earliest deadline of the executor's timers.
//!
//! tokio's own timers count in milliseconds; a group commit wants less. The timer is armed only when a deadline
//! comes before the one that is set, so request timeouts, which move away with every request, cost no system call.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::task::{Context, Poll};

use rt::Instant;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A timer that the runtime's poller watches.
pub(crate) struct Timer {
    fd: AsyncFd<OwnedFd>,
    armed: Cell<Option<Instant>>,
}

impl Timer {
    /// To be called inside the shard's tokio runtime.
    pub(crate) fn new() -> io::Result<Timer> {
        // SAFETY: no pointers; the result is checked.
        let fd =
            unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the AsyncFd owns the descriptor, which stays open and the same as long as it lives.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE)? };
        Ok(Timer { fd, armed: Cell::new(None) })
    }

    /// Makes sure that [`Timer::poll_fired`] wakes at `deadline` or before.
    pub(crate) fn arm(&self, deadline: Instant, now: Instant) {
        if self.armed.get().is_some_and(|armed| armed <= deadline) {
            return;
        }
        // Zero would disarm it.
        let nanos = (deadline - now).as_nanos().clamp(1, 1 << 60) as i64;
        let value = libc::timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 };
        let spec =
            libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        // SAFETY: the descriptor is open, the pointer lives through the call, null means no old value.
        let result = unsafe { libc::timerfd_settime(self.fd.as_raw_fd(), 0, &spec, std::ptr::null_mut()) };
        assert_eq!(result, 0, "a timer of valid values can be set");
        self.armed.set(Some(deadline));
    }

    /// Ready once after the timer has fired.
    pub(crate) fn poll_fired(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.fd.poll_read_ready(cx) {
            Poll::Ready(Ok(mut guard)) => {
                // The poller is edge-triggered, so there is no need to read the descriptor.
                guard.clear_ready();
                self.armed.set(None);
                Poll::Ready(())
            }
            Poll::Ready(Err(error)) => panic!("the poller of a shard ended while the shard runs: {error}"),
            Poll::Pending => Poll::Pending,
        }
    }
}
