//! A write taken apart into changes: by timestamp, and the cells of a row by their time to live, as one row of a log has one of each.

use std::collections::BTreeMap;

use mutation::row::ColumnData;
use mutation::{Bound, Clustering, Complex, DeletionTime, PartitionUpdate, Row, Seconds, Timestamp};
use schema::ColumnId;

/// Cells of a row.
pub(crate) type Cells = Vec<(ColumnId, ColumnData)>;

/// The changes of one row by time to live; 0 for none.
#[derive(Default)]
pub(crate) struct RowChanges {
    pub(crate) by_ttl: BTreeMap<Seconds, RowChange>,
    /// The whole row is deleted.
    pub(crate) is_deleted: bool,
}

/// Cells of a row with one time to live.
#[derive(Default)]
pub(crate) struct RowChange {
    /// The row gets a mark of its own, by an INSERT.
    pub(crate) is_insert: bool,
    pub(crate) cells: Cells,
}

/// The changes of a partition with one timestamp.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) static_row: RowChanges,
    pub(crate) rows: BTreeMap<Clustering, RowChanges>,
    pub(crate) ranges: Vec<(Bound, Bound)>,
    /// The whole partition is deleted.
    pub(crate) deletes_partition: bool,
}

/// Takes a write apart.
pub(crate) fn changes(update: &PartitionUpdate) -> BTreeMap<Timestamp, Changes> {
    let mut all: BTreeMap<Timestamp, Changes> = BTreeMap::new();
    for (timestamp, row) in update.static_row().into_iter().flat_map(row_changes) {
        all.entry(timestamp).or_default().static_row = row;
    }
    for row in update.rows() {
        for (timestamp, changes) in row_changes(row) {
            all.entry(timestamp).or_default().rows.insert(row.clustering.clone(), changes);
        }
    }
    for range in update.range_tombstones.iter() {
        let changes = all.entry(range.deletion.timestamp).or_default();
        changes.ranges.push((range.start.clone(), range.end.clone()));
    }
    if !update.deletion.is_live() {
        all.entry(update.deletion.timestamp).or_default().deletes_partition = true;
    }
    all
}

fn row_changes(row: &Row) -> BTreeMap<Timestamp, RowChanges> {
    let mut all: BTreeMap<Timestamp, RowChanges> = BTreeMap::new();
    if !row.deletion.is_live() {
        all.entry(row.deletion.timestamp).or_default().is_deleted = true;
    }
    if !row.liveness.is_none() {
        let changes = all.entry(row.liveness.timestamp).or_default();
        changes.by_ttl.entry(row.liveness.ttl).or_default().is_insert = true;
    }
    for (id, data) in row.columns() {
        match data {
            ColumnData::Simple(cell) => {
                let changes = all.entry(cell.timestamp).or_default();
                changes.by_ttl.entry(cell.ttl).or_default().cells.push((*id, data.clone()));
            }
            ColumnData::Complex(complex) => {
                for ((timestamp, ttl), part) in elements(complex) {
                    let change = all.entry(timestamp).or_default().by_ttl.entry(ttl).or_default();
                    change.cells.push((*id, ColumnData::Complex(part)));
                }
            }
        }
    }
    // A statement that sets the whole of a collection deletes the old cells just below its own timestamp: the two are one change.
    for (id, data) in row.columns() {
        let ColumnData::Complex(Complex { deletion, .. }) = data else { continue };
        if deletion.is_live() {
            continue;
        }
        let above = deletion.timestamp.saturating_add(1);
        let timestamp = if all.contains_key(&above) { above } else { deletion.timestamp };
        add_deletion(all.entry(timestamp).or_default(), *id, *deletion);
    }
    all
}

/// The elements of a column by timestamp and time to live.
fn elements(complex: &Complex) -> BTreeMap<(Timestamp, Seconds), Complex> {
    let mut parts: BTreeMap<(Timestamp, Seconds), Complex> = BTreeMap::new();
    for element in &complex.cells {
        let part = parts.entry((element.cell.timestamp, element.cell.ttl)).or_insert_with(Complex::empty);
        part.cells.push(element.clone());
    }
    parts
}

/// Adds the deletion of a column's elements to those that are written with it, if there are some.
fn add_deletion(changes: &mut RowChanges, id: ColumnId, deletion: DeletionTime) {
    let parts = changes.by_ttl.values_mut().flat_map(|change| &mut change.cells);
    for (other, data) in parts {
        if *other == id
            && let ColumnData::Complex(complex) = data
        {
            complex.deletion = deletion;
            return;
        }
    }
    let part = Complex { deletion, ..Complex::empty() };
    changes.by_ttl.entry(0).or_default().cells.push((id, ColumnData::Complex(part)));
}

/// The first and last timestamp of a write; none if it says nothing. Of a collection that is set as a whole, the deletion of the old cells
/// just below does not count.
pub fn time_span(update: &PartitionUpdate) -> Option<(Timestamp, Timestamp)> {
    let mut span: Option<(Timestamp, Timestamp)> = None;
    let mut add = |timestamp: Timestamp| {
        let (first, last) = span.unwrap_or((timestamp, timestamp));
        span = Some((first.min(timestamp), last.max(timestamp)));
    };
    let add_deletion = |deletion: DeletionTime, add: &mut dyn FnMut(Timestamp)| {
        if !deletion.is_live() {
            add(deletion.timestamp);
        }
    };
    add_deletion(update.deletion, &mut add);
    update.range_tombstones.iter().for_each(|range| add_deletion(range.deletion, &mut add));
    for row in update.all_rows() {
        add_deletion(row.deletion, &mut add);
        if !row.liveness.is_none() {
            add(row.liveness.timestamp);
        }
        for (_, data) in row.columns() {
            match data {
                ColumnData::Simple(cell) => add(cell.timestamp),
                ColumnData::Complex(complex) => {
                    if !complex.deletion.is_live() {
                        add(complex.deletion.timestamp.saturating_add(1));
                    }
                    complex.cells.iter().for_each(|element| add(element.cell.timestamp));
                }
            }
        }
    }
    span
}
