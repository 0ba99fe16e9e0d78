//! Which partitions of a table are asked for most, counted for a while on request in a bounded number of places.
//!
//! The count is that of the space-saving algorithm (Metwally, Agrawal, El Abbadi, 2005): a key that has no place takes that of the
//! rarest one together with its count, which is kept as the most by which the new one may be overrated. A key that is requested more often
//! than once in `places` requests is always found.

use std::collections::BTreeSet;

use bytes::Bytes;
use stdx::HashMap;

/// How often a partition was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledKey {
    /// The serialised key of the partition.
    pub key: Bytes,
    /// At most so often.
    pub count: u64,
    /// By so much `count` may be too great.
    pub error: u64,
}

/// The keys that were seen most.
#[derive(Clone, Debug)]
pub struct TopKeys {
    places: usize,
    counts: HashMap<Bytes, (u64, u64)>,
    /// The same by their counts, the rarest first: a request costs the logarithm of the places, and not a look at each.
    by_count: BTreeSet<(u64, Bytes)>,
}

impl TopKeys {
    /// Counts in so many places, at least one.
    pub fn new(places: usize) -> Self {
        Self { places: places.max(1), counts: HashMap::default(), by_count: BTreeSet::new() }
    }

    /// A key was seen.
    pub fn count(&mut self, key: &Bytes) {
        if let Some((count, _)) = self.counts.get_mut(key) {
            let place = self.by_count.take(&(*count, key.clone()));
            let (before, key) = place.expect("each key has a place by its count");
            *count += 1;
            self.by_count.insert((before + 1, key));
            return;
        }
        let mut inherited = 0;
        if self.counts.len() == self.places {
            // By key among equals, so that a simulation repeats itself.
            let (count, rarest) = self.by_count.pop_first().expect("there is a place at least");
            self.counts.remove(&rarest);
            inherited = count;
        }
        self.counts.insert(key.clone(), (inherited + 1, inherited));
        self.by_count.insert((inherited + 1, key.clone()));
        assert!(self.counts.len() <= self.places, "a count takes a bounded number of places");
        assert_eq!(self.counts.len(), self.by_count.len(), "each key has one place");
    }

    /// Keys in places now.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Whether no key was seen.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Adds the counts of another shard, in places of their own.
    pub fn merge(&mut self, other: Self) {
        for (key, (count, error)) in other.counts {
            let (count_before, error_before) = self.counts.get(&key).copied().unwrap_or_default();
            self.by_count.remove(&(count_before, key.clone()));
            let counted = (count_before + count, error_before + error);
            self.by_count.insert((counted.0, key.clone()));
            self.counts.insert(key, counted);
        }
        assert_eq!(self.counts.len(), self.by_count.len(), "each key has one place");
    }

    /// The most frequent ones first, at most so many.
    pub fn top(&self, max: usize) -> Vec<SampledKey> {
        let all = self.counts.iter();
        let mut all: Vec<SampledKey> = all
            .map(|(key, (count, error))| SampledKey { key: key.clone(), count: *count, error: *error })
            .collect();
        all.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
        all.truncate(max);
        all
    }
}

/// The counts of a table.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// Partitions that were read by their key.
    pub reads: TopKeys,
    /// Partitions that were written.
    pub writes: TopKeys,
}

impl Sampled {
    /// Nothing yet, with so many places for each kind.
    pub fn new(places: usize) -> Self {
        Self { reads: TopKeys::new(places), writes: TopKeys::new(places) }
    }

    /// Adds the counts of another shard.
    pub fn merge(&mut self, other: Self) {
        self.reads.merge(other.reads);
        self.writes.merge(other.writes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> Bytes {
        number.to_be_bytes().to_vec().into()
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let mut top = TopKeys::new(4);
        for number in [1, 2, 1, 3, 1, 2] {
            top.count(&key(number));
        }
        let found: Vec<_> =
            top.top(2).into_iter().map(|sampled| (sampled.key, sampled.count, sampled.error)).collect();
        assert_eq!(found, [(key(1), 3, 0), (key(2), 2, 0)]);
        assert_eq!(top.len(), 3);
    }

    #[test]
    fn frequent_keys_are_found_among_many() {
        let mut top = TopKeys::new(16);
        for round in 0..10_000 {
            top.count(&key(1_000 + round));
            if round % 5 == 0 {
                top.count(&key(7));
            }
        }
        let first = &top.top(1)[0];
        assert_eq!(first.key, key(7));
        assert!(first.count >= 2_000 && first.count - first.error <= 2_000, "{first:?}");
        assert_eq!(top.len(), 16, "memory is bounded");
    }

    /// 300,000 requests of as many keys: a look at each of the places would be 15 thousand million steps.
    #[test]
    fn a_request_does_not_cost_a_look_at_each_place() {
        let mut top = TopKeys::new(65_536);
        for number in 0..300_000 {
            top.count(&key(number));
        }
        assert_eq!(top.len(), 65_536);
        let counts: Vec<u64> = top.top(65_536).into_iter().map(|sampled| sampled.count).collect();
        assert_eq!(counts.iter().sum::<u64>(), 300_000, "each request is in one place");
        assert_eq!((counts[0], counts[65_535]), (5, 4), "places are given up in turn");
    }
}
