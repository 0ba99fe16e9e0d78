//! Indexes on vectors: the quantised vectors of a memtable, the graph of an SSTable, and the search over all of them
//! (docs/design/vectors.md).

mod build;
mod file;
mod memory;
mod nearest;
mod search;

pub(crate) use build::VectorsWriter;
pub use file::VectorsFile;
pub use memory::MemoryVectors;
pub use search::VectorSearch;
