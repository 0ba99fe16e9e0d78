//! Size-tiered compaction: SSTables of similar size are merged when there are enough of them.

use crate::candidate::Candidate;
use crate::choice::{Choice, Reason};
use crate::pending::Pending;
use crate::settings::Settings;

/// Settings, named as CQL names them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeTiered {
    /// Least number of SSTables to merge.
    pub min_threshold: usize,
    /// Most of them.
    pub max_threshold: usize,
    /// Below this many bytes all are of one size.
    pub min_sstable_size: u64,
    /// An SSTable belongs to a bucket down to this part of the bucket's mean.
    pub bucket_low: f64,
    /// And up to this.
    pub bucket_high: f64,
}

impl SizeTiered {
    pub(crate) fn of(settings: &Settings<'_>) -> Self {
        let min_threshold = settings.get("min_threshold", 4usize).max(2);
        Self {
            min_threshold,
            max_threshold: settings.get("max_threshold", 32usize).max(min_threshold),
            min_sstable_size: settings.get("min_sstable_size", 50 << 20),
            bucket_low: settings.get("bucket_low", 0.5),
            bucket_high: settings.get("bucket_high", 1.5),
        }
    }

    /// Groups of similar size, smallest first.
    fn buckets<'a>(&self, candidates: impl IntoIterator<Item = &'a Candidate>) -> Vec<Vec<&'a Candidate>> {
        let mut sorted: Vec<&Candidate> = candidates.into_iter().collect();
        sorted.sort_by_key(|one| (one.bytes, one.id));
        let mut buckets: Vec<(f64, Vec<&Candidate>)> = Vec::new();
        for one in sorted {
            let bytes = one.bytes as f64;
            let small = self.min_sstable_size as f64;
            let fits = |mean: f64| {
                (mean * self.bucket_low < bytes && bytes < mean * self.bucket_high)
                    || (bytes < small && mean < small)
            };
            match buckets.last_mut() {
                Some((mean, members)) if fits(*mean) => {
                    let count = members.len() as f64;
                    *mean = (*mean * count + bytes) / (count + 1.0);
                    members.push(one);
                }
                _ => buckets.push((bytes, vec![one])),
            }
        }
        buckets.into_iter().map(|(_, members)| members).collect()
    }

    /// The bucket with the most members is merged, its smallest first when there are too many.
    pub(crate) fn choose<'a>(&self, candidates: impl IntoIterator<Item = &'a Candidate>) -> Option<Choice> {
        let buckets = self.buckets(candidates);
        let full = buckets.into_iter().filter(|bucket| bucket.len() >= self.min_threshold);
        let best = full.rev_max_by_len()?;
        Some(Choice::of(best.iter().take(self.max_threshold).map(|one| one.id), Reason::Tier))
    }

    pub(crate) fn pending<'a>(&self, candidates: impl IntoIterator<Item = &'a Candidate>) -> Pending<'a> {
        let mut pending = Pending::default();
        for bucket in self.buckets(candidates) {
            pending.add_group(&bucket, (self.min_threshold, self.max_threshold));
        }
        pending
    }
}

/// The longest, and of several the first.
trait LongestFirst<T> {
    fn rev_max_by_len(self) -> Option<Vec<T>>;
}

impl<T, I: Iterator<Item = Vec<T>>> LongestFirst<T> for I {
    fn rev_max_by_len(self) -> Option<Vec<T>> {
        self.fold(None, |best: Option<Vec<T>>, next| match best {
            Some(best) if best.len() >= next.len() => Some(best),
            _ => Some(next),
        })
    }
}
