//! Conditional statements: INSERT, UPDATE and DELETE with IF, alone or in a batch of one partition.
//!
//! The conditions on each row are collected here; the coordinator reads the rows, asks whether the conditions hold and for
//! the writes then, and ensures that no other write came between.

mod result;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use coordinator::{CasOptions, CasOutcome, Consistency};
use mutation::{
    Clustering, ColumnSelection, DecoratedKey, PartitionUpdate, RowRange, Seconds, Slices, Timestamp, row_of,
};
use replica::{Limits, PartitionResult, Partitions, ReadCommand, ReadPage};
use schema::{Column, ColumnId, Replication, Schema, Table};

use crate::backend::Coordinator;
use crate::error::{Result, invalid};
use crate::expr::Env;
use crate::expr::bind::Binds;
use crate::expr::calls::Caller;
use crate::expr::row::{RowView, key_components};
use crate::functions::CallContext;
use crate::modification::apply::Stamp;
use crate::modification::condition::{BoundCondition, Compared, Conditions};
use crate::modification::{ModificationKind, ModificationPlan};
use crate::request::{Request, TimeoutKind};
use crate::sink::Sink;

/// A statement with the bindings of its expressions.
struct Statement<'a> {
    plan: &'a ModificationPlan,
    binds: std::borrow::Cow<'a, Binds>,
    /// Of the cells that it writes, seconds; 0 for ever.
    ttl: Seconds,
}

/// The conditions on one row.
enum RowCondition<'a> {
    NotExists,
    Exists,
    Columns(Vec<BoundCondition<'a>>),
}

/// Everything that a request asks of its partition.
struct CasRequest<'a> {
    statements: Vec<Statement<'a>>,
    request: &'a Request<'a>,
    call: &'a CallContext,
    table: &'a Arc<Table>,
    /// The table as it is now: statements of a batch that were prepared at different times may know different columns.
    written: Arc<Table>,
    key: DecoratedKey,
    static_row: Option<RowCondition<'a>>,
    rows: BTreeMap<Clustering, RowCondition<'a>>,
    /// The columns that are read: enough to tell a row of nulls from one that does not exist.
    columns: ColumnSelection,
}

/// Carries out a conditional statement, or a conditional batch, and yields whether it was applied; `masks`, where the caller does not
/// see masked values, are the schema and where their functions run.
///
/// # Errors
/// [`ExecError::Invalid`](crate::ExecError::Invalid) when the statements name several partitions, a value does not fit
/// its condition, or the consistency level is not serial; [`ExecError::Request`](crate::ExecError::Request) as
/// [`Coordinator::cas`].
pub async fn run<C: Coordinator, S: Sink>(
    coordinator: &C,
    statements: &[(&ModificationPlan, &Binds)],
    is_batch: bool,
    request: &Request<'_>,
    (call, masks): (&CallContext, Option<(&Schema, &udf::Runtime)>),
    out: &mut S,
) -> Result<()> {
    let cas = CasRequest::new(statements, is_batch, request, (call, &coordinator.schema()))?;
    let options = options(coordinator, cas.table, request)?;
    let command = cas.command();
    let mut decide = |page: &ReadPage, ballot: Timestamp| cas.decide(page, ballot);
    let outcome = match request.trace_log() {
        None => coordinator.cas(&command, options, &mut decide).await?,
        Some(trace) => Box::pin(coordinator.traced(trace).cas(&command, options, &mut decide)).await?,
    };
    match outcome {
        CasOutcome::Applied => result::applied(cas.table, out),
        CasOutcome::Refused(page) => {
            let concerned = cas.concerned_columns(is_batch);
            let found = cas.found(&page);
            match masks {
                None => result::refused(cas.table, concerned.as_deref(), found.as_ref(), request.now, out),
                Some((schema, runtime)) => {
                    let caller = Caller::new(runtime, request.time_left(TimeoutKind::Write));
                    let masks = result::Masks::new(cas.table, concerned.as_deref(), schema)?;
                    let found = found.as_ref();
                    Box::pin(masks.refused(cas.table, found, (call, caller), request.now, out)).await?;
                }
            }
        }
    }
    Ok(())
}

