//! Shards: equal parts of the ring of tokens, the same for as long as the stream lives. A change of the nodes neither closes nor opens one; it
//! only changes which streams of the log have the changes of a part.

use std::cell::RefCell;
use std::rc::Rc;

use cdc::{StreamId, streams_of};
use coordinator::ClusterView;
use rt::preempt::Pace;
use schema::CdcGeneration;
use stdx::HashMap;

/// The most shards of a stream, as a power of two.
pub(crate) const SHARD_BITS_MAX: u32 = 6;
/// Names of ranges whose streams are remembered.
const RANGES_MAX: usize = 65_536;

/// The shards of a stream that is enabled now, as a power of two: one for each shard of the nodes, so that consumers can share the work
/// as the nodes do, but not more than there are ranges.
pub(crate) fn shard_bits(view: &ClusterView) -> u32 {
    let members = view.members();
    let shards: usize = members.iter().map(|node| usize::from(node.shards)).sum();
    let ranges: usize = members.iter().map(|node| node.tokens.len()).sum();
    let most = shards.clamp(1, ranges.max(1));
    most.ilog2().min(SHARD_BITS_MAX)
}

/// The first and last token of a shard.
pub(crate) fn tokens(shard_bits: u32, shard: u32) -> (i64, i64) {
    if shard_bits == 0 {
        return (i64::MIN, i64::MAX);
    }
    let shift = 64 - shard_bits;
    let first = u64::from(shard) << shift;
    let last = first | (u64::MAX >> shard_bits);
    let signed = |token: u64| (token ^ 1 << 63) as i64;
    (signed(first), signed(last))
}

/// The shard of a token.
pub(crate) fn shard_of(shard_bits: u32, token: i64) -> u32 {
    match shard_bits {
        0 => 0,
        bits => ((token as u64 ^ 1 << 63) >> (64 - bits)) as u32,
    }
}

/// The name of a shard of a stream that began at a time.
pub(crate) fn shard_id(start_millis: i64, shard: u32) -> String {
    format!("shardId-{start_millis:020}-{shard:08x}")
}

/// The shard of a name.
pub(crate) fn shard_of_id(start_millis: i64, shard_bits: u32, id: &str) -> Option<u32> {
    let (_, number) = id.rsplit_once('-')?;
    let shard = u32::from_str_radix(number, 16).ok().filter(|shard| *shard < 1 << shard_bits)?;
    (shard_id(start_millis, shard) == id).then_some(shard)
}

/// The ranges of a generation that have tokens of a shard.
fn ranges_of(generation: &CdcGeneration, shard_bits: u32, shard: u32) -> Vec<usize> {
    let (first, last) = tokens(shard_bits, shard);
    let behind_all = generation.vnodes.len();
    let at = |token: i64| generation.vnodes.partition_point(|vnode| vnode.upto < token);
    // The first range also has the tokens behind the last one's end.
    let mut ranges: Vec<usize> =
        (at(first)..=at(last)).map(|range| if range == behind_all { 0 } else { range }).collect();
    ranges.sort_unstable();
    ranges.dedup();
    ranges
}

/// Names a range: the start of its generation, and its last token.
type RangePlace = (i64, i64);

/// The streams of ranges that were looked for: to find one takes some time.
#[derive(Default)]
pub(crate) struct KnownStreams(RefCell<HashMap<RangePlace, Rc<[StreamId]>>>);

impl KnownStreams {
    /// The streams of the log that have the changes of a shard in a generation; some have changes of others as well.
    pub(crate) async fn of_shard(
        &self,
        generation: &CdcGeneration,
        shard_bits: u32,
        shard: u32,
    ) -> Vec<StreamId> {
        let (mut ids, mut pace) = (Vec::new(), Pace::default());
        for range in ranges_of(generation, shard_bits, shard) {
            let Some(vnode) = generation.vnodes.get(range) else { continue };
            let place = (generation.start_millis, vnode.upto);
            let known = self.0.borrow().get(&place).cloned();
            let found = match known {
                Some(found) => found,
                None => {
                    let mut found = Vec::new();
                    for id in streams_of(generation, range) {
                        found.push(id);
                        pace.count(64);
                        pace.step().await;
                    }
                    let found: Rc<[StreamId]> = found.into();
                    let mut known = self.0.borrow_mut();
                    if known.len() >= RANGES_MAX {
                        known.clear();
                    }
                    known.insert(place, found.clone());
                    found
                }
            };
            ids.extend_from_slice(&found);
        }
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::CdcVnode;

    #[test]
    fn every_token_is_in_one_shard() {
        for bits in 0..=SHARD_BITS_MAX {
            let mut next = i64::MIN;
            for shard in 0..1 << bits {
                let (first, last) = tokens(bits, shard);
                assert_eq!(first, next, "{bits} {shard}");
                assert_eq!((shard_of(bits, first), shard_of(bits, last)), (shard, shard));
                next = last.wrapping_add(1);
            }
            assert_eq!(next, i64::MIN, "the last one ends with the ring");
        }
    }

    #[test]
    fn a_shard_has_the_ranges_of_its_tokens() {
        let rings: [&[i64]; 4] =
            [&[0], &[i64::MIN, 0, i64::MAX], &[-5, 5, i64::MAX / 2 + 9], &[i64::MIN / 2, -7, 3, 9]];
        for ends in rings {
            let vnodes = ends.iter().map(|upto| CdcVnode { upto: *upto, shards: 1 }).collect();
            let generation = CdcGeneration { start_millis: 0, vnodes };
            for bits in 0..=4 {
                for shard in 0..1 << bits {
                    let found = ranges_of(&generation, bits, shard);
                    let (first, last) = tokens(bits, shard);
                    let ends = ends.iter().flat_map(|end| [*end, end.saturating_add(1)]);
                    let inside = ends.chain([first, last]).filter(|token| (first..=last).contains(token));
                    let mut wanted: Vec<usize> = inside.map(|token| generation.vnode_of(token)).collect();
                    wanted.sort_unstable();
                    wanted.dedup();
                    assert_eq!(found, wanted, "{bits} {shard} of {:?}", generation.vnodes);
                }
            }
        }
    }

    #[test]
    fn names_of_shards_are_read_as_they_were_written() {
        let id = shard_id(1_764_000_000_123, 5);
        assert_eq!(id, "shardId-00000001764000000123-00000005");
        assert!((28..=65).contains(&id.len()), "as AWS says");
        assert_eq!(shard_of_id(1_764_000_000_123, 3, &id), Some(5));
        assert_eq!(shard_of_id(1_764_000_000_123, 2, &id), None);
        assert_eq!(shard_of_id(1_764_000_000_124, 3, &id), None);
        for id in ["", "-", "shardId-00000001764000000123-5", "shardId-00000001764000000123-ffffffffff"] {
            assert_eq!(shard_of_id(1_764_000_000_123, 3, id), None, "{id}");
        }
    }
}
