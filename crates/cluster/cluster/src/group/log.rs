//! The Raft log on disk: a directory with one log file and the snapshot that it begins after.
//!
//! A record is synced before it counts. A snapshot gets a file and a new log file after it; the new log's name, made durable at
//! once, is the moment of change, and files of other numbers are left-overs of a crash.

use std::path::{Path, PathBuf};

use raft::{Entry, HardState, Persist, Snapshot, Stored};
use rt::{Disk, DiskError, File, IoBuf, OpenOptions, Rt};

use super::log_format::{self, Damage, HEADER_LEN, Header, Record};

/// More than a log and a snapshot ever have.
const BYTES_MAX: usize = 1 << 30;

/// A log that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A file has damaged content.
    #[error(
        "{path}: {damage}. Nothing was changed. Other nodes have the same log: remove this node from the cluster, clear its \
         data directory and let it join again; a node that is alone needs a backup"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage.
        damage: Damage,
    },
}

/// The open log.
pub(crate) struct RaftLog {
    disk: Disk,
    directory: PathBuf,
    header: Header,
    file: File,
    /// The position of the next record.
    position: u64,
    records: u64,
    /// The last entry, or the one that the log begins after.
    last: u64,
}

impl RaftLog {
    /// Opens the log in `directory`, with its content; none when there never was one.
    pub(crate) async fn open(rt: &Rt, directory: &Path) -> Result<Option<(Self, Stored)>, LogError> {
        let disk = rt.disk().clone();
        let Some(number) = newest(&disk, directory).await? else { return Ok(None) };
        let path = log_path(directory, number);
        let bytes = disk.read_to_end(&path, BYTES_MAX).await?;
        let damaged = |damage| LogError::Damaged { path: path.clone(), damage };
        let header = Header::decode(&bytes).map_err(damaged)?;
        let content = log_format::read_records(&bytes).map_err(damaged)?;
        let snapshot = if header.has_snapshot {
            let path = snapshot_path(directory, number);
            let bytes = disk.read_to_end(&path, BYTES_MAX).await?;
            Some(log_format::decode_snapshot(&bytes).map_err(|damage| LogError::Damaged { path, damage })?)
        } else {
            None
        };
        let file = disk.open(&path, OpenOptions::READ_WRITE).await?;
        assert!(content.len <= bytes.len(), "records are inside of their file");
        if content.len < bytes.len() {
            tracing::info!(
                "{}: {} bytes of a torn write are cut off",
                path.display(),
                bytes.len() - content.len
            );
            file.set_len(content.len as u64).await?;
        }
        // Other nodes rely on these records, and later records follow them. The process before may have ended at a sync
        // that failed, of the last record or of the directory.
        file.rewrite(content.len as u64).await?;
        file.sync_all().await?;
        disk.sync_dir(directory).await?;
        remove_others(&disk, directory, number, header.has_snapshot).await?;
        let stored = Stored { hard_state: content.hard_state, snapshot, entries: content.entries };
        let (position, records, directory) = (content.len as u64, content.records, directory.to_owned());
        let last = last_of(stored.snapshot.as_ref(), &stored.entries);
        Ok(Some((Self { disk, directory, header, file, position, records, last }, stored)))
    }

    /// Makes a log for a node that has none: with a snapshot to begin after, or blank.
    pub(crate) async fn create(
        rt: &Rt,
        directory: &Path,
        member: u64,
        stored: &Stored,
    ) -> Result<Self, LogError> {
        let disk = rt.disk().clone();
        disk.create_dir_durably(directory).await?;
        let header = Header { file: 1, member, has_snapshot: stored.snapshot.is_some() };
        let (file, position, records) =
            begin(&disk, directory, header, stored.snapshot.as_ref(), stored.hard_state, &stored.entries)
                .await?;
        let last = last_of(stored.snapshot.as_ref(), &stored.entries);
        Ok(Self { disk, directory: directory.to_owned(), header, file, position, records, last })
    }

    /// The node's number in the group.
    pub(crate) fn member(&self) -> u64 {
        self.header.member
    }

