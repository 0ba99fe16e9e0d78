//! Partition updates as bytes: what a commit log entry carries. Columns are named, because their ids live only in
//! memory, and the table is told by its id; so an entry can be read under any later schema.
//!
//! ```text
//! update    := table id (16), key (vint length, bytes), base timestamp (8), names, parts (1 byte of flags),
//!              [deletion], [static row], [ranges], rows
//! names     := vint count, { vint length, bytes }
//! row       := clustering, flags (1), [liveness], [deletion], vint count, { vint name, column }
//! prefix    := vint count, { vint length + 1 or 0 for null, bytes }
//! deletion  := vint timestamp − base (signed), local seconds (4)
//! ```

use std::sync::Arc;

use bytes::Bytes;
use mutation::{
    Cell, Clustering, ColumnData, Complex, ComplexCell, DecoratedKey, DeletionTime, LivenessInfo,
    PartitionUpdate, RangeTombstone, Row, Seconds, Timestamp,
};
use schema::{Column, ColumnId, ColumnKind, Table, TableId};
use stdx::Reader;
use stdx::vint::{read_signed, read_unsigned, write_signed, write_unsigned};

pub use crate::fields::{DecodeError, Fields, put_bound, put_bytes, put_prefix};

const HAS_DELETION: u8 = 1;
const HAS_STATIC: u8 = 2;
const HAS_RANGES: u8 = 4;

const ROW_LIVE: u8 = 1;
const ROW_DELETED: u8 = 2;
const ROW_TTL: u8 = 4;

const CELL_TOMBSTONE: u8 = 1;
const CELL_TTL: u8 = 2;
const CELL_VALUE: u8 = 4;
const COMPLEX: u8 = 8;

/// Appends an update.
pub fn encode_update(update: &PartitionUpdate, out: &mut Vec<u8>) {
    let table = &*update.table;
    out.extend_from_slice(&table.id.0);
    put_bytes(&update.key.key, out);
    let base = base_timestamp(update);
    out.extend_from_slice(&base.to_be_bytes());
    let names = Names::of(update);
    write_unsigned(names.len() as u64, out);
    names.encode(table, out);
    let mut encoder = Encoder { base, names, out };
    let mut parts = 0;
    for (flag, present) in [
        (HAS_DELETION, !update.deletion.is_live()),
        (HAS_STATIC, update.static_row.is_some()),
        (HAS_RANGES, !update.range_tombstones.is_empty()),
    ] {
        parts |= if present { flag } else { 0 };
    }
    encoder.out.push(parts);
    if parts & HAS_DELETION != 0 {
        encoder.deletion(update.deletion);
    }
    if let Some(row) = &update.static_row {
        encoder.row(row);
    }
    if parts & HAS_RANGES != 0 {
        write_unsigned(update.range_tombstones.len() as u64, encoder.out);
        for range in update.range_tombstones.iter() {
            put_bound(&range.start, encoder.out);
            put_bound(&range.end, encoder.out);
            encoder.deletion(range.deletion);
        }
    }
    write_unsigned(update.rows().len() as u64, encoder.out);
    update.rows().iter().for_each(|row| encoder.row(row));
}

/// The timestamp that most of an update has; others are written as differences.
fn base_timestamp(update: &PartitionUpdate) -> Timestamp {
    if !update.deletion.is_live() {
        return update.deletion.timestamp;
    }
    let row = update.static_row.iter().chain(update.rows()).next();
    let Some(row) = row else {
        return update.range_tombstones.iter().next().map_or(0, |range| range.deletion.timestamp);
    };
    if !row.liveness.is_none() {
        return row.liveness.timestamp;
    }
    match row.columns().first() {
        Some((_, ColumnData::Simple(cell))) => cell.timestamp,
        Some((_, ColumnData::Complex(complex))) => {
            complex.cells.first().map_or(complex.deletion.timestamp, |element| element.cell.timestamp)
        }
        None => row.deletion.timestamp,
    }
}

