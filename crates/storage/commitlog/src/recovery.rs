//! Opening a log: its segments, the valid part of each, and the entries to replay.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use mutation::codec::Version;
use rt::{Disk, Rt};

use crate::entry::Checkpoint;
use crate::files::{parse_name, segment_name};
use crate::log::{CommitLog, Segment, State};
use crate::segment::{EntryPlace, HEADER_LEN, HeaderError, SegmentHeader, scan};
use crate::writer::Writer;
use crate::{CommitLogConfig, CommitLogError};

/// A longer segment is not read.
const SEGMENT_LEN_MAX: usize = 1 << 30;

/// A segment as the first walk found it.
struct Found {
    path: PathBuf,
    header: SegmentHeader,
    len: u64,
    stop: usize,
    ended: bool,
    next: u64,
    behind: Option<usize>,
    /// No valid entry stands before the stop.
    is_empty: bool,
    /// Later chunks promise that all of it is durable, its end mark included.
    promised: bool,
    /// Go on behind damage.
    skip: bool,
}

impl Found {
    /// The file is shorter than it was made, which was durable before the segment had a name.
    fn is_cut(&self) -> bool {
        self.len < self.header.bytes
    }

    fn end_of_file(&self) -> String {
        format!("the file's end: it has {} of {} bytes", self.len, self.header.bytes)
    }
}

/// The content of a segment.
pub struct SegmentEntries {
    /// The version of the mutations in the entries.
    pub mutations: Version,
    /// Number and body of each entry, in order.
    pub entries: Vec<(u64, Bytes)>,
}

/// The entries of a log that may have to be replayed. Nothing of it is lost when it is dropped.
pub struct Recovery {
    disk: Disk,
    segments: std::vec::IntoIter<Found>,
    /// How far tables are flushed: entries up to these numbers need no replay.
    pub checkpoint: Checkpoint,
    /// Bytes that a crash cut off: the log's torn tail, which no promise covers.
    pub torn: Option<(PathBuf, u64)>,
    /// Damage that was skipped because the configuration allows it.
    pub skipped: Vec<CommitLogError>,
}

impl Recovery {
    /// The next entries in order: the whole content of one segment; none when all were given.
    ///
    /// # Errors
    ///
    /// When the segment cannot be read.
    pub async fn next_segment(&mut self) -> Result<Option<SegmentEntries>, CommitLogError> {
        let Some(segment) = self.segments.next() else { return Ok(None) };
        let bytes = Bytes::from(self.disk.read_to_end(&segment.path, SEGMENT_LEN_MAX).await?);
        let places = walk(&bytes, &segment.header, segment.skip);
        debug_assert!(
            places.is_sorted_by(|one, next| one.number < next.number),
            "entries are numbered in order"
        );
        let take = |place: EntryPlace| {
            let body = bytes.slice(place.offset..place.offset + place.len);
            (place.number, body)
        };
        let entries = places.into_iter().map(take).collect();
        Ok(Some(SegmentEntries { mutations: segment.header.mutations, entries }))
    }
}

/// The valid entries of a segment; with `skip` also those behind damage.
fn walk(bytes: &[u8], header: &SegmentHeader, skip: bool) -> Vec<EntryPlace> {
    let mut found = scan(bytes, header, HEADER_LEN, 0);
    let mut entries = std::mem::take(&mut found.entries);
    while skip && !found.ended {
        let Some(at) = found.more_behind else { break };
        found = scan(bytes, header, at, found.next);
        entries.append(&mut found.entries);
    }
    entries
}

