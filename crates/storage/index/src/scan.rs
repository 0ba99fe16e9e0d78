//! Scans of an ordered index: its places in the order of their terms.

use std::collections::BTreeSet;

use bytes::Bytes;
use mutation::{DecoratedKey, PartitionRange, Slices};
use schema::Table;

use crate::attached::{IndexFile, MemoryIndex};
use crate::definition::{Definition, TermRange};
use crate::file::IndexFileError;
use crate::gather::Gather;
use crate::ordered::{ORPHANS, behind_place};
use crate::place::{self, Place};
use crate::query::IndexQuery;
use crate::search::SearchError;

/// Orphans that are held at once, and places of the other index.
const ORPHANS_AT_ONCE: usize = 1024;
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
    /// Of an index with orphans, a query of another index whose places are wanted, too, where they are orphans.
    pub unordered: Option<IndexQuery>,
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
    /// There are more of those, and the scan does not answer the query.
    pub has_more_unordered: bool,
}

impl OrderedPlaces {
    /// Adds those of another part of the table.
    pub fn add(&mut self, other: Self) {
        self.places.extend(other.places);
        self.unordered.extend(other.unordered);
        self.has_more_unordered |= other.has_more_unordered;
    }

    /// Brings what was added into order, each place of a term once, and keeps what the scan wants.
    pub fn finish(&mut self, scan: &OrderedScan) {
        let in_ring = |a: &Place, b: &Place| a.key.cmp(&b.key).then_with(|| position(a).cmp(&position(b)));
        self.places.sort_by(|(a, at), (b, bt)| {
            let order = a.cmp(b).then_with(|| in_ring(at, bt));
            if scan.is_reversed { order.reverse() } else { order }
        });
        self.places.dedup();
        self.places.truncate(scan.count);
        self.unordered.sort_by(in_ring);
        self.unordered.dedup();
        self.has_more_unordered |= self.unordered.len() > UNORDERED_MAX;
        self.unordered.truncate(UNORDERED_MAX);
    }
}

fn position(place: &Place) -> Option<&[u8]> {
    place.clustering.as_ref().map(mutation::Clustering::position)
}

/// The first terms and places of a scan, collected over several sources, each of which offers its own in the order of the scan.
#[derive(Debug)]
pub(crate) struct Nearest {
    /// Terms and places below are out, one behind the other.
    pub(crate) start: Vec<u8>,
    /// Terms and places from here on are out.
    pub(crate) end: Vec<u8>,
    pub(crate) is_reversed: bool,
    count: usize,
    /// Of each the term's length.
    found: BTreeSet<(Box<[u8]>, usize)>,
}

impl Nearest {
    fn new(scan: &OrderedScan) -> Self {
        let (mut start, mut end) = (scan.start.to_vec(), scan.end.to_vec());
        if let Some((term, Place { key, clustering })) = &scan.after {
            let mut bytes = Vec::new();
            place::encode(key, clustering.as_ref(), &mut bytes);
            if scan.is_reversed {
                end = end.min([term, &bytes[..]].concat());
            } else {
                start = start.max(behind_place(term, &bytes));
            }
        }
        Self { start, end, is_reversed: scan.is_reversed, count: scan.count, found: BTreeSet::new() }
    }

    /// Whether nothing can be found.
    pub(crate) fn is_void(&self) -> bool {
        self.start >= self.end
    }

    fn last(&self) -> Option<&(Box<[u8]>, usize)> {
        if self.is_reversed { self.found.first() } else { self.found.last() }
    }

    /// Takes a term with its place, one behind the other, if they are wanted; false when neither they nor those that the source has next are.
    pub(crate) fn offer(&mut self, bytes: &[u8], term_len: usize) -> bool {
        let (is_before, is_behind) = match self.is_reversed {
            false => (*bytes < *self.start, *bytes >= *self.end),
            true => (*bytes >= *self.end, *bytes < *self.start),
        };
        if is_before || is_behind {
            return is_before;
        }
        if self.found.len() >= self.count {
            let is_wanted = self.last().is_some_and(|(last, _)| match self.is_reversed {
                false => *bytes < **last,
                true => *bytes > **last,
            });
            if !is_wanted {
                return false;
            }
        }
        self.found.insert((bytes.into(), term_len));
        if self.found.len() > self.count {
            _ = if self.is_reversed { self.found.pop_first() } else { self.found.pop_last() };
        }
        true
    }
}

/// A scan under way: all memtables and SSTables of a table are asked, then it is finished.
pub struct ScanSearch {
    nearest: Nearest,
}

