//! Parts of an aggregation as messages between shards and nodes ([`parts`](super::parts)).
//!
//! ```text
//! request := version (1), schema version (16), consistency level (2), 0 | 1 with a keyspace, text, vint count of values, each
//!            0 (unset), 1 (null) or 2 with the value, command
//! answer  := version (1), vint tombstones, 0 | 1 with the place to resume from, state of each aggregate in the order of the selection
//! state   := of count(*) the rows (8); of a native aggregate that merges as types::native::Aggregate encodes it; of another one a
//!            vint length and the values, each with a vint length; of a first value 0 (no row), 1 (null) or 2 with the value
//! ```
//!
//! Keyspace, text, values and the command (`replica::read_codec`) have a vint length.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::sync::Arc;

use bytes::Bytes;
use coordinator::Consistency;
use replica::{ReadCommand, Resume, read_codec};
use schema::Schema;
use stdx::Reader;
use stdx::vint::{read_unsigned, write_unsigned};

use super::{SelectPlan, Source};
use crate::expr::Value;
use crate::expr::bind::{Binds, MarkerSpec};
use crate::functions::AggregateState;

const VERSION: u8 = 1;
/// A statement has at most as many markers.
const VALUES_MAX: u64 = 65_535;

/// The request of a part, without its values until the statement's markers are known.
pub(crate) struct PartRequest<'a> {
    pub(crate) consistency: Consistency,
    pub(crate) source: Source,
    values: Vec<Option<Option<&'a [u8]>>>,
    command: &'a [u8],
}

/// The states of a part, or of its beginning.
#[derive(Debug)]
pub(crate) struct PartAnswer {
    pub(crate) states: Vec<AggregateState>,
    pub(crate) tombstones: u64,
    /// Where the rest of the part begins, if there is one.
    pub(crate) resume: Option<Resume>,
}

