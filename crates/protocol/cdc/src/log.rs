//! The rows of a log that follow from a write of its base.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use mutation::row::ColumnData;
use mutation::{
    Bound, Cell, Clustering, Complex, DataRef, DecoratedKey, DeletionTime, EncodedCells, PartitionUpdate,
    Row, RowRange, Seconds, Side, Slices, TableLayouts, Timestamp,
};
use schema::{Cdc, CdcPreimage, Column, ColumnId, Table};
use stdx::HashMap;
use types::CqlType;
use types::elements::{CollectionBuilder, write_element};

use crate::StreamId;
use crate::change::{Changes, Part, RowChange, RowChanges, changes};
use crate::image::{Place, row_of};
use crate::log_table::{END_OF_BATCH, OPERATION, TTL, deleted, deleted_elements};
use crate::operation::Operation;
use crate::time::{Life, Naming, fingerprint, seconds, time_uuid};

/// `true`, as a value of the log's columns.
const MARK: &[u8] = &[1];

/// A pair of tables that is no base table and log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{log} is not the log of {base}: {reason}")]
pub struct InvalidLog {
    /// Name of the log.
    pub log: String,
    /// Name of the base table.
    pub base: String,
    /// The mismatch.
    pub reason: String,
}

/// A column of the base outside of its key.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub(crate) value: ColumnId,
    pub(crate) deleted: ColumnId,
    pub(crate) deleted_elements: Option<ColumnId>,
    pub(crate) ty: CqlType,
    is_static: bool,
}

/// A log, resolved against its base table.
#[derive(Debug)]
pub struct Log {
    table: Arc<Table>,
    /// Of its rows.
    layouts: TableLayouts,
    cdc: Cdc,
    end_of_batch: ColumnId,
    pub(crate) operation: ColumnId,
    pub(crate) ttl: ColumnId,
    pub(crate) partition_key: Vec<ColumnId>,
    pub(crate) clustering: Vec<ColumnId>,
    pub(crate) columns: HashMap<ColumnId, Logged>,
}

impl Log {
    /// Resolves a log against its base table.
    ///
    /// # Errors
    /// When the log is of something else or lacks a column, and when the base has counters.
    pub fn new(base: &Table, table: Arc<Table>) -> Result<Self, InvalidLog> {
        let invalid = |reason: String| InvalidLog { log: table.full_name(), base: base.full_name(), reason };
        if !table.is_cdc_log() || !table.is_derived_from(base.id) {
            return Err(invalid("it follows from something else".to_owned()));
        }
        if base.is_counter() {
            return Err(invalid("the base has counters".to_owned()));
        }
        let id = |name: &str| match table.column(name) {
            Some(column) => Ok(column.id),
            None => Err(invalid(format!("it lacks the column {name}"))),
        };
        let ids =
            |columns: &[Column]| columns.iter().map(|column| id(&column.name)).collect::<Result<Vec<_>, _>>();
        let mut columns = HashMap::default();
        for (column, is_static) in base
            .static_columns()
            .iter()
            .map(|column| (column, true))
            .chain(base.regular_columns().iter().map(|column| (column, false)))
        {
            let elements = column.is_complex().then(|| id(&deleted_elements(&column.name)));
            let logged = Logged {
                value: id(&column.name)?,
                deleted: id(&deleted(&column.name))?,
                deleted_elements: elements.transpose()?,
                ty: column.ty.clone(),
                is_static,
            };
            columns.insert(column.id, logged);
        }
        Ok(Self {
            cdc: base.options.cdc,
            end_of_batch: id(END_OF_BATCH)?,
            operation: id(OPERATION)?,
            ttl: id(TTL)?,
            partition_key: ids(base.partition_key())?,
            clustering: ids(base.clustering())?,
            columns,
            layouts: TableLayouts::default(),
            table,
        })
    }

    /// The log's table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Whether the rows before a write have to be known.
    pub fn reads_before(&self) -> bool {
        self.cdc.preimage != CdcPreimage::Off || self.cdc.postimage
    }

    /// The rows of a base partition of which an update asks for images.
    pub fn rows_read(update: &PartitionUpdate) -> Slices {
        let row = |row: &Row| RowRange::row(&row.clustering);
        Slices::new(update.rows().iter().map(row).collect())
    }

