//! Requests and answers of repair as bytes.
//!
//! ```text
//! request  := version (1), kind (1), table id (16), after (8), upto (8), slice number (2), slices (2), now (4),
//!             gc before (4), seed (8), base, place, body
//! base     := 0 | 1, epoch (8), number (8)
//! place    := 0 | 1, bytes, 0 | 1 with prefix              (as a read's page names where the next one begins)
//! summary  := bytes (4)
//! sums     := place, buckets (4)
//! contents := place, buckets (4), bytes of bits
//! fetch    := place, vint count, { content (8) }
//! push     := place, updates
//! updates  := vint count, { bytes of an update }
//! answer   := version (1), kind (1), body
//! body     := place, vint elements, sum (8) | vint count, { number (8) } | updates | updates
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::sync::Arc;

use bytes::Bytes;
use mutation::{PartitionUpdate, codec};
use replica::read_codec::{ReadCodecError, get_place, put_place};
use replica::{PartitionResult, RepairedWatermark, Resume};
use schema::{Table, TableId};
use stdx::vint::{read_unsigned, write_unsigned};
use stdx::{Reader, ShortRead};
use topology::TokenRange;

use crate::bits::Bits;
use crate::merge::BUCKETS_MAX;
use crate::message::{Answer, Ask, Request, Summary};
use crate::scope::{Scope, Slice};

const VERSION: u8 = 2;
/// The version of the mutations in messages of [`VERSION`].
const MUTATIONS: codec::Version = codec::Version::V1;
const _: () = MUTATIONS.must_be_current();

const SUMMARY: u8 = 0;
const SUMS: u8 = 1;
const CONTENTS: u8 = 2;
const FETCH: u8 = 3;
const PUSH: u8 = 4;

