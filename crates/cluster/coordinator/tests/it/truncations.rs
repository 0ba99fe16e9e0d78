//! TRUNCATE that resumes late, because a process was paused in the middle of it: it removes nothing that was written meanwhile.

use coordinator::Consistency;
use rt_sim::{Config, LinkConfig};

use crate::world::{SECOND, World, begin, join, partition, row, seconds, table};

/// Its coordinator or another node is paused before the second round, and resumes after its time limit.
#[test]
fn a_truncation_that_resumes_after_its_time_limit_removes_nothing() {
    let mut refused = 0;
    for (seed, paused) in (0..12).flat_map(|seed| [(seed, 0), (seed, 2)]) {
        let world = World::new(seed, &[1, 1, 1], Config::default());
        let (t, now) = (table("ks", "t"), seconds(&world.sim, 0));
        world.write(0, row(&t, 1, 0, "old", 10), Consistency::All).unwrap();
        let nodes = [0, 1, 2].map(|nth| world.sim.node(nth));
        // The permits take two seconds, and so does each round.
        for (from, to) in nodes.iter().flat_map(|from| nodes.iter().map(move |to| (*from, *to))) {
            let slow = LinkConfig { latency_min: SECOND, latency_max: SECOND, ..LinkConfig::default() };
            if from != to {
                world.sim.set_link(from, to, Some(slow));
            }
        }
        let truncated_at =
            |node: usize| {
                let id = t.id;
                world.on(node, 0, move |_, coordinator| async move {
                    coordinator.replica().engine().truncated_at(id)
                })
            };
        let truncating = begin(&world.sim, 0, 0, {
            let t = t.clone();
            |rt, coordinator| async move { coordinator.truncate(&t, rt.now() + 10 * SECOND).await }
        });
        // Within the permits, the first round or the second.
        world.sim.run_for(SECOND / 2 + SECOND / 2 * seed as u32);
        let before = truncated_at(paused);
        world.sim.pause(nodes[paused]);
        world.sim.run_for(30 * SECOND);
        for (from, to) in nodes.iter().flat_map(|from| nodes.iter().map(move |to| (*from, *to))) {
            world.sim.set_link(from, to, None);
        }
        world.write(1, row(&t, 2, 0, "new", 20), Consistency::Quorum).unwrap();
        world.sim.resume(nodes[paused]);
        world.sim.run_for(30 * SECOND);
        refused += u32::from(join(&world.sim, truncating).is_err());
        assert_eq!(truncated_at(paused), before, "seed {seed}: node {paused} has truncated after its pause");
        for node in (0..3).filter(|node| *node != paused) {
            let found = world.kept(node, partition(&t, 2, now));
            assert_eq!(found, [(0, "new".to_owned())], "seed {seed}, {paused} paused, node {node}");
        }
        // The same again is carried out.
        let again = t.clone();
        let truncated = world.on(0, 0, |rt, coordinator| async move {
            coordinator.truncate(&again, rt.now() + 20 * SECOND).await
        });
        truncated.expect("all nodes are there");
        for (node, k) in (0..3).flat_map(|node| [(node, 1), (node, 2)]) {
            assert_eq!(
                world.kept(node, partition(&t, k, now)),
                [],
                "seed {seed}, node {node}, partition {k}"
            );
        }
    }
    assert!(refused > 12, "most were paused before they were over: {refused}");
}
