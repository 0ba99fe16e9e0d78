//! Turns a stream of fragments into the files of an SSTable.

use std::path::PathBuf;
use std::sync::Arc;

use mutation::{DecoratedKey, Fragment};
use rt::Rt;
use schema::Table;

use crate::{Descriptor, EncodingStats, SstableError, WriterOptions};

/// Writes one SSTable from fragments in order, holding a bounded part of it in memory.
pub struct SstableWriter {
    _descriptor: Descriptor,
}

/// A complete SSTable on disk.
#[derive(Clone, Debug)]
pub struct Written {
    /// Its name.
    pub descriptor: Descriptor,
    /// First and last partition; none when it has no partition.
    pub bounds: Option<(DecoratedKey, DecoratedKey)>,
    /// Partitions in it.
    pub partitions: u64,
    /// Rows in it, static rows included.
    pub rows: u64,
    /// Length of the data file.
    pub data_len: u64,
    /// Length of the data before compression.
    pub uncompressed_len: u64,
    /// Bytes of all files.
    pub disk_len: u64,
}

impl SstableWriter {
    /// Creates the files of SSTable `generation` in `dir`, which must exist.
    pub async fn new(
        rt: &Rt,
        dir: impl Into<PathBuf>,
        generation: u64,
        table: Arc<Table>,
        options: WriterOptions,
        encoding: EncodingStats,
    ) -> Result<Self, SstableError> {
        let _ = (rt, table, options, encoding);
        Ok(Self { _descriptor: Descriptor::new(dir, generation) })
    }

    /// Adds the next fragment. Partitions come in ring order, rows in clustering order.
    pub async fn push(&mut self, fragment: Fragment) -> Result<(), SstableError> {
        let _ = fragment;
        pending()
    }

    /// Bytes of data that were written so far, before compression; to split outputs by size.
    pub fn uncompressed_len(&self) -> u64 {
        pending()
    }

    /// Writes what is left, makes all files durable, and the TOC last: from then on the SSTable exists.
    pub async fn finish(self) -> Result<Written, SstableError> {
        pending()
    }

    /// Gives up: removes the files.
    pub async fn abort(self) -> Result<(), SstableError> {
        pending()
    }
}

fn pending() -> ! {
    panic!("not in the skeleton yet")
}
