//! The executor of one shard: requests come in as the protocol's messages, answers go out as responses.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use coordinator::{Consistency, RequestError, SchemaChangeError, WriteKind, WriteOptions};
use cql::ast::{BatchKind, Statement};
use mutation::{PartitionUpdate, Timestamp};
use rt::LocalBoxFuture;
use wire::{BatchType, CqlError, QueryParameters, ResponseWriter, StatementSource};

use crate::backend::{Clock, Coordinator};
use crate::bind::Binds;
use crate::conditional;
use crate::ddl::{self, DdlContext};
use crate::describe;
use crate::error::{ExecError, Result, invalid};
use crate::expr::Env;
use crate::functions::{CallContext, TimeUuids};
use crate::lookup::{Lookup, keyspace_of};
use crate::modification::ModificationPlan;
use crate::modification::batch;
use crate::prepared::{Plan, Prepared};
use crate::prepared_statements::{Found, PreparedStatements, bytes_of};
use crate::request::{ExecLimits, Request};
use crate::select::selection::too_large;
use crate::select::{self, SelectPlan};
use crate::trace::Trace;
use crate::watch::Watch;

/// The node, as far as statements show it and the view of the cluster does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// Name of the cluster.
    pub cluster_name: String,
    /// Name of the snitch, as DESCRIBE CLUSTER shows it.
    pub snitch: String,
    /// The node's address for clients.
    pub address: SocketAddr,
}

/// The client of a request.
pub struct ClientState<'a> {
    /// The keyspace of unqualified names.
    pub keyspace: Option<Rc<str>>,
    /// Where the client is.
    pub address: SocketAddr,
    /// Called by USE.
    pub set_keyspace: &'a dyn Fn(&str),
    /// Ready when there is room for the answer of a SELECT.
    pub answer_room: &'a dyn Fn(&mut Context<'_>) -> Poll<()>,
}

/// Called when a client has prepared a statement, with the keyspace and the text: other shards want to know it too. The
/// client is answered when the future is done.
pub type PreparedListener = Box<dyn Fn(Option<&str>, &str) -> LocalBoxFuture<()>>;

/// Tries to change the schema before a statement that always meets another's change gives up.
const SCHEMA_CHANGE_TRIES_MAX: usize = 32;

/// Executes statements on one shard.
pub struct Executor<C> {
    coordinator: C,
    clock: Rc<dyn Clock>,
    call: CallContext,
    node: NodeInfo,
    limits: ExecLimits,
    prepared: PreparedStatements,
    on_prepared: RefCell<Option<PreparedListener>>,
    last_timestamp: Cell<Timestamp>,
    watch: Watch,
}

impl<C: Coordinator> Executor<C> {
    /// An executor.
    pub fn new(coordinator: C, clock: Rc<dyn Clock>, node: NodeInfo, limits: ExecLimits) -> Self {
        let uuids = Rc::new(TimeUuids::new(clock.random()));
        Self {
            coordinator,
            call: CallContext { clock: clock.clone(), uuids },
            clock,
            node,
            prepared: PreparedStatements::new(limits.prepared_bytes),
            watch: Watch::new(limits.slow_after),
            limits,
            on_prepared: RefCell::new(None),
            last_timestamp: Cell::new(0),
        }
    }

    /// What it executes on.
    pub fn coordinator(&self) -> &C {
        &self.coordinator
    }

    /// The shard's prepared statements.
    pub fn prepared_statements(&self) -> &PreparedStatements {
        &self.prepared
    }

    /// Has `listener` called whenever a client prepares a statement on this shard.
    pub fn on_prepared(&self, listener: PreparedListener) {
        *self.on_prepared.borrow_mut() = Some(listener);
    }

    /// The share of requests that are traced although their client does not ask for it.
    pub fn trace_probability(&self) -> f64 {
        self.watch.trace_probability()
    }

    /// Sets that share, from 0 to 1.
    pub fn set_trace_probability(&self, probability: f64) {
        self.watch.set_trace_probability(probability);
    }

    /// What the log is to say of statements that were slow since the last time.
    pub fn report_slow(&self) -> Option<String> {
        self.watch.report(self.clock.now())
    }

