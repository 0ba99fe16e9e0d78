//! Something has run out for a while: descriptors, memory, space. The storage waits for it, and stops for a broken disk only.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{
    Canaries, Engine, EngineConfig, FailurePolicy, MaintenanceError, Origin, ReadError, SyncMode, Write,
};
use mutation::PartitionRange;
use rt::{DiskOp, Group, Rt, shard_mains};
use rt_sim::{Config, DiskFault, NodeConfig, NodeId, Simulation};

use crate::model::{Change, Op, read, schema, updates};
use crate::world::{Plan, config, on_a_node};

const EIO: i32 = 5;
/// EAGAIN, ENOMEM, ENFILE, EMFILE, ENOSPC, EDQUOT.
const SHORTAGES: [i32; 6] = [11, 12, 23, 24, 28, 122];

#[derive(Default)]
struct Shared {
    opened: bool,
    /// The shortages have ended.
    ended: bool,
    acknowledged: Vec<i32>,
    refused: u32,
    done: bool,
}

fn engine_config(sync: SyncMode) -> EngineConfig {
    let plan = Plan { sync, canaries: Canaries::default(), gc_grace: 864_000, sstables: true, ops_max: 0 };
    config(&plan)
}

fn write(number: i32) -> Op {
    let change = Change::Cell { pk: number, ck: 1, b: false, ts: i64::from(number) + 1 };
    Op { number: number as u64, changes: vec![change], large: true }
}

async fn life(rt: Rt, shared: Arc<Mutex<Shared>>) {
    let schema = schema(864_000);
    let table = schema.table("ks", "t1").unwrap().clone();
    let engine = Engine::open(rt.clone(), engine_config(SyncMode::Batch), schema).await.unwrap();
    shared.lock().unwrap().opened = true;
    let mut tasks = Vec::new();
    for client in 0..3 {
        let (rt2, engine, table, shared) = (rt.clone(), engine.clone(), table.clone(), shared.clone());
        tasks.push(rt.spawn(Group::Statement, async move {
            for turn in 0.. {
                if shared.lock().unwrap().ended {
                    return;
                }
                let number = turn * 3 + client;
                let done = match rt2.random_below(8) {
                    0 => engine.flush(table.id).await.is_ok(),
                    1 => engine.compact(table.id).await.is_ok(),
                    2 => engine.take_mark(table.id, false).await.is_ok(),
                    _ => match engine
                        .apply(Write::all(Origin::Client, updates(&table, &write(number), 1_700_000_000)))
                        .await
                    {
                        Ok(()) => {
                            shared.lock().unwrap().acknowledged.push(number);
                            true
                        }
                        Err(_) => false,
                    },
                };
                shared.lock().unwrap().refused += u32::from(!done);
                rt2.sleep(Duration::from_micros(rt2.random_below(500))).await;
            }
        }));
    }
    for task in tasks {
        task.await;
    }
    // All is well again: the storage works, regardless of earlier attempts.
    let last = i32::MAX;
    assert_eq!(engine.stop_reason(), None);
    engine
        .apply(Write::all(Origin::Client, updates(&table, &write(last), 1_700_000_000)))
        .await
        .expect("writes go on");
    rt.sleep(Duration::from_secs(2)).await;
    engine.flush(table.id).await.expect("memtables are written");
    engine.compact(table.id).await.expect("SSTables are merged");
    let found = read(&engine, &table, &PartitionRange::all(), false).await.expect("reads go on");
    let mut shared = shared.lock().unwrap();
    for number in shared.acknowledged.iter().chain([&last]) {
        assert!(found.contains_key(&(*number, Some(1), "a")), "{number} is lost");
    }
    shared.done = true;
}

fn start(seed: u64, shared: &Arc<Mutex<Shared>>) -> (Simulation, NodeId) {
    let sim = Simulation::new(seed, Config::default());
    let of_node = shared.clone();
    let node = sim.add_node(NodeConfig::default(), move |_| {
        let shared = of_node.clone();
        shard_mains(1, move |rt| life(rt, shared.clone()))
    });
    sim.start(node);
    let watched = shared.clone();
    sim.run_until(|| watched.lock().unwrap().opened).unwrap();
    (sim, node)
}

