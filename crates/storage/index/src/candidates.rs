//! The question for the best places, and its answer: candidates.

use text::Statistics;

use crate::place::Place;

/// The question for the places with the nearest vectors, or the most relevant texts.
///
/// The answer are candidates: an index has a vector or text for each version of a row that some memtable or SSTable has, and compares
/// quantised vectors, so the caller reads the rows and compares again.
#[derive(Clone, Debug, PartialEq)]
pub struct NearestQuery {
    /// Name of the index, one of the table's on vectors or texts.
    pub index: String,
    /// The vector or the query of texts.
    pub to: NearestTo,
    /// The most places that are wanted. Fewer come only when there are no others.
    pub count: usize,
}

/// The vector or query that places are near to.
#[derive(Clone, Debug, PartialEq)]
pub enum NearestTo {
    /// A vector of the dimensions of the column.
    Vector(Vec<f32>),
    /// A query of full text.
    Text(String),
}

/// The best candidates, the best first, each place once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Candidates {
    /// The candidates.
    pub places: Vec<Candidate>,
    /// Of full text, the figures of all texts that were searched.
    pub statistics: Statistics,
}

/// A place whose vector may be near, or whose text may be relevant.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Where it is.
    pub place: Place,
    /// How close the quantised vector is by the index's measure, or how relevant the text: greater is nearer.
    pub closeness: f32,
}

impl Candidates {
    /// Adds those of another source.
    pub fn add(&mut self, other: Self) {
        self.places.extend(other.places);
        self.statistics.add(&other.statistics);
    }
}

impl Candidate {
    /// Orders candidates, the nearest first, and keeps the nearest `count` places, each of them once. Of equals the first in ring order
    /// comes first.
    pub fn keep_nearest(candidates: &mut Vec<Self>, count: usize) {
        candidates
            .sort_by(|a, b| a.place.cmp_in_ring(&b.place).then_with(|| b.closeness.total_cmp(&a.closeness)));
        candidates.dedup_by(|b, a| a.place == b.place);
        candidates.sort_by(|a, b| b.closeness.total_cmp(&a.closeness));
        candidates.truncate(count);
    }
}
