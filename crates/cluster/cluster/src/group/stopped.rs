//! An operator's tools for the log of a stopped node: show it, remove an entry that no node can read, and make a
//! group of the nodes that are left when a majority of the voters is lost for good (docs/operations/cluster-log.md).

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use raft::{Config, Entry, Membership, Node, Payload, Snapshot, Stored};
use rt::{DiskError, LockGuard, Rt};
use topology::HostId;

use super::error::GroupError;
use super::log::{LogError, RaftLog};
use super::start::FOLDER;
use crate::dropped::DropLog;
use crate::error::StoreError;
use crate::state::{self, ClusterState, Member, Proposal, Recovery};

/// Terms that the group made anew is ahead of all that the lost voters can have seen.
const TERMS_AHEAD: u64 = 1_000;

/// Why the log of a stopped node was left as it is.
#[derive(Debug, thiserror::Error)]
pub enum StoppedError {
    /// The node runs, or another tool works on its directory.
    #[error("{path}: {why}; stop the node first")]
    Locked {
        /// The lock's file.
        path: PathBuf,
        /// The error of the lock.
        why: String,
    },
    /// There is no log.
    #[error("{0} has no log of a cluster: name the node's data directory")]
    NoLog(PathBuf),
    /// The log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Another file beside it.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The list of dropped tables.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Reading the log failed.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// No such entry.
    #[error("the log has the entries {first} to {last}, and no entry {index} of term {term}")]
    NoEntry {
        /// The first.
        first: u64,
        /// The last.
        last: u64,
        /// The one that was named.
        index: u64,
        /// Its term.
        term: u64,
    },
    /// Nodes that can read an entry would differ from those that skip it.
    #[error(
        "entry {index} ({what}) can be applied by this version: only what no node can read may be skipped"
    )]
    Readable {
        /// Which entry.
        index: u64,
        /// Its content.
        what: String,
    },
    /// The lost nodes are not a majority.
    #[error(
        "{left} of {voters} voters are left, which is a majority: start them, and remove the lost nodes with nodetool removenode"
    )]
    HasMajority {
        /// Voters that are not lost.
        left: usize,
        /// All voters.
        voters: usize,
    },
    /// A host that is no member.
    #[error("{0} is the host id of no member")]
    UnknownHost(String),
    /// The node itself is among the lost ones.
    #[error("the log of this node is to be gone on with, so that it cannot be among the lost ones")]
    OwnLost,
}

/// An entry as a person is shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownEntry {
    /// Its index.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// Its content.
    pub what: String,
    /// Why this version cannot read it, if it cannot.
    pub unreadable: Option<String>,
}

/// The log of a stopped node.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The node's number in the group.
    pub number: u64,
    /// The last term that it saw.
    pub term: u64,
    /// Entries up to here are known to be decided.
    pub commit: u64,
    /// The snapshot's last entry; 0 without a snapshot.
    pub snapshot: u64,
    /// The last entry's term and index: of several stopped nodes the one with the greatest has all that was decided.
    pub last: (u64, u64),
    /// Voters and learners, as of the last entry.
    pub membership: Membership,
    /// The members, with their descriptions; none where an entry cannot be read.
    pub members: BTreeMap<HostId, Member>,
    /// The entries behind the snapshot.
    pub entries: Vec<ShownEntry>,
}

/// The log of a node that does not run. Nobody can start the node meanwhile.
pub struct StoppedLog {
    rt: Rt,
    node: PathBuf,
    log: RaftLog,
    stored: Stored,
    _lock: LockGuard,
}

/// All that is in a log, applied.
struct Replayed {
    before: ClusterState,
    after: ClusterState,
    membership: Membership,
}

impl StoppedLog {
    /// Opens the log in `node`, a node's own directory (`.torc` in its data directory).
    ///
    /// # Errors
    /// A node that runs, a directory without a log, or a damaged one.
    pub async fn open(rt: &Rt, node: &Path) -> Result<Self, StoppedError> {
        let no_log = || StoppedError::NoLog(node.to_owned());
        if !rt.disk().is_dir(node.join(FOLDER)).await? {
            return Err(no_log());
        }
        let path = node.join("lock");
        let lock = rt.disk().lock_exclusive(&path).await;
        let lock = lock.map_err(|error| StoppedError::Locked { path, why: error.to_string() })?;
        let (log, stored) = RaftLog::open(rt, &node.join(FOLDER)).await?.ok_or_else(no_log)?;
        if stored.snapshot.is_none() {
            return Err(no_log());
        }
        Ok(Self { rt: rt.clone(), node: node.to_owned(), log, stored, _lock: lock })
    }

