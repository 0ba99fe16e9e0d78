//! A query under way: it asks each source for its first places, and resumes behind them.

use mutation::{PartitionRange, Slices};
use schema::Table;

use crate::Predicate;
use crate::attached::{IndexFile, MemoryIndex};
use crate::definition::Definition;
use crate::file::IndexFileError;
use crate::gather::Gather;
use crate::place::{self, Place};

/// Places that are collected at once, of a query for one term. Its places are sorted in each source.
const PLACES_OF_TERM: usize = 1024;
/// Of a query for several terms: each time all of them are looked at.
const PLACES_OF_TERMS: usize = 16_384;

/// Why a query cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SearchError {
    /// The predicate is not one of this index.
    #[error("the index does not answer such a predicate")]
    Predicate,
    /// An index has something that is no place of the table.
    #[error("an index has a place that is none")]
    Place,
    /// A word of a query of full text, by its beginning, stands for more texts than are collected.
    #[error("too many texts have words that begin with '{0}'")]
    TooMany(String),
}

/// The places of a query within a range, in ring order, some at a time: all sources are asked, then the places are taken.
#[derive(Debug)]
pub struct Search {
    gather: Gather,
}

impl Search {
    /// The places in `range`, of a single partition those in `slices` (others may be among them), for which `predicate` may hold.
    ///
    /// # Errors
    /// When the index does not answer such a predicate, or its values are not of the index's type.
    pub fn new(
        definition: &Definition,
        predicate: &Predicate,
        range: &PartitionRange,
        slices: &Slices,
    ) -> Result<Self, SearchError> {
        if definition.vectors().is_some() || definition.fulltext().is_some() || definition.order().is_some() {
            return Err(SearchError::Predicate);
        }
        let terms = definition.terms(predicate).ok_or(SearchError::Predicate)?;
        let limit = if terms.is_one() { PLACES_OF_TERM } else { PLACES_OF_TERMS };
        Ok(Self { gather: Gather::new(terms, range, slices, limit) })
    }

    /// Asks a memtable's index.
    pub async fn ask_memory(&mut self, source: &MemoryIndex) {
        if let MemoryIndex::Terms(terms) = source {
            terms.gather(&mut self.gather).await;
        }
    }

    /// Asks an SSTable's index.
    ///
    /// # Errors
    /// When the file cannot be read, or is damaged.
    pub async fn ask_file(&mut self, source: &IndexFile) -> Result<(), IndexFileError> {
        match source {
            IndexFile::Terms(terms) => terms.gather(&mut self.gather).await,
            IndexFile::Vectors(_) | IndexFile::Texts(_) => Ok(()),
        }
    }

    /// The places that all sources together have first; and whether there may be more, for which they are to be asked again.
    ///
    /// # Errors
    /// When one is no place of the table.
    pub fn take(&mut self, table: &Table) -> Result<(Vec<Place>, bool), SearchError> {
        let (found, is_more) = self.gather.take();
        let places: Option<Vec<Place>> = found.iter().map(|bytes| place::decode(table, bytes)).collect();
        Ok((places.ok_or(SearchError::Place)?, is_more))
    }
}
