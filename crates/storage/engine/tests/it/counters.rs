//! Counters of a node that loses power: acknowledged increments are counted, because no lost state is counted upon again.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use engine::{Engine, EngineConfig, Origin, Read, SyncMode, Write, WriteError};
use mutation::{
    Cell, Clustering, ColumnData, Fragment, PartitionRange, PartitionUpdate, Row, Slices, counter,
};
use rt::{Group, Rt, shard_mains};
use rt_sim::{Config, DiskFault, NodeConfig, Simulation};
use schema::{Keyspace, Replication, Schema, Table, TableBuilder, TableId};
use types::CqlType;

use crate::model::key;

const PERIODIC: SyncMode = SyncMode::Periodic { period: Duration::from_secs(10) };

/// Another replica's state of the counter, and the client's knowledge.
#[derive(Default)]
struct Peer {
    context: Bytes,
    acknowledged: i64,
    begun: i64,
    /// A count that it had, and the increments that began and were acknowledged since.
    least: i64,
    lifetimes: u64,
    /// Lifetimes that began with the loss of data.
    losses: usize,
}

type Shared = Arc<Mutex<Peer>>;

#[derive(Clone, Copy)]
struct Plan {
    sync: SyncMode,
    /// Whether writes of the keyspace are logged.
    durable_writes: bool,
    /// Increments of a process lifetime, which then waits, or is stopped in good order.
    increments: u64,
    stops: bool,
    /// How long it is at least until the power fails.
    lasts: Duration,
    /// Whether each begins by losing all data files, as an operator removes those that a start found damaged.
    loses: bool,
    /// Whether reads carry the count to the other replica while increments are under way.
    carries: bool,
}

fn schema(durable_writes: bool) -> Arc<Schema> {
    let table = TableBuilder::new("ks", "counts", TableId([5; 16]))
        .partition_key("k", CqlType::Int)
        .regular("n", CqlType::Counter)
        .build_known();
    let mut keyspace = Keyspace::new("ks", Replication::Local);
    keyspace.durable_writes = durable_writes;
    keyspace.tables.insert("counts".to_owned(), table);
    Arc::new(Schema::default().with_keyspace(keyspace))
}

fn cell(table: &Arc<Table>, timestamp: i64, value: Bytes) -> PartitionUpdate {
    let mut row = Row::new(Clustering::empty());
    row.set(table.column("n").unwrap().id, ColumnData::Simple(Cell::live(timestamp, value)));
    let mut update = PartitionUpdate::new(table.clone(), key(1));
    update.add_row(row);
    update
}

fn context(update: &PartitionUpdate) -> Bytes {
    let row = update.rows().first().expect("one row");
    match row.columns().first() {
        Some((_, ColumnData::Simple(cell))) => cell.value.clone(),
        other => panic!("one cell, not {other:?}"),
    }
}

async fn stored(engine: &Engine, table: &Arc<Table>) -> Bytes {
    let range = PartitionRange::single(&key(1));
    let slices = Slices::all();
    let mut reader = engine.read(&Read::new(table.id, &range, &slices)).expect("the disk is well");
    let mut found = Bytes::new();
    while let Some(fragment) = reader.next().await.expect("the disk is well") {
        if let Fragment::Row(row) = fragment
            && let Some((_, ColumnData::Simple(cell))) = row.columns().first()
        {
            found = counter::merge(&found, &cell.value);
        }
    }
    found
}

/// Damages all SSTables, starts and stops with them, and removes them.
async fn lose_data(rt: &Rt, config: &EngineConfig, schema: &Arc<Schema>) -> u64 {
    let keyspace = config.data_directory.join("ks");
    if !rt.disk().exists(&keyspace).await.unwrap() {
        return 0;
    }
    let dir = keyspace.join(&rt.disk().list(&keyspace).await.unwrap()[0].name);
    let mut lost = 0;
    for entry in rt.disk().list(&dir).await.unwrap() {
        if entry.name.ends_with("-Statistics.db") {
            rt.disk().remove(dir.join(&entry.name)).await.unwrap();
            lost += 1;
        }
    }
    let engine =
        Engine::open(rt.clone(), config.clone(), schema.clone()).await.expect("it opens with damaged files");
    engine.stop().await.expect("the disk is well");
    rt.disk().remove_dir_all(&dir).await.unwrap();
    lost
}

