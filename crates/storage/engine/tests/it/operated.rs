//! The view of operators on one table, and its switches: compactions that begin by themselves, distributions, the files of a partition, the time
//! of snapshots.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Canaries, Engine, MaintenanceError, Origin, Read, ReadScope, SnapshotRows, SyncMode, Write,
    list_snapshots, remove_snapshot, snapshot_bytes,
};
use mutation::{
    Bound, Cell, Clustering, ColumnData, DeletionTime, PartitionRange, PartitionUpdate, RangeTombstone,
    RingPosition, Row, Slices,
};
use rt::Rt;
use schema::{Keyspace, Replication, Schema, Table, TableId};

use crate::model::{key, read, schema, visible_of};
use crate::world::{Plan, config, on_a_node};

fn plan(sync: SyncMode) -> Plan {
    Plan { sync, canaries: Canaries::default(), gc_grace: 0, sstables: true, ops_max: 0 }
}

async fn engine(rt: &Rt) -> (Engine, Arc<Table>) {
    let mut config = config(&plan(SyncMode::Periodic { period: Duration::from_millis(50) }));
    config.memtable_bytes_max = 64 << 20;
    config.commitlog.total_bytes_max = 1 << 30;
    let schema = schema(0);
    let table = schema.table("ks", "t1").unwrap().clone();
    (Engine::open(rt.clone(), config, schema).await.unwrap(), table)
}

async fn write(engine: &Engine, table: &Arc<Table>, pk: i32, timestamp: i64) {
    let mut update = PartitionUpdate::new(table.clone(), key(pk));
    let mut row = Row::new(Clustering::new(table, &[Some(&1i32.to_be_bytes())]));
    let cell = Cell::live(timestamp, Bytes::copy_from_slice(&timestamp.to_be_bytes()));
    row.set(table.column("a").unwrap().id, ColumnData::Simple(cell));
    update.add_row(row);
    engine.apply(Write::one(Origin::Client, update)).await.unwrap();
}

/// The SSTables of ten flushes while compactions are stopped, and when they are allowed again.
async fn switched(rt: Rt) -> (usize, bool, usize) {
    let (engine, table) = engine(&rt).await;
    engine.set_auto_compaction(table.id, false).unwrap();
    for timestamp in 1..=10 {
        write(&engine, &table, 1, timestamp).await;
        engine.flush(table.id).await.unwrap();
    }
    rt.sleep(Duration::from_secs(300)).await;
    let (stopped, stats) = (engine.sstable_count(table.id), engine.table_stats(table.id).unwrap());
    engine.set_auto_compaction(table.id, true).unwrap();
    rt.sleep(Duration::from_secs(300)).await;
    let unknown = engine.set_auto_compaction(TableId([99; 16]), true);
    assert!(matches!(unknown, Err(MaintenanceError::UnknownTable(_))), "{unknown:?}");
    (stopped, stats.auto_compaction_stopped, engine.sstable_count(table.id))
}

#[test]
fn compactions_are_stopped_and_allowed() {
    let (stopped, is_stopped, allowed) = on_a_node(1, switched);
    assert_eq!((stopped, is_stopped), (10, true));
    assert!(allowed < 5, "{allowed} SSTables");
}

/// Whether a deletion of long ago is in the SSTable of a compaction while tombstones are not purged, and when they are again.
async fn purged(rt: Rt) -> (bool, bool) {
    let (engine, table) = engine(&rt).await;
    write(&engine, &table, 1, 1).await;
    write(&engine, &table, 2, 1).await;
    let mut deletion = PartitionUpdate::new(table.clone(), key(1));
    deletion.add_deletion(DeletionTime::new(5, 1));
    engine.apply(Write::one(Origin::Client, deletion)).await.unwrap();
    let set = |is_on| engine.set_tombstone_gc(table.id, is_on);
    let compacted = async || {
        engine.flush(table.id).await.unwrap();
        engine.compact(table.id).await.unwrap();
        !engine.sstables_of(table.id, &key(1)).await.unwrap().is_empty()
    };
    set(false).unwrap();
    let stopped = compacted().await;
    assert!(engine.table_stats(table.id).unwrap().tombstone_gc_stopped);
    let [one] = &engine.sstable_figures(table.id).await.unwrap()[..] else { panic!("one SSTable") };
    assert!(one.data_bytes > 0 && one.index_bytes > 0 && one.disk_bytes > one.data_bytes, "{one:?}");
    let [active, archiving] = engine.commitlog_segments();
    assert!(!active.is_empty() && archiving.is_empty(), "{active:?} {archiving:?}");
    set(true).unwrap();
    write(&engine, &table, 2, 6).await;
    let allowed = compacted().await;
    assert!(engine.set_tombstone_gc(TableId([99; 16]), true).is_err());
    assert!(engine.sstable_figures(TableId([99; 16])).await.is_err());
    (stopped, allowed)
}

#[test]
fn tombstones_are_purged_unless_an_operator_stops_it() {
    assert_eq!(on_a_node(3, purged), (true, false));
}

