//! A limit of bandwidth: how long bytes have to wait. Pure.

use std::time::Duration;

use rt::Instant;

/// Bytes a second, with up to a tenth of a second at once.
#[derive(Clone, Debug)]
pub struct Bandwidth {
    bytes_a_second: Option<u64>,
    /// When everything that was let through so far is paid for.
    paid_at: Instant,
}

/// Bytes that may go out at once after a pause, as a time at the limit's rate.
const BURST: Duration = Duration::from_millis(100);

impl Bandwidth {
    /// At most so many bytes a second; none for no limit.
    pub fn new(bytes_a_second: Option<u64>) -> Bandwidth {
        Bandwidth { bytes_a_second, paid_at: Instant::START }
    }

    /// Changes the limit; bytes that were sent are paid for at the old rate.
    pub fn set(&mut self, bytes_a_second: Option<u64>) {
        self.bytes_a_second = bytes_a_second;
    }

    /// Lets bytes through: how long they have to wait before.
    pub fn take(&mut self, bytes: usize, now: Instant) -> Duration {
        let Some(rate) = self.bytes_a_second else { return Duration::ZERO };
        let nanos = bytes as u128 * 1_000_000_000 / u128::from(rate.max(1));
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let begin = self.paid_at.max(now);
        let wait = (begin - now).saturating_sub(BURST);
        self.paid_at = begin + cost;
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_the_long_run_the_rate_holds() {
        let mut bandwidth = Bandwidth::new(Some(1_000_000));
        let mut now = Instant::from_nanos(5_000_000_000);
        let begun = now;
        for _ in 0..100 {
            now += bandwidth.take(50_000, now);
        }
        // A hundred times 50 ms, of which the last and the burst are not waited for.
        let took = now - begun;
        assert!(took >= Duration::from_millis(4_800) && took <= Duration::from_secs(5), "{took:?}");
    }

    #[test]
    fn an_idle_time_saves_no_more_than_the_burst() {
        let mut bandwidth = Bandwidth::new(Some(1_000));
        let now = Instant::from_nanos(3_600_000_000_000);
        assert_eq!(bandwidth.take(50, now), Duration::ZERO);
        assert_eq!(bandwidth.take(50, now), Duration::ZERO);
        assert_eq!(bandwidth.take(50, now), Duration::ZERO);
        assert_eq!(bandwidth.take(50, now), Duration::from_millis(50));
        bandwidth.set(None);
        assert_eq!(bandwidth.take(usize::MAX, now), Duration::ZERO);
    }
}
