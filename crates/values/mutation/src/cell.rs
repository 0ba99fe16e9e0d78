//! Cells: one value with its write time, and the collections of cells that unfrozen columns are.

use bytes::Bytes;

use crate::{DeletionTime, NO_DELETION, Seconds, Timestamp, counter};

/// One value. Live without end, live until a time (TTL), or a tombstone.
#[derive(Clone, PartialEq, Eq)]
pub struct Cell {
    /// When it was written.
    pub timestamp: Timestamp,
    /// Seconds to live; 0 for values without an end and for tombstones.
    pub ttl: Seconds,
    /// When it expires (TTL) or was deleted (tombstone); [`NO_DELETION`] otherwise.
    pub local_deletion: Seconds,
    /// The serialised value; a counter's context; empty for tombstones.
    pub value: Bytes,
}

/// A cell where it lies: alone, or encoded with others of its row.
#[derive(Clone, Copy)]
pub struct CellRef<'a> {
    /// When it was written.
    pub timestamp: Timestamp,
    /// Seconds to live; 0 for values without an end and for tombstones.
    pub ttl: Seconds,
    /// When it expires (TTL) or was deleted (tombstone); [`NO_DELETION`] otherwise.
    pub local_deletion: Seconds,
    /// The serialised value; a counter's context; empty for tombstones.
    pub value: &'a [u8],
    /// The allocation in which the value lies.
    buffer: &'a Bytes,
}

impl<'a> CellRef<'a> {
    /// A cell whose value lies in `buffer`; `times` are its TTL and its local deletion.
    #[inline]
    pub(crate) fn within(
        buffer: &'a Bytes,
        timestamp: Timestamp,
        times: (Seconds, Seconds),
        value: &'a [u8],
    ) -> Self {
        Self { timestamp, ttl: times.0, local_deletion: times.1, value, buffer }
    }

    /// Whether it was written with a TTL.
    #[inline]
    pub fn is_expiring(&self) -> bool {
        self.ttl != 0
    }

    /// Whether it is a deletion.
    #[inline]
    pub fn is_tombstone(&self) -> bool {
        self.ttl == 0 && self.local_deletion != NO_DELETION
    }

    /// Whether a reader at `now` sees its value.
    #[inline]
    pub fn is_live(&self, now: Seconds) -> bool {
        self.local_deletion == NO_DELETION || (self.ttl != 0 && now < self.local_deletion)
    }

    /// Its value, without a copy.
    pub fn to_bytes(&self) -> Bytes {
        if self.value.is_empty() { Bytes::new() } else { self.buffer.slice_ref(self.value) }
    }

    /// The cell by value, as [`CellRef::to_bytes`].
    pub fn to_cell(&self) -> Cell {
        let (timestamp, ttl, local_deletion) = (self.timestamp, self.ttl, self.local_deletion);
        Cell { timestamp, ttl, local_deletion, value: self.to_bytes() }
    }
}

impl std::fmt::Debug for CellRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_cell().fmt(f)
    }
}

impl<'a> From<&'a Cell> for CellRef<'a> {
    #[inline]
    fn from(cell: &'a Cell) -> Self {
        CellRef::within(&cell.value, cell.timestamp, (cell.ttl, cell.local_deletion), &cell.value)
    }
}

impl Cell {
    /// A value without an end.
    pub fn live(timestamp: Timestamp, value: Bytes) -> Self {
        Self { timestamp, ttl: 0, local_deletion: NO_DELETION, value }
    }

    /// A value that is gone at `expires`.
    pub fn expiring(timestamp: Timestamp, ttl: Seconds, expires: Seconds, value: Bytes) -> Self {
        assert!(ttl > 0 && expires != NO_DELETION, "an expiring cell has an end");
        Self { timestamp, ttl, local_deletion: expires, value }
    }

