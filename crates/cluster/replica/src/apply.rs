//! Writes that take more than this shard's engine: of several shards, in parts, or with their steps told.

use engine::Updates;
use futures_util::future::try_join_all;
use mutation::codec::EncodedUpdates;
use mutation::{ColumnData, Complex, DeletionTime, PartitionUpdate, RangeTombstones, Row};

use crate::{Replica, ReplicaError, TraceLog, Write, message};

/// A part of a write that is applied in parts.
struct Part {
    updates: Updates,
    encoded: Option<Box<EncodedUpdates>>,
    /// Of a deletion that was divided by the rows that it hides.
    is_slice: bool,
}

impl Replica {
    pub(crate) async fn apply_with_care(&self, mut write: Write<'_>) -> Result<(), ReplicaError> {
        let updates = std::mem::take(&mut write.updates);
        let encoded = write.encoded.take();
        match write.divisible {
            false => self.apply_whole(&write, updates, encoded).await,
            true => self.apply_in_parts(&write, updates, encoded).await,
        }
    }

    /// Applies updates, those of one shard as one. `encoded` has the bytes of all of them.
    async fn apply_whole(
        &self,
        write: &Write<'_>,
        updates: Updates,
        mut encoded: Option<Box<EncodedUpdates>>,
    ) -> Result<(), ReplicaError> {
        let own = self.own_shard();
        if self.owns(&updates) {
            return self.apply_here(write.on(own, updates, encoded), write.trace).await;
        }
        let all = updates.len();
        let mut by_shard: Vec<Updates> = vec![Updates::new(); usize::from(self.shard_count())];
        for update in updates {
            by_shard[usize::from(self.shard_of(update.table.id, update.key.token))].push(update);
        }
        let parts = (0..).zip(by_shard).filter(|(_, updates)| !updates.is_empty());
        let parts = parts.map(|(shard, updates)| {
            // One shard has all, or none can use the bytes of all.
            let encoded = if updates.len() == all { encoded.take() } else { None };
            (shard, write.on(shard, updates, encoded))
        });
        let writes = parts.map(|(shard, part)| async move {
            if shard == own {
                return self.apply_here(part, write.trace).await;
            }
            self.record(write.trace, || format!("Sending MUTATION to shard {shard}"));
            let call = message::Apply { write: part, is_traced: write.trace.is_some() };
            let (done, events) = self.call(shard, call).await;
            self.take_steps(write.trace, shard, events);
            done
        });
        try_join_all(writes).await.map(|_| ())
    }

