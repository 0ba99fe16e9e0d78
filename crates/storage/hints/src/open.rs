//! Opening a shard's hints: the files of earlier runs, also those of another number of shards.

use std::path::{Path, PathBuf};

use rt::{DiskError, OpenOptions, Rt};
use topology::HostId;

use crate::format::{BLOCK_LEN, Block, BlockError, Header, Seal, parse_file_name};
use crate::log::State;
use crate::reader::SegmentReader;
use crate::segment::Segment;
use crate::{Hints, HintsConfig, HintsError};

/// No log gets so far; a larger number is not one.
const NUMBER_MAX: u64 = 1 << 62;

impl Hints {
    /// Opens the hints of this shard in a directory that the shards of a node share, and starts its tasks. A file belongs to the
    /// shard `number % shard_count`. A file that cannot be read is no failure: it is counted and tried again by every replay.
    ///
    /// # Errors
    /// [`HintsError::Disk`] when the directory cannot be created, listed or synced.
    pub async fn open(rt: &Rt, directory: &Path, config: HintsConfig) -> Result<Hints, HintsError> {
        rt.allow_injected(&config.canaries);
        let disk = rt.disk();
        disk.create_dir_all(directory).await?;
        let (shard, shard_count) = (u64::from(rt.shard().0), u64::from(rt.shard_count()));
        let mut state = State::default();
        let mut found = Vec::new();
        let mut next = 0;
        for entry in disk.list(directory).await? {
            let Some(header) = parse_file_name(&entry.name).filter(|header| header.number < NUMBER_MAX)
            else {
                continue;
            };
            next = next.max(header.number + 1);
            if header.number % shard_count == shard {
                found.push((header, directory.join(&entry.name)));
            }
        }
        state.next_number = next + (shard + shard_count - next % shard_count) % shard_count;
        for (header, path) in found {
            inspect(rt, header, path, &config, &mut state).await;
        }
        // The directory itself, and files that an earlier run left unsynced.
        state.name_changes = 1;
        if let Some(parent) = directory.parent() {
            disk.sync_dir(if parent.as_os_str().is_empty() { Path::new(".") } else { parent }).await?;
        }
        let hints = Hints::new(rt, directory.to_owned(), config, state);
        hints.start();
        Ok(hints)
    }
}

/// Takes a file into the state, or finds that it is not needed.
async fn inspect(rt: &Rt, name: Header, path: PathBuf, config: &HintsConfig, state: &mut State) {
    let segment = match read_segment(rt, name, &path, config).await {
        Ok(Found::Segment(segment)) => segment,
        Ok(Found::Nothing) => {
            state.garbage.push(path);
            return;
        }
        Ok(Found::Foreign(why)) => {
            tracing::warn!("{} is left alone: {why}", path.display());
            return;
        }
        Err(error) => {
            tracing::warn!("hints that cannot be read now are retained: {error}");
            state.stats.disk_failures += 1;
            // Its figures are not known; a replay tries it again.
            let end = rt.disk().len(&path).await.unwrap_or(BLOCK_LEN as u64 + 1);
            let now = rt.wall_micros();
            Segment {
                end,
                hints: 1,
                oldest_micros: now,
                newest_micros: now,
                ..Segment::new(name.number, path)
            }
        }
    };
    if segment.torn > 0 {
        tracing::info!("{} was torn by a crash in {} places", segment.path.display(), segment.torn);
    }
    let log = state.hosts.entry(name.host).or_default();
    log.closed.insert(segment.number, segment);
}

enum Found {
    Segment(Segment),
    /// Everything in it is delivered, or nothing reached the disk.
    Nothing,
    /// Not ours to judge.
    Foreign(String),
}

async fn read_segment(rt: &Rt, name: Header, path: &Path, config: &HintsConfig) -> Result<Found, DiskError> {
    let file = rt.disk().open(path, OpenOptions::READ).await?;
    let len = file.len().await?;
    let block = file.read_at(0, BLOCK_LEN).await?;
    let mut segment = Segment::new(name.number, path.to_owned());
    let seal = match Block::decode(&block) {
        Ok(block) if block.header != name => {
            let HostId(host) = block.header.host;
            return Ok(Found::Foreign(format!(
                "its header is that of number {} for {host:02x?}",
                block.header.number
            )));
        }
        Ok(block) => {
            segment.position = block.position;
            block.seal
        }
        Err(BlockError::NewerVersion(version)) => {
            return Ok(Found::Foreign(format!("a newer version wrote it (format {version})")));
        }
        // The records may be there all the same, and the name says whose they are.
        Err(BlockError::Blank) => None,
    };
    match seal {
        Some(Seal { end, hints, oldest_micros, newest_micros }) => {
            (segment.end, segment.hints) = (end, hints);
            (segment.oldest_micros, segment.newest_micros) = (oldest_micros, newest_micros);
        }
        None => {
            let mut reader =
                SegmentReader::new(file, name.number, BLOCK_LEN as u64, len, config.update_bytes_max);
            // A crash may have left fewer delivered hints than the position says: the present ones are counted.
            segment.position.hints = 0;
            while let Some(record) = reader.next().await? {
                segment.end = record.next;
                segment.position.hints += u64::from(record.next <= segment.position.offset);
                segment.note_hint(record.header.begun_micros);
                rt.maybe_yield().await;
            }
            segment.torn = reader.damages;
        }
    }
    let is_done = segment.hints == 0 || segment.position.offset >= segment.end;
    Ok(if is_done { Found::Nothing } else { Found::Segment(segment) })
}
