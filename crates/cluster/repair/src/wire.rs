//! The wire format of repair: the bodies of its four verbs, and a carrier over [`rpc::Messenger`].
//!
//! ```text
//! open   := version (1), topology version (8), 0, table id (16), definition (8), after (8), upto (8), flush (1)
//!                                      answer: shards (2), seconds (4), marks, 0 | 1 with base
//!         | version (1), topology version (8), 1, vint length, request, vint count, { host (16), shards (2), marks }
//!                                      answer: 0 | 1 with place, vint elements, vint differing, vint told, vint bytes
//! digest := shard (2), shards (2), topology version (8), request        (`codec`; also rows)
//! close  := version (1), topology version (8), table id (16), after (8), upto (8), seconds (4), full (1), session (8), marks
//! base   := lineage (8), marks, vint new bytes, vint bytes
//! marks  := vint count, { epoch (8), vint number }                      (by shard)
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use mutation::Seconds;
use replica::RepairedWatermark;
use replica::read_codec::{get_place, put_place};
use rpc::{Messenger, RpcError, Target, Verb};
use rt::Rt;
use schema::{Table, TableId};
use stdx::Reader;
use stdx::vint::{read_unsigned, write_unsigned};
use topology::{HostId, Sharder, TabletMaps, TokenRange};
use xxhash_rust::xxh3::xxh3_64;

use crate::codec::{CodecError, decode_answer, encode_request};
use crate::history::{get_marks, put_marks};
use crate::message::{Answer, Ask, Request};
use crate::sessions::Base;
use crate::step::{Carrier, Done, Participant};

const VERSION: u8 = 3;
const CHECK: u8 = 0;
const STEP: u8 = 1;
/// Nodes that may participate in one repair.
const NODES_MAX: usize = 1 << 12;

/// A request without a segment, and the master's topology version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The topology version.
    pub topology: u64,
    /// The request.
    pub open: Open,
}

/// A request without a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Open {
    /// Checks the table's definition, and asks for the node's shard count, its marks, and the base of a
    /// repair of the range.
    Check {
        /// The table.
        table: TableId,
        /// [`definition`] of it.
        definition: u64,
        /// The range.
        range: TokenRange,
        /// Whether to flush before.
        flush: bool,
    },
    /// To a shard of the master's own node: repair the next segment.
    Step {
        /// A [`Request`] for a summary, as bytes.
        request: Bytes,
        /// All nodes, the own one first, with their numbers of shards.
        nodes: Vec<(HostId, u16)>,
        /// The base of each of their shards; empty for a full repair.
        bases: Vec<Vec<RepairedWatermark>>,
    },
}

/// The answer to [`Open::Check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Shards of the node.
    pub shard_count: u16,
    /// Its clock.
    pub seconds: Seconds,
    /// By shard: its mark.
    pub marks: Vec<RepairedWatermark>,
    /// The base for a repair of the range.
    pub base: Option<Base>,
}

/// A repaired range, as all its replicas record it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// The topology version by which it was compared.
    pub topology: u64,
    /// The table.
    pub table: TableId,
    /// The range.
    pub range: TokenRange,
    /// When the repair began, by the master's clock.
    pub at: Seconds,
    /// Whether it was a full repair.
    pub full: bool,
    /// The session's id.
    pub session: u64,
    /// By shard of the node that records it: its mark when the repair began. None when no later repair can build on
    /// it.
    pub marks: Vec<RepairedWatermark>,
}

/// The part of a table's definition on which two nodes have to agree before they compare rows: columns and their types.
pub fn definition(table: &Table) -> u64 {
    let mut text = String::new();
    for column in table.columns() {
        text.push_str(&format!("{} {:?} {:?}\n", column.name, column.kind, column.ty));
    }
    xxh3_64(text.as_bytes())
}

/// Encodes a request.
pub fn encode_open(opening: &Opening) -> Bytes {
    let mut out = vec![VERSION];
    out.extend_from_slice(&opening.topology.to_be_bytes());
    match &opening.open {
        Open::Check { table, definition, range, flush } => {
            out.push(CHECK);
            out.extend_from_slice(&table.0);
            out.extend_from_slice(&definition.to_be_bytes());
            put_range(*range, &mut out);
            out.push(u8::from(*flush));
        }
        Open::Step { request, nodes, bases } => {
            out.push(STEP);
            write_unsigned(request.len() as u64, &mut out);
            out.extend_from_slice(request);
            write_unsigned(nodes.len() as u64, &mut out);
            for (at, (host, shards)) in nodes.iter().enumerate() {
                out.extend_from_slice(&host.0);
                out.extend_from_slice(&shards.to_be_bytes());
                put_marks(bases.get(at).map_or(&[], Vec::as_slice), &mut out);
            }
        }
    }
    out.into()
}

