//! How far a table's SSTables of one shard have come with incremental repairs. Why it is done this way: docs/design/repair.md.
//!
//! A repair takes a *mark*: a number, and with it everything that SSTables hold at that moment is covered. Later it reads only
//! what is above a mark. Which SSTable is covered by which number stands in one small file of the table's directory,
//! `marks-<shard>-<shards>`, together with every SSTable that no mark covers yet and a random *epoch*. When the shard opens and one of
//! the SSTables named there is gone or another one, the epoch ends, and with it every mark that was ever taken: what was lost may
//! be what a repair counts on.
//!
//! ```text
//! file := CRC-32 of what follows (4), version (1), epoch (8), vint last number, vint count,
//!         { vint length, generation, vint bytes of data, vint number, 0 for not covered }
//! ```

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use rt::sync::Semaphore;
use rt::{Disk, DiskError};
use stdx::vint::{read_unsigned, write_unsigned};
use stdx::{Reader, ShortRead};

use crate::engine::Inner;
use crate::live::LiveSstable;
use crate::store::{SstableSet, Store};
use crate::{MaintenanceError, OpenError};

const VERSION: u8 = 1;
const FILE_PREFIX: &str = "marks-";
const FILE_LEN_MAX: usize = 64 << 20;

/// A moment of a shard's part of a table: what its SSTables held then is at or below it, what came later is above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// Of which epoch; marks of another one than the present mean nothing. 0 is none's.
    pub epoch: u64,
    /// The number, from 1.
    pub number: u64,
}

/// A mark that was taken, and what the shard has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// The mark.
    pub mark: Mark,
    /// Bytes of data by the number that covers them; none is covered by 0 any more.
    pub bytes: BTreeMap<u64, u64>,
}

/// The marks of one table, as its [`Store`] keeps them.
pub(crate) struct Marks {
    /// 0 until the first mark is taken.
    epoch: Cell<u64>,
    last: Cell<u64>,
    /// What is covered by it or a smaller number is compacted apart from the rest.
    floor: Cell<u64>,
    writing: Semaphore,
}

impl Marks {
    pub(crate) fn new() -> Self {
        Self { epoch: Cell::new(0), last: Cell::new(0), floor: Cell::new(0), writing: Semaphore::new(1) }
    }

    /// Whether a mark still means something.
    pub(crate) fn knows(&self, mark: Mark) -> bool {
        mark.epoch != 0 && mark.epoch == self.epoch.get()
    }

    /// Has compaction keep what this mark covers apart from the rest.
    pub(crate) fn set_floor(&self, mark: Mark) {
        self.floor.set(if self.knows(mark) { mark.number } else { 0 });
    }

    /// Whether an SSTable holds only what was repaired.
    pub(crate) fn is_repaired(&self, live: &LiveSstable) -> bool {
        is_covered(live, self.floor.get())
    }
}

/// Whether everything in an SSTable was there when this number was given out.
pub(crate) fn is_covered(live: &LiveSstable, number: u64) -> bool {
    (1..=number).contains(&live.covered_by.get())
}

/// What covers the merge of SSTables: the number that covers all of them, 0 where one is not covered.
pub(crate) fn of_merge(inputs: &[Rc<LiveSstable>]) -> u64 {
    let numbers = || inputs.iter().map(|live| live.covered_by.get());
    if numbers().any(|number| number == 0) { 0 } else { numbers().max().unwrap_or(0) }
}

