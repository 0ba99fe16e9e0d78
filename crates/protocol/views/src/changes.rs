//! The changes of a view that follow from a write of one base partition.

use std::collections::BTreeSet;

use mutation::row::ColumnData;
use mutation::{Cell, Clustering, DataRef, DecoratedKey, PartitionUpdate, Row, RowRange, Seconds, Slices};

use crate::View;
use crate::definition::Presence;
use crate::image::difference;

impl View {
    /// The rows of a base partition to read before [`View::changes`] is called with an update: those that it writes, and those in the ranges that
    /// it deletes.
    pub fn rows_read(update: &PartitionUpdate) -> Slices {
        if !update.deletion.is_live() {
            return Slices::all();
        }
        let row = |row: &Row| RowRange::row(&row.clustering);
        let ranges = update.range_tombstones.iter();
        let ranges = ranges.map(|range| RowRange { start: range.start.clone(), end: range.end.clone() });
        Slices::new(update.rows().iter().map(row).chain(ranges).collect())
    }

    /// The changes of the view that follow from `update` of a base partition, one update for each partition of it. `before` is the base replica's state of the
    /// rows of [`View::rows_read`], with all deletions in them and live or not. Deletions are made at `now`.
    ///
    /// The result is right for a view that has all that was derived from `before`; merging it twice, late, or with the results of other replicas
    /// does no harm.
    ///
    /// # Panics
    /// When the two are not of one partition.
    pub fn changes(
        &self,
        before: &PartitionUpdate,
        update: &PartitionUpdate,
        now: Seconds,
    ) -> Vec<PartitionUpdate> {
        assert_eq!(before.key, update.key, "updates of one partition");
        let mut changes = Changes { view: self, now, rows: Vec::new() };
        let mut row = |clustering: &Clustering| {
            let old = before.row_at(clustering);
            let mut new = old.clone();
            new.merge(update.row_at(clustering), &before.table);
            changes.row(&before.key, &old, &new);
        };
        let written = update.rows().iter().map(|row| &row.clustering);
        if update.deletion.is_live() && update.range_tombstones.is_empty() {
            written.for_each(&mut row);
        } else {
            let deleted = before.rows().iter().map(|row| &row.clustering);
            let deleted = deleted.filter(|key| !update.deletion_at(key).is_live());
            written.chain(deleted).collect::<BTreeSet<_>>().into_iter().for_each(&mut row);
        }
        changes.into_updates()
    }

    /// The rows of the view that follow from those of a base partition, as a build of the view writes them.
    pub fn all(&self, base: &PartitionUpdate, now: Seconds) -> Vec<PartitionUpdate> {
        self.changes(&PartitionUpdate::new(base.table.clone(), base.key.clone()), base, now)
    }
}

struct Changes<'a> {
    view: &'a View,
    now: Seconds,
    /// Each with its partition.
    rows: Vec<(DecoratedKey, Row)>,
}

impl Changes<'_> {
    /// Adds the updates derived from one base row that was `old` and is `new`.
    fn row(&mut self, key: &DecoratedKey, old: &Row, new: &Row) {
        // A deletion of missing rows has no effect.
        if old == new || says_nothing(old) && says_nothing(new) {
            return;
        }
        let to = self.view.place(key, new);
        let from = match self.view.are_at_one_place(old, new) {
            true => to.clone(),
            false => self.view.place(key, old),
        };
        if from != to
            && let Some(from) = from
        {
            let left = self.left(from.clustering, old, new);
            self.add(from.key, left);
            if let Some(to) = to {
                self.add(to.key, self.view.image(to.clustering, new));
            }
            return;
        }
        let Some(to) = to else { return };
        let image = self.view.image(to.clustering.clone(), new);
        let change = match from {
            None => image,
            Some(_) => difference(&self.view.image(to.clustering, old), &image, self.now),
        };
        self.add(to.key, change);
    }

    /// The change of a view row whose base row went to another place, or is in the view no more.
    fn left(&self, clustering: Clustering, old: &Row, new: &Row) -> Row {
        let Presence::Cell { base, hidden } = &self.view.presence else {
            panic!("a key of key columns does not change");
        };
        let mut row = Row::new(clustering);
        if new.deletion.supersedes(&old.deletion) {
            row.deletion = new.deletion;
        }
        let (Some(DataRef::Simple(before)), Some(DataRef::Simple(after))) = (old.get(*base), new.get(*base))
        else {
            return row;
        };
        // Below the timestamp of the new value, for the old one may yet be written again with it. At a tie the new value itself
        // hides the old: it is not equal to the key's value.
        let hides = match after.timestamp > before.timestamp && !after.is_tombstone() {
            true => Cell::tombstone(after.timestamp - 1, self.now),
            false => after.to_cell(),
        };
        row.set(*hidden, ColumnData::Simple(hides));
        row
    }

    fn add(&mut self, key: DecoratedKey, row: Row) {
        if row.is_empty() {
            return;
        }
        self.rows.push((key, row));
    }

    /// One update for each partition.
    fn into_updates(mut self) -> Vec<PartitionUpdate> {
        self.rows.sort_by(|(key, row), (other, next)| (key, &row.clustering).cmp(&(other, &next.clustering)));
        let mut updates: Vec<PartitionUpdate> = Vec::new();
        for (key, row) in self.rows {
            match updates.last_mut() {
                Some(update) if update.key == key => update.add_row(row),
                _ => {
                    let mut update = PartitionUpdate::new(self.view.table.clone(), key);
                    update.add_row(row);
                    updates.push(update);
                }
            }
        }
        updates
    }
}

/// Whether nothing was known of a row but deletions.
fn says_nothing(row: &Row) -> bool {
    row.liveness.is_none() && row.column_count() == 0
}
