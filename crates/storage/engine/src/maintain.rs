//! Edits that remove SSTables, snapshots, and the end of tables.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use rt::{Disk, DiskError};
use sstable::{Component, Descriptor, SstableError};

use crate::edit::{Edit, finish_edits};
use crate::engine::Inner;
use crate::error::is_shortage;
use crate::flush::{RETRY_PAUSE, disk_or_source};
use crate::live::{LiveSstable, Removal};
use crate::store::{EDITS_ALL, Store};
use crate::{MaintenanceError, OpenError};

/// An edit that has happened, and whose files are still to be removed.
pub(crate) struct Committed {
    log: PathBuf,
    strays: Vec<Descriptor>,
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

    /// Commits an edit that removes SSTables, or undoes it for certain; where neither is possible the shard stops. What
    /// could not be removed before goes with it: it repeats what the set holds, and must not outlive that.
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
        let committed = self.commit_with(store, edit, removed, store.damaged_files()).await?;
        store.damage.borrow_mut().retain(|damage| damage.descriptor.is_none());
        Ok(committed)
    }

    async fn commit_with(
        &self,
        store: &Store,
        mut edit: Edit,
        removed: &[Descriptor],
        damaged: Vec<Descriptor>,
    ) -> Result<Committed, MaintenanceError> {
        if self.stop_reason.borrow().is_some() {
            // An edit of this table may be one that could neither be committed nor undone, and nothing may build on that.
            let _ = edit.abort().await;
            return Err(MaintenanceError::Stopped);
        }
        let mut strays = store.strays.borrow().clone();
        strays.extend(damaged);
        let names: Vec<Descriptor> = removed.iter().chain(&strays).cloned().collect();
        match edit.commit(&names).await {
            Ok(log) => {
                store.strays.borrow_mut().retain(|stray| !strays.contains(stray));
                Ok(Committed { log, strays })
            }
            Err(error) => {
                while let Err(failed) = edit.revoke().await {
                    if matches!(&failed, SstableError::Disk(disk) if is_shortage(disk)) && !self.stopped.get()
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
        let Committed { log, strays } = committed;
        if doomed.is_empty() && strays.is_empty() {
            if finished {
                // What cannot be removed now is removed by the next start.
                let _ = self.rt.disk().remove(&log).await;
            }
            return;
        }
        let removal = Removal::new(doomed.len() + strays.len(), finished.then_some(log));
        doomed.iter().for_each(|live| live.obsolete(&removal));
        strays.into_iter().for_each(|stray| self.trash.add(stray, &removal));
    }

    /// Takes SSTables out of a table's set by one edit; their files go when no reader needs them.
    async fn remove_sstables(
        &self,
        store: &Store,
        doomed: &[Rc<LiveSstable>],
    ) -> Result<(), MaintenanceError> {
        if doomed.is_empty() && store.damaged_files().is_empty() {
            return Ok(());
        }
        let edit = Edit::begin(self.rt.disk(), &store.dir, "unknown", self.unique_id()).await?;
        let names: Vec<Descriptor> = doomed.iter().map(|live| live.sstable.descriptor().clone()).collect();
        let committed = self.commit_all(store, edit, &names).await?;
        store.change_set(Vec::new(), doomed);
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
        // The table is gone for everybody, and the next start would not know what its log entries mean.
        tracing::warn!(
            "the automatic snapshot of {} lacks its memtables: {error}",
            store.table().full_name()
        );
    }
    store.dropped.set(true);
    inner.dropping.borrow_mut().insert(store.id);
    inner.stores.borrow_mut().remove(&store.id);
    stop_compactions(store);
    // Memtables that were being flushed end without writing anything.
    while let Err(error) = inner.flush(store).await {
        if inner.stopped.get() {
            return Err(error);
        }
    }
    let _alone = store.edits.acquire(EDITS_ALL).await.map_err(|_| MaintenanceError::Stopped)?;
    let doomed: Vec<Rc<LiveSstable>> = store.set().as_ref().clone();
    auto_snapshot(inner, store, &doomed, "dropped", at_micros).await?;
    inner.remove_sstables(store, &doomed).await?;
    drop(doomed);
    for stray in store.strays.take() {
        sstable::remove(inner.rt.disk(), &stray).await.map_err(disk_or_source)?;
    }
    inner.log.forget_table(store.id);
    inner.compaction_pauses.borrow_mut().remove(&store.id);
    // The directory is shared by the shards: another may be about to write its last memtable there. It is removed when all
    // are done ([`remove_dropped_dir`]).
    inner.trash.empty(inner.rt.disk()).await?;
    inner.release_log().await;
    inner.dropping.borrow_mut().remove(&store.id);
    Ok(())
}

fn snapshot_name(why: &str, at_micros: i64, table: &str) -> String {
    format!("{why}-{}-{table}", at_micros / 1000)
}

/// Removes the directory of a table that every shard has dropped, and that of its keyspace unless that is `in_use`, as far
/// as they are empty.
/// Gives whether nothing but snapshots and backups is left: readers may still hold files.
pub(crate) async fn remove_dropped_dir(disk: &Disk, dir: &Path, in_use: bool) -> Result<bool, DiskError> {
    if disk.exists(dir).await? {
        crate::truncation::remove_all(disk, dir).await?;
        crate::marks::remove_others(disk, dir, None).await?;
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

/// Finishes what a crash left of a drop: to be called once a node before the shards open. The SSTables of `dir` go into the
/// automatic snapshot of the drop of table `name` at `at_micros`, where there is to be one, and then away.
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
        for descriptor in sstable::list_complete(disk, dir).await? {
            if snapshot {
                link_all(disk, &descriptor, &target, true).await?;
            }
            sstable::remove(disk, &descriptor).await?;
        }
    }
    remove_dropped_dir(disk, dir, false).await?;
    Ok(())
}

/// Asks the compactions of a table to end soon, without a result.
pub(crate) fn stop_compactions(store: &Store) {
    store.stop_compactions.set(store.stop_compactions.get() + 1);
}

fn wants_snapshot(inner: &Inner, store: &Store) -> bool {
    inner.config.auto_snapshot && store.table.borrow().options.allow_auto_snapshot
}

pub(crate) async fn auto_snapshot(
    inner: &Inner,
    store: &Store,
    sstables: &[Rc<LiveSstable>],
    why: &str,
    at_micros: i64,
) -> Result<(), MaintenanceError> {
    let damaged = store.damaged_files();
    if !wants_snapshot(inner, store) || (sstables.is_empty() && damaged.is_empty()) {
        return Ok(());
    }
    let dir = store.dir.join("snapshots").join(snapshot_name(why, at_micros, &store.table().name));
    for live in sstables {
        link_files(inner, live, &dir).await?;
    }
    for descriptor in &damaged {
        link_all(inner.rt.disk(), descriptor, &dir, false).await?;
    }
    Ok(())
}

/// Hard-links the SSTables of a table into a snapshot.
pub(crate) async fn link_snapshot(inner: &Inner, store: &Store, name: &str) -> Result<(), MaintenanceError> {
    let dir = store.dir.join("snapshots").join(name);
    for live in store.set().iter() {
        match link_files(inner, live, &dir).await {
            Err(error) if error.is_already_exists() => {
                return Err(MaintenanceError::SnapshotExists(name.to_owned()));
            }
            done => done?,
        }
    }
    Ok(())
}

/// Hard-links every file of an SSTable into `dir`, which is made when missing.
pub(crate) async fn link_files(inner: &Inner, live: &LiveSstable, dir: &Path) -> Result<(), DiskError> {
    link_all(inner.rt.disk(), live.sstable.descriptor(), dir, false).await
}

/// Hard-links every file of an SSTable into the backups, where an attempt before may have left some.
pub(crate) async fn link_backup(inner: &Inner, live: &LiveSstable, dir: &Path) -> Result<(), DiskError> {
    link_all(inner.rt.disk(), live.sstable.descriptor(), dir, true).await
}

/// Hard-links every file of an SSTable into `dir`; `again` when a part may have been linked before.
async fn link_all(disk: &Disk, from: &Descriptor, dir: &Path, again: bool) -> Result<(), DiskError> {
    disk.create_dir_durably(dir).await?;
    let target = Descriptor { dir: dir.to_owned(), ..from.clone() };
    for component in Component::ALL {
        match disk.hard_link(from.path(component), target.path(component)).await {
            // Which components there are depends on version and compression.
            Err(error) if error.is_not_found() => {}
            Err(error) if again && error.is_already_exists() => {}
            done => done?,
        }
    }
    disk.sync_dir(dir).await
}

/// See [`crate::Engine::clear_snapshot`]. What other shards linked goes too.
pub(crate) async fn clear_snapshot(
    inner: &Inner,
    store: &Store,
    name: Option<&str>,
) -> Result<(), MaintenanceError> {
    let snapshots = store.dir.join("snapshots");
    let dir = name.map_or(snapshots.clone(), |name| snapshots.join(name));
    let disk = inner.rt.disk();
    if disk.exists(&dir).await? {
        match disk.remove_dir_all(&dir).await {
            // Another shard of this node may have been faster.
            Err(error) if error.is_not_found() => {}
            done => done?,
        }
    }
    Ok(())
}
