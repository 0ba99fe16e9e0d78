//! Atomic edits of a table's set of SSTables, and their recovery.
//!
//! An edit is a small text file in the table's directory, in the form of Cassandra's transaction logs
//! (`nb_txn_compaction_<id>.log`), so that Cassandra, too, finishes or undoes an interrupted edit: a line for every
//! SSTable that is added or removed, then one that commits. Without the last line the added ones are removed, with it
//! the removed ones.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rt::{Disk, DiskError, File, IoBuf, OpenOptions};
use sstable::{Component, Corruption, Descriptor, SstableError};

use crate::truncation_record;

/// Longer logs are not read.
const LOG_LEN_MAX: usize = 16 << 20;

/// An edit under way.
pub(crate) struct Edit {
    disk: Disk,
    dir: PathBuf,
    path: PathBuf,
    id: String,
    file: File,
    len: u64,
    added: Vec<Descriptor>,
    phase: Phase,
}

/// How far an edit has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// The lines that commit may be in the log.
    Undetermined,
    Committed,
}

/// The content of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Add,
    Remove,
    Commit,
    Abort,
}

const KINDS: [(Kind, &str); 4] =
    [(Kind::Add, "ADD"), (Kind::Remove, "REMOVE"), (Kind::Commit, "COMMIT"), (Kind::Abort, "ABORT")];

impl Edit {
    /// Begins an edit in a table's directory; `id` is unique, and `operation` names why (`compaction`, `cleanup`).
    pub(crate) async fn begin(
        disk: &Disk,
        dir: &Path,
        operation: &str,
        id: [u8; 16],
    ) -> Result<Self, DiskError> {
        let id = schema::TableId(id).to_string();
        let path = dir.join(format!("nb_txn_{operation}_{id}.log"));
        let file = disk.open(&path, OpenOptions::CREATE_NEW).await?;
        disk.sync_dir(dir).await?;
        Ok(Self {
            disk: disk.clone(),
            dir: dir.to_owned(),
            path,
            id,
            file,
            len: 0,
            added: Vec::new(),
            phase: Phase::Open,
        })
    }

    /// A name that no other edit has.
    pub(crate) fn id(&self) -> String {
        self.id.clone()
    }

    /// Records that an SSTable is going to be written; must be done before its TOC is.
    pub(crate) async fn add(&mut self, descriptor: &Descriptor) -> Result<(), DiskError> {
        assert_eq!(self.phase, Phase::Open, "an edit that commits adds nothing more");
        assert_eq!(descriptor.dir, self.dir, "an edit is of one directory");
        assert!(!self.added.contains(descriptor), "an edit adds an SSTable once");
        let line = line(Kind::Add, &base_name(descriptor), 0);
        self.added.push(descriptor.clone());
        self.append(line).await
    }

    /// Makes the edit happen: from here on the added SSTables exist and the removed ones do not. Gives the log, which
    /// is to be removed after the files. When it fails the edit may have happened or not: [`Edit::revoke`] it.
    pub(crate) async fn commit(&mut self, removed: &[Descriptor]) -> Result<PathBuf, DiskError> {
        assert_eq!(self.phase, Phase::Open, "an edit is committed once");
        let distinct: BTreeSet<&Descriptor> = removed.iter().collect();
        assert_eq!(distinct.len(), removed.len(), "an edit removes an SSTable once");
        assert!(
            self.added.iter().all(|added| !distinct.contains(added)),
            "an edit removes none that it adds"
        );
        self.phase = Phase::Undetermined;
        let lines: String = removed
            .iter()
            .map(|descriptor| line(Kind::Remove, &base_name(descriptor), Component::ALL.len()))
            .collect();
        self.append(lines).await?;
        self.append(line(Kind::Commit, "", 0)).await?;
        self.phase = Phase::Committed;
        Ok(self.path.clone())
    }

