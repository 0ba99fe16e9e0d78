//! Responses, read (§4.2).

use bytes::Bytes;

use crate::metadata::metadata_flags;
use crate::notation::BodyReader;
use crate::response::result_kind;
use crate::{
    CqlError, Dialect, Envelope, Event, Flags, LWT_MARK_MASK, Metadata, Opcode, PreparedMetadata,
    ProtocolError, SchemaChange, Utf8Bytes, Version,
};

/// A response with the header before its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The id under which the request was traced.
    pub tracing_id: Option<[u8; 16]>,
    /// Warnings.
    pub warnings: Vec<Utf8Bytes>,
    /// Custom payload.
    pub custom_payload: Vec<(Utf8Bytes, Option<Bytes>)>,
    /// The message.
    pub body: AnswerBody,
}

/// The message of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerBody {
    /// ERROR
    Error(CqlError),
    /// READY
    Ready,
    /// AUTHENTICATE with the authenticator's class
    Authenticate(Utf8Bytes),
    /// AUTH_CHALLENGE
    AuthChallenge(Option<Bytes>),
    /// AUTH_SUCCESS
    AuthSuccess(Option<Bytes>),
    /// SUPPORTED
    Supported(Vec<(Utf8Bytes, Vec<Utf8Bytes>)>),
    /// RESULT
    Result(ResultBody),
    /// EVENT
    Event(Event),
}

/// The kinds of RESULT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultBody {
    /// Nothing to say.
    Void,
    /// Rows.
    Rows(Rows),
    /// The keyspace in use.
    SetKeyspace(Utf8Bytes),
    /// A prepared statement.
    Prepared(Prepared),
    /// A change of the schema.
    SchemaChange(SchemaChange),
}

/// The result of PREPARE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Ids and columns.
    pub metadata: PreparedMetadata,
    /// The id of the result's metadata, where the dialect has one.
    pub result_metadata_id: Option<Bytes>,
}

/// A page of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The columns, unless they were left out.
    pub metadata: Option<Metadata>,
    /// The new id of the result's metadata, when it changed.
    pub new_metadata_id: Option<Bytes>,
    /// Number of columns.
    pub columns: usize,
    /// Number of rows.
    pub rows: usize,
    /// The state to request the next page with.
    pub paging_state: Option<Bytes>,
    content: Bytes,
}

impl Answer {
    /// Reads the response in an envelope.
    ///
    /// # Errors
    /// [`ProtocolError::UnknownOpcode`] when it is a request, [`ProtocolError::Truncated`] and the others of a body
    /// when a field is cut off or has an undefined value.
    pub fn decode(envelope: &Envelope, dialect: Dialect) -> Result<Self, ProtocolError> {
        let reader = &mut BodyReader::new(&envelope.body);
        let tracing_id = match envelope.flags.has(Flags::TRACING) {
            true => Some(reader.uuid("the tracing id")?),
            false => None,
        };
        let warnings = match envelope.flags.has(Flags::WARNING) {
            true => reader.string_list("a warning")?,
            false => Vec::new(),
        };
        let custom_payload = match envelope.flags.has(Flags::CUSTOM_PAYLOAD) {
            true => reader.bytes_map("the custom payload")?,
            false => Vec::new(),
        };
        let body = match envelope.opcode {
            Opcode::Error => AnswerBody::Error(CqlError::decode(reader, dialect)?),
            Opcode::Ready => AnswerBody::Ready,
            Opcode::Authenticate => AnswerBody::Authenticate(reader.string("the authenticator")?),
            Opcode::AuthChallenge => AnswerBody::AuthChallenge(reader.bytes("the token")?),
            Opcode::AuthSuccess => AnswerBody::AuthSuccess(reader.bytes("the token")?),
            Opcode::Supported => AnswerBody::Supported(decode_supported(reader)?),
            Opcode::Result => AnswerBody::Result(ResultBody::decode(reader, dialect)?),
            Opcode::Event => AnswerBody::Event(Event::decode(reader)?),
            other => return Err(ProtocolError::UnknownOpcode { opcode: other.code() }),
        };
        Ok(Self { tracing_id, warnings, custom_payload, body })
    }
}

fn decode_supported(reader: &mut BodyReader<'_>) -> Result<Vec<(Utf8Bytes, Vec<Utf8Bytes>)>, ProtocolError> {
    let count = reader.u16("the number of options")?;
    let mut options = Vec::new();
    for _ in 0..count {
        options.push((reader.string("an option")?, reader.string_list("a value")?));
    }
    Ok(options)
}

