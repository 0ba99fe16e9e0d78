//! TRUNCATE of one shard's part of a table, and the record of when it was.
//!
//! What was written before a truncation can come late: a logged batch that failed is tried again. So each shard keeps in
//! the table's directory when it truncated the table last: `truncated-<shard>-<shards>`, one line (version, microseconds
//! of the wall clock, CRC-32 of both). It becomes true together with the removal of the SSTables: it is written beside
//! the edit as `truncated-<shard>-<shards>.<edit>.new`, and takes its name when the edit is committed.

use std::path::Path;
use std::rc::Rc;

use rt::sync::Permit;
use rt::{DirEntry, Disk, DiskError};
use sstable::Descriptor;

use crate::edit::Edit;
use crate::engine::Inner;
use crate::live::LiveSstable;
use crate::store::{EDITS_ALL, Store};
use crate::{MaintenanceError, OpenError, WriteError};

const VERSION: u32 = 1;
/// A longer record is not read.
const RECORD_LEN_MAX: usize = 256;
/// What the name of a record ends with until its edit is committed.
const PENDING: &str = ".new";
/// Units of [`Store::truncations`].
pub(crate) const TRUNCATIONS_ALL: usize = 1 << 20;

/// A record's name: which shard of how many wrote it, and for which edit while that is not committed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name {
    shard: u16,
    shards: u16,
    edit: Option<String>,
}

impl Name {
    fn parse(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("truncated-")?;
        let (numbers, edit) = match rest.strip_suffix(PENDING) {
            Some(rest) => rest.split_once('.').map(|(numbers, edit)| (numbers, Some(edit.to_owned())))?,
            None => (rest, None),
        };
        let (shard, shards) = numbers.split_once('-')?;
        Some(Self { shard: shard.parse().ok()?, shards: shards.parse().ok()?, edit })
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "truncated-{}-{}", self.shard, self.shards)?;
        match &self.edit {
            Some(edit) => write!(f, ".{edit}{PENDING}"),
            None => Ok(()),
        }
    }
}

fn encode(at_micros: i64) -> String {
    let text = format!("{VERSION} {at_micros}");
    format!("{text} {:08x}\n", crc32fast::hash(text.as_bytes()))
}

/// Why a record cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Unreadable {
    Damaged,
    Newer(u32),
}

fn decode(bytes: &[u8]) -> Result<i64, Unreadable> {
    let damaged = || Unreadable::Damaged;
    let line =
        std::str::from_utf8(bytes).ok().and_then(|text| text.strip_suffix('\n')).ok_or_else(damaged)?;
    let (text, crc) = line.rsplit_once(' ').ok_or_else(damaged)?;
    if u32::from_str_radix(crc, 16) != Ok(crc32fast::hash(text.as_bytes())) {
        return Err(Unreadable::Damaged);
    }
    let (version, at) = text.split_once(' ').ok_or_else(damaged)?;
    match version.parse().map_err(|_| damaged())? {
        VERSION => at.parse().map_err(|_| damaged()),
        newer => Err(Unreadable::Newer(newer)),
    }
}

/// Whether a file in a table's directory is the record of a truncation, in force or not.
pub(crate) fn is_record(entry: &DirEntry) -> bool {
    !entry.is_dir && Name::parse(&entry.name).is_some()
}

/// What the records in a table's directory say to one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Truncated {
    /// When it truncated the table last, [`i64::MIN`] for never. What a node with another number of shards noted holds for
    /// all of them.
    pub(crate) here: i64,
    /// The latest truncation of any shard.
    pub(crate) anywhere: i64,
}

/// Reads the records of a table's directory, whose content `entries` are, for a shard.
pub(crate) async fn read(
    disk: &Disk,
    dir: &Path,
    entries: &[DirEntry],
    (shard, shards): (u16, u16),
) -> Result<Truncated, OpenError> {
    let mut found = Truncated { here: i64::MIN, anywhere: i64::MIN };
    for entry in entries.iter().filter(|entry| is_record(entry)) {
        let Some(name) = Name::parse(&entry.name).filter(|name| name.edit.is_none()) else { continue };
        let path = dir.join(&entry.name);
        let bytes = disk.read_to_end(&path, RECORD_LEN_MAX).await?;
        let at = decode(&bytes).map_err(|why| match why {
            Unreadable::Newer(version) => {
                OpenError::NewerVersion { path: path.clone(), found: format!("truncation record {version}") }
            }
            Unreadable::Damaged => OpenError::Sstable(format!(
                "{} is damaged: it says when the table was truncated last. Remove it if no logged batch may be waiting \
                 from before that (a batch of that time would be applied again)",
                path.display()
            )),
        })?;
        found.anywhere = found.anywhere.max(at);
        if name.shards != shards || name.shard == shard {
            found.here = found.here.max(at);
        }
    }
    Ok(found)
}

