//! The errors in bytes that a peer sent, and how the protocol answers it.

use crate::{Direction, HEADER_LEN, Version};

/// The peer broke the protocol. `Display` is the text of the ERROR message that answers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// The first byte names a version that this server does not speak.
    UnsupportedVersion {
        /// The number that was asked for.
        version: u8,
    },
    /// The first byte names another version than the connection agreed on.
    VersionChanged {
        /// The number in this message.
        version: u8,
        /// The version of the connection.
        expected: Version,
    },
    /// A response where a request was expected, or the other way round.
    WrongDirection {
        /// The rows that this side reads.
        expected: Direction,
        /// The message's opcode.
        opcode: u8,
    },
    /// No message has this opcode.
    UnknownOpcode {
        /// The opcode.
        opcode: u8,
    },
    /// The message is longer than this side accepts (`native_transport_max_frame_size`).
    MessageTooLong {
        /// Length of the whole envelope in bytes.
        length: u64,
        /// The longest accepted, in bytes.
        max: usize,
    },
    /// The length field of an envelope is negative.
    NegativeLength {
        /// Its value.
        length: i32,
    },
    /// The body ends inside a field.
    Truncated {
        /// The field, in the specification's words.
        field: &'static str,
        /// Bytes that the field needs.
        needed: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// A text is not UTF-8.
    NotUtf8 {
        /// The field.
        field: &'static str,
    },
    /// A code is none of a consistency level.
    UnknownConsistency(u16),
    /// A number is none of a kind of batch.
    UnknownBatchType(u8),
    /// A code or count has no meaning.
    InvalidValue {
        /// The field.
        field: &'static str,
        /// Its value.
        value: i64,
    },
    /// A name is none of those that the field allows.
    UnknownName {
        /// The field.
        field: &'static str,
        /// The name.
        name: String,
    },
    /// The header of a v5 frame does not match its checksum.
    HeaderChecksum {
        /// As it stands in the frame.
        read: u32,
        /// As it should be.
        computed: u32,
    },
    /// The payload of a v5 frame does not match its checksum.
    PayloadChecksum {
        /// As it stands in the frame.
        read: u32,
        /// As it should be.
        computed: u32,
    },
    /// A v5 frame holds something else than whole envelopes or one part of a long one.
    BrokenFrame {
        /// The part that does not fit.
        reason: &'static str,
    },
    /// A compressed body or payload cannot be unpacked.
    BadCompression {
        /// The error in it.
        reason: &'static str,
    },
    /// A body is compressed, but the connection agreed on no compression.
    CompressionNotAgreed,
    /// A custom payload in a version that has none.
    CustomPayloadNotAllowed,
}

impl ProtocolError {
    /// The error code of the ERROR message that answers it (§9).
    pub fn code(&self) -> i32 {
        match self {
            Self::MessageTooLong { .. } => 0x2200,
            _ => 0x000A,
        }
    }

    /// Whether the position of the next message is lost, so that the connection has to be closed.
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::UnsupportedVersion { .. }
            | Self::VersionChanged { .. }
            | Self::WrongDirection { .. }
            | Self::NegativeLength { .. }
            | Self::HeaderChecksum { .. }
            | Self::PayloadChecksum { .. }
            | Self::BrokenFrame { .. } => true,
            Self::UnknownOpcode { .. }
            | Self::MessageTooLong { .. }
            | Self::Truncated { .. }
            | Self::NotUtf8 { .. }
            | Self::InvalidValue { .. }
            | Self::UnknownConsistency(_)
            | Self::UnknownBatchType(_)
            | Self::UnknownName { .. }
            | Self::BadCompression { .. }
            | Self::CompressionNotAgreed
            | Self::CustomPayloadNotAllowed => false,
        }
    }
}

impl std::fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnsupportedVersion { version } => write!(
                f,
                "Invalid or unsupported protocol version ({version}); supported versions are ({})",
                Version::SUPPORTED
            ),
            Self::VersionChanged { version, expected } => write!(
                f,
                "Invalid message version. Got {version} but previous messages on this connection had version {expected}"
            ),
            Self::WrongDirection { expected, opcode } => {
                write!(f, "Wrong protocol direction (expected {expected}) for opcode {opcode}")
            }
            Self::UnknownOpcode { opcode } => write!(f, "Unknown opcode {opcode}"),
            Self::MessageTooLong { length, max } => {
                write!(f, "Request is too big: length {length} exceeds maximum allowed length {max}.")
            }
            Self::NegativeLength { length } => {
                write!(f, "Invalid value for envelope header body length field: {length}")
            }
            Self::Truncated { field, needed, left } => {
                write!(
                    f,
                    "Not enough bytes to read {field}: needed {needed}, only {left} left in the message"
                )
            }
            Self::NotUtf8 { field } => write!(f, "Cannot decode {field} as UTF-8"),
            Self::UnknownConsistency(code) => write!(f, "Unknown code {code} for a consistency level"),
            Self::UnknownBatchType(code) => write!(f, "Invalid BATCH message type {code}"),
            Self::InvalidValue { field, value } => write!(f, "Invalid value {value} for {field}"),
            Self::UnknownName { field, name } => write!(f, "Invalid value '{name}' for {field}"),
            Self::HeaderChecksum { read, computed } => write!(
                f,
                "Invalid, unrecoverable CRC mismatch detected in frame header. Read {read}, Computed {computed}"
            ),
            Self::PayloadChecksum { read, computed } => write!(
                f,
                "Invalid, unrecoverable CRC mismatch detected in frame body. Read {read}, Computed {computed}"
            ),
            Self::BrokenFrame { reason } => {
                write!(f, "Invalid frame: {reason} (an envelope header has {HEADER_LEN} bytes)")
            }
            Self::BadCompression { reason } => write!(f, "Cannot decompress the message: {reason}"),
            Self::CompressionNotAgreed => {
                f.write_str("The message is compressed, but STARTUP agreed on no compression")
            }
            Self::CustomPayloadNotAllowed => {
                f.write_str("Received frame with CUSTOM_PAYLOAD flag for native protocol version < 4")
            }
        }
    }
}

impl std::error::Error for ProtocolError {}