/// See [`crate::Engine::take_mark`].
pub(crate) async fn take(
    inner: &Rc<Inner>,
    store: &Rc<Store>,
    flush: bool,
) -> Result<Marked, MaintenanceError> {
    inner.salvage_all(store).await?;
    if flush {
        inner.flush(store).await?;
    }
    store.refuse_if_damaged()?;
    let _no_truncation = store.edits.acquire(1).await.map_err(|_| MaintenanceError::Stopped)?;
    if store.dropped.get() {
        return Err(MaintenanceError::UnknownTable(store.id));
    }
    inner.make_dir(store).await?;
    let marks = &store.marks;
    if marks.epoch.get() == 0 {
        marks.epoch.set(inner.rt.random_u64().max(1));
    }
    let set = store.set();
    if marks.last.get() == 0 || set.iter().any(|live| live.covered_by.get() == 0) {
        marks.last.set(marks.last.get() + 1);
        let uncovered = set.iter().filter(|live| live.covered_by.get() == 0);
        uncovered.for_each(|live| live.covered_by.set(marks.last.get()));
    }
    let mark = Mark { epoch: marks.epoch.get(), number: marks.last.get() };
    let mut bytes = BTreeMap::new();
    for live in set.iter() {
        *bytes.entry(live.covered_by.get()).or_insert(0) += live.sstable.data_len();
    }
    // On disk before anybody builds on it.
    write(inner, store).await?;
    if !marks.knows(mark) {
        return Err(MaintenanceError::Cancelled);
    }
    inner.note_salvaged(store, mark);
    Ok(Marked { mark, bytes })
}

/// Takes down that the set has changed.
pub(crate) async fn note(inner: &Inner, store: &Store) {
    if store.marks.epoch.get() == 0 || store.dropped.get() {
        return;
    }
    // What the file says that is not so any more ends the epoch at the next start.
    if let Err(error) = write(inner, store).await {
        tracing::warn!("what was repaired of {} cannot be noted: {error}", store.table().full_name());
    }
}

/// Ends the epoch: data has left the table that a repair may count on.
pub(crate) async fn forget(inner: &Inner, store: &Store) -> Result<(), DiskError> {
    let marks = &store.marks;
    marks.epoch.set(0);
    marks.last.set(0);
    marks.floor.set(0);
    store.set().iter().for_each(|live| live.covered_by.set(0));
    let _one = marks.writing.acquire(1).await.expect("it is never closed");
    remove(inner.rt.disk(), &store.dir, &file_name(inner)).await
}

async fn remove(disk: &Disk, dir: &Path, name: &str) -> Result<(), DiskError> {
    match disk.remove(dir.join(name)).await {
        Err(error) if error.is_not_found() => return Ok(()),
        done => done?,
    }
    disk.sync_dir(dir).await
}

fn file_name(inner: &Inner) -> String {
    format!("{FILE_PREFIX}{}-{}", inner.rt.shard().0, inner.rt.shard_count())
}

async fn write(inner: &Inner, store: &Store) -> Result<(), DiskError> {
    let _one = store.marks.writing.acquire(1).await.expect("it is never closed");
    let noted = Noted::of(store);
    // It may have ended while another was writing.
    if noted.epoch == 0 {
        return Ok(());
    }
    inner.rt.disk().write_atomically(store.dir.join(file_name(inner)), &noted.encode()).await
}

/// Reads what is known of the SSTables that a shard found.
pub(crate) async fn open(inner: &Inner, store: &Store, found: &SstableSet) -> Result<(), OpenError> {
    let (disk, path) = (inner.rt.disk(), store.dir.join(file_name(inner)));
    let bytes = match disk.read_durably(&path, FILE_LEN_MAX).await {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let noted = Noted::decode(&bytes).ok().filter(|noted| !store.is_damaged() && noted.fits(found));
    let Some(noted) = noted else {
        let table = store.table().full_name();
        tracing::warn!("SSTables of {table} are gone or were replaced: its next repair compares everything");
        return Ok(remove(disk, &store.dir, &file_name(inner)).await?);
    };
    store.marks.epoch.set(noted.epoch);
    store.marks.last.set(noted.last);
    for live in found.iter() {
        let number = noted.files.get(&generation(live)).map_or(0, |(_, number)| *number);
        live.covered_by.set(number);
    }
    Ok(())
}

/// Removes what other shards noted, or all: a node with another number of shards has shared out the SSTables anew.
pub(crate) async fn remove_others(disk: &Disk, dir: &Path, shards: Option<u16>) -> Result<(), DiskError> {
    let own = shards.map(|shards| format!("-{shards}"));
    for entry in disk.list(dir).await? {
        let is_kept = own.as_ref().is_some_and(|own| entry.name.ends_with(own));
        if !entry.is_dir && entry.name.starts_with(FILE_PREFIX) && !is_kept {
            disk.remove(dir.join(&entry.name)).await?;
        }
    }
    Ok(())
}

fn generation(live: &LiveSstable) -> String {
    live.sstable.descriptor().generation.to_string()
}

/// The file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Noted {
    epoch: u64,
    last: u64,
    /// By generation: bytes of data, and the number that covers it.
    files: BTreeMap<String, (u64, u64)>,
}

