//! Why something of the group did not happen.

use std::net::SocketAddr;

use crate::error::StoreError;
use crate::group::log::LogError;
use crate::rollback::RolledBack;
use crate::state::StateCodecError;
use rt::DiskError;

/// The group of this node cannot go on: nothing is decided at this node until it is started again.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Another file beside it.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The schema of a version without a log.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A snapshot that this version does not understand.
    #[error("the cluster's state as of entry {index} of its log: {error}")]
    Snapshot {
        /// The last entry that it contains.
        index: u64,
        /// The error.
        error: StateCodecError,
    },
    /// An entry that this version does not understand.
    #[error(
        "entry {index} (term {term}, {kind}) of the cluster's log cannot be applied: {error}. If other nodes run a newer version, \
         upgrade this one. If no node can apply it, stop each node and run `torc raft-log skip --index {index} --term {term}` on it \
         (docs/operations/cluster-log.md)"
    )]
    Entry {
        /// The entry's index.
        index: u64,
        /// In which term it was made.
        term: u64,
        /// The kind of the command.
        kind: String,
        /// The error.
        error: StateCodecError,
    },
    /// The log cannot be one.
    #[error("the cluster's log: {0}")]
    BadLog(#[from] raft::BadLog),
    /// The directory is of another cluster.
    #[error(
        "the data directory belongs to cluster '{found}', but cluster_name is '{expected}'; correct cluster_name or use \
         another directory"
    )]
    OtherCluster {
        /// The configured name.
        expected: String,
        /// The log's.
        found: String,
    },
    /// The node owns data that is placed by where it stood.
    #[error(
        "Cannot start node if snitch's {what} ({configured}) differs from previous {what} ({last}): its data is placed by it. \
         Correct it, or decommission this node and let it join anew with an empty data directory"
    )]
    StoodElsewhere {
        /// The setting, in Cassandra's words.
        what: &'static str,
        /// The configured value.
        configured: String,
        /// The node's last place.
        last: String,
    },
    /// The node owns tokens, and is configured to have more or fewer of them.
    #[error(
        "Cannot change the number of tokens from {last} to {configured}: a node keeps its tokens for as long as it is in the \
         ring. Set num_tokens to {last}, or decommission this node and let it join anew with an empty data directory"
    )]
    OtherTokenCount {
        /// The configured number.
        configured: usize,
        /// How many it has.
        last: usize,
    },
    /// The node was removed from the cluster.
    #[error(
        "this node was removed from the cluster and its data is out of date; clear its data directory, and it joins as a \
         new node"
    )]
    Removed,
    /// Another process answers at this node's last address with its host id.
    #[error(
        "a node with this one's host id runs at {address}: this data directory is a copy of that node's. Stop that node if this \
         one is to take its place, or clear this directory to let a new node join"
    )]
    HostIdTaken {
        /// Its address.
        address: std::net::SocketAddr,
    },
    /// The node's disk has lost data that it acknowledged.
    #[error(transparent)]
    RolledBack(#[from] RolledBack),
    /// The group was recreated from a log that lacks entries that are committed here.
    #[error(
        "the group was made anew (torc raft-log force-majority) after entry {base}, and this node knows that entries up to {commit} \
         were decided: this node does not follow it. Make the group anew from this node's log instead, or clear this node's data \
         directory and let it join as a new one (docs/operations/cluster-log.md)"
    )]
    Forced {
        /// The last entry of the log that was gone on with.
        base: u64,
        /// The commit index here.
        commit: u64,
    },
    /// The group's messages contradict this node's log.
    #[error("{0}")]
    Inconsistent(raft::Unacceptable),
}

impl GroupError {
    /// An entry whose bytes are no command.
    pub(crate) fn unreadable(index: u64, term: u64, bytes: &[u8], error: StateCodecError) -> Self {
        Self::Entry { index, term, kind: crate::state::command_kind(bytes), error }
    }
}

/// A command without a known outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// No leader took it in time; it was not and will not be applied.
    #[error(
        "the cluster has no leader at the moment: a majority of its voting nodes must be up and reach each other"
    )]
    NoLeader,
    /// It was proposed, and no answer came in time: it may have been or may yet be applied.
    #[error("no answer in time: whether the change was made is not known")]
    Unknown,
    /// Other nodes would decode its bytes to another value; it was not proposed.
    #[error("the change cannot be written to the cluster's log: {0}")]
    Unreadable(String),
    /// Larger than an entry of the log.
    #[error("the change is too large for the cluster's log ({len} bytes)")]
    TooLarge {
        /// Its bytes.
        len: usize,
    },
    /// The group of this node has failed or stopped.
    #[error("this node's part of the cluster's log has stopped: {0}")]
    Stopped(String),
}

/// A node that was not let in.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The cluster, or the protocol, refuses, and time does not heal it.
    #[error("{seed} refuses to let this node join: {reason}")]
    Refused {
        /// The seed that said so.
        seed: SocketAddr,
        /// The reason, and the remedy.
        reason: String,
    },
    /// Nobody let it in in time.
    #[error(
        "no seed let this node join in time ({tried}); check the addresses of seeds, and that one of them is up"
    )]
    NoSeed {
        /// The attempts, with their results.
        tried: String,
    },
    /// Whether there is a cluster was not known in time.
    #[error(
        "this node has no data and is the first seed, and it is not known of every seed that it has no cluster ({tried}): start the \
         other seeds, or, if there is no cluster, start this node once with --new_cluster true"
    )]
    Unsure {
        /// The attempts, with their results.
        tried: String,
    },
    /// No seed is configured except for this node.
    #[error("there is no seed to ask; set seeds to the address of a node of the cluster")]
    NoSeeds,
    /// It was let in, and the cluster's state did not arrive in time.
    #[error(
        "the cluster let this node join, and its state did not arrive in time; check that all nodes reach {own}, then \
         start again"
    )]
    NoState {
        /// This node's address.
        own: SocketAddr,
    },
    /// This node itself.
    #[error(transparent)]
    Group(#[from] GroupError),
}
