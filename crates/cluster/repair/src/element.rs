//! The units that repair compares: a partition's deletion, a static row, a row, a range tombstone. Each has a hash of
//! its whole content, columns by their names, so that equal elements have equal hashes on every node.

use std::cmp::Ordering;

use mutation::{Cell, ColumnData, DecoratedKey, DeletionTime, RangeTombstone, Row};
use replica::PartitionResult;
use schema::Table;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// An element of a partition.
#[derive(Clone, Debug, PartialEq)]
pub enum Element {
    /// The deletion of the whole partition.
    Deletion(DeletionTime),
    /// Its static row.
    Static(Row),
    /// A range tombstone.
    Range(RangeTombstone),
    /// A row.
    Row(Row),
}

impl Element {
    /// The order of the elements of one partition.
    pub fn order(&self, other: &Self) -> Ordering {
        let kind = |element: &Self| match element {
            Self::Deletion(_) => 0,
            Self::Static(_) => 1,
            Self::Range(_) => 2,
            Self::Row(_) => 3,
        };
        kind(self).cmp(&kind(other)).then_with(|| match (self, other) {
            (Self::Range(a), Self::Range(b)) => a.start.cmp(&b.start),
            (Self::Row(a), Self::Row(b)) => a.clustering.cmp(&b.clustering),
            _ => Ordering::Equal,
        })
    }

    /// Inserts at the position of its order, merged with the element that is there. Elements of one kind come in their order;
    /// two may be versions of one: nodes that do not know yet which columns were dropped send elements that others count as equal.
    pub fn add_to(self, partition: &mut PartitionResult, table: &Table) {
        match self {
            Self::Deletion(deletion) => partition.deletion = partition.deletion.max(deletion),
            Self::Static(row) => match &mut partition.static_row {
                Some(known) => {
                    known.merge(row, table);
                }
                none => *none = Some(row),
            },
            Self::Range(range) => partition.range_tombstones.insert(range),
            Self::Row(row) => match partition.rows.last_mut() {
                Some(last) if last.clustering == row.clustering => {
                    last.merge(row, table);
                }
                _ => partition.rows.push(row),
            },
        }
    }
}

/// The hashes of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Print {
    /// The hash of its place alone, not of its content: decides the bucket.
    pub place: u32,
    /// The hash of its place and content.
    pub content: u64,
}

impl Print {
    /// Its bucket of `count`, a power of two.
    pub fn bucket(&self, count: u32) -> u32 {
        assert!(count.is_power_of_two(), "buckets are chosen by bits");
        self.place & (count - 1)
    }
}

const DELETION: u8 = 0;
const STATIC: u8 = 1;
const RANGE: u8 = 2;
const ROW: u8 = 3;

/// Computes hashes.
#[derive(Debug)]
pub struct Printer<'a> {
    table: &'a Table,
    seed: u64,
    buffer: Vec<u8>,
}

impl<'a> Printer<'a> {
    /// For elements of a table.
    pub fn new(table: &'a Table, seed: u64) -> Self {
        Self { table, seed, buffer: Vec::with_capacity(256) }
    }

    /// Calls `found` with each element's hashes, in a partition's order. `inner` leaves out the partition's head: the
    /// segment begins inside of the partition, and its head was in the segment before.
    pub fn partition(&mut self, partition: &PartitionResult, inner: bool, mut found: impl FnMut(Print)) {
        let key = self.key(&partition.key);
        if !inner {
            if !partition.deletion.is_live() {
                found(self.deletion(key, partition.deletion));
            }
            if let Some(row) = &partition.static_row {
                found(self.row(key, STATIC, row));
            }
        }
        for range in partition.range_tombstones.iter() {
            found(self.range(key, range));
        }
        for row in &partition.rows {
            found(self.row(key, ROW, row));
        }
    }

