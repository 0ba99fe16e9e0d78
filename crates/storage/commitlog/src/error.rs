//! Why the commit log could not be opened or written.

use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;

use rt::DiskError;

/// A log that cannot be opened.
#[derive(Clone, Debug)]
pub enum CommitLogError {
    /// The disk refused.
    Disk(DiskError),
    /// Damage in a part that had been made durable, so that no crash explains it.
    Corrupt {
        /// The segment.
        file: PathBuf,
        /// Where the damage begins.
        offset: u64,
        /// The expected content.
        expected: String,
        /// The content.
        found: String,
    },
    /// A segment between others is gone. They are removed oldest first, so that no crash explains it.
    Missing {
        /// The segment.
        file: PathBuf,
        /// The one behind it, which names it.
        next: PathBuf,
    },
    /// A later version wrote the segment.
    NewerVersion {
        /// The segment.
        file: PathBuf,
        /// The format version that it has.
        version: u32,
    },
}

impl fmt::Display for CommitLogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(error) => error.fmt(f),
            Self::Corrupt { file, offset, expected, found } => write!(
                f,
                "the commit log {} is corrupt at offset {offset}: expected {expected}, found {found}; writes behind it \
                 would be lost. Restore the file, or start once with commitlog_ignore_errors: true to skip the damage \
                 and then repair the node",
                file.display()
            ),
            Self::Missing { file, next } => write!(
                f,
                "the commit log {} is missing: {} says that it came before. Writes in it that no SSTable holds yet would be \
                 lost. Put the file back, from the archive if there is one, or start once with commitlog_ignore_errors: \
                 true to go on without it and then repair the node",
                file.display(),
                next.display()
            ),
            Self::NewerVersion { file, version } => write!(
                f,
                "the commit log {} has format version {version}, which a newer version wrote; start that version and \
                 drain it first",
                file.display()
            ),
        }
    }
}

impl std::error::Error for CommitLogError {}

impl From<DiskError> for CommitLogError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

/// An entry that was not written, or of which that is not known.
#[derive(Clone, Debug)]
pub enum AppendError {
    /// It is larger than half a segment.
    TooLarge {
        /// Its size, bytes.
        size: usize,
        /// The limit, bytes.
        size_max: usize,
    },
    /// The segment could not be made, written or synced.
    Disk(Rc<DiskError>),
    /// The log is closed.
    Closed,
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { size, size_max } => {
                write!(f, "an entry of {size} bytes is larger than half a segment ({size_max} bytes)")
            }
            Self::Disk(error) => error.fmt(f),
            Self::Closed => f.write_str("the commit log is closed"),
        }
    }
}

impl std::error::Error for AppendError {}
