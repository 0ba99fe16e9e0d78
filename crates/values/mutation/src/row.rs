//! Rows: a clustering key, a mark of existence, a deletion, and the data of each column.

use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

use schema::{ColumnId, Table};
use types::CqlType;

pub use crate::cell::{ColumnData, DataRef};
use crate::{
    Cell, Clustering, Complex, ComplexCell, DeletionTime, EncodedCells, LivenessInfo, Seconds, TableLayouts,
    Timestamp,
};

/// A version, whole or partial, of one row. The static row of a partition is one too, with an empty key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its key.
    pub clustering: Clustering,
    /// The mark that an INSERT leaves.
    pub liveness: LivenessInfo,
    /// A deletion of the row as a whole.
    pub deletion: DeletionTime,
    columns: Columns,
}

/// The row of a key, in rows in clustering order.
pub fn row_of<'a>(rows: &'a [Row], clustering: &Clustering) -> Option<&'a Row> {
    let at = rows.binary_search_by(|row| row.clustering.cmp(clustering)).ok()?;
    rows.get(at)
}

/// The state of the columns of a row: in column id order, no column twice. Shared by the clones of a row, so that a reader takes a row out
/// of a memtable or the cache at the price of a count; a version that is changed while another is held gets its own.
#[derive(Clone)]
enum Columns {
    /// Each by itself.
    Apart(Arc<Vec<(ColumnId, ColumnData)>>),
    /// As one statement wrote them.
    Encoded(Encoded),
}

#[derive(Clone)]
struct Encoded {
    cells: Arc<EncodedCells>,
    /// The cells taken apart, once they were asked for so.
    apart: OnceLock<Arc<Vec<(ColumnId, ColumnData)>>>,
}

impl Encoded {
    fn new(cells: EncodedCells) -> Self {
        Self { cells: Arc::new(cells), apart: OnceLock::new() }
    }
}

impl std::ops::Deref for Encoded {
    type Target = EncodedCells;

    #[inline]
    fn deref(&self) -> &EncodedCells {
        &self.cells
    }
}

impl Columns {
    #[inline]
    fn as_slice(&self) -> &[(ColumnId, ColumnData)] {
        match self {
            Self::Apart(columns) => columns,
            Self::Encoded(cells) => cells.apart.get_or_init(|| Arc::new(cells.decoded())),
        }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        match self {
            Self::Apart(columns) => columns.is_empty(),
            Self::Encoded(_) => false,
        }
    }

    #[inline]
    fn memory_size(&self) -> usize {
        match self {
            Self::Apart(columns) => COLUMNS_OVERHEAD + columns.iter().map(column_size).sum::<usize>(),
            Self::Encoded(cells) => cells.memory_size(),
        }
    }

    /// The columns, each by itself, to be changed.
    fn apart(&mut self) -> &mut Vec<(ColumnId, ColumnData)> {
        if let Self::Encoded(cells) = self {
            *self = Self::Apart(Arc::new(cells.to_columns()));
        }
        match self {
            Self::Apart(columns) => Arc::make_mut(columns),
            Self::Encoded(_) => unreachable!("just taken apart"),
        }
    }

    fn into_apart(mut self) -> Vec<(ColumnId, ColumnData)> {
        std::mem::take(self.apart())
    }
}

impl PartialEq for Columns {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Encoded(mine), Self::Encoded(theirs)) => mine.cells == theirs.cells,
            _ => self.as_slice() == other.as_slice(),
        }
    }
}

impl Eq for Columns {}

impl std::fmt::Debug for Columns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_slice().fmt(f)
    }
}

/// The columns of a row in order; see [`Row::iter`].
#[derive(Clone)]
pub struct Iter<'a> {
    columns: &'a Columns,
    place: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = (ColumnId, DataRef<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let place = self.place;
        self.place += 1;
        match self.columns {
            Columns::Apart(columns) => columns.get(place).map(|(id, data)| (*id, data.into())),
            Columns::Encoded(cells) => {
                let id = cells.layout().ids().get(place)?;
                Some((*id, DataRef::Simple(cells.at(place))))
            }
        }
    }
}

/// The cost of the shared columns of a row beside themselves: their vector and the counts.
const COLUMNS_OVERHEAD: usize = size_of::<Vec<(ColumnId, ColumnData)>>() + 16;

#[inline]
fn find(columns: &[(ColumnId, ColumnData)], id: ColumnId) -> Option<&ColumnData> {
    // Ids of a table follow each other, and most rows hold every column: look where it then lies.
    let (first, _) = columns.first()?;
    match columns.get(id.0.wrapping_sub(first.0) as usize) {
        Some((found, data)) if *found == id => Some(data),
        _ => columns.binary_search_by_key(&id, |(id, _)| *id).ok().map(|at| &columns[at].1),
    }
}

