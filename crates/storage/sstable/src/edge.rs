//! The first or last thing of a block of rows, or of a partition: for row indexes and statistics.

use bytes::Bytes;
use mutation::{Bound, Clustering};

use crate::prefix::{self, Kind, ValueType};

/// The first or last thing of a block.
#[derive(Clone, Debug)]
pub(crate) enum Edge {
    Row(Clustering),
    Marker(Bound, Kind),
}

impl Edge {
    /// Its place in the partition.
    pub(crate) fn position(&self) -> &[u8] {
        match self {
            Self::Row(clustering) => clustering.position(),
            Self::Marker(bound, _) => bound.position(),
        }
    }

    /// Its values up to the first null.
    pub(crate) fn values(&self) -> Vec<Bytes> {
        let copy = |value: Option<&[u8]>| value.map(Bytes::copy_from_slice);
        match self {
            Self::Row(clustering) => clustering.components().map_while(copy).collect(),
            Self::Marker(bound, _) => bound.components().map_while(copy).collect(),
        }
    }

    /// Appends it as a kind and values.
    pub(crate) fn write(&self, types: &[ValueType], out: &mut Vec<u8>) {
        match self {
            Self::Row(clustering) => {
                out.push(Kind::Row as u8);
                prefix::write_values(types, clustering.components(), out);
            }
            Self::Marker(bound, kind) => prefix::write_bound(types, bound, *kind, out),
        }
    }
}
