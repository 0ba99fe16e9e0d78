//! Byte-comparable encoding: values and clustering prefixes as bytes whose `memcmp` order is their order
//! (Cassandra's OSS50 form, which BTI tries are built of).
//!
//! A sequence is, for each component, a separator byte and the component's bytes, then a terminator. Variable-length
//! values are escaped so that none is a prefix of another once a separator follows. Every write and read encodes a
//! clustering, so the common types have direct paths.

mod decode;
mod encode;

pub use decode::decode_clustering;
pub use encode::{encode_clustering, encode_clustering_into, encode_partition_key};

use std::fmt;

/// Before a component that has bytes.
pub(crate) const NEXT_COMPONENT: u8 = 0x40;
/// In place of a component that is the empty value of a type like `int`.
pub(crate) const NEXT_COMPONENT_EMPTY: u8 = 0x3f;
/// The same in descending order.
pub(crate) const NEXT_COMPONENT_EMPTY_REVERSED: u8 = 0x41;
/// In place of a component that is missing.
pub(crate) const NEXT_COMPONENT_NULL: u8 = 0x3e;
/// After the last component.
pub(crate) const TERMINATOR: u8 = 0x38;

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

impl Terminator {
    /// The byte at the end, if there is one.
    pub fn byte(self) -> Option<u8> {
        match self {
            Terminator::Clustering => Some(TERMINATOR),
            Terminator::Before => Some(0x20),
            Terminator::After => Some(0x60),
            Terminator::Static => Some(0x18),
            Terminator::Open => None,
        }
    }

    pub(crate) fn of_byte(byte: u8) -> Option<Terminator> {
        [Terminator::Clustering, Terminator::Before, Terminator::After, Terminator::Static]
            .into_iter()
            .find(|terminator| terminator.byte() == Some(byte))
    }
}

/// Bytes that are no byte-comparable encoding of the expected types.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderedError {
    /// Where it went wrong, as an offset into the encoded bytes.
    pub offset: usize,
    /// The expected content there.
    pub expected: &'static str,
}

impl fmt::Display for OrderedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid byte-comparable encoding: expected {} at offset {}", self.expected, self.offset)
    }
}

impl std::error::Error for OrderedError {}
