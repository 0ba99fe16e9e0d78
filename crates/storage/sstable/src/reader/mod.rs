//! Reads the partitions of an SSTable.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

mod byte_range;
mod items;
mod raw;
mod reverse;
mod source;
mod sstable;
mod walk;

pub(crate) use byte_range::{ByteRange, Copied, RangePartition};
pub(crate) use raw::{RawItem, RawScan};
pub use source::SstableSource;
pub(crate) use sstable::open_data;
pub use sstable::{IndexTokens, Sstable, read_metadata};