/// The consistency levels of a conditional request, when it may have them.
fn options<C: Coordinator>(coordinator: &C, table: &Table, request: &Request<'_>) -> Result<CasOptions> {
    let (serial, commit) = (request.serial_consistency, request.consistency);
    if !serial.is_serial() {
        return invalid!("Invalid consistency for conditional update. Must be one of SERIAL or LOCAL_SERIAL");
    }
    if commit.is_serial() {
        return invalid!(
            "{} is not supported as conditional update commit consistency. Use ANY if you mean \"make sure it is \
             accepted but I don't care how many replicas commit it for non-SERIAL reads\"",
            commit.name()
        );
    }
    if commit == Consistency::EachQuorum
        && let Some(keyspace) = coordinator.schema().keyspace(&table.keyspace)
        && !matches!(keyspace.replication, Replication::NetworkTopology { .. })
    {
        return invalid!(
            "consistency level EACH_QUORUM not compatible with replication strategy ({})",
            keyspace.replication.class_name()
        );
    }
    let deadline = request.deadline(TimeoutKind::Write);
    let contention_deadline = deadline.min(request.instant() + request.limits.cas_contention_timeout);
    Ok(CasOptions { serial, commit, deadline, contention_deadline })
}

impl<'a> CasRequest<'a> {
    fn new(
        statements: &[(&'a ModificationPlan, &'a Binds)],
        is_batch: bool,
        request: &'a Request<'a>,
        (call, schema): (&'a CallContext, &Schema),
    ) -> Result<Self> {
        let mut bound = Vec::with_capacity(statements.len());
        for (plan, binds) in statements {
            let binds = match plan.document(&Env::new(binds, call))? {
                Some(document) => std::borrow::Cow::Owned(document),
                None => std::borrow::Cow::Borrowed(*binds),
            };
            bound.push(Statement { plan, binds, ttl: 0 });
        }
        let Some(first) = bound.first() else { return invalid!("A batch with conditions has statements") };
        let table = &first.plan.table;
        let mut key: Option<DecoratedKey> = None;
        let (mut static_row, mut rows) = (None, BTreeMap::new());
        for statement in &bound {
            let env = Env::new(&statement.binds, call);
            let one = statement.key(&env, is_batch)?;
            if key.get_or_insert_with(|| one.clone()) != &one {
                return invalid!("Batch with conditions cannot span multiple partitions");
            }
            statement.plan.check_single_row()?;
            statement.add_conditions(&env, &mut static_row, &mut rows)?;
        }
        let Some(key) = key else { return invalid!("A batch with conditions has statements") };
        for (statement, (plan, binds)) in bound.iter_mut().zip(statements) {
            // USING is bound to the statement's values, and the rest of INSERT JSON to those of the document.
            statement.ttl = plan.ttl(&Env::new(binds, call), request.now)?;
        }
        let columns = columns(table, &bound);
        let written = schema.table_by_id(table.id).unwrap_or(table).clone();
        Ok(Self { table, written, key, static_row, rows, columns, request, call, statements: bound })
    }

    fn conditional(&self) -> impl Iterator<Item = &'a ModificationPlan> {
        self.statements.iter().map(|statement| statement.plan).filter(|plan| !plan.conditions.is_empty())
    }

    fn command(&self) -> ReadCommand {
        // With nothing but conditions on static columns, the first row proves that the partition exists.
        let (slices, limits) = if self.rows.is_empty() {
            (Slices::all(), Limits { rows: 1, ..Limits::NONE })
        } else if self.table.clustering().is_empty() {
            (Slices::all(), Limits::NONE)
        } else {
            (Slices::new(self.rows.keys().map(RowRange::row).collect()), Limits::NONE)
        };
        let key = Partitions::Keys(replica::Keys::from_iter([self.key.clone()]));
        let columns = self.columns.clone();
        ReadCommand {
            slices,
            columns,
            limits,
            ..ReadCommand::all_of(self.table.clone(), key, self.request.now)
        }
    }