impl CommitLog {
    /// Opens the log of this shard: finds its segments, distinguishes a torn tail from damage, and starts the task that writes.
    /// The directory is made when it is missing. `skip_sync` is an injected bug for tests of the tests.
    ///
    /// # Errors
    /// [`CommitLogError::Disk`] when the disk fails, [`CommitLogError::NewerVersion`] when a later version wrote a
    /// segment, [`CommitLogError::Corrupt`] and [`CommitLogError::Missing`] when durable entries are damaged or gone
    /// and `ignore_errors` is not set.
    pub async fn open(
        rt: &Rt,
        config: CommitLogConfig,
        skip_sync: bool,
    ) -> Result<(Self, Recovery), CommitLogError> {
        let disk = rt.disk();
        disk.create_dir_durably(&config.directory).await?;
        if let Some(archive) = &config.archive_directory {
            disk.create_dir_durably(archive).await?;
        }
        // A spare may still have the name of a segment on disk, and is about to be written over.
        disk.sync_dir(&config.directory).await?;
        let mut state = State { next: 1, next_segment: 1, ..State::default() };
        let mut named = Vec::new();
        for entry in disk.list(&config.directory).await? {
            let Some((shard, id, spare)) = parse_name(&entry.name) else { continue };
            if shard != rt.shard().0 {
                continue;
            }
            state.next_segment = state.next_segment.max(id + 1);
            let path = config.directory.join(&entry.name);
            match spare {
                true if entry.len == config.segment_bytes => state.spares.push(path),
                true => disk.remove(&path).await?,
                false => named.push((id, path)),
            }
        }
        named.sort();
        if let Some(archive) = &config.archive_directory {
            state.next_segment = state.next_segment.max(archived_max(disk, archive, rt.shard().0).await? + 1);
        }
        let recovery = examine(disk, named, config.ignore_errors, &mut state).await?;
        state.checkpoint = recovery.checkpoint.clone();
        if config.archive_directory.is_some() {
            // Those that a crash cut off never got there; of others it is found out.
            state.to_archive = recovery.segments.as_slice().iter().map(|found| found.path.clone()).collect();
        }
        for segment in recovery.segments.as_slice() {
            if !segment.ended {
                state.checkpoint.tails.insert(segment.header.id, segment.next);
            }
            let (id, last) = (segment.header.id, segment.next.saturating_sub(1));
            let (path, len) = (segment.path.clone(), segment.len);
            state.segments.push_back(Segment { id, path, len, last, is_found: true });
        }
        assert!(state.next > 0, "entries are numbered from 1");
        state.written = state.next - 1;
        state.synced = state.written;
        let log = Self::start(rt, config, skip_sync, state, |inner| Writer::new(inner).run());
        Ok((log, recovery))
    }
}

/// The largest id of a shard's segments in the archive: a segment with the name of another could not be linked into it. The log's
/// own directory may have none, after a change of the number of shards.
async fn archived_max(disk: &Disk, archive: &Path, shard: u16) -> Result<u64, CommitLogError> {
    let of_shard = |name: &str| parse_name(name).filter(|(of, ..)| *of == shard).map(|(_, id, _)| id);
    let entries = disk.list(archive).await?;
    Ok(entries.iter().filter_map(|entry| of_shard(&entry.name)).max().unwrap_or(0))
}

/// Makes entries durable that a killed process had written but not synced: they are about to be replayed, and later chunks will
/// promise them. They are rewritten first, because after a sync that failed the system may take pages for clean that
/// never reached the disk; the present bytes are the same, so that a tear does no harm.
async fn make_durable(disk: &Disk, segment: &Found) -> Result<(), CommitLogError> {
    let file = disk.open(&segment.path, rt::OpenOptions::READ_WRITE).await?;
    if !segment.promised {
        file.rewrite(segment.stop as u64).await?;
    }
    file.sync_all().await?;
    Ok(())
}

/// Removes the spare files of shards from number `shards` on, which no shard would use again.
///
/// # Errors
/// [`CommitLogError::Disk`] when the directory cannot be listed, or a file not removed.
pub async fn remove_spares(disk: &Disk, directory: &Path, shards: u16) -> Result<(), CommitLogError> {
    if !disk.exists(directory).await? {
        return Ok(());
    }
    for entry in disk.list(directory).await? {
        if parse_name(&entry.name).is_some_and(|(shard, _, spare)| spare && shard >= shards) {
            disk.remove(&directory.join(&entry.name)).await?;
        }
    }
    Ok(())
}

/// The segments of all shards in a directory, for a node whose number of shards has changed: shard, path.
///
/// # Errors
/// [`CommitLogError::Disk`] when the directory cannot be listed.
pub async fn list_segments(disk: &Disk, directory: &Path) -> Result<Vec<(u16, PathBuf)>, CommitLogError> {
    let mut out = Vec::new();
    if !disk.exists(directory).await? {
        return Ok(out);
    }
    for entry in disk.list(directory).await? {
        if let Some((shard, _, spare)) = parse_name(&entry.name)
            && !spare
        {
            out.push((shard, directory.join(&entry.name)));
        }
    }
    Ok(out)
}

