//! The copy of a base row in a view, and the difference between two copies.

use std::collections::BTreeMap;

use bytes::Bytes;
use mutation::row::ColumnData;
use mutation::{
    Cell, CellRef, Clustering, Complex, ComplexCell, DataRef, DeletionTime, LivenessInfo, Row, Seconds,
};
use schema::ColumnId;

use crate::View;
use crate::definition::Presence;

impl View {
    /// The copy of a base row.
    pub(crate) fn image(&self, clustering: Clustering, base: &Row) -> Row {
        let mut image = match self.hidden_map(base) {
            None => base.copy_columns(clustering, &self.copied, &self.layouts, &self.table),
            Some(hidden) => {
                let copied = self.copied.iter();
                let copied = copied.filter_map(|(from, to)| Some((*to, base.column(*from)?.clone())));
                Row::from_columns(clustering, copied.chain([hidden]).collect())
            }
        };
        image.deletion = base.deletion;
        if let Presence::Row { .. } = self.presence {
            image.liveness = base.liveness;
        }
        image
    }

    /// The hidden map of a row: the existence of the row by base columns that the view does not show.
    fn hidden_map(&self, base: &Row) -> Option<(ColumnId, ColumnData)> {
        let Presence::Row { hidden: Some(hidden), others } = &self.presence else { return None };
        let mut cells = Vec::new();
        for (id, name) in others {
            match base.get(*id) {
                None => {}
                Some(DataRef::Simple(cell)) => {
                    cells.push(ComplexCell { path: path(name, &[]), cell: without_value(cell) });
                }
                Some(DataRef::Complex(complex)) => cells.extend(complex.cells.iter().map(|element| {
                    let cell = without_value((&element.cell).into());
                    ComplexCell { path: path(name, &element.path), cell }
                })),
            }
        }
        if cells.is_empty() {
            return None;
        }
        cells.sort_by(|left, right| left.path.cmp(&right.path));
        Some((*hidden, ColumnData::Complex(Complex { cells, ..Complex::empty() })))
    }
}

fn without_value(cell: CellRef<'_>) -> Cell {
    let CellRef { timestamp, ttl, local_deletion, .. } = cell;
    Cell { timestamp, ttl, local_deletion, value: Bytes::new() }
}

/// The path of a cell in the hidden map: the name's length, the name, the path of the element.
fn path(name: &str, element: &[u8]) -> Bytes {
    let mut path = Vec::with_capacity(4 + name.len() + element.len());
    path.extend_from_slice(&(name.len() as u32).to_be_bytes());
    path.extend_from_slice(name.as_bytes());
    path.extend_from_slice(element);
    path.into()
}

/// The content of `after` beyond `before`, two copies of one base row at one place, of which the second knows all that the first does.
pub(crate) fn difference(before: &Row, after: &Row, now: Seconds) -> Row {
    let mut changed = match (before.encoded_cells(), after.encoded_cells()) {
        // Cells of another time are other cells.
        (Some(old), Some(new)) if old.timestamp() != new.timestamp() => after.clone(),
        _ => Row::from_columns(after.clustering.clone(), changed_columns(before, after, now)),
    };
    let (liveness, deletion) = (after.liveness, after.deletion);
    changed.liveness = if liveness == before.liveness { LivenessInfo::NONE } else { liveness };
    changed.deletion = if deletion.supersedes(&before.deletion) { deletion } else { DeletionTime::LIVE };
    changed
}

/// The columns of [`difference`].
fn changed_columns(before: &Row, after: &Row, now: Seconds) -> Vec<(ColumnId, ColumnData)> {
    let mut columns: Vec<(ColumnId, ColumnData)> = Vec::new();
    for (id, new) in after.columns() {
        match (before.column(*id), new) {
            (Some(old), new) if old == new => {}
            (Some(ColumnData::Complex(old)), ColumnData::Complex(new)) => {
                let complex = complex_difference(old, new, after.deletion, now);
                if !complex.is_empty() {
                    columns.push((*id, ColumnData::Complex(complex)));
                }
            }
            _ => columns.push((*id, new.clone())),
        }
    }
    for (id, old) in before.columns() {
        if let (ColumnData::Complex(old), None) = (old, after.column(*id)) {
            let complex = complex_difference(old, &Complex::empty(), after.deletion, now);
            if !complex.is_empty() {
                columns.push((*id, ColumnData::Complex(complex)));
            }
        }
    }
    columns
}

/// The content of `new` beyond `old`. The hidden map has no deletion of its own, as it is of several columns: an element that is gone, and neither
/// the row's nor the column's deletion says why, is deleted at its own timestamp, which hides it and nothing later.
fn complex_difference(old: &Complex, new: &Complex, row: DeletionTime, now: Seconds) -> Complex {
    let by_path = |complex: &Complex| -> BTreeMap<Bytes, Cell> {
        complex.cells.iter().map(|element| (element.path.clone(), element.cell.clone())).collect()
    };
    let (known, kept) = (by_path(old), by_path(new));
    let hides = row.max(new.deletion);
    let is_new = |element: &&ComplexCell| known.get(&element.path) != Some(&element.cell);
    let mut cells: Vec<ComplexCell> = new.cells.iter().filter(is_new).cloned().collect();
    let gone = old.cells.iter().filter(|element| !kept.contains_key(&element.path));
    let gone = gone.filter(|element| !hides.deletes(element.cell.timestamp));
    let before = cells.len();
    cells.extend(gone.map(|element| {
        let cell = Cell::tombstone(element.cell.timestamp, now);
        ComplexCell { path: element.path.clone(), cell }
    }));
    if cells.len() > before {
        // It is the hidden map, whose paths are blobs.
        cells.sort_by(|left, right| left.path.cmp(&right.path));
    }
    let deletion = if new.deletion.supersedes(&old.deletion) { new.deletion } else { DeletionTime::LIVE };
    Complex { deletion, cells }
}
