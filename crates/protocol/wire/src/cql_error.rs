//! ERROR messages (§4.2.1, §9): every code with its body, and the replacement of newer codes in older versions.

use std::net::IpAddr;

use bytes::{BufMut, Bytes, BytesMut};

use crate::notation::{BodyReader, put_inet_address, put_short_bytes, put_string, put_string_list};
use crate::{Consistency, Dialect, ProtocolError, RATE_LIMIT_ERROR_CODE, Version};

/// The kind of write that failed or timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteType {
    /// One statement, no counter.
    Simple,
    /// A logged batch whose log is written.
    Batch,
    /// An unlogged batch.
    UnloggedBatch,
    /// A counter update.
    Counter,
    /// The write to the batch log.
    BatchLog,
    /// A conditional write.
    Cas,
    /// A view's update.
    View,
    /// A write to a table with change data capture.
    Cdc,
}

impl WriteType {
    const ALL: [(WriteType, &str); 8] = [
        (Self::Simple, "SIMPLE"),
        (Self::Batch, "BATCH"),
        (Self::UnloggedBatch, "UNLOGGED_BATCH"),
        (Self::Counter, "COUNTER"),
        (Self::BatchLog, "BATCH_LOG"),
        (Self::Cas, "CAS"),
        (Self::View, "VIEW"),
        (Self::Cdc, "CDC"),
    ];

    /// The name on the wire.
    #[expect(clippy::expect_used, reason = "the list has every type")]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(write_type, _)| *write_type == self).expect("all are listed").1
    }

    fn from_name(name: &str) -> Result<Self, ProtocolError> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(write_type, _)| *write_type).ok_or_else(
            || ProtocolError::UnknownName { field: "the write type", name: name.chars().take(64).collect() },
        )
    }
}

/// The operation that a rate limit stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OperationType {
    /// A read.
    Read = 0,
    /// A write.
    Write = 1,
}

/// An error code with the fields that follow the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// 0x0000: a bug in the server.
    ServerError,
    /// 0x000A: the client broke the protocol.
    ProtocolError,
    /// 0x0100: wrong credentials.
    AuthenticationFailed,
    /// 0x1000: too few replicas are alive.
    Unavailable {
        /// Consistency level of the request.
        consistency: Consistency,
        /// Replicas that it needs.
        required: i32,
        /// Replicas that are alive.
        alive: i32,
    },
    /// 0x1001: the node has too much to do.
    Overloaded,
    /// 0x1002: the node is not ready.
    IsBootstrapping,
    /// 0x1003: TRUNCATE failed.
    TruncateError,
    /// 0x1100: too few replicas acknowledged a write in time.
    WriteTimeout {
        /// Consistency level of the request.
        consistency: Consistency,
        /// Acknowledgements that came.
        received: i32,
        /// Acknowledgements needed.
        block_for: i32,
        /// Kind of write.
        write_type: WriteType,
        /// For a conditional write, how often another one got in the way (v5).
        contentions: u16,
    },
    /// 0x1200: too few replicas answered a read in time.
    ReadTimeout {
        /// Consistency level of the request.
        consistency: Consistency,
        /// Answers that came.
        received: i32,
        /// Answers needed.
        block_for: i32,
        /// Whether the replica that was asked for the data answered.
        data_present: bool,
    },
    /// 0x1300: a replica failed to read (v4 and later).
    ReadFailure {
        /// Consistency level of the request.
        consistency: Consistency,
        /// Answers that came.
        received: i32,
        /// Answers needed.
        block_for: i32,
        /// Replicas that failed, each with a reason code.
        failures: Vec<(IpAddr, u16)>,
        /// Whether the replica that was asked for the data answered.
        data_present: bool,
    },
    /// 0x1400: a user-defined function failed (v4 and later).
    FunctionFailure {
        /// Its keyspace.
        keyspace: String,
        /// Its name.
        function: String,
        /// CQL types of its arguments.
        arguments: Vec<String>,
    },
    /// 0x1500: a replica failed to write (v4 and later).
    WriteFailure {
        /// Consistency level of the request.
        consistency: Consistency,
        /// Acknowledgements that came.
        received: i32,
        /// Acknowledgements needed.
        block_for: i32,
        /// Replicas that failed, each with a reason code.
        failures: Vec<(IpAddr, u16)>,
        /// Kind of write.
        write_type: WriteType,
    },
    /// 0x1600: no space for change data capture.
    CdcWriteFailure,
    /// 0x1700: a conditional write may or may not have happened (v5).
    CasWriteUnknown {
        /// Consistency level of the request.
        consistency: Consistency,
        /// Acknowledgements that came.
        received: i32,
        /// Acknowledgements needed.
        block_for: i32,
    },
    /// 0x2000: the statement is not CQL.
    SyntaxError,
    /// 0x2100: the user may not do this.
    Unauthorized,
    /// 0x2200: the statement has no meaning.
    Invalid,
    /// 0x2300: the node's or the schema's configuration forbids it.
    ConfigError,
    /// 0x2400: the object to be created exists.
    AlreadyExists {
        /// Keyspace.
        keyspace: String,
        /// Table, or empty if it is the keyspace that exists.
        table: String,
    },
    /// 0x2500: no statement is prepared under this id.
    Unprepared {
        /// The id.
        id: Bytes,
    },
    /// The partition's rate limit is reached: [`RATE_LIMIT_ERROR_CODE`] for clients that know it.
    RateLimit {
        /// Kind of operation.
        operation: OperationType,
        /// Whether the coordinator refused it, and not a replica.
        rejected_by_coordinator: bool,
    },
}

