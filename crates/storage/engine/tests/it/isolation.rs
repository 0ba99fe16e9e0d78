//! Reads from memory yield to other tasks, and see writes made meanwhile whole or not at all.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use engine::{Canaries, Engine, Origin, SyncMode, Write};
use mutation::PartitionRange;
use rt::{Group, Rt};
use rt_sim::{Config, Simulation};
use schema::Table;

use crate::model::{Change, Op, key, read, schema, updates};
use crate::world::{Plan, config};

const ROWS: i32 = 400;
const BATCHES: i32 = 24;
const NOW: u32 = 1_700_000_000;

async fn open(rt: &Rt) -> (Engine, Arc<Table>) {
    let sync = SyncMode::Periodic { period: Duration::from_millis(50) };
    let plan = Plan { sync, canaries: Canaries::default(), gc_grace: 864_000, sstables: false, ops_max: 0 };
    let schema = schema(plan.gc_grace);
    let table = schema.table("ks", "t1").expect("it is in the schema").clone();
    let mut config = config(&plan);
    config.cache_bytes_max = 16 << 20;
    config.commitlog.segment_bytes = 1 << 20;
    (Engine::open(rt.clone(), config, schema).await.expect("an empty disk"), table)
}

async fn write(engine: &Engine, table: &Arc<Table>, changes: Vec<Change>) {
    let op = Op { number: 0, changes, large: false };
    engine.apply(Write::all(Origin::Client, updates(table, &op, NOW))).await.expect("the disk works");
}

async fn fill(engine: &Engine, table: &Arc<Table>, rows: impl Iterator<Item = i32>) {
    for ck in rows {
        write(engine, table, vec![Change::Cell { pk: 0, ck, b: false, ts: 1 }]).await;
    }
}

/// The source of a read.
#[derive(Clone, Copy, Debug)]
enum Sources {
    /// A memtable in which nothing hides anything.
    Plain,
    /// A memtable with deletions: through the merge.
    Deletions,
    /// An SSTable beside the memtable.
    File,
    /// A partition of the row cache, into which flushed memtables are merged.
    Cache,
}

const SOURCES: [Sources; 4] = [Sources::Plain, Sources::Deletions, Sources::File, Sources::Cache];

/// Batches, each of which writes the first and the last row of a partition, and makes a row before and one behind all
/// others; a third of them are deletions.
async fn writer(rt: Rt, engine: Engine, table: Arc<Table>, sources: Sources, done: Rc<Cell<bool>>) {
    for n in 0..BATCHES {
        let ts = i64::from(n) + 10;
        let (before, behind) = (-1 - n, ROWS + n);
        let mut changes = vec![
            Change::Cell { pk: 0, ck: 0, b: false, ts },
            Change::Cell { pk: 0, ck: ROWS - 1, b: false, ts },
            Change::Cell { pk: 0, ck: before, b: false, ts },
            Change::Cell { pk: 0, ck: behind, b: false, ts },
        ];
        if n % 3 == 2 {
            changes.push(Change::Row { pk: 0, ck: before + 1, ts });
            changes.push(Change::Row { pk: 0, ck: behind - 1, ts });
        }
        write(&engine, &table, changes).await;
        if matches!(sources, Sources::Cache) && n % 4 == 3 {
            engine.flush(table.id).await.expect("the disk works");
        }
        rt.sleep(Duration::from_nanos(rt.random_below(10_000))).await;
    }
    done.set(true);
}

