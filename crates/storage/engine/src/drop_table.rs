//! The end of a table: its SSTables leave the set by one edit, and its directory goes when all shards are done.

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use rt::{Disk, DiskError};
use schema::TableId;
use sstable::Descriptor;

use crate::MaintenanceError;
use crate::edit::Edit;
use crate::engine::Inner;
use crate::error::{disk_or_source, is_shortage, log_failure};
use crate::links::{auto_snapshot, wants_snapshot};
use crate::live::LiveSstable;
use crate::store::Store;

/// Until the next attempt to drop a table on a full disk.
const AGAIN: Duration = Duration::from_secs(1);

/// Takes SSTables out of a table's set by one edit; their files go when no reader needs them.
async fn remove_sstables(
    inner: &Inner,
    store: &Store,
    doomed: &[Rc<LiveSstable>],
) -> Result<(), MaintenanceError> {
    if doomed.is_empty() && store.damages.files().is_empty() {
        return Ok(());
    }
    let edit = Edit::begin(inner.rt.disk(), &store.dir, "unknown", crate::commit::unique_id(inner)).await?;
    let names: Vec<Descriptor> = doomed.iter().map(|live| live.sstable.descriptor().clone()).collect();
    let committed = crate::commit::commit_all(inner, store, edit, &names).await?;
    store.sstables.change(Vec::new(), doomed);
    crate::commit::retire(inner, doomed, committed, true).await;
    inner.cache.forget_table(store.id);
    Ok(())
}

/// Takes all SSTables of a dropped table out of its set, into the automatic snapshot where it has one. On a full disk this is tried until there
/// is room: a table is dropped to make some, and a start is not needed for it.
async fn take_out_all(inner: &Rc<Inner>, store: &Rc<Store>, at_micros: i64) -> Result<(), MaintenanceError> {
    let mut is_reported = false;
    loop {
        let doomed: Vec<Rc<LiveSstable>> = store.set().to_vec();
        let done = match auto_snapshot(inner, store, &doomed, "dropped", at_micros).await {
            Ok(()) => remove_sstables(inner, store, &doomed).await,
            Err(error) => Err(error),
        };
        let error = match done {
            Err(MaintenanceError::Disk(error)) if is_shortage(&error) && !inner.health.is_stopped() => error,
            done => return done,
        };
        if !std::mem::replace(&mut is_reported, true) {
            let name = store.table().full_name();
            tracing::warn!(
                "the files of {name}, which is dropped, are removed when the disk has room: {error}"
            );
        }
        inner.rt.sleep(AGAIN).await;
    }
}

/// Records a drop for which the log had no room before its files were removed.
async fn record_when_possible(
    inner: &Rc<Inner>,
    dropped: &BTreeSet<TableId>,
    before: u64,
) -> Result<(), MaintenanceError> {
    loop {
        match inner.log.record_dropped(dropped, before).await.map_err(log_failure) {
            Err(MaintenanceError::Disk(error)) if is_shortage(&error) && !inner.health.is_stopped() => {
                inner.rt.sleep(AGAIN).await;
            }
            recorded => return recorded,
        }
    }
}

/// See [`crate::Engine::drop_table`].
pub(crate) async fn drop_table(
    inner: &Rc<Inner>,
    store: &Rc<Store>,
    at_micros: i64,
) -> Result<(), MaintenanceError> {
    if wants_snapshot(inner, store)
        && let Err(error) = crate::flush::flush(inner, store).await
    {
        // The table is gone in the whole cluster, and the next start would not understand its log entries.
        tracing::warn!(
            "the automatic snapshot of {} lacks its memtables: {error}",
            store.table().full_name()
        );
    }
    store.dropped.set(true);
    inner.tables.begin_drop(store.id);
    let before = inner.log.next_number();
    assert!(inner.store(store.id).is_none(), "no request finds a dropped table");
    store.edits.stop_compactions();
    // Memtables that were being flushed end without writing anything.
    while let Err(error) = crate::flush::flush(inner, store).await {
        if inner.health.is_stopped() {
            return Err(error);
        }
    }
    let _alone = store.edits.alone().await?;
    // A later table may get this id (`WITH ID`), and the log still has entries of this one, those up to here.
    let dropped = BTreeSet::from([store.id]);
    let is_recorded = inner.log.record_dropped(&dropped, before).await.is_ok();
    take_out_all(inner, store, at_micros).await?;
    assert!(store.set().is_empty(), "a dropped table has no SSTables");
    assert!(store.memtables.is_one() && store.memtables.active().is_empty(), "a dropped table has no rows");
    let orphans = store.sstables.orphans();
    for orphan in &orphans {
        sstable::remove(inner.rt.disk(), orphan).await.map_err(disk_or_source)?;
    }
    store.sstables.forget_orphans(&orphans);
    inner.compactions.resume(store.id);
    // The directory is shared by the shards: another may be about to write its last memtable there. It is removed when all
    // are done ([`remove_dropped_dir`]).
    inner.trash.empty(inner.rt.disk()).await?;
    if !is_recorded {
        record_when_possible(inner, &dropped, before).await?;
    }
    crate::flush::release_log(inner).await;
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
        match disk.remove_dir(dir).await {
            // A table of this id is made anew, or a reader's file came back.
            Err(error) if error.is_not_empty() => return Ok(false),
            removed => removed?,
        }
    }
    if let Some(keyspace) = dir.parent()
        && disk.exists(keyspace).await?
    {
        // A table that is made meanwhile has its directory there: only an empty one can be removed.
        let removed = if in_use { None } else { Some(disk.remove_dir(keyspace).await) };
        match removed {
            Some(Err(error)) if !error.is_not_empty() => return Err(error),
            Some(Ok(())) => {}
            None | Some(Err(_)) => disk.sync_dir(keyspace).await?,
        }
    }
    Ok(true)
}
