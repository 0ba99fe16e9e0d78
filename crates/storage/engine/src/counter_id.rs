//! Under which id this shard counts.
//!
//! A counter is a sum of shards, each raised by one owner, and of two versions of a shard the one with the later clock wins. So
//! a node that counts under an id must never forget a state of it that has left the node: it would continue from an old count with a new clock,
//! and every replica would prefer that as the newer. With `commitlog_sync: periodic` a power failure takes the last seconds of the log, and
//! with them such states. In the other modes the increment's own answer waits for the sync, but a read does not: it may find the state in
//! the memtable and carry it to another replica (read repair, a repair, a stream) before it is on disk. Therefore in each mode an id is not
//! used again after a process lifetime that may have lost some of its increments: the next one begins a shard of its own at zero, beside
//! the old one, of which the replicas keep the latest version.
//!
//! `counters-<shard>-<shards>` in the commit log's directory records that, written before the first increment of a process lifetime and when the
//! storage is closed. Without the file (a new node, a log that was removed, another number of shards) there is a new id, too; it is
//! removed when a table of counters has a damaged SSTable.
//!
//! ```text
//! file := version (1), condition (1), id (16), renewals (4), CRC-32 of these (4)
//! ```
//! docs/design/engine.md (*Counters*) has the alternatives.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::cell::RefCell;
use std::path::PathBuf;

use mutation::counter::CounterId;
use rt::sync::Semaphore;
use rt::{DiskError, Rt};

use crate::EngineConfig;

const VERSION: u8 = 1;
const FILE_LEN: usize = 26;
/// A longer file is not read.
const FILE_LEN_MAX: usize = 256;
const _: () = assert!(FILE_LEN <= FILE_LEN_MAX, "what is written is read");
/// An id costs 34 bytes in every counter that was raised under it, for good. A shard that has renewed its id so often keeps the last
/// one, and syncs every increment before it is answered.
pub(crate) const RENEWALS_MAX: u32 = 128;

/// The facts about the states that were reached under an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    /// All are on disk: the storage was closed.
    Closed,
    /// A power failure may undo some that have left the node.
    Open,
    /// Each is on disk before its increment is answered. Left by the last of [`RENEWALS_MAX`] ids, and by earlier versions where the log's mode
    /// syncs.
    Synced,
}

/// The stored form of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    condition: Condition,
    id: CounterId,
    renewals: u32,
}

impl Record {
    fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, self.condition as u8];
        out.extend_from_slice(&self.id);
        out.extend_from_slice(&self.renewals.to_be_bytes());
        out.extend_from_slice(&crc32fast::hash(&out).to_be_bytes());
        assert_eq!(Self::decode(&out).as_ref(), Some(self), "an id is read as it was written");
        out
    }

    /// None for bytes that this version did not write: they count for nothing.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (bytes, crc) = bytes
            .first_chunk::<FILE_LEN>()
            .filter(|all| all.len() == bytes.len())?
            .split_last_chunk::<4>()?;
        if u32::from_be_bytes(*crc) != crc32fast::hash(bytes) {
            return None;
        }
        let [VERSION, condition, rest @ ..] = bytes else { return None };
        let condition = match condition {
            0 => Condition::Closed,
            1 => Condition::Open,
            2 => Condition::Synced,
            _ => return None,
        };
        let (id, renewals) = rest.split_first_chunk::<16>()?;
        let renewals = u32::from_be_bytes(renewals.try_into().ok()?);
        Some(Self { condition, id: *id, renewals })
    }

    /// The record of a process lifetime after the one that left `before`. `fresh` is an id that nobody has. Pure.
    fn next(before: Option<Self>, fresh: CounterId) -> Self {
        let (id, renewals) = match before {
            None => (fresh, 0),
            Some(Self { condition, id, renewals })
                if condition == Condition::Closed || renewals >= RENEWALS_MAX =>
            {
                (id, renewals)
            }
            Some(Self { renewals, .. }) => (fresh, renewals + 1),
        };
        assert!(before.is_none_or(|before| before.renewals <= renewals), "renewals of an id only rise");
        let synced = renewals >= RENEWALS_MAX;
        Self { condition: if synced { Condition::Synced } else { Condition::Open }, id, renewals }
    }
}

/// The id under which a counter of this process lifetime is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counting {
    /// The id.
    pub(crate) id: CounterId,
    /// Whether the log is to be synced before a state leaves.
    pub(crate) sync: bool,
}

