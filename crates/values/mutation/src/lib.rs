//! Cassandra's data model in motion, and its reconciliation.
//!
//! The types are here: partitions ([`PartitionUpdate`]), rows ([`Row`]), cells ([`Cell`]), tombstones, counters, the
//! stream of [`Fragment`]s that every reader produces, and the pure rules by which two versions of the same
//! datum become one. Not here: files, memory budgets, clocks (`now` is an argument), CQL.
//!
//! Clustering keys carry a byte-comparable form of themselves beside their values, so that every comparison
//! of rows and bounds in the engine is a `memcmp`, and no ordered container needs a comparator.

pub mod cell;
pub mod clustering;
pub mod codec;
pub mod counter;
pub mod encoded;
pub mod fragment;
pub mod key;
pub mod merge;
pub mod packed;
pub mod purge;
pub mod range;
mod range_tombstone;
mod range_tree;
pub mod recast;
pub mod repaired;
pub mod row;
pub mod slice;
pub mod superseded;
pub mod time;
pub mod update;

pub use cell::{Cell, CellRef, ColumnData, Complex, ComplexCell, DataRef};
pub use clustering::{Bound, Clustering, Side};
pub use encoded::{EncodedCells, RowLayout, TableLayouts};
pub use fragment::{Fragment, FragmentBuffer, FragmentSource, SourceError};
pub use key::DecoratedKey;
pub use packed::Packed;
pub use range::{RangeChanges, RangeTombstones};
pub use range_tombstone::RangeTombstone;
pub use range_tree::Walk;
pub use recast::Recast;
pub use repaired::Repaired;
pub use row::{Row, row_of};
pub use slice::{ColumnSelection, PartitionRange, RingPosition, RowRange, Slices};
pub use superseded::Granularity;
pub use time::{DeletionTime, LivenessInfo, NO_DELETION, NO_TIMESTAMP, Seconds, Timestamp};
pub use update::PartitionUpdate;