    /// Whether a request is traced.
    fn traces(&self, asked: bool) -> bool {
        asked || self.watch.draws(&*self.clock)
    }

    /// Prepares a statement that a client prepared on another shard. A statement that is refused here is left out.
    pub fn remember(&self, keyspace: Option<&str>, text: &str) {
        let schema = self.coordinator.schema();
        let id = wire::statement_id(keyspace.unwrap_or_default(), text);
        if matches!(self.prepared.find(&id, &schema), Found::Current(_)) {
            return;
        }
        if let Ok(prepared) = Prepared::new(text, keyspace, &Lookup { schema: &schema }) {
            self.prepared.put(prepared, &schema);
        }
    }

    /// A timestamp that no statement of this shard had before.
    fn timestamp(&self) -> Timestamp {
        let timestamp = self.clock.wall_micros().max(self.last_timestamp.get() + 1);
        self.last_timestamp.set(timestamp);
        timestamp
    }

    /// QUERY.
    pub async fn query(
        &self,
        client: &ClientState<'_>,
        query: &wire::Query,
        tracing: bool,
        out: &mut ResponseWriter,
    ) {
        let (text, began) = (query.text.as_str(), self.watch.begin(&*self.clock));
        let trace = self.traces(tracing).then(|| {
            let parameters = trace_parameters(text, &query.parameters);
            Trace::begin(&self.call, tracing, "QUERY", "Execute CQL3 query", parameters)
        });
        let result = self.query_inner(client, text, &query.parameters, trace.as_ref(), out).await;
        self.watch.end(began, &*self.clock, || text.to_owned());
        self.finish(result, client, trace, out).await;
    }

    async fn query_inner(
        &self,
        client: &ClientState<'_>,
        text: &str,
        parameters: &QueryParameters,
        trace: Option<&Trace>,
        out: &mut ResponseWriter,
    ) -> Result<()> {
        self.note(trace, || format!("Parsing {text}"));
        let keyspace = parameters.keyspace.as_ref().map(|keyspace| keyspace.as_str());
        let keyspace = keyspace.or(client.keyspace.as_deref());
        let schema = self.coordinator.schema();
        let prepared = Prepared::new(text, keyspace, &Lookup { schema: &schema })?;
        self.note(trace, || "Preparing statement".to_owned());
        self.run(&prepared, client, parameters, None, trace, out).await
    }

    /// PREPARE.
    pub async fn prepare(
        &self,
        client: &ClientState<'_>,
        prepare: &wire::Prepare,
        tracing: bool,
        out: &mut ResponseWriter,
    ) {
        let text = prepare.text.as_str();
        let trace = self.traces(tracing).then(|| {
            let parameters = vec![("query".to_owned(), text.to_owned())];
            Trace::begin(&self.call, tracing, "PREPARE", "Preparing CQL3 query", parameters)
        });
        let keyspace = prepare.keyspace.as_ref().map(|keyspace| keyspace.as_str());
        let result = self.prepare_inner(keyspace.or(client.keyspace.as_deref()), text, out).await;
        self.finish(result, client, trace, out).await;
    }

    async fn prepare_inner(
        &self,
        keyspace: Option<&str>,
        text: &str,
        out: &mut ResponseWriter,
    ) -> Result<()> {
        let schema = self.coordinator.schema();
        let prepared = Prepared::new(text, keyspace, &Lookup { schema: &schema })?;
        let (bytes, bytes_max) = (bytes_of(text), self.prepared.bytes_max());
        if bytes > bytes_max {
            let begin: String = text.chars().take(200).collect();
            return invalid!(
                "Prepared statement of size {bytes} bytes is larger than allowed maximum of {bytes_max} bytes \
                 (prepared_statements_cache_size): {begin}..."
            );
        }
        out.prepared(&prepared.metadata);
        self.prepared.put(prepared, &schema);
        let told = self.on_prepared.borrow().as_ref().map(|listener| listener(keyspace, text));
        if let Some(told) = told {
            told.await;
        }
        Ok(())
    }

