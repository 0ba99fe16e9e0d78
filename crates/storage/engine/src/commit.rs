//! How an edit takes effect on the set of SSTables of a table: committed, or undone for certain, or the shard stops; then the files that it
//! removed go when no reader needs them.

use std::path::PathBuf;
use std::rc::Rc;

use sstable::{Descriptor, SstableError};

use crate::MaintenanceError;
use crate::edit::Edit;
use crate::engine::Inner;
use crate::error::{RETRY_PAUSE, is_shortage};
use crate::live::{LiveSstable, Removal};
use crate::store::Store;

/// An edit that has happened, and whose files are still to be removed.
pub(crate) struct Committed {
    log: PathBuf,
    orphans: Vec<Descriptor>,
}

/// A name that no other edit has.
pub(crate) fn unique_id(inner: &Inner) -> [u8; 16] {
    let mut id = [0; 16];
    inner.rt.fill_random(&mut id);
    // The form of a version 1 UUID, which Cassandra expects in the names of its edits.
    id[6] = (id[6] & 0x0f) | 0x10;
    id[8] = (id[8] & 0x3f) | 0x80;
    id
}

/// Commits an edit that removes SSTables, or undoes it for certain; where neither is possible the shard stops. Files that
/// could not be removed before are removed with it: they repeat rows of the set, and must not outlive it.
pub(crate) async fn commit(
    inner: &Inner,
    store: &Store,
    edit: Edit,
    removed: &[Descriptor],
) -> Result<Committed, MaintenanceError> {
    commit_with(inner, store, edit, removed, Vec::new()).await
}

/// [`commit`] of an edit that removes the whole set, and with it the damaged SSTables in the table's directory.
pub(crate) async fn commit_all(
    inner: &Inner,
    store: &Store,
    edit: Edit,
    removed: &[Descriptor],
) -> Result<Committed, MaintenanceError> {
    let committed = commit_with(inner, store, edit, removed, store.damages.files()).await?;
    store.damages.forget_files();
    Ok(committed)
}

async fn commit_with(
    inner: &Inner,
    store: &Store,
    mut edit: Edit,
    removed: &[Descriptor],
    damaged: Vec<Descriptor>,
) -> Result<Committed, MaintenanceError> {
    if inner.health.has_failed() {
        // An edit of this table may be one that could neither be committed nor undone, and nothing may build on that.
        let _ = edit.abort().await;
        return Err(MaintenanceError::Stopped);
    }
    let mut orphans = store.sstables.orphans();
    orphans.extend(damaged);
    let names: Vec<Descriptor> = removed.iter().chain(&orphans).cloned().collect();
    match edit.commit(&names).await {
        Ok(log) => {
            store.sstables.forget_orphans(&orphans);
            Ok(Committed { log, orphans })
        }
        Err(error) => {
            while let Err(failed) = edit.revoke().await {
                if matches!(&failed, SstableError::Disk(disk) if is_shortage(disk))
                    && !inner.health.is_stopped()
                {
                    inner.rt.sleep(RETRY_PAUSE).await;
                    continue;
                }
                inner.stop_by_failure(&error, inner.config.disk_failure_policy);
                break;
            }
            Err(error.into())
        }
    }
}

/// Has the files of a committed edit removed when no reader needs them, and then its log, if it is `finished` apart
/// from that; otherwise the next start removes it.
pub(crate) async fn retire(inner: &Inner, doomed: &[Rc<LiveSstable>], committed: Committed, finished: bool) {
    let Committed { log, orphans } = committed;
    if doomed.is_empty() && orphans.is_empty() {
        if finished {
            // Logs that cannot be removed now are removed by the next start.
            let _ = inner.rt.disk().remove(&log).await;
        }
        return;
    }
    let removal = Removal::new(doomed.len() + orphans.len(), finished.then_some(log));
    doomed.iter().for_each(|live| live.obsolete(&removal));
    orphans.into_iter().for_each(|orphan| inner.trash.add(orphan, &removal));
}
