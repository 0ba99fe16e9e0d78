//! `ORDER BY column ANN OF vector LIMIT k`: the rows whose vectors are nearest, nearest first.
//!
//! An index on vectors names candidates: it compares quantised vectors, and has those of rows that have changed since. So more are asked
//! for than are wanted, their rows are read at the consistency level, filtered, and compared exactly. When conditions leave too few of them
//! more are asked for, and at last all rows that the conditions allow are compared (docs/design/vectors.md).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cql::ast::{Direction, Select};
use futures_util::future::join_all;
use mutation::{Clustering, DecoratedKey, Slices};
use replica::{
    Candidate, Keys, Limits, NearestQuery, PartitionResult, Partitions, Place, ReadCommand, ReadPage,
    Similarity,
};
use rt::preempt::Pace;
use schema::{ColumnId, ColumnKind, Table};

use super::places::only;
use super::run::{Pages, READ_BYTES_MAX, SCAN_ROWS, read};
use super::{SelectPlan, limit_expected};
use crate::backend::Coordinator;
use crate::error::{Result, invalid};
use crate::expr::resolve::{Receiver, Resolver};
use crate::expr::row::{ColumnRef, RowView, key_components};
use crate::expr::{Env, Expr};
use crate::request::{Request, TimeoutKind};
use crate::where_clause::filter::BoundFilter;
use crate::where_clause::index::{is_float_vector, of_vectors};

/// The greatest LIMIT, Cassandra's.
const LIMIT_MAX: u64 = 1_000;
/// Candidates that are asked for at least, and for each row that is wanted: by an index with `optimize_for: recall` twice as many,
/// and no fewer than its `oversampling` says.
const CANDIDATES_MIN: usize = 32;
const CANDIDATES_A_ROW: f32 = 3.0;
/// So many times as many are asked for when the first were too few.
const MORE: usize = 4;
/// When so many candidates were too few, all rows are compared.
const CANDIDATES_MAX: usize = 4_096;
/// Partitions that are read at once.
const PARTITIONS_AT_ONCE: usize = 16;

/// The order by nearness to a vector.
#[derive(Clone, Debug)]
pub struct NearestPlan {
    column: ColumnRef,
    name: String,
    index: String,
    similarity: Similarity,
    candidates_a_row: f32,
    vector: Expr,
}

impl NearestPlan {
    /// The order of a SELECT; none when it does not ask for the nearest.
    ///
    /// # Errors
    /// When the column has no vectors or no index on them, or there is another order beside it.
    pub fn prepare(ast: &Select, resolver: &mut Resolver<'_>) -> Result<Option<Self>> {
        let mut nearest =
            ast.order_by.iter().filter_map(|ordering| Some((ordering, ordering.ann_of.as_ref()?)));
        let Some((ordering, term)) = nearest.next() else { return Ok(None) };
        if nearest.next().is_some() {
            return invalid!("Cannot specify more than one ANN ordering");
        }
        if ast.order_by.len() > 1 {
            return invalid!("ANN ordering does not support any other ordering");
        }
        if ordering.direction == Direction::Descending {
            return invalid!("Descending ANN ordering is not supported");
        }
        let column = resolver.column(&ordering.column.name)?;
        if !is_float_vector(&column.ty) {
            return invalid!("ANN ordering is only supported on float vector indexes");
        }
        let vector = resolver.term(term, &Receiver::column(column))?;
        let Some(index) = of_vectors(resolver.table, column) else {
            return invalid!("ANN ordering by vector requires the column to be indexed");
        };
        let option = |name: &str| index.options.get(name).map(String::as_str);
        let similarity = option("similarity_function").and_then(Similarity::of_name).unwrap_or_default();
        let for_recall = option("optimize_for").is_some_and(|goal| goal.eq_ignore_ascii_case("recall"));
        let oversampling = option("oversampling").and_then(|factor| factor.parse().ok()).unwrap_or(1.0);
        let candidates_a_row = if for_recall { CANDIDATES_A_ROW * 2.0 } else { CANDIDATES_A_ROW };
        Ok(Some(Self {
            column: column.into(),
            name: column.name.clone(),
            index: index.name.clone(),
            similarity,
            candidates_a_row: candidates_a_row.max(oversampling),
            vector,
        }))
    }

    /// The column that is read beside those that are selected.
    pub fn fetched(&self) -> Option<ColumnId> {
        matches!(self.column.kind, ColumnKind::Static | ColumnKind::Regular).then_some(self.column.id)
    }

    /// Refuses what does not go with it.
    ///
    /// # Errors
    /// Without LIMIT; with PER PARTITION LIMIT, DISTINCT or an aggregation.
    pub fn check(&self, ast: &Select, plan: &SelectPlan) -> Result<()> {
        if plan.per_partition_limit.is_some() {
            return invalid!("Top-K queries do not support per-partition limits");
        }
        if plan.selection.is_aggregate() || plan.group_width.is_some() {
            return invalid!("Top-K queries can not be run with aggregation");
        }
        if ast.distinct {
            return invalid!("Top-K queries do not support SELECT DISTINCT");
        }
        if plan.limit.is_none() {
            return limit_expected();
        }
        Ok(())
    }

