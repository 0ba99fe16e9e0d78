//! Tokens to shards of one node: `biased-token-round-robin`, as shard-aware drivers compute it.
//!
//! The ring is cut into 2^ignore_msb pieces, and every piece into one part a shard, so that even a node's few
//! token ranges spread evenly over its shards.

/// The number of most significant token bits that are ignored, as announced to drivers.
pub const SHARDING_IGNORE_MSB: u8 = 12;

/// Maps tokens to the shards of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharder {
    shard_count: u16,
}

impl Sharder {
    /// For a node of so many shards, at least one.
    pub fn new(shard_count: u16) -> Self {
        assert!(shard_count > 0, "a node has a shard");
        Self { shard_count }
    }

    /// How many shards there are.
    pub fn shard_count(&self) -> u16 {
        self.shard_count
    }

    /// The shard that owns a token.
    #[inline]
    pub fn shard_of(&self, token: i64) -> u16 {
        let biased = (token as u64).wrapping_add(1 << 63);
        let spread = biased << SHARDING_IGNORE_MSB;
        ((u128::from(spread) * u128::from(self.shard_count)) >> 64) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_published_examples() {
        // The ring's ends and middle for three shards.
        let sharder = Sharder::new(3);
        assert_eq!(sharder.shard_of(i64::MIN), 0);
        assert_eq!(sharder.shard_of(i64::MAX), 2);
        assert_eq!(sharder.shard_of(0), 0);
        // One 4096th of the ring holds every shard, in order.
        let piece = 1i64 << 52;
        let shards: Vec<u16> = (0..6).map(|i| sharder.shard_of(i * (piece / 6) + 10)).collect();
        assert_eq!(shards, [0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn spreads_evenly() {
        let sharder = Sharder::new(4);
        let mut counts = [0u32; 4];
        for i in 0..10_000u32 {
            counts[usize::from(sharder.shard_of(stdx::murmur3::token(&i.to_be_bytes())))] += 1;
        }
        assert!(counts.iter().all(|count| (2_300..2_700).contains(count)), "{counts:?}");
    }
}
