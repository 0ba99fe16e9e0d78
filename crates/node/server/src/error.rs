//! The reasons why a node did not start, or ended: in words for its operator.

use rt::{DiskError, LockError, NetError};

/// A node that cannot run.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A directory or file.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Another process uses the data directory.
    #[error("another node uses the data directory: {0}")]
    Locked(#[from] LockError),
    /// An address or port.
    #[error("{what}: {error}; is another server running there? Choose another with {option}")]
    Listen {
        /// The port's purpose.
        what: &'static str,
        /// The system's error.
        error: NetError,
        /// The option to change.
        option: &'static str,
    },
    /// The data directory's identity.
    #[error(transparent)]
    Identity(#[from] cluster::IdentityError),
    /// The stored schema.
    #[error(transparent)]
    Schema(#[from] cluster::StoreError),
    /// The cluster: finding it, being let in, taking part.
    #[error("{0}")]
    Cluster(String),
    /// Storage.
    #[error("{0}")]
    Open(String),
    /// Ending storage.
    #[error("while stopping: {0}")]
    Stop(String),
    /// The node got a stop signal while it was still starting.
    #[error("stopped before the node was ready")]
    Interrupted,
    /// The shard has ended already.
    #[error("the shard has stopped")]
    Stopped,
}

// Reasons of the engine stay on their shard; words may travel.
impl From<engine::OpenError> for NodeError {
    fn from(error: engine::OpenError) -> Self {
        Self::Open(error.to_string())
    }
}

impl From<engine::MaintenanceError> for NodeError {
    fn from(error: engine::MaintenanceError) -> Self {
        Self::Stop(error.to_string())
    }
}

impl From<membership::MembershipError> for NodeError {
    fn from(error: membership::MembershipError) -> Self {
        match error {
            membership::MembershipError::Disk(error) => Self::Disk(error),
            membership::MembershipError::Cluster(text) => Self::Cluster(text),
            membership::MembershipError::Stopped => Self::Stopped,
        }
    }
}
