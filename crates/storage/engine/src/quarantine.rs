//! SSTables that cannot be used: their handling at start, and the reads that fail because of them.
//!
//! A row that is silently missing is worse than a read that fails, because another replica answers the second. So the
//! range of tokens of an SSTable that is out of service answers with an error until an operator has restored or removed
//! its files. Nothing is deleted here but the leftovers of writes and removals that this node had begun and not finished,
//! which a temporary TOC lists ([`sstable::remove_unfinished`]).
//!
//! An SSTable of which a file is missing, so that nothing can be read of it, is moved into [`DIRECTORY`]. One whose files
//! are there and damaged stays where it is: restoring the damaged file is enough.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::path::{Path, PathBuf};

use rt::{Disk, DiskError, IoBuf, OpenOptions, Rt};
use sstable::{Component, Descriptor, Found, Owner, SstableError};

use crate::OpenError;
use crate::damage::{ALL_TOKENS, Damage};
use crate::generation::generation_of_name;
use crate::links::BACKUPS;
use crate::snapshots::SNAPSHOTS;

/// The folder in a table's directory with the files of SSTables that are not complete.
pub(crate) const DIRECTORY: &str = "quarantine";

/// Looks through a table's directory before any shard opens there: removes SSTables that this node had not finished to write or to
/// remove, gives an SSTable that lacks nothing but its TOC a new one, and moves incomplete ones aside.
///
/// # Errors
/// When the disk fails.
pub(crate) async fn settle(rt: &Rt, dir: &Path) -> Result<(), OpenError> {
    let disk = rt.disk();
    let removed = sstable::remove_unfinished(disk, dir).await?;
    if removed > 0 {
        tracing::info!(
            "{}: removed {removed} SSTables whose write or removal was not finished",
            dir.display()
        );
    }
    for entry in disk.list(dir).await? {
        // A component that was being replaced: it had not taken its name.
        if entry.name.strip_suffix(".new").is_some_and(|name| Descriptor::parse(name).is_some()) {
            disk.remove(dir.join(&entry.name)).await?;
        }
    }
    for found in sstable::list_all(disk, dir).await? {
        if found.is_complete() {
            continue;
        }
        match why_unusable(rt, &found).await? {
            None => restore_toc(disk, &found).await?,
            Some(reason) => move_aside(disk, &found, &reason).await?,
        }
    }
    Ok(())
}

/// Why an SSTable without TOC or data cannot be used; none when only the TOC is missing.
async fn why_unusable(rt: &Rt, found: &Found) -> Result<Option<String>, OpenError> {
    for component in [Component::Data, Component::Index, Component::Statistics] {
        if !found.has(component) {
            return Ok(Some(format!("{} is missing", found.descriptor.path(component).display())));
        }
    }
    let verified = sstable::verify::verify(rt, &found.descriptor).await?;
    Ok(verified.problems.first().map(|problem| {
        format!("{} is missing, and {problem}", found.descriptor.path(Component::Toc).display())
    }))
}

/// Writes the TOC of an SSTable whose other files were verified.
async fn restore_toc(disk: &Disk, found: &Found) -> Result<(), DiskError> {
    assert!(!found.has(Component::Toc), "a TOC is made where there is none");
    let path = found.descriptor.path(Component::Toc);
    tracing::warn!(
        "{} is missing; the other files of the SSTable were verified and it is used, with a new TOC",
        path.display()
    );
    let mut components = found.components.clone();
    components.push(Component::Toc);
    // Not the temporary name of a TOC, which would have all of the SSTable removed after a crash.
    let mut new = path.clone().into_os_string();
    new.push(".new");
    let new = PathBuf::from(new);
    let file = disk.open(&new, OpenOptions { truncate: true, ..OpenOptions::READ_WRITE }).await?;
    file.write_at(0, IoBuf::copy_of(&sstable::toc::encode_toc(&components))).await?;
    file.sync_all().await?;
    disk.rename(&new, &path).await?;
    disk.sync_dir(&found.descriptor.dir).await
}

/// Moves aside an SSTable that cannot be given to the shards that own it.
///
/// # Errors
/// When the disk fails.
pub(crate) async fn set_aside(
    disk: &Disk,
    descriptor: &Descriptor,
    why: &SstableError,
) -> Result<(), OpenError> {
    for found in sstable::list_all(disk, &descriptor.dir).await? {
        if found.descriptor == *descriptor {
            move_aside(disk, &found, &why.to_string()).await?;
        }
    }
    Ok(())
}

/// Moves the files of an SSTable into the quarantine folder.
async fn move_aside(disk: &Disk, found: &Found, reason: &str) -> Result<(), DiskError> {
    let dir = &found.descriptor.dir;
    let target = dir.join(DIRECTORY);
    tracing::error!(
        "SSTable {} cannot be used: {reason}. Its files are moved to {}, and reads that it may hold rows of fail on this \
         node. Restore all of its files to {} and start again; or repair the table elsewhere, remove the files from the \
         quarantine folder, start again and repair this node",
        found.descriptor,
        target.display(),
        dir.display()
    );
    disk.create_dir_durably(&target).await?;
    for component in &found.components {
        let from = found.descriptor.path(*component);
        disk.rename(&from, free_name(disk, &target, &from).await?).await?;
    }
    disk.sync_dir(&target).await?;
    disk.sync_dir(dir).await
}

