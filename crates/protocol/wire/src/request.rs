//! Requests (§4.1), read from envelopes into structs that share the envelope's memory.

use bytes::Bytes;

use crate::notation::BodyReader;
use crate::{
    Consistency, Dialect, Envelope, EventType, Flags, Opcode, ProtocolError, Utf8Bytes, Values, Version,
};

/// A custom payload: names and values in the order in which they were sent.
pub type CustomPayload = Vec<(Utf8Bytes, Option<Bytes>)>;

/// A request with the other fields of its envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The client asks for the request to be traced.
    pub tracing: bool,
    /// The custom payload (v4 and later); empty if there is none.
    pub custom_payload: CustomPayload,
    /// The message.
    pub message: Message,
}

/// The message of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Opens the connection.
    Startup(Startup),
    /// A client's step of authentication.
    AuthResponse(AuthResponse),
    /// Asks for the server's options.
    Options,
    /// A statement as text.
    Query(Query),
    /// Prepares a statement.
    Prepare(Prepare),
    /// Executes a prepared statement.
    Execute(Execute),
    /// Several statements.
    Batch(Batch),
    /// Asks for events.
    Register(Register),
}

/// STARTUP (§4.1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Startup {
    /// The options, in the order in which they were sent.
    pub options: Vec<(Utf8Bytes, Utf8Bytes)>,
}

impl Startup {
    /// The value of an option; names are compared without case, as Cassandra does.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.options.iter().find(|(key, _)| key.as_str().eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// AUTH_RESPONSE (§4.1.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthResponse {
    /// The token; its meaning is up to the authenticator.
    pub token: Option<Bytes>,
}

/// QUERY (§4.1.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The statement.
    pub text: Utf8Bytes,
    /// Values and options.
    pub parameters: QueryParameters,
}

/// PREPARE (§4.1.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepare {
    /// The statement.
    pub text: Utf8Bytes,
    /// The keyspace of unqualified names, instead of the connection's (v5).
    pub keyspace: Option<Utf8Bytes>,
}

/// EXECUTE (§4.1.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execute {
    /// The id that PREPARE returned.
    pub id: Bytes,
    /// The id of the result metadata that the client knows ([`Dialect::has_metadata_id`]).
    pub result_metadata_id: Option<Bytes>,
    /// Values and options.
    pub parameters: QueryParameters,
}

/// REGISTER (§4.1.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// The kinds of events that the client wants.
    pub events: Vec<EventType>,
}

/// How the statements of a batch belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BatchType {
    /// All or none, by way of the batch log.
    Logged = 0,
    /// Without the batch log.
    Unlogged = 1,
    /// Counter updates only.
    Counter = 2,
}

/// BATCH (§4.1.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Kind of batch.
    pub kind: BatchType,
    /// The statements in order.
    pub statements: Vec<BatchStatement>,
    /// Options; values and paging are never set.
    pub parameters: QueryParameters,
}

/// One statement of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchStatement {
    /// Where the statement comes from.
    pub source: StatementSource,
    /// Its values.
    pub values: Values,
}

/// A statement in a batch: text or a prepared statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatementSource {
    /// The statement's text.
    Text(Utf8Bytes),
    /// The id that PREPARE returned.
    Prepared(Bytes),
}

/// The `<query_parameters>` of QUERY and EXECUTE, and the options of BATCH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryParameters {
    /// Consistency level.
    pub consistency: Consistency,
    /// Bound values.
    pub values: Values,
    /// The client knows the result's metadata and does not want it again.
    pub skip_metadata: bool,
    /// Rows of a page, as sent; zero or less means no paging.
    pub page_size: Option<i32>,
    /// Where to go on.
    pub paging_state: Option<Bytes>,
    /// Consistency level of a conditional statement's first phase.
    pub serial_consistency: Option<Consistency>,
    /// Default timestamp in microseconds.
    pub timestamp: Option<i64>,
    /// The keyspace of unqualified names (v5).
    pub keyspace: Option<Utf8Bytes>,
    /// The time that the statement takes for the present, in seconds since 1970 (v5).
    pub now_in_seconds: Option<i32>,
}

impl QueryParameters {
    /// Nothing but a consistency level.
    pub fn new(consistency: Consistency) -> Self {
        Self {
            consistency,
            values: Values::none(),
            skip_metadata: false,
            page_size: None,
            paging_state: None,
            serial_consistency: None,
            timestamp: None,
            keyspace: None,
            now_in_seconds: None,
        }
    }
}

