//! Requests against the cluster: which replicas to ask, how many answers suffice, what to tell the client otherwise.
//!
//! With one node every replica is this node; requests take the same path nonetheless.
//! This crate knows nothing of files, memtables or CQL.

mod batch_row;
mod batchlog;
mod canaries;
mod computed;
pub mod contact;
mod coordinator;
mod error;
mod fence;
mod file_sources;
mod following;
mod forward;
mod handoff;
mod late;
mod latency;
mod lease;
mod logged;
mod paxos;
mod pull;
mod quorum;
mod read;
mod read_repair;
mod recent;
pub mod reconcile;
mod remote;
mod request;
mod schema_change;
mod shard_calls;
mod slowness;
mod traced;
mod truncate;
mod view;
mod write;

pub use batchlog::BatchlogStats;
pub use canaries::Canaries;
pub use cluster::{Change, ChangedObject, SchemaEdit, SchemaEvent};
pub use computed::ComputedTables;
pub use coordinator::{Coordinator, HintKeeper, ReplicationStats, SchemaListener, ViewListener};
pub use error::{ReplicaFailure, RequestError};
pub use file_sources::FileSource;
pub use following::ViewMaker;
pub use handoff::Handoff;
pub use hints::{HintFigures, HintsStats};
pub use latency::{Latencies, RequestFigures};
pub use lease::{Confirm, LEASE};
pub use paxos::{Ballotage, CasOptions, CasOutcome, LockRequest, MigratedVote, PaxosStats, Vote};
pub use pull::{PullFrom, PullStats, partition_ranges};
pub use request::{WriteKind, WriteOptions};
pub use schema_change::SchemaChangeError;
pub use shard_calls::{NodeRequest, NodeResponse};
pub use topology::Consistency;
pub use view::{ClusterView, Copies, Phase, Replicated, ViewNode};
