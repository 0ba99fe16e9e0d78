//! Compares rows of a view with the base rows that they follow from, and computes repairs of wrong view rows.

use std::collections::BTreeMap;

use bytes::Bytes;
use mutation::row::compare_paths;
use mutation::{
    Cell, Clustering, ColumnData, Complex, ComplexCell, DecoratedKey, DeletionTime, LivenessInfo, Row,
    Seconds, Timestamp,
};
use schema::{ColumnId, Table};

use crate::View;
use crate::definition::{Presence, Source};

/// A difference between a view and a recomputation of its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// The base has a row that the view does not show.
    Missing,
    /// The view shows other values, times to live or older timestamps than the base row has.
    Wrong,
    /// The view shows a row that no base row is the cause of.
    Ghost,
}

impl Difference {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Wrong => "wrong",
            Self::Ghost => "ghost",
        }
    }
}

/// The live cells of a row: the path is none for a column with one value.
type LiveCells<'a> = BTreeMap<(ColumnId, Option<Bytes>), &'a Cell>;

impl View {
    /// The row of the view that follows from a base row, with the key of its partition; none when a reader at `now` sees no such row.
    pub fn expected(&self, key: &DecoratedKey, base: &Row, now: Seconds) -> Option<(DecoratedKey, Row)> {
        let place = self.place(key, base)?;
        let image = self.image(place.clustering, base);
        self.is_present(&place.key, &image, now).then_some((place.key, image))
    }

    /// The base row of a row of the view; none when the key is not one of the view.
    pub fn origin(
        &self,
        base: &Table,
        key: &DecoratedKey,
        clustering: &Clustering,
    ) -> Option<(DecoratedKey, Clustering)> {
        let components = DecoratedKey::components(&key.key, self.partition_key.len())?;
        let partition = self.partition_key.iter().zip(components.into_iter().map(Some));
        let values = partition.chain(self.clustering.iter().zip(clustering.components()));
        let (mut base_key, mut base_clustering) = (BTreeMap::new(), BTreeMap::new());
        for (column, value) in values {
            match column.source {
                Source::PartitionKey(at) => drop(base_key.insert(at, value?)),
                Source::Clustering(at) => drop(base_clustering.insert(at, value)),
                Source::Regular => {}
            }
        }
        let base_key: Vec<&[u8]> = base_key.into_values().collect();
        let base_clustering: Vec<Option<&[u8]>> = base_clustering.into_values().collect();
        let key = DecoratedKey::new(DecoratedKey::compose(&base_key));
        Some((key, Clustering::new(base, &base_clustering)))
    }

    /// The difference between the result of [`View::expected`] for a place of the view and the row that is there. A cell of the
    /// view may be newer than the base's when it says the same: that is how a cell is repaired that was hidden by a later one.
    pub fn compare(
        &self,
        key: &DecoratedKey,
        expected: Option<&Row>,
        found: Option<&Row>,
        now: Seconds,
    ) -> Option<Difference> {
        let found = found.filter(|row| self.is_present(key, row, now));
        let (expected, found) = match (expected, found) {
            (None, None) => return None,
            (Some(_), None) => return Some(Difference::Missing),
            (None, Some(_)) => return Some(Difference::Ghost),
            (Some(expected), Some(found)) => (expected, found),
        };
        let (wanted, there) = (live_cells(expected, now), live_cells(found, now));
        let same_cells = wanted.len() == there.len()
            && wanted.iter().all(|(path, cell)| there.get(path).is_some_and(|found| says(found, cell)));
        let same_mark = match (expected.liveness.is_live(now), found.liveness.is_live(now)) {
            (false, false) => true,
            (true, true) => mark_says(&found.liveness, &expected.liveness),
            _ => false,
        };
        (!same_cells || !same_mark).then_some(Difference::Wrong)
    }

