//! Names of the log's files, and the archive.

use std::path::Path;

use rt::{Disk, DiskError};

use crate::segment::HEADER_LEN;

pub(crate) fn segment_name(shard: u16, id: u64) -> String {
    format!("commitlog-{shard}-{id}.log")
}

pub(crate) fn spare_name(shard: u16, id: u64) -> String {
    format!("commitlog-{shard}-{id}.spare")
}

/// Shard, id, and whether it is a spare.
pub(crate) fn parse_name(name: &str) -> Option<(u16, u64, bool)> {
    let rest = name.strip_prefix("commitlog-")?;
    let (numbers, spare) = match rest.strip_suffix(".log") {
        Some(numbers) => (numbers, false),
        None => (rest.strip_suffix(".spare")?, true),
    };
    let (shard, id) = numbers.split_once('-')?;
    Some((shard.parse().ok()?, id.parse().ok()?, spare))
}

/// Links a segment into the archive. It may be there already; a file of that name that holds something else is an error.
///
/// # Errors
/// When the archive cannot be written, lies on another file system, or has another file of that name.
pub async fn archive(disk: &Disk, path: &Path, archive: &Path) -> Result<(), DiskError> {
    let Some(name) = path.file_name() else { return Ok(()) };
    let target = archive.join(name);
    match disk.hard_link(path, &target).await {
        Err(error) if error.is_already_exists() => {
            // The header has a random salt.
            let own = disk.open(path, rt::OpenOptions::READ).await?.read_at(0, HEADER_LEN).await?;
            let other = disk.open(&target, rt::OpenOptions::READ).await?.read_at(0, HEADER_LEN).await?;
            if own[..] != other[..] {
                return Err(error);
            }
        }
        linked => linked?,
    }
    disk.sync_dir(archive).await
}