/// The bits of `<query_parameters>`' flags (§4.1.4).
pub(crate) mod parameter_flags {
    pub(crate) const VALUES: u32 = 0x0001;
    pub(crate) const SKIP_METADATA: u32 = 0x0002;
    pub(crate) const PAGE_SIZE: u32 = 0x0004;
    pub(crate) const PAGING_STATE: u32 = 0x0008;
    pub(crate) const SERIAL_CONSISTENCY: u32 = 0x0010;
    pub(crate) const TIMESTAMP: u32 = 0x0020;
    pub(crate) const NAMES: u32 = 0x0040;
    pub(crate) const KEYSPACE: u32 = 0x0080;
    pub(crate) const NOW_IN_SECONDS: u32 = 0x0100;
    /// Bits that have no meaning in a batch.
    pub(crate) const NOT_IN_BATCH: u32 = VALUES | SKIP_METADATA | PAGE_SIZE | PAGING_STATE;
}

/// PREPARE's flag for a keyspace (v5).
pub(crate) const PREPARE_KEYSPACE: u32 = 0x01;

impl Request {
    /// Reads the request in an envelope. Bytes after the message are ignored, as the specification asks.
    ///
    /// # Errors
    /// [`ProtocolError::UnknownOpcode`] when it is a response, [`ProtocolError::CustomPayloadNotAllowed`] before
    /// version 4, [`ProtocolError::Truncated`] and the others of a body when a field is cut off or has an undefined
    /// value.
    pub fn decode(envelope: &Envelope, dialect: Dialect) -> Result<Self, ProtocolError> {
        let mut reader = BodyReader::new(&envelope.body);
        let mut custom_payload = CustomPayload::new();
        if envelope.flags.has(Flags::CUSTOM_PAYLOAD) {
            if dialect.version < Version::V4 {
                return Err(ProtocolError::CustomPayloadNotAllowed);
            }
            custom_payload = reader.bytes_map("the custom payload")?;
        }
        let message = match envelope.opcode {
            Opcode::Startup => Message::Startup(Startup { options: reader.string_map("a STARTUP option")? }),
            Opcode::AuthResponse => Message::AuthResponse(AuthResponse { token: reader.bytes("the token")? }),
            Opcode::Options => Message::Options,
            Opcode::Query => Message::Query(Query {
                text: reader.long_string("the query")?,
                parameters: QueryParameters::decode(&mut reader, dialect)?,
            }),
            Opcode::Prepare => Message::Prepare(Prepare::decode(&mut reader, dialect)?),
            Opcode::Execute => Message::Execute(Execute::decode(&mut reader, dialect)?),
            Opcode::Batch => Message::Batch(Batch::decode(&mut reader, dialect)?),
            Opcode::Register => Message::Register(Register::decode(&mut reader)?),
            Opcode::Error
            | Opcode::Ready
            | Opcode::Authenticate
            | Opcode::Supported
            | Opcode::Result
            | Opcode::Event
            | Opcode::AuthChallenge
            | Opcode::AuthSuccess => {
                return Err(ProtocolError::UnknownOpcode { opcode: envelope.opcode.code() });
            }
        };
        Ok(Self { tracing: envelope.flags.has(Flags::TRACING), custom_payload, message })
    }
}

impl QueryParameters {
    fn flags(reader: &mut BodyReader<'_>, dialect: Dialect) -> Result<u32, ProtocolError> {
        let field = "the flags of the query";
        if dialect.version >= Version::V5 { reader.u32(field) } else { reader.u8(field).map(u32::from) }
    }

    #[inline]
    fn decode(reader: &mut BodyReader<'_>, dialect: Dialect) -> Result<Self, ProtocolError> {
        let consistency = reader.consistency()?;
        let flags = Self::flags(reader, dialect)?;
        let mut parameters = Self::new(consistency);
        if flags & parameter_flags::VALUES != 0 {
            let named = flags & parameter_flags::NAMES != 0;
            parameters.values = Values::decode(reader, dialect.version, named)?;
        }
        parameters.skip_metadata = flags & parameter_flags::SKIP_METADATA != 0;
        if flags & parameter_flags::PAGE_SIZE != 0 {
            parameters.page_size = Some(reader.i32("the page size")?);
        }
        if flags & parameter_flags::PAGING_STATE != 0 {
            parameters.paging_state = reader.bytes("the paging state")?;
        }
        parameters.decode_common(reader, dialect, flags)?;
        Ok(parameters)
    }

