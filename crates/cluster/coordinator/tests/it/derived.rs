//! Materialized views follow their base, whoever is down meanwhile and whoever crashes.

use std::sync::Arc;

use coordinator::{Consistency, RequestError, ViewBuildStatus, WriteKind, WriteOptions};
use mutation::{DecoratedKey, PartitionUpdate};
use replica::{Form, Read, ReadCommand};
use rt_sim::{Begun, Config};
use schema::Table;
use views::View;

use crate::world::{SECOND, World, begin, deleted, everything, join, row, seconds, table};

const SHARDS: [u16; 3] = [1, 2, 3];

/// The partitions of a table as one replica alone has them.
fn kept(world: &World, node: usize, table: &Arc<Table>) -> Vec<PartitionUpdate> {
    let command = ReadCommand { form: Form::Full, ..everything(table, seconds(&world.sim, node)) };
    let table = table.clone();
    world.on(node, 0, |_, coordinator| async move {
        let page = coordinator.replica().read(Read::of(&command)).await.expect("the disk is well");
        assert!(page.more.is_none(), "all of it is one page");
        let partition = |found: &replica::PartitionResult| {
            let (key, rows) = (found.key.clone(), found.rows.clone());
            let mut update = PartitionUpdate::with_rows(table.clone(), key, rows);
            update.add_deletion(found.deletion);
            update
        };
        page.partitions.iter().map(partition).collect()
    })
}

/// The rows of a view that a reader sees, as their keys.
fn seen(view: &View, partitions: &[PartitionUpdate], now: u32) -> Vec<(DecoratedKey, Vec<u8>)> {
    let mut rows = Vec::new();
    for partition in partitions {
        let present = partition.rows().iter().filter(|row| view.is_present(&partition.key, row, now));
        rows.extend(present.map(|row| (partition.key.clone(), row.clustering.position().to_vec())));
    }
    rows.sort();
    rows
}

/// The rows that the views of a keyspace show on their replicas, and those that a look at the base on its replicas gives.
fn compare(world: &World, keyspace: &str) {
    let base = table(keyspace, "viewed");
    let nodes = 0..SHARDS.len();
    for name in ["by_v", "by_c"] {
        let view = View::new(&base, table(keyspace, name)).expect("a view of the base");
        let mut all = (Vec::new(), Vec::new());
        for node in nodes.clone() {
            let now = seconds(&world.sim, node);
            let bases = kept(world, node, &base);
            let recomputed: Vec<PartitionUpdate> =
                bases.iter().flat_map(|partition| view.all(partition, now)).collect();
            let (recomputed, shown) =
                (seen(&view, &recomputed, now), seen(&view, &kept(world, node, view.table()), now));
            if keyspace == "ks" {
                assert!(recomputed.len() > 5, "there are rows: {recomputed:?}");
                assert_eq!(shown, recomputed, "{name} on node {node}");
            }
            all.0.extend(recomputed);
            all.1.extend(shown);
        }
        all.0.sort();
        all.1.sort();
        assert_eq!(all.1, all.0, "{name}");
    }
}

/// Begins a write of a row of `viewed`, or of its deletion.
fn change(
    world: &World,
    node: usize,
    keyspace: &str,
    at: i64,
    consistency: Consistency,
) -> Begun<Result<(), RequestError>> {
    let base = table(keyspace, "viewed");
    let mut rng = world.sim.rng(at as u64);
    let mut random = |below: u64| rng.below(below) as i32;
    let (k, c, text) = (random(5), random(3), ["a", "b", "c"][random(3) as usize]);
    let update = match at % 7 {
        0 => deleted(&base, k, c, at, seconds(&world.sim, node)),
        _ => row(&base, k, c, text, at),
    };
    begin(&world.sim, node, 0, |rt, coordinator| async move {
        let options = WriteOptions { consistency, kind: WriteKind::Simple, deadline: rt.now() + 2 * SECOND };
        coordinator.write(vec![update], options).await
    })
}

#[test]
fn views_follow_their_base_while_a_node_is_down() {
    let world = World::with_batches(1, &SHARDS, Config::default(), true);
    let mut written = Vec::new();
    for at in 1..120 {
        if at == 40 {
            world.sim.isolate(world.sim.node(2));
            world.believe(&[0, 1]);
        }
        if at == 80 {
            world.sim.heal_all();
            world.believe(&[0, 1, 2]);
        }
        written.push(change(&world, (at % 2) as usize, "ks", at, Consistency::Quorum));
        if at % 10 == 0 {
            world.sim.run_for(SECOND / 50);
        }
    }
    for written in written {
        assert_eq!(join(&world.sim, written), Ok(()));
    }
    world.sim.run_for(120 * SECOND);
    compare(&world, "ks");
}

/// Rows of one replica: nobody else derives what a killed node had not delivered.
#[test]
fn a_killed_base_replica_delivers_after_its_restart() {
    for seed in 0..8 {
        let world = World::with_batches(seed, &SHARDS, Config::default(), true);
        let written: Vec<_> =
            (1..60).map(|at| change(&world, (at % 3) as usize, "one", at, Consistency::One)).collect();
        let victim = world.sim.node(seed as usize % 3);
        let mut steps = 0;
        while steps < 20 + 40 * seed {
            world.sim.run_for(SECOND / 20_000);
            steps += 1;
        }
        drop(written);
        world.sim.kill(victim);
        world.sim.run_for(SECOND);
        world.sim.restart(victim);
        world.sim.run_for(120 * SECOND);
        compare(&world, "one");
    }
}

/// The statuses of the build of a view, as a node hears them.
fn statuses(world: &World, node: usize, view: &Arc<Table>) -> Vec<ViewBuildStatus> {
    let view = view.id;
    world.on(node, 0, move |rt, coordinator| async move {
        let all = coordinator.view_build_statuses(view, rt.now() + 2 * SECOND).await;
        all.into_iter().map(|(_, status)| status).collect()
    })
}

#[test]
fn every_node_says_how_far_it_is_with_a_view() {
    use ViewBuildStatus::{Success, Unknown};
    let world = World::with_batches(1, &SHARDS, Config::default(), true);
    let view = table("ks", "by_v");
    assert_eq!(statuses(&world, 1, &view), [Unknown; 3], "nobody builds yet");
    for node in [0, 1] {
        world.on(node, 0, |_, coordinator| async move { coordinator.build_views().detach() });
    }
    world.sim.run_for(10 * SECOND);
    assert_eq!(statuses(&world, 2, &view), [Success, Success, Unknown]);
    // A node that does not answer is unknown, and so is one that is down.
    world.sim.isolate(world.sim.node(1));
    assert_eq!(statuses(&world, 0, &view), [Success, Unknown, Unknown]);
    world.believe(&[0, 2]);
    assert_eq!(statuses(&world, 0, &view), [Success, Unknown, Unknown]);
}
