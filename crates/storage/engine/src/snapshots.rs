//! The list of snapshots, from the directories alone: also those of dropped tables.

use std::collections::BTreeSet;
use std::path::Path;

use rt::{Disk, DiskError};

/// A table's part of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotRecord {
    /// The snapshot's name.
    pub name: String,
    /// Keyspace of the table.
    pub keyspace: String,
    /// The table.
    pub table: String,
    /// Bytes that only the snapshot holds: its files that the table has no more.
    pub true_bytes: u64,
    /// Bytes of all its files.
    pub disk_bytes: u64,
}

/// All snapshots below a data directory, by name, keyspace and table. Snapshots that are made or removed meanwhile may be missing.
///
/// # Errors
/// A [`DiskError`] when a directory cannot be listed for another reason than that it is gone.
pub async fn list_snapshots(disk: &Disk, data: &Path) -> Result<Vec<SnapshotRecord>, DiskError> {
    let mut records = Vec::new();
    for keyspace in directories(disk, data).await? {
        for dir in directories(disk, &data.join(&keyspace)).await? {
            let path = data.join(&keyspace).join(&dir);
            let table = dir.rsplit_once('-').map_or(&*dir, |(name, _)| name);
            for name in directories(disk, &path.join("snapshots")).await? {
                let (true_bytes, disk_bytes) =
                    sizes(disk, &path, &path.join("snapshots").join(&name)).await?;
                let (keyspace, table) = (keyspace.clone(), table.to_owned());
                records.push(SnapshotRecord { name, keyspace, table, true_bytes, disk_bytes });
            }
        }
    }
    records.sort();
    Ok(records)
}

/// Names of the directories in a directory; none when it is missing.
async fn directories(disk: &Disk, path: &Path) -> Result<Vec<String>, DiskError> {
    let entries = found(disk.list(path).await)?.unwrap_or_default();
    Ok(entries.into_iter().filter(|entry| entry.is_dir).map(|entry| entry.name).collect())
}

async fn sizes(disk: &Disk, table: &Path, snapshot: &Path) -> Result<(u64, u64), DiskError> {
    let live = found(disk.list(table).await)?.unwrap_or_default();
    let live: BTreeSet<String> = live.into_iter().map(|entry| entry.name).collect();
    let (mut true_bytes, mut disk_bytes) = (0, 0);
    for file in found(disk.list(snapshot).await)?.unwrap_or_default() {
        disk_bytes += file.len;
        true_bytes += if live.contains(&file.name) { 0 } else { file.len };
    }
    assert!(true_bytes <= disk_bytes, "what only a snapshot holds is part of it");
    Ok((true_bytes, disk_bytes))
}

/// The former content, and none for an entry that is gone.
fn found<T>(result: Result<T, DiskError>) -> Result<Option<T>, DiskError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
