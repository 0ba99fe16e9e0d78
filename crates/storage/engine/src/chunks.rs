//! The fragments of an SSTable as updates of bounded size, to be written again: rows salvaged from a damaged SSTable, and those of a snapshot.

use std::sync::Arc;

use mutation::{Bound, DeletionTime, Fragment, PartitionUpdate, RangeTombstone};
use schema::Table;

/// Gathers fragments, in the order of an SSTable, into updates.
pub(crate) struct Chunks {
    table: Arc<Table>,
    /// Bytes of an update, but for the last fragment of it.
    bytes_max: usize,
    /// Of the partition that is being read.
    update: Option<PartitionUpdate>,
    bytes: usize,
    /// A range deletion in force, and from where.
    open: Option<(Bound, DeletionTime)>,
}

impl Chunks {
    /// Updates of `table` with about so many bytes.
    pub(crate) fn new(table: Arc<Table>, bytes_max: usize) -> Self {
        Self { table, bytes_max, update: None, bytes: 0, open: None }
    }

    /// Whether the last fragment ended its partition.
    pub(crate) fn is_between_partitions(&self) -> bool {
        self.update.is_none()
    }

    /// Takes a fragment; the update that is complete with it.
    pub(crate) fn push(&mut self, fragment: Fragment) -> Option<PartitionUpdate> {
        self.bytes += fragment.memory_size();
        if let Fragment::PartitionStart { key, deletion } = fragment {
            let mut update = PartitionUpdate::new(self.table.clone(), key);
            update.add_deletion(deletion);
            (self.update, self.open) = (Some(update), None);
            return None;
        }
        let update = self.update.as_mut()?;
        let mut is_end = false;
        match fragment {
            Fragment::PartitionStart { .. } => {}
            Fragment::StaticRow(row) => update.add_static(row),
            Fragment::Row(row) => update.add_row(row),
            Fragment::RangeTombstoneChange { bound, deletion } => {
                if let Some((start, before)) = self.open.take() {
                    let end = bound.clone();
                    update.add_range_tombstone(RangeTombstone { start, end, deletion: before });
                }
                self.open = (!deletion.is_live()).then_some((bound, deletion));
            }
            Fragment::PartitionEnd => is_end = true,
        }
        if !is_end && self.bytes < self.bytes_max {
            return None;
        }
        let next = (!is_end).then(|| PartitionUpdate::new(self.table.clone(), update.key.clone()));
        self.bytes = 0;
        std::mem::replace(&mut self.update, next).filter(|update| !update.is_empty())
    }
}
