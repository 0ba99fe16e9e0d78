//! Checks an SSTable against itself: checksums, order, index against data, filter and summary against both.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::path::PathBuf;

use mutation::DeletionTime;
use rt::{OpenOptions, Rt};

use crate::dump::open_raw;
use crate::format::IndexCheck;
use crate::index::{ReadHead, ReadItem};
use crate::reader::{RawItem, read_metadata};
use crate::{Component, Descriptor, Integrity, SstableError, toc};

/// Components beyond this size are not loaded.
const COMPONENT_LEN_MAX: usize = 1 << 30;
/// Bytes of one read of the digest's check.
const READ_LEN: usize = 256 << 10;
/// Problems that are listed before the check gives up.
const PROBLEMS_MAX: usize = 100;

/// The result of a check.
#[derive(Debug, Default)]
pub struct Verification {
    /// Partitions that were read.
    pub partitions: u64,
    /// Rows that were read, static ones included.
    pub rows: u64,
    /// Bytes of data before compression that were read.
    pub bytes: u64,
    /// The most memory that positions of rows have taken at once, bytes.
    pub held_bytes_max: usize,
    /// Whether index, summary and filter have checksums (`Torc.db`).
    pub has_checksums: bool,
    /// The error; nothing when the SSTable is sound.
    pub problems: Vec<SstableError>,
}

/// Reads an SSTable as a whole and compares its files with each other.
///
/// # Errors
/// [`SstableError::Disk`] when the disk fails. Damage and missing files are in the list of problems.
pub async fn verify(rt: &Rt, descriptor: &Descriptor) -> Result<Verification, SstableError> {
    verify_in_steps(rt, descriptor, async |_| true).await
}

/// [`verify`] in steps: after each, `may_go_on` gets the number of bytes of the data file that it read. The check ends early, with the
/// problems found so far, when that is false.
///
/// # Errors
/// [`SstableError::Disk`] when the disk fails. Damage and missing files are in the list of problems.
pub async fn verify_in_steps(
    rt: &Rt,
    descriptor: &Descriptor,
    may_go_on: impl AsyncFn(u64) -> bool,
) -> Result<Verification, SstableError> {
    let mut found = Verification::default();
    for checked in [
        integrity(rt, descriptor, &mut found).await,
        digest(rt, descriptor, &may_go_on).await,
        content(rt, descriptor, &mut found, &may_go_on).await,
    ] {
        match checked {
            Err(SstableError::Disk(error)) if !error.is_not_found() => return Err(error.into()),
            Err(problem) => found.problems.push(problem),
            Ok(()) => {}
        }
    }
    Ok(found)
}

/// Compares the components without a checksum of their own with those that the SSTable has of them, if it has any. The
/// index is compared while it is read.
async fn integrity(rt: &Rt, descriptor: &Descriptor, found: &mut Verification) -> Result<(), SstableError> {
    let disk = rt.disk();
    let Some(integrity) = Integrity::read(disk, descriptor).await? else { return Ok(()) };
    found.has_checksums = true;
    let data_len = disk.len(descriptor.path(Component::Data)).await?;
    Integrity::check_len(descriptor, Component::Data, integrity.data_len, data_len)?;
    for (component, ..) in &integrity.whole {
        let path = descriptor.path(*component);
        let bytes = disk.read_to_end(&path, COMPONENT_LEN_MAX).await;
        let bytes = bytes.map_err(|error| SstableError::of_component(&path, error))?;
        integrity.check(descriptor, *component, &bytes)?;
    }
    Ok(())
}

/// Compares the data file with the checksum of it as a whole.
async fn digest(
    rt: &Rt,
    descriptor: &Descriptor,
    may_go_on: impl AsyncFn(u64) -> bool,
) -> Result<(), SstableError> {
    check_digest(rt, descriptor.path(Component::Data), descriptor.path(Component::Digest), may_go_on).await
}

/// The checksum of a data file out of its `Digest.crc32`; none where that is not there.
///
/// # Errors
/// When the file is damaged, or the disk fails.
pub async fn read_digest(rt: &Rt, path: PathBuf) -> Result<Option<u32>, SstableError> {
    let bytes = match rt.disk().read_to_end(&path, 64).await {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(toc::decode_digest(&bytes).map_err(|error| error.in_file(&path, 0))?))
}