/// Decodes a request.
///
/// # Errors
/// [`CodecError::Malformed`] when the bytes are cut off, too many, or a field has an undefined value.
pub fn decode_open(buffer: &Bytes) -> Result<Opening, CodecError> {
    let mut reader = Reader::new(buffer);
    version(&mut reader)?;
    let topology = reader.u64()?;
    let open = match reader.u8()? {
        CHECK => Open::Check {
            table: table_id(&mut reader)?,
            definition: reader.u64()?,
            range: get_range(&mut reader)?,
            flush: reader.u8()? != 0,
        },
        STEP => {
            let request = buffer.slice_ref(reader.bytes_vint()?);
            let count = read_unsigned(&mut reader)? as usize;
            if count > NODES_MAX {
                return Err(CodecError::Malformed("a number of nodes"));
            }
            let (mut nodes, mut bases) = (Vec::with_capacity(count), Vec::with_capacity(count));
            for _ in 0..count {
                let host = HostId(reader.array()?);
                nodes.push((host, reader.u16()?));
                bases.push(get_marks(&mut reader)?);
            }
            if nodes.iter().any(|(_, shards)| *shards == 0) {
                return Err(CodecError::Malformed("a number of shards"));
            }
            Open::Step { request, nodes, bases }
        }
        _ => return Err(CodecError::Malformed("a known question")),
    };
    end(&reader)?;
    Ok(Opening { topology, open })
}

/// Encodes an answer.
pub fn encode_checked(checked: &Checked) -> Bytes {
    let mut out = checked.shard_count.to_be_bytes().to_vec();
    out.extend_from_slice(&checked.seconds.to_be_bytes());
    put_marks(&checked.marks, &mut out);
    out.push(u8::from(checked.base.is_some()));
    if let Some(base) = &checked.base {
        out.extend_from_slice(&base.lineage.to_be_bytes());
        put_marks(&base.marks, &mut out);
        write_unsigned(base.fresh_bytes, &mut out);
        write_unsigned(base.all_bytes, &mut out);
    }
    out.into()
}

/// Decodes an answer.
///
/// # Errors
/// [`CodecError::Malformed`] when the bytes are cut off or too many.
pub fn decode_checked(buffer: &Bytes) -> Result<Checked, CodecError> {
    let mut reader = Reader::new(buffer);
    let (shard_count, seconds, marks) = (reader.u16()?.max(1), reader.u32()?, get_marks(&mut reader)?);
    let base = match reader.u8()? {
        0 => None,
        _ => Some(Base {
            lineage: reader.u64()?,
            marks: get_marks(&mut reader)?,
            fresh_bytes: read_unsigned(&mut reader)?,
            all_bytes: read_unsigned(&mut reader)?,
        }),
    };
    let checked = Checked { shard_count, seconds, marks, base };
    end(&reader)?;
    Ok(checked)
}

/// Encodes the result of a segment, and how many bytes crossed for it.
pub fn encode_done(done: &Done, bytes: u64) -> Bytes {
    let mut out = vec![u8::from(done.upto.is_some())];
    if let Some(place) = &done.upto {
        put_place(place, &mut out);
    }
    for number in [done.elements, done.differing, done.sent, bytes] {
        write_unsigned(number, &mut out);
    }
    out.into()
}

/// Decodes the result of a segment, and how many bytes crossed for it.
///
/// # Errors
/// [`CodecError::Malformed`] when the bytes are cut off or too many, [`CodecError::Read`] when the place in it is none
/// of the table.
pub fn decode_done(buffer: &Bytes, table: &Table) -> Result<(Done, u64), CodecError> {
    let mut reader = Reader::new(buffer);
    let upto = match reader.u8()? {
        0 => None,
        _ => Some(get_place(buffer, &mut reader, table)?),
    };
    let mut number = || read_unsigned(&mut reader);
    let done = Done { upto, elements: number()?, differing: number()?, sent: number()? };
    let bytes = number()?;
    end(&reader)?;
    Ok((done, bytes))
}

/// Encodes a repaired range.
pub fn encode_close(close: &Close) -> Bytes {
    let mut out = vec![VERSION];
    out.extend_from_slice(&close.topology.to_be_bytes());
    out.extend_from_slice(&close.table.0);
    put_range(close.range, &mut out);
    out.extend_from_slice(&close.at.to_be_bytes());
    out.push(u8::from(close.full));
    out.extend_from_slice(&close.session.to_be_bytes());
    put_marks(&close.marks, &mut out);
    out.into()
}

