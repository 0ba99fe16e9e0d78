//! The record of when a shard truncated a table.
//!
//! A write from before a truncation can come late: a logged batch that failed is tried again. So each shard keeps in
//! the table's directory when it truncated the table last: `truncated-<shard>-<shards>`, one line (version, microseconds
//! of the wall clock, CRC-32 of both). It becomes true together with the removal of the SSTables: it is written beside
//! the edit as `truncated-<shard>-<shards>.<edit>.new`, and takes its name when the edit is committed.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::path::Path;

use rt::{DirEntry, Disk, DiskError};

use crate::OpenError;

const VERSION: u32 = 1;
/// A longer record is not read.
const RECORD_LEN_MAX: usize = 256;
/// The suffix of the name of a record until its edit is committed.
const PENDING: &str = ".new";
/// A record's name: which shard of how many wrote it, and for which edit while that is not committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// The shard that wrote it.
    pub(crate) shard: u16,
    /// Of how many.
    pub(crate) shards: u16,
    /// The edit that puts it in force; none when it is.
    pub(crate) edit: Option<String>,
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

/// The content of a record.
pub(crate) fn encode(at_micros: i64) -> String {
    let text = format!("{VERSION} {at_micros}");
    let record = format!("{text} {:08x}\n", crc32fast::hash(text.as_bytes()));
    assert!(record.len() <= RECORD_LEN_MAX, "a record that is written is read");
    assert_eq!(decode(record.as_bytes()), Ok(at_micros), "a record is read as it was written");
    record
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

/// The meaning of the records in a table's directory to one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Truncated {
    /// When it truncated the table last, [`i64::MIN`] for never. The record of a node with another number of shards holds for
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
pub(crate) async fn propose(disk: &Disk, dir: &Path, name: &Name, at_micros: i64) -> Result<(), DiskError> {
    assert!(name.edit.is_some(), "a record that is proposed belongs to an edit");
    assert!(name.shard < name.shards, "a record is that of a shard of the node");
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

/// Whether one record is of a later truncation than the other. An edit can be finished late, after that of the next
/// truncation, when putting its record in force failed at first.
async fn is_later(disk: &Disk, one: &Path, other: &Path) -> Result<bool, DiskError> {
    if !disk.exists(one).await? {
        return Ok(false);
    }
    let one = decode(&disk.read_to_end(one, RECORD_LEN_MAX).await?);
    let other = decode(&disk.read_to_end(other, RECORD_LEN_MAX).await?);
    Ok(matches!((one, other), (Ok(one), Ok(other)) if one > other))
}

/// Whether a file is a record that a crash left before it had its name.
fn is_unfinished(entry: &DirEntry) -> bool {
    !entry.is_dir && entry.name.strip_suffix(".tmp").is_some_and(|name| Name::parse(name).is_some())
}

/// Removes records of edits that do not exist, once every edit of the directory is finished.
pub(crate) async fn remove_orphans(disk: &Disk, dir: &Path) -> Result<(), DiskError> {
    let is_proposed = |entry: &DirEntry| {
        is_record(entry) && Name::parse(&entry.name).is_some_and(|name| name.edit.is_some())
    };
    for entry in disk.list(dir).await?.iter().filter(|entry| is_proposed(entry) || is_unfinished(entry)) {
        disk.remove(dir.join(&entry.name)).await?;
    }
    Ok(())
}

/// Removes the records of a table that is gone.
pub(crate) async fn remove_all(disk: &Disk, dir: &Path) -> Result<(), DiskError> {
    for entry in disk.list(dir).await?.iter().filter(|entry| is_record(entry) || is_unfinished(entry)) {
        disk.remove(dir.join(&entry.name)).await?;
    }
    Ok(())
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
