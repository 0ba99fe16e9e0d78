//! Why a table's files could not be had.

use engine::MaintenanceError;
use rt::DiskError;

/// Why a table's files could not be had. Fetched files stay on disk unless they are said to be of no use.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// This node's disk refuses, or is full.
    #[error("{0}")]
    Disk(#[from] DiskError),
    /// The incoming data find no room on this node's disk.
    #[error("{0}")]
    NoPlace(String),
    /// The source does not answer.
    #[error("the source does not answer: {0}")]
    Silent(String),
    /// The source says why it cannot.
    #[error("the source cannot send its files: {0}")]
    Source(String),
    /// The received data cannot be used.
    #[error("what came cannot be used: {0}")]
    Unusable(String),
    /// This shard cannot take the files over now.
    #[error("{0}")]
    Here(MaintenanceError),
}

impl FetchError {
    /// Whether this node's disk is the reason: rows would not find room either.
    pub fn is_disk(&self) -> bool {
        matches!(self, Self::Disk(_) | Self::NoPlace(_) | Self::Here(MaintenanceError::Disk(_)))
    }
}

impl From<MaintenanceError> for FetchError {
    fn from(error: MaintenanceError) -> Self {
        match error {
            MaintenanceError::Disk(error) => Self::Disk(error),
            MaintenanceError::Source(error) => Self::Unusable(error.to_string()),
            MaintenanceError::NotWanted(_) => Self::Unusable(error.to_string()),
            other => Self::Here(other),
        }
    }
}
