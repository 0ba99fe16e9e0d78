//! Approximate nearest neighbours in memory: a hierarchical navigable small world graph (Malkov and Yashunin, 2018) over vectors of
//! one byte a dimension.
//!
//! Pure and deterministic: no IO, no clock, no randomness (a node's level is a function of its number), so that an index file is a
//! function of its SSTable. Closenesses are those of the quantised vectors; a caller that needs them exact compares the full vectors of the
//! candidates (docs/design/vectors.md).

mod codec;
mod graph;
mod insertion;
mod quantised;
mod search;
mod similarity;
mod walk;

pub use codec::Decoder;
pub use graph::{Found, Graph, Options};
pub use insertion::Insertion;
pub use quantised::Quantised;
pub use search::Search;
pub use similarity::Similarity;

/// The most neighbours that a node may have on an upper level; twice as many on the lowest.
pub const CONNECTIONS_MAX: usize = 512;
/// The most candidates that building or searching may hold.
pub const BEAM_MAX: usize = 3_200;
/// The most dimensions of a vector, as of CQL's type.
pub const DIMENSIONS_MAX: usize = 1 << 16;
