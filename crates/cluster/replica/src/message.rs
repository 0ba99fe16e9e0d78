//! The calls between shards, and the type of each answer.
//!
//! The messages of the mesh are made of one list, so that no call can be answered with another's answer.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

use std::sync::Arc;

use engine::{
    Candidate, Engine, EngineStats, LocalFigures, Marked, NearestQuery, RepairedWatermark, Sampled, TokenSpan,
};
use mutation::{PartitionUpdate, Repaired};
use rt::{Group, Instant};
use schema::{Schema, TableId};

use crate::{ReadCommand, ReadPage, Replica, ReplicaError, TombstoneLimit, TraceEvent, TraceLog};

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
        /// After this it is refused: what was written meanwhile was written behind it.
        expires: Instant,
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

rt::shard_calls! {
    /// A request from one shard to another of the same node.
    #[derive(Debug)]
    pub ShardRequest => ShardResponse, served by replica: &Replica {
        /// Read partitions that the shard owns; with the steps where they are recorded.
        #[derive(Debug)]
        Read { command: ReadCommand, tombstones: TombstoneLimit, is_traced: bool }
            -> (Result<ReadPage, ReplicaError>, Vec<TraceEvent>) = {
                let trace = is_traced.then(TraceLog::default);
                let read = crate::Read { tombstones, ..crate::Read::of(&command).here() };
                let page = replica.read(read.traced(trace.as_ref())).await;
                (page, trace.map(TraceLog::into_events).unwrap_or_default())
            },
        /// Look for the nearest vectors that the shard has.
        #[derive(Clone, Debug)]
        Nearest { table: TableId, query: Arc<NearestQuery> } -> Result<Vec<Candidate>, ReplicaError> =
            replica.engine().nearest(table, &query).await.map_err(ReplicaError::from),
        /// Apply updates of partitions that the shard owns, all or none; with the steps where they are recorded.
        #[derive(Debug)]
        Apply { write: engine::Write, is_traced: bool } -> (Result<(), ReplicaError>, Vec<TraceEvent>) = {
            let trace = is_traced.then(TraceLog::default);
            let done = replica.apply_here(write, trace.as_ref()).await;
            (done, trace.map(TraceLog::into_events).unwrap_or_default())
        },
        /// Count; the answer is the state to replicate.
        #[derive(Debug)]
        Increment { update: PartitionUpdate } -> Result<PartitionUpdate, ReplicaError> =
            replica.engine().increment(update).await.map_err(ReplicaError::from),
        /// Maintain a table.
        #[derive(Clone, Debug)]
        Operate { table: TableId, operation: TableOperation } -> Result<(), ReplicaError> = {
            let run = operate(replica.engine().clone(), table, operation);
            replica.rt().uncancelled(Group::Maintenance, run).await
        },
        /// Take over a schema.
        #[derive(Clone, Debug)]
        SetSchema { schema: Arc<Schema> } -> () = replica.engine().set_schema(schema),
        /// Take over when what of a table was repaired.
        #[derive(Clone, Debug)]
        SetRepaired { table: TableId, repaired: Arc<Repaired> } -> () =
            replica.engine().set_repaired(table, repaired),
        /// Cover what a table's SSTables hold by a mark, after flushing if that is so.
        #[derive(Clone, Debug)]
        TakeMark { table: TableId, flush: bool } -> Result<Marked, ReplicaError> = {
            let engine = replica.engine().clone();
            let run = async move { Ok(engine.take_mark(table, flush).await?) };
            replica.rt().uncancelled(Group::Maintenance, run).await
        },
        /// Keep apart what this mark of a table covers.
        #[derive(Debug)]
        SetRepairedUpto { table: TableId, mark: RepairedWatermark } -> () = replica.engine().set_repaired_upto(table, mark),
        /// A repair that had begun with a mark compared these tokens, of the tokens that the node owns.
        #[derive(Debug)]
        RangeRepaired { table: TableId, repaired: TokenSpan, mark: RepairedWatermark, owned: Arc<Vec<TokenSpan>> } -> () = {
            let engine = replica.engine().clone();
            let run = async move { engine.damage_repaired(table, repaired, mark, &owned).await };
            replica.rt().uncancelled(Group::Maintenance, run).await;
        },
        /// See to it that a power failure cannot undo what was written to a table.
        #[derive(Clone, Debug)]
        MakeDurable { table: TableId } -> Result<(), ReplicaError> =
            replica.engine().make_durable(table).await.map_err(ReplicaError::from),
        /// Count the partitions of a table that are asked for, in so many places, or end that with none.
        #[derive(Clone, Debug)]
        Sample { table: TableId, places: Option<usize> } -> Option<Box<Sampled>> =
            replica.engine().sample(table, places).map(Box::new),
        /// The requests of each table.
        #[derive(Clone, Debug)]
        LocalFiguresOfShard {} -> Vec<(TableId, LocalFigures)> = replica.engine().local_figures(),
        /// Figures of this moment.
        #[derive(Clone, Debug)]
        Stats {} -> Box<EngineStats> = Box::new(replica.engine().stats()),
    }
}

async fn operate(engine: Engine, table: TableId, operation: TableOperation) -> Result<(), ReplicaError> {
    match operation {
        TableOperation::Flush => engine.flush(table).await?,
        TableOperation::Compact => engine.compact(table).await?,
        TableOperation::Truncate { at_micros, expires } => {
            engine.truncate(table, at_micros, expires).await?;
        }
        TableOperation::Drop { at_micros } => engine.drop_table(table, at_micros).await?,
        TableOperation::Snapshot { name } => engine.snapshot(table, &name).await?,
        TableOperation::ClearSnapshot { name } => engine.clear_snapshot(table, name.as_deref()).await?,
    }
    Ok(())
}
