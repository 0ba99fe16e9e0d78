//! Tracing: the events of a request with their times, written to `system_traces`.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use mutation::row::ColumnData;
use mutation::{Cell, Clustering, Complex, ComplexCell, DecoratedKey, LivenessInfo, PartitionUpdate, Row};
use replica::TraceLog;
use rt::Instant;
use schema::{Schema, Table};
use std::sync::Arc;

use crate::functions::CallContext;

/// How long traces are kept, in seconds.
const TTL: u32 = 24 * 60 * 60;

/// One traced request.
pub struct Trace {
    /// Its id.
    pub id: [u8; 16],
    /// Whether the client receives the id: when it asked for the trace.
    pub asked: bool,
    started: Instant,
    started_micros: i64,
    command: &'static str,
    request: &'static str,
    parameters: Vec<(String, String)>,
    /// The shard that the request came to.
    shard: u16,
    log: TraceLog,
}

impl Trace {
    /// Begins a trace, which the client `asked` for or not. `command` is the protocol's message, `request` describes the work.
    pub fn begin(
        call: &CallContext,
        shard: u16,
        asked: bool,
        command: &'static str,
        request: &'static str,
        parameters: Vec<(String, String)>,
    ) -> Self {
        let id = call.time_uuid();
        Self {
            id,
            asked,
            started: call.clock.now(),
            started_micros: call.clock.wall_micros(),
            command,
            request,
            parameters,
            shard,
            log: TraceLog::of(id),
        }
    }

    /// Where steps are recorded.
    pub fn log(&self) -> &TraceLog {
        &self.log
    }

    /// Records a step.
    pub fn note(&self, at: Instant, activity: String) {
        self.log.add(at, self.shard, activity);
    }

    /// The rows of `system_traces` that hold the trace; none when the schema has no such tables.
    pub fn updates(
        &self,
        schema: &Schema,
        call: &CallContext,
        client: SocketAddr,
        node: SocketAddr,
    ) -> Vec<PartitionUpdate> {
        let (Some(sessions), Some(events)) =
            (schema.table("system_traces", "sessions"), schema.table("system_traces", "events"))
        else {
            return Vec::new();
        };
        let micros =
            |at: Instant| i32::try_from(at.duration_since(self.started).as_micros()).unwrap_or(i32::MAX);
        let key = DecoratedKey::new(Bytes::copy_from_slice(&self.id));
        let writer = Writer { timestamp: self.started_micros, now: (self.started_micros / 1_000_000) as u32 };
        let duration = micros(call.clock.now());
        let mut session = PartitionUpdate::new(sessions.clone(), key.clone());
        let mut row = writer.row(Clustering::empty());
        writer.set(sessions, &mut row, "client", inet(client.ip()));
        writer.set(sessions, &mut row, "command", text(self.command));
        writer.set(sessions, &mut row, "coordinator", inet(node.ip()));
        writer.set(sessions, &mut row, "coordinator_port", int(i32::from(node.port())));
        writer.set(sessions, &mut row, "duration", int(duration));
        writer.set(sessions, &mut row, "request", text(self.request));
        let started = Bytes::copy_from_slice(&(self.started_micros / 1000).to_be_bytes());
        writer.set(sessions, &mut row, "started_at", started);
        if let Some(column) = sessions.column("parameters") {
            let mut parameters = self.parameters.clone();
            parameters.sort();
            let cells = parameters
                .iter()
                .map(|(name, value)| ComplexCell { path: text(name), cell: writer.cell(text(value)) })
                .collect();
            row.set(column.id, ColumnData::Complex(Complex { cells, ..Complex::empty() }));
        }
        session.add_row(row);
        let mut all = PartitionUpdate::new(events.clone(), key);
        for event in self.log.events() {
            let elapsed = micros(event.at);
            let id = call.uuids.next(self.started_micros + i64::from(elapsed));
            let mut row = writer.row(Clustering::new(events, &[Some(&id)]));
            writer.set(events, &mut row, "activity", text(&event.activity));
            writer.set(events, &mut row, "source", inet(node.ip()));
            writer.set(events, &mut row, "source_elapsed", int(elapsed));
            writer.set(events, &mut row, "source_port", int(i32::from(node.port())));
            writer.set(events, &mut row, "thread", text(&format!("shard-{}", event.shard)));
            all.add_row(row);
        }
        vec![session, all]
    }
}

struct Writer {
    timestamp: i64,
    now: u32,
}

impl Writer {
    fn cell(&self, value: Bytes) -> Cell {
        Cell::expiring(self.timestamp, TTL, self.now.saturating_add(TTL), value)
    }

    fn row(&self, clustering: Clustering) -> Row {
        let mut row = Row::new(clustering);
        row.liveness = LivenessInfo::expiring(self.timestamp, TTL, self.now.saturating_add(TTL));
        row
    }

    fn set(&self, table: &Arc<Table>, row: &mut Row, name: &str, value: Bytes) {
        if let Some(column) = table.column(name) {
            row.set(column.id, ColumnData::Simple(self.cell(value)));
        }
    }
}

fn text(value: &str) -> Bytes {
    Bytes::copy_from_slice(value.as_bytes())
}

fn int(value: i32) -> Bytes {
    Bytes::copy_from_slice(&value.to_be_bytes())
}

/// The serialised form of an address.
pub(crate) fn inet(address: IpAddr) -> Bytes {
    match address {
        IpAddr::V4(ip) => Bytes::copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => Bytes::copy_from_slice(&ip.octets()),
    }
}
