//! Logs have every write of their tables once, also when nodes are down meanwhile or crash.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use cdc::Divergence;
use coordinator::{
    CheckState, CheckedTokens, Consistency, DerivedCheck, DerivedCheckStatus, FoundKind, RequestError,
    WriteKind, WriteOptions,
};
use mutation::{Cell, Clustering, ColumnData, DecoratedKey, DeletionTime, PartitionUpdate, Row};
use replica::{Form, Read, ReadCommand};
use rt_sim::{Begun, Config};
use schema::Table;

use crate::world::{CAPTURED_SHARDS, SECOND, World, begin, deleted, everything, join, row, seconds, table};

/// The rows of a table by partition, as one replica alone has them.
fn kept(world: &World, node: usize, keyspace: &str, name: &str) -> Vec<(Vec<u8>, Row)> {
    let table = table(keyspace, name);
    let command = ReadCommand { form: Form::Full, ..everything(&table, seconds(&world.sim, node)) };
    world.on(node, 0, |_, coordinator| async move {
        let page = coordinator.replica().read(Read::of(&command)).await.expect("the disk is well");
        assert!(page.more.is_none(), "all of it is one page");
        let rows = page.partitions.into_iter().flat_map(|partition| {
            partition.rows.into_iter().map(move |row| (partition.key.key.to_vec(), row))
        });
        rows.collect()
    })
}

fn log(world: &World, node: usize, keyspace: &str) -> Vec<(Vec<u8>, Row)> {
    kept(world, node, keyspace, "captured_scylla_cdc_log")
}

/// A row of the log as the key of the row that it is about, the timestamp, and the operation.
fn change(log: &Table, row: &Row) -> ((Vec<u8>, Vec<u8>), i64, u8) {
    let get = |name: &str| {
        row.cell(log.column(name).expect("a column of the log").id).expect("a cell").value.to_vec()
    };
    ((get("k"), get("c")), row.liveness.timestamp, get("cdc$operation")[0])
}

/// Begins a write of a row of `captured`, or of its deletion; its timestamp is `at` microseconds after the beginning of time in the world.
fn write(
    world: &World,
    node: usize,
    keyspace: &str,
    at: i64,
    consistency: Consistency,
) -> Begun<Result<(), RequestError>> {
    let base = table(keyspace, "captured");
    let mut rng = world.sim.rng(at as u64);
    let mut random = |below: u64| rng.below(below) as i32;
    let (k, c) = (random(9), random(3));
    let at = start(world) + at;
    let update = match at % 7 {
        0 => deleted(&base, k, c, at, seconds(&world.sim, node)),
        _ => row(&base, k, c, "a", at),
    };
    begin(&world.sim, node, 0, |rt, coordinator| async move {
        let options = WriteOptions { consistency, kind: WriteKind::Simple, deadline: rt.now() + 2 * SECOND };
        coordinator.write(vec![update], options).await
    })
}

/// A time that all writes are after, the same while a world runs.
fn start(world: &World) -> i64 {
    let hours = world.sim.wall_micros(world.sim.node(0)) / 3_600_000_000;
    hours * 3_600_000_000
}

#[test]
fn every_replica_logs_every_write_once_while_a_node_is_down() {
    let world = World::with_batches(1, &CAPTURED_SHARDS, Config::default(), true);
    let begun = start(&world);
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
        written.push(write(&world, (at % 2) as usize, "ks", at, Consistency::Quorum));
        if at % 10 == 0 {
            world.sim.run_for(SECOND / 50);
        }
    }
    for written in written {
        assert_eq!(join(&world.sim, written), Ok(()));
    }
    world.sim.run_for(120 * SECOND);
    let definition = table("ks", "captured_scylla_cdc_log");
    // Images have the rows that each replica had.
    let changes = |node: usize| {
        let rows = log(&world, node, "ks").into_iter();
        let rows =
            rows.map(|(stream, row)| (stream, row.clustering.position().to_vec(), change(&definition, &row)));
        rows.filter(|(_, _, (_, _, operation))| *operation != 9).collect::<Vec<_>>()
    };
    let all = changes(0);
    assert_eq!(all.len(), 119, "nothing is logged twice");
    let times: BTreeSet<i64> = all.iter().map(|(_, _, (_, at, _))| at - begun).collect();
    assert_eq!(times, (1..120).collect());
    for node in 1..CAPTURED_SHARDS.len() {
        let (found, all) =
            (changes(node).into_iter().collect::<BTreeSet<_>>(), all.iter().cloned().collect());
        let lacks: Vec<i64> = found.symmetric_difference(&all).map(|(_, _, (_, at, _))| at - begun).collect();
        assert!(lacks.is_empty(), "node {node} has not logged the same at {lacks:?}");
    }
}

/// The latest timestamp of each row of a table.
fn latest(rows: &[(Vec<u8>, Row)]) -> BTreeMap<(Vec<u8>, Vec<u8>), i64> {
    let mut latest = BTreeMap::new();
    for (key, row) in rows {
        let c = row.clustering.components().next().flatten().expect("a key").to_vec();
        let cells = row.columns().iter().filter_map(|(_, data)| match data {
            ColumnData::Simple(cell) => Some(cell.timestamp),
            ColumnData::Complex(_) => None,
        });
        let at = cells.chain([row.deletion.timestamp, row.liveness.timestamp]).max().expect("there are two");
        latest.insert((key.clone(), c), at);
    }
    latest
}