    /// A prepared statement as it holds now.
    fn current(&self, id: &bytes::Bytes) -> Result<Rc<Prepared>> {
        let schema = self.coordinator.schema();
        match self.prepared.find(id, &schema) {
            Found::Current(prepared) => Ok(prepared),
            Found::Outdated(old) => {
                let anew = Prepared::new(&old.text, old.keyspace.as_deref(), &Lookup { schema: &schema })?;
                Ok(self.prepared.put(anew, &schema))
            }
            Found::Unknown => Err(ExecError::Unprepared { id: id.clone() }),
        }
    }

    /// EXECUTE.
    pub async fn execute(
        &self,
        client: &ClientState<'_>,
        execute: &wire::Execute,
        tracing: bool,
        out: &mut ResponseWriter,
    ) {
        let (mut trace, began) = (None, self.watch.begin(&*self.clock));
        let result = match self.current(&execute.id) {
            Ok(prepared) => {
                if self.traces(tracing) {
                    let parameters = trace_parameters(&prepared.text, &execute.parameters);
                    let what = "Execute CQL3 prepared query";
                    trace = Some(Trace::begin(&self.call, tracing, "QUERY", what, parameters));
                }
                let known = execute.result_metadata_id.as_deref();
                let result =
                    self.run(&prepared, client, &execute.parameters, known, trace.as_ref(), out).await;
                self.watch.end(began, &*self.clock, || prepared.text.to_string());
                result
            }
            Err(error) => Err(error),
        };
        self.finish(result, client, trace, out).await;
    }

    /// BATCH.
    pub async fn batch(
        &self,
        client: &ClientState<'_>,
        batch: &wire::Batch,
        tracing: bool,
        out: &mut ResponseWriter,
    ) {
        let began = self.watch.begin(&*self.clock);
        let trace = self.traces(tracing).then(|| {
            let parameters = trace_parameters("", &batch.parameters);
            Trace::begin(&self.call, tracing, "QUERY", "Execute batch of CQL3 queries", parameters)
        });
        let result = self.batch_inner(client, batch, trace.as_ref(), out).await;
        self.watch.end(began, &*self.clock, || self.batch_text(batch));
        self.finish(result, client, trace, out).await;
    }

    /// A batch, as far as its statements are known.
    fn batch_text(&self, batch: &wire::Batch) -> String {
        let schema = self.coordinator.schema();
        let statements = batch.statements.iter().map(|statement| match &statement.source {
            StatementSource::Text(text) => text.as_str().to_owned(),
            StatementSource::Prepared(id) => match self.prepared.find(id, &schema) {
                Found::Current(prepared) | Found::Outdated(prepared) => prepared.text.to_string(),
                Found::Unknown => "?".to_owned(),
            },
        });
        format!("BEGIN BATCH {} APPLY BATCH", statements.collect::<Vec<_>>().join("; "))
    }

    async fn batch_inner(
        &self,
        client: &ClientState<'_>,
        batch: &wire::Batch,
        trace: Option<&Trace>,
        out: &mut ResponseWriter,
    ) -> Result<()> {
        let keyspace = batch.parameters.keyspace.as_ref().map(|keyspace| keyspace.as_str());
        let keyspace = keyspace.or(client.keyspace.as_deref());
        let mut statements: Vec<(Rc<Prepared>, Binds)> = Vec::with_capacity(batch.statements.len());
        for statement in &batch.statements {
            let prepared = match &statement.source {
                StatementSource::Prepared(id) => self.current(id)?,
                StatementSource::Text(text) => {
                    let schema = self.coordinator.schema();
                    Rc::new(Prepared::new(text.as_str(), keyspace, &Lookup { schema: &schema })?)
                }
            };
            if !matches!(prepared.plan, Plan::Modification(_)) {
                return invalid!(
                    "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed."
                );
            }
            let binds = Binds::check(&prepared.markers, &statement.values)?;
            statements.push((prepared, binds));
        }
        let plans: Vec<(&ModificationPlan, &Binds)> = statements
            .iter()
            .filter_map(|(prepared, binds)| match &prepared.plan {
                Plan::Modification(plan) => Some((plan, binds)),
                _ => None,
            })
            .collect();
        let kind = match batch.kind {
            BatchType::Logged => BatchKind::Logged,
            BatchType::Unlogged => BatchKind::Unlogged,
            BatchType::Counter => BatchKind::Counter,
        };
        batch::check(kind, plans.iter().map(|(plan, _)| *plan))?;
        let mut request = Request::new(&batch.parameters, None, &*self.clock, &self.limits)?;
        request.trace = trace.map(Trace::log);
        let timestamp = request.timestamp.unwrap_or_else(|| self.timestamp());
        self.write_batch(kind, &plans, request, timestamp, trace, out).await
    }

