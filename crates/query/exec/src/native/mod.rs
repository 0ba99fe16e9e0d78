//! The front end of the native protocol: QUERY, PREPARE, EXECUTE and BATCH become plans with values and a context, and the rows that
//! plans yield become RESULT messages. Nothing else of this crate knows the protocol.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

mod client;
mod encode;
mod errors;
mod metadata;
mod paging;
mod parameters;
mod prepared;
mod prepared_statements;
mod running;

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use cql::ast::BatchKind;
use rt::preempt::Pace;
use rt::{Instant, LocalBoxFuture};
use schema::Schema;
use wire::{BatchType, QueryParameters, ResponseWriter, StatementSource};

use crate::audit::{AuditCategory, AuditEvent, AuditOutcome, OPERATION_BYTES_MAX, batched};
use crate::backend::Coordinator;
use crate::error::{ExecError, Result, invalid};
use crate::executor::Executor;
use crate::expr::bind::Binds;
use crate::lookup::Lookup;
use crate::modification::ModificationPlan;
use crate::plan::Plan;
use crate::redact::redacted;
use crate::request::Caller;
use crate::sink::{Outcome, too_large};
use crate::trace::{Trace, Traced};
use encode::{ResultWriter, write_outcome};
use parameters::{BoundBy, bind, bind_into, parameters, set_checked, trace_parameters};
use prepared_statements::{Found, bytes_of};
use running::{Listing, Message, Running};

/// Bytes of a text that are parsed and resolved in about the time of one step of a [`Pace`].
const PLANNED_BYTES_A_STEP: usize = 256;

pub use client::{ClientState, ROWS_UNREPORTED_MAX};
pub use prepared::Prepared;
pub use prepared_statements::PreparedStatements;
pub use running::RunningStatement;

/// Called when a client has prepared a statement, with the keyspace and the text: other shards want to know it too. The
/// client is answered when the future is done.
pub type PreparedListener = Box<dyn Fn(Option<&str>, &str) -> LocalBoxFuture<()>>;

/// The native protocol on one shard.
pub struct NativeFrontend<C> {
    executor: Rc<Executor<C>>,
    prepared: PreparedStatements,
    running: Running,
    on_prepared: RefCell<Option<PreparedListener>>,
}

impl<C: Coordinator> NativeFrontend<C> {
    /// A front end of an executor, which may have others.
    pub fn new(executor: Rc<Executor<C>>) -> Self {
        let prepared = PreparedStatements::new(executor.limits().prepared_bytes);
        Self { executor, prepared, running: Running::default(), on_prepared: RefCell::new(None) }
    }

    /// The executor of the shard.
    pub fn executor(&self) -> &Rc<Executor<C>> {
        &self.executor
    }

    /// The statements under way, the oldest first.
    pub fn running(&self) -> Vec<RunningStatement> {
        self.running.list()
    }

    /// The shard's prepared statements.
    pub fn prepared_statements(&self) -> &PreparedStatements {
        &self.prepared
    }

    /// Has `listener` called whenever a client prepares a statement on this shard.
    pub fn on_prepared(&self, listener: PreparedListener) {
        *self.on_prepared.borrow_mut() = Some(listener);
    }

    /// Prepares a statement that a client prepared on another shard. A statement that is refused here is left out.
    pub async fn remember(&self, keyspace: Option<&str>, text: &str) {
        let schema = self.executor.coordinator().schema();
        let id = wire::statement_id(keyspace.unwrap_or_default(), text);
        if matches!(self.prepared.find(&id, &schema), Found::Current(_)) {
            return;
        }
        if let Ok(prepared) = Prepared::new_in_steps(text, keyspace, &Lookup { schema: &schema }).await {
            self.prepared.put(prepared, &schema);
        }
    }

