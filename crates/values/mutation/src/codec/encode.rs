//! Writes updates, in the current version.

use schema::{ColumnId, Table};
use stdx::vint::{write_signed, write_unsigned};

use super::{
    CELL_TOMBSTONE, CELL_TTL, CELL_VALUE, COMPLEX, HAS_DELETION, HAS_RANGES, HAS_STATIC, ROW_DELETED,
    ROW_LIVE, ROW_TTL, put_bound, put_bytes, put_prefix,
};
use crate::{CellRef, DataRef, DeletionTime, NO_DELETION, PartitionUpdate, Row, Timestamp, Walk};

/// Appends an update, in [`super::Version::CURRENT`].
pub fn encode_update(update: &PartitionUpdate, out: &mut Vec<u8>) {
    if encode_only_row(update, out) {
        return;
    }
    let mut encoding = UpdateEncoding::begin(update, out);
    while !encoding.step(out, usize::MAX) {}
}

/// Appends an update that is one encoded row of one time, as most are; false, and nothing, for another one.
fn encode_only_row(update: &PartitionUpdate, out: &mut Vec<u8>) -> bool {
    let (None, [row]) = (update.static_row(), update.rows()) else { return false };
    let Some(cells) = row.encoded_cells() else { return false };
    let Some(names) = cells.layout().names_of(&update.table) else { return false };
    let base = cells.timestamp();
    let is_plain = update.deletion.is_live()
        && update.range_tombstones.is_empty()
        && (row.liveness.is_none() || row.liveness.timestamp == base);
    if !is_plain {
        return false;
    }
    let count = cells.layout().ids().len();
    out.reserve(names.len() + cells.encoded().len() + update.key.key.len() + 64);
    out.extend_from_slice(&update.table.id.0);
    put_bytes(&update.key.key, out);
    out.extend_from_slice(&base.to_be_bytes());
    write_unsigned(count as u64, out);
    out.extend_from_slice(names);
    // No deletion, static row or range, and one row.
    out.extend_from_slice(&[0, 1]);
    Encoder { base, names: &Names::OneRow(row), out }.row(row);
    true
}

/// [`encode_update`] of an update that may be large, in steps.
pub struct UpdateEncoding<'a> {
    base: Timestamp,
    names: Names<'a>,
    ranges: Walk<'a>,
    /// The number of rows, until it is written.
    row_count: Option<usize>,
    rows: std::slice::Iter<'a, Row>,
}

impl<'a> UpdateEncoding<'a> {
    /// Appends the part before the ranges and rows.
    pub fn begin(update: &'a PartitionUpdate, out: &mut Vec<u8>) -> Self {
        let table = &*update.table;
        out.extend_from_slice(&table.id.0);
        put_bytes(&update.key.key, out);
        let base = base_timestamp(update);
        out.extend_from_slice(&base.to_be_bytes());
        let names = Names::of(update);
        write_unsigned(names.len() as u64, out);
        names.encode(table, out);
        let mut encoder = Encoder { base, names: &names, out };
        let mut parts = 0;
        for (flag, present) in [
            (HAS_DELETION, !update.deletion.is_live()),
            (HAS_STATIC, update.static_row().is_some()),
            (HAS_RANGES, !update.range_tombstones.is_empty()),
        ] {
            parts |= if present { flag } else { 0 };
        }
        encoder.out.push(parts);
        if parts & HAS_DELETION != 0 {
            encoder.deletion(update.deletion);
        }
        if let Some(row) = update.static_row() {
            encoder.row(row);
        }
        if parts & HAS_RANGES != 0 {
            write_unsigned(update.range_tombstones.len() as u64, encoder.out);
        }
        let rows = update.rows();
        let ranges = update.range_tombstones.iter();
        Self { base, names, ranges, row_count: Some(rows.len()), rows: rows.iter() }
    }

    /// Appends so many ranges and rows at most, to the bytes of before; whether the update is complete.
    pub fn step(&mut self, out: &mut Vec<u8>, most: usize) -> bool {
        let mut encoder = Encoder { base: self.base, names: &self.names, out };
        let mut room = most;
        while room > 0
            && let Some(range) = self.ranges.next()
        {
            put_bound(&range.start, encoder.out);
            put_bound(&range.end, encoder.out);
            encoder.deletion(range.deletion);
            room -= 1;
        }
        if room == 0 {
            return false;
        }
        if let Some(count) = self.row_count.take() {
            write_unsigned(count as u64, encoder.out);
        }
        self.rows.by_ref().take(room).for_each(|row| encoder.row(row));
        self.rows.as_slice().is_empty()
    }
}

