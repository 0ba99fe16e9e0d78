//! Why a replica gave no answer, and how that crosses the network: refusals with codes, failures with the reasons of the native protocol.

use std::net::IpAddr;

use replica::ReplicaError;
use replica::read_codec::ReadCodecError;
use rpc::{Refusal, RpcError};
use topology::{ClusterView, NodeIndex};

use crate::{Operation, ReplicaFailure, RequestError};

/// The reason why a replica refused a request: the codes of refusals, numbered as part of the protocol.
pub(crate) mod code {
    use rpc::Refusal;

    pub(crate) const STORAGE: u16 = Refusal::FIRST_FREE;
    pub(crate) const TOO_MANY_TOMBSTONES: u16 = Refusal::FIRST_FREE + 1;
    pub(crate) const UNKNOWN_TABLE: u16 = Refusal::FIRST_FREE + 2;
    pub(crate) const TOO_LARGE: u16 = Refusal::FIRST_FREE + 3;
    pub(crate) const MALFORMED: u16 = Refusal::FIRST_FREE + 4;
    pub(crate) const STOPPED: u16 = Refusal::FIRST_FREE + 5;
    pub(crate) const OLD_RING: u16 = Refusal::FIRST_FREE + 6;
    pub(crate) const INDEX_UNAVAILABLE: u16 = Refusal::FIRST_FREE + 7;
    pub(crate) const RATE_LIMITED: u16 = Refusal::FIRST_FREE + 8;
}

/// Why a replica gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PeerError {
    /// It did not answer in time, or cannot be reached; it may have carried the request out.
    Silent(String),
    /// It said that it failed.
    Failed {
        /// The reason as the native protocol numbers it (`<reasonmap>`).
        reason: u16,
        /// In words.
        message: String,
    },
    /// It has done nothing, for it was chosen by a stale topology version.
    StaleTopology(String),
    /// It has done nothing, for the limit of a partition of this table is reached.
    RateLimited(String),
    /// The request is invalid.
    Invalid(String),
}

/// Whether none of them has failed: the request timed out.
pub(crate) fn all_silent(errors: &[(NodeIndex, PeerError)]) -> bool {
    errors.iter().all(|(_, error)| matches!(error, PeerError::Silent(_)))
}

impl PeerError {
    /// Why, in words.
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Silent(message)
            | Self::Failed { message, .. }
            | Self::StaleTopology(message)
            | Self::RateLimited(message)
            | Self::Invalid(message) => message,
        }
    }

    /// As one of the failures that an error lists; none when the replica was silent.
    pub(crate) fn failure(&self, address: IpAddr) -> Option<ReplicaFailure> {
        match self {
            Self::Silent(_) => None,
            Self::Failed { reason, message } => {
                Some(ReplicaFailure { address, code: *reason, message: message.clone() })
            }
            Self::Invalid(message) | Self::StaleTopology(message) | Self::RateLimited(message) => {
                Some(ReplicaFailure { address, code: ReplicaFailure::UNKNOWN, message: message.clone() })
            }
        }
    }
}

impl From<ReplicaError> for PeerError {
    fn from(error: ReplicaError) -> Self {
        let message = error.to_string();
        match error {
            ReplicaError::TooManyTombstones { .. } => {
                Self::Failed { reason: ReplicaFailure::TOO_MANY_TOMBSTONES, message }
            }
            ReplicaError::IndexUnavailable(_) => {
                Self::Failed { reason: ReplicaFailure::INDEX_NOT_AVAILABLE, message }
            }
            ReplicaError::UnknownTable(_) => Self::Invalid("unconfigured table".to_owned()),
            ReplicaError::MutationTooLarge { .. } | ReplicaError::TooMuchToRead(_) => Self::Invalid(message),
            ReplicaError::Storage(_) | ReplicaError::Stopped | ReplicaError::Truncated(_) => {
                Self::Failed { reason: ReplicaFailure::UNKNOWN, message }
            }
        }
    }
}

