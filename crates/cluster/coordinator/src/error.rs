//! Why a request failed, with the fields that the native protocol's error bodies carry (v5 spec, section 9).

use crate::{Consistency, Operation, WriteKind};

/// A request that did not succeed.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestError {
    /// Too few replicas are alive; nothing was tried.
    Unavailable {
        /// The request.
        consistency: Consistency,
        /// Replicas that it needs.
        required: u32,
        /// Replicas that are alive.
        alive: u32,
    },
    /// Too few replicas answered a read in time.
    ReadTimeout {
        /// The request.
        consistency: Consistency,
        /// Answers that came.
        received: u32,
        /// Answers needed.
        required: u32,
        /// Whether the replica asked for data was among them.
        data_present: bool,
    },
    /// Too few replicas acknowledged a write in time; it may still take effect.
    WriteTimeout {
        /// The request.
        consistency: Consistency,
        /// Acknowledgements that came.
        received: u32,
        /// Acknowledgements needed.
        required: u32,
        /// The kind of write.
        kind: WriteKind,
    },
    /// A conditional write was not decided in time, and never will be.
    CasTimeout {
        /// The request: SERIAL or LOCAL_SERIAL.
        consistency: Consistency,
        /// Votes that came in the last round.
        received: u32,
        /// Votes needed.
        required: u32,
        /// Rounds that others got in the way of.
        contentions: u32,
        /// The kind of write.
        kind: WriteKind,
    },
    /// A conditional write may or may not have happened, or happen yet.
    CasUncertain {
        /// The request: SERIAL or LOCAL_SERIAL.
        consistency: Consistency,
        /// Votes that came in the last round.
        received: u32,
        /// Votes needed.
        required: u32,
    },
    /// Replicas failed to read.
    ReadFailure {
        /// The request.
        consistency: Consistency,
        /// Answers that came.
        received: u32,
        /// Answers needed.
        required: u32,
        /// Whether the replica asked for data was among them.
        data_present: bool,
        /// Why, in words and as the protocol's reason code, per failed replica address.
        failures: Vec<ReplicaFailure>,
    },
    /// Replicas failed to write.
    WriteFailure {
        /// The request.
        consistency: Consistency,
        /// Acknowledgements that came.
        received: u32,
        /// Acknowledgements needed.
        required: u32,
        /// The kind of write.
        kind: WriteKind,
        /// Why, per failed replica.
        failures: Vec<ReplicaFailure>,
    },
    /// The partition's limit of operations a second is reached.
    RateLimit {
        /// Keyspace and table.
        table: String,
        /// The target of the limit.
        operation: Operation,
        /// Whether the coordinator refused it, so that nothing was done; replicas otherwise, of which some may have done it.
        by_coordinator: bool,
    },
    /// The node has too much to do.
    Overloaded(String),
    /// A truncation failed.
    Truncate(String),
    /// The request cannot be carried out as it is (too large a mutation, an unknown table).
    Invalid(String),
}

impl RequestError {
    /// Whether a replica has refused a read because it does not have the index that the read asks, or has not built it yet.
    pub fn is_index_unavailable(&self) -> bool {
        let is_reason = |failure: &ReplicaFailure| failure.code == ReplicaFailure::INDEX_NOT_AVAILABLE;
        matches!(self, Self::ReadFailure { failures, .. } if failures.iter().any(is_reason))
    }
}

/// Why one replica failed (v5 `<reasonmap>`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaFailure {
    /// The replica.
    pub address: std::net::IpAddr,
    /// As the protocol numbers it (v5, section 9).
    pub code: u16,
    /// In words.
    pub message: String,
}

/// The codes that this node gives or knows by name.
impl ReplicaFailure {
    /// None of the others.
    pub const UNKNOWN: u16 = 0;
    /// A read met more tombstones than it may.
    pub const TOO_MANY_TOMBSTONES: u16 = 1;
    /// The replica does not know the table.
    pub const INCOMPATIBLE_SCHEMA: u16 = 2;
    /// The replica did not answer in time.
    pub const TIMEOUT: u16 = 3;
    /// An index is not there, or not built yet.
    pub const INDEX_NOT_AVAILABLE: u16 = 6;
}

impl std::fmt::Display for ReplicaFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reason = match self.code {
            Self::TOO_MANY_TOMBSTONES => "READ_TOO_MANY_TOMBSTONES",
            Self::INCOMPATIBLE_SCHEMA => "INCOMPATIBLE_SCHEMA",
            Self::TIMEOUT => "TIMEOUT",
            Self::INDEX_NOT_AVAILABLE => "INDEX_NOT_AVAILABLE",
            _ => "UNKNOWN",
        };
        write!(f, ": {reason} from {} ({})", self.address, self.message)
    }
}

impl std::fmt::Display for RequestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unavailable { consistency, required, alive } => write!(
                f,
                "Cannot achieve consistency level {}: {required} replicas required, {alive} alive",
                consistency.name()
            ),
            Self::ReadTimeout { received, required, .. } => {
                write!(f, "Operation timed out - received only {received} responses of {required}.")
            }
            Self::CasUncertain { received, required, .. } => write!(
                f,
                "CAS operation result is unknown - proposal accepted by {received} but not a quorum ({required})."
            ),
            Self::WriteTimeout { received, required, .. } | Self::CasTimeout { received, required, .. } => {
                write!(f, "Operation timed out - received only {received} responses of {required}.")
            }
            Self::ReadFailure { received, failures, .. } => {
                write!(
                    f,
                    "Operation failed - received {received} responses and {} failures",
                    failures.len()
                )?;
                failures.iter().try_for_each(|failure| failure.fmt(f))
            }
            Self::WriteFailure { received, failures, .. } => {
                write!(
                    f,
                    "Operation failed - received {received} responses and {} failures",
                    failures.len()
                )?;
                failures.iter().try_for_each(|failure| failure.fmt(f))
            }
            Self::RateLimit { table, operation, by_coordinator } => write!(
                f,
                "Per-partition rate limit reached for {operation} in table {table}, rejected by {}",
                if *by_coordinator { "coordinator" } else { "replicas" }
            ),
            Self::Overloaded(why) | Self::Truncate(why) | Self::Invalid(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for RequestError {}