    /// QUERY.
    pub async fn query(
        &self,
        client: &ClientState<'_>,
        query: &wire::Query,
        tracing: bool,
        out: &mut ResponseWriter,
    ) {
        let (text, began) = (query.text.as_str(), self.executor.begin());
        let trace = self.executor.begin_trace(tracing, || {
            traced("QUERY", "Execute CQL3 query", trace_parameters(text, &query.parameters))
        });
        let mut event = None;
        let result = {
            let (text, parameters) = ((text, &mut event), &query.parameters);
            let work = pin!(self.query_inner(client, text, parameters, trace.as_ref(), out));
            let message = || Message::Query(redacted(shown(&query.text)).into());
            self.running.listed(work, || self.listing(began, message(), parameters)).await
        };
        self.executor.end(began, || redacted(text).into_owned());
        let event = event.map(|event| event.at(query.parameters.consistency));
        self.audit(client, event, text, &result).await;
        self.finish(result, client, trace, out).await;
    }

    async fn query_inner(
        &self,
        client: &ClientState<'_>,
        (text, event): (&str, &mut Option<AuditEvent>),
        parameters: &QueryParameters,
        trace: Option<&Trace>,
        out: &mut ResponseWriter,
    ) -> Result<()> {
        self.executor.note(trace, || format!("Parsing {}", redacted(text)));
        let keyspace = parameters.keyspace.as_ref().map(|keyspace| keyspace.as_str());
        let keyspace = self.keyspace_of(keyspace, client)?;
        let schema = self.executor.coordinator().schema();
        let prepared = Prepared::new_in_steps(text, keyspace, &Lookup { schema: &schema }).await?;
        self.executor.note(trace, || "Preparing statement".to_owned());
        *event = self.event(&prepared);
        self.run(&prepared, client, parameters, (BoundBy::Query, None), trace, out).await
    }

