//! A search for the nearest vectors: each source is queried, and the nearest of all are kept.

use hnsw::Quantised;
use schema::Table;

use super::nearest::Nearest;
use crate::attached::{IndexFile, MemoryIndex};
use crate::definition::Definition;
use crate::file::IndexFileError;
use crate::place::{self, Place};
use crate::search::SearchError;

/// The question for the places with the nearest vectors.
///
/// The answer are candidates: an index has a vector for each version of a row that some memtable or SSTable has, and compares
/// quantised vectors, so the caller reads the rows and compares again.
#[derive(Clone, Debug, PartialEq)]
pub struct NearestQuery {
    /// Name of the index, one of the table's on vectors.
    pub index: String,
    /// The vector, of the dimensions of the column.
    pub vector: Vec<f32>,
    /// The most places that are wanted. Fewer come only when there are no others.
    pub count: usize,
}

/// A place whose vector may be near.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Where it is.
    pub place: Place,
    /// How close the quantised vector is by the index's measure: greater is nearer.
    pub closeness: f32,
}

impl Candidate {
    /// Orders candidates, the nearest first, and keeps the nearest `count` places, each of them once. Of equals the first in ring order
    /// comes first.
    pub fn keep_nearest(candidates: &mut Vec<Self>, count: usize) {
        let in_ring = |a: &Place, b: &Place| a.key.cmp(&b.key).then_with(|| position(a).cmp(&position(b)));
        candidates
            .sort_by(|a, b| in_ring(&a.place, &b.place).then_with(|| b.closeness.total_cmp(&a.closeness)));
        candidates.dedup_by(|b, a| a.place == b.place);
        candidates.sort_by(|a, b| b.closeness.total_cmp(&a.closeness));
        candidates.truncate(count);
    }
}

fn position(place: &Place) -> Option<&[u8]> {
    place.clustering.as_ref().map(mutation::Clustering::position)
}

/// A search under way: all memtables and SSTables of a table are asked, then it is finished.
#[derive(Debug)]
pub struct NearestSearch {
    nearest: Nearest,
}

impl NearestSearch {
    /// Of a query to this index.
    ///
    /// # Errors
    /// When it is not one on vectors of that many dimensions, or the vector is not finite.
    pub fn new(definition: &Definition, query: &NearestQuery) -> Result<Self, SearchError> {
        let options = definition.vectors().ok_or(SearchError::Predicate)?;
        if definition.dimensions() != query.vector.len() {
            return Err(SearchError::Predicate);
        }
        let vector = Quantised::new(&query.vector).ok_or(SearchError::Predicate)?;
        Ok(Self { nearest: Nearest::new(vector, options.similarity, query.count) })
    }

    /// Asks a memtable's index.
    pub async fn ask_memory(&mut self, source: &MemoryIndex) {
        if let MemoryIndex::Vectors(vectors) = source {
            vectors.offer(&mut self.nearest).await;
        }
    }

    /// Asks an SSTable's index.
    ///
    /// # Errors
    /// When the file is damaged.
    pub async fn ask_file(&mut self, source: &IndexFile) -> Result<(), IndexFileError> {
        match source {
            IndexFile::Terms(_) => {}
            IndexFile::Vectors(vectors) => vectors.offer(&mut self.nearest).await,
        }
        Ok(())
    }

    /// The candidates, nearest first.
    ///
    /// # Errors
    /// When a place is none of the table.
    pub fn finish(self, table: &Table) -> Result<Vec<Candidate>, SearchError> {
        let decoded = self.nearest.into_places().map(|(closeness, place)| {
            let place = place::decode(table, &place).ok_or(SearchError::Place)?;
            Ok(Candidate { place, closeness })
        });
        decoded.collect()
    }
}