impl ResultBody {
    fn decode(reader: &mut BodyReader<'_>, dialect: Dialect) -> Result<Self, ProtocolError> {
        Ok(match reader.i32("the kind of result")? {
            result_kind::VOID => Self::Void,
            result_kind::ROWS => Self::Rows(Rows::decode(reader)?),
            result_kind::SET_KEYSPACE => Self::SetKeyspace(reader.string("the keyspace")?),
            result_kind::PREPARED => Self::Prepared(Prepared::decode(reader, dialect)?),
            result_kind::SCHEMA_CHANGE => Self::SchemaChange(SchemaChange::decode(reader)?),
            other => {
                return Err(ProtocolError::InvalidValue {
                    field: "the kind of result",
                    value: i64::from(other),
                });
            }
        })
    }
}

fn count(reader: &mut BodyReader<'_>, field: &'static str) -> Result<usize, ProtocolError> {
    let count = reader.i32(field)?;
    usize::try_from(count).map_err(|_| ProtocolError::InvalidValue { field, value: i64::from(count) })
}

impl Prepared {
    fn decode(reader: &mut BodyReader<'_>, dialect: Dialect) -> Result<Self, ProtocolError> {
        let id = reader.short_bytes("the id of the prepared statement")?;
        let result_metadata_id = match dialect.has_metadata_id() {
            true => Some(reader.short_bytes("the id of the result metadata")?),
            false => None,
        };
        let flags = reader.u32("the flags of the metadata")?;
        let columns = count(reader, "the number of bind markers")?;
        let mut partition_key_markers = Vec::new();
        if dialect.version >= Version::V4 {
            for _ in 0..count(reader, "the number of partition key markers")? {
                partition_key_markers.push(reader.u16("a partition key marker")?);
            }
        }
        let bind_markers = Metadata::decode(reader, flags, columns)?;
        let is_conditional = dialect.lwt_mark && flags & LWT_MARK_MASK != 0;
        let result = Rows::decode_head(reader)?.metadata.unwrap_or_else(Metadata::none);
        let metadata = PreparedMetadata { id, bind_markers, partition_key_markers, result, is_conditional };
        Ok(Self { metadata, result_metadata_id })
    }
}

impl Rows {
    /// Everything before the number of rows.
    fn decode_head(reader: &mut BodyReader<'_>) -> Result<Self, ProtocolError> {
        let flags = reader.u32("the flags of the metadata")?;
        let columns = count(reader, "the number of columns")?;
        let paging_state = match flags & metadata_flags::HAS_MORE_PAGES {
            0 => None,
            _ => reader.bytes("the paging state")?,
        };
        let new_metadata_id = match flags & metadata_flags::METADATA_CHANGED {
            0 => None,
            _ => Some(reader.short_bytes("the id of the result metadata")?),
        };
        let metadata = match flags & metadata_flags::NO_METADATA {
            0 => Some(Metadata::decode(reader, flags, columns)?),
            _ => None,
        };
        Ok(Self { metadata, new_metadata_id, columns, rows: 0, paging_state, content: Bytes::new() })
    }

    fn decode(reader: &mut BodyReader<'_>) -> Result<Self, ProtocolError> {
        let mut rows = Self::decode_head(reader)?;
        rows.rows = count(reader, "the number of rows")?;
        rows.content = reader.rest();
        Ok(rows)
    }

    /// The cells, row after row; a cell is `None` when it is null. Ends at the first that is not there.
    ///
    /// # Errors
    /// The last item is [`ProtocolError::Truncated`] when the content ends inside a cell.
    pub fn cells(&self) -> impl Iterator<Item = Result<Option<&[u8]>, ProtocolError>> {
        let mut reader = BodyReader::new(&self.content);
        let mut left = (self.rows as u64).saturating_mul(self.columns as u64);
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let cell = reader.bytes_slice("a cell");
            if cell.is_err() {
                left = 0;
            }
            Some(cell)
        })
    }

    /// All rows, copied.
    ///
    /// # Errors
    /// [`ProtocolError::Truncated`] when the content ends inside a cell.
    pub fn to_vec(&self) -> Result<Vec<Vec<Option<Vec<u8>>>>, ProtocolError> {
        let mut rows = Vec::new();
        let mut row = Vec::new();
        for cell in self.cells() {
            row.push(cell?.map(<[u8]>::to_vec));
            if row.len() == self.columns {
                rows.push(std::mem::take(&mut row));
            }
        }
        Ok(rows)
    }
}