/// The columns that an update mentions; a row's columns refer to them by number.
enum Names<'a> {
    /// Those of the only row, in its order.
    OneRow(&'a Row),
    /// In order.
    Ids(Vec<ColumnId>),
}

impl<'a> Names<'a> {
    fn of(update: &'a PartitionUpdate) -> Self {
        if let (None, [row]) = (&update.static_row, update.rows()) {
            return Self::OneRow(row);
        }
        let mut ids = Vec::new();
        for row in update.static_row.iter().chain(update.rows()) {
            for (id, _) in row.columns() {
                if let Err(at) = ids.binary_search(id) {
                    ids.insert(at, *id);
                }
            }
        }
        Self::Ids(ids)
    }

    fn encode(&self, table: &Table, out: &mut Vec<u8>) {
        // A column that was dropped between the statement's check and here is written without a name, and skipped when
        // it is read.
        let mut name = |id| {
            put_bytes(table.column_by_id(id).map_or(&[], |column| column.name.as_bytes()), out);
        };
        match self {
            Self::OneRow(row) => row.columns().iter().for_each(|(id, _)| name(*id)),
            Self::Ids(ids) => ids.iter().for_each(|id| name(*id)),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::OneRow(row) => row.columns().len(),
            Self::Ids(ids) => ids.len(),
        }
    }

    /// The number of a column that stands at `place` in its row.
    fn number(&self, place: usize, id: ColumnId) -> usize {
        match self {
            Self::OneRow(_) => place,
            Self::Ids(ids) => ids.binary_search(&id).expect("collected"),
        }
    }
}

struct Encoder<'a> {
    base: Timestamp,
    names: Names<'a>,
    out: &'a mut Vec<u8>,
}

impl Encoder<'_> {
    fn timestamp(&mut self, timestamp: Timestamp) {
        write_signed(timestamp.wrapping_sub(self.base), self.out);
    }

    fn deletion(&mut self, deletion: DeletionTime) {
        self.timestamp(deletion.timestamp);
        self.out.extend_from_slice(&deletion.local.to_be_bytes());
    }

    fn row(&mut self, row: &Row) {
        put_prefix(row.clustering.components(), self.out);
        let live = !row.liveness.is_none();
        let mut flags = if live { ROW_LIVE } else { 0 };
        flags |= if live && row.liveness.ttl != 0 { ROW_TTL } else { 0 };
        flags |= if row.deletion.is_live() { 0 } else { ROW_DELETED };
        self.out.push(flags);
        if live {
            self.timestamp(row.liveness.timestamp);
            if flags & ROW_TTL != 0 {
                self.out.extend_from_slice(&row.liveness.ttl.to_be_bytes());
                self.out.extend_from_slice(&row.liveness.expires.to_be_bytes());
            }
        }
        if flags & ROW_DELETED != 0 {
            self.deletion(row.deletion);
        }
        write_unsigned(row.columns().len() as u64, self.out);
        for (place, (id, data)) in row.columns().iter().enumerate() {
            write_unsigned(self.names.number(place, *id) as u64, self.out);
            self.column(data);
        }
    }

    fn column(&mut self, data: &ColumnData) {
        match data {
            ColumnData::Simple(cell) => self.cell(cell),
            ColumnData::Complex(complex) => {
                let deleted = if complex.deletion.is_live() { 0 } else { CELL_TOMBSTONE };
                self.out.push(COMPLEX | deleted);
                if deleted != 0 {
                    self.deletion(complex.deletion);
                }
                write_unsigned(complex.cells.len() as u64, self.out);
                for element in &complex.cells {
                    put_bytes(&element.path, self.out);
                    self.cell(&element.cell);
                }
            }
        }
    }

    fn cell(&mut self, cell: &Cell) {
        let mut flags = if cell.is_tombstone() { CELL_TOMBSTONE } else { 0 };
        flags |= if cell.is_expiring() { CELL_TTL } else { 0 };
        flags |= if cell.value.is_empty() { 0 } else { CELL_VALUE };
        self.out.push(flags);
        self.timestamp(cell.timestamp);
        if flags & CELL_TTL != 0 {
            self.out.extend_from_slice(&cell.ttl.to_be_bytes());
        }
        if flags & (CELL_TTL | CELL_TOMBSTONE) != 0 {
            self.out.extend_from_slice(&cell.local_deletion.to_be_bytes());
        }
        if flags & CELL_VALUE != 0 {
            put_bytes(&cell.value, self.out);
        }
    }
}

