//! Counter contexts: a counter's value is the sum of shards, one a node that has led an increment. A shard is
//! owned by its node, which alone raises its clock; of two versions of a shard the higher clock is the newer.
//!
//! The bytes are Cassandra's (`CounterContext`): a 16-bit count of header entries, the entries (index of a shard,
//! with the sign bit for "global"), then the shards in id order: 16-byte id, 64-bit clock, 64-bit count. All shards
//! written here are global.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use bytes::Bytes;

/// The owner of a shard of a counter: the node's host id.
pub type CounterId = [u8; 16];

const SHARD_LEN: usize = 32;
const GLOBAL: u16 = 0x8000;
/// Shards of a context: their indexes have 15 bits. A cluster has never had so many nodes; a context that another node or a foreign
/// SSTable sent may say so.
const SHARDS_MAX: usize = GLOBAL as usize - 1;

/// One node's part of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CounterShard {
    /// Its owner.
    pub id: CounterId,
    /// Raised by the owner at every change.
    pub clock: i64,
    /// The count of this node so far.
    pub count: i64,
}

/// The shards of a context in id order. Malformed tails (only possible in corrupt files that passed their checksums)
/// are ignored.
#[expect(clippy::expect_used, reason = "a shard has 32 bytes")]
pub fn shards(context: &[u8]) -> impl Iterator<Item = CounterShard> + '_ {
    let header = context.first_chunk::<2>().map_or(0, |len| usize::from(u16::from_be_bytes(*len)));
    let body = context.get(2 + 2 * header..).unwrap_or_default();
    body.as_chunks::<SHARD_LEN>().0.iter().map(|shard| {
        let (id, rest) = shard.split_first_chunk::<16>().expect("32 bytes");
        let (clock, count) = rest.split_first_chunk::<8>().expect("16 bytes");
        CounterShard {
            id: *id,
            clock: i64::from_be_bytes(*clock),
            count: i64::from_be_bytes(count.try_into().expect("8 bytes")),
        }
    })
}

/// A context with these shards, which must be in id order without repetition and fewer than 32,768.
#[expect(clippy::expect_used, reason = "asserted before")]
pub fn encode(shards: &[CounterShard]) -> Bytes {
    assert!(shards.is_sorted_by(|a, b| a.id < b.id), "counter shards are in id order");
    assert!(shards.len() <= SHARDS_MAX, "{} counter shards", shards.len());
    let count = u16::try_from(shards.len()).expect("it was looked at");
    let mut out = Vec::with_capacity(2 + shards.len() * (2 + SHARD_LEN));
    out.extend_from_slice(&count.to_be_bytes());
    for index in 0..count {
        out.extend_from_slice(&(index | GLOBAL).to_be_bytes());
    }
    for shard in shards {
        out.extend_from_slice(&shard.id);
        out.extend_from_slice(&shard.clock.to_be_bytes());
        out.extend_from_slice(&shard.count.to_be_bytes());
    }
    out.into()
}

/// The counter's value.
pub fn total(context: &[u8]) -> i64 {
    shards(context).fold(0, |sum, shard| sum.wrapping_add(shard.count))
}

/// Both contexts in one.
pub fn merge(left: &[u8], right: &[u8]) -> Bytes {
    encode(&newest(shards(left).chain(shards(right))))
}

/// The newest version of each shard, in id order. Of too many the first: the same ones in any order of merges.
fn newest(shards: impl Iterator<Item = CounterShard>) -> Vec<CounterShard> {
    let mut all: Vec<CounterShard> = shards.collect();
    all.sort_by(|a, b| a.id.cmp(&b.id).then_with(|| (b.clock, b.count).cmp(&(a.clock, a.count))));
    all.dedup_by_key(|shard| shard.id);
    all.truncate(SHARDS_MAX);
    all
}

/// The context after its owner `id` has counted `delta` more. `clock_floor` (microseconds now) keeps clocks rising
/// even when the former state was lost.
#[expect(clippy::indexing_slicing, reason = "the search has found the place")]
pub fn add(context: &[u8], id: CounterId, delta: i64, clock_floor: i64) -> Bytes {
    let mut all = newest(shards(context));
    match all.binary_search_by(|shard| shard.id.cmp(&id)) {
        Ok(at) => {
            all[at].clock = clock_floor.max(all[at].clock.saturating_add(1));
            all[at].count = all[at].count.wrapping_add(delta);
        }
        Err(at) => all.insert(at, CounterShard { id, clock: clock_floor, count: delta }),
    }
    all.truncate(SHARDS_MAX);
    encode(&all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(id: u32, clock: i64, count: i64) -> CounterShard {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&id.to_be_bytes());
        CounterShard { id: bytes, clock, count }
    }

    /// As bytes of another node may come: in no order, repeated, too many, with clocks at their end.
    fn written(all: &[CounterShard]) -> Vec<u8> {
        let mut out = vec![0, 0];
        for shard in all {
            out.extend_from_slice(&shard.id);
            out.extend_from_slice(&shard.clock.to_be_bytes());
            out.extend_from_slice(&shard.count.to_be_bytes());
        }
        out
    }

    #[test]
    fn contexts_that_no_node_writes_are_merged_and_added_to() {
        let strange = written(&[shard(9, 1, 5), shard(3, i64::MAX, 7), shard(9, 2, 6)]);
        let added = add(&strange, shard(3, 0, 0).id, 2, 1);
        assert_eq!(shards(&added).collect::<Vec<_>>(), [shard(3, i64::MAX, 9), shard(9, 2, 6)]);
        let many: Vec<CounterShard> = (0..40_000).map(|id| shard(id, 1, 1)).collect();
        let (first, second) = (written(&many[..30_000]), written(&many[10_000..]));
        let merged = merge(&first, &second);
        assert_eq!(merged, merge(&second, &first));
        assert_eq!(shards(&merged).count(), SHARDS_MAX);
        assert_eq!(shards(&add(&merged, shard(50_000, 0, 0).id, 1, 1)).count(), SHARDS_MAX);
    }
}
