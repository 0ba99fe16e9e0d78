//! The cost of a write as a whole, with the entry of the log and a partition that the row cache holds, does not grow with the number
//! of range deletions or map entries that its partition has.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::{Engine, EngineConfig, Origin, SyncMode, Write};
use mutation::{
    Bound, Cell, Clustering, ColumnData, Complex, ComplexCell, DeletionTime, LivenessInfo, PartitionRange,
    PartitionUpdate, RangeTombstone, Row, Side,
};
use rt::Rt;
use rt_sim::{Config, Simulation};
use schema::{Keyspace, Replication, Schema, Table, TableBuilder, TableId};
use types::CqlType;

use crate::model::{key, read};

/// Writes that are measured together, and with them the work of the log's tasks for them.
const BATCH: u32 = 100;
/// The first and the last of so many writes are compared.
const WRITES: usize = 1_000;
/// Runs at most, of all of which the fastest batch counts: other work on the machine leaves some alone.
const RUNS_MAX: usize = 8;

fn schema() -> Arc<Schema> {
    let map = CqlType::Map { key: Arc::new(CqlType::Int), value: Arc::new(CqlType::Blob), frozen: false };
    let table = TableBuilder::new("ks", "t1", TableId([1; 16]))
        .partition_key("pk", CqlType::Int)
        .clustering("ck", CqlType::Int, false)
        .regular("a", CqlType::Blob)
        .regular("b", CqlType::Blob)
        .regular("m", map)
        .build()
        .expect("a table");
    let keyspace = Keyspace::new("ks", Replication::Local);
    Arc::new(Schema::default().with_keyspace(keyspace).with_table(table))
}

/// An engine whose memtables have room for everything, with a partition in its row cache.
async fn open(rt: &Rt) -> (Engine, Arc<Table>) {
    let schema = schema();
    let table = schema.table("ks", "t1").expect("it is in the schema").clone();
    let mut config = EngineConfig::new(PathBuf::from("/data"), PathBuf::from("/log"));
    config.commitlog.sync = SyncMode::Periodic { period: Duration::from_millis(50) };
    config.memtable_bytes_max = 512 << 20;
    config.cache_bytes_max = 16 << 20;
    let engine = Engine::open(rt.clone(), config, schema).await.expect("an empty disk");
    let mut row = Row::new(Clustering::new(&table, &[Some(&i32::MAX.to_be_bytes())]));
    row.liveness = LivenessInfo::forever(1);
    let mut update = PartitionUpdate::new(table.clone(), key(1));
    update.add_row(row);
    engine.apply(Write::all(Origin::Client, vec![update])).await.expect("the disk works");
    engine.flush(table.id).await.expect("the disk works");
    read(&engine, &table, &PartitionRange::single(&key(1)), false).await.expect("the disk works");
    (engine, table)
}

/// The fastest batch of the first and of the last of so many writes to a partition.
async fn first_and_last(
    rt: Rt,
    writes: u32,
    update: fn(&Arc<Table>, u32) -> PartitionUpdate,
) -> (Duration, Duration) {
    let (engine, table) = open(&rt).await;
    let mut times = Vec::new();
    for from in (0..writes).step_by(BATCH as usize) {
        let updates: Vec<PartitionUpdate> = (from..from + BATCH).map(|n| update(&table, n)).collect();
        let began = Instant::now();
        for update in updates {
            engine.apply(Write::all(Origin::Client, vec![update])).await.expect("the disk works");
        }
        rt.yield_now().await;
        times.push(began.elapsed());
    }
    let batches = WRITES / BATCH as usize;
    let best = |times: &[Duration]| *times.iter().min().expect("there are some");
    (best(&times[..batches]), best(&times[times.len() - batches..]))
}

/// The last writes cost less than twice the first.
fn assert_flat(name: &str, writes: u32, update: fn(&Arc<Table>, u32) -> PartitionUpdate) {
    let (mut first, mut last) = (Duration::MAX, Duration::MAX);
    for run in 0..RUNS_MAX {
        let sim = Simulation::new(run as u64, Config::default());
        let took = sim.block_on(move |rt| first_and_last(rt, writes, update)).expect("it ends");
        println!("{name}: {BATCH} of the first {WRITES} writes in {:?}, of the last in {:?}", took.0, took.1);
        (first, last) = (first.min(took.0), last.min(took.1));
        if last < 2 * first {
            return;
        }
    }
    panic!("{name}: {BATCH} of the first {WRITES} writes in {first:?}, of the last in {last:?}");
}