    /// A deletion made at `local` seconds.
    pub fn tombstone(timestamp: Timestamp, local: Seconds) -> Self {
        assert!(local != NO_DELETION, "a tombstone has a deletion time");
        Self { timestamp, ttl: 0, local_deletion: local, value: Bytes::new() }
    }

    /// Whether it was written with a TTL.
    #[inline]
    pub fn is_expiring(&self) -> bool {
        CellRef::from(self).is_expiring()
    }

    /// Whether it is a deletion.
    #[inline]
    pub fn is_tombstone(&self) -> bool {
        CellRef::from(self).is_tombstone()
    }

    /// Whether a reader at `now` sees its value.
    #[inline]
    pub fn is_live(&self, now: Seconds) -> bool {
        CellRef::from(self).is_live(now)
    }

    /// Whether `other`, a version of the same cell, replaces this one. Total, so that every replica decides alike:
    /// later timestamp; at a tie tombstone, then expiring, then lasting; of one kind the later local time, the
    /// smaller TTL, the larger value.
    #[inline]
    pub fn is_superseded_by(&self, other: &Self) -> bool {
        if self.timestamp != other.timestamp {
            return other.timestamp > self.timestamp;
        }
        let kind = |cell: &Self| (cell.local_deletion != NO_DELETION, cell.is_tombstone());
        kind(other)
            .cmp(&kind(self))
            .then_with(|| other.local_deletion.cmp(&self.local_deletion))
            .then_with(|| self.ttl.cmp(&other.ttl))
            .then_with(|| other.value.cmp(&self.value))
            .is_gt()
    }

    /// Merges `other`, a version of the same cell. Counters merge shard by shard; a counter's tombstone wins
    /// regardless of timestamps, because increments have no order against it.
    pub fn merge(&mut self, other: Self, is_counter: bool) {
        if is_counter && !self.is_tombstone() && !other.is_tombstone() {
            self.value = counter::merge(&self.value, &other.value);
            self.timestamp = self.timestamp.max(other.timestamp);
            return;
        }
        let replaced = if is_counter && self.is_tombstone() != other.is_tombstone() {
            other.is_tombstone()
        } else {
            self.is_superseded_by(&other)
        };
        if replaced {
            *self = other;
        }
    }

    /// Bytes held on the heap.
    pub fn memory_size(&self) -> usize {
        self.value.len()
    }
}

impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_tombstone() {
            return write!(f, "deleted@{}/{}", self.timestamp, self.local_deletion);
        }
        write!(f, "{:02x}@{}", self.value, self.timestamp)?;
        if self.is_expiring() { write!(f, " ttl {} until {}", self.ttl, self.local_deletion) } else { Ok(()) }
    }
}

/// One element of an unfrozen collection or field of an unfrozen user type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComplexCell {
    /// Map key, set element, list position (a time UUID) or field number (16 bits, big-endian).
    pub path: Bytes,
    /// Its value; empty for sets.
    pub cell: Cell,
}

impl ComplexCell {
    /// Bytes that it holds, itself included.
    pub fn memory_size(&self) -> usize {
        size_of::<Self>() + self.path.len() + self.cell.memory_size()
    }
}

/// Elements that come to so many times as many are put among them one by one.
const FEW_AMONG: usize = 16;

/// An unfrozen collection or user type: a deletion of everything before, and cells in path order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complex {
    /// The deletion of an overwrite of the whole.
    pub deletion: DeletionTime,
    /// In path order, no path twice.
    pub cells: Vec<ComplexCell>,
}

impl Complex {
    /// Nothing.
    pub fn empty() -> Self {
        Self { deletion: DeletionTime::LIVE, cells: Vec::new() }
    }

    /// Whether it says nothing at all.
    pub fn is_empty(&self) -> bool {
        self.deletion.is_live() && self.cells.is_empty()
    }

