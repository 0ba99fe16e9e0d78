//! Damage that a read or a compaction meets in an SSTable that was opened as sound: it is reported, no task fails on it again and again, and
//! a repair restores it, of which this module plays the other replicas' part.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use engine::{Canaries, Engine, EngineConfig, Origin, Read, ReadScope, RepairedWatermark, SyncMode, Write};
use mutation::{PartitionRange, Slices};
use rt::{Group, Instant, IoBuf, OpenOptions, Rt};
use schema::Table;
use sstable::{Component, Descriptor};

use crate::model::{Change, Op, Visible, key, read, schema, updates, visible, visible_of};
use crate::world::{Plan, config, on_a_node};

const KEYS: i32 = 60;
const ALL: (i64, i64) = (i64::MIN, i64::MAX);

fn engine_config(auto_compaction: bool) -> EngineConfig {
    let sync = SyncMode::Periodic { period: Duration::from_millis(50) };
    let plan = Plan { sync, canaries: Canaries::default(), gc_grace: 864_000, sstables: true, ops_max: 0 };
    let mut config = EngineConfig { auto_compaction, ..config(&plan) };
    config.memtable_bytes_max = 16 << 20;
    config.commitlog.total_bytes_max = 64 << 20;
    // Cached rows are read although their file is damaged.
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

async fn write(engine: &Engine, table: &Arc<Table>, only: impl Fn(i32) -> bool) {
    for op in ops() {
        for update in updates(table, &op, 1_700_000_000) {
            if only(i32::from_be_bytes(update.key.key[..].try_into().unwrap())) {
                engine.apply(Write::one(Origin::Client, update)).await.unwrap();
            }
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

async fn for_repair(engine: &Engine, table: &Arc<Table>) -> Result<Visible, String> {
    let (range, slices) = (PartitionRange::all(), Slices::all());
    let wanted = Read { scope: ReadScope::Repair, ..Read::new(table.id, &range, &slices) };
    let reader = engine.read(&wanted);
    visible_of(reader.map_err(|error| error.to_string())?, table).await
}

fn damaged(engine: &Engine, table: &Table) -> u64 {
    engine.table_stats(table.id).unwrap().damaged_sstables
}

async fn salvage(rt: Rt, part: f64) -> usize {
    let schema = schema(864_000);
    let table = schema.table("ks", "t1").unwrap().clone();
    let all = visible(ops().iter());
    let engine = Engine::open(rt.clone(), engine_config(false), schema.clone()).await.unwrap();
    write(&engine, &table, |_| true).await;
    let before = engine.take_mark(table.id, true).await.unwrap().mark;
    let [sstable] = &sstables(&rt, &table).await[..] else { panic!("one SSTable") };
    flip(&rt, sstable, part).await;
    assert_eq!(damaged(&engine, &table), 0, "nobody has met it");

    let lost_keys = lost(&engine, &table, &all).await;
    assert!(!lost_keys.is_empty() && lost_keys.len() < KEYS as usize / 2, "{lost_keys:?}");
    assert_eq!(damaged(&engine, &table), 1);
    assert!(for_repair(&engine, &table).await.is_err(), "a repair that had begun before fails");
    let left_out =
        engine.compact(table.id).await.expect_err("a major compaction does without it, and reports it");
    assert!(left_out.to_string().contains("damaged and left as they are"), "{left_out}");
    assert_eq!(engine.sstable_count(table.id), 1);

    // A repair begins: the readable rows are there without the SSTable, and earlier comparisons do not count.
    let mark = engine.take_mark(table.id, true).await.unwrap().mark;
    assert_ne!(mark.epoch, before.epoch);
    let salvaged = for_repair(&engine, &table).await.expect("it does without the damaged SSTable");
    let of_sound = |found: &Visible| without(found, &lost_keys);
    assert_eq!(of_sound(&salvaged), of_sound(&all));
    assert!(salvaged.iter().all(|(place, ts)| all.get(place) == Some(ts)), "nothing comes back");
    assert_eq!(lost(&engine, &table, &all).await, lost_keys, "clients see no less than before");

    // Repairs that do not restore it: one that began before, one of other tokens.
    for (span, mark) in [(ALL, before), (ALL, RepairedWatermark::default())] {
        engine.damage_repaired(table.id, span, mark, &[ALL]).await;
        assert_eq!(damaged(&engine, &table), 1);
    }
    write(&engine, &table, |pk| lost_keys.contains(&pk)).await;
    for pk in &lost_keys {
        assert_eq!(damaged(&engine, &table), 1, "{pk} of {lost_keys:?} is not repaired");
        let token = key(*pk).token;
        engine.damage_repaired(table.id, (token - 1, token), mark, &[ALL]).await;
    }
    assert_eq!(damaged(&engine, &table), 0);
    assert_eq!(lost(&engine, &table, &all).await, BTreeSet::new());
    let dir = sstable.dir.join("snapshots").join(format!("damaged-{}", sstable.generation));
    assert!(rt.disk().exists(dir.join(sstable.path(Component::Data).file_name().unwrap())).await.unwrap());

    engine.stop().await.unwrap();
    let engine = Engine::open(rt.clone(), engine_config(false), schema).await.unwrap();
    assert_eq!(read(&engine, &table, &PartitionRange::all(), false).await, Ok(all));
    lost_keys.len()
}

#[test]
fn a_repair_restores_data_that_a_read_found_damaged() {
    let lost: Vec<usize> =
        (0..10).map(|n| on_a_node(n, move |rt| salvage(rt, 0.05 + n as f64 * 0.09))).collect();
    assert!(lost.contains(&1) && lost.iter().any(|lost| *lost > 1), "{lost:?}");
}

/// Deletions made at this time lose a damaged place, and the rows that they hide are in another SSTable: returns the rows that a repair then reads.
async fn lost_deletions(rt: Rt, deleted_at: u32) -> (Result<Visible, String>, Visible) {
    let schema = schema(864_000);
    let table = schema.table("ks", "t1").unwrap().clone();
    let engine = Engine::open(rt.clone(), engine_config(false), schema.clone()).await.unwrap();
    write(&engine, &table, |_| true).await;
    engine.flush(table.id).await.unwrap();
    let before = sstables(&rt, &table).await;
    let mut later = Vec::new();
    for pk in 0..KEYS {
        let number = pk as u64;
        let range = Change::Range { pk, from: 0, upto: 100, ts: 20_000 };
        later.push(Op { number, changes: vec![range], large: false });
        let cell = Change::Cell { pk, ck: 200, b: false, ts: 30_000 + i64::from(pk) };
        later.push(Op { number, changes: vec![cell], large: true });
    }
    for op in &later {
        for update in updates(&table, op, deleted_at) {
            engine.apply(Write::one(Origin::Client, update)).await.unwrap();
        }
    }
    engine.flush(table.id).await.unwrap();
    let all = visible(ops().iter().chain(&later));
    let damaged_one = sstables(&rt, &table).await.into_iter().find(|sstable| !before.contains(sstable));
    flip(&rt, &damaged_one.expect("it was flushed"), 0.5).await;
    assert!(!lost(&engine, &table, &all).await.is_empty());
    engine.take_mark(table.id, true).await.unwrap();
    let read = for_repair(&engine, &table).await;
    assert_eq!((engine.awaits_salvage(table.id), damaged(&engine, &table)), (false, 1));
    assert!(
        !lost(&engine, &table, &all).await.is_empty(),
        "clients see neither what is lost nor what it hid"
    );
    (read, all)
}

#[test]
fn rows_that_a_lost_deletion_past_its_grace_hid_are_not_repaired() {
    let (read, _) = on_a_node(3, |rt| lost_deletions(rt, 1_000_000));
    assert!(read.is_err_and(|error| error.contains("Data.db is corrupt")));
    // Within the grace the other replicas have the deletion.
    let (read, all) = on_a_node(3, |rt| {
        let now = (rt.wall_micros() / 1_000_000) as u32;
        lost_deletions(rt, now)
    });
    assert_ne!(read.expect("it does without the damaged SSTable"), all);
}

/// A truncation while the readable rows are rewritten, and a table of which nothing is left then.
async fn truncated(rt: Rt, pause: Duration) -> (bool, Visible) {
    let schema = schema(864_000);
    let table = schema.table("ks", "t1").unwrap().clone();
    let engine = Engine::open(rt.clone(), engine_config(false), schema.clone()).await.unwrap();
    write(&engine, &table, |_| true).await;
    engine.flush(table.id).await.unwrap();
    flip(&rt, &sstables(&rt, &table).await[0], 0.9).await;
    assert!(!lost(&engine, &table, &visible(ops().iter())).await.is_empty());
    let (repairing, id) = (engine.clone(), table.id);
    let mark = rt.spawn(rt::Group::Maintenance, async move { repairing.take_mark(id, true).await.is_ok() });
    rt.sleep(pause).await;
    engine.truncate(table.id, rt.wall_micros(), Instant::MAX).await.unwrap();
    let marked = mark.await;
    (marked, read(&engine, &table, &PartitionRange::all(), false).await.unwrap())
}

#[test]
fn salvaged_rows_do_not_outlive_a_truncation() {
    let mut cancelled = 0;
    for n in 0..40 {
        let (marked, left) = on_a_node(n, move |rt| truncated(rt, Duration::from_micros(n * 25)));
        assert_eq!(left, Visible::new(), "a truncation {} us after the begin", n * 25);
        cancelled += u64::from(!marked);
    }
    assert!(cancelled > 0, "none came between");
}

/// Compactions that meet damage: how many failed within ten minutes, and SSTables and damaged ones after them.
async fn compactions(rt: Rt) -> (u64, usize, u64) {
    let schema = schema(864_000);
    let table = schema.table("ks", "t1").unwrap().clone();
    let engine = Engine::open(rt.clone(), engine_config(false), schema.clone()).await.unwrap();
    for _ in 0..2 {
        write(&engine, &table, |_| true).await;
        engine.flush(table.id).await.unwrap();
    }
    engine.stop().await.unwrap();
    flip(&rt, &sstables(&rt, &table).await[0], 0.5).await;
    let engine = Engine::open(rt.clone(), engine_config(true), schema).await.unwrap();
    for _ in 0..4 {
        write(&engine, &table, |_| true).await;
        engine.flush(table.id).await.unwrap();
    }
    rt.sleep(Duration::from_secs(600)).await;
    let all = visible(ops().iter());
    assert!(lost(&engine, &table, &all).await.len() < KEYS as usize / 2);
    (engine.stats().compactions_failed, engine.sstable_count(table.id), damaged(&engine, &table))
}

#[test]
fn compactions_leave_out_sstables_that_they_found_damaged() {
    let (failed, sstables, damaged) = on_a_node(1, compactions);
    assert_eq!((failed, damaged), (1, 1));
    assert!(sstables <= 3, "the others are merged: {sstables} SSTables");
}

/// A byte of an SSTable's statistics is flipped between their writing and the opening of the SSTable, so many times. Gives whether
/// the flush failed, and whether a write finds the engine at work after it.
async fn rot_while_flushed(rt: Rt, times: u64) -> (bool, bool) {
    let schema = schema(864_000);
    let table = schema.table("ks", "t1").unwrap().clone();
    let engine = Engine::open(rt.clone(), engine_config(false), schema.clone()).await.unwrap();
    write(&engine, &table, |_| true).await;
    let dir = sstable::table_dir(&engine_config(false).data_directory, &table);
    let rt2 = rt.clone();
    let flips = rt.spawn(Group::Statement, async move {
        let mut flipped = BTreeSet::new();
        while flipped.len() < times as usize {
            rt2.sleep(Duration::from_micros(20)).await;
            let entries = rt2.disk().list(&dir).await.unwrap_or_default();
            for name in entries.into_iter().map(|entry| entry.name) {
                let path = dir.join(&name);
                let is_new = name.ends_with("-Statistics.db") && !flipped.contains(&name);
                if !is_new || rt2.disk().len(path.clone()).await.unwrap_or(0) < 200 {
                    continue;
                }
                let Ok(bytes) = rt2.disk().read_to_end(&path, 1 << 20).await else { continue };
                let at = bytes.len() / 2;
                if let Ok(file) = rt2.disk().open(&path, OpenOptions::READ_WRITE).await {
                    file.write_at(at as u64, IoBuf::copy_of(&[bytes[at] ^ 0x10])).await.unwrap();
                    flipped.insert(name);
                }
            }
        }
    });
    for _ in 0..4 {
        if engine.flush(table.id).await.is_ok() {
            break;
        }
    }
    drop(flips);
    let failed = engine.stats().flushes_failed > 0;
    let updates = updates(&table, &ops()[0], 1_700_000_000);
    let works = engine.apply(Write::one(Origin::Client, updates[0].clone())).await.is_ok();
    if works {
        let found = read(&engine, &table, &PartitionRange::all(), false).await.expect("it was written anew");
        assert_eq!(found, visible(ops().iter()));
    }
    (failed, works)
}

/// An SSTable that is damaged while it is written is written again from the memtable; a disk that does it twice is broken.
#[test]
fn an_sstable_that_is_damaged_before_it_is_opened_is_written_again() {
    let mut failures = 0;
    for seed in 0..20 {
        let (failed, works) = on_a_node(seed, |rt| rot_while_flushed(rt, 1));
        assert!(works, "seed {seed}");
        failures += u32::from(failed);
    }
    assert!(failures > 0, "in no seed the damage came in time");
    let stopped = (0..20).any(|seed| on_a_node(seed, |rt| rot_while_flushed(rt, 8)) == (true, false));
    assert!(stopped, "the storage stops where each file is damaged");
}
