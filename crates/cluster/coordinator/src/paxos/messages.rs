//! Requests between the shards of a node about a partition's agreement, as plain data.

use mutation::DecoratedKey;
use paxos::{AcceptorState, Reply, Request};
use replica::ReplicaError;
use rt::{Instant, ShardId};
use schema::TableId;

use super::codec::Value;

/// A shard's request for the lock of a partition: the shard, the request's number there, and the time at which the request expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    pub(crate) from: ShardId,
    pub(crate) number: u64,
    pub(crate) until: Instant,
}

/// A request to a voter of this node.
#[derive(Clone, Debug)]
pub struct Ballotage {
    /// The table.
    pub(crate) table: TableId,
    /// The partition.
    pub(crate) key: DecoratedKey,
    /// The request.
    pub(crate) request: Request<Value>,
}

/// The answer of a voter of this node.
pub type Vote = Result<Reply<Value>, ReplicaError>;

/// The state that a voter of another node keeps of a partition.
#[derive(Clone, Debug)]
pub struct MigratedVote {
    /// The table.
    pub(crate) table: TableId,
    /// The partition.
    pub(crate) key: DecoratedKey,
    /// The state, of rounds that the voter's last truncation of the table has not ended.
    pub(crate) state: AcceptorState<Value>,
}
