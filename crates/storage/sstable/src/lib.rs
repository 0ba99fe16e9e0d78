//! Cassandra's SSTables in the BIG format: written as `nb`, read from `mc` on.
//!
//! Each file of an SSTable has a module with its struct, its codec and the test that one inverts the other; the writer
//! and the reader put them together. The format-specific parts are in a folder ([`big`]); [`mod@format`] is the list of them. Knows nothing of memtables, compaction or replicas: it turns streams of
//! [`mutation::Fragment`]s into files and files into streams.

pub mod big;
pub mod block;
mod certify;
pub mod checksums;
mod component;
pub mod compress;
pub mod compression_info;
mod decode;
mod deletion;
pub mod descriptor;
pub mod dump;
mod edge;
pub mod error;
pub mod filter;
mod format;
pub mod guarded;
pub mod header;
mod index;
pub mod integrity;
mod io;
pub mod large;
pub mod metadata;
pub mod options;
mod prefix;
pub mod reader;
pub mod toc;
mod unfiltered;
pub mod verify;
mod version;
pub mod writer;

pub use block::{Block, BlockCache, BlockKey, NoCache};
pub use certify::certify;
pub use descriptor::{
    Component, Descriptor, Found, Generation, list_all, list_complete, named_table_dir, remove,
    remove_unfinished, table_dir,
};
pub use error::{Corruption, DecodeError, SstableError};
pub use format::known_tokens;
pub use guarded::{GuardedFigure, GuardedPartition, GuardedPartitions, PartitionBounds};
pub use integrity::{Integrity, Owner};
pub use large::{LargeData, LargeKind, LargeRecord, LargeThresholds};
pub use options::{Algorithm, Compression, EncodingStats, WriterOptions};
pub use reader::{IndexTokens, Sstable, SstableSource, read_metadata};
pub use version::{Capabilities, Format, Limits, Version};
pub use writer::{SstableWriter, Written};
