//! The cells of a row that one statement wrote, in the form in which updates are logged and sent ([`crate::codec`]).
//!
//! The values bound to a prepared statement are encoded once. The commit log and messages append these bytes, the memtable keeps them, a
//! reader takes a value out of them by its column. Only changes of single cells (a merge of other columns, a purge) take them apart.
//!
//! ```text
//! bytes := { end of the cell in `bytes` (4, little-endian) }, { cell }
//! cell  := number (1), flags (1), timestamp − that of all (1, always 0), [ttl (4), expires (4)], [local seconds (4)],
//!          [vint length, value]
//! ```
//!
//! There are at most [`CELLS_MAX`] cells, so that the number of one is a vint of one byte.

use std::cell::{self, RefCell};
use std::sync::Arc;

use bytes::Bytes;
use schema::{ColumnId, Table};
use stdx::Reader;
use stdx::vint::{read_unsigned, unsigned_len};

use crate::codec::{CELL_TOMBSTONE, CELL_TTL, CELL_VALUE, put_bytes};
use crate::{Cell, CellRef, ColumnData, NO_DELETION, Packed, Seconds, Timestamp};

/// The most cells of a row that are kept encoded.
pub const CELLS_MAX: usize = 127;
/// The share of each cell beside its times and value: end, number, flags, timestamp.
const CELL_OVERHEAD: usize = 7;
/// The cost of its two allocations beside their content: sizes, and the counts of one.
const ALLOCATIONS_OVERHEAD: usize = 32;

/// The columns whose cells a statement writes. Made once for a prepared statement, and shared by the rows that it writes.
#[derive(Debug)]
pub struct RowLayout {
    table: Arc<Table>,
    /// In ascending order.
    ids: Box<[ColumnId]>,
    /// Their names as an update has them: each with its length.
    names: Box<[u8]>,
}

impl RowLayout {
    /// The layout of these columns of a table, in ascending order; none unless each of them has one cell, or when there are none or more
    /// than [`CELLS_MAX`]. Counters have none: their cells are merged and not replaced.
    pub fn new(table: &Arc<Table>, ids: impl IntoIterator<Item = ColumnId>) -> Option<Self> {
        let ids: Box<[ColumnId]> = ids.into_iter().collect();
        if table.is_counter() || ids.is_empty() || ids.len() > CELLS_MAX || !ids.is_sorted_by(|a, b| a < b) {
            return None;
        }
        let mut names = Vec::new();
        for id in &ids {
            let column = table.column_by_id(*id).filter(|column| !column.is_complex())?;
            put_bytes(column.name.as_bytes(), &mut names);
        }
        Some(Self { table: Arc::clone(table), ids, names: names.into() })
    }

    /// The columns, in ascending order.
    pub fn ids(&self) -> &[ColumnId] {
        &self.ids
    }

    /// The names of the columns as an update of `table` has them; none when they were made of another version of the table.
    pub(crate) fn names_of(&self, table: &Table) -> Option<&[u8]> {
        std::ptr::eq(&*self.table, table).then_some(&self.names)
    }

    /// Whether `table` has all of the columns.
    fn is_known_to(&self, table: &Table) -> bool {
        std::ptr::eq(&*self.table, table) || self.ids.iter().all(|id| table.column_by_id(*id).is_some())
    }
}

/// The layouts of rows that come without one, as they are kept: the latest few of a table.
#[derive(Debug, Default)]
pub struct TableLayouts {
    latest: RefCell<Vec<Arc<RowLayout>>>,
    /// The next one to be forgotten.
    oldest: cell::Cell<usize>,
}

impl TableLayouts {
    /// Layouts of a table that are remembered.
    const COUNT_MAX: usize = 8;

    /// The layout of these columns, as [`RowLayout::new`].
    pub fn of(
        &self,
        table: &Arc<Table>,
        ids: impl Iterator<Item = ColumnId> + Clone,
    ) -> Option<Arc<RowLayout>> {
        let mut latest = self.latest.borrow_mut();
        let is_of = |layout: &&Arc<RowLayout>| {
            layout.names_of(table).is_some() && layout.ids.iter().copied().eq(ids.clone())
        };
        if let Some(layout) = latest.iter().find(is_of) {
            return Some(Arc::clone(layout));
        }
        let layout = Arc::new(RowLayout::new(table, ids)?);
        if latest.len() < Self::COUNT_MAX {
            latest.push(Arc::clone(&layout));
        } else {
            let at = self.oldest.replace((self.oldest.get() + 1) % Self::COUNT_MAX);
            latest[at] = Arc::clone(&layout);
        }
        Some(layout)
    }
}

