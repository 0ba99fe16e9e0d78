//! Fragments of a partition, source by source: a read that resumes after any fragment gives exactly those that follow it, and the
//! sources together have the rows of a merged read.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use engine::{Engine, EngineConfig, FragmentPlace, FragmentsRead, Origin, Read, SyncMode, Write};
use mutation::{
    Bound, Cell, Clustering, ColumnData, DecoratedKey, DeletionTime, Fragment, LivenessInfo, PartitionRange,
    PartitionUpdate, RangeTombstone, Row, Side, Slices,
};
use rt::Rt;
use schema::{Keyspace, Replication, Schema, Table, TableBuilder, TableId};
use types::CqlType;

use crate::world::on_a_node;

const PARTITIONS: u64 = 4;
const ROWS: u64 = 12;

fn table() -> Arc<Table> {
    let table = TableBuilder::new("ks", "t", TableId([1; 16]))
        .partition_key("k", CqlType::Int)
        .clustering("a", CqlType::Int, false)
        .clustering("b", CqlType::Int, true)
        .static_column("s", CqlType::Int)
        .regular("v", CqlType::Int)
        .build();
    Arc::new(table.expect("a good table"))
}

fn int(value: u64) -> Bytes {
    Bytes::copy_from_slice(&(value as i32).to_be_bytes())
}

fn key(k: u64) -> DecoratedKey {
    DecoratedKey::new(int(k))
}

async fn open(rt: &Rt) -> (Engine, Arc<Table>) {
    let mut keyspace = Keyspace::new("ks", Replication::Local);
    keyspace.tables.insert("t".to_owned(), table());
    let schema = Arc::new(Schema::default().with_keyspace(keyspace));
    let mut config = EngineConfig::new(PathBuf::from("/data"), PathBuf::from("/log"));
    config.commitlog.sync = SyncMode::Batch;
    let engine = Engine::open(rt.clone(), config, schema.clone()).await.expect("it opens");
    (engine, schema.table("ks", "t").expect("the table").clone())
}

/// A random change of one partition.
fn update(rt: &Rt, table: &Arc<Table>, timestamp: i64) -> PartitionUpdate {
    let mut update = PartitionUpdate::new(table.clone(), key(rt.random_below(PARTITIONS)));
    let deletion = DeletionTime::new(timestamp, 100);
    let prefix = |len: u64| -> Vec<Bytes> { (0..len).map(|_| int(rt.random_below(ROWS) / 3)).collect() };
    let clustering = || {
        let values = prefix(2);
        Clustering::new(table, &values.iter().map(|value| Some(&value[..])).collect::<Vec<_>>())
    };
    let bound = || {
        let values = prefix(rt.random_below(3));
        let side = if rt.random_below(2) == 0 { Side::Before } else { Side::After };
        Bound::new(table, &values.iter().map(|value| Some(&value[..])).collect::<Vec<_>>(), side)
    };
    match rt.random_below(10) {
        0 => update.add_deletion(deletion),
        1 => {
            let mut row = Row::new(Clustering::empty());
            let column = table.column("s").expect("the column").id;
            row.set(column, ColumnData::Simple(Cell::live(timestamp, int(1))));
            update.add_static(row);
        }
        2 => {
            let mut row = Row::new(clustering());
            row.deletion = deletion;
            update.add_row(row);
        }
        3..6 => {
            let (one, other) = (bound(), bound());
            if one != other {
                let (start, end) = (one.clone().min(other.clone()), one.max(other));
                update.add_range_tombstone(RangeTombstone { start, end, deletion });
            }
        }
        _ => {
            let mut row = Row::new(clustering());
            row.liveness = LivenessInfo::forever(timestamp);
            let column = table.column("v").expect("the column").id;
            row.set(column, ColumnData::Simple(Cell::live(timestamp, int(2))));
            update.add_row(row);
        }
    }
    update
}

/// The fragments of a source after a place, read in pages of so many bytes.
async fn fragments(engine: &Engine, mut read: FragmentsRead) -> Vec<Fragment> {
    let mut all = Vec::new();
    loop {
        let page = engine.read_fragments(&read).await.expect("it reads");
        let last = page.fragments.last().map(FragmentPlace::of);
        all.extend(page.fragments);
        if page.is_last {
            return all;
        }
        read.after = Some(last.expect("a page that is not the last has fragments"));
    }
}

/// The sources of a partition with all of their fragments.
async fn sources(engine: &Engine, table: &Table, k: u64) -> Vec<(String, Vec<Fragment>)> {
    let names = engine.fragment_sources(table.id, &key(k)).expect("it answers");
    assert!(names.is_sorted(), "{names:?}");
    let mut sources = Vec::new();
    for source in names {
        let read = FragmentsRead {
            table: table.id,
            key: key(k),
            source: source.clone(),
            after: None,
            bytes: usize::MAX,
        };
        sources.push((source, fragments(engine, read).await));
    }
    sources
}

