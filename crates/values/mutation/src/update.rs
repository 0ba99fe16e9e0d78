//! A change of one partition: the content of a write, of a memtable, of the result of a read.

use std::sync::Arc;

use schema::Table;
use smallvec::SmallVec;

use crate::row::{ColumnData, row_of};
use crate::{Cell, Clustering, DecoratedKey, DeletionTime, RangeTombstone, RangeTombstones, Row, Timestamp};

/// Everything that a write (or a read's result) says about one partition of one table.
#[derive(Clone, Debug)]
pub struct PartitionUpdate {
    /// The table as the writer knew it.
    pub table: Arc<Table>,
    /// The partition.
    pub key: DecoratedKey,
    /// A deletion of the whole partition.
    pub deletion: DeletionTime,
    /// The static row: apart, for few updates have one and all are moved on their way to the memtable.
    static_row: Option<Box<Row>>,
    /// Deleted ranges.
    pub range_tombstones: RangeTombstones,
    /// In clustering order, no key twice. Most updates have one row.
    rows: SmallVec<[Row; 1]>,
}

impl PartitionUpdate {
    /// An update that says nothing yet.
    pub fn new(table: Arc<Table>, key: DecoratedKey) -> Self {
        Self {
            table,
            key,
            deletion: DeletionTime::LIVE,
            static_row: None,
            range_tombstones: RangeTombstones::new(),
            rows: SmallVec::new(),
        }
    }

    /// An update of these rows, which are in clustering order, no key twice.
    pub fn with_rows(table: Arc<Table>, key: DecoratedKey, rows: Vec<Row>) -> Self {
        assert!(rows.is_sorted_by(|a, b| a.clustering < b.clustering), "rows in clustering order");
        Self { rows: SmallVec::from_vec(rows), ..Self::new(table, key) }
    }

    /// The rows in clustering order.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The deletion of rows with this key, their own apart.
    pub fn deletion_at(&self, clustering: &Clustering) -> DeletionTime {
        self.deletion.max(self.range_tombstones.covering(clustering))
    }

    /// A row with the deletions around it, and without the cells that they hide.
    pub fn row_at(&self, clustering: &Clustering) -> Row {
        let deletion = self.deletion_at(clustering);
        let own = row_of(self.rows(), clustering);
        let mut row = own.map_or_else(|| Row::new(clustering.clone()), Row::clone);
        row.deletion = row.deletion.max(deletion);
        row.normalise();
        row
    }

    /// The rows by value.
    pub fn into_rows(self) -> Vec<Row> {
        self.rows.into_vec()
    }

    /// The static row.
    pub fn static_row(&self) -> Option<&Row> {
        self.static_row.as_deref()
    }

    /// The static row, to be changed.
    pub fn static_row_mut(&mut self) -> Option<&mut Row> {
        self.static_row.as_deref_mut()
    }

    /// Puts a static row, or none, in the place of the one that is there.
    pub fn set_static_row(&mut self, row: Option<Row>) {
        self.static_row = row.map(Box::new);
    }

    /// Takes the static row out.
    pub fn take_static_row(&mut self) -> Option<Row> {
        self.static_row.take().map(|row| *row)
    }

    /// The static row, if there is one, and the rows behind it.
    pub fn all_rows(&self) -> impl Iterator<Item = &Row> {
        self.static_row().into_iter().chain(self.rows())
    }

    /// Takes the rows out.
    pub fn take_rows(&mut self) -> SmallVec<[Row; 1]> {
        std::mem::take(&mut self.rows)
    }

    /// Changes the static row and the rows by `change`, and takes away those that say nothing afterwards; whether `change` was true for
    /// one of them. It must not change a clustering key.
    pub(crate) fn change_rows(&mut self, mut change: impl FnMut(&mut Row) -> bool) -> bool {
        let mut changed = false;
        let mut visit = |row: &mut Row| {
            let here = change(row);
            changed |= here;
            !here || !row.is_empty()
        };
        if let Some(row) = self.static_row_mut()
            && !visit(row)
        {
            self.static_row = None;
        }
        self.rows.retain(visit);
        changed
    }

