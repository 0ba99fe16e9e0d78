//! The requests of a topology change to the node's shards.

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use schema::TableId;

use crate::{FetchReason, FetchedRanges, MembershipError};

/// Ranges that a cleanup retains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetainedRanges {
    /// Ranges whose writes it accepts.
    Taken,
    /// Ranges that are read from it.
    Read,
}

/// A task that every shard carries out on its part of the data (`RangeStreamer::carry_out`).
#[derive(Clone, Debug)]
pub enum ShardTask {
    /// Fetch the SSTables of the data that the node is to have.
    FetchFiles(FetchReason),
    /// Stream the data that is missing beside the complete ranges.
    Fetch(FetchReason, Arc<FetchedRanges>),
    /// All of it is here: the notes for a resumption are removed.
    FetchOver,
    /// Drop the ranges that the node does not own from these tables.
    Cleanup(Arc<[TableId]>, RetainedRanges),
}

/// The shards of this node, as a topology change sees them.
pub trait NodeShards {
    /// Has every shard carry out a task. In shard order; only [`ShardTask::FetchFiles`] results in ranges.
    ///
    /// # Errors
    /// Each shard has its own result: [`MembershipError::Stopped`] when it has ended, [`MembershipError::Cluster`] with
    /// the reason when its task failed.
    fn on_each(&self, task: ShardTask) -> LocalBoxFuture<'_, Vec<Result<FetchedRanges, MembershipError>>>;

    /// Ends all connections of clients, and accepts no more.
    ///
    /// # Errors
    /// That of a shard which cannot do it; the topology change is given up then.
    fn close_clients(&self) -> LocalBoxFuture<'_, Result<(), MembershipError>>;

    /// Accepts no more requests, and finishes those under way.
    ///
    /// # Errors
    /// As [`NodeShards::close_clients`].
    fn quiesce(&self) -> LocalBoxFuture<'_, Result<(), MembershipError>>;

    /// Logged batches that are stored and not applied yet.
    fn batches_stored(&self) -> LocalBoxFuture<'_, u64>;
}