    /// The elements with their hashes, in the same order.
    pub fn elements(&mut self, partition: PartitionResult, inner: bool, out: &mut Vec<(Print, Element)>) {
        let key = self.key(&partition.key);
        if !inner {
            if !partition.deletion.is_live() {
                out.push((self.deletion(key, partition.deletion), Element::Deletion(partition.deletion)));
            }
            if let Some(row) = partition.static_row {
                out.push((self.row(key, STATIC, &row), Element::Static(row)));
            }
        }
        for range in partition.range_tombstones.iter() {
            out.push((self.range(key, range), Element::Range(range.clone())));
        }
        for row in partition.rows {
            out.push((self.row(key, ROW, &row), Element::Row(row)));
        }
    }

    fn key(&self, key: &DecoratedKey) -> u64 {
        xxh3_64_with_seed(&key.key, self.seed)
    }

    fn hash(&self, bytes: &[u8]) -> u64 {
        xxh3_64_with_seed(bytes, self.seed)
    }

    fn begin(&mut self, key: u64, kind: u8) {
        self.buffer.clear();
        self.buffer.extend_from_slice(&key.to_le_bytes());
        self.buffer.push(kind);
    }

    fn put_deletion(&mut self, deletion: DeletionTime) {
        self.buffer.extend_from_slice(&deletion.timestamp.to_le_bytes());
        self.buffer.extend_from_slice(&deletion.local.to_le_bytes());
    }

    /// From the buffer: its first `place_len` bytes are the place.
    fn print(&self, place_len: usize) -> Print {
        let place = self.hash(&self.buffer[..place_len]);
        let content = self.hash(&self.buffer);
        Print { place: place as u32, content }
    }

    fn deletion(&mut self, key: u64, deletion: DeletionTime) -> Print {
        self.begin(key, DELETION);
        let place = self.buffer.len();
        self.put_deletion(deletion);
        self.print(place)
    }

    fn range(&mut self, key: u64, range: &RangeTombstone) -> Print {
        self.begin(key, RANGE);
        for bound in [&range.start, &range.end] {
            self.buffer.extend_from_slice(&(bound.position().len() as u32).to_le_bytes());
            self.buffer.extend_from_slice(bound.position());
        }
        let place = self.buffer.len();
        self.put_deletion(range.deletion);
        self.print(place)
    }

    fn row(&mut self, key: u64, kind: u8, row: &Row) -> Print {
        // Column ids have another order in every process: the sum of the columns' hashes has none.
        let mut columns = 0u64;
        for (id, data) in row.columns() {
            let Some(column) = self.table.column_by_id(*id) else { continue };
            self.buffer.clear();
            put_bytes(column.name.as_bytes(), &mut self.buffer);
            match data {
                ColumnData::Simple(cell) => put_cell(cell, &mut self.buffer),
                ColumnData::Complex(complex) => {
                    self.put_deletion(complex.deletion);
                    for element in &complex.cells {
                        put_bytes(&element.path, &mut self.buffer);
                        put_cell(&element.cell, &mut self.buffer);
                    }
                }
            }
            columns = columns.wrapping_add(self.hash(&self.buffer));
        }
        self.begin(key, kind);
        self.buffer.extend_from_slice(row.clustering.position());
        let place = self.buffer.len();
        let mark = row.liveness;
        self.buffer.extend_from_slice(&mark.timestamp.to_le_bytes());
        self.buffer.extend_from_slice(&mark.ttl.to_le_bytes());
        self.buffer.extend_from_slice(&mark.expires.to_le_bytes());
        self.put_deletion(row.deletion);
        self.buffer.extend_from_slice(&columns.to_le_bytes());
        self.print(place)
    }
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_cell(cell: &Cell, out: &mut Vec<u8>) {
    out.extend_from_slice(&cell.timestamp.to_le_bytes());
    out.extend_from_slice(&cell.ttl.to_le_bytes());
    out.extend_from_slice(&cell.local_deletion.to_le_bytes());
    put_bytes(&cell.value, out);
}