    /// The values of the columns that count: a row without any of them does not exist here.
    fn found(&self, page: &ReadPage) -> Option<PartitionResult> {
        let now = self.request.now;
        let mut partition = page.partitions.first()?.clone();
        if let Some(row) = &mut partition.static_row {
            row.retain(|id, _| self.columns.contains(id));
        }
        partition.rows.iter_mut().for_each(|row| row.retain(|id, _| self.columns.contains(id)));
        partition.rows.retain(|row| row.is_live(now));
        (partition.row_count(now) > 0).then_some(partition)
    }

    /// The update to propose, with the timestamp of `ballot`; none when the current rows make a condition false.
    fn decide(&self, page: &ReadPage, ballot: Timestamp) -> Result<Option<PartitionUpdate>> {
        let partition = self.found(page);
        let partition = partition.as_ref();
        if !self.holds(partition)? {
            return Ok(None);
        }
        let existing = partition.map(|found| (found.static_row.as_ref(), found.rows.as_slice()));
        let mut update = PartitionUpdate::new(self.written.clone(), self.key.clone());
        let mut rows = Vec::with_capacity(self.statements.len());
        for Statement { plan, binds, ttl } in &self.statements {
            let env = Env::new(binds, self.call);
            let stamp =
                Stamp { timestamp: ballot, ttl: *ttl, now: self.request.now, ordered_at: Some(ballot) };
            let mut one = plan.conditional_update(self.key.clone(), &stamp, &env, existing)?;
            // Rows are put in order at the end: one by one, each could move all others.
            rows.extend(one.take_rows());
            update.merge(one);
        }
        rows.sort_by(|a, b| a.clustering.cmp(&b.clustering));
        rows.into_iter().for_each(|row| update.add_row(row));
        // A deletion would hide cells written at the same time.
        update.stamp_deletions(ballot - 1);
        Ok(Some(update))
    }

