//! What a request says beside its statement and values, and the limits that the node's configuration sets.

use std::time::Duration;

use bytes::Bytes;
use coordinator::Consistency;
use mutation::{Seconds, Timestamp};
use replica::TraceLog;
use rt::Instant;
use wire::QueryParameters;

use crate::backend::Clock;
use crate::error::{Result, from_wire_consistency, invalid};
use crate::expr::{Env, Expr, Value};

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
    /// `slow_query_log_timeout`; zero for none.
    pub slow_after: Duration,
    /// `prepared_statements_cache_size`, in bytes.
    pub prepared_bytes: usize,
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
            slow_after: Duration::from_millis(500),
            prepared_bytes: 10 << 20,
        }
    }
}

/// A request under way.
#[derive(Clone)]
pub struct Request<'a> {
    /// Consistency level.
    pub consistency: Consistency,
    /// Consistency level of the agreement that conditional statements and serial reads need.
    pub serial_consistency: Consistency,
    /// Rows of a page; none without paging.
    pub page_size: Option<u32>,
    /// Where to go on.
    pub paging_state: Option<Bytes>,
    /// The client knows the result's columns.
    pub skip_metadata: bool,
    /// The id of the result metadata that the client knows.
    pub known_metadata_id: Option<&'a [u8]>,
    /// The timestamp of writes that name none.
    pub timestamp: Option<Timestamp>,
    /// The time at which cells are live or expired.
    pub now: Seconds,
    /// When to give up, counted from each operation on the cluster.
    pub timeout: Duration,
    /// Whether the statement gave the timeout.
    pub own_timeout: bool,
    /// The clock that deadlines are made of.
    pub clock: &'a dyn Clock,
    /// The node's settings.
    pub limits: &'a ExecLimits,
    /// Where the steps of a traced request go.
    pub trace: Option<&'a TraceLog>,
}

impl<'a> Request<'a> {
    /// A request with a frame's parameters.
    pub fn new(
        parameters: &QueryParameters,
        known_metadata_id: Option<&'a [u8]>,
        clock: &'a dyn Clock,
        limits: &'a ExecLimits,
    ) -> Result<Self> {
        let now = match parameters.now_in_seconds {
            Some(now) => match u32::try_from(now) {
                Ok(now) => now,
                Err(_) => return invalid!("Invalid value {now} for now_in_seconds"),
            },
            None => u32::try_from(clock.wall_micros().div_euclid(1_000_000)).unwrap_or(0),
        };
        Ok(Self {
            consistency: from_wire_consistency(parameters.consistency),
            serial_consistency: parameters
                .serial_consistency
                .map_or(Consistency::Serial, from_wire_consistency),
            page_size: parameters
                .page_size
                .and_then(|size| u32::try_from(size).ok())
                .filter(|size| *size > 0),
            paging_state: parameters.paging_state.clone(),
            skip_metadata: parameters.skip_metadata,
            known_metadata_id,
            timestamp: parameters.timestamp,
            now,
            timeout: limits.read_timeout,
            own_timeout: false,
            clock,
            limits,
            trace: None,
        })
    }

    /// Takes the timeout that a statement gives with `USING TIMEOUT`, if it gives one.
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
            return invalid!("Timeout value cannot be expressed in months, weeks or days");
        }
        match u64::try_from(duration.nanos) {
            Ok(nanos) => {
                self.timeout = Duration::from_nanos(nanos);
                self.own_timeout = true;
                Ok(())
            }
            Err(_) => invalid!("Timeout value must be non-negative"),
        }
    }

    /// When an operation that begins now has to be done.
    pub fn deadline(&self) -> Instant {
        self.clock.now() + self.timeout
    }
}
