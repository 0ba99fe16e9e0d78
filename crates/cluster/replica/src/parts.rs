//! Writes that need not be taken up as one: what a read repairs may be more than the commit log takes in one entry, of many partitions or of
//! many rows, although each write that made it was not.

use engine::Since;
use mutation::{PartitionUpdate, RangeTombstones};

use crate::{Replica, ReplicaError};

/// In memory, bytes. Less than this fits every commit log.
const SMALL_BYTES: usize = 8 << 10;

impl Replica {
    /// Applies rows that a read has found at other replicas, without what belongs to a table that was truncated since, or that one
    /// of those replicas may be about to truncate. In one entry of the commit log where they fit and otherwise in parts, so that a part may be
    /// applied when the rest fails.
    ///
    /// # Errors
    ///
    /// As [`Replica::apply`]; [`ReplicaError::MutationTooLarge`] only when a single row is.
    pub async fn apply_in_parts(
        &self,
        updates: Vec<PartitionUpdate>,
        since: Since,
    ) -> Result<(), ReplicaError> {
        let mut parts = vec![updates];
        while let Some(part) = parts.pop() {
            if part.iter().map(PartitionUpdate::memory_size).sum::<usize>() <= SMALL_BYTES {
                self.apply_read(part, since).await?;
                continue;
            }
            match self.apply_read(part.clone(), since).await {
                Ok(()) => {}
                Err(error @ ReplicaError::MutationTooLarge { .. }) => {
                    let (one, other) = halves(part).ok_or(error)?;
                    parts.extend([other, one]);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Half of the partitions each, or of one partition half of the rows; none of a single row.
fn halves(mut updates: Vec<PartitionUpdate>) -> Option<(Vec<PartitionUpdate>, Vec<PartitionUpdate>)> {
    if updates.len() > 1 {
        let other = updates.split_off(updates.len() / 2);
        return Some((updates, other));
    }
    let mut whole = updates.pop().filter(|update| update.rows().len() > 1)?;
    let (table, key, deletion) = (whole.table.clone(), whole.key.clone(), whole.deletion);
    let static_row = whole.static_row.take();
    let range_tombstones = std::mem::replace(&mut whole.range_tombstones, RangeTombstones::new());
    let mut rows = whole.into_rows();
    let other = PartitionUpdate::with_rows(table.clone(), key.clone(), rows.split_off(rows.len() / 2));
    let mut one = PartitionUpdate::with_rows(table, key, rows);
    (one.deletion, one.static_row, one.range_tombstones) = (deletion, static_row, range_tombstones);
    Some((vec![one], vec![other]))
}