/// Reads that repair the other replica: it has all that they find.
async fn carry(rt: Rt, engine: Engine, table: Arc<Table>, shared: Shared) {
    loop {
        let found = stored(&engine, &table).await;
        {
            let mut peer = shared.lock().unwrap();
            peer.context = counter::merge(&peer.context, &found);
            peer.least = peer.least.max(counter::total(&peer.context));
        }
        rt.sleep(Duration::from_micros(20)).await;
    }
}

/// One process lifetime: opens, receives now and then the other replica's state, and counts.
async fn lifetime(rt: Rt, plan: Plan, shared: Shared) {
    let schema = schema(plan.durable_writes);
    let table = schema.table("ks", "counts").unwrap().clone();
    let mut config = EngineConfig::new(PathBuf::from("/data"), PathBuf::from("/log"));
    config.commitlog.sync = plan.sync;
    // Each process lifetime leaves a segment, which the next ones read whole.
    config.commitlog.segment_bytes = 128 << 10;
    if plan.loses && lose_data(&rt, &config, &schema).await > 0 {
        shared.lock().unwrap().losses += 1;
    }
    let engine = Engine::open(rt.clone(), config, schema).await.expect("it opens");
    let found = counter::total(&stored(&engine, &table).await);
    assert!(found <= shared.lock().unwrap().begun, "it has {found} when it is opened");
    let (context_of_peer, number) = {
        let mut peer = shared.lock().unwrap();
        peer.lifetimes += 1;
        (peer.context.clone(), peer.lifetimes)
    };
    if number % 3 == 0 {
        engine
            .apply(Write::one(Origin::Client, cell(&table, 1, context_of_peer)))
            .await
            .expect("the disk is well");
    }
    if plan.carries {
        rt.spawn(Group::Statement, carry(rt.clone(), engine.clone(), table.clone(), shared.clone())).detach();
    }
    for _ in 0..plan.increments {
        let least = {
            let mut peer = shared.lock().unwrap();
            peer.begun += 1;
            peer.least + 1
        };
        let delta = Bytes::copy_from_slice(&1i64.to_be_bytes());
        let state = engine.increment(cell(&table, rt.wall_micros(), delta)).await.expect("the disk is well");
        let mut peer = shared.lock().unwrap();
        peer.context = counter::merge(&peer.context, &context(&state));
        peer.acknowledged += 1;
        peer.least = peer.least.max(least);
        let total = counter::total(&peer.context);
        assert!(
            total >= peer.acknowledged && total <= peer.begun,
            "the other replica counts {total}, of {} begun {} were acknowledged",
            peer.begun,
            peer.acknowledged
        );
        assert!(total >= peer.least, "the other replica counts {total}, and had {} less one", peer.least);
    }
    if plan.stops {
        engine.flush(table.id).await.expect("the disk is well");
        engine.stop().await.expect("the disk is well");
    } else {
        std::future::pending::<()>().await;
    }
}

/// Process lifetimes that end after random times by a power failure, or by themselves; how many counter shards there are in the end.
fn run(seed: u64, plan: Plan, lifetimes: u64) -> usize {
    let sim = Simulation::new(seed, Config::default());
    let shared: Shared = Arc::default();
    let of_nodes = shared.clone();
    let node = sim.add_node(NodeConfig::default(), move |_| {
        let shared = of_nodes.clone();
        shard_mains(1, move |rt| lifetime(rt, plan, shared.clone()))
    });
    let mut rng = sim.rng(0);
    for _ in 0..lifetimes {
        sim.start(node);
        if plan.stops {
            sim.run_until_exit(node).expect("it ends");
        } else {
            sim.run_for(plan.lasts + Duration::from_micros(rng.below(40_000)));
            sim.crash(node);
        }
    }
    let peer = shared.lock().unwrap();
    assert_eq!(peer.losses, if plan.loses { lifetimes as usize - 1 } else { 0 });
    assert!(peer.acknowledged > 0, "seed {seed}: it counted");
    counter::shards(&peer.context).count()
}

