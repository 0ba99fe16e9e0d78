//! Points in time of one node's monotonic clock, so that durations never come from the wall clock.
//!
//! The standard library's `Instant` cannot be made from a number, which a simulator must be able to do.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point of the monotonic clock: nanoseconds since the node started. Never goes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The start of the node.
    pub const START: Instant = Instant(0);
    /// Later than every instant that a clock gives.
    pub const MAX: Instant = Instant(u64::MAX);

    /// The instant that lies `nanos` nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Instant(nanos)
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to here; zero when `earlier` is later.
    pub const fn duration_since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This instant moved by `duration`; stays at [`Instant::MAX`] when it would overflow.
    pub const fn saturating_add(self, duration: Duration) -> Instant {
        let nanos = duration.as_nanos();
        let nanos = if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 };
        Instant(self.0.saturating_add(nanos))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, duration: Duration) -> Instant {
        self.saturating_add(duration)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = self.saturating_add(duration);
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.duration_since(earlier)
    }
}

impl std::fmt::Debug for Instant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let one = Instant::from_nanos(1);
        assert_eq!(one - Instant::from_nanos(5), Duration::ZERO);
        assert_eq!(Instant::MAX + Duration::from_secs(1), Instant::MAX);
        assert_eq!((one + Duration::from_nanos(4)).as_nanos(), 5);
        assert_eq!(one.saturating_add(Duration::MAX), Instant::MAX);
    }
}
