//! Observers of writes: derived updates are in the same log record as their write. A toy observer keeps an inverted
//! table (value to key) of a base table, through power failures at any point.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Derived, Engine, EngineConfig, Origin, Read, SyncMode, Updates, Write, WriteError, WriteObserver,
};
use mutation::{
    Cell, Clustering, ColumnData, DeletionTime, Fragment, LivenessInfo, PartitionRange, PartitionUpdate, Row,
    Slices,
};
use rt::{Group, Rt, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};
use schema::{Keyspace, Replication, Schema, Table, TableBuilder, TableId};
use types::CqlType;

use crate::model::key;
use crate::world::on_a_node;

const KEYS: u64 = 3;
const VALUES: u64 = 4;

#[derive(Clone)]
struct Tables {
    schema: Arc<Schema>,
    base: Arc<Table>,
    inverted: Arc<Table>,
}

fn tables() -> Tables {
    let base = TableBuilder::new("ks", "base", TableId([1; 16]))
        .partition_key("k", CqlType::Int)
        .regular("v", CqlType::Int)
        .build_known();
    let inverted = TableBuilder::new("ks", "inverted", TableId([2; 16]))
        .partition_key("v", CqlType::Int)
        .clustering("k", CqlType::Int, false)
        .build_known();
    let mut keyspace = Keyspace::new("ks", Replication::Local);
    keyspace.tables.insert("base".to_owned(), base.clone());
    keyspace.tables.insert("inverted".to_owned(), inverted.clone());
    Tables { schema: Arc::new(Schema::default().with_keyspace(keyspace)), base, inverted }
}

fn number(bytes: &[u8]) -> i32 {
    i32::from_be_bytes(bytes.try_into().expect("an int"))
}

fn base_update(tables: &Tables, k: i32, v: i32, timestamp: i64) -> PartitionUpdate {
    let mut row = Row::new(Clustering::empty());
    let value = Bytes::copy_from_slice(&v.to_be_bytes());
    row.set(tables.base.column("v").unwrap().id, ColumnData::Simple(Cell::live(timestamp, value)));
    let mut update = PartitionUpdate::new(tables.base.clone(), key(k));
    update.add_row(row);
    update
}

fn cell_of(tables: &Tables, row: &Row) -> Option<(i32, i64)> {
    let cell = row.cell(tables.base.column("v").unwrap().id)?;
    Some((number(&cell.value), cell.timestamp))
}

/// The value of a key, and since when.
async fn value_of(engine: &Engine, tables: &Tables, k: i32) -> Option<(i32, i64)> {
    let (range, slices) = (PartitionRange::single(&key(k)), Slices::all());
    let mut reader = engine.read(&Read::new(tables.base.id, &range, &slices)).expect("the disk is well");
    let mut found = None;
    while let Some(fragment) = reader.next().await.expect("the disk is well") {
        if let Fragment::Row(row) = &fragment {
            found = cell_of(tables, row);
        }
    }
    found
}

/// The changes in the inverted table when a key gets a value at a time and had another.
fn inversion(tables: &Tables, k: i32, before: Option<(i32, i64)>, (v, at): (i32, i64)) -> Updates {
    let entry = |v: i32, change: &dyn Fn(&mut Row)| {
        let mut row = Row::new(Clustering::new(&tables.inverted, &[Some(&k.to_be_bytes())]));
        change(&mut row);
        let mut update = PartitionUpdate::new(tables.inverted.clone(), key(v));
        update.add_row(row);
        update
    };
    let mut derived = Updates::new();
    match before {
        // It loses against the present row.
        Some((_, since)) if since > at => return derived,
        Some((old, _)) if old != v => {
            derived.push(entry(old, &|row| row.deletion = DeletionTime::new(at - 1, 1_700_000_000)));
        }
        _ => {}
    }
    derived.push(entry(v, &|row| row.liveness = LivenessInfo::forever(at)));
    derived
}

struct Inverting {
    rt: Rt,
    tables: Tables,
    fails: bool,
}

impl WriteObserver for Inverting {
    fn observes(&self, table: &Table, origin: Origin) -> bool {
        table.id == self.tables.base.id && origin != Origin::Repair
    }

