//! A row as expressions see it: key values, static and regular cells, alive at one point in time.

use bytes::Bytes;
use mutation::row::compare_paths;
use mutation::{CellRef, Complex, ComplexCell, DataRef, Row, Seconds, counter};
use schema::{Column, ColumnId, ColumnKind, Table};
use smallvec::SmallVec;
use types::elements::CollectionBuilder;
use types::{CqlType, elements};

/// A column of a table, found without its name.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnRef {
    /// Which part of the row it belongs to.
    pub kind: ColumnKind,
    /// Place in the partition or clustering key.
    pub position: u16,
    /// Its id, for static and regular columns.
    pub id: ColumnId,
    /// Its type.
    pub ty: CqlType,
}

impl From<&Column> for ColumnRef {
    fn from(column: &Column) -> Self {
        Self { kind: column.kind, position: column.position, id: column.id, ty: column.ty.clone() }
    }
}

/// One row of a result with its partition.
pub struct RowView<'a> {
    /// Components of the partition key.
    pub key: &'a [Bytes],
    /// The static row.
    pub static_row: Option<&'a Row>,
    /// The row; none for a partition that has only a static row.
    pub row: Option<&'a Row>,
    /// The time at which cells are alive or not.
    pub now: Seconds,
}

/// Takes a partition key apart into its components.
pub fn key_components(table: &Table, key: &Bytes) -> SmallVec<[Bytes; 2]> {
    let count = table.partition_key().len();
    if count == 1 {
        let mut components = SmallVec::new();
        components.push(key.clone());
        return components;
    }
    match mutation::DecoratedKey::components(key, count) {
        Some(parts) => parts.into_iter().map(|part| key.slice_ref(part)).collect(),
        None => SmallVec::from_elem(Bytes::new(), count),
    }
}

impl<'a> RowView<'a> {
    /// A row of a partition; `row` is none for a partition of which only the static row lives.
    pub fn new(key: &'a [Bytes], static_row: Option<&'a Row>, row: Option<&'a Row>, now: Seconds) -> Self {
        Self { key, static_row, row, now }
    }

    /// A component of the clustering key; none for a partition that has only a static row.
    #[inline]
    pub fn clustering(&self, position: usize) -> Option<&'a [u8]> {
        self.row?.clustering.components().nth(position).flatten()
    }

    #[inline]
    pub(super) fn data(&self, column: &ColumnRef) -> Option<DataRef<'a>> {
        match column.kind {
            ColumnKind::Static => self.static_row?.get(column.id),
            ColumnKind::Regular => self.row?.get(column.id),
            ColumnKind::PartitionKey | ColumnKind::Clustering => None,
        }
    }

    /// The value of a column that is a plain stored value, without copying it.
    #[inline]
    pub fn borrowed(&self, column: &ColumnRef) -> Option<&[u8]> {
        match column.kind {
            ColumnKind::PartitionKey => self.key.get(usize::from(column.position)).map(|key| &**key),
            ColumnKind::Clustering => self.clustering(usize::from(column.position)),
            ColumnKind::Static => self.static_row?.live_value(column.id, self.now),
            ColumnKind::Regular => self.row?.live_value(column.id, self.now),
        }
    }

    /// The live elements of an unfrozen column.
    pub fn complex(&self, column: &ColumnRef) -> Option<&'a Complex> {
        match self.data(column)? {
            DataRef::Complex(complex) => Some(complex),
            DataRef::Simple(_) => None,
        }
    }

    /// A live element of an unfrozen set or map, found by its path without a look at most others.
    pub fn element(&self, column: &ColumnRef, path: &[u8]) -> Option<&'a ComplexCell> {
        let cells = &self.complex(column)?.cells;
        let order = |element: &ComplexCell| compare_paths(&column.ty, &element.path, path);
        let at = cells.binary_search_by(order).ok()?;
        Some(&cells[at]).filter(|element| element.cell.is_live(self.now))
    }

    /// The value of a column in serialised form.
    pub fn value(&self, column: &ColumnRef) -> Option<Bytes> {
        match column.kind {
            ColumnKind::PartitionKey => self.key.get(usize::from(column.position)).cloned(),
            ColumnKind::Clustering => self.borrowed(column).map(Bytes::copy_from_slice),
            ColumnKind::Static | ColumnKind::Regular => match self.data(column)? {
                DataRef::Simple(cell) if !cell.is_live(self.now) => None,
                DataRef::Simple(cell) if column.ty.is_counter() => {
                    Some(Bytes::copy_from_slice(&counter::total(cell.value).to_be_bytes()))
                }
                DataRef::Simple(cell) => Some(cell.to_bytes()),
                DataRef::Complex(complex) => {
                    complex_value(&column.ty, complex, self.now, |_| true).map(Bytes::from)
                }
            },
        }
    }

    /// The cell of a simple static or regular column, when it lives.
    pub fn cell(&self, column: &ColumnRef) -> Option<CellRef<'a>> {
        match self.data(column)? {
            DataRef::Simple(cell) if cell.is_live(self.now) => Some(cell),
            _ => None,
        }
    }
}

