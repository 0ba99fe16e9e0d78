//! SSTables written anew one by one: garbage collection drops hidden data and nothing else, a scrub drops unreadable data, a
//! verification finds damage, and an operator stops each of them.

use std::sync::Arc;
use std::time::Duration;

use engine::{
    Canaries, Engine, EngineConfig, Granularity, MaintenanceError, Origin, Rewrite, RewriteReport,
    StopRequest, SyncMode, TaskKind, Write,
};
use mutation::PartitionRange;
use rt::{Group, IoBuf, OpenOptions, Rt};
use schema::Table;
use sstable::{Component, Descriptor};

use crate::model::{Change, Op, Visible, read, schema, updates, visible};
use crate::world::{Plan, config, on_a_node};

const KEYS: i32 = 24;

fn engine_config() -> EngineConfig {
    let sync = SyncMode::Periodic { period: Duration::from_millis(50) };
    let plan = Plan { sync, canaries: Canaries::default(), gc_grace: 864_000, sstables: true, ops_max: 0 };
    let mut config = EngineConfig { auto_compaction: false, ..config(&plan) };
    config.memtable_bytes_max = 16 << 20;
    config.commitlog.total_bytes_max = 64 << 20;
    config.cache_bytes_max = 0;
    config
}

async fn opened(rt: &Rt) -> (Engine, Arc<Table>) {
    let schema = schema(864_000);
    let table = schema.table("ks", "t1").unwrap().clone();
    (Engine::open(rt.clone(), engine_config(), schema).await.unwrap(), table)
}

async fn write(engine: &Engine, table: &Arc<Table>, ops: &[Op]) {
    for op in ops {
        for update in updates(table, op, 1_700_000_000) {
            engine.apply(Write::one(Origin::Client, update)).await.unwrap();
        }
    }
    engine.flush(table.id).await.unwrap();
}

async fn all(engine: &Engine, table: &Arc<Table>) -> Visible {
    read(engine, table, &PartitionRange::all(), false).await.expect("sound files")
}

fn bytes(engine: &Engine, table: &Table) -> u64 {
    engine.table_stats(table.id).unwrap().uncompressed_bytes
}

fn op(change: Change) -> Op {
    Op { number: 0, changes: vec![change], large: true }
}

/// Rows, then deletions of some and later versions of others, in an SSTable each; also older rows that came late.
fn history() -> [Vec<Op>; 3] {
    let cell = |pk, ck, b, ts| op(Change::Cell { pk, ck, b, ts });
    let rows = |ts: i64| {
        let all = (0..KEYS).flat_map(move |pk| (0..6).map(move |ck| (pk, ck)));
        all.map(move |(pk, ck)| cell(pk, ck, ck % 2 == 0, ts + i64::from(pk * 10 + ck))).collect::<Vec<_>>()
    };
    let mut later = Vec::new();
    for pk in 0..KEYS {
        later.push(match pk % 4 {
            0 => op(Change::Partition { pk, ts: 5_000 }),
            1 => op(Change::Range { pk, from: 1, upto: 3, ts: 5_000 }),
            2 => op(Change::Row { pk, ck: 2, ts: 5_000 }),
            _ => cell(pk, 1, false, 5_000),
        });
        later.push(op(Change::Static { pk, ts: 6_000 + i64::from(pk) }));
    }
    let mut first = rows(1_000);
    first.extend((0..KEYS).map(|pk| op(Change::Static { pk, ts: 10 })));
    [first, later, rows(2_000)]
}

/// Bytes of the SSTables before, after dropping deleted data, and after dropping overwritten data too.
async fn collected(rt: Rt) -> [u64; 3] {
    let (engine, table) = opened(&rt).await;
    let history = history();
    for ops in &history {
        write(&engine, &table, ops).await;
    }
    let expected = visible(history.iter().flatten());
    assert_eq!(all(&engine, &table).await, expected);
    let mut seen = [bytes(&engine, &table); 3];
    // Of the first SSTable everything has a later version.
    let steps = [(Granularity::Row, 3), (Granularity::Cell, 2)];
    for ((granularity, left), bytes_then) in steps.into_iter().zip(&mut seen[1..]) {
        let done = engine.rewrite(table.id, Rewrite::GarbageCollect(granularity)).await.unwrap();
        assert_eq!((done.sstables, engine.sstable_count(table.id)), (3, left), "SSTables are not merged");
        assert_eq!(all(&engine, &table).await, expected, "{granularity:?}");
        *bytes_then = bytes(&engine, &table);
    }
    let kinds: Vec<String> =
        engine.stats().compaction_history.into_iter().map(|record| record.properties).collect();
    assert_eq!(kinds, ["garbage collection"; 6]);
    engine.compact(table.id).await.unwrap();
    assert_eq!(all(&engine, &table).await, expected);
    seen
}

