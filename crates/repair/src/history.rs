//! When what was repaired last, kept in one small file: a repair that was interrupted goes on by it, compaction forgets deletions
//! by it, and an operator reads the age of each table's repair from it.
//!
//! ```text
//! file  := checksum (8, of what follows), version (1), vint count, { table id (16), vint count, { after (8), upto (8), seconds (4) } }
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mutation::{Repaired, Seconds};
use rt::sync::Semaphore;
use rt::{Disk, DiskError};
use schema::TableId;
use stdx::vint::{read_unsigned, write_unsigned};
use stdx::{Reader, ShortRead};
use topology::TokenRange;
use xxhash_rust::xxh3::xxh3_64;

const FILE_NAME: &str = "repairs";
const VERSION: u8 = 1;
const BYTES_MAX: usize = 256 << 20;

/// The times of all tables. A value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(BTreeMap<TableId, Repaired>);

impl History {
    /// The tables of which anything is known.
    pub fn tables(&self) -> impl Iterator<Item = (TableId, &Repaired)> {
        self.0.iter().map(|(table, repaired)| (*table, repaired))
    }

    /// One table's.
    pub fn table(&self, table: TableId) -> Option<&Repaired> {
        self.0.get(&table)
    }

    /// When the part of a range was repaired for which that is longest ago; 0 for never.
    pub fn oldest(&self, table: TableId, range: TokenRange) -> Seconds {
        self.table(table).map_or(0, |repaired| repaired.oldest(range.after, range.upto))
    }

    /// Takes down a repair.
    pub fn insert(&mut self, table: TableId, range: TokenRange, at: Seconds) {
        self.0.entry(table).or_default().insert(range.after, range.upto, at);
    }

    /// Keeps only these tables; whether any went.
    pub fn retain(&mut self, keep: impl Fn(TableId) -> bool) -> bool {
        let before = self.0.len();
        self.0.retain(|table, _| keep(*table));
        self.0.len() != before
    }

    fn encode(&self) -> Vec<u8> {
        let mut body = vec![VERSION];
        write_unsigned(self.0.len() as u64, &mut body);
        for (table, repaired) in &self.0 {
            body.extend_from_slice(&table.0);
            write_unsigned(repaired.ranges().len() as u64, &mut body);
            for (after, upto, at) in repaired.ranges() {
                body.extend_from_slice(&after.to_be_bytes());
                body.extend_from_slice(&upto.to_be_bytes());
                body.extend_from_slice(&at.to_be_bytes());
            }
        }
        let mut out = xxh3_64(&body).to_be_bytes().to_vec();
        out.append(&mut body);
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, ShortRead> {
        let broken = ShortRead { needed: 1, left: 0 };
        let mut reader = Reader::new(bytes);
        if reader.u64()? != xxh3_64(reader.rest()) || reader.u8()? != VERSION {
            return Err(broken);
        }
        let mut tables = BTreeMap::new();
        for _ in 0..read_unsigned(&mut reader)? {
            let table = TableId(reader.bytes(16)?.try_into().expect("16 bytes"));
            let mut repaired = Repaired::default();
            for _ in 0..read_unsigned(&mut reader)? {
                repaired.insert(reader.i64()?, reader.i64()?, reader.u32()?);
            }
            tables.insert(table, repaired);
        }
        if reader.is_empty() { Ok(Self(tables)) } else { Err(broken) }
    }
}

/// The history on disk. Lives on shard 0.
pub struct HistoryStore {
    disk: Disk,
    path: PathBuf,
    current: RefCell<History>,
    /// One change is written at a time.
    writing: Semaphore,
}

impl HistoryStore {
    /// Reads the history kept in `directory` (which exists). One that is damaged is as none: everything is due for repair then, and
    /// nothing that depends on repairs is forgotten.
    pub async fn open(disk: &Disk, directory: &Path) -> Result<Self, DiskError> {
        let path = directory.join(FILE_NAME);
        let current = match disk.read_to_end(&path, BYTES_MAX).await {
            Ok(bytes) => History::decode(&bytes).unwrap_or_else(|_| {
                tracing::error!("{} is damaged; all tables count as never repaired", path.display());
                History::default()
            }),
            Err(error) if error.is_not_found() => History::default(),
            Err(error) => return Err(error),
        };
        Ok(Self { disk: disk.clone(), path, current: RefCell::new(current), writing: Semaphore::new(1) })
    }

    /// What is known, durably.
    pub fn current(&self) -> History {
        self.current.borrow().clone()
    }

    /// One table's.
    pub fn table(&self, table: TableId) -> Repaired {
        self.current.borrow().table(table).cloned().unwrap_or_default()
    }

    /// Changes it durably.
    pub async fn change(&self, change: impl FnOnce(&mut History)) -> Result<(), DiskError> {
        let _one = self.writing.acquire(1).await.expect("it is never closed");
        let mut changed = self.current();
        change(&mut changed);
        if changed != *self.current.borrow() {
            self.disk.write_atomically(&self.path, &changed.encode()).await?;
            *self.current.borrow_mut() = changed;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_and_damage_is_noticed() {
        let mut history = History::default();
        history.insert(TableId([1; 16]), TokenRange { after: i64::MIN, upto: 5 }, 100);
        history.insert(TableId([1; 16]), TokenRange { after: 5, upto: 9 }, 200);
        history.insert(TableId([2; 16]), TokenRange { after: -3, upto: 7 }, 300);
        let bytes = history.encode();
        assert_eq!(History::decode(&bytes), Ok(history.clone()));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(History::decode(&damaged).is_err(), "byte {at}");
            assert!(History::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
        let whole = TokenRange { after: i64::MIN, upto: 9 };
        assert_eq!(history.oldest(TableId([1; 16]), whole), 100);
        assert_eq!(history.oldest(TableId([1; 16]), TokenRange { after: 0, upto: 10 }), 0);
        assert!(history.retain(|table| table == TableId([2; 16])));
        assert_eq!(history.oldest(TableId([1; 16]), whole), 0);
    }
}