/// Reads one update off the front of `reader`, whose bytes lie in `buffer`. None for a table that `table` does not know:
/// then the rest cannot be told apart, so every update of an entry is framed by its length.
///
/// Cells of columns that the table has no more, or that were dropped after they were written, are left out.
pub fn decode_update(
    buffer: &Bytes,
    table: impl FnOnce(TableId) -> Option<Arc<Table>>,
) -> Result<Option<PartitionUpdate>, DecodeError> {
    let mut decoder = Decoder { fields: Fields::new(buffer), base: 0, names: Vec::new() };
    let id = decoder.fields.take(16, "a table id")?;
    let Some(table) = table(TableId(id.try_into().expect("16 bytes"))) else { return Ok(None) };
    let key = decoder.fields.bytes("a partition key")?;
    decoder.base = decoder.fields.read("a timestamp", Reader::i64)?;
    decoder.names(&table)?;
    let mut update = PartitionUpdate::new(table.clone(), DecoratedKey::new(key));
    let parts = decoder.fields.read("flags", Reader::u8)?;
    if parts & HAS_DELETION != 0 {
        update.add_deletion(decoder.deletion()?);
    }
    if parts & HAS_STATIC != 0 {
        let row = decoder.row(&table, true)?;
        if !row.is_empty() {
            update.add_static(row);
        }
    }
    if parts & HAS_RANGES != 0 {
        for _ in 0..decoder.fields.count("a number of ranges")? {
            let (start, end) = (decoder.fields.bound(&table)?, decoder.fields.bound(&table)?);
            let deletion = decoder.deletion()?;
            update.add_range_tombstone(RangeTombstone { start, end, deletion });
        }
    }
    for _ in 0..decoder.fields.count("a number of rows")? {
        let row = decoder.row(&table, false)?;
        if !row.is_empty() {
            update.add_row(row);
        }
    }
    if !decoder.fields.is_empty() {
        return Err(decoder.fields.error("the end of the update"));
    }
    Ok(Some(update))
}

/// What a name of an update means under the present schema.
struct Named {
    column: Option<(ColumnId, bool)>,
    /// Cells up to this timestamp are gone.
    dropped: Timestamp,
}

struct Decoder<'a> {
    fields: Fields<'a>,
    base: Timestamp,
    names: Vec<Named>,
}

impl<'a> Decoder<'a> {
    fn names(&mut self, table: &Table) -> Result<(), DecodeError> {
        for _ in 0..self.fields.count("a number of columns")? {
            let name = self.fields.read("a column name", Reader::bytes_vint)?;
            let name = std::str::from_utf8(name).map_err(|_| self.fields.error("a column name in UTF-8"))?;
            let value = |column: &&Column| matches!(column.kind, ColumnKind::Static | ColumnKind::Regular);
            let column = table.column(name).filter(value).map(|column| (column.id, column.is_complex()));
            let dropped = table.dropped_columns.get(name).map_or(Timestamp::MIN, |old| old.dropped_micros);
            self.names.push(Named { column, dropped });
        }
        Ok(())
    }

    fn timestamp(&mut self) -> Result<Timestamp, DecodeError> {
        Ok(self.fields.read("a timestamp", read_signed)?.wrapping_add(self.base))
    }

