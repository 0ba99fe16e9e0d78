//! The question to an ordered index and its answer, as plain data.

use bytes::Bytes;
use mutation::{DecoratedKey, PartitionRange};

use crate::place::Place;
use crate::query::IndexQuery;

/// The most unordered places of an answer: so many rows may be read for each page.
pub const UNORDERED_MAX: usize = 1024;

/// The question for the first places of an ordered index between two terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedScan {
    /// Name of the index, an ordered one of the table's.
    pub index: String,
    /// Terms below are out.
    pub start: Bytes,
    /// Terms from here on are out.
    pub end: Bytes,
    /// Resumes behind this term at this place.
    pub after: Option<(Bytes, Place)>,
    /// From the last to the first.
    pub is_reversed: bool,
    /// The most places that are wanted. Fewer come only when there are no others.
    pub count: usize,
    /// The partition that all places are in, where it is known.
    pub partition: Option<DecoratedKey>,
    /// Of an index with orphans, those that are wanted, too.
    pub unordered: Option<WantedOrphans>,
}

/// The orphans of an ordered index that may belong to a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedOrphans {
    /// The term of those with the value of the first attribute.
    pub term: Bytes,
    /// The query of another index for all places with this value: those without a value are wanted if they are among them.
    pub query: IndexQuery,
}

impl OrderedScan {
    /// The partitions that it looks at.
    pub fn range(&self) -> PartitionRange {
        self.partition.as_ref().map_or_else(PartitionRange::all, PartitionRange::single)
    }
}

/// The answer: a place for each version of a row that some memtable or SSTable has, so the caller reads the rows and looks again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderedPlaces {
    /// Terms with their places, in the order of the scan.
    pub places: Vec<(Bytes, Place)>,
    /// Places that belong anywhere, in ring order: [`UNORDERED_MAX`] at most.
    pub unordered: Vec<Place>,
    /// There are more of those, or it would take long to find them, and the scan does not answer the query.
    pub has_more_unordered: bool,
}

impl OrderedPlaces {
    /// Adds those of another part of the table.
    pub fn add(&mut self, other: Self) {
        self.places.extend(other.places);
        self.unordered.extend(other.unordered);
        self.has_more_unordered |= other.has_more_unordered;
    }

    /// Sorts the places that were added, each of a term once, and keeps as many as the scan wants.
    pub fn finish(&mut self, scan: &OrderedScan) {
        self.places.sort_by(|(a, at), (b, bt)| {
            let order = a.cmp(b).then_with(|| at.cmp_in_ring(bt));
            if scan.is_reversed { order.reverse() } else { order }
        });
        self.places.dedup();
        self.places.truncate(scan.count);
        self.unordered.sort_by(Place::cmp_in_ring);
        self.unordered.dedup();
        self.has_more_unordered |= self.unordered.len() > UNORDERED_MAX;
        self.unordered.truncate(UNORDERED_MAX);
    }
}
