//! Tracing: the events of a request with their times, and a record of it when it was slow, written to `system_traces`.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mutation::{Clustering, DecoratedKey, PartitionUpdate, Row, Seconds};
use replica::TraceLog;
use replica::trace_rows::{TraceRows, TraceSource, inet, int, micros, text};
use rt::Instant;
use schema::{Schema, Table};

use crate::functions::CallContext;
use crate::principal::Principal;

/// How long traces are kept, in seconds.
const TTL: Seconds = 24 * 60 * 60;
/// Milliseconds of a partition of the tables that have requests by their time.
const MINUTE_MILLIS: i64 = 60_000;
/// Characters of a statement that the record of a slow request has.
const COMMAND_MAX: usize = 64 << 10;

/// The recording of slow requests in `system_traces.node_slow_log`, as ScyllaDB does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowTracing {
    /// `slow_query_tracing`
    pub enabled: bool,
    /// `slow_query_tracing_threshold`: requests that take longer are recorded.
    pub threshold: Duration,
    /// `slow_query_tracing_ttl`: for how long, in seconds.
    pub ttl: Seconds,
    /// `slow_query_tracing_fast`: without their steps.
    pub fast: bool,
}

impl Default for SlowTracing {
    fn default() -> Self {
        Self { enabled: false, threshold: Duration::from_millis(500), ttl: TTL, fast: false }
    }
}

/// Why a request is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceReason {
    /// By its client.
    Wanted,
    /// By chance (`trace_probability`).
    Drawn,
    /// Its trace is written when it turns out to be slow (`slow_query_tracing`), and then without the steps of other nodes.
    IfSlow,
}

/// The subject of a trace.
pub struct Traced {
    /// The protocol's message.
    pub command: &'static str,
    /// The kind of the request.
    pub request: Cow<'static, str>,
    /// The parameters of the request, of which `query` is its text.
    pub parameters: Vec<(String, String)>,
}

/// One traced request.
pub struct Trace {
    /// Its id.
    pub id: [u8; 16],
    reason: TraceReason,
    slow: SlowTracing,
    started: Instant,
    started_micros: i64,
    about: Traced,
    /// The tables that it names, once they are known.
    tables: RefCell<BTreeSet<String>>,
    /// The shard that the request came to.
    shard: u16,
    log: TraceLog,
}

impl Trace {
    /// Begins a trace.
    pub fn begin(
        call: &CallContext,
        shard: u16,
        (reason, slow): (TraceReason, SlowTracing),
        about: Traced,
    ) -> Self {
        let id = call.time_uuid();
        Self {
            id,
            reason,
            slow,
            started: call.clock.now(),
            started_micros: call.clock.wall_micros(),
            about,
            tables: RefCell::default(),
            shard,
            log: match reason {
                TraceReason::Wanted | TraceReason::Drawn => TraceLog::of(id),
                TraceReason::IfSlow => TraceLog::default(),
            },
        }
    }

    /// Whether the client receives its id.
    pub fn is_wanted(&self) -> bool {
        self.reason == TraceReason::Wanted
    }

    /// Where steps are recorded; none when they are not.
    pub fn log(&self) -> Option<&TraceLog> {
        (self.reason != TraceReason::IfSlow || !self.slow.fast).then_some(&self.log)
    }

    /// Records a step.
    pub fn note(&self, at: Instant, activity: impl FnOnce() -> String) {
        if let Some(log) = self.log() {
            log.add(at, self.shard, activity());
        }
    }

    /// Notes that the request is about a table.
    pub fn add_table(&self, keyspace: &str, table: &str) {
        self.tables.borrow_mut().insert(format!("{keyspace}.{table}"));
    }

    /// The rows of `system_traces` that hold the trace; none when there is nothing to write, or the schema has no such tables.
    pub fn updates(
        &self,
        schema: &Schema,
        call: &CallContext,
        client: &Principal<'_>,
        node: SocketAddr,
    ) -> Vec<PartitionUpdate> {
        let took = call.clock.now().duration_since(self.started);
        let is_slow = self.slow.enabled && took > self.slow.threshold;
        if self.reason == TraceReason::IfSlow && !is_slow {
            return Vec::new();
        }
        let ttl = if self.reason == TraceReason::IfSlow { self.slow.ttl } else { TTL };
        let rows = TraceRows::new(self.started_micros, ttl);
        let Some(session) = self.session(schema, &rows, took, (client.address, node)) else {
            return Vec::new();
        };
        let mut updates = vec![session];
        updates.extend(self.events(schema, &rows, call, node));
        updates.extend(self.by_time(schema, "sessions_time_idx", &rows, |_, _| {}));
        if is_slow {
            let rows = TraceRows::new(self.started_micros, self.slow.ttl);
            let start_time = call.uuids.next(self.started_micros);
            updates.extend(self.slow(schema, &rows, (took, start_time), client, node));
            updates.extend(self.by_time(schema, "node_slow_log_time_idx", &rows, |table, row| {
                rows.set(table, row, "node_ip", inet(node.ip()));
                rows.set(table, row, "shard", int(self.shard.into()));
                rows.set(table, row, "start_time", Bytes::copy_from_slice(&start_time));
            }));
        }
        updates
    }