#[test]
fn range_deletions_in_no_order_cost_the_same_however_many_there_are() {
    assert_flat("range deletions", 100_000, |table, n| {
        // A number of `0..2^20`, each once.
        let place = (n.wrapping_mul(2_654_435_761) >> 12) as i32;
        let bound = |side| Bound::new(table, &[Some(&place.to_be_bytes())], side);
        let mut update = PartitionUpdate::new(table.clone(), key(1));
        let (start, end) = (bound(Side::Before), bound(Side::After));
        update.add_range_tombstone(RangeTombstone { start, end, deletion: DeletionTime::new(2, 2) });
        update
    });
}

#[test]
fn map_entries_cost_the_same_however_many_there_are() {
    assert_flat("map entries", 64_000, |table, n| {
        let column = table.column("m").expect("it has a map").id;
        let cell = Cell::live(2, Bytes::from_static(b"value"));
        let element = ComplexCell { path: Bytes::copy_from_slice(&n.to_be_bytes()), cell };
        let mut row = Row::new(Clustering::new(table, &[Some(&[0, 0, 0, 1])]));
        row.set(column, ColumnData::Complex(Complex { cells: vec![element], ..Complex::empty() }));
        let mut update = PartitionUpdate::new(table.clone(), key(1));
        update.add_row(row);
        update
    });
}

/// Tables of the schema that a shard takes over.
const TABLES: u32 = 20_000;
/// Tables that it takes over in one poll at most, when every look at the clock says that it should yield.
const TABLES_A_POLL_MAX: u64 = 128;

#[test]
fn a_schema_of_20_000_tables_is_taken_over_in_steps_and_what_is_the_same_not_again() {
    let config = Config { preempt_per_million: 1_000_000, ..Config::default() };
    let sim = Simulation::new(1, config);
    let keyspaces = |names: std::ops::Range<u32>| {
        let each = TABLES / 10;
        let tables = move |name: &str, from: u32| {
            let mut keyspace = Keyspace::new(name, Replication::Local);
            for n in from..from + each {
                let mut id = [7; 16];
                id[..4].copy_from_slice(&n.to_be_bytes());
                let table =
                    TableBuilder::new(name, format!("t{n}"), TableId(id)).partition_key("pk", CqlType::Int);
                keyspace.tables.insert(format!("t{n}"), table.build_known());
            }
            keyspace
        };
        names.fold(Schema::default(), |schema, n| schema.with_keyspace(tables(&format!("ks{n}"), n * each)))
    };
    let (whole, small) = (keyspaces(0..10), keyspaces(10..11).keyspaces().next().expect("one").clone());
    let taken = sim.block_on(|rt| async move {
        let (engine, _) = open(&rt).await;
        let mut polls = Vec::new();
        for schema in [whole.clone(), whole.with_keyspace(Keyspace::clone(&small))] {
            rt.executor().take_longest_poll();
            let (taken, other) = (std::cell::Cell::new(false), std::cell::Cell::new(0));
            let take = async {
                engine.set_schema(Arc::new(schema)).await;
                taken.set(true);
            };
            let count = async {
                while !taken.get() {
                    other.set(other.get() + 1);
                    rt.yield_now().await;
                }
            };
            futures_util::future::join(take, count).await;
            polls.push((rt.executor().take_longest_poll(), other.get()));
        }
        polls
    });
    let [(longest, polls), (longest_of_few, polls_of_few)] = taken.expect("it ends")[..] else {
        panic!("two")
    };
    println!("{polls} polls of {longest} tables at most, and {polls_of_few} of {longest_of_few}");
    assert!(
        longest.max(longest_of_few) <= TABLES_A_POLL_MAX,
        "{longest} and {longest_of_few} tables in a poll"
    );
    assert!(polls >= u64::from(TABLES) / TABLES_A_POLL_MAX, "{polls} polls");
    assert!(polls_of_few <= polls / 5, "{polls_of_few} polls for a tenth more, after {polls}");
}
