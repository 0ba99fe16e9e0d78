//! Reads and their pages as bytes, for other nodes. Columns are named and tables told by their ids, as in the commit log:
//! the other side may have a newer schema.
//!
//! ```text
//! command   := version (1), table id (16), flags (1), now (4), rows (8), rows a partition (8), bytes (8),
//!              columns, partitions, slices, [resume], [index]
//! columns   := vint 0 for all | vint count + 1, { bytes }
//! partitions:= 0, vint count, { bytes } | 1, position, position
//! position  := kind (1), token (8) | kind (1), bytes
//! slices    := vint 0 for all | vint count + 1, { bound, bound }
//! index     := name bytes, 0, value bytes | 1, key bytes, value bytes | 2, end, end
//! end       := 0 for none | 1 excluded, bytes | 2 included, bytes
//! resume    := bytes, vint rows of the partition, 0 | 1, prefix
//! page      := version (1), tombstones vint, [truncated at (8), of unbroken pages], 0 | 1 with resume, vint count,
//!              { vint length, update }
//! bytes     := vint length, bytes
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::sync::Arc;

use bytes::Bytes;
use engine::{IndexQuery, Predicate};
use mutation::codec::{self, Fields, put_bound, put_bytes, put_prefix};
use mutation::{
    Clustering, ColumnSelection, DecoratedKey, PartitionRange, PartitionUpdate, RingPosition, RowRange,
    Slices,
};
use rt::preempt::Pace;
use schema::{ColumnId, Table, TableId};
use stdx::Reader;
use stdx::vint::{read_unsigned, write_unsigned};

use crate::steps::{AT_ONCE, free_ranges};
use crate::{Form, Keys, Limits, PartitionResult, Partitions, ReadCommand, ReadPage, Resume};

const VERSION: u8 = 1;
/// The version of the mutations in pages of [`VERSION`].
const MUTATIONS: codec::Version = codec::Version::V1;
const _: () = MUTATIONS.must_be_current();

const REVERSED: u8 = 1;
const BYPASS_CACHE: u8 = 2;
const FULL: u8 = 4;
const RECONCILABLE: u8 = 8;
const RESUMES: u8 = 16;
const INDEXED: u8 = 32;

/// Bytes that are no command or page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadCodecError {
    /// They are not the expected ones.
    #[error("expected {expected} at byte {offset} of a message")]
    Malformed {
        /// Where, from the message's start.
        offset: usize,
        /// The expected content there.
        expected: &'static str,
    },
    /// An update within a page is not one.
    #[error(transparent)]
    Update(codec::DecodeError),
    /// The table is not there.
    #[error("there is no table with id {0}")]
    UnknownTable(TableId),
}

impl From<codec::DecodeError> for ReadCodecError {
    fn from(codec::DecodeError { offset, expected }: codec::DecodeError) -> Self {
        Self::Malformed { offset, expected }
    }
}

/// Appends a command.
pub fn encode_command(command: &ReadCommand, out: &mut Vec<u8>) {
    out.push(VERSION);
    out.extend_from_slice(&command.table.id.0);
    let form = match command.form {
        Form::Live => 0,
        Form::Full => FULL,
        Form::Reconcilable => RECONCILABLE,
        Form::Whole => FULL | RECONCILABLE,
    };
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.push(
        form | flag(command.reversed, REVERSED)
            | flag(command.bypass_cache, BYPASS_CACHE)
            | flag(command.resume.is_some(), RESUMES)
            | flag(command.index.is_some(), INDEXED),
    );
    out.extend_from_slice(&command.now.to_be_bytes());
    let limits = &command.limits;
    for limit in [limits.rows, limits.rows_per_partition, limits.bytes as u64] {
        out.extend_from_slice(&limit.to_be_bytes());
    }
    match &command.columns {
        ColumnSelection::All => out.push(0),
        ColumnSelection::Some(ids) => {
            write_unsigned(ids.len() as u64 + 1, out);
            for id in ids.iter() {
                let name = command.table.column_by_id(*id).map_or("", |column| &column.name);
                put_bytes(name.as_bytes(), out);
            }
        }
    }
    match &command.partitions {
        Partitions::Keys(keys) => {
            out.push(0);
            write_unsigned(keys.len() as u64, out);
            keys.iter().for_each(|key| put_bytes(&key.key, out));
        }
        Partitions::Range(range) => {
            out.push(1);
            put_position(&range.start, out);
            put_position(&range.end, out);
        }
    }
    if command.slices.is_all() {
        out.push(0);
    } else {
        write_unsigned(command.slices.ranges().len() as u64 + 1, out);
        for range in command.slices.ranges() {
            put_bound(&range.start, out);
            put_bound(&range.end, out);
        }
    }
    if let Some(resume) = &command.resume {
        put_resume(resume, out);
    }
    if let Some(index) = &command.index {
        put_index(index, out);
    }
}