/// The order of the paths of a complex column of this type.
pub fn compare_paths(ty: &CqlType, left: &[u8], right: &[u8]) -> Ordering {
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
            columns: Columns::Apart(Arc::new(Vec::with_capacity(columns))),
        }
    }

    /// A row of encoded cells.
    #[inline]
    pub fn encoded(clustering: Clustering, cells: EncodedCells) -> Self {
        let columns = Columns::Encoded(Encoded::new(cells));
        Self { clustering, liveness: LivenessInfo::NONE, deletion: DeletionTime::LIVE, columns }
    }

    /// A row with these columns, which are put in column id order; none may occur twice.
    pub fn from_columns(clustering: Clustering, mut columns: Vec<(ColumnId, ColumnData)>) -> Self {
        if !columns.is_sorted_by(|(a, _), (b, _)| a < b) {
            columns.sort_unstable_by_key(|(id, _)| *id);
            assert!(columns.is_sorted_by(|(a, _), (b, _)| a < b), "no column twice in a row");
        }
        let columns = Columns::Apart(Arc::new(columns));
        Self { clustering, liveness: LivenessInfo::NONE, deletion: DeletionTime::LIVE, columns }
    }

    /// A row of another table with copies of some columns of this one. `columns` has their ids here and there, in ascending order of the
    /// latter. Encoded cells stay encoded, with a layout of `layouts`, which are those of `table`.
    pub fn copy_columns(
        &self,
        clustering: Clustering,
        columns: &[(ColumnId, ColumnId)],
        layouts: &TableLayouts,
        table: &Arc<Table>,
    ) -> Self {
        if let Columns::Encoded(cells) = &self.columns
            && let Some(cells) = cells.copy_columns(columns, layouts, table)
        {
            return Self::encoded(clustering, cells);
        }
        let copied = columns.iter().filter_map(|(from, to)| Some((*to, self.column(*from)?.clone())));
        Self::from_columns(clustering, copied.collect())
    }

    /// Gives a row without columns these cells.
    ///
    /// # Panics
    /// When it has columns.
    pub(crate) fn set_encoded(&mut self, cells: EncodedCells) {
        assert!(self.columns.is_empty(), "the cells of a row are set once");
        self.columns = Columns::Encoded(Encoded::new(cells));
    }

    /// The state of each column, in column id order. Encoded cells are taken apart for it, which [`Row::iter`] avoids.
    pub fn columns(&self) -> &[(ColumnId, ColumnData)] {
        self.columns.as_slice()
    }

    /// The state of each column where it lies, in column id order.
    #[inline]
    pub fn iter(&self) -> Iter<'_> {
        Iter { columns: &self.columns, place: 0 }
    }

    /// The state of the column at a place in that order.
    ///
    /// # Panics
    /// When there are not so many.
    #[inline]
    pub fn at(&self, place: usize) -> DataRef<'_> {
        match &self.columns {
            Columns::Apart(columns) => (&columns[place].1).into(),
            Columns::Encoded(cells) => DataRef::Simple(cells.at(place)),
        }
    }

    /// How many columns it says something of.
    #[inline]
    pub fn column_count(&self) -> usize {
        match &self.columns {
            Columns::Apart(columns) => columns.len(),
            Columns::Encoded(cells) => cells.len(),
        }
    }

    /// Its cells, when they are as one statement wrote them.
    #[inline]
    pub fn encoded_cells(&self) -> Option<&EncodedCells> {
        match &self.columns {
            Columns::Encoded(cells) => Some(cells),
            Columns::Apart(_) => None,
        }
    }

    /// The state of one column where it lies.
    #[inline]
    pub fn get(&self, id: ColumnId) -> Option<DataRef<'_>> {
        match &self.columns {
            Columns::Apart(columns) => find(columns, id).map(DataRef::from),
            Columns::Encoded(cells) => cells.cell(id).map(DataRef::Simple),
        }
    }

    /// The value of a simple column that a reader at `now` sees.
    #[inline]
    pub fn live_value(&self, id: ColumnId, now: Seconds) -> Option<&[u8]> {
        match &self.columns {
            Columns::Encoded(cells) => cells.live_value(id, now),
            Columns::Apart(columns) => match find(columns, id)? {
                ColumnData::Simple(cell) if cell.is_live(now) => Some(&cell.value),
                _ => None,
            },
        }
    }

    /// The state of one column. Encoded cells are taken apart for it, which [`Row::get`] avoids.
    #[inline]
    pub fn column(&self, id: ColumnId) -> Option<&ColumnData> {
        find(self.columns(), id)
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
        match self.get(id)? {
            DataRef::Complex(complex) => Some(complex),
            DataRef::Simple(_) => None,
        }
    }

    /// Sets the data of a column, replacing the previous data.
    pub fn set(&mut self, id: ColumnId, data: ColumnData) {
        let columns = self.columns.apart();
        match columns.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => columns[at].1 = data,
            Err(at) => columns.insert(at, (id, data)),
        }
    }

    /// Merges the data of a column from one more statement or file.
    pub fn merge_column(&mut self, id: ColumnId, data: ColumnData, ty: &CqlType) {
        let columns = self.columns.apart();
        // Statements name columns in order more often than not.
        if columns.last().is_none_or(|(last, _)| *last < id) {
            columns.push((id, data));
            return;
        }
        match columns.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => {
                merge_data(&mut columns[at].1, data, ty);
            }
            Err(at) => columns.insert(at, (id, data)),
        }
    }

    /// Merges elements, in any order, into a column of several cells. Of two elements with one path, the later one in the list is merged into
    /// the other. Unlike one [`Row::merge_column`] for each, this does not move all elements for each of them.
    pub fn merge_elements(&mut self, id: ColumnId, mut elements: Vec<ComplexCell>, ty: &CqlType) {
        elements.sort_by(|a, b| compare_paths(ty, &a.path, &b.path));
        let mut cells: Vec<ComplexCell> = Vec::with_capacity(elements.len());
        for element in elements {
            match cells.last_mut() {
                Some(last) if compare_paths(ty, &last.path, &element.path).is_eq() => {
                    last.cell.merge(element.cell, false);
                }
                _ => cells.push(element),
            }
        }
        self.merge_column(id, ColumnData::Complex(Complex { cells, ..Complex::empty() }), ty);
    }

    /// Keeps the columns for which `keep` is true, letting it change them.
    pub fn retain(&mut self, mut keep: impl FnMut(ColumnId, &mut ColumnData) -> bool) {
        self.columns.apart().retain_mut(|(id, data)| keep(*id, data));
    }

    /// Whether `table` has all of its columns.
    pub fn is_known_to(&self, table: &Table) -> bool {
        match &self.columns {
            Columns::Apart(columns) => columns.iter().all(|(id, _)| table.column_by_id(*id).is_some()),
            Columns::Encoded(cells) => cells.is_known_to(table),
        }
    }

    /// Takes away the columns that `table` does not have.
    pub fn keep_known(&mut self, table: &Table) {
        if !self.is_known_to(table) {
            self.retain(|id, _| table.column_by_id(id).is_some());
        }
    }

    /// Encodes its cells, if all are of simple columns and of one time; whether they are encoded then, in an allocation of their own.
    pub fn encode_cells(&mut self, layouts: &TableLayouts, table: &Arc<Table>) -> bool {
        let Columns::Apart(columns) = &self.columns else { return true };
        match EncodedCells::of_columns(layouts, table, columns) {
            Some(cells) => {
                self.columns = Columns::Encoded(Encoded::new(cells));
                true
            }
            None => false,
        }
    }

    /// Frees the decoded copy of encoded cells. For owners that keep the row.
    pub fn forget_decoded(&mut self) {
        if let Columns::Encoded(cells) = &mut self.columns {
            cells.apart.take();
        }
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
        grown + self.columns.merge(other.columns, table)
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
        self.columns.hide(deletion)
    }

    /// Whether a reader at `now` sees this row: by its mark, or by any live cell.
    pub fn is_live(&self, now: Seconds) -> bool {
        self.liveness.is_live(now) || self.has_live_cell(now)
    }

    /// Whether any cell is live at `now`.
    pub fn has_live_cell(&self, now: Seconds) -> bool {
        if let Columns::Encoded(cells) = &self.columns
            && cells.is_lasting()
        {
            return true;
        }
        self.iter().any(|(_, data)| match data {
            DataRef::Simple(cell) => cell.is_live(now),
            DataRef::Complex(complex) => complex.cells.iter().any(|element| element.cell.is_live(now)),
        })
    }

    /// Whether all of its cells are of simple columns, and values without an end.
    pub fn is_lasting(&self) -> bool {
        match &self.columns {
            Columns::Encoded(cells) => cells.is_lasting(),
            Columns::Apart(columns) => columns.iter().all(|(_, data)| match data {
                ColumnData::Simple(cell) => cell.local_deletion == crate::NO_DELETION,
                ColumnData::Complex(_) => false,
            }),
        }
    }

    /// The time of its cells, where it has one value without an end of every regular column of `table`: of versions of the row from before that time
    /// a reader sees no value.
    pub fn whole_since(&self, table: &Table) -> Option<Timestamp> {
        match &self.columns {
            Columns::Encoded(cells) if cells.is_lasting() && cells.len() == table.regular_columns().len() => {
                cells.is_known_to(table).then(|| cells.timestamp())
            }
            _ => None,
        }
    }

    /// How many tombstones a reader at `now` steps over in it, as Cassandra counts them: cells that are deleted or expired, and one for a row
    /// without live data and without such cells that has a deletion, of itself or of a collection, or a mark that is expired.
    pub fn tombstones(&self, now: Seconds) -> usize {
        if let Columns::Encoded(cells) = &self.columns
            && cells.is_lasting()
        {
            return 0;
        }
        let dead = |element: &ComplexCell| usize::from(!element.cell.is_live(now));
        let columns = self.iter().map(|(_, data)| match data {
            DataRef::Simple(cell) => usize::from(!cell.is_live(now)),
            DataRef::Complex(complex) => complex.cells.iter().map(dead).sum(),
        });
        let cells: usize = columns.sum();
        if cells > 0 || self.is_live(now) {
            return cells;
        }
        let is_deleted =
            |data: DataRef<'_>| matches!(data, DataRef::Complex(complex) if !complex.deletion.is_live());
        let has_deletion = !self.deletion.is_live()
            || !self.liveness.is_none()
            || self.iter().any(|(_, data)| is_deleted(data));
        usize::from(has_deletion)
    }

    /// Bytes that it holds, itself included.
    pub fn memory_size(&self) -> usize {
        size_of::<Self>() + self.clustering.memory_size() + self.columns.memory_size()
    }
}

