//! INSERT, UPDATE, DELETE and BATCH: prepared to [`ModificationPlan`]s, which make updates of partitions.

pub mod apply;
pub mod batch;
pub mod checks;
pub mod condition;
mod indexable;
mod json;
pub mod operation;

use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use bytes::Bytes;
use coordinator::Consistency;
use cql::ast::{Condition, Delete, Insert, InsertSource, Term, Update, Using};
use mutation::{
    Clustering, ColumnSelection, DecoratedKey, LivenessInfo, PartitionUpdate, RangeTombstone, Row, RowLayout,
    Seconds, Slices, Timestamp, row_of,
};
use replica::{Limits, Partitions, ReadCommand};
use rt::preempt::Pace;
use schema::{Column, ColumnId, ColumnKind, Constraint, Table};
use smallvec::SmallVec;
use stdx::{HashMap, HashSet};
use types::CqlType;

use crate::backend::Coordinator;
use crate::error::{ExecError, Result, invalid};
use crate::expr::bind::Binds;
use crate::expr::calls::UserCall;
use crate::expr::resolve::{Markers, Receiver, Resolver};
use crate::expr::{Env, Expr, Kind, Value};
use crate::lookup::Lookup;
use crate::request::{Request, TimeoutKind, check_not_serial};
use crate::where_clause::access::KeyAccess;
use crate::where_clause::bounds::{self, Clusterings};
use crate::where_clause::choice::{Choice, TupleChoice};
use crate::where_clause::rows::RowRestriction;
use crate::where_clause::{self, Restrictions, StatementKind};
use apply::Stamp;
use checks::Checks;
use condition::{Conditions, check_unstamped};
use operation::{Change, Operation};

/// Bytes of lists that one statement reads to change elements of them, as many as a mutation may have.
const LISTS_BYTES_MAX: usize = 16 << 20;

/// The last second at which something may expire: `nb` files hold it as a signed number, whose last value means never.
pub(crate) const EXPIRY_MAX: u32 = i32::MAX as u32 - 1;

/// Which statement a plan was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModificationKind {
    /// INSERT.
    Insert,
    /// UPDATE.
    Update,
    /// DELETE.
    Delete,
}

/// A prepared INSERT, UPDATE or DELETE.
#[derive(Debug)]
pub struct ModificationPlan {
    /// The table.
    pub table: Arc<Table>,
    /// Which statement.
    pub kind: ModificationKind,
    /// The partitions and rows that are written.
    pub access: KeyAccess,
    /// The operations on static columns.
    statics: Vec<Operation>,
    /// The operations on regular columns.
    regulars: Vec<Operation>,
    /// The regular columns with the markers whose values become their cells, in column id order; none where a cell is made in another way.
    bound_cells: Option<Vec<(ColumnId, u32)>>,
    /// The layout of their rows, if such rows are encoded at once.
    layout: Option<Arc<RowLayout>>,
    /// Whether it writes one partition with any values, and reads nothing.
    is_direct: bool,
    timestamp: Option<Expr>,
    ttl: Option<Expr>,
    /// USING TIMEOUT.
    pub timeout: Option<Expr>,
    /// The document of INSERT JSON, and whether columns that it lacks stay as they are.
    json: Option<(Expr, bool)>,
    /// For each partition key column the marker bound to it.
    pub key_markers: Vec<Option<u32>>,
    /// The constraints of the columns of an INSERT or UPDATE; none for a table without.
    checks: Option<Box<Checks>>,
    /// The IF clause.
    pub conditions: Conditions,
    /// The user-defined functions that it calls before it runs; those of a statement in the text of a BATCH are the batch's.
    pub calls: Vec<UserCall>,
}

/// The rows of a partition that a change of lists looks at: the static row, and the others.
pub type Existing<'a> = (Option<&'a Row>, &'a [Row]);

impl ModificationPlan {
    /// This plan with the calls of the terms that were resolved for it.
    pub fn with_calls(mut self, markers: &mut Markers) -> Self {
        self.calls = markers.take_calls();
        self
    }

    /// Whether it counts.
    pub fn is_counter(&self) -> bool {
        self.table.is_counter()
    }

    /// Whether counters change, rather than go away.
    pub fn counts(&self) -> bool {
        self.kind == ModificationKind::Update
    }

    /// Whether it has a timeout of its own.
    pub fn has_timeout(&self) -> bool {
        self.timeout.is_some()
    }

    /// Whether it has a timestamp of its own.
    pub fn has_timestamp(&self) -> bool {
        self.timestamp.is_some()
    }

    fn new(table: Arc<Table>, kind: ModificationKind) -> Self {
        Self {
            table,
            kind,
            access: KeyAccess::default(),
            statics: Vec::new(),
            regulars: Vec::new(),
            bound_cells: Some(Vec::new()),
            layout: None,
            is_direct: false,
            timestamp: None,
            ttl: None,
            timeout: None,
            json: None,
            key_markers: Vec::new(),
            checks: None,
            conditions: Conditions::None,
            calls: Vec::new(),
        }
    }

