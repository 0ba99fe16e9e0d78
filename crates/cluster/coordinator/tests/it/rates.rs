//! `per_partition_rate_limit`: the nodes that refuse, the effect of refused writes, and the end of the limit.

use coordinator::{Consistency, Operation, RequestError};
use rt_sim::Config;

use crate::world::{SECOND, World, hints, key, partition, row, seconds, table};

fn refused(keyspace: &str, operation: Operation, by_coordinator: bool) -> RequestError {
    RequestError::RateLimit { table: format!("{keyspace}.limited"), operation, by_coordinator }
}

/// Results of so many writes of a partition at a node, each of its own row.
fn writes(world: &World, keyspace: &str, node: usize, k: i32, count: i32) -> Vec<Result<(), RequestError>> {
    let t = table(keyspace, "limited");
    (0..count).map(|c| world.write(node, row(&t, k, c, "a", 10), Consistency::All)).collect()
}

#[test]
fn a_coordinator_that_is_a_replica_decides_for_all() {
    let world = World::new(1, &[1, 2, 3], Config::default());
    let t = table("ks", "limited");
    let now = seconds(&world.sim, 0);
    for (node, k) in [(0, 1), (1, 2), (2, 3)] {
        let results = writes(&world, "ks", node, k, 10);
        assert!(results[..3].iter().all(Result::is_ok), "{results:?}");
        for result in &results[3..] {
            assert_eq!(*result, Err(refused("ks", Operation::Write, true)));
        }
        // The others have counted the writes that they were sent.
        let elsewhere = writes(&world, "ks", (node + 1) % 3, k, 1);
        assert_eq!(elsewhere, [Err(refused("ks", Operation::Write, true))]);
        for replica in 0..3 {
            assert_eq!(world.kept(replica, partition(&t, k, now)).len(), 3, "of node {node} on {replica}");
        }
        let read = |_| world.read(node, partition(&t, k, now), Consistency::Quorum);
        let reads: Vec<_> = (0..5).map(read).collect();
        assert!(reads[..2].iter().all(Result::is_ok), "reads are counted apart from writes: {reads:?}");
        assert_eq!(reads[4], Err(refused("ks", Operation::Read, true)));
    }
    world.sim.run_for(SECOND);
    assert!(writes(&world, "ks", 0, 1, 3).iter().all(Result::is_ok), "a second later");
    assert!(hints().is_empty(), "what is refused is not hinted");
}

#[test]
fn replicas_decide_where_the_coordinator_is_none() {
    let world = World::new(1, &[1, 2, 3], Config::default());
    let t = table("one", "limited");
    let now = seconds(&world.sim, 0);
    let mut seen = 0;
    for k in 0..12 {
        let token = key(k).token;
        let takes = world.on(0, 0, {
            let t = t.clone();
            move |_, coordinator| async move { coordinator.takes_token(&t, token) }
        });
        if takes {
            continue;
        }
        seen += 1;
        let results = writes(&world, "one", 0, k, 6);
        assert!(results[..3].iter().all(Result::is_ok), "{results:?}");
        assert_eq!(results[3..], vec![Err(refused("one", Operation::Write, false)); 3]);
        let read = |_| world.read(0, partition(&t, k, now), Consistency::One);
        let reads: Vec<_> = (0..4).map(read).collect();
        assert!(reads[..2].iter().all(Result::is_ok), "{reads:?}");
        assert_eq!(reads[2], Err(refused("one", Operation::Read, false)));
    }
    assert!(seen > 2, "node 0 has {} of 12 partitions", 12 - seen);
    assert!(hints().is_empty(), "what is refused is not hinted");
}
