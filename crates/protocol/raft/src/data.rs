//! The inputs and outputs of a node of the group, as plain values.

use std::collections::BTreeSet;

use bytes::Bytes;

/// Bytes of one command at most.
pub const ENTRY_BYTES_MAX: usize = 16 << 20;

/// A node's promises: durable before any message that depends on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The latest term that it has seen.
    pub term: u64,
    /// Its vote in that term; 0 for none.
    pub vote: u64,
    /// Entries up to here are known to be committed. May lag behind.
    pub commit: u64,
}

/// A place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// From 1, without gaps.
    pub index: u64,
    /// The term of the leader that made it.
    pub term: u64,
    /// Its content.
    pub payload: Payload,
}

/// The content of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Nothing: a leader's first entry.
    Empty,
    /// A command of the state above. Never empty.
    Command(Bytes),
    /// A change of the group's members; without changes, the end of a joint configuration.
    Membership(Vec<Change>),
}

/// One change of the group's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Gives a node a vote.
    AddVoter(u64),
    /// Adds a node as a learner, or makes a voter one.
    AddLearner(u64),
    /// Removes a node.
    Remove(u64),
}

/// The members of the group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The voters.
    pub voters: BTreeSet<u64>,
    /// The learners.
    pub learners: BTreeSet<u64>,
    /// In a joint configuration: the former voters; a majority of these is needed, too.
    pub outgoing: BTreeSet<u64>,
    /// In a joint configuration: the voters that become learners.
    pub learners_next: BTreeSet<u64>,
    /// The leader ends the joint configuration by itself.
    pub auto_leave: bool,
}

impl Membership {
    /// A group of one.
    pub fn alone(node: u64) -> Self {
        Self { voters: BTreeSet::from([node]), ..Self::default() }
    }

    /// Whether a node belongs to it in any way.
    pub fn contains(&self, node: u64) -> bool {
        [&self.voters, &self.learners, &self.outgoing, &self.learners_next]
            .iter()
            .any(|nodes| nodes.contains(&node))
    }

    /// Whether a node has a vote.
    pub fn votes(&self, node: u64) -> bool {
        self.voters.contains(&node) || self.outgoing.contains(&node)
    }

    /// Everybody in it, ascending.
    pub fn all(&self) -> BTreeSet<u64> {
        self.voters.iter().chain(&self.learners).chain(&self.outgoing).copied().collect()
    }

    /// Whether it is between two sets of voters.
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Why it is invalid, if it is: no voter, the number 0, or a voter that is a learner.
    pub fn defect(&self) -> Option<&'static str> {
        let sets = [&self.voters, &self.learners, &self.outgoing, &self.learners_next];
        if sets.iter().any(|set| set.contains(&0)) {
            return Some("a node has the number 0");
        }
        if self.voters.is_empty() {
            return Some("nobody has a vote");
        }
        if self.learners.iter().any(|node| self.votes(*node)) {
            return Some("a learner has a vote");
        }
        if !self.learners_next.is_subset(&self.outgoing) || !self.learners_next.is_disjoint(&self.voters) {
            return Some("a future learner is no outgoing voter");
        }
        if self.auto_leave && self.outgoing.is_empty() {
            return Some("a simple configuration has nothing to leave");
        }
        None
    }
}

/// The state above as of an entry, in place of all entries up to that one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last entry that it contains.
    pub index: u64,
    /// That entry's term.
    pub term: u64,
    /// The members of the group then.
    pub membership: Membership,
    /// The state; this crate does not look into it.
    pub data: Bytes,
}

/// The content of a node's disk at its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Its promises.
    pub hard_state: HardState,
    /// The latest snapshot. Without one the node was never part of a group, or no message has reached it.
    pub snapshot: Option<Snapshot>,
    /// Entries without gaps, ascending. Some may be older than the snapshot; none is missing after it.
    pub entries: Vec<Entry>,
}

