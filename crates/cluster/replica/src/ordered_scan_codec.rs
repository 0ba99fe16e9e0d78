//! Scans of ordered indexes and their answers as bytes, for other nodes.
//!
//! ```text
//! scan   := version 1, table id (16), bytes of the index's name, bytes of the first term, bytes of the end, flags, vint count,
//!           [ bytes of the term behind which it resumes, place as of `read_codec` ], [ bytes of the partition key ],
//!           [ bytes of the term of orphans, query of another index as of `read_codec` ]
//! flags  := 1 reversed | 2 resumes | 4 one partition | 8 orphans
//! places := version 1, 0 | 1 for more unordered places, vint count, { bytes of the term, place }, vint count, { place }
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::sync::Arc;

use bytes::Bytes;
use engine::{OrderedPlaces, OrderedScan, Place, UNORDERED_MAX, WantedOrphans};
use mutation::DecoratedKey;
use mutation::codec::{Fields, put_bytes};
use schema::{Table, TableId};
use stdx::Reader;
use stdx::vint::{read_unsigned, write_unsigned};

use crate::Resume;
use crate::nearest_codec::CANDIDATES_MAX;
use crate::read_codec::{get_index, get_place, put_index, put_place};

const VERSION: u8 = 1;
const REVERSED: u8 = 1;
const RESUMES: u8 = 2;
const PARTITION: u8 = 4;
const UNORDERED: u8 = 8;

/// Appends a scan.
pub fn encode_scan(table: TableId, scan: &OrderedScan, out: &mut Vec<u8>) {
    let OrderedScan { index, start, end, after, is_reversed, count, partition, unordered } = scan;
    out.push(VERSION);
    out.extend_from_slice(&table.0);
    for bytes in [index.as_bytes(), start, end] {
        put_bytes(bytes, out);
    }
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    out.push(
        flag(*is_reversed, REVERSED)
            | flag(after.is_some(), RESUMES)
            | flag(partition.is_some(), PARTITION)
            | flag(unordered.is_some(), UNORDERED),
    );
    write_unsigned(*count as u64, out);
    if let Some((term, place)) = after {
        put_bytes(term, out);
        put(place, out);
    }
    if let Some(key) = partition {
        put_bytes(&key.key, out);
    }
    if let Some(WantedOrphans { term, query }) = unordered {
        put_bytes(term, out);
        put_index(query, out);
    }
}

fn put(Place { key, clustering }: &Place, out: &mut Vec<u8>) {
    put_place(&Resume { key: key.clone(), clustering: clustering.clone(), rows_in_partition: 0 }, out);
}

fn get<'a>(buffer: &'a Bytes, reader: &mut Reader<'a>, table: &Table) -> Option<Place> {
    let Resume { key, clustering, .. } = get_place(buffer, reader, table).ok()?;
    Some(Place { key, clustering })
}

fn bytes<'a>(buffer: &'a Bytes, reader: &mut Reader<'a>) -> Option<Bytes> {
    let mut fields = Fields::at(buffer, reader.clone());
    let bytes = fields.bytes("bytes").ok()?;
    *reader = fields.into_reader();
    Some(bytes)
}

fn count(reader: &mut Reader<'_>, max: usize) -> Option<usize> {
    usize::try_from(read_unsigned(reader).ok()?).ok().filter(|count| *count <= max)
}

/// Reads a scan; none when it is not one, or of a table that `table_of` does not know.
pub fn decode_scan(
    buffer: &Bytes,
    table_of: impl FnOnce(TableId) -> Option<Arc<Table>>,
) -> Option<(TableId, OrderedScan)> {
    let mut reader = Reader::new(buffer);
    if reader.u8().ok()? != VERSION {
        return None;
    }
    let id = TableId(reader.bytes(16).ok()?.try_into().ok()?);
    let table = table_of(id)?;
    let index = String::from_utf8(bytes(buffer, &mut reader)?.to_vec()).ok()?;
    let (start, end) = (bytes(buffer, &mut reader)?, bytes(buffer, &mut reader)?);
    let flags = reader.u8().ok().filter(|flags| *flags <= REVERSED | RESUMES | PARTITION | UNORDERED)?;
    let has = |flag: u8| flags & flag != 0;
    let count = count(&mut reader, CANDIDATES_MAX)?;
    let after = match has(RESUMES) {
        true => Some((bytes(buffer, &mut reader)?, get(buffer, &mut reader, &table)?)),
        false => None,
    };
    let partition = match has(PARTITION) {
        true => Some(DecoratedKey::new(bytes(buffer, &mut reader)?)),
        false => None,
    };
    let unordered = match has(UNORDERED) {
        true => {
            let term = bytes(buffer, &mut reader)?;
            Some(WantedOrphans { term, query: get_index(buffer, &mut reader).ok()? })
        }
        false => None,
    };
    let is_reversed = has(REVERSED);
    let scan = OrderedScan { index, start, end, after, is_reversed, count, partition, unordered };
    reader.is_empty().then_some((id, scan))
}

/// Appends an answer.
pub fn encode_places(found: &OrderedPlaces, out: &mut Vec<u8>) {
    out.push(VERSION);
    out.push(u8::from(found.has_more_unordered));
    write_unsigned(found.places.len() as u64, out);
    for (term, place) in &found.places {
        put_bytes(term, out);
        put(place, out);
    }
    write_unsigned(found.unordered.len() as u64, out);
    found.unordered.iter().for_each(|place| put(place, out));
}

/// Reads the answer of a scan of this table; none when it is not one.
pub fn decode_places(buffer: &Bytes, table: &Table) -> Option<OrderedPlaces> {
    let mut reader = Reader::new(buffer);
    if reader.u8().ok()? != VERSION {
        return None;
    }
    let has_more_unordered = match reader.u8().ok()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let mut places = Vec::new();
    for _ in 0..count(&mut reader, CANDIDATES_MAX)? {
        places.push((bytes(buffer, &mut reader)?, get(buffer, &mut reader, table)?));
    }
    let mut unordered = Vec::new();
    for _ in 0..count(&mut reader, UNORDERED_MAX)? {
        unordered.push(get(buffer, &mut reader, table)?);
    }
    reader.is_empty().then_some(OrderedPlaces { places, unordered, has_more_unordered })
}
