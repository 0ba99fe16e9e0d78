//! Updates that use all that their encoding has: any, for properties, and some that are the same in each run, for corpora.

use std::sync::Arc;

use bytes::Bytes;
use mutation::{
    Bound, Cell, Clustering, ColumnData, Complex, ComplexCell, DecoratedKey, DeletionTime, LivenessInfo,
    PartitionUpdate, RangeTombstone, Row, Side,
};
use proptest::prelude::*;
use schema::{Table, TableBuilder, TableId};
use types::CqlType;

use crate::data::with_encoded_cells;

/// The id of both tables.
pub const TABLE: TableId = TableId([7; 16]);

/// `pk blob, c1 int, c2 text, s blob static, v blob, w blob, m map<blob, blob>, PRIMARY KEY (pk, c1, c2)`, `c2` descending.
pub fn table() -> Arc<Table> {
    TableBuilder::new("ks", "t", TABLE)
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
    let id = |name: &str| table.column(name).expect("a column of the table").id;
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
    let encodes = any::<bool>();
    (key, liveness, deletion(), cells, elements, deletion(), encodes).prop_map(
        move |((c1, c2), liveness, deleted, mut simple, mut elements, all, encodes)| {
            if encodes {
                // One statement gives its cells one time.
                let times = simple.first().map_or(0, |(_, cell)| cell.timestamp);
                simple.iter_mut().for_each(|(_, cell)| cell.timestamp = times);
                elements.clear();
            }
            let c1 = c1.to_be_bytes();
            let key = [Some(&c1[..]), c2.as_ref().map(|text| text.as_bytes())];
            let mut row = Row::new(Clustering::new(&table, &key));
            row.liveness = liveness;
            row.deletion = deleted;
            let all = if encodes { DeletionTime::LIVE } else { all };
            let row = data(&table, row, simple, elements, all);
            if encodes { with_encoded_cells(row, &table) } else { row }
        },
    )
}

/// Any update.
pub fn update() -> impl Strategy<Value = PartitionUpdate> {
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
                row.set(table.column("s").expect("a column of the table").id, ColumnData::Simple(cell));
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

/// `pk blob, c1 int, c2 text, s blob static, v blob, w int, m map<text, int>, PRIMARY KEY (pk, c1, c2)`, `c2` descending.
pub fn small_table() -> Arc<Table> {
    let map = CqlType::map(CqlType::Text, CqlType::Int, false);
    TableBuilder::new("ks", "t", TABLE)
        .partition_key("pk", CqlType::Blob)
        .clustering("c1", CqlType::Int, false)
        .clustering("c2", CqlType::Text, true)
        .static_column("s", CqlType::Blob)
        .regular("v", CqlType::Blob)
        .regular("w", CqlType::Int)
        .regular("m", map)
        .build_known()
}

fn clustering(table: &Table, number: i32, text: Option<&str>) -> Clustering {
    Clustering::new(table, &[Some(&number.to_be_bytes()), text.map(str::as_bytes)])
}

/// An update of [`small_table`] with one of everything.
pub fn full(table: &Arc<Table>) -> PartitionUpdate {
    let id = |name: &str| table.column(name).expect("a column of the table").id;
    let mut update = PartitionUpdate::new(table.clone(), DecoratedKey::new(Bytes::from_static(b"full")));
    update.add_deletion(DeletionTime::new(90, 1_700_000_000));
    let mut fixed = Row::new(Clustering::empty());
    fixed.set(id("s"), ColumnData::Simple(Cell::live(100, Bytes::from_static(b"static"))));
    update.add_static(fixed);
    let bound = |number: i32, side| Bound::new(table, &[Some(&number.to_be_bytes())], side);
    for (start, end) in
        [(bound(1, Side::Before), bound(4, Side::After)), (Bound::bottom(), bound(-7, Side::Before))]
    {
        let deletion = DeletionTime::new(95, 1_700_000_001);
        update.add_range_tombstone(RangeTombstone { start, end, deletion });
    }
    for number in 0..3 {
        let mut row = Row::new(clustering(table, number, (number > 0).then_some("text")));
        row.liveness = LivenessInfo::expiring(100 + i64::from(number), 600, 1_700_000_600);
        row.deletion = DeletionTime::new(98, 1_700_000_002);
        row.set(id("v"), ColumnData::Simple(Cell::tombstone(101, 1_700_000_003)));
        row.set(id("w"), ColumnData::Simple(Cell::expiring(101, 60, 1_700_000_060, vec![0, 0, 0, 9].into())));
        let element = |path: &'static str, value: i32| ComplexCell {
            path: Bytes::from_static(path.as_bytes()),
            cell: Cell::live(102, Bytes::copy_from_slice(&value.to_be_bytes())),
        };
        let cells = vec![element("a", 1), element("b", 2)];
        let deletion = DeletionTime::new(99, 1_700_000_004);
        row.set(id("m"), ColumnData::Complex(Complex { deletion, cells }));
        update.add_row(row);
    }
    update
}

/// An update of [`small_table`] as most writes make it.
pub fn small(table: &Arc<Table>, number: i32) -> PartitionUpdate {
    let key = Bytes::copy_from_slice(&number.to_be_bytes());
    let mut update = PartitionUpdate::new(table.clone(), DecoratedKey::new(key));
    let mut row = Row::new(clustering(table, number, Some("c")));
    row.liveness = LivenessInfo::forever(1_000);
    let value = Bytes::from(vec![number as u8; 30]);
    row.set(
        table.column("v").expect("a column of the table").id,
        ColumnData::Simple(Cell::live(1_000, value)),
    );
    update.add_row(row);
    update
}

/// Whether two updates are the same.
pub fn is_same(left: &PartitionUpdate, right: &PartitionUpdate) -> bool {
    left.key == right.key
        && left.deletion == right.deletion
        && left.static_row() == right.static_row()
        && left.range_tombstones == right.range_tombstones
        && left.rows() == right.rows()
}
