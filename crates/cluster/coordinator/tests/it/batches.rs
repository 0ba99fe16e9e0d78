//! Logged batches over several nodes: all or none, although the coordinator is lost in the middle, and not behind a truncation.

use bytes::Bytes;
use mutation::{
    Cell, Clustering, ColumnData, Complex, ComplexCell, DecoratedKey, DeletionTime, LivenessInfo,
    PartitionUpdate, Row, codec,
};
use replica::{Origin, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use coordinator::{Consistency, RequestError, WriteKind, WriteOptions};
use rt::DiskOp;
use rt_sim::{Begun, Config, DiskFault, LinkConfig};
use schema::Table;

use crate::world::{
    SECOND, World, begin, coordinator, everything, join, key, partition, row, seconds, table, texts,
};

const SHARDS: [u16; 3] = [1, 2, 3];

fn write(
    world: &World,
    node: usize,
    table: &Arc<Table>,
    keys: &[i32],
    consistency: Consistency,
) -> Begun<Result<(), RequestError>> {
    let updates = keys.iter().map(|k| row(table, *k, 1, "a", 10)).collect();
    begin(&world.sim, node, 0, |rt, coordinator| async move {
        let options = WriteOptions { consistency, kind: WriteKind::Batch, deadline: rt.now() + 2 * SECOND };
        coordinator.write(updates, options).await
    })
}

/// Batches that a node keeps.
fn batches(world: &World, node: usize) -> usize {
    let (batches, now) = (table("system", "batches"), seconds(&world.sim, node));
    world.on(node, 0, |_, coordinator| async move {
        let page =
            coordinator.replica().read(Read::of(&everything(&batches, now))).await.expect("the disk is well");
        page.partitions.len()
    })
}

fn replayed(node: usize) -> u64 {
    (0..SHARDS[node]).map(|shard| coordinator(node, shard).batchlog_stats().replayed).sum()
}

/// Keys of `one.t` by the node that has them.
fn owned(world: &World) -> [Vec<i32>; 3] {
    let t = table("one", "t");
    let mut owned = [const { Vec::new() }; 3];
    let view = coordinator(0, 0).view();
    let placement = view.place(&schema::Replication::Simple { factor: 1 });
    for k in 0..60 {
        let owner = placement.replicas(row(&t, k, 0, "", 0).key.token)[0];
        let node = (0..3).find(|node| view.node(owner).host == crate::world::host(*node)).unwrap();
        if owned[node].len() < 5 {
            owned[node].push(k);
        }
    }
    assert!(owned.iter().all(|keys| keys.len() == 5) && world.sim.now() > Duration::ZERO);
    owned
}

#[test]
fn a_batch_that_ends_well_leaves_nothing_behind() {
    let world = World::with_batches(1, &SHARDS, Config::default(), true);
    let (t, now) = (table("ks", "t"), seconds(&world.sim, 0));
    let keys: Vec<i32> = (0..9).collect();
    let written = write(&world, 0, &t, &keys, Consistency::Quorum);
    // It is kept by all three before it is applied.
    let mut most = [0; 3];
    while !written.is_finished() {
        world.sim.run_for(Duration::from_micros(200));
        most = std::array::from_fn(|node| most[node].max(batches(&world, node)));
    }
    assert_eq!(join(&world.sim, written), Ok(()));
    assert_eq!(most, [1, 1, 1]);
    world.sim.run_for(SECOND);
    assert_eq!([0, 1, 2].map(|node| batches(&world, node)), [0; 3]);
    world.sim.run_for(30 * SECOND);
    assert_eq!([0, 1, 2].map(replayed), [0; 3]);
    for k in keys {
        assert_eq!(world.kept(2, partition(&t, k, now)), [(1, "a".to_owned())]);
    }
}

/// A batch whose coordinator reaches one of two other nodes and is then lost for good; how many of the rows of the node that it did
/// not reach are there after a while, and whether those of the other are.
fn coordinator_is_lost(replays: bool) -> (usize, usize) {
    let world = World::with_batches(2, &SHARDS, Config::default(), replays);
    let (t, now) = (table("one", "t"), seconds(&world.sim, 0));
    let [_, near, far] = owned(&world);
    world.sim.partition(world.sim.node(0), world.sim.node(2));
    let _lost = write(&world, 0, &t, &[&near[..], &far[..]].concat(), Consistency::One);
    world.sim.run_for(SECOND);
    let here = |node: usize, keys: &[i32]| {
        keys.iter().filter(|k| !world.kept(node, partition(&t, **k, now)).is_empty()).count()
    };
    assert_eq!((here(1, &near), here(2, &far)), (5, 0), "half of it is applied");
    assert_eq!(batches(&world, 1), 1);
    world.sim.crash(world.sim.node(0));
    world.believe(&[1, 2]);
    world.sim.run_for(30 * SECOND);
    if replays {
        assert_eq!((batches(&world, 1), replayed(1)), (0, 1));
    }
    (here(1, &near), here(2, &far))
}

#[test]
fn a_batch_is_completed_by_another_node_when_its_coordinator_is_lost() {
    assert_eq!(coordinator_is_lost(true), (5, 5));
    // Nobody else would have done it.
    assert_eq!(coordinator_is_lost(false), (5, 0));
}

#[test]
fn a_batch_that_nobody_else_keeps_is_not_begun() {
    let world = World::with_batches(3, &SHARDS, Config::default(), true);
    let (t, now) = (table("one", "t"), seconds(&world.sim, 0));
    let [own, near, _] = owned(&world);
    world.sim.isolate(world.sim.node(0));
    let written = write(&world, 0, &t, &[&own[..], &near[..]].concat(), Consistency::One);
    let expected = RequestError::WriteTimeout {
        consistency: Consistency::One,
        received: 0,
        required: 1,
        kind: WriteKind::BatchLog,
    };
    assert_eq!(join(&world.sim, written), Err(expected));
    world.sim.heal_all();
    world.sim.run_for(60 * SECOND);
    for (node, keys) in [own, near].iter().enumerate() {
        for k in keys {
            assert_eq!(world.kept(node, partition(&t, *k, now)), []);
        }
    }
    assert_eq!([0, 1, 2].map(|node| batches(&world, node)), [0; 3]);
}

#[test]
fn a_batch_of_one_shard_of_this_node_needs_nobody_to_store_it() {
    let world = World::with_batches(3, &SHARDS, Config::default(), true);
    let (t, now) = (table("one", "t"), seconds(&world.sim, 0));
    let [own, ..] = owned(&world);
    world.sim.isolate(world.sim.node(0));
    let written = write(&world, 0, &t, &own, Consistency::One);
    assert_eq!(join(&world.sim, written), Ok(()));
    assert_eq!(batches(&world, 0), 0);
    for k in own {
        assert_eq!(world.kept(0, partition(&t, k, now)), [(1, "a".to_owned())]);
    }
}

#[test]
fn a_coordinator_whose_disk_fails_needs_two_others_to_store_its_batch() {
    let world = World::with_batches(5, &SHARDS, Config::default(), true);
    let (t, now) = (table("one", "t"), seconds(&world.sim, 0));
    let [_, near, far] = owned(&world);
    let (first, both) = (world.sim.node(0), near.iter().chain(&far).copied().collect::<Vec<i32>>());
    let (op, path_contains) = (DiskOp::Write, "commitlog".to_owned());
    world.sim.inject_disk_fault(first, DiskFault { op, path_contains, errno: 5, skip: 0, times: u32::MAX });
    world.sim.partition(first, world.sim.node(2));
    // Only node 1 would have it: should that be lost too, half of the batch could stay.
    let written = write(&world, 0, &t, &near, Consistency::One);
    let refused = join(&world.sim, written).expect_err("one node alone stores it");
    assert!(matches!(refused, RequestError::WriteTimeout { kind: WriteKind::BatchLog, .. }), "{refused:?}");
    world.sim.heal_all();
    world.sim.run_for(60 * SECOND);
    assert!(near.iter().all(|k| world.kept(1, partition(&t, *k, now)).is_empty()), "it is not begun");
    let written = write(&world, 0, &t, &both, Consistency::One);
    assert_eq!(join(&world.sim, written), Ok(()));
}

#[test]
fn a_node_alone_in_its_cluster_keeps_its_batches_itself() {
    let world = World::with_batches(4, &SHARDS, Config::default(), true);
    let (t, now) = (table("one", "t"), seconds(&world.sim, 0));
    let [own, ..] = owned(&world);
    world.sim.crash(world.sim.node(1));
    world.sim.crash(world.sim.node(2));
    world.believe(&[0]);
    let written = write(&world, 0, &t, &own, Consistency::One);
    assert_eq!(join(&world.sim, written), Ok(()));
    for k in own {
        assert_eq!(world.kept(0, partition(&t, k, now)), [(1, "a".to_owned())]);
    }
}

#[test]
fn truncated_rows_do_not_come_back_with_a_batch() {
    let world = World::with_batches(5, &SHARDS, Config::default(), true);
    let (t, now) = (table("one", "t"), seconds(&world.sim, 0));
    let [own, near, far] = owned(&world);
    // The coordinator's clock is ahead, and so is the time of the batch.
    world.sim.jump_clock(world.sim.node(0), 3_000_000);
    world.sim.partition(world.sim.node(0), world.sim.node(2));
    let _lost = write(&world, 0, &t, &[&own[..], &near[..], &far[..]].concat(), Consistency::One);
    world.sim.run_for(SECOND / 2);
    world.sim.kill(world.sim.node(0));
    world.sim.start(world.sim.node(0));
    world.sim.heal_all();
    world.sim.run_for(SECOND);
    assert_eq!([0, 1].map(|node| batches(&world, node)), [1, 1]);
    let truncated = world.on(1, 0, {
        let t = t.clone();
        |rt, coordinator| async move { coordinator.truncate(&t, rt.now() + SECOND).await }
    });
    assert_eq!(truncated, Ok(()));
    world.sim.run_for(60 * SECOND);
    assert_eq!([0, 1, 2].map(|node| batches(&world, node)), [0; 3]);
    for (node, keys) in [own, near, far].iter().enumerate() {
        for k in keys {
            assert_eq!(world.kept(node, partition(&t, *k, now)), [], "partition {k} on {node}");
        }
    }
}

/// A batch whose coordinator is killed at some moment and starts again: whether the client got success, how much of
/// it is there in the end, and whether it was replayed.
fn killed_at_some_moment(seed: u64) -> (bool, usize, bool) {
    let link = LinkConfig {
        latency_min: Duration::from_millis(1),
        latency_max: Duration::from_millis(40),
        ..LinkConfig::default()
    };
    let world = World::with_batches(seed, &SHARDS, Config { link, ..Config::default() }, true);
    let (t, now) = (table("one", "t"), seconds(&world.sim, 0));
    let keys = owned(&world).concat();
    let written = write(&world, 0, &t, &keys, Consistency::One);
    let mut rng = world.sim.rng(7);
    // Now and then before anything is kept anywhere.
    let most = if seed % 4 == 0 { 200 } else { 400_000 };
    world.sim.run_for(Duration::from_micros(rng.below(most)));
    let acknowledged = written.is_finished() && join(&world.sim, written) == Ok(());
    world.sim.kill(world.sim.node(0));
    world.believe(&[1, 2]);
    world.sim.run_for(Duration::from_secs(rng.below(30)));
    world.sim.start(world.sim.node(0));
    world.sim.run_for(SECOND);
    world.believe(&[0, 1, 2]);
    world.sim.run_for(40 * SECOND);
    let there = keys.iter().filter(|k| {
        let page = world.read(1, partition(&t, **k, now), Consistency::One).unwrap();
        !texts(&page).is_empty()
    });
    let there = there.count();
    assert_eq!([0, 1, 2].map(|node| batches(&world, node)), [0; 3], "seed {seed}: nothing is left behind");
    (acknowledged, there, [0, 1, 2].map(replayed).iter().sum::<u64>() > 0)
}

#[test]
fn a_batch_is_there_wholly_or_not_at_all() {
    let (mut all, mut none, mut replays) = (0, 0, 0);
    for seed in 0..24 {
        let (acknowledged, there, replayed) = killed_at_some_moment(seed);
        assert!(there == 0 || there == 15, "seed {seed}: {there} of 15 rows");
        assert!(!acknowledged || there == 15, "seed {seed}: what was acknowledged is gone");
        all += u32::from(there == 15);
        none += u32::from(there == 0);
        replays += u32::from(replayed);
    }
    assert!(all > 5 && none > 0 && replays > 3, "{all} all, {none} none, {replays} replayed");
}

/// The row of a batch with updates in these encodings.
fn batch_row(id: u8, at_micros: i64, encoded: &[Vec<u8>]) -> PartitionUpdate {
    let batches = table("system", "batches");
    let mut row = Row::new(Clustering::empty());
    row.liveness = LivenessInfo::forever(at_micros);
    let cell = |(at, encoded): (usize, &Vec<u8>)| ComplexCell {
        path: Bytes::copy_from_slice(&[id + at as u8; 16]),
        cell: Cell::live(at_micros, Bytes::copy_from_slice(encoded)),
    };
    let cells = encoded.iter().enumerate().map(cell).collect();
    let mutations = ColumnData::Complex(Complex { cells, ..Complex::empty() });
    row.set(batches.column("mutations").expect("it has them").id, mutations);
    let mut update = PartitionUpdate::new(batches, DecoratedKey::new(Bytes::copy_from_slice(&[id; 16])));
    update.add_row(row);
    update
}

#[test]
fn a_batch_that_cannot_be_decoded_stays_and_is_not_counted() {
    let world = World::new(6, &[1], Config::default());
    let (t, now) = (table("one", "t"), seconds(&world.sim, 0));
    let at_micros = i64::from(now) * 1_000_000;
    let mut good = Vec::new();
    codec::encode_update(&row(&t, 1, 1, "a", at_micros), &mut good);
    let torn = good[..good.len() - 3].to_vec();
    let rows = [batch_row(0x11, at_micros, &[good]), batch_row(0x12, at_micros, &[torn])];
    let replayed = world.on(0, 0, |_, coordinator| async move {
        for row in rows {
            coordinator.replica().apply(Write::one(Origin::System, row)).await.expect("the disk is well");
        }
        coordinator.replay_batches().await
    });
    assert_eq!(replayed, Ok(1), "the one that can be read");
    assert_eq!(coordinator(0, 0).batchlog_stats().replayed, 1);
    assert_eq!(batches(&world, 0), 1, "the other stays for a version that can");
    assert_eq!(world.kept(0, partition(&t, 1, now)), [(1, "a".to_owned())]);
    // Nor is it tried again and again: the next start does.
    assert_eq!(coordinator(0, 0).batchlog_stats().kept, 0);
}

/// A deletion of more rows than a view's changes can be derived from at once is left out; the rest of its batch is written, and the next start
/// does not stumble over it.
#[test]
fn a_batch_with_a_deletion_that_is_refused_is_completed_without_it() {
    let world = World::new(6, &[1], Config::default());
    let (t, now) = (table("one", "t"), seconds(&world.sim, 0));
    let wide = crate::derived::fill_wide(&world, "one", Consistency::One);
    let at_micros = i64::from(now) * 1_000_000;
    let mut deletion = PartitionUpdate::new(wide, key(1));
    deletion.deletion = DeletionTime::new(at_micros, now);
    let encoded = [deletion, row(&t, 1, 1, "a", at_micros)].map(|update| {
        let mut bytes = Vec::new();
        codec::encode_update(&update, &mut bytes);
        bytes
    });
    let batch = batch_row(0x11, at_micros, &encoded);
    let replayed = world.on(0, 0, |_, coordinator| async move {
        coordinator.replica().apply(Write::one(Origin::System, batch)).await.expect("the disk is well");
        coordinator.replay_batches().await
    });
    assert_eq!(replayed, Ok(1));
    assert_eq!(world.kept(0, partition(&t, 1, now)), [(1, "a".to_owned())]);
    assert_eq!((batches(&world, 0), coordinator(0, 0).batchlog_stats().kept), (0, 0), "it is taken out");
}