/// Rows of one replica: a write and its log rows are there, or neither is.
#[test]
fn a_killed_replica_has_logged_its_writes() {
    let definition = table("one", "captured_scylla_cdc_log");
    for seed in 0..8 {
        let world = World::with_batches(seed, &CAPTURED_SHARDS, Config::default(), true);
        let written: Vec<_> =
            (1..60).map(|at| write(&world, (at % 3) as usize, "one", at, Consistency::One)).collect();
        let victim = world.sim.node(seed as usize % 3);
        for _ in 0..20 + 40 * seed {
            world.sim.run_for(SECOND / 20_000);
        }
        drop(written);
        world.sim.kill(victim);
        world.sim.run_for(SECOND);
        world.sim.restart(victim);
        world.sim.run_for(120 * SECOND);
        let (mut base, mut logged) = (BTreeMap::new(), BTreeMap::new());
        for node in 0..CAPTURED_SHARDS.len() {
            base.extend(latest(&kept(&world, node, "one", "captured")));
            for (_, row) in log(&world, node, "one") {
                let (key, at, _) = change(&definition, &row);
                let latest = logged.entry(key).or_insert(at);
                *latest = at.max(*latest);
            }
        }
        assert!(base.len() > 5, "seed {seed}: there are rows");
        assert_eq!(logged, base, "seed {seed}");
    }
}

/// Runs a check of a log on a node until it ends.
fn verified(world: &World, node: usize) -> DerivedCheckStatus {
    let wanted = DerivedCheck {
        derived: table("ks", "captured_scylla_cdc_log").id,
        tokens: CheckedTokens::All,
        repair: false,
        since: 0,
        rows_per_second: 1_000_000,
        pause: SECOND / 2,
        listed_max: 100,
    };
    let status = world.checked(node, wanted);
    assert_eq!(status.state, CheckState::Finished);
    assert_eq!((status.parts_done, status.last_token), (status.parts, Some(i64::MAX)));
    status
}

#[test]
fn a_check_finds_changes_that_the_log_or_the_base_lacks() {
    let world = World::with_batches(5, &CAPTURED_SHARDS, Config::default(), true);
    for at in 1..60 {
        let written = write(&world, (at % 3) as usize, "ks", at, Consistency::Quorum);
        assert_eq!(join(&world.sim, written), Ok(()));
    }
    world.sim.run_for(120 * SECOND);
    for node in 0..CAPTURED_SHARDS.len() {
        let status = verified(&world, node);
        let counts = (status.derived_rows, status.unlogged, status.unapplied, status.unsettled);
        assert_eq!(counts, (59, 0, 0, 0), "{status:?}");
        assert!(status.base_rows > 5, "{status:?}");
    }
    let definition = table("ks", "captured_scylla_cdc_log");
    let base = latest(&kept(&world, 0, "ks", "captured"));
    let changes = log(&world, 0, "ks");
    let of_row = |row: &Row| change(&definition, row);
    // The change that a live row of the base has its mark of is taken out of the log.
    let (stream, lost) = changes
        .iter()
        .find(|(_, row)| {
            let (key, at, operation) = of_row(row);
            operation == 2 && base.get(&key) == Some(&at)
        })
        .expect("a row that was not deleted");
    let put = |row: Row| {
        let key = DecoratedKey::new(Bytes::copy_from_slice(stream));
        let mut update = PartitionUpdate::new(definition.clone(), key);
        update.add_row(row);
        assert_eq!(world.write(0, update, Consistency::All), Ok(()));
    };
    let mut gone = Row::new(lost.clustering.clone());
    gone.deletion = DeletionTime::new(lost.liveness.timestamp + 1, seconds(&world.sim, 0));
    put(gone);
    let status = verified(&world, 1);
    assert_eq!((status.derived_rows, status.unlogged, status.unapplied), (58, 1, 0), "{status:?}");
    let (key, _, _) = of_row(lost);
    let found = &status.listed[0];
    let listed =
        (found.key.key.to_vec(), found.clustering.components().next().flatten().expect("c").to_vec());
    assert_eq!((found.kind, listed), (FoundKind::Log(Divergence::Unlogged), key));
    // It is there again, and the base gets a deletion that only it has logged.
    let time = lost.clustering.components().next().flatten().expect("a time").to_vec();
    let mut other = Row::new(Clustering::new(&definition, &[Some(&time), Some(&77i32.to_be_bytes())]));
    other.liveness = lost.liveness;
    for (id, data) in lost.columns() {
        other.set(*id, data.clone());
    }
    put(other.clone());
    assert_eq!(verified(&world, 1).differences(), 0);
    let operation = definition.column("cdc$operation").expect("a column of the log").id;
    let deletion = Cell::live(lost.liveness.timestamp, Bytes::from_static(&[3]));
    other.set(operation, ColumnData::Simple(deletion));
    other.clustering = Clustering::new(&definition, &[Some(&time), Some(&78i32.to_be_bytes())]);
    put(other);
    let status = verified(&world, 2);
    assert_eq!((status.derived_rows, status.unlogged, status.unapplied), (60, 0, 1), "{status:?}");
}

#[test]
fn a_timestamp_without_streams_is_refused() {
    let world = World::new(1, &CAPTURED_SHARDS, Config::default());
    let base = table("ks", "captured");
    for (at, is_refused) in [(-1, true), (start(&world), false), (start(&world) + 7_300_000_000, true)] {
        let update: PartitionUpdate = row(&base, 1, 1, "a", at);
        let result = world.on(0, 0, |rt, coordinator| async move {
            let options = WriteOptions {
                consistency: Consistency::Quorum,
                kind: WriteKind::Simple,
                deadline: rt.now() + 2 * SECOND,
            };
            coordinator.write(vec![update], options).await
        });
        assert_eq!(matches!(result, Err(RequestError::Invalid(_))), is_refused, "{at}: {result:?}");
    }
}