/// The header of a segment; none for a file that never got one.
///
/// # Errors
/// [`CommitLogError::Disk`] when the file cannot be read, [`CommitLogError::NewerVersion`] when a later version wrote
/// it.
pub async fn read_header(disk: &Disk, path: &Path) -> Result<Option<SegmentHeader>, CommitLogError> {
    let file = disk.open(path, rt::OpenOptions::READ).await?;
    let bytes = file.read_at(0, HEADER_LEN).await?;
    match SegmentHeader::decode(&bytes) {
        Ok(header) => Ok(Some(header)),
        Err(HeaderError::Blank) => Ok(None),
        Err(HeaderError::NewerVersion(version)) => {
            Err(CommitLogError::NewerVersion { file: path.to_owned(), version })
        }
    }
}

/// Reads the log of any shard without opening it for writing: its content is replayed into another place, and then
/// the given files are removed, oldest first. Segments behind the log's end are removed here and not among them.
///
/// # Errors
/// As [`CommitLog::open`].
pub async fn read_shard(
    rt: &Rt,
    config: &CommitLogConfig,
    shard: u16,
) -> Result<(Recovery, Vec<PathBuf>), CommitLogError> {
    let disk = rt.disk();
    let named = segments_of(disk, &config.directory, shard).await?;
    let recovery = examine(disk, named, config.ignore_errors, &mut State::default()).await?;
    let stayed = segments_of(disk, &config.directory, shard).await?;
    Ok((recovery, stayed.into_iter().map(|(_, path)| path).collect()))
}

/// The segments of one shard by id.
async fn segments_of(
    disk: &Disk,
    directory: &Path,
    shard: u16,
) -> Result<Vec<(u64, PathBuf)>, CommitLogError> {
    let mut named = Vec::new();
    for (of, path) in list_segments(disk, directory).await? {
        if of == shard
            && let Some((_, id, _)) = path.file_name().and_then(|name| parse_name(name.to_str()?))
        {
            named.push((id, path));
        }
    }
    named.sort();
    Ok(named)
}

