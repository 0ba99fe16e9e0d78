//! Reading by way of a secondary index: pages of places first, then the rows that are there.
//!
//! A place may be stale, so the reader filters the rows as any others (docs/design/index.md). Memory is bounded by a
//! page of places and by the first pages of a few partitions.

use std::collections::VecDeque;

use futures_util::future::join_all;
use mutation::{Bound, Clustering, ColumnSelection, DecoratedKey, RowRange, Side, Slices};
use replica::{IndexQuery, Keys, Limits, Partitions, Predicate, ReadCommand, ReadPage, Resume};
use schema::Table;
use smallvec::SmallVec;

use super::read::{READ_BYTES_MAX, read};
use super::spots::{PLACES_ESTIMATED, PLACES_MAX, Source, Spot, Spots, behind};
use crate::backend::Coordinator;
use crate::error::Result;
use crate::request::{Request, TimeoutKind};
use crate::where_clause::texts::AnyOfAll;

/// Bytes of a page of the places of several terms.
const PLACES_BYTES_MAX: usize = 4 << 20;
/// The fewest, because some may be stale.
const PLACES_MIN: u64 = 16;
/// Bytes of a page of the places of one of many values.
const VALUE_BYTES_MIN: usize = 64 << 10;
/// Lists of places that one statement reads at once at most. A condition with more of them filters.
const SOURCES_MAX: usize = 64;
/// The most partitions that are read at once.
const PARTITIONS_AT_ONCE: usize = 16;

/// The rows of a partition that an index has found.
struct Place {
    key: DecoratedKey,
    /// The rows; none for all of them.
    rows: Option<Vec<Clustering>>,
    /// Where the result before this one ended, in the partition.
    resume: Option<Resume>,
}

/// The first page of a partition, and how to get the others.
struct Found {
    command: ReadCommand,
    /// Behind the last place of the partition.
    end: Resume,
    /// None when it has to be read.
    page: Option<ReadPage>,
}

/// The partitions that an index finds, in ring order.
pub(super) struct Places {
    spots: Spots,
    /// Reads rows, with partitions and slices put in.
    rows: ReadCommand,
    /// Where the result resumes; then the last place that an index gave.
    pub(super) resume: Option<Resume>,
    /// Rows that the result still takes.
    wanted: u64,
    /// All places were read.
    exhausted: bool,
    queue: VecDeque<Place>,
    ready: VecDeque<Found>,
}

impl Places {
    /// The rows of `command`, a read of a range or of one partition, that all of these indexes find; about `wanted` are needed. None where
    /// each index has too many lists of places.
    pub(super) fn new(
        command: &ReadCommand,
        mut parts: Vec<(String, AnyOfAll)>,
        partitions: bool,
        wanted: u64,
    ) -> Option<Self> {
        let mut sources = 0;
        parts.retain(|(_, lists)| {
            let more = lists.iter().map(Vec::len).sum::<usize>();
            let fits = sources + more <= SOURCES_MAX;
            sources += if fits { more } else { 0 };
            fits
        });
        if parts.is_empty() {
            return None;
        }
        let mut queue = VecDeque::new();
        let mut resume = command.resume.clone();
        if partitions && let Some(inside) = resume.take_if(|resume| resume.clustering.is_some()) {
            // The partition resumes by itself, and its place is not searched again.
            resume = Some(behind(&inside.key));
            queue.push_back(Place { key: inside.key.clone(), rows: None, resume: Some(inside) });
        }
        let is_one = sources == 1;
        // Nothing is intersected.
        let is_union = matches!(parts.as_slice(), [(_, lists)] if lists.iter().all(|list| list.len() == 1));
        let places_max = if is_one { PLACES_MAX } else { PLACES_ESTIMATED };
        let places = if is_union { wanted.clamp(PLACES_MIN, places_max) } else { PLACES_ESTIMATED };
        let source = |index: &str, count: usize, predicate: Predicate| {
            let is_one_term = !matches!(predicate, Predicate::Range { .. });
            // A range of values that is intersected counts when it is read to its end.
            let (places, bytes) = match (is_one_term, is_one) {
                (true, _) => (places, (READ_BYTES_MAX / count).max(VALUE_BYTES_MIN)),
                (false, true) => (places, PLACES_BYTES_MAX),
                (false, false) => (PLACES_MAX, PLACES_BYTES_MAX),
            };
            let query = ReadCommand {
                // A partition has no place among rows.
                slices: if partitions { Slices::all() } else { command.slices.clone() },
                columns: ColumnSelection::All,
                reversed: false,
                limits: Limits { rows: places, rows_per_partition: u64::MAX, bytes },
                resume: resume.clone(),
                index: Some(IndexQuery { index: index.to_owned(), predicate }.into()),
                ..command.clone()
            };
            Source::new(query, is_one_term, count)
        };
        let clauses = parts.into_iter().map(|(index, lists)| {
            let count = lists.len();
            let of_list =
                |list: Vec<Predicate>| list.into_iter().map(|one| source(&index, count, one)).collect();
            let lists = lists.into_iter().map(of_list).collect();
            (index, lists)
        });
        let spots = Spots::new(clauses.collect(), partitions);
        let rows = ReadCommand { resume: None, ..command.clone() };
        Some(Self { spots, rows, resume, wanted, exhausted: false, queue, ready: VecDeque::new() })
    }

