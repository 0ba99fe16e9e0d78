//! A search for the nearest vectors: each source is queried, and the nearest of all are kept.

use hnsw::Quantised;
use schema::Table;

use super::nearest::Nearest;
use crate::attached::{IndexFile, MemoryIndex};
use crate::candidates::Candidate;
use crate::definition::Definition;
use crate::file::IndexFileError;
use crate::place;
use crate::search::SearchError;

/// A search under way: all memtables and SSTables of a table are asked, then it is finished.
#[derive(Debug)]
pub struct VectorSearch {
    nearest: Nearest,
}

impl VectorSearch {
    /// Of a vector and the count of places, to this index.
    ///
    /// # Errors
    /// When it is not one on vectors of that many dimensions, or the vector is not finite.
    pub fn new(definition: &Definition, vector: &[f32], count: usize) -> Result<Self, SearchError> {
        let options = definition.vectors().ok_or(SearchError::Predicate)?;
        if definition.dimensions() != vector.len() {
            return Err(SearchError::Predicate);
        }
        let vector = Quantised::new(vector).ok_or(SearchError::Predicate)?;
        Ok(Self { nearest: Nearest::new(vector, options.similarity, count) })
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
            IndexFile::Terms(_) | IndexFile::Texts(_) => {}
            IndexFile::Vectors(vectors) => vectors.offer(&mut self.nearest).await,
        }
        Ok(())
    }

    /// The candidates, nearest first.
    ///
    /// # Errors
    /// When a place is none of the table.
    pub fn finish(self, table: &Table) -> Result<Vec<Candidate>, SearchError> {
        let decoded = self.nearest.best.into_places().map(|(closeness, place)| {
            let place = place::decode(table, &place).ok_or(SearchError::Place)?;
            Ok(Candidate { place, closeness })
        });
        decoded.collect()
    }
}
