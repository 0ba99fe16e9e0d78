//! Writing rows and markers.

use mutation::{Bound, CellRef, Complex, DataRef, DeletionTime, LivenessInfo, Row};
use schema::{ColumnId, Table};
use stdx::vint;

use super::{
    CELL_DELETED, CELL_EMPTY, CELL_EXPIRING, CELL_ROW_TIMESTAMP, CELL_ROW_TTL, END_OF_PARTITION,
    EXTENSION_STATIC, HAS_ALL_COLUMNS, HAS_COMPLEX_DELETION, HAS_DELETION, HAS_EXTENSION, HAS_TIMESTAMP,
    HAS_TTL, IS_MARKER, LARGE_SUBSET,
};
use crate::EncodingStats;
use crate::header::{HeaderColumn, SerializationHeader};
use crate::prefix::{self, Kind, ValueType};

/// Where in the file each column of a row goes.
#[derive(Debug)]
struct Layout {
    /// By place in the file: length of values.
    fixed: Vec<Option<u32>>,
    /// Place in the file of each column, in id order.
    places: Vec<(ColumnId, u16)>,
}

impl Layout {
    fn new(columns: &[HeaderColumn], table: &Table) -> Self {
        let id = |column: &HeaderColumn| {
            table.column(&column.name).expect("the header was made from the table").id
        };
        let mut places: Vec<(ColumnId, u16)> =
            columns.iter().enumerate().map(|(place, column)| (id(column), place as u16)).collect();
        places.sort_unstable();
        assert!(places.is_sorted_by(|(one, _), (next, _)| one < next), "a column has one place in the file");
        // Cells of unfrozen collections and user types always carry their length.
        let fixed = |column: &HeaderColumn| {
            if column.ty.is_multi_cell() { None } else { column.ty.fixed_len().map(|len| len as u32) }
        };
        Self { fixed: columns.iter().map(fixed).collect(), places }
    }

    fn place(&self, id: ColumnId) -> Option<u16> {
        // Ids of a table mostly follow each other.
        let (first, _) = self.places.first()?;
        match self.places.get(id.0.wrapping_sub(first.0) as usize) {
            Some((found, place)) if *found == id => Some(*place),
            _ => self.places.binary_search_by_key(&id, |(id, _)| *id).ok().map(|at| self.places[at].1),
        }
    }
}

/// Encodes the items of one data file.
#[derive(Debug)]
pub(crate) struct ItemEncoder {
    encoding: EncodingStats,
    types: Vec<ValueType>,
    statics: Layout,
    regulars: Layout,
    body: Vec<u8>,
    /// Places in the file of the columns of the row being written, with their places in the row.
    picked: Vec<(u16, u16)>,
}

impl ItemEncoder {
    pub(crate) fn new(header: &SerializationHeader, table: &Table) -> Self {
        Self {
            encoding: header.encoding,
            types: header.clustering_types.iter().map(|(ty, _)| ValueType::new(ty)).collect(),
            statics: Layout::new(&header.statics, table),
            regulars: Layout::new(&header.regulars, table),
            body: Vec::new(),
            picked: Vec::new(),
        }
    }

    pub(crate) fn types(&self) -> &[ValueType] {
        &self.types
    }

    /// Appends a row; `previous_len` is the size of the item before it. Columns that the header does not have must not
    /// occur, except dropped ones, which `table` no longer knows.
    pub(crate) fn row(
        &mut self,
        row: &Row,
        is_static: bool,
        previous_len: u64,
        table: &Table,
        out: &mut Vec<u8>,
    ) {
        let layout = if is_static { &self.statics } else { &self.regulars };
        self.picked.clear();
        let mut has_complex_deletion = false;
        for (at, (id, data)) in row.iter().enumerate() {
            if let DataRef::Complex(complex) = data {
                if complex.is_empty() {
                    continue;
                }
                has_complex_deletion |= !complex.deletion.is_live();
            }
            match layout.place(id) {
                Some(place) => self.picked.push((place, at as u16)),
                None => {
                    assert!(table.column_by_id(id).is_none(), "column {id:?} is in the header of the file")
                }
            }
        }
        if !self.picked.is_sorted() {
            self.picked.sort_unstable();
        }
        assert!(self.picked.len() <= layout.fixed.len(), "a row has columns of the header");
        let flags = row_flags(row, is_static, self.picked.len() == layout.fixed.len(), has_complex_deletion);

        self.body.clear();
        let body = &mut self.body;
        let encoding = &self.encoding;
        if flags & HAS_TIMESTAMP != 0 {
            encoding.write_timestamp(row.liveness.timestamp, body);
        }
        if flags & HAS_TTL != 0 {
            encoding.write_ttl(row.liveness.ttl, body);
            encoding.write_local(row.liveness.expires, body);
        }
        if flags & HAS_DELETION != 0 {
            encoding.write_deletion(row.deletion, body);
        }
        if flags & HAS_ALL_COLUMNS == 0 {
            write_subset(&self.picked, layout.fixed.len(), body);
        }
        for (place, at) in &self.picked {
            match row.at(usize::from(*at)) {
                DataRef::Simple(cell) => {
                    write_cell(encoding, cell, None, &row.liveness, layout.fixed[usize::from(*place)], body);
                }
                DataRef::Complex(complex) => {
                    write_complex(encoding, complex, has_complex_deletion, &row.liveness, body);
                }
            }
        }

        out.push(flags);
        if is_static {
            out.push(EXTENSION_STATIC);
        } else {
            prefix::write_values(&self.types, row.clustering.components(), out);
        }
        write_sizes(self.body.len(), previous_len, out);
        out.extend_from_slice(&self.body);
    }