/// Reads a command for a table of the present schema.
///
/// # Errors
/// [`ReadCodecError::Malformed`] when the bytes are cut off, too many, or a field has an undefined value;
/// [`ReadCodecError::UnknownTable`] when `table` knows none.
pub fn decode_command(
    buffer: &Bytes,
    table: impl FnOnce(TableId) -> Option<Arc<Table>>,
) -> Result<ReadCommand, ReadCodecError> {
    let mut decoder = Decoder::new(buffer);
    decoder.version()?;
    let id = TableId(decoder.fields.read("a table id", Reader::array)?);
    let table = table(id).ok_or(ReadCodecError::UnknownTable(id))?;
    let flags = decoder.fields.read("flags", Reader::u8)?;
    let now = decoder.fields.read("a time", Reader::u32)?;
    let rows = decoder.fields.read("a limit", Reader::i64)? as u64;
    let rows_per_partition = decoder.fields.read("a limit", Reader::i64)? as u64;
    let bytes = usize::try_from(decoder.fields.read("a limit", Reader::i64)? as u64).unwrap_or(usize::MAX);
    let columns = decoder.columns(&table)?;
    let partitions = decoder.partitions()?;
    let slices = decoder.slices(&table)?;
    let resume = if flags & RESUMES == 0 { None } else { Some(decoder.resume(&table)?) };
    let index = if flags & INDEXED == 0 { None } else { Some(Arc::new(decoder.index()?)) };
    decoder.end()?;
    let form = match flags & (FULL | RECONCILABLE) {
        0 => Form::Live,
        FULL => Form::Full,
        RECONCILABLE => Form::Reconcilable,
        _ => Form::Whole,
    };
    Ok(ReadCommand {
        table,
        partitions,
        slices,
        columns,
        reversed: flags & REVERSED != 0,
        limits: Limits { rows, rows_per_partition, bytes },
        resume,
        now,
        bypass_cache: flags & BYPASS_CACHE != 0,
        form,
        index,
    })
}

/// Appends a page that answers `command`. Lets other tasks run between the rows and range tombstones of a large one.
pub async fn encode_page(command: &ReadCommand, page: ReadPage, out: &mut Vec<u8>) {
    out.push(VERSION);
    write_unsigned(page.tombstones, out);
    if command.form == Form::Reconcilable {
        out.extend_from_slice(&page.truncated_at.to_be_bytes());
    }
    match &page.more {
        None => out.push(0),
        Some(resume) => {
            out.push(1);
            put_resume(resume, out);
        }
    }
    write_unsigned(page.partitions.len() as u64, out);
    let (mut bytes, mut pace) = (Vec::new(), Pace::new());
    for partition in page.partitions {
        bytes.clear();
        let update = partition.into_update(&command.table, command.reversed);
        let mut encoding = codec::UpdateEncoding::begin(&update, &mut bytes);
        while !encoding.step(&mut bytes, AT_ONCE) {
            pace.steps(AT_ONCE).await;
        }
        put_bytes(&bytes, out);
        free_ranges(update.range_tombstones, &mut pace).await;
        pace.step().await;
    }
}

/// Reads a page that answers `command`. Lets other tasks run between the rows and range tombstones of a large one.
///
/// # Errors
///
/// [`ReadCodecError`]: the bytes are no page of the command's table.
pub async fn decode_page(command: &ReadCommand, buffer: &Bytes) -> Result<ReadPage, ReadCodecError> {
    let table = &command.table;
    let mut decoder = Decoder::new(buffer);
    decoder.version()?;
    let tombstones = decoder.fields.read("a number of tombstones", read_unsigned)?;
    let truncated_at = match command.form {
        Form::Reconcilable => decoder.fields.read("the time of a truncation", Reader::i64)?,
        _ => 0,
    };
    let more = match decoder.fields.read("0 or 1", Reader::u8)? {
        0 => None,
        1 => Some(decoder.resume(table)?),
        _ => return Err(decoder.error("0 or 1")),
    };
    let count = decoder.fields.count("a number of partitions")?;
    let mut partitions = Vec::with_capacity(count.min(1024));
    let mut pace = Pace::new();
    for _ in 0..count {
        let bytes = decoder.fields.bytes("a partition")?;
        let table = |id| (id == table.id).then(|| table.clone());
        let decoding = codec::UpdateDecoding::begin(MUTATIONS, &bytes, None, table);
        let mut decoding = decoding
            .map_err(ReadCodecError::Update)?
            .ok_or(ReadCodecError::Malformed { offset: 0, expected: "the table that was read" })?;
        while !decoding.step(AT_ONCE).map_err(ReadCodecError::Update)? {
            pace.steps(AT_ONCE).await;
        }
        partitions.push(PartitionResult::from_update(decoding.finish().update, command.reversed));
        pace.step().await;
    }
    decoder.end()?;
    Ok(ReadPage { partitions, more, tombstones, truncated_at })
}