    fn holds(&self, partition: Option<&PartitionResult>) -> Result<bool> {
        let now = self.request.now;
        let key = key_components(self.table, &self.key.key);
        let statics = partition.and_then(|found| found.static_row.as_ref());
        let mut compared = Compared::default();
        if let Some(condition) = &self.static_row {
            let exists = statics.is_some_and(|row| row.has_live_cell(now));
            if !condition.holds(exists, &RowView::new(&key, statics, None, now), &mut compared)? {
                return Ok(false);
            }
        }
        for (clustering, condition) in &self.rows {
            let rows = partition.map(|found| found.rows.as_slice()).unwrap_or_default();
            let row = row_of(rows, clustering);
            if !condition.holds(row.is_some(), &RowView::new(&key, statics, row, now), &mut compared)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The columns that a refusal shows, in the order of the conditions; none when it shows all of them.
    fn concerned_columns(&self, is_batch: bool) -> Option<Vec<&'a Column>> {
        let table: &'a Table = self.statements.first().map(|statement| &*statement.plan.table)?;
        let mut columns: Vec<&Column> = Vec::new();
        if is_batch {
            columns.extend(table.partition_key());
            columns.extend(table.clustering());
        }
        for plan in self.conditional() {
            let Conditions::Columns(conditions) = &plan.conditions else { return None };
            for condition in conditions {
                let column = table.column_by_id(condition.column.id)?;
                if !columns.iter().any(|known| known.id == column.id) {
                    columns.push(column);
                }
            }
        }
        Some(columns)
    }
}

/// The columns to read: all of the kind that a conditional statement changes, and those that it asks about.
fn columns(table: &Table, statements: &[Statement<'_>]) -> ColumnSelection {
    let plans =
        || statements.iter().map(|statement| statement.plan).filter(|plan| !plan.conditions.is_empty());
    let statics = plans().any(ModificationPlan::changes_static_row);
    let regulars = statements.iter().any(|statement| statement.plan.names_a_row());
    let mut ids: Vec<ColumnId> = Vec::new();
    if statics {
        ids.extend(table.static_columns().iter().map(|column| column.id));
    }
    if regulars {
        ids.extend(table.regular_columns().iter().map(|column| column.id));
    }
    for plan in plans() {
        ids.extend(plan.conditions.columns().iter().map(|condition| condition.column.id));
        ids.extend(plan.columns_to_read());
    }
    ids.sort();
    ids.dedup();
    ColumnSelection::Some(ids.into())
}

impl<'a> Statement<'a> {
    /// The one partition.
    fn key(&self, env: &Env<'_>, is_batch: bool) -> Result<DecoratedKey> {
        let keys = self.plan.partition_keys(env)?;
        if !self.plan.names_one_partition() {
            if is_batch {
                return invalid!(
                    "Batch with conditions cannot span multiple partitions (you cannot use IN on the partition key)"
                );
            }
            return invalid!(
                "IN on the partition key is not supported with conditional {}",
                self.plan.kind.plural()
            );
        }
        match keys.into_iter().next() {
            Some(key) => Ok(key),
            None => invalid!("A conditional statement names a partition"),
        }
    }

    fn add_conditions(
        &self,
        env: &Env<'_>,
        static_row: &mut Option<RowCondition<'a>>,
        rows: &mut BTreeMap<Clustering, RowCondition<'a>>,
    ) -> Result<()> {
        let plan = self.plan;
        let row = || match plan.clusterings(env)?.into_iter().next() {
            Some(clustering) => Ok(clustering),
            None => invalid!("A conditional statement names a row"),
        };
        let whole_row = match &plan.conditions {
            Conditions::None => return Ok(()),
            Conditions::NotExists => RowCondition::NotExists,
            Conditions::Exists => RowCondition::Exists,
            Conditions::Columns(conditions) => {
                let (mut statics, mut regulars) = (Vec::new(), Vec::new());
                for condition in conditions {
                    let side = if condition.is_static() { &mut statics } else { &mut regulars };
                    side.push(condition.bind(env)?);
                }
                if !regulars.is_empty() {
                    match rows.entry(row()?) {
                        Entry::Vacant(place) => drop(place.insert(RowCondition::Columns(regulars))),
                        Entry::Occupied(mut held) => held.get_mut().add_columns(regulars)?,
                    }
                }
                if !statics.is_empty() {
                    match static_row {
                        None => *static_row = Some(RowCondition::Columns(statics)),
                        Some(held) => held.add_columns(statics)?,
                    }
                }
                return Ok(());
            }
        };
        if plan.is_about_static_row() {
            match static_row {
                None => *static_row = Some(whole_row),
                Some(held) => held.add_whole(&whole_row)?,
            }
            return Ok(());
        }
        match rows.entry(row()?) {
            Entry::Vacant(place) => drop(place.insert(whole_row)),
            Entry::Occupied(held) => held.get().add_whole(&whole_row)?,
        }
        Ok(())
    }
}

impl<'a> RowCondition<'a> {
    fn holds(&self, exists: bool, row: &RowView<'_>, compared: &mut Compared) -> Result<bool> {
        match self {
            Self::NotExists => Ok(!exists),
            Self::Exists => Ok(exists),
            Self::Columns(conditions) => {
                for condition in conditions {
                    if !condition.holds(row, compared)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    fn add_columns(&mut self, more: Vec<BoundCondition<'a>>) -> Result<()> {
        match self {
            Self::Columns(conditions) => {
                conditions.extend(more);
                Ok(())
            }
            _ => invalid!("Cannot mix IF conditions and IF NOT EXISTS for the same row"),
        }
    }

    /// Whether `more`, which is about the whole row, says the same.
    fn add_whole(&self, more: &Self) -> Result<()> {
        match (self, more) {
            (Self::NotExists, Self::NotExists) | (Self::Exists, Self::Exists) => Ok(()),
            (Self::Columns(_), Self::NotExists) => {
                invalid!("Cannot mix IF conditions and IF NOT EXISTS for the same row")
            }
            (Self::Columns(_), _) => invalid!("Cannot mix IF conditions and IF EXISTS for the same row"),
            _ => invalid!("Cannot mix IF EXISTS and IF NOT EXISTS conditions for the same row"),
        }
    }
}

impl ModificationKind {
    /// The plural in messages.
    fn plural(self) -> &'static str {
        match self {
            Self::Insert | Self::Update => "updates",
            Self::Delete => "deletions",
        }
    }
}

impl ModificationPlan {
    /// Refuses `IN` on clustering columns.
    fn check_single_row(&self) -> Result<()> {
        if self.names_several_rows() {
            return invalid!(
                "IN on the clustering key columns is not supported with conditional {}",
                self.kind.plural()
            );
        }
        Ok(())
    }
}
