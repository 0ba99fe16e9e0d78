//! Numbers of SSTables: each shard of a node takes its own, so that they never meet.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use sstable::{Component, Descriptor, Generation};

/// The next generation of a shard after one that is taken.
pub(crate) fn next_generation_after(taken: u64, shard: u16, count: u16) -> u64 {
    let (shard, count) = (u64::from(shard), u64::from(count.max(1)));
    assert!(shard < count, "a shard is one of its node's");
    let round = taken / count;
    let candidate = round * count + shard;
    // Generations begin at 1.
    let next = if candidate > taken && candidate > 0 { candidate } else { candidate + count };
    assert!(next > taken, "generations rise");
    assert_eq!(next % count, shard, "a generation names its shard");
    next
}

/// Generations from here on are not given out, and not counted on from: the names of files are not trusted.
const GENERATION_MAX: u64 = 1 << 62;

/// The shard that an SSTable's number belongs to; none for other kinds of generations.
pub(crate) fn shard_of_generation(descriptor: &Descriptor, count: u16) -> Option<u16> {
    match descriptor.generation {
        Generation::Number(number) => Some((number % u64::from(count.max(1))) as u16),
        Generation::Time(_) => None,
    }
}

/// The number of a file's SSTable, whether complete or not.
pub(crate) fn generation_of_name(name: &str) -> Option<u64> {
    let name = name.strip_suffix(".tmp").unwrap_or(name);
    let (descriptor, _): (Descriptor, Component) = Descriptor::parse(name)?;
    match descriptor.generation {
        Generation::Number(number) => Some(number).filter(|number| *number < GENERATION_MAX),
        Generation::Time(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_of_shards_never_meet() {
        for count in 1..5u16 {
            for shard in 0..count {
                let mut taken = 0;
                for _ in 0..5 {
                    let next = next_generation_after(taken, shard, count);
                    assert!(next > taken && next > 0 && next % u64::from(count) == u64::from(shard));
                    assert!(next <= taken + u64::from(count));
                    taken = next;
                }
            }
        }
        assert_eq!(generation_of_name("nb-12-big-Data.db"), Some(12));
        assert_eq!(generation_of_name(&format!("nb-{}-big-Data.db", u64::MAX)), None);
        assert_eq!(generation_of_name("nb-3gub_0a2o_2xnhc2ejdkv5ccufvt-big-Data.db"), None);
    }
}
