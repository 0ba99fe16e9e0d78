//! Operations turned into cells.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use mutation::row::{ColumnData, compare_paths};
use mutation::{
    Cell, Clustering, Complex, ComplexCell, DeletionTime, EncodedCells, Packed, Row, RowLayout, Seconds,
    Timestamp,
};
use schema::ColumnId;
use types::CqlType;
use types::elements::{Elements, Fields};

use super::operation::{Change, Operation};
use crate::error::{Result, invalid};
use crate::expr::bind::{Binds, Bound};
use crate::expr::row::ColumnRef;
use crate::expr::{Env, Value, collect_elements};

/// The common part of all cells of a statement.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// When, as the writer claims.
    pub timestamp: Timestamp,
    /// Seconds to live; 0 for ever.
    pub ttl: Seconds,
    /// The server's clock.
    pub now: Seconds,
    /// Microseconds that order the elements of lists; the clock's when there are none.
    pub ordered_at: Option<i64>,
}

impl Stamp {
    /// A value that lives as the statement says.
    #[inline]
    pub fn live(&self, value: Bytes) -> Cell {
        match self.ttl {
            0 => Cell::live(self.timestamp, value),
            ttl => Cell::expiring(self.timestamp, ttl, self.expires(), value),
        }
    }

    /// The expiry of cells with the statement's TTL; the far future is cut to the last second that can be stored.
    pub fn expires(&self) -> Seconds {
        self.now.saturating_add(self.ttl).min(mutation::NO_DELETION - 1)
    }

    /// The time of an element's place in a list, in microseconds.
    fn element_micros(&self, env: &Env<'_>) -> i64 {
        self.ordered_at.unwrap_or_else(|| env.call.clock.wall_micros())
    }

    /// A tombstone of one cell.
    #[inline]
    pub fn tombstone(&self) -> Cell {
        Cell::tombstone(self.timestamp, self.now)
    }

    /// A deletion by this statement.
    pub fn deletion(&self) -> DeletionTime {
        DeletionTime::new(self.timestamp, self.now)
    }

    /// The deletion of an overwritten collection's old cells: just before its new cells.
    fn overwritten(&self) -> DeletionTime {
        DeletionTime::new(self.timestamp.saturating_sub(1), self.now)
    }
}

/// The row that operations make. `existing` is the row as it was read, for lists.
///
/// # Errors
/// As [`Expr::eval`](crate::expr::Expr::eval) of the operations; [`ExecError::Invalid`](crate::ExecError::Invalid) when
/// the change of a counter is null or overflows, or a list has no element at the index.
pub fn row(
    clustering: Clustering,
    operations: &[Operation],
    stamp: &Stamp,
    env: &Env<'_>,
    existing: Option<&Row>,
) -> Result<Row> {
    let mut columns: Vec<(ColumnId, ColumnData)> = Vec::with_capacity(operations.len());
    let follows = operations.len() > 1 && operations.iter().any(|one| one.change.needs_read());
    let (mut operations, mut lists) = (operations.iter(), Lists { follows, ..Lists::default() });
    // Nearly always each operation has a column of its own, in their order.
    for operation in operations.by_ref() {
        let column = &operation.column;
        let pending = columns.last().filter(|(id, _)| *id == column.id).map(|(_, data)| data);
        let Some(data) = data(operation, stamp, env, (existing, pending), &mut lists)? else { continue };
        lists.follow(column, &data, existing, stamp);
        if operation.change.adds_up()
            && let Some((id, sum)) = columns.last_mut()
            && *id == column.id
        {
            *sum = data;
            continue;
        }
        if columns.last().is_none_or(|(last, _)| *last < column.id) {
            columns.push((column.id, data));
            continue;
        }
        let mut row = Row::from_columns(clustering, columns);
        row.merge_column(column.id, data, &column.ty);
        // Elements are put in order at the end: one by one, each could move all others.
        let mut elements: BTreeMap<ColumnId, (&CqlType, Vec<ComplexCell>)> = BTreeMap::new();
        for operation in operations {
            let column = &operation.column;
            let pending = row.column(column.id);
            let data = self::data(operation, stamp, env, (existing, pending), &mut lists)?;
            if let Some(data) = &data {
                lists.follow(column, data, existing, stamp);
            }
            match data {
                None => {}
                Some(ColumnData::Complex(complex)) if complex.deletion.is_live() => {
                    elements.entry(column.id).or_insert((&column.ty, Vec::new())).1.extend(complex.cells);
                }
                Some(data) if operation.change.adds_up() => row.set(column.id, data),
                Some(data) => row.merge_column(column.id, data, &column.ty),
            }
        }
        for (id, (ty, elements)) in elements {
            row.merge_elements(id, elements, ty);
        }
        return Ok(row);
    }
    Ok(Row::from_columns(clustering, columns))
}