impl PartitionResult {
    /// As an update of the partition.
    pub fn into_update(mut self, table: &Arc<Table>, reversed: bool) -> PartitionUpdate {
        if reversed {
            self.rows.reverse();
        }
        let mut update = PartitionUpdate::with_rows(table.clone(), self.key, self.rows);
        update.deletion = self.deletion;
        update.set_static_row(self.static_row);
        update.range_tombstones = self.range_tombstones;
        update
    }

    /// The content of an update, in the order of a read.
    pub fn from_update(update: PartitionUpdate, reversed: bool) -> Self {
        let mut result = Self {
            key: update.key.clone(),
            deletion: update.deletion,
            static_row: update.static_row().cloned(),
            range_tombstones: update.range_tombstones.clone(),
            rows: update.into_rows(),
        };
        if reversed {
            result.rows.reverse();
        }
        result
    }
}

fn put_position(position: &RingPosition, out: &mut Vec<u8>) {
    match position {
        RingPosition::BeforeToken(token) | RingPosition::AfterToken(token) => {
            out.push(u8::from(matches!(position, RingPosition::AfterToken(_))));
            out.extend_from_slice(&token.to_be_bytes());
        }
        RingPosition::BeforeKey(key) | RingPosition::AfterKey(key) => {
            out.push(2 + u8::from(matches!(position, RingPosition::AfterKey(_))));
            put_bytes(&key.key, out);
        }
    }
}

/// Appends the query of an index.
pub(crate) fn put_index(query: &IndexQuery, out: &mut Vec<u8>) {
    put_bytes(query.index.as_bytes(), out);
    match &query.predicate {
        Predicate::Equal(value) => {
            out.push(0);
            put_bytes(value, out);
        }
        Predicate::Entry { key, value } => {
            out.push(1);
            put_bytes(key, out);
            put_bytes(value, out);
        }
        Predicate::Range { from, to } => {
            out.push(2);
            for end in [from, to] {
                match end {
                    None => out.push(0),
                    Some((value, included)) => {
                        out.push(1 + u8::from(*included));
                        put_bytes(value, out);
                    }
                }
            }
        }
    }
}

fn put_resume(resume: &Resume, out: &mut Vec<u8>) {
    put_bytes(&resume.key.key, out);
    write_unsigned(resume.rows_in_partition, out);
    match &resume.clustering {
        None => out.push(0),
        Some(clustering) => {
            out.push(1);
            put_prefix(clustering.components(), out);
        }
    }
}

/// Appends a place to go on from.
pub fn put_place(place: &Resume, out: &mut Vec<u8>) {
    put_resume(place, out);
}

/// Reads a place off the front of `reader`, whose bytes lie in `buffer`.
///
/// # Errors
/// [`ReadCodecError::Malformed`] when the bytes are cut off or are no place of the table; `reader` stays where it was.
pub fn get_place<'a>(
    buffer: &'a Bytes,
    reader: &mut Reader<'a>,
    table: &Table,
) -> Result<Resume, ReadCodecError> {
    let mut decoder = Decoder { fields: Fields::at(buffer, reader.clone()) };
    let place = decoder.resume(table)?;
    *reader = decoder.fields.into_reader();
    Ok(place)
}

/// Reads the query of an index off the front of `reader`, whose bytes lie in `buffer`.
///
/// # Errors
/// [`ReadCodecError::Malformed`] when the bytes are cut off or are no query; `reader` stays where it was.
pub(crate) fn get_index<'a>(
    buffer: &'a Bytes,
    reader: &mut Reader<'a>,
) -> Result<IndexQuery, ReadCodecError> {
    let mut decoder = Decoder { fields: Fields::at(buffer, reader.clone()) };
    let query = decoder.index()?;
    *reader = decoder.fields.into_reader();
    Ok(query)
}

struct Decoder<'a> {
    fields: Fields<'a>,
}

impl<'a> Decoder<'a> {
    fn new(buffer: &'a Bytes) -> Self {
        Self { fields: Fields::new(buffer) }
    }

    fn error(&self, expected: &'static str) -> ReadCodecError {
        self.fields.error(expected).into()
    }

    fn version(&mut self) -> Result<(), ReadCodecError> {
        match self.fields.read("a version", Reader::u8)? {
            VERSION => Ok(()),
            _ => Err(self.error("version 1")),
        }
    }