    /// Executes a statement with the values of a request.
    async fn run(
        &self,
        prepared: &Prepared,
        client: &ClientState<'_>,
        parameters: &QueryParameters,
        known_metadata_id: Option<&[u8]>,
        trace: Option<&Trace>,
        out: &mut ResponseWriter,
    ) -> Result<()> {
        let binds = Binds::check(&prepared.markers, &parameters.values)?;
        let mut request = Request::new(parameters, known_metadata_id, &*self.clock, &self.limits)?;
        request.trace = trace.map(Trace::log);
        request.skip_metadata &= !prepared.result_changed || known_metadata_id.is_some();
        match &prepared.plan {
            Plan::Select(plan) => {
                poll_fn(|cx| (client.answer_room)(cx)).await;
                self.select(plan, &binds, request, trace, out).await
            }
            Plan::Modification(plan) if !plan.conditions.is_empty() => {
                request.take_timeout(plan.timeout.as_ref(), &Env::new(&binds, &self.call))?;
                Box::pin(self.conditional(&[(plan, &binds)], false, request, trace, out)).await
            }
            Plan::Modification(plan) => {
                let timestamp = request.timestamp.unwrap_or_else(|| self.timestamp());
                self.modify(plan, &binds, request, timestamp, trace).await?;
                out.void();
                Ok(())
            }
            Plan::Batch(plan) => {
                let env = Env::new(&binds, &self.call);
                let default = request.timestamp.unwrap_or_else(|| self.timestamp());
                let timestamp = plan.timestamp(&env, default)?;
                let plans: Vec<_> = plan.statements.iter().map(|statement| (statement, &binds)).collect();
                self.write_batch(plan.kind, &plans, request, timestamp, trace, out).await
            }
            Plan::Other(statement) => self.other(statement, client, request, out).await,
        }
    }

    async fn select(
        &self,
        plan: &SelectPlan,
        binds: &Binds,
        mut request: Request<'_>,
        trace: Option<&Trace>,
        out: &mut ResponseWriter,
    ) -> Result<()> {
        request.consistency = match request.consistency {
            Consistency::Any => return invalid!("ANY ConsistencyLevel is only supported for writes"),
            // Only the write of one partition can be agreed on: a scan sees what a majority has.
            Consistency::Serial if !plan.restrictions.names_partitions() => Consistency::Quorum,
            Consistency::LocalSerial if !plan.restrictions.names_partitions() => Consistency::LocalQuorum,
            other => other,
        };
        if plan.restrictions.keys.is_none() {
            request.timeout = self.limits.range_timeout;
        }
        request.take_timeout(plan.timeout.as_ref(), &Env::new(binds, &self.call))?;
        self.note(trace, || format!("Reading from {}", plan.table.full_name()));
        let env = Env::new(binds, &self.call);
        select::run(plan, &self.coordinator, &request, &env, out).await?;
        self.note(trace, || format!("Read {} bytes of rows", out.len()));
        Ok(())
    }

    fn write_options(
        &self,
        request: &Request<'_>,
        kind: WriteKind,
        timeout: Duration,
    ) -> Result<WriteOptions> {
        if request.consistency.is_serial() {
            return invalid!("You must use conditional updates for serializable writes");
        }
        let timeout = if request.own_timeout { request.timeout } else { timeout };
        Ok(WriteOptions { consistency: request.consistency, kind, deadline: self.clock.now() + timeout })
    }

    async fn modify(
        &self,
        plan: &ModificationPlan,
        binds: &Binds,
        mut request: Request<'_>,
        timestamp: Timestamp,
        trace: Option<&Trace>,
    ) -> Result<()> {
        let env = Env::new(binds, &self.call);
        request.take_timeout(plan.timeout.as_ref(), &env)?;
        let mut updates = Vec::with_capacity(1);
        plan.updates(&self.coordinator, &request, &env, timestamp, &mut updates).await?;
        self.note(trace, || format!("Writing {} partition(s) of {}", updates.len(), plan.table.full_name()));
        self.write(plan.is_counter() && plan.counts(), WriteKind::Simple, updates, &request).await?;
        self.note(trace, || "Write acknowledged".to_owned());
        Ok(())
    }

