//! Why a statement was refused or failed: one value with the protocol's error code, its body's fields and the text
//! that drivers' users match on, which is Cassandra's wherever Cassandra has one.

use coordinator::RequestError;
use wire::{CqlError, ErrorKind, WriteType};

/// A statement that did not succeed.
#[derive(Clone, Debug, PartialEq)]
pub enum ExecError {
    /// The text is not CQL, or a property is not one that the statement has.
    Syntax(String),
    /// The statement has no meaning for this schema or these values.
    Invalid(String),
    /// The options of a keyspace or table do not go together.
    Config(String),
    /// The user may not do this, whoever he is.
    Unauthorized(String),
    /// What was to be created exists. `table` is empty when it is the keyspace.
    AlreadyExists {
        /// The keyspace.
        keyspace: String,
        /// The table.
        table: String,
    },
    /// The prepared statement is not known, or what it was prepared for is gone.
    Unprepared {
        /// The id that the client sent.
        id: bytes::Bytes,
    },
    /// A function could not compute its result.
    FunctionFailure {
        /// The function.
        function: String,
        /// CQL types of its arguments.
        arguments: Vec<String>,
        /// What went wrong.
        message: String,
    },
    /// The client broke the protocol: a paging state that is not ours.
    Protocol(String),
    /// The cluster could not carry it out.
    Request(RequestError),
    /// The schema's copy on disk could not be written.
    SchemaNotSaved(String),
}

impl ExecError {
    /// An invalid statement.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid(text.into())
    }

    /// A feature that parses but is not carried out yet.
    pub fn unsupported(feature: impl std::fmt::Display) -> Self {
        Self::Invalid(format!("{feature} is not supported yet"))
    }
}

/// A shorthand for results of this crate.
pub type Result<T, E = ExecError> = std::result::Result<T, E>;

/// Shorthand for `Err(ExecError::Invalid(format!(…)))`.
macro_rules! invalid {
    ($($arg:tt)*) => { Err($crate::error::ExecError::Invalid(format!($($arg)*))) };
}
pub(crate) use invalid;

