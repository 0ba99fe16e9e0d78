//! Table options: every one of Cassandra 5.0's is kept and shown again; the ones that the engine obeys are typed.

use std::collections::BTreeMap;

use crate::Cdc;

/// The longest time to live, in seconds: twenty years, as in Cassandra.
pub const TTL_MAX: u32 = 20 * 365 * 24 * 60 * 60;

/// When a coordinator asks a further replica (`speculative_retry`, `additional_write_policy`).
#[derive(Clone, Debug, PartialEq)]
pub enum SpeculativeRetry {
    /// Never.
    Never,
    /// At once.
    Always,
    /// After this percentile of the table's read latency (0–100).
    Percentile(f64),
    /// After so many milliseconds.
    Millis(f64),
    /// The smaller (`MIN`) or larger (`MAX`) of a percentile and a fixed time in milliseconds.
    Hybrid {
        /// Whether the smaller of the two counts.
        min: bool,
        /// The percentile (0–100).
        percentile: f64,
        /// The fixed time.
        millis: f64,
    },
}

impl std::fmt::Display for SpeculativeRetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Cassandra prints `99p` for whole percentiles and `99.9p` otherwise.
        match self {
            Self::Never => f.write_str("NEVER"),
            Self::Always => f.write_str("ALWAYS"),
            Self::Percentile(p) => write!(f, "{p}p"),
            Self::Millis(ms) => write!(f, "{ms}ms"),
            Self::Hybrid { min, percentile, millis } => {
                write!(f, "{}({percentile}p,{millis}ms)", if *min { "MIN" } else { "MAX" })
            }
        }
    }
}

/// When a deletion may be forgotten (`tombstone_gc`, as in ScyllaDB).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TombstoneGc {
    /// After `gc_grace_seconds`.
    Timeout,
    /// Never.
    Disabled,
    /// At once: for tables of which every row is written once.
    Immediate,
    /// After a repair of all replicas that began so many seconds after the deletion.
    Repair {
        /// How long a write may be under way.
        propagation_delay_seconds: u32,
    },
}

impl TombstoneGc {
    /// How long a write may be under way when nothing else was said, in seconds.
    pub const PROPAGATION_DELAY_SECONDS: u32 = 3600;

    /// The `mode` in CQL.
    pub const fn mode(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Disabled => "disabled",
            Self::Immediate => "immediate",
            Self::Repair { .. } => "repair",
        }
    }

    /// From the `mode` in CQL.
    pub fn from_mode(mode: &str, propagation_delay_seconds: u32) -> Option<Self> {
        Some(match mode {
            "timeout" => Self::Timeout,
            "disabled" => Self::Disabled,
            "immediate" => Self::Immediate,
            "repair" => Self::Repair { propagation_delay_seconds },
            _ => return None,
        })
    }
}

/// How often a second each partition may be read and written (`per_partition_rate_limit`, as in ScyllaDB); absent for any rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimit {
    /// Reads a second; 0 refuses all.
    pub max_reads_per_second: Option<u32>,
    /// Writes a second; 0 refuses all.
    pub max_writes_per_second: Option<u32>,
}

impl RateLimit {
    /// The limits that there are, with their names in CQL.
    pub fn named(self) -> impl Iterator<Item = (&'static str, u32)> {
        let limits = [
            ("max_reads_per_second", self.max_reads_per_second),
            ("max_writes_per_second", self.max_writes_per_second),
        ];
        limits.into_iter().filter_map(|(name, limit)| Some((name, limit?)))
    }
}