/// The timestamp that most of an update has; others are written as differences.
fn base_timestamp(update: &PartitionUpdate) -> Timestamp {
    if !update.deletion.is_live() {
        return update.deletion.timestamp;
    }
    let row = update.all_rows().next();
    let Some(row) = row else {
        return update.range_tombstones.iter().next().map_or(0, |range| range.deletion.timestamp);
    };
    if !row.liveness.is_none() {
        return row.liveness.timestamp;
    }
    match row.iter().next() {
        Some((_, DataRef::Simple(cell))) => cell.timestamp,
        Some((_, DataRef::Complex(complex))) => {
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
        if let (None, [row]) = (update.static_row(), update.rows()) {
            return Self::OneRow(row);
        }
        let mut ids = Vec::new();
        for row in update.all_rows() {
            for (id, _) in row.iter() {
                if let Err(at) = ids.binary_search(&id) {
                    ids.insert(at, id);
                }
            }
        }
        Self::Ids(ids)
    }

    fn encode(&self, table: &Table, out: &mut Vec<u8>) {
        // A column that was dropped between the statement's check and here is written without a name, and skipped when
        // it is read.
        let put = |id, out: &mut Vec<u8>| {
            put_bytes(table.column_by_id(id).map_or(&[], |column| column.name.as_bytes()), out);
        };
        match self {
            Self::OneRow(row) => match row.encoded_cells().and_then(|cells| cells.layout().names_of(table)) {
                Some(names) => out.extend_from_slice(names),
                None => row.iter().for_each(|(id, _)| put(id, out)),
            },
            Self::Ids(ids) => ids.iter().for_each(|id| put(*id, out)),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::OneRow(row) => row.column_count(),
            Self::Ids(ids) => ids.len(),
        }
    }

    /// The number of a column that stands at `place` in its row.
    #[expect(clippy::expect_used, reason = "the column was collected before")]
    fn number(&self, place: usize, id: ColumnId) -> usize {
        match self {
            Self::OneRow(_) => place,
            Self::Ids(ids) => ids.binary_search(&id).expect("collected"),
        }
    }
}

struct Encoder<'a> {
    base: Timestamp,
    names: &'a Names<'a>,
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
        write_unsigned(row.column_count() as u64, self.out);
        if let (Some(cells), Names::OneRow(_)) = (row.encoded_cells(), self.names)
            && cells.timestamp() == self.base
        {
            self.out.extend_from_slice(cells.encoded());
            return;
        }
        for (place, (id, data)) in row.iter().enumerate() {
            let number = self.names.number(place, id);
            if let DataRef::Simple(cell) = data
                && self.short_cell(number, cell)
            {
                continue;
            }
            write_unsigned(number as u64, self.out);
            self.column(data);
        }
    }

    fn column(&mut self, data: DataRef<'_>) {
        match data {
            DataRef::Simple(cell) => self.cell(cell),
            DataRef::Complex(complex) => {
                let deleted = if complex.deletion.is_live() { 0 } else { CELL_TOMBSTONE };
                self.out.push(COMPLEX | deleted);
                if deleted != 0 {
                    self.deletion(complex.deletion);
                }
                write_unsigned(complex.cells.len() as u64, self.out);
                for element in &complex.cells {
                    put_bytes(&element.path, self.out);
                    self.cell((&element.cell).into());
                }
            }
        }
    }

    /// Appends a column of one cell that has nothing but a short value of the update's time, as most have: its four leading bytes at once.
    #[inline]
    fn short_cell(&mut self, number: usize, cell: CellRef<'_>) -> bool {
        let len = cell.value.len();
        let is_plain = cell.ttl == 0 && cell.local_deletion == NO_DELETION && cell.timestamp == self.base;
        // A number below 128 is its own vint.
        if !is_plain || len == 0 || len >= 0x80 || number >= 0x80 {
            return false;
        }
        self.out.extend_from_slice(&[number as u8, CELL_VALUE, 0, len as u8]);
        self.out.extend_from_slice(cell.value);
        true
    }

    fn cell(&mut self, cell: CellRef<'_>) {
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
            put_bytes(cell.value, self.out);
        }
    }
}
