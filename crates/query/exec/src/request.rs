//! The context of a request: its caller, its parameters beside statement and values, its deadlines and its trace, and the
//! limits that the node's configuration sets.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use coordinator::Consistency;
use mutation::{Seconds, Timestamp};
use replica::TraceLog;
use rt::Instant;
use schema::{ServiceLevel, Table};
use types::CqlType;

use crate::backend::Clock;
use crate::error::{Result, invalid};
use crate::expr::resolve::{Receiver, Resolver};
use crate::expr::{Env, Expr, Value};
use crate::guardrails::Guardrails;
use crate::principal::Principal;
use crate::sink::PagingState;
use crate::trace::{SlowTracing, Trace};

/// Settings of statement execution, each by its name in the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecLimits {
    /// `read_request_timeout`
    pub read_timeout: Duration,
    /// `range_request_timeout`
    pub range_timeout: Duration,
    /// `write_request_timeout`
    pub write_timeout: Duration,
    /// `counter_write_request_timeout`
    pub counter_timeout: Duration,
    /// `cas_contention_timeout`
    pub cas_contention_timeout: Duration,
    /// `truncate_request_timeout`
    pub truncate_timeout: Duration,
    /// `batch_size_warn_threshold`, in bytes.
    pub batch_warn_bytes: usize,
    /// `batch_size_fail_threshold`, in bytes.
    pub batch_fail_bytes: usize,
    /// `unlogged_batch_across_partitions_warn_threshold`
    pub batch_partitions_warn: usize,
    /// `tombstone_warn_threshold`
    pub tombstone_warn_threshold: u32,
    /// `trace_probability`: the share of requests, from 0 to 1, that are traced although their client does not ask for it.
    pub trace_probability: f64,
    /// `slow_query_log_timeout`; zero for none.
    pub slow_after: Duration,
    /// `slow_query_tracing…`
    pub slow_tracing: SlowTracing,
    /// `prepared_statements_cache_size`, in bytes.
    pub prepared_bytes: usize,
    /// Whether `authorizer` asks for permissions.
    pub authorizes: bool,
    /// Whether `network_authorizer` looks at the datacenters of roles.
    pub restricts_datacenters: bool,
    /// Whether `cidr_authorizer` has roles log in only from their groups of addresses.
    pub restricts_addresses: bool,
    /// Whether `role_manager` has a directory decide on the roles of roles.
    pub directory_roles: bool,
    /// `auth_bcrypt_gensalt_log2_rounds`, the cost of passwords' hashes.
    pub bcrypt_cost: u32,
    /// `materialized_views_enabled`
    pub materialized_views: bool,
    /// `default_keyspace_rf`
    pub default_keyspace_rf: u32,
    /// `dynamic_data_masking_enabled`
    pub data_masking: bool,
    /// `user_defined_functions_…`
    pub functions: udf::Limits,
    /// The limits on requests of ordinary roles.
    pub guardrails: Guardrails,
}

impl Default for ExecLimits {
    fn default() -> Self {
        Self {
            read_timeout: Duration::from_secs(5),
            range_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(2),
            counter_timeout: Duration::from_secs(5),
            cas_contention_timeout: Duration::from_millis(1800),
            truncate_timeout: Duration::from_secs(60),
            batch_warn_bytes: 5 << 10,
            batch_fail_bytes: 50 << 10,
            batch_partitions_warn: 10,
            tombstone_warn_threshold: 1000,
            trace_probability: 0.0,
            slow_after: Duration::from_millis(500),
            slow_tracing: SlowTracing::default(),
            prepared_bytes: 10 << 20,
            authorizes: false,
            restricts_datacenters: false,
            restricts_addresses: false,
            directory_roles: false,
            bcrypt_cost: auth::password::COST_DEFAULT,
            materialized_views: true,
            default_keyspace_rf: 1,
            data_masking: false,
            functions: udf::Limits::default(),
            guardrails: Guardrails::default(),
        }
    }
}

