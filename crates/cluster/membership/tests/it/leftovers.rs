//! A node that regains a range before it dropped its old rows of it (`change::cleanup`): rows that were deleted meanwhile, and whose
//! tombstones are purged everywhere, do not come back with the range.

use std::collections::BTreeSet;

use bytes::Bytes;
use cluster::state::{Command, MemberStatus};
use coordinator::{Canaries, Consistency, WriteKind, WriteOptions};
use membership::TopologyRequest;
use mutation::{
    Cell, Clustering, ColumnData, DecoratedKey, DeletionTime, LivenessInfo, PartitionUpdate, Row,
};
use replica::{Keys, Partitions, Read, ReadCommand, TableOperation};
use schema::Replication;
use topology::HostId;

use crate::world::{Node, SECOND, World, host, table};

pub const KEYS: i32 = 64;
/// Is down while another node joins and until that leaves again.
const AWAY: usize = 1;
/// Joins while [`AWAY`] is down, and leaves.
const GUEST: usize = 4;

pub fn key(k: i32) -> DecoratedKey {
    DecoratedKey::new(Bytes::copy_from_slice(&k.to_be_bytes()))
}

/// A row of a partition, or its deletion.
pub fn update(k: i32, text: Option<&str>, at_micros: i64) -> PartitionUpdate {
    let table = table();
    let mut row = Row::new(Clustering::new(&table, &[Some(&0_i32.to_be_bytes())]));
    match text {
        Some(text) => {
            row.liveness = LivenessInfo::forever(at_micros);
            let value = Cell::live(at_micros, Bytes::copy_from_slice(text.as_bytes()));
            row.set(table.column("v").expect("it has v").id, ColumnData::Simple(value));
        }
        None => row.deletion = DeletionTime::new(at_micros, (at_micros / 1_000_000) as u32),
    }
    let mut update = PartitionUpdate::new(table, key(k));
    update.add_row(row);
    update
}

/// Writes all partitions, or deletes their rows.
pub fn write_all(world: &World, text: Option<&'static str>, consistency: Consistency) {
    world.on(0, move |Node { rt, coordinator, .. }| async move {
        for k in 0..KEYS {
            let deadline = rt.now() + 2 * SECOND;
            let options = WriteOptions { consistency, kind: WriteKind::Simple, deadline };
            let update = update(k, text, rt.wall_micros());
            coordinator.write(vec![update], options).await.expect("enough replicas are up");
        }
    });
}

/// The replicas of a key by node 0's view.
pub fn replicas(world: &World, k: i32) -> BTreeSet<HostId> {
    world.on(0, move |Node { coordinator, .. }| async move {
        let view = coordinator.view();
        let placement = view.place(&Replication::Simple { factor: 3 });
        placement.replicas(key(k).token).iter().map(|node| view.node(*node).host).collect()
    })
}

/// How many rows, live or deleted, a node itself has of a key.
pub fn stored(world: &World, node: usize, k: i32) -> usize {
    world.on(node, move |Node { rt, coordinator, .. }| async move {
        let now = (rt.wall_micros() / 1_000_000) as u32;
        let command = ReadCommand::all_of(table(), Partitions::Keys(Keys::from_elem(key(k), 1)), now);
        let page = coordinator.replica().read(Read::of(&command)).await.expect("the disk is well");
        page.partitions.iter().map(|partition| partition.rows.len()).sum()
    })
}

/// Merges all SSTables of a node, after which it has no tombstones that may be purged.
fn compact(world: &World, node: usize) {
    world.on(node, |Node { coordinator, .. }| async move {
        for operation in [TableOperation::Flush, TableOperation::Compact] {
            let done = coordinator.replica().table_operation(table().id, operation).await;
            done.expect("the disk is well");
        }
    });
}

/// A node is down while another joins, all rows are deleted and their tombstones purged, and comes back while the other leaves: how many of
/// the rows that it had lost to the other it has again, of how many.
fn returned(seed: u64, canaries: Canaries) -> (usize, usize) {
    let world = World::new(seed, GUEST + 1, canaries);
    (1..GUEST).for_each(|node| world.start(node));
    write_all(&world, Some("a"), Consistency::All);
    let before: Vec<_> = (0..KEYS).map(|k| replicas(&world, k)).collect();
    assert!((0..KEYS).any(|k| stored(&world, AWAY, k) == 1));
    world.kill(AWAY);
    world.sim.run_for(30 * SECOND);
    world.start(GUEST);
    let lost =
        |k: &i32| before[*k as usize].contains(&host(AWAY)) && !replicas(&world, *k).contains(&host(AWAY));
    let lost: Vec<i32> = (0..KEYS).filter(lost).collect();
    write_all(&world, None, Consistency::Quorum);
    world.sim.run_for(10 * SECOND);
    [0, 2, 3, GUEST].into_iter().for_each(|node| compact(&world, node));
    for (node, k) in [0, 2, 3, GUEST].into_iter().flat_map(|node| lost.iter().map(move |k| (node, *k))) {
        assert_eq!(stored(&world, node, k), 0, "partition {k} at node {node}");
    }
    // An operator is refused while a node is down; this decommission had begun just before.
    let leaving = world.begin(GUEST, |Node { changes, membership, .. }| async move {
        let begun = Command::SetStatus { host: host(GUEST), status: MemberStatus::Leaving };
        membership.propose(begun).await.expect("the log decides");
        changes.ask(TopologyRequest::Decommission { force: false }).await
    });
    world.sim.run_for(30 * SECOND);
    assert!(!leaving.is_finished(), "who gains ranges is waited for");
    world.start(AWAY);
    assert_eq!(leaving.join(&world.sim).expect("it ends"), Ok(()));
    world.sim.run_for(10 * SECOND);
    let regained = |k: &&i32| replicas(&world, **k).contains(&host(AWAY));
    assert!(lost.iter().all(|k| regained(&k)), "it has the ranges again");
    (lost.iter().filter(|k| stored(&world, AWAY, **k) > 0).count(), lost.len())
}

#[test]
fn deleted_rows_do_not_come_back_with_a_range_that_a_node_regains() {
    for seed in 0..3 {
        let (returned, lost) = returned(seed, Canaries::default());
        assert!(returned == 0 && lost > 5, "seed {seed}: {returned} of {lost} rows came back");
    }
    let canaries = Canaries { kept_leftovers: true, ..Canaries::default() };
    let (returned, lost) = returned(0, canaries);
    assert!(returned > 0, "none of {lost} rows came back, although nothing was dropped");
}
