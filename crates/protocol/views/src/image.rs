//! The copy of a base row in a view, and the difference between two copies.

use std::collections::BTreeMap;

use bytes::Bytes;
use mutation::row::ColumnData;
use mutation::{Cell, Clustering, Complex, ComplexCell, DeletionTime, LivenessInfo, Row, Seconds};
use schema::ColumnId;

use crate::View;
use crate::definition::Presence;

impl View {
    /// The copy of a base row.
    pub(crate) fn image(&self, clustering: Clustering, base: &Row) -> Row {
        let mut columns: Vec<(ColumnId, ColumnData)> = Vec::with_capacity(self.shown.len() + 1);
        for (from, to) in &self.shown {
            columns.extend(base.column(*from).map(|data| (*to, data.clone())));
        }
        let mut liveness = LivenessInfo::NONE;
        match &self.presence {
            Presence::Cell { base: from, hidden } => {
                columns.extend(base.column(*from).map(|data| (*hidden, data.clone())));
            }
            Presence::Row { hidden, others } => {
                liveness = base.liveness;
                columns.extend(hidden.and_then(|hidden| Some((hidden, hidden_map(base, others)?))));
            }
        }
        let mut image = Row::from_columns(clustering, columns);
        image.liveness = liveness;
        image.deletion = base.deletion;
        image
    }
}

/// The hidden map of a row: the existence of the row by base columns that the view does not show.
fn hidden_map(base: &Row, others: &[(ColumnId, String)]) -> Option<ColumnData> {
    let without_value = |cell: &Cell| Cell { value: Bytes::new(), ..cell.clone() };
    let mut cells = Vec::new();
    for (id, name) in others {
        match base.column(*id) {
            None => {}
            Some(ColumnData::Simple(cell)) => {
                cells.push(ComplexCell { path: path(name, &[]), cell: without_value(cell) });
            }
            Some(ColumnData::Complex(complex)) => cells.extend(complex.cells.iter().map(|element| {
                ComplexCell { path: path(name, &element.path), cell: without_value(&element.cell) }
            })),
        }
    }
    if cells.is_empty() {
        return None;
    }
    cells.sort_by(|left, right| left.path.cmp(&right.path));
    Some(ColumnData::Complex(Complex { cells, ..Complex::empty() }))
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
    let mut changed = Row::from_columns(after.clustering.clone(), columns);
    if after.liveness != before.liveness {
        changed.liveness = after.liveness;
    }
    if after.deletion.supersedes(&before.deletion) {
        changed.deletion = after.deletion;
    }
    changed
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