fn plan(sync: SyncMode) -> Plan {
    Plan {
        sync,
        durable_writes: true,
        increments: 20,
        stops: false,
        lasts: Duration::from_millis(2),
        loses: false,
        carries: false,
    }
}

#[test]
fn increments_that_left_the_node_survive_its_power_failures() {
    let shards: usize = (0..20).map(|seed| run(seed, plan(PERIODIC), 8)).sum();
    assert!(shards > 40, "a power failure ends an id: {shards} counter shards in 20 runs");
}

/// With a sync before each answer, too: a read finds an increment that is not on disk, and repairs another replica with it.
#[test]
fn increments_that_reads_carry_before_they_are_synced_count_after_a_power_failure() {
    let group = SyncMode::Group { window: Duration::from_millis(1) };
    for sync in [SyncMode::Batch, group] {
        for seed in 0..20 {
            let plan = Plan { carries: true, increments: 60, ..plan(sync) };
            assert!(run(seed, plan, 8) > 1, "seed {seed}: increments are cut off");
        }
    }
}

#[test]
fn increments_of_a_keyspace_without_a_log_survive_at_the_other_replica() {
    for stops in [false, true] {
        for seed in 0..10 {
            run(seed, Plan { durable_writes: false, stops, ..plan(PERIODIC) }, 6);
        }
    }
}

#[test]
fn an_id_stays_when_the_node_is_stopped_and_no_longer() {
    for seed in 0..5 {
        for sync in [PERIODIC, SyncMode::Batch] {
            assert_eq!(
                run(seed, Plan { stops: true, ..plan(sync) }, 6),
                1,
                "seed {seed}: stopped in good order"
            );
        }
        assert!(
            run(seed, plan(SyncMode::Batch), 6) > 1,
            "seed {seed}: a read may have carried what was not synced"
        );
    }
}

/// No counts are based on the content of files that are gone.
#[test]
fn data_files_that_are_damaged_and_removed_end_an_id() {
    for sync in [PERIODIC, SyncMode::Batch] {
        for seed in 0..3 {
            assert_eq!(run(seed, Plan { stops: true, loses: true, ..plan(sync) }, 6), 6, "seed {seed}");
        }
    }
}

/// A counter does not grow for ever, however often the power fails.
#[test]
fn after_many_renewals_an_id_stays_and_increments_are_synced() {
    let long_enough = Plan { increments: 2, lasts: Duration::from_millis(300), ..plan(PERIODIC) };
    let shards = run(1, long_enough, 140);
    assert!(
        shards > 100 && shards <= 129,
        "the first id and 128 renewals, where each was counted under: {shards}"
    );
}

/// Rows of one increment of the wide partition, and how many increments there are of which the log takes none.
const WIDE_ROWS: i32 = 400;
const REFUSED: i32 = 4;

fn wide_table() -> Table {
    let table = TableBuilder::new("ks", "wide", TableId([6; 16]))
        .partition_key("k", CqlType::Int)
        .clustering("c", CqlType::Int, false)
        .regular("n", CqlType::Counter);
    table.build().unwrap()
}

