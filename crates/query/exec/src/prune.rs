//! PRUNE MATERIALIZED VIEW (ScyllaDB): deletes the rows of a view that no base row is the cause of.
//!
//! Rows of the view are read first and then their base rows, both from all replicas, so that a write under way is not
//! mistaken: its base row is there before its row of the view. Found rows are deleted at their own timestamp.

use std::collections::BTreeMap;
use std::sync::Arc;

use coordinator::{Consistency, WriteKind, WriteOptions};
use cql::ast::{PruneView, Select, Selection};
use futures_util::StreamExt;
use mutation::{Clustering, DecoratedKey, PartitionUpdate, Row, RowRange, Slices};
use replica::{Keys, Limits, Partitions, ReadCommand, ReadPage};
use schema::{HIDDEN, Table};
use types::CqlType;
use views::{Difference, View};

use crate::backend::Coordinator;
use crate::error::{ExecError, Result, invalid};
use crate::expr::resolve::{Markers, Receiver, Resolver};
use crate::expr::{Env, Expr, Value};
use crate::lookup::Lookup;
use crate::request::{Request, TimeoutKind};
use crate::select::SelectPlan;
use crate::select::run::partitions;
use crate::where_clause::bounds;

/// Rows of the view that are looked at together, and their bytes.
const PAGE: Limits = Limits { rows: 1_000, rows_per_partition: u64::MAX, bytes: 1 << 20 };
/// Bytes of base rows that are held at once, unless that is less than the least page for each partition that is read.
const BASE_BYTES_MAX: usize = 8 << 20;
/// The least and the greatest page of a base partition, bytes.
const BASE_PAGE_BYTES: (usize, usize) = (16 << 10, 1 << 20);
/// The most base partitions that may be read at once.
const CONCURRENCY_MAX: i32 = 1_024;

/// A prepared PRUNE MATERIALIZED VIEW.
#[derive(Debug)]
pub struct PrunePlan {
    /// How the rows of the view are found.
    pub select: SelectPlan,
    /// The base table.
    pub base: Arc<Table>,
    view: View,
    /// Base partitions that are read at once.
    concurrency: Option<Expr>,
}

impl PrunePlan {
    /// Resolves a PRUNE MATERIALIZED VIEW.
    ///
    /// # Errors
    /// When there is no such table, it is no view, or WHERE needs rows to be filtered.
    pub fn prepare(
        ast: &PruneView,
        lookup: &Lookup<'_>,
        keyspace: Option<&str>,
        markers: &mut Markers,
    ) -> Result<Self> {
        let (table, _) = lookup.table(&ast.view, keyspace)?;
        let derivation = table.derivation.as_ref().filter(|derivation| derivation.is_view());
        let base = derivation.and_then(|derivation| lookup.schema.table_by_id(derivation.base()));
        let Some(base) = base.cloned() else {
            return invalid!("Ghost rows can only be deleted from materialized views");
        };
        let view = View::new(&base, table.clone()).map_err(|error| ExecError::invalid(error.to_string()))?;
        let rows = Select {
            json: false,
            distinct: false,
            selection: Selection::All,
            from: ast.view.clone(),
            mutation_fragments: false,
            filter: ast.filter.clone(),
            group_by: Vec::new(),
            order_by: Vec::new(),
            per_partition_limit: None,
            limit: None,
            allow_filtering: false,
            bypass_cache: true,
            using: ast.using.clone(),
        };
        let select = SelectPlan::prepare(&rows, lookup, keyspace, markers)?;
        // One filter is the view's own: which of its rows are there.
        let own = usize::from(table.column(HIDDEN).is_some_and(|column| !column.is_complex()));
        if select.uses_index() || select.filters.len() > own {
            return invalid!("Deleting ghost rows does not support filtering");
        }
        if !select.calls.is_empty() {
            return invalid!("PRUNE MATERIALIZED VIEW cannot call user-defined functions");
        }
        let receiver = Receiver::owned("[concurrency]", CqlType::Int);
        let mut resolver = Resolver::new(lookup.schema, &table, markers);
        let concurrency = ast.using.concurrency.as_ref();
        let concurrency = concurrency.map(|term| resolver.term(term, &receiver)).transpose()?;
        Ok(Self { select, base, view, concurrency })
    }

    /// The view.
    pub fn view(&self) -> &Arc<Table> {
        self.view.table()
    }

    fn concurrency(&self, env: &Env<'_>) -> Result<usize> {
        let Some(expr) = &self.concurrency else { return Ok(1) };
        let value = match expr.eval(env)? {
            Value::Unset => return Ok(1),
            Value::Null => return invalid!("Concurrency value cannot be null"),
            Value::Set(value) => value,
        };
        match <[u8; 4]>::try_from(&*value).map(i32::from_be_bytes) {
            Ok(number @ 1..=CONCURRENCY_MAX) => Ok(number.unsigned_abs() as usize),
            _ => invalid!("Concurrency value must be from 1 to {CONCURRENCY_MAX}"),
        }
    }
}

