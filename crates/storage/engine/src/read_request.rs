//! The one read request of a shard's storage (docs/design/write-path.md).

use index::IndexQuery;
use mutation::{ColumnSelection, DecoratedKey, PartitionRange, Slices};
use schema::TableId;

use crate::watermark::RepairedWatermark;

/// Which of a table's data a read is answered from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadScope {
    /// All of it, by way of the row cache.
    #[default]
    Cached,
    /// All of it, and the row cache is left as it is (`BYPASS CACHE`).
    BypassCache,
    /// As [`ReadScope::BypassCache`], for a repair: rows salvaged from damaged SSTables stand for them.
    Repair,
    /// As [`ReadScope::Repair`], only data above a watermark.
    Above(RepairedWatermark),
}

/// A read request: of which partitions which rows.
#[derive(Clone, Copy, Debug)]
pub struct Read<'a> {
    /// The table.
    pub table: TableId,
    /// Which partitions.
    pub range: &'a PartitionRange,
    /// Which rows of each.
    pub slices: &'a Slices,
    /// Which columns at least; cells of others may be there too.
    pub columns: &'a ColumnSelection,
    /// Rows in descending clustering order.
    pub reversed: bool,
    /// From which data.
    pub scope: ReadScope,
    /// Instead of the rows, the places that an index finds ([`crate::IndexQuery`]).
    pub index: Option<&'a IndexQuery>,
}

/// A look for the only row that slices of one partition have.
#[derive(Clone, Copy, Debug)]
pub struct RowLookup<'a> {
    /// The partition.
    pub key: &'a DecoratedKey,
    /// Which rows of it.
    pub slices: &'a Slices,
    /// Leave the row cache as it is.
    pub bypass_cache: bool,
    /// Only the values of regular columns that a reader sees are wanted: neither the data that they hide in earlier versions of the row, nor the static row.
    pub values_only: bool,
}

impl<'a> Read<'a> {
    /// All columns, in clustering order, by way of the row cache.
    pub fn new(table: TableId, range: &'a PartitionRange, slices: &'a Slices) -> Self {
        let columns = &ColumnSelection::All;
        Self { table, range, slices, columns, reversed: false, scope: ReadScope::Cached, index: None }
    }

    pub(crate) fn bypasses_cache(&self) -> bool {
        self.scope != ReadScope::Cached
    }

    /// Whether rows salvaged from damaged SSTables stand for them.
    pub(crate) fn takes_salvaged(&self) -> bool {
        matches!(self.scope, ReadScope::Repair | ReadScope::Above(_))
    }
}
