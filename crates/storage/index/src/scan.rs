//! The search of a scan of an ordered index, and that of the orphans which belong to it.

use std::collections::VecDeque;

use bytes::Bytes;
use mutation::{PartitionRange, Slices};
use schema::Table;

use crate::attached::{IndexFile, MemoryIndex};
use crate::definition::{Definition, TermRange};
use crate::file::IndexFileError;
use crate::gather::Gather;
use crate::ordered::ORPHANS;
use crate::ordered_gather::OrderedGather;
use crate::ordered_scan::{OrderedScan, UNORDERED_MAX, WantedOrphans};
use crate::place::{self, Place};
use crate::search::SearchError;

/// Places of orphans, and of the other index, that are read at once: at first, and behind many that were skipped; then twice as many each time.
const PLACES_AT_FIRST: usize = 16;
const PLACES_AT_ONCE: usize = 1024;
/// So often sources are asked for the orphans of a scan; then it is taken for one with too many.
const READS_MAX: usize = 256;

/// A scan under way: all memtables and SSTables of a table are asked, then it is finished.
pub struct ScanSearch {
    gather: OrderedGather,
}

impl ScanSearch {
    /// Of a scan of this index.
    ///
    /// # Errors
    /// When the index is not ordered.
    pub fn new(definition: &Definition, scan: &OrderedScan) -> Result<Self, SearchError> {
        definition.order().ok_or(SearchError::Predicate)?;
        Ok(Self { gather: OrderedGather::new(scan) })
    }

    /// Asks a memtable's index.
    pub async fn ask_memory(&mut self, source: &MemoryIndex) {
        if let MemoryIndex::Terms(terms) = source
            && !self.gather.is_void()
        {
            terms.scan(&mut self.gather).await;
        }
    }

    /// Asks an SSTable's index.
    ///
    /// # Errors
    /// When the file cannot be read, or is damaged.
    pub async fn ask_file(&mut self, source: &IndexFile) -> Result<(), IndexFileError> {
        match source {
            IndexFile::Terms(terms) if !self.gather.is_void() => terms.scan(&mut self.gather).await,
            _ => Ok(()),
        }
    }

    /// The first terms with their places, in the order of the scan.
    ///
    /// # Errors
    /// When one is no place of the table.
    pub fn finish(self, table: &Table) -> Result<Vec<(Bytes, Place)>, SearchError> {
        let (found, is_reversed) = self.gather.into_found();
        let decode = |(bytes, term_len): (Box<[u8]>, usize)| {
            let bytes = Bytes::from(bytes);
            let place = place::decode(table, &bytes[term_len..])?;
            Some((bytes.slice(..term_len), place))
        };
        let places: Option<Vec<_>> = match is_reversed {
            false => found.into_iter().map(decode).collect(),
            true => found.into_iter().rev().map(decode).collect(),
        };
        places.ok_or(SearchError::Place)
    }
}

/// Sorted places that are read a part at a time.
struct Run {
    gather: Gather,
    places: VecDeque<Box<[u8]>>,
    is_more: bool,
}

impl Run {
    fn new(terms: TermRange, range: &PartitionRange, at_first: usize) -> Self {
        let gather = Gather::new(terms, range, &Slices::all(), at_first);
        Self { gather, places: VecDeque::new(), is_more: true }
    }

    /// Leaves out the places before another one, also of those that are not read yet.
    fn skip(&mut self, to: &[u8]) {
        let had = self.places.len();
        while self.places.front().is_some_and(|place| **place < *to) {
            self.places.pop_front();
        }
        if self.places.is_empty() && *self.gather.start < *to {
            self.gather.start = to.to_vec();
            // Most of the last read was skipped in one step.
            if had * 4 > self.gather.limit {
                self.gather.limit = PLACES_AT_FIRST;
            }
        }
    }

    fn take(&mut self) {
        let (places, is_more) = self.gather.take();
        (self.places, self.is_more) = (places.into(), is_more);
        self.gather.limit = (self.gather.limit * 2).min(PLACES_AT_ONCE);
    }
}

/// The orphans of an ordered index that a scan wants: those with the value of the first attribute, and of those without one such that are
/// among the places of a query of another index. The latter two are walked through in ring order, each one skipping to the next place of the other.
pub struct OrphanSearch {
    with_value: Run,
    without: Run,
    others: Run,
    found: Vec<Box<[u8]>>,
    reads: usize,
}

/// The source that an [`OrphanSearch`] has to ask next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrphanSource {
    /// The ordered index, for orphans with the value.
    WithValue,
    /// The ordered index, for orphans without one.
    Without,
    /// The other one.
    Others,
}

impl OrphanSearch {
    /// Of the orphans of a scan, whose query is one of the index of `other`.
    ///
    /// # Errors
    /// When the other index does not answer such a predicate with one term.
    pub fn new(
        other: &Definition,
        wanted: &WantedOrphans,
        range: &PartitionRange,
    ) -> Result<Self, SearchError> {
        let terms = other.terms(&wanted.query.predicate).filter(TermRange::is_one);
        let with_value = TermRange::one(wanted.term.to_vec());
        Ok(Self {
            with_value: Run::new(with_value, range, UNORDERED_MAX + 1),
            without: Run::new(TermRange::one(ORPHANS.to_vec()), range, PLACES_AT_FIRST),
            others: Run::new(terms.ok_or(SearchError::Predicate)?, range, PLACES_AT_FIRST),
            found: Vec::new(),
            reads: 0,
        })
    }

