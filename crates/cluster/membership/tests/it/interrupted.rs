//! Streaming that takes long does not hold up a node's part in other topology changes.

use bytes::Bytes;
use cluster::state::ChangeStep;
use coordinator::{Canaries, Consistency, WriteKind, WriteOptions};
use membership::TopologyRequest;
use mutation::{Cell, Clustering, ColumnData, DecoratedKey, LivenessInfo, PartitionUpdate, Row};
use replica::TableOperation;

use crate::world::{Node, SECOND, World, host, table};

const NODES: usize = 5;
const KEYS: i32 = 64;
const VALUE_BYTES: usize = 128 << 10;
/// At this rate, bytes a second, the tenth part of the rows takes more than ten minutes.
const SLOW: u64 = 1024;

/// Writes partitions with values that cannot be compressed, and has every node write them to SSTables.
fn fill(world: &World, nodes: std::ops::Range<usize>) {
    world.on(0, |Node { rt, coordinator, .. }| async move {
        for k in 0..KEYS {
            let table = table();
            let text: String = (0..VALUE_BYTES).map(|_| (b'!' + rt.random_below(90) as u8) as char).collect();
            let mut row = Row::new(Clustering::new(&table, &[Some(&0_i32.to_be_bytes())]));
            let now = rt.wall_micros();
            row.liveness = LivenessInfo::forever(now);
            let value = Cell::live(now, Bytes::from(text.into_bytes()));
            row.set(table.column("v").expect("it has v").id, ColumnData::Simple(value));
            let key = DecoratedKey::new(Bytes::copy_from_slice(&k.to_be_bytes()));
            let mut update = PartitionUpdate::new(table, key);
            update.add_row(row);
            let deadline = rt.now() + 5 * SECOND;
            let options = WriteOptions { consistency: Consistency::All, kind: WriteKind::Simple, deadline };
            coordinator.write(vec![update], options).await.expect("all replicas are up");
        }
    });
    for node in nodes {
        world.on(node, |Node { coordinator, .. }| async move {
            let done = coordinator.replica().table_operation(table().id, TableOperation::Flush).await;
            done.expect("the disk is well");
        });
    }
}

/// Lets at most so many seconds pass until something holds; whether it does.
fn within(world: &World, seconds: u32, holds: impl Fn() -> bool) -> bool {
    (0..seconds * 2).any(|_| {
        world.sim.run_for(SECOND / 2);
        holds()
    })
}

/// The replicas of a keyspace move, and a node dies whose removal comes first: streaming for the move, which takes long, is given up.
#[test]
fn streaming_is_given_up_when_another_change_takes_the_place_of_its_own() {
    const DEAD: usize = 0;
    /// The first one that lives conducts changes in which no node joins.
    const FIRST: usize = 1;
    let world = World::new(5, NODES, Canaries::default());
    (1..NODES).for_each(|node| world.start(node));
    fill(&world, 0..NODES);
    world.set_bandwidth(Some(SLOW));
    world.alter(FIRST, 4);
    let step = || world.state(FIRST).change.as_ref().map(|change| (change.alters.is_empty(), change.step));
    assert!(within(&world, 60, || step() == Some((false, ChangeStep::Fetching))), "{:?}", step());
    world.kill(DEAD);
    world.sim.run_for(30 * SECOND);
    assert_eq!(step(), Some((false, ChangeStep::Fetching)), "it takes long");
    let fetched = world.state(FIRST).change.as_ref().map(|change| change.fetched.contains(&host(FIRST)));
    assert_eq!(fetched, Some(false), "it is still streaming");
    let removal = world.begin(FIRST, |Node { changes, .. }| async move {
        changes.ask(TopologyRequest::Remove { host: host(DEAD), ignored: Default::default() }).await
    });
    assert!(within(&world, 60, || step() == Some((true, ChangeStep::Fetching))), "{:?}", step());
    world.set_bandwidth(None);
    assert_eq!(removal.join(&world.sim).expect("it ends"), Ok(()));
    // And then the replicas move.
    assert!(within(&world, 300, || step().is_none()), "{:?}", step());
    assert!(world.state(FIRST).deferred.is_empty());
}

/// A rebuild takes long while a cleanup is due: the node has a part in the next change all the same.
#[test]
fn a_rebuild_does_not_hold_up_the_next_topology_change() {
    const GUEST: usize = NODES - 1;
    let world = World::new(6, NODES, Canaries::default());
    (1..GUEST).for_each(|node| world.start(node));
    fill(&world, 0..GUEST);
    world.sim.start(world.sim.node(GUEST));
    let step = || world.state(0).change.as_ref().map(|change| change.step);
    // The step is over within some milliseconds.
    let is_switched = (0..120_000).any(|_| {
        world.sim.run_for(SECOND / 1_000);
        step() == Some(ChangeStep::Switched)
    });
    assert!(is_switched, "it joins");
    world.set_bandwidth(Some(SLOW));
    let rebuild = world.begin(0, |Node { changes, .. }| async move {
        changes.ask(TopologyRequest::Rebuild { source: None }).await
    });
    assert!(within(&world, 120, || step().is_none()), "{:?}", step());
    world.sim.run_for(30 * SECOND);
    // This node conducts it.
    world.alter(0, 2);
    assert!(within(&world, 60, || step() == Some(ChangeStep::Fetching)), "{:?}", step());
    assert!(!rebuild.is_finished(), "it takes long");
    world.set_bandwidth(None);
    assert_eq!(rebuild.join(&world.sim).expect("it ends"), Ok(()));
    // Sources that have sent pause for as long as they had to until then.
    assert!(within(&world, 4_000, || step().is_none()), "{:?}", step());
}