    fn push(&mut self, operation: Operation) {
        if operation.is_static() {
            self.statics.push(operation);
            return;
        }
        let cell = (operation.column.id, operation.bound_cell());
        self.bound_cells = self.bound_cells.take().and_then(|cells| with_cell(cells, cell));
        self.regulars.push(operation);
    }

    fn using(&mut self, using: &Using, resolver: &mut Resolver<'_>) -> Result<()> {
        if self.is_counter() {
            if using.timestamp.is_some() {
                return invalid!("Cannot provide custom timestamp for counter updates");
            }
            if using.ttl.is_some() {
                return invalid!("Cannot provide custom TTL for counter updates");
            }
        }
        let mut resolve = |term: &Option<Term>, name: &'static str, ty: CqlType| {
            term.as_ref().map(|term| resolver.term(term, &Receiver::owned(name, ty))).transpose()
        };
        self.timestamp = resolve(&using.timestamp, "[timestamp]", CqlType::Bigint)?;
        self.ttl = resolve(&using.ttl, "[ttl]", CqlType::Int)?;
        self.timeout = crate::request::timeout_of(using, resolver)?;
        Ok(())
    }

    /// Resolves an INSERT.
    ///
    /// # Errors
    /// [`ExecError::Invalid`] when the table is missing, computed or of counters, columns and values do not pair, a
    /// part of the key is missing, or a term does not fit its column.
    pub fn insert(
        ast: &Insert,
        lookup: &Lookup<'_>,
        keyspace: Option<&str>,
        markers: &mut Markers,
    ) -> Result<Self> {
        let table = writable(lookup, &ast.table, keyspace, (&ast.using, ast.if_not_exists))?;
        let mut resolver = Resolver::new(lookup.schema, &table, markers);
        let mut plan = Self::new(table.clone(), ModificationKind::Insert);
        if plan.is_counter() {
            return invalid!("INSERT statements are not allowed on counter tables, use UPDATE instead");
        }
        if ast.if_not_exists {
            plan.set_conditions(Conditions::NotExists)?;
        }
        match &ast.source {
            InsertSource::Values { columns, values } => {
                if columns.len() != values.len() {
                    return invalid!("Unmatched column names/values");
                }
                let mut named: Vec<(&Column, &Term)> = Vec::with_capacity(columns.len());
                let mut ids = HashSet::default();
                for (name, term) in columns.iter().zip(values) {
                    let column = resolver.column(&name.name)?;
                    if !ids.insert(column.id) {
                        return invalid!("The column names contains duplicates");
                    }
                    named.push((column, term));
                }
                let mut keys: Vec<(&Column, Expr)> = Vec::new();
                for (column, term) in named {
                    match column.kind {
                        ColumnKind::PartitionKey | ColumnKind::Clustering => {
                            keys.push((column, resolver.term(term, &Receiver::column(column))?));
                        }
                        ColumnKind::Static | ColumnKind::Regular => {
                            let operation = Operation::insert(column, term, &mut resolver)?;
                            plan.push(operation);
                        }
                    }
                }
                plan.insert_keys(keys)?;
            }
            InsertSource::Json { value, default_unset } => {
                let document = json::document(value, &mut resolver)?;
                plan.json = Some((document, *default_unset));
                let bound =
                    |at: usize, column: &Column| Expr { ty: column.ty.clone(), kind: Kind::Bind(at as u32) };
                let mut keys = Vec::new();
                for (at, column) in table.columns().iter().enumerate() {
                    match column.kind {
                        ColumnKind::PartitionKey | ColumnKind::Clustering => {
                            keys.push((column, bound(at, column)))
                        }
                        ColumnKind::Static | ColumnKind::Regular => {
                            plan.push(Operation::insert_expr(column, bound(at, column)));
                        }
                    }
                }
                plan.insert_keys(keys)?;
                plan.key_markers = vec![None; table.partition_key().len()];
            }
        }
        plan.check_compact()?;
        plan.using(&ast.using, &mut resolver)?;
        plan.with_checks(&ast.using)
    }

    /// Refuses an INSERT without a value into a compact table that has values, whose rows live by them.
    fn check_compact(&self) -> Result<()> {
        let Some(value) = self.table.regular_columns().first() else { return Ok(()) };
        if !self.table.compact_storage || !self.regulars.is_empty() {
            return Ok(());
        }
        match self.table.clustering().is_empty() {
            // The name of the column that Cassandra hides.
            true => invalid!("Some clustering keys are missing: column1"),
            false => invalid!("Column {} is mandatory for this COMPACT STORAGE table", value.name),
        }
    }

    /// Finds the key's values among those of an INSERT.
    fn insert_keys(&mut self, mut values: Vec<(&Column, Expr)>) -> Result<()> {
        let mut take = |columns: &[Column]| {
            let mut found = Vec::with_capacity(columns.len());
            let mut missing = Vec::new();
            for column in columns {
                match values.iter().position(|(c, _)| c.id == column.id) {
                    Some(at) => found.push(values.swap_remove(at).1),
                    None => missing.push(column.name.clone()),
                }
            }
            (found, missing)
        };
        let (keys, missing) = take(self.table.partition_key());
        if !missing.is_empty() {
            return invalid!("Some partition key parts are missing: {}", missing.join(", "));
        }
        let (rows, missing) = take(self.table.clustering());
        let static_only = rows.is_empty() && self.regulars.is_empty() && !self.statics.is_empty();
        if !missing.is_empty() && !static_only {
            return invalid!("Some clustering keys are missing: {}", missing.join(", "));
        }
        self.key_markers = keys
            .iter()
            .map(|expr| match expr.kind {
                Kind::Bind(at) => Some(at),
                _ => None,
            })
            .collect();
        self.access.keys = keys.into_iter().map(Choice::One).collect();
        self.access.rows = rows.into_iter().map(|expr| RowRestriction::Single(Choice::One(expr))).collect();
        Ok(())
    }

    /// Resolves an UPDATE.
    ///
    /// # Errors
    /// [`ExecError::Invalid`] when the table is missing or computed, a column is unknown, part of the key or not of the
    /// operation's kind, or the WHERE clause does not name rows; [`ExecError::Syntax`] when a column is set twice.
    pub fn update(
        ast: &Update,
        lookup: &Lookup<'_>,
        keyspace: Option<&str>,
        markers: &mut Markers,
    ) -> Result<Self> {
        let table = writable(lookup, &ast.table, keyspace, (&ast.using, ast.condition != Condition::None))?;
        let mut resolver = Resolver::new(lookup.schema, &table, markers);
        let mut plan = Self::new(table.clone(), ModificationKind::Update);
        check_assigned(ast, &table)?;
        plan.set_conditions(Conditions::resolve(&ast.condition, &ast.using, &mut resolver)?)?;
        plan.using(&ast.using, &mut resolver)?;
        for assignment in &ast.assignments {
            let column = resolver.column(&assignment.column.name)?;
            let reads = !plan.conditions.is_empty();
            plan.push(Operation::update(column, &assignment.operation, reads, &mut resolver)?);
        }
        let restrictions = where_clause::resolve(&ast.filter, StatementKind::Update, &mut resolver)?;
        plan.check_rows(&restrictions, "UPDATE")?;
        plan.take(restrictions);
        plan.with_checks(&ast.using)
    }

    /// Resolves a DELETE.
    ///
    /// # Errors
    /// [`ExecError::Invalid`] when the table is missing or computed, a target cannot be deleted, or the WHERE clause
    /// names neither partitions, ranges nor rows.
    pub fn delete(
        ast: &Delete,
        lookup: &Lookup<'_>,
        keyspace: Option<&str>,
        markers: &mut Markers,
    ) -> Result<Self> {
        let table = writable(lookup, &ast.table, keyspace, (&ast.using, ast.condition != Condition::None))?;
        let mut resolver = Resolver::new(lookup.schema, &table, markers);
        let mut plan = Self::new(table.clone(), ModificationKind::Delete);
        plan.set_conditions(Conditions::resolve(&ast.condition, &ast.using, &mut resolver)?)?;
        for target in &ast.targets {
            let operation = Operation::delete(target, &mut resolver)?;
            check_nulled(&table, &operation)?;
            plan.push(operation);
        }
        plan.using(&ast.using, &mut resolver)?;
        let restrictions = where_clause::resolve(&ast.filter, StatementKind::Delete, &mut resolver)?;
        plan.check_deleted(&restrictions)?;
        plan.take(restrictions);
        plan.check_using(&ast.using)?;
        Ok(plan)
    }

    /// This plan with the layout of its rows and the constraints of its table, if it gives every column that has to be given.
    fn with_checks(mut self, using: &Using) -> Result<Self> {
        self.check_using(using)?;
        let columns = self.bound_cells.iter().flatten().map(|(column, _)| *column);
        self.layout = RowLayout::new(&self.table, columns).map(Arc::new);
        self.checks = Checks::of(&self.table)?;
        self.is_direct = !self.is_counter()
            && self.json.is_none()
            && self.columns_to_read().next().is_none()
            && self.access.keys.iter().all(|choice| matches!(choice, Choice::One(_)));
        if let Some(checks) = &self.checks {
            let is_given = |id| self.operations().any(|operation| operation.column.id == id);
            checks.required(self.names_rows(), is_given)?;
        }
        Ok(self)
    }

    /// Takes an IF clause, unless it cannot stand in the statement.
    fn set_conditions(&mut self, conditions: Conditions) -> Result<()> {
        if conditions.is_empty() {
            return Ok(());
        }
        if self.is_counter() {
            return invalid!("Conditional updates are not supported on counter tables");
        }
        self.conditions = conditions;
        Ok(())
    }

    /// Refuses a timestamp of a statement with an IF clause.
    fn check_using(&self, using: &Using) -> Result<()> {
        match self.conditions.is_empty() {
            true => Ok(()),
            false => check_unstamped(using),
        }
    }

    /// Whether rows are changed or deleted, and not only the static row.
    fn changes_rows(&self) -> bool {
        !self.regulars.is_empty() || (self.kind == ModificationKind::Delete && self.statics.is_empty())
    }

    /// Whether the static row is changed.
    pub fn changes_static_row(&self) -> bool {
        !self.statics.is_empty()
    }

    /// Whether a row is named, and not only its partition.
    pub fn names_a_row(&self) -> bool {
        self.table.clustering().is_empty() || !self.access.rows.is_empty()
    }

    /// Whether the conditions are about the static row alone.
    pub fn is_about_static_row(&self) -> bool {
        self.is_static_only() && self.access.rows.is_empty()
    }

    /// Whether each column of the partition key has one value.
    pub fn names_one_partition(&self) -> bool {
        self.access.keys.iter().all(|choice| match choice {
            Choice::One(_) => true,
            Choice::List(values) => values.len() == 1,
            Choice::Marker(_) => false,
        })
    }

    /// Whether rows are named by `IN`.
    pub fn names_several_rows(&self) -> bool {
        self.access.rows.iter().any(|row| match row {
            RowRestriction::Single(Choice::One(_)) | RowRestriction::Slice { .. } => false,
            RowRestriction::Single(Choice::List(values)) => values.len() != 1,
            RowRestriction::Multi(_, TupleChoice::One(_)) => false,
            RowRestriction::Multi(_, TupleChoice::List(values)) => values.len() != 1,
            RowRestriction::Single(Choice::Marker(_)) | RowRestriction::Multi(_, TupleChoice::Marker(_)) => {
                true
            }
        })
    }

    /// The columns whose values decide the written values.
    pub fn columns_to_read(&self) -> impl Iterator<Item = schema::ColumnId> {
        let all = self.statics.iter().chain(&self.regulars);
        all.filter(|operation| operation.change.needs_read()).map(|operation| operation.column.id)
    }

    /// The operations on columns, static ones first.
    pub fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.statics.iter().chain(&self.regulars)
    }

    /// Whether nothing but static columns is changed and asked for.
    pub fn is_static_only(&self) -> bool {
        !self.changes_rows()
            && !self.conditions.has_regular()
            && (!self.statics.is_empty() || self.conditions.has_static())
    }

    /// Refuses restrictions that do not fit the deleted columns of a DELETE.
    fn check_deleted(&self, restrictions: &Restrictions) -> Result<()> {
        if !self.conditions.is_empty() && !restrictions.is_full_row(&self.table) {
            let what = match (self.changes_rows(), self.conditions.has_regular()) {
                (true, _) => "delete non static columns",
                (false, true) => "use IF condition on non static columns",
                (false, false) => "",
            };
            if !what.is_empty() {
                return invalid!(
                    "DELETE statements must restrict all PRIMARY KEY columns with equality relations in order to {what}"
                );
            }
        }
        if self.statics.is_empty() && self.regulars.is_empty() {
            return Ok(());
        }
        let full = restrictions.is_full_row(&self.table);
        if self.is_static_only() && restrictions.restricts_clustering {
            return invalid!(
                "Invalid restrictions on clustering columns since the DELETE statement modifies only static columns"
            );
        }
        if self.changes_rows() && !full {
            return invalid!("Range deletions are not supported for specific columns");
        }
        Ok(())
    }

    /// Refuses restrictions that do not name whole rows.
    fn check_rows(&self, restrictions: &Restrictions, statement: &str) -> Result<()> {
        if self.is_static_only() {
            if restrictions.restricts_clustering {
                return invalid!(
                    "Invalid restrictions on clustering columns since the {statement} statement modifies only static \
                     columns"
                );
            }
            return Ok(());
        }
        let Some(width) = restrictions.width() else {
            return invalid!(
                "Slice restrictions are not supported on the clustering columns in {statement} statements"
            );
        };
        let missing: Vec<&str> = self.table.clustering()[width..].iter().map(|c| c.name.as_str()).collect();
        if !missing.is_empty() {
            return invalid!("Some clustering keys are missing: {}", missing.join(", "));
        }
        Ok(())
    }

    fn take(&mut self, restrictions: Restrictions) {
        self.key_markers = restrictions.key_markers;
        self.access.keys = restrictions.keys.unwrap_or_default();
        self.access.rows = restrictions.rows;
    }

    /// The timestamp that USING gives, or the default.
    pub(crate) fn timestamp(&self, env: &Env<'_>, default: Timestamp) -> Result<Timestamp> {
        given_timestamp(self.timestamp.as_ref(), env, default)
    }

    /// The seconds to live that the statement or its table gives; 0 for ever.
    ///
    /// # Errors
    /// [`ExecError::Invalid`] when it is negative or too large, or cells would expire at a time that cannot be stored.
    pub fn ttl(&self, env: &Env<'_>, now: Seconds) -> Result<Seconds> {
        let given = self.given_ttl(env)?;
        let default =
            if self.kind == ModificationKind::Delete { 0 } else { self.table.options.default_time_to_live };
        let (ttl, what) = match given {
            Some(ttl) => (ttl, ""),
            None => (default, "default "),
        };
        if ttl != 0 && now.saturating_add(ttl) > EXPIRY_MAX {
            return invalid!(
                "Request on table {} with {what}ttl of {ttl} seconds exceeds maximum supported expiration date of \
                 2038-01-19T03:14:06+00:00. In order to avoid this use a lower TTL, change the expiration date overflow \
                 policy or upgrade to a version where this limitation is fixed. See CASSANDRA-14092 and CASSANDRA-14227 \
                 for more details.",
                self.table.full_name()
            );
        }
        Ok(ttl)
    }

    /// The value of USING TTL.
    fn given_ttl(&self, env: &Env<'_>) -> Result<Option<u32>> {
        let Some(expr) = &self.ttl else { return Ok(None) };
        let ttl = match expr.eval(env)? {
            Value::Unset => return Ok(None),
            Value::Null => return Ok(Some(0)),
            // The empty value is a null here, as in Cassandra.
            Value::Set(bytes) if bytes.is_empty() => return Ok(Some(0)),
            Value::Set(bytes) => match <[u8; 4]>::try_from(&*bytes).map(i32::from_be_bytes) {
                Ok(ttl) => ttl,
                Err(_) => return invalid!("Invalid TTL value"),
            },
        };
        match u32::try_from(ttl) {
            Err(_) => invalid!("A TTL must be greater or equal to 0, but was {ttl}"),
            Ok(seconds) if seconds > schema::TTL_MAX => {
                invalid!("ttl is too large. requested ({ttl}) maximum ({})", schema::TTL_MAX)
            }
            Ok(ttl) => Ok(Some(ttl)),
        }
    }

    /// Makes the update of the only partition of a statement that reads nothing; none for other statements, which [`ModificationPlan::updates`]
    /// makes the updates of. `timestamp` is that of a statement that gives none. In place: an update is large.
    ///
    /// # Errors
    /// As [`ModificationPlan::updates`].
    pub fn update_now(
        &self,
        request: &Request<'_>,
        env: &Env<'_>,
        timestamp: Timestamp,
        out: &mut Option<PartitionUpdate>,
    ) -> Result<()> {
        if !self.is_direct {
            return Ok(());
        }
        let timestamp = self.timestamp(env, timestamp)?;
        let mut keys = bounds::partition_keys(&self.table, &self.access.keys, env)?;
        assert_eq!(keys.len(), 1, "one value for each column of the key makes one key");
        let Some(key) = keys.pop() else { return Ok(()) };
        let clusterings = if self.names_rows() { self.clusterings(env)? } else { Clusterings::new() };
        let stamp = self.stamp(request, env, timestamp)?;
        self.update_of(
            out.insert(PartitionUpdate::new(self.table.clone(), key)),
            &clusterings,
            &stamp,
            env,
            None,
        )
    }

    /// Timestamp and TTL of the written cells. Keys are looked at before, as in Cassandra, and values afterwards.
    fn stamp(&self, request: &Request<'_>, env: &Env<'_>, timestamp: Timestamp) -> Result<Stamp> {
        let ttl = self.ttl(env, request.now)?;
        if timestamp == i64::MIN {
            return invalid!("Out of bound timestamp, must be in [{}, {}]", i64::MIN + 1, i64::MAX);
        }
        Ok(Stamp { timestamp, ttl, now: request.now, ordered_at: None })
    }

    /// Makes the updates of partitions that the statement amounts to. `timestamp` is that of statements that give none.
    ///
    /// # Errors
    /// As [`Expr::eval`](crate::expr::Expr::eval) of values and keys; [`ExecError::Invalid`] when a key is null, empty
    /// or too long, or timestamp or TTL are out of range; [`ExecError::Request`] when lists cannot be read.
    pub async fn updates<C: Coordinator>(
        &self,
        coordinator: &C,
        request: &Request<'_>,
        env: &Env<'_>,
        timestamp: Timestamp,
        out: &mut Vec<PartitionUpdate>,
    ) -> Result<()> {
        let (outer, timestamp) = (env, self.timestamp(env, timestamp)?);
        let document = self.document(env)?;
        let env = Env { binds: document.as_ref().unwrap_or(env.binds), ..*env };
        let keys = bounds::partition_keys(&self.table, &self.access.keys, &env)?;
        let clusterings = if self.names_rows() { self.clusterings(&env)? } else { Clusterings::new() };
        bounds::check_product(keys.len(), clusterings.len())?;
        // USING is bound to the statement's values, and not to those of a document.
        let stamp = self.stamp(request, outer, timestamp)?;
        let read = self.read_lists(coordinator, request, &keys, &clusterings).await?;
        let mut pace = Pace::new();
        for key in keys {
            let existing = read.as_ref().and_then(|read| read.get(&key.key));
            let existing = existing.map(|(row, rows)| (row.as_ref(), rows.as_slice()));
            let mut update = PartitionUpdate::new(self.table.clone(), key);
            self.update_of(&mut update, &clusterings, &stamp, &env, existing)?;
            if !update.is_empty() {
                out.push(update);
            }
            pace.count(clusterings.len());
            pace.step().await;
        }
        Ok(())
    }

    /// The members of the document of INSERT JSON, as the values that the plan's expressions are bound to.
    ///
    /// # Errors
    /// As [`json::values`].
    pub fn document(&self, env: &Env<'_>) -> Result<Option<Binds>> {
        match &self.json {
            Some((expr, default_unset)) => {
                let values = json::values(&self.table, expr.eval_option(env)?, *default_unset)?;
                Ok(Some(values.with_called(env.binds)))
            }
            None => Ok(None),
        }
    }

    /// The partitions, given the values of [`ModificationPlan::document`].
    ///
    /// # Errors
    /// [`ExecError::Invalid`] when a key is null, unset, empty or too long, or IN makes too many combinations.
    pub fn partition_keys(&self, env: &Env<'_>) -> Result<replica::Keys> {
        bounds::partition_keys(&self.table, &self.access.keys, env)
    }

    /// The update that a conditional statement writes into its partition, with a stamp of its ballot's time. `existing` is the row read for
    /// its conditions.
    ///
    /// # Errors
    /// As [`ModificationPlan::updates`].
    pub fn conditional_update(
        &self,
        key: DecoratedKey,
        stamp: &Stamp,
        env: &Env<'_>,
        existing: Option<Existing<'_>>,
    ) -> Result<PartitionUpdate> {
        let clusterings = if self.names_rows() { self.clusterings(env)? } else { Clusterings::new() };
        let mut update = PartitionUpdate::new(self.table.clone(), key);
        self.update_of(&mut update, &clusterings, stamp, env, existing)?;
        Ok(update)
    }

    /// Adds the rows and deletions of the statement to an empty update of a partition.
    fn update_of(
        &self,
        update: &mut PartitionUpdate,
        clusterings: &[Clustering],
        stamp: &Stamp,
        env: &Env<'_>,
        existing: Option<Existing<'_>>,
    ) -> Result<()> {
        if self.kind == ModificationKind::Delete && self.statics.is_empty() && self.regulars.is_empty() {
            let slices = bounds::deleted_slices(&self.table, &self.access.rows, env)?;
            self.delete_ranges(&slices, stamp, env, update)?;
            return Ok(());
        }
        if let Some(checks) = &self.checks {
            checks.key(&self.table, &update.key.key)?;
        }
        if !self.statics.is_empty() {
            let before = existing.and_then(|partition| partition.0);
            let row = apply::row(Clustering::empty(), &self.statics, stamp, env, before)?;
            if let Some(checks) = &self.checks {
                checks.statics(&row)?;
            }
            if !row.is_empty() {
                update.add_static(row);
            }
        }
        for clustering in clusterings {
            let before = existing.and_then(|p| row_of(p.1, clustering));
            let row = self.row(clustering.clone(), stamp, env, before)?;
            if !row.is_empty() {
                update.add_row(row);
            }
        }
        Ok(())
    }

    /// Whether single rows are written, beside or instead of the static row.
    fn names_rows(&self) -> bool {
        match self.kind {
            ModificationKind::Insert => !self.access.rows.is_empty() || self.table.clustering().is_empty(),
            ModificationKind::Update | ModificationKind::Delete => !self.regulars.is_empty(),
        }
    }

    fn row(&self, clustering: Clustering, stamp: &Stamp, env: &Env<'_>, before: Option<&Row>) -> Result<Row> {
        let mut row = match &self.bound_cells {
            Some(cells) => apply::bound_row(clustering, cells, self.layout.as_ref(), stamp, env.binds),
            None => apply::row(clustering, &self.regulars, stamp, env, before)?,
        };
        if let Some(checks) = &self.checks {
            checks.clustering(&row.clustering)?;
            checks.regulars(&row)?;
        }
        // As in Cassandra, a row of a compact table with values lives by them alone.
        let by_values = self.table.compact_storage && !self.table.regular_columns().is_empty();
        if self.kind == ModificationKind::Insert && !by_values {
            row.liveness = match stamp.ttl {
                0 => LivenessInfo::forever(stamp.timestamp),
                ttl => LivenessInfo::expiring(stamp.timestamp, ttl, stamp.expires()),
            };
        }
        Ok(row)
    }

    /// Deletes rows, ranges of rows, or whole partitions.
    fn delete_ranges(
        &self,
        slices: &Slices,
        stamp: &Stamp,
        env: &Env<'_>,
        update: &mut PartitionUpdate,
    ) -> Result<()> {
        if self.access.rows.is_empty() {
            update.add_deletion(stamp.deletion());
            return Ok(());
        }
        let full = self.access.rows.iter().all(|row| !matches!(row, RowRestriction::Slice { .. }))
            && self.clustering_width() == self.table.clustering().len();
        if full {
            for clustering in self.clusterings(env)? {
                let mut row = Row::new(clustering);
                row.deletion = stamp.deletion();
                update.add_row(row);
            }
            return Ok(());
        }
        for range in slices.ranges() {
            update.add_range_tombstone(RangeTombstone {
                start: range.start.clone(),
                end: range.end.clone(),
                deletion: stamp.deletion(),
            });
        }
        Ok(())
    }

    fn clustering_width(&self) -> usize {
        let width = |row: &RowRestriction| match row {
            RowRestriction::Multi(width, _) => *width,
            _ => 1,
        };
        self.access.rows.iter().map(width).sum()
    }

    /// The clustering keys of the rows that are named.
    ///
    /// # Errors
    /// [`ExecError::Invalid`] when a clustering value is null, unset or too long, or IN makes too many combinations.
    pub fn clusterings(&self, env: &Env<'_>) -> Result<Clusterings> {
        if self.access.rows.is_empty() {
            let mut one = Clusterings::new();
            one.push(Clustering::empty());
            return Ok(one);
        }
        // The common case: every column is given one value.
        let mut values: SmallVec<[Bytes; 4]> = SmallVec::new();
        for (row, column) in self.access.rows.iter().zip(self.table.clustering()) {
            let RowRestriction::Single(Choice::One(expr)) = row else {
                return bounds::rows(&self.table, &self.access.rows, env);
            };
            match expr.eval(env)? {
                Value::Set(value) => values.push(value),
                Value::Null => return invalid!("Invalid null value in condition for column {}", column.name),
                Value::Unset => return invalid!("Invalid unset value for column {}", column.name),
            }
        }
        crate::keys::check_values(&values)?;
        let components: SmallVec<[Option<&[u8]>; 4]> = values.iter().map(|value| Some(&**value)).collect();
        Ok(Clusterings::from_iter([Clustering::new(&self.table, &components)]))
    }

    /// Reads the lists that cannot be changed without knowing them: of each partition the static row and the rows.
    async fn read_lists<C: Coordinator>(
        &self,
        coordinator: &C,
        request: &Request<'_>,
        keys: &[mutation::DecoratedKey],
        clusterings: &[Clustering],
    ) -> Result<Option<HashMap<Bytes, (Option<Row>, Vec<Row>)>>> {
        let mut columns: Vec<_> = self.columns_to_read().collect();
        if columns.is_empty() {
            return Ok(None);
        }
        if request.consistency == Consistency::Any {
            return invalid!("ANY ConsistencyLevel is only supported for writes");
        }
        check_not_serial(request)?;
        columns.sort();
        columns.dedup();
        let slices = if self.table.clustering().is_empty() {
            Slices::all()
        } else {
            Slices::new(clusterings.iter().map(mutation::RowRange::row).collect())
        };
        let command = ReadCommand {
            slices,
            columns: ColumnSelection::Some(columns.into()),
            limits: Limits { bytes: LISTS_BYTES_MAX, ..Limits::NONE },
            ..ReadCommand::all_of(self.table.clone(), Partitions::Keys(keys.into()), request.now)
        };
        let page =
            coordinator.read(&command, request.consistency, request.deadline(TimeoutKind::Read)).await?;
        if page.more.is_some() {
            return invalid!(
                "The lists that the statement changes have more than {} MiB together; change fewer rows by one statement",
                LISTS_BYTES_MAX >> 20
            );
        }
        let partition = |p: replica::PartitionResult| (p.key.key.clone(), (p.static_row, p.rows));
        Ok(Some(page.partitions.into_iter().map(partition).collect()))
    }
}

