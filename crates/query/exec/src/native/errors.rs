//! Errors as the native protocol numbers them (§9).

use coordinator::RequestError;
use wire::{CqlError, ErrorKind, OperationType, WriteType};

use crate::error::ExecError;

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

fn request_kind(error: &RequestError) -> ErrorKind {
    let reasons = |failures: &[coordinator::ReplicaFailure]| {
        failures.iter().map(|failure| (failure.address, failure.code)).collect::<Vec<_>>()
    };
    match error {
        RequestError::Unavailable { consistency, required, alive } => ErrorKind::Unavailable {
            consistency: *consistency,
            required: count(*required),
            alive: count(*alive),
        },
        RequestError::ReadTimeout { consistency, received, required, data_present } => {
            ErrorKind::ReadTimeout {
                consistency: *consistency,
                received: count(*received),
                block_for: count(*required),
                data_present: *data_present,
            }
        }
        RequestError::WriteTimeout { consistency, received, required, kind } => ErrorKind::WriteTimeout {
            consistency: *consistency,
            received: count(*received),
            block_for: count(*required),
            write_type: write_type(*kind),
            contentions: 0,
        },
        RequestError::CasTimeout { consistency, received, required, contentions, kind } => {
            ErrorKind::WriteTimeout {
                consistency: *consistency,
                received: count(*received),
                block_for: count(*required),
                write_type: write_type(*kind),
                contentions: u16::try_from(*contentions).unwrap_or(u16::MAX),
            }
        }
        RequestError::CasUncertain { consistency, received, required } => ErrorKind::CasWriteUnknown {
            consistency: *consistency,
            received: count(*received),
            block_for: count(*required),
        },
        RequestError::ReadFailure { consistency, received, required, data_present, failures } => {
            ErrorKind::ReadFailure {
                consistency: *consistency,
                received: count(*received),
                block_for: count(*required),
                failures: reasons(failures),
                data_present: *data_present,
            }
        }
        RequestError::WriteFailure { consistency, received, required, kind, failures } => {
            ErrorKind::WriteFailure {
                consistency: *consistency,
                received: count(*received),
                block_for: count(*required),
                failures: reasons(failures),
                write_type: write_type(*kind),
            }
        }
        RequestError::RateLimit { operation, by_coordinator, .. } => ErrorKind::RateLimit {
            operation: match operation {
                coordinator::Operation::Read => OperationType::Read,
                coordinator::Operation::Write => OperationType::Write,
            },
            rejected_by_coordinator: *by_coordinator,
        },
        RequestError::Overloaded(_) => ErrorKind::Overloaded,
        RequestError::Truncate(_) => ErrorKind::TruncateError,
        RequestError::Invalid(_) => ErrorKind::Invalid,
    }
}

/// An error as the native protocol names it.
pub fn cql_error(error: &ExecError) -> CqlError {
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
        ExecError::FunctionFailure { keyspace, function, arguments, .. } => ErrorKind::FunctionFailure {
            keyspace: keyspace.clone(),
            function: function.clone(),
            arguments: arguments.clone(),
        },
        ExecError::Request(error) => request_kind(error),
    };
    CqlError::new(kind, bounded(error.to_string()))
}

/// The most bytes of a message: it may repeat a client's text, which may be as long as a statement, and a `[string]` of the protocol has 65,535
/// bytes at most.
const MESSAGE_BYTES_MAX: usize = 1_800;
/// Bytes of the end of a message that is shortened: which often has the reason.
const MESSAGE_END_BYTES: usize = 600;

/// A message with its middle left out when it is too long.
fn bounded(message: String) -> String {
    if message.len() <= MESSAGE_BYTES_MAX {
        return message;
    }
    let start = message.floor_char_boundary(MESSAGE_BYTES_MAX - MESSAGE_END_BYTES);
    let end = message.ceil_char_boundary(message.len() - MESSAGE_END_BYTES);
    format!("{}…{}", message.get(..start).unwrap_or_default(), message.get(end..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_keep_their_start_and_their_end() {
        assert_eq!(bounded("short".to_owned()), "short");
        let long = format!("Role {} doesn't exist", "é".repeat(40_000));
        let short = bounded(long);
        assert!(short.len() <= MESSAGE_BYTES_MAX + '…'.len_utf8(), "{} bytes", short.len());
        assert!(short.starts_with("Role éé") && short.ends_with("é doesn't exist"), "{short}");
    }
}
