//! Values on their way into a memtable leave the buffers that they came in: a value of a few bytes must not keep a
//! whole request frame or commit log segment alive.

use bytes::Bytes;
use mutation::{Cell, ColumnData, Row};

/// Longer values get an allocation of their own, so that a small neighbour does not keep them alive.
const SHARED_VALUE_LEN_MAX: usize = 256;

/// The same row with values in memory of its own: small ones together in one allocation.
pub(crate) fn own_values(mut row: Row) -> Row {
    let shared: usize = row.columns().iter().map(|(_, data)| shared_len(data)).sum();
    if let [(_, ColumnData::Simple(_))] = row.columns() {
        row.retain(|_, data| {
            if let ColumnData::Simple(cell) = data {
                cell.value = copy(&cell.value);
            }
            true
        });
        return row;
    }
    let mut packed: Vec<u8> = Vec::with_capacity(shared);
    for (_, data) in row.columns() {
        each_value(data, |value| {
            if value.len() <= SHARED_VALUE_LEN_MAX {
                packed.extend_from_slice(value);
            }
        });
    }
    let packed = Bytes::from(packed);
    let mut at = 0;
    let mut own = |value: &mut Bytes| {
        if value.is_empty() {
            *value = Bytes::new();
        } else if value.len() <= SHARED_VALUE_LEN_MAX {
            let end = at + value.len();
            *value = packed.slice(at..end);
            at = end;
        } else {
            *value = Bytes::copy_from_slice(value);
        }
    };
    row.retain(|_, data| {
        match data {
            ColumnData::Simple(cell) => own(&mut cell.value),
            ColumnData::Complex(complex) => {
                for element in &mut complex.cells {
                    own(&mut element.path);
                    own(&mut element.cell.value);
                }
            }
        }
        true
    });
    assert_eq!(at, packed.len(), "every shared byte has found its value");
    row
}

/// The same bytes in memory of their own.
pub(crate) fn copy(value: &Bytes) -> Bytes {
    if value.is_empty() { Bytes::new() } else { Bytes::copy_from_slice(value) }
}

fn shared_len(data: &ColumnData) -> usize {
    let mut len = 0;
    each_value(data, |value| {
        if value.len() <= SHARED_VALUE_LEN_MAX {
            len += value.len();
        }
    });
    len
}

/// Shows every value and path of a column, in the order in which they are copied.
fn each_value(data: &ColumnData, mut show: impl FnMut(&[u8])) {
    match data {
        ColumnData::Simple(Cell { value, .. }) => show(value),
        ColumnData::Complex(complex) => {
            for element in &complex.cells {
                show(&element.path);
                show(&element.cell.value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mutation::{Clustering, Complex, ComplexCell};
    use schema::ColumnId;

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
        let owned = own_values(row.clone());
        assert_eq!(owned, row);
        let inside = |value: &Bytes| frame.as_ptr_range().contains(&value.as_ptr());
        let first = owned.cell(ColumnId(0)).unwrap().value.clone();
        let second = owned.cell(ColumnId(1)).unwrap().value.clone();
        assert!(!inside(&first) && !inside(&second));
        assert_eq!(first.as_ptr_range().end, second.as_ptr_range().start, "they lie side by side");
        assert!(!inside(&owned.complex(ColumnId(3)).unwrap().cells[0].cell.value));
    }
}
