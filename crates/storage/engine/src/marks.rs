//! How far a table's SSTables of one shard have come with incremental repairs. Why it is done this way: docs/design/repair.md.
//!
//! A repair takes a *mark*: a number, and with it everything that SSTables hold at that moment is covered. Later it reads only
//! data above a mark. Which SSTable is covered by which number stands in one small file of the table's directory,
//! `marks-<shard>-<shards>`, together with every SSTable that no mark covers yet and a random *epoch*. When the shard opens and one of
//! the SSTables named there is gone or another one, the epoch ends, and with it every mark that was ever taken: lost data may
//! be data that a repair counts on.
//!
//! ```text
//! file := CRC-32 of the rest (4), version (1), epoch (8), vint last number, vint count,
//!         { vint length, generation, vint bytes of data, vint number, 0 for not covered }
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use rt::{Disk, DiskError};
use stdx::vint::{read_unsigned, write_unsigned};
use stdx::{Reader, ShortRead};

use crate::OpenError;
use crate::engine::Inner;
use crate::live::LiveSstable;
use crate::sstables::SstableSet;
use crate::store::Store;

const VERSION: u8 = 1;
const FILE_PREFIX: &str = "marks-";
const FILE_LEN_MAX: usize = 64 << 20;

/// Takes down that the set has changed.
pub(crate) async fn note(inner: &Inner, store: &Store) {
    if store.marks.epoch() == 0 || store.dropped.get() {
        return;
    }
    // A stale entry of the file ends the epoch at the next start.
    if let Err(error) = write(inner, store).await {
        tracing::warn!("the repaired ranges of {} cannot be recorded: {error}", store.table().full_name());
    }
}

/// Ends the epoch: data has left the table that a repair may count on.
pub(crate) async fn forget(inner: &Inner, store: &Store) -> Result<(), DiskError> {
    let marks = &store.marks;
    marks.end();
    store.set().iter().for_each(|live| live.covered_by.set(0));
    let _one = marks.writing().await;
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

pub(crate) async fn write(inner: &Inner, store: &Store) -> Result<(), DiskError> {
    let _one = store.marks.writing().await;
    let noted = Noted::of(store);
    // It may have ended while another was writing.
    if noted.epoch == 0 {
        return Ok(());
    }
    let bytes = noted.encode();
    assert_eq!(Noted::decode(&bytes).as_ref(), Ok(&noted), "marks are read as they were written");
    inner.rt.disk().write_atomically(store.dir.join(file_name(inner)), &bytes).await
}

/// Reads the marks of the SSTables that a shard found.
pub(crate) async fn open(inner: &Inner, store: &Store, found: &SstableSet) -> Result<(), OpenError> {
    let (disk, path) = (inner.rt.disk(), store.dir.join(file_name(inner)));
    let bytes = match disk.read_durably(&path, FILE_LEN_MAX).await {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let noted = Noted::decode(&bytes).ok().filter(|noted| store.damages.is_empty() && noted.fits(found));
    let Some(noted) = noted else {
        let table = store.table().full_name();
        tracing::warn!("SSTables of {table} are gone or were replaced: its next repair compares everything");
        return Ok(remove(disk, &store.dir, &file_name(inner)).await?);
    };
    store.marks.restore(noted.epoch, noted.last);
    for live in found.iter() {
        let number = noted.files.get(&generation(live)).map_or(0, |(_, number)| *number);
        live.cover(number);
    }
    Ok(())
}

/// Removes the marks of other shards, or all: a node with another number of shards has shared out the SSTables anew.
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
        let (epoch, last) = (store.marks.epoch(), store.marks.last());
        let files: BTreeMap<String, (u64, u64)> = set.iter().map(file).collect();
        assert!(files.values().all(|(_, number)| *number <= last), "numbers that cover were given out");
        Self { epoch, last, files }
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
        let is_sound = epoch != 0 && files.values().all(|(_, number)| *number <= last);
        if reader.is_empty() && is_sound { Ok(Self { epoch, last, files }) } else { Err(broken) }
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
}
