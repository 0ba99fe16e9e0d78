//! The calls between the coordinators of a node's shards: schema changes, which shard 0 decides and makes durable
//! before every shard applies them, the hints that one stores for other nodes, and the age of its oldest batches and hints.

use std::sync::Arc;

use cluster::SchemaEdit;
use hints::HintFigures;
use mutation::DecoratedKey;
use replica::ReplicaError;
use rt::Instant;
use schema::{Schema, TableId};
use topology::HostId;

use crate::paxos;
use crate::paxos::LockRequest;
use crate::{ClusterView, Coordinator, SchemaChangeError};

rt::shard_calls! {
    /// What the coordinators of a node's shards ask of each other.
    pub NodeRequest => NodeResponse, served by coordinator: &Coordinator {
        /// To shard 0: change the schema, which the change was planned against with version `base`.
        ChangeSchema { base: [u8; 16], edits: Vec<SchemaEdit> } -> Result<(), SchemaChangeError> =
            coordinator.propose_schema(base, edits).await,
        /// To the shard that owns a partition: vote.
        Vote { ballotage: Box<paxos::Ballotage> } -> Box<paxos::Vote> =
            Box::new(coordinator.vote(*ballotage).await),
        /// To the shard that owns a partition: lease its lock; whether it was granted in time.
        AcquireLock { table: TableId, key: DecoratedKey, request: LockRequest } -> bool =
            coordinator.lease_lock(table, &key, request).await,
        /// To that shard: release a lease or cancel a request.
        ReleaseLock { request: LockRequest } -> () = coordinator.release_lock(request),
        /// To the shard that owns a partition: remember what another node's voter does.
        MigrateVote { vote: Box<paxos::MigratedVote> } -> Result<(), ReplicaError> =
            coordinator.remember_vote(*vote).await,
        /// To every shard: use this schema.
        #[derive(Clone)]
        UseSchema { schema: Arc<Schema> } -> () = coordinator.use_schema(schema),
        /// To every shard: these are the cluster's nodes.
        #[derive(Clone)]
        UseView { view: Arc<ClusterView> } -> () = coordinator.use_view(view),
        /// To every shard: what is stored for nodes that are down, by node.
        #[derive(Clone)]
        StoredHints {} -> Vec<(HostId, HintFigures)> = coordinator.stored_hints(),
        /// To shard 0: ask the cluster's log whether this node has heard everything; when the log was asked, if it has confirmed.
        ConfirmLog { deadline: Instant } -> Option<Instant> = coordinator.confirm_log(deadline).await,
        /// To shard 0: wait until every shard has the topology version; whether it has in time.
        CatchUp { topology: u64, deadline: Instant } -> bool = coordinator.reach_ring(topology, deadline).await,
        /// To shard 0: the same, and until nothing is under way that was let in before.
        EnforceTopology { topology: u64, deadline: Instant } -> bool =
            coordinator.enforce_ring(topology, deadline).await,
        /// To every shard: wait until nothing is under way that was let in before the shard had its topology version; whether it is so
        /// in time.
        #[derive(Clone)]
        Drain { deadline: Instant } -> bool = coordinator.drain(deadline).await,
        /// To every shard: when the shard took up its last write or logged batch, or that of its last hint, microseconds;
        /// [`i64::MIN`] for never.
        #[derive(Clone)]
        LatestPending {} -> i64 = coordinator.latest_pending(),
        /// To every shard: when the shard truncated the table last, microseconds; [`i64::MIN`] for never.
        #[derive(Clone)]
        TruncatedAt { table: TableId } -> i64 = coordinator.replica().truncated_at(table),
        /// To every shard: remember that the table was truncated at this time, microseconds, before this node had a part of it.
        #[derive(Clone)]
        LearnTruncation { table: TableId, at_micros: i64 } -> Result<(), String> = {
            let learnt = coordinator.replica().engine().learn_truncation(table, at_micros).await;
            learnt.map_err(|error| error.to_string())
        },
    }
}
