//! The settings of CQL connections, and the node's description. Limits are the node's, not a shard's.

use std::net::SocketAddr;
use std::time::Duration;

/// Options of the CQL ports. Fields have the names of `cassandra.yaml` where it has the option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// The address of ordinary connections.
    pub native_transport_address: SocketAddr,
    /// The address at which the client's source port chooses the shard; `None` for no such port.
    pub shard_aware_address: Option<SocketAddr>,
    /// The longest message accepted, in bytes with its header.
    pub native_transport_max_frame_size: usize,
    /// Connections of all clients together; `None` for no limit.
    pub native_transport_max_concurrent_connections: Option<usize>,
    /// Connections of one client address; `None` for no limit.
    pub native_transport_max_concurrent_connections_per_ip: Option<usize>,
    /// Bytes of requests that are being carried out, of all clients together, on the node.
    pub native_transport_max_request_data_in_flight: usize,
    /// The same of one client address.
    pub native_transport_max_request_data_in_flight_per_ip: usize,
    /// Bytes of answers that are being made or not read yet, of all clients together, on the node; one client address may
    /// have half.
    pub answer_bytes_max: usize,
    /// A connection without a request for so long is closed; `None` for never.
    pub native_transport_idle_timeout: Option<Duration>,
    /// A connection that is not ready for statements after so long is closed.
    pub handshake_timeout: Duration,
    /// A message of more than 32 KiB that is not here completely after so long closes its connection.
    pub message_timeout: Duration,
    /// Requests of one connection that are carried out at once; then it is not read.
    pub requests_per_connection_max: usize,
    /// Bytes of answers that may wait for a client that reads slowly; then its requests are not begun.
    pub unwritten_bytes_max: usize,
    /// Events that may wait for a client that reads slowly; then its connection is closed.
    pub unwritten_events_max: usize,
    /// Bugs to inject.
    pub canaries: rt::Injected<Canaries>,
}

/// Bugs that tests inject to see that they are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Canaries {
    /// Of every sixteenth request the bytes in flight are never given back.
    pub leaked_bytes: bool,
}

impl SessionConfig {
    /// The defaults, listening on `address`.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            native_transport_address: address,
            shard_aware_address: None,
            native_transport_max_frame_size: 16 << 20,
            native_transport_max_concurrent_connections: None,
            native_transport_max_concurrent_connections_per_ip: None,
            native_transport_max_request_data_in_flight: 256 << 20,
            native_transport_max_request_data_in_flight_per_ip: 64 << 20,
            answer_bytes_max: 256 << 20,
            native_transport_idle_timeout: None,
            handshake_timeout: Duration::from_secs(12),
            message_timeout: Duration::from_secs(60),
            requests_per_connection_max: 1024,
            unwritten_bytes_max: 1 << 20,
            unwritten_events_max: 1024,
            canaries: rt::Injected::default(),
        }
    }
}

/// The node's description in SUPPORTED.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDescription {
    /// The version of CQL: `3.4.7`.
    pub cql_version: String,
    /// The node's host id as a UUID string.
    pub host_id: String,
    /// Class name of the partitioner.
    pub partitioner: String,
    /// How many of a token's high bits are ignored when its shard is computed.
    pub sharding_ignore_msb: u8,
    /// The shard-aware port with TLS, if there is one.
    pub shard_aware_port_ssl: Option<u16>,
    /// Whether clients may be sent the tablets of their requests.
    pub tablets: bool,
}
