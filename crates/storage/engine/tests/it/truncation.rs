//! TRUNCATE on a shard: all of it or nothing, with any disk fault and power failure, and writes accepted
//! before it stay out however late they arrive.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{
    Canaries, Engine, EngineConfig, EngineSettings, Origin, SyncMode, Truncation, Write, WriteError, prepare,
};
use mutation::{PartitionRange, PartitionUpdate};
use rt::{Group, Instant, Rt, shard_mains};
use rt_sim::{Config, DiskFault, NodeConfig, NodeId, Simulation};
use schema::Table;

use crate::model::{Change, Op, key, read, schema, updates};
use crate::world::{Plan, config};

const ROWS: i32 = 12;
/// When the table is truncated, and when writes are taken up that come late, microseconds.
const TRUNCATED: i64 = 5_000;
const LATE: i32 = 100;

fn plan(sync: SyncMode) -> Plan {
    Plan { sync, canaries: Canaries::default(), gc_grace: 864_000, sstables: true, ops_max: 0 }
}

fn engine_config(sync: SyncMode) -> EngineConfig {
    EngineConfig {
        settings: EngineSettings { auto_snapshot: true, ..EngineSettings::default() },
        ..config(&plan(sync))
    }
}

/// One cell of a partition of its own, written at `ts`.
fn cell(table: &Arc<Table>, pk: i32, ts: i64) -> Vec<PartitionUpdate> {
    let op = Op { number: 0, changes: vec![Change::Cell { pk, ck: 0, b: false, ts }], large: false };
    updates(table, &op, 1_700_000_000)
}

/// A write that truncations touch.
fn late(updates: Vec<PartitionUpdate>, truncation: Truncation) -> Write {
    Write::all(Origin::Client, updates).with_truncation(truncation)
}

/// Which partitions there are.
async fn partitions(engine: &Engine, table: &Arc<Table>) -> Vec<i32> {
    let found = read(engine, table, &PartitionRange::all(), false).await.expect("the table can be read");
    found.into_keys().map(|(pk, _, _)| pk).collect()
}

#[derive(Default)]
struct Shared {
    /// Rows are there, some in SSTables and some in memory.
    filled: bool,
    /// The outcome of the truncation, once it ended.
    truncated: Option<Result<(), String>>,
    /// The state that the next lifetime found.
    found: Option<Vec<i32>>,
    /// And after writes came late that were taken up just before the truncation, and just behind it.
    late: Option<Vec<i32>>,
}

async fn first_life(rt: Rt, shared: Arc<Mutex<Shared>>, sync: SyncMode) {
    let schema = schema(864_000);
    let table = schema.table("ks", "t1").unwrap().clone();
    let engine = Engine::open(rt.clone(), engine_config(sync), schema).await.unwrap();
    for pk in 0..ROWS {
        engine.apply(Write::all(Origin::Client, cell(&table, pk, 1_000 + i64::from(pk)))).await.unwrap();
        if pk == 3 || pk == 7 {
            engine.flush(table.id).await.unwrap();
        }
    }
    shared.lock().unwrap().filled = true;
    let done = engine.truncate(table.id, TRUNCATED, Instant::MAX).await.map_err(|error| error.to_string());
    if done.is_ok() {
        assert_eq!(partitions(&engine, &table).await, Vec::<i32>::new());
    }
    shared.lock().unwrap().truncated = Some(done);
    std::future::pending::<()>().await;
}

async fn second_life(rt: Rt, shared: Arc<Mutex<Shared>>, sync: SyncMode) {
    let schema = schema(864_000);
    let table = schema.table("ks", "t1").unwrap().clone();
    let engine = Engine::open(rt.clone(), engine_config(sync), schema).await.unwrap();
    shared.lock().unwrap().found = Some(partitions(&engine, &table).await);
    engine.apply(late(cell(&table, LATE, 1), Truncation::LeavesOut(TRUNCATED))).await.unwrap();
    engine.apply(late(cell(&table, LATE + 1, 1), Truncation::LeavesOut(TRUNCATED + 1))).await.unwrap();
    let refused = match engine.apply(late(cell(&table, LATE, 1), Truncation::Refuses(TRUNCATED))).await {
        Ok(()) => false,
        Err(WriteError::Truncated(at_micros)) => at_micros == TRUNCATED,
        Err(other) => panic!("{other}"),
    };
    assert_eq!(refused, engine.truncated_at(table.id) == TRUNCATED);
    engine.apply(late(cell(&table, LATE + 1, 2), Truncation::Refuses(TRUNCATED + 1))).await.unwrap();
    shared.lock().unwrap().late = Some(partitions(&engine, &table).await);
    std::future::pending::<()>().await;
}