    /// The keyspace of names without one: the one that the request names, or that of the connection.
    fn keyspace_of<'k>(
        &self,
        named: Option<&'k str>,
        client: &'k ClientState<'_>,
    ) -> Result<Option<&'k str>> {
        match named {
            None => Ok(client.keyspace.as_deref()),
            Some(name) if self.executor.coordinator().schema().keyspace(name).is_some() => Ok(Some(name)),
            Some(name) => invalid!("Keyspace '{name}' does not exist"),
        }
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
        let trace = self.executor.begin_trace(tracing, || {
            let parameters = vec![("query".to_owned(), redacted(text).into_owned())];
            traced("PREPARE", "Preparing CQL3 query", parameters)
        });
        let keyspace = prepare.keyspace.as_ref().map(|keyspace| keyspace.as_str());
        let mut event = None;
        let result = match self.keyspace_of(keyspace, client) {
            Ok(keyspace) => self.prepare_inner(keyspace, (text, &mut event), out).await,
            Err(error) => Err(error),
        };
        self.audit(client, event.map(AuditEvent::prepared), text, &result).await;
        self.finish(result, client, trace, out).await;
    }

    async fn prepare_inner(
        &self,
        keyspace: Option<&str>,
        (text, event): (&str, &mut Option<AuditEvent>),
        out: &mut ResponseWriter,
    ) -> Result<()> {
        let schema = self.executor.coordinator().schema();
        let prepared = Prepared::new_in_steps(text, keyspace, &Lookup { schema: &schema }).await?;
        *event = self.event(&prepared);
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
        let notified = self.on_prepared.borrow().as_ref().map(|listener| listener(keyspace, text));
        if let Some(notified) = notified {
            notified.await;
        }
        Ok(())
    }

    /// A prepared statement as it holds now.
    async fn current(&self, id: &bytes::Bytes) -> Result<Rc<Prepared>> {
        let schema = self.executor.coordinator().schema();
        match self.prepared.find(id, &schema) {
            Found::Current(prepared) => Ok(prepared),
            Found::Outdated(old) => Box::pin(self.prepare_anew(&old, &schema)).await,
            Found::Unknown => Err(ExecError::Unprepared { id: id.clone() }),
        }
    }

    /// Prepares a statement again, whose schema has changed.
    async fn prepare_anew(&self, old: &Prepared, schema: &Arc<Schema>) -> Result<Rc<Prepared>> {
        let anew = Prepared::new_in_steps(&old.text, old.keyspace.as_deref(), &Lookup { schema }).await?;
        Ok(self.prepared.put(anew, schema))
    }

    /// EXECUTE of a statement that has nothing to wait for: it is answered at once, without a future. False when [`Self::execute`] is to be
    /// used: then nothing was written or counted. The client does not want it traced, and there is room for its answer.
    #[inline]
    pub fn execute_now(
        &self,
        caller: &Caller<'_>,
        execute: &wire::Execute,
        out: &mut ResponseWriter,
    ) -> bool {
        let (executor, query) = (&*self.executor, &execute.parameters);
        if executor.is_audited() || executor.traces_unasked() {
            return false;
        }
        if query.paging_state.is_some() || query.now_in_seconds.is_some() {
            return false;
        }
        let schema = executor.coordinator().schema();
        let Found::Current(prepared) = self.prepared.find(&execute.id, &schema) else { return false };
        if !prepared.at_once.is_worth_a_try() || query.page_size == Some(0) {
            return false;
        }
        let parameters = parameters(query);
        let mut request = executor.request(caller, &parameters, prepared.keyspace.as_deref(), None);
        let mut binds = Binds::within(query.values.body(), prepared.markers.len());
        // The usual way finds the error again.
        if bind_into(&mut binds, &prepared.markers, &query.values, BoundBy::Execute).is_err() {
            return false;
        }
        // A row that is in memory is not reported: its answer is sent at once.
        let known_id = execute.result_metadata_id.as_deref();
        let mut result = ResultWriter::of_prepared(&prepared, query, known_id, &|_| {}, out);
        match executor.run_now(&prepared.plan, &binds, &mut request, &mut result) {
            Ok(None) => {
                prepared.at_once.has_to_wait();
                return false;
            }
            Ok(Some(Outcome::Void)) => out.void(),
            Ok(Some(_)) if out.is_too_large() => out.error(&errors::cql_error(&too_large())),
            Ok(Some(_)) => {}
            Err(error) => out.error(&errors::cql_error(&error)),
        }
        executor.end_request(&request, || redacted(&prepared.text).into_owned());
        true
    }

    /// EXECUTE.
    pub async fn execute(
        &self,
        client: &ClientState<'_>,
        execute: &wire::Execute,
        tracing: bool,
        out: &mut ResponseWriter,
    ) {
        let (mut trace, began) = (None, self.executor.begin());
        let result = match self.current(&execute.id).await {
            Ok(prepared) => {
                trace = self.executor.begin_trace(tracing, || {
                    let parameters = trace_parameters(&prepared.text, &execute.parameters);
                    traced("QUERY", "Execute CQL3 prepared query", parameters)
                });
                let known = execute.result_metadata_id.as_deref();
                let result = {
                    let parameters = &execute.parameters;
                    let work = pin!(self.run(
                        &prepared,
                        client,
                        parameters,
                        (BoundBy::Execute, known),
                        trace.as_ref(),
                        out
                    ));
                    let message = || Message::Execute(prepared.clone());
                    self.running.listed(work, || self.listing(began, message(), parameters)).await
                };
                self.executor.end(began, || redacted(&prepared.text).into_owned());
                if self.executor.is_audited() {
                    let event = self.event(&prepared).map(|event| event.at(execute.parameters.consistency));
                    self.audit(client, event, &prepared.text, &result).await;
                }
                result
            }
            Err(error) => Err(error),
        };
        // Nearly always there is nothing to finish: no error and no trace.
        if result.is_err() || trace.is_some() || out.is_too_large() {
            self.finish(result, client, trace, out).await;
        }
    }

    /// BATCH.
    pub async fn batch(
        &self,
        client: &ClientState<'_>,
        batch: &wire::Batch,
        tracing: bool,
        out: &mut ResponseWriter,
    ) {
        let began = self.executor.begin();
        let trace = self.executor.begin_trace(tracing, || {
            let parameters = trace_parameters(&self.batch_text(batch), &batch.parameters);
            traced("QUERY", "Execute batch of CQL3 queries", parameters)
        });
        let mut event = None;
        let result = {
            let work = pin!(self.batch_inner(client, (batch, &mut event), trace.as_ref(), out));
            let message = || Message::Batch(batch.statements.len());
            self.running.listed(work, || self.listing(began, message(), &batch.parameters)).await
        };
        self.executor.end(began, || self.batch_text(batch));
        if self.executor.is_audited() {
            let principal = &client.caller.principal;
            let text = || shown(&self.batch_text(batch)).to_owned();
            let event = event.map(|event: AuditEvent| event.at(batch.parameters.consistency));
            Box::pin(self.executor.audit(principal, event, text, AuditOutcome::of(&result))).await;
        }
        self.finish(result, client, trace, out).await;
    }

    /// Lists a statement among those under way.
    fn listing(&self, began: Option<Instant>, message: Message, parameters: &QueryParameters) -> Listing {
        self.running.begin(began.unwrap_or_else(|| self.executor.clock().now()), message, parameters)
    }

    /// The event of a statement for the audit log; none without such a log.
    fn event(&self, prepared: &Prepared) -> Option<AuditEvent> {
        let event = || AuditEvent::of_plan(&prepared.plan, prepared.keyspace.as_deref());
        self.executor.is_audited().then(event)
    }

    /// Adds a statement that has ended to the audit log, where there is one.
    async fn audit(
        &self,
        client: &ClientState<'_>,
        event: Option<AuditEvent>,
        text: &str,
        result: &Result<()>,
    ) {
        if self.executor.is_audited() {
            let operation = || redacted(shown(text)).into_owned();
            let principal = &client.caller.principal;
            // Boxed: a request without an audit log does not carry its state.
            Box::pin(self.executor.audit(principal, event, operation, AuditOutcome::of(result))).await;
        }
    }

    /// A batch, as far as its statements are known: the beginning of it that logs have room for.
    fn batch_text(&self, batch: &wire::Batch) -> String {
        let schema = self.executor.coordinator().schema();
        let mut out = "BEGIN BATCH ".to_owned();
        for (place, statement) in batch.statements.iter().enumerate() {
            if out.len() > OPERATION_BYTES_MAX {
                return out;
            }
            if place > 0 {
                out.push_str("; ");
            }
            match &statement.source {
                StatementSource::Text(text) => out.push_str(&redacted(shown(text.as_str()))),
                StatementSource::Prepared(id) => match self.prepared.find(id, &schema) {
                    Found::Current(prepared) | Found::Outdated(prepared) => {
                        out.push_str(&redacted(shown(&prepared.text)));
                    }
                    Found::Unknown => out.push('?'),
                },
            }
        }
        out.push_str(" APPLY BATCH");
        out
    }

    async fn batch_inner(
        &self,
        client: &ClientState<'_>,
        (batch, event): (&wire::Batch, &mut Option<AuditEvent>),
        trace: Option<&Trace>,
        out: &mut ResponseWriter,
    ) -> Result<()> {
        let keyspace = batch.parameters.keyspace.as_ref().map(|keyspace| keyspace.as_str());
        let keyspace = self.keyspace_of(keyspace, client)?;
        let mut statements: Vec<(Rc<Prepared>, Binds)> = Vec::with_capacity(batch.statements.len());
        let mut pace = Pace::new();
        for statement in &batch.statements {
            let prepared = match &statement.source {
                StatementSource::Prepared(id) => self.current(id).await?,
                StatementSource::Text(text) => {
                    let (schema, text) = (self.executor.coordinator().schema(), text.as_str());
                    pace.count(text.len() / PLANNED_BYTES_A_STEP);
                    Rc::new(Prepared::new_in_steps(text, keyspace, &Lookup { schema: &schema }).await?)
                }
            };
            pace.step().await;
            let binds = bind(&prepared.markers, &statement.values, BoundBy::Batch)?;
            if batch.kind == BatchType::Logged && matches!(prepared.plan, Plan::Setting(_)) {
                return invalid!("Cannot include a virtual table statement in a logged batch");
            }
            if !matches!(prepared.plan, Plan::Modification(_)) {
                return invalid!(
                    "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed."
                );
            }
            statements.push((prepared, binds));
        }
        let plans: Vec<(&ModificationPlan, &Binds)> = statements
            .iter()
            .filter_map(|(prepared, binds)| match &prepared.plan {
                Plan::Modification(plan) => Some((plan, binds)),
                _ => None,
            })
            .collect();
        if self.executor.is_audited() {
            let keyspace = plans.first().map(|(plan, _)| plan.table.keyspace.clone());
            let batched = batched(plans.iter().map(|(plan, _)| &plan.table));
            *event = Some(AuditEvent { keyspace, batched, ..AuditEvent::new("BATCH", AuditCategory::Dml) });
        }
        let kind = match batch.kind {
            BatchType::Logged => BatchKind::Logged,
            BatchType::Unlogged => BatchKind::Unlogged,
            BatchType::Counter => BatchKind::Counter,
        };
        let mut parameters = parameters(&batch.parameters);
        set_checked(&mut parameters, &batch.parameters, None)?;
        let request = self.executor.request(&client.caller, &parameters, keyspace, trace);
        request.note_tables(plans.iter().map(|(plan, _)| &plan.table));
        let mut result = ResultWriter::new(client.answer_grown, out);
        let outcome = self.executor.run_batch(kind, &plans, &request, &mut result).await?;
        write_outcome(&outcome, client, out);
        Ok(())
    }

    /// Runs a statement with the values of a request.
    async fn run(
        &self,
        prepared: &Prepared,
        client: &ClientState<'_>,
        query: &QueryParameters,
        (by, known_metadata_id): (BoundBy, Option<&[u8]>),
        trace: Option<&Trace>,
        out: &mut ResponseWriter,
    ) -> Result<()> {
        let binds = bind(&prepared.markers, &query.values, by)?;
        let mut parameters = parameters(query);
        set_checked(&mut parameters, query, Some(&prepared.plan))?;
        let mut request =
            self.executor.request(&client.caller, &parameters, prepared.keyspace.as_deref(), trace);
        request.note_tables(prepared.plan.tables());
        let mut result =
            ResultWriter::of_prepared(prepared, query, known_metadata_id, client.answer_grown, out);
        if matches!(prepared.plan, Plan::Select(_)) {
            poll_fn(|cx| (client.answer_room)(cx)).await;
        }
        let outcome = self.executor.run(&prepared.plan, &binds, &mut request, &mut result).await?;
        write_outcome(&outcome, client, out);
        Ok(())
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
            out.error(&errors::cql_error(error));
            self.executor.note(trace.as_ref(), || match error {
                // It may quote a part of the statement that is a password.
                ExecError::Syntax(_) => "Request failed: a syntax error".to_owned(),
                error => format!("Request failed: {error}"),
            });
        }
        let Some(trace) = trace else { return };
        let is_wanted = trace.is_wanted();
        if is_wanted {
            out.set_tracing_id(trace.id);
        }
        if !self.executor.end_trace(trace, &client.caller.principal).await && is_wanted {
            out.warn("The trace of this request could not be written");
        }
    }
}

/// A traced request, in Cassandra's words.
fn traced(command: &'static str, request: &'static str, parameters: Vec<(String, String)>) -> Traced {
    Traced { command, request: request.into(), parameters }
}

/// As much of a text as an entry of the audit log has, and a bit of the rest if there is any.
fn shown(text: &str) -> &str {
    &text[..text.floor_char_boundary(OPERATION_BYTES_MAX + 4)]
}
