//! The log in memory, as the `raft` crate reads it: the latest snapshot, and the entries beside and after it.
//! Its content is durable, or is being made so in the same batch.

use std::cell::Cell;
use std::collections::VecDeque;

use tikv_raft::eraftpb as pb;
use tikv_raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};

use crate::convert;
use crate::data::{HardState, Membership, Snapshot, Stored};

pub(crate) struct Store {
    pub(crate) hard_state: HardState,
    /// As of the last applied entry.
    pub(crate) membership: Membership,
    snapshot: Option<Snapshot>,
    /// Index and term before the first entry.
    base: (u64, u64),
    entries: VecDeque<pb::Entry>,
    bytes: u64,
    /// A peer needs a newer snapshot than there is.
    wanted: Cell<bool>,
}

impl Store {
    /// The log as it was found. The caller has checked that it is one.
    pub(crate) fn new(stored: Stored) -> Self {
        let at_snapshot = stored.snapshot.as_ref().map_or((0, 0), |snapshot| (snapshot.index, snapshot.term));
        let mut store = Self {
            hard_state: stored.hard_state,
            membership: stored
                .snapshot
                .as_ref()
                .map(|snapshot| snapshot.membership.clone())
                .unwrap_or_default(),
            snapshot: stored.snapshot,
            base: at_snapshot,
            entries: VecDeque::new(),
            bytes: 0,
            wanted: Cell::new(false),
        };
        // Entries before the snapshot are not needed to continue: a term before the first one would be missing.
        let needed = stored.entries.iter().filter(|entry| entry.index > at_snapshot.0);
        store.append(needed.map(convert::entry_to_pb).collect());
        let commit = store.hard_state.commit;
        store.hard_state.commit = commit.max(at_snapshot.0).min(store.last());
        store
    }

    pub(crate) fn first(&self) -> u64 {
        self.base.0 + 1
    }

    pub(crate) fn last(&self) -> u64 {
        self.base.0 + self.entries.len() as u64
    }

    /// Bytes of the entries.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn snapshot_index(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.index)
    }

    /// The term of an entry, or of the one before the first.
    pub(crate) fn term_of(&self, index: u64) -> Option<u64> {
        if index == self.base.0 {
            return Some(self.base.1);
        }
        self.entries.get(index.checked_sub(self.first())? as usize).map(|entry| entry.term)
    }

    /// Entries from `from` on.
    pub(crate) fn since(&self, from: u64) -> impl Iterator<Item = &pb::Entry> {
        let skipped = from.saturating_sub(self.first()) as usize;
        self.entries.iter().skip(skipped)
    }

    /// Whether a peer waits for a newer snapshot; asked for once.
    pub(crate) fn take_wanted(&self) -> bool {
        self.wanted.replace(false)
    }

    pub(crate) fn append(&mut self, entries: Vec<pb::Entry>) {
        let Some(head) = entries.first() else { return };
        assert!(head.index > self.base.0, "entry {} was compacted already", head.index);
        assert!(head.index <= self.last() + 1, "a gap before entry {}", head.index);
        let kept = (head.index - self.first()) as usize;
        let gone: u64 = self.entries.drain(kept..).map(|entry| size(&entry)).sum();
        self.bytes -= gone;
        for entry in entries {
            assert_eq!(entry.index, self.last() + 1, "entries follow each other");
            self.bytes += size(&entry);
            self.entries.push_back(entry);
        }
    }

    /// A leader's snapshot takes the place of everything.
    pub(crate) fn install(&mut self, snapshot: Snapshot) {
        assert!(snapshot.index > self.snapshot_index(), "a snapshot is newer than the one before");
        self.base = (snapshot.index, snapshot.term);
        self.entries.clear();
        self.bytes = 0;
        self.hard_state.commit = self.hard_state.commit.max(snapshot.index);
        self.membership = snapshot.membership.clone();
        self.snapshot = Some(snapshot);
        self.wanted.set(false);
    }

    /// This node's own snapshot, durable by now: its entries are removed, except for the last `kept` and at most so many bytes.
    #[expect(clippy::expect_used, reason = "the log reaches to the snapshot")]
    pub(crate) fn compact(&mut self, snapshot: Snapshot, kept: u64, bytes_max: u64) {
        assert!(snapshot.index >= self.snapshot_index(), "a snapshot is not older than the one before");
        assert!(snapshot.index <= self.last(), "a snapshot contains entries of the log");
        while self.base.0 + kept < snapshot.index || (self.bytes > bytes_max && self.base.0 < snapshot.index)
        {
            let entry = self.entries.pop_front().expect("the log reaches to the snapshot");
            self.bytes -= size(&entry);
            self.base = (entry.index, entry.term);
        }
        self.snapshot = Some(snapshot);
    }
}

fn size(entry: &pb::Entry) -> u64 {
    (entry.data.len() + entry.context.len() + 32) as u64
}

impl Storage for Store {
    fn initial_state(&self) -> Result<RaftState> {
        Ok(RaftState::new(
            convert::hard_state_to_pb(&self.hard_state),
            convert::membership_to_pb(&self.membership),
        ))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> Result<Vec<pb::Entry>> {
        if low < self.first() {
            return Err(Error::Store(StorageError::Compacted));
        }
        assert!(
            high <= self.last() + 1,
            "entries up to {high} were asked for, the log ends at {}",
            self.last()
        );
        let bytes_max = max_size.into().unwrap_or(u64::MAX);
        let mut bytes = 0;
        let fits = |entry: &&pb::Entry| {
            bytes += size(entry);
            bytes <= bytes_max || entry.index == low
        };
        Ok(self.since(low).take((high - low) as usize).take_while(fits).cloned().collect())
    }

    fn term(&self, index: u64) -> Result<u64> {
        self.term_of(index).ok_or(Error::Store(if index < self.base.0 {
            StorageError::Compacted
        } else {
            StorageError::Unavailable
        }))
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.first())
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last())
    }

    /// A peer takes a snapshot only when it belongs to the group as of it; a newer one is requested otherwise.
    fn snapshot(&self, request_index: u64, to: u64) -> Result<pb::Snapshot> {
        match &self.snapshot {
            Some(snapshot) if snapshot.index >= request_index && snapshot.membership.contains(to) => {
                Ok(convert::snapshot_to_pb(snapshot))
            }
            _ => {
                self.wanted.set(true);
                Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
            }
        }
    }
}
