//! A search for the most relevant texts: all sources are measured, then all are searched by the same figures.

use schema::Table;
use text::{Statistics, TextQuery};

use super::cursor::Source;
use super::evaluate::{EvaluateError, Leaves};
use crate::attached::{IndexFile, MemoryIndex};
use crate::best::Best;
use crate::candidates::Candidate;
use crate::definition::Definition;
use crate::file::IndexFileError;
use crate::place;
use crate::search::SearchError;

/// A search under way: each memtable and SSTable is measured, then each is searched, then it is finished.
pub struct TextSearch {
    query: TextQuery,
    statistics: Statistics,
    best: Best,
    refused: Option<SearchError>,
}

/// Bytes of the number of a version behind a place of a memtable.
const VERSION_LEN: usize = 8;

impl TextSearch {
    /// Of a query to this index, for so many places.
    ///
    /// # Errors
    /// When it is not one of full text, or the query is none.
    pub fn new(definition: &Definition, query: &str, count: usize) -> Result<Self, SearchError> {
        let fulltext = definition.fulltext().ok_or(SearchError::Predicate)?;
        let query = TextQuery::parse(query, &fulltext.analyzer, fulltext.has_positions)
            .map_err(|_| SearchError::Predicate)?;
        let statistics = Statistics { with_leaf: vec![0; query.leaves().len()], ..Statistics::default() };
        Ok(Self { query, statistics, best: Best::new(count), refused: None })
    }

    /// Counts the texts of a memtable's index.
    pub async fn measure_memory(&mut self, source: &MemoryIndex) {
        if let MemoryIndex::Texts(texts) = source {
            let (count, terms) = texts.counts();
            self.statistics.add(&Statistics { texts: count, terms, with_leaf: Vec::new() });
            let measured = Leaves::open(Source::Memory(texts), &self.query).await;
            if let Some(leaves) = self.taken(measured).unwrap_or_default() {
                leaves.add_to(&mut self.statistics);
            }
        }
    }

    /// Counts the texts of an SSTable's index.
    ///
    /// # Errors
    /// When the file cannot be read, or is damaged.
    pub async fn measure_file(&mut self, source: &IndexFile) -> Result<(), IndexFileError> {
        if let IndexFile::Texts(file) = source {
            let (count, terms) = file.texts();
            self.statistics.add(&Statistics { texts: count, terms, with_leaf: Vec::new() });
            for segment in 0..file.segments() {
                let measured = Leaves::open(Source::Segment(file, segment), &self.query).await;
                if let Some(leaves) = self.taken(measured)? {
                    leaves.add_to(&mut self.statistics);
                }
            }
        }
        Ok(())
    }

    /// Searches a memtable's index.
    pub async fn ask_memory(&mut self, source: &MemoryIndex) {
        if let MemoryIndex::Texts(texts) = source {
            let found = self.ask(Source::Memory(texts), VERSION_LEN).await;
            _ = self.taken(found);
        }
    }

    /// Searches an SSTable's index.
    ///
    /// # Errors
    /// When the file cannot be read, or is damaged.
    pub async fn ask_file(&mut self, source: &IndexFile) -> Result<(), IndexFileError> {
        if let IndexFile::Texts(file) = source {
            for segment in 0..file.segments() {
                let found = self.ask(Source::Segment(file, segment), 0).await;
                if let Err(EvaluateError::Damaged) = found {
                    let (path, reason) = (source.path().to_owned(), "a posting is damaged");
                    return Err(IndexFileError::Unusable { path, reason });
                }
                self.taken(found)?;
            }
        }
        Ok(())
    }

    async fn ask(&mut self, source: Source<'_>, behind: usize) -> Result<(), EvaluateError> {
        if self.refused.is_some() {
            return Ok(());
        }
        let Self { query, statistics, best, .. } = self;
        let take = |place: &[u8], score: f32| {
            let place = place.get(..place.len().saturating_sub(behind)).unwrap_or_default();
            best.offer(place, score);
        };
        Leaves::open(source, query).await?.evaluate(query, statistics, take).await
    }

    /// Remembers why a source has no answer, but for a damaged file.
    fn taken<T>(&mut self, result: Result<T, EvaluateError>) -> Result<Option<T>, IndexFileError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(EvaluateError::File(error)) => Err(error),
            Err(EvaluateError::TooMany(word)) => {
                self.refused = Some(SearchError::TooMany(word));
                Ok(None)
            }
            Err(EvaluateError::Damaged) => {
                self.refused = Some(SearchError::Place);
                Ok(None)
            }
        }
    }

    /// The candidates, the most relevant first, and the figures of the texts of all sources.
    ///
    /// # Errors
    /// When a place is none of the table, or a word of the query stands for too many others.
    pub fn finish(self, table: &Table) -> Result<(Vec<Candidate>, Statistics), SearchError> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        let decoded = self.best.into_places().map(|(closeness, place)| {
            let place = place::decode(table, &place).ok_or(SearchError::Place)?;
            Ok(Candidate { place, closeness })
        });
        Ok((decoded.collect::<Result<_, _>>()?, self.statistics))
    }
}
