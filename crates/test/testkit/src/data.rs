//! A small table and random pieces of data for it: few keys, few timestamps, so that ties and overlaps are common.

use std::sync::Arc;

use bytes::Bytes;
use mutation::codec::{Layouts, Version, decode, encode_update};
use mutation::{
    Bound, Cell, Clustering, ColumnData, Complex, ComplexCell, DecoratedKey, DeletionTime, LivenessInfo,
    PartitionUpdate, RangeTombstone, Row, Side,
};
use proptest::prelude::*;
use schema::{Table, TableBuilder, TableId};
use types::CqlType;

/// `k int, c int, s int static, v text, m map<int, text>, PRIMARY KEY (k, c)`.
pub fn table() -> Arc<Table> {
    TableBuilder::new("ks", "t", TableId([7; 16]))
        .partition_key("k", CqlType::Int)
        .clustering("c", CqlType::Int, false)
        .static_column("s", CqlType::Int)
        .regular("v", CqlType::Text)
        .regular("m", CqlType::map(CqlType::Int, CqlType::Text, false))
        .build_known()
}

/// The key of row `c`.
pub fn clustering(table: &Table, c: i32) -> Clustering {
    Clustering::new(table, &[Some(&c.to_be_bytes())])
}

/// A bound beside row `c`.
pub fn bound(table: &Table, c: i32, side: Side) -> Bound {
    Bound::new(table, &[Some(&c.to_be_bytes())], side)
}

/// Any deletion.
pub fn deletion() -> impl Strategy<Value = DeletionTime> {
    (0i64..6, 100u32..103).prop_map(|(timestamp, local)| DeletionTime::new(timestamp, local))
}

fn maybe_deletion() -> impl Strategy<Value = DeletionTime> {
    prop_oneof![3 => Just(DeletionTime::LIVE), 1 => deletion()]
}

/// Any cell: live, expiring or dead.
pub fn cell() -> impl Strategy<Value = Cell> {
    let value =
        prop_oneof![Just(Bytes::from_static(b"a")), Just(Bytes::from_static(b"b")), Just(Bytes::new())];
    (0i64..6, 0u8..3, 1u32..3, 100u32..103, value).prop_map(|(timestamp, kind, ttl, local, value)| match kind
    {
        0 => Cell::live(timestamp, value),
        1 => Cell::expiring(timestamp, ttl, local, value),
        _ => Cell::tombstone(timestamp, local),
    })
}

fn complex() -> impl Strategy<Value = Complex> {
    let cells = prop::collection::btree_map(0i32..3, cell(), 0..3);
    (maybe_deletion(), cells).prop_map(|(deletion, cells)| Complex {
        deletion,
        cells: cells
            .into_iter()
            .map(|(path, cell)| ComplexCell { path: Bytes::copy_from_slice(&path.to_be_bytes()), cell })
            .filter(|element| !deletion.deletes(element.cell.timestamp))
            .collect(),
    })
}

fn liveness() -> impl Strategy<Value = LivenessInfo> {
    (0i64..6, 0u8..3, 1u32..3, 100u32..103).prop_map(|(timestamp, kind, ttl, expires)| match kind {
        0 => LivenessInfo::NONE,
        1 => LivenessInfo::forever(timestamp),
        _ => LivenessInfo::expiring(timestamp, ttl, expires),
    })
}

/// A version of row `c`; nothing in it is hidden by its own deletion, as writers and merges guarantee.
pub fn row(table: Arc<Table>, c: i32) -> impl Strategy<Value = Row> {
    let cells = (prop::option::of(cell()), prop::option::of(complex()));
    (liveness(), maybe_deletion(), cells, any::<bool>()).prop_map(
        move |(liveness, deletion, (v, m), encodes)| {
            let mut row = Row::new(clustering(&table, c));
            row.liveness = liveness;
            row.deletion = deletion;
            let id = |name| table.column(name).expect("a column of the table").id;
            if let Some(cell) = v {
                row.set(id("v"), ColumnData::Simple(cell));
            }
            if let Some(complex) = m.filter(|complex| !complex.is_empty()) {
                row.set(id("m"), ColumnData::Complex(complex));
            }
            row.normalise();
            if encodes { with_encoded_cells(row, &table) } else { row }
        },
    )
}

/// The same row with encoded cells, if it has only simple ones of one time, as a prepared statement writes them and a replica receives them.
pub fn with_encoded_cells(row: Row, table: &Arc<Table>) -> Row {
    let mut bare = row.clone();
    (bare.liveness, bare.deletion) = (LivenessInfo::NONE, DeletionTime::LIVE);
    let key = DecoratedKey::new(Bytes::from_static(b"key1"));
    let mut bytes = Vec::new();
    encode_update(&PartitionUpdate::with_rows(table.clone(), key, vec![bare]), &mut bytes);
    let decoded = decode(Version::CURRENT, &bytes.into(), Some(&Layouts::default()), |_| Some(table.clone()));
    let mut update = decoded.expect("an update").expect("of the table").update;
    let Some(mut encoded) = update.take_rows().pop().filter(|row| row.encoded_cells().is_some()) else {
        return row;
    };
    (encoded.liveness, encoded.deletion) = (row.liveness, row.deletion);
    assert_eq!(encoded, row, "the encoded cells are those of before");
    encoded
}

/// Any range deletion of the table.
pub fn range(table: Arc<Table>) -> impl Strategy<Value = RangeTombstone> {
    let side = || prop_oneof![Just(Side::Before), Just(Side::After)];
    (0i32..8, side(), 0i32..8, side(), deletion()).prop_map(move |(a, left, b, right, deletion)| {
        RangeTombstone { start: bound(&table, a, left), end: bound(&table, b, right), deletion }
    })
}

/// Any update of one of two partitions.
pub fn update(table: Arc<Table>) -> impl Strategy<Value = PartitionUpdate> {
    let key = (0i32..2).prop_map(|k| DecoratedKey::new(Bytes::copy_from_slice(&k.to_be_bytes())));
    let rows = {
        let table = table.clone();
        prop::collection::btree_set(0i32..6, 0..4)
            .prop_flat_map(move |keys| keys.into_iter().map(|c| row(table.clone(), c)).collect::<Vec<_>>())
    };
    let ranges = prop::collection::vec(range(table.clone()), 0..3);
    let static_cell = prop::option::of(cell());
    (key, maybe_deletion(), static_cell, rows, ranges).prop_map(move |(key, deletion, s, rows, ranges)| {
        let mut update = PartitionUpdate::new(table.clone(), key);
        update.add_deletion(deletion);
        if let Some(cell) = s {
            let mut row = Row::new(Clustering::empty());
            row.set(table.column("s").expect("a column of the table").id, ColumnData::Simple(cell));
            update.add_static(row);
        }
        rows.into_iter().for_each(|row| update.add_row(row));
        ranges.into_iter().for_each(|range| update.add_range_tombstone(range));
        update
    })
}
