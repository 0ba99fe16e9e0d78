//! What one shard asks of another, and the type of each answer.
//!
//! A call is a struct that names the type of its answer. What crosses the mesh is made of one list of them, so that no call can be
//! answered with another's answer.

use std::sync::Arc;

use engine::{Engine, EngineStats, Mark, Marked, Sampled, TokenSpan};
use mutation::{PartitionUpdate, Repaired};
use rt::Group;
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

/// A request of one shard to another of the same node, with the type of its answer.
pub(crate) trait ShardCall: Sized {
    /// What it is answered with.
    type Answer;

    /// Carries it out on the shard that was called.
    async fn serve(self, replica: &Replica) -> Self::Answer;
}

/// How a [`ShardCall`] crosses the mesh.
pub(crate) trait Crossing: ShardCall + Into<ShardRequest> {
    /// The answer out of what comes back.
    fn answer(response: ShardResponse) -> Self::Answer;
}

/// A request from one shard to another of the same node.
#[derive(Debug)]
pub struct ShardRequest(Request);

/// The answer to a [`ShardRequest`].
#[derive(Debug)]
pub struct ShardResponse(Response);

/// Makes what crosses the mesh out of the calls.
macro_rules! calls {
    ($($name:ident),* $(,)?) => {
        #[derive(Debug)]
        enum Request { $($name($name)),* }

        #[derive(Debug)]
        enum Response { $($name(<$name as ShardCall>::Answer)),* }

        impl ShardRequest {
            /// Carries out what another shard asks.
            pub(crate) async fn serve(self, replica: &Replica) -> ShardResponse {
                ShardResponse(match self.0 {
                    $(Request::$name(call) => Response::$name(call.serve(replica).await)),*
                })
            }
        }

        $(
            impl From<$name> for ShardRequest {
                fn from(call: $name) -> Self {
                    Self(Request::$name(call))
                }
            }

            impl Crossing for $name {
                fn answer(response: ShardResponse) -> Self::Answer {
                    match response.0 {
                        Response::$name(answer) => answer,
                        _ => unreachable!("each call is wrapped and answered by the same line of this list"),
                    }
                }
            }
        )*
    };
}

calls!(
    Read,
    Apply,
    Increment,
    Operate,
    SetSchema,
    SetRepaired,
    TakeMark,
    SetRepairedUpto,
    RangeRepaired,
    MakeDurable,
    Sample,
    Stats,
);

/// Read partitions that the shard owns; with the steps where they are recorded.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) command: ReadCommand,
    pub(crate) tombstones: TombstoneLimit,
    pub(crate) is_traced: bool,
}

impl ShardCall for Read {
    type Answer = (Result<ReadPage, ReplicaError>, Vec<TraceEvent>);

    async fn serve(self, replica: &Replica) -> Self::Answer {
        let trace = self.is_traced.then(TraceLog::default);
        let read = crate::Read { tombstones: self.tombstones, ..crate::Read::of(&self.command).here() };
        let page = replica.read(read.traced(trace.as_ref())).await;
        (page, trace.map(TraceLog::into_events).unwrap_or_default())
    }
}

/// Apply updates of partitions that the shard owns, all or none; with the steps where they are recorded.
#[derive(Debug)]
pub(crate) struct Apply {
    pub(crate) write: engine::Write,
    pub(crate) is_traced: bool,
}

impl ShardCall for Apply {
    type Answer = (Result<(), ReplicaError>, Vec<TraceEvent>);

    async fn serve(self, replica: &Replica) -> Self::Answer {
        let trace = self.is_traced.then(TraceLog::default);
        let done = replica.apply_here(self.write, trace.as_ref()).await;
        (done, trace.map(TraceLog::into_events).unwrap_or_default())
    }
}

/// Count; the answer is the state to replicate.
#[derive(Debug)]
pub(crate) struct Increment(pub(crate) PartitionUpdate);

impl ShardCall for Increment {
    type Answer = Result<PartitionUpdate, ReplicaError>;

    async fn serve(self, replica: &Replica) -> Self::Answer {
        Ok(replica.engine().increment(self.0).await?)
    }
}

/// Maintain a table.
#[derive(Debug)]
pub(crate) struct Operate(pub(crate) TableId, pub(crate) TableOperation);