/// The encoded cells of a row. All have one timestamp.
pub struct EncodedCells {
    layout: Arc<RowLayout>,
    timestamp: Timestamp,
    /// No cell has a TTL or is a tombstone.
    is_lasting: bool,
    /// An allocation of its own.
    bytes: Bytes,
}

impl EncodedCells {
    /// Encodes cells that one statement writes: for each column of the layout, in its order, a value or a tombstone. `ttl` has the TTL and
    /// expiry of the values, if they have one, `now` the local time of tombstones.
    ///
    /// # Panics
    /// When there is not a value for each column, or all come to 4 GiB.
    #[inline]
    pub fn new<'a>(
        layout: &Arc<RowLayout>,
        timestamp: Timestamp,
        ttl: Option<(Seconds, Seconds)>,
        now: Seconds,
        values: impl Iterator<Item = Option<&'a [u8]>> + Clone,
    ) -> Self {
        assert!(now != NO_DELETION && ttl.is_none_or(|(ttl, expires)| ttl > 0 && expires != NO_DELETION));
        let cells = values.map(move |value| ToEncode { value, ttl, deleted: now });
        let encoded = encode(layout.ids.len(), cells);
        let (bytes, is_lasting) = encoded.expect("the cells of a row are below 4 GiB");
        Self { layout: Arc::clone(layout), timestamp, is_lasting, bytes }
    }

    /// Encodes columns, if each has one cell and all cells have one timestamp.
    pub(crate) fn of_columns(
        layouts: &TableLayouts,
        table: &Arc<Table>,
        columns: &[(ColumnId, ColumnData)],
    ) -> Option<Self> {
        let simple = |(_, data): &'_ (ColumnId, ColumnData)| match data {
            // A tombstone has no value to keep.
            ColumnData::Simple(cell) if cell.is_tombstone() && !cell.value.is_empty() => None,
            ColumnData::Simple(cell) => Some(cell.timestamp),
            ColumnData::Complex(_) => None,
        };
        let timestamp = simple(columns.first()?)?;
        if !columns.iter().all(|column| simple(column) == Some(timestamp)) {
            return None;
        }
        let layout = layouts.of(table, columns.iter().map(|(id, _)| *id))?;
        let cells = columns.iter().filter_map(|(_, data)| match data {
            ColumnData::Simple(cell) => Some(ToEncode::from(cell)),
            ColumnData::Complex(_) => None,
        });
        let (bytes, is_lasting) = encode(columns.len(), cells)?;
        Some(Self { layout, timestamp, is_lasting, bytes })
    }

    /// Copies of some cells as those of another table, as [`crate::Row::copy_columns`]; none when there are none of them, or the other table's columns
    /// have no layout.
    pub(crate) fn copy_columns(
        &self,
        columns: &[(ColumnId, ColumnId)],
        layouts: &TableLayouts,
        table: &Arc<Table>,
    ) -> Option<Self> {
        let places = columns.iter().filter_map(|(from, to)| Some((self.place(*from)?, *to)));
        let layout = layouts.of(table, places.clone().map(|(_, to)| to))?;
        let count = layout.ids.len();
        let mut out = Vec::with_capacity(self.bytes.len());
        out.resize(count * 4, 0);
        let mut is_lasting = true;
        for (number, (place, _)) in places.enumerate() {
            let (cell, start) = (self.cell_bytes(place), out.len());
            out.extend_from_slice(cell);
            out[start] = number as u8;
            is_lasting &= cell[1] & (CELL_TTL | CELL_TOMBSTONE) == 0;
            put_end(number, &mut out);
        }
        Some(Self { layout, timestamp: self.timestamp, is_lasting, bytes: out.into() })
    }

    /// Cells in the encoding of an update of this timestamp, checked by the codec, with their ends.
    pub(crate) fn of_update(
        layout: Arc<RowLayout>,
        timestamp: Timestamp,
        (cells, is_lasting): (&[u8], bool),
        ends: &[u32],
    ) -> Self {
        let count = layout.ids.len();
        assert_eq!(ends.len(), count, "a cell for each column");
        assert_eq!(
            ends.last().map(|end| *end as usize),
            Some(cells.len()),
            "the last cell ends with the bytes"
        );
        let mut out = Vec::with_capacity(count * 4 + cells.len());
        for end in ends {
            out.extend_from_slice(&(end + count as u32 * 4).to_le_bytes());
        }
        out.extend_from_slice(cells);
        Self { layout, timestamp, is_lasting, bytes: out.into() }
    }

    /// The columns.
    pub fn layout(&self) -> &RowLayout {
        &self.layout
    }

    /// The timestamp of all cells.
    #[inline]
    pub fn timestamp(&self) -> Timestamp {
        self.timestamp
    }

    /// Whether all of them are values without an end.
    #[inline]
    pub fn is_lasting(&self) -> bool {
        self.is_lasting
    }

    /// How many cells there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.layout.ids.len()
    }

    /// Whether there are none: never.
    pub fn is_empty(&self) -> bool {
        self.layout.ids.is_empty()
    }

    /// The cells as an update of this timestamp has them, which numbers its columns as the layout does.
    pub(crate) fn encoded(&self) -> &[u8] {
        &self.bytes[self.len() * 4..]
    }

    /// Whether both are of the same columns.
    #[inline]
    pub(crate) fn is_of_same_columns(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.layout, &other.layout) || self.layout.ids == other.layout.ids
    }

    /// Whether `table` has all of the columns.
    #[inline]
    pub(crate) fn is_known_to(&self, table: &Table) -> bool {
        self.layout.is_known_to(table)
    }

    /// The bytes of the cell at a place of the layout.
    #[inline]
    fn cell_bytes(&self, place: usize) -> &[u8] {
        let bytes = &*self.bytes;
        let end_of = |place: usize| match bytes[place * 4..].first_chunk() {
            Some(end) => u32::from_le_bytes(*end) as usize,
            None => unreachable!("each cell has an end"),
        };
        let start = if place == 0 { self.layout.ids.len() * 4 } else { end_of(place - 1) };
        &bytes[start..end_of(place)]
    }

    /// The cell of the column at a place of the layout.
    #[inline]
    pub(crate) fn at(&self, place: usize) -> CellRef<'_> {
        let cell = self.cell_bytes(place);
        match short_value(cell) {
            Some(value) => CellRef::within(&self.bytes, self.timestamp, (0, NO_DELETION), value),
            None => self.decode_cell(cell),
        }
    }

    /// The value of a column that a reader at `now` sees.
    #[inline]
    pub(crate) fn live_value(&self, id: ColumnId, now: Seconds) -> Option<&[u8]> {
        let cell = self.cell_bytes(self.place(id)?);
        match short_value(cell) {
            Some(value) => Some(value),
            None => {
                let cell = self.decode_cell(cell);
                cell.is_live(now).then_some(cell.value)
            }
        }
    }

    fn decode_cell<'a>(&'a self, cell: &'a [u8]) -> CellRef<'a> {
        let sound = "encoded by this module";
        let flags = cell[1];
        let mut reader = Reader::new(&cell[3..]);
        let ttl = if flags & CELL_TTL != 0 { reader.u32().expect(sound) } else { 0 };
        let has_local = flags & (CELL_TTL | CELL_TOMBSTONE) != 0;
        let local = if has_local { reader.u32().expect(sound) } else { NO_DELETION };
        let value = match flags & CELL_VALUE {
            0 => &[],
            _ => {
                let len = read_unsigned(&mut reader).expect(sound);
                reader.bytes(len as usize).expect(sound)
            }
        };
        CellRef::within(&self.bytes, self.timestamp, (ttl, local), value)
    }

    /// The place of a column in the layout.
    #[inline]
    fn place(&self, id: ColumnId) -> Option<usize> {
        let ids = &*self.layout.ids;
        // Ids of a table follow each other, and most statements write every column: look where it then lies.
        let guess = id.0.wrapping_sub(ids[0].0) as usize;
        match ids.get(guess) {
            Some(found) if *found == id => Some(guess),
            _ => ids.binary_search(&id).ok(),
        }
    }

    /// The cell of a column.
    #[inline]
    pub(crate) fn cell(&self, id: ColumnId) -> Option<CellRef<'_>> {
        self.place(id).map(|place| self.at(place))
    }

    /// The cells taken apart, whose values lie within these bytes.
    pub(crate) fn decoded(&self) -> Vec<(ColumnId, ColumnData)> {
        let cells = self.layout.ids.iter().enumerate();
        cells.map(|(place, id)| (*id, ColumnData::Simple(self.at(place).to_cell()))).collect()
    }

    /// The cells taken apart, with values in memory of their own.
    pub(crate) fn to_columns(&self) -> Vec<(ColumnId, ColumnData)> {
        let mut packed = Packed::for_lengths((0..self.len()).map(|place| self.at(place).value.len()));
        let cells = self.layout.ids.iter().enumerate();
        let mut owned = |place| {
            let CellRef { timestamp, ttl, local_deletion, value, .. } = self.at(place);
            Cell { timestamp, ttl, local_deletion, value: packed.copy(value) }
        };
        cells.map(|(place, id)| (*id, ColumnData::Simple(owned(place)))).collect()
    }

    /// Bytes that it holds, itself included and the layout left out.
    #[inline]
    pub(crate) fn memory_size(&self) -> usize {
        size_of::<Self>() + ALLOCATIONS_OVERHEAD + self.bytes.len()
    }
}

