//! The BIG format: `Index.db` has an entry for each partition and the row indexes, `Summary.db` samples it. Versions `mc` to `nb`
//! are read, `nb` is written ([`crate::Version`] has their capabilities).

mod check;
mod entry;
mod partition_index;
mod row_index;
mod row_index_check;
pub mod summary;
mod writer;

pub(crate) use check::IndexCheck;
pub(crate) use partition_index::{IndexCursor, PartitionIndex, known_tokens};
pub(crate) use row_index::RowIndex;
pub(crate) use writer::{IndexWriter, WrittenIndex};