impl Columns {
    /// Merges a later or earlier state of columns; its growth in bytes. Cells that a deletion of either hides are in neither.
    fn merge(&mut self, other: Self, table: &Table) -> isize {
        if other.is_empty() {
            return 0;
        }
        if self.is_empty() {
            let before = self.memory_size() as isize;
            *self = other;
            return self.memory_size() as isize - before;
        }
        match (&*self, &other) {
            (Self::Encoded(mine), Self::Encoded(theirs))
                if mine.is_of_same_columns(theirs) && mine.is_known_to(table) =>
            {
                match mine.timestamp().cmp(&theirs.timestamp()) {
                    Ordering::Less => {
                        let more = theirs.memory_size() as isize - mine.memory_size() as isize;
                        *self = other;
                        return more;
                    }
                    Ordering::Greater => return 0,
                    Ordering::Equal => {}
                }
            }
            (Self::Apart(mine), Self::Apart(theirs)) => {
                if let Some(more) = bytes_more_when_replaced(mine, theirs, table) {
                    *self = other;
                    return more;
                }
            }
            _ => {}
        }
        self.merge_apart(other.into_apart(), table)
    }

    /// Merges column by column.
    fn merge_apart(&mut self, theirs: Vec<(ColumnId, ColumnData)>, table: &Table) -> isize {
        let mut grown = 0;
        if let Self::Encoded(cells) = self {
            let before = cells.memory_size() as isize;
            self.apart();
            grown += self.memory_size() as isize - before;
        }
        let mine = self.apart();
        if mine.iter().map(|(id, _)| id).eq(theirs.iter().map(|(id, _)| id)) {
            grown += merge_same_columns(mine, theirs, table);
        } else {
            *mine = merge_columns(std::mem::take(mine), theirs, table, &mut grown);
        }
        grown
    }

    /// Removes everything that a deletion hides; its growth in bytes, which is not above 0.
    fn hide(&mut self, deletion: DeletionTime) -> isize {
        match self {
            Self::Encoded(cells) if !deletion.deletes(cells.timestamp()) => 0,
            Self::Encoded(_) => {
                let before = self.memory_size() as isize;
                *self = Self::Apart(Arc::default());
                self.memory_size() as isize - before
            }
            Self::Apart(columns) if columns.is_empty() => 0,
            Self::Apart(columns) => hide_columns(Arc::make_mut(columns), deletion),
        }
    }
}

fn hide_columns(columns: &mut Vec<(ColumnId, ColumnData)>, deletion: DeletionTime) -> isize {
    let mut grown = 0;
    columns.retain_mut(|column| {
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
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return out,
        };
        match side {
            Ordering::Less => out.extend(left.next()),
            Ordering::Greater => {
                let column = right.next().expect("peeked");
                *grown += column_size(&column) as isize;
                out.push(column);
            }
            Ordering::Equal => {
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