impl ScanSearch {
    /// Of a scan of this index.
    ///
    /// # Errors
    /// When the index is not ordered.
    pub fn new(definition: &Definition, scan: &OrderedScan) -> Result<Self, SearchError> {
        definition.order().ok_or(SearchError::Predicate)?;
        Ok(Self { nearest: Nearest::new(scan) })
    }

    /// Asks a memtable's index.
    pub async fn ask_memory(&mut self, source: &MemoryIndex) {
        if let MemoryIndex::Terms(terms) = source
            && !self.nearest.is_void()
        {
            terms.scan(&mut self.nearest).await;
        }
    }

    /// Asks an SSTable's index.
    ///
    /// # Errors
    /// When the file cannot be read, or is damaged.
    pub async fn ask_file(&mut self, source: &IndexFile) -> Result<(), IndexFileError> {
        match source {
            IndexFile::Terms(terms) if !self.nearest.is_void() => terms.scan(&mut self.nearest).await,
            _ => Ok(()),
        }
    }

    /// The first terms with their places, in the order of the scan.
    ///
    /// # Errors
    /// When one is no place of the table.
    pub fn finish(self, table: &Table) -> Result<Vec<(Bytes, Place)>, SearchError> {
        let Nearest { found, is_reversed, .. } = self.nearest;
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
    places: std::collections::VecDeque<Box<[u8]>>,
    is_more: bool,
}

impl Run {
    fn new(terms: TermRange, range: &PartitionRange) -> Self {
        let gather = Gather::new(terms, range, &Slices::all(), ORPHANS_AT_ONCE);
        Self { gather, places: Default::default(), is_more: true }
    }
}

/// The orphans of an ordered index that are among the places of a query of another index: both are walked through in ring order, each
/// one skipping to the next place of the other.
pub struct OrphanSearch {
    orphans: Run,
    others: Run,
    found: Vec<Box<[u8]>>,
}

/// The source that an [`OrphanSearch`] has to ask next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrphanSource {
    /// The ordered index.
    Orphans,
    /// The other one.
    Others,
}

impl OrphanSearch {
    /// Of the scan's query, which is one of the index of `other`.
    ///
    /// # Errors
    /// When the other index does not answer such a predicate with one term.
    pub fn new(other: &Definition, query: &IndexQuery, range: &PartitionRange) -> Result<Self, SearchError> {
        let terms = other.terms(&query.predicate).filter(TermRange::is_one).ok_or(SearchError::Predicate)?;
        let orphans = TermRange::one(ORPHANS.to_vec());
        let found = Vec::new();
        Ok(Self { orphans: Run::new(orphans, range), others: Run::new(terms, range), found })
    }

    /// Which source is to be asked next, all its memtables and SSTables, before [`OrphanSearch::take`]; none when the search has ended.
    pub fn next(&mut self) -> Option<OrphanSource> {
        let Self { orphans, others, found } = self;
        loop {
            if found.len() > UNORDERED_MAX {
                return None;
            }
            let Some(orphan) = orphans.places.front() else {
                return orphans.is_more.then_some(OrphanSource::Orphans);
            };
            let Some(other) = others.places.front() else {
                if !others.is_more {
                    return None;
                }
                others.gather.start.clone_from(&orphan.to_vec());
                return Some(OrphanSource::Others);
            };
            match orphan.cmp(other) {
                std::cmp::Ordering::Equal => {
                    found.extend(orphans.places.pop_front());
                    others.places.pop_front();
                }
                std::cmp::Ordering::Less => Self::skip(orphans, other),
                std::cmp::Ordering::Greater => Self::skip(others, orphan),
            }
        }
    }

    /// Leaves out the places before another one, also of those that are not read yet.
    fn skip(run: &mut Run, to: &[u8]) {
        while run.places.front().is_some_and(|place| **place < *to) {
            run.places.pop_front();
        }
        if run.places.is_empty() && *run.gather.start < *to {
            run.gather.start = to.to_vec();
        }
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
            OrphanSource::Orphans => &mut self.orphans,
            OrphanSource::Others => &mut self.others,
        }
    }

    /// Takes what the sources had.
    pub fn take(&mut self, which: OrphanSource) {
        let run = self.run(which);
        let (places, is_more) = run.gather.take();
        (run.places, run.is_more) = (places.into(), is_more);
    }

    /// The places that both have; and whether there are more than an answer may have.
    ///
    /// # Errors
    /// When one is no place of the table.
    pub fn finish(mut self, table: &Table) -> Result<(Vec<Place>, bool), SearchError> {
        let has_more = self.found.len() > UNORDERED_MAX;
        self.found.truncate(UNORDERED_MAX);
        let places: Option<Vec<Place>> = self.found.iter().map(|bytes| place::decode(table, bytes)).collect();
        Ok((places.ok_or(SearchError::Place)?, has_more))
    }
}
