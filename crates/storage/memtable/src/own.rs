//! Values on their way into a memtable leave the buffers that they came in: a value of a few bytes must not keep a
//! whole request frame or commit log segment alive.

use std::sync::Arc;

use bytes::Bytes;
use mutation::{ColumnData, Packed, Row, TableLayouts};
use schema::Table;

/// The same row with values in memory of its own: encoded, or small ones together in one allocation.
pub(crate) fn own_values(mut row: Row, layouts: &TableLayouts, table: &Arc<Table>) -> Row {
    if row.encode_cells(layouts, table) {
        row.forget_decoded();
        return row;
    }
    let lengths = row.columns().iter().flat_map(|(_, data)| values_of(data)).map(<[u8]>::len);
    let mut packed = Packed::for_lengths(lengths);
    row.retain(|_, data| {
        match data {
            ColumnData::Simple(cell) => cell.value = packed.copy(&cell.value),
            ColumnData::Complex(complex) => {
                for element in &mut complex.cells {
                    element.path = packed.copy(&element.path);
                    element.cell.value = packed.copy(&element.cell.value);
                }
            }
        }
        true
    });
    row
}

/// The same bytes in memory of their own.
pub(crate) fn copy(value: &Bytes) -> Bytes {
    if value.is_empty() { Bytes::new() } else { Bytes::copy_from_slice(value) }
}

/// Every value and path of a column.
fn values_of(data: &ColumnData) -> impl Iterator<Item = &[u8]> {
    let (simple, cells) = match data {
        ColumnData::Simple(cell) => (Some(&*cell.value), [].as_slice()),
        ColumnData::Complex(complex) => (None, complex.cells.as_slice()),
    };
    let elements = cells.iter().flat_map(|element| [&*element.path, &*element.cell.value]);
    simple.into_iter().chain(elements)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mutation::{Cell, Clustering, Complex, ComplexCell};
    use schema::{ColumnId, TableBuilder, TableId};
    use types::CqlType;

    fn table() -> Arc<Table> {
        let builder = TableBuilder::new("ks", "t", TableId([1; 16])).partition_key("k", CqlType::Int);
        let blob = |builder: TableBuilder, name: &str| builder.regular(name, CqlType::Blob);
        ["a", "b"].into_iter().fold(builder, blob).build_known()
    }

    #[test]
    fn values_of_one_time_are_encoded_and_leave_their_frame() {
        let (table, layouts) = (table(), TableLayouts::default());
        let frame = Bytes::from(vec![7u8; 64 * 1024]);
        let id = |name| table.column(name).unwrap().id;
        for times in [(1, 1), (1, 2)] {
            let mut row = Row::new(Clustering::empty());
            row.set(id("a"), ColumnData::Simple(Cell::live(times.0, frame.slice(..34))));
            row.set(id("b"), ColumnData::Simple(Cell::expiring(times.1, 9, 90, frame.slice(..500))));
            let owned = own_values(row.clone(), &layouts, &table);
            assert_eq!(owned, row);
            assert_eq!(owned.encoded_cells().is_some(), times.0 == times.1);
            for name in ["a", "b"] {
                let value = owned.cell(id(name)).unwrap().value.clone();
                assert!(!frame.as_ptr_range().contains(&value.as_ptr()));
            }
        }
    }

    #[test]
    fn small_values_share_one_allocation_and_leave_their_frame() {
        let frame = Bytes::from(vec![7u8; 64 * 1024]);
        let mut row = Row::new(Clustering::empty());
        for id in 0..3 {
            let at = id as usize;
            let value = frame.slice(at..at + 34);
            row.set(ColumnId(id), ColumnData::Simple(Cell::live(1, value)));
        }
        let element = ComplexCell { path: frame.slice(0..16), cell: Cell::live(2, frame.slice(0..300)) };
        let complex = Complex { cells: vec![element], ..Complex::empty() };
        row.set(ColumnId(3), ColumnData::Complex(complex));
        let owned = own_values(row.clone(), &TableLayouts::default(), &table());
        assert_eq!(owned, row);
        let inside = |value: &Bytes| frame.as_ptr_range().contains(&value.as_ptr());
        let first = owned.cell(ColumnId(0)).unwrap().value.clone();
        let second = owned.cell(ColumnId(1)).unwrap().value.clone();
        assert!(!inside(&first) && !inside(&second));
        assert_eq!(first.as_ptr_range().end, second.as_ptr_range().start, "they lie side by side");
        assert!(!inside(&owned.complex(ColumnId(3)).unwrap().cells[0].cell.value));
    }
}