#[test]
fn exhausted_resources_are_waited_for() {
    let ops = [
        DiskOp::Open,
        DiskOp::Create,
        DiskOp::Write,
        DiskOp::Sync,
        DiskOp::Allocate,
        DiskOp::Rename,
        DiskOp::HardLink,
        DiskOp::Remove,
    ];
    let (mut refused, mut acknowledged) = (0, 0);
    for seed in 0..120 {
        let shared: Arc<Mutex<Shared>> = Arc::default();
        let (sim, node) = start(seed, &shared);
        let mut rng = sim.rng(0);
        let errno = SHORTAGES[seed as usize % SHORTAGES.len()];
        for _ in 0..6 {
            let op = ops[rng.below(ops.len() as u64) as usize];
            let (skip, times) = (rng.below(20) as u32, 1 + rng.below(30) as u32);
            sim.inject_disk_fault(node, DiskFault { op, path_contains: String::new(), errno, skip, times });
        }
        sim.run_for(Duration::from_millis(20 + rng.below(4_000)));
        sim.clear_disk_faults(node);
        shared.lock().unwrap().ended = true;
        let watched = shared.clone();
        sim.run_until(|| watched.lock().unwrap().done || !sim.is_running(node)).unwrap();
        let shared = shared.lock().unwrap();
        assert!(shared.done, "seed {seed}, error {errno}: {:?}", sim.exits(node));
        refused += shared.refused;
        acknowledged += shared.acknowledged.len();
    }
    assert!(refused > 500 && acknowledged > 800, "{refused} {acknowledged}");
}

/// The consequence of a failed sync of the commit log, when nobody waits for it: can be written, can be read.
async fn after_a_failed_sync(rt: Rt, policy: FailurePolicy, failed: Arc<Mutex<bool>>) -> (bool, bool) {
    let schema = schema(864_000);
    let table = schema.table("ks", "t1").unwrap().clone();
    let sync = SyncMode::Periodic { period: Duration::from_millis(50) };
    let config = EngineConfig { commit_failure_policy: policy, ..engine_config(sync) };
    let engine = Engine::open(rt.clone(), config, schema).await.unwrap();
    engine.apply(Write::all(Origin::Client, updates(&table, &write(1), 1_700_000_000))).await.unwrap();
    while !*failed.lock().unwrap() {
        rt.sleep(Duration::from_millis(1)).await;
    }
    rt.sleep(Duration::from_secs(2)).await;
    let written =
        engine.apply(Write::all(Origin::Client, updates(&table, &write(2), 1_700_000_000))).await.is_ok();
    let found = read(&engine, &table, &PartitionRange::all(), false).await;
    let is_read = match found {
        Ok(found) => found.contains_key(&(1, Some(1), "a")),
        Err(error) => {
            assert_eq!(error, ReadError::Stopped.to_string());
            false
        }
    };
    (written, is_read)
}

#[test]
fn a_failed_sync_that_nobody_waits_for_is_followed_by_the_policy() {
    let policies = [
        (FailurePolicy::Stop, (false, false)),
        (FailurePolicy::Die, (false, false)),
        (FailurePolicy::StopWrites, (false, true)),
        (FailurePolicy::Ignore, (true, true)),
    ];
    for (policy, expected) in policies {
        let sim = Simulation::new(5, Config::default());
        let (failed, found) = (Arc::new(Mutex::new(false)), Arc::new(Mutex::new(None)));
        let (of_node, place) = (failed.clone(), found.clone());
        let node = sim.add_node(NodeConfig::default(), move |_| {
            let (failed, place) = (of_node.clone(), place.clone());
            shard_mains(1, move |rt| {
                let (failed, place) = (failed.clone(), place.clone());
                async move {
                    let found = after_a_failed_sync(rt, policy, failed).await;
                    *place.lock().unwrap() = Some(found);
                }
            })
        });
        sim.start(node);
        sim.run_for(Duration::from_millis(20));
        let fault =
            DiskFault { op: DiskOp::Sync, path_contains: "/log".to_owned(), errno: EIO, skip: 0, times: 1 };
        sim.inject_disk_fault(node, fault);
        sim.run_for(Duration::from_millis(200));
        *failed.lock().unwrap() = true;
        let watched = found.clone();
        sim.run_until(|| watched.lock().unwrap().is_some()).unwrap();
        assert_eq!(*found.lock().unwrap(), Some(expected), "{policy:?}");
    }
}