    /// The options that batches have too.
    #[inline]
    fn decode_common(
        &mut self,
        reader: &mut BodyReader<'_>,
        dialect: Dialect,
        flags: u32,
    ) -> Result<(), ProtocolError> {
        if flags & parameter_flags::SERIAL_CONSISTENCY != 0 {
            self.serial_consistency = Some(reader.consistency()?);
        }
        if flags & parameter_flags::TIMESTAMP != 0 {
            let timestamp = reader.i64("the default timestamp")?;
            if timestamp == i64::MIN {
                let field = "the default timestamp";
                return Err(ProtocolError::InvalidValue { field, value: timestamp });
            }
            self.timestamp = Some(timestamp);
        }
        if dialect.version >= Version::V5 {
            if flags & parameter_flags::KEYSPACE != 0 {
                self.keyspace = Some(reader.string("the keyspace")?);
            }
            if flags & parameter_flags::NOW_IN_SECONDS != 0 {
                self.now_in_seconds = Some(reader.i32("now_in_seconds")?);
            }
        }
        Ok(())
    }
}

impl Prepare {
    fn decode(reader: &mut BodyReader<'_>, dialect: Dialect) -> Result<Self, ProtocolError> {
        let text = reader.long_string("the query")?;
        let mut keyspace = None;
        if dialect.version >= Version::V5 && reader.u32("the flags of PREPARE")? & PREPARE_KEYSPACE != 0 {
            keyspace = Some(reader.string("the keyspace")?);
        }
        Ok(Self { text, keyspace })
    }
}

impl Execute {
    #[inline]
    fn decode(reader: &mut BodyReader<'_>, dialect: Dialect) -> Result<Self, ProtocolError> {
        let id = reader.short_bytes("the id of the prepared statement")?;
        let result_metadata_id = match dialect.has_metadata_id() {
            true => Some(reader.short_bytes("the id of the result metadata")?),
            false => None,
        };
        Ok(Self { id, result_metadata_id, parameters: QueryParameters::decode(reader, dialect)? })
    }
}

impl Batch {
    fn decode(reader: &mut BodyReader<'_>, dialect: Dialect) -> Result<Self, ProtocolError> {
        let kind = match reader.u8("the type of the batch")? {
            0 => BatchType::Logged,
            1 => BatchType::Unlogged,
            2 => BatchType::Counter,
            other => return Err(ProtocolError::UnknownBatchType(other)),
        };
        let count = usize::from(reader.u16("the number of statements")?);
        // A statement takes at least five bytes: memory for no more of them than there can be.
        let mut statements = Vec::with_capacity(count.min(reader.left() / 5));
        for _ in 0..count {
            statements.push(BatchStatement::decode(reader, dialect)?);
        }
        let mut parameters = QueryParameters::new(reader.consistency()?);
        let flags = QueryParameters::flags(reader, dialect)?;
        if flags & parameter_flags::NOT_IN_BATCH != 0 {
            return Err(ProtocolError::InvalidValue {
                field: "the flags of the batch",
                value: i64::from(flags),
            });
        }
        parameters.decode_common(reader, dialect, flags)?;
        Ok(Self { kind, statements, parameters })
    }
}

impl BatchStatement {
    fn decode(reader: &mut BodyReader<'_>, dialect: Dialect) -> Result<Self, ProtocolError> {
        let source = match reader.u8("the kind of a statement in the batch")? {
            0 => StatementSource::Text(reader.long_string("a query in the batch")?),
            1 => StatementSource::Prepared(reader.short_bytes("the id of the prepared statement")?),
            other => {
                let field = "the kind of a statement in the batch (0 or 1)";
                return Err(ProtocolError::InvalidValue { field, value: i64::from(other) });
            }
        };
        Ok(Self { source, values: Values::decode(reader, dialect.version, false)? })
    }
}

impl Register {
    fn decode(reader: &mut BodyReader<'_>) -> Result<Self, ProtocolError> {
        let names = reader.string_list("an event type")?;
        let mut events = Vec::new();
        for name in names {
            let event = EventType::from_name(&name)?;
            // The list is as long as the client likes; the kinds are three.
            if !events.contains(&event) {
                events.push(event);
            }
        }
        Ok(Self { events })
    }
}
