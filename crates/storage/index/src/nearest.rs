//! A search for the best places of an index: the nearest vectors, or the most relevant texts.

use schema::Table;

use crate::attached::{IndexFile, MemoryIndex};
use crate::candidates::{Candidates, NearestQuery, NearestTo};
use crate::definition::Definition;
use crate::file::IndexFileError;
use crate::search::SearchError;
use crate::texts::TextSearch;
use crate::vectors::VectorSearch;

/// A search under way: all memtables and SSTables of a table are measured where [`NearestSearch::needs_figures`], then asked, then it is
/// finished.
pub enum NearestSearch {
    /// For vectors.
    Vectors(VectorSearch),
    /// For texts.
    Texts(Box<TextSearch>),
}

impl NearestSearch {
    /// Of a query to this index.
    ///
    /// # Errors
    /// When the index is not one of such vectors or of texts, or the vector or the query is none.
    pub fn new(definition: &Definition, query: &NearestQuery) -> Result<Self, SearchError> {
        Ok(match &query.to {
            NearestTo::Vector(vector) => Self::Vectors(VectorSearch::new(definition, vector, query.count)?),
            NearestTo::Text(text) => Self::Texts(Box::new(TextSearch::new(definition, text, query.count)?)),
        })
    }

    /// Whether the figures of all sources are needed before one is searched.
    pub fn needs_figures(&self) -> bool {
        matches!(self, Self::Texts(_))
    }

    /// Takes the figures of a memtable's index.
    pub async fn measure_memory(&mut self, source: &MemoryIndex) {
        if let Self::Texts(search) = self {
            search.measure_memory(source).await;
        }
    }

    /// Takes the figures of an SSTable's index.
    ///
    /// # Errors
    /// When the file cannot be read, or is damaged.
    pub async fn measure_file(&mut self, source: &IndexFile) -> Result<(), IndexFileError> {
        match self {
            Self::Texts(search) => search.measure_file(source).await,
            Self::Vectors(_) => Ok(()),
        }
    }

    /// Asks a memtable's index.
    pub async fn ask_memory(&mut self, source: &MemoryIndex) {
        match self {
            Self::Vectors(search) => search.ask_memory(source).await,
            Self::Texts(search) => search.ask_memory(source).await,
        }
    }

    /// Asks an SSTable's index.
    ///
    /// # Errors
    /// When the file cannot be read, or is damaged.
    pub async fn ask_file(&mut self, source: &IndexFile) -> Result<(), IndexFileError> {
        match self {
            Self::Vectors(search) => search.ask_file(source).await,
            Self::Texts(search) => search.ask_file(source).await,
        }
    }

    /// The candidates, nearest first.
    ///
    /// # Errors
    /// When a place is none of the table, or a word of a query stands for too many others.
    pub fn finish(self, table: &Table) -> Result<Candidates, SearchError> {
        match self {
            Self::Vectors(search) => {
                Ok(Candidates { places: search.finish(table)?, ..Candidates::default() })
            }
            Self::Texts(search) => {
                let (places, statistics) = search.finish(table)?;
                Ok(Candidates { places, statistics })
            }
        }
    }
}