impl From<RequestError> for ExecError {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

impl From<types::TypeError> for ExecError {
    fn from(error: types::TypeError) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl From<cql::SyntaxError> for ExecError {
    fn from(error: cql::SyntaxError) -> Self {
        Self::Syntax(error.to_string())
    }
}

impl std::fmt::Display for ExecError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Syntax(text)
            | Self::Invalid(text)
            | Self::Config(text)
            | Self::Unauthorized(text)
            | Self::Protocol(text)
            | Self::SchemaNotSaved(text) => f.write_str(text),
            Self::AlreadyExists { keyspace, table } if table.is_empty() => {
                write!(f, "Cannot add existing keyspace \"{keyspace}\"")
            }
            Self::AlreadyExists { keyspace, table } => {
                write!(f, "Cannot add already existing table \"{table}\" to keyspace \"{keyspace}\"")
            }
            Self::Unprepared { id } => write!(
                f,
                "Prepared query with ID {id:x} not found (either the query was not prepared on this host (maybe the \
                 host has been restarted?) or you have prepared too many queries and it has been evicted from the \
                 internal cache)"
            ),
            Self::FunctionFailure { message, .. } => f.write_str(message),
            Self::Request(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ExecError {}

fn count(n: u32) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

fn write_type(kind: coordinator::WriteKind) -> WriteType {
    match kind {
        coordinator::WriteKind::Simple => WriteType::Simple,
        coordinator::WriteKind::Batch => WriteType::Batch,
        coordinator::WriteKind::UnloggedBatch => WriteType::UnloggedBatch,
        coordinator::WriteKind::Counter => WriteType::Counter,
        coordinator::WriteKind::BatchLog => WriteType::BatchLog,
        coordinator::WriteKind::Cas => WriteType::Cas,
    }
}

/// The protocol's number for a consistency level.
pub(crate) fn to_wire_consistency(consistency: coordinator::Consistency) -> wire::Consistency {
    use coordinator::Consistency as C;
    match consistency {
        C::Any => wire::Consistency::Any,
        C::One => wire::Consistency::One,
        C::Two => wire::Consistency::Two,
        C::Three => wire::Consistency::Three,
        C::Quorum => wire::Consistency::Quorum,
        C::All => wire::Consistency::All,
        C::LocalQuorum => wire::Consistency::LocalQuorum,
        C::EachQuorum => wire::Consistency::EachQuorum,
        C::Serial => wire::Consistency::Serial,
        C::LocalSerial => wire::Consistency::LocalSerial,
        C::LocalOne => wire::Consistency::LocalOne,
    }
}

/// The coordinator's consistency level for the protocol's.
pub(crate) fn from_wire_consistency(consistency: wire::Consistency) -> coordinator::Consistency {
    use coordinator::Consistency as C;
    match consistency {
        wire::Consistency::Any => C::Any,
        wire::Consistency::One => C::One,
        wire::Consistency::Two => C::Two,
        wire::Consistency::Three => C::Three,
        wire::Consistency::Quorum => C::Quorum,
        wire::Consistency::All => C::All,
        wire::Consistency::LocalQuorum => C::LocalQuorum,
        wire::Consistency::EachQuorum => C::EachQuorum,
        wire::Consistency::Serial => C::Serial,
        wire::Consistency::LocalSerial => C::LocalSerial,
        wire::Consistency::LocalOne => C::LocalOne,
    }
}

fn request_kind(error: &RequestError) -> ErrorKind {
    let reasons = |failures: &[coordinator::ReplicaFailure]| {
        failures.iter().map(|failure| (failure.address, failure.code)).collect::<Vec<_>>()
    };
    match error {
        RequestError::Unavailable { consistency, required, alive } => ErrorKind::Unavailable {
            consistency: to_wire_consistency(*consistency),
            required: count(*required),
            alive: count(*alive),
        },
        RequestError::ReadTimeout { consistency, received, required, data_present } => {
            ErrorKind::ReadTimeout {
                consistency: to_wire_consistency(*consistency),
                received: count(*received),
                block_for: count(*required),
                data_present: *data_present,
            }
        }
        RequestError::WriteTimeout { consistency, received, required, kind } => ErrorKind::WriteTimeout {
            consistency: to_wire_consistency(*consistency),
            received: count(*received),
            block_for: count(*required),
            write_type: write_type(*kind),
            contentions: 0,
        },
        RequestError::CasTimeout { consistency, received, required, contentions, kind } => {
            ErrorKind::WriteTimeout {
                consistency: to_wire_consistency(*consistency),
                received: count(*received),
                block_for: count(*required),
                write_type: write_type(*kind),
                contentions: u16::try_from(*contentions).unwrap_or(u16::MAX),
            }
        }
        RequestError::CasUncertain { consistency, received, required } => ErrorKind::CasWriteUnknown {
            consistency: to_wire_consistency(*consistency),
            received: count(*received),
            block_for: count(*required),
        },
        RequestError::ReadFailure { consistency, received, required, data_present, failures } => {
            ErrorKind::ReadFailure {
                consistency: to_wire_consistency(*consistency),
                received: count(*received),
                block_for: count(*required),
                failures: reasons(failures),
                data_present: *data_present,
            }
        }
        RequestError::WriteFailure { consistency, received, required, kind, failures } => {
            ErrorKind::WriteFailure {
                consistency: to_wire_consistency(*consistency),
                received: count(*received),
                block_for: count(*required),
                failures: reasons(failures),
                write_type: write_type(*kind),
            }
        }
        RequestError::Overloaded(_) => ErrorKind::Overloaded,
        RequestError::Truncate(_) => ErrorKind::TruncateError,
        RequestError::Invalid(_) => ErrorKind::Invalid,
    }
}

impl From<&ExecError> for CqlError {
    fn from(error: &ExecError) -> Self {
        let kind = match error {
            ExecError::Syntax(_) => ErrorKind::SyntaxError,
            ExecError::Invalid(_) => ErrorKind::Invalid,
            ExecError::Config(_) => ErrorKind::ConfigError,
            ExecError::Unauthorized(_) => ErrorKind::Unauthorized,
            ExecError::Protocol(_) => ErrorKind::ProtocolError,
            ExecError::SchemaNotSaved(_) => ErrorKind::ServerError,
            ExecError::AlreadyExists { keyspace, table } => {
                ErrorKind::AlreadyExists { keyspace: keyspace.clone(), table: table.clone() }
            }
            ExecError::Unprepared { id } => ErrorKind::Unprepared { id: id.clone() },
            ExecError::FunctionFailure { function, arguments, .. } => ErrorKind::FunctionFailure {
                keyspace: "system".to_owned(),
                function: function.clone(),
                arguments: arguments.clone(),
            },
            ExecError::Request(error) => request_kind(error),
        };
        CqlError::new(kind, error.to_string())
    }
}
