//! The places that several indexes find together, in ring order: those of each index are read in pages, united over replicas, and
//! intersected here.
//!
//! A replica that intersects its own places loses rows: of two writes to a row that each have their quorum, no replica may have both. The
//! places of one predicate that a quorum answers with have every acknowledged row; so each predicate is queried on its own, and its
//! answer is intersected with the others'. Estimates from the first page of each say which predicates are worth it.

use std::collections::VecDeque;

use futures_util::future::join_all;
use mutation::{Clustering, DecoratedKey, RingPosition};
use replica::{Partitions, ReadCommand, ReadPage, Resume};

use super::read::read;
use crate::backend::Coordinator;
use crate::error::Result;
use crate::request::{Request, TimeoutKind};

/// A predicate that finds so many times the places of the most selective one is not queried further: reading the rows costs less.
const TIMES_MAX: f64 = 32.0;

/// The most places that the first read of the only term fetches. Places that are intersected are many more than rows: the second reads of
/// several predicates fetch as many at least.
pub(super) const PLACES_MAX: u64 = 1_000;
/// Places that the first read of each of several predicates fetches, to estimate how many it has: one with many is not queried further.
pub(super) const PLACES_ESTIMATED: u64 = 128;
/// The most places that one read fetches: as many as a replica collects at once, of several terms.
const PLACES_OF_TERMS: u64 = 16_384;

/// A place that an index finds: a row, or a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) key: DecoratedKey,
    pub(super) clustering: Option<Clustering>,
}

impl Spot {
    fn position(&self) -> (&DecoratedKey, &[u8]) {
        (&self.key, self.clustering.as_ref().map_or(&[], |clustering| clustering.position()))
    }
}

impl Ord for Spot {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.position().cmp(&other.position())
    }
}

impl PartialOrd for Spot {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The places of one predicate.
pub(super) struct Source {
    /// Reads them.
    query: ReadCommand,
    /// Whether all of them are those of one term, which come in order from the index.
    is_one_term: bool,
    /// The most places that one read fetches.
    page_max: u64,
    /// Those that were read and are not behind the caller.
    held: VecDeque<Spot>,
    /// The last place that was read: all before it are known. None before the first page.
    read_to: Option<Spot>,
    exhausted: bool,
    /// How many places there may be; known with the first page.
    estimate: f64,
}

impl Source {
    /// One of `count` of which the places of any are wanted: they share the places of a read.
    pub(super) fn new(query: ReadCommand, is_one_term: bool, count: usize) -> Self {
        let held = VecDeque::new();
        let page_max = PLACES_OF_TERMS / count as u64;
        Self { query, is_one_term, page_max, held, read_to: None, exhausted: false, estimate: 0.0 }
    }

    fn needs_page(&self) -> bool {
        self.held.is_empty() && !self.exhausted
    }

    /// The least place that it can still have; none for no place.
    fn next(&self) -> Option<&Spot> {
        self.held.front().or(self.read_to.as_ref().filter(|_| !self.exhausted))
    }

    fn is_over(&self) -> bool {
        self.held.is_empty() && self.exhausted
    }

    fn take(&mut self, page: ReadPage, partitions: bool) {
        let first = self.read_to.is_none();
        self.exhausted = page.more.is_none();
        for partition in page.partitions {
            let key = partition.key;
            if partitions {
                self.held.push_back(Spot { key, clustering: None });
                continue;
            }
            let rows = partition.rows.into_iter();
            self.held.extend(rows.map(|row| Spot { key: key.clone(), clustering: Some(row.clustering) }));
        }
        if first {
            self.estimate = self.estimate(page.more.as_ref());
        }
        // Each read has a price of its own, of several terms that of looking at all of their places.
        let rows = self.query.limits.rows.saturating_mul(2).min(self.page_max);
        self.query.limits.rows = if self.is_one_term { rows } else { self.page_max };
        self.query.resume = page.more.map(|more| match partitions {
            // All of the partition is read, regardless of its other places.
            true => behind(&more.key),
            false => more,
        });
        let read_to = self.held.back().cloned();
        let resumed = self.query.resume.as_ref();
        self.read_to = read_to
            .or_else(|| {
                resumed.map(|more| Spot { key: more.key.clone(), clustering: more.clustering.clone() })
            })
            .or_else(|| self.read_to.take());
    }

