//! The limits of an HTTP port.

use std::time::Duration;

use crate::Access;

/// Limits of an HTTP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpServerConfig {
    /// Connections at once; a further one takes the place of the one that has waited longest for its client.
    pub connections_max: usize,
    /// Bytes of a request's body; they are read and dropped.
    pub body_bytes_max: usize,
    /// How long a header may take from its first byte (of the first request: from the connection's begin), and how long a
    /// body.
    pub header_timeout: Duration,
    /// How long a connection may be without a request, or a client take nothing of its answer.
    pub idle_timeout: Duration,
    /// Requests at once that end although their clients are gone; a further one is refused with 503.
    pub operations_max: usize,
    /// After this a connection gets no further request: that under way is carried out and answered.
    pub connection_lifetime_max: Duration,
    /// The access rules.
    pub access: Access,
}

impl Default for HttpServerConfig {
    fn default() -> Self {
        Self {
            connections_max: 256,
            body_bytes_max: 64 << 10,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(90),
            operations_max: 256,
            connection_lifetime_max: Duration::from_secs(3600),
            access: Access::default(),
        }
    }
}