    /// The updates of the log that follow from an update of the base, one for each stream. `before` is the replica's state of the rows of
    /// [`Log::rows_read`], and of the static row, with all deletions in them; none when no images are wanted. `stream` gives
    /// the stream of a timestamp for the partition; `naming` is that of all replicas.
    ///
    /// # Panics
    /// When the two are not of one partition.
    pub fn changes(
        &self,
        before: Option<&PartitionUpdate>,
        update: &PartitionUpdate,
        stream: &mut dyn FnMut(Timestamp) -> StreamId,
        naming: Naming,
    ) -> Vec<PartitionUpdate> {
        assert!(before.is_none_or(|before| before.key == update.key), "updates of one partition");
        let fingerprint = fingerprint(update, naming);
        let mut updates: BTreeMap<StreamId, PartitionUpdate> = BTreeMap::new();
        for (timestamp, changes) in changes(update) {
            let mut batch = Batch {
                log: self,
                key: &update.key,
                timestamp,
                life: Life::of(self.cdc.ttl, timestamp),
                time: time_uuid(timestamp, fingerprint),
                next: 0,
                rows: Vec::new(),
            };
            batch.add(before, update, &changes);
            batch.end();
            let stream = stream(timestamp);
            let log = updates.entry(stream).or_insert_with(|| {
                let key = DecoratedKey::new(Bytes::copy_from_slice(&stream.0));
                PartitionUpdate::new(self.table.clone(), key)
            });
            batch.into_rows().for_each(|row| log.add_row(row));
        }
        updates.into_values().collect()
    }
}

impl Log {
    /// A row whose cells all have this timestamp and life: encoded at once, as the row of a statement is, unless it has too many columns.
    fn row_of_values(
        &self,
        clustering: Clustering,
        mut values: Values<'_>,
        timestamp: Timestamp,
        life: Life,
    ) -> Row {
        values.sort_unstable_by_key(|(id, _)| *id);
        let mut row = match self.layouts.of(&self.table, values.iter().map(|(id, _)| *id)) {
            Some(layout) => {
                let values = values.iter().map(|(_, value)| Some(&**value));
                Row::encoded(clustering, EncodedCells::new(&layout, timestamp, life.of_cells(), 0, values))
            }
            None => Row::from_columns(clustering, columns(values, timestamp, life)),
        };
        row.liveness = life.liveness(timestamp);
        row
    }
}

/// Values as columns of their own.
fn columns(values: Values<'_>, timestamp: Timestamp, life: Life) -> Vec<(ColumnId, ColumnData)> {
    let cell = |value: Cow<'_, [u8]>| life.cell(timestamp, value.into_owned());
    values.into_iter().map(|(id, value)| (id, ColumnData::Simple(cell(value)))).collect()
}

/// The values of a row of a log.
type Values<'c> = Vec<(ColumnId, Cow<'c, [u8]>)>;

/// A row of a log.
enum LogRow<'c> {
    /// Of cells that all have the timestamp and the life of their batch.
    Values(Clustering, Values<'c>),
    /// Of cells that have the timestamps of the base.
    Image(Row),
}

/// The rows of a log that have one time. `'c` is that of the changes.
struct Batch<'c> {
    log: &'c Log,
    key: &'c DecoratedKey,
    timestamp: Timestamp,
    life: Life,
    time: [u8; 16],
    next: i32,
    rows: Vec<LogRow<'c>>,
}

impl<'c> Batch<'c> {
    /// Images before, changes, images after. A row's number is the same at every replica: an image that one has nothing to say in leaves its
    /// number out.
    fn add(&mut self, before: Option<&PartitionUpdate>, update: &PartitionUpdate, changes: &'c Changes<'_>) {
        let log = self.log;
        let places = || {
            let has_static = changes.static_row.has_cells();
            let rows = changes.rows.iter().map(|(key, row)| (Place::Row((*key).clone()), row));
            has_static.then_some((Place::Static, &changes.static_row)).into_iter().chain(rows)
        };
        if log.cdc.preimage != CdcPreimage::Off {
            for (place, row) in places() {
                let state = row_of(before, update, &place, self.timestamp);
                let all = log.cdc.preimage == CdcPreimage::Full || row.is_deleted;
                let changed: BTreeSet<ColumnId> = row.columns().collect();
                let is_wanted = |id: ColumnId| all || changed.contains(&id);
                match state.is_live(seconds(self.timestamp)) {
                    true => self.image(Operation::Preimage, &place, &state, &is_wanted),
                    false => self.next += 1,
                }
            }
        }
        self.row_changes(None, &changes.static_row);
        changes.rows.iter().for_each(|(key, row)| self.row_changes(Some(key), row));
        for (key, _) in changes.rows.iter().filter(|(_, row)| row.is_deleted) {
            let (place, values) = self.begin(Operation::RowDelete, key.components());
            self.push(place, values);
        }
        changes.ranges.iter().for_each(|(start, end)| self.range(start, end));
        if changes.deletes_partition {
            let (place, values) = self.begin(Operation::PartitionDelete, std::iter::empty());
            self.push(place, values);
        }
        if log.cdc.postimage {
            for (place, _) in places().filter(|(_, row)| row.has_cells()) {
                let state = row_of(before, update, &place, self.timestamp.saturating_add(1));
                // Deleted by the same write: nothing is left of the row.
                match state.deletion.timestamp < self.timestamp {
                    true => self.image(Operation::Postimage, &place, &state, &|_| true),
                    false => self.next += 1,
                }
            }
        }
    }