/// Compares a data file with the checksum that another file has of it, if that is there, wherever the two are.
///
/// # Errors
/// [`SstableError::Corrupt`] when the checksums differ or the digest is damaged, [`SstableError::Missing`] when the
/// data file is not there, [`SstableError::Disk`].
pub async fn verify_digest(rt: &Rt, data: PathBuf, path: PathBuf) -> Result<(), SstableError> {
    check_digest(rt, data, path, async |_| true).await
}

async fn check_digest(
    rt: &Rt,
    data: PathBuf,
    path: PathBuf,
    may_go_on: impl AsyncFn(u64) -> bool,
) -> Result<(), SstableError> {
    let Some(expected) = read_digest(rt, path).await? else { return Ok(()) };
    let file = rt.disk().open(&data, OpenOptions::READ).await;
    let file = file.map_err(|error| SstableError::of_component(&data, error))?;
    let mut crc = crc32fast::Hasher::new();
    let mut at = 0;
    loop {
        let part = file.read_at(at, READ_LEN).await?;
        if part.is_empty() {
            break;
        }
        crc.update(&part);
        at += part.len() as u64;
        if !may_go_on(part.len() as u64).await {
            return Ok(());
        }
        rt.maybe_yield().await;
    }
    match crc.finalize() {
        crc if crc == expected => Ok(()),
        crc => {
            Err(SstableError::corrupt(&data, 0, format!("checksum {expected} of the file"), crc.to_string()))
        }
    }
}

async fn content(
    rt: &Rt,
    descriptor: &Descriptor,
    found: &mut Verification,
    may_go_on: impl AsyncFn(u64) -> bool,
) -> Result<(), SstableError> {
    let metadata = read_metadata(rt.disk(), descriptor).await?;
    let (mut scan, table) = open_raw(rt, descriptor).await?;
    let mut indexes = IndexCheck::open(rt, descriptor, &metadata.header, &table).await?;
    let mut open = DeletionTime::LIVE;
    // Up to where the steps have come, before compression.
    let mut told = 0;
    while let Some(item) = scan.next().await? {
        let end = scan.position();
        let problem = match item {
            RawItem::Partition { key, deletion, static_row, start, rows_at } => {
                found.partitions += 1;
                found.rows += u64::from(static_row.is_some());
                let (entry, problem) = indexes.entry(&key, start).await?;
                found.problems.extend(problem);
                open = DeletionTime::LIVE;
                indexes.begin_rows(&ReadHead { start, rows_at, deletion, entry }, &scan).await?
            }
            RawItem::Row { row, start } => {
                found.rows += 1;
                let position = row.clustering.position();
                indexes.row(ReadItem { start, position, open }, &scan).await?
            }
            RawItem::Marker { bound, starts, start, .. } => {
                open = starts;
                indexes.row(ReadItem { start, position: bound.position(), open }, &scan).await?
            }
            RawItem::End => {
                let problem = indexes.end_rows(end, &scan).await?;
                rt.maybe_yield().await;
                problem
            }
        };
        found.problems.extend(problem);
        found.held_bytes_max = found.held_bytes_max.max(indexes.held_bytes());
        assert!(end > found.bytes, "a scan goes forward");
        found.bytes = end;
        if end - told >= READ_LEN as u64 {
            if !may_go_on(scan.on_disk(end - told)).await {
                return Ok(());
            }
            told = end;
        }
        if found.problems.len() >= PROBLEMS_MAX {
            return Ok(());
        }
    }
    may_go_on(scan.on_disk(found.bytes - told)).await;
    found.problems.extend(indexes.finish().await?);
    if metadata.stats.total_rows != found.rows {
        let (expected, rows) = (metadata.stats.total_rows, found.rows);
        let file = descriptor.path(Component::Statistics);
        found.problems.push(SstableError::corrupt(&file, 0, format!("{rows} rows"), expected.to_string()));
    }
    Ok(())
}
