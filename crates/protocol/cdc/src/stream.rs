//! Streams: the partitions of a log. A stream is of one range of the ring and one shard, and its own token is in that range and of that
//! shard, so that its rows of a base partition are on that partition's node and shard.
//!
//! | bits of an id, from the first | meaning |
//! |---|---|
//! | 64 | chosen, so that the token of the id is where it should be |
//! | 38 | drawn from the generation, the range and the shard |
//! | 22 | number of the range in its generation |
//! | 4 | version: 1 |

use schema::CdcGeneration;
use stdx::murmur3;
use topology::Sharder;

const VERSION: u64 = 1;
const RANGE_BITS: u32 = 22;
const VERSION_BITS: u32 = 4;

/// Ids that are tried for a stream. A range that is smaller than one such part of the ring may have a stream whose token is elsewhere: its
/// changes are sent to the replicas of that token.
const TRIES_MAX: u64 = 1 << 16;

/// The id of a stream, which is the partition key of its part of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub [u8; 16]);

impl StreamId {
    /// The number of its range.
    pub fn range(&self) -> u32 {
        let low = u64::from_be_bytes(*self.0.last_chunk().expect("16 bytes"));
        ((low >> VERSION_BITS) & ((1 << RANGE_BITS) - 1)) as u32
    }

    /// The token of its partition.
    pub fn token(&self) -> i64 {
        murmur3::token(&self.0)
    }
}

/// The stream for changes of partitions with a token.
pub fn stream_of(generation: &CdcGeneration, token: i64) -> StreamId {
    let range = generation.vnode_of(token);
    let shard = Sharder::new(generation.vnodes[range].shards).shard_of(token);
    stream(generation, range, shard)
}

/// The streams of a range, one for each shard of its owner.
pub fn streams_of(generation: &CdcGeneration, range: usize) -> impl Iterator<Item = StreamId> + '_ {
    (0..generation.vnodes[range].shards).map(move |shard| stream(generation, range, shard))
}

/// The same on every node.
fn stream(generation: &CdcGeneration, range: usize, shard: u16) -> StreamId {
    let vnode = generation.vnodes[range];
    let mut seed = Vec::with_capacity(18);
    seed.extend_from_slice(&generation.start_millis.to_be_bytes());
    seed.extend_from_slice(&vnode.upto.to_be_bytes());
    seed.extend_from_slice(&shard.to_be_bytes());
    let [first, second] = murmur3::hash128(&seed, 0);
    let number = range as u64 & ((1 << RANGE_BITS) - 1);
    let low = second << (RANGE_BITS + VERSION_BITS) | number << VERSION_BITS | VERSION;
    let candidate = |attempt: u64| {
        let mut id = [0; 16];
        // Odd, so that no two attempts are the same.
        let chosen = first.wrapping_add(attempt.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        id[..8].copy_from_slice(&chosen.to_be_bytes());
        id[8..].copy_from_slice(&low.to_be_bytes());
        StreamId(id)
    };
    let sharder = Sharder::new(vnode.shards);
    let fits = |id: &StreamId| {
        let token = id.token();
        generation.vnode_of(token) == range && sharder.shard_of(token) == shard
    };
    (0..TRIES_MAX).map(candidate).find(fits).unwrap_or_else(|| candidate(0))
}
