//! The list of snapshots, from the directories alone: also those of dropped tables.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

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
    /// When it was made, microseconds since the epoch; none for snapshots of earlier versions, which did not record it.
    pub created_micros: Option<i64>,
}

/// The directory of a table's snapshots, in that of the table.
pub(crate) const SNAPSHOTS: &str = "snapshots";
/// The name, without the number of the shard, of the file in a snapshot that says when it was made.
const CREATED: &str = "created-at.";
/// The files that a node adds when all shards have made their parts, as Cassandra does: the definition of the table, and the list of the data files.
const SCHEMA: &str = "schema.cql";
const MANIFEST: &str = "manifest.json";
/// The digits of a time and the line's end.
const CREATED_BYTES_MAX: usize = 32;

/// Records in a snapshot's directory, durably, when a shard made its part of it.
///
/// # Errors
/// A [`DiskError`] when the file cannot be written.
pub(crate) async fn record_time(
    disk: &Disk,
    snapshot: &Path,
    shard: u16,
    at_micros: i64,
) -> Result<(), DiskError> {
    disk.write_atomically(snapshot.join(format!("{CREATED}{shard}")), format!("{at_micros}\n").as_bytes())
        .await
}

/// Adds to a snapshot that all shards have made the definition of its table, and the list of its data files with the time; nothing where no shard
/// had a file.
///
/// # Errors
/// A [`DiskError`] when a file cannot be written.
pub async fn complete_snapshot(
    disk: &Disk,
    snapshot: &Path,
    definition: &str,
    created_at: &str,
) -> Result<(), DiskError> {
    let Some(files) = found(disk.list(snapshot).await)? else { return Ok(()) };
    let data = files.iter().filter(|file| file.name.ends_with(sstable::Component::Data.name()));
    let mut names: Vec<String> = data.map(|file| format!("\"{}\"", file.name)).collect();
    names.sort();
    let names = if names.is_empty() { " ".to_owned() } else { format!(" {} ", names.join(", ")) };
    let manifest = format!(
        "{{\n  \"files\" : [{names}],\n  \"created_at\" : \"{created_at}\",\n  \"expires_at\" : null,\n  \"ephemeral\" : false\n}}"
    );
    disk.write_atomically(snapshot.join(SCHEMA), definition.as_bytes()).await?;
    disk.write_atomically(snapshot.join(MANIFEST), manifest.as_bytes()).await
}

/// The time that a file of [`record_time`] holds; none for another content.
async fn recorded_time(disk: &Disk, file: &Path) -> Result<Option<i64>, DiskError> {
    let bytes = found(disk.read_to_end(file, CREATED_BYTES_MAX).await)?.unwrap_or_default();
    Ok(std::str::from_utf8(&bytes).ok().and_then(|text| text.trim_end().parse().ok()))
}

/// All snapshots below a data directory, by name, keyspace and table. Snapshots that are made or removed meanwhile may be missing.
///
/// # Errors
/// A [`DiskError`] when a directory cannot be listed for another reason than that it is gone.
pub async fn list_snapshots(disk: &Disk, data: &Path) -> Result<Vec<SnapshotRecord>, DiskError> {
    let mut records = Vec::new();
    for (table, record) in unmeasured(disk, data).await? {
        records.push(measure(disk, &table, record).await?);
    }
    records.sort();
    Ok(records)
}

/// Removes the snapshots below a data directory that are chosen by name, keyspace and table, also those of dropped tables; how many directories
/// they were. The directories above them stay, as another snapshot may be about to be made there.
///
/// # Errors
/// A [`DiskError`] when a directory cannot be listed or removed for another reason than that it is gone; others are removed all the same.
pub async fn remove_snapshots(
    disk: &Disk,
    data: &Path,
    is_chosen: impl Fn(&SnapshotRecord) -> bool,
) -> Result<u64, DiskError> {
    let (mut removed, mut failed) = (0, None);
    for (table, record) in unmeasured(disk, data).await? {
        if !is_chosen(&record) {
            continue;
        }
        match remove_snapshot(disk, &snapshot_dir(&table, &record.name)).await {
            Ok(()) => removed += 1,
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(removed), Err)
}

/// The directory of a snapshot of the table with this directory.
pub fn snapshot_dir(table: &Path, name: &str) -> PathBuf {
    table.join(SNAPSHOTS).join(name)
}

/// The snapshots without sizes and times, each with the directory of its table.
async fn unmeasured(disk: &Disk, data: &Path) -> Result<Vec<(PathBuf, SnapshotRecord)>, DiskError> {
    let mut records = Vec::new();
    for keyspace in directories(disk, data).await? {
        for dir in directories(disk, &data.join(&keyspace)).await? {
            let path = data.join(&keyspace).join(&dir);
            let table = dir.rsplit_once('-').map_or(&*dir, |(name, _)| name);
            for name in directories(disk, &path.join(SNAPSHOTS)).await? {
                let (keyspace, table) = (keyspace.clone(), table.to_owned());
                let record = SnapshotRecord {
                    name,
                    keyspace,
                    table,
                    true_bytes: 0,
                    disk_bytes: 0,
                    created_micros: None,
                };
                records.push((path.clone(), record));
            }
        }
    }
    Ok(records)
}

/// Names of the directories in a directory; none when it is missing.
async fn directories(disk: &Disk, path: &Path) -> Result<Vec<String>, DiskError> {
    let entries = found(disk.list(path).await)?.unwrap_or_default();
    Ok(entries.into_iter().filter(|entry| entry.is_dir).map(|entry| entry.name).collect())
}

/// Fills in the sizes and the time of a table's part of a snapshot.
async fn measure(disk: &Disk, table: &Path, mut record: SnapshotRecord) -> Result<SnapshotRecord, DiskError> {
    let snapshot = snapshot_dir(table, &record.name);
    let live = found(disk.list(table).await)?.unwrap_or_default();
    let live: BTreeSet<String> = live.into_iter().map(|entry| entry.name).collect();
    for file in found(disk.list(&snapshot).await)?.unwrap_or_default() {
        if file.name.starts_with(CREATED) {
            let at = recorded_time(disk, &snapshot.join(&file.name)).await?;
            record.created_micros = at.into_iter().chain(record.created_micros).min();
            continue;
        }
        if [SCHEMA, MANIFEST].contains(&&*file.name) {
            continue;
        }
        record.disk_bytes += file.len;
        record.true_bytes += if live.contains(&file.name) { 0 } else { file.len };
    }
    assert!(record.true_bytes <= record.disk_bytes, "what only a snapshot holds is part of it");
    Ok(record)
}

/// The former content, and none for an entry that is gone.
fn found<T>(result: Result<T, DiskError>) -> Result<Option<T>, DiskError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Bytes of the files of a snapshot's directory; 0 where there is none.
///
/// # Errors
/// A [`DiskError`] when it cannot be listed.
pub async fn snapshot_bytes(disk: &Disk, directory: &Path) -> Result<u64, DiskError> {
    match disk.list(directory).await {
        Ok(entries) => Ok(entries.iter().map(|entry| entry.len).sum()),
        Err(error) if error.is_not_found() => Ok(0),
        Err(error) => Err(error),
    }
}

/// Removes a snapshot's directory. Those above it stay, as another snapshot may be about to be made there.
///
/// # Errors
/// A [`DiskError`]; a directory that is not there is none.
pub async fn remove_snapshot(disk: &Disk, directory: &Path) -> Result<(), DiskError> {
    if !disk.exists(directory).await? {
        return Ok(());
    }
    match disk.remove_dir_all(directory).await {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}
