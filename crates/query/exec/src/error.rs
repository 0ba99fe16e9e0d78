//! Why a statement was refused or failed: one value with the kind of the error, its fields and the text that drivers'
//! users match on, which is Cassandra's wherever Cassandra has one.

use coordinator::RequestError;

/// A statement that did not succeed.
#[derive(Clone, Debug, PartialEq)]
pub enum ExecError {
    /// The text is not CQL, or a property is not one that the statement has.
    Syntax(String),
    /// The statement has no meaning for this schema or these values.
    Invalid(String),
    /// The options of a keyspace or table do not go together.
    Config(String),
    /// No user may do this.
    Unauthorized(String),
    /// The object to be created exists. `table` is empty when it is the keyspace.
    AlreadyExists {
        /// The keyspace.
        keyspace: String,
        /// The table.
        table: String,
    },
    /// The prepared statement is not known, or the table that it was prepared for is gone.
    Unprepared {
        /// The id that the client sent.
        id: bytes::Bytes,
    },
    /// A function could not compute its result.
    FunctionFailure {
        /// The function's keyspace; `system` of native functions.
        keyspace: String,
        /// The function.
        function: String,
        /// CQL types of its arguments.
        arguments: Vec<String>,
        /// The error.
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

/// An error of class Unauthorized.
///
/// # Errors
/// Always [`ExecError::Unauthorized`] with this text.
pub fn unauthorized<T>(text: impl Into<String>) -> Result<T> {
    Err(ExecError::Unauthorized(text.into()))
}

/// An error of configuration.
///
/// # Errors
/// Always [`ExecError::Config`] with this text.
pub fn config<T>(text: impl Into<String>) -> Result<T> {
    Err(ExecError::Config(text.into()))
}

/// An error of syntax.
///
/// # Errors
/// Always [`ExecError::Syntax`] with this text.
pub fn syntax<T>(text: impl Into<String>) -> Result<T> {
    Err(ExecError::Syntax(text.into()))
}

/// Characters of a client's text that a message repeats.
const SHOWN_CHARACTERS_MAX: usize = 256;

/// The start of a text that a client sent, for messages.
pub fn shown(text: &str) -> std::borrow::Cow<'_, str> {
    match text.char_indices().nth(SHOWN_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

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
