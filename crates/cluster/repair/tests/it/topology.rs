//! Repairs while the topology changes: nothing is written where it does not belong, and nothing is taken for repaired that was not compared
//! by one topology version from the beginning to the end.

use repair::{JobState, RepairConfig};

use crate::cluster::{assert_equal, by_hand, config, fill};
use crate::world::{SECOND, World, table};

/// Whether a node has taken down a repair of the table.
fn knows(world: &World, node: usize) -> bool {
    world.repair(node).history().table(table("t").id).is_some()
}

#[test]
fn a_node_with_a_newer_topology_version_refuses_a_repair_by_a_stale_one() {
    let world = World::new(21, &[1, 2, 1], RepairConfig { attempts_max: 3, ..config() });
    let table = table("t");
    fill(&world, &table);
    let job = world.begin(0, &table, 0);
    world.sim.run_until(|| world.status(0, job).sent > 3).expect("it repairs");
    // Node 2 has lost the range by a change that the others have not heard of.
    world.believe_topology(2, 1);
    world.sim.run_for(SECOND / 1_000);
    let before = world.kept(2, &table);
    let status = world.wait(0, job);
    assert_eq!(status.state, JobState::Failed, "{status:?}");
    assert!(status.failures[0].contains("topology version"), "{:?}", status.failures);
    assert_eq!(world.kept(2, &table), before, "what it has lost lies where nobody looks");
    world.sim.run_for(SECOND);
    assert!((0..3).all(|node| !knows(&world, node)), "that was not repaired");
}

#[test]
fn a_repair_begins_again_when_the_topology_version_has_changed_and_the_replicas_have_not() {
    // The master hears first, or a follower does.
    for first in [0, 2] {
        let world = World::new(22, &[1, 2, 1], config());
        let table = table("t");
        fill(&world, &table);
        let job = world.begin(0, &table, 0);
        world.sim.run_until(|| world.status(0, job).sent > 3).expect("it repairs");
        world.believe_topology(first, 7);
        world.sim.run_for(SECOND / 10);
        (0..3).for_each(|node| world.believe_topology(node, 7));
        let status = world.wait(0, job);
        assert_eq!(status.state, JobState::Done, "{:?}", status.failures);
        assert_equal(&world, &table);
        world.sim.run_for(SECOND);
        assert!((0..3).all(|node| knows(&world, node)));
    }
}

#[test]
fn a_repair_that_ends_as_the_topology_changes_is_not_recorded_by_nodes_with_the_newer_version() {
    let mut seen = 0;
    for step in 0..80 {
        let world = World::new(23, &[1, 1, 1], by_hand());
        let table = table("t");
        fill(&world, &table);
        let job = world.begin(0, &table, 0);
        world.sim.run_for(SECOND / 1000 * step);
        world.believe_topology(2, 1);
        // Rows that it admitted before may still be synced and then recorded: a topology change waits for that, this test does not.
        world.sim.run_for(SECOND / 100);
        let known = knows(&world, 2);
        world.sim.run_for(10 * SECOND);
        assert_eq!(knows(&world, 2), known, "after {step} steps");
        seen += u32::from(knows(&world, 0) && !knows(&world, 2));
        world.cancel(0, job);
    }
    assert!(seen > 0, "none ended in between");
}

#[test]
fn a_former_replica_is_sent_nothing() {
    let world = World::new(24, &[1, 1, 1], RepairConfig { attempts_max: 2, ..config() });
    let table = table("t");
    fill(&world, &table);
    let before = world.kept(1, &table);
    world.believe_former(&[1]);
    let status = world.wait(0, world.begin(0, &table, 0));
    assert_eq!(status.state, JobState::Failed);
    assert!(status.failures[0].contains("does not belong"), "{:?}", status.failures);
    assert_eq!(world.kept(1, &table), before);
}
