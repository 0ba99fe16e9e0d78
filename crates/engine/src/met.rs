//! SSTables whose damage was met by a read or a compaction: each is reported once, counted, and left out of compactions.
//!
//! Checksums find damage place by place, so the SSTable stays in service: reads of the damaged partitions fail on this node, and the
//! others are right. What it may hide stays hidden, because it stays in its table's set.

use sstable::SstableError;

use crate::MaintenanceError;
use crate::flush::disk_or_source;
use crate::live::LiveSstable;
use crate::store::Store;

impl Store {
    /// Takes down that a member of the set is damaged, and reports it the first time.
    pub(crate) fn met_damage(&self, live: &LiveSstable, reason: &SstableError) {
        if live.suspect.replace(true) {
            return;
        }
        let (table, sstable) = (self.table.borrow().full_name(), &live.sstable);
        tracing::error!(
            "SSTable {} of table {table}, tokens {} to {}, is damaged: {reason}. Reads that need the damaged place fail on this \
             node, and it is not compacted any more; docs/operations/damage.md says how to bring its rows back",
            sstable.descriptor(),
            sstable.first().token,
            sstable.last().token
        );
    }
}

/// The error that says that a file is damaged, if it does.
pub(crate) fn damage_in<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a SstableError> {
    error.downcast_ref::<SstableError>().filter(|error| matches!(error, SstableError::Corrupt(_)))
}

/// [`disk_or_source`], and takes down that the SSTable is damaged where that is why.
pub(crate) fn noting(store: &Store, live: &LiveSstable, error: SstableError) -> MaintenanceError {
    if matches!(error, SstableError::Corrupt(_)) {
        store.met_damage(live, &error);
    }
    disk_or_source(error)
}
