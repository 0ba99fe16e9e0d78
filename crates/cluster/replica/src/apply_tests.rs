//! Writes in parts: the parts of an update are smaller, and together they are the update.

use bytes::Bytes;
use mutation::{Cell, ColumnData, Complex, ComplexCell, DeletionTime, LivenessInfo, PartitionUpdate, Row};
use proptest::prelude::*;
use schema::ColumnId;
use testkit::data::{clustering, table, update};

use super::{Updates, halves, parts_of_row};

/// Everything by itself, as it is applied.
fn smallest(update: PartitionUpdate) -> Updates {
    let (mut done, mut left) = (Updates::new(), vec![vec![update]]);
    while let Some(part) = left.pop() {
        match halves(part.clone()) {
            Some((one, other)) => left.extend([other, one]),
            None => done.extend(part),
        }
    }
    done
}

/// How much there is to divide.
fn items(update: &PartitionUpdate) -> usize {
    let columns = |row: &Row| row.columns().len();
    update.range_tombstones.len() + update.all_rows().map(|row| columns(row).max(1)).sum::<usize>()
}

fn merged(updates: Updates) -> PartitionUpdate {
    let mut updates = updates.into_iter();
    let first = updates.next().expect("there is one");
    let mut whole = PartitionUpdate::new(first.table.clone(), first.key.clone());
    std::iter::once(first).chain(updates).for_each(|update| whole.merge(update));
    whole
}

proptest! {
    #[test]
    fn the_parts_are_the_whole(whole in update(table())) {
        let parts = smallest(whole.clone());
        prop_assert!(parts.iter().all(|part| items(part) <= 1));
        let (parts, whole) = (merged(parts), merged(vec![whole]));
        prop_assert_eq!(parts.deletion, whole.deletion);
        prop_assert_eq!(parts.static_row(), whole.static_row());
        prop_assert_eq!(&parts.range_tombstones, &whole.range_tombstones);
        prop_assert_eq!(parts.rows(), whole.rows());
    }
}

#[test]
fn a_row_is_divided_by_the_elements_of_a_collection() {
    let deletion = DeletionTime::new(5, 1);
    let element = |n: u8| ComplexCell {
        path: Bytes::copy_from_slice(&[n]),
        cell: Cell::live(9, Bytes::from_static(b"value")),
    };
    let list = Complex { deletion, cells: (0..5).map(element).collect() };
    let columns = vec![(ColumnId(3), ColumnData::Complex(list.clone()))];
    let mut row = Row::from_columns(clustering(&table(), 1), columns);
    (row.liveness, row.deletion) = (LivenessInfo::forever(9), DeletionTime::new(4, 1));
    let (one, other) = parts_of_row(row.clone()).expect("it has five elements");
    let elements = |row: &Row| {
        let complex = row.complex(ColumnId(3)).expect("it is there").clone();
        assert_eq!(complex.deletion, deletion);
        assert_eq!(row.deletion, DeletionTime::new(4, 1));
        complex.cells
    };
    assert_eq!([elements(&one), elements(&other)].concat(), list.cells);
    assert_eq!((one.liveness, other.liveness), (row.liveness, row.liveness));
    let only = Complex { deletion, cells: vec![element(0)] };
    let row = Row::from_columns(clustering(&table(), 1), vec![(ColumnId(3), ColumnData::Complex(only))]);
    assert!(parts_of_row(row).is_none());
}
