//! Reads updates, of every version that there was.

use std::sync::Arc;

use bytes::Bytes;
use schema::{Column, ColumnId, ColumnKind, Table, TableId};
use stdx::Reader;
use stdx::vint::{read_signed, read_unsigned};

use super::{
    CELL_TOMBSTONE, CELL_TTL, CELL_VALUE, COMPLEX, DecodeError, Fields, HAS_DELETION, HAS_RANGES, HAS_STATIC,
    Layouts, ROW_DELETED, ROW_LIVE, ROW_TTL, Version, cells,
};
use crate::encoded::{CELLS_MAX, EncodedCells, RowLayout};
use crate::{
    Cell, Clustering, ColumnData, Complex, ComplexCell, DecoratedKey, DeletionTime, LivenessInfo,
    NO_TIMESTAMP, PartitionUpdate, RangeTombstone, Row, Seconds, Timestamp,
};

/// Reads one update off the front of `reader`, whose bytes lie in `buffer`. None for a table that `table` does not know:
/// then the rest cannot be told apart, so every update of an entry is framed by its length.
///
/// Cells of columns that the table has no more, or that were dropped after they were written, are left out.
///
/// # Errors
///
/// [`DecodeError`]: the bytes are no update of this version, or bytes follow it.
pub fn decode_update(
    version: Version,
    buffer: &Bytes,
    table: impl FnOnce(TableId) -> Option<Arc<Table>>,
) -> Result<Option<PartitionUpdate>, DecodeError> {
    Ok(decode(version, buffer, None, table)?.map(|decoded| decoded.update))
}

/// An update out of bytes.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// The update.
    pub update: PartitionUpdate,
    /// Whether it has all that the bytes say. Otherwise they have something of a column that the table has no more, or not yet.
    pub is_whole: bool,
    /// Whether they have something of a column that the table does not know, nor has known: one that is not here yet.
    pub(super) has_unknown: bool,
}

/// [`decode_update`], which also says whether something was left out. With `layouts`, the cells of a row stay encoded where they can.
///
/// # Errors
///
/// [`DecodeError`]: the bytes are no update of this version, or bytes follow it.
pub fn decode(
    version: Version,
    buffer: &Bytes,
    layouts: Option<&Layouts>,
    table: impl FnOnce(TableId) -> Option<Arc<Table>>,
) -> Result<Option<Decoded>, DecodeError> {
    let Some(mut decoding) = UpdateDecoding::begin(version, buffer, layouts, table)? else { return Ok(None) };
    while !decoding.step(usize::MAX)? {}
    Ok(Some(decoding.finish()))
}

/// [`decode`] of an update that may be large, in steps.
pub struct UpdateDecoding<'a> {
    decoder: Decoder<'a>,
    update: PartitionUpdate,
    /// Ranges that are still to be read.
    ranges: usize,
    /// Rows that are; none until their number is read.
    rows: Option<usize>,
}

impl<'a> UpdateDecoding<'a> {
    /// Reads the part before the ranges and rows; none for a table that `table` does not know.
    ///
    /// # Errors
    ///
    /// [`DecodeError`]: the bytes are no update of this version.
    pub fn begin(
        version: Version,
        buffer: &'a Bytes,
        layouts: Option<&Layouts>,
        table: impl FnOnce(TableId) -> Option<Arc<Table>>,
    ) -> Result<Option<Self>, DecodeError> {
        match version {
            Version::V1 => {}
        }
        let fields = Fields::new(buffer);
        let mut decoder =
            Decoder { fields, base: 0, names: Vec::new(), layout: None, is_whole: true, has_unknown: false };
        let id = decoder.fields.read("a table id", Reader::array)?;
        let Some(table) = table(TableId(id)) else { return Ok(None) };
        let key = decoder.fields.bytes("a partition key")?;
        decoder.base = decoder.fields.read("a timestamp", Reader::i64)?;
        decoder.names(&table, layouts)?;
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
        let ranges = if parts & HAS_RANGES != 0 { decoder.fields.count("a number of ranges")? } else { 0 };
        Ok(Some(Self { decoder, update, ranges, rows: None }))
    }

