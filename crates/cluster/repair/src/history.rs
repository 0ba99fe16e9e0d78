//! The time of the last repair of each range, in one small file: a repair that was interrupted resumes by it, compaction purges tombstones
//! by it, incremental repairs build on it, and an operator reads the age of each table's repair from it.
//!
//! ```text
//! file     := checksum (8, of the rest), version (1), vint count, { table id (16), times, times, sessions }
//! times    := vint count, { after (8), upto (8), seconds (4) }                 (of all repairs, of full ones)
//! sessions := vint count, { after (8), upto (8), id (8), seconds (4), vint shards, { epoch (8), vint number } }
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use mutation::{Repaired, Seconds};
use replica::RepairedWatermark;
use rt::sync::Semaphore;
use rt::{Disk, DiskError};
use schema::TableId;
use stdx::vint::{read_unsigned, write_unsigned};
use stdx::{Reader, ShortRead};
use topology::TokenRange;
use xxhash_rust::xxh3::xxh3_64;

use crate::sessions::{Session, Sessions};

const FILE_NAME: &str = "repairs";
const VERSION: u8 = 2;
/// Times of all repairs alone.
const VERSION_TIMES: u8 = 1;
const BYTES_MAX: usize = 256 << 20;

/// The state of all tables. A value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(BTreeMap<TableId, Arc<OfTable>>);

/// The state of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OfTable {
    repaired: Repaired,
    full: Repaired,
    sessions: Sessions,
}

impl History {
    /// The tables of which anything is known.
    pub fn tables(&self) -> impl Iterator<Item = (TableId, &Repaired)> {
        self.0.iter().map(|(table, known)| (*table, &known.repaired))
    }

    /// One table's.
    pub fn table(&self, table: TableId) -> Option<&Repaired> {
        self.0.get(&table).map(|known| &known.repaired)
    }

    /// The times of full repairs of one table's ranges.
    pub fn full(&self, table: TableId) -> Option<&Repaired> {
        self.0.get(&table).map(|known| &known.full)
    }

    /// The last sessions of one table.
    pub fn sessions(&self, table: TableId) -> Option<&Sessions> {
        self.0.get(&table).map(|known| &known.sessions)
    }

    /// When the part of a range was repaired for which that is longest ago; 0 for never. Times ahead of `now` do not count.
    pub fn oldest(&self, table: TableId, range: TokenRange, now: Seconds) -> Seconds {
        self.table(table).map_or(0, |repaired| repaired.oldest(range.after, range.upto, now))
    }

    /// When the part of a range was compared wholly for which that is longest ago; 0 for never. Times ahead of `now` do not count.
    pub fn oldest_full(&self, table: TableId, range: TokenRange, now: Seconds) -> Seconds {
        self.full(table).map_or(0, |full| full.oldest(range.after, range.upto, now))
    }

    /// Takes down at `now` that a range was repaired; `full` says whether everything was compared. Known times ahead of `now` give way.
    pub fn insert(&mut self, table: TableId, range: TokenRange, (at, now): (Seconds, Seconds), full: bool) {
        let known = Arc::make_mut(self.0.entry(table).or_default());
        known.repaired.insert(range.after, range.upto, at, now);
        if full {
            known.full.insert(range.after, range.upto, at, now);
        }
    }

