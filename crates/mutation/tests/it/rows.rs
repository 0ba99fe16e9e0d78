//! Merging rows is commutative, associative and idempotent.

use bytes::Bytes;
use mutation::row::ColumnData;
use mutation::{Cell, Clustering, Complex, ComplexCell, DeletionTime, Row};
use proptest::prelude::*;
use schema::ColumnKind;

use testkit::data::{row, table};

fn merged(mut left: Row, right: Row) -> Row {
    left.merge(right, &table());
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
