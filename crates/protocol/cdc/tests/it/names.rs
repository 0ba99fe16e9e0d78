//! `cdc$time` of a write is the same at replicas whose columns have other ids, another for another write, and the same in each version.

use std::sync::Arc;

use bytes::Bytes;
use cdc::{Log, Naming, StreamId, log_table};
use mutation::{
    Bound, Cell, Clustering, ColumnData, Complex, ComplexCell, DecoratedKey, DeletionTime, LivenessInfo,
    PartitionUpdate, RangeTombstone, Row,
};
use schema::{Table, TableBuilder, TableId};
use types::CqlType;

use crate::tables::options;

/// A table whose regular columns got their ids in this order.
fn table(order: &[&str]) -> Arc<Table> {
    let start = TableBuilder::new("ks", "t", TableId([1; 16]))
        .partition_key("k", CqlType::Int)
        .clustering("c", CqlType::Int, false)
        .static_column("s", CqlType::Text)
        .build()
        .expect("a table");
    let added = order.iter().fold(start, |table, name| {
        let ty = match *name {
            "m" => CqlType::map(CqlType::Int, CqlType::Text, false),
            _ => CqlType::Text,
        };
        let mut builder = table.to_builder().regular(*name, ty);
        builder.options.cdc = options(false);
        builder.build().expect("one column more")
    });
    Arc::new(added)
}

/// The write of a row, or of another one with `seed`.
fn write(table: &Arc<Table>, seed: u8) -> PartitionUpdate {
    let id = |name: &str| table.column(name).expect("a column").id;
    let cell = |value: u8| Cell::live(10, Bytes::copy_from_slice(&[value]));
    let clustering = |c: i32| Clustering::new(table, &[Some(&c.to_be_bytes())]);
    let mut row = Row::new(clustering(1));
    row.liveness = LivenessInfo::forever(10);
    row.set(id("a"), ColumnData::Simple(cell(1)));
    row.set(id("b"), ColumnData::Simple(cell(seed)));
    let cells =
        [3, 4].map(|path| ComplexCell { path: Bytes::copy_from_slice(&[0, 0, 0, path]), cell: cell(5) });
    let deletion = DeletionTime::new(9, 1);
    row.set(id("m"), ColumnData::Complex(Complex { deletion, cells: cells.into_iter().collect() }));
    let mut update = PartitionUpdate::new(table.clone(), DecoratedKey::new(Bytes::from_static(b"key!")));
    update.add_row(row);
    let mut fixed = Row::new(Clustering::empty());
    fixed.set(id("s"), ColumnData::Simple(cell(6)));
    update.add_static(fixed);
    let (start, end) = (Bound::after_row(&clustering(5)), Bound::after_row(&clustering(7)));
    update.add_range_tombstone(RangeTombstone { start, end, deletion: DeletionTime::new(10, 1) });
    update
}

/// The first time of a log's rows, in hexadecimal digits.
fn time(update: &PartitionUpdate, naming: Naming) -> String {
    let base = &update.table;
    let table = log_table(base, TableId([9; 16]), None, 0).expect("a log of the table");
    let log = Log::new(base, Arc::new(table)).expect("the log of the table");
    let logged =
        log.changes(None, update, &mut |_| StreamId([1; 16]), naming).pop().expect("rows of the log");
    let mut times: Vec<&[u8]> =
        logged.rows().iter().filter_map(|row| row.clustering.components().next().flatten()).collect();
    times.dedup();
    assert!(!times.is_empty());
    times.iter().flat_map(|time| time.iter()).map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_name_of_a_write_does_not_depend_on_ids_of_columns() {
    let orders = [["a", "b", "m"], ["b", "a", "m"], ["m", "b", "a"]].map(|order| table(&order));
    let ids = |table: &Table| ["a", "b", "m"].map(|name| table.column(name).expect("a column").id);
    assert_ne!(ids(&orders[0]), ids(&orders[1]), "the ids do differ");
    let [one, two, three] = orders.each_ref().map(|table| time(&write(table, 2), Naming::Canonical));
    assert_eq!((&one, &one), (&two, &three));
    let encoded = orders.each_ref().map(|table| time(&write(table, 2), Naming::Encoded));
    assert_ne!(encoded[0], encoded[1], "the encoding follows the ids");
    assert_ne!(one, time(&write(&orders[0], 3), Naming::Canonical), "another write");
    // The bytes that are hashed may not change: nodes of different versions log the same write.
    assert_eq!(one, "138140641dd211b28ef6dd648121d9bd");
}