    /// Marks the last row.
    fn end(&mut self) {
        let column = self.log.end_of_batch;
        match self.rows.last_mut() {
            Some(LogRow::Values(_, values)) => values.push((column, Cow::Borrowed(MARK))),
            Some(LogRow::Image(row)) => {
                row.set(column, ColumnData::Simple(self.life.cell(self.timestamp, MARK)));
            }
            None => {}
        }
    }

    fn into_rows(self) -> impl Iterator<Item = Row> {
        let (log, timestamp, life) = (self.log, self.timestamp, self.life);
        self.rows.into_iter().map(move |row| match row {
            LogRow::Values(clustering, values) => log.row_of_values(clustering, values, timestamp, life),
            LogRow::Image(row) => row,
        })
    }

    /// The changes of one row, or of the static one.
    fn row_changes(&mut self, key: Option<&'c Clustering>, row: &'c RowChanges<'_>) {
        for change in row.parts() {
            let operation = if change.is_insert { Operation::Insert } else { Operation::Update };
            let (place, mut values) = self.begin(operation, key.into_iter().flat_map(Clustering::components));
            self.delta(&mut values, &change);
            self.push(place, values);
        }
    }

    /// A row of the log: its key, and as values the key of the changed row and the operation.
    fn begin(
        &self,
        operation: Operation,
        key: impl Iterator<Item = Option<&'c [u8]>>,
    ) -> (Clustering, Values<'c>) {
        let log = self.log;
        let number = self.next.to_be_bytes();
        let clustering = Clustering::new(&log.table, &[Some(&self.time), Some(&number)]);
        let partition_key = DecoratedKey::components(&self.key.key, log.partition_key.len());
        let mut values = Values::with_capacity(2 + log.partition_key.len() + log.clustering.len());
        values.push((log.operation, Cow::Owned(operation.code().to_be_bytes().to_vec())));
        for (id, value) in log.partition_key.iter().zip(partition_key.unwrap_or_default()) {
            values.push((*id, Cow::Borrowed(value)));
        }
        for (id, value) in log.clustering.iter().zip(key) {
            values.extend(value.map(|value| (*id, Cow::Borrowed(value))));
        }
        (clustering, values)
    }

    fn push(&mut self, place: Clustering, values: Values<'c>) {
        self.next += 1;
        self.rows.push(LogRow::Values(place, values));
    }

    fn range(&mut self, start: &'c Bound, end: &'c Bound) {
        let from = if start.side() == Side::Before {
            Operation::RangeFromInclusive
        } else {
            Operation::RangeFromExclusive
        };
        let to =
            if end.side() == Side::After { Operation::RangeToInclusive } else { Operation::RangeToExclusive };
        for (operation, bound) in [(from, start), (to, end)] {
            let (place, values) = self.begin(operation, bound.components());
            self.push(place, values);
        }
    }

    /// Adds the cells of a change, unless only keys are logged.
    fn delta(&self, values: &mut Values<'c>, change: &RowChange<'c, '_>) {
        if change.ttl > 0 {
            values.push((self.log.ttl, Cow::Owned(i64::from(change.ttl).to_be_bytes().to_vec())));
        }
        if self.log.cdc.keys_only {
            return;
        }
        values.reserve(change.cells.len());
        for (id, part) in &change.cells {
            // A column that was dropped since has no place in the log.
            let Some(logged) = self.log.columns.get(id) else { continue };
            match part {
                Part::Simple(cell) if cell.is_tombstone() => {
                    values.push((logged.deleted, Cow::Borrowed(MARK)));
                }
                Part::Simple(cell) => values.push((logged.value, Cow::Borrowed(cell.value))),
                Part::Complex(complex) => complex_values(values, logged, complex),
            }
        }
    }