/// Writes the record that an edit will put in force.
async fn propose(disk: &Disk, dir: &Path, name: &Name, at_micros: i64) -> Result<(), DiskError> {
    let file = disk.open(dir.join(name.to_string()), rt::OpenOptions::CREATE_NEW).await?;
    file.write_at(0, rt::IoBuf::copy_of(encode(at_micros).as_bytes())).await?;
    file.sync_all().await?;
    disk.sync_dir(dir).await
}

/// Puts the record of an edit in force, if it has one and was committed; otherwise removes it. Doing it twice does no harm.
pub(crate) async fn finish(disk: &Disk, dir: &Path, edit: &str, committed: bool) -> Result<(), DiskError> {
    for entry in disk.list(dir).await?.iter().filter(|entry| is_record(entry)) {
        let Some(name) = Name::parse(&entry.name).filter(|name| name.edit.as_deref() == Some(edit)) else {
            continue;
        };
        let (proposed, target) =
            (dir.join(&entry.name), dir.join(Name { edit: None, ..name.clone() }.to_string()));
        if committed && !is_later(disk, &target, &proposed).await? {
            disk.rename(&proposed, &target).await?;
        } else {
            disk.remove(&proposed).await?;
        }
        disk.sync_dir(dir).await?;
    }
    Ok(())
}

/// Whether one record tells of a later truncation than the other. An edit can be finished late, after that of the next
/// truncation, when putting its record in force failed at first.
async fn is_later(disk: &Disk, one: &Path, other: &Path) -> Result<bool, DiskError> {
    if !disk.exists(one).await? {
        return Ok(false);
    }
    let one = decode(&disk.read_to_end(one, RECORD_LEN_MAX).await?);
    let other = decode(&disk.read_to_end(other, RECORD_LEN_MAX).await?);
    Ok(matches!((one, other), (Ok(one), Ok(other)) if one > other))
}

/// Removes records of edits that do not exist, once every edit of the directory is finished.
pub(crate) async fn remove_orphans(disk: &Disk, dir: &Path) -> Result<(), DiskError> {
    for entry in disk.list(dir).await?.iter().filter(|entry| is_record(entry)) {
        if Name::parse(&entry.name).is_some_and(|name| name.edit.is_some()) {
            disk.remove(dir.join(&entry.name)).await?;
        }
    }
    Ok(())
}

/// Removes the records of a table that is gone.
pub(crate) async fn remove_all(disk: &Disk, dir: &Path) -> Result<(), DiskError> {
    for entry in disk.list(dir).await?.iter().filter(|entry| is_record(entry)) {
        disk.remove(dir.join(&entry.name)).await?;
    }
    Ok(())
}

/// See [`crate::Engine::truncate`].
pub(crate) async fn truncate(
    inner: &Rc<Inner>,
    store: &Rc<Store>,
    at_micros: i64,
) -> Result<(), MaintenanceError> {
    inner.note_truncation(at_micros);
    let stopped = |_| MaintenanceError::Stopped;
    // A salvage of a damaged SSTable holds truncations back, and ends.
    crate::maintain::stop_compactions(store);
    let _no_late_writes = store.truncations.acquire(TRUNCATIONS_ALL).await.map_err(stopped)?;
    // Flushing first makes the rest one edit, and leaves nothing for the log to bring back.
    inner.flush(store).await?;
    crate::maintain::stop_compactions(store);
    let _alone = store.edits.acquire(EDITS_ALL).await.map_err(stopped)?;
    if store.dropped.get() {
        return Err(MaintenanceError::UnknownTable(store.id));
    }
    let doomed: Vec<Rc<LiveSstable>> = store.set().as_ref().clone();
    crate::maintain::auto_snapshot(inner, store, &doomed, "truncated", at_micros).await?;
    inner.make_dir(store).await?;
    let disk = inner.rt.disk();
    let edit = Edit::begin(disk, &store.dir, "unknown", inner.unique_id()).await?;
    let id = edit.id();
    let (shard, shards) = (inner.rt.shard().0, inner.rt.shard_count());
    let name = Name { shard, shards, edit: Some(id.clone()) };
    if let Err(error) = propose(disk, &store.dir, &name, at_micros).await {
        // The next start undoes it when this fails.
        let _ = edit.abort().await;
        return Err(error.into());
    }
    let names: Vec<Descriptor> = doomed.iter().map(|live| live.sstable.descriptor().clone()).collect();
    let committed = inner.commit_all(store, edit, &names).await?;
    // It has happened. Whoever asks from here on sees all of it at once.
    store.truncated.set(store.truncated.get().max(at_micros));
    inner.unlogged_counters.borrow_mut().retain(|(table, _), _| *table != store.id);
    store.change_set(Vec::new(), &doomed);
    inner.cache.forget_table(store.id);
    if let Err(error) = crate::marks::forget(inner, store).await {
        // The next start does, because what it names is gone.
        tracing::warn!("what was repaired of {} is not forgotten yet: {error}", store.table().full_name());
    }
    let in_force = finish(disk, &store.dir, &id, true).await;
    if let Err(error) = &in_force {
        tracing::warn!("the record of a truncation is put in force by the next start: {error}");
    }
    inner.retire(&doomed, committed, in_force.is_ok()).await;
    Ok(())
}

