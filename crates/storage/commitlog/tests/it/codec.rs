//! Updates as bytes: what is written comes back, under later schemas too, and no bytes make the decoder panic.

use std::sync::Arc;

use bytes::Bytes;
use commitlog::codec::{decode_update, encode_update};
use commitlog::entry::{Checkpoint, encode_updates, updates};
use commitlog::segment::NUMBER_MAX;
use mutation::{
    Bound, Cell, Clustering, ColumnData, Complex, ComplexCell, DecoratedKey, DeletionTime, LivenessInfo,
    PartitionUpdate, RangeTombstone, Row, Side,
};
use proptest::prelude::*;
use schema::{Table, TableBuilder, TableId};
use types::CqlType;

fn table() -> Arc<Table> {
    TableBuilder::new("ks", "t", TableId([7; 16]))
        .partition_key("pk", CqlType::Blob)
        .clustering("c1", CqlType::Int, false)
        .clustering("c2", CqlType::Text, true)
        .static_column("s", CqlType::Blob)
        .regular("v", CqlType::Blob)
        .regular("w", CqlType::Blob)
        .regular(
            "m",
            CqlType::Map { key: Arc::new(CqlType::Blob), value: Arc::new(CqlType::Blob), frozen: false },
        )
        .build_known()
}

fn cell() -> impl Strategy<Value = Cell> {
    let value = prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from);
    prop_oneof![
        (any::<i64>(), value.clone()).prop_map(|(ts, value)| Cell::live(ts, value)),
        (any::<i64>(), 1..u32::MAX, 0..u32::MAX - 1, value)
            .prop_map(|(ts, ttl, at, value)| Cell::expiring(ts, ttl, at, value)),
        (any::<i64>(), 0..u32::MAX - 1).prop_map(|(ts, at)| Cell::tombstone(ts, at)),
    ]
}

fn deletion() -> impl Strategy<Value = DeletionTime> {
    prop_oneof![
        Just(DeletionTime::LIVE),
        (i64::MIN + 1.., any::<u32>()).prop_map(|(ts, at)| DeletionTime::new(ts, at)),
    ]
}

fn data(
    table: &Arc<Table>,
    row: Row,
    simple: Vec<(bool, Cell)>,
    elements: Vec<Cell>,
    all: DeletionTime,
) -> Row {
    let mut row = row;
    let id = |name: &str| table.column(name).unwrap().id;
    for (first, cell) in simple {
        row.set(id(if first { "v" } else { "w" }), ColumnData::Simple(cell));
    }
    let cells: Vec<ComplexCell> = elements
        .into_iter()
        .enumerate()
        .map(|(n, cell)| ComplexCell { path: Bytes::from(vec![n as u8; 3]), cell })
        .collect();
    let complex = Complex { deletion: all, cells };
    if !complex.is_empty() {
        row.set(id("m"), ColumnData::Complex(complex));
    }
    row
}

fn row(table: Arc<Table>) -> impl Strategy<Value = Row> {
    let key = (any::<i32>(), prop::option::of("[a-z]{0,4}"));
    let liveness = prop_oneof![
        Just(LivenessInfo::NONE),
        (i64::MIN + 1..).prop_map(LivenessInfo::forever),
        (i64::MIN + 1.., 1..u32::MAX, 0..u32::MAX - 1)
            .prop_map(|(ts, ttl, at)| LivenessInfo::expiring(ts, ttl, at)),
    ];
    let cells = prop::collection::vec((any::<bool>(), cell()), 0..3);
    let elements = prop::collection::vec(cell(), 0..3);
    (key, liveness, deletion(), cells, elements, deletion()).prop_map(
        move |((c1, c2), liveness, deleted, simple, elements, all)| {
            let c1 = c1.to_be_bytes();
            let key = [Some(&c1[..]), c2.as_ref().map(|text| text.as_bytes())];
            let mut row = Row::new(Clustering::new(&table, &key));
            row.liveness = liveness;
            row.deletion = deleted;
            data(&table, row, simple, elements, all)
        },
    )
}