    /// Whether there are more than an answer may have, or it would take long to find them.
    fn has_too_many(&self) -> bool {
        self.found.len() > UNORDERED_MAX || self.reads > READS_MAX
    }

    /// The source to ask next, all its memtables and SSTables, before [`OrphanSearch::take`]; none when the search has ended.
    pub fn next(&mut self) -> Option<OrphanSource> {
        if self.reads == 0 {
            return Some(OrphanSource::WithValue);
        }
        while !self.has_too_many() {
            let Self { without, others, found, .. } = self;
            let Some(orphan) = without.places.front() else {
                return without.is_more.then_some(OrphanSource::Without);
            };
            let Some(other) = others.places.front() else {
                let orphan = orphan.clone();
                others.skip(&orphan);
                return others.is_more.then_some(OrphanSource::Others);
            };
            match orphan.cmp(other) {
                std::cmp::Ordering::Equal => {
                    found.extend(without.places.pop_front());
                    others.places.pop_front();
                }
                std::cmp::Ordering::Less => without.skip(&other.clone()),
                std::cmp::Ordering::Greater => others.skip(&orphan.clone()),
            }
        }
        None
    }

    /// Asks a memtable's index.
    pub async fn ask_memory(&mut self, which: OrphanSource, source: &MemoryIndex) {
        if let MemoryIndex::Terms(terms) = source {
            terms.gather(&mut self.run(which).gather).await;
        }
    }

    /// Asks an SSTable's index.
    ///
    /// # Errors
    /// When the file cannot be read, or is damaged.
    pub async fn ask_file(&mut self, which: OrphanSource, source: &IndexFile) -> Result<(), IndexFileError> {
        match source {
            IndexFile::Terms(terms) => terms.gather(&mut self.run(which).gather).await,
            IndexFile::Vectors(_) | IndexFile::Texts(_) => Ok(()),
        }
    }

    fn run(&mut self, which: OrphanSource) -> &mut Run {
        match which {
            OrphanSource::WithValue => &mut self.with_value,
            OrphanSource::Without => &mut self.without,
            OrphanSource::Others => &mut self.others,
        }
    }

    /// Takes the places that were found in the sources.
    pub fn take(&mut self, which: OrphanSource) {
        self.reads += 1;
        self.run(which).take();
        if which == OrphanSource::WithValue {
            self.found.extend(self.with_value.places.drain(..));
        }
    }

    /// The places; and whether there are more than an answer may have.
    ///
    /// # Errors
    /// When one is no place of the table.
    pub fn finish(mut self, table: &Table) -> Result<(Vec<Place>, bool), SearchError> {
        let has_more = self.has_too_many();
        self.found.truncate(UNORDERED_MAX);
        let places: Option<Vec<Place>> = self.found.iter().map(|bytes| place::decode(table, bytes)).collect();
        Ok((places.ok_or(SearchError::Place)?, has_more))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sorted sources of any overlap: the places of both are found, in a number of reads that the smaller one bounds.
    #[test]
    fn places_of_both_are_found_by_skipping() {
        for (orphans, others) in
            [((0, 3, 4000), (0, 5, 3000)), ((0, 1, 9000), (8990, 2, 40)), ((1, 7, 1), (0, 1, 9000))]
        {
            let numbers = |(start, step, count): (u32, u32, u32)| -> Vec<Vec<u8>> {
                (0..count).map(|at| (start + at * step).to_be_bytes().to_vec()).collect()
            };
            let (orphans, others) = (numbers(orphans), numbers(others));
            let range = PartitionRange::all();
            let run = |at_first| Run::new(TermRange::one(b"x".to_vec()), &range, at_first);
            let mut search = OrphanSearch {
                with_value: run(UNORDERED_MAX + 1),
                without: run(PLACES_AT_FIRST),
                others: run(PLACES_AT_FIRST),
                found: Vec::new(),
                reads: 0,
            };
            // The places of these sources begin with no token.
            for run in [&mut search.with_value, &mut search.without, &mut search.others] {
                run.gather.start.clear();
                run.gather.end = None;
            }
            let mut expected: Vec<&Vec<u8>> = orphans.iter().filter(|place| others.contains(place)).collect();
            expected.truncate(UNORDERED_MAX + 1);
            while let Some(which) = search.next() {
                let source = match which {
                    OrphanSource::WithValue => &[][..],
                    OrphanSource::Without => &orphans,
                    OrphanSource::Others => &others,
                };
                let gather = &mut search.run(which).gather;
                for place in source {
                    if !gather.offer(place) {
                        break;
                    }
                }
                search.take(which);
            }
            let found: Vec<Vec<u8>> = search.found.iter().map(|place| place.to_vec()).collect();
            assert_eq!(found.iter().collect::<Vec<_>>(), expected);
            assert!(search.reads < 60, "{} reads", search.reads);
        }
    }
}