/// See [`crate::Engine::learn_truncation`].
pub(crate) async fn learn(inner: &Rc<Inner>, store: &Store, at_micros: i64) -> Result<(), MaintenanceError> {
    inner.note_truncation(at_micros);
    if store.truncated.get() >= at_micros {
        return Ok(());
    }
    let stopped = |_| MaintenanceError::Stopped;
    let _no_late_writes = store.truncations.acquire(TRUNCATIONS_ALL).await.map_err(stopped)?;
    if store.dropped.get() {
        return Err(MaintenanceError::UnknownTable(store.id));
    }
    if store.truncated.get() >= at_micros {
        return Ok(());
    }
    inner.make_dir(store).await?;
    let name = Name { shard: inner.rt.shard().0, shards: inner.rt.shard_count(), edit: None };
    let path = store.dir.join(name.to_string());
    inner.rt.disk().write_atomically(path, encode(at_micros).as_bytes()).await?;
    store.truncated.set(at_micros);
    Ok(())
}

impl Inner {
    /// Remembers the time of a truncation that was asked for.
    pub(crate) fn note_truncation(&self, at_micros: i64) {
        self.truncated_latest.set(self.truncated_latest.get().max(at_micros));
    }

    /// Keeps tables from being truncated while the result lives.
    pub(crate) async fn hold_truncations(
        &self,
        mut stores: Vec<Rc<Store>>,
    ) -> Result<Vec<Permit>, WriteError> {
        // In one order, so that two who wait for tables that are about to be truncated do not wait for each other.
        stores.sort_by_key(|store| store.id);
        stores.dedup_by_key(|store| store.id);
        let mut held = Vec::with_capacity(stores.len());
        for store in stores {
            held.push(store.truncations.acquire(1).await.map_err(|_| WriteError::Stopped)?);
        }
        Ok(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let name = Name { shard: 3, shards: 16, edit: None };
        assert_eq!(name.to_string(), "truncated-3-16");
        assert_eq!(Name::parse("truncated-3-16"), Some(name.clone()));
        let pending = Name { edit: Some("d0c4-1".to_owned()), ..name };
        assert_eq!(pending.to_string(), "truncated-3-16.d0c4-1.new");
        assert_eq!(Name::parse(&pending.to_string()), Some(pending));
        for other in
            ["truncated-3", "truncated-3-16.new", "truncated-a-1", "nb-3-big-Data.db", "truncated--1-2"]
        {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }

    #[test]
    fn records() {
        for at in [0, -1, i64::MIN, i64::MAX, 1_767_225_600_118_884] {
            let record = encode(at);
            assert_eq!(decode(record.as_bytes()), Ok(at));
            for cut in 0..record.len() {
                assert_eq!(decode(&record.as_bytes()[..cut]), Err(Unreadable::Damaged), "{cut} of {record}");
            }
            for place in 0..record.len() {
                let mut bytes = record.clone().into_bytes();
                bytes[place] ^= 1;
                assert_ne!(decode(&bytes), Ok(at), "{place} of {record}");
            }
        }
        let newer = "2 77 something else".to_owned();
        let newer = format!("{newer} {:08x}\n", crc32fast::hash(newer.as_bytes()));
        assert_eq!(decode(newer.as_bytes()), Err(Unreadable::Newer(2)));
    }
}
