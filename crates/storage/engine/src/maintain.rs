//! Edits that remove SSTables, and the end of tables.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use rt::{Disk, DiskError};
use sstable::{Descriptor, SstableError};

use crate::edit::{Edit, finish_edits};
use crate::engine::Inner;
use crate::error::{RETRY_PAUSE, disk_or_source, is_shortage};
use crate::links::{auto_snapshot, link_all, snapshot_name, wants_snapshot};
use crate::live::{LiveSstable, Removal};
use crate::store::Store;
use crate::{MaintenanceError, OpenError};

/// An edit that has happened, and whose files are still to be removed.
pub(crate) struct Committed {
    log: PathBuf,
    orphans: Vec<Descriptor>,
}

impl Inner {
    /// A name that no other edit has.
    pub(crate) fn unique_id(&self) -> [u8; 16] {
        let mut id = [0; 16];
        self.rt.fill_random(&mut id);
        // The form of a version 1 UUID, which Cassandra expects in the names of its edits.
        id[6] = (id[6] & 0x0f) | 0x10;
        id[8] = (id[8] & 0x3f) | 0x80;
        id
    }

    /// Commits an edit that removes SSTables, or undoes it for certain; where neither is possible the shard stops. Files that
    /// could not be removed before are removed with it: they repeat rows of the set, and must not outlive it.
    pub(crate) async fn commit(
        &self,
        store: &Store,
        edit: Edit,
        removed: &[Descriptor],
    ) -> Result<Committed, MaintenanceError> {
        self.commit_with(store, edit, removed, Vec::new()).await
    }

    /// [`Inner::commit`] of an edit that removes the whole set, and with it the damaged SSTables in the table's directory.
    pub(crate) async fn commit_all(
        &self,
        store: &Store,
        edit: Edit,
        removed: &[Descriptor],
    ) -> Result<Committed, MaintenanceError> {
        let committed = self.commit_with(store, edit, removed, store.damages.files()).await?;
        store.damages.forget_files();
        Ok(committed)
    }

    async fn commit_with(
        &self,
        store: &Store,
        mut edit: Edit,
        removed: &[Descriptor],
        damaged: Vec<Descriptor>,
    ) -> Result<Committed, MaintenanceError> {
        if self.health.has_failed() {
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
                        && !self.health.is_stopped()
                    {
                        self.rt.sleep(RETRY_PAUSE).await;
                        continue;
                    }
                    self.stop_by_failure(&error, self.config.disk_failure_policy);
                    break;
                }
                Err(error.into())
            }
        }
    }

    /// Has the files of a committed edit removed when no reader needs them, and then its log, if it is `finished` apart
    /// from that; otherwise the next start removes it.
    pub(crate) async fn retire(&self, doomed: &[Rc<LiveSstable>], committed: Committed, finished: bool) {
        let Committed { log, orphans } = committed;
        if doomed.is_empty() && orphans.is_empty() {
            if finished {
                // Logs that cannot be removed now are removed by the next start.
                let _ = self.rt.disk().remove(&log).await;
            }
            return;
        }
        let removal = Removal::new(doomed.len() + orphans.len(), finished.then_some(log));
        doomed.iter().for_each(|live| live.obsolete(&removal));
        orphans.into_iter().for_each(|orphan| self.trash.add(orphan, &removal));
    }

    /// Takes SSTables out of a table's set by one edit; their files go when no reader needs them.
    async fn remove_sstables(
        &self,
        store: &Store,
        doomed: &[Rc<LiveSstable>],
    ) -> Result<(), MaintenanceError> {
        if doomed.is_empty() && store.damages.files().is_empty() {
            return Ok(());
        }
        let edit = Edit::begin(self.rt.disk(), &store.dir, "unknown", self.unique_id()).await?;
        let names: Vec<Descriptor> = doomed.iter().map(|live| live.sstable.descriptor().clone()).collect();
        let committed = self.commit_all(store, edit, &names).await?;
        store.sstables.change(Vec::new(), doomed);
        self.retire(doomed, committed, true).await;
        self.cache.forget_table(store.id);
        Ok(())
    }
}

