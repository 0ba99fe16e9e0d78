//! The results of a run: latencies by kind of operation, errors by kind, and CPU time.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::load::cpu::CpuTime;
use crate::load::kind::Kind;

/// Latencies from a microsecond to this are recorded to three digits; longer ones count as this.
const LATENCY_NANOS_MAX: u64 = 600_000_000_000;

/// The kind of error that a wrong answer is counted as.
pub(crate) const WRONG_ANSWER: &str = "wrong answer";

/// Errors of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorCount {
    /// How many.
    pub count: u64,
    /// The text of the first.
    pub example: String,
}

/// The measurements of one shard of the generator.
pub(crate) struct Figures {
    /// Latencies in nanoseconds, by [`Kind`].
    pub(crate) latencies: [Histogram<u64>; Kind::COUNT],
    /// Errors by kind.
    pub(crate) errors: BTreeMap<String, ErrorCount>,
    /// Rows received.
    pub(crate) rows: u64,
    /// Operations of an open loop that were due and never sent, because the server was too far behind.
    pub(crate) unsent: u64,
}

fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, LATENCY_NANOS_MAX, 3).expect("the bounds of latencies are valid")
}

impl Figures {
    pub(crate) fn new() -> Self {
        let latencies = [latencies(), latencies()];
        Figures { latencies, errors: BTreeMap::new(), rows: 0, unsent: 0 }
    }

    pub(crate) fn record(&mut self, kind: Kind, nanos: u64) {
        self.latencies[kind as usize].saturating_record(nanos);
    }

    /// Operations whose latencies were recorded.
    pub(crate) fn recorded(&self) -> u64 {
        self.latencies.iter().map(Histogram::len).sum()
    }

    pub(crate) fn error(&mut self, kind: &str, example: impl FnOnce() -> String) {
        match self.errors.get_mut(kind) {
            Some(error) => error.count += 1,
            None => {
                self.errors.insert(kind.to_owned(), ErrorCount { count: 1, example: example() });
            }
        }
    }

    pub(crate) fn merge(&mut self, other: Figures) {
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            mine.add(theirs).expect("histograms of the same bounds");
        }
        for (kind, error) in other.errors {
            let mine = self.errors.entry(kind).or_default();
            if mine.count == 0 {
                mine.example = error.example;
            }
            mine.count += error.count;
        }
        self.rows += other.rows;
        self.unsent += other.unsent;
    }
}

/// The server's process during the measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerUsage {
    /// CPU time of all its threads.
    pub cpu: CpuTime,
    /// The same by kind of thread, most first.
    pub threads: Vec<(String, CpuTime)>,
    /// Memory at the end, in bytes.
    pub resident_bytes: Option<u64>,
}

/// The figures of a whole run.
pub struct Outcome {
    /// Operations that completed between the two ends of the measurement, errors not among them.
    pub operations: u64,
    /// How long was measured.
    pub elapsed: Duration,
    /// How many operations succeeded in each second of a measurement that is a time.
    pub by_second: Vec<u64>,
    /// Latencies in nanoseconds, by [`Kind`].
    pub(crate) latencies: [Histogram<u64>; Kind::COUNT],
    /// Errors by kind.
    pub errors: BTreeMap<String, ErrorCount>,
    /// Rows received.
    pub rows: u64,
    /// Operations of an open loop that were due and never sent.
    pub unsent: u64,
    /// CPU time of this process.
    pub client: CpuTime,
    /// The server, when its process was named.
    pub server: Option<ServerUsage>,
}

impl Outcome {
    /// Operations that began (of an open loop: were due) inside the measurement and succeeded, whenever that was.
    pub fn counted(&self) -> u64 {
        self.latencies.iter().map(Histogram::len).sum()
    }

    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// How unsteady the rate is: the coefficient of variation of the operations of a second, in parts of 1. None of fewer than two seconds.
    pub fn rate_variation(&self) -> Option<f64> {
        let count = self.by_second.len() as f64;
        if count < 2.0 {
            return None;
        }
        let mean = self.by_second.iter().sum::<u64>() as f64 / count;
        let variance = self.by_second.iter().map(|one| (*one as f64 - mean).powi(2)).sum::<f64>() / count;
        Some(variance.sqrt() / mean.max(1e-9))
    }

    /// Microseconds of CPU an operation.
    pub fn per_operation(&self, micros: u64) -> f64 {
        micros as f64 / (self.operations as f64).max(1.0)
    }

    /// Latency at a quantile from 0 to 1 over operations of every kind, in nanoseconds.
    pub fn latency_nanos(&self, quantile: f64) -> u64 {
        let mut all = self.latencies[0].clone();
        all.add(&self.latencies[1]).expect("histograms of the same bounds");
        all.value_at_quantile(quantile)
    }

    /// Number of wrong answers.
    pub fn wrong(&self) -> u64 {
        self.errors.get(WRONG_ANSWER).map_or(0, |error| error.count)
    }

    /// Adds the errors that were found after the run.
    pub(crate) fn add_findings(&mut self, findings: Vec<String>) {
        for finding in findings {
            let error = self.errors.entry(WRONG_ANSWER.to_owned()).or_default();
            error.count += 1;
            error.example = finding;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variation_of_a_rate() {
        let of = |by_second: &[u64]| {
            let none = CpuTime::default();
            let latencies = [latencies(), latencies()];
            let (errors, elapsed, by_second) = (BTreeMap::new(), Duration::ZERO, by_second.to_vec());
            let outcome = Outcome {
                operations: 0,
                elapsed,
                by_second,
                latencies,
                errors,
                rows: 0,
                unsent: 0,
                client: none,
                server: None,
            };
            outcome.rate_variation()
        };
        assert_eq!((of(&[]), of(&[7])), (None, None));
        assert_eq!(of(&[100, 100, 100]), Some(0.0));
        assert_eq!(of(&[50, 150]), Some(0.5));
    }
}
