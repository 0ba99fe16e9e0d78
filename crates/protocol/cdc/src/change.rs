//! A write taken apart into changes: by timestamp, and the cells of a row by their time to live, as one row of a log has one of each.

use std::collections::BTreeMap;

use mutation::{
    Bound, CellRef, Clustering, Complex, DataRef, DeletionTime, PartitionUpdate, Row, Seconds, Timestamp,
};
use schema::ColumnId;

/// The content of a column with one timestamp and time to live.
pub(crate) enum Part<'a> {
    /// The cell of a column with one value, where it lies.
    Simple(CellRef<'a>),
    /// Elements of a column, and its deletion.
    Complex(Complex),
}

/// Cells of a row.
pub(crate) type Cells<'a> = Vec<(ColumnId, Part<'a>)>;

/// The changes of one row.
#[derive(Default)]
pub(crate) struct RowChanges<'a> {
    /// The row gets a mark of its own, by an INSERT, with this time to live (0 for none).
    insert: Option<Seconds>,
    /// Cells by their time to live.
    by_ttl: BTreeMap<Seconds, Cells<'a>>,
    /// The whole row is deleted.
    pub(crate) is_deleted: bool,
}

/// Cells of a row of which the log has one row.
pub(crate) struct RowChange<'c, 'a> {
    pub(crate) is_insert: bool,
    /// Seconds; 0 for none.
    pub(crate) ttl: Seconds,
    pub(crate) cells: Vec<&'c (ColumnId, Part<'a>)>,
}

impl<'a> RowChanges<'a> {
    /// Whether cells are written or deleted, or the row gets its mark.
    pub(crate) fn has_cells(&self) -> bool {
        self.insert.is_some() || !self.by_ttl.is_empty()
    }

    /// The columns that are changed.
    pub(crate) fn columns(&self) -> impl Iterator<Item = ColumnId> {
        self.by_ttl.values().flatten().map(|(id, _)| *id)
    }

    /// The changes that have a row of the log each: the INSERT, then updates by time to live, those without one first. The deletion of a collection's old
    /// elements has no time to live, so elements that have one are in an update behind it, and not in the INSERT.
    pub(crate) fn parts(&self) -> Vec<RowChange<'_, 'a>> {
        let is_of_insert = |ttl: Seconds, part: &Part<'_>| {
            self.insert == Some(ttl) && (ttl == 0 || matches!(part, Part::Simple(_)))
        };
        let cells_of = |ttl: Seconds, is_insert: bool| -> Vec<&(ColumnId, Part<'a>)> {
            let cells = self.by_ttl.get(&ttl).into_iter().flatten();
            cells.filter(|(_, part)| is_of_insert(ttl, part) == is_insert).collect()
        };
        let insert = self.insert.map(|ttl| RowChange { is_insert: true, ttl, cells: cells_of(ttl, true) });
        let update = |ttl: &Seconds| RowChange { is_insert: false, ttl: *ttl, cells: cells_of(*ttl, false) };
        let updates = self.by_ttl.keys().map(update).filter(|change| !change.cells.is_empty());
        insert.into_iter().chain(updates).collect()
    }
}

/// The changes of a partition with one timestamp.
#[derive(Default)]
pub(crate) struct Changes<'a> {
    pub(crate) static_row: RowChanges<'a>,
    pub(crate) rows: BTreeMap<&'a Clustering, RowChanges<'a>>,
    pub(crate) ranges: Vec<(Bound, Bound)>,
    /// The whole partition is deleted.
    pub(crate) deletes_partition: bool,
}

/// Takes a write apart.
pub(crate) fn changes(update: &PartitionUpdate) -> BTreeMap<Timestamp, Changes<'_>> {
    let mut all: BTreeMap<Timestamp, Changes<'_>> = BTreeMap::new();
    for (timestamp, row) in update.static_row().into_iter().flat_map(row_changes) {
        all.entry(timestamp).or_default().static_row = row;
    }
    for row in update.rows() {
        for (timestamp, changes) in row_changes(row) {
            all.entry(timestamp).or_default().rows.insert(&row.clustering, changes);
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

fn row_changes(row: &Row) -> BTreeMap<Timestamp, RowChanges<'_>> {
    let mut all: BTreeMap<Timestamp, RowChanges<'_>> = BTreeMap::new();
    if !row.deletion.is_live() {
        all.entry(row.deletion.timestamp).or_default().is_deleted = true;
    }
    if !row.liveness.is_none() {
        all.entry(row.liveness.timestamp).or_default().insert = Some(row.liveness.ttl);
    }
    for (id, data) in row.iter() {
        match data {
            DataRef::Simple(cell) => {
                let changes = all.entry(cell.timestamp).or_default();
                changes.by_ttl.entry(cell.ttl).or_default().push((id, Part::Simple(cell)));
            }
            DataRef::Complex(complex) => {
                for ((timestamp, ttl), part) in elements(complex) {
                    let cells = all.entry(timestamp).or_default().by_ttl.entry(ttl).or_default();
                    cells.push((id, Part::Complex(part)));
                }
            }
        }
    }
    let deletions = row.iter().filter_map(|(id, data)| match data {
        DataRef::Complex(Complex { deletion, .. }) if !deletion.is_live() => Some((id, *deletion)),
        _ => None,
    });
    // Where each belongs is decided before they are added, so that several of one statement stay together.
    let placed: Vec<(Timestamp, ColumnId, DeletionTime)> =
        deletions.map(|(id, deletion)| (time_of_deletion(&all, deletion), id, deletion)).collect();
    for (timestamp, id, deletion) in placed {
        add_deletion(all.entry(timestamp).or_default(), id, deletion);
    }
    all
}

/// The timestamp of the write that deleted a collection's elements. A statement that sets the whole of a collection deletes the old elements just
/// below its own timestamp; one that deletes the collection alone is taken for such a one, as in ScyllaDB.
fn time_of_deletion(all: &BTreeMap<Timestamp, RowChanges<'_>>, deletion: DeletionTime) -> Timestamp {
    let above = deletion.timestamp.saturating_add(1);
    let is_alone = !all.contains_key(&deletion.timestamp);
    if is_alone || all.contains_key(&above) { above } else { deletion.timestamp }
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

/// Adds the deletion of a column's elements, to those without a time to live that are written with it, if there are some.
fn add_deletion(changes: &mut RowChanges<'_>, id: ColumnId, deletion: DeletionTime) {
    let cells = changes.by_ttl.entry(0).or_default();
    for (other, part) in cells.iter_mut() {
        if *other == id
            && let Part::Complex(complex) = part
        {
            complex.deletion = deletion;
            return;
        }
    }
    cells.push((id, Part::Complex(Complex { deletion, ..Complex::empty() })));
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
        for (_, data) in row.iter() {
            match data {
                DataRef::Simple(cell) => add(cell.timestamp),
                DataRef::Complex(complex) => {
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
