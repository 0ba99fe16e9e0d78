//! `Summary.db`: every so manyth key of the partition index with its offset there, held in memory.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use bytes::Bytes;
use mutation::DecoratedKey;

use crate::{DecodeError, decode::Decoder};

/// How finely Cassandra can thin a summary; files are written with the full sample.
const FULL_SAMPLING: u32 = 128;

/// A sample of the partition index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Every how many keys one is sampled, at full sampling.
    pub interval: u32,
    /// Of 128, how many of the samples were kept.
    pub sampling_level: u32,
    /// How many samples there would be at full sampling.
    pub full_size: u32,
    /// First key of the SSTable.
    pub first: DecoratedKey,
    /// Last key of the SSTable.
    pub last: DecoratedKey,
    entries: Vec<Entry>,
    keys: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    token: i64,
    /// Where the key ends in `keys`; it begins where the one before ends.
    key_end: u32,
    position: u64,
}

/// Bytes of so many samples with their offsets, whose keys have so many bytes.
fn body_len(samples: usize, keys_len: usize) -> usize {
    samples * (4 + 8) + keys_len
}

/// Collects a summary while the index is written.
#[derive(Debug)]
pub struct SummaryBuilder {
    interval: u32,
    keys_seen: u64,
    first: Option<DecoratedKey>,
    last: Option<DecoratedKey>,
    entries: Vec<Entry>,
    keys: Vec<u8>,
}

impl SummaryBuilder {
    /// One that samples every `interval` keys.
    pub fn new(interval: u32) -> Self {
        assert!(interval > 0, "an index interval");
        Self { interval, keys_seen: 0, first: None, last: None, entries: Vec::new(), keys: Vec::new() }
    }

    /// Takes notice of the next key, whose index entry begins at `position`.
    pub fn add(&mut self, key: &DecoratedKey, position: u64) {
        assert!(self.last.as_ref().is_none_or(|last| last < key), "keys come in ring order");
        assert!(
            self.entries.last().is_none_or(|last| last.position < position),
            "entries of the index follow each other"
        );
        let key_end = self.keys.len() + key.key.len();
        // Offsets of samples have 32 bits.
        let has_room = u32::try_from(body_len(self.entries.len() + 1, key_end)).is_ok();
        if self.keys_seen.is_multiple_of(u64::from(self.interval)) && has_room {
            self.keys.extend_from_slice(&key.key);
            self.entries.push(Entry { token: key.token, key_end: key_end as u32, position });
        }
        self.keys_seen += 1;
        if self.first.is_none() {
            self.first = Some(key.clone());
        }
        self.last = Some(key.clone());
    }

    /// The first and the last key so far.
    pub fn bounds(&self) -> Option<(&DecoratedKey, &DecoratedKey)> {
        self.first.as_ref().zip(self.last.as_ref())
    }

    /// How many keys were added.
    pub fn keys_seen(&self) -> u64 {
        self.keys_seen
    }

    /// The summary; none when there was no key.
    pub fn build(self) -> Option<Summary> {
        let full_size = self.keys_seen.div_ceil(u64::from(self.interval));
        assert!(self.entries.len() as u64 <= full_size, "no more keys are sampled than the interval says");
        assert_eq!(self.entries.is_empty(), self.first.is_none(), "the first key is sampled");
        Some(Summary {
            interval: self.interval,
            sampling_level: FULL_SAMPLING,
            full_size: u32::try_from(full_size).unwrap_or(u32::MAX),
            first: self.first?,
            last: self.last?,
            entries: self.entries,
            keys: self.keys,
        })
    }
}

impl Summary {
    /// How many samples there are; never none.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[allow(clippy::indexing_slicing, reason = "ends of keys rise up to the length of all")]
    fn key(&self, entry: usize) -> &[u8] {
        let start = if entry == 0 { 0 } else { self.entries[entry - 1].key_end as usize };
        &self.keys[start..self.entries[entry].key_end as usize]
    }

