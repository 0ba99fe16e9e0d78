//! When compactions run, the SSTables that they may take, and those that they drop.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use engine::{Canaries, Engine, EngineConfig, EngineSettings, EngineStats, Origin, SyncMode, Write};
use mutation::{Cell, Clustering, ColumnData, DeletionTime, PartitionRange, PartitionUpdate, Repaired, Row};
use rt::{Rt, shard_mains};
use rt_sim::{Config, DiskConfig, NodeConfig, Simulation};
use schema::{Keyspace, Replication, Schema, Table};

use crate::model::{Change, Op, key, read, updates};
use crate::world::{Plan, config, on_a_node};

fn engine_config() -> EngineConfig {
    let sync = SyncMode::Periodic { period: Duration::from_millis(50) };
    let plan = Plan { sync, canaries: Canaries::default(), gc_grace: 0, sstables: true, ops_max: 0 };
    let mut config = config(&plan);
    config.memtable_bytes_max = 64 << 20;
    config.commitlog.total_bytes_max = 1 << 30;
    config
}

fn schema(tables: impl IntoIterator<Item = Table>) -> Arc<Schema> {
    let empty = Schema::default().with_keyspace(Keyspace::new("ks", Replication::Local));
    Arc::new(tables.into_iter().fold(empty, |schema, table| schema.with_table(table)))
}

/// A table of windows of a minute and no grace.
fn windows(options: &[(&str, &str)]) -> Table {
    let mut table = crate::model::table(1, 0);
    table.options.compaction.clear();
    let ours = [
        ("class", "TimeWindowCompactionStrategy"),
        ("compaction_window_unit", "MINUTES"),
        ("compaction_window_size", "1"),
    ];
    for (name, value) in ours.iter().chain(options) {
        table.options.compaction.insert((*name).to_owned(), (*value).to_owned());
    }
    table
}

fn cell(table: &Arc<Table>, pk: i32, cell: Cell) -> PartitionUpdate {
    let mut update = PartitionUpdate::new(table.clone(), key(pk));
    let mut row = Row::new(Clustering::new(table, &[Some(&1i32.to_be_bytes())]));
    row.set(table.column("a").unwrap().id, ColumnData::Simple(cell));
    update.add_row(row);
    update
}

fn value(ts: i64) -> Bytes {
    Bytes::copy_from_slice(&ts.to_be_bytes())
}

fn seconds(rt: &Rt) -> u32 {
    (rt.wall_micros() / 1_000_000) as u32
}

/// Five windows of rows that live for five seconds, in the same partitions, and writes all the time.
async fn five_windows(rt: Rt) -> (Vec<usize>, EngineStats) {
    let schema = schema([windows(&[])]);
    let table = schema.table("ks", "t1").unwrap().clone();
    let engine = Engine::open(rt.clone(), engine_config(), schema).await.unwrap();
    let mut counts = Vec::new();
    for _ in 0..5 {
        for second in 0..60 {
            for pk in 0..5 {
                let ts = rt.wall_micros();
                let one = cell(&table, pk, Cell::expiring(ts, 5, seconds(&rt) + 5, value(ts)));
                engine.apply(Write::one(Origin::Client, one)).await.unwrap();
            }
            if second == 30 {
                engine.flush(table.id).await.unwrap();
            }
            rt.sleep(Duration::from_secs(1)).await;
        }
        counts.push(engine.sstable_count(table.id));
    }
    let stats = engine.stats();
    assert!(stats.memtable_bytes > 0, "the memtable is never empty");
    (counts, stats)
}

#[test]
fn time_windows_that_have_expired_go() {
    let (counts, stats) = on_a_node(1, five_windows);
    assert!(counts.iter().all(|count| *count <= 1), "SSTables after each window: {counts:?}");
    let expired: Vec<_> =
        stats.compaction_history.iter().filter(|record| record.properties == "expired").collect();
    assert!(expired.len() >= 4, "{:?}", stats.compaction_history);
    assert!(expired.iter().all(|record| record.bytes_in > 0 && record.bytes_out == 0));
}

