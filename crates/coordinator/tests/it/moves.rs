//! Data that moves with its range: what a single replica has is not lost by a topology change, and what a former replica still has, or is
//! given late, does not come back.

use coordinator::{Canaries, Phase};
use rt_sim::Config;
use schema::Replication;
use topology::HostId;

use crate::fence::{JOINS, Stage, fetch, tell};
use crate::world::{SECOND, World, host, partition, row, seconds, table};

const KEYS: i32 = 24;

/// Writes to one replica alone, as a write at ONE does whose other replicas did not get it.
fn write_alone(world: &World, node: usize, k: i32, c: i32) {
    let update = row(&table("ks", "t"), k, c, "only here", 10);
    let applied =
        world.on(node, 0, |_, coordinator| async move { coordinator.replica().apply(vec![update]).await });
    applied.expect("the disk is well");
}

/// The replicas of a key as a node sees them.
fn replicas(world: &World, node: usize, k: i32) -> Vec<HostId> {
    world.on(node, 0, move |_, coordinator| async move {
        let view = coordinator.view();
        let copies = view.place(&Replication::Simple { factor: 3 });
        let replicas = copies.replicas(crate::world::key(k).token).iter();
        replicas.map(|node| view.node(*node).host).collect()
    })
}

/// A node joins three that have different rows of each partition; how many rows no replica has afterwards.
fn lost_by_a_join(seed: u64, canaries: Canaries) -> usize {
    let world = World::new(seed, &[1, 2, 1, 1], Config::default());
    world.plant(canaries);
    tell(&world, &[0, 1, 2], Stage::Before);
    let before: Vec<_> = (0..KEYS).map(|k| replicas(&world, 0, k)).collect();
    for k in 0..KEYS {
        (0..3).for_each(|node| write_alone(&world, node, k, node as i32));
    }
    tell(&world, &[0, 1, 2, JOINS], Stage::Fetching);
    fetch(&world);
    tell(&world, &[0, 1, 2, JOINS], Stage::Over);
    let now = seconds(&world.sim, 0);
    let t = table("ks", "t");
    let mut lost = 0;
    let mut moved = 0;
    for k in 0..KEYS {
        let after = replicas(&world, 0, k);
        moved += usize::from(after != before[k as usize]);
        let holders = (0..4).filter(|node| after.contains(&host(*node)));
        let rows: Vec<i32> =
            holders.flat_map(|node| world.kept(node, partition(&t, k, now))).map(|(c, _)| c).collect();
        lost += (0..3).filter(|c| !rows.contains(c)).count();
    }
    assert!(moved > 5, "{moved} partitions have other replicas");
    lost
}

#[test]
fn what_only_the_node_has_that_loses_a_range_is_fetched_from_it() {
    for seed in 0..4 {
        assert_eq!(lost_by_a_join(seed, Canaries::default()), 0, "seed {seed}");
    }
    let canaries = Canaries { loser_left_out: true, ..Canaries::default() };
    let lost: usize = (0..4).map(|seed| lost_by_a_join(seed, canaries)).sum();
    assert!(lost > 0, "who loses is asked by chance, too");
}

#[test]
fn a_node_that_loses_a_range_is_waited_for_unless_it_is_removed() {
    let t = table("ks", "t");
    for (phase, is_waited_for) in [(Phase::Normal, true), (Phase::Leaving, true), (Phase::Removing, false)] {
        let world = World::new(7, &[1, 1, 1, 1], Config::default());
        // Three of four keep each partition; when the first goes, or the last comes, ranges change hands.
        let phases = move |node| match (node, phase) {
            (JOINS, Phase::Normal) => Phase::Joining,
            (0, phase) => phase,
            _ => Phase::Normal,
        };
        world.believe_phases(&[0, 1, 2, 3], phases);
        let gainer = if phase == Phase::Normal { JOINS } else { 1 };
        world.pull(gainer, &t).expect("all are there");
        world.believe_phases(&[1, 2, 3], phases);
        let pulled = world.pull(gainer, &t);
        match pulled {
            Err(error) => {
                assert!(is_waited_for && error.to_string().contains("loses a range and is down"), "{error}");
                world.sim.run_for(61 * SECOND);
                world.pull(gainer, &t).expect("not for ever");
            }
            Ok(_) => assert!(!is_waited_for, "{phase:?}"),
        }
    }
}
