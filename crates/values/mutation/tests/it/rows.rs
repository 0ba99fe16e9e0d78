//! Merging rows is commutative, associative and idempotent.

use bytes::Bytes;
use mutation::row::ColumnData;
use mutation::{Cell, Clustering, Complex, ComplexCell, DeletionTime, Row};
use proptest::prelude::*;
use schema::ColumnKind;

use testkit::data::{row, table};

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
