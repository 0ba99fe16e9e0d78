//! Why a node's part in its cluster failed: in words for an operator.

use rt::DiskError;

/// A step of membership or of a topology change that failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MembershipError {
    /// The node's own directory.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The cluster: finding it, being admitted to it, taking part in it.
    #[error("{0}")]
    Cluster(String),
    /// The shard has ended already.
    #[error("the shard has stopped")]
    Stopped,
}