    fn deletion(&mut self) -> Result<DeletionTime, DecodeError> {
        let timestamp = self.timestamp()?;
        Ok(DeletionTime::new(timestamp, self.fields.read("a deletion time", Reader::u32)?))
    }

    fn row(&mut self, table: &Table, is_static: bool) -> Result<Row, DecodeError> {
        let wanted = if is_static { 0 } else { table.clustering().len() };
        let components = self.fields.prefix(wanted)?;
        if components.len() != wanted {
            return Err(self.fields.error("a whole clustering key"));
        }
        let clustering = if is_static { Clustering::empty() } else { Clustering::new(table, &components) };
        let mut row = Row::new(clustering);
        let flags = self.fields.read("a row's flags", Reader::u8)?;
        if flags & ROW_LIVE != 0 {
            let timestamp = self.timestamp()?;
            row.liveness = if flags & ROW_TTL != 0 {
                let (ttl, expires) = self.ttl()?;
                LivenessInfo::expiring(timestamp, ttl, expires)
            } else {
                LivenessInfo::forever(timestamp)
            };
        }
        if flags & ROW_DELETED != 0 {
            row.deletion = self.deletion()?;
        }
        for _ in 0..self.fields.count("a number of cells")? {
            let number = self.fields.read("a column's number", read_unsigned)?;
            let number = usize::try_from(number).ok().filter(|number| *number < self.names.len());
            let Some(number) = number else { return Err(self.fields.error("the number of a named column")) };
            let (data, complex) = self.column(self.names[number].dropped)?;
            if let (Some(data), Some((id, is_complex))) = (data, self.names[number].column)
                && is_complex == complex
            {
                row.set(id, data);
            }
        }
        Ok(row)
    }

    fn ttl(&mut self) -> Result<(Seconds, Seconds), DecodeError> {
        let ttl = self.fields.read("a time to live", Reader::u32)?;
        let expires = self.fields.read("an expiration", Reader::u32)?;
        if ttl == 0 || expires == mutation::NO_DELETION {
            return Err(self.fields.error("a time to live with an end"));
        }
        Ok((ttl, expires))
    }

    /// A column's data, none when nothing of it is newer than `dropped`; and whether it is complex.
    fn column(&mut self, dropped: Timestamp) -> Result<(Option<ColumnData>, bool), DecodeError> {
        let flags = self.fields.read("a cell's flags", Reader::u8)?;
        if flags & COMPLEX == 0 {
            let cell = self.cell(flags)?;
            return Ok(((cell.timestamp > dropped).then_some(ColumnData::Simple(cell)), false));
        }
        let mut complex = Complex::empty();
        if flags & CELL_TOMBSTONE != 0 {
            let deletion = self.deletion()?;
            if deletion.timestamp > dropped {
                complex.deletion = deletion;
            }
        }
        for _ in 0..self.fields.count("a number of elements")? {
            let path = self.fields.bytes("an element's path")?;
            let flags = self.fields.read("a cell's flags", Reader::u8)?;
            let cell = self.cell(flags)?;
            if cell.timestamp > dropped {
                complex.cells.push(ComplexCell { path, cell });
            }
        }
        Ok(((!complex.is_empty()).then_some(ColumnData::Complex(complex)), true))
    }

    fn cell(&mut self, flags: u8) -> Result<Cell, DecodeError> {
        let timestamp = self.timestamp()?;
        let mut cell = Cell::live(timestamp, Bytes::new());
        if flags & CELL_TTL != 0 {
            (cell.ttl, cell.local_deletion) = self.ttl()?;
        } else if flags & CELL_TOMBSTONE != 0 {
            cell.local_deletion = self.fields.read("a deletion time", Reader::u32)?;
        }
        if flags & CELL_VALUE != 0 {
            cell.value = self.fields.bytes("a value")?;
        }
        Ok(cell)
    }
}
