//! Merging rows is commutative, associative and idempotent.

use std::sync::Arc;

use bytes::Bytes;
use mutation::row::ColumnData;
use mutation::{
    Cell, Clustering, Complex, ComplexCell, DataRef, DeletionTime, LivenessInfo, Row, RowLayout, TableLayouts,
};
use proptest::prelude::*;
use schema::{ColumnId, ColumnKind, Table, TableBuilder, TableId};
use types::CqlType;

use testkit::data::{row, table, with_encoded_cells};

fn merged(mut left: Row, right: Row) -> Row {
    let before = left.memory_size() as isize;
    let grown = left.merge(right, &table());
    assert_eq!(before + grown, left.memory_size() as isize, "it says by how much it grew");
    left
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn rows_merge_in_any_order(a in row(table(), 1), b in row(table(), 1), c in row(table(), 1)) {
        prop_assert_eq!(merged(a.clone(), b.clone()), merged(b.clone(), a.clone()));
        prop_assert_eq!(
            merged(merged(a.clone(), b.clone()), c.clone()),
            merged(a.clone(), merged(b.clone(), c))
        );
        prop_assert_eq!(merged(a.clone(), a.clone()), a);
    }
}

/// `k int PRIMARY KEY, a text, b text, c text, d text`.
fn plain_table() -> Arc<Table> {
    let builder = TableBuilder::new("ks", "plain", TableId([9; 16])).partition_key("k", CqlType::Int);
    ["a", "b", "c", "d"]
        .into_iter()
        .fold(builder, |builder, name| builder.regular(name, CqlType::Text))
        .build_known()
}

fn value_of(len: usize) -> Bytes {
    Bytes::from(vec![b'v'; len])
}

#[test]
fn encoded_cells_are_those_that_were_encoded() {
    let table = plain_table();
    let id = |name: &str| table.column(name).expect("a column of the table").id;
    let cells = [
        Cell::live(5, value_of(3)),
        Cell::tombstone(5, 77),
        Cell::expiring(5, 10, 90, value_of(0)),
        Cell::live(5, value_of(200_000)),
    ];
    let columns: Vec<_> = ["a", "b", "c", "d"].into_iter().map(id).zip(cells.clone()).collect();
    let apart = columns.iter().map(|(id, cell)| (*id, ColumnData::Simple(cell.clone()))).collect();
    let apart = Row::from_columns(Clustering::empty(), apart);
    let encoded = with_encoded_cells(apart.clone(), &table);
    assert!(encoded.encoded_cells().is_some());
    assert_eq!(encoded, apart);
    assert_eq!(encoded.column_count(), 4);
    for (place, (id, cell)) in columns.iter().enumerate() {
        assert_eq!(encoded.cell(*id), Some(cell));
        for found in [encoded.at(place), encoded.get(*id).expect("a cell")] {
            let DataRef::Simple(found) = found else { panic!("a simple cell") };
            assert_eq!(found.to_cell(), *cell);
            assert_eq!(found.is_live(80), cell.is_live(80));
        }
    }
    assert!(encoded.get(ColumnId(1_000)).is_none() && encoded.get(ColumnId(0)).is_none());
    assert_eq!((encoded.tombstones(80), encoded.tombstones(90)), (1, 2));
    let reordered: Vec<ColumnId> = columns.iter().rev().map(|(id, _)| *id).collect();
    assert!(RowLayout::new(&table, reordered).is_none(), "columns in order");
    assert!(RowLayout::new(&table, []).is_none(), "at least one");
    assert!(RowLayout::new(&table, [ColumnId(1_000)]).is_none(), "of the table");
}