/// Many tables are flushed at once.
async fn flush_many(rt: Rt, done: Arc<Mutex<Option<u64>>>) {
    use schema::{Keyspace, Replication, Schema};
    let empty = Schema::default().with_keyspace(Keyspace::new("ks", Replication::Local));
    let schema = (1..=150).fold(empty, |schema, id| schema.with_table(crate::model::table(id, 864_000)));
    let schema = Arc::new(schema);
    let sync = SyncMode::Periodic { period: Duration::from_millis(50) };
    let mut config = engine_config(sync);
    config.memtable_bytes_max = 64 << 20;
    config.commitlog.total_bytes_max = 1 << 30;
    let engine = Engine::open(rt.clone(), config, schema.clone()).await.unwrap();
    for table in schema.tables() {
        engine.apply(Write::all(Origin::Client, updates(table, &write(1), 1_700_000_000))).await.unwrap();
    }
    let flushed: Result<(), MaintenanceError> = engine.flush_all().await;
    flushed.unwrap();
    *done.lock().unwrap() = Some(engine.stats().flushes);
}

#[test]
fn a_flush_of_all_tables_opens_few_files_at_once() {
    let sim = Simulation::new(9, Config::default());
    let done = Arc::new(Mutex::new(None));
    let of_node = done.clone();
    let node = sim.add_node(NodeConfig::default(), move |_| {
        let done = of_node.clone();
        shard_mains(1, move |rt| flush_many(rt, done.clone()))
    });
    sim.start(node);
    let mut most = 0;
    while done.lock().unwrap().is_none() {
        sim.run_for(Duration::from_micros(100));
        let files = sim.files(node);
        let count =
            |end: &str| files.iter().filter(|(path, _)| path.to_string_lossy().ends_with(end)).count();
        most = most.max(count("-Data.db") - count("-TOC.txt"));
    }
    assert_eq!(*done.lock().unwrap(), Some(150));
    assert!((1..=6).contains(&most), "{most} SSTables are written at once");
}

/// A node of many shards has little of the log for each.
async fn small_share(rt: Rt) -> (u64, u64) {
    let schema = schema(864_000);
    let table = schema.table("ks", "t1").unwrap().clone();
    let sync = SyncMode::Periodic { period: Duration::from_millis(50) };
    let mut config = engine_config(sync);
    let log = &mut config.commitlog;
    log.total_bytes_max = engine::CommitLogConfig::share(32 * log.segment_bytes, log.segment_bytes, 64);
    config.memtable_bytes_max = 64 << 20;
    let engine = Engine::open(rt.clone(), config, schema).await.unwrap();
    let segment = 96 << 10;
    for number in 0..400 {
        engine
            .apply(Write::all(Origin::Client, updates(&table, &write(number), 1_700_000_000)))
            .await
            .unwrap();
        rt.sleep(Duration::from_millis(20)).await;
    }
    let stats = engine.stats();
    (stats.flushes, stats.commitlog_written_bytes / segment)
}

#[test]
fn the_log_of_many_shards_is_not_flushed_segment_by_segment() {
    let (flushes, segments) = on_a_node(11, small_share);
    assert!(segments >= 12 && flushes >= 2, "{flushes} flushes, {segments} segments");
    assert!(flushes * 3 <= segments + 3, "{flushes} flushes for {segments} segments");
}
