//! Clocks of other nodes that are ahead of this one's. The order of two writes is that of their coordinators' clocks, so somebody
//! has to be notified.
//!
//! A message that was long under way makes its sender's clock look slow, never fast: only a node that is behind can be sure of it, and
//! of any two nodes one is.

use std::collections::BTreeMap;
use std::time::Duration;

use topology::HostId;

/// A clock that is ahead by this much or more is logged.
const AHEAD_MIN: Duration = Duration::from_millis(500);
/// The time between two warnings about the same clock.
const TELL_INTERVAL: Duration = Duration::from_secs(600);

/// When each node's clock was logged last.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    told: BTreeMap<HostId, Duration>,
}

impl Clocks {
    /// A message of `host` came, sent at `theirs` by its clock, when this node's showed `ours` (microseconds since 1970) and so much
    /// time had passed on the monotonic one. By how much it is ahead, when that is to be logged.
    pub(super) fn heard(
        &mut self,
        host: HostId,
        theirs: i64,
        ours: i64,
        monotonic: Duration,
    ) -> Option<Duration> {
        let ahead = Duration::from_micros(u64::try_from(theirs.saturating_sub(ours)).unwrap_or(0));
        if ahead < AHEAD_MIN {
            // It may have been corrected; if not, it is logged again.
            return None;
        }
        let last = self.told.get(&host);
        if last.is_some_and(|last| monotonic.saturating_sub(*last) < TELL_INTERVAL) {
            return None;
        }
        self.told.insert(host, monotonic);
        Some(ahead)
    }

    /// Only these nodes are still of interest.
    pub(super) fn retain(&mut self, known: impl Fn(HostId) -> bool) {
        self.told.retain(|host, _| known(*host));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000;

    #[test]
    fn a_clock_that_is_ahead_is_reported_once_in_a_while() {
        let (mut clocks, host, other) = (Clocks::default(), HostId([1; 16]), HostId([2; 16]));
        let seconds = Duration::from_secs;
        assert_eq!(clocks.heard(host, HOUR, 0, seconds(1)), Some(seconds(3_600)));
        assert_eq!(clocks.heard(host, HOUR, 0, seconds(2)), None);
        assert_eq!(clocks.heard(other, HOUR, 0, seconds(2)), Some(seconds(3_600)));
        assert_eq!(clocks.heard(host, HOUR, 0, seconds(601)), Some(seconds(3_600)));
    }

    #[test]
    fn slow_messages_and_clocks_that_are_behind_are_nothing() {
        let (mut clocks, host) = (Clocks::default(), HostId([1; 16]));
        for theirs in [0, -HOUR, i64::MIN, 499_999] {
            assert_eq!(clocks.heard(host, theirs, 0, Duration::ZERO), None);
        }
        assert!(clocks.heard(host, i64::MAX, i64::MIN, Duration::ZERO).is_some());
    }
}
