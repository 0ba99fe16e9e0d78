//! Data above a mark came after it, through flushes, compactions and starts; a mark means nothing any more once an
//! SSTable is gone that was there.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{Canaries, Engine, Origin, Read, ReadScope, RepairedWatermark, SyncMode, Write};
use mutation::{Fragment, PartitionRange, Slices};
use rt::{Instant, Rt, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};
use schema::Table;

use crate::model::{Change, Op, schema, updates};
use crate::world::{Plan, config};

/// The state that is carried from one life of the node to the next.
#[derive(Default)]
struct Carried {
    lives: u32,
    marks: Vec<RepairedWatermark>,
    after: Vec<Option<BTreeSet<i32>>>,
}

async fn write(engine: &Engine, table: &Arc<Table>, keys: std::ops::Range<i32>) {
    for pk in keys {
        let change = Change::Cell { pk, ck: 0, b: false, ts: i64::from(pk) + 1 };
        let op = Op { number: pk as u64, changes: vec![change], large: false };
        for update in updates(table, &op, 1_700_000_000) {
            engine.apply(Write::one(Origin::Client, update)).await.expect("the disk works");
        }
    }
}

/// The keys above a mark; none when it means nothing.
async fn above(engine: &Engine, table: &Arc<Table>, mark: RepairedWatermark) -> Option<BTreeSet<i32>> {
    let (range, slices) = (PartitionRange::all(), Slices::all());
    let wanted = Read { scope: ReadScope::Above(mark), ..Read::new(table.id, &range, &slices) };
    let mut reader = engine.read(&wanted).ok()?;
    let mut keys = BTreeSet::new();
    while let Some(fragment) = reader.next().await.expect("the disk works") {
        if let Fragment::PartitionStart { key, .. } = fragment {
            keys.insert(i32::from_be_bytes(key.key[..].try_into().expect("an int")));
        }
    }
    Some(keys)
}

fn keys(range: std::ops::Range<i32>) -> Option<BTreeSet<i32>> {
    Some(range.collect())
}

/// The first life: all that happens to marks while a node runs.
async fn work(rt: &Rt, engine: &Engine, table: &Arc<Table>) -> Vec<RepairedWatermark> {
    write(engine, table, 0..10).await;
    let unflushed = engine.take_mark(table.id, false).await.expect("the disk works");
    assert_eq!(above(engine, table, unflushed.mark).await, keys(0..10), "a memtable is covered by nothing");
    let first = engine.take_mark(table.id, true).await.expect("the disk works");
    assert!(first.mark > unflushed.mark);
    assert_eq!(above(engine, table, first.mark).await, keys(0..0));
    let again = engine.take_mark(table.id, true).await.expect("the disk works");
    assert_eq!(again, first, "nothing has come");
    engine.set_repaired_upto(table.id, first.mark);
    write(engine, table, 10..20).await;
    assert_eq!(above(engine, table, first.mark).await, keys(10..20));
    engine.flush(table.id).await.expect("the disk works");
    assert_eq!(above(engine, table, first.mark).await, keys(10..20));
    let second = engine.take_mark(table.id, true).await.expect("the disk works");
    assert_eq!(above(engine, table, second.mark).await, keys(0..0));
    assert_eq!(second.bytes.keys().copied().collect::<Vec<_>>(), [first.mark.number, second.mark.number]);

    // Repaired SSTables stay apart in compactions.
    engine.set_repaired_upto(table.id, second.mark);
    for n in 0..10 {
        write(engine, table, 20 + n..21 + n).await;
        engine.flush(table.id).await.expect("the disk works");
    }
    rt.sleep(Duration::from_secs(10)).await;
    assert!(engine.sstable_count(table.id) < 8, "{} SSTables", engine.sstable_count(table.id));
    assert_eq!(above(engine, table, second.mark).await, keys(20..30));
    let stats = engine.table_stats(table.id).expect("it is there");
    assert!(stats.repaired_bytes > 0 && stats.repaired_bytes < stats.data_bytes, "{stats:?}");
    // Merged with an SSTable that no mark covers it is covered by none: that costs, and loses nothing.
    engine.compact(table.id).await.expect("the disk works");
    assert_eq!(engine.sstable_count(table.id), 1);
    assert_eq!(above(engine, table, second.mark).await, keys(0..30));
    let third = engine.take_mark(table.id, true).await.expect("the disk works");
    assert_eq!(above(engine, table, third.mark).await, keys(0..0));
    write(engine, table, 30..40).await;
    engine.flush(table.id).await.expect("the disk works");
    vec![first.mark, third.mark]
}

async fn life(rt: Rt, carried: Arc<Mutex<Carried>>) {
    let sync = SyncMode::Periodic { period: Duration::from_millis(50) };
    let plan = Plan { sync, canaries: Canaries::default(), gc_grace: 864_000, sstables: true, ops_max: 0 };
    let schema = schema(plan.gc_grace);
    let table = schema.table("ks", "t1").expect("it is in the schema").clone();
    let life = {
        let mut carried = carried.lock().unwrap();
        carried.lives += 1;
        carried.lives
    };
    if life == 3 {
        lose_newest(&rt, &table).await;
    }
    let engine = Engine::open(rt.clone(), config(&plan), schema).await.expect("it opens");
    if life == 1 {
        let marks = work(&rt, &engine, &table).await;
        carried.lock().unwrap().marks = marks;
    }
    let marks = carried.lock().unwrap().marks.clone();
    let mut after = Vec::new();
    for mark in marks {
        after.push(above(&engine, &table, mark).await);
    }
    carried.lock().unwrap().after = after;
    if life == 3 {
        let fresh = engine.take_mark(table.id, true).await.expect("the disk works").mark;
        engine.truncate(table.id, 1_700_000_000_000_000, Instant::MAX).await.expect("the disk works");
        assert_eq!(above(&engine, &table, fresh).await, None, "a truncation ends the epoch");
    }
    engine.stop().await.expect("the disk works");
}

/// Removes the SSTable that was written last, as a failing disk does.
async fn lose_newest(rt: &Rt, table: &Table) {
    let dir = sstable_dir(table);
    let entries = rt.disk().list(&dir).await.expect("it is there");
    let number = |name: &str| name.strip_prefix("nb-")?.split('-').next()?.parse::<u64>().ok();
    let newest = entries.iter().filter_map(|entry| number(&entry.name)).max().expect("there are some");
    for entry in entries.iter().filter(|entry| number(&entry.name) == Some(newest)) {
        rt.disk().remove(dir.join(&entry.name)).await.expect("the disk works");
    }
}

fn sstable_dir(table: &Table) -> PathBuf {
    engine::dropped_table_dir(&PathBuf::from("/data"), &table.keyspace, &table.name, table.id)
}

#[test]
fn data_above_a_mark_came_after_it() {
    let sim = Simulation::new(11, Config::default());
    let carried = Arc::new(Mutex::new(Carried::default()));
    let node = sim.add_node(NodeConfig::default(), {
        let carried = carried.clone();
        move |_| {
            let carried = carried.clone();
            shard_mains(1, move |rt: Rt| life(rt, carried.clone()))
        }
    });
    let after = || {
        sim.start(node);
        sim.run_until_exit(node).expect("it ends");
        carried.lock().unwrap().after.clone()
    };
    assert_eq!(after(), [keys(0..40), keys(30..40)]);
    assert_eq!(after(), [keys(0..40), keys(30..40)], "a start changes nothing");
    assert_eq!(
        after(),
        [None, None],
        "an SSTable was lost that no mark covers: another node may count it as repaired"
    );
}