    fn derive<'a>(&'a self, engine: &'a Engine, _: Origin, update: &'a PartitionUpdate) -> Derived<'a> {
        Box::pin(async move {
            if self.fails {
                return Err(WriteError::Read("the observer fails".to_owned()));
            }
            let k = number(&update.key.key);
            let before = value_of(engine, &self.tables, k).await;
            // Time for other writes of the key.
            self.rt.sleep(Duration::from_micros(self.rt.random_below(200))).await;
            let change = update.rows().first().and_then(|row| cell_of(&self.tables, row));
            let change = change.expect("every write of the base has a value");
            Ok(inversion(&self.tables, k, before, change).into())
        })
    }
}

/// Pairs of key and value, as the base has them and as the inverted table has them.
async fn pairs(engine: &Engine, tables: &Tables) -> (BTreeSet<(i32, i32)>, BTreeSet<(i32, i32)>) {
    let mut base = BTreeSet::new();
    for k in 0..KEYS as i32 {
        base.extend(value_of(engine, tables, k).await.map(|(v, _)| (k, v)));
    }
    let (range, slices, mut inverted, mut v) = (PartitionRange::all(), Slices::all(), BTreeSet::new(), 0);
    let mut reader = engine.read(&Read::new(tables.inverted.id, &range, &slices)).expect("the disk is well");
    while let Some(fragment) = reader.next().await.expect("the disk is well") {
        match &fragment {
            Fragment::PartitionStart { key, .. } => v = number(&key.key),
            Fragment::Row(row) if row.is_live(1_700_000_000) => {
                let k = row.clustering.components().next().flatten().expect("a key");
                inverted.insert((number(k), v));
            }
            _ => {}
        }
    }
    (base, inverted)
}

fn config(sync: SyncMode) -> EngineConfig {
    let mut config = EngineConfig::new(PathBuf::from("/data"), PathBuf::from("/log"));
    config.commitlog.sync = sync;
    config.commitlog.segment_bytes = 96 << 10;
    config
}

/// How the inverted table is kept.
#[derive(Clone, Copy, PartialEq)]
enum Kept {
    ByObserver,
    /// By a second write behind the first: which crashes must be found to tear.
    BySecondWrite,
}

/// Choices of one run.
#[derive(Clone, Copy)]
struct Plan {
    sync: SyncMode,
    kept: Kept,
}

/// The state of the test across process lifetimes.
#[derive(Default)]
struct World {
    timestamp: i64,
    written: u64,
    torn: Vec<String>,
}

async fn client(rt: Rt, engine: Engine, tables: Tables, world: Arc<Mutex<World>>, plan: Plan) {
    loop {
        rt.sleep(Duration::from_micros(rt.random_below(300))).await;
        let (k, v) = (rt.random_below(KEYS) as i32, rt.random_below(VALUES) as i32);
        let at = {
            let mut world = world.lock().unwrap();
            world.timestamp += 10;
            world.timestamp
        };
        if rt.random_below(40) == 0 {
            let table = if rt.random_below(2) == 0 { tables.base.id } else { tables.inverted.id };
            engine.flush(table).await.expect("the disk is well");
        }
        let write = Write::one(Origin::Client, base_update(&tables, k, v, at));
        match plan.kept {
            Kept::ByObserver => engine.apply(write).await.expect("the disk is well"),
            Kept::BySecondWrite => {
                let before = value_of(&engine, &tables, k).await;
                engine.apply(write).await.expect("the disk is well");
                let derived = inversion(&tables, k, before, (v, at));
                engine.apply(Write::all(Origin::Client, derived)).await.expect("the disk is well");
            }
        }
        world.lock().unwrap().written += 1;
    }
}

async fn lifetime(rt: Rt, world: Arc<Mutex<World>>, plan: Plan) {
    let tables = tables();
    let engine = Engine::open(rt.clone(), config(plan.sync), tables.schema.clone()).await.expect("it opens");
    let (base, inverted) = pairs(&engine, &tables).await;
    if base != inverted {
        world.lock().unwrap().torn.push(format!("the base has {base:?}, the inverted table {inverted:?}"));
    }
    let clients = if plan.kept == Kept::ByObserver { 3 } else { 1 };
    if plan.kept == Kept::ByObserver {
        engine.observe(Rc::new(Inverting { rt: rt.clone(), tables: tables.clone(), fails: false }));
    }
    for _ in 0..clients {
        let work = client(rt.clone(), engine.clone(), tables.clone(), world.clone(), plan);
        rt.spawn(Group::Statement, work).detach();
    }
    std::future::pending::<()>().await;
}