/// An error as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CqlError {
    /// Code and fields.
    pub kind: ErrorKind,
    /// The error, and the remedy.
    pub message: String,
}

impl CqlError {
    /// An error.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The code on the wire, in the newest version.
    pub fn code(&self) -> i32 {
        self.kind.code()
    }

    /// Writes `<code><message>[…]`, with the code replaced where the client would not know it.
    pub(crate) fn put(&self, out: &mut BytesMut, dialect: Dialect) {
        let replaced = self.kind.for_older(dialect);
        let kind = replaced.as_ref().unwrap_or(&self.kind);
        out.put_i32(kind.code());
        put_string(out, &self.message);
        kind.put_fields(out, dialect.version);
    }

    pub(crate) fn decode(reader: &mut BodyReader<'_>, dialect: Dialect) -> Result<Self, ProtocolError> {
        let code = reader.i32("the error code")?;
        let message = reader.str("the error message")?.to_owned();
        let kind = ErrorKind::decode(reader, code, dialect.version)?;
        Ok(Self { kind, message })
    }
}

impl std::fmt::Display for CqlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (code 0x{:04X})", self.message, self.kind.code())
    }
}

impl std::error::Error for CqlError {}

impl From<ProtocolError> for CqlError {
    fn from(error: ProtocolError) -> Self {
        let kind = match &error {
            ProtocolError::MessageTooLong { .. } => ErrorKind::Invalid,
            _ => ErrorKind::ProtocolError,
        };
        debug_assert_eq!(kind.code(), error.code());
        Self { kind, message: error.to_string() }
    }
}

impl ErrorKind {
    /// The code on the wire (§9).
    pub fn code(&self) -> i32 {
        match self {
            Self::ServerError => 0x0000,
            Self::ProtocolError => 0x000A,
            Self::AuthenticationFailed => 0x0100,
            Self::Unavailable { .. } => 0x1000,
            Self::Overloaded => 0x1001,
            Self::IsBootstrapping => 0x1002,
            Self::TruncateError => 0x1003,
            Self::WriteTimeout { .. } => 0x1100,
            Self::ReadTimeout { .. } => 0x1200,
            Self::ReadFailure { .. } => 0x1300,
            Self::FunctionFailure { .. } => 0x1400,
            Self::WriteFailure { .. } => 0x1500,
            Self::CdcWriteFailure => 0x1600,
            Self::CasWriteUnknown { .. } => 0x1700,
            Self::SyntaxError => 0x2000,
            Self::Unauthorized => 0x2100,
            Self::Invalid => 0x2200,
            Self::ConfigError => 0x2300,
            Self::AlreadyExists { .. } => 0x2400,
            Self::Unprepared { .. } => 0x2500,
            Self::RateLimit { .. } => RATE_LIMIT_ERROR_CODE,
        }
    }

