//! `ORDER BY column ANN OF vector LIMIT k`: the rows whose vectors are nearest, nearest first; and `ORDER BY BM25(column, query) LIMIT k`: those whose
//! texts are the most relevant.
//!
//! An index on vectors names candidates: it compares quantised vectors, and has those of rows that have changed since. So more are asked
//! for than are wanted, their rows are read at the consistency level, filtered, and compared exactly. When conditions leave too few of them
//! more are asked for, and at last all rows that the conditions allow are compared (docs/design/vectors.md).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::join_all;
use mutation::{Clustering, DecoratedKey, Row, Slices};
use replica::{
    Candidate, Candidates, Keys, Limits, NearestQuery, PartitionResult, Partitions, Place, ReadCommand,
    ReadPage,
};
use rt::preempt::Pace;
use schema::Table;

use super::SelectPlan;
use super::nearest_plan::{Goal, NearestPlan};
use super::pages::Pages;
use super::places::only;
use super::read::{READ_BYTES_MAX, SCAN_ROWS, read};
use crate::backend::Coordinator;
use crate::error::{Result, invalid};
use crate::expr::Env;
use crate::expr::row::{RowView, key_components};
use crate::request::{Request, TimeoutKind};
use crate::sink::{RESULT_BYTES_MAX, check_result_bytes};
use crate::text_functions::Relevance;
use crate::where_clause::filter::BoundFilter;

/// The greatest LIMIT, Cassandra's.
const LIMIT_MAX: u64 = 1_000;
/// Candidates that are asked for at least.
const CANDIDATES_MIN: usize = 32;
/// So many times as many are asked for when the first were too few.
const MORE: usize = 4;
/// When so many candidates were too few, all rows are compared.
const CANDIDATES_MAX: usize = 4_096;
/// Partitions that are read at once.
const PARTITIONS_AT_ONCE: usize = 16;

/// A search for the nearest rows under way.
pub(super) struct Nearest<'a, C> {
    coordinator: &'a C,
    request: &'a Request<'a>,
    plan: &'a SelectPlan,
    command: &'a ReadCommand,
    filters: &'a [BoundFilter<'a>],
    order: &'a NearestPlan,
    goal: Goal,
    /// Rows that are wanted.
    limit: usize,
    /// The nearest rows so far, each as a partition of its own; those behind the limit go now and then.
    rows: Vec<(f32, PartitionResult)>,
    /// The bytes of the rows.
    bytes: usize,
    tombstones: u64,
}

/// The result of a search.
pub(super) struct Found {
    /// The rows, each as a partition of its own.
    pub(super) page: ReadPage,
    /// How many tombstones were read for them.
    pub(super) tombstones: u64,
    /// Of a search for texts: by which they were ranked.
    pub(super) relevance: Option<Relevance>,
}

impl<'a, C: Coordinator> Nearest<'a, C> {
    /// The nearest rows, when the plan orders by nearness.
    ///
    /// # Errors
    /// When the vector, query or limit is not one, or a read fails.
    pub(super) async fn of_plan(
        plan: &'a SelectPlan,
        coordinator: &'a C,
        request: &'a Request<'a>,
        env: &Env<'_>,
        wanted: (&'a [BoundFilter<'a>], u64, &'a ReadCommand),
    ) -> Result<Option<Found>> {
        match &plan.nearest {
            None => Ok(None),
            Some(_) => Box::pin(Self::find(plan, coordinator, request, env, wanted)).await.map(Some),
        }
    }