/// Puts the live elements of an unfrozen column that `keep` accepts (by path) together; none when nothing lives.
pub fn complex_value(
    ty: &CqlType,
    complex: &Complex,
    now: Seconds,
    keep: impl Fn(&[u8]) -> bool,
) -> Option<Vec<u8>> {
    let mut live =
        complex.cells.iter().filter(|element| element.cell.is_live(now) && keep(&element.path)).peekable();
    live.peek()?;
    if let CqlType::Udt { ty: udt, .. } = ty {
        let mut fields = vec![None; udt.fields.len()];
        for element in live {
            let Ok(path) = <[u8; 2]>::try_from(&*element.path) else { continue };
            if let Some(field) = fields.get_mut(usize::from(u16::from_be_bytes(path))) {
                *field = Some(&*element.cell.value);
            }
        }
        return Some(elements::build_tuple(fields));
    }
    let mut out = CollectionBuilder::new();
    match ty {
        CqlType::List { .. } => live.for_each(|element| out.push(&element.cell.value)),
        CqlType::Set { .. } => live.for_each(|element| out.push(&element.path)),
        CqlType::Map { .. } => {
            for element in live {
                out.push(&element.path);
                out.push(&element.cell.value);
            }
            return Some(out.finish_map());
        }
        _ => return None,
    }
    Some(out.finish())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use mutation::{Cell, Clustering, ColumnData};

    use super::*;

    /// The time that it takes at best to find one element of a map with so many.
    fn finding(entries: i32) -> Duration {
        let ty = CqlType::Map { key: Arc::new(CqlType::Int), value: Arc::new(CqlType::Int), frozen: false };
        let id = ColumnId(7);
        let column = ColumnRef { kind: ColumnKind::Regular, position: 0, id, ty };
        let entry = |n: i32| {
            let bytes = Bytes::copy_from_slice(&n.to_be_bytes());
            ComplexCell { path: bytes.clone(), cell: Cell::live(1, bytes) }
        };
        // Below zero, too: the order is that of the numbers, not that of their bytes.
        let cells = (-entries / 2..entries / 2).map(|n| entry(n * 2)).collect();
        let mut row = Row::new(Clustering::empty());
        row.set(id, ColumnData::Complex(Complex { cells, ..Complex::empty() }));
        let view = RowView::new(&[], None, Some(&row), 0);
        let times = (0..100i32).map(|n| {
            let (there, absent) = ((n - 50) * 2, (n - 50) * 2 + 1);
            let begun = Instant::now();
            let found = view.element(&column, &there.to_be_bytes());
            let nothing = view.element(&column, &absent.to_be_bytes());
            let took = begun.elapsed();
            assert_eq!(found.map(|element| &element.cell.value[..]), Some(&there.to_be_bytes()[..]));
            assert_eq!(nothing, None);
            took
        });
        times.min().expect("there are some")
    }

    #[test]
    fn an_element_is_found_without_a_look_at_the_others() {
        let (few, many) = (finding(500), finding(64_000));
        println!("one element of 500 in {few:?}, of 64,000 in {many:?}");
        assert!(many < few * 10, "one element of 500 in {few:?}, of 64,000 in {many:?}");
    }
}