    /// The code that a client of this dialect gets instead, where it does not know the code.
    fn for_older(&self, dialect: Dialect) -> Option<ErrorKind> {
        match *self {
            Self::ReadFailure { consistency, received, block_for, data_present, .. }
                if dialect.version < Version::V4 =>
            {
                Some(Self::ReadTimeout { consistency, received, block_for, data_present })
            }
            Self::WriteFailure { consistency, received, block_for, write_type, .. }
                if dialect.version < Version::V4 =>
            {
                Some(Self::WriteTimeout { consistency, received, block_for, write_type, contentions: 0 })
            }
            Self::FunctionFailure { .. } | Self::CdcWriteFailure if dialect.version < Version::V4 => {
                Some(Self::Invalid)
            }
            Self::CasWriteUnknown { consistency, received, block_for } if dialect.version < Version::V5 => {
                let write_type = WriteType::Cas;
                Some(Self::WriteTimeout { consistency, received, block_for, write_type, contentions: 0 })
            }
            Self::RateLimit { .. } if !dialect.rate_limit_error => Some(Self::ConfigError),
            _ => None,
        }
    }

    fn put_fields(&self, out: &mut BytesMut, version: Version) {
        match self {
            Self::Unavailable { consistency, required, alive } => {
                put_counts(out, *consistency, *required, *alive)
            }
            Self::WriteTimeout { consistency, received, block_for, write_type, contentions } => {
                put_counts(out, *consistency, *received, *block_for);
                put_string(out, write_type.name());
                if *write_type == WriteType::Cas && version >= Version::V5 {
                    out.put_u16(*contentions);
                }
            }
            Self::ReadTimeout { consistency, received, block_for, data_present } => {
                put_counts(out, *consistency, *received, *block_for);
                out.put_u8(u8::from(*data_present));
            }
            Self::ReadFailure { consistency, received, block_for, failures, data_present } => {
                put_counts(out, *consistency, *received, *block_for);
                put_failures(out, failures, version);
                out.put_u8(u8::from(*data_present));
            }
            Self::WriteFailure { consistency, received, block_for, failures, write_type } => {
                put_counts(out, *consistency, *received, *block_for);
                put_failures(out, failures, version);
                put_string(out, write_type.name());
            }
            Self::FunctionFailure { keyspace, function, arguments } => {
                put_string(out, keyspace);
                put_string(out, function);
                put_string_list(out, arguments);
            }
            Self::CasWriteUnknown { consistency, received, block_for } => {
                put_counts(out, *consistency, *received, *block_for);
            }
            Self::AlreadyExists { keyspace, table } => {
                put_string(out, keyspace);
                put_string(out, table);
            }
            Self::Unprepared { id } => put_short_bytes(out, id),
            Self::RateLimit { operation, rejected_by_coordinator } => {
                out.put_u8(*operation as u8);
                out.put_u8(u8::from(*rejected_by_coordinator));
            }
            Self::ServerError
            | Self::ProtocolError
            | Self::AuthenticationFailed
            | Self::Overloaded
            | Self::IsBootstrapping
            | Self::TruncateError
            | Self::CdcWriteFailure
            | Self::SyntaxError
            | Self::Unauthorized
            | Self::Invalid
            | Self::ConfigError => {}
        }
    }

