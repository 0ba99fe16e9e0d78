//! Histograms of sizes with buckets that grow by a fifth (`EstimatedHistogram`).

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use crate::{DecodeError, decode::Decoder};

/// How many values fell between rising bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeHistogram {
    /// The largest value of each bucket but the last, which takes the rest.
    offsets: Vec<u64>,
    /// One more than there are offsets.
    counts: Vec<u64>,
}

impl SizeHistogram {
    /// For sizes of partitions in bytes.
    pub fn of_partition_sizes() -> Self {
        Self::with_offsets(155)
    }

    /// For numbers of cells of partitions.
    pub fn of_cell_counts() -> Self {
        Self::with_offsets(118)
    }

    fn with_offsets(count: usize) -> Self {
        let next = |last: &u64| {
            let rounded = (*last as f64 * 1.2).round() as u64;
            Some(if rounded == *last { rounded + 1 } else { rounded })
        };
        let offsets: Vec<u64> = std::iter::successors(Some(1), next).take(count).collect();
        assert!(offsets.is_sorted_by(|one, next| one < next), "bounds of buckets rise");
        Self { counts: vec![0; offsets.len() + 1], offsets }
    }

    /// Counts a value.
    #[expect(clippy::expect_used, reason = "the last bucket takes the rest")]
    pub fn add(&mut self, value: u64) {
        let bucket = self.offsets.partition_point(|offset| *offset < value);
        let count = self.counts.get_mut(bucket).expect("the last bucket takes the rest");
        *count = count.saturating_add(1);
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// Bounds and counts of the buckets; the last one has no bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        self.counts.iter().enumerate().map(|(at, count)| (self.offsets.get(at).copied(), *count))
    }

    /// Estimated mean, 0 without values: each value counts as its bucket's bound.
    pub fn mean(&self) -> u64 {
        let (mut elements, mut sum) = (0u128, 0u128);
        for (offset, count) in self.offsets.iter().zip(&self.counts).filter(|(_, count)| **count > 0) {
            elements += u128::from(*count);
            sum = sum.saturating_add(u128::from(*count) * u128::from(*offset));
        }
        sum.div_ceil(elements.max(1)).min(u128::from(u64::MAX)) as u64
    }

    /// The bound below which a share of the values (0 to 1) lies.
    pub fn percentile(&self, share: f64) -> u64 {
        assert!((0.0..=1.0).contains(&share), "a percentile is a share of the values");
        let wanted = (self.count() as f64 * share).floor() as u64;
        let mut seen = 0u64;
        for (offset, count) in self.offsets.iter().zip(&self.counts) {
            seen = seen.saturating_add(*count);
            if seen > 0 && seen >= wanted {
                return *offset;
            }
        }
        0
    }

    /// Adds the counts of another histogram of the same buckets; others are left out.
    pub fn merge(&mut self, other: &Self) {
        if self.offsets == other.offsets {
            for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
                *mine = mine.saturating_add(*theirs);
            }
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        assert_eq!(self.counts.len(), self.offsets.len() + 1, "the last bucket has no bound");
        out.extend_from_slice(&(self.counts.len() as u32).to_be_bytes());
        // The first bound is stored twice.
        let offsets = self.offsets.first().into_iter().chain(&self.offsets);
        for (offset, count) in offsets.zip(&self.counts) {
            out.extend_from_slice(&offset.to_be_bytes());
            out.extend_from_slice(&count.to_be_bytes());
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let buckets = decoder.count(16, "buckets of a histogram")?;
        if buckets < 2 {
            return Err(decoder.wrong(4, "a histogram of at least two buckets", buckets.to_string()));
        }
        let mut offsets = Vec::with_capacity(buckets);
        let mut counts = Vec::with_capacity(buckets);
        for at in 0..buckets {
            let offset = decoder.u64("bound of a bucket")?;
            // The first bound is stored twice.
            if at > 0 {
                if offsets.last().is_some_and(|last| *last >= offset) {
                    return Err(decoder.wrong(8, "rising bounds of buckets", offset.to_string()));
                }
                offsets.push(offset);
            }
            counts.push(decoder.u64("count of a bucket")?);
        }
        Ok(Self { offsets, counts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bounds() {
        let histogram = SizeHistogram::of_partition_sizes();
        assert_eq!(histogram.offsets[..12], [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17]);
        assert_eq!(histogram.offsets.last(), Some(&3_520_571_548_412));
    }

    proptest! {
        #[test]
        fn round_trip(values in prop::collection::vec(0u64..100_000_000, 0..50)) {
            let mut histogram = SizeHistogram::of_cell_counts();
            values.iter().for_each(|value| histogram.add(*value));
            prop_assert_eq!(histogram.count(), values.len() as u64);
            if !values.is_empty() {
                let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
                prop_assert!(histogram.mean() as f64 >= mean * 0.99 && histogram.mean() as f64 <= mean * 1.25 + 2.0);
                let largest = *values.iter().max().unwrap();
                prop_assert!(histogram.percentile(1.0) >= largest);
            }
            let mut out = Vec::new();
            histogram.encode(&mut out);
            prop_assert_eq!(SizeHistogram::decode(&mut Decoder::new(&out)).unwrap(), histogram);
            prop_assert!(SizeHistogram::decode(&mut Decoder::new(&out[..out.len() - 1])).is_err());
        }
    }
}