struct Run {
    sim: Simulation,
    node: NodeId,
    shared: Arc<Mutex<Shared>>,
}

fn start(seed: u64, sync: SyncMode) -> Run {
    let sim = Simulation::new(seed, Config::default());
    let shared: Arc<Mutex<Shared>> = Arc::default();
    let of_node = shared.clone();
    let node = sim.add_node(NodeConfig::default(), move |_| {
        let shared = of_node.clone();
        shard_mains(1, move |rt| {
            let shared = shared.clone();
            async move {
                let filled = shared.lock().unwrap().filled;
                match filled {
                    false => first_life(rt, shared, sync).await,
                    true => second_life(rt, shared, sync).await,
                }
            }
        })
    });
    sim.start(node);
    let watched = shared.clone();
    sim.run_until(|| watched.lock().unwrap().filled).unwrap();
    Run { sim, node, shared }
}

#[test]
fn a_truncation_happens_wholly_or_not_at_all() {
    let (mut all, mut none, mut failed, mut interrupted) = (0, 0, 0, 0);
    for seed in 0..3_000 {
        let sync = match seed % 2 {
            0 => SyncMode::Batch,
            _ => SyncMode::Periodic { period: Duration::from_millis(50) },
        };
        let Run { sim, node, shared } = start(seed, sync);
        let mut rng = sim.rng(0);
        let (rate, of_syncs) =
            [(0, 0), (30_000, 30_000), (200_000, 200_000), (0, 300_000)][rng.below(4) as usize];
        sim.configure_disk(node, |disk| {
            disk.read_error_per_million = rate;
            disk.write_error_per_million = rate;
            disk.sync_error_per_million = of_syncs;
        });
        sim.run_for(Duration::from_micros(rng.below(14_000)));
        let healthy = rt_sim::DiskConfig::default();
        sim.configure_disk(node, |disk| *disk = healthy);
        if rng.below(4) == 0 {
            sim.run_for(Duration::from_secs(3));
        }
        // Losses of the log by a power failure in the periodic mode are the subject of another test.
        match sync {
            SyncMode::Batch if rng.below(2) == 0 => sim.crash(node),
            _ => sim.kill(node),
        }
        sim.start(node);
        // The next process finishes or undoes the edit of the first. The power fails in the middle of that, too: data that it
        // read of a sync that had failed may be gone.
        if sync == SyncMode::Batch && rng.below(2) == 0 {
            let mut steps = rng.below(40);
            while steps > 0 && shared.lock().unwrap().found.is_none() {
                sim.run_for(Duration::from_micros(50));
                steps -= 1;
            }
            if shared.lock().unwrap().found.is_none() {
                sim.crash(node);
                sim.start(node);
                interrupted += 1;
            }
        }
        let watched = shared.clone();
        sim.run_until(|| watched.lock().unwrap().late.is_some()).unwrap();
        let shared = shared.lock().unwrap();
        let (found, late) = (shared.found.clone().unwrap(), shared.late.clone().unwrap());
        let gone = found.is_empty();
        assert!(gone || found == (0..ROWS).collect::<Vec<_>>(), "seed {seed}: a part is left: {found:?}");
        assert!(gone || shared.truncated != Some(Ok(())), "seed {seed}: it came back");
        let expected: Vec<i32> = match gone {
            true => vec![LATE + 1],
            false => found.into_iter().chain([LATE, LATE + 1]).collect(),
        };
        assert_eq!(late, expected, "seed {seed}: what came late");
        *if gone { &mut all } else { &mut none } += 1;
        failed += u32::from(matches!(&shared.truncated, Some(Err(_))));
    }
    assert!(all > 100 && none > 100 && failed > 30, "all {all}, none {none}, failed {failed}");
    assert!(interrupted > 50, "only {interrupted} starts were interrupted");
}

