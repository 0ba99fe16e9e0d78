//! Searches for the nearest vectors, or the most relevant texts, and their candidates as bytes, for other nodes.
//!
//! ```text
//! query      := version 1, table id (16), vint length, name of the index, vint count, vint dimensions, { component (4) }
//!             | version 2, table id (16), vint length, name of the index, vint count, vint length, query of full text
//! candidates := version 1, vint count, { closeness (4), place as of `read_codec` }
//!             | version 2, vint texts, vint terms, vint words, { vint texts with the word }, the rest of version 1
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use bytes::Bytes;
use engine::{Candidate, Candidates, NearestQuery, NearestTo, Place, TextStatistics};
use mutation::codec::put_bytes;
use schema::{Table, TableId};
use stdx::Reader;
use stdx::vint::{read_unsigned, write_unsigned};

use crate::Resume;
use crate::read_codec::{get_place, put_place};

/// Of vectors.
const VERSION: u8 = 1;
/// Of texts.
const VERSION_OF_TEXTS: u8 = 2;
/// The most words that a query of full text has.
const WORDS_MAX: u64 = 1 << 10;
/// The most candidates that a search may ask for.
pub const CANDIDATES_MAX: usize = 1 << 16;

/// Appends a query.
pub fn encode_query(table: TableId, query: &NearestQuery, out: &mut Vec<u8>) {
    out.push(match query.to {
        NearestTo::Vector(_) => VERSION,
        NearestTo::Text(_) => VERSION_OF_TEXTS,
    });
    out.extend_from_slice(&table.0);
    put_bytes(query.index.as_bytes(), out);
    write_unsigned(query.count as u64, out);
    match &query.to {
        NearestTo::Vector(vector) => {
            write_unsigned(vector.len() as u64, out);
            vector.iter().for_each(|component| out.extend_from_slice(&component.to_be_bytes()));
        }
        NearestTo::Text(text) => put_bytes(text.as_bytes(), out),
    }
}

/// Reads a query; none when it is not one.
pub fn decode_query(bytes: &[u8]) -> Option<(TableId, NearestQuery)> {
    let mut reader = Reader::new(bytes);
    let version = reader.u8().ok()?;
    let table = TableId(reader.bytes(16).ok()?.try_into().ok()?);
    let name_len = usize::try_from(read_unsigned(&mut reader).ok()?).ok()?;
    let index = String::from_utf8(reader.bytes(name_len).ok()?.to_vec()).ok()?;
    let count = usize::try_from(read_unsigned(&mut reader).ok()?).ok()?;
    let to = match version {
        VERSION => {
            let dimensions = usize::try_from(read_unsigned(&mut reader).ok()?).ok()?;
            let (components, rest) = reader.bytes(dimensions.checked_mul(4)?).ok()?.as_chunks::<4>();
            if !rest.is_empty() {
                return None;
            }
            NearestTo::Vector(components.iter().map(|bytes| f32::from_be_bytes(*bytes)).collect())
        }
        VERSION_OF_TEXTS => {
            let len = usize::try_from(read_unsigned(&mut reader).ok()?).ok()?;
            NearestTo::Text(String::from_utf8(reader.bytes(len).ok()?.to_vec()).ok()?)
        }
        _ => return None,
    };
    let is_one = reader.is_empty() && count <= CANDIDATES_MAX;
    is_one.then_some((table, NearestQuery { index, to, count }))
}

/// Appends candidates.
pub fn encode_candidates(candidates: &Candidates, out: &mut Vec<u8>) {
    let Candidates { places, statistics } = candidates;
    let has_texts = *statistics != TextStatistics::default();
    out.push(if has_texts { VERSION_OF_TEXTS } else { VERSION });
    if has_texts {
        write_unsigned(statistics.texts, out);
        write_unsigned(statistics.terms, out);
        write_unsigned(statistics.with_leaf.len() as u64, out);
        statistics.with_leaf.iter().for_each(|count| write_unsigned(*count, out));
    }
    write_unsigned(places.len() as u64, out);
    for Candidate { place: Place { key, clustering }, closeness } in places {
        out.extend_from_slice(&closeness.to_be_bytes());
        let place = Resume { key: key.clone(), clustering: clustering.clone(), rows_in_partition: 0 };
        put_place(&place, out);
    }
}

/// Reads the candidates of a search in this table; none when they are not such.
pub fn decode_candidates(buffer: &Bytes, table: &Table) -> Option<Candidates> {
    let mut reader = Reader::new(buffer);
    let mut statistics = TextStatistics::default();
    match reader.u8().ok()? {
        VERSION => {}
        VERSION_OF_TEXTS => {
            let mut number = || read_unsigned(&mut reader).ok();
            (statistics.texts, statistics.terms) = (number()?, number()?);
            let words = number().filter(|words| *words <= WORDS_MAX)?;
            for _ in 0..words {
                statistics.with_leaf.push(number()?);
            }
        }
        _ => return None,
    }
    let count =
        usize::try_from(read_unsigned(&mut reader).ok()?).ok().filter(|count| *count <= CANDIDATES_MAX)?;
    let mut candidates = Vec::with_capacity(count.min(buffer.len()));
    for _ in 0..count {
        let closeness = f32::from_bits(reader.u32().ok()?);
        let Resume { key, clustering, .. } = get_place(buffer, &mut reader, table).ok()?;
        candidates.push(Candidate { place: Place { key, clustering }, closeness });
    }
    reader.is_empty().then_some(Candidates { places: candidates, statistics })
}