/// First walk: how far each segment is valid, and whether the invalid rest is allowed. The valid part is durable then.
async fn examine(
    disk: &Disk,
    named: Vec<(u64, PathBuf)>,
    ignore_errors: bool,
    state: &mut State,
) -> Result<Recovery, CommitLogError> {
    let mut found = Vec::new();
    let mut checkpoint = Checkpoint::default();
    let mut skipped = Vec::new();
    let mut synced = 0;
    for (id, path) in named {
        let bytes = disk.read_to_end(&path, SEGMENT_LEN_MAX).await?;
        let header = match header_of(&bytes, id, &path) {
            Ok(header) => header,
            Err(error @ CommitLogError::Corrupt { .. }) if ignore_errors => {
                skipped.push(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        let walked = scan(&bytes, &header, HEADER_LEN, 0);
        synced = synced.max(walked.synced);
        state.next = state.next.max(walked.next).max(walked.synced + 1).max(walked.number_max + 1);
        for place in &walked.entries {
            if let Some(news) = bytes.get(place.offset..place.offset + place.len).and_then(Checkpoint::decode)
            {
                checkpoint.merge(&news);
            }
        }
        let behind = walked.more_behind;
        let (stop, ended, next) = (walked.stop, walked.ended, walked.next);
        found.push(Found {
            path,
            header,
            len: bytes.len() as u64,
            stop,
            ended,
            next,
            behind,
            is_empty: walked.entries.is_empty(),
            promised: false,
            skip: false,
        });
    }
    first_chunks(&found, &checkpoint, ignore_errors, &mut skipped)?;
    missing_between(&found, &mut checkpoint, ignore_errors, &mut skipped)?;
    for segment in &mut found {
        // Entry `next` stands in a later segment: the sync that made it durable had made this end mark durable before.
        segment.promised = segment.ended && segment.next <= synced;
    }
    debug_assert!(
        found.is_sorted_by(|one, next| one.header.id < next.header.id),
        "segments are looked at in order"
    );
    let (keep, torn) = torn_tail(&mut found, &checkpoint, synced, ignore_errors, &mut skipped)?;
    if let Some((_, number)) = checkpoint.flushed.iter().max_by_key(|(_, number)| **number) {
        state.next = state.next.max(number + 1);
    }
    assert!(keep <= found.len(), "what stays was found");
    assert!(found.is_empty() || state.next > synced, "a new entry is not one that was promised");
    let doomed: Vec<PathBuf> = found.drain(keep..).map(|segment| segment.path).collect();
    remove_behind_the_end(disk, &doomed).await?;
    for segment in &found {
        make_durable(disk, segment).await?;
    }
    let segments = found.into_iter();
    Ok(Recovery { disk: disk.clone(), segments, checkpoint, torn, skipped })
}

/// Removes segments behind the log's end, the last one first.
async fn remove_behind_the_end(disk: &Disk, doomed: &[PathBuf]) -> Result<(), CommitLogError> {
    for path in doomed.iter().rev() {
        disk.remove(path).await?;
        // Should it come back after a power failure, later entries of the log would contradict it; and one that lies
        // between two others must not be the first to go.
        if let Some(directory) = path.parent() {
            disk.sync_dir(directory).await?;
        }
    }
    Ok(())
}

/// A segment gets its name after its first chunk is durable, so that one without is damaged.
fn first_chunks(
    found: &[Found],
    checkpoint: &Checkpoint,
    ignore_errors: bool,
    skipped: &mut Vec<CommitLogError>,
) -> Result<(), CommitLogError> {
    let is_noted = |segment: &&Found| checkpoint.tails.contains_key(&segment.header.id);
    for segment in found.iter().filter(|segment| segment.is_empty && !is_noted(segment)) {
        let there = if segment.is_cut() { segment.end_of_file() } else { "no valid chunk".to_owned() };
        let what = "the segment's checkpoint".to_owned();
        let error = corrupt(&segment.path, segment.stop as u64, what, &there);
        if !ignore_errors {
            return Err(error);
        }
        skipped.push(error);
    }
    Ok(())
}

/// Segments are released oldest first, and each names the one before: one that is missing between two others was removed.
fn missing_between(
    found: &[Found],
    checkpoint: &mut Checkpoint,
    ignore_errors: bool,
    skipped: &mut Vec<CommitLogError>,
) -> Result<(), CommitLogError> {
    for (before, this) in found.iter().zip(found.iter().skip(1)) {
        let (shard, named) = (this.header.shard, this.header.before);
        if named > before.header.id && !checkpoint.tails.contains_key(&named) {
            let file = this.path.with_file_name(segment_name(shard, named));
            let error = CommitLogError::Missing { file, next: this.path.clone() };
            if !ignore_errors {
                return Err(error);
            }
            skipped.push(error);
            // Accepted once and for all.
            checkpoint.tails.insert(named, 0);
        }
    }
    Ok(())
}

/// The header of segment `id`.
fn header_of(bytes: &[u8], id: u64, path: &Path) -> Result<SegmentHeader, CommitLogError> {
    match SegmentHeader::decode(bytes) {
        Ok(header) if header.id == id => Ok(header),
        Err(HeaderError::NewerVersion(version)) => {
            Err(CommitLogError::NewerVersion { file: path.to_owned(), version })
        }
        // A segment gets its name after its header is durable, so this is damage.
        _ if bytes.len() < HEADER_LEN => {
            let there = format!("the file's end: it has {} bytes", bytes.len());
            Err(corrupt(path, 0, format!("the header of segment {id}"), &there))
        }
        _ => Err(corrupt(path, 0, format!("the header of segment {id}"), "other bytes")),
    }
}

/// Where the log ends: how many segments stay, and the file and offset of a torn end, if there is one. A segment that
/// stops before its promised end is damaged.
fn torn_tail(
    found: &mut [Found],
    checkpoint: &Checkpoint,
    synced: u64,
    ignore_errors: bool,
    skipped: &mut Vec<CommitLogError>,
) -> Result<(usize, Option<(PathBuf, u64)>), CommitLogError> {
    let mut torn = None;
    let count = found.len();
    let mut keep = count;
    for (place, segment) in found.iter_mut().enumerate() {
        // The end that a crash left and a later start accepted was noted: later losses are not from a crash.
        let noted = checkpoint.tails.get(&segment.header.id);
        if segment.ended || noted.is_some_and(|tail| segment.next >= *tail) {
            continue;
        }
        if segment.next <= synced || segment.is_cut() {
            let what = format!("entry {} or the end mark", segment.next);
            let there = match segment.is_cut() {
                true => segment.end_of_file(),
                false => "bytes whose checksum does not fit".to_owned(),
            };
            let error = corrupt(&segment.path, segment.stop as u64, what, &there);
            if !ignore_errors {
                return Err(error);
            }
            skipped.push(error);
            segment.skip = true;
            continue;
        }
        // Nothing behind this point was promised to survive.
        if segment.behind.is_some() || place + 1 < count {
            torn = Some((segment.path.clone(), segment.stop as u64));
        }
        keep = place + 1;
        break;
    }
    Ok((keep, torn))
}

fn corrupt(path: &Path, offset: u64, expected: String, found: &str) -> CommitLogError {
    CommitLogError::Corrupt { file: path.to_owned(), offset, expected, found: found.to_owned() }
}