    /// A row with which a row of the view shows, once they are merged, the result of [`View::expected`]: the expected cells, deletions
    /// of other present cells at their own timestamp, and where the two are about one cell, the expected one newer than the
    /// present one. All of them are newer than `floor`: the timestamp of a deletion that is in the way, or [`Timestamp::MIN`].
    pub fn repair(
        &self,
        clustering: &Clustering,
        expected: Option<&Row>,
        found: Option<&Row>,
        mut floor: Timestamp,
        now: Seconds,
    ) -> Row {
        let mut out = Row::new(clustering.clone());
        let nothing = Row::new(clustering.clone());
        let found = found.unwrap_or(&nothing);
        let there = live_cells(found, now);
        let Some(expected) = expected else {
            match &self.presence {
                // As when the value moves: its other cells stay, out of sight.
                Presence::Cell { hidden, .. } => {
                    if let Some(cell) = there.get(&(*hidden, None)) {
                        let gone = Cell::tombstone(cell.timestamp.max(floor), now);
                        out.set(*hidden, ColumnData::Simple(gone));
                    }
                }
                Presence::Row { .. } => {
                    let cells = there.values().map(|cell| cell.timestamp);
                    let mark = found.liveness.is_live(now).then_some(found.liveness.timestamp);
                    if let Some(latest) = cells.chain(mark).max() {
                        out.deletion = DeletionTime::new(latest.max(floor), now);
                    }
                }
            }
            return out;
        };
        let (mark, wanted) = (&expected.liveness, live_cells(expected, now));
        if found.liveness.is_live(now) && !mark.is_live(now) {
            // A mark is deleted by a deletion of the row only.
            out.deletion = DeletionTime::new(found.liveness.timestamp, now);
            floor = floor.max(found.liveness.timestamp);
        }
        if mark.is_live(now) && !(mark_says(&found.liveness, mark) && found.liveness.timestamp > floor) {
            let over = floor.max(found.liveness.timestamp);
            out.liveness = LivenessInfo { timestamp: above(mark.timestamp, over), ..*mark };
        }
        let mut cells: BTreeMap<ColumnId, Vec<(Option<Bytes>, Cell)>> = BTreeMap::new();
        let mut add = |(id, path): &(ColumnId, Option<Bytes>), cell: Cell| {
            cells.entry(*id).or_default().push((path.clone(), cell));
        };
        for (path, cell) in &wanted {
            let known = there.get(path);
            if known.is_some_and(|known| says(known, cell) && known.timestamp > floor) {
                continue;
            }
            let over = known.map_or(floor, |known| floor.max(known.timestamp));
            add(path, Cell { timestamp: above(cell.timestamp, over), ..(*cell).clone() });
        }
        for (path, cell) in there.iter().filter(|(path, _)| !wanted.contains_key(*path)) {
            add(path, Cell::tombstone(cell.timestamp, now));
        }
        for (id, cells) in cells {
            self.set_cells(&mut out, id, cells);
        }
        out
    }

    fn set_cells(&self, out: &mut Row, id: ColumnId, cells: Vec<(Option<Bytes>, Cell)>) {
        let Some(column) = self.table.column_by_id(id) else { return };
        let mut elements = Vec::with_capacity(cells.len());
        for (path, cell) in cells {
            match path {
                None => out.set(id, ColumnData::Simple(cell)),
                Some(path) => elements.push(ComplexCell { path, cell }),
            }
        }
        if !elements.is_empty() {
            elements.sort_by(|left, right| compare_paths(&column.ty, &left.path, &right.path));
            out.set(id, ColumnData::Complex(Complex { cells: elements, ..Complex::empty() }));
        }
    }
}

fn live_cells(row: &Row, now: Seconds) -> LiveCells<'_> {
    let mut cells = LiveCells::new();
    for (id, data) in row.columns() {
        match data {
            ColumnData::Simple(cell) => {
                cells.extend(cell.is_live(now).then_some(((*id, None), cell)));
            }
            ColumnData::Complex(complex) => {
                let live = complex.cells.iter().filter(|element| element.cell.is_live(now));
                cells.extend(live.map(|element| ((*id, Some(element.path.clone())), &element.cell)));
            }
        }
    }
    cells
}

/// Whether a cell of the view equals the base's, and not with an older timestamp.
fn says(found: &Cell, expected: &Cell) -> bool {
    found.value == expected.value
        && found.local_deletion == expected.local_deletion
        && found.timestamp >= expected.timestamp
}

fn mark_says(found: &LivenessInfo, expected: &LivenessInfo) -> bool {
    found.expires == expected.expires && found.timestamp >= expected.timestamp
}

/// A timestamp, raised above another where it is not.
fn above(timestamp: Timestamp, over: Timestamp) -> Timestamp {
    timestamp.max(over.saturating_add(1))
}