async fn batches_are_seen_whole(rt: Rt, sources: Sources) -> u64 {
    let (engine, table) = open(&rt).await;
    match sources {
        Sources::Plain => fill(&engine, &table, 0..ROWS).await,
        Sources::Deletions => {
            fill(&engine, &table, 0..ROWS).await;
            write(&engine, &table, vec![Change::Range { pk: 0, from: 100, upto: 120, ts: 2 }]).await;
        }
        Sources::File | Sources::Cache => {
            fill(&engine, &table, (0..ROWS).filter(|ck| ck % 2 == 0)).await;
            engine.flush(table.id).await.expect("the disk works");
            fill(&engine, &table, (0..ROWS).filter(|ck| ck % 2 == 1)).await;
            if matches!(sources, Sources::Cache) {
                engine.flush(table.id).await.expect("the disk works");
            }
        }
    }
    let done = Rc::new(Cell::new(false));
    let work = writer(rt.clone(), engine.clone(), table.clone(), sources, done.clone());
    let task = rt.spawn(Group::Statement, work);
    let (mut reads, mut states) = (0u64, std::collections::BTreeSet::new());
    while !done.get() {
        let seen =
            read(&engine, &table, &PartitionRange::single(&key(0)), reads % 2 == 1).await.expect("it can");
        let row = |ck: i32| seen.get(&(0, Some(ck), "a")).copied();
        assert_eq!(row(0), row(ROWS - 1), "half of a batch, read {reads} from {sources:?}");
        for n in 0..BATCHES {
            let (before, behind) = (row(-1 - n), row(ROWS + n));
            assert_eq!(before, behind, "half of batch {n}, read {reads} from {sources:?}");
        }
        states.insert(row(0));
        reads += 1;
    }
    task.await;
    assert!(states.len() > 3, "{reads} reads from {sources:?} saw {} states", states.len());
    reads
}

#[test]
fn a_read_sees_a_batch_whole_or_not_at_all() {
    for sources in SOURCES {
        for seed in 0..2 {
            let sim = Simulation::new(seed, Config { preempt_per_million: 400_000, ..Config::default() });
            sim.block_on(move |rt| batches_are_seen_whole(rt, sources)).expect("it ends");
        }
    }
}

/// Reads that find everything in memory, of partitions of 20,000 rows, and the longest polls that they take.
async fn polls(rt: Rt) -> Vec<(&'static str, u64, u64)> {
    let (engine, table) = open(&rt).await;
    for from in (0..20_000).step_by(100) {
        let rows = (from..from + 100).map(|ck| Change::Cell { pk: 0, ck, b: false, ts: 1 });
        write(&engine, &table, rows.collect()).await;
        let partitions = (from..from + 100).map(|pk| Change::Cell { pk: pk + 1, ck: 0, b: false, ts: 1 });
        write(&engine, &table, partitions.collect()).await;
    }
    let mut polls = Vec::new();
    let mut measure = async |name, range: PartitionRange| {
        rt.executor().take_longest_poll();
        let ticks = Rc::new(Cell::new(0));
        let (counted, rt2) = (ticks.clone(), rt.clone());
        let ticker = rt.spawn(Group::Statement, async move {
            loop {
                counted.set(counted.get() + 1);
                rt2.yield_now().await;
            }
        });
        read(&engine, &table, &range, false).await.expect("memory does not fail");
        drop(ticker);
        polls.push((name, rt.executor().take_longest_poll(), ticks.get()));
    };
    measure("one partition", PartitionRange::single(&key(0))).await;
    measure("all partitions", PartitionRange::all()).await;
    write(&engine, &table, vec![Change::Range { pk: 0, from: 10, upto: 19_990, ts: 2 }]).await;
    measure("a deleted range", PartitionRange::single(&key(0))).await;
    write(&engine, &table, vec![Change::Partition { pk: 0, ts: 3 }]).await;
    measure("a deleted partition", PartitionRange::single(&key(0))).await;
    polls
}

#[test]
fn reads_from_memory_give_way() {
    let sim = Simulation::new(1, Config { preempt_per_million: 1_000_000, ..Config::default() });
    for (name, steps, ticks) in sim.block_on(polls).expect("it ends") {
        println!("{name}: {steps} steps in the longest poll, {ticks} polls of another task meanwhile");
        assert!((1..=1_000).contains(&steps), "{name}: {steps} steps in one poll");
        assert!(ticks > 20, "{name}: another task ran {ticks} times");
    }
}
