//! `Filter.db`: the bloom filter of an SSTable's partition keys, bit for bit as Cassandra's.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::cell::OnceCell;

use mutation::DecoratedKey;

use crate::{DecodeError, Version, decode::Decoder};

/// Both halves of a key's Murmur3 hash, of which all probes are made.
pub type KeyHash = [u64; 2];

/// The hash of a partition key.
#[inline]
pub fn key_hash(key: &[u8]) -> KeyHash {
    stdx::murmur3::hash128(key, 0)
}

/// A partition key whose hash is computed once, for the filters of all SSTables that are asked, and not at all where none is.
pub struct HashedKey<'a> {
    pub(crate) key: &'a DecoratedKey,
    hash: OnceCell<KeyHash>,
}

impl<'a> HashedKey<'a> {
    /// This key.
    pub fn new(key: &'a DecoratedKey) -> Self {
        Self { key, hash: OnceCell::new() }
    }

    /// The key.
    pub fn key(&self) -> &'a DecoratedKey {
        self.key
    }

    #[inline]
    pub(crate) fn hash(&self) -> KeyHash {
        *self.hash.get_or_init(|| key_hash(&self.key.key))
    }
}

/// A bloom filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    hashes: u32,
    words: Vec<u64>,
}

/// Hash functions beyond this number are not believed.
const HASHES_MAX: u32 = 64;
const BITS_PER_KEY_MAX: u32 = 20;
/// From these lengths on, in words, filters have lengths with many divisors, so that they can be folded.
const SMALL_WORDS: usize = 1_200;
const LARGE_WORDS: usize = 36_000;

impl Filter {
    /// A filter for about `keys` keys that lets through a share of at most `fp_chance` of the absent ones; none when that
    /// share is all.
    pub fn new(keys: u64, fp_chance: f64) -> Option<Self> {
        if fp_chance >= 1.0 {
            return None;
        }
        let (hashes, bits_per_key) = Self::shape(fp_chance);
        let words = Self::words_for(keys, bits_per_key);
        let words = words.next_multiple_of(match words {
            LARGE_WORDS.. => 720,
            SMALL_WORDS.. => 24,
            _ => 1,
        });
        assert!((1..=HASHES_MAX).contains(&hashes), "a filter that can be read again");
        assert!(words > 0, "a filter has bits");
        Some(Self { hashes, words: vec![0; words] })
    }

    #[expect(clippy::expect_used, reason = "the number of keys is limited")]
    fn words_for(keys: u64, bits_per_key: u32) -> usize {
        let bits = keys.max(1).saturating_mul(u64::from(bits_per_key)).saturating_add(20);
        usize::try_from(bits.div_ceil(64)).expect("a filter fits the address space")
    }

    /// Makes the filter as small as the keys need that were added, of which there were so many, where more had been expected. A probe is a
    /// remainder by the number of bits, so a filter can be folded to any length that divides its own.
    pub fn shrink_to(&mut self, keys: u64, fp_chance: f64) {
        let (hashes, bits_per_key) = Self::shape(fp_chance);
        assert_eq!(hashes, self.hashes, "a filter keeps its hash functions");
        let len = self.words.len();
        let times = len / Self::words_for(keys, bits_per_key);
        let Some(times) = (2..=times).rev().find(|times| len.is_multiple_of(*times)) else { return };
        let (kept, folded) = self.words.split_at_mut(len / times);
        for part in folded.chunks(len / times) {
            kept.iter_mut().zip(part).for_each(|(word, other)| *word |= other);
        }
        self.words.truncate(len / times);
        self.words.shrink_to_fit();
        assert!(!self.words.is_empty(), "a filter has bits");
    }

    /// The smallest number of bits a key that reaches the share, then the smallest number of hashes that still does.
    #[expect(clippy::expect_used, reason = "the range is not empty")]
    fn shape(fp_chance: f64) -> (u32, u32) {
        let chance = |hashes: u32, bits: u32| {
            let exact = (1.0 - (-f64::from(hashes) / f64::from(bits)).exp()).powi(hashes as i32);
            // Cassandra's table has three digits.
            let scale = 10f64.powi(2 - exact.log10().floor() as i32);
            (exact * scale).round() / scale
        };
        let best = |bits: u32| {
            (1..=bits)
                .min_by(|a, b| chance(*a, bits).total_cmp(&chance(*b, bits)))
                .expect("bits is at least 1")
        };
        let bits = (2..BITS_PER_KEY_MAX).find(|bits| chance(best(*bits), *bits) <= fp_chance);
        let bits = bits.unwrap_or(BITS_PER_KEY_MAX);
        let mut hashes = best(bits);
        while hashes > 1 && chance(hashes - 1, bits) <= fp_chance {
            hashes -= 1;
        }
        assert!((2..=BITS_PER_KEY_MAX).contains(&bits), "bits of a key are bounded");
        assert!((1..=bits).contains(&hashes), "no more hashes than bits of a key");
        (hashes, bits)
    }

    /// Adds a key.
    pub fn insert(&mut self, hash: KeyHash) {
        for (word, mask) in Self::probes(self.hashes, self.words.len(), hash) {
            if let Some(word) = self.words.get_mut(word) {
                *word |= mask;
            }
        }
        debug_assert!(self.may_contain(hash), "what was added is found");
    }

    /// Whether a key may have been added; `false` is certain.
    #[inline]
    pub fn may_contain(&self, hash: KeyHash) -> bool {
        let is_set = |(word, mask): (usize, u64)| self.words.get(word).is_some_and(|word| word & mask != 0);
        Self::probes(self.hashes, self.words.len(), hash).all(is_set)
    }