    async fn write(
        &self,
        counts: bool,
        kind: WriteKind,
        updates: Vec<PartitionUpdate>,
        request: &Request<'_>,
    ) -> Result<()> {
        if updates.is_empty() {
            return Ok(());
        }
        if counts {
            if request.consistency == Consistency::Any {
                return invalid!(
                    "Consistency level ANY is not yet supported for counter table {}",
                    updates[0].table.name
                );
            }
            let options = self.write_options(request, WriteKind::Counter, self.limits.counter_timeout)?;
            match request.trace {
                None => self.coordinator.increment(updates, options).await?,
                Some(trace) => {
                    Box::pin(self.coordinator.traced(trace).increment(updates, options)).await?;
                }
            }
        } else {
            let options = self.write_options(request, kind, self.limits.write_timeout)?;
            match request.trace {
                None => self.coordinator.write(updates, options).await?,
                // Kept apart, so that the future of a write that is not traced stays small.
                Some(trace) => Box::pin(self.coordinator.write_traced(updates, options, trace)).await?,
            }
        }
        Ok(())
    }

    /// A conditional statement, or a batch with one in it.
    async fn conditional(
        &self,
        statements: &[(&ModificationPlan, &Binds)],
        is_batch: bool,
        request: Request<'_>,
        trace: Option<&Trace>,
        out: &mut ResponseWriter,
    ) -> Result<()> {
        self.note(trace, || "Executing a conditional statement".to_owned());
        conditional::run(&self.coordinator, statements, is_batch, &request, &self.call, out).await?;
        self.note(trace, || "Conditional statement decided".to_owned());
        Ok(())
    }

    async fn write_batch(
        &self,
        kind: BatchKind,
        statements: &[(&ModificationPlan, &Binds)],
        request: Request<'_>,
        timestamp: Timestamp,
        trace: Option<&Trace>,
        out: &mut ResponseWriter,
    ) -> Result<()> {
        if batch::is_conditional(statements.iter().map(|(plan, _)| *plan)) {
            return Box::pin(self.conditional(statements, true, request, trace, out)).await;
        }
        let (mut updates, mut increments) = (Vec::with_capacity(statements.len()), Vec::new());
        for (plan, binds) in statements {
            let env = Env::new(binds, &self.call);
            let target = if plan.is_counter() && plan.counts() { &mut increments } else { &mut updates };
            plan.updates(&self.coordinator, &request, &env, timestamp, target).await?;
        }
        let (updates, increments) = (batch::merge(updates), batch::merge_increments(increments));
        let warnings = batch::check_size(kind, &updates, &self.limits)?;
        self.note(trace, || format!("Writing a batch of {} partition(s)", updates.len() + increments.len()));
        let write_kind = match kind {
            BatchKind::Logged if updates.len() > 1 => WriteKind::Batch,
            BatchKind::Logged => WriteKind::Simple,
            BatchKind::Unlogged => WriteKind::UnloggedBatch,
            BatchKind::Counter => WriteKind::Counter,
        };
        self.write(false, write_kind, updates, &request).await?;
        self.write(true, WriteKind::Counter, increments, &request).await?;
        out.void();
        warnings.into_iter().for_each(|warning| out.warn(warning));
        Ok(())
    }

    async fn other(
        &self,
        statement: &Statement,
        client: &ClientState<'_>,
        request: Request<'_>,
        out: &mut ResponseWriter,
    ) -> Result<()> {
        let schema = self.coordinator.schema();
        let lookup = Lookup { schema: &schema };
        match statement {
            Statement::Use(ast) => {
                let name = &ast.keyspace.name;
                if lookup.keyspace(name).is_none() {
                    return invalid!("Keyspace '{name}' does not exist");
                }
                (client.set_keyspace)(name);
                out.set_keyspace(name);
                Ok(())
            }
            Statement::Truncate(ast) => {
                keyspace_of(&ast.table, client.keyspace.as_deref())?;
                let (table, computed) = lookup.table(&ast.table, client.keyspace.as_deref())?;
                if computed {
                    return invalid!("Truncation is not supported by table {}", table.full_name());
                }
                let deadline = self.clock.now() + self.limits.truncate_timeout;
                self.coordinator.truncate(&table, deadline).await?;
                out.void();
                Ok(())
            }
            Statement::Describe(ast) => {
                let cluster = (&self.node, &*self.coordinator.view());
                describe::run(ast, &lookup, cluster, client.keyspace.as_deref(), &request, out)
            }
            _ => self.change_schema(statement, client.keyspace.as_deref(), out).await,
        }
    }