    /// The nearest rows of those that pass the filters, nearest first.
    ///
    /// # Errors
    /// When the vector or the limit is not one, or a read fails.
    async fn find(
        plan: &'a SelectPlan,
        coordinator: &'a C,
        request: &'a Request<'a>,
        env: &Env<'_>,
        (filters, limit, command): (&'a [BoundFilter<'a>], u64, &'a ReadCommand),
    ) -> Result<Found> {
        let order = plan.nearest.as_ref().expect("only called for such an order");
        if limit == u64::MAX {
            return invalid!(
                "Top-K queries must have a limit specified and the limit must be less than the query page size"
            );
        }
        if limit > LIMIT_MAX {
            let what = if order.is_of_texts() { "BM25" } else { "ANN OF" };
            return invalid!(
                "Use of {what} in an ORDER BY clause requires a LIMIT that is not greater than {LIMIT_MAX}. LIMIT was {limit}"
            );
        }
        let goal = order.goal(env)?;
        let mut search = Self {
            coordinator,
            request,
            plan,
            command,
            filters,
            order,
            goal,
            limit: usize::try_from(limit).expect("at most the greatest limit"),
            rows: Vec::new(),
            bytes: 0,
            tombstones: 0,
        };
        if plan.access.names_partitions() || !search.by_candidates().await? {
            search.all_rows(env).await?;
        }
        search.keep_nearest();
        let partitions = search.rows.into_iter().map(|(_, partition)| partition).collect();
        Ok(Found {
            page: ReadPage { partitions, ..ReadPage::default() },
            tombstones: search.tombstones,
            relevance: search.goal.into_relevance(&order.name),
        })
    }

    /// Compares candidates of the index, more each time, until enough have passed; false when too many would be needed.
    async fn by_candidates(&mut self) -> Result<bool> {
        let count = (self.limit as f32 * self.order.candidates_a_row) as usize;
        let mut count = count.clamp(CANDIDATES_MIN, CANDIDATES_MAX);
        let mut known: BTreeSet<(DecoratedKey, Option<Box<[u8]>>)> = BTreeSet::new();
        loop {
            let Candidates { places: candidates, statistics } = self.ask(count).await?;
            self.goal.learn(statistics);
            let is_all = candidates.len() < count;
            let mut partitions: BTreeMap<DecoratedKey, Option<Vec<Clustering>>> = BTreeMap::new();
            for Candidate { place: Place { key, clustering }, .. } in candidates {
                let position = clustering.as_ref().map(|clustering| clustering.position().into());
                if !known.insert((key.clone(), position)) || !self.is_wanted(&key, clustering.as_ref()) {
                    continue;
                }
                let rows = partitions.entry(key).or_insert_with(|| Some(Vec::new()));
                match (clustering, rows.as_mut()) {
                    (Some(clustering), Some(rows)) => rows.push(clustering),
                    // Of a static column: all of the partition.
                    _ => *rows = None,
                }
            }
            self.read_candidates(partitions).await?;
            if is_all || self.rows.len() >= self.limit {
                return Ok(true);
            }
            if count >= CANDIDATES_MAX {
                return Ok(false);
            }
            count = (count * MORE).min(CANDIDATES_MAX);
        }
    }

    async fn ask(&self, count: usize) -> Result<Candidates> {
        let query = NearestQuery { index: self.order.index.clone(), to: self.goal.to(), count };
        let (table, query) = (&self.plan.table, Arc::new(query));
        let (request, coordinator) = (self.request, self.coordinator);
        let deadline = request.deadline(TimeoutKind::Range);
        request.note(|| format!("Searching index {} for {count} candidates", query.index));
        Ok(match request.trace_log() {
            None => coordinator.nearest(table, &query, request.consistency, deadline).await?,
            Some(trace) => {
                let traced = coordinator.traced(trace);
                traced.nearest(table, &query, request.consistency, deadline).await?
            }
        })
    }

    /// Whether the statement's range and slices have a place.
    fn is_wanted(&self, key: &DecoratedKey, clustering: Option<&Clustering>) -> bool {
        let in_range = match &self.command.partitions {
            Partitions::Range(range) => range.contains(key),
            Partitions::Keys(keys) => keys.contains(key),
        };
        in_range && clustering.is_none_or(|clustering| self.command.slices.contains(clustering))
    }