/// The timestamp that USING gives, or the default.
///
/// # Errors
/// [`ExecError::Invalid`] when it is null or no 64-bit integer.
fn given_timestamp(expr: Option<&Expr>, env: &Env<'_>, default: Timestamp) -> Result<Timestamp> {
    let Some(expr) = expr else { return Ok(default) };
    match expr.eval(env)? {
        Value::Unset => Ok(default),
        Value::Null => invalid!("Invalid null value of timestamp"),
        Value::Set(bytes) => match <[u8; 8]>::try_from(&*bytes).map(i64::from_be_bytes) {
            Ok(timestamp) => Ok(timestamp),
            Err(_) => invalid!("Invalid timestamp value"),
        },
    }
}

/// Refuses that DELETE takes a value away which each write has to give.
fn check_nulled(table: &Table, operation: &Operation) -> Result<()> {
    let column = table.column_by_id(operation.column.id);
    let is_required = column.is_some_and(|column| column.constraints.contains(&Constraint::NotNull));
    match is_required && matches!(operation.change, Change::Delete) {
        true => invalid!("Column '{}' can not be set to null.", operation.name),
        false => Ok(()),
    }
}

/// Cells with one more in column id order; none when it has no marker, or its column another cell.
fn with_cell(
    mut cells: Vec<(ColumnId, u32)>,
    (column, marker): (ColumnId, Option<u32>),
) -> Option<Vec<(ColumnId, u32)>> {
    let at = cells.binary_search_by_key(&column, |(column, _)| *column).err()?;
    cells.insert(at, (column, marker?));
    Some(cells)
}

