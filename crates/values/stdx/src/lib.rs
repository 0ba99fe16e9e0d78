//! Small building blocks that the standard library lacks and that more than one crate needs.
//!
//! Kept to things without policy: fixed-seed hash maps ([`HashMap`]), Cassandra's variable-length
//! integers ([`vint`]), its Murmur3 ([`murmur3`]), a reader over hostile bytes ([`Reader`]), [`base64`], and histograms of recent
//! events ([`Recent`]).

pub mod base64;
mod log_limit;
pub mod murmur3;
mod reader;
mod recent;
pub mod vint;

pub use log_limit::LogLimit;
pub use reader::{Reader, ShortRead};
pub use recent::{Recent, RecentFigures};

/// A hash map whose iteration order depends only on its content and history, never on a random seed.
pub type HashMap<K, V> = rustc_hash::FxHashMap<K, V>;
/// The set beside [`HashMap`].
pub type HashSet<K> = rustc_hash::FxHashSet<K>;