/// An increment by one of so many rows of the wide partition.
fn wide_increment(table: &Arc<Table>, first: i32, timestamp: i64) -> PartitionUpdate {
    let mut update = PartitionUpdate::new(table.clone(), key(1));
    for c in first..first + WIDE_ROWS {
        let clustering = Clustering::new(table, &[Some(&c.to_be_bytes())]);
        let mut row = Row::new(clustering);
        let delta = Bytes::copy_from_slice(&1i64.to_be_bytes());
        row.set(table.column("n").unwrap().id, ColumnData::Simple(Cell::live(timestamp, delta)));
        update.add_row(row);
    }
    update
}

async fn wide_life(rt: Rt, shared: Arc<Mutex<(i32, i64)>>) {
    let table = Arc::new(wide_table());
    let mut keyspace = Keyspace::new("ks", Replication::Local);
    keyspace.tables.insert("wide".to_owned(), table.clone());
    let mut config = EngineConfig::new(PathBuf::from("/data"), PathBuf::from("/log"));
    config.commitlog.sync = SyncMode::Batch;
    config.commitlog.segment_bytes = 128 << 10;
    config.commit_failure_policy = engine::FailurePolicy::Ignore;
    let schema = Arc::new(Schema::default().with_keyspace(keyspace));
    let engine = Engine::open(rt.clone(), config, schema).await.unwrap();
    if shared.lock().unwrap().0 < 3 {
        engine.increment(wide_increment(&table, 0, 1)).await.unwrap();
        shared.lock().unwrap().0 = 1;
        rt.sleep(Duration::from_millis(1)).await;
        for part in 0..REFUSED {
            let refused = engine.increment(wide_increment(&table, part * WIDE_ROWS, 2)).await;
            assert!(matches!(&refused, Err(WriteError::CommitLog(_))), "{refused:?}");
        }
        shared.lock().unwrap().0 = 2;
        rt.sleep(Duration::from_millis(1)).await;
        engine.increment(wide_increment(&table, 0, 3)).await.unwrap();
        shared.lock().unwrap().0 = 3;
        return std::future::pending::<()>().await;
    }
    let (range, mut sum) = (PartitionRange::single(&key(1)), 0);
    let mut reader = engine.read(&Read::new(table.id, &range, &Slices::all())).unwrap();
    while let Some(fragment) = reader.next().await.unwrap() {
        let Fragment::Row(row) = fragment else { continue };
        for (_, data) in row.columns() {
            let ColumnData::Simple(cell) = data else { continue };
            sum += counter::shards(&cell.value).map(|shard| shard.count).sum::<i64>();
        }
    }
    *shared.lock().unwrap() = (4, sum);
}

#[test]
fn increments_that_a_full_disk_refused_are_logged_later_in_as_many_entries_as_they_need() {
    let sim = Simulation::new(5, Config::default());
    let shared = Arc::new(Mutex::new((0, 0)));
    let of_node = shared.clone();
    let node = sim.add_node(NodeConfig::default(), move |_| {
        let shared = of_node.clone();
        shard_mains(1, move |rt| wide_life(rt, shared.clone()))
    });
    let reached = |least: i32| {
        let shared = shared.clone();
        sim.run_until(move || shared.lock().unwrap().0 >= least).unwrap();
    };
    sim.start(node);
    reached(1);
    for op in [rt::DiskOp::Write, rt::DiskOp::Create, rt::DiskOp::Allocate] {
        let fault = DiskFault { op, path_contains: "/log".to_owned(), errno: 28, skip: 0, times: u32::MAX };
        sim.inject_disk_fault(node, fault);
    }
    reached(2);
    sim.clear_disk_faults(node);
    reached(3);
    sim.crash(node);
    sim.start(node);
    reached(4);
    // One that was refused is counted or not; of the two that were acknowledged each is, and of the others as many as fit an entry at least.
    let counted = shared.lock().unwrap().1;
    let (increments, rest) = (counted / i64::from(WIDE_ROWS), counted % i64::from(WIDE_ROWS));
    assert_eq!(rest, 0, "an increment is counted in all of its rows");
    assert!((3..=i64::from(1 + REFUSED + 1)).contains(&increments), "{increments} increments are counted");
}
