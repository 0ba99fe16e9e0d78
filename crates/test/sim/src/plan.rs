//! The choices of a seed that hold for a whole run: the machine, its settings, the tables.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use model::{Column, ColumnType, ScalarType, Shape};
use rt::IoCapacity;
use rt_sim::{DiskConfig, NameDurability, Rng};
use server::{Config, Size};

/// The disk by which half of the nodes schedule their reads and writes: so few are in flight at once that most wait.
const SPEED: IoCapacity = IoCapacity {
    read_iops: 10_000,
    read_bandwidth: 200 << 20,
    write_iops: 5_000,
    write_bandwidth: 100 << 20,
};
const SPEED_GOAL: Duration = Duration::from_micros(300);

/// When the commit log makes writes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    /// Every so often.
    Periodic(Duration),
    /// Before the acknowledgement.
    Batch,
    /// Before the acknowledgement, for all writes of a time together.
    Group(Duration),
}

/// The scenario of a seed.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) shards: u16,
    pub(crate) sync: Sync,
    pub(crate) names: NameDurability,
    pub(crate) lifetimes: u64,
    pub(crate) workers: u64,
    /// Longest workload of a process lifetime, milliseconds.
    pub(crate) lifetime_millis: u64,
    pub(crate) keyspaces: u64,
    pub(crate) tables: u64,
    pub(crate) cache: u64,
    /// Whether the disk has faults, the clock jumps, and so on.
    pub(crate) disk_faults: bool,
    pub(crate) clock_jumps: bool,
    pub(crate) broken_links: bool,
    pub(crate) power: bool,
    /// Time passes, so that tombstones outlive their grace.
    pub(crate) idles: bool,
    /// The schema changes while clients work.
    pub(crate) schema_changes: bool,
    /// The number of shards changes between starts.
    pub(crate) reshards: bool,
    /// Reads and writes of files that do only a part, per million.
    pub(crate) short_per_million: u32,
}

/// One of these.
pub(crate) fn pick<'a, T>(rng: &mut Rng, of: &'a [T]) -> &'a T {
    &of[rng.below(of.len() as u64) as usize]
}

/// Once in `n` times.
pub(crate) fn one_in(rng: &mut Rng, n: u64) -> bool {
    rng.below(n) == 0
}

impl Plan {
    /// The plan of a seed.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let millis =
            |rng: &mut Rng, least: u64, most: u64| Duration::from_millis(least + rng.below(most - least));
        let sync = match rng.below(10) {
            0..=3 => Sync::Periodic(millis(rng, 5, 200)),
            4..=7 => Sync::Batch,
            _ => Sync::Group(millis(rng, 1, 10)),
        };
        Self {
            shards: *pick(rng, &[1, 1, 1, 2, 2, 3, 4]),
            sync,
            names: *pick(rng, &[NameDurability::SyncDir, NameDurability::SyncDir, NameDurability::Journal]),
            lifetimes: 3 + rng.below(4),
            workers: 2 + rng.below(4),
            lifetime_millis: *pick(rng, &[40, 150, 400, 1_000]),
            keyspaces: 1 + rng.below(2),
            tables: 2 + rng.below(3),
            cache: *pick(rng, &[16 << 10, 256 << 10, 4 << 20]),
            disk_faults: one_in(rng, 3),
            clock_jumps: one_in(rng, 3),
            broken_links: one_in(rng, 4),
            power: rng.below(2) == 0,
            idles: one_in(rng, 2),
            schema_changes: one_in(rng, 2),
            reshards: one_in(rng, 6),
            short_per_million: *pick(rng, &[0, 0, 20_000]),
        }
    }

    /// A healthy disk.
    pub(crate) fn disk(&self) -> DiskConfig {
        DiskConfig {
            names: self.names,
            // As on ext4; file systems that copy on write allow neither.
            maps: self.names == NameDurability::Journal,
            short_per_million: self.short_per_million,
            speed: (self.workers % 2 == 1).then_some((SPEED, SPEED_GOAL)),
            ..DiskConfig::default()
        }
    }

    /// The node's settings for one process lifetime.
    pub(crate) fn config(&self, rng: &mut Rng, address: IpAddr, shard_count: u16) -> Config {
        let shards = u64::from(shard_count);
        let segment = *pick(rng, &[32 << 10, 64 << 10, 64 << 10, 256 << 10]);
        let mut config = Config {
            shards: shard_count,
            data_file_directories: PathBuf::from("/torc/data"),
            rpc_address: address,
            listen_address: address,
            api_address: address,
            prometheus_port: 0,
            memtable_space: Size(*pick(rng, &[12 << 10, 24 << 10, 64 << 10, 1 << 20]) * shards),
            cache_size: Size(self.cache * shards),
            commitlog_segment_size: Size(segment),
            commitlog_total_space: Size(segment * (2 + rng.below(6)) * shards),
            compaction_throughput: Size(*pick(rng, &[0, 1 << 20, 64 << 20])),
            concurrent_compactors: 1 + rng.below(2) as u16,
            auto_snapshot: rng.below(2) == 0,
            // Timeouts by the world's clock are not under test.
            slow_query_log_timeout: std::time::Duration::ZERO,
            ..Config::default()
        };
        match self.sync {
            Sync::Periodic(period) => config.commitlog_sync_period = period,
            Sync::Batch => config.commitlog_sync = "batch".into(),
            Sync::Group(window) => {
                config.commitlog_sync = "group".into();
                config.commitlog_sync_group_window = window;
            }
        }
        config
    }
}

