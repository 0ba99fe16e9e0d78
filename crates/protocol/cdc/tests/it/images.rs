//! The image of a column that a write sets as a whole, which deletes the old cells just below the write's own timestamp.

use bytes::Bytes;
use cdc::{Naming, StreamId};
use mutation::{
    Cell, Clustering, ColumnData, Complex, ComplexCell, DecoratedKey, DeletionTime, LivenessInfo,
    PartitionUpdate, Row,
};
use testkit::updates::table;
use types::elements::Elements;

use crate::tables::{log, options};

/// A write that sets the map of a row to have one element, or none.
fn set(timestamp: i64, path: &[u8], value: Option<&[u8]>) -> PartitionUpdate {
    let table = table();
    let clustering = Clustering::new(&table, &[Some(&1_i32.to_be_bytes()), Some(b"c")]);
    let mut row = Row::new(clustering);
    row.liveness = LivenessInfo::forever(timestamp);
    let cells = value.map(|value| ComplexCell {
        path: Bytes::copy_from_slice(path),
        cell: Cell::live(timestamp, Bytes::copy_from_slice(value)),
    });
    let complex =
        Complex { deletion: DeletionTime::new(timestamp - 1, 1), cells: cells.into_iter().collect() };
    row.set(table.column("m").expect("a map").id, ColumnData::Complex(complex));
    let mut update = PartitionUpdate::new(table, DecoratedKey::new(Bytes::from_static(b"key")));
    update.add_row(row);
    update
}

/// The map in the image before of a log's rows; none where there is none.
fn image(log: &cdc::Log, rows: &PartitionUpdate) -> Option<Vec<Vec<u8>>> {
    let id = |name: &str| log.table().column(name).expect("a column of the log").id;
    let is_image = |row: &&Row| row.cell(id("cdc$operation")).is_some_and(|cell| cell.value[..] == [0]);
    let row = rows.rows().iter().find(is_image)?;
    let cell = row.cell(id("m")).filter(|cell| !cell.is_tombstone())?;
    let elements = Elements::of_map(&cell.value).expect("a map");
    Some(elements.map(|one| one.ok().flatten().expect("a value").to_vec()).collect())
}

#[test]
fn an_image_has_the_replaced_cells_also_when_the_write_comes_again() {
    let log = log(options(true));
    let derived = |before: &PartitionUpdate, update: &PartitionUpdate| {
        log.changes(Some(before), update, &mut |_| StreamId([1; 16]), Naming::Canonical)
            .pop()
            .expect("rows of the log")
    };
    for second in [set(20, b"b", Some(b"2")), set(20, b"a", None), set(11, b"a", Some(b"2"))] {
        let mut before = set(10, b"a", Some(b"1"));
        let first = derived(&before, &second);
        let wanted = Some(vec![b"a".to_vec(), b"1".to_vec()]);
        assert_eq!(image(&log, &first), wanted);
        before.merge(second.clone());
        let mut again = derived(&before, &second);
        again.merge(first);
        assert_eq!(image(&log, &again), wanted);
    }
    // Cells that an earlier write has deleted stay so.
    let mut before = set(10, b"a", Some(b"1"));
    before.merge(set(20, b"a", None));
    assert_eq!(image(&log, &derived(&before, &set(21, b"b", Some(b"2")))), None);
}
