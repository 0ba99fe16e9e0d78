//! Values that an index of their column cannot have: a statement that writes one is refused, in Cassandra's words.

use mutation::row::ColumnData;
use mutation::{ComplexCell, Row};
use replica::Similarity;
use schema::{Column, ColumnId, Index, IndexedPart, Table};
use text::IndexText;
use types::CqlType;

use crate::error::{Result, invalid};
use crate::where_clause::index::{Family, is_float_vector};

/// Bytes of the shortest value that is too long for an index: as in Cassandra, whose message gives this number as the greatest.
const TERM_LEN_END: usize = 65_535;
/// The greatest component of a vector of an index, either way.
const COMPONENT_MAX: f32 = 1e17;
/// Bytes around the key and value of an entry, which are one value to Cassandra's index.
const ENTRY_OVERHEAD: usize = 6;

/// The demands of a table's indexes on values; empty when none of them demands anything.
#[derive(Debug, Default)]
pub(super) struct Indexable(Vec<(ColumnId, Demand)>);

#[derive(Debug)]
enum Demand {
    /// No part of the column is too long. The index and its column, for the message.
    Short(IndexedPart, String),
    /// The vector is finite, and has a direction if directions are compared.
    Near(Similarity),
}

impl Indexable {
    pub(super) fn of(table: &Table) -> Self {
        let demands = table.indexes.values().filter_map(|index| {
            let [target] = index.targets.as_slice() else { return None };
            let column = table.column(&target.column)?;
            Some((column.id, Demand::of(table, index, column, target.part)?))
        });
        Self(demands.collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Looks at the values of a row that is written.
    ///
    /// # Errors
    /// The first value that an index cannot have.
    pub(super) fn check(&self, row: &Row) -> Result<()> {
        for (id, demand) in &self.0 {
            if let Some(data) = row.column(*id) {
                demand.check(data)?;
            }
        }
        Ok(())
    }
}

impl Demand {
    fn of(table: &Table, index: &Index, column: &Column, part: IndexedPart) -> Option<Self> {
        let family = Family::of_class(index.class.as_deref())?;
        // ScyllaDB's indexes leave out the vectors that they cannot have.
        if is_float_vector(&column.ty) && family == Family::StorageAttached {
            let name = index.options.get("similarity_function");
            return Some(Self::Near(name.and_then(|name| Similarity::of_name(name)).unwrap_or_default()));
        }
        let is_text = matches!(part.term_types(&column.ty).as_slice(), [CqlType::Text | CqlType::Ascii]);
        let text = IndexText::of_index(index.class.as_deref(), &index.options, is_text);
        // SASI leaves long values out, and words are short.
        let has_values = matches!(family, Family::Local | Family::StorageAttached)
            && !text.is_some_and(|text| text.index.is_tokenizing());
        let name = || format!("{} on {}.{}({})", index.name, table.keyspace, table.name, column.name);
        has_values.then(|| Self::Short(part, name()))
    }

    fn check(&self, data: &ColumnData) -> Result<()> {
        match (self, data) {
            (_, ColumnData::Simple(cell)) if cell.is_tombstone() => Ok(()),
            (Self::Near(similarity), ColumnData::Simple(cell)) => check_vector(*similarity, &cell.value),
            (Self::Near(_), ColumnData::Complex(_)) => Ok(()),
            (Self::Short(_, name), ColumnData::Simple(cell)) => check_len(cell.value.len(), name),
            (Self::Short(part, name), ColumnData::Complex(complex)) => {
                let live = complex.cells.iter().filter(|element| !element.cell.is_tombstone());
                live.map(|element| len_of(*part, element)).try_for_each(|len| check_len(len, name))
            }
        }
    }
}

/// Bytes of the value that an index has of an element. The elements of a set are paths.
fn len_of(part: IndexedPart, element: &ComplexCell) -> usize {
    let (path, value) = (element.path.len(), element.cell.value.len());
    match part {
        IndexedPart::Keys => path,
        IndexedPart::Values if value == 0 => path,
        IndexedPart::Values | IndexedPart::Whole | IndexedPart::Full => value,
        IndexedPart::Entries => path + value + ENTRY_OVERHEAD,
    }
}

fn check_len(len: usize, name: &str) -> Result<()> {
    if len >= TERM_LEN_END {
        return invalid!("Cannot index value of size {len} for index {name} (maximum allowed size=65535)");
    }
    Ok(())
}

fn check_vector(similarity: Similarity, value: &[u8]) -> Result<()> {
    let mut square = 0.0_f64;
    for (at, bytes) in value.as_chunks::<4>().0.iter().enumerate() {
        let component = f32::from_be_bytes(*bytes);
        let shown = || CqlType::Float.to_text(bytes);
        if !component.is_finite() {
            return invalid!("non-finite value at vector[{at}]={}", shown());
        }
        if component.abs() > COMPONENT_MAX {
            return invalid!("Out-of-bounds value at vector[{at}]={}", shown());
        }
        square += f64::from(component).powi(2);
    }
    if similarity == Similarity::Cosine && square < f64::from(f32::MIN_POSITIVE) {
        return invalid!("Zero and near-zero vectors cannot be indexed or queried with cosine similarity");
    }
    Ok(())
}