    /// Reads so many ranges and rows at most; whether the update is complete.
    ///
    /// # Errors
    ///
    /// [`DecodeError`]: the bytes are no update of this version, or bytes follow it.
    pub fn step(&mut self, most: usize) -> Result<bool, DecodeError> {
        let Self { decoder, update, .. } = self;
        let mut room = most;
        while self.ranges > 0 && room > 0 {
            let (start, end) = (decoder.fields.bound(&update.table)?, decoder.fields.bound(&update.table)?);
            let deletion = decoder.deletion()?;
            update.add_range_tombstone(RangeTombstone { start, end, deletion });
            self.ranges -= 1;
            room -= 1;
        }
        if self.ranges > 0 {
            return Ok(false);
        }
        let rows = match &mut self.rows {
            Some(rows) => rows,
            None => self.rows.insert(decoder.fields.count("a number of rows")?),
        };
        while *rows > 0 && room > 0 {
            let row = decoder.row(&update.table, false)?;
            if !row.is_empty() {
                update.add_row(row);
            }
            *rows -= 1;
            room -= 1;
        }
        if *rows > 0 {
            return Ok(false);
        }
        if !decoder.fields.is_empty() {
            return Err(decoder.fields.error("the end of the update"));
        }
        Ok(true)
    }

    /// The update, when a step has said that it is complete.
    ///
    /// # Panics
    /// When ranges or rows are still to be read.
    pub fn finish(self) -> Decoded {
        assert!(self.ranges == 0 && self.rows == Some(0), "an update is read to its end");
        let Decoder { is_whole, has_unknown, .. } = self.decoder;
        Decoded { update: self.update, is_whole, has_unknown }
    }
}

/// The meaning of a name of an update under the present schema.
#[derive(Clone, Copy)]
struct Named {
    /// The column, whether it has several cells, and its kind.
    column: Option<(ColumnId, bool, ColumnKind)>,
    /// Cells up to this timestamp are gone; the least of all where there was no such column before.
    dropped: Timestamp,
}

/// Whether a cell is of the present column. Also one of the earliest time, which no client can give, where no column was dropped: rows whose
/// cells stay encoded keep it, too.
fn outlives(timestamp: Timestamp, dropped: Timestamp) -> bool {
    dropped == Timestamp::MIN || timestamp > dropped
}

struct Decoder<'a> {
    fields: Fields<'a>,
    base: Timestamp,
    /// The meaning of the names, unless there is a layout.
    names: Vec<Named>,
    /// The layout of the columns, where each has one cell and the rows can be taken over.
    layout: Option<Arc<RowLayout>>,
    /// Nothing was left out so far.
    is_whole: bool,
    /// A cell is of no column, nor of a dropped one.
    has_unknown: bool,
}

impl<'a> Decoder<'a> {
    fn names(&mut self, table: &Arc<Table>, layouts: Option<&Layouts>) -> Result<(), DecodeError> {
        let count = self.fields.count("a number of columns")?;
        // Cells of a column that was dropped before may be hidden.
        let may_stay = count <= CELLS_MAX && table.dropped_columns.is_empty();
        let Some(layouts) = layouts.filter(|_| may_stay) else { return self.look_up(count, table) };
        let begin = self.fields.rest();
        let mut names = self.fields.clone();
        for _ in 0..count {
            names.read("a column name", Reader::bytes_vint)?;
        }
        let bytes = begin.get(..begin.len() - names.rest().len()).unwrap_or_default();
        if let Some(layout) = layouts.find(table, bytes) {
            self.fields = names;
            self.layout = Some(layout);
            return Ok(());
        }
        self.look_up(count, table)?;
        if let Some(layout) = self.layout_of(table).map(Arc::new) {
            layouts.remember(table, &layout);
            self.layout = Some(layout);
        }
        Ok(())
    }

    /// The layout of the columns that were named, if each is a regular one with one cell.
    fn layout_of(&self, table: &Arc<Table>) -> Option<RowLayout> {
        let id = |named: &Named| match named.column {
            Some((id, false, ColumnKind::Regular)) => Some(id),
            _ => None,
        };
        let ids: Vec<ColumnId> = self.names.iter().map(id).collect::<Option<_>>()?;
        RowLayout::new(table, ids)
    }

    /// The meaning of a name by its number.
    fn named(&self, number: u64) -> Option<Named> {
        let number = usize::try_from(number).ok()?;
        match &self.layout {
            None => self.names.get(number).copied(),
            Some(layout) => {
                let id = *layout.ids().get(number)?;
                Some(Named { column: Some((id, false, ColumnKind::Regular)), dropped: Timestamp::MIN })
            }
        }
    }