/// Columns of a row whose values are found without an allocation.
const CELLS_FEW: usize = 16;

/// The row that bound values make, each the cell of a column; columns are in the order of their ids. Values are copied out of the message,
/// small ones together; with a layout, into the encoded row.
pub fn bound_row(
    clustering: Clustering,
    cells: &[(ColumnId, u32)],
    layout: Option<&Arc<RowLayout>>,
    stamp: &Stamp,
    binds: &Binds,
) -> Row {
    if let Some(layout) = layout {
        // Found once, and walked twice: for the length, and to be copied.
        let (mut few, mut many) = ([None; CELLS_FEW], Vec::new());
        let values = match few.get_mut(..cells.len()) {
            Some(few) => few,
            None => {
                many.resize(cells.len(), None);
                many.as_mut_slice()
            }
        };
        if binds.set_values(cells.iter().map(|(_, marker)| *marker), values) {
            let ttl = (stamp.ttl != 0).then(|| (stamp.ttl, stamp.expires()));
            let values = values.iter().copied();
            return Row::encoded(
                clustering,
                EncodedCells::new(layout, stamp.timestamp, ttl, stamp.now, values),
            );
        }
    }
    let mut packed = Packed::for_lengths(cells.iter().map(|(_, marker)| binds.value_len(*marker)));
    let mut columns: Vec<(ColumnId, ColumnData)> = Vec::with_capacity(cells.len());
    for (column, marker) in cells {
        let cell = match binds.get(*marker) {
            Bound::Set(value) => stamp.live(packed.copy(value)),
            Bound::Null => stamp.tombstone(),
            Bound::Unset => continue,
        };
        columns.push((*column, ColumnData::Simple(cell)));
    }
    Row::from_columns(clustering, columns)
}

/// The effect of an operation on its column, if anything. `before` is the row as it was read, with the statement's earlier
/// operations on the column.
fn data<'r>(
    operation: &Operation,
    stamp: &Stamp,
    env: &Env<'_>,
    before: (Option<&'r Row>, Option<&ColumnData>),
    lists: &mut Lists<'r>,
) -> Result<Option<ColumnData>> {
    let (existing, pending) = before;
    let column = &operation.column;
    Ok(Some(match &operation.change {
        Change::Set(expr) => match (expr.eval(env)?, column.ty.is_multi_cell()) {
            (Value::Unset, _) => return Ok(None),
            (Value::Set(value), false) => ColumnData::Simple(stamp.live(value)),
            (Value::Null, false) => ColumnData::Simple(stamp.tombstone()),
            (value, true) => {
                let mut complex = match value.into_bytes() {
                    Some(value) => split(&column.ty, &value, stamp, env)?,
                    None => Complex::empty(),
                };
                complex.deletion = stamp.overwritten();
                ColumnData::Complex(complex)
            }
        },
        Change::Delete if column.ty.is_multi_cell() => {
            ColumnData::Complex(Complex { deletion: stamp.deletion(), cells: Vec::new() })
        }
        Change::Delete => ColumnData::Simple(stamp.tombstone()),
        Change::Count(expr, negative) => {
            let delta = match expr.eval(env)? {
                Value::Unset => return Ok(None),
                Value::Null => return invalid!("Invalid null value for counter increment"),
                Value::Set(value) => delta(&value, *negative)?,
            };
            let before = match pending {
                Some(ColumnData::Simple(cell)) => {
                    cell.value.first_chunk::<8>().map_or(0, |sum| i64::from_be_bytes(*sum))
                }
                _ => 0,
            };
            let delta = before.wrapping_add(delta);
            ColumnData::Simple(Cell::live(stamp.timestamp, Bytes::copy_from_slice(&delta.to_be_bytes())))
        }
        Change::Plus(expr) => {
            let held = match pending {
                Some(ColumnData::Simple(cell)) => Some(cell),
                _ => existing.and_then(|row| row.cell(column.id)),
            };
            let Some(held) = held.filter(|cell| cell.is_live(stamp.now)) else { return Ok(None) };
            match expr.eval(env)? {
                Value::Unset => return Ok(None),
                Value::Null => return invalid!("Invalid null value for number increment/decrement"),
                Value::Set(more) => ColumnData::Simple(stamp.live(plus(&column.ty, &held.value, &more)?)),
            }
        }
        change => {
            let cells = changed_cells(operation, change, stamp, env, (existing, lists))?;
            if cells.is_empty() {
                return Ok(None);
            }
            ColumnData::Complex(Complex { cells, ..Complex::empty() })
        }
    }))
}