    /// A sampled key; none past the last sample.
    pub(crate) fn sampled_key(&self, entry: usize) -> Option<&[u8]> {
        (entry < self.entries.len()).then(|| self.key(entry))
    }

    /// Where a sample's index entry begins; none past the last sample.
    pub fn position(&self, entry: usize) -> Option<u64> {
        self.entries.get(entry).map(|entry| entry.position)
    }

    /// The sample at or before `key`: the first one when `key` lies before it.
    pub fn floor(&self, key: &DecoratedKey) -> usize {
        self.last_where(|token, sample| (token, sample) <= (key.token, &key.key))
    }

    /// The last sample of a smaller token, or the first sample.
    pub fn floor_token(&self, token: i64) -> usize {
        self.last_where(|sample, _| sample < token)
    }

    #[allow(clippy::indexing_slicing, reason = "below the number of samples")]
    fn last_where(&self, before: impl Fn(i64, &[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.entries.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if before(self.entries[middle].token, self.key(middle)) {
                low = middle + 1
            } else {
                high = middle
            }
        }
        let at = low.saturating_sub(1);
        assert!(at < self.entries.len(), "a search gives a sample");
        at
    }

    /// The sampled keys in order, for choosing token boundaries.
    pub fn tokens(&self) -> impl Iterator<Item = i64> {
        self.entries.iter().map(|entry| entry.token)
    }

    /// Bytes held.
    pub fn memory_size(&self) -> usize {
        self.keys.len() + self.entries.len() * size_of::<Entry>()
    }

    /// The file's bytes.
    #[expect(clippy::expect_used, reason = "the builder limits the number of samples")]
    pub fn encode(&self) -> Vec<u8> {
        let offsets_len = self.entries.len() * 4;
        let body_len = body_len(self.entries.len(), self.keys.len());
        assert!(u32::try_from(body_len).is_ok(), "offsets of samples have 32 bits");
        let keys_end = self.entries.last().map_or(0, |last| last.key_end as usize);
        assert_eq!(keys_end, self.keys.len(), "every byte of the keys belongs to a sample");
        let mut out = Vec::with_capacity(body_len + 64);
        let count =
            u32::try_from(self.entries.len()).expect("samples were limited by the length of their keys");
        out.extend_from_slice(&self.interval.to_be_bytes());
        out.extend_from_slice(&count.to_be_bytes());
        out.extend_from_slice(&(body_len as u64).to_be_bytes());
        out.extend_from_slice(&self.sampling_level.to_be_bytes());
        out.extend_from_slice(&self.full_size.to_be_bytes());
        // Offsets count from their own start and, like positions, are little-endian.
        let body_start = out.len();
        let mut at = offsets_len;
        for entry in 0..self.entries.len() {
            out.extend_from_slice(&(at as u32).to_le_bytes());
            at += self.key(entry).len() + 8;
        }
        for (at, entry) in self.entries.iter().enumerate() {
            out.extend_from_slice(self.key(at));
            out.extend_from_slice(&entry.position.to_le_bytes());
        }
        assert_eq!(at, body_len, "the last offset leads to the end of the samples");
        assert_eq!(out.len() - body_start, body_len, "the samples are as long as the header says");
        for key in [&self.first, &self.last] {
            out.extend_from_slice(&(key.key.len() as u32).to_be_bytes());
            out.extend_from_slice(&key.key);
        }
        out
    }

    /// Decodes the output of [`Summary::encode`]. `index_len` is the length of the index file, below which every position must
    /// lie.
    ///
    /// # Errors
    /// A [`DecodeError`] when the bytes are cut off, sampling level or counts are out of range, or the samples are not
    /// in order or point beyond the index.
    pub fn decode(bytes: &[u8], index_len: u64) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let interval = decoder.u32("index interval")?;
        let count = decoder.u32("number of samples")? as usize;
        let body_len = decoder.u64("length of samples")?;
        let sampling_level = decoder.u32("sampling level")?;
        let full_size = decoder.u32("size at full sampling")?;
        if interval == 0 || !(1..=FULL_SAMPLING).contains(&sampling_level) || count == 0 {
            let found = format!("{interval}, {sampling_level} and {count}");
            return Err(DecodeError::new(0, "an interval, a sampling level of 1 to 128, and samples", found));
        }
        let base = decoder.offset();
        let body = decoder.bytes(usize::try_from(body_len).unwrap_or(usize::MAX), "samples")?;
        let wrong =
            |offset: usize, expected: &str, found: String| DecodeError::new(base + offset, expected, found);
        let offsets_len = count.checked_mul(4).filter(|len| *len <= body.len());
        let Some((offsets, _)) = offsets_len.and_then(|len| body.split_at_checked(len)) else {
            return Err(wrong(0, "offsets of all samples", format!("{} bytes", body.len())));
        };
        let mut starts: Vec<usize> =
            offsets.as_chunks::<4>().0.iter().map(|offset| u32::from_le_bytes(*offset) as usize).collect();
        starts.push(body.len());
        let mut entries = Vec::with_capacity(count);
        let mut keys = Vec::with_capacity(body.len().saturating_sub(offsets.len() + count * 8));
        let mut expected_start = offsets.len();
        let mut last: Option<(i64, u64)> = None;
        for (at, pair) in starts.windows(2).enumerate() {
            let &[start, end] = pair else { continue };
            let entry = body.get(start..end).and_then(<[u8]>::split_last_chunk::<8>);
            let Some((key, position)) = entry.filter(|_| start == expected_start) else {
                return Err(wrong(
                    at * 4,
                    "a sample of at least 8 bytes after the one before",
                    format!("{start} to {end}"),
                ));
            };
            expected_start = end;
            let position = u64::from_le_bytes(*position);
            let token = stdx::murmur3::token(key);
            let rising = last.is_none_or(|(before, place)| token >= before && position > place);
            if position >= index_len || !rising {
                return Err(wrong(
                    end - 8,
                    "rising positions within the index, of keys in order",
                    position.to_string(),
                ));
            }
            last = Some((token, position));
            keys.extend_from_slice(key);
            entries.push(Entry { token, key_end: keys.len() as u32, position });
        }
        let first = DecoratedKey::new(Bytes::copy_from_slice(decoder.bytes_u32("first key")?));
        let end = DecoratedKey::new(Bytes::copy_from_slice(decoder.bytes_u32("last key")?));
        decoder.end()?;
        if first > end {
            return Err(DecodeError::new(
                base + body.len(),
                "a first key before the last",
                format!("{first:?} and {end:?}"),
            ));
        }
        Ok(Self { interval, sampling_level, full_size, first, last: end, entries, keys })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(keys in prop::collection::btree_set("[a-z]{0,12}", 1..100), interval in 1u32..20, probe in "[a-z]{0,3}", cut in any::<prop::sample::Index>()) {
            let mut keys: Vec<DecoratedKey> = keys.into_iter().map(|key| DecoratedKey::new(key.into())).collect();
            keys.sort();
            let mut builder = SummaryBuilder::new(interval);
            keys.iter().enumerate().for_each(|(at, key)| builder.add(key, at as u64 * 10));
            let summary = builder.build().unwrap();
            prop_assert_eq!(summary.len(), keys.len().div_ceil(interval as usize));
            let bytes = summary.encode();
            prop_assert_eq!(&Summary::decode(&bytes, keys.len() as u64 * 10).unwrap(), &summary);
            prop_assert!(Summary::decode(&bytes[..cut.index(bytes.len())], keys.len() as u64 * 10).is_err());
            prop_assert!(Summary::decode(&bytes, summary.position(summary.len() - 1).unwrap()).is_err());
            let probe = DecoratedKey::new(probe.into());
            let sampled: Vec<&DecoratedKey> = keys.iter().step_by(interval as usize).collect();
            prop_assert_eq!(summary.floor(&probe), sampled.iter().filter(|key| ***key <= probe).count().saturating_sub(1));
            prop_assert_eq!(
                summary.floor_token(probe.token),
                sampled.iter().filter(|key| key.token < probe.token).count().saturating_sub(1)
            );
        }
    }
}