/// A flush whose SSTable could neither be opened nor removed, its repetition, then a truncation.
async fn orphan_lifetime(rt: Rt, filled: Arc<Mutex<u32>>) {
    let schema = schema(864_000);
    let table = schema.table("ks", "t1").unwrap().clone();
    let config =
        EngineConfig { disk_failure_policy: engine::FailurePolicy::Ignore, ..engine_config(SyncMode::Batch) };
    let engine = Engine::open(rt.clone(), config, schema).await.unwrap();
    if *filled.lock().unwrap() > 0 {
        assert_eq!(partitions(&engine, &table).await, Vec::<i32>::new());
        return engine.stop().await.unwrap();
    }
    engine.apply(Write::all(Origin::Client, cell(&table, 1, 1))).await.unwrap();
    *filled.lock().unwrap() = 1;
    rt.sleep(Duration::from_millis(1)).await;
    engine.flush(table.id).await.unwrap_err();
    *filled.lock().unwrap() = 2;
    rt.sleep(Duration::from_millis(1)).await;
    engine.flush(table.id).await.unwrap();
    engine.truncate(table.id, TRUNCATED, Instant::MAX).await.unwrap();
    *filled.lock().unwrap() = 3;
    std::future::pending::<()>().await;
}

#[test]
fn rows_of_a_failed_flush_do_not_come_back() {
    let sim = Simulation::new(9, Config::default());
    let stage = Arc::new(Mutex::new(0));
    let of_node = stage.clone();
    let node = sim.add_node(NodeConfig::default(), move |_| {
        let stage = of_node.clone();
        shard_mains(1, move |rt| orphan_lifetime(rt, stage.clone()))
    });
    let reached = |least: u32| {
        let stage = stage.clone();
        sim.run_until(move || *stage.lock().unwrap() >= least).unwrap();
    };
    sim.start(node);
    reached(1);
    // The TOC gets its name, and then neither the temporary one again nor goes any file.
    for (op, skip) in [(rt::DiskOp::Read, 0), (rt::DiskOp::Remove, 0), (rt::DiskOp::Rename, 1)] {
        let fault = DiskFault { op, path_contains: "/nb-".to_owned(), errno: 5, skip, times: u32::MAX };
        sim.inject_disk_fault(node, fault);
    }
    reached(2);
    sim.clear_disk_faults(node);
    let sstables = |sim: &Simulation| {
        sim.files(node).iter().filter(|(path, _)| path.to_string_lossy().ends_with("TOC.txt")).count()
    };
    assert_eq!(sstables(&sim), 1, "the flush that failed has left an SSTable");
    reached(3);
    sim.kill(node);
    sim.start(node);
    sim.run_until_exit(node).unwrap();
    assert_eq!(sim.exits(node), ["()"]);
    assert_eq!(sstables(&sim), 1, "that of the automatic snapshot");
}

