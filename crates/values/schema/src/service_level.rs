//! Service levels: named shares and timeouts, which roles are attached to (ScyllaDB's `SERVICE LEVEL`).

use std::time::Duration;

/// The service level of roles that have none attached, and of anonymous clients.
pub const DEFAULT_SERVICE_LEVEL: &str = "default";

/// Shares of a service level that names none.
pub const SHARES_DEFAULT: u32 = 1000;

/// The workload of a service level: it decides how overload is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkloadType {
    /// Not said.
    #[default]
    Unspecified,
    /// Clients that wait for each response, and send no more when responses are late.
    Batch,
    /// Clients that send more requests whether or not responses are late.
    Interactive,
}

impl WorkloadType {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Unspecified, Self::Batch, Self::Interactive];

    /// Its name in statements and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::Batch => "batch",
            Self::Interactive => "interactive",
        }
    }

    /// The type of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Whether a request that finds no room on the node is refused (true), as a client that sends on regardless would only lengthen the queue, or
    /// waits with its connection unread (false), which slows its client; none where the connection's own choice counts.
    pub fn sheds_load(self) -> Option<bool> {
        match self {
            Self::Unspecified => None,
            Self::Batch => Some(false),
            Self::Interactive => Some(true),
        }
    }
}

/// How the requests of a role are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceLevel {
    /// Its name, case kept.
    pub name: String,
    /// The timeout of each operation on the cluster, for statements that give none; none for the node's.
    pub timeout: Option<Duration>,
    /// Its part of a shard's time, relative to the shares of other levels; at least 1.
    pub shares: u32,
    /// The subject of its requests.
    pub workload: WorkloadType,
}

impl ServiceLevel {
    /// A level that changes nothing.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), timeout: None, shares: SHARES_DEFAULT, workload: WorkloadType::Unspecified }
    }
}

impl Default for ServiceLevel {
    fn default() -> Self {
        Self::new(DEFAULT_SERVICE_LEVEL)
    }
}