async fn distributions(rt: Rt) {
    let (engine, table) = engine(&rt).await;
    engine.set_auto_compaction(table.id, false).unwrap();
    assert_eq!(engine.table_histograms(TableId([99; 16])), None);
    let empty = engine.table_histograms(table.id).unwrap();
    assert_eq!((empty.sstables, empty.partition_bytes.count(), empty.requests.sstables.total), (0, 0, 0));
    for timestamp in 1..=3 {
        write(&engine, &table, 1, timestamp).await;
        if timestamp == 3 {
            write(&engine, &table, 2, timestamp).await;
        }
        engine.flush(table.id).await.unwrap();
    }
    let paths = |pk: i32| {
        let (engine, table) = (engine.clone(), table.clone());
        async move { engine.sstables_of(table.id, &key(pk)).await.unwrap() }
    };
    assert_eq!((paths(1).await.len(), paths(2).await.len(), paths(3).await.len()), (3, 1, 0));
    let name = paths(2).await[0].file_name().unwrap().to_string_lossy().into_owned();
    assert!(name.ends_with("-Data.db"), "{name}");
    let one = key(1);
    let range =
        PartitionRange { start: RingPosition::BeforeKey(one.clone()), end: RingPosition::AfterKey(one) };
    // Flushed rows are cached: out of the cache, and then out of the three SSTables.
    assert_eq!(read(&engine, &table, &range, false).await.unwrap().len(), 1);
    let slices = Slices::all();
    let wanted = Read { scope: ReadScope::BypassCache, ..Read::new(table.id, &range, &slices) };
    let found = visible_of(engine.read(&wanted).unwrap(), &table).await.unwrap();
    assert_eq!(found.len(), 1);
    let after = engine.table_histograms(table.id).unwrap();
    assert_eq!((after.sstables, after.partition_bytes.count(), after.cells.count()), (3, 4, 4));
    assert_eq!(after.cells.percentile(1.0), 1, "each has one cell");
    assert!(after.partition_bytes.percentile(0.5) > 10, "{:?}", after.partition_bytes.percentile(0.5));
    let opened: Vec<(u64, u64)> = after.requests.sstables.buckets().filter(|(_, count)| *count > 0).collect();
    assert_eq!(opened, [(0, 1), (3, 1)]);
    // One of many partitions is sampled, the first of each SSTable among them; the three begin with the same.
    assert!(key(1).token < key(2).token);
    assert_eq!(engine.sampled_tokens(table.id), [key(1).token]);
}

#[test]
fn distributions_of_a_table() {
    on_a_node(2, distributions);
}

/// The rows that are there after a stop in good order, of a keyspace whose writes are not logged.
async fn unlogged(rt: Rt) -> usize {
    let keyspace = Keyspace { durable_writes: false, ..Keyspace::new("ks", Replication::Local) };
    let table = (**schema(0).table("ks", "t1").unwrap()).clone();
    let schema = Arc::new(Schema::default().with_keyspace(keyspace).with_table(table));
    let table = schema.table("ks", "t1").unwrap().clone();
    let engine = Engine::open(rt.clone(), config(&plan(SyncMode::Batch)), schema.clone()).await.unwrap();
    for pk in 0..3 {
        write(&engine, &table, pk, 1).await;
    }
    engine.stop().await.unwrap();
    let engine = Engine::open(rt.clone(), config(&plan(SyncMode::Batch)), schema).await.unwrap();
    read(&engine, &table, &PartitionRange::all(), false).await.unwrap().len()
}

#[test]
fn a_stop_keeps_writes_that_are_not_in_the_log() {
    assert_eq!(on_a_node(5, unlogged), 3);
}

/// The bytes of filters after a compaction into many SSTables, and how many those are.
async fn split(rt: Rt) -> (u64, usize) {
    let (engine, _) = engine(&rt).await;
    let mut table = (**schema(0).table("ks", "t1").unwrap()).clone();
    let options = [("class", "LeveledCompactionStrategy"), ("sstable_size_in_mb", "1")];
    table.options.compaction = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    table.options.compression = [("enabled".to_owned(), "false".to_owned())].into();
    let keyspace = Keyspace::new("ks", Replication::Local);
    let schema = Arc::new(Schema::default().with_keyspace(keyspace).with_table(table));
    engine.set_schema(schema.clone()).await;
    let table = schema.table("ks", "t1").unwrap().clone();
    engine.set_auto_compaction(table.id, false).unwrap();
    for timestamp in 1..=2 {
        for pk in 0..60_000 {
            write(&engine, &table, pk, timestamp).await;
        }
        engine.flush(table.id).await.unwrap();
    }
    engine.compact(table.id).await.unwrap();
    let dir = engine::table_dir(&config(&plan(SyncMode::Batch)).data_directory, &table);
    // The files of the inputs go later.
    let (mut bytes, count) = (0, engine.sstable_count(table.id));
    let found = sstable::list_complete(rt.disk(), &dir).await.unwrap();
    for sstable in &found[found.len() - count..] {
        bytes += rt.disk().len(sstable.path(sstable::Component::Filter)).await.unwrap();
    }
    (bytes, count)
}