impl Noted {
    fn of(store: &Store) -> Self {
        let set = store.set();
        let file =
            |live: &Rc<LiveSstable>| (generation(live), (live.sstable.data_len(), live.covered_by.get()));
        Self {
            epoch: store.marks.epoch.get(),
            last: store.marks.last.get(),
            files: set.iter().map(file).collect(),
        }
    }

    /// Whether all that it names is there.
    fn fits(&self, found: &SstableSet) -> bool {
        let there: BTreeMap<String, u64> =
            found.iter().map(|live| (generation(live), live.sstable.data_len())).collect();
        self.files.iter().all(|(generation, (bytes, _))| there.get(generation) == Some(bytes))
    }

    fn encode(&self) -> Vec<u8> {
        let mut body = vec![VERSION];
        body.extend_from_slice(&self.epoch.to_be_bytes());
        write_unsigned(self.last, &mut body);
        write_unsigned(self.files.len() as u64, &mut body);
        for (generation, (bytes, number)) in &self.files {
            write_unsigned(generation.len() as u64, &mut body);
            body.extend_from_slice(generation.as_bytes());
            write_unsigned(*bytes, &mut body);
            write_unsigned(*number, &mut body);
        }
        let mut out = crc32fast::hash(&body).to_be_bytes().to_vec();
        out.append(&mut body);
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, ShortRead> {
        let broken = ShortRead { needed: 1, left: 0 };
        let mut reader = Reader::new(bytes);
        if reader.u32()? != crc32fast::hash(reader.rest()) || reader.u8()? != VERSION {
            return Err(broken);
        }
        let (epoch, last) = (reader.u64()?, read_unsigned(&mut reader)?);
        let mut files = BTreeMap::new();
        for _ in 0..read_unsigned(&mut reader)? {
            let generation = String::from_utf8_lossy(reader.bytes_vint()?).into_owned();
            files.insert(generation, (read_unsigned(&mut reader)?, read_unsigned(&mut reader)?));
        }
        if reader.is_empty() && epoch != 0 { Ok(Self { epoch, last, files }) } else { Err(broken) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_and_damage_is_noticed() {
        let files = [("3", (1_000, 1)), ("7", (1 << 40, 0)), ("3gub_0a2o_2xnhc2ejdkv5ccufvt", (0, 12))];
        let files = files.into_iter().map(|(name, file)| (name.to_owned(), file)).collect();
        let noted = Noted { epoch: 0x1234_5678_9abc_def0, last: 12, files };
        let bytes = noted.encode();
        assert_eq!(Noted::decode(&bytes), Ok(noted));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(Noted::decode(&damaged).is_err(), "byte {at}");
            assert!(Noted::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn marks_of_another_epoch_mean_nothing() {
        let marks = Marks::new();
        assert!(!marks.knows(Mark { epoch: 0, number: 0 }));
        marks.epoch.set(5);
        assert!(marks.knows(Mark { epoch: 5, number: 1 }));
        assert!(!marks.knows(Mark { epoch: 6, number: 1 }));
        marks.set_floor(Mark { epoch: 5, number: 3 });
        assert_eq!(marks.floor.get(), 3);
        marks.set_floor(Mark { epoch: 6, number: 9 });
        assert_eq!(marks.floor.get(), 0);
    }
}