    fn last(&self) -> (u64, u64) {
        let base = self.stored.snapshot.as_ref().map_or((0, 0), |snapshot| (snapshot.term, snapshot.index));
        self.stored.entries.last().map_or(base, |entry| (entry.term, entry.index).max(base))
    }

    /// Reads the log's content.
    ///
    /// # Errors
    /// A log that cannot be one.
    pub fn show(&self) -> Result<Shown, StoppedError> {
        let replayed = self.replay();
        let snapshot = self.stored.snapshot.as_ref();
        let membership = snapshot.map(|snapshot| snapshot.membership.clone()).unwrap_or_default();
        let (membership, members) = match replayed {
            Ok(replayed) => (replayed.membership, replayed.after.members),
            Err(StoppedError::Group(GroupError::Entry { .. })) => (membership, BTreeMap::new()),
            Err(error) => return Err(error),
        };
        let base = snapshot.map_or(0, |snapshot| snapshot.index);
        let behind = self.stored.entries.iter().filter(|entry| entry.index > base);
        Ok(Shown {
            number: self.log.member(),
            term: self.stored.hard_state.term,
            commit: self.stored.hard_state.commit,
            snapshot: base,
            last: self.last(),
            membership,
            members,
            entries: behind.map(shown).collect(),
        })
    }

    /// Takes the content of an entry that this version cannot read out of the log; an entry without content stays in its place. The
    /// bytes are written to a file beside the log, whose path is returned; none when it was taken out before.
    ///
    /// All nodes must do so before one of them starts: they disagree on an entry that one applies and another skips. An entry that this
    /// version reads is therefore not taken out.
    ///
    /// # Errors
    /// No such entry, or one that can be read.
    pub async fn skip(&mut self, index: u64, term: u64) -> Result<Option<PathBuf>, StoppedError> {
        let first = self.stored.snapshot.as_ref().map_or(0, |snapshot| snapshot.index) + 1;
        let last = self.last().1;
        let entry = self.stored.entries.iter_mut().find(|entry| (entry.index, entry.term) == (index, term));
        let entry = entry.ok_or(StoppedError::NoEntry { first, last, index, term })?;
        let bytes = match &entry.payload {
            Payload::Empty => return Ok(None),
            Payload::Command(bytes) if Proposal::decode(bytes).is_err() => bytes.clone(),
            _ => return Err(StoppedError::Readable { index, what: shown(entry).what }),
        };
        let path = self.node.join(FOLDER).join(format!("skipped-{index}-{term}"));
        self.rt.disk().write_atomically(&path, &bytes).await?;
        entry.payload = Payload::Empty;
        self.rewrite().await?;
        Ok(Some(path))
    }

