//! What the coordinators of a node's shards ask of each other: schema changes, which shard 0 decides and makes durable
//! before every shard takes over, what one keeps for other nodes, and how late the batches and hints are that one has taken up.

use std::sync::Arc;

use cluster::SchemaEdit;
use hints::HintFigures;
use mutation::DecoratedKey;
use replica::ReplicaError;
use rt::Instant;
use schema::{Schema, TableId};
use topology::HostId;

use crate::ClusterView;
use crate::paxos::{Ballotage, Carried, Vote, Wish};

/// What the coordinators of a node's shards ask of each other.
#[derive(Clone, Debug)]
pub enum NodeRequest {
    /// To shard 0: change the schema.
    ChangeSchema {
        /// Version of the schema that the change was planned against.
        base: [u8; 16],
        /// The change.
        edits: Vec<SchemaEdit>,
    },
    /// To the shard that owns a partition: vote.
    Vote(Box<Ballotage>),
    /// To the shard that owns a partition: lend its turn.
    BorrowTurn {
        /// The table.
        table: TableId,
        /// The partition.
        key: DecoratedKey,
        /// Whose wish it is.
        wish: Wish,
    },
    /// To that shard: the turn is not needed any more.
    ReturnTurn(Wish),
    /// To the shard that owns a partition: remember what another node's voter does.
    CarryVote(Box<Carried>),
    /// To every shard: use this schema.
    UseSchema(Arc<Schema>),
    /// To every shard: these are the cluster's nodes.
    UseView(Arc<ClusterView>),
    /// To every shard: what do you keep for nodes that are away?
    KeptHints,
    /// To shard 0: ask the cluster's log whether this node has heard everything.
    ConfirmLog {
        /// How long to ask.
        deadline: Instant,
    },
    /// To shard 0: wait until every shard has a ring of this number.
    CatchUp {
        /// The number.
        ring: u64,
        /// How long to wait.
        deadline: Instant,
    },
    /// To shard 0: the same, and until nothing is under way that was let in before.
    EnforceRing {
        /// The number.
        ring: u64,
        /// How long to wait.
        deadline: Instant,
    },
    /// To every shard: wait until nothing is under way that was let in before the shard had its ring.
    Drain {
        /// How long to wait.
        deadline: Instant,
    },
    /// To every shard: when was the last write or logged batch taken up?
    LatestPending,
    /// To every shard: when did you truncate a table last?
    TruncatedAt(TableId),
    /// Remember that the table was truncated at this time, microseconds, before this node had a part of it.
    LearnTruncation(TableId, i64),
}

/// The answer to a [`NodeRequest`].
#[derive(Clone, Debug)]
pub enum NodeResponse {
    /// Done, or why not.
    SchemaChanged(Result<(), SchemaChangeError>),
    /// The vote.
    Voted(Box<Vote>),
    /// The shard uses the schema, or the view.
    Used,
    /// What the shard keeps, by node.
    KeptHints(Vec<(HostId, HintFigures)>),
    /// Whether it came so in time.
    HasRing(bool),
    /// When the log was asked, if it has confirmed.
    LogConfirmed(Option<Instant>),
    /// Whether the turn came in time.
    Turn(bool),
    /// The vote is remembered, or why not.
    Carried(Result<(), ReplicaError>),
    /// When the shard took up its last write or logged batch, or that of its last hint, microseconds; [`i64::MIN`] for never.
    LatestPending(i64),
    /// When the shard truncated the table last, microseconds; [`i64::MIN`] for never.
    TruncatedAt(i64),
    /// A truncation is remembered, or why not.
    Learnt(Result<(), String>),
}

/// A schema change that was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaChangeError {
    /// The schema is not the one that the change was planned against; plan again.
    #[error("the schema changed meanwhile")]
    Moved,
    /// The change does not fit the schema.
    #[error("{0}")]
    Invalid(String),
    /// It is decided, and not every live node used it in time. They will.
    #[error("the schema change is decided, and only {used} of {live} live nodes use it yet")]
    Behind {
        /// Live nodes that use it.
        used: u32,
        /// Live nodes.
        live: u32,
    },
    /// It could not be made durable, or not carried out on every shard.
    #[error("{0}")]
    Failed(String),
}
