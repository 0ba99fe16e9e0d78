//! Rows: a clustering key, a mark of existence, a deletion, and the data of each column.

use std::sync::Arc;

use schema::{ColumnId, Table};
use types::CqlType;

use crate::{Cell, Clustering, Complex, DeletionTime, LivenessInfo, Seconds};

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

/// A version, whole or partial, of one row. The static row of a partition is one too, with an empty key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its key.
    pub clustering: Clustering,
    /// The mark that an INSERT leaves.
    pub liveness: LivenessInfo,
    /// A deletion of the row as a whole.
    pub deletion: DeletionTime,
    /// In column id order, no column twice. Shared by the clones of a row, so that a reader takes a row out of a memtable
    /// or the cache at the price of a count; a version that is changed while another is held gets its own.
    columns: Arc<Vec<(ColumnId, ColumnData)>>,
}

/// The cost of the shared columns of a row beside themselves: their vector and the counts.
const COLUMNS_OVERHEAD: usize = size_of::<Vec<(ColumnId, ColumnData)>>() + 16;

/// The order of the paths of a complex column of this type.
pub fn compare_paths(ty: &CqlType, left: &[u8], right: &[u8]) -> std::cmp::Ordering {
    match ty {
        CqlType::Set { element, .. } => element.compare(left, right),
        CqlType::Map { key, .. } => key.compare(left, right),
        CqlType::List { .. } => CqlType::Timeuuid.compare(left, right),
        _ => left.cmp(right),
    }
}

impl Row {
    /// A row that says nothing yet.
    pub fn new(clustering: Clustering) -> Self {
        Self::with_capacity(clustering, 0)
    }

    /// With room for `columns` columns.
    pub fn with_capacity(clustering: Clustering, columns: usize) -> Self {
        Self {
            clustering,
            liveness: LivenessInfo::NONE,
            deletion: DeletionTime::LIVE,
            columns: Arc::new(Vec::with_capacity(columns)),
        }
    }

    /// A row with these columns, which are put in column id order; none may occur twice.
    pub fn from_columns(clustering: Clustering, mut columns: Vec<(ColumnId, ColumnData)>) -> Self {
        if !columns.is_sorted_by(|(a, _), (b, _)| a < b) {
            columns.sort_unstable_by_key(|(id, _)| *id);
            assert!(columns.is_sorted_by(|(a, _), (b, _)| a < b), "no column twice in a row");
        }
        let columns = Arc::new(columns);
        Self { clustering, liveness: LivenessInfo::NONE, deletion: DeletionTime::LIVE, columns }
    }

    /// The state of each column, in column id order.
    pub fn columns(&self) -> &[(ColumnId, ColumnData)] {
        &self.columns
    }

    /// The state of one column.
    #[inline]
    pub fn column(&self, id: ColumnId) -> Option<&ColumnData> {
        let columns = self.columns.as_slice();
        // Ids of a table follow each other, and most rows hold every column: look where it then lies.
        let (first, _) = columns.first()?;
        match columns.get(id.0.wrapping_sub(first.0) as usize) {
            Some((found, data)) if *found == id => Some(data),
            _ => columns.binary_search_by_key(&id, |(id, _)| *id).ok().map(|at| &columns[at].1),
        }
    }

    /// The single cell of a simple column.
    pub fn cell(&self, id: ColumnId) -> Option<&Cell> {
        match self.column(id)? {
            ColumnData::Simple(cell) => Some(cell),
            ColumnData::Complex(_) => None,
        }
    }

    /// The cells of a complex column.
    pub fn complex(&self, id: ColumnId) -> Option<&Complex> {
        match self.column(id)? {
            ColumnData::Complex(complex) => Some(complex),
            ColumnData::Simple(_) => None,
        }
    }

