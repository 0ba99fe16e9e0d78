//! A query in one source: its postings are walked in the order of places, and each text that has one of the words that every answer has is
//! scored.

use std::collections::BTreeMap;
use std::ops::Bound;

use rt::preempt::Pace;
use text::{Document, Hit, Leaf, Statistics, TextQuery};

use super::cursor::{Cursor, Source};
use super::entry::Entry;
use super::posting::{decode, term_of, word_of};
use crate::file::IndexFileError;

/// Postings of the terms of a prefix, or of those near to a word, that are collected in a source.
const COLLECTED_MAX: usize = 1 << 16;
/// Terms of a memtable that are copied at once.
const TERMS_BATCH: usize = 256;

/// Why a query has no answer of a source.
#[derive(Debug)]
pub(super) enum EvaluateError {
    File(IndexFileError),
    /// A word of the query stands for more postings than are collected.
    TooMany(String),
    /// A posting is none.
    Damaged,
}

impl From<IndexFileError> for EvaluateError {
    fn from(error: IndexFileError) -> Self {
        Self::File(error)
    }
}

/// The words of a query in a source.
pub(super) struct Leaves<'a> {
    cursors: Vec<Cursor<'a>>,
    /// How many texts of the source have each.
    counts: Vec<u64>,
}

impl<'a> Leaves<'a> {
    /// Finds the words of a query in a source.
    pub(super) async fn open(source: Source<'a>, query: &TextQuery) -> Result<Self, EvaluateError> {
        let (mut cursors, mut counts) = (Vec::new(), Vec::new());
        for leaf in query.leaves() {
            let (cursor, count) = match leaf {
                Leaf::Term(word) => {
                    let term = term_of(word);
                    let count = match source {
                        Source::Memory(memory) => memory.count(&term),
                        Source::Segment(file, segment) => file.postings_count(segment, &term).await?,
                    };
                    (Cursor::of_term(source, term), count)
                }
                Leaf::Prefix(_) | Leaf::Fuzzy(..) => {
                    let all = collect(source, leaf).await?;
                    let count = all.len() as u64;
                    (Cursor::of_all(all), count)
                }
            };
            cursors.push(cursor);
            counts.push(count);
        }
        Ok(Self { cursors, counts })
    }

    /// Adds how many texts have each word.
    pub(super) fn add_to(&self, statistics: &mut Statistics) {
        let with_leaf = self.counts.clone();
        statistics.add(&Statistics { texts: 0, terms: 0, with_leaf });
    }

    /// Hands the place and the score of each text that the query finds to `take`, in the order of places.
    pub(super) async fn evaluate(
        mut self,
        query: &TextQuery,
        statistics: &Statistics,
        mut take: impl FnMut(&[u8], f32),
    ) -> Result<(), EvaluateError> {
        let drivers = query.driving_leaves(&self.counts);
        for cursor in &mut self.cursors {
            cursor.seek(&[]).await?;
        }
        let mut pace = Pace::new();
        loop {
            let places = drivers.iter().filter_map(|leaf| self.cursors.get(*leaf)?.get());
            let Some(place) = places.map(|entry| &entry.place).min().cloned() else { return Ok(()) };
            let mut document = Document::default();
            for cursor in &mut self.cursors {
                cursor.seek(&place).await?;
                let hit = match cursor.get().filter(|entry| entry.place == place) {
                    None => Hit::default(),
                    Some(entry) => {
                        let (terms, hit) = decode(&entry.posting).ok_or(EvaluateError::Damaged)?;
                        document.terms = terms;
                        hit
                    }
                };
                document.hits.push(hit);
            }
            if let Some(score) = query.score(&document, statistics) {
                take(&place, score);
            }
            for leaf in &drivers {
                if let Some(cursor) = self.cursors.get_mut(*leaf)
                    && cursor.get().is_some_and(|entry| entry.place == place)
                {
                    cursor.advance().await?;
                }
            }
            pace.step().await;
        }
    }
}

/// The postings of all terms of a word that stands for several, each place once.
async fn collect(source: Source<'_>, leaf: &Leaf) -> Result<Vec<Entry>, EvaluateError> {
    let mut all: BTreeMap<Box<[u8]>, Box<[u8]>> = BTreeMap::new();
    let start = leaf.start().as_bytes();
    let is_one = |term: &[u8]| word_of(term).is_some_and(|word| leaf.matches(word));
    let too_many = || EvaluateError::TooMany(leaf.start().to_owned());
    match source {
        Source::Memory(memory) => {
            let mut pace = Pace::new();
            let mut from = Bound::Included(start.into());
            loop {
                let terms = memory.terms(from.as_ref().map(|term: &Box<[u8]>| &**term), start, TERMS_BATCH);
                let Some(last) = terms.last().cloned() else { break };
                for term in terms.iter().filter(|term| is_one(term)) {
                    let found = memory.postings(term, Bound::Unbounded, COLLECTED_MAX + 1);
                    all.extend(found.into_iter().map(|entry| (entry.place, entry.posting)));
                    if all.len() > COLLECTED_MAX {
                        return Err(too_many());
                    }
                }
                pace.steps(TERMS_BATCH).await;
                from = Bound::Excluded(last);
            }
        }
        Source::Segment(file, segment) => {
            // The first term may begin in the block before the first that begins with it.
            let mut number = file.block_of(segment, start, &[]).unwrap_or(0);
            let mut known: (Vec<u8>, bool) = (Vec::new(), false);
            loop {
                let more = file.each_posting(segment, number, |term, place, posting| {
                    if term < start {
                        return true;
                    }
                    if known.0 != term {
                        known = (term.to_vec(), is_one(term));
                    }
                    if known.1 {
                        all.insert(place.into(), posting.into());
                    }
                    term.starts_with(start) && all.len() <= COLLECTED_MAX
                });
                let more = more.await?;
                if all.len() > COLLECTED_MAX {
                    return Err(too_many());
                }
                if more != Some(true) {
                    break;
                }
                number += 1;
            }
        }
    }
    Ok(all.into_iter().map(|(place, posting)| Entry { place, posting }).collect())
}
