//! Figures of the DynamoDB API on a shard, for metrics.

use coordinator::Latencies;

/// Figures of the DynamoDB API on one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlternatorFigures {
    /// All requests, those included that were refused before their operation was known.
    pub total_operations: u64,
    /// Operations that were asked for: their name, how often, and how long those took that were answered.
    pub operations: Vec<(String, u64, Latencies)>,
    /// Requests of operations that there are not.
    pub unsupported_operations: u64,
    /// Writes that depend on the item as it is.
    pub reads_before_write: u64,
    /// Writes by lightweight transactions.
    pub write_using_lwt: u64,
    /// Requests refused because of the bytes of all that are under way.
    pub requests_shed: u64,
    /// Requests without a valid signature.
    pub authentication_failures: u64,
    /// Requests whose role lacks a permission.
    pub authorization_failures: u64,
    /// Items that a Query or Scan with a filter has read.
    pub filtered_rows_read: u64,
    /// Those of them that the filter let through.
    pub filtered_rows_matched: u64,
    /// Items of batches, by operation.
    pub batch_items: Vec<(String, u64)>,
    /// Halves of units of capacity that reads consumed.
    pub read_half_units: u64,
    /// Units of capacity that writes consumed, by the operation of one item that they amount to.
    pub write_units: Vec<(String, u64)>,
    /// Answers with an error, by its type.
    pub errors: Vec<(String, u64)>,
    /// Connections that were closed because there were too many.
    pub connections_shed: u64,
    /// Connections to the port with TLS that were closed because their handshake failed.
    pub tls_handshake_failures: u64,
    /// Connections that are open.
    pub connections: u64,
    /// Requests that are being carried out.
    pub requests_serving: u64,
    /// Bytes of the bodies of requests under way.
    pub requests_bytes: u64,
}