/// A truncation, a change of the number of shards, a drop of the table.
async fn reshard_life(rt: Rt, life: Arc<Mutex<u32>>, done: Arc<Mutex<u16>>) {
    let schema = schema(864_000);
    let table = schema.table("ks", "t1").unwrap().clone();
    let sync = SyncMode::Batch;
    let number = *life.lock().unwrap();
    if rt.shard().0 == 0 {
        prepare(&rt, &engine_config(sync), &schema).await.unwrap();
    } else {
        rt.sleep(Duration::from_millis(200)).await;
    }
    let engine = Engine::open(rt.clone(), engine_config(sync), schema).await.unwrap();
    let mine =
        (0..).find(|pk| topology::Sharder::new(rt.shard_count()).shard_of(key(*pk).token) == rt.shard().0);
    let pk = mine.unwrap();
    match number {
        0 => {
            // The second truncation has the earlier time: the clock went back.
            engine.truncate(table.id, TRUNCATED, Instant::MAX).await.unwrap();
            engine.truncate(table.id, TRUNCATED - 1_000, Instant::MAX).await.unwrap();
        }
        _ => assert_eq!(engine.truncated_latest(), TRUNCATED, "life {number}"),
    }
    engine.apply(late(cell(&table, pk, 1), Truncation::LeavesOut(TRUNCATED))).await.unwrap();
    assert_eq!(partitions(&engine, &table).await, Vec::<i32>::new(), "life {number}");
    if number == 2 {
        engine.drop_table(table.id, TRUNCATED).await.unwrap();
        rt.sleep(Duration::from_millis(200)).await;
        if rt.shard().0 == 0 {
            assert!(engine.remove_dropped_dir("ks", "t1", table.id).await.unwrap());
        }
    }
    engine.stop().await.unwrap();
    *done.lock().unwrap() += 1;
}

