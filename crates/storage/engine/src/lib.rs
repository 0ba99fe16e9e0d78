//! One shard's storage: memtables, commit log, SSTables, cache and compaction behind one handle.
//!
//! The engine keeps what it is given and finds it again. It knows nothing of replicas, consistency levels or CQL;
//! it does not decide which writes belong to this shard. Everything goes through [`rt::Rt`], so that the simulator can
//! crash it between any two steps.

mod adopt;
mod cached;
mod compact;
mod config;
mod counter;
mod counter_id;
mod edit;
mod engine;
mod error;
mod figures;
mod files;
mod flush;
mod live;
mod locks;
mod maintain;
mod marks;
mod mend;
mod observer;
mod open;
mod prepare;
mod quarantine;
mod read;
mod reader;
mod sampling;
mod snapshots;
pub mod stats;
mod store;
mod truncation;
mod write;

pub use adopt::{Adopted, AwaitedFiles, Incoming};
pub use commitlog::codec as update_codec;
pub use commitlog::{CommitLogConfig, SyncMode};
pub use compaction::KeptTokens;
pub use config::{Canaries, EngineConfig, FailurePolicy};
pub use engine::Engine;
pub use error::{MaintenanceError, OpenError, ReadError, WriteError};
pub use files::{HeldFiles, Outgoing, Wanted};
pub use maintain::finish_drop;
pub use marks::{Mark, Marked};
pub use memtable::OnlyRow;
pub use mend::TokenSpan;
pub use observer::{Derived, WriteObserver};
pub use prepare::prepare;
pub use read::{Read, ReadScope, ReadSources};
pub use reader::{EngineReader, SyncStep};
pub use sampling::{Sampled, SampledKey, TopKeys};
pub use snapshots::{SnapshotRecord, list_snapshots};
pub use sstable::named_table_dir as dropped_table_dir;
pub use stats::{CompactionRecord, EngineStats, TableStats, TaskRecord};
pub use write::{Durability, Origin, Truncation, Updates, Write};