impl PartialEq for EncodedCells {
    fn eq(&self, other: &Self) -> bool {
        // A cell has one encoding.
        self.layout.ids == other.layout.ids && self.timestamp == other.timestamp && self.bytes == other.bytes
    }
}

/// The value of a cell that has neither TTL nor deletion, and at most a short value.
#[inline]
fn short_value(cell: &[u8]) -> Option<&[u8]> {
    match cell {
        // The length of a short value is its own vint.
        [_, CELL_VALUE, _, 0..0x80, value @ ..] => Some(value),
        [_, 0, _] => Some(&[]),
        _ => None,
    }
}

/// A cell that is to be encoded.
#[derive(Clone, Copy)]
struct ToEncode<'a> {
    /// Its value; none for a tombstone.
    value: Option<&'a [u8]>,
    /// The TTL of the value and its expiry.
    ttl: Option<(Seconds, Seconds)>,
    /// The local time of the tombstone.
    deleted: Seconds,
}

impl<'a> From<&'a Cell> for ToEncode<'a> {
    fn from(cell: &'a Cell) -> Self {
        Self {
            value: (!cell.is_tombstone()).then_some(&*cell.value),
            ttl: cell.is_expiring().then_some((cell.ttl, cell.local_deletion)),
            deleted: cell.local_deletion,
        }
    }
}

