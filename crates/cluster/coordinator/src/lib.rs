//! Requests against the cluster: the replicas to query, the number of answers that suffice, the error for the client otherwise.
//!
//! With one node every replica is this node; requests take the same path nonetheless.
//! This crate knows nothing of files, memtables or CQL.

mod admission;
mod background;
mod batch_row;
mod batchlog;
mod build;
mod build_requests;
mod canaries;
mod cdc_generations;
mod cdc_times;
mod change_log;
mod check_reads;
mod computed;
pub mod contact;
mod context;
mod coordinator;
mod counter;
mod covering;
mod derived;
mod derived_check_run;
mod derived_checks;
mod error;
mod fence;
mod file_sources;
mod following;
mod forward;
mod given_id;
mod handoff;
mod hinting;
mod holders;
mod kind;
mod late;
mod latency;
mod lease;
mod local;
mod log_check_run;
mod logged;
mod message;
mod metrics;
mod nearest;
mod ongoing;
mod ordered_scan;
mod paxos;
mod peer_error;
mod placements;
mod pull;
mod quorum;
mod range_parts;
mod rate_check;
mod rate_limit;
mod read;
mod read_repair;
mod reader;
mod reads;
mod recent;
pub mod reconcile;
mod remote;
mod removals;
mod replication_map;
mod replication_maps;
mod request;
mod schema_change;
mod serve;
mod shard_calls;
mod slow_replicas;
mod slowness;
mod table_figures;
mod topology_change;
mod traced;
mod truncate;
mod truncation_permit;
mod view_builds;
mod view_check_run;
mod write;

pub use batchlog::{BatchlogStats, KEPT_BATCH_BYTES};
pub use canaries::Canaries;
pub use cdc_generations::cdc_generation;
pub use cluster::{Change, ChangedObject, SchemaEdit, SchemaEvent};
pub use computed::{ComputedRows, ComputedTables, read_computed};
pub use context::ReplicationStats;
pub use coordinator::{Coordinator, SchemaListener, ViewListener};
pub use derived_checks::{
    CheckState, CheckedTokens, DerivedCheck, DerivedCheckError, DerivedCheckStatus, FoundDifference,
    FoundKind,
};
pub use error::{ReplicaFailure, RequestError};
pub use file_sources::FileSource;
pub use following::ViewMaker;
pub use handoff::Handoff;
pub use hinting::HintKeeper;
pub use hints::{HintFigures, HintsStats};
pub use holders::{PullFrom, partition_ranges};
pub use latency::RequestFigures;
pub use lease::{Confirm, LEASE};
pub use paxos::{
    Ballotage, CAS_APART_MICROS, CasOptions, CasOutcome, LockRequest, MigratedVote, PaxosStats, Vote,
};
pub use placements::placed;
pub use pull::PullStats;
pub use range_parts::RangePart;
pub use rate_limit::{Decision, Operation};
pub use request::{WriteKind, WriteOptions};
pub use schema_change::SchemaChangeError;
pub use shard_calls::{NodeRequest, NodeResponse};
pub use table_figures::TableFigures;
pub use topology::{ClusterView, Consistency, DataPlacement, Phase, Replicated, ViewNode};
pub use view_builds::{BuildProgress, ViewBuildStatus};
pub use views::Difference;
