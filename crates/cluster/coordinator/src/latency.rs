//! Latencies and failures of requests, counted in one place, for data on any node.

use std::cell::Cell;
use std::time::Duration;

use crate::RequestError;

/// Upper bounds of the buckets are 16 µs doubled so many times (the last is 2^24 µs, about 17 s), and one without a bound.
const BOUNDS: usize = 21;
/// log2 of the first bound in microseconds.
const FIRST_BOUND_BITS: u32 = 4;

const _: () = assert!(FIRST_BOUND_BITS as usize + BOUNDS - 1 == 24, "the last bound is about 17 s");

/// Durations by size, since start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Requests in each bucket: of at most [`Latencies::bound_micros`], and more than the bucket before it.
    pub buckets: [u64; BOUNDS + 1],
    /// All durations together.
    pub sum: Duration,
}

impl Latencies {
    /// The longest duration of a bucket, in microseconds; none for the last bucket.
    pub fn bound_micros(bucket: usize) -> Option<u64> {
        (bucket < BOUNDS).then(|| 1 << (FIRST_BOUND_BITS as usize + bucket))
    }

    /// One more duration.
    pub fn add(&mut self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(nanos)] += 1;
        self.sum = self.sum.saturating_add(took);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// A coordinator's counters of one kind of request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFigures {
    /// How long requests took, those that failed included and those that were refused before they began apart.
    pub latencies: Latencies,
    /// Requests whose replicas did not answer in time.
    pub timeouts: u64,
    /// Requests that were not tried, because too few replicas live.
    pub unavailable: u64,
    /// Requests that failed on a replica.
    pub failures: u64,
}

/// [`RequestFigures`] while they are counted.
#[derive(Debug)]
pub(crate) struct Counters {
    buckets: [Cell<u64>; BOUNDS + 1],
    sum_nanos: Cell<u64>,
    timeouts: Cell<u64>,
    unavailable: Cell<u64>,
    failures: Cell<u64>,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| Cell::new(0)),
            sum_nanos: Cell::new(0),
            timeouts: Cell::new(0),
            unavailable: Cell::new(0),
            failures: Cell::new(0),
        }
    }
}

fn add(counter: &Cell<u64>, more: u64) {
    counter.set(counter.get().wrapping_add(more));
}

impl Counters {
    /// A request ended.
    #[inline]
    pub(crate) fn ended<T>(&self, took: Duration, result: &Result<T, RequestError>) {
        let nanos = took.as_nanos() as u64;
        add(&self.buckets[bucket_of(nanos)], 1);
        add(&self.sum_nanos, nanos);
        if let Err(error) = result {
            self.failed(error);
        }
    }

    /// A request failed, or was refused before it began.
    #[cold]
    pub(crate) fn failed(&self, error: &RequestError) {
        match error {
            RequestError::ReadTimeout { .. }
            | RequestError::WriteTimeout { .. }
            | RequestError::CasTimeout { .. }
            | RequestError::CasUncertain { .. } => add(&self.timeouts, 1),
            RequestError::Unavailable { .. } => add(&self.unavailable, 1),
            RequestError::ReadFailure { .. } | RequestError::WriteFailure { .. } => add(&self.failures, 1),
            // The client's own mistakes.
            _ => {}
        }
    }

    pub(crate) fn figures(&self) -> RequestFigures {
        RequestFigures {
            latencies: Latencies {
                buckets: std::array::from_fn(|bucket| self.buckets[bucket].get()),
                sum: Duration::from_nanos(self.sum_nanos.get()),
            },
            timeouts: self.timeouts.get(),
            unavailable: self.unavailable.get(),
            failures: self.failures.get(),
        }
    }
}

/// The bucket of a duration.
#[inline]
fn bucket_of(nanos: u64) -> usize {
    // A value above a whole bound belongs to the next bucket.
    let micros = nanos.div_ceil(1000);
    let bits = u64::BITS - micros.saturating_sub(1).leading_zeros();
    (bits.saturating_sub(FIRST_BOUND_BITS) as usize).min(BOUNDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_bucket_whose_bound_is_not_below_it() {
        for nanos in [0, 1, 999, 15_999, 16_000, 16_001, 32_000, 32_001, 1_000_000, 20_000_000_000, u64::MAX]
        {
            let bucket = bucket_of(nanos);
            if let Some(bound) = Latencies::bound_micros(bucket) {
                assert!(nanos <= bound * 1000, "{nanos} in bucket {bucket}");
            }
            if bucket > 0 {
                let below = Latencies::bound_micros(bucket - 1).unwrap();
                assert!(nanos > below * 1000, "{nanos} in bucket {bucket}");
            }
        }
        assert_eq!(Latencies::bound_micros(20), Some(1 << 24));
        assert_eq!(Latencies::bound_micros(21), None);
    }

    #[test]
    fn a_request_is_counted_once_with_how_it_ended() {
        let counters = Counters::default();
        counters.ended(Duration::from_micros(20), &Ok(()));
        counters.ended::<()>(
            Duration::from_millis(5),
            &Err(RequestError::Unavailable { consistency: crate::Consistency::Two, required: 2, alive: 1 }),
        );
        let figures = counters.figures();
        assert_eq!((figures.latencies.count(), figures.unavailable, figures.timeouts), (2, 1, 0));
        assert_eq!(figures.latencies.sum, Duration::from_micros(5020));
    }
}