impl ToEncode<'_> {
    /// The bytes that it takes with its end.
    #[inline]
    fn len(&self) -> usize {
        let times_len = if self.ttl.is_some() { 8 } else { 0 };
        match self.value.map(<[u8]>::len) {
            None => CELL_OVERHEAD + 4,
            Some(0) => CELL_OVERHEAD + times_len,
            Some(len) => CELL_OVERHEAD + times_len + unsigned_len(len as u64) + len,
        }
    }
}

/// The bytes of `count` cells with their ends, and whether all are values without an end; none above 4 GiB.
///
/// # Panics
/// When there are not so many cells.
#[inline]
fn encode<'a>(count: usize, cells: impl Iterator<Item = ToEncode<'a>> + Clone) -> Option<(Bytes, bool)> {
    let len: usize = cells.clone().map(|cell| cell.len()).sum();
    u32::try_from(len).ok()?;
    let mut out = Vec::with_capacity(len);
    out.resize(count * 4, 0);
    let (mut number, mut is_lasting) = (0, true);
    for ToEncode { value, ttl, deleted } in cells {
        is_lasting &= value.is_some() && ttl.is_none();
        match value {
            Some(value) if ttl.is_none() && value.len() < 0x80 && !value.is_empty() => {
                out.extend_from_slice(&[number as u8, CELL_VALUE, 0, value.len() as u8]);
                out.extend_from_slice(value);
            }
            Some(value) => put_value(number as u8, ttl, value, &mut out),
            None => put_tombstone(number as u8, deleted, &mut out),
        }
        put_end(number, &mut out);
        number += 1;
    }
    assert!(number == count && out.len() == len, "there is a cell for each column, of a known size");
    Some((out.into(), is_lasting))
}

/// Records the end of a cell that was appended.
#[inline]
fn put_end(number: usize, out: &mut [u8]) {
    let end = (out.len() as u32).to_le_bytes();
    match out[number * 4..].first_chunk_mut() {
        Some(room) => *room = end,
        None => unreachable!("there is room for each end"),
    }
}

/// Appends a tombstone.
fn put_tombstone(number: u8, local: Seconds, out: &mut Vec<u8>) {
    out.extend_from_slice(&[number, CELL_TOMBSTONE, 0]);
    out.extend_from_slice(&local.to_be_bytes());
}

/// Appends a cell that is not a tombstone.
fn put_value(number: u8, ttl: Option<(Seconds, Seconds)>, value: &[u8], out: &mut Vec<u8>) {
    let value_flag = if value.is_empty() { 0 } else { CELL_VALUE };
    match ttl {
        Some((ttl, expires)) => {
            let ([a, b, c, d], [e, f, g, h]) = (ttl.to_be_bytes(), expires.to_be_bytes());
            out.extend_from_slice(&[number, CELL_TTL | value_flag, 0, a, b, c, d, e, f, g, h]);
        }
        None => out.extend_from_slice(&[number, value_flag, 0]),
    }
    if !value.is_empty() {
        put_bytes(value, out);
    }
}