/// The writes that must be durable before [`crate::Node::persisted`] is called, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Persist {
    /// Takes the place of the whole log.
    pub snapshot: Option<Snapshot>,
    /// Entries to append. The log's entries from the first one's index on are removed.
    pub entries: Vec<Entry>,
    /// Takes the place of the one before.
    pub hard_state: Option<HardState>,
    /// Nothing of this may be lost by a crash; otherwise only a hint about commits changed.
    pub must_sync: bool,
}

impl Persist {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.snapshot.is_none() && self.entries.is_empty() && self.hard_state.is_none()
    }
}

/// A committed entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its index.
    pub index: u64,
    /// In which term it was made.
    pub term: u64,
    /// The outcome.
    pub outcome: Outcome,
}

/// The meaning of a committed entry to the state above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing.
    Empty,
    /// A command to apply.
    Command(Bytes),
    /// The group is this from now on. Already in force in the node.
    Membership(Membership),
}

/// The answer to a read: all that was acknowledged before the read is at or before `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadState {
    /// The caller's id of the read.
    pub read: u64,
    /// Serve it after this entry was applied.
    pub index: u64,
}

/// The position of a proposal in the leader's log. It is decided when an entry of that index is committed: this one if the term
/// agrees, otherwise the proposal is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposed {
    /// The entry's index.
    pub index: u64,
    /// The entry's term.
    pub term: u64,
}

/// Why nothing was proposed. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Only the leader proposes.
    #[error("this node does not lead the group")]
    NotLeader,
    /// A change of the group is under way; wait until it is committed.
    #[error("another change of the group is under way")]
    ChangeUnderWay,
    /// Leadership is being handed over, or too much is waiting to be committed.
    #[error("the leader takes nothing at the moment: too much waits to be committed, or it hands over")]
    Busy,
    /// More bytes than an entry may have, or none.
    #[error("an entry has between 1 and {} bytes", ENTRY_BYTES_MAX)]
    Size,
}

/// A message that this node cannot take. Nothing was done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unacceptable {
    /// For somebody else.
    #[error("the message is for node {to}")]
    NotForUs {
        /// Its receiver.
        to: u64,
    },
    /// An answer from a node that does not belong to the group.
    #[error("node {from} does not belong to the group")]
    UnknownPeer {
        /// Its sender.
        from: u64,
    },
    /// The leader counts on entries that this node acknowledged and does not have.
    #[error(
        "the group counts on entry {expected} at this node, whose log ends at {last}: its raft directory was lost or \
         replaced; remove the node from the cluster and let it join again"
    )]
    LostEntries {
        /// The leader's value.
        expected: u64,
        /// The present value.
        last: u64,
    },
    /// Another entry stands where this node has a committed one.
    #[error(
        "entry {index} is committed at this node and another one was sent: two groups, or a raft directory that was \
         copied; remove the node from the cluster and let it join again"
    )]
    Diverged {
        /// The index.
        index: u64,
    },
    /// A peer acknowledges an entry that was never sent to it.
    #[error("node {from} acknowledges entry {index}, the log ends at {last}")]
    FromTheFuture {
        /// Its sender.
        from: u64,
        /// The acknowledged index.
        index: u64,
        /// The last index.
        last: u64,
    },
}

/// A node's role in its group at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Follows, or does not know the leader.
    Follower,
    /// Asks whether an election has a chance.
    PreCandidate,
    /// Asks for votes.
    Candidate,
    /// Leads.
    Leader,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its number.
    pub id: u64,
    /// Its term.
    pub term: u64,
    /// Its role.
    pub role: Role,
    /// The leader, as far as it knows.
    pub leader: Option<u64>,
    /// Entries up to here are committed.
    pub commit: u64,
    /// Entries up to here were handed out.
    pub applied: u64,
    /// The first entry that its log still has.
    pub first: u64,
    /// The last entry of its log.
    pub last: u64,
}

/// How far a peer is, as its leader knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its number.
    pub id: u64,
    /// It has the leader's entries up to here.
    pub matched: u64,
    /// It answered in this or the last election timeout.
    pub active: bool,
}
