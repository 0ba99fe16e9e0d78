//! Metrics: beside the type of its figures a crate registers how each metric is read from them. The exporter collects [`Sample`]s, and
//! knows no metric. A new metric is one line in the crate that counts it.

use std::time::Duration;

/// The kind of a metric, in Prometheus's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It rises from the start on.
    Counter,
    /// It is as it is now.
    Gauge,
    /// Durations by size.
    Histogram,
}

impl MetricKind {
    /// Its name in Prometheus's text format.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric of figures of type `F`.
pub struct Metric<F> {
    /// Its name, the same everywhere and for ever: ScyllaDB's where the meaning is the same.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// A sentence for an operator, with the unit.
    pub help: &'static str,
    /// Its samples.
    pub samples: Samples<F>,
}

/// Labels of a sample: names and values.
pub type Labels<'a> = &'a [(&'static str, &'a str)];

/// How samples are read from figures.
pub enum Samples<F> {
    /// One.
    One(fn(&F) -> f64),
    /// One for each set of labels; one that nothing was counted for may be left out.
    Labelled(fn(&F, &mut dyn FnMut(Labels<'_>, f64))),
    /// Durations, one distribution for each set of labels.
    Durations(fn(&F, &mut dyn FnMut(Labels<'_>, &Latencies))),
}

/// The metrics of a type of figures: `counter "name" "Help." |figures| number;`, `gauge …`, `counter … each |figures, each| each(&[("label", value)],
/// number);`, `histogram … |figures| &latencies;`.
#[macro_export]
macro_rules! metrics {
    (@kind counter) => { $crate::metrics::MetricKind::Counter };
    (@kind gauge) => { $crate::metrics::MetricKind::Gauge };
    (@kind histogram) => { $crate::metrics::MetricKind::Histogram };
    (@samples histogram each $value:expr) => { $crate::metrics::Samples::Durations($value) };
    (@samples $kind:ident each $value:expr) => { $crate::metrics::Samples::Labelled($value) };
    (@samples $kind:ident $value:expr) => { $crate::metrics::Samples::One($value) };
    ($($kind:ident $name:literal $help:literal $($value:ident)? |$($argument:ident),+| $read:expr;)*) => {
        &[$($crate::metrics::Metric {
            name: $name,
            kind: $crate::metrics!(@kind $kind),
            help: $help,
            samples: $crate::metrics!(@samples $kind $($value)? |$($argument),+| $read),
        },)*]
    };
}

/// A metric's value at a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The metric's name.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// Its help text.
    pub help: &'static str,
    /// Names and values of labels.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: Value,
}

/// The value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of a counter or gauge.
    Number(f64),
    /// Of a histogram.
    Durations(Box<Latencies>),
}

/// Reads all metrics of figures, with these labels before their own.
pub fn collect<F>(metrics: &[Metric<F>], figures: &F, labels: Labels<'_>, out: &mut Vec<Sample>) {
    let with = |own: Labels<'_>| {
        labels.iter().chain(own).map(|(name, value)| (*name, (*value).to_owned())).collect::<Vec<_>>()
    };
    for Metric { name, kind, help, samples } in metrics {
        let (name, kind, help) = (*name, *kind, *help);
        match samples {
            Samples::One(read) => {
                let value = Value::Number(read(figures));
                out.push(Sample { name, kind, help, labels: with(&[]), value });
            }
            Samples::Labelled(read) => read(figures, &mut |own, number| {
                out.push(Sample { name, kind, help, labels: with(own), value: Value::Number(number) });
            }),
            Samples::Durations(read) => read(figures, &mut |own, latencies| {
                let value = Value::Durations(Box::new(latencies.clone()));
                out.push(Sample { name, kind, help, labels: with(own), value });
            }),
        }
    }
}

/// Upper bounds of the buckets are 16 µs doubled so many times (the last is 2^24 µs, about 17 s), and one without a bound.
const BOUNDS: usize = 21;
/// log2 of the first bound in microseconds.
const FIRST_BOUND_BITS: u32 = 4;

const _: () = assert!(FIRST_BOUND_BITS as usize + BOUNDS - 1 == 24, "the last bound is about 17 s");

/// Durations by size, since start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Durations in each bucket: of at most [`Latencies::bound_micros`], and more than the bucket before it.
    pub buckets: [u64; Latencies::BUCKETS],
    /// All durations together.
    pub sum: Duration,
}

impl Latencies {
    /// How many buckets there are.
    pub const BUCKETS: usize = BOUNDS + 1;

    /// The longest duration of a bucket, in microseconds; none for the last bucket.
    pub fn bound_micros(bucket: usize) -> Option<u64> {
        (bucket < BOUNDS).then(|| 1 << (FIRST_BOUND_BITS as usize + bucket))
    }

    /// The bucket of a duration in nanoseconds.
    #[inline]
    pub fn bucket_of(nanos: u64) -> usize {
        // A value above a whole bound belongs to the next bucket.
        let micros = nanos.div_ceil(1000);
        let bits = u64::BITS - micros.saturating_sub(1).leading_zeros();
        (bits.saturating_sub(FIRST_BOUND_BITS) as usize).min(BOUNDS)
    }

    /// One more duration.
    pub fn add(&mut self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[Self::bucket_of(nanos)] += 1;
        self.sum = self.sum.saturating_add(took);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_bucket_whose_bound_is_not_below_it() {
        for nanos in [0, 1, 999, 15_999, 16_000, 16_001, 32_000, 32_001, 1_000_000, 20_000_000_000, u64::MAX]
        {
            let bucket = Latencies::bucket_of(nanos);
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

    #[derive(Default)]
    struct Figures {
        reads: u64,
        by_verb: Vec<(String, u64)>,
        latencies: Latencies,
    }

    const METRICS: &[Metric<Figures>] = crate::metrics! {
        counter "reads" "Reads." |f| f.reads as f64;
        gauge "verbs" "Verbs." each |f, each| for (verb, count) in &f.by_verb { each(&[("verb", verb)], *count as f64); };
        histogram "read_latency" "Reads, microseconds." each |f, each| each(&[], &f.latencies);
    };

    #[test]
    fn each_metric_is_collected_with_its_labels() {
        let by_verb = vec![("get".to_owned(), 2), ("put".to_owned(), 3)];
        let figures = Figures { reads: 7, by_verb, ..Figures::default() };
        let mut samples = Vec::new();
        collect(METRICS, &figures, &[("shard", "1")], &mut samples);
        let seen: Vec<_> = samples.iter().map(|sample| (sample.name, sample.labels.len())).collect();
        assert_eq!(seen, [("reads", 1), ("verbs", 2), ("verbs", 2), ("read_latency", 1)]);
        assert_eq!(samples[2].labels[1], ("verb", "put".to_owned()));
        assert_eq!(samples[2].value, Value::Number(3.0));
        assert_eq!(samples[3].kind.name(), "histogram");
    }
}
