//! Byte-comparable encoding: values and clustering prefixes as bytes whose `memcmp` order is their order
//! (Cassandra's OSS50 form, which BTI tries are built of).

use crate::CqlType;
use std::fmt;

/// How an encoded clustering prefix ends: decides on which side of longer sequences it sorts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Terminator {
    /// A complete clustering: 0x38.
    Clustering,
    /// A bound before everything that starts with the prefix (inclusive start, exclusive end): 0x20.
    Before,
    /// A bound after everything that starts with the prefix (exclusive start, inclusive end): 0x60.
    After,
    /// The static row: 0x18, before every clustering and bound.
    Static,
    /// No terminator: a prefix for prefix tests.
    Open,
}

/// Bytes that are no byte-comparable encoding of the expected types.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderedError {
    /// Where it went wrong, as an offset into the encoded bytes.
    pub offset: usize,
    /// What was expected there.
    pub expected: &'static str,
}

impl fmt::Display for OrderedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid byte-comparable encoding: expected {} at offset {}", self.expected, self.offset)
    }
}

impl std::error::Error for OrderedError {}

impl CqlType {
    /// Appends the byte-comparable form of a value, all bits flipped when `reversed`. Returns whether anything was
    /// written: the empty value of types that have one beside their domain (an empty `int`) has no bytes of its own
    /// and is told apart by the separator before it (see [`CqlType::encode_ordered_component`]).
    pub fn encode_ordered(&self, value: &[u8], reversed: bool, out: &mut Vec<u8>) -> bool {
        let _ = (value, reversed, out);
        crate::cql_type::pending()
    }

    /// Appends separator and value as one component of a sequence; `None` is a missing component.
    pub fn encode_ordered_component(&self, value: Option<&[u8]>, reversed: bool, out: &mut Vec<u8>) {
        let _ = (value, reversed, out);
        crate::cql_type::pending()
    }

    /// Reads one component, separator included, from the start of `bytes`; gives the serialised value (`None` for a
    /// missing one) and the number of bytes taken.
    pub fn decode_ordered_component(
        &self,
        bytes: &[u8],
        reversed: bool,
    ) -> Result<(Option<Vec<u8>>, usize), OrderedError> {
        let _ = (bytes, reversed);
        crate::cql_type::pending()
    }
}

/// The byte-comparable form of a clustering or of a prefix of one. `types` holds each column's type and whether it is
/// in descending order; there may be fewer components than types.
pub fn encode_clustering(
    types: &[(CqlType, bool)],
    components: &[Option<&[u8]>],
    terminator: Terminator,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(32);
    encode_clustering_into(types, components.iter().copied(), terminator, &mut out);
    out
}

/// Like [`encode_clustering`], appending to `out`.
pub fn encode_clustering_into<'a>(
    types: &[(CqlType, bool)],
    components: impl IntoIterator<Item = Option<&'a [u8]>>,
    terminator: Terminator,
    out: &mut Vec<u8>,
) {
    let _ = (types, components.into_iter().count(), terminator, out);
    crate::cql_type::pending()
}

/// Components and terminator of an encoded clustering prefix.
pub fn decode_clustering(
    types: &[(CqlType, bool)],
    bytes: &[u8],
) -> Result<(Vec<Option<Vec<u8>>>, Terminator), OrderedError> {
    let _ = (types, bytes);
    crate::cql_type::pending()
}
