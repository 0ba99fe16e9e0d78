//! Reads of some rows of a partition open only the SSTables that can hold them.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use engine::{Engine, EngineConfig, Origin, Read, ReadScope, Write};
use mutation::{
    Bound, Cell, Clustering, ColumnData, DeletionTime, Fragment, PartitionRange, PartitionUpdate, Row,
    RowRange, Side, Slices,
};
use rt::Rt;
use rt_sim::{Config, Simulation};
use schema::{Keyspace, Replication, Schema, Table, TableBuilder, TableId};
use types::CqlType;

use crate::model::key;

fn table(descending: bool, with_static: bool) -> Arc<Table> {
    let builder = TableBuilder::new("ks", "t1", TableId([1; 16]))
        .partition_key("pk", CqlType::Int)
        .clustering("ck", CqlType::Int, descending)
        .clustering("part", CqlType::Text, false)
        .regular("a", CqlType::Blob);
    let builder = if with_static { builder.static_column("s", CqlType::Blob) } else { builder };
    Arc::new(builder.build().expect("a table"))
}

async fn open(rt: &Rt, table: &Arc<Table>) -> Engine {
    let keyspace = Keyspace::new("ks", Replication::Local);
    let schema = Arc::new(Schema::default().with_keyspace(keyspace).with_table((**table).clone()));
    let config = EngineConfig::new(PathBuf::from("/data"), PathBuf::from("/log"));
    let engine = Engine::open(rt.clone(), config, schema).await.expect("an empty disk");
    engine.set_auto_compaction(table.id, false).expect("a table");
    engine
}

/// Writes rows of the first partition, which become an SSTable.
async fn file(engine: &Engine, table: &Arc<Table>, rows: std::ops::Range<i32>, deletes: bool) {
    let mut update = PartitionUpdate::new(table.clone(), key(1));
    let column = table.column("a").expect("a column of the table").id;
    for ck in rows {
        for part in ["left", "right"] {
            let clustering = Clustering::new(table, &[Some(&ck.to_be_bytes()), Some(part.as_bytes())]);
            let cell = ColumnData::Simple(Cell::live(2, Bytes::copy_from_slice(&ck.to_be_bytes())));
            update.add_row(Row::from_columns(clustering, vec![(column, cell)]));
        }
    }
    if deletes {
        update.add_deletion(DeletionTime::new(1, 1));
    }
    engine.apply(Write::all(Origin::Client, vec![update])).await.expect("the disk works");
    engine.flush(table.id).await.expect("the disk works");
}

/// How many rows with `first..=last` are found, and in how many SSTables.
async fn found(engine: &Engine, table: &Arc<Table>, first: i32, last: i32) -> (usize, u64) {
    let bound = |ck: i32, side| Bound::new(table, &[Some(&ck.to_be_bytes())], side);
    let (start, end) = (bound(first, Side::Before), bound(last, Side::After));
    let descending = (bound(last, Side::Before), bound(first, Side::After));
    let (start, end) = if start < end { (start, end) } else { descending };
    let slices = Slices::new(vec![RowRange { start, end }]);
    let range = PartitionRange::single(&key(1));
    let opened = || engine.table_stats(table.id).expect("a table").sstables_per_read_sum;
    let before = opened();
    let wanted = Read { scope: ReadScope::BypassCache, ..Read::new(table.id, &range, &slices) };
    let mut reader = engine.read(&wanted).expect("a table");
    let mut rows = 0;
    while let Some(fragment) = reader.next().await.expect("the disk works") {
        rows += usize::from(matches!(fragment, Fragment::Row(_)));
    }
    (rows, opened() - before)
}

fn run<F: Future<Output = ()> + 'static>(main: impl FnOnce(Rt) -> F + Send + 'static) {
    Simulation::new(1, Config::default()).block_on(main).expect("it ends");
}

#[test]
fn files_without_rows_of_a_slice_are_not_opened() {
    for descending in [false, true] {
        run(move |rt| async move {
            let table = table(descending, false);
            let engine = open(&rt, &table).await;
            for from in [0, 10, 20, 30] {
                file(&engine, &table, from..from + 10, false).await;
            }
            for first in 0..42 {
                for last in first..42 {
                    let rows = (first..=last).filter(|ck| *ck < 40).count() * 2;
                    let files = (0..4).filter(|file| first < file * 10 + 10 && last >= file * 10).count();
                    let expected = (rows, files as u64);
                    assert_eq!(found(&engine, &table, first, last).await, expected, "{first} to {last}");
                }
            }
        });
    }
}

#[test]
fn files_with_deletions_or_static_columns_are_always_opened() {
    for (deletes, with_static) in [(true, false), (false, true)] {
        run(move |rt| async move {
            let table = table(false, with_static);
            let engine = open(&rt, &table).await;
            file(&engine, &table, 0..10, deletes).await;
            file(&engine, &table, 10..20, false).await;
            let files = if with_static { 2 } else { 1 };
            assert_eq!(found(&engine, &table, 30, 40).await, (0, files));
            assert_eq!(found(&engine, &table, 10, 11).await, (4, 2));
        });
    }
}