/// The assignments of an UPDATE to one column so far.
struct Assigned<'a> {
    /// One sets it as a whole.
    sets: bool,
    /// All of them add to it.
    adds: bool,
    /// Fields of a user type that are set.
    fields: BTreeSet<&'a str>,
}

impl<'a> Assigned<'a> {
    fn of(operation: &'a cql::ast::Operation) -> Self {
        use cql::ast::Operation::{Add, Set, SetField, Subtract};
        let mut fields = BTreeSet::new();
        if let SetField(field, _) = operation {
            fields.insert(field.name.as_str());
        }
        Self { sets: matches!(operation, Set(_)), adds: matches!(operation, Add(_) | Subtract(_)), fields }
    }

    /// Adds one more, unless one of two would hide the other. Additions to a column of one cell go together where `adds_up`.
    fn goes_with(&mut self, operation: &'a cql::ast::Operation, is_complex: bool, adds_up: bool) -> bool {
        let new = Self::of(operation);
        let goes = !self.sets
            && !new.sets
            && self.fields.is_disjoint(&new.fields)
            && (is_complex || adds_up && self.adds && new.adds);
        self.adds &= new.adds;
        self.fields.extend(new.fields);
        goes
    }
}

/// Refuses assignments that overwrite each other. As in Cassandra's parser, before any name is looked up.
fn check_assigned(ast: &Update, table: &Table) -> Result<()> {
    let adds_up = ast.condition != Condition::None || table.is_counter();
    let mut assigned: HashMap<&str, Assigned<'_>> = HashMap::default();
    for assignment in &ast.assignments {
        let name = assignment.column.name.as_str();
        let is_complex = table.column(name).is_none_or(Column::is_complex);
        let is_first = match assigned.entry(name) {
            Entry::Vacant(place) => {
                place.insert(Assigned::of(&assignment.operation));
                true
            }
            Entry::Occupied(before) => {
                before.into_mut().goes_with(&assignment.operation, is_complex, adds_up)
            }
        };
        if !is_first {
            return Err(ExecError::Syntax(format!("Multiple incompatible setting of column {name}")));
        }
    }
    Ok(())
}