    /// Sets the data of a column, replacing the previous data.
    pub fn set(&mut self, id: ColumnId, data: ColumnData) {
        match self.columns.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => Arc::make_mut(&mut self.columns)[at].1 = data,
            Err(at) => Arc::make_mut(&mut self.columns).insert(at, (id, data)),
        }
    }

    /// Merges the data of a column from one more statement or file.
    pub fn merge_column(&mut self, id: ColumnId, data: ColumnData, ty: &CqlType) {
        // Statements name columns in order more often than not.
        if self.columns.last().is_none_or(|(last, _)| *last < id) {
            Arc::make_mut(&mut self.columns).push((id, data));
            return;
        }
        match self.columns.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => {
                merge_data(&mut Arc::make_mut(&mut self.columns)[at].1, data, ty);
            }
            Err(at) => Arc::make_mut(&mut self.columns).insert(at, (id, data)),
        }
    }

    /// Keeps the columns for which `keep` is true, letting it change them.
    pub fn retain(&mut self, mut keep: impl FnMut(ColumnId, &mut ColumnData) -> bool) {
        Arc::make_mut(&mut self.columns).retain_mut(|(id, data)| keep(*id, data));
    }

    /// Whether it says nothing at all.
    pub fn is_empty(&self) -> bool {
        self.liveness.is_none() && self.deletion.is_live() && self.columns.is_empty()
    }

    /// Removes cells hidden by its own deletion. Writers and merges leave none; rows from outside may have some.
    pub fn normalise(&mut self) {
        if !self.deletion.is_live() {
            self.hide(self.deletion);
        }
    }

    /// Merges `other`, a version of the same row; neither hides a part of itself ([`Row::normalise`]). Columns that `table` no longer has are dropped. Cells that the
    /// joint deletion hides are removed from the result. Returns its growth in bytes, without looking at columns that `other` does not
    /// touch.
    pub fn merge(&mut self, mut other: Self, table: &Table) -> isize {
        assert_eq!(self.clustering, other.clustering, "versions of one row");
        let mut grown = 0;
        let deletion = self.deletion.max(other.deletion);
        // Cells hidden by its own deletion are not in it; only the other's may hide more of it.
        if deletion != self.deletion {
            self.deletion = deletion;
            grown += self.hide(deletion);
        }
        if !deletion.is_live() {
            other.hide(deletion);
        }
        self.liveness = self.liveness.merge(other.liveness);
        if self.columns.is_empty() {
            self.columns = other.columns;
            grown += self.columns.iter().map(column_size).sum::<usize>() as isize;
        } else if !other.columns.is_empty() {
            if let Some(more) = bytes_more_when_replaced(&self.columns, &other.columns, table) {
                self.columns = other.columns;
                return grown + more;
            }
            let (mine, theirs) = (Arc::make_mut(&mut self.columns), Arc::unwrap_or_clone(other.columns));
            if mine.iter().map(|(id, _)| id).eq(theirs.iter().map(|(id, _)| id)) {
                grown += merge_same_columns(mine, theirs, table);
            } else {
                *mine = merge_columns(std::mem::take(mine), theirs, table, &mut grown);
            }
        }
        grown
    }

    /// Removes everything that `deletion` hides: marks, cells, and a row deletion that it supersedes. The deletion itself is not
    /// recorded in the row, except that the row's own stays when it reaches further.
    pub fn delete_shadowed(&mut self, deletion: DeletionTime) {
        if deletion.is_live() {
            return;
        }
        if !self.deletion.supersedes(&deletion) {
            self.deletion = DeletionTime::LIVE;
        }
        self.hide(deletion);
    }

    /// Removes everything that a deletion hides; returns its growth in bytes, which is not above 0.
    fn hide(&mut self, deletion: DeletionTime) -> isize {
        if deletion.deletes(self.liveness.timestamp) {
            self.liveness = LivenessInfo::NONE;
        }
        if self.columns.is_empty() {
            return 0;
        }
        let mut grown = 0;
        Arc::make_mut(&mut self.columns).retain_mut(|column| {
            let size = column_size(column) as isize;
            let stays = match &mut column.1 {
                ColumnData::Simple(cell) => !deletion.deletes(cell.timestamp),
                ColumnData::Complex(complex) => {
                    if !complex.deletion.supersedes(&deletion) {
                        complex.deletion = DeletionTime::LIVE;
                    }
                    complex.cells.retain(|element| !deletion.deletes(element.cell.timestamp));
                    !complex.is_empty()
                }
            };
            grown += if stays { column_size(column) as isize - size } else { -size };
            stays
        });
        grown
    }

    /// Whether a reader at `now` sees this row: by its mark, or by any live cell.
    pub fn is_live(&self, now: Seconds) -> bool {
        self.liveness.is_live(now) || self.has_live_cell(now)
    }

    /// Whether any cell is live at `now`.
    pub fn has_live_cell(&self, now: Seconds) -> bool {
        self.columns.iter().any(|(_, data)| match data {
            ColumnData::Simple(cell) => cell.is_live(now),
            ColumnData::Complex(complex) => complex.cells.iter().any(|element| element.cell.is_live(now)),
        })
    }

    /// How many tombstones a reader at `now` steps over in it: cells, expired cells, collections that were deleted, and one
    /// for a deletion of the row. (A collection that was written whole has a deletion, too, under its elements.)
    pub fn tombstones(&self, now: Seconds) -> usize {
        let dead = |cell: &Cell| usize::from(!cell.is_live(now));
        let columns = self.columns.iter().map(|(_, data)| match data {
            ColumnData::Simple(cell) => dead(cell),
            ColumnData::Complex(complex) => {
                let cells: usize = complex.cells.iter().map(|element| dead(&element.cell)).sum();
                cells + usize::from(!complex.deletion.is_live() && cells == complex.cells.len())
            }
        });
        usize::from(!self.deletion.is_live()) + columns.sum::<usize>()
    }

    /// Bytes that it holds, itself included.
    pub fn memory_size(&self) -> usize {
        size_of::<Self>()
            + COLUMNS_OVERHEAD
            + self.clustering.memory_size()
            + self.columns.iter().map(column_size).sum::<usize>()
    }
}