#[test]
fn garbage_collection_drops_what_others_hide_and_nothing_else() {
    let [before, rows, cells] = on_a_node(1, collected);
    // Of 288 large cells 12 of the first and of the third round are in deleted partitions, 6 in ranges, ...
    assert!(rows < before * 3 / 4, "{before} {rows} {cells}");
    assert!(cells < rows * 2 / 3, "{before} {rows} {cells}");
}

/// Random operations in random SSTables: garbage collection changes nothing that a reader sees, in any order of the files.
async fn random(rt: Rt) -> (u64, u64) {
    let (engine, table) = opened(&rt).await;
    let mut ops = Vec::new();
    let random = move |below: i32| {
        let mut bytes = [0; 4];
        rt.fill_random(&mut bytes);
        (u32::from_le_bytes(bytes) % below as u32) as i32
    };
    for file in 0..5 {
        let mut some = Vec::new();
        for n in 0..60 {
            let (pk, ck, ts) = (random(6), random(8), i64::from(random(1_000)) * 1_000 + file * 60 + n);
            some.push(op(match random(9) {
                0 => Change::Partition { pk, ts },
                1 => Change::Row { pk, ck, ts },
                2 => Change::Range { pk, from: ck.min(4), upto: ck.max(4), ts },
                3 => Change::Static { pk, ts },
                b => Change::Cell { pk, ck, b: b % 2 == 0, ts },
            }));
        }
        write(&engine, &table, &some).await;
        ops.extend(some);
    }
    let (expected, before) = (visible(ops.iter()), bytes(&engine, &table));
    for granularity in [Granularity::Row, Granularity::Cell] {
        engine.rewrite(table.id, Rewrite::GarbageCollect(granularity)).await.unwrap();
        assert_eq!(all(&engine, &table).await, expected, "{granularity:?}");
    }
    engine.compact(table.id).await.unwrap();
    assert_eq!(all(&engine, &table).await, expected);
    (before, bytes(&engine, &table))
}

#[test]
fn random_garbage_is_collected() {
    for seed in 0..20 {
        let (before, after) = on_a_node(seed, random);
        assert!(after < before);
    }
}

async fn upgraded(rt: Rt) -> (u64, u64) {
    let (engine, table) = opened(&rt).await;
    write(&engine, &table, &history()[0]).await;
    let of = |all| engine.rewrite(table.id, Rewrite::Upgrade { all });
    let (old, any) = (of(false).await.unwrap(), of(true).await.unwrap());
    assert_eq!(all(&engine, &table).await, visible(history()[0].iter()));
    (old.sstables, any.sstables)
}

#[test]
fn an_upgrade_leaves_out_current_files_unless_all_are_wanted() {
    assert_eq!(on_a_node(2, upgraded), (0, 1));
}

async fn flip(rt: &Rt, sstable: &Descriptor) {
    let path = sstable.path(Component::Data);
    let bytes = rt.disk().read_to_end(&path, 1 << 30).await.unwrap();
    let file = rt.disk().open(&path, OpenOptions::READ_WRITE).await.unwrap();
    let at = bytes.len() / 2;
    file.write_at(at as u64, IoBuf::copy_of(&[bytes[at] ^ 0x10])).await.unwrap();
}

async fn damaged(rt: &Rt) -> (Engine, Arc<Table>) {
    let (engine, table) = opened(rt).await;
    let [first, second, _] = history();
    write(&engine, &table, &first).await;
    write(&engine, &table, &second).await;
    let dir = sstable::table_dir(&engine_config().data_directory, &table);
    let mut files = sstable::list_complete(rt.disk(), &dir).await.unwrap();
    files.sort_by_key(|file| file.generation.to_string());
    flip(rt, &files[0]).await;
    (engine, table)
}

async fn scrubbed(rt: Rt) -> (String, RewriteReport, usize, u64) {
    let (engine, table) = damaged(&rt).await;
    let aborted = engine.rewrite(table.id, Rewrite::Scrub { skip: false }).await.unwrap_err().to_string();
    assert_eq!(engine.sstable_count(table.id), 2, "the damaged file stays");
    let done = engine.rewrite(table.id, Rewrite::Scrub { skip: true }).await.unwrap();
    let (seen, expected) = (all(&engine, &table).await, visible(history()[..2].iter().flatten()));
    let back = seen.iter().filter(|(place, ts)| expected.get(place).is_none_or(|known| known != *ts));
    assert_eq!(back.count(), 0, "nothing that was deleted is seen");
    let verified = engine.rewrite(table.id, Rewrite::Verify).await.unwrap();
    assert_eq!(verified.problems, Vec::<String>::new());
    let damaged = engine.table_stats(table.id).unwrap().damaged_sstables;
    (aborted, done, expected.len() - seen.len(), damaged)
}

