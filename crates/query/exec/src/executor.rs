//! The executor of one shard: runs plans with the values of a request, and hands their rows to a sink.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use auth::password::Hash;
use auth::{Permission, Resource};
use cluster::SchemaEdit;
use coordinator::{ClusterView, Consistency, RequestError, SchemaChangeError, WriteKind, WriteOptions};
use cql::ast::{BatchKind, Password, Statement};
use mutation::{PartitionUpdate, Timestamp};
use rt::{Group, Instant};
use schema::{Cidr, CidrGroup, Schema, ServiceLevel, TableId};

use crate::access::{ANONYMOUS, Access};
use crate::audit::{AuditCategory, AuditEntry, AuditEvent, AuditLog, AuditOutcome};
use crate::backend::{Clock, Coordinator, NodeInfo};
use crate::batch_sizes::{BatchFigures, BatchSizes};
use crate::conditional;
use crate::ddl::{self, DdlContext};
use crate::describe;
use crate::error::{ExecError, Result, invalid, unauthorized};
use crate::expr::Env;
use crate::expr::bind::Binds;
use crate::expr::calls::{self, UserCall};
use crate::functions::{CallContext, TimeUuids};
use crate::guardrails::Guard;
use crate::lookup::Lookup;
use crate::modification::ModificationPlan;
use crate::modification::batch;
use crate::part_server;
use crate::performer::Performer;
use crate::plan::Plan;
use crate::principal::Principal;
use crate::prune;
use crate::request::{Caller, ExecLimits, Parameters, Request, TimeoutKind, check_not_serial};
use crate::roles::{self, Planned, RoleContext};
use crate::select::{self, SelectPlan};
use crate::setting::{ComputedChange, SettingChange, SettingPlan};
use crate::sink::{Outcome, Sink};
use crate::statement_counts::StatementCounts;
use crate::trace::{Trace, Traced};
use crate::watch::Watch;

/// Tries to change the schema before a statement that always meets another's change gives up.
const SCHEMA_CHANGE_TRIES_MAX: usize = 32;

/// Runs plans on one shard, of any protocol.
pub struct Executor<C> {
    coordinator: C,
    clock: Rc<dyn Clock>,
    call: CallContext,
    functions: udf::Runtime,
    node: NodeInfo,
    limits: RefCell<Rc<ExecLimits>>,
    access: Access,
    /// Whether there is any guardrail.
    is_guarded: Cell<bool>,
    last_timestamp: Cell<Timestamp>,
    watch: Watch,
    batches: BatchSizes,
    counts: StatementCounts,
    change_settings: RefCell<Option<SettingChange>>,
    audit: RefCell<Option<Rc<dyn AuditLog>>>,
    default_service_level: Rc<ServiceLevel>,
}

impl<C: Coordinator> Executor<C> {
    /// An executor.
    pub fn new(coordinator: C, clock: Rc<dyn Clock>, node: NodeInfo, limits: ExecLimits) -> Self {
        let uuids = Rc::new(TimeUuids::new(clock.random()));
        let time = clock.clone();
        let functions = udf::Runtime::new(limits.functions.clone(), Rc::new(move || time.now()));
        Self {
            coordinator,
            call: CallContext::new(clock.clone(), uuids),
            clock,
            functions,
            node,
            watch: Watch::new(&limits),
            batches: BatchSizes::default(),
            counts: StatementCounts::default(),
            change_settings: RefCell::default(),
            audit: RefCell::default(),
            access: Access::new(limits.authorizes, limits.data_masking),
            is_guarded: Cell::new(limits.guardrails.binds_requests()),
            limits: RefCell::new(Rc::new(limits)),
            default_service_level: Rc::default(),
            last_timestamp: Cell::new(0),
        }
    }

    /// The coordinator that it executes on.
    pub fn coordinator(&self) -> &C {
        &self.coordinator
    }

    /// The node's settings as they are now. A request keeps those that it began with.
    pub fn limits(&self) -> Rc<ExecLimits> {
        self.limits.borrow().clone()
    }

    /// Applies changed settings to the requests that begin from now on. How roles are authorized and the size of the cache of prepared
    /// statements stay those of the start.
    pub fn set_limits(&self, limits: ExecLimits) {
        self.watch.configure(&limits);
        self.functions.set_limits(limits.functions.clone());
        self.is_guarded.set(limits.guardrails.binds_requests());
        self.limits.replace(Rc::new(limits));
    }

    /// Has requests audited from now on, or not any more.
    pub fn audit_with(&self, log: Option<Rc<dyn AuditLog>>) {
        self.audit.replace(log);
    }

    /// A time UUID of now, as `now()` gives them.
    pub fn time_uuid(&self) -> [u8; 16] {
        self.call.time_uuid()
    }

