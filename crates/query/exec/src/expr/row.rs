//! A row as expressions see it: key values, static and regular cells, alive at one point in time.

use bytes::Bytes;
use mutation::row::ColumnData;
use mutation::{Cell, Complex, Row, Seconds, counter};
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
        return SmallVec::from_iter([key.clone()]);
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

    pub(super) fn data(&self, column: &ColumnRef) -> Option<&'a ColumnData> {
        match column.kind {
            ColumnKind::Static => self.static_row?.column(column.id),
            ColumnKind::Regular => self.row?.column(column.id),
            ColumnKind::PartitionKey | ColumnKind::Clustering => None,
        }
    }

    /// The value of a column that is a plain stored value, without copying it.
    #[inline]
    pub fn borrowed(&self, column: &ColumnRef) -> Option<&[u8]> {
        match column.kind {
            ColumnKind::PartitionKey => self.key.get(usize::from(column.position)).map(|key| &**key),
            ColumnKind::Clustering => self.clustering(usize::from(column.position)),
            ColumnKind::Static | ColumnKind::Regular => match self.data(column)? {
                ColumnData::Simple(cell) if cell.is_live(self.now) => Some(&cell.value),
                _ => None,
            },
        }
    }

    /// The live elements of an unfrozen column.
    pub fn complex(&self, column: &ColumnRef) -> Option<&'a Complex> {
        match self.data(column)? {
            ColumnData::Complex(complex) => Some(complex),
            ColumnData::Simple(_) => None,
        }
    }

    /// The value of a column in serialised form.
    pub fn value(&self, column: &ColumnRef) -> Option<Bytes> {
        match column.kind {
            ColumnKind::PartitionKey => self.key.get(usize::from(column.position)).cloned(),
            ColumnKind::Clustering => self.borrowed(column).map(Bytes::copy_from_slice),
            ColumnKind::Static | ColumnKind::Regular => match self.data(column)? {
                ColumnData::Simple(cell) if !cell.is_live(self.now) => None,
                ColumnData::Simple(cell) if column.ty.is_counter() => {
                    Some(Bytes::copy_from_slice(&counter::total(&cell.value).to_be_bytes()))
                }
                ColumnData::Simple(cell) => Some(cell.value.clone()),
                ColumnData::Complex(complex) => {
                    complex_value(&column.ty, complex, self.now, |_| true).map(Bytes::from)
                }
            },
        }
    }

    /// The cell of a simple static or regular column, when it lives.
    pub fn cell(&self, column: &ColumnRef) -> Option<&'a Cell> {
        match self.data(column)? {
            ColumnData::Simple(cell) if cell.is_live(self.now) => Some(cell),
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