    /// The row of `sessions`.
    fn session(
        &self,
        schema: &Schema,
        rows: &TraceRows,
        took: Duration,
        (client, node): (SocketAddr, SocketAddr),
    ) -> Option<PartitionUpdate> {
        let table = schema.table("system_traces", "sessions")?;
        let mut row = rows.row(Clustering::empty());
        rows.set(table, &mut row, "client", inet(client.ip()));
        rows.set(table, &mut row, "command", text(self.about.command));
        rows.set(table, &mut row, "coordinator", inet(node.ip()));
        rows.set(table, &mut row, "coordinator_port", int(i32::from(node.port())));
        rows.set(table, &mut row, "duration", micros(took));
        rows.set(table, &mut row, "request", text(&self.about.request));
        rows.set(table, &mut row, "started_at", millis(self.started_micros / 1_000));
        rows.set_all(table, &mut row, "parameters", self.parameters());
        Some(update(table, &self.id, row))
    }

    /// The rows of `events`; none when no steps are recorded.
    fn events(
        &self,
        schema: &Schema,
        rows: &TraceRows,
        call: &CallContext,
        node: SocketAddr,
    ) -> Option<PartitionUpdate> {
        let table = schema.table("system_traces", "events")?;
        let source = TraceSource {
            session: self.id,
            address: node,
            began: self.started,
            began_micros: self.started_micros,
        };
        Some(rows.events(table, &source, &self.log()?.events(), |micros| call.uuids.next(micros)))
    }

    /// The row of a table that has requests by the minute in which they began.
    fn by_time(
        &self,
        schema: &Schema,
        name: &str,
        rows: &TraceRows,
        set: impl FnOnce(&Arc<Table>, &mut Row),
    ) -> Option<PartitionUpdate> {
        let table = schema.table("system_traces", name)?;
        let started = self.started_micros / 1_000;
        let minute = started - started.rem_euclid(MINUTE_MILLIS);
        let mut row = rows.row(Clustering::new(table, &[Some(&millis(started)), Some(&self.id)]));
        set(table, &mut row);
        Some(update(table, &millis(minute), row))
    }

    /// The row of `node_slow_log`.
    fn slow(
        &self,
        schema: &Schema,
        rows: &TraceRows,
        (took, start_time): (Duration, [u8; 16]),
        client: &Principal<'_>,
        node: SocketAddr,
    ) -> Option<PartitionUpdate> {
        let table = schema.table("system_traces", "node_slow_log")?;
        let query = self.about.parameters.iter().find(|(name, _)| name == "query");
        let command = query.map_or(&*self.about.request, |(_, text)| text);
        let command = &command[..command.floor_char_boundary(COMMAND_MAX)];
        let shard = int(self.shard.into());
        let mut row = rows.row(Clustering::new(table, &[Some(&inet(node.ip())), Some(&shard)]));
        rows.set(table, &mut row, "command", text(command));
        rows.set(table, &mut row, "date", millis(self.started_micros / 1_000));
        rows.set(table, &mut row, "duration", micros(took));
        rows.set(table, &mut row, "session_id", Bytes::copy_from_slice(&self.id));
        rows.set(table, &mut row, "source_ip", inet(client.address.ip()));
        if let Some(role) = client.role {
            rows.set(table, &mut row, "username", text(role));
        }
        rows.set_all(table, &mut row, "parameters", self.parameters());
        let tables = self.tables.borrow();
        rows.set_all(table, &mut row, "table_names", tables.iter().map(|name| (text(name), Bytes::new())));
        Some(update(table, &start_time, row))
    }

    /// Keys and values of a map of the parameters, in the order of their names.
    fn parameters(&self) -> impl Iterator<Item = (Bytes, Bytes)> {
        let mut parameters: Vec<_> = self.about.parameters.iter().collect();
        parameters.sort();
        parameters.into_iter().map(|(name, value)| (text(name), text(value)))
    }
}

/// The partition of one row.
fn update(table: &Arc<Table>, key: &[u8], row: Row) -> PartitionUpdate {
    let mut update = PartitionUpdate::new(table.clone(), DecoratedKey::new(Bytes::copy_from_slice(key)));
    update.add_row(row);
    update
}

/// A timestamp.
fn millis(value: i64) -> Bytes {
    Bytes::copy_from_slice(&value.to_be_bytes())
}
