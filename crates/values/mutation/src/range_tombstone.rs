//! A range tombstone: the deletion of everything between two bounds of a partition.

use crate::{Bound, DeletionTime};

/// One deletion of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeTombstone {
    /// Its position.
    pub start: Bound,
    /// Where it ends; after `start`.
    pub end: Bound,
    /// The rows that it hides.
    pub deletion: DeletionTime,
}