/// Decodes a repaired range.
///
/// # Errors
/// [`CodecError::Malformed`] when the bytes are cut off or too many.
pub fn decode_close(buffer: &Bytes) -> Result<Close, CodecError> {
    let mut reader = Reader::new(buffer);
    version(&mut reader)?;
    let (topology, table) = (reader.u64()?, table_id(&mut reader)?);
    let (range, at) = (get_range(&mut reader)?, reader.u32()?);
    let (full, session, marks) = (reader.u8()? != 0, reader.u64()?, get_marks(&mut reader)?);
    end(&reader)?;
    Ok(Close { topology, table, range, at, full, session, marks })
}

fn put_range(range: TokenRange, out: &mut Vec<u8>) {
    out.extend_from_slice(&range.after.to_be_bytes());
    out.extend_from_slice(&range.upto.to_be_bytes());
}

fn get_range(reader: &mut Reader<'_>) -> Result<TokenRange, CodecError> {
    let range = TokenRange { after: reader.i64()?, upto: reader.i64()? };
    if range.after < range.upto { Ok(range) } else { Err(CodecError::Malformed("a range of tokens")) }
}

/// The header of a request about a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The target shard.
    pub shard: u16,
    /// The target node's shard count.
    pub shard_count: u16,
    /// The topology version by which it is a replica.
    pub topology: u64,
}

/// Decodes the target of a request about a segment; the request follows.
///
/// # Errors
/// [`CodecError::Malformed`] when the bytes are cut off.
pub fn decode_addressed(buffer: &Bytes) -> Result<(Address, Bytes), CodecError> {
    let mut reader = Reader::new(buffer);
    let address = Address { shard: reader.u16()?, shard_count: reader.u16()?, topology: reader.u64()? };
    Ok((address, buffer.slice(ADDRESS_LEN..)))
}

const ADDRESS_LEN: usize = 12;

fn version(reader: &mut Reader<'_>) -> Result<(), CodecError> {
    if reader.u8()? == VERSION { Ok(()) } else { Err(CodecError::Malformed("version 3")) }
}

fn table_id(reader: &mut Reader<'_>) -> Result<TableId, CodecError> {
    Ok(TableId(reader.array()?))
}

fn end(reader: &Reader<'_>) -> Result<(), CodecError> {
    if reader.is_empty() { Ok(()) } else { Err(CodecError::Malformed("the end of the message")) }
}

/// Why an answer is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The call failed.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The answer cannot be read.
    #[error(transparent)]
    Codec(#[from] CodecError),
}

/// Sends requests to the shards of nodes.
pub struct Wire<'a> {
    /// This shard's messenger.
    pub messenger: &'a Messenger,
    /// For deadlines.
    pub rt: &'a Rt,
    /// Hosts of the participants, the master's own first.
    pub nodes: &'a [(HostId, u16)],
    /// The tables that do not lie with their keyspaces.
    pub tablets: TabletMaps,
    /// The topology version that determined the replicas.
    pub topology: u64,
    /// The timeout of one answer.
    pub timeout: Duration,
    /// Bytes from and to other nodes so far.
    pub bytes: Cell<u64>,
}

impl Carrier for Wire<'_> {
    type Error = WireError;

    #[allow(clippy::indexing_slicing, reason = "participants of a scope are its nodes")]
    fn owner(&self, node: usize, table: TableId, token: i64) -> u16 {
        let (host, shard_count) = self.nodes[node];
        self.tablets.shard_of(host, Sharder::new(shard_count), table, token)
    }

    #[allow(clippy::indexing_slicing, reason = "participants of a scope are its nodes")]
    async fn ask(&self, participant: Participant, request: Request) -> Result<Answer, WireError> {
        let mut body = participant.shard.to_be_bytes().to_vec();
        body.extend_from_slice(&participant.shard_count.to_be_bytes());
        body.extend_from_slice(&self.topology.to_be_bytes());
        encode_request(&request, &mut body);
        let verb = match request.ask {
            Ask::Summary { .. } | Ask::Sums { .. } | Ask::Contents { .. } => Verb::RepairDigest,
            Ask::Fetch { .. } | Ask::Push { .. } => Verb::RepairRows,
        };
        let (host, _) = self.nodes[participant.node];
        let (target, sent) = (Target::Host { host, shard: participant.shard }, body.len());
        let answer = self.messenger.call(target, verb, body.into(), self.rt.now() + self.timeout).await?;
        if participant.node != 0 {
            self.bytes.set(self.bytes.get() + (sent + answer.len()) as u64);
        }
        Ok(decode_answer(&request.scope.table, &answer)?)
    }
}