impl ShardCall for Operate {
    type Answer = Result<(), ReplicaError>;

    async fn serve(self, replica: &Replica) -> Self::Answer {
        let run = operate(replica.engine().clone(), self.0, self.1);
        replica.rt().uncancelled(Group::Maintenance, run).await
    }
}

async fn operate(engine: Engine, table: TableId, operation: TableOperation) -> Result<(), ReplicaError> {
    match operation {
        TableOperation::Flush => engine.flush(table).await?,
        TableOperation::Compact => engine.compact(table).await?,
        TableOperation::Truncate { at_micros } => engine.truncate(table, at_micros).await?,
        TableOperation::Drop { at_micros } => engine.drop_table(table, at_micros).await?,
        TableOperation::Snapshot { name } => engine.snapshot(table, &name).await?,
        TableOperation::ClearSnapshot { name } => engine.clear_snapshot(table, name.as_deref()).await?,
    }
    Ok(())
}

/// Take over a schema.
#[derive(Debug)]
pub(crate) struct SetSchema(pub(crate) Arc<Schema>);

impl ShardCall for SetSchema {
    type Answer = ();

    async fn serve(self, replica: &Replica) {
        replica.engine().set_schema(self.0);
    }
}

/// Take over when what of a table was repaired.
#[derive(Debug)]
pub(crate) struct SetRepaired(pub(crate) TableId, pub(crate) Arc<Repaired>);

impl ShardCall for SetRepaired {
    type Answer = ();

    async fn serve(self, replica: &Replica) {
        replica.engine().set_repaired(self.0, self.1);
    }
}

/// Cover what a table's SSTables hold by a mark, after flushing if that is so.
#[derive(Debug)]
pub(crate) struct TakeMark(pub(crate) TableId, pub(crate) bool);

impl ShardCall for TakeMark {
    type Answer = Result<Marked, ReplicaError>;

    async fn serve(self, replica: &Replica) -> Self::Answer {
        let engine = replica.engine().clone();
        let run = async move { Ok(engine.take_mark(self.0, self.1).await?) };
        replica.rt().uncancelled(Group::Maintenance, run).await
    }
}

/// Keep apart what this mark of a table covers.
#[derive(Debug)]
pub(crate) struct SetRepairedUpto(pub(crate) TableId, pub(crate) Mark);

impl ShardCall for SetRepairedUpto {
    type Answer = ();

    async fn serve(self, replica: &Replica) {
        replica.engine().set_repaired_upto(self.0, self.1);
    }
}

/// A repair that had begun with a mark compared these tokens, of the tokens that the node owns.
#[derive(Debug)]
pub(crate) struct RangeRepaired {
    pub(crate) table: TableId,
    pub(crate) repaired: TokenSpan,
    pub(crate) mark: Mark,
    pub(crate) owned: Arc<Vec<TokenSpan>>,
}

impl ShardCall for RangeRepaired {
    type Answer = ();

    async fn serve(self, replica: &Replica) {
        let engine = replica.engine().clone();
        let run = async move { engine.mended(self.table, self.repaired, self.mark, &self.owned).await };
        replica.rt().uncancelled(Group::Maintenance, run).await;
    }
}

/// See to it that a power failure cannot undo what was written to a table.
#[derive(Debug)]
pub(crate) struct MakeDurable(pub(crate) TableId);

impl ShardCall for MakeDurable {
    type Answer = Result<(), ReplicaError>;

    async fn serve(self, replica: &Replica) -> Self::Answer {
        Ok(replica.engine().make_durable(self.0).await?)
    }
}

/// Count the partitions of a table that are asked for, in so many places, or end that with none.
#[derive(Debug)]
pub(crate) struct Sample(pub(crate) TableId, pub(crate) Option<usize>);

impl ShardCall for Sample {
    type Answer = Option<Box<Sampled>>;

    async fn serve(self, replica: &Replica) -> Self::Answer {
        replica.engine().sample(self.0, self.1).map(Box::new)
    }
}

/// Tell figures.
#[derive(Debug)]
pub(crate) struct Stats;

impl ShardCall for Stats {
    type Answer = Box<EngineStats>;

    async fn serve(self, replica: &Replica) -> Self::Answer {
        Box::new(replica.engine().stats())
    }
}