    fn end(&mut self) -> Result<(), ReadCodecError> {
        if self.fields.is_empty() { Ok(()) } else { Err(self.error("the end of the message")) }
    }

    /// A count of things that take at least a byte each, where 0 stands for no list at all.
    fn count_or_none(&mut self, expected: &'static str) -> Result<Option<usize>, ReadCodecError> {
        match self.fields.read(expected, read_unsigned)? {
            0 => Ok(None),
            count => Ok(Some(self.fields.possible(count - 1, expected)?)),
        }
    }

    fn index(&mut self) -> Result<IndexQuery, ReadCodecError> {
        let index = self.fields.read("the name of an index", Reader::bytes_vint)?;
        let index =
            std::str::from_utf8(index).map_err(|_| self.error("the name of an index in UTF-8"))?.to_owned();
        let predicate = match self.fields.read("a predicate", Reader::u8)? {
            0 => Predicate::Equal(self.fields.bytes("a value")?),
            1 => Predicate::Entry { key: self.fields.bytes("a key")?, value: self.fields.bytes("a value")? },
            2 => Predicate::Range { from: self.end_of_range()?, to: self.end_of_range()? },
            _ => return Err(self.error("a predicate of 0 to 2")),
        };
        Ok(IndexQuery { index, predicate })
    }

    fn end_of_range(&mut self) -> Result<Option<(Bytes, bool)>, ReadCodecError> {
        match self.fields.read("an end of a range", Reader::u8)? {
            0 => Ok(None),
            kind @ (1 | 2) => Ok(Some((self.fields.bytes("a value")?, kind == 2))),
            _ => Err(self.error("0 to 2")),
        }
    }

    fn columns(&mut self, table: &Table) -> Result<ColumnSelection, ReadCodecError> {
        let Some(count) = self.count_or_none("a number of columns")? else { return Ok(ColumnSelection::All) };
        let mut ids: Vec<ColumnId> = Vec::with_capacity(count);
        for _ in 0..count {
            let name = self.fields.read("a column name", Reader::bytes_vint)?;
            let name = std::str::from_utf8(name).map_err(|_| self.error("a column name in UTF-8"))?;
            // One that was dropped meanwhile has no values left to read.
            ids.extend(table.column(name).map(|column| column.id));
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ColumnSelection::Some(ids.into()))
    }

    fn partitions(&mut self) -> Result<Partitions, ReadCodecError> {
        match self.fields.read("keys or a range", Reader::u8)? {
            0 => {
                let count = self.fields.count("a number of keys")?;
                let keys: Result<Keys, codec::DecodeError> =
                    (0..count).map(|_| self.fields.bytes("a partition key").map(DecoratedKey::new)).collect();
                Ok(Partitions::Keys(keys?))
            }
            1 => {
                let (start, end) = (self.position()?, self.position()?);
                Ok(Partitions::Range(PartitionRange { start, end }))
            }
            _ => Err(self.error("keys or a range")),
        }
    }

    fn position(&mut self) -> Result<RingPosition, ReadCodecError> {
        Ok(match self.fields.read("a position", Reader::u8)? {
            0 => RingPosition::BeforeToken(self.fields.read("a token", Reader::i64)?),
            1 => RingPosition::AfterToken(self.fields.read("a token", Reader::i64)?),
            2 => RingPosition::BeforeKey(DecoratedKey::new(self.fields.bytes("a partition key")?)),
            3 => RingPosition::AfterKey(DecoratedKey::new(self.fields.bytes("a partition key")?)),
            _ => return Err(self.error("a position")),
        })
    }

    fn slices(&mut self, table: &Table) -> Result<Slices, ReadCodecError> {
        let Some(count) = self.count_or_none("a number of slices")? else { return Ok(Slices::all()) };
        let mut ranges = Vec::with_capacity(count);
        for _ in 0..count {
            ranges.push(RowRange { start: self.fields.bound(table)?, end: self.fields.bound(table)? });
        }
        Ok(Slices::new(ranges))
    }

    fn resume(&mut self, table: &Table) -> Result<Resume, ReadCodecError> {
        let key = DecoratedKey::new(self.fields.bytes("a partition key")?);
        let rows_in_partition = self.fields.read("a number of rows", read_unsigned)?;
        let clustering = match self.fields.read("0 or 1", Reader::u8)? {
            0 => None,
            1 => {
                let components = self.fields.prefix(table.clustering().len())?;
                if components.len() != table.clustering().len() {
                    return Err(self.error("a whole clustering key"));
                }
                Some(Clustering::new(table, &components))
            }
            _ => return Err(self.error("0 or 1")),
        };
        Ok(Resume { key, clustering, rows_in_partition })
    }
}