fn put(bytes: &[u8], out: &mut Vec<u8>) {
    write_unsigned(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// The request of a part.
pub(crate) fn encode_request(
    source: &Source,
    schema: [u8; 16],
    consistency: Consistency,
    binds: &Binds,
    command: &ReadCommand,
) -> Bytes {
    let mut out = Vec::with_capacity(256 + source.text.len());
    out.push(VERSION);
    out.extend_from_slice(&schema);
    out.extend_from_slice(&consistency.code().to_be_bytes());
    out.push(u8::from(source.keyspace.is_some()));
    if let Some(keyspace) = &source.keyspace {
        put(keyspace.as_bytes(), &mut out);
    }
    put(source.text.as_bytes(), &mut out);
    write_unsigned(binds.len() as u64, &mut out);
    for index in 0..binds.len() {
        match binds.value(u32::try_from(index).unwrap_or(u32::MAX)) {
            Value::Unset => out.push(0),
            Value::Null => out.push(1),
            Value::Set(value) => {
                out.push(2);
                put(&value, &mut out);
            }
        }
    }
    let mut encoded = Vec::with_capacity(128);
    read_codec::encode_command(command, &mut encoded);
    put(&encoded, &mut out);
    out.into()
}

impl<'a> PartRequest<'a> {
    /// Reads a request, if it is of this schema.
    pub(crate) fn decode(body: &'a [u8], schema: &Schema) -> Result<Self, String> {
        let mut reader = Reader::new(body);
        if reader.u8().ok() != Some(VERSION) {
            return Err("another version of a part of an aggregation".to_owned());
        }
        if reader.array::<16>().ok() != Some(schema.version()) {
            return Err("the nodes' schemas differ".to_owned());
        }
        Self::fields(&mut reader).ok_or_else(|| "a damaged part of an aggregation".to_owned())
    }

    fn fields(reader: &mut Reader<'a>) -> Option<Self> {
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
        let consistency = Consistency::from_code(reader.u16().ok()?)?;
        let keyspace = match reader.u8().ok()? {
            0 => None,
            1 => Some(text(reader.bytes_vint().ok()?)?),
            _ => return None,
        };
        let source = Source { text: text(reader.bytes_vint().ok()?)?, keyspace };
        let count = read_unsigned(reader).ok().filter(|count| *count <= VALUES_MAX)?;
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(match reader.u8().ok()? {
                0 => None,
                1 => Some(None),
                2 => Some(Some(reader.bytes_vint().ok()?)),
                _ => return None,
            });
        }
        let command = reader.bytes_vint().ok()?;
        reader.is_empty().then_some(Self { consistency, source, values, command })
    }

    /// The values, of these markers.
    pub(crate) fn binds(&self, markers: &[MarkerSpec]) -> Result<Binds, String> {
        if markers.len() != self.values.len() {
            return Err("another number of values than markers".to_owned());
        }
        let mut binds = Binds::within(&Bytes::new(), markers.len());
        for (marker, value) in markers.iter().zip(&self.values) {
            match value {
                None => binds.push(Value::Unset),
                Some(None) => binds.push(Value::Null),
                Some(Some(value)) => {
                    let value = Bytes::copy_from_slice(value);
                    binds.push_checked(marker, value).map_err(|error| error.to_string())?;
                }
            }
        }
        Ok(binds)
    }

    /// The read of its rows, which is of the plan's table.
    pub(crate) fn command(&self, plan: &SelectPlan) -> Result<ReadCommand, String> {
        let body = Bytes::copy_from_slice(self.command);
        let table = |id| (id == plan.table.id).then(|| Arc::clone(&plan.table));
        read_codec::decode_command(&body, table).map_err(|error| error.to_string())
    }
}

impl PartAnswer {
    /// The answer as a message.
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(64);
        out.push(VERSION);
        write_unsigned(self.tombstones, &mut out);
        out.push(u8::from(self.resume.is_some()));
        if let Some(resume) = &self.resume {
            read_codec::put_place(resume, &mut out);
        }
        for state in &self.states {
            match state {
                AggregateState::CountRows(rows) => out.extend_from_slice(&rows.to_be_bytes()),
                AggregateState::Native(native) => native.encode(&mut out),
                AggregateState::Values(values) => put(values, &mut out),
                AggregateState::First(None) => out.push(0),
                AggregateState::First(Some(None)) => out.push(1),
                AggregateState::First(Some(Some(value))) => {
                    out.push(2);
                    put(value, &mut out);
                }
                AggregateState::User(..) => unreachable!("the states of users' aggregates are not sent"),
            }
        }
        out.into()
    }

    /// Reads an answer to a part of this plan; none when it is none.
    pub(crate) fn decode(body: &Bytes, plan: &SelectPlan) -> Option<Self> {
        let mut reader = Reader::new(body);
        if reader.u8().ok()? != VERSION {
            return None;
        }
        let tombstones = read_unsigned(&mut reader).ok()?;
        let resume = match reader.u8().ok()? {
            0 => None,
            1 => Some(read_codec::get_place(body, &mut reader, &plan.table).ok()?),
            _ => return None,
        };
        let mut states = Vec::with_capacity(plan.selection.aggregates.len());
        for aggregate in &plan.selection.aggregates {
            let mut state = AggregateState::of_part(&aggregate.kind);
            match &mut state {
                AggregateState::CountRows(rows) => *rows = reader.i64().ok().filter(|rows| *rows >= 0)?,
                AggregateState::Native(native) => native.restore(&mut reader)?,
                AggregateState::Values(values) => values.extend_from_slice(reader.bytes_vint().ok()?),
                AggregateState::First(first) => {
                    *first = match reader.u8().ok()? {
                        0 => None,
                        1 => Some(None),
                        2 => Some(Some(Bytes::copy_from_slice(reader.bytes_vint().ok()?))),
                        _ => return None,
                    }
                }
                AggregateState::User(..) => return None,
            }
            states.push(state);
        }
        reader.is_empty().then_some(Self { states, tombstones, resume })
    }
}