    /// The count of the first page, over the part of the ring that it is from.
    fn estimate(&self, more: Option<&Resume>) -> f64 {
        let count = self.held.len() as f64;
        let (Some(more), Partitions::Range(range)) = (more, &self.query.partitions) else { return count };
        let token = |position: &RingPosition| match position {
            RingPosition::BeforeToken(token) | RingPosition::AfterToken(token) => *token as f64,
            RingPosition::BeforeKey(key) | RingPosition::AfterKey(key) => key.token as f64,
        };
        let (start, end, reached) = (token(&range.start), token(&range.end), more.key.token as f64);
        let part = (reached - start) / (end - start);
        if part > 0.0 { count / part.min(1.0) } else { count }
    }

    /// Leaves out the places before one.
    fn skip_to(&mut self, least: &Spot) {
        while self.held.front().is_some_and(|spot| spot < least) {
            self.held.pop_front();
        }
        // The unread rest begins at its partition.
        let is_far = self.read_to.as_ref().is_some_and(|read_to| read_to.key < least.key);
        if self.needs_page()
            && is_far
            && let Partitions::Range(range) = &mut self.query.partitions
        {
            range.start = RingPosition::BeforeKey(least.key.clone());
            self.query.resume = None;
        }
    }
}

/// Places for each of which one of the lists has all of its sources.
struct Clause {
    lists: Vec<Vec<Source>>,
    /// The index, for the trace.
    name: String,
}

impl Clause {
    fn sources(&mut self) -> impl Iterator<Item = &mut Source> {
        self.lists.iter_mut().flatten()
    }

    fn estimate(&self) -> f64 {
        let of_list =
            |list: &Vec<Source>| list.iter().map(|source| source.estimate).fold(f64::INFINITY, f64::min);
        self.lists.iter().map(of_list).sum()
    }

    fn is_known(&self) -> bool {
        self.lists.iter().flatten().all(|source| source.exhausted)
    }

    fn has_one_terms(&self) -> bool {
        self.lists.iter().flatten().all(|source| source.is_one_term || source.exhausted)
    }

    /// The least place that can be in it; none for no place.
    fn next(&self) -> Option<&Spot> {
        self.lists.iter().filter_map(|list| least_of(list)).min()
    }

    fn has(&self, spot: &Spot) -> bool {
        let holds = |source: &Source| source.held.binary_search(spot).is_ok();
        self.lists.iter().any(|list| list.iter().all(holds))
    }
}

/// The least place that all sources can have; none for no place.
fn least_of(list: &[Source]) -> Option<&Spot> {
    let mut greatest: Option<&Spot> = None;
    for source in list {
        let next = source.next()?;
        greatest = Some(greatest.map_or(next, |known| known.max(next)));
    }
    greatest
}

/// The places that are in all clauses.
pub(super) struct Spots {
    clauses: Vec<Clause>,
    /// The indexes find partitions and not rows.
    partitions: bool,
    /// Whether the first pages were read.
    has_begun: bool,
}

impl Spots {
    /// Of clauses with the names of their indexes, each of lists of sources.
    pub(super) fn new(clauses: Vec<(String, Vec<Vec<Source>>)>, partitions: bool) -> Self {
        let clauses = clauses.into_iter().map(|(name, lists)| Clause { lists, name }).collect();
        Self { clauses, partitions, has_begun: false }
    }

    /// The names of the indexes.
    pub(super) fn names(&self) -> String {
        let names: Vec<&str> = self.clauses.iter().map(|clause| clause.name.as_str()).collect();
        names.join(", ")
    }

    /// The next places, in ring order; and whether there are no others.
    ///
    /// # Errors
    /// When a read fails.
    pub(super) async fn next<C: Coordinator>(
        &mut self,
        coordinator: &C,
        request: &Request<'_>,
    ) -> Result<(Vec<Spot>, bool)> {
        loop {
            if self.is_over() {
                return Ok((Vec::new(), true));
            }
            self.fetch(coordinator, request).await?;
            if !self.has_begun {
                self.has_begun = true;
                self.choose(request);
            }
            let found = self.match_held();
            let is_over = self.is_over();
            if !found.is_empty() || is_over {
                let names = self.names();
                request.note(|| format!("Index {names} found {} places", found.len()));
                return Ok((found, is_over));
            }
            self.skip();
        }
    }

