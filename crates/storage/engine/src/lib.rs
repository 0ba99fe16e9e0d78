//! One shard's storage: memtables, commit log, SSTables, cache and compaction behind one handle.
//!
//! The engine stores rows and finds them again. It knows nothing of replicas, consistency levels or CQL;
//! it does not decide which writes belong to this shard. Everything goes through [`rt::Rt`], so that the simulator can
//! crash it between any two steps.

mod adopt;
mod api;
mod awaited;
mod backlog;
mod begin_repair;
mod blocks;
mod budget;
mod cache_fill;
mod cached;
mod chunks;
mod commit;
mod compact;
mod compactions;
mod config;
mod counter;
mod counter_id;
mod counter_state;
mod damage;
mod drop_table;
mod edit;
mod edits;
mod engine;
mod error;
mod figures;
mod files;
mod finish_drops;
mod flush;
mod flushes;
mod fragments;
mod generation;
mod health;
mod import;
mod index_builder;
mod index_check;
mod index_reader;
mod indexes;
mod input;
mod intervals;
mod large;
mod links;
mod live;
mod local_counters;
mod local_figures;
mod locks;
mod marks;
mod memory;
mod memtables;
mod metrics;
mod observer;
mod open;
mod prepare;
mod quarantine;
mod read;
mod read_request;
mod reader;
mod request;
mod rewrite;
mod salvage;
mod salvaged;
mod sampling;
mod schema_change;
mod sharding;
mod shares;
mod snapshot_rows;
mod snapshots;
mod sstables;
pub mod stats;
mod store;
mod tables;
mod taken;
mod truncation;
mod truncation_record;
mod watermark;
mod write;

pub use adopt::{Adopted, Incoming};
pub use awaited::AwaitedFiles;
pub use commitlog::{CommitLogConfig, SyncMode};
pub use compaction::OwnedRanges;
pub use config::{Canaries, EngineConfig, EngineSettings, FailurePolicy, ShareSettings};
pub use engine::{Derivation, Derived, Engine, FollowUp, TakenOver, WriteObserver};
pub use error::{MaintenanceError, OpenError, ReadError, WriteError};
pub use files::{HeldFiles, Outgoing, Wanted};
pub use finish_drops::{UnfinishedDrop, finish_drops};
pub use fragments::{FragmentPlace, FragmentsPage, FragmentsRead};
pub use import::{ImportLock, Staged};
pub use index::Definition as IndexDefinition;
pub use index::{
    BEAM_MAX, CONNECTIONS_MAX, Candidate, Candidates, DIMENSIONS_OPTION, ENTRY_OPTION, IndexQuery,
    NearestQuery, NearestTo, ORDER_OPTION, Order, OrderedPlaces, OrderedScan, Place, Predicate, Similarity,
    TextStatistics, UNORDERED_MAX, WantedOrphans,
};
pub use links::is_snapshot_name;
pub use local_figures::{LocalFigures, MeasuredRead, SstableFigures, TableHistograms};
pub use mutation::Granularity;
pub use prepare::prepare;
pub use read::ReadSources;
pub use read_request::{Read, ReadScope, RowLookup};
pub use reader::{EngineReader, SyncStep};
pub use request::{Durability, Origin, Truncation, Updates, Write};
pub use rewrite::Rewrite;
pub use salvaged::TokenSpan;
pub use sampling::{Sampled, SampledKey, TopKeys};
pub use snapshot_rows::SnapshotRows;
pub use snapshots::{
    SnapshotRecord, complete_snapshot, list_snapshots, remove_snapshot, remove_snapshots, snapshot_bytes,
    snapshot_dir,
};
pub use sstable::guarded::{Bounds, PartitionBounds};
pub use sstable::named_table_dir as dropped_table_dir;
pub use sstable::table_dir;
pub use sstable::{LargeData, LargeKind, LargeRecord, LargeThresholds};
pub use stats::{
    CompactionRecord, EngineStats, LargeSstable, RewriteReport, StopRequest, TableSize, TableStats, TaskKind,
    TaskRecord,
};
pub use watermark::{Marked, RepairedWatermark};