const SCALARS: [ScalarType; 4] = [ScalarType::Int, ScalarType::Bigint, ScalarType::Text, ScalarType::Blob];

/// The type of a new column that is no counter.
pub(crate) fn column_type(rng: &mut Rng) -> ColumnType {
    match rng.below(8) {
        0 => ColumnType::Set(*pick(rng, &SCALARS)),
        1 => ColumnType::Map(*pick(rng, &SCALARS), *pick(rng, &SCALARS)),
        _ => ColumnType::Scalar(*pick(rng, &[ScalarType::Bigint, ScalarType::Text, ScalarType::Blob])),
    }
}

/// A table of random shape. `next_column` counts the columns of all tables.
pub(crate) fn shape(rng: &mut Rng, counter: bool, next_column: &mut u32) -> Shape {
    let partition_key = (0..1 + rng.below(5) / 4).map(|_| *pick(rng, &SCALARS)).collect();
    let clustering: Vec<(ScalarType, bool)> =
        (0..*pick(rng, &[0, 1, 1, 1, 2, 2])).map(|_| (*pick(rng, &SCALARS), one_in(rng, 3))).collect();
    let mut columns = Vec::new();
    let mut add = |name: String, ty: ColumnType, is_static: bool| {
        *next_column += 1;
        columns.push(Column { id: *next_column, name, ty, is_static });
    };
    if counter {
        (0..1 + rng.below(2)).for_each(|n| add(format!("n{n}"), ColumnType::Counter, false));
    } else {
        for n in 0..1 + rng.below(3) {
            add(format!("v{n}"), column_type(rng), false);
        }
        if !clustering.is_empty() && one_in(rng, 2) {
            add("s0".to_owned(), column_type(rng), true);
        }
    }
    Shape { partition_key, clustering, columns }
}

/// A table's options, the order of rows apart.
pub(crate) fn options(rng: &mut Rng) -> String {
    options_with_grace(rng, &[10, 10, 10, 30, 864_000])
}

/// [`options`] with one of these times until tombstones are forgotten, seconds.
pub(crate) fn options_with_grace(rng: &mut Rng, graces: &[u32]) -> String {
    let compression = *pick(
        rng,
        &[
            "{'class': 'LZ4Compressor', 'chunk_length_in_kb': 4}",
            "{'class': 'SnappyCompressor', 'chunk_length_in_kb': 4}",
            "{'class': 'DeflateCompressor', 'chunk_length_in_kb': 16}",
            "{'class': 'ZstdCompressor', 'chunk_length_in_kb': 4}",
            "{'enabled': 'false'}",
        ],
    );
    let compaction = *pick(
        rng,
        &[
            "{'class': 'SizeTieredCompactionStrategy', 'min_threshold': 2, 'min_sstable_size': 0}",
            "{'class': 'SizeTieredCompactionStrategy', 'min_threshold': 2}",
            "{'class': 'SizeTieredCompactionStrategy'}",
            "{'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': 1}",
            "{'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'MINUTES', 'compaction_window_size': 1}",
        ],
    );
    let grace = *pick(rng, graces);
    format!("gc_grace_seconds = {grace} AND compression = {compression} AND compaction = {compaction}")
}