async fn check(engine: &Engine, table: &Arc<Table>, k: u64) -> usize {
    let mut merged = PartitionUpdate::new(table.clone(), key(k));
    let mut seen = 0;
    for (source, all) in sources(engine, table, k).await {
        for at in 0..all.len() {
            let after = Some(FragmentPlace::of(&all[at]));
            let read =
                FragmentsRead { table: table.id, key: key(k), source: source.clone(), after, bytes: 1 };
            let rest = fragments(engine, read).await;
            assert_eq!(rest, all[at + 1..], "{source} of {k} after {:?}", all[at]);
        }
        seen += all.len();
        for fragment in all {
            match fragment {
                Fragment::PartitionStart { deletion, .. } => merged.add_deletion(deletion),
                Fragment::StaticRow(row) => merged.add_static(row),
                Fragment::Row(row) => merged.add_row(row),
                _ => {}
            }
        }
    }
    let (range, slices) = (PartitionRange::single(&key(k)), Slices::all());
    let mut reader = engine.read(&Read::new(table.id, &range, &slices)).expect("it reads");
    while let Some(fragment) = reader.next().await.expect("it reads") {
        if let Fragment::Row(row) = fragment {
            let held = merged.rows().iter().find(|held| held.clustering == row.clustering);
            assert!(held.is_some(), "{row:?} of {k} is in no source");
        }
    }
    seen
}

async fn random(rt: Rt) -> usize {
    let (engine, table) = open(&rt).await;
    let mut seen = 0;
    for step in 0..120 {
        let updates = vec![update(&rt, &table, step)];
        engine.apply(Write::all(Origin::Client, updates)).await.expect("it writes");
        if rt.random_below(25) == 0 {
            engine.flush(table.id).await.expect("it flushes");
        }
        if step % 20 == 19 {
            for k in 0..PARTITIONS {
                seen += check(&engine, &table, k).await;
            }
        }
    }
    let keys = engine.partition_keys(table.id, &PartitionRange::all(), 100).await.expect("it reads");
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), PARTITIONS as usize);
    assert!(keys.is_sorted());
    let two = engine.partition_keys(table.id, &PartitionRange::all(), 2).await.expect("it reads");
    assert_eq!(two, keys[..2]);
    engine.stop().await.expect("it stops");
    seen
}

#[test]
fn a_read_resumes_after_any_fragment() {
    let mut seen = 0;
    for seed in 0..12 {
        seen += on_a_node(seed, random);
    }
    assert!(seen > 2_000, "{seen} fragments are too few to show anything");
}

async fn moves(rt: Rt) {
    let (engine, table) = open(&rt).await;
    let row = |v: u64| {
        let values = [int(1), int(1)];
        let mut row = Row::new(Clustering::new(&table, &values.each_ref().map(|value| Some(&value[..]))));
        let column = table.column("v").expect("the column").id;
        row.set(column, ColumnData::Simple(Cell::live(v as i64, int(v))));
        row
    };
    let write = async |v: u64| {
        let mut update = PartitionUpdate::new(table.clone(), key(1));
        update.add_row(row(v));
        engine.apply(Write::one(Origin::Client, update)).await.expect("it writes");
    };
    let shown = async || -> Vec<(String, Vec<Fragment>)> { sources(&engine, &table, 1).await };
    let whole = |v: u64| {
        let start = Fragment::PartitionStart { key: key(1), deletion: DeletionTime::LIVE };
        vec![start, Fragment::Row(row(v)), Fragment::PartitionEnd]
    };
    assert!(shown().await.is_empty());
    write(1).await;
    assert_eq!(shown().await, [("memtable:0".to_owned(), whole(1))]);
    engine.flush(table.id).await.expect("it flushes");
    // A flush fills the row cache, too.
    let flushed = shown().await;
    assert_eq!(flushed.len(), 2);
    assert_eq!(flushed[0], ("row-cache".to_owned(), whole(1)));
    assert!(flushed[1].0.starts_with("sstable:/data/ks/t-"), "{}", flushed[1].0);
    assert!(flushed[1].0.ends_with("-Data.db"), "{}", flushed[1].0);
    assert_eq!(flushed[1].1, whole(1));
    write(2).await;
    let all = shown().await;
    assert_eq!(
        all.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>()[..2],
        ["memtable:0", "row-cache"]
    );
    assert_eq!([&all[0].1, &all[1].1, &all[2].1], [&whole(2), &whole(1), &whole(1)]);
    engine.stop().await.expect("it stops");
    let read = FragmentsRead {
        table: TableId([9; 16]),
        key: key(1),
        source: "memtable:0".to_owned(),
        after: None,
        bytes: 1,
    };
    engine.read_fragments(&read).await.expect_err("no such table");
}

#[test]
fn fragments_are_shown_where_they_are() {
    on_a_node(1, moves);
}
