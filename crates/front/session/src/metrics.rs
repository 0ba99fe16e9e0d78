//! Counters of one shard's connections. Plain cells: only their shard changes them, and the administration reads them
//! there.

use std::cell::Cell;

use rt::metrics;
use rt::metrics::Metric;
use wire::Opcode;

/// The counters of a shard's connections since the start.
#[derive(Debug, Default)]
pub struct SessionMetrics {
    /// Open connections.
    pub connections: Cell<u64>,
    /// Connections that were opened.
    pub connections_opened: Cell<u64>,
    /// Connections closed at once because of a limit (counted on shard 0, which accepts).
    pub connections_refused: Cell<u64>,
    /// Failed attempts to accept a connection or to give it to its shard.
    pub accept_errors: Cell<u64>,
    /// Connections closed because they did not finish the handshake in time.
    pub handshake_timeouts: Cell<u64>,
    /// Connections closed because a long message did not come completely in time.
    pub message_timeouts: Cell<u64>,
    /// Connections closed because their clients did not read while others waited for the room of their answers.
    pub unread_timeouts: Cell<u64>,
    /// Connections closed because they were idle.
    pub idle_timeouts: Cell<u64>,
    /// Connections whose statements were ended a while after their client wrote no more.
    pub left_timeouts: Cell<u64>,
    /// Connections closed because events were not read.
    pub event_overflows: Cell<u64>,
    /// Authentications that failed.
    pub authentication_failures: Cell<u64>,
    /// Messages that broke the protocol.
    pub protocol_errors: Cell<u64>,
    /// Requests refused as OVERLOADED.
    pub overloaded: Cell<u64>,
    /// Times that a connection was not read because of the bytes in flight.
    pub reads_paused: Cell<u64>,
    /// ERROR responses.
    pub errors: Cell<u64>,
    /// Events sent.
    pub events: Cell<u64>,
    /// Requests that are being carried out and did not end at once.
    pub requests_waiting: Cell<u64>,
    /// Bytes of requests that are being carried out and did not end at once, and of long messages that are coming in.
    pub request_bytes_in_flight: Cell<u64>,
    /// Bytes that answers have booked: those that are being made, and those that are not read yet.
    pub answer_bytes_in_flight: Cell<u64>,
    /// Bytes read.
    pub bytes_read: Cell<u64>,
    /// Bytes written.
    pub bytes_written: Cell<u64>,
    /// System calls that read something.
    pub reads: Cell<u64>,
    /// System calls that wrote something.
    pub writes: Cell<u64>,
    requests: [Cell<u64>; 17],
}

/// The kinds of requests that are counted apart.
const OPCODES: [(Opcode, &str); 4] = [
    (Opcode::Query, "QUERY"),
    (Opcode::Prepare, "PREPARE"),
    (Opcode::Execute, "EXECUTE"),
    (Opcode::Batch, "BATCH"),
];

impl SessionMetrics {
    /// The metrics of a shard's connections.
    pub const METRICS: &[Metric<Self>] = metrics! {
        gauge "scylla_transport_current_connections" "CQL connections." |s| s.connections.get() as f64;
        counter "scylla_transport_cql_connections" "CQL connections since start." |s| s.connections_opened.get() as f64;
        counter "scylla_transport_requests_served" "CQL requests answered." |s| OPCODES.iter().map(|(opcode, _)| s.requests(*opcode)).sum::<u64>() as f64;
        gauge "scylla_transport_requests_serving" "CQL requests being worked on." |s| s.requests_waiting.get() as f64;
        gauge "scylla_transport_requests_memory_available_used" "Bytes of CQL requests being worked on." |s| s.request_bytes_in_flight.get() as f64;
        counter "scylla_transport_requests_shed" "CQL requests refused for overload." |s| s.overloaded.get() as f64;
        counter "scylla_transport_requests_blocked_memory" "Times that reading requests was put off for overload." |s| s.reads_paused.get() as f64;
        counter "scylla_transport_connections_shed" "CQL connections refused because there were too many." |s| s.connections_refused.get() as f64;
        counter "torc_transport_accept_errors" "CQL connections that could not be accepted or handed to their shard." |s| s.accept_errors.get() as f64;
        counter "torc_transport_handshake_timeouts" "CQL connections closed because they were not ready in time." |s| s.handshake_timeouts.get() as f64;
        counter "torc_transport_message_timeouts" "CQL connections closed because a long message did not come completely in time." |s| s.message_timeouts.get() as f64;
        counter "torc_transport_unread_timeouts" "CQL connections closed because their clients did not read while others waited for the room of their answers." |s| s.unread_timeouts.get() as f64;
        counter "torc_transport_idle_timeouts" "CQL connections closed because they were idle." |s| s.idle_timeouts.get() as f64;
        counter "torc_transport_left_timeouts" "CQL connections closed with their statements ten seconds after their client wrote no more." |s| s.left_timeouts.get() as f64;
        counter "torc_transport_event_overflows" "CQL connections closed because their clients did not read events." |s| s.event_overflows.get() as f64;
        counter "torc_transport_bytes_read" "Bytes read from CQL clients." |s| s.bytes_read.get() as f64;
        counter "torc_transport_bytes_written" "Bytes written to CQL clients." |s| s.bytes_written.get() as f64;
        counter "scylla_transport_cql_errors_total" "CQL requests answered with an error." each |s, each| {
            each(&[("type", "any")], s.errors.get() as f64);
            each(&[("type", "protocol")], s.protocol_errors.get() as f64);
            each(&[("type", "authentication")], s.authentication_failures.get() as f64);
        };
        counter "scylla_query_processor_statements_prepared" "PREPARE requests." |s| s.requests(Opcode::Prepare) as f64;
        counter "scylla_transport_cql_requests_count" "CQL requests by opcode." each |s, each| {
            OPCODES.iter().for_each(|(opcode, name)| each(&[("kind", name)], s.requests(*opcode) as f64));
        };
    };
}

/// Adds one.
pub(crate) fn count(counter: &Cell<u64>) {
    add(counter, 1);
}

/// Adds any number.
pub(crate) fn add(counter: &Cell<u64>, more: usize) {
    counter.set(counter.get() + more as u64);
}

/// Subtracts from a gauge.
pub(crate) fn subtract(counter: &Cell<u64>, less: usize) {
    let left = counter.get().checked_sub(less as u64);
    counter.set(left.expect("only an added amount is subtracted"));
}

impl SessionMetrics {
    /// Requests of a kind.
    pub fn requests(&self, opcode: Opcode) -> u64 {
        self.requests.get(usize::from(opcode.code())).map_or(0, Cell::get)
    }

    pub(crate) fn count_request(&self, opcode: Opcode) {
        if let Some(counter) = self.requests.get(usize::from(opcode.code())) {
            count(counter);
        }
    }
}