    /// Makes this node the only voter of the group; the members that are not lost follow it, and get votes again when they have
    /// its log. All that its log holds counts as decided. Returns the last entry that the log had.
    ///
    /// To be done on one node, the one with the greatest last entry of all that are left, and only when the lost ones never come
    /// back with their old directories. They stay members until `nodetool removenode`.
    ///
    /// # Errors
    /// The voters that are left are a majority; a host that is no member; an entry that cannot be read.
    pub async fn force_majority(&mut self, lost: &[HostId]) -> Result<u64, StoppedError> {
        let Replayed { before, mut after, membership } = self.replay()?;
        let own = self.log.member();
        let mut numbers = Vec::new();
        for host in lost {
            let member = after.member(*host);
            let member = member.ok_or_else(|| StoppedError::UnknownHost(state::text::uuid(&host.0)))?;
            numbers.push(member.number);
        }
        if numbers.contains(&own) {
            return Err(StoppedError::OwnLost);
        }
        let majority = |voters: &std::collections::BTreeSet<u64>| {
            let left = voters.iter().filter(|number| !numbers.contains(number)).count();
            (2 * left > voters.len() || voters.is_empty()).then_some(left)
        };
        if let (Some(left), Some(_)) = (majority(&membership.voters), majority(&membership.outgoing)) {
            return Err(StoppedError::HasMajority { left, voters: membership.voters.len() });
        }
        let (_, base) = self.last();
        let mut id = [0; 16];
        self.rt.fill_random(&mut id);
        after.recovery = Some(Recovery { id, base });
        self.note_drops(&before, &after).await?;
        let learners = membership.all().into_iter().filter(|number| *number != own).collect();
        let term = self.stored.hard_state.term + TERMS_AHEAD;
        let snapshot = Snapshot {
            index: base + 1,
            term,
            membership: Membership { learners, ..Membership::alone(own) },
            data: Bytes::from(after.encode()),
        };
        let others = snapshot.membership.learners.len() + 1;
        assert_eq!(others, snapshot.membership.all().len(), "the only voter is no learner");
        let hard_state = raft::HardState { term, vote: 0, commit: base + 1 };
        self.stored = Stored { hard_state, snapshot: Some(snapshot), entries: Vec::new() };
        self.rewrite().await?;
        Ok(base)
    }

    /// Tables that an entry drops which the node had not applied: their files are removed at its start.
    async fn note_drops(&self, before: &ClusterState, after: &ClusterState) -> Result<(), StoppedError> {
        let mut drops = DropLog::open(self.rt.disk(), &self.node).await?;
        let gone = before.schema.tables().filter(|table| after.schema.table_by_id(table.id).is_none());
        let known = |id| drops.tables().iter().any(|dropped| dropped.id == id);
        let gone: Vec<_> = gone.filter(|table| !known(table.id)).map(|table| &**table).collect();
        if !gone.is_empty() {
            drops.add(&gone, self.rt.wall_micros()).await?;
        }
        Ok(())
    }

    #[expect(clippy::expect_used, reason = "a log opens only with its snapshot")]
    async fn rewrite(&mut self) -> Result<(), StoppedError> {
        let snapshot = self.stored.snapshot.clone().expect("a log is opened with its snapshot");
        let behind = self.stored.entries.iter().filter(|entry| entry.index > snapshot.index);
        let behind: Vec<Entry> = behind.cloned().collect();
        Ok(self.log.restart(&snapshot, self.stored.hard_state, &behind).await?)
    }

    /// Applies all entries, as if all were decided.
    #[expect(clippy::expect_used, reason = "a log opens only with its snapshot")]
    fn replay(&self) -> Result<Replayed, StoppedError> {
        let snapshot = self.stored.snapshot.as_ref().expect("a log is opened with its snapshot");
        let unknown = ClusterState::unknown("", crate::own_schema());
        let read = unknown.decode_after(&snapshot.data);
        let before = read.map_err(|error| GroupError::Snapshot { index: snapshot.index, error })?;
        let mut stored = self.stored.clone();
        stored.hard_state.commit = self.last().1;
        let mut node = Node::new(Config::new(self.log.member(), 0), stored).map_err(GroupError::from)?;
        let mut after = before.clone();
        while let Some(batch) = node.take() {
            for entry in node.persisted(batch).committed {
                let raft::Outcome::Command(bytes) = entry.outcome else { continue };
                let proposal = Proposal::decode(&bytes);
                let proposal = proposal
                    .map_err(|error| GroupError::unreadable(entry.index, entry.term, &bytes, error))?;
                after = after.apply(proposal).0;
            }
        }
        Ok(Replayed { before, after, membership: node.membership().clone() })
    }
}

fn shown(entry: &Entry) -> ShownEntry {
    let (what, unreadable) = match &entry.payload {
        Payload::Empty => ("nothing".to_owned(), None),
        Payload::Membership(changes) => (format!("votes: {changes:?}"), None),
        Payload::Command(bytes) => {
            let error = Proposal::decode(bytes).err().map(|error| error.to_string());
            (state::command_kind(bytes), error)
        }
    };
    ShownEntry { index: entry.index, term: entry.term, what, unreadable }
}