/// The parameters of a request beside its statement and values. A front end translates its protocol's parameters into this.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Consistency level.
    pub consistency: Consistency,
    /// Consistency level of the agreement that conditional statements and serial reads need.
    pub serial_consistency: Consistency,
    /// Rows of a page; none without paging.
    pub page_size: Option<u32>,
    /// Where to go on.
    pub paging_state: Option<PagingState>,
    /// The timestamp of writes that name none, in microseconds; none for the node's.
    pub timestamp: Option<Timestamp>,
    /// The time at which cells are live or expired, in seconds since 1970; none for the present.
    pub now: Option<Seconds>,
    /// The time after which no client waits for the response any more: no operation on the cluster waits longer, regardless of its own timeout.
    /// None where the operations' timeouts alone decide, as in the native protocol.
    pub deadline: Option<Instant>,
}

/// The common part of all requests of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The caller.
    pub principal: Principal<'a>,
    /// How they are served: the service level of the role.
    pub service_level: &'a ServiceLevel,
}

impl Parameters {
    /// Nothing but a consistency level.
    pub fn new(consistency: Consistency) -> Self {
        Self {
            consistency,
            serial_consistency: Consistency::Serial,
            page_size: None,
            paging_state: None,
            timestamp: None,
            now: None,
            deadline: None,
        }
    }
}

/// The operations on the cluster that have timeouts of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutKind {
    /// A read of named partitions.
    Read,
    /// A read of a token range.
    Range,
    /// A write.
    Write,
    /// An increment of counters.
    Counter,
    /// TRUNCATE.
    Truncate,
}

/// The context of a request, which is passed down from the front end to each operation on the cluster.
pub struct Request<'a> {
    /// The caller, and how it is served.
    pub caller: &'a Caller<'a>,
    /// The keyspace of unqualified names.
    pub keyspace: Option<&'a str>,
    /// Consistency level.
    pub consistency: Consistency,
    /// Consistency level of the agreement that conditional statements and serial reads need.
    pub serial_consistency: Consistency,
    /// Rows of a page; none without paging.
    pub page_size: Option<u32>,
    /// Where to go on.
    pub paging_state: Option<&'a PagingState>,
    /// The timestamp of writes that name none.
    pub timestamp: Option<Timestamp>,
    /// The time at which cells are live or expired.
    pub now: Seconds,
    /// When it began.
    pub(crate) began: Instant,
    /// The same in microseconds of the wall clock.
    pub(crate) began_micros: i64,
    /// The timeout of each operation on the cluster that the statement or the service level gives; none for the node's.
    timeout: Option<Duration>,
    /// When nobody waits for the response any more.
    deadline: Option<Instant>,
    /// The clock that deadlines are made of.
    clock: &'a dyn Clock,
    /// The node's settings.
    pub limits: Rc<ExecLimits>,
    /// The steps of a traced request.
    pub trace: Option<&'a Trace>,
}

impl<'a> Request<'a> {
    /// A request with a client's parameters.
    pub fn new(
        caller: &'a Caller<'a>,
        parameters: &'a Parameters,
        keyspace: Option<&'a str>,
        trace: Option<&'a Trace>,
        clock: &'a dyn Clock,
        limits: Rc<ExecLimits>,
    ) -> Self {
        let began_micros = clock.wall_micros();
        let present = || u32::try_from(began_micros.div_euclid(1_000_000)).unwrap_or(0);
        Self {
            caller,
            keyspace,
            consistency: parameters.consistency,
            serial_consistency: parameters.serial_consistency,
            page_size: parameters.page_size,
            paging_state: parameters.paging_state.as_ref(),
            timestamp: parameters.timestamp,
            now: parameters.now.unwrap_or_else(present),
            began: clock.now(),
            began_micros,
            timeout: caller.service_level.timeout,
            deadline: parameters.deadline,
            clock,
            limits,
            trace,
        }
    }