#[test]
fn the_time_of_a_truncation_outlives_a_change_of_shards_and_goes_with_the_table() {
    let sim = Simulation::new(7, Config::default());
    let (life, done) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
    let (of_node, ended) = (life.clone(), done.clone());
    let node = sim.add_node(NodeConfig { shards: 2, ..NodeConfig::default() }, move |info| {
        let (life, done) = (of_node.clone(), ended.clone());
        shard_mains(info.shards, move |rt| reshard_life(rt, life.clone(), done.clone()))
    });
    for (number, shards) in [2, 3, 1].into_iter().enumerate() {
        *life.lock().unwrap() = number as u32;
        *done.lock().unwrap() = 0;
        sim.set_shards(node, shards);
        sim.start(node);
        sim.run_until_exit(node).unwrap();
        assert_eq!(*done.lock().unwrap(), shards, "{:?}", sim.exits(node));
    }
    let left: Vec<_> = sim.files(node).into_iter().filter(|(path, _)| path.starts_with("/data")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A life that fills the table and truncates it at `at_micros`.
async fn fills_and_truncates(rt: Rt, at_micros: i64, done: Arc<Mutex<Vec<Result<(), String>>>>) {
    let schema = schema(864_000);
    let table = schema.table("ks", "t1").unwrap().clone();
    let engine = Engine::open(rt, engine_config(SyncMode::Batch), schema).await.unwrap();
    for pk in 0..ROWS {
        engine
            .apply(Write::all(Origin::Client, cell(&table, pk, at_micros + i64::from(pk) + 10)))
            .await
            .unwrap();
    }
    engine.flush(table.id).await.unwrap();
    let result = engine.truncate(table.id, at_micros, Instant::MAX).await.map_err(|error| error.to_string());
    done.lock().unwrap().push(result);
    std::future::pending::<()>().await;
}

#[test]
fn truncations_of_one_millisecond_have_snapshots_of_their_own() {
    // Behind a clock that was set back, truncations are a microsecond apart; a restart begins the names of files anew.
    let sim = Simulation::new(1, Config::default());
    let done: Arc<Mutex<Vec<Result<(), String>>>> = Arc::default();
    let of_node = done.clone();
    let node = sim.add_node(NodeConfig::default(), move |_| {
        let done = of_node.clone();
        shard_mains(1, move |rt| {
            let at_micros = TRUNCATED + done.lock().unwrap().len() as i64;
            fills_and_truncates(rt, at_micros, done.clone())
        })
    });
    for lives in 1..=3 {
        sim.start(node);
        let watched = done.clone();
        sim.run_until(|| watched.lock().unwrap().len() == lives).unwrap();
        sim.kill(node);
    }
    assert_eq!(*done.lock().unwrap(), [Ok(()), Ok(()), Ok(())]);
}

async fn late_lifetime(rt: Rt, done: Arc<Mutex<bool>>) {
    let schema = schema(864_000);
    let table = schema.table("ks", "t1").unwrap().clone();
    let engine = Engine::open(rt.clone(), engine_config(SyncMode::Batch), schema).await.unwrap();
    engine.apply(Write::all(Origin::Client, cell(&table, 1, 1))).await.unwrap();
    let expires = rt.now() + Duration::from_secs(1);
    rt.sleep(Duration::from_secs(2)).await;
    let refused = engine.truncate(table.id, TRUNCATED, expires).await;
    assert!(matches!(refused, Err(engine::MaintenanceError::Expired)), "{refused:?}");
    assert_eq!(engine.truncated_at(table.id), i64::MIN);
    assert_eq!(partitions(&engine, &table).await, vec![1]);
    engine.truncate(table.id, TRUNCATED, rt.now() + Duration::from_secs(1)).await.unwrap();
    assert_eq!(partitions(&engine, &table).await, Vec::<i32>::new());
    *done.lock().unwrap() = true;
    std::future::pending::<()>().await;
}

#[test]
fn a_truncation_that_comes_too_late_changes_nothing() {
    let sim = Simulation::new(10, Config::default());
    let done = Arc::new(Mutex::new(false));
    let of_node = done.clone();
    let node = sim.add_node(NodeConfig::default(), move |_| {
        let done = of_node.clone();
        shard_mains(1, move |rt| late_lifetime(rt, done.clone()))
    });
    sim.start(node);
    sim.run_until(move || *done.lock().unwrap()).unwrap();
}

/// Rows that are written and flushed while the table is truncated: how many rows of that time a reader found afterwards.
async fn flushes_beside(rt: Rt, counted: Arc<Mutex<u32>>) {
    let schema = schema(864_000);
    let table = schema.table("ks", "t1").unwrap().clone();
    let config = EngineConfig { settings: EngineSettings::default(), ..config(&plan(SyncMode::Batch)) };
    let engine = Engine::open(rt.clone(), config, schema).await.unwrap();
    engine.apply(Write::all(Origin::Client, cell(&table, 1_000, 1))).await.unwrap();
    let ended = Rc::new(Cell::new(false));
    let (own, of_writer, writing) = (engine.clone(), table.clone(), ended.clone());
    let writer = rt.spawn(Group::Statement, async move {
        for pk in 0.. {
            if writing.get() {
                return;
            }
            own.apply(Write::all(Origin::Client, cell(&of_writer, pk, 1))).await.unwrap();
            own.flush(of_writer.id).await.unwrap();
        }
    });
    // Marks, which are taken one after the other, hold the truncation up while rows are flushed.
    let mut markers = Vec::new();
    for _ in 0..40 {
        let (own, id, marking) = (engine.clone(), table.id, ended.clone());
        markers.push(rt.spawn(Group::Statement, async move {
            while !marking.get() {
                own.take_mark(id, false).await.ok();
            }
        }));
    }
    rt.sleep(Duration::from_micros(rt.random_below(20_000))).await;
    engine.truncate(table.id, TRUNCATED, Instant::MAX).await.unwrap();
    let after = partitions(&engine, &table).await;
    ended.set(true);
    writer.await;
    for marker in markers {
        marker.await;
    }
    engine.flush(table.id).await.unwrap();
    let later = partitions(&engine, &table).await;
    assert!(!later.contains(&1_000), "it is truncated");
    assert!(after.iter().all(|pk| later.contains(pk)), "rows {after:?} were seen, and then only {later:?}");
    *counted.lock().unwrap() += after.len() as u32;
}

#[test]
fn rows_that_are_seen_after_a_truncation_stay() {
    let counted = Arc::new(Mutex::new(0));
    for seed in 0..150 {
        let sim = Simulation::new(seed, Config::default());
        let of_node = counted.clone();
        let node = sim.add_node(NodeConfig::default(), move |_| {
            let counted = of_node.clone();
            shard_mains(1, move |rt| flushes_beside(rt, counted.clone()))
        });
        sim.set_buggify(300_000);
        sim.start(node);
        sim.run_until_exit(node).unwrap();
        assert_eq!(sim.exits(node), ["()"], "seed {seed}");
    }
    assert!(*counted.lock().unwrap() > 20, "{counted:?} rows were written beside a truncation and seen");
}