/// The sum of two numbers, or one text behind the other.
fn plus(ty: &CqlType, held: &[u8], more: &[u8]) -> Result<Bytes> {
    if matches!(ty, CqlType::Ascii | CqlType::Text) {
        return Ok([held, more].concat().into());
    }
    match types::native::add(ty, held, more) {
        Ok(sum) => Ok(sum.into()),
        Err(error) => invalid!("{error}"),
    }
}

fn delta(value: &[u8], negative: bool) -> Result<i64> {
    let Ok(bytes) = <[u8; 8]>::try_from(value) else {
        return invalid!("Invalid empty value for counter increment/decrement");
    };
    let delta = i64::from_be_bytes(bytes);
    match (negative, delta.checked_neg()) {
        (false, _) => Ok(delta),
        (true, Some(negated)) => Ok(negated),
        (true, None) => {
            invalid!("The negation of {delta} overflows supported counter precision (signed 8 bytes integer)")
        }
    }
}

/// The live elements of lists of the row as it was read, and with the changes of the statement's earlier operations. Each list is collected
/// once for all operations on it.
#[derive(Default)]
struct Lists<'r> {
    known: Vec<(ColumnId, LiveList<'r>)>,
    /// Another operation reads places of a list, which earlier ones may have changed.
    follows: bool,
}

/// The live elements of a list: their cells in any order, those of the row as they lie there, and these in the order of the list.
struct LiveList<'r> {
    cells: Vec<Cow<'r, ComplexCell>>,
    order: Vec<u32>,
}

impl<'r> Lists<'r> {
    fn of(&mut self, column: ColumnId, existing: Option<&'r Row>, stamp: &Stamp) -> &mut LiveList<'r> {
        let at = self.known.iter().position(|(id, _)| *id == column).unwrap_or_else(|| {
            let complex = existing.and_then(|row| row.complex(column));
            let cells = complex.map(|complex| complex.cells.as_slice()).unwrap_or_default();
            self.known.push((column, LiveList::new(cells, stamp)));
            self.known.len() - 1
        });
        &mut self.known[at].1
    }

    /// Takes in the effect of an operation on its column.
    fn follow(&mut self, column: &ColumnRef, data: &ColumnData, existing: Option<&'r Row>, stamp: &Stamp) {
        let (true, CqlType::List { .. }, ColumnData::Complex(complex)) = (self.follows, &column.ty, data)
        else {
            return;
        };
        let list = self.of(column.id, existing, stamp);
        if !complex.deletion.is_live() {
            let deleted = complex.deletion.timestamp;
            list.order.retain(|at| list.cells[*at as usize].cell.timestamp > deleted);
        }
        complex.cells.iter().for_each(|cell| list.put(&column.ty, cell, stamp));
    }
}

impl<'r> LiveList<'r> {
    fn new(cells: &'r [ComplexCell], stamp: &Stamp) -> Self {
        let live = cells.iter().filter(|element| element.cell.is_live(stamp.now));
        let cells: Vec<_> = live.map(Cow::Borrowed).collect();
        Self { order: (0..cells.len() as u32).collect(), cells }
    }