#[test]
fn filters_are_as_large_as_their_sstable_needs() {
    let (bytes, sstables) = on_a_node(6, split);
    assert!(sstables >= 3, "{sstables} SSTables");
    // Ten bits a key.
    let needed = 60_000 * 10 / 8;
    assert!(bytes >= needed && bytes < needed * 2, "{bytes} bytes of filters in {sstables} SSTables");
}

async fn snapshots(rt: Rt) {
    let (engine, table) = engine(&rt).await;
    let directory = config(&plan(SyncMode::Batch));
    engine.snapshot(table.id, "empty").await.unwrap();
    write(&engine, &table, 1, 1).await;
    let before = rt.wall_micros();
    engine.snapshot(table.id, "first").await.unwrap();
    rt.sleep(Duration::from_secs(5)).await;
    engine.truncate(table.id, 77_000_000, rt::Instant::MAX).await.unwrap();
    let records = list_snapshots(rt.disk(), &directory.data_directory).await.unwrap();
    let of = |name: &str| records.iter().find(|record| record.name.starts_with(name)).cloned().unwrap();
    let first = of("first");
    let made = first.created_micros.unwrap();
    assert!((before..before + 5_000_000).contains(&made), "{made} is not after {before}");
    assert_eq!(of("truncated").created_micros, Some(77_000_000));
    assert_eq!(records.len(), 2, "a table without rows has no files to link: {records:?}");
    assert_eq!(first.disk_bytes, of("truncated").disk_bytes, "the file of the time is not counted");
    assert!(first.disk_bytes > 0);
}

#[test]
fn snapshots_know_when_they_were_made() {
    on_a_node(3, snapshots);
}

/// A partition of more bytes than a chunk has, with a deleted range that goes over its chunks and rows that are newer.
fn large_partition(table: &Arc<Table>) -> PartitionUpdate {
    let mut update = PartitionUpdate::new(table.clone(), key(7));
    update.add_deletion(DeletionTime::new(1, 1));
    let of = |at: i32| Clustering::new(table, &[Some(&at.to_be_bytes())]);
    let range = RangeTombstone {
        start: Bound::before_row(&of(10)),
        end: Bound::after_row(&of(390)),
        deletion: DeletionTime::new(5, 5),
    };
    update.add_range_tombstone(range);
    for at in (0..400).filter(|at| at % 50 != 13) {
        let mut row = Row::new(of(at));
        let cell = Cell::live(if at % 3 == 0 { 4 } else { 6 }, Bytes::from(vec![at as u8; 1_000]));
        row.set(table.column("a").unwrap().id, ColumnData::Simple(cell));
        update.add_row(row);
    }
    update
}

async fn rows_of_a_snapshot(rt: Rt) {
    let (engine, table) = engine(&rt).await;
    let data = config(&plan(SyncMode::Batch)).data_directory;
    let written = large_partition(&table);
    // One write has fewer bytes.
    let mut deletions = written.clone();
    let rows = deletions.take_rows().into_vec();
    engine.apply(Write::one(Origin::Client, deletions)).await.unwrap();
    for part in rows.chunks(20) {
        let update = PartitionUpdate::with_rows(table.clone(), key(7), part.to_vec());
        engine.apply(Write::one(Origin::Client, update)).await.unwrap();
    }
    write(&engine, &table, 8, 3).await;
    engine.snapshot(table.id, "all").await.unwrap();
    write(&engine, &table, 9, 4).await;
    let directory = engine::table_dir(&data, &table).join("snapshots/all");
    assert!(snapshot_bytes(rt.disk(), &directory).await.unwrap() > 0);

    let mut rows = SnapshotRows::open(&rt, &directory, table.clone()).await.unwrap();
    let mut read = PartitionUpdate::new(table.clone(), key(7));
    let (mut chunks, mut others) = (0, Vec::new());
    while let Some(update) = rows.next().await.unwrap() {
        if update.key == read.key {
            assert!(update.memory_size() < 100_000, "{}", update.memory_size());
            chunks += 1;
            read.merge(update);
        } else {
            others.push(update.key);
        }
    }
    assert!(chunks >= 4, "{chunks} chunks");
    assert_eq!(others, [key(8)], "rows behind the snapshot are not in it");
    for at in 0..400 {
        let clustering = Clustering::new(&table, &[Some(&i32::to_be_bytes(at))]);
        assert_eq!(read.row_at(&clustering), written.row_at(&clustering), "row {at}");
    }

    remove_snapshot(rt.disk(), &directory).await.unwrap();
    remove_snapshot(rt.disk(), &directory).await.unwrap();
    assert_eq!(snapshot_bytes(rt.disk(), &directory).await.unwrap(), 0);
    let mut none = SnapshotRows::open(&rt, &directory, table.clone()).await.unwrap();
    assert!(none.next().await.unwrap().is_none());
}

#[test]
fn the_rows_of_a_snapshot_are_read_in_chunks() {
    on_a_node(4, rows_of_a_snapshot);
}
