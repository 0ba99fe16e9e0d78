//! Why a replica could not answer. Plain data: it crosses shards, and later nodes.

use schema::TableId;

/// A read or write that failed on this replica.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaError {
    /// The read stepped over more tombstones than `tombstone_failure_threshold` allows.
    #[error(
        "Scanned over {seen} tombstones during query of {table}, more than tombstone_failure_threshold ({max}); the \
         query was aborted. Delete less per partition, or compact after gc_grace_seconds"
    )]
    TooManyTombstones {
        /// Tombstones stepped over.
        seen: u64,
        /// The threshold.
        max: u64,
        /// Keyspace and table.
        table: String,
    },
    /// A mutation larger than the commit log takes.
    #[error("Mutation of {size} bytes is too large for the maximum size of {size_max}")]
    MutationTooLarge {
        /// Its size, bytes.
        size: usize,
        /// The limit, bytes.
        size_max: usize,
    },
    /// A write that changes more rows of a table with views or CDC than can be read at once.
    #[error("{0}")]
    TooMuchToRead(String),
    /// The table is not there (dropped meanwhile).
    #[error("there is no table with id {0}")]
    UnknownTable(TableId),
    /// An index is not there, or has not been built yet.
    #[error("The secondary index '{0}' is not yet available")]
    IndexUnavailable(String),
    /// A disk or file failed; the text names it, the place and the remedy.
    #[error("{0}")]
    Storage(String),
    /// The shard has stopped.
    #[error("the storage of this shard has stopped; see the log for the reason")]
    Stopped,
    /// The table was truncated at this time, microseconds since the epoch, after the write began or as it did; nothing was written.
    #[error("the table was truncated after the write began")]
    Truncated(i64),
}

impl From<engine::ReadError> for ReplicaError {
    fn from(error: engine::ReadError) -> Self {
        match error {
            engine::ReadError::UnknownTable(id) => Self::UnknownTable(id),
            engine::ReadError::Stopped => Self::Stopped,
            engine::ReadError::IndexUnavailable(name) => Self::IndexUnavailable(name),
            engine::ReadError::Source(_) => Self::Storage(error.to_string()),
        }
    }
}

impl From<engine::WriteError> for ReplicaError {
    fn from(error: engine::WriteError) -> Self {
        match error {
            engine::WriteError::MutationTooLarge { size, size_max } => {
                Self::MutationTooLarge { size, size_max }
            }
            engine::WriteError::TooMuchToRead(reason) => Self::TooMuchToRead(reason),
            engine::WriteError::UnknownTable(id) => Self::UnknownTable(id),
            engine::WriteError::Stopped => Self::Stopped,
            engine::WriteError::Truncated(at_micros) => Self::Truncated(at_micros),
            engine::WriteError::CommitLog(_)
            | engine::WriteError::Read(_)
            | engine::WriteError::FollowUp(_)
            | engine::WriteError::Overloaded(_) => Self::Storage(error.to_string()),
        }
    }
}

impl From<engine::MaintenanceError> for ReplicaError {
    fn from(error: engine::MaintenanceError) -> Self {
        match error {
            engine::MaintenanceError::UnknownTable(id) => Self::UnknownTable(id),
            engine::MaintenanceError::Stopped => Self::Stopped,
            other => Self::Storage(other.to_string()),
        }
    }
}