    /// Applies updates in one entry of the commit log where they fit and their previous state can be read at once, and otherwise in parts.
    async fn apply_in_parts(
        &self,
        write: &Write<'_>,
        updates: Updates,
        encoded: Option<Box<EncodedUpdates>>,
    ) -> Result<(), ReplicaError> {
        let mut parts = vec![Part { updates, encoded, is_slice: false }];
        while let Some(Part { updates, encoded, is_slice }) = parts.pop() {
            match self.apply_whole(write, updates.clone(), encoded).await {
                Ok(()) => {}
                Err(error @ (ReplicaError::MutationTooLarge { .. } | ReplicaError::TooMuchToRead(_))) => {
                    // A slice hides little enough; the deletion of a partition, which comes last, hides nothing any more.
                    let slices = match updates.as_slice() {
                        [whole] if !is_slice => self.sliced(whole).await?,
                        _ => None,
                    };
                    let is_slice = is_slice || slices.is_some();
                    let smaller: Vec<Updates> = match slices {
                        Some(slices) => slices.into_iter().map(|slice| vec![slice]).collect(),
                        None => halves(updates).map(|(one, other)| vec![one, other]).ok_or(error)?,
                    };
                    assert!(smaller.len() > 1, "an update that is too large is divided");
                    let part = |updates| Part { updates, encoded: None, is_slice };
                    parts.extend(smaller.into_iter().rev().map(part));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Applies the updates of this shard.
    pub(crate) async fn apply_here(
        &self,
        write: engine::Write,
        trace: Option<&TraceLog>,
    ) -> Result<(), ReplicaError> {
        self.record(trace, || "Appending to commitlog".to_owned());
        for update in &write.updates {
            self.record(trace, || format!("Adding to {} memtable", update.table.name));
        }
        let engine = self.engine();
        let done = engine.apply(write).await;
        self.record(trace, || match &done {
            Ok(()) => format!("Commit log acknowledged ({})", engine.sync_mode_name()),
            Err(error) => error.to_string(),
        });
        Ok(done?)
    }
}

/// Half of the partitions each, or of one partition half of the rows, or of its only row half of the columns or elements; none where
/// nothing is left to divide. Applied in this order, the parts hide all that the whole hides.
fn halves(mut updates: Updates) -> Option<(Updates, Updates)> {
    if updates.len() > 1 {
        let other = updates.split_off(updates.len() / 2);
        return Some((updates, other));
    }
    let (one, other) = parts(updates.pop()?)?;
    Some((vec![one], vec![other]))
}

/// The deletion of the partition comes first, and alone: by itself it can be divided further ([`Replica::sliced`]).
fn parts(mut whole: PartitionUpdate) -> Option<(PartitionUpdate, PartitionUpdate)> {
    let (table, key) = (whole.table.clone(), whole.key.clone());
    let mut one = PartitionUpdate::new(table.clone(), key.clone());
    if !whole.deletion.is_live() {
        one.deletion = std::mem::replace(&mut whole.deletion, DeletionTime::LIVE);
        return (whole.operations() > 0).then_some((one, whole));
    }
    let static_row = whole.take_static_row();
    let ranges = std::mem::replace(&mut whole.range_tombstones, RangeTombstones::new());
    let mut rows = whole.into_rows();
    let kinds = [static_row.is_some(), !ranges.is_empty(), !rows.is_empty()];
    let rows_apart = rows.len() > 1 || kinds.iter().filter(|has| **has).count() > 1;
    if rows_apart && !rows.is_empty() {
        // All but the rows are in the first part; of rows alone, half of them.
        let alone = static_row.is_none() && ranges.is_empty();
        let others = rows.split_off(if alone { rows.len() / 2 } else { 0 });
        rows.into_iter().for_each(|row| one.add_row(row));
        one.range_tombstones = ranges;
        one.set_static_row(static_row);
        return Some((one, PartitionUpdate::with_rows(table, key, others)));
    }
    let mut other = PartitionUpdate::new(table, key);
    if rows_apart {
        one.set_static_row(static_row);
        other.range_tombstones = ranges;
    } else if ranges.len() > 1 {
        let half = ranges.len() / 2;
        for (place, range) in ranges.iter().enumerate() {
            let part = if place < half { &mut one } else { &mut other };
            part.range_tombstones.insert(range.clone());
        }
    } else if let Some(row) = static_row {
        let (first, second) = parts_of_row(row)?;
        one.set_static_row(Some(first));
        other.set_static_row(Some(second));
    } else {
        let (first, second) = parts_of_row(rows.pop()?)?;
        one.add_row(first);
        other.add_row(second);
    }
    Some((one, other))
}

/// Both parts have the row's deletion and its liveness, so that each is valid alone; and the deletion of a collection of which each has elements.
fn parts_of_row(row: Row) -> Option<(Row, Row)> {
    let mut columns = row.columns().to_vec();
    let others = if columns.len() > 1 {
        columns.split_off(columns.len() / 2)
    } else {
        let (id, ColumnData::Complex(complex)) = columns.first_mut()? else { return None };
        if complex.cells.len() < 2 {
            return None;
        }
        let cells = complex.cells.split_off(complex.cells.len() / 2);
        vec![(*id, ColumnData::Complex(Complex { deletion: complex.deletion, cells }))]
    };
    let part = |columns| {
        let mut part = Row::from_columns(row.clustering.clone(), columns);
        (part.liveness, part.deletion) = (row.liveness, row.deletion);
        part
    };
    Some((part(columns), part(others)))
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