    fn len(&self) -> usize {
        self.order.len()
    }

    fn get(&self, place: i32) -> Option<&ComplexCell> {
        let at = self.order.get(usize::try_from(place).ok()?)?;
        self.cells.get(*at as usize).map(|cell| &**cell)
    }

    fn iter(&self) -> impl Iterator<Item = &ComplexCell> {
        self.order.iter().filter_map(|at| self.cells.get(*at as usize).map(|cell| &**cell))
    }

    /// Puts an element into its place, or takes it away; one that was written later stays.
    fn put(&mut self, ty: &CqlType, cell: &ComplexCell, stamp: &Stamp) {
        let found =
            self.order.binary_search_by(|at| compare_paths(ty, &self.cells[*at as usize].path, &cell.path));
        let is_live = cell.cell.is_live(stamp.now);
        match found {
            Ok(at) => {
                let held = &mut self.cells[self.order[at] as usize];
                if held.cell.timestamp > cell.cell.timestamp {
                    return;
                }
                if is_live {
                    *held = Cow::Owned(cell.clone());
                } else {
                    self.order.remove(at);
                }
            }
            Err(at) if is_live => {
                self.order.insert(at, self.cells.len() as u32);
                self.cells.push(Cow::Owned(cell.clone()));
            }
            Err(_) => {}
        }
    }
}

/// The cells that a change of elements writes, in path order.
fn changed_cells<'r>(
    operation: &Operation,
    change: &Change,
    stamp: &Stamp,
    env: &Env<'_>,
    (existing, lists): (Option<&'r Row>, &mut Lists<'r>),
) -> Result<Vec<ComplexCell>> {
    let ty = &operation.column.ty;
    let cell = |path: Bytes, value: Value| ComplexCell {
        path,
        cell: match value {
            Value::Set(value) => stamp.live(value),
            Value::Null | Value::Unset => stamp.tombstone(),
        },
    };
    match change {
        Change::Append(expr) | Change::Add(expr) => match expr.eval(env)? {
            Value::Set(value) => Ok(split(ty, &value, stamp, env)?.cells),
            Value::Unset => Ok(Vec::new()),
            Value::Null => Ok(Vec::new()),
        },
        Change::Prepend(expr) => match expr.eval_option(env)? {
            Some(value) => {
                let elements = collect_elements(Elements::of_list(&value)?)?;
                let mut cells: Vec<ComplexCell> = Vec::with_capacity(elements.len());
                // From the last to the first, each before the one made last.
                for element in elements.into_iter().rev() {
                    let path = Bytes::copy_from_slice(&env.call.uuids.before(stamp.element_micros(env)));
                    cells.push(cell(path, Value::Set(value.slice_ref(element))));
                }
                cells.reverse();
                Ok(cells)
            }
            None => Ok(Vec::new()),
        },
        Change::Remove(expr) => match expr.eval_option(env)? {
            Some(value) => Ok(collect_elements(Elements::of_set(&value)?)?
                .into_iter()
                .map(|path| cell(value.slice_ref(path), Value::Null))
                .collect()),
            None => Ok(Vec::new()),
        },
        Change::Discard(expr) => match (expr.eval_option(env)?, ty) {
            (Some(value), CqlType::List { element: element_type, .. }) => {
                let mut unwanted = collect_elements(Elements::of_list(&value)?)?;
                unwanted.sort_unstable_by(|a, b| element_type.compare(a, b));
                let is_unwanted = |held: &&ComplexCell| {
                    unwanted.binary_search_by(|item| element_type.compare(item, &held.cell.value)).is_ok()
                };
                Ok(lists
                    .of(operation.column.id, existing, stamp)
                    .iter()
                    .filter(is_unwanted)
                    .map(|held| cell(held.path.clone(), Value::Null))
                    .collect())
            }
            _ => Ok(Vec::new()),
        },
        Change::SetIndex(index, expr) => {
            let list = lists.of(operation.column.id, existing, stamp);
            let at = index_value(index.eval(env)?)?;
            if list.len() == 0 {
                return invalid!("Attempted to set an element on a list which is null");
            }
            let Some(held) = list.get(at) else {
                return invalid!("List index {at} out of bound, list has size {}", list.len());
            };
            match expr.eval(env)? {
                Value::Unset => Ok(Vec::new()),
                value => Ok(vec![cell(held.path.clone(), value)]),
            }
        }
        Change::DeleteIndex(index) => {
            let list = lists.of(operation.column.id, existing, stamp);
            let place = deleted_place(index.eval(env)?, list)?;
            Ok(place.map(|path| cell(path, Value::Null)).into_iter().collect())
        }
        Change::SetKey(key, expr) => {
            let key = key_value(key.eval(env)?, "map key")?;
            match expr.eval(env)? {
                Value::Unset => Ok(Vec::new()),
                value => Ok(vec![cell(key, value)]),
            }
        }
        Change::DeleteKey(key) => {
            let is_map = matches!(ty, CqlType::Map { .. });
            match key.eval(env)? {
                // Nothing is deleted, as in Cassandra.
                Value::Unset if !is_map => Ok(Vec::new()),
                value if is_map => Ok(vec![cell(key_value(value, "map key")?, Value::Null)]),
                value => Ok(vec![cell(key_value(value, "set element")?, Value::Null)]),
            }
        }
        Change::SetField(at, expr) => match expr.eval(env)? {
            Value::Unset => Ok(Vec::new()),
            value => Ok(vec![cell(Bytes::copy_from_slice(&at.to_be_bytes()), value)]),
        },
        Change::DeleteField(at) => Ok(vec![cell(Bytes::copy_from_slice(&at.to_be_bytes()), Value::Null)]),
        Change::Set(_) | Change::Delete | Change::Count(..) | Change::Plus(_) => Ok(Vec::new()),
    }
}

