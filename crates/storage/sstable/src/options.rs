//! How an SSTable is to be written.

use mutation::{Seconds, Timestamp};
use schema::{ColumnId, Table};

use crate::{LargeThresholds, Owner};

/// A compression algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// LZ4 blocks after a 4-byte little-endian length.
    Lz4,
    /// Zstandard frames.
    Zstd,
    /// Raw Snappy.
    Snappy,
    /// zlib.
    Deflate,
    /// Chunks with checksums, not compressed.
    Noop,
}

/// How data is compressed.
#[derive(Clone, Debug, PartialEq)]
pub struct Compression {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Bytes of a chunk before compression: a power of two.
    pub chunk_len: usize,
    /// Chunks that do not shrink at least by this factor are kept uncompressed; 0 compresses all.
    pub min_ratio: f64,
    /// Level of Zstd; 3 unless told.
    pub level: i32,
}

/// The smallest values in an SSTable, against which its values are encoded as differences. Too small is correct and
/// wastes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodingStats {
    /// Smallest write timestamp.
    pub min_timestamp: Timestamp,
    /// Smallest local deletion or expiration time.
    pub min_local_deletion: Seconds,
    /// Smallest TTL.
    pub min_ttl: Seconds,
}

impl EncodingStats {
    /// The default before anything is known (2015-09-22).
    pub const NONE: Self =
        Self { min_timestamp: 1_442_880_000_000_000, min_local_deletion: 1_442_880_000, min_ttl: 0 };

    /// The rules for both.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self {
            min_timestamp: self.min_timestamp.min(other.min_timestamp),
            min_local_deletion: self.min_local_deletion.min(other.min_local_deletion),
            min_ttl: self.min_ttl.min(other.min_ttl),
        }
    }
}

/// How to write one SSTable.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// About how many partitions will come; sizes the bloom filter.
    pub estimated_partitions: u64,
    /// Share of absent keys that the bloom filter may let through; 1 for no filter.
    pub bloom_fp_chance: f64,
    /// None for plain data.
    pub compression: Option<Compression>,
    /// Every how many partitions the index is sampled.
    pub index_interval: u32,
    /// Bytes of rows between entries of a wide partition's index.
    pub column_index_len: usize,
    /// Columns that may appear; `None` for every static and regular column. A row with another one is an error of the
    /// caller.
    pub columns: Option<Vec<ColumnId>>,
    /// Level in leveled compaction.
    pub level: u32,
    /// When its data was repaired, milliseconds; 0 for never.
    pub repaired_at: i64,
    /// The host that writes.
    pub host_id: Option<[u8; 16]>,
    /// The shard that owns all partitions that will come, if that is known.
    pub owner: Option<Owner>,
    /// Thresholds from which partitions, rows and cells are noted as large.
    pub large: LargeThresholds,
}

impl WriterOptions {
    /// The request of the table's options.
    pub fn for_table(table: &Table, estimated_partitions: u64) -> Self {
        Self {
            estimated_partitions,
            bloom_fp_chance: table.options.bloom_filter_fp_chance,
            compression: Compression::of(&table.options.compression),
            index_interval: table.options.min_index_interval.max(1),
            column_index_len: 4096,
            columns: None,
            level: 0,
            repaired_at: 0,
            host_id: None,
            owner: None,
            large: LargeThresholds::DEFAULT,
        }
    }
}

impl Algorithm {
    /// The class as CompressionInfo.db names it.
    pub fn class_name(self) -> &'static str {
        match self {
            Self::Lz4 => "LZ4Compressor",
            Self::Zstd => "ZstdCompressor",
            Self::Snappy => "SnappyCompressor",
            Self::Deflate => "DeflateCompressor",
            Self::Noop => "NoopCompressor",
        }
    }

    /// The algorithm of a class, with or without its package.
    pub fn from_class_name(name: &str) -> Option<Self> {
        let simple = name.rsplit('.').next().unwrap_or(name);
        [Self::Lz4, Self::Zstd, Self::Snappy, Self::Deflate, Self::Noop]
            .into_iter()
            .find(|algorithm| algorithm.class_name() == simple)
    }
}

const _: () = assert!(
    Compression::DEFAULT.chunk_len.is_power_of_two()
        && Compression::DEFAULT.chunk_len <= Compression::CHUNK_LEN_MAX,
    "a chunk length that tables may have"
);

impl Compression {
    /// LZ4 with chunks of 16 KiB, as tables have when they say nothing.
    pub const DEFAULT: Self =
        Self { algorithm: Algorithm::Lz4, chunk_len: 16 << 10, min_ratio: 0.0, level: 3 };
    /// The largest chunk that is written or read.
    pub const CHUNK_LEN_MAX: usize = 64 << 20;

    /// Reads a table's `compression` option, which was validated when the table was made; anything that is not understood
    /// falls back to the default.
    pub fn of(options: &std::collections::BTreeMap<String, String>) -> Option<Self> {
        if options.get("enabled").is_some_and(|value| value.eq_ignore_ascii_case("false")) {
            return None;
        }
        let class = options.get("class").or_else(|| options.get("sstable_compression"))?;
        if class.is_empty() {
            return None;
        }
        let number = |name: &str| options.get(name).and_then(|value| value.trim().parse::<f64>().ok());
        let kib = number("chunk_length_in_kb").or_else(|| number("chunk_length_kb"));
        let chunk_len = kib.map_or(Self::DEFAULT.chunk_len, |kib| (kib * 1024.0) as usize);
        let usable = chunk_len.is_power_of_two() && (1024..=Self::CHUNK_LEN_MAX).contains(&chunk_len);
        Some(Self {
            algorithm: Algorithm::from_class_name(class).unwrap_or(Algorithm::Lz4),
            chunk_len: if usable { chunk_len } else { Self::DEFAULT.chunk_len },
            min_ratio: number("min_compress_ratio").unwrap_or(0.0),
            level: number("compression_level").map_or(Self::DEFAULT.level, |level| level as i32),
        })
    }
}