    fn is_over(&self) -> bool {
        let is_over = |list: &Vec<Source>| list.iter().any(Source::is_over);
        self.clauses.iter().any(|clause| clause.lists.iter().all(is_over))
    }

    async fn fetch<C: Coordinator>(&mut self, coordinator: &C, request: &Request<'_>) -> Result<()> {
        let mut due: Vec<&mut Source> =
            self.clauses.iter_mut().flat_map(Clause::sources).filter(|source| source.needs_page()).collect();
        let reads = due.iter().map(|source| {
            let timeout = match source.query.partitions {
                Partitions::Keys(_) => TimeoutKind::Read,
                Partitions::Range(_) => TimeoutKind::Range,
            };
            read(coordinator, request, &source.query, request.deadline(timeout))
        });
        let pages = join_all(reads).await;
        for (source, page) in due.iter_mut().zip(pages) {
            source.take(page?, self.partitions);
        }
        Ok(())
    }

    /// Leaves out clauses and sources that find so many places that further pages cost more than reading the rows. Sources that were read to
    /// their end stay.
    fn choose(&mut self, request: &Request<'_>) {
        for clause in &mut self.clauses {
            for list in &mut clause.lists {
                let least = list.iter().map(|source| source.estimate).fold(f64::INFINITY, f64::min);
                list.retain(|source| source.exhausted || source.estimate <= least * TIMES_MAX);
            }
        }
        let rest = self.clauses.iter_mut().flat_map(Clause::sources);
        rest.for_each(|source| {
            let rows = source.query.limits.rows.max(PLACES_MAX);
            source.query.limits.rows = rows.min(source.page_max);
        });
        if self.clauses.len() == 1 {
            return;
        }
        let order = |a: &Clause, b: &Clause| a.estimate().total_cmp(&b.estimate());
        self.clauses.sort_by(order);
        let least = self.clauses[0].estimate();
        for clause in &self.clauses {
            let about = if clause.is_known() { "" } else { "about " };
            request.note(|| format!("Index {}: {about}{:.0} places", clause.name, clause.estimate()));
        }
        let mut at = 0;
        self.clauses.retain(|clause| {
            at += 1;
            let is_worth = clause.has_one_terms() && clause.estimate() <= least * TIMES_MAX;
            let stays = at == 1 || clause.is_known() || is_worth;
            if !stays {
                request
                    .note(|| format!("Index {} is not queried further: its condition filters", clause.name));
            }
            stays
        });
    }

    /// Takes the places that are known to be in all clauses, as far as all sources were read.
    fn match_held(&mut self) -> Vec<Spot> {
        let sources = || self.clauses.iter().flat_map(|clause| clause.lists.iter().flatten());
        let open = sources().filter(|source| !source.exhausted);
        let end = open.filter_map(|source| source.read_to.clone()).min();
        let is_known = |spot: &Spot| end.as_ref().is_none_or(|end| spot <= end);
        let mut candidates: Vec<Spot> = Vec::new();
        for source in self.clauses[0].lists.iter().flatten() {
            candidates.extend(source.held.iter().take_while(|spot| is_known(spot)).cloned());
        }
        candidates.sort_unstable();
        candidates.dedup();
        candidates.retain(|spot| self.clauses.iter().all(|clause| clause.has(spot)));
        for source in self.clauses.iter_mut().flat_map(Clause::sources) {
            while source.held.front().is_some_and(is_known) {
                source.held.pop_front();
            }
        }
        candidates
    }

    /// Moves all sources to the least place that can be in all clauses.
    fn skip(&mut self) {
        let nexts: Option<Vec<&Spot>> = self.clauses.iter().map(Clause::next).collect();
        let Some(least) = nexts.and_then(|nexts| nexts.into_iter().max().cloned()) else { return };
        for source in self.clauses.iter_mut().flat_map(Clause::sources) {
            source.skip_to(&least);
        }
    }
}

/// Behind a partition.
pub(super) fn behind(key: &DecoratedKey) -> Resume {
    Resume { key: key.clone(), clustering: None, rows_in_partition: 0 }
}