/// A deletion without any grace, and the rows that it hides in an older SSTable or a memtable. Gives the number of SSTables, and whether any
/// deleted row is seen.
async fn hidden(rt: Rt, aggressive: bool, in_memtable: bool) -> (usize, bool) {
    let text = if aggressive { "true" } else { "false" };
    let schema = schema([windows(&[("unsafe_aggressive_sstable_expiration", text)])]);
    let table = schema.table("ks", "t1").unwrap().clone();
    let engine = Engine::open(rt.clone(), engine_config(), schema).await.unwrap();
    let now = rt.wall_micros();
    let old = now - 600_000_000;
    let mut deletion = PartitionUpdate::new(table.clone(), key(1));
    deletion.add_deletion(DeletionTime::new(now, seconds(&rt)));
    if !in_memtable {
        engine.apply(Write::one(Origin::Client, cell(&table, 1, Cell::live(old, value(old))))).await.unwrap();
        engine.flush(table.id).await.unwrap();
    }
    engine.apply(Write::one(Origin::Client, deletion)).await.unwrap();
    engine.flush(table.id).await.unwrap();
    if in_memtable {
        engine.apply(Write::one(Origin::Client, cell(&table, 1, Cell::live(old, value(old))))).await.unwrap();
    }
    let mut seen = false;
    for _ in 0..100 {
        rt.sleep(Duration::from_secs(2)).await;
        seen |= !read(&engine, &table, &PartitionRange::all(), false).await.unwrap().is_empty();
    }
    (engine.sstable_count(table.id), seen)
}

#[test]
fn deletions_that_hide_rows_stay_unless_the_table_has_the_option() {
    for in_memtable in [false, true] {
        let files = usize::from(!in_memtable) + 1;
        assert_eq!(on_a_node(2, move |rt| hidden(rt, false, in_memtable)), (files, false), "{in_memtable}");
        assert_eq!(on_a_node(2, move |rt| hidden(rt, true, in_memtable)), (files - 1, true), "{in_memtable}");
    }
}

/// Rows of a few bytes take many times more in memory than on disk. Gives bytes of the data file and how long merging took.
async fn throttled(rt: Rt, rate: u64) -> (u64, Duration) {
    let schema = schema([crate::model::table(1, 864_000)]);
    let table = schema.table("ks", "t1").unwrap().clone();
    let config = EngineConfig {
        auto_compaction: false,
        settings: EngineSettings {
            compaction_bytes_per_second: rate,
            auto_snapshot: false,
            ..EngineSettings::default()
        },
        ..engine_config()
    };
    let engine = Engine::open(rt.clone(), config, schema).await.unwrap();
    for turn in 0..2 {
        for pk in 0..40 {
            let mut update = PartitionUpdate::new(table.clone(), key(pk));
            for ck in 0..200i32 {
                let mut row = Row::new(Clustering::new(&table, &[Some(&(ck * 2 + turn).to_be_bytes())]));
                row.set(table.column("a").unwrap().id, ColumnData::Simple(Cell::live(1, value(1))));
                update.add_row(row);
            }
            engine.apply(Write::one(Origin::Client, update)).await.unwrap();
        }
        engine.flush(table.id).await.unwrap();
    }
    let start = rt.now();
    engine.compact(table.id).await.unwrap();
    (engine.stats().compaction_bytes_in, rt.now() - start)
}

#[test]
fn the_throttle_counts_bytes_of_files() {
    let rate = 20 << 10;
    let (bytes, took) = on_a_node(3, move |rt| throttled(rt, rate));
    let expected = bytes as f64 / rate as f64;
    let took = took.as_secs_f64();
    assert!(expected > 0.5, "{bytes} bytes are too few to tell");
    assert!(
        (0.6..1.4).contains(&(took / expected)),
        "{took} s for {bytes} bytes, {expected} s at {rate} a second"
    );
}

/// The first table always has something to merge, the last has something once. Returns how often the first was merged until the last was.
async fn unfair(rt: Rt) -> u64 {
    let schema = schema((1..=6).map(|id| crate::model::table(id, 864_000)));
    let table = |id: u8| schema.table("ks", &format!("t{id}")).unwrap().clone();
    let config = EngineConfig {
        settings: EngineSettings {
            compactors_max: 1,
            compaction_bytes_per_second: 8 << 10,
            ..EngineSettings::default()
        },
        ..engine_config()
    };
    let engine = Engine::open(rt.clone(), config, schema.clone()).await.unwrap();
    let (first, last) = (table(1), table(6));
    let write = |number: i32| {
        let ts = i64::from(number) + 1;
        let change = Change::Cell { pk: number % 7, ck: number % 5, b: false, ts };
        Op { number: number as u64, changes: vec![change], large: true }
    };
    for number in 0.. {
        engine
            .apply(Write::all(Origin::Client, updates(&first, &write(number), 1_700_000_000)))
            .await
            .unwrap();
        engine.flush(first.id).await.unwrap();
        if number == 20 || number == 21 {
            engine
                .apply(Write::all(Origin::Client, updates(&last, &write(number), 1_700_000_000)))
                .await
                .unwrap();
            engine.flush(last.id).await.unwrap();
        }
        rt.sleep(Duration::from_millis(100)).await;
        let history = engine.stats().compaction_history;
        if history.iter().any(|record| record.table == "t6") || number > 300 {
            return history.iter().filter(|record| record.table == "t1").count() as u64;
        }
    }
    unreachable!("it ends above")
}

