//! Latencies and failures of requests, counted in one place, for data on any node.

use std::cell::Cell;
use std::time::Duration;

use rt::metrics::Latencies;

use crate::RequestError;

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
    buckets: [Cell<u64>; Latencies::BUCKETS],
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
        add(&self.buckets[Latencies::bucket_of(nanos)], 1);
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

#[cfg(test)]
mod tests {
    use super::*;

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