    /// The names of the indexes.
    pub(super) fn names(&self) -> String {
        self.spots.names()
    }

    /// The next page of rows, of one partition; none behind the last. Its `more` is where the result may go on.
    pub(super) async fn next<C: Coordinator>(
        &mut self,
        coordinator: &C,
        request: &Request<'_>,
        rows: u64,
    ) -> Result<Option<ReadPage>> {
        loop {
            if let Some(mut found) = self.ready.pop_front() {
                let mut page = match found.page.take() {
                    Some(page) => page,
                    None => {
                        found.command.limits.rows = rows;
                        read(coordinator, request, &found.command, request.deadline(TimeoutKind::Read))
                            .await?
                    }
                };
                if page.more.is_some() {
                    found.command.resume = page.more.clone();
                    self.ready.push_front(found);
                } else if !(self.exhausted && self.queue.is_empty() && self.ready.is_empty()) {
                    page.more = Some(found.end);
                }
                return Ok(Some(page));
            }
            if self.queue.is_empty() {
                if self.exhausted {
                    return Ok(None);
                }
                self.fetch_places(coordinator, request).await?;
            } else {
                self.fetch_rows(coordinator, request, rows).await?;
            }
        }
    }

    async fn fetch_places<C: Coordinator>(&mut self, coordinator: &C, request: &Request<'_>) -> Result<()> {
        let (spots, is_over) = self.spots.next(coordinator, request).await?;
        self.exhausted = is_over;
        // When the index is unavailable next, all rows are read from here on.
        if let Some(Spot { key, clustering }) = spots.last() {
            self.resume = Some(Resume { clustering: clustering.clone(), ..behind(key) });
        }
        for Spot { key, clustering } in spots {
            let Some(row) = clustering else {
                self.queue.push_back(Place { key, rows: None, resume: None });
                continue;
            };
            // The slices of the statement may leave nothing of it.
            if !self.rows.slices.contains(&row) {
                continue;
            }
            match self.queue.back_mut() {
                Some(Place { key: known, rows: Some(rows), .. }) if *known == key => rows.push(row),
                _ => self.queue.push_back(Place { key, rows: Some(vec![row]), resume: None }),
            }
        }
        Ok(())
    }

    /// Reads the first pages of the next partitions.
    async fn fetch_rows<C: Coordinator>(
        &mut self,
        coordinator: &C,
        request: &Request<'_>,
        rows: u64,
    ) -> Result<()> {
        let at_once = usize::try_from(self.wanted).unwrap_or(usize::MAX).clamp(1, PARTITIONS_AT_ONCE);
        let places: Vec<Place> = self.queue.drain(..at_once.min(self.queue.len())).collect();
        let mut batch: Vec<Found> = places.into_iter().map(|place| self.found(place, rows)).collect();
        let deadline = request.deadline(TimeoutKind::Read);
        let reads = batch.iter().map(|found| read(coordinator, request, &found.command, deadline));
        let pages = join_all(reads).await;
        for (found, page) in batch.iter_mut().zip(pages) {
            found.page = Some(page?);
        }
        self.ready.extend(batch);
        Ok(())
    }

    /// The read of a place.
    fn found(&self, place: Place, rows: u64) -> Found {
        let table = &self.rows.table;
        let end = match place.rows.as_ref().and_then(|rows| rows.last()) {
            Some(last) => Resume { clustering: Some(last.clone()), ..behind(&place.key) },
            None => behind(&place.key),
        };
        let slices = match &place.rows {
            Some(rows) => Slices::new(rows.iter().map(|row| only(table, row)).collect()),
            None => self.rows.slices.clone(),
        };
        let command = ReadCommand {
            partitions: Partitions::Keys(Keys::from_iter([place.key])),
            slices,
            resume: place.resume,
            limits: Limits { rows, ..self.rows.limits },
            ..self.rows.clone()
        };
        Found { command, end, page: None }
    }
}

/// The range of one row.
pub(super) fn only(table: &Table, row: &Clustering) -> RowRange {
    let values: SmallVec<[Option<&[u8]>; 4]> = row.components().collect();
    RowRange { start: Bound::new(table, &values, Side::Before), end: Bound::new(table, &values, Side::After) }
}