fn column_size((_, data): &(ColumnId, ColumnData)) -> usize {
    size_of::<(ColumnId, ColumnData)>() + data.memory_size()
}

/// By how many bytes a row grows whose columns are replaced: none when a merge is not just that. The commonest merge: a later write of the
/// same columns.
fn bytes_more_when_replaced(
    mine: &[(ColumnId, ColumnData)],
    theirs: &[(ColumnId, ColumnData)],
    table: &Table,
) -> Option<isize> {
    // A counter's tombstone wins regardless of timestamps.
    if mine.len() != theirs.len() || table.is_counter() {
        return None;
    }
    let mut more = 0;
    for ((id, before), (other, after)) in mine.iter().zip(theirs) {
        let (ColumnData::Simple(before), ColumnData::Simple(after)) = (before, after) else { return None };
        if id != other || after.timestamp <= before.timestamp || table.column_by_id(*id).is_none() {
            return None;
        }
        more += after.memory_size() as isize - before.memory_size() as isize;
    }
    Some(more)
}

/// Both versions say something of the same columns.
fn merge_same_columns(
    mine: &mut Vec<(ColumnId, ColumnData)>,
    theirs: Vec<(ColumnId, ColumnData)>,
    table: &Table,
) -> isize {
    let (mut all_known, mut grown) = (true, 0);
    for ((id, data), (_, other)) in mine.iter_mut().zip(theirs) {
        match table.column_by_id(*id) {
            Some(column) => grown += merge_data(data, other, &column.ty),
            None => all_known = false,
        }
    }
    if !all_known {
        mine.retain(|column| {
            let is_known = table.column_by_id(column.0).is_some();
            grown -= if is_known { 0 } else { column_size(column) as isize };
            is_known
        });
    }
    grown
}

fn merge_columns(
    mine: Vec<(ColumnId, ColumnData)>,
    theirs: Vec<(ColumnId, ColumnData)>,
    table: &Table,
    grown: &mut isize,
) -> Vec<(ColumnId, ColumnData)> {
    let mut out = Vec::with_capacity(mine.len().max(theirs.len()));
    let mut left = mine.into_iter().peekable();
    let mut right = theirs.into_iter().peekable();
    loop {
        let side = match (left.peek(), right.peek()) {
            (Some((a, _)), Some((b, _))) => a.cmp(b),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return out,
        };
        match side {
            std::cmp::Ordering::Less => out.extend(left.next()),
            std::cmp::Ordering::Greater => {
                let column = right.next().expect("peeked");
                *grown += column_size(&column) as isize;
                out.push(column);
            }
            std::cmp::Ordering::Equal => {
                let (id, mut data) = left.next().expect("peeked");
                let (_, other) = right.next().expect("peeked");
                match table.column_by_id(id) {
                    Some(column) => {
                        *grown += merge_data(&mut data, other, &column.ty);
                        out.push((id, data));
                    }
                    None => *grown -= column_size(&(id, data)) as isize,
                }
            }
        }
    }
}

/// Merges two versions of a column; by how many bytes the first grew.
fn merge_data(data: &mut ColumnData, other: ColumnData, ty: &CqlType) -> isize {
    match (data, other) {
        (ColumnData::Simple(mine), ColumnData::Simple(theirs)) => {
            let before = mine.memory_size() as isize;
            mine.merge(theirs, matches!(ty, CqlType::Counter));
            mine.memory_size() as isize - before
        }
        (ColumnData::Complex(mine), ColumnData::Complex(theirs)) => {
            mine.merge(theirs, |a, b| compare_paths(ty, a, b))
        }
        _ => panic!("a column is simple or complex for life"),
    }
}
