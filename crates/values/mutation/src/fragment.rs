//! Data in motion: a reader of partitions, over any source, is a stream of fragments.
//!
//! A partition is `PartitionStart`, at most one `StaticRow`, then rows and range tombstone changes in clustering
//! order (descending order when the stream is reversed), then `PartitionEnd`. A `RangeTombstoneChange` says which range
//! deletion is in force from its bound on, in the stream's direction; the last change of a partition is back to live.
//! In a reversed stream only the order turns round: bounds keep their positions.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;

use schema::Table;

use crate::{Bound, DecoratedKey, DeletionTime, Row};

/// One piece of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// A partition begins.
    PartitionStart {
        /// Which.
        key: DecoratedKey,
        /// Its deletion as a whole.
        deletion: DeletionTime,
    },
    /// Its static row, when it has one.
    StaticRow(Row),
    /// A row.
    Row(Row),
    /// From this bound on, this range deletion is in force.
    RangeTombstoneChange {
        /// From where.
        bound: Bound,
        /// The deletion in force from there; [`DeletionTime::LIVE`] for nothing.
        deletion: DeletionTime,
    },
    /// The partition is complete.
    PartitionEnd,
}

impl Fragment {
    /// Takes away columns that `table` does not have: a source may still hold them after the definition changed. False
    /// when nothing is left of a row, which must not be there for their sake.
    pub fn keep_columns(&mut self, table: &Table) -> bool {
        match self {
            Self::Row(row) | Self::StaticRow(row) => {
                row.keep_known(table);
                !row.is_empty()
            }
            _ => true,
        }
    }

    /// Bytes that it holds, for batching and accounting.
    pub fn memory_size(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::PartitionStart { key, .. } => key.key.len(),
                Self::StaticRow(row) | Self::Row(row) => row.memory_size() - size_of::<Row>(),
                Self::RangeTombstoneChange { bound, .. } => bound.memory_size(),
                Self::PartitionEnd => 0,
            }
    }
}

/// Fragments on their way from a source to its reader.
pub type FragmentBuffer = VecDeque<Fragment>;

/// How many bytes of fragments a source gathers before it hands them on; bounds the memory of a stream.
pub const FILL_BYTES_MAX: usize = 16 * 1024;

/// Why a source failed. Boxed because the reasons belong to the layer that reads (files, network).
pub type SourceError = Box<dyn std::error::Error + 'static>;

/// A stream of fragments that is filled a batch at a time, so that the price of a virtual asynchronous call is
/// paid once for many rows.
pub trait FragmentSource {
    /// Appends fragments to `out`, at least one and about [`FILL_BYTES_MAX`] bytes; `false` says that the stream has
    /// ended and nothing was appended. May stop in the middle of a partition.
    ///
    /// # Errors
    /// That of the source: a file that cannot be read or is corrupt, or a limit of the read. Fragments appended before
    /// it are in `out`.
    fn fill<'a>(
        &'a mut self,
        out: &'a mut FragmentBuffer,
    ) -> Pin<Box<dyn Future<Output = Result<bool, SourceError>> + 'a>>;
}