#[test]
fn a_scrub_drops_only_what_cannot_be_read() {
    let (aborted, done, lost, damaged) = on_a_node(3, scrubbed);
    assert!(aborted.contains("damaged and left as they are") && aborted.contains("mode SKIP"), "{aborted}");
    assert_eq!((done.set_aside, damaged), (1, 0), "{done:?}");
    assert!(done.problems.iter().all(|text| text.contains("cannot be read and was dropped")), "{done:?}");
    assert!((1..30).contains(&lost), "{lost} cells of {done:?}");
}

async fn verified(rt: Rt) -> (RewriteReport, u64) {
    let (engine, table) = damaged(&rt).await;
    let found = engine.rewrite(table.id, Rewrite::Verify).await.unwrap();
    (found, engine.table_stats(table.id).unwrap().damaged_sstables)
}

#[test]
fn a_verification_finds_damage() {
    let (found, damaged) = on_a_node(4, verified);
    assert_eq!((found.sstables, damaged), (2, 1));
    assert!(found.problems.iter().any(|text| text.contains("Data.db is corrupt")), "{found:?}");
}

/// The outcome of an operation that an operator stops in the middle, by its kind or by the id of its task.
async fn stopped(rt: Rt, how: Option<Rewrite>, by_id: bool) -> (String, u64) {
    let (engine, table) = opened(&rt).await;
    for ops in history() {
        write(&engine, &table, &ops).await;
    }
    let mut settings = engine_config().settings;
    settings.compaction_bytes_per_second = 500;
    engine.set_settings(settings);
    let (working, id) = (engine.clone(), table.id);
    let work = rt.spawn(Group::Maintenance, async move {
        match how {
            Some(how) => working.rewrite(id, how).await.map(drop),
            None => working.compact(id).await,
        }
    });
    rt.sleep(Duration::from_secs(3)).await;
    let tasks = engine.stats().compaction_tasks;
    let [task] = &tasks[..] else { panic!("{tasks:?}") };
    assert_eq!((&*task.keyspace, &*task.table), ("ks", "t1"));
    let others: Vec<TaskKind> = TaskKind::STOPPABLE.into_iter().filter(|kind| *kind != task.kind).collect();
    for other in others {
        assert_eq!(engine.stop_operations(&StopRequest::Kind(other, None)), 0);
    }
    let elsewhere = Some(vec![schema::TableId([9; 16])]);
    assert_eq!(engine.stop_operations(&StopRequest::Kind(task.kind, elsewhere)), 0);
    assert_eq!(engine.stop_operations(&StopRequest::Id([1; 16])), 0);
    let request = match by_id {
        true => StopRequest::Id(task.id),
        false => StopRequest::Kind(task.kind, Some(vec![table.id])),
    };
    let stopped = engine.stop_operations(&request);
    let failed = work.await.unwrap_err();
    assert!(matches!(failed, MaintenanceError::Interrupted), "{how:?} {failed}");
    assert_eq!(all(&engine, &table).await, visible(history().iter().flatten()));
    assert_eq!(engine.sstable_count(table.id), 3);
    (failed.to_string(), stopped)
}

#[test]
fn an_operator_stops_work_on_sstables() {
    let ways = [
        Some(Rewrite::GarbageCollect(Granularity::Row)),
        Some(Rewrite::Upgrade { all: true }),
        Some(Rewrite::Scrub { skip: true }),
        Some(Rewrite::Verify),
        None,
    ];
    for (how, by_id) in ways.into_iter().flat_map(|how| [(how, true), (how, false)]) {
        let (failed, count) = on_a_node(5, move |rt| stopped(rt, how, by_id));
        assert_eq!((&*failed, count), ("an operator stopped it (nodetool stop)", 1), "{how:?}");
    }
}

/// An automatic compaction that is stopped begins again later.
async fn resumed(rt: Rt) -> (usize, usize) {
    let (engine, table) = opened(&rt).await;
    engine.stop().await.unwrap();
    let config = EngineConfig { auto_compaction: true, ..engine_config() };
    let engine = Engine::open(rt.clone(), config, schema(864_000)).await.unwrap();
    let mut settings = engine_config().settings;
    settings.compaction_bytes_per_second = 500;
    engine.set_settings(settings);
    for ops in history() {
        write(&engine, &table, &ops).await;
    }
    rt.sleep(Duration::from_secs(2)).await;
    assert!(engine.stop_operations(&StopRequest::Kind(TaskKind::Compaction, None)) > 0);
    rt.sleep(Duration::from_secs(50)).await;
    let stopped = engine.sstable_count(table.id);
    rt.sleep(Duration::from_secs(600)).await;
    (stopped, engine.sstable_count(table.id))
}

#[test]
fn stopped_compactions_begin_again_after_a_while() {
    let (stopped, later) = on_a_node(6, resumed);
    assert_eq!(stopped, 3);
    assert!(later < 3, "{later} SSTables");
}
