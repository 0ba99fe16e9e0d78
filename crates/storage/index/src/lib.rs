//! Secondary indexes that are attached to storage: each memtable and each SSTable has, beside its rows, the terms of its rows, or
//! their vectors (docs/design/vectors.md).
//!
//! A term of a row version is where that version is, and nowhere else: it is written with it, and goes with it. So no write reads
//! before it writes, nothing of an index can be lost or left behind, and an index that is damaged is made again of its SSTable. A
//! query asks all memtables and SSTables for the places of a term, reads the rows there and looks again, because a newer
//! version may have another value (docs/design/index.md).

mod attached;
mod best;
mod build;
mod candidates;
mod definition;
mod file;
mod gather;
mod memory;
mod nearest;
mod ordered;
mod ordered_gather;
mod ordered_scan;
mod place;
mod query;
mod scan;
mod search;
mod term;
mod texts;
mod vectors;

pub use attached::{IndexFile, MemoryIndex};
pub use build::IndexBuilder;
pub use candidates::{Candidate, Candidates, NearestQuery, NearestTo};
pub use definition::{DIMENSIONS_OPTION, Definition, ENTRY_OPTION};
pub use file::{IndexFileError, SstableIdentity};
pub use hnsw::{BEAM_MAX, CONNECTIONS_MAX, Similarity};
pub use nearest::NearestSearch;
pub use ordered::{ORDER_OPTION, Order};
pub use ordered_scan::{OrderedPlaces, OrderedScan, UNORDERED_MAX, WantedOrphans};
pub use place::Place;
pub use query::{IndexQuery, Predicate};
pub use scan::{OrphanSearch, OrphanSource, ScanSearch};
pub use search::{Search, SearchError};
pub use text::Statistics as TextStatistics;
