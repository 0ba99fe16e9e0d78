//! What one shard asks of another.

use std::sync::Arc;

use engine::{EngineStats, Mark, Marked, Sampled, Since, TokenSpan};
use mutation::{PartitionUpdate, Repaired};
use schema::{Schema, TableId};

use crate::{ReadCommand, ReadPage, ReplicaError, TraceEvent};

/// A maintenance operation on one table's data on a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableOperation {
    /// Write memtables to SSTables.
    Flush,
    /// Merge all SSTables.
    Compact,
    /// Remove everything written so far.
    Truncate {
        /// Now, microseconds since the epoch: what was taken up until then and comes late is left out from now on. Names the
        /// automatic snapshot, too.
        at_micros: i64,
    },
    /// Forget the table.
    Drop {
        /// Now, microseconds since the epoch; names the automatic snapshot.
        at_micros: i64,
    },
    /// Hard-link the SSTables.
    Snapshot {
        /// Name of the snapshot.
        name: String,
    },
    /// Remove snapshots.
    ClearSnapshot {
        /// Of this name, or all.
        name: Option<String>,
    },
}

/// A request from one shard to another of the same node.
#[derive(Debug)]
pub enum ShardRequest {
    /// Read partitions that the shard owns.
    Read(ReadCommand),
    /// Apply updates of partitions that the shard owns, all or none.
    Apply(Vec<PartitionUpdate>),
    /// [`ShardRequest::Apply`] of a write that may come late, without what belongs to tables that were truncated since.
    ApplySince(Vec<PartitionUpdate>, Since),
    /// [`ShardRequest::Read`] with its steps.
    ReadTraced(ReadCommand),
    /// Apply an update of a write that began at this time, microseconds since the epoch, if the table was not truncated since.
    ApplyBegun(PartitionUpdate, i64),
    /// [`ShardRequest::Apply`] with its steps; of a single update as [`ShardRequest::ApplyBegun`] when there is a time.
    ApplyTraced(Vec<PartitionUpdate>, Option<i64>),
    /// Count; the answer is the state to replicate.
    Increment(PartitionUpdate),
    /// Maintain a table.
    Table(TableId, TableOperation),
    /// Take over a schema.
    SetSchema(Arc<Schema>),
    /// Take over when what of a table was repaired.
    SetRepaired(TableId, Arc<Repaired>),
    /// Cover what a table's SSTables hold by a mark, after flushing if that is so.
    TakeMark(TableId, bool),
    /// Keep apart what this mark of a table covers.
    SetRepairedUpto(TableId, Mark),
    /// A repair that had begun with a mark compared these tokens, of the tokens that the node owns.
    Mended(TableId, TokenSpan, Mark, Arc<Vec<TokenSpan>>),
    /// See to it that a loss of power cannot undo what was written to a table.
    MakeDurable(TableId),
    /// Count the partitions of a table that are asked for, in so many places, or end that with none.
    Sample(TableId, Option<usize>),
    /// Tell figures.
    Stats,
}

/// The answer to the [`ShardRequest`] of the same name.
#[derive(Debug)]
pub enum ShardResponse {
    /// A page.
    Read(Result<ReadPage, ReplicaError>),
    /// Done, or why not.
    Done(Result<(), ReplicaError>),
    /// A page, and what was met on the way.
    ReadTraced(Result<ReadPage, ReplicaError>, Vec<TraceEvent>),
    /// Done, or why not, and what was met on the way.
    DoneTraced(Result<(), ReplicaError>, Vec<TraceEvent>),
    /// What a counter update led to.
    Incremented(Result<PartitionUpdate, ReplicaError>),
    /// The mark, or why there is none.
    Marked(Result<Marked, ReplicaError>),
    /// What was counted of a table until now.
    Sampled(Option<Box<Sampled>>),
    /// Figures.
    Stats(Box<EngineStats>),
}