    /// Makes a batch durable.
    pub(crate) async fn write(&mut self, persist: &Persist, hard_state: HardState) -> Result<(), LogError> {
        if let Some(snapshot) = &persist.snapshot {
            let hard_state = persist.hard_state.unwrap_or(hard_state);
            return self.restart(snapshot, hard_state, &persist.entries).await;
        }
        if persist.is_empty() {
            return Ok(());
        }
        let first = persist.entries.first().map_or(self.last, |entry| entry.index);
        assert!(first <= self.last + 1, "the log on disk has no gap");
        let record = Record { hard_state: persist.hard_state, entries: persist.entries.clone() };
        let bytes = record.encode(self.records);
        assert!(self.position >= HEADER_LEN as u64, "a record does not overwrite the header");
        self.file.write_at(self.position, IoBuf::copy_of(&bytes)).await?;
        // Always: a later record says that this one is durable.
        self.file.sync_data().await?;
        self.position += bytes.len() as u64;
        self.records += 1;
        self.last = persist.entries.last().map_or(self.last, |entry| entry.index);
        Ok(())
    }

    /// Begins anew after a snapshot.
    pub(crate) async fn restart(
        &mut self,
        snapshot: &Snapshot,
        hard_state: HardState,
        entries: &[Entry],
    ) -> Result<(), LogError> {
        let hard_state = HardState { commit: hard_state.commit.max(snapshot.index), ..hard_state };
        let header = Header { file: self.header.file + 1, has_snapshot: true, ..self.header };
        let (file, position, records) =
            begin(&self.disk, &self.directory, header, Some(snapshot), hard_state, entries).await?;
        (self.header, self.file, self.position, self.records) = (header, file, position, records);
        self.last = last_of(Some(snapshot), entries);
        remove_others(&self.disk, &self.directory, header.file, true).await?;
        Ok(())
    }
}

/// Writes a snapshot, then the log that begins after it.
async fn begin(
    disk: &Disk,
    directory: &Path,
    header: Header,
    snapshot: Option<&Snapshot>,
    hard_state: HardState,
    entries: &[Entry],
) -> Result<(File, u64, u64), LogError> {
    assert_eq!(header.has_snapshot, snapshot.is_some(), "the header says whether there is a snapshot");
    if let Some(snapshot) = snapshot {
        let bytes = log_format::encode_snapshot(snapshot);
        disk.write_atomically(snapshot_path(directory, header.file), &bytes).await?;
    }
    let mut bytes = header.encode();
    let record = Record { hard_state: Some(hard_state), entries: entries.to_vec() };
    bytes.extend(record.encode(0));
    let path = log_path(directory, header.file);
    disk.write_atomically(&path, &bytes).await?;
    let file = disk.open(&path, OpenOptions::READ_WRITE).await?;
    Ok((file, bytes.len() as u64, 1))
}

/// The last entry of a log, or the one that it begins after.
fn last_of(snapshot: Option<&Snapshot>, entries: &[Entry]) -> u64 {
    let base = snapshot.map_or(0, |snapshot| snapshot.index);
    entries.last().map_or(base, |entry| entry.index.max(base))
}

fn log_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("log-{number}"))
}

fn snapshot_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("snapshot-{number}"))
}

/// The number of the newest log.
async fn newest(disk: &Disk, directory: &Path) -> Result<Option<u64>, LogError> {
    if !disk.is_dir(directory).await? {
        return Ok(None);
    }
    let entries = disk.list(directory).await?;
    let number = |name: &str| name.strip_prefix("log-")?.parse::<u64>().ok();
    Ok(entries.iter().filter_map(|entry| number(&entry.name)).max())
}

/// Removes files that a crash, or the log before, has left.
async fn remove_others(
    disk: &Disk,
    directory: &Path,
    number: u64,
    has_snapshot: bool,
) -> Result<(), LogError> {
    let kept = [Some(format!("log-{number}")), has_snapshot.then(|| format!("snapshot-{number}"))];
    for entry in disk.list(directory).await? {
        let ours = entry.name.starts_with("log-") || entry.name.starts_with("snapshot-");
        if ours && !kept.iter().flatten().any(|name| *name == entry.name) {
            disk.remove(directory.join(&entry.name)).await?;
        }
    }
    Ok(())
}