    /// Takes the timeout that a statement gives with `USING TIMEOUT`, if it gives one.
    ///
    /// # Errors
    /// When the value is no duration, is negative, is not a number of milliseconds, or has months or days.
    pub fn take_timeout(&mut self, timeout: Option<&Expr>, env: &Env<'_>) -> Result<()> {
        let Some(expr) = timeout else { return Ok(()) };
        let value = match expr.eval(env)? {
            Value::Unset => return Ok(()),
            Value::Null => return invalid!("Timeout value cannot be null"),
            Value::Set(value) => value,
        };
        let Some(duration) = types::duration::Duration::read(&value) else {
            return invalid!("Invalid timeout value");
        };
        if duration.months != 0 || duration.days != 0 {
            return invalid!("Timeout values cannot be expressed in days/months");
        }
        if duration.nanos % 1_000_000 != 0 {
            return invalid!("Timeout values cannot have granularity finer than milliseconds");
        }
        match u64::try_from(duration.nanos) {
            Ok(nanos) => {
                self.timeout = Some(Duration::from_nanos(nanos));
                Ok(())
            }
            Err(_) => invalid!("Timeout values must be non-negative"),
        }
    }

    /// How long an operation may take: as long as the statement says, or the service level, or the node's configuration.
    pub fn timeout(&self, kind: TimeoutKind) -> Duration {
        self.timeout.unwrap_or(match kind {
            TimeoutKind::Read => self.limits.read_timeout,
            TimeoutKind::Range => self.limits.range_timeout,
            TimeoutKind::Write => self.limits.write_timeout,
            TimeoutKind::Counter => self.limits.counter_timeout,
            TimeoutKind::Truncate => self.limits.truncate_timeout,
        })
    }

    /// The present of the clock that deadlines are made of.
    pub fn instant(&self) -> Instant {
        self.clock.now()
    }

    /// When an operation that begins now has to be done.
    pub fn deadline(&self, kind: TimeoutKind) -> Instant {
        let deadline = self.clock.now() + self.timeout(kind);
        match self.deadline {
            Some(of_request) => deadline.min(of_request),
            None => deadline,
        }
    }

    /// Whether its operations time out at once (`USING TIMEOUT 0ms`): also those that have nothing to wait for.
    pub(crate) fn has_no_time(&self) -> bool {
        self.timeout.is_some_and(|timeout| timeout.is_zero())
    }

    /// The time that is left until [`Request::deadline`].
    pub fn time_left(&self, kind: TimeoutKind) -> Duration {
        self.deadline(kind).duration_since(self.clock.now())
    }

    /// Where the coordinator records the steps of a traced request.
    pub fn trace_log(&self) -> Option<&'a TraceLog> {
        self.trace.and_then(Trace::log)
    }

    /// Notes the tables that a traced request names.
    #[inline]
    pub(crate) fn note_tables<'t>(&self, tables: impl Iterator<Item = &'t Arc<Table>>) {
        if let Some(trace) = self.trace {
            tables.for_each(|table| trace.add_table(&table.keyspace, &table.name));
        }
    }

    /// Records a step of a traced request.
    #[inline]
    pub fn note(&self, activity: impl FnOnce() -> String) {
        if let Some(trace) = self.trace {
            trace.note(self.clock.now(), activity);
        }
    }
}

/// The timeout of a USING clause.
///
/// # Errors
/// When the term is no duration.
pub fn timeout_of(using: &cql::ast::Using, resolver: &mut Resolver<'_>) -> Result<Option<Expr>> {
    let receiver = Receiver::owned("[timeout]", CqlType::Duration);
    using.timeout.as_ref().map(|term| resolver.term(term, &receiver)).transpose()
}

/// Refuses a serial consistency level of a write without conditions.
///
/// # Errors
/// [`ExecError::Invalid`](crate::ExecError::Invalid) when it is one.
pub fn check_not_serial(request: &Request<'_>) -> Result<()> {
    if request.consistency.is_serial() {
        return invalid!("You must use conditional updates for serializable writes");
    }
    Ok(())
}