/// Deletes the ghost rows, a page of rows of the view after the other; each page has the time of a range read.
///
/// # Errors
/// When values do not fit the statement, or replicas do not answer in time; pages that were done stay done.
pub(crate) async fn run<C: Coordinator>(
    plan: &PrunePlan,
    coordinator: &C,
    request: &Request<'_>,
    env: &Env<'_>,
) -> Result<()> {
    let concurrency = plan.concurrency(env)?;
    let Some(partitions) = partitions(&plan.select, request, env)? else { return Ok(()) };
    let slices = bounds::slices(plan.view(), plan.select.access.rows(), env)?;
    let mut command = ReadCommand {
        slices,
        limits: PAGE,
        bypass_cache: true,
        ..ReadCommand::all_of(plan.view().clone(), partitions, request.now)
    };
    loop {
        let deadline = request.deadline(TimeoutKind::Range);
        let page = coordinator.read(&command, Consistency::All, deadline).await?;
        let ghosts = ghosts(plan, coordinator, request, (&page, concurrency)).await?;
        if !ghosts.is_empty() {
            request.note(|| format!("Deleting ghost rows of {} partitions", ghosts.len()));
            let options = WriteOptions { consistency: Consistency::All, kind: WriteKind::Simple, deadline };
            coordinator.write(ghosts, options).await?;
        }
        let Some(more) = page.more else { return Ok(()) };
        command.resume = Some(more);
    }
}

/// Rows of the view, each with its key, by the place of the base row that they would follow from.
type Origins<'a> = BTreeMap<Clustering, Vec<(&'a DecoratedKey, &'a Row)>>;

/// Deletions of the rows of a page that the base has no row for.
async fn ghosts<C: Coordinator>(
    plan: &PrunePlan,
    coordinator: &C,
    request: &Request<'_>,
    (page, concurrency): (&ReadPage, usize),
) -> Result<Vec<PartitionUpdate>> {
    let (view, base, now) = (&plan.view, &plan.base, request.now);
    let mut origins: BTreeMap<DecoratedKey, Origins<'_>> = BTreeMap::new();
    for partition in &page.partitions {
        for row in partition.rows.iter().filter(|row| view.is_present(&partition.key, row, now)) {
            if let Some((key, clustering)) = view.origin(base, &partition.key, &row.clustering) {
                let of_base = origins.entry(key).or_default();
                of_base.entry(clustering).or_default().push((&partition.key, row));
            }
        }
    }
    let bytes = (BASE_BYTES_MAX / concurrency).clamp(BASE_PAGE_BYTES.0, BASE_PAGE_BYTES.1);
    let reads = origins.into_iter().map(|of_base| ghosts_of(plan, coordinator, request, of_base, bytes));
    let mut reads = futures_util::stream::iter(reads).buffer_unordered(concurrency);
    let mut updates: BTreeMap<&DecoratedKey, PartitionUpdate> = BTreeMap::new();
    while let Some(ghosts) = reads.next().await {
        for (key, gone) in ghosts? {
            let empty = || PartitionUpdate::new(plan.view().clone(), key.clone());
            updates.entry(key).or_insert_with(empty).add_row(gone);
        }
    }
    Ok(updates.into_values().collect())
}

/// Deletions of those of these rows that do not follow from the base partition. Its rows are read in pages of so many bytes, and each is
/// dropped when it was compared.
async fn ghosts_of<'a, C: Coordinator>(
    plan: &PrunePlan,
    coordinator: &C,
    request: &Request<'_>,
    (key, mut rows): (DecoratedKey, Origins<'a>),
    bytes: usize,
) -> Result<Vec<(&'a DecoratedKey, Row)>> {
    let (view, base, now) = (&plan.view, &plan.base, request.now);
    let keys = Partitions::Keys(Keys::from_elem(key.clone(), 1));
    let mut command = ReadCommand {
        slices: Slices::new(rows.keys().map(RowRange::row).collect()),
        limits: Limits { bytes, ..Limits::NONE },
        bypass_cache: true,
        ..ReadCommand::all_of(base.clone(), keys, now)
    };
    let deletion = |expected: Option<&(DecoratedKey, Row)>, (at, row): (&'a DecoratedKey, &Row)| {
        let expected = expected.filter(|(key, image)| key == at && image.clustering == row.clustering);
        let expected = expected.map(|(_, image)| image);
        let is_ghost = view.compare(at, expected, Some(row), now) == Some(Difference::Ghost);
        is_ghost.then(|| (at, view.repair(&row.clustering, None, Some(row), i64::MIN, now)))
    };
    let mut ghosts = Vec::new();
    loop {
        let deadline = request.deadline(TimeoutKind::Range);
        let page = coordinator.read(&command, Consistency::All, deadline).await?;
        for row in page.partitions.iter().flat_map(|partition| &partition.rows) {
            let Some(of_row) = rows.remove(&row.clustering) else { continue };
            let expected = view.expected(&key, row, now);
            ghosts.extend(of_row.into_iter().filter_map(|one| deletion(expected.as_ref(), one)));
        }
        let Some(more) = page.more else { break };
        command.resume = Some(more);
    }
    // The base has no row for the others.
    ghosts.extend(rows.into_values().flatten().filter_map(|one| deletion(None, one)));
    Ok(ghosts)
}
