//! The settings that change while the API serves.

use std::time::Duration;

use crate::DescribedEndpoint;

/// Settings of the API on one shard, which all its connections use from the next request on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiSettings {
    /// Whether requests must be signed by a role, which needs the permissions that CQL asks for.
    pub enforces_authorization: bool,
    /// Whether the log names the requests that are not signed by such a role, or would not be allowed, also where they are carried out.
    pub warns_authorization: bool,
    /// Whether settings may be written as items of the system tables that show them.
    pub writes_system_tables: bool,
    /// The answer of DescribeEndpoints.
    pub described_endpoint: DescribedEndpoint,
    /// How long a read or write of the cluster may take where no service level says; none for the executor's timeouts.
    pub timeout: Option<Duration>,
    /// How many writes a BatchWriteItem may have.
    pub batch_writes_max: usize,
    /// How answers are compressed.
    pub compression: Compression,
}

/// How answers are compressed, for clients that accept it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// Answers of fewer bytes are sent as they are.
    pub bytes_min: usize,
    /// From 1 (fast) to 9 (small); 0 to compress none.
    pub level: u32,
}

impl Default for Compression {
    fn default() -> Self {
        Self { bytes_min: 4096, level: 6 }
    }
}

impl Default for ApiSettings {
    fn default() -> Self {
        Self {
            enforces_authorization: false,
            warns_authorization: false,
            writes_system_tables: false,
            described_endpoint: DescribedEndpoint::Host,
            timeout: None,
            batch_writes_max: 100,
            compression: Compression::default(),
        }
    }
}