/// Bytes that are no message of repair.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// They are not the expected ones.
    #[error("expected {0} in a message of repair")]
    Malformed(&'static str),
    /// A place or an update within is not one.
    #[error(transparent)]
    Read(#[from] ReadCodecError),
    /// An update is none of the table as this node knows it.
    #[error(transparent)]
    Update(#[from] codec::UpdatesError),
    /// The table is not there.
    #[error("there is no table with id {0}")]
    UnknownTable(TableId),
}

impl From<ShortRead> for CodecError {
    fn from(_: ShortRead) -> Self {
        Self::Malformed("more bytes")
    }
}

/// Appends a request.
pub fn encode_request(request: &Request, out: &mut Vec<u8>) {
    let scope = &request.scope;
    let kind = match &request.ask {
        Ask::Summary { .. } => SUMMARY,
        Ask::Sums { .. } => SUMS,
        Ask::Contents { .. } => CONTENTS,
        Ask::Fetch { .. } => FETCH,
        Ask::Push { .. } => PUSH,
    };
    out.extend_from_slice(&[VERSION, kind]);
    out.extend_from_slice(&scope.table.id.0);
    out.extend_from_slice(&scope.range.after.to_be_bytes());
    out.extend_from_slice(&scope.range.upto.to_be_bytes());
    out.extend_from_slice(&scope.slice.number.to_be_bytes());
    out.extend_from_slice(&scope.slice.of.to_be_bytes());
    out.extend_from_slice(&scope.now.to_be_bytes());
    out.extend_from_slice(&scope.gc_before.to_be_bytes());
    out.extend_from_slice(&scope.seed.to_be_bytes());
    out.push(u8::from(request.base.is_some()));
    if let Some(mark) = &request.base {
        out.extend_from_slice(&mark.epoch.to_be_bytes());
        out.extend_from_slice(&mark.number.to_be_bytes());
    }
    put_maybe(request.after.as_ref(), out);
    if let Some(upto) = request.ask.upto() {
        put_maybe(upto, out);
    }
    match &request.ask {
        Ask::Summary { bytes_max } => out.extend_from_slice(&bytes_max.to_be_bytes()),
        Ask::Sums { buckets, .. } => out.extend_from_slice(&buckets.to_be_bytes()),
        Ask::Contents { buckets, which, .. } => {
            out.extend_from_slice(&buckets.to_be_bytes());
            put_bytes(&which.0, out);
        }
        Ask::Fetch { contents, .. } => put_numbers(contents, out),
        Ask::Push { updates, .. } => put_updates(updates, out),
    }
}

/// Reads a request about a table of the present schema.
///
/// # Errors
/// [`CodecError::Malformed`] when the bytes are cut off, too many, or a field has an undefined value;
/// [`CodecError::Read`] when a place or update in it is none; [`CodecError::UnknownTable`] when `table` knows none.
pub fn decode_request(
    buffer: &Bytes,
    table: impl FnOnce(TableId) -> Option<Arc<Table>>,
) -> Result<Request, CodecError> {
    let mut reader = Reader::new(buffer);
    version(&mut reader)?;
    let kind = reader.u8()?;
    let id = TableId(reader.array()?);
    let range = TokenRange { after: reader.i64()?, upto: reader.i64()? };
    let slice = Slice { number: reader.u16()?, of: reader.u16()? };
    let (now, gc_before, seed) = (reader.u32()?, reader.u32()?, reader.u64()?);
    if range.after >= range.upto {
        return Err(CodecError::Malformed("a range of tokens"));
    }
    if slice.number >= slice.of {
        return Err(CodecError::Malformed("a part of the shards"));
    }
    let table = table(id).ok_or(CodecError::UnknownTable(id))?;
    let base = match reader.u8()? {
        0 => None,
        1 => Some(RepairedWatermark { epoch: reader.u64()?, number: reader.u64()? }),
        _ => return Err(CodecError::Malformed("0 or 1")),
    };
    let after = maybe(buffer, &mut reader, &table)?;
    let mut upto = || maybe(buffer, &mut reader, &table);
    let ask = match kind {
        SUMMARY => Ask::Summary { bytes_max: reader.u32()? },
        SUMS => Ask::Sums { upto: upto()?, buckets: buckets(&mut reader)? },
        CONTENTS => {
            let (upto, buckets) = (upto()?, buckets(&mut reader)?);
            let bits = reader.bytes_vint()?;
            if bits.len() != Bits::none(buckets).0.len() {
                return Err(CodecError::Malformed("a bit a bucket"));
            }
            Ask::Contents { upto, buckets, which: Bits(bits.to_vec()) }
        }
        FETCH => Ask::Fetch { upto: upto()?, contents: numbers(&mut reader)? },
        PUSH => Ask::Push { upto: upto()?, updates: updates(buffer, &mut reader, &table)? },
        _ => return Err(CodecError::Malformed("a known kind of request")),
    };
    end(&reader)?;
    let scope = Scope { table, range, slice, now, gc_before, seed };
    Ok(Request { scope, after, base, ask })
}

/// Appends the answer to a request about `table`.
pub fn encode_answer(table: &Arc<Table>, answer: Answer, out: &mut Vec<u8>) {
    out.push(VERSION);
    match answer {
        Answer::Summary(summary) => {
            out.push(SUMMARY);
            put_maybe(summary.end.as_ref(), out);
            write_unsigned(summary.elements, out);
            out.extend_from_slice(&summary.sum.to_be_bytes());
        }
        Answer::Numbers(numbers) => {
            out.push(SUMS);
            put_numbers(&numbers, out);
        }
        Answer::Partitions(partitions) => {
            out.push(FETCH);
            let updates: Vec<PartitionUpdate> =
                partitions.into_iter().map(|partition| partition.into_update(table, false)).collect();
            put_updates(&updates, out);
        }
        Answer::Hidden(updates) => {
            out.push(PUSH);
            put_updates(&updates, out);
        }
    }
}

/// Reads the answer to a request about `table`.
///
/// # Errors
/// [`CodecError::Malformed`] when the bytes are cut off, too many, or of an unknown kind; [`CodecError::Read`] when a
/// place or update in it is none.
pub fn decode_answer(table: &Arc<Table>, buffer: &Bytes) -> Result<Answer, CodecError> {
    let mut reader = Reader::new(buffer);
    version(&mut reader)?;
    let answer = match reader.u8()? {
        SUMMARY => {
            let end = maybe(buffer, &mut reader, table)?;
            let (elements, sum) = (read_unsigned(&mut reader)?, reader.u64()?);
            Answer::Summary(Summary { end, elements, sum })
        }
        SUMS => Answer::Numbers(numbers(&mut reader)?),
        FETCH => {
            let updates = updates(buffer, &mut reader, table)?;
            let partition = |update| PartitionResult::from_update(update, false);
            Answer::Partitions(updates.into_iter().map(partition).collect())
        }
        PUSH => Answer::Hidden(updates(buffer, &mut reader, table)?),
        _ => return Err(CodecError::Malformed("a known kind of answer")),
    };
    end(&reader)?;
    Ok(answer)
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write_unsigned(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn put_maybe(place: Option<&Resume>, out: &mut Vec<u8>) {
    out.push(u8::from(place.is_some()));
    if let Some(place) = place {
        put_place(place, out);
    }
}

fn put_numbers(numbers: &[u64], out: &mut Vec<u8>) {
    write_unsigned(numbers.len() as u64, out);
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
}

fn put_updates(updates: &[PartitionUpdate], out: &mut Vec<u8>) {
    write_unsigned(updates.len() as u64, out);
    let mut bytes = Vec::new();
    for update in updates {
        bytes.clear();
        codec::encode_update(update, &mut bytes);
        put_bytes(&bytes, out);
    }
}

fn version(reader: &mut Reader<'_>) -> Result<(), CodecError> {
    if reader.u8()? == VERSION { Ok(()) } else { Err(CodecError::Malformed("version 2")) }
}

fn end(reader: &Reader<'_>) -> Result<(), CodecError> {
    if reader.is_empty() { Ok(()) } else { Err(CodecError::Malformed("the end of the message")) }
}

fn maybe<'a>(
    buffer: &'a Bytes,
    reader: &mut Reader<'a>,
    table: &Table,
) -> Result<Option<Resume>, CodecError> {
    match reader.u8()? {
        0 => Ok(None),
        1 => Ok(Some(get_place(buffer, reader, table)?)),
        _ => Err(CodecError::Malformed("0 or 1")),
    }
}

fn buckets(reader: &mut Reader<'_>) -> Result<u32, CodecError> {
    match reader.u32()? {
        count if count.is_power_of_two() && count <= BUCKETS_MAX => Ok(count),
        _ => Err(CodecError::Malformed("a number of buckets")),
    }
}

/// A count of things that take at least `len` bytes each.
fn count(reader: &mut Reader<'_>, len: usize) -> Result<usize, CodecError> {
    match usize::try_from(read_unsigned(reader)?) {
        Ok(count) if count <= reader.len() / len => Ok(count),
        _ => Err(CodecError::Malformed("a count that its bytes hold")),
    }
}

fn numbers(reader: &mut Reader<'_>) -> Result<Vec<u64>, CodecError> {
    let count = count(reader, 8)?;
    let mut out = Vec::with_capacity(count);
    for _ in 0..count {
        out.push(reader.u64()?);
    }
    Ok(out)
}

fn updates(
    buffer: &Bytes,
    reader: &mut Reader<'_>,
    table: &Arc<Table>,
) -> Result<Vec<PartitionUpdate>, CodecError> {
    let count = count(reader, 1)?;
    let mut out = Vec::with_capacity(count.min(1024));
    for _ in 0..count {
        let bytes = buffer.slice_ref(reader.bytes_vint()?);
        let find = |id| (id == table.id).then(|| table.clone());
        out.push(codec::decode_received(MUTATIONS, &bytes, None, find)?.update);
    }
    Ok(out)
}