    fn decode(reader: &mut BodyReader<'_>, code: i32, version: Version) -> Result<Self, ProtocolError> {
        Ok(match code {
            0x0000 => Self::ServerError,
            0x000A => Self::ProtocolError,
            0x0100 => Self::AuthenticationFailed,
            0x1001 => Self::Overloaded,
            0x1002 => Self::IsBootstrapping,
            0x1003 => Self::TruncateError,
            0x1000 | 0x1100 | 0x1200 | 0x1300 | 0x1500 | 0x1700 => {
                return Self::decode_counted(reader, code, version);
            }
            0x1400 => Self::FunctionFailure {
                keyspace: reader.str("the keyspace")?.to_owned(),
                function: reader.str("the function")?.to_owned(),
                arguments: reader.string_list("the arguments")?.iter().map(ToString::to_string).collect(),
            },
            0x1600 => Self::CdcWriteFailure,
            0x2000 => Self::SyntaxError,
            0x2100 => Self::Unauthorized,
            0x2200 => Self::Invalid,
            0x2300 => Self::ConfigError,
            0x2400 => Self::AlreadyExists {
                keyspace: reader.str("the keyspace")?.to_owned(),
                table: reader.str("the table")?.to_owned(),
            },
            0x2500 => Self::Unprepared { id: reader.short_bytes("the id of the prepared statement")? },
            RATE_LIMIT_ERROR_CODE => Self::RateLimit {
                operation: match reader.u8("the operation")? {
                    0 => OperationType::Read,
                    _ => OperationType::Write,
                },
                rejected_by_coordinator: reader.u8("rejected_by_coordinator")? != 0,
            },
            other => {
                return Err(ProtocolError::InvalidValue { field: "the error code", value: i64::from(other) });
            }
        })
    }

    /// The codes whose fields begin with a consistency level and two counts.
    fn decode_counted(
        reader: &mut BodyReader<'_>,
        code: i32,
        version: Version,
    ) -> Result<Self, ProtocolError> {
        let consistency = reader.consistency()?;
        let received = reader.i32("received")?;
        let block_for = reader.i32("blockfor")?;
        Ok(match code {
            0x1000 => Self::Unavailable { consistency, required: received, alive: block_for },
            0x1100 => {
                let write_type = WriteType::from_name(reader.str("the write type")?)?;
                let contentions = match write_type == WriteType::Cas && version >= Version::V5 {
                    true => reader.u16("contentions")?,
                    false => 0,
                };
                Self::WriteTimeout { consistency, received, block_for, write_type, contentions }
            }
            0x1200 => {
                let data_present = reader.u8("data_present")? != 0;
                Self::ReadTimeout { consistency, received, block_for, data_present }
            }
            0x1300 => {
                let failures = decode_failures(reader, version)?;
                let data_present = reader.u8("data_present")? != 0;
                Self::ReadFailure { consistency, received, block_for, failures, data_present }
            }
            0x1500 => {
                let failures = decode_failures(reader, version)?;
                let write_type = WriteType::from_name(reader.str("the write type")?)?;
                Self::WriteFailure { consistency, received, block_for, failures, write_type }
            }
            _ => Self::CasWriteUnknown { consistency, received, block_for },
        })
    }
}

fn put_counts(out: &mut BytesMut, consistency: Consistency, first: i32, second: i32) {
    out.put_u16(consistency.code());
    out.put_i32(first);
    out.put_i32(second);
}

/// `<reasonmap>` in v5; v4 has only the number of failures.
fn put_failures(out: &mut BytesMut, failures: &[(IpAddr, u16)], version: Version) {
    out.put_i32(crate::notation::length(failures.len()));
    if version >= Version::V5 {
        for (address, reason) in failures {
            put_inet_address(out, *address);
            out.put_u16(*reason);
        }
    }
}

/// In v4, where the addresses are missing, as many unspecified ones as there are failures (64 at most).
fn decode_failures(
    reader: &mut BodyReader<'_>,
    version: Version,
) -> Result<Vec<(IpAddr, u16)>, ProtocolError> {
    let count = reader.i32("the number of failures")?;
    let count = usize::try_from(count).map_err(|_| ProtocolError::InvalidValue {
        field: "the number of failures",
        value: i64::from(count),
    })?;
    if version < Version::V5 {
        return Ok(vec![(IpAddr::from([0, 0, 0, 0]), 0); count.min(64)]);
    }
    let mut failures = Vec::with_capacity(count.min(reader.left() / 7));
    for _ in 0..count {
        failures.push((reader.inet_address("the replica")?, reader.u16("the reason")?));
    }
    Ok(failures)
}