    /// Undoes an edit whose commit failed. The log goes first: without it the added SSTables only repeat the content of the
    /// others, while with it a crash would remove those. When this fails, nothing may build on the set as it was; it may be
    /// tried again.
    pub(crate) async fn revoke(&mut self) -> Result<(), SstableError> {
        assert_eq!(self.phase, Phase::Undetermined, "an edit is revoked when its commit failed");
        match self.disk.remove(&self.path).await {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
        self.disk.sync_dir(&self.dir).await?;
        for descriptor in &self.added {
            sstable::remove(&self.disk, descriptor).await?;
        }
        // Without the log it means nothing, and goes at the next start.
        let _ = truncation_record::finish(&self.disk, &self.dir, &self.id, false).await;
        Ok(())
    }

    /// Undoes the edit: added SSTables are removed.
    pub(crate) async fn abort(self) -> Result<(), SstableError> {
        assert_eq!(self.phase, Phase::Open, "an edit that may have been committed is not undone by its log");
        drop(self.file);
        finish_one(&self.disk, &self.dir, &self.path).await
    }

    async fn append(&mut self, text: String) -> Result<(), DiskError> {
        if text.is_empty() {
            return Ok(());
        }
        assert!(text.ends_with('\n'), "the log of an edit consists of whole lines");
        let len = text.len() as u64;
        self.file.write_at(self.len, IoBuf::copy_of(text.as_bytes())).await?;
        self.file.sync_all().await?;
        self.len += len;
        Ok(())
    }
}

/// `<dir>/nb-7-big`, as lines name an SSTable.
fn base_name(descriptor: &Descriptor) -> String {
    descriptor.to_string()
}

#[expect(clippy::expect_used, reason = "the list has every kind")]
fn line(kind: Kind, base: &str, files: usize) -> String {
    let name = KINDS.iter().find(|(known, _)| *known == kind).expect("every kind has a name").1;
    let line = format!("{name}:[{base},0,{files}][{}]\n", checksum(name, base, files as i32));
    assert!(
        parse(line.trim_end_matches('\n')).is_some_and(|(read, named)| (read, &*named) == (kind, base)),
        "a line is read as it was written"
    );
    line
}

/// CRC-32 of path, kind, update time (always 0 here, low half first) and number of files.
fn checksum(name: &str, base: &str, files: i32) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(base.as_bytes());
    crc.update(name.as_bytes());
    crc.update(&[0; 8]);
    crc.update(&files.to_be_bytes());
    crc.finalize()
}

/// A line's kind and the SSTable that it names; none when it is torn. Update times of Cassandra's own logs count
/// into the checksum.
fn parse(text: &str) -> Option<(Kind, String)> {
    let (name, rest) = text.split_once(":[")?;
    let kind = KINDS.iter().find(|(_, known)| known.eq_ignore_ascii_case(name))?.0;
    // From the end: the path of the data directory may have commas and brackets.
    let (fields, crc) = rest.strip_suffix(']')?.rsplit_once("][")?;
    let mut fields = fields.rsplitn(3, ',');
    let files: i32 = fields.next()?.parse().ok()?;
    let updated: i64 = fields.next()?.parse().ok()?;
    let base = fields.next()?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(base.as_bytes());
    hasher.update(name.to_ascii_uppercase().as_bytes());
    hasher.update(&(updated as i32).to_be_bytes());
    hasher.update(&((updated >> 32) as i32).to_be_bytes());
    hasher.update(&files.to_be_bytes());
    (crc.parse::<u32>().ok()? == hasher.finalize()).then(|| (kind, base.to_owned()))
}

/// Finishes or undoes every edit of a table's directory; gives how many there were. Only while no shard works there.
pub(crate) async fn finish_edits(disk: &Disk, dir: &Path) -> Result<usize, SstableError> {
    let mut finished = 0;
    for entry in disk.list(dir).await? {
        if !entry.is_dir && entry.name.contains("_txn_") && entry.name.ends_with(".log") {
            finish_one(disk, dir, &dir.join(&entry.name)).await?;
            finished += 1;
        }
    }
    truncation_record::remove_orphans(disk, dir).await?;
    Ok(finished)
}

/// The SSTable of a line, in this directory: its path may be that of another machine or mount, and only the name counts.
fn named(dir: &Path, base: &str) -> Option<Descriptor> {
    let name = Path::new(base).file_name()?.to_str()?;
    Some(Descriptor::parse(dir.join(format!("{name}-TOC.txt")))?.0)
}

/// Refuses to undo an edit whose log is damaged and may have been committed: the SSTables that it added are perhaps all that there is.
async fn check_uncommitted(
    disk: &Disk,
    dir: &Path,
    path: &Path,
    (text, lines): (&str, &[(Kind, String)]),
) -> Result<(), SstableError> {
    let damaged = |expected: String, found: &str| {
        let (file, offset, found) = (path.to_owned(), 0, found.to_owned());
        Err(SstableError::Corrupt(Box::new(Corruption { file, offset, expected, found })))
    };
    if text.contains(line(Kind::Commit, "", 0).trim_end()) {
        return damaged("lines before the one that commits".to_owned(), "unreadable ones");
    }
    for (_, base) in lines.iter().filter(|(kind, _)| *kind == Kind::Remove) {
        let Some(descriptor) = named(dir, base) else { continue };
        if !disk.exists(descriptor.path(Component::Toc)).await? {
            return damaged(format!("a line that commits, because {base} is removed"), "none");
        }
    }
    Ok(())
}