fn update() -> impl Strategy<Value = PartitionUpdate> {
    let table = table();
    let bound = |table: &Table, n: i32, after: bool| {
        let side = if after { Side::After } else { Side::Before };
        if n == 0 { Bound::bottom() } else { Bound::new(table, &[Some(&n.to_be_bytes())], side) }
    };
    let ranges = prop::collection::vec((0..20i32, any::<bool>(), 0..20i32, any::<bool>(), deletion()), 0..3);
    let rows = prop::collection::vec(row(table.clone()), 0..4);
    let key = prop::collection::vec(any::<u8>(), 1..20).prop_map(Bytes::from);
    (key, deletion(), prop::option::of(cell()), ranges, rows).prop_map(
        move |(key, deleted, static_cell, ranges, rows)| {
            let mut update = PartitionUpdate::new(table.clone(), DecoratedKey::new(key));
            update.add_deletion(deleted);
            if let Some(cell) = static_cell {
                let mut row = Row::new(Clustering::empty());
                row.set(table.column("s").unwrap().id, ColumnData::Simple(cell));
                update.add_static(row);
            }
            for (from, after, upto, also, deletion) in ranges {
                let (start, end) = (bound(&table, from, after), bound(&table, upto, also));
                update.add_range_tombstone(RangeTombstone { start, end, deletion });
            }
            rows.into_iter().filter(|row| !row.is_empty()).for_each(|row| update.add_row(row));
            update
        },
    )
}

fn same(left: &PartitionUpdate, right: &PartitionUpdate) -> bool {
    left.key == right.key
        && left.deletion == right.deletion
        && left.static_row == right.static_row
        && left.range_tombstones == right.range_tombstones
        && left.rows() == right.rows()
}

proptest! {
    #[test]
    fn updates_come_back(list in prop::collection::vec(update(), 1..4)) {
        let mut body = Vec::new();
        encode_updates(&list, &mut body);
        let body = Bytes::from(body);
        let parts: Vec<Bytes> = updates(&body).unwrap().map(|part| part.unwrap().1).collect();
        prop_assert_eq!(parts.len(), list.len());
        for (part, update) in parts.iter().zip(&list) {
            let read = decode_update(part, |id| (id == TableId([7; 16])).then(table)).unwrap().unwrap();
            prop_assert!(same(&read, update), "{:?} {:?}", read, update);
        }
        prop_assert!(decode_update(&parts[0], |_| None).unwrap().is_none());
    }

    #[test]
    fn damaged_bytes_are_errors_or_other_updates(update in update(), at in any::<usize>(), byte in any::<u8>()) {
        let mut body = Vec::new();
        encode_update(&update, &mut body);
        let cut = at % body.len();
        let short = Bytes::copy_from_slice(&body[..cut]);
        prop_assert!(decode_update(&short, |_| Some(table())).is_err());
        body[cut] = byte;
        let _ = decode_update(&Bytes::from(body), |_| Some(table()));
    }

    #[test]
    fn checkpoints_come_back(
        flushed in prop::collection::btree_map(any::<[u8; 16]>().prop_map(TableId), 0..=NUMBER_MAX, 0..5),
        tails in prop::collection::btree_map(any::<u64>(), 0..=NUMBER_MAX, 0..3),
    ) {
        let checkpoint = Checkpoint { flushed, tails };
        let mut body = Vec::new();
        checkpoint.encode(&mut body);
        prop_assert_eq!(Checkpoint::decode(&body), Some(checkpoint));
        prop_assert!(updates(&Bytes::from(body)).is_none());
    }
}

#[test]
fn numbers_that_no_log_reaches_are_none() {
    let mut body = Vec::new();
    Checkpoint { flushed: [(TableId([7; 16]), u64::MAX)].into(), ..Checkpoint::default() }.encode(&mut body);
    assert_eq!(Checkpoint::decode(&body), None);
}

#[test]
fn dropped_columns_stay_dropped() {
    let table = table();
    let (v, w) = (table.column("v").unwrap().id, table.column("w").unwrap().id);
    let mut update = PartitionUpdate::new(table.clone(), DecoratedKey::new(Bytes::from_static(b"k")));
    let mut row = Row::new(Clustering::new(&table, &[Some(&[0; 4]), Some(b"x")]));
    row.set(v, ColumnData::Simple(Cell::live(10, Bytes::from_static(b"old"))));
    row.set(w, ColumnData::Simple(Cell::live(10, Bytes::from_static(b"kept"))));
    update.add_row(row);
    let mut body = Vec::new();
    encode_update(&update, &mut body);
    let body = Bytes::from(body);

    let mut later = table.to_builder();
    later.drop_column("v", 10);
    let gone = Arc::new(later.clone().build().unwrap());
    let read = decode_update(&body, |_| Some(gone.clone())).unwrap().unwrap();
    assert_eq!(read.rows()[0].columns().len(), 1);
    assert_eq!(read.rows()[0].cell(w).unwrap().value, "kept");

    let again = Arc::new(later.regular("v", CqlType::Blob).build().unwrap());
    let read = decode_update(&body, |_| Some(again.clone())).unwrap().unwrap();
    let new_v = again.column("v").unwrap().id;
    assert_ne!(new_v, v);
    assert!(read.rows()[0].column(new_v).is_none(), "what was dropped does not return with the name");
}
