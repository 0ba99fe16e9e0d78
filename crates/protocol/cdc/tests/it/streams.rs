//! Streams are where the partitions are whose changes they have.

use std::collections::BTreeSet;

use cdc::{StreamId, stream_of, streams_of};
use proptest::prelude::*;
use schema::{CdcGeneration, CdcVnode};
use topology::Sharder;

fn generation() -> impl Strategy<Value = CdcGeneration> {
    let tokens = prop::collection::btree_map(any::<i64>(), 1..5u16, 1..12);
    (any::<i64>(), tokens).prop_map(|(start_millis, tokens)| CdcGeneration {
        start_millis,
        vnodes: tokens.into_iter().map(|(upto, shards)| CdcVnode { upto, shards }).collect(),
    })
}

/// The part of the ring that a range is.
fn share(generation: &CdcGeneration, range: usize) -> f64 {
    if generation.vnodes.len() == 1 {
        return 1.0;
    }
    let len = generation.vnodes[range].upto.wrapping_sub(generation.after(range)) as u64;
    len as f64 / 2f64.powi(64)
}

proptest! {
    #[test]
    fn a_stream_is_in_its_range_and_of_its_shard(generation in generation(), token in any::<i64>()) {
        let id = stream_of(&generation, token);
        let range = generation.vnode_of(token);
        prop_assert_eq!(id.range() as usize, range);
        prop_assert_eq!(id.0[15] & 15, 1, "the version");
        let sharder = Sharder::new(generation.vnodes[range].shards);
        // A hundred tries were to be expected.
        if share(&generation, range) / f64::from(sharder.shard_count()) > 1.0 / 600.0 {
            prop_assert_eq!(generation.vnode_of(id.token()), range);
            prop_assert_eq!(sharder.shard_of(id.token()), sharder.shard_of(token));
        }
        let listed: Vec<StreamId> = streams_of(&generation, range).collect();
        prop_assert!(listed.contains(&id), "who reads the log finds it");
    }

    #[test]
    fn no_two_streams_are_the_same(generation in generation()) {
        let all: Vec<StreamId> =
            (0..generation.vnodes.len()).flat_map(|range| streams_of(&generation, range)).collect();
        prop_assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        let later = CdcGeneration { start_millis: generation.start_millis.wrapping_add(1), ..generation };
        let again = (0..later.vnodes.len()).flat_map(|range| streams_of(&later, range));
        prop_assert!(again.into_iter().all(|id| !all.contains(&id)), "generations share no stream");
    }
}
