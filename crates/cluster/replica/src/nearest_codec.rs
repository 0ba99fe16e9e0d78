//! Searches for the nearest vectors and their candidates as bytes, for other nodes.
//!
//! ```text
//! query      := version (1), table id (16), vint length, name of the index, vint count, vint dimensions, { component (4) }
//! candidates := version (1), vint count, { closeness (4), place as of `read_codec` }
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use bytes::Bytes;
use engine::{Candidate, NearestQuery, Place};
use mutation::codec::put_bytes;
use schema::{Table, TableId};
use stdx::Reader;
use stdx::vint::{read_unsigned, write_unsigned};

use crate::Resume;
use crate::read_codec::{get_place, put_place};

const VERSION: u8 = 1;
/// The most candidates that a search may ask for.
pub const CANDIDATES_MAX: usize = 1 << 16;

/// Appends a query.
pub fn encode_query(table: TableId, query: &NearestQuery, out: &mut Vec<u8>) {
    out.push(VERSION);
    out.extend_from_slice(&table.0);
    put_bytes(query.index.as_bytes(), out);
    write_unsigned(query.count as u64, out);
    write_unsigned(query.vector.len() as u64, out);
    query.vector.iter().for_each(|component| out.extend_from_slice(&component.to_be_bytes()));
}

/// Reads a query; none when it is not one.
pub fn decode_query(bytes: &[u8]) -> Option<(TableId, NearestQuery)> {
    let mut reader = Reader::new(bytes);
    if reader.u8().ok()? != VERSION {
        return None;
    }
    let table = TableId(reader.bytes(16).ok()?.try_into().ok()?);
    let name_len = usize::try_from(read_unsigned(&mut reader).ok()?).ok()?;
    let index = String::from_utf8(reader.bytes(name_len).ok()?.to_vec()).ok()?;
    let count = usize::try_from(read_unsigned(&mut reader).ok()?).ok()?;
    let dimensions = usize::try_from(read_unsigned(&mut reader).ok()?).ok()?;
    let (components, rest) = reader.bytes(dimensions.checked_mul(4)?).ok()?.as_chunks::<4>();
    let vector = components.iter().map(|bytes| f32::from_be_bytes(*bytes)).collect();
    let is_one = rest.is_empty() && reader.is_empty() && count <= CANDIDATES_MAX;
    is_one.then_some((table, NearestQuery { index, vector, count }))
}

/// Appends candidates.
pub fn encode_candidates(candidates: &[Candidate], out: &mut Vec<u8>) {
    out.push(VERSION);
    write_unsigned(candidates.len() as u64, out);
    for Candidate { place: Place { key, clustering }, closeness } in candidates {
        out.extend_from_slice(&closeness.to_be_bytes());
        let place = Resume { key: key.clone(), clustering: clustering.clone(), rows_in_partition: 0 };
        put_place(&place, out);
    }
}

/// Reads the candidates of a search in this table; none when they are not such.
pub fn decode_candidates(buffer: &Bytes, table: &Table) -> Option<Vec<Candidate>> {
    let mut reader = Reader::new(buffer);
    if reader.u8().ok()? != VERSION {
        return None;
    }
    let count =
        usize::try_from(read_unsigned(&mut reader).ok()?).ok().filter(|count| *count <= CANDIDATES_MAX)?;
    let mut candidates = Vec::with_capacity(count.min(buffer.len()));
    for _ in 0..count {
        let closeness = f32::from_bits(reader.u32().ok()?);
        let Resume { key, clustering, .. } = get_place(buffer, &mut reader, table).ok()?;
        candidates.push(Candidate { place: Place { key, clustering }, closeness });
    }
    reader.is_empty().then_some(candidates)
}