#[test]
fn copied_columns_are_encoded_if_they_were() {
    let (from, to, layouts) = (plain_table(), plain_table(), TableLayouts::default());
    let id = |table: &Table, name: &str| table.column(name).expect("a column of the table").id;
    let cells =
        [Cell::live(5, value_of(200)), Cell::expiring(5, 10, 90, value_of(3)), Cell::tombstone(5, 77)];
    let columns = ["a", "c", "d"].into_iter().zip(cells);
    let columns = columns.map(|(name, cell)| (id(&from, name), ColumnData::Simple(cell))).collect();
    let apart = Row::from_columns(Clustering::empty(), columns);
    // Each set of columns of the copy, which has them in another order; column b is not there.
    let sources = [("d", "a"), ("a", "b"), ("b", "c"), ("c", "d")];
    let pairs = sources.map(|(here, there)| (id(&from, here), id(&to, there)));
    for chosen in 0..1usize << pairs.len() {
        let chosen = pairs.iter().enumerate().filter(|(at, _)| chosen >> at & 1 == 1).map(|(_, pair)| *pair);
        let chosen: Vec<(ColumnId, ColumnId)> = chosen.collect();
        let [encoded, plain] = [with_encoded_cells(apart.clone(), &from), apart.clone()]
            .map(|row| row.copy_columns(Clustering::empty(), &chosen, &layouts, &to));
        assert_eq!(encoded, plain, "{chosen:?}");
        assert_eq!(encoded.encoded_cells().is_some(), plain.column_count() > 0, "{chosen:?}");
        assert_eq!(encoded.is_lasting(), plain.is_lasting(), "{chosen:?}");
        for (here, there) in &chosen {
            let there = encoded.column(*there);
            assert_eq!(there, apart.column(*here), "{chosen:?}");
        }
    }
}

/// A row of these columns of [`plain_table`], with values that name their time.
fn plain_row(table: &Arc<Table>, names: &[&str], timestamp: i64, encodes: bool) -> Row {
    let cell = |name: &&str| {
        let id = table.column(name).expect("a column of the table").id;
        (id, ColumnData::Simple(Cell::live(timestamp, Bytes::from(format!("{name}{timestamp}")))))
    };
    let row = Row::from_columns(Clustering::empty(), names.iter().map(cell).collect());
    if encodes { with_encoded_cells(row, table) } else { row }
}

#[test]
fn encoded_rows_merge_as_others_do() {
    let table = plain_table();
    let choices: [&[&str]; 3] = [&["a", "b"], &["b", "c", "d"], &["a", "b", "c", "d"]];
    let mut compared = 0;
    for (mine, theirs) in choices.iter().flat_map(|mine| choices.iter().map(move |theirs| (mine, theirs))) {
        for (at, deleted) in [(4, 0), (5, 0), (6, 0), (4, 4), (6, 5), (6, 9)] {
            let merge = |encodes: [bool; 2]| {
                let mut left = plain_row(&table, mine, 5, encodes[0]);
                let mut right = plain_row(&table, theirs, at, encodes[1]);
                if deleted > 0 {
                    right.deletion = DeletionTime::new(deleted, 1);
                    right.normalise();
                }
                let before = left.memory_size() as isize;
                let grown = left.merge(right, &table);
                assert_eq!(before + grown, left.memory_size() as isize, "it says by how much it grew");
                left
            };
            let expected = merge([false, false]);
            for encodes in [[true, true], [true, false], [false, true]] {
                assert_eq!(
                    merge(encodes),
                    expected,
                    "{mine:?} at 5 and {theirs:?} at {at}, deleted at {deleted}"
                );
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 9 * 6 * 3);
}

#[test]
fn columns_that_a_table_has_lost_leave_an_encoded_row() {
    let table = plain_table();
    let narrow = TableBuilder::new("ks", "plain", TableId([9; 16]))
        .partition_key("k", CqlType::Int)
        .regular("a", CqlType::Text)
        .build_known();
    let mut row = plain_row(&table, &["a", "b"], 5, true);
    row.keep_known(&table);
    assert!(row.encoded_cells().is_some(), "nothing was taken away");
    row.keep_known(&narrow);
    assert_eq!(row, plain_row(&table, &["a"], 5, false));
    let mut merged = plain_row(&table, &["a", "b"], 5, true);
    merged.merge(plain_row(&table, &["a", "b"], 6, true), &narrow);
    assert_eq!(merged, plain_row(&table, &["a"], 6, false));
}

/// A complex column as it is merged when nothing is left out: element by element.
fn merged_slowly(left: &Complex, right: &Complex) -> Complex {
    let deletion = left.deletion.max(right.deletion);
    let mut cells = std::collections::BTreeMap::<Bytes, Cell>::new();
    for element in left.cells.iter().chain(&right.cells) {
        match cells.entry(element.path.clone()) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(element.cell.clone());
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                entry.get_mut().merge(element.cell.clone(), false)
            }
        }
    }
    cells.retain(|_, cell| !deletion.deletes(cell.timestamp));
    Complex { deletion, cells: cells.into_iter().map(|(path, cell)| ComplexCell { path, cell }).collect() }
}