/// See [`crate::Engine::drop_table`].
pub(crate) async fn drop_table(
    inner: &Rc<Inner>,
    store: &Rc<Store>,
    at_micros: i64,
) -> Result<(), MaintenanceError> {
    if wants_snapshot(inner, store)
        && let Err(error) = inner.flush(store).await
    {
        // The table is gone in the whole cluster, and the next start would not understand its log entries.
        tracing::warn!(
            "the automatic snapshot of {} lacks its memtables: {error}",
            store.table().full_name()
        );
    }
    store.dropped.set(true);
    inner.tables.begin_drop(store.id);
    assert!(inner.store(store.id).is_none(), "no request finds a dropped table");
    store.edits.stop_compactions();
    // Memtables that were being flushed end without writing anything.
    while let Err(error) = inner.flush(store).await {
        if inner.health.is_stopped() {
            return Err(error);
        }
    }
    let _alone = store.edits.alone().await?;
    let doomed: Vec<Rc<LiveSstable>> = store.set().as_ref().clone();
    auto_snapshot(inner, store, &doomed, "dropped", at_micros).await?;
    inner.remove_sstables(store, &doomed).await?;
    drop(doomed);
    assert!(store.set().is_empty(), "a dropped table has no SSTables");
    assert!(store.memtables.is_one() && store.memtables.active().is_empty(), "a dropped table has no rows");
    let orphans = store.sstables.orphans();
    for orphan in &orphans {
        sstable::remove(inner.rt.disk(), orphan).await.map_err(disk_or_source)?;
    }
    store.sstables.forget_orphans(&orphans);
    inner.log.forget_table(store.id);
    inner.compactions.resume(store.id);
    // The directory is shared by the shards: another may be about to write its last memtable there. It is removed when all
    // are done ([`remove_dropped_dir`]).
    inner.trash.empty(inner.rt.disk()).await?;
    inner.release_log().await;
    inner.tables.end_drop(store.id);
    Ok(())
}

/// Removes the directory of a table that every shard has dropped, and that of its keyspace unless that is `in_use`, as far
/// as they are empty.
/// Gives whether nothing but snapshots and backups is left: readers may still hold files.
pub(crate) async fn remove_dropped_dir(disk: &Disk, dir: &Path, in_use: bool) -> Result<bool, DiskError> {
    if disk.exists(dir).await? {
        crate::truncation_record::remove_all(disk, dir).await?;
        crate::marks::remove_others(disk, dir, None).await?;
        crate::indexes::remove_folder(disk, dir).await?;
        let left = disk.list(dir).await?;
        if left.iter().any(|entry| !entry.is_dir) {
            return Ok(false);
        }
        if !left.is_empty() {
            return Ok(true);
        }
        disk.remove_dir_all(dir).await?;
    }
    if let Some(keyspace) = dir.parent()
        && disk.exists(keyspace).await?
    {
        if !in_use && disk.list(keyspace).await?.is_empty() {
            disk.remove_dir_all(keyspace).await?;
        } else {
            disk.sync_dir(keyspace).await?;
        }
    }
    Ok(true)
}

/// Finishes a drop that a crash interrupted: to be called once a node before the shards open. The SSTables of `dir` go into the
/// automatic snapshot of the drop of table `name` at `at_micros`, where there is to be one, and then away.
///
/// # Errors
/// [`OpenError::Disk`] when the disk fails.
pub async fn finish_drop(
    disk: &Disk,
    dir: &Path,
    name: &str,
    at_micros: i64,
    snapshot: bool,
) -> Result<(), OpenError> {
    if disk.exists(dir).await? {
        finish_edits(disk, dir).await?;
        sstable::remove_unfinished(disk, dir).await?;
        let target = dir.join("snapshots").join(snapshot_name("dropped", at_micros, name));
        let left = sstable::list_complete(disk, dir).await?;
        if snapshot {
            link_all(disk, &left, &target, true).await?;
        }
        for descriptor in &left {
            sstable::remove(disk, descriptor).await?;
        }
    }
    remove_dropped_dir(disk, dir, false).await?;
    Ok(())
}
