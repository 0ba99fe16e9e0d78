//! Settings of the commit log, with the meaning that `cassandra.yaml` gives them.

use std::path::PathBuf;
use std::time::Duration;

/// When a write may be acknowledged (`commitlog_sync`). In every mode its entry has reached the kernel by then, so that
/// it survives the death of the process; they differ in the writes that a power failure may lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// At once; the file is synced every `period` (`commitlog_sync_period`).
    Periodic {
        /// The data that a power failure may cost.
        period: Duration,
    },
    /// After the next sync, which is made as soon as the one before has ended.
    Batch,
    /// After the next sync; syncs are at least `window` apart (`commitlog_sync_group_window`).
    Group {
        /// The time between syncs.
        window: Duration,
    },
}

/// Settings of one shard's commit log.
#[derive(Clone, Debug)]
pub struct CommitLogConfig {
    /// Where the segments lie (`commitlog_directory`); shared by the shards of a node.
    pub directory: PathBuf,
    /// When writes are acknowledged.
    pub sync: SyncMode,
    /// Length of a segment, bytes (`commitlog_segment_size`). An entry may take half of it.
    pub segment_bytes: u64,
    /// The limit of this shard's segments together, bytes (`commitlog_total_space` over the shards). When they
    /// take more, the tables that hold the oldest are flushed.
    pub total_bytes_max: u64,
    /// Full segments are hard-linked here when set (`commitlog_archive`).
    pub archive_directory: Option<PathBuf>,
    /// Skip damage in the middle of a segment instead of refusing to start (`commitlog_ignore_errors`).
    pub ignore_errors: bool,
}

/// With fewer segments a shard each new one would have tables flushed.
const SEGMENTS_MIN: u64 = 4;

impl CommitLogConfig {
    /// The limit of one of `shards` shards, of `total` bytes: its part, but never less than a few segments of `segment` bytes,
    /// whose length is not for the number of shards to say, because the largest mutation depends on it.
    pub fn share(total: u64, segment: u64, shards: u64) -> u64 {
        (total / shards.max(1)).max(SEGMENTS_MIN * segment)
    }

    /// Cassandra's defaults, in this directory.
    pub fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            sync: SyncMode::Periodic { period: Duration::from_secs(10) },
            segment_bytes: 32 << 20,
            total_bytes_max: 1 << 30,
            archive_directory: None,
            ignore_errors: false,
        }
    }
}