impl From<RpcError> for PeerError {
    fn from(error: RpcError) -> Self {
        let (code, message) = match error {
            RpcError::Refused(Refusal { code, message }) => (code, message),
            // It was chosen by a previous topology version it went.
            RpcError::UnknownHost => return Self::StaleTopology(error.to_string()),
            _ => return Self::Silent(error.to_string()),
        };
        match code {
            Refusal::EXPIRED => Self::Silent(message),
            code::TOO_MANY_TOMBSTONES => {
                Self::Failed { reason: ReplicaFailure::TOO_MANY_TOMBSTONES, message }
            }
            code::INDEX_UNAVAILABLE => Self::Failed { reason: ReplicaFailure::INDEX_NOT_AVAILABLE, message },
            // The schemas of two nodes may differ for a moment.
            code::UNKNOWN_TABLE => Self::Failed { reason: ReplicaFailure::INCOMPATIBLE_SCHEMA, message },
            code::TOO_LARGE => Self::Invalid(message),
            code::OLD_RING => Self::StaleTopology(message),
            code::RATE_LIMITED => Self::RateLimited(message),
            _ => Self::Failed { reason: ReplicaFailure::UNKNOWN, message },
        }
    }
}

/// The error of a request that too few replicas have done, if one of them refused it for its partition's limit.
pub(crate) fn rate_limited(errors: &[(NodeIndex, PeerError)], operation: Operation) -> Option<RequestError> {
    errors.iter().find_map(|(_, error)| match error {
        PeerError::RateLimited(table) => {
            Some(RequestError::RateLimit { table: table.clone(), operation, by_coordinator: false })
        }
        _ => None,
    })
}

pub(crate) fn refusal(error: &ReplicaError) -> Refusal {
    let code = match error {
        ReplicaError::TooManyTombstones { .. } => code::TOO_MANY_TOMBSTONES,
        ReplicaError::UnknownTable(_) => code::UNKNOWN_TABLE,
        ReplicaError::IndexUnavailable(_) => code::INDEX_UNAVAILABLE,
        ReplicaError::MutationTooLarge { .. } | ReplicaError::TooMuchToRead(_) => code::TOO_LARGE,
        ReplicaError::Storage(_) => code::STORAGE,
        // Only requests that carry the time of their write receive it, as an answer.
        ReplicaError::Stopped | ReplicaError::Truncated(_) => code::STOPPED,
    };
    Refusal::new(code, error.to_string())
}

pub(crate) fn malformed(error: impl std::fmt::Display) -> Refusal {
    Refusal::new(code::MALFORMED, error.to_string())
}

/// The answer to a request with a stale topology version.
pub(crate) fn stale_topology(ring: u64) -> Refusal {
    Refusal::new(code::OLD_RING, format!("it goes by ring {ring}, which is over: its coordinator is behind"))
}

/// The answer when this node could not learn of a newer topology version in time.
pub(crate) fn not_heard(ring: u64) -> Refusal {
    Refusal::new(code::STOPPED, format!("this node could not hear of ring {ring} in time"))
}

pub(crate) fn unread(error: ReadCodecError) -> Refusal {
    match error {
        ReadCodecError::UnknownTable(_) => Refusal::new(code::UNKNOWN_TABLE, error.to_string()),
        other => malformed(other),
    }
}

/// The answer to another node when this one failed on its own shards.
pub(crate) fn refusal_of(error: &PeerError) -> Refusal {
    match error {
        PeerError::Silent(message) => Refusal::new(code::STOPPED, message.clone()),
        PeerError::Failed { reason: ReplicaFailure::TOO_MANY_TOMBSTONES, message } => {
            Refusal::new(code::TOO_MANY_TOMBSTONES, message.clone())
        }
        PeerError::Failed { message, .. } => Refusal::new(code::STORAGE, message.clone()),
        PeerError::Invalid(message) => Refusal::new(code::TOO_LARGE, message.clone()),
        PeerError::StaleTopology(message) => Refusal::new(code::OLD_RING, message.clone()),
        PeerError::RateLimited(message) => Refusal::new(code::RATE_LIMITED, message.clone()),
    }
}

pub(crate) fn unreadable(error: &dyn std::fmt::Display) -> PeerError {
    PeerError::Failed {
        reason: ReplicaFailure::UNKNOWN,
        message: format!("an answer that cannot be read: {error}"),
    }
}

/// A node and the address by which errors name it.
pub(crate) fn address(view: &ClusterView, node: NodeIndex) -> IpAddr {
    view.node(node).native.ip()
}