    /// A directory decides on the roles of roles from now on, and not the schema: [`Self::set_directory_roles`] sets them.
    pub fn follow_directory(&self) {
        self.access.follow_directory();
    }

    /// The roles of a role by its groups in the directory; none when they are not known (any more).
    pub fn set_directory_roles(&self, role: &str, roles: Option<BTreeSet<String>>) {
        self.access.set_directory_roles(role, roles);
    }

    /// Whether there is an audit log.
    #[inline]
    pub fn is_audited(&self) -> bool {
        self.audit.borrow().is_some()
    }

    /// Adds a request that has ended to the audit log, where the log wants it. Without an event the request was not understood.
    pub async fn audit(
        &self,
        principal: &Principal<'_>,
        event: Option<AuditEvent>,
        operation: impl FnOnce() -> String,
        outcome: AuditOutcome,
    ) {
        let Some(log) = self.audit.borrow().clone() else { return };
        let mut event = event.unwrap_or_else(|| AuditEvent::new("REQUEST_FAILURE", AuditCategory::Error));
        let failure = match outcome {
            AuditOutcome::Succeeded => None,
            AuditOutcome::Unauthorized(text) => {
                (event.kind, event.category) = ("UNAUTHORIZED_ATTEMPT".to_owned(), AuditCategory::Auth);
                Some(text)
            }
            AuditOutcome::Failed(text) => {
                (event.kind, event.category) = ("REQUEST_FAILURE".to_owned(), AuditCategory::Error);
                Some(text)
            }
        };
        if !log.admits(&event, principal.role) {
            return;
        }
        let entry = AuditEntry {
            event,
            user: principal.role.map(str::to_owned),
            source: principal.address,
            millis: self.clock.wall_micros() / 1_000,
            operation: operation(),
            failure,
        };
        log.record(entry).await;
    }

    /// Lets clients change settings of the node from now on, by UPDATE of the tables that show them.
    pub fn change_settings_with(&self, change: SettingChange) {
        self.change_settings.replace(Some(change));
    }

    /// How the requests of a client are served: by the service levels of its role under the present schema.
    pub fn service_level(&self, role: Option<&str>) -> Rc<ServiceLevel> {
        match role {
            Some(role) => self.access.service_level(&self.coordinator.schema(), role),
            None => self.default_service_level.clone(),
        }
    }

    /// The place of the service level that gives a client its shares, among all in the order of their names; none for the default, and for
    /// those that have no scheduling group.
    pub fn level_place(&self, role: Option<&str>) -> Option<usize> {
        let place = role.and_then(|role| self.access.level_place(&self.coordinator.schema(), role));
        place.filter(|place| *place < Group::LEVELS.len())
    }

    /// The service level of clients that have none of their own.
    pub fn default_service_level(&self) -> &ServiceLevel {
        &self.default_service_level
    }

    /// The log lines of statements that were slow since the last time.
    pub fn report_slow(&self) -> Option<String> {
        self.watch.report(self.clock.now())
    }

    /// The statements that were executed, by their kind.
    pub fn statement_counts(&self) -> &StatementCounts {
        &self.counts
    }

    /// How many partitions batches of each kind had.
    pub fn batch_sizes(&self) -> BatchFigures {
        self.batches.figures(self.clock.now())
    }

    /// Begins to measure a statement; none when slow ones are not logged.
    pub fn begin(&self) -> Option<Instant> {
        self.watch.begin(&*self.clock)
    }

    /// A request has ended that had nothing to wait for; slow ones are logged by their text.
    #[inline]
    pub(crate) fn end_request(&self, request: &Request<'_>, text: impl FnOnce() -> String) {
        if self.watch.names_slow() {
            self.end(Some(request.began), text);
        }
    }

    /// A statement that [`Executor::begin`] measures has ended; slow ones are logged by their text.
    pub fn end(&self, began: Option<Instant>, text: impl FnOnce() -> String) {
        self.watch.end(began, &*self.clock, text);
    }

    /// Begins a trace, when the client `wanted` one, by chance, or in case the request turns out to be slow.
    pub fn begin_trace(&self, wanted: bool, about: impl FnOnce() -> Traced) -> Option<Trace> {
        let reason = self.watch.reason(wanted, &*self.clock)?;
        let shard = self.coordinator.shard();
        Some(Trace::begin(&self.call, shard, (reason, self.watch.slow_tracing()), about()))
    }

    /// Whether requests are traced that no client wants traced.
    #[inline]
    pub fn traces_unasked(&self) -> bool {
        self.watch.traces_unasked()
    }

    /// Records a step of a trace.
    #[inline]
    pub fn note(&self, trace: Option<&Trace>, activity: impl FnOnce() -> String) {
        if let Some(trace) = trace {
            trace.note(self.clock.now(), activity);
        }
    }

