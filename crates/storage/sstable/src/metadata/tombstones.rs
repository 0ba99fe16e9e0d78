//! The histogram of when tombstones were made and expiring cells expire, from which compaction estimates the rows that it could
//! drop (`StreamingTombstoneHistogram`).

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::collections::BTreeMap;

use mutation::Seconds;

use crate::{DecodeError, decode::Decoder, deletion};

/// Bins of a finished histogram.
const BINS_MAX: usize = 100;
/// Distinct times that are gathered before they are merged into bins.
const SPOOL_MAX: usize = 4096;
/// Times are rounded up to this many seconds.
const ROUND: Seconds = 60;

/// Times with how many tombstones fell to each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TombstoneHistogram {
    bins: BTreeMap<Seconds, u64>,
}

impl TombstoneHistogram {
    /// The bins in order.
    pub fn bins(&self) -> impl Iterator<Item = (Seconds, u64)> {
        self.bins.iter().map(|(time, count)| (*time, *count))
    }

    /// Estimated number of times before or at `time`.
    pub fn sum(&self, time: Seconds) -> f64 {
        let mut sum = 0.0;
        let mut previous: Option<(Seconds, u64)> = None;
        for (point, count) in self.bins() {
            if point > time {
                let Some((before, before_count)) = previous else {
                    return 0.0;
                };
                // Half of a bin lies on either side of its point; between two points the density changes evenly.
                let weight = f64::from(time - before) / f64::from(point - before);
                let (low, high) = (before_count as f64, count as f64);
                let at_time = low + (high - low) * weight;
                return sum - low + (low + at_time) * weight / 2.0 + low / 2.0;
            }
            sum += count as f64;
            previous = Some((point, count));
        }
        sum
    }

    fn add(&mut self, time: Seconds, count: u64) {
        *self.bins.entry(time).or_default() += count;
        if self.bins.len() > BINS_MAX {
            self.merge_nearest();
        }
        assert!(self.bins.len() <= BINS_MAX, "bins are bounded");
    }

    fn merge_nearest(&mut self) {
        let pairs = self.bins.keys().copied().zip(self.bins.keys().copied().skip(1));
        let Some((first, second)) = pairs.min_by_key(|(first, second)| second - first) else {
            return;
        };
        let one = self.bins.remove(&first).unwrap_or_default();
        let two = self.bins.remove(&second).unwrap_or_default();
        let weighted = u128::from(first) * u128::from(one) + u128::from(second) * u128::from(two);
        let middle = (weighted / u128::from((one + two).max(1))) as Seconds;
        let middle = round_up(middle.clamp(first + 1, second));
        *self.bins.entry(middle).or_default() += one + two;
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let len = self.bins.len() as u32;
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(&len.to_be_bytes());
        for (time, count) in self.bins() {
            out.extend_from_slice(&f64::from(time).to_be_bytes());
            out.extend_from_slice(&count.to_be_bytes());
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let _bins_max = decoder.u32("largest number of bins")?;
        let len = decoder.count(16, "bins of tombstones")?;
        let mut bins = BTreeMap::new();
        for _ in 0..len {
            let time = decoder.f64("time of a bin")?;
            let count = decoder.u64("count of a bin")?;
            let time = if (0.0..f64::from(deletion::LOCAL_MAX)).contains(&time) {
                time as Seconds
            } else {
                deletion::LOCAL_MAX
            };
            let bin: &mut u64 = bins.entry(time).or_default();
            *bin = bin.saturating_add(count);
        }
        Ok(Self { bins })
    }
}

fn round_up(time: Seconds) -> Seconds {
    time.checked_next_multiple_of(ROUND).unwrap_or(deletion::LOCAL_MAX).min(deletion::LOCAL_MAX)
}

/// Gathers times while an SSTable is written.
#[derive(Clone, Debug, Default)]
pub struct TombstoneHistogramBuilder {
    spool: BTreeMap<Seconds, u64>,
    /// The last time that was added, rounded, and how often in a row.
    run: (Seconds, u64),
    /// Times that were added, those of the run apart.
    added: u64,
    histogram: TombstoneHistogram,
}

impl TombstoneHistogramBuilder {
    /// Counts a time.
    #[inline]
    pub fn add(&mut self, time: Seconds) {
        let time = round_up(time);
        if self.run.0 == time {
            self.run.1 += 1;
            return;
        }
        self.end_run();
        self.run = (time, 1);
    }

    fn end_run(&mut self) {
        let (time, count) = std::mem::take(&mut self.run);
        if count > 0 {
            *self.spool.entry(time).or_default() += count;
            if self.spool.len() >= SPOOL_MAX {
                self.flush();
            }
            self.added += count;
        }
        assert!(self.spool.len() < SPOOL_MAX, "distinct times are bounded");
    }

    fn flush(&mut self) {
        for (time, count) in std::mem::take(&mut self.spool) {
            self.histogram.add(time, count);
        }
    }

    /// The histogram of all times.
    pub fn build(mut self) -> TombstoneHistogram {
        self.end_run();
        self.flush();
        let counted: u64 = self.histogram.bins().map(|(_, count)| count).sum();
        assert_eq!(counted, self.added, "each time is counted in one bin");
        self.histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(times in prop::collection::vec(0u32..2_000_000_000, 0..300), few in prop::collection::vec(0u32..500, 0..300)) {
            for times in [times, few] {
                let mut builder = TombstoneHistogramBuilder::default();
                times.iter().for_each(|time| builder.add(*time));
                let histogram = builder.build();
                prop_assert!(histogram.bins.len() <= BINS_MAX);
                prop_assert_eq!(histogram.bins().map(|(_, count)| count).sum::<u64>(), times.len() as u64);
                prop_assert_eq!(histogram.sum(u32::MAX - 1), times.len() as f64);
                let mut out = Vec::new();
                histogram.encode(&mut out);
                prop_assert_eq!(TombstoneHistogram::decode(&mut Decoder::new(&out)).unwrap(), histogram);
            }
        }
    }

    #[test]
    fn sums_between_bins() {
        let mut builder = TombstoneHistogramBuilder::default();
        for (time, count) in [(60, 10), (120, 20)] {
            (0..count).for_each(|_| builder.add(time));
        }
        let histogram = builder.build();
        assert_eq!(histogram.sum(59), 0.0);
        assert_eq!(histogram.sum(60), 5.0);
        assert_eq!(histogram.sum(120), 30.0);
    }

    #[test]
    fn hostile_counts_do_not_overflow() {
        let mut bytes = vec![0, 0, 0, 2, 0, 0, 0, 2];
        for _ in 0..2 {
            bytes.extend_from_slice(&60.0_f64.to_be_bytes());
            bytes.extend_from_slice(&u64::MAX.to_be_bytes());
        }
        let histogram = TombstoneHistogram::decode(&mut Decoder::new(&bytes)).unwrap();
        assert_eq!(histogram.bins().collect::<Vec<_>>(), [(60, u64::MAX)]);
    }
}