/// Whether a table is virtual in Cassandra, too.
pub(crate) fn is_virtual(table: &Table) -> bool {
    matches!(table.keyspace.as_str(), "system_views" | "system_virtual_schema")
}

/// Refuses a timestamp, TTL and conditions, which no virtual table supports.
pub(crate) fn check_virtual(using: &Using, is_conditional: bool) -> Result<()> {
    if using.timestamp.is_some() {
        return invalid!("Custom timestamp is not supported by virtual tables");
    }
    if using.ttl.is_some() {
        return invalid!("Expiring columns are not supported by virtual tables");
    }
    match is_conditional {
        true => invalid!("Conditional updates are not supported by virtual tables"),
        false => Ok(()),
    }
}

/// The table of a modification, unless clients cannot write to it.
fn writable(
    lookup: &Lookup<'_>,
    name: &cql::ast::QualifiedName,
    keyspace: Option<&str>,
    (using, is_conditional): (&Using, bool),
) -> Result<Arc<Table>> {
    let (table, computed) = lookup.table(name, keyspace)?;
    if computed {
        if is_virtual(&table) {
            check_virtual(using, is_conditional)?;
        }
        return invalid!("Modification is not supported by table {}", table.full_name());
    }
    if table.is_view() {
        return invalid!("Cannot directly modify a materialized view");
    }
    if table.is_cdc_log() {
        let name = table.full_name();
        return Err(ExecError::Unauthorized(format!(
            "{name} is a log of changes: only the server writes to it."
        )));
    }
    Ok(table)
}