    /// Adds a row as it was or is. Its cells have the timestamps of the base. An image before marks each column that was null as deleted, with
    /// such a timestamp that a replica which knows a value wins.
    fn image(
        &mut self,
        operation: Operation,
        place: &Place,
        state: &Row,
        is_wanted: &dyn Fn(ColumnId) -> bool,
    ) {
        let key = match place {
            Place::Static => None,
            Place::Row(key) => Some(key),
        };
        let log = self.log;
        let (at, values) = self.begin(operation, key.into_iter().flat_map(Clustering::components));
        // Its cells get other timestamps than these, so that they would not stay encoded.
        let mut row = Row::from_columns(at, columns(values, self.timestamp, self.life));
        row.liveness = self.life.liveness(self.timestamp);
        row.deletion = state.deletion;
        let is_static = matches!(place, Place::Static);
        let wanted = log.columns.iter().filter(|(id, at)| at.is_static == is_static && is_wanted(**id));
        for (id, logged) in wanted {
            let cell = state.get(*id).and_then(|data| self.cell_of(&logged.ty, data));
            if operation == Operation::Preimage {
                row.set(logged.deleted, ColumnData::Simple(self.null_mark(cell.as_ref(), &state.deletion)));
            }
            if let Some(cell) = cell {
                row.set(logged.value, ColumnData::Simple(cell));
            }
        }
        self.next += 1;
        self.rows.push(LogRow::Image(row));
    }

    /// A column's cell in an image; none of a column about which the replica knows nothing.
    fn cell_of(&self, ty: &CqlType, data: DataRef<'_>) -> Option<Cell> {
        let now = seconds(self.timestamp);
        match data {
            DataRef::Simple(cell) if cell.is_live(now) => {
                Some(self.life.cell(cell.timestamp, cell.to_bytes()))
            }
            DataRef::Simple(cell) if cell.is_tombstone() => Some(cell.to_cell()),
            // It has expired.
            DataRef::Simple(cell) => Some(Cell::tombstone(cell.timestamp, cell.local_deletion)),
            DataRef::Complex(complex) => self.whole_at(ty, complex, now),
        }
    }

    /// Whether a column of an image was null, as a cell that merges with those of other replicas like the column's own.
    fn null_mark(&self, cell: Option<&Cell>, deletion: &DeletionTime) -> Cell {
        match cell {
            Some(cell) if !cell.is_tombstone() => Cell::tombstone(cell.timestamp, seconds(self.timestamp)),
            Some(cell) => self.life.cell(cell.timestamp, MARK),
            // Above the deletion of the row, which would hide it.
            None => self.life.cell(deletion.timestamp.saturating_add(1), MARK),
        }
    }

    /// The live elements of a column as one cell, with the timestamp of the latest.
    fn whole_at(&self, ty: &CqlType, complex: &Complex, now: Seconds) -> Option<Cell> {
        let live = complex.cells.iter().map(|element| &element.cell).filter(|cell| cell.is_live(now));
        match live.map(|cell| cell.timestamp).max() {
            Some(latest) => {
                let changed = complex.cells.iter().map(|element| element.cell.timestamp);
                let latest = changed.chain([complex.deletion.timestamp]).fold(latest, Timestamp::max);
                Some(self.life.cell(latest, whole(ty, complex, |cell| cell.is_live(now))))
            }
            None if complex.deletion.is_live() => None,
            None => Some(Cell::tombstone(complex.deletion.timestamp, complex.deletion.local)),
        }
    }
}

/// The values of a log's row for a column that has several cells.
fn complex_values(values: &mut Values<'_>, logged: &Logged, complex: &Complex) {
    if !complex.deletion.is_live() {
        values.push((logged.deleted, Cow::Borrowed(MARK)));
    }
    if complex.cells.iter().any(|element| !element.cell.is_tombstone()) {
        let value = whole(&logged.ty, complex, |cell| !cell.is_tombstone());
        values.push((logged.value, Cow::Owned(value)));
    }
    let mut gone = complex.cells.iter().filter(|element| element.cell.is_tombstone()).peekable();
    if let (Some(id), Some(_)) = (logged.deleted_elements, gone.peek()) {
        let mut paths = CollectionBuilder::new();
        gone.for_each(|element| paths.push(&element.path));
        values.push((id, Cow::Owned(paths.finish())));
    }
}

/// The elements that pass, as the value of the frozen type that the log has.
fn whole(ty: &CqlType, complex: &Complex, passes: impl Fn(&Cell) -> bool) -> Vec<u8> {
    let elements = complex.cells.iter().filter(|element| passes(&element.cell));
    match ty {
        CqlType::Set { .. } => {
            let mut set = CollectionBuilder::new();
            elements.for_each(|element| set.push(&element.path));
            set.finish()
        }
        CqlType::Udt { ty, .. } => {
            let fields: BTreeMap<&[u8], &[u8]> =
                elements.map(|element| (&*element.path, &*element.cell.value)).collect();
            let mut value = Vec::new();
            for at in 0..ty.fields.len() as u16 {
                write_element(fields.get(&at.to_be_bytes()[..]).copied(), &mut value);
            }
            value
        }
        _ => {
            let mut map = CollectionBuilder::new();
            for element in elements {
                map.push(&element.path);
                map.push(&element.cell.value);
            }
            map.finish_map()
        }
    }
}