    /// Appends a marker at which the deletion `ends` ends and `starts` starts; at least one is not live.
    pub(crate) fn marker(
        &mut self,
        bound: &Bound,
        ends: DeletionTime,
        starts: DeletionTime,
        previous_len: u64,
        out: &mut Vec<u8>,
    ) -> Kind {
        let kind = Kind::marker(bound.side(), !ends.is_live(), !starts.is_live());
        self.body.clear();
        for deletion in [ends, starts] {
            if !deletion.is_live() {
                self.encoding.write_deletion(deletion, &mut self.body);
            }
        }
        assert!(!self.body.is_empty(), "a marker ends or starts a deletion");
        out.push(IS_MARKER);
        prefix::write_bound(&self.types, bound, kind, out);
        write_sizes(self.body.len(), previous_len, out);
        out.extend_from_slice(&self.body);
        kind
    }

    /// Appends the end of a partition.
    pub(crate) fn end_of_partition(out: &mut Vec<u8>) {
        out.push(END_OF_PARTITION);
    }
}

fn row_flags(row: &Row, is_static: bool, has_all: bool, has_complex_deletion: bool) -> u8 {
    let flag = |condition: bool, flag: u8| if condition { flag } else { 0 };
    flag(!row.liveness.is_none(), HAS_TIMESTAMP)
        | flag(!row.liveness.is_none() && row.liveness.ttl != 0, HAS_TTL)
        | flag(!row.deletion.is_live(), HAS_DELETION)
        | flag(has_all, HAS_ALL_COLUMNS)
        | flag(has_complex_deletion, HAS_COMPLEX_DELETION)
        | flag(is_static, HAS_EXTENSION)
}

fn write_sizes(body_len: usize, previous_len: u64, out: &mut Vec<u8>) {
    vint::write_unsigned((body_len + vint::unsigned_len(previous_len)) as u64, out);
    vint::write_unsigned(previous_len, out);
}

/// Which of `all` columns are there: bits of the missing ones, or for many columns the shorter list.
fn write_subset(picked: &[(u16, u16)], all: usize, out: &mut Vec<u8>) {
    if all < LARGE_SUBSET {
        let missing = picked.iter().fold((1u64 << all) - 1, |missing, (place, _)| missing & !(1 << place));
        vint::write_unsigned(missing, out);
        return;
    }
    vint::write_unsigned((all - picked.len()) as u64, out);
    if picked.len() < all / 2 {
        picked.iter().for_each(|(place, _)| vint::write_unsigned(u64::from(*place), out));
        return;
    }
    let mut there = picked.iter().map(|(place, _)| *place).peekable();
    for place in 0..all as u16 {
        if there.next_if_eq(&place).is_none() {
            vint::write_unsigned(u64::from(place), out);
        }
    }
}

fn write_complex(
    encoding: &EncodingStats,
    complex: &Complex,
    has_deletion: bool,
    liveness: &LivenessInfo,
    out: &mut Vec<u8>,
) {
    if has_deletion {
        encoding.write_deletion(complex.deletion, out);
    }
    vint::write_unsigned(complex.cells.len() as u64, out);
    for element in &complex.cells {
        write_cell(encoding, (&element.cell).into(), Some(&element.path), liveness, None, out);
    }
}

fn write_cell(
    encoding: &EncodingStats,
    cell: CellRef<'_>,
    path: Option<&[u8]>,
    liveness: &LivenessInfo,
    fixed: Option<u32>,
    out: &mut Vec<u8>,
) {
    let (deleted, expiring) = (cell.is_tombstone(), cell.is_expiring());
    let row_timestamp = !liveness.is_none() && cell.timestamp == liveness.timestamp;
    let row_ttl = expiring
        && !liveness.is_none()
        && (cell.ttl, cell.local_deletion) == (liveness.ttl, liveness.expires);
    let flag = |condition: bool, flag: u8| if condition { flag } else { 0 };
    out.push(
        flag(deleted, CELL_DELETED)
            | flag(expiring, CELL_EXPIRING)
            | flag(cell.value.is_empty(), CELL_EMPTY)
            | flag(row_timestamp, CELL_ROW_TIMESTAMP)
            | flag(row_ttl, CELL_ROW_TTL),
    );
    if !row_timestamp {
        encoding.write_timestamp(cell.timestamp, out);
    }
    if (deleted || expiring) && !row_ttl {
        encoding.write_local(cell.local_deletion, out);
    }
    if expiring && !row_ttl {
        encoding.write_ttl(cell.ttl, out);
    }
    if let Some(path) = path {
        vint::write_unsigned(path.len() as u64, out);
        out.extend_from_slice(path);
    }
    if !cell.value.is_empty() {
        prefix::write_value(fixed, &cell.value, out);
    }
}
