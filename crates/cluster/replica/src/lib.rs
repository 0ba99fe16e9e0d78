//! A node's own data behind plain values: reads and writes go to the shard that owns the token, by a function call
//! when that is this shard and by a message otherwise.
//!
//! This is where the coordinator's world (consistency, requests) meets the engine's (files, memtables), and both see
//! only the types of [`command`].

mod apply;
pub mod command;
pub mod compare;
mod digest;
mod error;
mod fragments;
mod import;
mod message;
mod nearest;
pub mod nearest_codec;
mod ordered_scan;
pub mod ordered_scan_codec;
pub mod page;
mod read;
pub mod read_codec;
mod request;
mod scan;
mod serve;
mod shard;
mod sliced;
mod snapshots;
pub mod steps;
mod trace;
pub mod trace_rows;
mod traced;

pub use engine::{
    BEAM_MAX, CONNECTIONS_MAX, Candidate, Candidates, DIMENSIONS_OPTION, ENTRY_OPTION, IndexDefinition,
    IndexQuery, NearestQuery, NearestTo, ORDER_OPTION, Order, OrderedPlaces, OrderedScan, Place, Predicate,
    Similarity, TextStatistics, UNORDERED_MAX, WantedOrphans,
};
pub use engine::{
    Derivation, Derived, Durability, Engine, FollowUp, FragmentPlace, FragmentsPage, FragmentsRead,
    LocalFigures, Marked, Origin, Read as EngineRead, RepairedWatermark, RowLookup as EngineRowLookup,
    TableSize, TakenOver, TokenSpan, Updates, WriteError, WriteObserver,
};

pub use command::{
    Form, Keys, Limits, PartitionResult, Partitions, ReadCommand, ReadPage, Resume, RowLookup,
};
pub use digest::digest;
pub use error::ReplicaError;
pub use import::{Adoption, ImportFailed, Imported};
pub use message::{ShardRequest, ShardResponse, SnapshotContent, TableOperation};
pub use request::{Read, Scope, TombstoneLimit, Truncation, Write};
pub use shard::{Replica, ReplicaConfig};
pub use snapshots::{SnapshotError, SnapshotNotes, Snapshots};
pub use trace::{TraceEvent, TraceLog};