async fn finish_one(disk: &Disk, dir: &Path, path: &Path) -> Result<(), SstableError> {
    let bytes = disk.read_to_end(path, LOG_LEN_MAX).await?;
    let text = String::from_utf8_lossy(&bytes);
    // A line that was not wholly written ends the log: it was never synced, so nothing was built on it.
    let lines: Vec<(Kind, String)> = text.lines().map_while(parse).collect();
    let committed = lines.last().is_some_and(|(kind, _)| *kind == Kind::Commit);
    if !committed {
        check_uncommitted(disk, dir, path, (&text, &lines)).await?;
    }
    // The line that commits may be the one whose sync failed. If a power loss took it back after some of the removed SSTables
    // had gone, the added ones would go too.
    let file = disk.open(path, OpenOptions::READ_WRITE).await?;
    file.rewrite(bytes.len() as u64).await?;
    file.sync_all().await?;
    let doomed = if committed { Kind::Remove } else { Kind::Add };
    for (_, base) in lines.iter().filter(|(kind, _)| *kind == doomed) {
        if let Some(descriptor) = named(dir, base) {
            sstable::remove(disk, &descriptor).await?;
        }
    }
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let id = stem.rsplit('_').next().unwrap_or_default();
    truncation_record::finish(disk, dir, id, committed).await?;
    disk.remove(path).await?;
    Ok(disk.sync_dir(dir).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let descriptor = Descriptor::new("/data/ks/t-1", 7);
        let added = line(Kind::Add, &base_name(&descriptor), 0);
        assert!(added.starts_with("ADD:[/data/ks/t-1/nb-7-big,0,0]["), "{added}");
        assert_eq!(parse(added.trim_end()), Some((Kind::Add, "/data/ks/t-1/nb-7-big".to_owned())));
        let removed = line(Kind::Remove, &base_name(&descriptor), 9);
        assert_eq!(parse(removed.trim_end()).unwrap().0, Kind::Remove);
        assert_eq!(parse(line(Kind::Commit, "", 0).trim_end()).unwrap().0, Kind::Commit);
        let odd = "/disk 1,2/[a][b]/ks/t-1/nb-7-big";
        assert_eq!(parse(line(Kind::Add, odd, 3).trim_end()), Some((Kind::Add, odd.to_owned())));
        for cut in 0..added.len() - 1 {
            assert_eq!(parse(&added[..cut]), None, "{cut}");
        }
        assert_eq!(parse(&added.trim_end().replace("nb-7", "nb-8")), None);
    }

    /// Files of SSTables, as far as an edit looks at them, and the log of a committed edit of which one removal is done.
    async fn write_files(disk: &Disk, dir: &Path, log: &[u8]) {
        disk.create_dir_durably(dir).await.unwrap();
        for name in ["nb-1-big-TOC.txt", "nb-3-big-TOC.txt", "nb_txn_compaction_1.log"] {
            let options = OpenOptions { truncate: true, create: true, write: true, ..OpenOptions::default() };
            let file = disk.open(dir.join(name), options).await.unwrap();
            let bytes = if name.ends_with(".log") { log } else { b"Data.db\n" };
            file.write_at(0, IoBuf::copy_of(bytes)).await.unwrap();
            file.sync_all().await.unwrap();
        }
    }

    #[test]
    fn no_flipped_bit_of_a_log_takes_the_only_copy() {
        let (dir, base) = (Path::new("/t"), |at| base_name(&Descriptor::new("/t", at)));
        let lines = [
            line(Kind::Add, &base(3), 0),
            line(Kind::Remove, &base(1), 9),
            line(Kind::Remove, &base(2), 9),
            line(Kind::Commit, "", 0),
        ];
        let log = lines.concat().into_bytes();
        let sim = rt_sim::Simulation::new(1, rt_sim::Config::default());
        let refused = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let (counter, bits) = (refused.clone(), log.len() * 8);
        let node = sim.add_node(rt_sim::NodeConfig::default(), move |_| {
            let (log, counter) = (log.clone(), counter.clone());
            rt::shard_mains(1, move |rt| {
                let (log, counter) = (log.clone(), counter.clone());
                async move {
                    let disk = rt.disk();
                    write_files(disk, dir, &log).await;
                    assert_eq!(finish_edits(disk, dir).await.unwrap(), 1);
                    assert!(!disk.exists(dir.join("nb-1-big-TOC.txt")).await.unwrap());
                    for bit in 0..bits {
                        let mut flipped = log.clone();
                        flipped[bit / 8] ^= 1 << (bit % 8);
                        write_files(disk, dir, &flipped).await;
                        let done = finish_edits(disk, dir).await;
                        counter.fetch_add(usize::from(done.is_err()), std::sync::atomic::Ordering::Relaxed);
                        assert!(disk.exists(dir.join("nb-3-big-TOC.txt")).await.unwrap(), "bit {bit}");
                    }
                    counter.fetch_add(1 << 20, std::sync::atomic::Ordering::Relaxed);
                    rt.sleep(std::time::Duration::MAX).await;
                }
            })
        });
        sim.start(node);
        sim.run_until(|| refused.load(std::sync::atomic::Ordering::Relaxed) >= 1 << 20).unwrap();
        let refused = refused.load(std::sync::atomic::Ordering::Relaxed) - (1 << 20);
        assert!(refused * 10 > bits * 9, "{refused} of {bits} are refused");
    }
}