    /// Takes over `other`, a version of the same column; `order` compares paths. Gives by how many bytes it grew. A few elements
    /// are put among many without looking at the others, unless a deletion comes with them.
    pub fn merge(&mut self, other: Self, order: impl Fn(&[u8], &[u8]) -> std::cmp::Ordering) -> isize {
        let before = self.deletion;
        self.deletion = before.max(other.deletion);
        let deletion = self.deletion;
        let lives = |element: &ComplexCell| !deletion.deletes(element.cell.timestamp);
        let mut grown = 0;
        if deletion != before {
            self.cells.retain(|element| {
                let lives = lives(element);
                grown -= if lives { 0 } else { element.memory_size() as isize };
                lives
            });
        }
        let few = self.cells.len() / FEW_AMONG;
        let mut theirs = other.cells.into_iter().filter(lives);
        for element in theirs.by_ref().take(few) {
            grown += self.put(element, &order);
        }
        let rest: Vec<ComplexCell> = theirs.collect();
        if rest.is_empty() { grown } else { grown + self.merge_all(rest, order) }
    }

    /// Puts one element among the others.
    fn put(&mut self, element: ComplexCell, order: impl Fn(&[u8], &[u8]) -> std::cmp::Ordering) -> isize {
        let size = element.memory_size() as isize;
        let found = match self.cells.last() {
            Some(last) if order(&last.path, &element.path).is_ge() => {
                self.cells.binary_search_by(|probe| order(&probe.path, &element.path))
            }
            _ => Err(self.cells.len()),
        };
        match found {
            Ok(at) => {
                let mine = &mut self.cells[at];
                let before = mine.memory_size() as isize;
                mine.cell.merge(element.cell, false);
                mine.memory_size() as isize - before
            }
            Err(at) => {
                self.cells.insert(at, element);
                size
            }
        }
    }

    /// Puts many elements, in path order, among the others.
    fn merge_all(
        &mut self,
        theirs: Vec<ComplexCell>,
        order: impl Fn(&[u8], &[u8]) -> std::cmp::Ordering,
    ) -> isize {
        let mut grown = 0;
        let mine = std::mem::take(&mut self.cells);
        let mut merged = Vec::with_capacity(mine.len() + theirs.len());
        let mut left = mine.into_iter().peekable();
        let mut right = theirs.into_iter().peekable();
        loop {
            let side = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) => order(&a.path, &b.path),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => break,
            };
            match side {
                std::cmp::Ordering::Less => merged.extend(left.next()),
                std::cmp::Ordering::Greater => {
                    let element = right.next().expect("peeked");
                    grown += element.memory_size() as isize;
                    merged.push(element);
                }
                std::cmp::Ordering::Equal => {
                    let mut element = left.next().expect("peeked");
                    let before = element.memory_size() as isize;
                    element.cell.merge(right.next().expect("peeked").cell, false);
                    grown += element.memory_size() as isize - before;
                    merged.push(element);
                }
            }
        }
        self.cells = merged;
        grown
    }

    /// Bytes held on the heap.
    pub fn memory_size(&self) -> usize {
        self.cells.iter().map(ComplexCell::memory_size).sum()
    }
}

/// The value of a row in one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnData {
    /// A column with one value.
    Simple(Cell),
    /// An unfrozen collection or user type.
    Complex(Complex),
}

impl ColumnData {
    /// Bytes held on the heap.
    pub fn memory_size(&self) -> usize {
        match self {
            Self::Simple(cell) => cell.memory_size(),
            Self::Complex(complex) => complex.memory_size(),
        }
    }
}

/// The value of a row in one column, where it lies.
#[derive(Clone, Copy, Debug)]
pub enum DataRef<'a> {
    /// A column with one value.
    Simple(CellRef<'a>),
    /// An unfrozen collection or user type.
    Complex(&'a Complex),
}

impl<'a> From<&'a ColumnData> for DataRef<'a> {
    #[inline]
    fn from(data: &'a ColumnData) -> Self {
        match data {
            ColumnData::Simple(cell) => Self::Simple(cell.into()),
            ColumnData::Complex(complex) => Self::Complex(complex),
        }
    }
}
