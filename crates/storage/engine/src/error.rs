//! The errors of the engine.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use commitlog::AppendError;
use mutation::SourceError;
use schema::TableId;
use sstable::SstableError;

/// Pause after something that failed for want of space, descriptors or memory, or because the disk did.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A write that was not applied, or whose durability could not be had.
#[derive(Clone, Debug)]
pub enum WriteError {
    /// The entry would take more than half a commit log segment.
    MutationTooLarge {
        /// Its size, bytes.
        size: usize,
        /// The limit, bytes.
        size_max: usize,
    },
    /// No such table here (dropped meanwhile, or not yet known).
    UnknownTable(TableId),
    /// The commit log could not be written, and whether the write survives a restart is unknown; or there is no
    /// memory for it because memtables cannot be flushed.
    CommitLog(String),
    /// Reading the previous state failed: a counter's value, or rows that a view follows.
    Read(String),
    /// The updates derived from it follow from more of the previous state than can be read at once; nothing was written, nor will it be
    /// when the write is tried again.
    TooMuchToRead(String),
    /// The write is stored; derived updates elsewhere, which were to be there before the write is acknowledged, are not there in time.
    FollowUp(String),
    /// Too many updates that follow from earlier writes are not delivered yet; nothing was written.
    Overloaded(String),
    /// The engine has stopped, on request or because the disk failed and the policy asks for it.
    Stopped,
    /// The table was truncated at this time (microseconds since the epoch), after the write began or as it did; nothing was written.
    Truncated(i64),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MutationTooLarge { size, size_max } => write!(
                f,
                "the mutation of {size} bytes is too large for the maximum size of {size_max} bytes; split it, or \
                 raise commitlog_segment_size"
            ),
            Self::UnknownTable(id) => write!(f, "there is no table with id {id} on this shard"),
            Self::CommitLog(reason) => write!(f, "the write cannot be stored: {reason}"),
            Self::Read(reason) => write!(f, "what the write changes cannot be read: {reason}"),
            Self::TooMuchToRead(reason) | Self::Overloaded(reason) => f.write_str(reason),
            Self::FollowUp(reason) => {
                write!(f, "the write is stored, and what follows from it is not there yet: {reason}")
            }
            Self::Stopped => f.write_str("the storage of this shard has stopped; see the log for the reason"),
            Self::Truncated(_) => f.write_str("the table was truncated after the write began"),
        }
    }
}

impl std::error::Error for WriteError {}

/// A read that failed.
#[derive(Debug)]
pub enum ReadError {
    /// No such table here.
    UnknownTable(TableId),
    /// A file could not be read or is corrupt; the text names it, the place and the remedy.
    Source(SourceError),
    /// An index by this name is not there, or has not been built yet.
    IndexUnavailable(String),
    /// The engine has stopped.
    Stopped,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownTable(id) => write!(f, "there is no table with id {id} on this shard"),
            Self::Source(error) => error.fmt(f),
            Self::IndexUnavailable(name) => write!(f, "The secondary index '{name}' is not yet available"),
            Self::Stopped => f.write_str("the storage of this shard has stopped; see the log for the reason"),
        }
    }
}

impl std::error::Error for ReadError {}

/// Why a shard's storage could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The disk refused.
    Disk(rt::DiskError),
    /// The commit log is damaged in its middle; the text names file and offset and says how to override.
    CommitLog(String),
    /// An SSTable is damaged; the text names file and offset.
    Sstable(String),
    /// The directory was written by a newer version.
    NewerVersion {
        /// The file with that version.
        path: PathBuf,
        /// Its content.
        found: String,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(error) => error.fmt(f),
            Self::CommitLog(reason) | Self::Sstable(reason) => f.write_str(reason),
            Self::NewerVersion { path, found } => write!(
                f,
                "{} was written by a newer version ({found}); start that version, or point the server at another \
                 directory",
                path.display()
            ),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<rt::DiskError> for OpenError {
    fn from(error: rt::DiskError) -> Self {
        Self::Disk(error)
    }
}

/// A flush, compaction, snapshot, truncation or drop that failed.
#[derive(Debug)]
pub enum MaintenanceError {
    /// No such table here.
    UnknownTable(TableId),
    /// The disk refused.
    Disk(rt::DiskError),
    /// A file could not be read or written; the text says which and why.
    Source(SourceError),
    /// A snapshot of that name exists.
    SnapshotExists(String),
    /// No snapshot can have this name.
    SnapshotName(String),
    /// The table has no index of that name.
    UnknownIndex(String),
    /// The table was truncated after the files were asked for that are to be taken over.
    Truncated,
    /// Files that are to be adopted hold partitions that do not belong to this shard.
    NotWanted(String),
    /// It was asked to stop.
    Cancelled,
    /// An operator stopped it.
    Interrupted,
    /// The time until which it was wanted has passed. Nothing was changed.
    Expired,
    /// The engine has stopped.
    Stopped,
}

impl fmt::Display for MaintenanceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownTable(id) => write!(f, "there is no table with id {id} on this shard"),
            Self::Disk(error) => error.fmt(f),
            Self::Source(error) => error.fmt(f),
            Self::SnapshotExists(name) => write!(f, "Snapshot {name} already exists."),
            Self::SnapshotName(name) => {
                write!(f, "no snapshot can have the name {name:?}: it is that of a directory")
            }
            Self::UnknownIndex(name) => write!(f, "there is no index {name} on this table"),
            Self::Truncated => f.write_str("the table was truncated meanwhile"),
            Self::NotWanted(what) => write!(f, "{what} does not belong to this shard"),
            Self::Cancelled => f.write_str("it was stopped on request"),
            Self::Interrupted => f.write_str("an operator stopped it (nodetool stop)"),
            Self::Expired => f.write_str("its time limit had passed before it could begin"),
            Self::Stopped => f.write_str("the storage of this shard has stopped; see the log for the reason"),
        }
    }
}

impl std::error::Error for MaintenanceError {}

impl From<rt::DiskError> for MaintenanceError {
    fn from(error: rt::DiskError) -> Self {
        Self::Disk(error)
    }
}

/// Whether an error of the disk says that something has run out which may come back: space, descriptors, memory, slots. It is no
/// sign of a broken disk, and is waited out.
pub(crate) fn is_shortage(error: &rt::DiskError) -> bool {
    // EAGAIN, ENOMEM, ENFILE, EMFILE.
    error.is_disk_full() || matches!(error.source.raw_os_error(), Some(11 | 12 | 23 | 24))
}

/// Keeps the kind of a disk's failure, which decides the reaction.
pub(crate) fn disk_or_source(error: SstableError) -> MaintenanceError {
    match error {
        SstableError::Disk(error) => MaintenanceError::Disk(error),
        other => MaintenanceError::Source(Box::new(other)),
    }
}

/// A failure of the log in a maintenance operation.
pub(crate) fn log_failure(error: AppendError) -> MaintenanceError {
    match error {
        AppendError::Disk(error) => MaintenanceError::Disk((*error).clone()),
        AppendError::Closed => MaintenanceError::Stopped,
        AppendError::TooLarge { .. } => MaintenanceError::Source(error.to_string().into()),
    }
}

pub(crate) fn write_error(error: AppendError) -> WriteError {
    match error {
        AppendError::TooLarge { size, size_max } => WriteError::MutationTooLarge { size, size_max },
        AppendError::Disk(error) => WriteError::CommitLog(error.to_string()),
        AppendError::Closed => WriteError::Stopped,
    }
}
