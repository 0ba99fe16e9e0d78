//! The system's clocks.

// `clock_gettime` itself: std's subtraction of two instants costs three times as many instructions as the call, at each poll.
#![allow(unsafe_code)]

use std::time::Duration;

use rt::Instant;
use rt::driver::Clock;

/// Time since the node started, the same origin on all shards.
#[derive(Clone, Copy)]
pub(crate) struct SystemClock {
    /// Of the system's monotonic clock, in nanoseconds.
    start: u64,
}

impl SystemClock {
    /// A clock that begins now.
    pub(crate) fn start() -> SystemClock {
        SystemClock { start: monotonic_nanos() }
    }
}

/// Seconds and nanoseconds of a clock of the system.
fn read(clock: libc::clockid_t) -> (i64, i64) {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec`, to one that is there.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(result, 0, "every kernel has this clock");
    (time.tv_sec, time.tv_nsec)
}

fn monotonic_nanos() -> u64 {
    let (seconds, nanos) = read(libc::CLOCK_MONOTONIC);
    seconds.cast_unsigned() * 1_000_000_000 + nanos.cast_unsigned()
}

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(monotonic_nanos() - self.start)
    }

    fn wall_micros(&self) -> i64 {
        let (seconds, nanos) = read(libc::CLOCK_REALTIME);
        seconds * 1_000_000 + nanos / 1_000
    }

    fn thread_cpu(&self) -> Option<Duration> {
        let (seconds, nanos) = read(libc::CLOCK_THREAD_CPUTIME_ID);
        Some(Duration::new(seconds.cast_unsigned(), nanos as u32))
    }
}
