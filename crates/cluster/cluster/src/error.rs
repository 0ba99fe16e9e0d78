//! Errors of the stored schema.

use std::path::PathBuf;

use rt::DiskError;

use crate::edit::EditError;

/// Version of a schema's stored form; a file with a later one is refused.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// A stored schema that cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum SchemaCodecError {
    /// Not the JSON that was expected.
    #[error("not a schema: {0}")]
    Json(#[from] serde_json::Error),
    /// Written by a later version of the server.
    #[error(
        "written by a newer version (format {found}, this version reads up to {FORMAT_VERSION}); upgrade"
    )]
    Newer {
        /// The format found.
        found: u32,
    },
    /// A type that does not parse.
    #[error("type of {what}: {error}")]
    Type {
        /// The field with the type.
        what: String,
        /// The parser's error.
        error: types::ClassNameError,
    },
    /// A table that breaks a rule.
    #[error("table {table}: {error}")]
    Table {
        /// Which table.
        table: String,
        /// Which rule.
        error: schema::InvalidSchema,
    },
    /// A value outside its domain.
    #[error("{what}: {found:?} is not valid")]
    Value {
        /// Which value.
        what: &'static str,
        /// The value.
        found: String,
    },
}

/// A schema that could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The file's content is damaged.
    #[error("{path}: {error}; restore it from a backup of this node, nothing was changed")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The error.
        error: SchemaCodecError,
    },
    /// The file's checksum does not match.
    #[error(
        "{path}: checksum is {found:016x}, expected {expected:016x}; restore it from a backup of this node, nothing \
         was changed"
    )]
    Checksum {
        /// The file.
        path: PathBuf,
        /// The checksum that it names.
        expected: u64,
        /// The checksum of its content.
        found: u64,
    },
    /// The change does not fit.
    #[error(transparent)]
    Edit(#[from] EditError),
}
