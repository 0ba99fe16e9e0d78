//! The CQL native protocol v3, v4 and v5 as pure data: bytes in, requests out; results in, bytes out.
//!
//! The section numbers in this crate's comments are those of `doc/native_protocol_v5.spec` of Apache Cassandra
//! (v3 and v4 where they differ). Nothing here reads a socket, a clock or the schema.
//!
//! A server uses it in this order: [`Decoder`] cuts the bytes of a connection into [`Envelope`]s,
//! [`Request::decode`] reads one, the answer is written into a [`ResponseWriter`], and [`Encoder`] packs answers
//! into the bytes of one write. A client ([`client`]) goes the other way round with the same two codecs.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

pub mod client;
mod compression;
mod cql_error;
mod decoder;
mod direction;
mod encoder;
mod envelope;
mod error;
mod event;
mod frame;
mod metadata;
mod notation;
mod request;
mod response;
mod text;
mod type_option;
mod values;
mod version;

pub use compression::Compression;
pub use cql_error::{CqlError, ErrorKind, OperationType, WriteType};
pub use decoder::{Decoder, Rejection};
pub use direction::{Direction, HEADER_LEN};
pub use encoder::{Encoder, put_version_refusal};
pub use envelope::{Envelope, Flags, Header, Opcode};
pub use error::ProtocolError;
pub use event::{ChangeType, Event, EventType, SchemaChange, SchemaTarget, StatusChange, TopologyChange};
pub use frame::{Framing, MAX_FRAME_PAYLOAD};
pub use metadata::{ColumnSpec, Metadata, PreparedMetadata, statement_id};
pub use request::{
    AuthResponse, Batch, BatchStatement, BatchType, CustomPayload, Execute, Message, Prepare, Query,
    QueryParameters, Register, Request, Startup, StatementSource,
};
pub use response::{RESULT_BYTES_MAX, ResponseWriter, RowsWriter};
pub use text::Utf8Bytes;
pub use topology::Consistency;
pub use type_option::TypeOption;
pub use values::{Value, ValuePlace, Values};
pub use version::{Dialect, LWT_MARK_MASK, RATE_LIMIT_ERROR_CODE, Version};
