//! The postings of one word of a query in one source, in the order of their places.

use std::ops::Bound;

use super::entry::Entry;
use super::memory::MemoryTexts;
use crate::file::{IndexFileError, TermsFile};

/// Postings of a memtable that are copied at once.
const BATCH: usize = 256;

/// Where postings come from.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Memory(&'a MemoryTexts),
    /// One segment of a file.
    Segment(&'a TermsFile, usize),
}

/// A walk through the postings of a term, or of several that were collected.
pub(super) struct Cursor<'a> {
    /// None when all are held.
    rest: Option<(Source<'a>, Vec<u8>)>,
    held: Vec<Entry>,
    at: usize,
    /// The block of the segment that is held.
    block: Option<usize>,
}

impl<'a> Cursor<'a> {
    /// Of a term.
    pub(super) fn of_term(source: Source<'a>, term: Vec<u8>) -> Self {
        Self { rest: Some((source, term)), held: Vec::new(), at: 0, block: None }
    }

    /// Of postings that were collected in the order of their places.
    pub(super) fn of_all(held: Vec<Entry>) -> Self {
        Self { rest: None, held, at: 0, block: None }
    }

    /// The posting at which it is; none behind the last, and before the first move.
    pub(super) fn get(&self) -> Option<&Entry> {
        self.held.get(self.at)
    }

    /// Moves to the first posting at a place or behind it. Places only grow.
    pub(super) async fn seek(&mut self, place: &[u8]) -> Result<(), IndexFileError> {
        let skipped = self.held.get(self.at..).unwrap_or_default();
        self.at += skipped.partition_point(|entry| &*entry.place < place);
        if self.at < self.held.len() {
            return Ok(());
        }
        self.load(Bound::Included(place)).await
    }

    /// Moves to the next posting.
    pub(super) async fn advance(&mut self) -> Result<(), IndexFileError> {
        self.at += 1;
        if self.at < self.held.len() {
            return Ok(());
        }
        let last = self.held.last().map(|entry| entry.place.clone());
        match last {
            Some(last) => self.load(Bound::Excluded(&last)).await,
            None => self.load(Bound::Unbounded).await,
        }
    }

    async fn load(&mut self, from: Bound<&[u8]>) -> Result<(), IndexFileError> {
        let Some((source, term)) = &self.rest else { return Ok(()) };
        self.at = 0;
        match source {
            Source::Memory(memory) => self.held = memory.postings(term, from, BATCH),
            Source::Segment(file, segment) => {
                let mut block = match (from, self.block) {
                    (Bound::Excluded(_), Some(held)) => file.block_behind(*segment, held, term),
                    (Bound::Included(place) | Bound::Excluded(place), _) => {
                        file.block_of(*segment, term, place)
                    }
                    (Bound::Unbounded, _) => file.block_of(*segment, term, &[]),
                };
                self.held.clear();
                // The block of a place may end before it, and then the next one begins behind it.
                while let Some(number) = block {
                    self.block = Some(number);
                    self.held = file.postings(*segment, number, term).await?;
                    self.held.retain(|entry| match from {
                        Bound::Included(from) => &*entry.place >= from,
                        Bound::Excluded(from) => &*entry.place > from,
                        Bound::Unbounded => true,
                    });
                    if !self.held.is_empty() {
                        break;
                    }
                    block = file.block_behind(*segment, number, term);
                }
            }
        }
        if self.held.is_empty() {
            // Places only grow: it is not looked for again at each of the other words' places.
            self.rest = None;
        }
        Ok(())
    }
}