    async fn read_candidates(
        &mut self,
        partitions: BTreeMap<DecoratedKey, Option<Vec<Clustering>>>,
    ) -> Result<()> {
        let mut commands: Vec<ReadCommand> =
            partitions.into_iter().map(|(key, rows)| self.read_of(key, rows)).collect();
        while !commands.is_empty() {
            let mut batch: Vec<ReadCommand> =
                commands.drain(..PARTITIONS_AT_ONCE.min(commands.len())).collect();
            while !batch.is_empty() {
                let deadline = self.request.deadline(TimeoutKind::Read);
                let reads = batch.iter().map(|one| read(self.coordinator, self.request, one, deadline));
                let pages = join_all(reads).await;
                let mut unfinished = Vec::new();
                for (command, page) in batch.into_iter().zip(pages) {
                    let page = page?;
                    if page.more.is_some() {
                        unfinished.push(ReadCommand { resume: page.more.clone(), ..command });
                    }
                    self.compare(page).await?;
                }
                batch = unfinished;
            }
        }
        Ok(())
    }

    fn read_of(&self, key: DecoratedKey, rows: Option<Vec<Clustering>>) -> ReadCommand {
        let table: &Table = &self.plan.table;
        let slices = match rows {
            None => self.command.slices.clone(),
            Some(mut rows) => {
                rows.sort_unstable_by(|a, b| a.position().cmp(b.position()));
                Slices::new(rows.iter().map(|row| only(table, row)).collect())
            }
        };
        ReadCommand {
            partitions: Partitions::Keys(Keys::from_iter([key])),
            slices,
            resume: None,
            limits: Limits { rows: SCAN_ROWS, rows_per_partition: u64::MAX, bytes: READ_BYTES_MAX },
            ..self.command.clone()
        }
    }

    /// Compares all rows that the statement's conditions allow.
    async fn all_rows(&mut self, env: &Env<'_>) -> Result<()> {
        (self.rows, self.bytes) = (Vec::new(), 0);
        if self.goal.needs_figures() {
            let figures = self.ask(1).await?.statistics;
            self.goal.learn(figures);
        }
        let command = self.command.clone();
        let mut pages = Pages::new(self.plan, self.coordinator, self.request, env, (command, u64::MAX))?;
        while let Some(page) = pages.next(SCAN_ROWS).await? {
            self.compare(ReadPage { tombstones: 0, ..page }).await?;
        }
        self.tombstones += pages.tombstones();
        Ok(())
    }

    /// Adds the rows of a page that have a vector and pass the filters.
    ///
    /// # Errors
    /// When the nearest rows have more bytes than a result may have.
    async fn compare(&mut self, page: ReadPage) -> Result<()> {
        self.tombstones += page.tombstones;
        let mut pace = Pace::new();
        for mut partition in page.partitions {
            let key = key_components(&self.plan.table, &partition.key.key);
            let rows = std::mem::take(&mut partition.rows);
            let is_static_alone = rows.is_empty() && self.plan.static_rows;
            for row in rows.into_iter().map(Some).chain(is_static_alone.then_some(None)) {
                let view = RowView::new(&key, partition.static_row.as_ref(), row.as_ref(), self.request.now);
                if let Some(closeness) = self.closeness(&view) {
                    let rows = row.into_iter().collect();
                    let found = PartitionResult { rows, ..partition.clone() };
                    self.bytes += bytes_of(&found);
                    self.rows.push((closeness, found));
                }
                if self.rows.len() >= self.limit * 2 + 1_000 || self.bytes > RESULT_BYTES_MAX {
                    self.keep_nearest();
                    self.bytes = self.rows.iter().map(|(_, found)| bytes_of(found)).sum();
                    check_result_bytes(self.bytes)?;
                }
                pace.step().await;
            }
        }
        Ok(())
    }

    /// How near a row is; none when it has no vector, or no text that the query finds, or does not pass the filters.
    fn closeness(&self, view: &RowView<'_>) -> Option<f32> {
        let value = view.borrowed(&self.order.column)?;
        let closeness = self.goal.closeness(value)?;
        self.filters.iter().all(|filter| filter.matches(view)).then_some(closeness)
    }

    fn keep_nearest(&mut self) {
        // Stable: of equals, those that were read first.
        self.rows.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        self.rows.truncate(self.limit);
    }
}

/// Bytes of a row that is held.
fn bytes_of(partition: &PartitionResult) -> usize {
    partition.rows.iter().chain(&partition.static_row).map(Row::memory_size).sum()
}