    #[inline]
    fn probes(hashes: u32, words: usize, hash: KeyHash) -> impl Iterator<Item = (usize, u64)> {
        // The second half is the start, the first the step; remainders are signed, as Java's.
        let bits = words as i64 * 64;
        (0..i64::from(hashes)).map(move |probe| {
            let at = (hash[1] as i64).wrapping_add(probe.wrapping_mul(hash[0] as i64));
            let bit = (at % bits).unsigned_abs();
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }

    /// Bytes held.
    pub fn memory_size(&self) -> usize {
        self.words.len() * 8
    }

    /// The file's bytes, in the current version.
    #[expect(clippy::expect_used, reason = "the number of keys is limited")]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + self.words.len() * 8);
        out.extend_from_slice(&self.hashes.to_be_bytes());
        let words = u32::try_from(self.words.len()).expect("a filter is below 32 GiB");
        out.extend_from_slice(&words.to_be_bytes());
        for word in &self.words {
            out.extend_from_slice(&word.to_le_bytes());
        }
        assert_eq!(out.len(), 8 + self.words.len() * 8, "a filter is as long as its header says");
        out
    }

    /// Decodes the output of [`Filter::encode`], or of versions before 4.0.
    ///
    /// # Errors
    /// A [`DecodeError`] when the bytes are cut off, something follows them, or the numbers of hashes or words are out
    /// of range.
    pub fn decode(bytes: &[u8], version: Version) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let hashes = decoder.u32("number of hashes")?;
        if !(1..=HASHES_MAX).contains(&hashes) {
            return Err(decoder.wrong(4, format!("1 to {HASHES_MAX} hashes"), hashes.to_string()));
        }
        let count = decoder.count(8, "words")?;
        if count == 0 {
            return Err(decoder.wrong(4, "at least one word", "0"));
        }
        let (raw, _) = decoder.bytes(count * 8, "words")?.as_chunks::<8>();
        decoder.end()?;
        let words = if version.capabilities().has_plain_filter {
            raw.iter().map(|word| u64::from_le_bytes(*word)).collect()
        } else {
            raw.iter().map(|word| u64::from_be_bytes(*word)).collect()
        };
        Ok(Self { hashes, words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shapes() {
        // Cassandra's values for the usual chances.
        for (chance, shape) in [(0.01, (5, 10)), (0.1, (3, 5)), (0.001, (7, 15)), (0.5, (1, 2))] {
            assert_eq!(Filter::shape(chance), shape, "{chance}");
        }
        assert_eq!(Filter::shape(0.0).1, BITS_PER_KEY_MAX);
        assert!(Filter::new(1, 1.0).is_none());
    }

    #[test]
    fn absent_keys_are_mostly_refused() {
        let mut filter = Filter::new(10_000, 0.01).unwrap();
        (0u32..10_000).for_each(|key| filter.insert(key_hash(&key.to_be_bytes())));
        let let_through =
            (10_000u32..110_000).filter(|key| filter.may_contain(key_hash(&key.to_be_bytes()))).count();
        assert!(let_through < 1500, "{let_through} of 100000");
    }

    #[test]
    fn a_filter_for_too_many_keys_is_folded() {
        for (expected, keys) in [(100_000, 40_000), (1_000_000, 9_000), (3_000_000, 1), (20_000, 3_000)] {
            let mut filter = Filter::new(expected, 0.01).unwrap();
            let large = filter.memory_size();
            (0..keys).for_each(|key: u32| filter.insert(key_hash(&key.to_be_bytes())));
            filter.shrink_to(u64::from(keys), 0.01);
            assert!((0..keys).all(|key| filter.may_contain(key_hash(&key.to_be_bytes()))), "all are found");
            let exact = Filter::new(u64::from(keys), 0.01).unwrap().memory_size();
            let size = filter.memory_size();
            assert!(size <= large / 2 && size <= exact * 2 && size * 2 > exact, "{large} {size} {exact}");
            let absent =
                (keys..keys + 100_000).filter(|key| filter.may_contain(key_hash(&key.to_be_bytes())));
            assert!(absent.count() < 1500);
            assert_eq!(Filter::decode(&filter.encode(), Version::Nb).unwrap(), filter);
        }
        let mut fits = Filter::new(50_000, 0.01).unwrap();
        let before = fits.memory_size();
        fits.shrink_to(50_000, 0.01);
        assert_eq!(fits.memory_size(), before);
    }

    proptest! {
        #[test]
        fn round_trip(keys in prop::collection::vec(any::<[u8; 5]>(), 0..50), estimate in 0u64..100, chance in 0.0001f64..0.9) {
            let mut filter = Filter::new(estimate, chance).unwrap();
            keys.iter().for_each(|key| filter.insert(key_hash(key)));
            let bytes = filter.encode();
            let read = Filter::decode(&bytes, Version::Nb).unwrap();
            prop_assert!(keys.iter().all(|key| read.may_contain(key_hash(key))));
            prop_assert_eq!(&read, &filter);
            prop_assert!(Filter::decode(&bytes[..bytes.len() - 1], Version::Nb).is_err());
            // The older form has the bytes of each word turned round.
            let mut old = bytes.clone();
            old[8..].chunks_mut(8).for_each(<[u8]>::reverse);
            prop_assert_eq!(Filter::decode(&old, Version::Me).unwrap(), filter);
        }
    }
}
