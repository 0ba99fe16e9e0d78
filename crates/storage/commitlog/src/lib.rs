//! The commit log of one shard: it makes an acknowledged write survive a crash before its memtable is flushed.
//!
//! Entries are numbered; they gather in chunks, which one task writes to segments of fixed length one after another, so
//! that many writes share one trip to the disk. At the start the log distinguishes a tail that a crash may have torn from one that only
//! damage explains, and replays the entries that no SSTable holds yet. It knows nothing of memtables; the engine reports how far tables
//! are flushed. Format and reasons: `docs/design/commitlog.md`.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

mod active;
pub mod config;
pub mod entry;
mod error;
mod files;
mod log;
mod recovery;
pub mod segment;
mod signal;
mod writer;

pub use config::{CommitLogConfig, SyncMode};
pub use error::{AppendError, CommitLogError};
pub use files::archive;
pub use log::{CommitLog, CommitLogStats, Ticket};
pub use recovery::{Recovery, SegmentEntries, list_segments, read_header, read_shard, remove_spares};
