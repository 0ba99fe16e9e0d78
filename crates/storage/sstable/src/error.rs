//! Why an SSTable could not be read or written: damage, a format that is not supported, or the disk.

use std::fmt;
use std::path::{Path, PathBuf};

use rt::DiskError;

/// Bytes of a file that cannot be the written ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The file.
    pub file: PathBuf,
    /// Byte offset of the damage in it. For compressed data files, when the bytes passed their checksum, the
    /// offset in the uncompressed stream.
    pub offset: u64,
    /// The expected content.
    pub expected: String,
    /// The content.
    pub found: String,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is corrupt at offset {}: expected {}, found {}; restore the SSTable from a backup or repair the table",
            self.file.display(),
            self.offset,
            self.expected,
            self.found
        )
    }
}

impl std::error::Error for Corruption {}

/// A failure of an SSTable operation.
#[derive(Clone, Debug)]
pub enum SstableError {
    /// Damaged bytes.
    Corrupt(Box<Corruption>),
    /// A component without which nothing can be read is not there.
    Missing {
        /// The file.
        file: PathBuf,
    },
    /// A file of a kind that this version cannot read.
    Unsupported {
        /// The file.
        file: PathBuf,
        /// The reason, and the remedy.
        what: String,
    },
    /// The file does not belong to the table that it was opened with.
    WrongTable {
        /// The file.
        file: PathBuf,
        /// How they differ.
        what: String,
    },
    /// The disk failed.
    Disk(DiskError),
}

impl SstableError {
    pub(crate) fn corrupt(
        file: &Path,
        offset: u64,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::Corrupt(Box::new(Corruption {
            file: file.to_owned(),
            offset,
            expected: expected.into(),
            found: found.into(),
        }))
    }

    /// A failure to open or read a component that must be there.
    pub(crate) fn of_component(file: &Path, error: DiskError) -> Self {
        if error.is_not_found() { Self::Missing { file: file.to_owned() } } else { Self::Disk(error) }
    }

    /// Whether the file's bytes are damaged, as opposed to unreadable or of an unknown kind.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Corrupt(_))
    }
}

impl fmt::Display for SstableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt(corruption) => corruption.fmt(f),
            Self::Missing { file } => write!(
                f,
                "{} is missing; restore it from a backup, or remove the other files of the SSTable and repair the table",
                file.display()
            ),
            Self::Unsupported { file, what } => {
                write!(f, "{} cannot be read: {what}", file.display())
            }
            Self::WrongTable { file, what } => {
                write!(
                    f,
                    "{} does not fit the table: {what}; load it into the table that it came from",
                    file.display()
                )
            }
            Self::Disk(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SstableError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Disk(error) => Some(error),
            Self::Corrupt(corruption) => Some(&**corruption),
            Self::Missing { .. } | Self::Unsupported { .. } | Self::WrongTable { .. } => None,
        }
    }
}

impl From<DiskError> for SstableError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

/// An error while a component was decoded, before it is known where the bytes lie in which file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Offset within the bytes being decoded.
    pub offset: usize,
    /// The expected content.
    pub expected: String,
    /// The content.
    pub found: String,
}

impl DecodeError {
    pub(crate) fn new(offset: usize, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { offset, expected: expected.into(), found: found.into() }
    }

    /// The same failure, told with the file and where in it the decoded bytes begin.
    pub fn in_file(self, file: &Path, base: u64) -> SstableError {
        SstableError::corrupt(file, base + self.offset as u64, self.expected, self.found)
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {} at offset {}, found {}", self.expected, self.offset, self.found)
    }
}

impl std::error::Error for DecodeError {}
