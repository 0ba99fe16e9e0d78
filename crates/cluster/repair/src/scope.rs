//! The scope of one repair, as all that take part in it agree: the table, the tokens, and the rules by which two nodes'
//! data are the same.

use std::sync::Arc;

use mutation::{PartitionRange, RingPosition, Seconds};
use schema::Table;
use topology::{Sharder, TokenRange};

/// A part of every range, so that the shards of a node share the work: the tokens that a node of `of` shards keeps on
/// shard `number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slice {
    /// Which part, from 0.
    pub number: u16,
    /// How many parts there are; at least 1.
    pub of: u16,
}

impl Slice {
    /// Everything.
    pub const ALL: Self = Self { number: 0, of: 1 };

    /// Whether a token is in it.
    pub fn contains(&self, token: i64) -> bool {
        Sharder::new(self.of).shard_of(token) == self.number
    }

    /// The shards of a node of `shard_count` shards that keep tokens of it, one after the other. With as many parts as the
    /// smallest node has shards, each part meets few shards of every node, and exactly one where the counts are equal.
    pub fn shards(&self, shard_count: u16) -> impl Iterator<Item = u16> + use<> {
        let (number, of, count) = (u32::from(self.number), u32::from(self.of), u32::from(shard_count));
        let first = number * count / of;
        let last = ((number + 1) * count).div_ceil(of);
        (first as u16)..(last as u16)
    }
}

/// The scope and the form of the comparison.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Which table.
    pub table: Arc<Table>,
    /// Which tokens; `after` is below `upto`.
    pub range: TokenRange,
    /// Which part of them.
    pub slice: Slice,
    /// The time at which cells have expired: the same for all, regardless of their clocks.
    pub now: Seconds,
    /// Deletions made before this are past their grace: they are no difference.
    pub gc_before: Seconds,
    /// Hashes begin with it, so that two rows whose hashes happen to be equal differ in the next repair.
    pub seed: u64,
}

impl Scope {
    /// The tokens as a range of partitions.
    pub fn partitions(&self) -> PartitionRange {
        assert!(self.range.after < self.range.upto, "a range that does not go around the ring's end");
        PartitionRange {
            start: RingPosition::AfterToken(self.range.after),
            end: RingPosition::AfterToken(self.range.upto),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every token of a part is on one of the shards that the part names, and each of these has tokens of the part.
    #[test]
    fn a_part_names_the_shards_that_keep_it() {
        for of in 1..=5 {
            for shard_count in of..=9 {
                for number in 0..of {
                    let slice = Slice { number, of };
                    let named: Vec<u16> = slice.shards(shard_count).collect();
                    let sharder = Sharder::new(shard_count);
                    let mut found: Vec<u16> = (0..4_000u64)
                        .map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) as i64)
                        .filter(|token| slice.contains(*token))
                        .map(|token| sharder.shard_of(token))
                        .collect();
                    found.sort_unstable();
                    found.dedup();
                    assert_eq!(found, named, "part {number} of {of} on {shard_count} shards");
                }
            }
        }
    }
}