/// The ids of one shard.
pub(crate) struct CounterIds {
    path: PathBuf,
    log_syncs: bool,
    /// Of this process lifetime; none before the first increment.
    record: RefCell<Option<Record>>,
    /// For tables whose writes are not logged: any end of the process forgets them.
    unlogged: CounterId,
    opening: Semaphore,
}

impl CounterIds {
    pub(crate) fn new(rt: &Rt, config: &EngineConfig) -> Self {
        let name = format!("counters-{}-{}", rt.shard().0, rt.shard_count());
        Self {
            path: config.commitlog.directory.join(name),
            log_syncs: !matches!(config.commitlog.sync, commitlog::SyncMode::Periodic { .. }),
            record: RefCell::default(),
            unlogged: fresh(rt),
            opening: Semaphore::new(1),
        }
    }

    /// How to raise a counter of a table whose writes are logged, or are not (`durable_writes`).
    pub(crate) async fn counting(&self, rt: &Rt, logged: bool) -> Result<Counting, DiskError> {
        if !logged {
            return Ok(Counting { id: self.unlogged, sync: false });
        }
        if self.record.borrow().is_none() {
            let _alone = self.opening.acquire(1).await;
            if self.record.borrow().is_none() {
                let before = match rt.disk().exists(&self.path).await? {
                    true => Record::decode(&rt.disk().read_durably(&self.path, FILE_LEN_MAX).await?),
                    false => None,
                };
                let record = Record::next(before, fresh(rt));
                rt.disk().write_atomically(&self.path, &record.encode()).await?;
                let before = self.record.borrow_mut().replace(record);
                assert!(before.is_none(), "an id is chosen once in a process lifetime");
            }
        }
        let record = self.record.borrow().expect("it has just been made");
        let sync = record.condition == Condition::Synced && !self.log_syncs;
        Ok(Counting { id: record.id, sync })
    }

    /// States that were reached under the id may be in files that cannot be read, and will be gone for good: the next increment
    /// begins a new one.
    pub(crate) async fn forget(&self, rt: &Rt) -> Result<(), DiskError> {
        assert!(self.record.borrow().is_none(), "nothing is counted before the storage is open");
        if rt.disk().exists(&self.path).await? {
            rt.disk().remove(&self.path).await?;
            rt.disk().sync_dir(self.path.parent().unwrap_or(&self.path)).await?;
        }
        Ok(())
    }

    /// All that was counted in this process lifetime is on disk: the next one may go on under the same id.
    pub(crate) async fn close(&self, rt: &Rt) -> Result<(), DiskError> {
        let Some(record) = *self.record.borrow() else { return Ok(()) };
        assert!(record.condition != Condition::Closed, "an id that is counted under is not closed");
        let closed = Record { condition: Condition::Closed, ..record };
        rt.disk().write_atomically(&self.path, &closed.encode()).await
    }
}

fn fresh(rt: &Rt) -> CounterId {
    let mut id = [0; 16];
    rt.fill_random(&mut id);
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_kept_when_the_storage_was_closed() {
        let (id, fresh) = ([1; 16], [2; 16]);
        let before = |condition, renewals| Some(Record { condition, id, renewals });
        let next = |before| Record::next(before, fresh);
        let condition = Condition::Open;
        assert_eq!(next(None), Record { condition, id: fresh, renewals: 0 });
        assert_eq!(next(before(Condition::Closed, 3)), Record { condition, id, renewals: 3 });
        let renewed = Record { condition, id: fresh, renewals: 4 };
        for unclean in [Condition::Open, Condition::Synced] {
            assert_eq!(next(before(unclean, 3)), renewed, "a power failure may have undone some");
        }
        // From the last renewal on each increment is synced, and the id stays.
        let last = next(before(Condition::Open, RENEWALS_MAX - 1));
        assert_eq!(last, Record { condition: Condition::Synced, id: fresh, renewals: RENEWALS_MAX });
        assert_eq!(Record::next(Some(last), [3; 16]), last);
        let closed = Record { condition: Condition::Closed, ..last };
        assert_eq!(Record::next(Some(closed), [3; 16]), last);
    }

    #[test]
    fn a_damaged_record_stands_for_nothing() {
        let record = Record { condition: Condition::Synced, id: [9; 16], renewals: 77 };
        let bytes = record.encode();
        assert_eq!(bytes.len(), FILE_LEN);
        assert_eq!(Record::decode(&bytes), Some(record));
        for cut in 0..bytes.len() {
            assert_eq!(Record::decode(&bytes[..cut]), None);
        }
        for place in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[place] ^= 1;
            assert_eq!(Record::decode(&bytes), None, "byte {place}");
        }
    }
}
