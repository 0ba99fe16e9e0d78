//! Cassandra's SSTables in the BIG format: written as `nb`, read from `mc` on.
//!
//! Each file of an SSTable has a module with its struct, its codec and the test that one inverts the other; the writer
//! and the reader put them together. Knows nothing of memtables, compaction or replicas: it turns streams of
//! [`mutation::Fragment`]s into files and files into streams.

pub mod block;
pub mod checksums;
pub mod compress;
pub mod compression_info;
mod decode;
mod deletion;
pub mod descriptor;
pub mod dump;
pub mod error;
pub mod filter;
pub mod header;
mod index;
pub mod integrity;
pub mod metadata;
pub mod options;
mod prefix;
pub mod reader;
pub mod summary;
pub mod toc;
mod unfiltered;
pub mod verify;
pub mod writer;

pub use block::{Block, BlockCache, BlockKey, NoCache};
pub use descriptor::{
    Component, Descriptor, Found, Generation, Version, list_all, list_complete, named_table_dir, remove,
    remove_unfinished, table_dir,
};
pub use error::{Corruption, DecodeError, SstableError};
pub use integrity::{Integrity, Owner, certify};
pub use options::{Algorithm, Compression, EncodingStats, WriterOptions};
pub use reader::{IndexTokens, Sstable, SstableSource, read_metadata};
pub use writer::{SstableWriter, Written};
