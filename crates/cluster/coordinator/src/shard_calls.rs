//! The calls between the coordinators of a node's shards: schema changes, which shard 0 decides and makes durable
//! before every shard applies them, the hints that one stores for other nodes, and the age of its oldest batches and hints.

use std::sync::Arc;

use cluster::SchemaEdit;
use cluster::liveness::Liveness;
use hints::HintFigures;
use mutation::DecoratedKey;
use replica::ReplicaError;
use rt::Instant;
use schema::{Schema, TableId};
use topology::HostId;

use crate::paxos::messages::{self, LockRequest};
use crate::table_figures::TableFigures;
use crate::view_builds::ViewBuildStatus;
use crate::{ClusterView, Decision, Operation, SchemaChangeError};

rt::shard_calls! {
    /// The calls between the coordinators of a node's shards.
    pub NodeRequest => NodeResponse {
        /// To shard 0: change the schema, which the change was planned against with version `base`.
        ChangeSchema { base: [u8; 16], edits: Vec<SchemaEdit> } -> Result<(), SchemaChangeError>,
        /// To the shard that owns a partition: vote.
        Vote { ballotage: Box<messages::Ballotage> } -> Box<messages::Vote>,
        /// To the shard that owns a partition: lease its lock; whether it was granted in time.
        AcquireLock { table: TableId, key: DecoratedKey, request: LockRequest } -> bool,
        /// To that shard: release a lease or cancel a request.
        ReleaseLock { request: LockRequest } -> (),
        /// To the shard that owns a partition: merge the state of another node's voter.
        MigrateVote { vote: Box<messages::MigratedVote> } -> Result<(), ReplicaError>,
        /// To every shard: use this schema.
        #[derive(Clone)]
        UseSchema { schema: Arc<Schema>, events: Arc<[cluster::SchemaEvent]> } -> (),
        /// To every shard: these are the cluster's nodes.
        #[derive(Clone)]
        UseView { view: Arc<ClusterView> } -> (),
        /// To every shard: the stored hints, by node.
        #[derive(Clone)]
        StoredHints {} -> Vec<(HostId, HintFigures)>,
        /// To shard 0: the gossip state of all nodes; none before the node takes part in gossip.
        Gossiped {} -> Option<Box<Liveness>>,
        /// To every shard: the requests of each table that it coordinated.
        #[derive(Clone)]
        RequestsOfTables {} -> Vec<(TableId, TableFigures)>,
        /// To shard 0: ask the cluster's log whether this node has heard everything; when the log was asked, if it has confirmed.
        ConfirmLog { deadline: Instant } -> Option<Instant>,
        /// To every shard: the cluster's log has confirmed that this node has heard everything up to then.
        #[derive(Clone)]
        NoteConfirmed { at: Instant } -> (),
        /// To shard 0: wait until every shard has the topology version; whether it has in time.
        CatchUp { topology: u64, deadline: Instant } -> bool,
        /// To shard 0: the same, and until nothing is under way that was let in before.
        EnforceTopology { topology: u64, deadline: Instant } -> bool,
        /// To every shard: wait until nothing is under way that was let in before the shard had its topology version; whether it is so
        /// in time.
        #[derive(Clone)]
        Drain { deadline: Instant } -> bool,
        /// To every shard: when the shard took up its last write or logged batch, or that of its last hint, microseconds;
        /// [`i64::MIN`] for never.
        #[derive(Clone)]
        LatestPending {} -> i64,
        /// To every shard: when the shard truncated the table last, microseconds; [`i64::MIN`] for never.
        #[derive(Clone)]
        TruncatedAt { table: TableId } -> i64,
        /// To every shard: remember that the table was truncated at this time, microseconds, before this node had a part of it.
        #[derive(Clone)]
        LearnTruncation { table: TableId, at_micros: i64 } -> Result<(), String>,
        /// To the shard that owns a partition: count an operation of which so many are allowed a second; whether it may be done.
        CountOperation { table: TableId, token: i64, operation: Operation, limit: u32, decision: Decision } -> bool,
        /// To shard 0: whether the node uses the schema of this version and has nothing left of a dropped table with an id.
        CheckGivenId { table: TableId, version: [u8; 16] } -> Result<(), String>,
        /// To shard 0: build the materialized views of a table from the beginning.
        RebuildViews { base: TableId } -> Result<(), String>,
        /// To shard 0: how far the node is with building a materialized view.
        ViewBuild { view: TableId } -> Result<ViewBuildStatus, String>,
    }
}