/// The path of the element of a list that is deleted; none where its place is not set, as in Cassandra.
fn deleted_place(index: Value, list: &LiveList<'_>) -> Result<Option<Bytes>> {
    if index == Value::Unset {
        return Ok(None);
    }
    let at = index_value(index)?;
    if list.len() == 0 {
        return invalid!("Attempted to delete an element from a list which is null");
    }
    match list.get(at) {
        Some(held) => Ok(Some(held.path.clone())),
        None => invalid!("List index {at} out of bound, list has size {}", list.len()),
    }
}

fn index_value(index: Value) -> Result<i32> {
    match index {
        Value::Unset => invalid!("Invalid unset value for list index"),
        Value::Null => invalid!("Invalid null value for list index"),
        Value::Set(bytes) => match <[u8; 4]>::try_from(&*bytes) {
            Ok(bytes) => Ok(i32::from_be_bytes(bytes)),
            Err(_) => invalid!("Invalid empty value for list index"),
        },
    }
}

fn key_value(key: Value, what: &str) -> Result<Bytes> {
    match key {
        Value::Set(key) => Ok(key),
        Value::Null => invalid!("Invalid null {what}"),
        Value::Unset => invalid!("Invalid unset {what}"),
    }
}

/// Takes a value apart into the cells of an unfrozen column.
fn split(ty: &CqlType, value: &Bytes, stamp: &Stamp, env: &Env<'_>) -> Result<Complex> {
    let shared = |slice: &[u8]| if slice.is_empty() { Bytes::new() } else { value.slice_ref(slice) };
    let element = |path: Bytes, value: Bytes| ComplexCell { path, cell: stamp.live(value) };
    let mut cells = Vec::new();
    match ty {
        CqlType::List { .. } => {
            for item in collect_elements(Elements::of_list(value)?)? {
                let path = env.call.uuids.next(stamp.element_micros(env));
                cells.push(element(Bytes::copy_from_slice(&path), shared(item)));
            }
        }
        CqlType::Set { element: ty, .. } => {
            for item in collect_elements(Elements::of_set(value)?)? {
                cells.push(element(shared(item), Bytes::new()));
            }
            debug_assert!(cells.is_sorted_by(|a, b| ty.compare(&a.path, &b.path).is_lt()));
        }
        CqlType::Map { .. } => {
            for entry in collect_elements(Elements::of_map(value)?)?.chunks_exact(2) {
                cells.push(element(shared(entry[0]), shared(entry[1])));
            }
        }
        CqlType::Udt { .. } => {
            for (at, field) in Fields::new(value).enumerate() {
                if let Some(field) = field? {
                    let path = Bytes::copy_from_slice(&(at as u16).to_be_bytes());
                    cells.push(element(path, shared(field)));
                }
            }
        }
        other => panic!("a column of type {other} is one cell"),
    }
    Ok(Complex { cells, ..Complex::empty() })
}