#[test]
fn no_table_waits_for_ever() {
    let before = on_a_node(4, unfair);
    assert!((2..60).contains(&before), "the first table was merged {before} times before the last was");
}

/// Four SSTables of one size on a disk that has room for two of them besides.
/// Twelve flushes of the same partitions under a strategy, then a major compaction: how many SSTables there were after each, and
/// whether the newest values are read.
async fn flushed_often(rt: Rt, compaction: &'static [(&'static str, &'static str)]) -> (usize, usize, bool) {
    let mut definition = crate::model::table(1, 0);
    let options = compaction.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    definition.options.compaction = options.collect();
    definition.options.compression = [("enabled".to_owned(), "false".to_owned())].into();
    let schema = schema([definition]);
    let table = schema.table("ks", "t1").unwrap().clone();
    let engine = Engine::open(rt.clone(), engine_config(), schema).await.unwrap();
    for timestamp in 1..=12i64 {
        for pk in 0..200 {
            let mut filler = vec![0; 8 << 10];
            filler[..8].copy_from_slice(&timestamp.to_be_bytes());
            let one = cell(&table, pk, Cell::live(timestamp, Bytes::from(filler)));
            engine.apply(Write::one(Origin::Client, one)).await.unwrap();
        }
        engine.flush(table.id).await.unwrap();
        rt.sleep(Duration::from_secs(5)).await;
    }
    let after_minor = engine.sstable_count(table.id);
    engine.compact(table.id).await.unwrap();
    let after_major = engine.sstable_count(table.id);
    let newest = read(&engine, &table, &PartitionRange::all(), false).await.unwrap();
    let is_right = newest.len() == 200 && newest.values().all(|timestamp| *timestamp == 12);
    (after_minor, after_major, is_right)
}

#[test]
fn results_of_unified_compaction_are_split_at_tokens() {
    const UNIFIED: &[(&str, &str)] = &[
        ("class", "UnifiedCompactionStrategy"),
        ("scaling_parameters", "L4"),
        ("min_sstable_size", "0B"),
        ("base_shard_count", "1"),
        ("target_sstable_size", "1MiB"),
        ("sstable_growth", "0"),
    ];
    const TIERS: &[(&str, &str)] = &[("class", "SizeTieredCompactionStrategy")];
    let (_, major, is_right) = on_a_node(7, |rt| flushed_often(rt, UNIFIED));
    assert_eq!((major, is_right), (2, true), "1.6 MB in parts of about 1 MiB");
    let (minor, major, is_right) = on_a_node(7, |rt| flushed_often(rt, TIERS));
    assert_eq!((minor, major, is_right), (3, 1, true));
}

async fn crowded(rt: Rt, left: Arc<Mutex<Option<(usize, EngineStats)>>>) {
    let schema = schema([{
        let mut table = crate::model::table(1, 864_000);
        table.options.compaction.insert("min_threshold".to_owned(), "4".to_owned());
        table
    }]);
    let table = schema.table("ks", "t1").unwrap().clone();
    let config = EngineConfig {
        settings: EngineSettings { auto_snapshot: false, ..EngineSettings::default() },
        ..engine_config()
    };
    let engine = Engine::open(rt.clone(), config, schema).await.unwrap();
    for turn in 0..4i64 {
        for pk in 0..100 {
            let ts = turn * 1000 + pk + 1;
            let mut noise = vec![0; 4000];
            rt.fill_random(&mut noise);
            let value = [&ts.to_be_bytes()[..], &noise].concat();
            engine
                .apply(Write::one(Origin::Client, cell(&table, pk as i32, Cell::live(ts, value.into()))))
                .await
                .unwrap();
        }
        engine.flush(table.id).await.unwrap();
    }
    rt.sleep(Duration::from_secs(180)).await;
    *left.lock().unwrap() = Some((engine.sstable_count(table.id), engine.stats()));
}

#[test]
fn a_job_that_does_not_fit_the_disk_is_made_smaller_or_put_off() {
    // Four SSTables of 400 KB, segments of the log of 1.6 MB, and the rest.
    for (capacity, merges) in [(3_500_000, 1), (2_600_000, 0)] {
        let sim = Simulation::new(6, Config::default());
        let left = Arc::new(Mutex::new(None));
        let of_node = left.clone();
        let disk = DiskConfig { capacity, ..DiskConfig::default() };
        let node = sim.add_node(NodeConfig { disk, ..NodeConfig::default() }, move |_| {
            let left = of_node.clone();
            shard_mains(1, move |rt| crowded(rt, left.clone()))
        });
        sim.start(node);
        let watched = left.clone();
        sim.run_until(|| watched.lock().unwrap().is_some()).unwrap();
        let (count, stats) = left.lock().unwrap().take().unwrap();
        assert_eq!(stats.compactions_done, merges, "{capacity}: {:?}", stats.compaction_history);
        assert_eq!(count, if merges > 0 { 3 } else { 4 }, "two of four are merged, or none");
        assert!(stats.compactions_failed <= 10, "{} compactions have failed", stats.compactions_failed);
        assert_eq!(stats.flushes_failed, 0, "{capacity}");
    }
}