    /// Records the marks on which the next repair of a range may build.
    pub fn insert_session(&mut self, table: TableId, range: TokenRange, session: Session) {
        Arc::make_mut(self.0.entry(table).or_default()).sessions.insert(range, session);
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
        for (table, known) in &self.0 {
            body.extend_from_slice(&table.0);
            put_times(&known.repaired, &mut body);
            put_times(&known.full, &mut body);
            put_sessions(&known.sessions, &mut body);
        }
        let mut out = xxh3_64(&body).to_be_bytes().to_vec();
        out.append(&mut body);
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, ShortRead> {
        let broken = ShortRead { needed: 1, left: 0 };
        let mut reader = Reader::new(bytes);
        if reader.u64()? != xxh3_64(reader.rest()) {
            return Err(broken);
        }
        let version = reader.u8()?;
        if version != VERSION && version != VERSION_TIMES {
            return Err(broken);
        }
        let mut tables = BTreeMap::new();
        for _ in 0..read_unsigned(&mut reader)? {
            let table = TableId(reader.array()?);
            let repaired = get_times(&mut reader)?;
            let known = match version {
                // Before there were others, every repair compared everything.
                VERSION_TIMES => OfTable { full: repaired.clone(), repaired, ..OfTable::default() },
                _ => {
                    OfTable { repaired, full: get_times(&mut reader)?, sessions: get_sessions(&mut reader)? }
                }
            };
            tables.insert(table, Arc::new(known));
        }
        if reader.is_empty() { Ok(Self(tables)) } else { Err(broken) }
    }
}

fn put_times(times: &Repaired, out: &mut Vec<u8>) {
    write_unsigned(times.ranges().len() as u64, out);
    for (after, upto, at) in times.ranges() {
        out.extend_from_slice(&after.to_be_bytes());
        out.extend_from_slice(&upto.to_be_bytes());
        out.extend_from_slice(&at.to_be_bytes());
    }
}

fn get_times(reader: &mut Reader<'_>) -> Result<Repaired, ShortRead> {
    let mut times = Repaired::default();
    for _ in 0..read_unsigned(reader)? {
        times.insert(reader.i64()?, reader.i64()?, reader.u32()?, Seconds::MAX);
    }
    Ok(times)
}

fn put_sessions(sessions: &Sessions, out: &mut Vec<u8>) {
    write_unsigned(sessions.ranges().len() as u64, out);
    for (range, session) in sessions.ranges() {
        out.extend_from_slice(&range.after.to_be_bytes());
        out.extend_from_slice(&range.upto.to_be_bytes());
        out.extend_from_slice(&session.id.to_be_bytes());
        out.extend_from_slice(&session.at.to_be_bytes());
        put_marks(&session.marks, out);
    }
}

fn get_sessions(reader: &mut Reader<'_>) -> Result<Sessions, ShortRead> {
    let mut sessions = Sessions::default();
    for _ in 0..read_unsigned(reader)? {
        let range = TokenRange { after: reader.i64()?, upto: reader.i64()? };
        let (id, at) = (reader.u64()?, reader.u32()?);
        sessions.insert(range, Session { id, at, marks: get_marks(reader)?.into() });
    }
    Ok(sessions)
}

/// Writes marks: vint count, { epoch (8), vint number }.
pub(crate) fn put_marks(marks: &[RepairedWatermark], out: &mut Vec<u8>) {
    write_unsigned(marks.len() as u64, out);
    for mark in marks {
        out.extend_from_slice(&mark.epoch.to_be_bytes());
        write_unsigned(mark.number, out);
    }
}

/// Reads marks.
pub(crate) fn get_marks(reader: &mut Reader<'_>) -> Result<Vec<RepairedWatermark>, ShortRead> {
    let mut marks = Vec::new();
    for _ in 0..read_unsigned(reader)? {
        marks.push(RepairedWatermark { epoch: reader.u64()?, number: read_unsigned(reader)? });
    }
    Ok(marks)
}

/// The history on disk. Lives on shard 0.
pub struct HistoryStore {
    disk: Disk,
    path: PathBuf,
    current: RefCell<Rc<History>>,
    /// One change is written at a time.
    writing: Semaphore,
}

impl HistoryStore {
    /// Reads the history kept in `directory` (which exists). One that is damaged or too long is as none: everything is due for repair then, and
    /// nothing that depends on repairs is forgotten.
    ///
    /// # Errors
    /// A [`DiskError`] when the file cannot be read for another reason than that it does not exist.
    pub async fn open(disk: &Disk, directory: &Path) -> Result<Self, DiskError> {
        let path = directory.join(FILE_NAME);
        let current = match disk.read_durably(&path, BYTES_MAX).await {
            Ok(bytes) => History::decode(&bytes).unwrap_or_else(|_| {
                tracing::error!("{} is damaged; all tables count as never repaired", path.display());
                History::default()
            }),
            Err(error) if error.is_not_found() => History::default(),
            Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => {
                tracing::error!("{error}; all tables count as never repaired");
                History::default()
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            disk: disk.clone(),
            path,
            current: RefCell::new(Rc::new(current)),
            writing: Semaphore::new(1),
        })
    }