    /// Adds a row, or merges it with the one of its key that is there.
    pub fn add_row(&mut self, row: Row) {
        match self.rows.last() {
            None => self.rows.push(row),
            Some(last) if last.clustering < row.clustering => self.rows.push(row),
            Some(_) => match self.rows.binary_search_by(|probe| probe.clustering.cmp(&row.clustering)) {
                Ok(at) => {
                    self.rows[at].merge(row, &self.table);
                }
                Err(at) => self.rows.insert(at, row),
            },
        }
    }

    /// Merges into the static row.
    pub fn add_static(&mut self, row: Row) {
        match &mut self.static_row {
            Some(mine) => {
                mine.merge(row, &self.table);
            }
            None => self.static_row = Some(Box::new(row)),
        }
    }

    /// Adds a range deletion.
    pub fn add_range_tombstone(&mut self, range: RangeTombstone) {
        self.range_tombstones.insert(range);
    }

    /// Deletes the whole partition.
    pub fn add_deletion(&mut self, deletion: DeletionTime) {
        self.deletion = self.deletion.max(deletion);
    }

    /// Merges `other`, an update of the same partition. Deletions are recorded; rows hidden by them are dropped by the
    /// reader's merge, not here.
    pub fn merge(&mut self, other: Self) {
        assert_eq!(self.key, other.key, "updates of one partition");
        self.add_deletion(other.deletion);
        if let Some(row) = other.static_row {
            self.add_static(*row);
        }
        for range in other.range_tombstones {
            self.range_tombstones.insert(range);
        }
        other.rows.into_iter().for_each(|row| self.add_row(row));
    }

    /// Gives everything that it deletes one time. The write of a conditional statement deletes just before it writes, so
    /// that its own deletions hide nothing of it.
    pub fn stamp_deletions(&mut self, timestamp: Timestamp) {
        let stamp = |deletion: &mut DeletionTime| {
            if !deletion.is_live() {
                *deletion = DeletionTime::new(timestamp, deletion.local);
            }
        };
        let stamp_row = |row: &mut Row| {
            stamp(&mut row.deletion);
            row.retain(|_, data| {
                match data {
                    ColumnData::Simple(cell) => stamp_tombstone(cell, timestamp),
                    ColumnData::Complex(complex) => {
                        stamp(&mut complex.deletion);
                        complex.cells.iter_mut().for_each(|one| stamp_tombstone(&mut one.cell, timestamp));
                    }
                }
                true
            });
        };
        stamp(&mut self.deletion);
        self.static_row.as_deref_mut().into_iter().for_each(stamp_row);
        self.rows.iter_mut().for_each(stamp_row);
        for mut range in std::mem::take(&mut self.range_tombstones) {
            stamp(&mut range.deletion);
            self.range_tombstones.insert(range);
        }
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.deletion.is_live()
            && self.static_row().is_none_or(Row::is_empty)
            && self.range_tombstones.is_empty()
            && self.rows.iter().all(Row::is_empty)
    }

    /// How many operations it carries, for batch size limits: rows, ranges, static row, deletion.
    pub fn operations(&self) -> usize {
        self.rows.len()
            + self.range_tombstones.len()
            + usize::from(self.static_row.is_some())
            + usize::from(!self.deletion.is_live())
    }

    /// Bytes that it holds.
    pub fn memory_size(&self) -> usize {
        size_of::<Self>()
            + self.key.key.len()
            + self.range_tombstones.memory_size()
            + self.static_row().map_or(0, Row::memory_size)
            + self.rows.iter().map(Row::memory_size).sum::<usize>()
    }
}

/// Gives a tombstone this time.
fn stamp_tombstone(cell: &mut Cell, timestamp: Timestamp) {
    if cell.is_tombstone() {
        cell.timestamp = timestamp;
    }
}
