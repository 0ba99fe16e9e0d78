//! The question to an index.

use bytes::Bytes;

/// The rows of a range that an index is queried for, in ring order.
///
/// The answer is a superset of the rows that match: an index holds a term for each version of a row that some memtable or SSTable
/// has, so the caller reads the rows and checks them again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexQuery {
    /// Name of the index, one of the table's.
    pub index: String,
    /// The terms.
    pub predicate: Predicate,
}

/// The terms that an index is queried for. Values are serialised in the type of the index's term: the column's, of an index on values
/// that of the elements, of an index on keys that of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predicate {
    /// This value.
    Equal(Bytes),
    /// This key of a map with this value; of an index on entries alone.
    Entry {
        /// Serialised key.
        key: Bytes,
        /// Serialised value.
        value: Bytes,
    },
    /// The values between two ends, in the order of the type.
    Range {
        /// The least value, and whether it belongs to the range; none for all from the first.
        from: Option<(Bytes, bool)>,
        /// The greatest value, and whether it belongs to the range; none for all to the last.
        to: Option<(Bytes, bool)>,
    },
}