    /// Ends a trace and writes it to `system_traces`, unless it was begun in case the request is slow, and that it was not; false when that is not
    /// possible.
    pub async fn end_trace(&self, trace: Trace, principal: &Principal<'_>) -> bool {
        self.note(Some(&trace), || "Request complete".to_owned());
        let schema = self.coordinator.schema();
        let updates = trace.updates(&schema, &self.call, principal, self.node.address);
        let options = WriteOptions {
            consistency: Consistency::One,
            kind: WriteKind::UnloggedBatch,
            deadline: self.clock.now() + self.limits().write_timeout,
        };
        updates.is_empty() || self.coordinator.write(updates, options).await.is_ok()
    }

    /// The context of a request.
    pub fn request<'a>(
        &'a self,
        caller: &'a Caller<'a>,
        parameters: &'a Parameters,
        keyspace: Option<&'a str>,
        trace: Option<&'a Trace>,
    ) -> Request<'a> {
        Request::new(caller, parameters, keyspace, trace, &*self.clock, self.limits())
    }

    /// Time and randomness.
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// A timestamp that no statement of this shard had before.
    pub fn timestamp(&self) -> Timestamp {
        self.timestamp_at(self.clock.wall_micros())
    }

    /// The same at a time of the clock that was just read.
    #[inline]
    fn timestamp_at(&self, wall_micros: i64) -> Timestamp {
        let timestamp = wall_micros.max(self.last_timestamp.get() + 1);
        self.last_timestamp.set(timestamp);
        self.clock.issued(timestamp)
    }

    /// Runs a plan with these values.
    ///
    /// # Errors
    /// When the values do not fit the statement, or the cluster cannot carry it out. Rows that the sink has taken until then are
    /// not to be used.
    pub async fn run<S: Sink>(
        &self,
        plan: &Plan,
        binds: &Binds,
        request: &mut Request<'_>,
        sink: &mut S,
    ) -> Result<Outcome> {
        if self.access.is_enabled() {
            let (schema, principal) = (self.coordinator.schema(), &request.caller.principal);
            self.access.check(plan, principal, request.keyspace, &schema)?;
        }
        let called;
        let binds = match plan.calls() {
            [] => binds,
            calls => {
                let statement = std::iter::once((calls, binds));
                called = Box::pin(self.call_functions(statement, request, sink)).await?.pop();
                called.as_ref().unwrap_or(binds)
            }
        };
        self.check_guardrails(plan, binds, request, sink)?;
        self.counts.statement(plan, request);
        match plan {
            Plan::Select(plan) => {
                self.select(self.seen(plan, request), binds, request, sink).await?;
                Ok(Outcome::Rows)
            }
            Plan::Modification(plan) if !plan.conditions.is_empty() => {
                request.take_timeout(plan.timeout.as_ref(), &Env::new(binds, &self.call))?;
                Box::pin(self.conditional(&[(plan, binds)], false, request, sink)).await
            }
            Plan::Modification(plan) => {
                let timestamp = request.timestamp.unwrap_or_else(|| self.timestamp());
                let env = Env::new(binds, &self.call);
                request.take_timeout(plan.timeout.as_ref(), &env)?;
                let mut update = None;
                plan.update_now(request, &env, timestamp, &mut update)?;
                if update.is_some() && self.modify_now(&mut update, request, sink)? {
                    return Ok(Outcome::Void);
                }
                self.modify(plan, &env, (update.into_iter().collect(), timestamp), request, sink).await?;
                Ok(Outcome::Void)
            }
            Plan::Batch(plan) => {
                let env = Env::new(binds, &self.call);
                let default = request.timestamp.unwrap_or_else(|| self.timestamp());
                let timestamp = plan.timestamp(&env, default)?;
                request.take_timeout(plan.timeout.as_ref(), &env)?;
                let plans: Vec<_> = plan.statements.iter().map(|statement| (statement, binds)).collect();
                self.write_batch(plan.kind, &plans, request, timestamp, sink).await
            }
            Plan::Truncate(plan) => {
                request.take_timeout(plan.timeout.as_ref(), &Env::new(binds, &self.call))?;
                let deadline = request.deadline(TimeoutKind::Truncate);
                self.coordinator.truncate(&plan.table, deadline).await?;
                Ok(Outcome::Void)
            }
            Plan::Prune(plan) => {
                let env = Env::new(binds, &self.call);
                request.take_timeout(plan.select.timeout.as_ref(), &env)?;
                Box::pin(prune::run(plan, &self.coordinator, request, &env)).await?;
                Ok(Outcome::Void)
            }
            Plan::Setting(plan) => {
                self.change_setting(plan, &Env::new(binds, &self.call)).await?;
                Ok(Outcome::Void)
            }
            Plan::Other(statement) => self.other(statement, request, sink).await,
        }
    }

    /// Runs a plan that has nothing to wait for: the lookup of a row in this shard's memory, or one update that this shard alone stores. None
    /// when [`Executor::run`] is to be used: then nothing was written or counted, and the sink has taken nothing.
    ///
    /// # Errors
    /// Those of [`Executor::run`].
    #[inline]
    pub fn run_now<S: Sink>(
        &self,
        plan: &Plan,
        binds: &Binds,
        request: &mut Request<'_>,
        sink: &mut S,
    ) -> Result<Option<Outcome>> {
        if self.is_guarded.get() || !plan.calls().is_empty() {
            return Ok(None);
        }
        if self.access.is_enabled() {
            let (schema, principal) = (self.coordinator.schema(), &request.caller.principal);
            self.access.check(plan, principal, request.keyspace, &schema)?;
        }
        let env = Env::new(binds, &self.call);
        let outcome = match plan {
            Plan::Select(plan) if request.consistency != Consistency::Any => {
                request.take_timeout(plan.timeout.as_ref(), &env)?;
                let plan = self.seen(plan, request);
                let read = select::run::run_now(plan, &self.coordinator, request, &env, sink)?;
                read.map(|_| Outcome::Rows)
            }
            Plan::Modification(plan) if plan.conditions.is_empty() => {
                let timestamp = request.timestamp.unwrap_or_else(|| self.timestamp_at(request.began_micros));
                request.take_timeout(plan.timeout.as_ref(), &env)?;
                let mut update = None;
                plan.update_now(request, &env, timestamp, &mut update)?;
                let is_written = update.is_some() && self.modify_now(&mut update, request, sink)?;
                is_written.then_some(Outcome::Void)
            }
            _ => None,
        };
        if outcome.is_some() {
            self.counts.statement(plan, request);
        }
        Ok(outcome)
    }

    async fn change_setting(&self, plan: &SettingPlan, env: &Env<'_>) -> Result<()> {
        let (name, value) = match plan.evaluate(env)? {
            ComputedChange::Setting(name, value) => (name, value),
            ComputedChange::CidrGroup(name, cidrs) => return self.change_cidr_group(name, cidrs).await,
        };
        let changed = match &*self.change_settings.borrow() {
            Some(change) => change(&name, &value),
            None => return invalid!("Modification is not supported by table {}", plan.table.full_name()),
        };
        changed.await.map_err(ExecError::Invalid)
    }

    /// Adds or replaces a group of addresses, or removes it without ranges.
    async fn change_cidr_group(&self, name: String, cidrs: Option<BTreeSet<Cidr>>) -> Result<()> {
        let edit = match cidrs {
            Some(cidrs) => SchemaEdit::PutCidrGroup(CidrGroup { name, cidrs }),
            None => SchemaEdit::DropCidrGroup(name),
        };
        self.change_schema_by(None, |_, _, _| Ok(vec![edit.clone()])).await
    }

    /// A SELECT as its caller may see the table: with masks in the place of columns, or without.
    fn seen<'p>(&self, plan: &'p SelectPlan, request: &Request<'_>) -> &'p SelectPlan {
        let Some(masked) = &plan.masked else { return plan };
        match self.access.may_unmask(&plan.table, &request.caller.principal, &self.coordinator.schema()) {
            true => plan,
            false => &masked.plan,
        }
    }

    /// The guardrails over a request, where there are any and they bind its role.
    fn guard<'r>(&self, request: &'r Request<'_>) -> Option<Guard<'r>> {
        if self.is_guarded.get() { self.guard_of_role(request) } else { None }
    }

    /// The guardrails over a request, if they bind its role.
    fn guard_of_role<'r>(&self, request: &'r Request<'_>) -> Option<Guard<'r>> {
        let performer = self.access.performer(&self.coordinator.schema(), &request.caller.principal)?;
        (!performer.access.is_superuser).then(|| Guard::new(&request.limits.guardrails))
    }

    /// Refuses a plan that breaks a guardrail; changes of the schema are looked at when they are planned.
    fn check_guardrails<S: Sink>(
        &self,
        plan: &Plan,
        binds: &Binds,
        request: &Request<'_>,
        sink: &mut S,
    ) -> Result<()> {
        let Some(mut guard) = self.guard(request) else { return Ok(()) };
        let (env, now) = (Env::new(binds, &self.call), self.clock.wall_micros());
        let checked = match plan {
            Plan::Select(plan) => guard.select(plan, request, &env),
            Plan::Modification(plan) => guard.modification(plan, request, &env, now),
            Plan::Batch(plan) => {
                let timestamp = if plan.has_timestamp() { guard.timestamp() } else { Ok(()) };
                let check = |statement: &ModificationPlan| guard.modification(statement, request, &env, now);
                timestamp.and_then(|()| plan.statements.iter().try_for_each(check))
            }
            Plan::Truncate(_) => guard.drop_or_truncate(),
            Plan::Prune(_) | Plan::Setting(_) | Plan::Other(_) => Ok(()),
        };
        warn(guard, checked, sink)
    }

    /// Refuses values that break a guardrail.
    fn check_values<S: Sink>(
        &self,
        updates: &[PartitionUpdate],
        request: &Request<'_>,
        sink: &mut S,
    ) -> Result<()> {
        let has_index = || updates.iter().any(|update| !update.table.indexes.is_empty());
        let is_guarded = self.is_guarded.get() || (has_index() && request.limits.guardrails.binds_terms());
        let guard = if is_guarded { self.guard_of_role(request) } else { None };
        let Some(mut guard) = guard else { return Ok(()) };
        let checked = guard.updates(updates);
        warn(guard, checked, sink)
    }

    /// Runs modifications, each with its own values, as one batch.
    ///
    /// # Errors
    /// Those of [`Executor::run`], and when the statements may not stand together in a batch.
    pub async fn run_batch<S: Sink>(
        &self,
        kind: BatchKind,
        statements: &[(&ModificationPlan, &Binds)],
        request: &Request<'_>,
        sink: &mut S,
    ) -> Result<Outcome> {
        if self.access.is_enabled() {
            let (schema, principal) = (self.coordinator.schema(), &request.caller.principal);
            let check =
                |(plan, _): &(&ModificationPlan, _)| self.access.check_modification(plan, principal, &schema);
            statements.iter().try_for_each(check)?;
        }
        if let Some(mut guard) = self.guard(request) {
            let now = self.clock.wall_micros();
            let checked = statements.iter().try_for_each(|(plan, binds)| {
                guard.modification(plan, request, &Env::new(binds, &self.call), now)
            });
            warn(guard, checked, sink)?;
        }
        batch::check(kind, statements.iter().map(|(plan, _)| *plan))?;
        let timestamp = request.timestamp.unwrap_or_else(|| self.timestamp());
        if statements.iter().all(|(plan, _)| plan.calls.is_empty()) {
            return self.write_batch(kind, statements, request, timestamp, sink).await;
        }
        let calls = statements.iter().map(|(plan, binds)| (&plan.calls[..], *binds));
        let called = Box::pin(self.call_functions(calls, request, sink)).await?;
        let statements: Vec<_> =
            statements.iter().zip(&called).map(|((plan, _), binds)| (*plan, binds)).collect();
        self.write_batch(kind, &statements, request, timestamp, sink).await
    }

    /// Calls the user-defined functions of the terms of statements, within the time and the bytes of one request; the values of each statement.
    async fn call_functions<'s, S: Sink>(
        &self,
        statements: impl Iterator<Item = (&'s [UserCall], &'s Binds)>,
        request: &Request<'_>,
        sink: &mut S,
    ) -> Result<Vec<Binds>> {
        let mut caller = calls::Caller::new(&self.functions, request.time_left(TimeoutKind::Range));
        let mut called = Ok(Vec::new());
        for (calls, binds) in statements {
            let Ok(done) = &mut called else { break };
            match caller.statement(calls, binds, &self.call).await {
                Ok(binds) => done.push(binds),
                Err(error) => called = Err(error),
            }
        }
        caller.warnings.into_iter().for_each(|warning| sink.warn(warning));
        called
    }

    async fn select<S: Sink>(
        &self,
        plan: &SelectPlan,
        binds: &Binds,
        request: &mut Request<'_>,
        sink: &mut S,
    ) -> Result<()> {
        request.consistency = match request.consistency {
            Consistency::Any => return invalid!("ANY ConsistencyLevel is only supported for writes"),
            // Only the write of one partition can be agreed on: a scan sees the rows of a majority.
            Consistency::Serial if !plan.access.names_partitions() => Consistency::Quorum,
            Consistency::LocalSerial if !plan.access.names_partitions() => Consistency::LocalQuorum,
            other => other,
        };
        request.take_timeout(plan.timeout.as_ref(), &Env::new(binds, &self.call))?;
        request.note(|| format!("Reading from {} by {}", plan.table.full_name(), plan.access.name()));
        let env = Env::new(binds, &self.call);
        let bytes = select::run::run(plan, &self.coordinator, request, &env, &self.functions, sink).await?;
        request.note(|| format!("Read {bytes} bytes of rows"));
        Ok(())
    }

    /// Does a part of another shard's aggregation, as [`Coordinator::ask_for_part`] sent it: the states of its rows as a message.
    ///
    /// # Errors
    /// The reason why it is not done: the other shard does it itself then.
    pub async fn aggregate_part(
        &self,
        body: &bytes::Bytes,
        deadline: Instant,
    ) -> Result<bytes::Bytes, String> {
        let around = (&self.coordinator, &self.call, &*self.clock);
        part_server::serve(around, self.limits(), body, deadline).await
    }

    fn write_options(
        &self,
        request: &Request<'_>,
        kind: WriteKind,
        timeout: TimeoutKind,
    ) -> Result<WriteOptions> {
        check_not_serial(request)?;
        Ok(WriteOptions { consistency: request.consistency, kind, deadline: request.deadline(timeout) })
    }

    /// Writes the only update of a modification if nothing has to be waited for, and says whether it is written: otherwise
    /// [`Executor::modify`] is to be used. The usual errors come from here, too.
    fn modify_now<S: Sink>(
        &self,
        update: &mut Option<PartitionUpdate>,
        request: &Request<'_>,
        sink: &mut S,
    ) -> Result<bool> {
        if request.trace_log().is_some() || request.has_no_time() {
            return Ok(false);
        }
        check_not_serial(request)?;
        if update.as_ref().is_some_and(PartitionUpdate::is_empty) {
            return Ok(true);
        }
        self.check_values(update.as_slice(), request, sink)?;
        self.coordinator.write_now(update, request.consistency);
        Ok(update.is_none())
    }

    /// Carries out a modification, of which the updates may be known already; `timestamp` is that of a statement that gives none.
    async fn modify<S: Sink>(
        &self,
        plan: &ModificationPlan,
        env: &Env<'_>,
        (mut updates, timestamp): (Vec<PartitionUpdate>, Timestamp),
        request: &Request<'_>,
        sink: &mut S,
    ) -> Result<()> {
        if updates.is_empty() {
            plan.updates(&self.coordinator, request, env, timestamp, &mut updates).await?;
            self.check_values(&updates, request, sink)?;
        }
        request.note(|| format!("Writing {} partition(s) of {}", updates.len(), plan.table.full_name()));
        self.write(plan.is_counter() && plan.counts(), WriteKind::Simple, updates, request).await?;
        request.note(|| "Write acknowledged".to_owned());
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
            if request.consistency.is_serial() {
                return invalid!("Counter operations are inherently non-serializable");
            }
            let options = self.write_options(request, WriteKind::Counter, TimeoutKind::Counter)?;
            match request.trace_log() {
                None => self.coordinator.increment(updates, options).await?,
                Some(trace) => {
                    Box::pin(self.coordinator.traced(trace).increment(updates, options)).await?;
                }
            }
        } else {
            let options = self.write_options(request, kind, TimeoutKind::Write)?;
            match request.trace_log() {
                None => self.coordinator.write(updates, options).await?,
                // Kept apart, so that the future of a write that is not traced stays small.
                Some(trace) => Box::pin(self.coordinator.traced(trace).write(updates, options)).await?,
            }
        }
        Ok(())
    }

    /// A conditional statement, or a batch with one in it.
    async fn conditional<S: Sink>(
        &self,
        statements: &[(&ModificationPlan, &Binds)],
        is_batch: bool,
        request: &Request<'_>,
        sink: &mut S,
    ) -> Result<Outcome> {
        request.note(|| "Executing a conditional statement".to_owned());
        let schema = self.coordinator.schema();
        let table = statements.first().map(|(plan, _)| &plan.table);
        let is_masked = table.is_some_and(|table| {
            table.masked_columns().next().is_some()
                && !self.access.may_unmask(table, &request.caller.principal, &schema)
        });
        let masks = is_masked.then_some((&*schema, &self.functions));
        conditional::run(&self.coordinator, statements, is_batch, request, (&self.call, masks), sink).await?;
        request.note(|| "Conditional statement decided".to_owned());
        Ok(Outcome::Rows)
    }

    async fn write_batch<S: Sink>(
        &self,
        kind: BatchKind,
        statements: &[(&ModificationPlan, &Binds)],
        request: &Request<'_>,
        timestamp: Timestamp,
        sink: &mut S,
    ) -> Result<Outcome> {
        let is_conditional = batch::is_conditional(statements.iter().map(|(plan, _)| *plan));
        self.counts.batch(statements.len(), is_conditional);
        if is_conditional {
            return Box::pin(self.conditional(statements, true, request, sink)).await;
        }
        let (mut updates, mut increments) = (Vec::with_capacity(statements.len()), Vec::new());
        let mut pace = rt::preempt::Pace::new();
        for (plan, binds) in statements {
            pace.step().await;
            let env = Env::new(binds, &self.call);
            let target = if plan.is_counter() && plan.counts() { &mut increments } else { &mut updates };
            plan.updates(&self.coordinator, request, &env, timestamp, target).await?;
        }
        let (updates, increments) = (batch::merge(updates).await, batch::merge_increments(increments));
        let warnings = batch::check_size(kind, updates.iter().chain(&increments), &request.limits)?;
        self.check_values(&updates, request, sink)?;
        request.note(|| format!("Writing a batch of {} partition(s)", updates.len() + increments.len()));
        self.batches.count(kind, updates.len() + increments.len(), self.clock.now());
        let write_kind = match kind {
            BatchKind::Logged if updates.len() > 1 => WriteKind::Batch,
            BatchKind::Logged => WriteKind::Simple,
            BatchKind::Unlogged => WriteKind::UnloggedBatch,
            BatchKind::Counter => WriteKind::Counter,
        };
        self.write(false, write_kind, updates, request).await?;
        self.write(true, WriteKind::Counter, increments, request).await?;
        warnings.into_iter().for_each(|warning| sink.warn(warning));
        Ok(Outcome::Void)
    }

    async fn other<S: Sink>(
        &self,
        statement: &Statement,
        request: &Request<'_>,
        sink: &mut S,
    ) -> Result<Outcome> {
        let schema = self.coordinator.schema();
        let lookup = Lookup { schema: &schema };
        match statement {
            Statement::Use(ast) => {
                let name = &ast.keyspace.name;
                if lookup.keyspace(name).is_none() {
                    return invalid!("Keyspace '{name}' does not exist");
                }
                Ok(Outcome::Keyspace(name.clone()))
            }
            Statement::Describe(ast) => {
                let cluster = (&self.node, &*self.coordinator.view());
                let performer = self.access.performer(&schema, &request.caller.principal);
                describe::run(ast, &lookup, (cluster, performer.as_ref()), request, sink)?;
                Ok(Outcome::Rows)
            }
            statement if roles::is_change(statement) => self.change_roles(statement, request, sink).await,
            statement if roles::is_about_roles(statement) => {
                let view = self.coordinator.view();
                roles::list(statement, &self.role_context(statement, (&schema, &view), request)?, sink)
            }
            _ => self.change_schema(statement, request, sink).await,
        }
    }

    fn role_context<'a>(
        &'a self,
        statement: &Statement,
        (schema, view): (&'a Arc<Schema>, &'a ClusterView),
        request: &'a Request<'_>,
    ) -> Result<RoleContext<'a>> {
        let performer = match self.access.performer(schema, &request.caller.principal) {
            Some(performer) => performer,
            // As in ScyllaDB, whose authorizer alone decides on service levels.
            None if roles::is_about_levels(statement) && !self.access.is_enabled() => Performer::anyone(),
            None => return unauthorized(ANONYMOUS),
        };
        Ok(RoleContext { schema, performer, keyspace: request.keyspace, view, limits: &request.limits })
    }

    /// Carries out a statement that changes roles. A password is hashed once, regardless of other changes meanwhile.
    async fn change_roles<S: Sink>(
        &self,
        statement: &Statement,
        request: &Request<'_>,
        sink: &mut S,
    ) -> Result<Outcome> {
        let (mut hash, mut generated) = (None, None);
        let mut tries = 0;
        while tries < SCHEMA_CHANGE_TRIES_MAX {
            let (schema, view) = (self.coordinator.schema(), self.coordinator.view());
            let context = self.role_context(statement, (&schema, &view), request)?;
            let change = match roles::plan(statement, &context, hash.as_deref())? {
                Planned::Hash(password) => {
                    let password = match password {
                        Password::Plain(text) => text,
                        _ => generated.insert(auth::password::generated(self.clock.random())).clone(),
                    };
                    let made = Hash::new(&password, request.limits.bcrypt_cost, self.clock.random()).await;
                    hash = Some(made.to_string());
                    continue;
                }
                Planned::Change(change) => change,
            };
            tries += 1;
            if self.propose(&schema, change.edits, None).await? {
                change.warnings.into_iter().for_each(|warning| sink.warn(warning));
                if let Some(password) = generated {
                    roles::show_generated(&password, sink);
                    return Ok(Outcome::Rows);
                }
                return Ok(Outcome::Void);
            }
        }
        Err(moved())
    }

    /// Refuses statements for which a role has no permission, on a node with authorization.
    ///
    /// # Errors
    /// `Unauthorized`, with the permission that is missing.
    pub fn authorize(&self, role: Option<&str>, permission: Permission, resource: &Resource) -> Result<()> {
        self.access.authorize(&self.coordinator.schema(), role, permission, resource)
    }

    /// Changes the schema as `plan` says, which is given the schema, the cluster, and an id for a new table. It is called again when
    /// others change the schema meanwhile; without edits nothing is changed. `creator` has every permission on the created object.
    ///
    /// # Errors
    /// Those of `plan`, and when the cluster cannot make the change.
    pub async fn change_schema_by<E: From<ExecError>>(
        &self,
        creator: Option<&str>,
        plan: impl Fn(&Schema, &ClusterView, [u8; 16]) -> std::result::Result<Vec<SchemaEdit>, E>,
    ) -> std::result::Result<(), E> {
        for _ in 0..SCHEMA_CHANGE_TRIES_MAX {
            let (schema, view) = (self.coordinator.schema(), self.coordinator.view());
            let mut edits = plan(&schema, &view, self.call.time_uuid())?;
            edits.extend(roles::effects(&schema, &edits, creator));
            if self.propose(&schema, edits, None).await? {
                return Ok(());
            }
        }
        Err(moved().into())
    }

    /// Proposes edits that were planned against a schema, and of which one gives a new table an id; false when it is not the schema any more.
    async fn propose(
        &self,
        schema: &Schema,
        edits: Vec<SchemaEdit>,
        given_id: Option<TableId>,
    ) -> Result<bool> {
        if edits.is_empty() {
            return Ok(true);
        }
        let base = schema.version();
        let checked = match given_id {
            Some(id) => self.coordinator.check_given_id(base, id).await,
            None => Ok(()),
        };
        let changed = match checked {
            Ok(()) => self.coordinator.change_schema(base, edits).await,
            refused => refused,
        };
        match changed {
            Ok(()) => Ok(true),
            Err(SchemaChangeError::Moved) => Ok(false),
            Err(SchemaChangeError::Invalid(text)) => Err(ExecError::Invalid(text)),
            // As a write that too few replicas acknowledged in time: it is made, and clients may not count on it yet.
            Err(SchemaChangeError::Behind { used, live }) => {
                Err(ExecError::Request(RequestError::WriteTimeout {
                    consistency: Consistency::All,
                    received: used,
                    required: live,
                    kind: WriteKind::Simple,
                }))
            }
            Err(SchemaChangeError::Failed(text)) => Err(ExecError::SchemaNotSaved(text)),
        }
    }

    async fn change_schema<S: Sink>(
        &self,
        statement: &Statement,
        request: &Request<'_>,
        sink: &mut S,
    ) -> Result<Outcome> {
        // Without authorization no role needs permissions on objects that it creates.
        let creator = request.caller.principal.role.filter(|_| self.access.is_enabled());
        for _ in 0..SCHEMA_CHANGE_TRIES_MAX {
            let (schema, view) = (self.coordinator.schema(), self.coordinator.view());
            let context = DdlContext {
                lookup: Lookup { schema: &schema },
                keyspace: request.keyspace,
                view: &view,
                table_id: self.call.time_uuid(),
                default_keyspace_rf: request.limits.default_keyspace_rf,
                now_micros: self.timestamp(),
                functions: &request.limits.functions,
                materialized_views: request.limits.materialized_views,
                data_masking: request.limits.data_masking,
            };
            if let Some(mut guard) = self.guard_of_role(request) {
                let checked = guard.schema_statement(statement, request.keyspace, &schema);
                if checked.is_err() {
                    return warn(guard, checked, sink).map(|()| Outcome::Void);
                }
            }
            let mut outcome = ddl::plan(statement, &context)?;
            if let Some(mut guard) = self.guard_of_role(request) {
                let checked = guard.schema_change(statement, &schema, &outcome.edits);
                if checked.is_err() {
                    return warn(guard, checked, sink).map(|()| Outcome::Void);
                }
                outcome.warnings.splice(..0, guard.warnings);
            }
            // An ALTER without effect answers as no change. The log of the cluster still decides, for this node may be behind it.
            let is_made = !outcome.edits.is_empty() && outcome.edits.iter().all(|edit| edit.is_made(&schema));
            outcome.edits.extend(roles::effects(&schema, &outcome.edits, creator));
            if self.propose(&schema, outcome.edits, outcome.given_id).await? {
                outcome.warnings.into_iter().for_each(|warning| sink.warn(warning));
                let change = outcome.change.filter(|_| !is_made);
                return Ok(change.map_or(Outcome::Void, Outcome::SchemaChange));
            }
        }
        Err(moved())
    }
}

/// Hands on the warnings of guardrails, which a client gets with a refusal too, as in Cassandra.
fn warn<S: Sink>(guard: Guard<'_>, checked: Result<()>, sink: &mut S) -> Result<()> {
    guard.warnings.into_iter().for_each(|warning| sink.warn(warning));
    checked
}

/// The schema was another one each time.
fn moved() -> ExecError {
    ExecError::SchemaNotSaved(format!(
        "The schema was changed by others {SCHEMA_CHANGE_TRIES_MAX} times while this statement tried to; try again"
    ))
}