    /// The vector of the statement.
    fn vector(&self, env: &Env<'_>) -> Result<Vec<f32>> {
        let Some(value) = self.vector.eval_option(env)? else {
            return invalid!("Unsupported null value for column {}", self.name);
        };
        let vector = floats(&value);
        if !vector.iter().all(|component| component.is_finite()) {
            return invalid!("non-finite value in the vector of ANN OF");
        }
        let square: f64 = vector.iter().map(|component| f64::from(*component).powi(2)).sum();
        if self.similarity == Similarity::Cosine && square < f64::from(f32::MIN_POSITIVE) {
            return invalid!(
                "Zero and near-zero vectors cannot be indexed or queried with cosine similarity"
            );
        }
        if !(square as f32).is_finite() {
            return invalid!("the vector of ANN OF is too long");
        }
        Ok(vector)
    }
}

/// The components of a vector of floats as it is stored.
fn floats(value: &[u8]) -> Vec<f32> {
    value.as_chunks::<4>().0.iter().map(|bytes| f32::from_be_bytes(*bytes)).collect()
}

/// A search for the nearest rows under way.
pub(super) struct Nearest<'a, C> {
    coordinator: &'a C,
    request: &'a Request<'a>,
    plan: &'a SelectPlan,
    command: &'a ReadCommand,
    filters: &'a [BoundFilter<'a>],
    order: &'a NearestPlan,
    vector: Vec<f32>,
    /// Rows that are wanted.
    limit: usize,
    /// The nearest rows so far, each as a partition of its own; those behind the limit go now and then.
    rows: Vec<(f32, PartitionResult)>,
    tombstones: u64,
}

impl<'a, C: Coordinator> Nearest<'a, C> {
    /// The nearest rows of those that pass the filters, nearest first, and how many tombstones were read for them.
    ///
    /// # Errors
    /// When the vector or the limit is not one, or a read fails.
    pub(super) async fn find(
        plan: &'a SelectPlan,
        coordinator: &'a C,
        request: &'a Request<'a>,
        env: &Env<'_>,
        (filters, limit, command): (&'a [BoundFilter<'a>], u64, &'a ReadCommand),
    ) -> Result<(ReadPage, u64)> {
        let order = plan.nearest.as_ref().expect("only called for such an order");
        if limit > LIMIT_MAX {
            return invalid!(
                "Use of ANN OF in an ORDER BY clause requires a LIMIT that is not greater than {LIMIT_MAX}. LIMIT was {limit}"
            );
        }
        let vector = order.vector(env)?;
        let mut search = Self {
            coordinator,
            request,
            plan,
            command,
            filters,
            order,
            vector,
            limit: usize::try_from(limit).expect("at most the greatest limit"),
            rows: Vec::new(),
            tombstones: 0,
        };
        if plan.access.names_partitions() || !search.by_candidates().await? {
            search.all_rows(env).await?;
        }
        search.keep_nearest();
        let partitions = search.rows.into_iter().map(|(_, partition)| partition).collect();
        Ok((ReadPage { partitions, ..ReadPage::default() }, search.tombstones))
    }

    /// Compares candidates of the index, more each time, until enough have passed; false when too many would be needed.
    async fn by_candidates(&mut self) -> Result<bool> {
        let count = (self.limit as f32 * self.order.candidates_a_row) as usize;
        let mut count = count.clamp(CANDIDATES_MIN, CANDIDATES_MAX);
        let mut known: BTreeSet<(DecoratedKey, Option<Box<[u8]>>)> = BTreeSet::new();
        loop {
            let candidates = self.ask(count).await?;
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

    async fn ask(&self, count: usize) -> Result<Vec<Candidate>> {
        let query = NearestQuery { index: self.order.index.clone(), vector: self.vector.clone(), count };
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
                    self.compare(page).await;
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
        self.rows.clear();
        let command = self.command.clone();
        let mut pages = Pages::new(self.plan, self.coordinator, self.request, env, (command, u64::MAX))?;
        while let Some(page) = pages.next(SCAN_ROWS).await? {
            self.compare(ReadPage { tombstones: 0, ..page }).await;
        }
        self.tombstones += pages.tombstones();
        Ok(())
    }

    /// Adds the rows of a page that have a vector and pass the filters.
    async fn compare(&mut self, page: ReadPage) {
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
                    self.rows.push((closeness, PartitionResult { rows, ..partition.clone() }));
                }
                pace.step().await;
            }
            if self.rows.len() >= self.limit * 2 + 1_000 {
                self.keep_nearest();
            }
        }
    }

    /// How near a row is; none when it has no vector or does not pass the filters.
    fn closeness(&self, view: &RowView<'_>) -> Option<f32> {
        let vector = floats(view.borrowed(&self.order.column)?);
        if vector.len() != self.vector.len() || !self.filters.iter().all(|filter| filter.matches(view)) {
            return None;
        }
        Some(self.order.similarity.closeness(&self.vector, &vector)).filter(|closeness| !closeness.is_nan())
    }

    fn keep_nearest(&mut self) {
        // Stable: of equals, those that were read first.
        self.rows.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        self.rows.truncate(self.limit);
    }
}
