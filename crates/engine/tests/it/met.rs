//! Damage that a read or a compaction meets in an SSTable that was opened as sound: it is reported, other partitions are right,
//! and no compaction runs into it again and again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use engine::{Canaries, Engine, EngineConfig, SyncMode};
use mutation::PartitionRange;
use rt::{IoBuf, OpenOptions, Rt};
use schema::Table;
use sstable::{Component, Descriptor};

use crate::model::{Change, Op, Visible, key, read, schema, updates, visible};
use crate::world::{Plan, config, on_a_node};

const KEYS: i32 = 60;

fn engine_config(auto_compaction: bool) -> EngineConfig {
    let sync = SyncMode::Periodic { period: Duration::from_millis(50) };
    let plan = Plan { sync, canaries: Canaries::default(), gc_grace: 864_000, sstables: true, ops_max: 0 };
    let mut config = EngineConfig { auto_compaction, ..config(&plan) };
    config.memtable_bytes_max = 16 << 20;
    config.commitlog.total_bytes_max = 64 << 20;
    // What is cached is read although its file is damaged.
    config.cache_bytes_max = 0;
    config
}

/// Some partitions of two rows, deletions, and one that is many blocks long.
fn ops() -> Vec<Op> {
    let mut ops = Vec::new();
    for pk in 0..KEYS {
        let rows = if pk == 7 { 40 } else { 2 };
        for ck in 0..rows {
            let cell = Change::Cell { pk, ck, b: false, ts: i64::from(pk * 100 + ck) + 1 };
            ops.push(Op { number: pk as u64, changes: vec![cell], large: pk == 7 || pk % 5 == 0 });
        }
        if pk % 4 == 0 {
            let range = Change::Range { pk, from: 1, upto: 5, ts: 10_000 };
            ops.push(Op { number: pk as u64, changes: vec![range], large: false });
        }
        ops.push(Op { number: pk as u64, changes: vec![Change::Static { pk, ts: 5 }], large: false });
    }
    ops
}

fn without(all: &Visible, lost: &BTreeSet<i32>) -> Visible {
    let kept = all.iter().filter(|(place, _)| !lost.contains(&place.0));
    kept.map(|(place, ts)| (*place, *ts)).collect()
}

async fn write(engine: &Engine, table: &Arc<Table>) {
    for op in ops() {
        for update in updates(table, &op, 1_700_000_000) {
            engine.apply_one(update).await.unwrap();
        }
    }
}

async fn sstables(rt: &Rt, table: &Table) -> Vec<Descriptor> {
    let dir = sstable::table_dir(&engine_config(false).data_directory, table);
    sstable::list_complete(rt.disk(), &dir).await.unwrap()
}

/// Flips bits of one byte, at that part of a file's length.
async fn flip(rt: &Rt, sstable: &Descriptor, part: f64) {
    let path = sstable.path(Component::Data);
    let len = rt.disk().len(path.clone()).await.unwrap();
    let file = rt.disk().open(&path, OpenOptions::READ_WRITE).await.unwrap();
    let at = (len as f64 * part) as u64;
    let before = rt.disk().read_to_end(&path, 1 << 30).await.unwrap()[at as usize];
    file.write_at(at, IoBuf::copy_of(&[before ^ 0x10])).await.unwrap();
}

/// The keys whose partitions cannot be read; the others are as written.
async fn lost(engine: &Engine, table: &Arc<Table>, expected: &Visible) -> BTreeSet<i32> {
    let mut lost = BTreeSet::new();
    for pk in 0..KEYS {
        match read(engine, table, &PartitionRange::single(&key(pk)), pk % 2 == 0).await {
            Ok(found) => {
                let all: Visible = without(expected, &(0..KEYS).filter(|other| *other != pk).collect());
                assert_eq!(found, all, "partition {pk}");
            }
            Err(error) => {
                assert!(error.contains("Data.db is corrupt"), "{error}");
                lost.insert(pk);
            }
        }
    }
    lost
}

fn damaged(engine: &Engine, table: &Table) -> u64 {
    engine.table_stats(table.id).unwrap().damaged_sstables
}

/// A read meets damage: how many of the partitions are lost, and SSTables after a major compaction of this one and a sound one.
async fn reads(rt: Rt, part: f64) -> (usize, usize) {
    let schema = schema(864_000);
    let table = schema.table("ks", "t1").unwrap().clone();
    let all = visible(ops().iter());
    let engine = Engine::open(rt.clone(), engine_config(false), schema).await.unwrap();
    write(&engine, &table).await;
    engine.flush(table.id).await.unwrap();
    let [sstable] = &sstables(&rt, &table).await[..] else { panic!("one SSTable") };
    flip(&rt, sstable, part).await;
    assert_eq!(damaged(&engine, &table), 0, "nobody has met it");
    let lost_keys = lost(&engine, &table, &all).await;
    assert!(!lost_keys.is_empty() && lost_keys.len() < KEYS as usize / 2, "{lost_keys:?}");
    assert_eq!(damaged(&engine, &table), 1);
    for _ in 0..2 {
        write(&engine, &table).await;
        engine.flush(table.id).await.unwrap();
    }
    engine.compact(table.id).await.expect("a major compaction does without it");
    assert_eq!(lost(&engine, &table, &all).await, lost_keys, "no more than before");
    assert_eq!(damaged(&engine, &table), 1);
    (lost_keys.len(), engine.sstable_count(table.id))
}

#[test]
fn what_a_read_found_damaged_is_reported_and_left_out_of_compactions() {
    for n in 0..10 {
        let (lost, sstables) = on_a_node(n, move |rt| reads(rt, 0.05 + n as f64 * 0.09));
        assert_eq!(sstables, 2, "{lost} partitions are lost: the damaged one, and the others merged");
    }
}

/// Compactions that meet damage: how many failed within ten minutes, and SSTables and damaged ones after them.
async fn compactions(rt: Rt) -> (u64, usize, u64) {
    let schema = schema(864_000);
    let table = schema.table("ks", "t1").unwrap().clone();
    let engine = Engine::open(rt.clone(), engine_config(false), schema.clone()).await.unwrap();
    for _ in 0..2 {
        write(&engine, &table).await;
        engine.flush(table.id).await.unwrap();
    }
    engine.stop().await.unwrap();
    flip(&rt, &sstables(&rt, &table).await[0], 0.5).await;
    let engine = Engine::open(rt.clone(), engine_config(true), schema).await.unwrap();
    for _ in 0..4 {
        write(&engine, &table).await;
        engine.flush(table.id).await.unwrap();
    }
    rt.sleep(Duration::from_secs(600)).await;
    let all = visible(ops().iter());
    assert!(lost(&engine, &table, &all).await.len() < KEYS as usize / 2);
    (engine.stats().compactions_failed, engine.sstable_count(table.id), damaged(&engine, &table))
}

#[test]
fn compactions_leave_out_what_they_found_damaged() {
    let (failed, sstables, damaged) = on_a_node(1, compactions);
    assert_eq!((failed, damaged), (1, 1));
    assert!(sstables <= 3, "the others are merged: {sstables} SSTables");
}
