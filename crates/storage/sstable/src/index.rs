//! The index of every format finds: places of partitions in the data, and blocks of rows of wide ones.

use mutation::{DecoratedKey, DeletionTime};

/// An entry of the partition index.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Its key; empty when the caller knew it.
    pub(crate) key: Option<DecoratedKey>,
    /// The position of its partition in the data.
    pub(crate) position: u64,
    /// The position of its row index in the format's index files, and how long it is.
    pub(crate) row_index: Option<(u64, u64)>,
}

/// The summary of a partition in its row index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartitionHead {
    /// Bytes of the partition before its first row.
    pub(crate) header_len: u64,
    /// The partition's deletion.
    pub(crate) deletion: DeletionTime,
}

/// One block of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowBlock {
    /// Position of its first row or marker, comparable with those of rows and bounds.
    pub(crate) first: Vec<u8>,
    /// Position of its last.
    pub(crate) last: Vec<u8>,
    /// Where it begins, from the partition's start.
    pub(crate) offset: u64,
    /// Its length in bytes.
    pub(crate) width: u64,
    /// The range deletion in force behind it.
    pub(crate) open: DeletionTime,
}

/// The head of a partition as a verification read it.
pub(crate) struct ReadHead {
    /// Its position.
    pub(crate) start: u64,
    /// The position of its first item.
    pub(crate) rows_at: u64,
    /// Its deletion.
    pub(crate) deletion: DeletionTime,
    /// Its index entry.
    pub(crate) entry: Option<Entry>,
}

/// An item of a partition as a verification read it.
#[derive(Clone, Copy)]
pub(crate) struct ReadItem<'a> {
    /// Where it begins in the data.
    pub(crate) start: u64,
    /// Its position, comparable with those of rows and bounds.
    pub(crate) position: &'a [u8],
    /// The range deletion in force behind it.
    pub(crate) open: DeletionTime,
}