/// Process lifetimes that power failures end; the number of writes, and the torn ones.
fn run(seed: u64, plan: Plan) -> (u64, Vec<String>) {
    let sim = Simulation::new(seed, Config::default());
    let world: Arc<Mutex<World>> = Arc::default();
    let shared = world.clone();
    let node = sim.add_node(NodeConfig::default(), move |_| {
        let shared = shared.clone();
        shard_mains(1, move |rt| lifetime(rt, shared.clone(), plan))
    });
    let mut rng = sim.rng(0);
    sim.start(node);
    for _ in 0..4 {
        sim.run_for(Duration::from_millis(5 + rng.below(150)));
        sim.crash(node);
        sim.start(node);
    }
    sim.run_for(Duration::from_millis(300));
    let mut world = world.lock().unwrap();
    (world.written, std::mem::take(&mut world.torn))
}

const PERIODIC: SyncMode = SyncMode::Periodic { period: Duration::from_millis(20) };

#[test]
fn power_failures_leave_write_and_derived_write_both_or_none() {
    let kept = Kept::ByObserver;
    let synced = Plan { sync: SyncMode::Batch, kept };
    // A flush of one table syncs the log first: an SSTable must not outlive the other tables' parts of the entries that it holds.
    let periodic = Plan { sync: PERIODIC, kept };
    for (plan, seeds) in [(synced, 0..30), (periodic, 30..60)] {
        let mut written = 0;
        for seed in seeds {
            let (count, torn) = run(seed, plan);
            assert!(torn.is_empty(), "seed {seed}: {torn:#?}");
            written += count;
        }
        assert!(written > 1000, "{written} writes");
    }
}

#[test]
fn a_second_log_record_would_be_found() {
    let plan = Plan { sync: SyncMode::Batch, kept: Kept::BySecondWrite };
    let torn = (0..30).filter(|seed| !run(*seed, plan).1.is_empty()).count();
    assert!(torn > 3, "{torn} of 30 seeds found it");
}

#[test]
fn derived_updates_are_in_the_same_log_record() {
    let found = on_a_node(1, |rt| async move {
        let tables = tables();
        let engine = Engine::open(rt.clone(), config(SyncMode::Batch), tables.schema.clone()).await.unwrap();
        let entries = || engine.stats().commitlog_entries;
        let mut counts = BTreeMap::new();
        let mut count = |name, before| counts.insert(name, entries() - before);
        engine.observe(Rc::new(Inverting { rt: rt.clone(), tables: tables.clone(), fails: false }));
        let before = entries();
        for (v, at) in [(1, 10), (2, 20), (3, 30)] {
            engine.apply(Write::one(Origin::Client, base_update(&tables, 0, v, at))).await.unwrap();
        }
        count("observed", before);
        // An origin that the observer leaves alone, and two partitions of the base in one write.
        engine.apply(Write::one(Origin::Repair, base_update(&tables, 1, 1, 10))).await.unwrap();
        let before = entries();
        let both = vec![base_update(&tables, 2, 7, 40), base_update(&tables, 0, 7, 40)];
        engine.apply(Write::all(Origin::Hint, both)).await.unwrap();
        count("of two partitions", before);
        let (base, inverted) = pairs(&engine, &tables).await;
        // One that fails lets nothing through.
        let failing = Inverting { rt: rt.clone(), tables: tables.clone(), fails: true };
        engine.observe(Rc::new(failing));
        let before = entries();
        let refused = engine.apply(Write::one(Origin::Client, base_update(&tables, 0, 9, 50))).await;
        assert!(matches!(refused, Err(WriteError::Read(_))), "{refused:?}");
        count("refused", before);
        assert_eq!(pairs(&engine, &tables).await, (base.clone(), inverted.clone()));
        (counts, base, inverted)
    });
    let counts = BTreeMap::from([("observed", 3), ("of two partitions", 1), ("refused", 0)]);
    let (base, inverted) = (BTreeSet::from([(0, 7), (1, 1), (2, 7)]), BTreeSet::from([(0, 7), (2, 7)]));
    assert_eq!(found, (counts, base, inverted));
}
