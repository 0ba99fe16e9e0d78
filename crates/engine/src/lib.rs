//! One shard's storage: memtables, commit log, SSTables, cache and compaction behind one handle.
//!
//! The engine keeps what it is given and finds it again. It knows nothing of replicas, consistency levels or CQL;
//! it does not decide which writes belong to this shard. Everything goes through [`rt::Rt`], so that the simulator can
//! crash it between any two steps.

mod config;
mod engine;
mod error;
mod reader;
pub mod stats;

pub use commitlog::{CommitLogConfig, SyncMode};
pub use config::{Canaries, EngineConfig, FailurePolicy};
pub use engine::{Engine, prepare};
pub use error::{MaintenanceError, OpenError, ReadError, WriteError};
pub use reader::{EngineReader, SyncStep};
pub use stats::{CompactionRecord, EngineStats, TableStats};