    async fn change_schema(
        &self,
        statement: &Statement,
        keyspace: Option<&str>,
        out: &mut ResponseWriter,
    ) -> Result<()> {
        for _ in 0..SCHEMA_CHANGE_TRIES_MAX {
            let (schema, view) = (self.coordinator.schema(), self.coordinator.view());
            let context = DdlContext {
                lookup: Lookup { schema: &schema },
                keyspace,
                view: &view,
                table_id: self.call.time_uuid(),
                now_micros: self.timestamp(),
            };
            let outcome = ddl::plan(statement, &context)?;
            if !outcome.edits.is_empty() {
                match self.coordinator.change_schema(schema.version(), outcome.edits).await {
                    Ok(()) => {}
                    Err(SchemaChangeError::Moved) => continue,
                    Err(SchemaChangeError::Invalid(text)) => return Err(ExecError::Invalid(text)),
                    // As a write that too few replicas acknowledged in time: it is made, and clients may not count on it yet.
                    Err(SchemaChangeError::Behind { used, live }) => {
                        return Err(ExecError::Request(RequestError::WriteTimeout {
                            consistency: Consistency::All,
                            received: used,
                            required: live,
                            kind: WriteKind::Simple,
                        }));
                    }
                    Err(SchemaChangeError::Failed(text)) => return Err(ExecError::SchemaNotSaved(text)),
                }
            }
            match &outcome.change {
                Some(change) => out.schema_change(change),
                None => out.void(),
            }
            outcome.warnings.into_iter().for_each(|warning| out.warn(warning));
            return Ok(());
        }
        Err(ExecError::SchemaNotSaved(format!(
            "The schema was changed by others {SCHEMA_CHANGE_TRIES_MAX} times while this statement tried to; try again"
        )))
    }

    fn note(&self, trace: Option<&Trace>, activity: impl FnOnce() -> String) {
        if let Some(trace) = trace {
            trace.log().add(self.clock.now(), self.coordinator.shard(), activity());
        }
    }

    /// Writes an error in place of the result, and the trace where it belongs.
    async fn finish(
        &self,
        result: Result<()>,
        client: &ClientState<'_>,
        trace: Option<Trace>,
        out: &mut ResponseWriter,
    ) {
        let result = if out.is_too_large() { result.and(Err(too_large())) } else { result };
        if let Err(error) = &result {
            out.error(&CqlError::from(error));
            self.note(trace.as_ref(), || format!("Request failed: {error}"));
        }
        let Some(trace) = trace else { return };
        self.note(Some(&trace), || "Request complete".to_owned());
        if trace.asked {
            out.set_tracing_id(trace.id);
        }
        let schema = self.coordinator.schema();
        let updates = trace.updates(&schema, &self.call, client.address, self.node.address);
        let options = WriteOptions {
            consistency: Consistency::One,
            kind: WriteKind::UnloggedBatch,
            deadline: self.clock.now() + self.limits.write_timeout,
        };
        if !updates.is_empty() && self.coordinator.write(updates, options).await.is_err() {
            out.warn("The trace of this request could not be written");
        }
    }
}

fn trace_parameters(text: &str, parameters: &QueryParameters) -> Vec<(String, String)> {
    let mut all = vec![("consistency_level".to_owned(), parameters.consistency.name().to_owned())];
    if !text.is_empty() {
        all.push(("query".to_owned(), text.to_owned()));
    }
    if let Some(size) = parameters.page_size {
        all.push(("page_size".to_owned(), size.to_string()));
    }
    if let Some(serial) = parameters.serial_consistency {
        all.push(("serial_consistency_level".to_owned(), serial.name().to_owned()));
    }
    all
}
