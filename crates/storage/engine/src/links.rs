//! Snapshots and backups: hard links to the files of SSTables.

use std::path::Path;
use std::rc::Rc;

use rt::{Disk, DiskError};
use schema::Table;
use sstable::{Component, Descriptor};

use crate::MaintenanceError;
use crate::engine::Inner;
use crate::live::LiveSstable;
use crate::snapshots::{record_time, snapshot_dir};
use crate::store::Store;

/// The directory of a table's incremental backups.
pub(crate) const BACKUPS: &str = "backups";
/// The longest file of a digest that is compared.
const DIGEST_BYTES_MAX: usize = 64;

/// The name of an automatic snapshot of a table. In microseconds, where Cassandra has milliseconds: behind a clock that was set back, two
/// truncations are a microsecond apart.
pub(crate) fn snapshot_name(why: &str, at_micros: i64, table: &str) -> String {
    format!("{why}-{at_micros}-{table}")
}

/// Whether a snapshot can have this name, which is one of a directory: no path, and nothing that names another directory.
///
/// # Errors
/// [`MaintenanceError::SnapshotName`].
pub(crate) fn check_snapshot_name(name: &str) -> Result<(), MaintenanceError> {
    if is_snapshot_name(name) { Ok(()) } else { Err(MaintenanceError::SnapshotName(name.to_owned())) }
}

/// Whether a snapshot can have this name: one to 255 bytes, none of `/` and zero, and no dot at its begin.
pub fn is_snapshot_name(name: &str) -> bool {
    (1..=255).contains(&name.len()) && !name.contains(['/', '\0']) && !name.starts_with('.')
}

/// Whether a table has a snapshot made before it is dropped or truncated.
pub(crate) fn wants_snapshot(inner: &Inner, store: &Store) -> bool {
    inner.settings.get().auto_snapshot && store.of_table(|table| table.options.allow_auto_snapshot)
}

pub(crate) async fn auto_snapshot(
    inner: &Inner,
    store: &Store,
    sstables: &[Rc<LiveSstable>],
    why: &str,
    at_micros: i64,
) -> Result<(), MaintenanceError> {
    let damaged = store.damages.files();
    if !wants_snapshot(inner, store) || (sstables.is_empty() && damaged.is_empty()) {
        return Ok(());
    }
    let dir = snapshot_dir(&store.dir, &snapshot_name(why, at_micros, &store.table().name));
    let live = sstables.iter().map(|live| live.sstable.descriptor());
    // An attempt at this time that failed may have linked some of them.
    link_all(inner.rt.disk(), live.chain(&damaged), &dir, true).await?;
    record_time(inner.rt.disk(), &dir, inner.rt.shard().0, at_micros).await?;
    Ok(())
}

/// Hard-links the SSTables of a table into a snapshot.
pub(crate) async fn link_snapshot(inner: &Inner, store: &Store, name: &str) -> Result<(), MaintenanceError> {
    check_snapshot_name(name)?;
    let dir = snapshot_dir(&store.dir, name);
    let (set, damaged) = (store.set(), store.damages.files());
    if !damaged.is_empty() {
        tracing::warn!(
            "snapshot {name} of {} has {} SSTables that are out of service; they are linked as they are",
            store.table().full_name(),
            damaged.len()
        );
    }
    let all = set.iter().map(|live| live.sstable.descriptor());
    match link_all(inner.rt.disk(), all.chain(&damaged), &dir, false).await {
        Err(error) if error.is_already_exists() => {
            return Err(MaintenanceError::SnapshotExists(name.to_owned()));
        }
        done => done?,
    }
    if !set.is_empty() || !damaged.is_empty() {
        record_time(inner.rt.disk(), &dir, inner.rt.shard().0, inner.rt.wall_micros()).await?;
    }
    Ok(())
}

/// Hard-links an SSTable that is new in its table into the backups, if there are incremental backups: the table's option can only switch
/// off those of the node. A backup with files of another SSTable of its name is left as it is, with an error in the log: no write waits for that.
///
/// # Errors
/// When the disk fails.
pub(crate) async fn back_up(inner: &Inner, store: &Store, live: &LiveSstable) -> Result<(), DiskError> {
    if !inner.settings.get().incremental_backups || !store.of_table(is_backed_up) {
        return Ok(());
    }
    link_backup(inner.rt.disk(), live.sstable.descriptor(), &store.table()).await
}

/// Whether flushed SSTables of a table are backed up where the node does that.
pub(crate) fn is_backed_up(table: &Table) -> bool {
    table.options.incremental_backups.unwrap_or(true)
}

/// Hard-links an SSTable of a table into `backups/`.
///
/// # Errors
/// When the disk fails.
pub(crate) async fn link_backup(
    disk: &Disk,
    descriptor: &Descriptor,
    table: &Table,
) -> Result<(), DiskError> {
    let dir = descriptor.dir.join(BACKUPS);
    match link_all(disk, [descriptor], &dir, true).await {
        Err(error) if error.is_already_exists() => {
            tracing::error!(
                "{descriptor} of {} is not backed up: {} has another SSTable of its name; move that away, and take a snapshot",
                table.full_name(),
                dir.display()
            );
            Ok(())
        }
        done => done,
    }
}

/// Hard-links every file of an SSTable into `dir`, where an attempt before may have left some.
///
/// # Errors
/// When the disk fails, or a file of another SSTable has one of the names.
pub(crate) async fn link_again(inner: &Inner, live: &LiveSstable, dir: &Path) -> Result<(), DiskError> {
    link_all(inner.rt.disk(), [live.sstable.descriptor()], dir, true).await
}

/// Whether two files of one name may be those of one SSTable: its data are as long, and its digest is the same. Statistics and summaries are
/// replaced while an SSTable lives.
async fn is_same_file(disk: &Disk, component: Component, paths: (&Path, &Path)) -> Result<bool, DiskError> {
    match component {
        Component::Data => Ok(disk.len(paths.0).await? == disk.len(paths.1).await?),
        Component::Digest => {
            let digest = disk.read_to_end(paths.0, DIGEST_BYTES_MAX).await?;
            Ok(digest == disk.read_to_end(paths.1, DIGEST_BYTES_MAX).await?)
        }
        _ => Ok(true),
    }
}

/// Hard-links every file of these SSTables into `dir`, which is made when missing, durably; `again` when a part may have been linked
/// before. Without SSTables nothing is made.
///
/// # Errors
/// When the disk fails; [`DiskError::is_already_exists`] when a name is taken, `again` by another SSTable.
pub(crate) async fn link_all(
    disk: &Disk,
    sstables: impl IntoIterator<Item = &Descriptor>,
    dir: &Path,
    again: bool,
) -> Result<(), DiskError> {
    let mut sstables = sstables.into_iter().peekable();
    if sstables.peek().is_none() {
        return Ok(());
    }
    disk.create_dir_durably(dir).await?;
    for from in sstables {
        let target = Descriptor { dir: dir.to_owned(), ..from.clone() };
        for component in Component::ALL {
            let (from, to) = (from.path(component), target.path(component));
            match disk.hard_link(&from, &to).await {
                // Which components there are depends on version and compression.
                Err(error) if error.is_not_found() => {}
                Err(error) if again && error.is_already_exists() => {
                    if !is_same_file(disk, component, (&from, &to)).await? {
                        return Err(error);
                    }
                }
                done => done?,
            }
        }
    }
    // One sync is for all of them.
    disk.sync_dir(dir).await
}
