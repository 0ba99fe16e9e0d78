//! The bytes by which a write is named in a log. Every replica makes them of a write that it has decoded, so they depend on the write alone: columns
//! stand in the order of their names, because the ids of columns differ between processes, and the bytes are no encoding for a file or
//! the network, whose versions change. A change of them renames the changes of a write that is in flight (docs/design/cdc.md).

use mutation::{Bound, CellRef, DataRef, DeletionTime, LivenessInfo, PartitionUpdate, Row};
use schema::{ColumnId, Table};

/// A row or range follows; a column of a row follows.
const MORE: u8 = 1;
/// The end of rows, ranges, or columns of a row.
const END: u8 = 0;
const SIMPLE: u8 = 0;
const COMPLEX: u8 = 1;
/// A column of a row takes about so many bytes beside its value.
const COLUMN_BYTES: usize = 64;

/// All that an update says.
pub(crate) fn bytes_of(update: &PartitionUpdate) -> Vec<u8> {
    let by_name = by_name(&update.table);
    let columns: usize = update.all_rows().map(Row::column_count).sum();
    let capacity = update.memory_size() + columns * COLUMN_BYTES;
    let mut writer = Writer { by_name, out: Vec::with_capacity(capacity) };
    writer.out.extend_from_slice(&update.table.id.0);
    writer.bytes(&update.key.key);
    writer.deletion(update.deletion);
    for row in update.static_row().into_iter() {
        writer.out.push(MORE);
        writer.row(row);
    }
    writer.out.push(END);
    for range in update.range_tombstones.iter() {
        writer.out.push(MORE);
        writer.bound(&range.start);
        writer.bound(&range.end);
        writer.deletion(range.deletion);
    }
    writer.out.push(END);
    for row in update.rows() {
        writer.out.push(MORE);
        writer.row(row);
    }
    writer.out.push(END);
    writer.out
}

fn by_name(table: &Table) -> Vec<(&str, ColumnId)> {
    let mut named: Vec<_> = table.columns().iter().map(|column| (&*column.name, column.id)).collect();
    named.sort_unstable();
    named
}

struct Writer<'a> {
    by_name: Vec<(&'a str, ColumnId)>,
    out: Vec<u8>,
}

impl Writer<'_> {
    fn numbers<const N: usize>(&mut self, numbers: [u64; N]) {
        self.out.extend_from_slice(numbers.map(u64::to_be_bytes).as_flattened());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.numbers([bytes.len() as u64]);
        self.out.extend_from_slice(bytes);
    }

    fn deletion(&mut self, deletion: DeletionTime) {
        self.numbers([deletion.timestamp as u64, u64::from(deletion.local)]);
    }

    /// The order of bounds and rows is that of their positions, and equal positions are equal places.
    fn bound(&mut self, bound: &Bound) {
        self.bytes(bound.position());
    }

    fn liveness(&mut self, liveness: LivenessInfo) {
        let LivenessInfo { timestamp, ttl, expires } = liveness;
        self.numbers([timestamp as u64, u64::from(ttl), u64::from(expires)]);
    }

    fn row(&mut self, row: &Row) {
        self.bytes(row.clustering.position());
        self.liveness(row.liveness);
        self.deletion(row.deletion);
        for at in 0..self.by_name.len() {
            let (name, id) = self.by_name[at];
            if let Some(data) = row.get(id) {
                self.out.push(MORE);
                self.bytes(name.as_bytes());
                self.column(data);
            }
        }
        self.out.push(END);
    }

    fn column(&mut self, data: DataRef<'_>) {
        match data {
            DataRef::Simple(cell) => {
                self.out.push(SIMPLE);
                self.cell(cell);
            }
            // Elements are in the order of their paths.
            DataRef::Complex(complex) => {
                self.out.push(COMPLEX);
                self.deletion(complex.deletion);
                self.numbers([complex.cells.len() as u64]);
                for element in &complex.cells {
                    self.bytes(&element.path);
                    self.cell((&element.cell).into());
                }
            }
        }
    }

    fn cell(&mut self, cell: CellRef<'_>) {
        let (ttl, local, len) = (cell.ttl, cell.local_deletion, cell.value.len());
        self.numbers([cell.timestamp as u64, u64::from(ttl), u64::from(local), len as u64]);
        self.out.extend_from_slice(cell.value);
    }
}