fn complex(elements: usize) -> impl Strategy<Value = Complex> {
    let cell = (any::<u8>(), 1i64..60, 0usize..6);
    (prop::collection::vec(cell, 0..elements), 0i64..30).prop_map(|(cells, deletion)| {
        let deletion = if deletion > 20 { DeletionTime::new(deletion, 1) } else { DeletionTime::LIVE };
        let element = |(path, ts, len): (u8, i64, usize)| ComplexCell {
            path: Bytes::from(vec![path]),
            cell: Cell::live(ts, Bytes::from(vec![ts as u8; len])),
        };
        let cells =
            cells.into_iter().map(element).map(|cell| Complex { cells: vec![cell], ..Complex::empty() });
        let empty = Complex { deletion, cells: Vec::new() };
        cells.fold(empty, |all, one| merged_slowly(&all, &one))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn few_elements_are_put_among_many_as_all_are(many in complex(200), few in complex(8)) {
        let (mut left, mut right) = (many.clone(), few.clone());
        let before = left.memory_size() as isize;
        let grown = left.merge(few.clone(), |a, b| a.cmp(b));
        right.merge(many.clone(), |a, b| a.cmp(b));
        prop_assert_eq!(&left, &merged_slowly(&many, &few));
        prop_assert_eq!(&left, &right);
        prop_assert_eq!(before + grown, left.memory_size() as isize);
    }
}

#[test]
fn a_collection_that_was_written_whole_is_no_tombstone() {
    let table = table();
    let column = table.columns().iter().find(|c| c.kind == ColumnKind::Regular && c.ty.is_multi_cell());
    let column = column.expect("the table has a collection").id;
    let row_of = |cells: Vec<Cell>| {
        let cells = cells
            .into_iter()
            .enumerate()
            .map(|(at, cell)| ComplexCell { path: Bytes::from(vec![at as u8]), cell });
        let mut row = Row::new(Clustering::empty());
        row.set(
            column,
            ColumnData::Complex(Complex { deletion: DeletionTime::new(4, 1), cells: cells.collect() }),
        );
        row.tombstones(100)
    };
    let live = || Cell::live(5, Bytes::new());
    assert_eq!(row_of(vec![live(), live()]), 0, "written whole");
    assert_eq!(row_of(vec![live(), Cell::tombstone(5, 50)]), 1, "an element was deleted");
    assert_eq!(row_of(vec![]), 1, "deleted whole");
}

/// The numbers of tombstones in Cassandra 5.0.6's warnings.
#[test]
fn tombstones_are_those_that_cassandra_counts() {
    let table = plain_table();
    let column = table.column("a").expect("a column of the table").id;
    let with = |cell: Cell| ColumnData::Simple(cell);
    let mut deleted = Row::new(Clustering::empty());
    deleted.deletion = DeletionTime::new(4, 1);
    assert_eq!(deleted.tombstones(100), 1, "a row that was deleted");
    let mut again = deleted.clone();
    again.set(column, with(Cell::live(5, Bytes::new())));
    assert_eq!(again.tombstones(100), 0, "and was written again");
    let mut less = deleted.clone();
    less.set(column, with(Cell::tombstone(5, 50)));
    assert_eq!(less.tombstones(100), 1, "a cell deleted counts for its row");
    let mut marked = Row::new(Clustering::empty());
    marked.liveness = LivenessInfo::expiring(5, 10, 90);
    assert_eq!((marked.tombstones(80), marked.tombstones(90)), (0, 1), "a mark until it expires");
    marked.set(column, with(Cell::expiring(5, 10, 90, Bytes::new())));
    assert_eq!(marked.tombstones(90), 1, "and its cell");
}