/// The options behind `WITH` in CREATE TABLE, defaults as in Cassandra 5.0.
#[derive(Clone, Debug, PartialEq)]
pub struct TableOptions {
    /// Free text.
    pub comment: String,
    /// Target false-positive rate of bloom filters, above 0 and at most 1.
    pub bloom_filter_fp_chance: f64,
    /// `keys` and `rows_per_partition`, which have no effect, and `enabled` = `false` of a table that is not cached (ScyllaDB's).
    pub caching: BTreeMap<String, String>,
    /// Whether and how changes are captured.
    pub cdc: Cdc,
    /// Compaction class and its settings.
    pub compaction: BTreeMap<String, String>,
    /// Compression class and its settings; `enabled: false` for none.
    pub compression: BTreeMap<String, String>,
    /// Share of reads that verify chunk checksums, 0–1.
    pub crc_check_chance: f64,
    /// Seconds that a write lives when it names no TTL, [`TTL_MAX`] at most; 0 for ever.
    pub default_time_to_live: u32,
    /// Seconds that a tombstone is kept at least.
    pub gc_grace_seconds: u32,
    /// Bounds of the index summary's sampling.
    pub max_index_interval: u32,
    /// Bounds of the index summary's sampling.
    pub min_index_interval: u32,
    /// Milliseconds after which a memtable is flushed in any case; 0 for never.
    pub memtable_flush_period_in_ms: u32,
    /// Name of the memtable configuration.
    pub memtable: String,
    /// `BLOCKING` or `NONE`.
    pub read_repair: String,
    /// When reads ask one replica more.
    pub speculative_retry: SpeculativeRetry,
    /// When writes to transient replicas are sent.
    pub additional_write_policy: SpeculativeRetry,
    /// Hard links of every flushed SSTable; absent means as the node says.
    pub incremental_backups: Option<bool>,
    /// Snapshot before DROP and TRUNCATE.
    pub allow_auto_snapshot: bool,
    /// When a deletion may be forgotten.
    pub tombstone_gc: TombstoneGc,
    /// Seconds for which votes of lightweight transactions are remembered; absent for `gc_grace_seconds`.
    pub paxos_grace_seconds: Option<u32>,
    /// How often each partition may be read and written.
    pub per_partition_rate_limit: RateLimit,
    /// Of a materialized view: writes of its base wait for it (`synchronous_updates`, as in ScyllaDB).
    pub synchronous_updates: bool,
    /// Opaque settings of extensions.
    pub extensions: BTreeMap<String, Vec<u8>>,
}

impl TableOptions {
    /// Whether its rows are kept in the row cache (`enabled` of `caching`).
    pub fn is_cached(&self) -> bool {
        self.caching.get("enabled").is_none_or(|text| text != "false")
    }

    /// Whether deletions are forgotten only when they were repaired (`only_purge_repaired_tombstones` of `compaction`).
    pub fn only_purges_repaired(&self) -> bool {
        let option = self.compaction.get("only_purge_repaired_tombstones");
        option.is_some_and(|text| text.trim().eq_ignore_ascii_case("true"))
    }
}

impl Default for TableOptions {
    fn default() -> Self {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>()
        };
        Self {
            comment: String::new(),
            bloom_filter_fp_chance: 0.01,
            caching: map(&[("keys", "ALL"), ("rows_per_partition", "NONE")]),
            cdc: Cdc::default(),
            compaction: map(&[
                ("class", "org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy"),
                ("max_threshold", "32"),
                ("min_threshold", "4"),
            ]),
            compression: map(&[
                ("chunk_length_in_kb", "16"),
                ("class", "org.apache.cassandra.io.compress.LZ4Compressor"),
            ]),
            crc_check_chance: 1.0,
            default_time_to_live: 0,
            gc_grace_seconds: 864_000,
            max_index_interval: 2048,
            min_index_interval: 128,
            memtable_flush_period_in_ms: 0,
            memtable: "default".to_owned(),
            read_repair: "BLOCKING".to_owned(),
            speculative_retry: SpeculativeRetry::Percentile(99.0),
            additional_write_policy: SpeculativeRetry::Percentile(99.0),
            incremental_backups: None,
            allow_auto_snapshot: true,
            tombstone_gc: TombstoneGc::Timeout,
            paxos_grace_seconds: None,
            per_partition_rate_limit: RateLimit::default(),
            synchronous_updates: false,
            extensions: BTreeMap::new(),
        }
    }
}