/// The SSTables that are left of a deletion past its grace, before and after its range was repaired; with the option deletions wait for that.
async fn purged(rt: Rt, only_repaired: bool) -> [usize; 3] {
    let mut table = crate::model::table(1, 1);
    let option = ("only_purge_repaired_tombstones".to_owned(), only_repaired.to_string());
    table.options.compaction.extend([option]);
    let schema = schema([table]);
    let table = schema.table("ks", "t1").unwrap().clone();
    let engine = Engine::open(rt.clone(), EngineConfig { auto_compaction: false, ..engine_config() }, schema)
        .await
        .unwrap();
    let deleted = async || {
        let mut deletion = PartitionUpdate::new(table.clone(), key(1));
        deletion.add_deletion(DeletionTime::new(rt.wall_micros(), seconds(&rt)));
        engine.apply(Write::one(Origin::Client, deletion)).await.unwrap();
        rt.sleep(Duration::from_secs(5)).await;
    };
    let merged = async || {
        engine.compact(table.id).await.unwrap();
        engine.sstable_count(table.id)
    };
    deleted().await;
    let before = merged().await;
    let token = key(1).token;
    engine.set_repaired(table.id, Arc::new(Repaired::new([(token, i64::MAX, seconds(&rt))])));
    let elsewhere = merged().await;
    engine.set_repaired(table.id, Arc::new(Repaired::new([(token - 1, token, seconds(&rt))])));
    [before, elsewhere, merged().await]
}

#[test]
fn with_the_option_only_repaired_deletions_are_purged() {
    assert_eq!(on_a_node(3, |rt| purged(rt, true)), [1, 1, 0]);
    assert_eq!(on_a_node(3, |rt| purged(rt, false)), [0; 3]);
}

/// Merges two small SSTables beside a large one, which has deletions of half of their rows and later versions of the others. Gives the bytes
/// that the merge read and wrote, and whether readers saw the same all the time.
async fn beside_a_large_one(rt: Rt, option: &'static str) -> (u64, u64, bool) {
    let mut table = crate::model::table(1, 864_000);
    let option = ("provide_overlapping_tombstones".to_owned(), option.to_owned());
    table.options.compaction.extend([option]);
    let schema = schema([table]);
    let table = schema.table("ks", "t1").unwrap().clone();
    let engine = Engine::open(rt.clone(), engine_config(), schema).await.unwrap();
    engine.set_auto_compaction(table.id, false).unwrap();
    let write = async |update: PartitionUpdate| {
        engine.apply(Write::one(Origin::Client, update)).await.unwrap();
    };
    for pk in 0..40 {
        if pk % 2 == 0 {
            let mut deletion = PartitionUpdate::new(table.clone(), key(pk));
            deletion.add_deletion(DeletionTime::new(5_000, seconds(&rt)));
            write(deletion).await;
        } else {
            write(cell(&table, pk, Cell::live(5_000, value(5_000)))).await;
        }
    }
    for pk in 100..1_000 {
        write(cell(&table, pk, Cell::live(5_000, value(5_000)))).await;
    }
    engine.flush(table.id).await.unwrap();
    for half in 0..2 {
        for pk in 0..40 {
            write(cell(&table, pk, Cell::live(1_000 + half, value(half)))).await;
        }
        engine.flush(table.id).await.unwrap();
    }
    let seen = async || read(&engine, &table, &PartitionRange::all(), false).await.unwrap();
    let before = seen().await;
    assert_eq!(before.len(), 920, "deleted rows are not seen");
    engine.set_auto_compaction(table.id, true).unwrap();
    rt.sleep(Duration::from_secs(10)).await;
    let history = engine.stats().compaction_history;
    assert_eq!(history.len(), 1, "the large one stays: {history:?}");
    (history[0].bytes_in, history[0].bytes_out, seen().await == before)
}

#[test]
fn a_merge_drops_what_others_hide_where_the_table_wants_it() {
    let [none, row, cell] =
        ["none", "row", "CELL"].map(|option| on_a_node(4, move |rt| beside_a_large_one(rt, option)));
    assert!(none.2 && row.2 && cell.2, "readers see the same");
    assert!(none.1 > none.0 / 4, "nothing is dropped but one of two versions: {none:?}");
    assert!(
        row.1 > 0 && row.1 < none.1 * 3 / 4,
        "the rows of deleted partitions are dropped: {row:?} {none:?}"
    );
    assert_eq!(cell.1, 0, "and the versions that others replace: {cell:?}");
}