    fn look_up(&mut self, count: usize, table: &Table) -> Result<(), DecodeError> {
        for _ in 0..count {
            let name = self.fields.read("a column name", Reader::bytes_vint)?;
            let name = std::str::from_utf8(name).map_err(|_| self.fields.error("a column name in UTF-8"))?;
            let value = |column: &&Column| matches!(column.kind, ColumnKind::Static | ColumnKind::Regular);
            let column =
                table.column(name).filter(value).map(|column| (column.id, column.is_complex(), column.kind));
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
        let deletion = DeletionTime::new(timestamp, self.fields.read("a deletion time", Reader::u32)?);
        // One of the earliest time deletes nothing, and would be written as none.
        Ok(if deletion.is_live() { DeletionTime::LIVE } else { deletion })
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
            let times = if flags & ROW_TTL != 0 { Some(self.ttl()?) } else { None };
            row.liveness = match times {
                // A mark of the earliest time says nothing, and would be written as none.
                _ if timestamp == NO_TIMESTAMP => LivenessInfo::NONE,
                Some((ttl, expires)) => LivenessInfo::expiring(timestamp, ttl, expires),
                None => LivenessInfo::forever(timestamp),
            };
        }
        if flags & ROW_DELETED != 0 {
            row.deletion = self.deletion()?;
        }
        let count = self.fields.count("a number of cells")?;
        if !is_static && self.take_over(count, &mut row) {
            return Ok(row);
        }
        for _ in 0..count {
            let number = self.fields.read("a column's number", read_unsigned)?;
            let Some(Named { column, dropped }) = self.named(number) else {
                return Err(self.fields.error("the number of a named column"));
            };
            self.has_unknown |= column.is_none() && dropped == Timestamp::MIN;
            let (data, complex) = self.column(dropped)?;
            if let (Some(data), Some((id, is_complex, kind))) = (data, column)
                && is_complex == complex
                && (kind == ColumnKind::Static) == is_static
            {
                row.set(id, data);
            } else {
                self.is_whole = false;
            }
        }
        Ok(row)
    }

    /// Takes the cells of a row over as they are, if that can be; else nothing is read.
    fn take_over(&mut self, count: usize, row: &mut Row) -> bool {
        let Some(layout) = self.layout.as_ref().filter(|layout| layout.ids().len() == count) else {
            return false;
        };
        let mut ends = [0; CELLS_MAX];
        let Some((len, is_lasting)) = cells::scan(self.fields.rest(), count, &mut ends) else { return false };
        let (Ok(bytes), Some(ends)) = (self.fields.take(len, "the cells of a row"), ends.get(..count)) else {
            return false;
        };
        let cells = EncodedCells::of_update(Arc::clone(layout), self.base, (bytes, is_lasting), ends);
        row.set_encoded(cells);
        true
    }

    fn ttl(&mut self) -> Result<(Seconds, Seconds), DecodeError> {
        let ttl = self.fields.read("a time to live", Reader::u32)?;
        let expires = self.fields.read("an expiration", Reader::u32)?;
        if ttl == 0 || expires == crate::NO_DELETION {
            return Err(self.fields.error("a time to live with an end"));
        }
        Ok((ttl, expires))
    }

    /// A column's data, none when nothing of it is newer than `dropped`; and whether it is complex.
    fn column(&mut self, dropped: Timestamp) -> Result<(Option<ColumnData>, bool), DecodeError> {
        let flags = self.fields.read("a cell's flags", Reader::u8)?;
        if flags & COMPLEX == 0 {
            let cell = self.cell(flags)?;
            return Ok((outlives(cell.timestamp, dropped).then_some(ColumnData::Simple(cell)), false));
        }
        let mut complex = Complex::empty();
        if flags & CELL_TOMBSTONE != 0 {
            let deletion = self.deletion()?;
            if deletion.timestamp > dropped {
                complex.deletion = deletion;
            } else {
                self.is_whole = false;
            }
        }
        for _ in 0..self.fields.count("a number of elements")? {
            let path = self.fields.bytes("an element's path")?;
            let flags = self.fields.read("a cell's flags", Reader::u8)?;
            let cell = self.cell(flags)?;
            if outlives(cell.timestamp, dropped) {
                complex.cells.push(ComplexCell { path, cell });
            } else {
                self.is_whole = false;
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