/// Where a file goes in the quarantine folder without replacing one that was put there before.
async fn free_name(disk: &Disk, target: &Path, from: &Path) -> Result<PathBuf, DiskError> {
    let name = from.file_name().unwrap_or_default();
    let mut path = target.join(name);
    let mut number = 0;
    while disk.exists(&path).await? {
        number += 1;
        path = target.join(format!("{}.{number}", name.to_string_lossy()));
    }
    Ok(path)
}

/// The largest generation in a table's directory, its quarantine folder, its backups and its snapshots: an SSTable that is put back, or
/// that is linked to those, must not meet another one of its number.
///
/// # Errors
/// When the disk fails.
pub(crate) async fn generation_max(disk: &Disk, dir: &Path) -> Result<u64, DiskError> {
    let mut largest = 0;
    let mut places = vec![dir.to_owned(), dir.join(DIRECTORY), dir.join(BACKUPS)];
    let snapshots = dir.join(SNAPSHOTS);
    if disk.exists(&snapshots).await? {
        let entries = disk.list(&snapshots).await?;
        places.extend(entries.iter().filter(|entry| entry.is_dir).map(|entry| snapshots.join(&entry.name)));
    }
    for dir in places {
        if disk.exists(&dir).await? {
            let entries = disk.list(&dir).await?;
            let found = entries.iter().filter_map(|entry| generation_of_name(&entry.name)).max();
            largest = largest.max(found.unwrap_or(0));
        }
    }
    Ok(largest)
}

/// The files that are out of service in a table's directory apart from complete SSTables: the content of the quarantine folder, and
/// files of formats that cannot be read.
///
/// # Errors
/// When the disk fails.
pub(crate) async fn list(disk: &Disk, dir: &Path, shard: Owner) -> Result<Vec<Damage>, OpenError> {
    let mut damages = Vec::new();
    for entry in disk.list(dir).await? {
        if !entry.is_dir && is_of_unknown_format(&entry.name) {
            let reason = format!(
                "{} is of a format that cannot be read; rewrite it with `sstableupgrade` of a Cassandra 4 or 5 whose \
                 sstable format is big, or remove its files, and start again",
                dir.join(&entry.name).display()
            );
            damages.push(Damage { descriptor: None, tokens: ALL_TOKENS, reason });
        }
    }
    let quarantine = dir.join(DIRECTORY);
    if !disk.exists(&quarantine).await? {
        return Ok(damages);
    }
    let mut files = disk.list(&quarantine).await?.len();
    for found in sstable::list_all(disk, &quarantine).await? {
        files -= found.components.len().min(files);
        let (tokens, owner) = tokens_of(disk, &found.descriptor).await?;
        if owner.is_some_and(|owner| owner.shards == shard.shards && owner != shard) {
            continue;
        }
        let reason = format!(
            "SSTable {} is in quarantine: restore all of its files to {}, or remove them from the quarantine folder and \
             repair the table; then start again",
            found.descriptor,
            dir.display()
        );
        damages.push(Damage { descriptor: None, tokens, reason });
    }
    if files > 0 {
        let reason = format!(
            "{} holds other files than those of SSTables: restore or remove them, and start again",
            quarantine.display()
        );
        damages.push(Damage { descriptor: None, tokens: ALL_TOKENS, reason });
    }
    Ok(damages)
}

/// The first and the last token of an SSTable, and whose it is, as far as its files say so for certain.
///
/// # Errors
/// When the disk fails.
pub(crate) async fn tokens_of(
    disk: &Disk,
    descriptor: &Descriptor,
) -> Result<((i64, i64), Option<Owner>), DiskError> {
    let (tokens, owner) = sstable::known_tokens(disk, descriptor).await?;
    Ok((tokens.unwrap_or(ALL_TOKENS), owner))
}

/// Whether a file's name is that of an SSTable's data in a version or format that [`Descriptor::parse`] does not know.
fn is_of_unknown_format(name: &str) -> bool {
    let mut parts = name.splitn(4, '-');
    let version = parts.next().unwrap_or_default();
    let (generation, format) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    version.len() == 2
        && version.bytes().all(|byte| byte.is_ascii_lowercase())
        && !generation.is_empty()
        && !format.is_empty()
        && parts.next() == Some(Component::Data.name())
        && Descriptor::parse(name).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        for name in ["da-1-bti-Data.db", "oa-3-big-Data.db", "la-3-big-Data.db"] {
            assert!(is_of_unknown_format(name), "{name}");
        }
        for name in
            ["nb-1-big-Data.db", "da-1-bti-Rows.db", "Data.db", "nb_txn_compaction_1.log", "truncated-1-2"]
        {
            assert!(!is_of_unknown_format(name), "{name}");
        }
    }
}