#[cfg(test)]
mod tests {
    use schema::{TableBuilder, TableId};

    use super::*;
    use crate::expr::bind::MarkerSpec;

    #[test]
    fn bound_values_leave_the_message_and_null_and_unset_keep_their_meaning() {
        let body = Bytes::from(vec![5u8; 4096]);
        let spec = MarkerSpec::of("v".to_owned(), CqlType::Blob);
        let mut binds = Binds::within(&body, 5);
        binds.push_place(&spec, 10..40).unwrap();
        binds.push(Value::Null);
        binds.push(Value::Unset);
        binds.push_place(&spec, 7..7).unwrap();
        binds.push_place(&spec, 100..1000).unwrap();
        let cells: Vec<(ColumnId, u32)> = (0..5).map(|at| (ColumnId(at + 1), at)).collect();
        let stamp = Stamp { timestamp: 9, ttl: 0, now: 77, ordered_at: None };
        let row = bound_row(Clustering::empty(), &cells, None, &stamp, &binds);
        let cell = |id| row.cell(ColumnId(id)).cloned();
        assert_eq!(cell(1), Some(Cell::live(9, body.slice(10..40))));
        assert_eq!(cell(2), Some(Cell::tombstone(9, 77)));
        assert_eq!(cell(3), None);
        assert_eq!(cell(4), Some(Cell::live(9, Bytes::new())));
        assert_eq!(cell(5), Some(Cell::live(9, body.slice(100..1000))));
        for (_, data) in row.columns() {
            let ColumnData::Simple(cell) = data else { panic!("simple columns") };
            assert!(cell.value.is_empty() || !body.as_ptr_range().contains(&cell.value.as_ptr()));
        }
        // Without the one that is not set, they are encoded: the same cells.
        let cells: Vec<(ColumnId, u32)> =
            cells.into_iter().filter(|(column, _)| *column != ColumnId(3)).collect();
        let builder = TableBuilder::new("ks", "t", TableId([1; 16])).partition_key("k", CqlType::Int);
        let table = (0..5)
            .fold(builder, |builder, at| builder.regular(format!("v{at}"), CqlType::Blob))
            .build_known();
        let layout = RowLayout::new(&table, cells.iter().map(|(column, _)| *column)).map(Arc::new);
        assert!(layout.is_some());
        for ttl in [0, 60] {
            let stamp = Stamp { ttl, ..stamp };
            let apart = bound_row(Clustering::empty(), &cells, None, &stamp, &binds);
            let encoded = bound_row(Clustering::empty(), &cells, layout.as_ref(), &stamp, &binds);
            assert!(encoded.encoded_cells().is_some() && apart.encoded_cells().is_none());
            assert_eq!(encoded, apart);
        }
        let cells: Vec<(ColumnId, u32)> = (0..5).map(|at| (ColumnId(at + 1), at)).collect();
        let layout = RowLayout::new(&table, cells.iter().map(|(column, _)| *column)).map(Arc::new);
        let unset = bound_row(Clustering::empty(), &cells, layout.as_ref(), &stamp, &binds);
        assert_eq!(unset, row, "a column that is not set is left alone");
        assert_eq!((1..6).map(|at| binds.value_len(at - 1)).collect::<Vec<_>>(), [30, 0, 0, 0, 900]);
        assert_eq!(binds.value(4), Value::Set(body.slice(100..1000)));
    }
}