    /// The durable state.
    pub fn current(&self) -> Rc<History> {
        self.current.borrow().clone()
    }

    /// One table's.
    pub fn table(&self, table: TableId) -> Repaired {
        self.current.borrow().table(table).cloned().unwrap_or_default()
    }

    /// Changes it durably.
    ///
    /// # Errors
    /// A [`DiskError`] when the history cannot be stored; the present one stays then.
    #[expect(clippy::expect_used, reason = "nothing closes the semaphore")]
    pub async fn change(&self, change: impl FnOnce(&mut History)) -> Result<(), DiskError> {
        let _one = self.writing.acquire(1).await.expect("it is never closed");
        let before = self.current();
        // It shares the tables that stay as they are.
        let mut changed = History::clone(&before);
        change(&mut changed);
        if changed != *before {
            self.disk.write_atomically(&self.path, &changed.encode()).await?;
            *self.current.borrow_mut() = Rc::new(changed);
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
        history.insert(TableId([1; 16]), TokenRange { after: i64::MIN, upto: 5 }, (100, 100), true);
        history.insert(TableId([1; 16]), TokenRange { after: 5, upto: 9 }, (200, 200), false);
        history.insert(TableId([2; 16]), TokenRange { after: -3, upto: 7 }, (300, 300), true);
        let marks = [
            RepairedWatermark { epoch: u64::MAX, number: 3 },
            RepairedWatermark { epoch: 1, number: 1 << 40 },
        ];
        let session = Session { id: 77, at: 300, marks: marks.into() };
        history.insert_session(TableId([2; 16]), TokenRange { after: -3, upto: 7 }, session);
        let bytes = history.encode();
        assert_eq!(History::decode(&bytes), Ok(history.clone()));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(History::decode(&damaged).is_err(), "byte {at}");
            assert!(History::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
        let whole = TokenRange { after: i64::MIN, upto: 9 };
        assert_eq!(history.oldest(TableId([1; 16]), whole, 300), 100);
        assert_eq!(history.oldest(TableId([1; 16]), TokenRange { after: 0, upto: 10 }, 300), 0);
        assert_eq!(history.oldest_full(TableId([1; 16]), TokenRange { after: 0, upto: 5 }, 300), 100);
        assert_eq!(history.oldest_full(TableId([1; 16]), whole, 300), 0);
        assert!(history.retain(|table| table == TableId([2; 16])));
        assert_eq!(history.oldest(TableId([1; 16]), whole, 300), 0);
    }

    #[test]
    fn times_of_a_wrong_clock_give_way_to_a_repair() {
        let (table, range) = (TableId([1; 16]), TokenRange { after: 0, upto: 9 });
        let mut history = History::default();
        history.insert(table, range, (9_000, 9_000), true);
        assert_eq!((history.oldest(table, range, 500), history.oldest_full(table, range, 500)), (0, 0));
        // Only data since the last repair are compared: the wrong time of the full one stays until there is another.
        history.insert(table, range, (490, 500), false);
        assert_eq!((history.oldest(table, range, 500), history.oldest_full(table, range, 500)), (490, 0));
        history.insert(table, range, (480, 510), true);
        assert_eq!((history.oldest(table, range, 510), history.oldest_full(table, range, 510)), (490, 480));
    }
}
