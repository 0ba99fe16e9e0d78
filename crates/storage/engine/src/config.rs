//! Settings of one shard's engine.

use std::path::PathBuf;

use commitlog::CommitLogConfig;
use sstable::LargeThresholds;
use topology::TabletMaps;

/// The reaction to a failure of the disk (`disk_failure_policy`, `commit_failure_policy`). That something has run out (space,
/// descriptors, memory) is no failure: it is waited out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Refuse further writes until a restart, and reads too when it is the commit log that failed.
    Stop,
    /// Refuse further writes until a restart; reads go on.
    StopWrites,
    /// Fail the requests concerned and try again with the next.
    Ignore,
    /// End the process.
    Die,
}

/// Injected bugs, for tests of the tests: each must be found by the simulator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Canaries {
    /// The commit log acknowledges without syncing where its mode promises a sync.
    pub skip_commitlog_sync: bool,
    /// Replay stops before the last segment.
    pub replay_stops_early: bool,
    /// Flush leaves range tombstones out.
    pub drop_range_tombstones: bool,
    /// Compaction forgets tombstones without looking at the SSTables and memtables beside it.
    pub purge_too_soon: bool,
    /// Flush leaves static rows out.
    pub drop_static_rows: bool,
    /// Increments of one counter do not wait for each other.
    pub skip_counter_locks: bool,
    /// Memtables are neither flushed nor writes held back when they have reached their limit.
    pub unlimited_memtables: bool,
    /// Where deletions wait for a repair, everything is taken for repaired at this moment.
    pub all_repaired: bool,
    /// The index of an SSTable leaves out one row in four.
    pub lost_places: bool,
    /// A truncation keeps one SSTable.
    pub partial_truncate: bool,
    /// A cleanup keeps everything.
    pub skipped_cleanup: bool,
    /// Writes that come late are taken although the table was truncated meanwhile.
    pub late_after_truncate: bool,
}

/// The shares of background work, of CPU and disk; 0 where they follow its backlog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareSettings {
    /// Of compactions (`compaction_static_shares`).
    pub compaction_static: u32,
    /// The most that compactions get by their backlog (`compaction_max_shares`).
    pub compaction_max: u32,
    /// Of flushes (`memtable_flush_static_shares`).
    pub flush_static: u32,
}

/// Settings of one shard's engine that may change while it runs ([`crate::Engine::set_settings`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    /// Rate of compaction, bytes a second; 0 for no limit (`compaction_throughput`).
    pub compaction_bytes_per_second: u64,
    /// The shares of flushes and compactions.
    pub shares: ShareSettings,
    /// Compactions that run at once on this shard (`concurrent_compactors`).
    pub compactors_max: usize,
    /// Snapshot before DROP and TRUNCATE (`auto_snapshot`); a table may opt out.
    pub auto_snapshot: bool,
    /// Hard-link every flushed SSTable into `backups/` (`incremental_backups`), but those of tables that say otherwise.
    pub incremental_backups: bool,
    /// Thresholds from which partitions, rows and cells are noted as large when SSTables are written.
    pub large: LargeThresholds,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            compaction_bytes_per_second: 64 << 20,
            shares: ShareSettings::default(),
            compactors_max: 2,
            auto_snapshot: true,
            incremental_backups: false,
            large: LargeThresholds::DEFAULT,
        }
    }
}

/// Settings of one shard's engine. Byte limits are this shard's part of the node's.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Where tables live (`data_file_directories`): `<directory>/<keyspace>/<table>-<id>/`, shared by the shards.
    pub data_directory: PathBuf,
    /// The commit log.
    pub commitlog: CommitLogConfig,
    /// The limit of memtables, bytes. At half of it the largest is flushed; above it writes wait. The write that goes above it is
    /// let in whole.
    pub memtable_bytes_max: usize,
    /// The limits of rows, index pages and chunks in the cache, bytes.
    pub cache_bytes_max: usize,
    /// The settings that may change while the engine runs, as they are at the start.
    pub settings: EngineSettings,
    /// Whether compactions start by themselves.
    pub auto_compaction: bool,
    /// When data files fail.
    pub disk_failure_policy: FailurePolicy,
    /// When the commit log fails.
    pub commit_failure_policy: FailurePolicy,
    /// This node, as SSTables record their origin.
    pub host_id: [u8; 16],
    /// The tablets of tables that have some, at the start; a view brings those of later.
    pub tablets: TabletMaps,
    /// Injected bugs; none outside of tests.
    pub canaries: rt::Injected<Canaries>,
}

impl EngineConfig {
    /// Defaults for one shard: data in `data_directory`, the log in `commitlog_directory`.
    pub fn new(data_directory: PathBuf, commitlog_directory: PathBuf) -> Self {
        Self {
            data_directory,
            commitlog: CommitLogConfig::new(commitlog_directory),
            memtable_bytes_max: 256 << 20,
            cache_bytes_max: 256 << 20,
            settings: EngineSettings::default(),
            auto_compaction: true,
            disk_failure_policy: FailurePolicy::Stop,
            commit_failure_policy: FailurePolicy::Stop,
            host_id: [0; 16],
            tablets: TabletMaps::default(),
            canaries: rt::Injected::default(),
        }
    }
}
