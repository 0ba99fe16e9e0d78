//! Whether a row of the base is the result of the changes that its log has (docs/design/cdc.md, *Verifying*).

use std::collections::BTreeMap;

use mutation::{Cell, Clustering, DataRef, DeletionTime, PartitionUpdate, Row, Seconds, Timestamp};
use schema::{ColumnId, Table};

/// Seconds for which an expiring cell may be there or not: the log has the timestamp of a write with a time to live, and not its expiry.
const EXPIRY_LEEWAY: Seconds = 10;

/// The way in which a row of the base and its log differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Divergence {
    /// The base has a value that the log lacks.
    Unlogged,
    /// The log has a change that the base lacks.
    Unapplied,
}

/// The timestamps of the writes of which the log is complete, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first.
    pub since: Timestamp,
    /// The last.
    pub upto: Timestamp,
}

/// A place in a row: its mark, a cell, or an element.
type Place<'a> = (Option<ColumnId>, &'a [u8]);
/// Timestamp and value.
type Said<'a> = (Timestamp, &'a [u8]);

/// Compares a row of the base as clients see it at `now` (none: there is no live row) with the changes of its partition that the log has. `clustering` is
/// none for the static row.
pub fn compare(
    table: &Table,
    replayed: Option<&PartitionUpdate>,
    clustering: Option<&Clustering>,
    found: Option<&Row>,
    window: Window,
    now: Seconds,
) -> Option<Divergence> {
    let key = clustering.cloned().unwrap_or_else(Clustering::empty);
    let none = Row::new(key.clone());
    let found = found.unwrap_or(&none);
    let logged = match (replayed, clustering) {
        (Some(replayed), Some(clustering)) => replayed.row_at(clustering),
        (Some(replayed), None) => {
            let mut row = replayed.static_row().cloned().unwrap_or_else(|| Row::new(key));
            row.deletion = row.deletion.max(replayed.deletion);
            row.normalise();
            row
        }
        (None, _) => Row::new(key),
    };
    let live = says(found, Some(now));
    let is_logged = |(place, (timestamp, _)): (&Place<'_>, &Said<'_>)| {
        *timestamp < window.since || *timestamp > window.upto || reaches(&logged, place, *timestamp)
    };
    if !live.iter().all(is_logged) {
        return Some(Divergence::Unlogged);
    }
    let mut merged = found.clone();
    merged.merge(logged, table);
    let expected = says(&merged, Some(now.saturating_add(EXPIRY_LEEWAY)));
    let all = says(&merged, None);
    let is_there = |(place, said): (&Place<'_>, &Said<'_>)| live.get(place) == Some(said);
    let stays = |(place, said): (&Place<'_>, &Said<'_>)| all.get(place).is_some_and(|it| it.0 == said.0);
    let is_applied = expected.iter().all(is_there) && live.iter().all(stays);
    (!is_applied).then_some(Divergence::Unapplied)
}

/// All that a row says, or all that lives at a time.
fn says(row: &Row, at: Option<Seconds>) -> BTreeMap<Place<'_>, Said<'_>> {
    let mut said = BTreeMap::new();
    if !row.liveness.is_none() && at.is_none_or(|now| row.liveness.is_live(now)) {
        said.insert((None, &[][..]), (row.liveness.timestamp, &[][..]));
    }
    for (id, data) in row.iter() {
        match data {
            DataRef::Simple(cell) if at.is_none_or(|now| cell.is_live(now)) => {
                said.insert((Some(id), &[][..]), (cell.timestamp, cell.value));
            }
            DataRef::Simple(_) => {}
            DataRef::Complex(complex) => {
                let shown = |cell: &Cell| at.is_none_or(|now| cell.is_live(now));
                for element in complex.cells.iter().filter(|element| shown(&element.cell)) {
                    let said_of = (element.cell.timestamp, &*element.cell.value);
                    said.insert((Some(id), &*element.path), said_of);
                }
            }
        }
    }
    said
}

/// Whether a log says something of a place that is not older than a timestamp.
fn reaches(logged: &Row, (id, path): &Place<'_>, timestamp: Timestamp) -> bool {
    let deletes = |deletion: DeletionTime| !deletion.is_live() && deletion.timestamp >= timestamp;
    if deletes(logged.deletion) {
        return true;
    }
    let Some(id) = id else { return !logged.liveness.is_none() && logged.liveness.timestamp >= timestamp };
    match logged.get(*id) {
        None => false,
        Some(DataRef::Simple(cell)) => cell.timestamp >= timestamp,
        Some(DataRef::Complex(complex)) => {
            let mut elements = complex.cells.iter();
            deletes(complex.deletion)
                || elements.any(|element| element.path == *path && element.cell.timestamp >= timestamp)
        }
    }
}
