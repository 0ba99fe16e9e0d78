//! Rows of a log as the writes that they were derived from, merged by partition of the base: the inverse of [`Log::changes`].

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use mutation::row::ColumnData;
use mutation::{
    Bound, Cell, Clustering, Complex, ComplexCell, DecoratedKey, DeletionTime, LivenessInfo, PartitionUpdate,
    RangeTombstone, Row, Seconds, Side, Timestamp,
};
use schema::Table;
use types::CqlType;
use types::elements::{Elements, Fields};

use crate::log::{Log, Logged};
use crate::operation::Operation;
use crate::time::seconds;

/// A row of a log that no write gives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a row of {log} is not one of a log of changes: {reason}")]
pub struct UnreadableRow {
    /// Name of the log.
    pub log: String,
    /// The mismatch.
    pub reason: String,
}

/// The writes that the rows of a log were derived from, merged by partition. Of an expiring cell the expiry counts from the timestamp of the write,
/// for the log has no other; images are left out.
#[derive(Debug)]
pub struct Replay<'a> {
    log: &'a Log,
    base: &'a Arc<Table>,
    /// The start of a range whose end is still to come, and its timestamp.
    open: Option<(Bound, Timestamp)>,
    partitions: BTreeMap<DecoratedKey, PartitionUpdate>,
    bytes: usize,
}

impl<'a> Replay<'a> {
    /// Nothing so far, of a log of this base.
    pub fn new(log: &'a Log, base: &'a Arc<Table>) -> Self {
        Self { log, base, open: None, partitions: BTreeMap::new(), bytes: 0 }
    }

    /// Approximate memory of the writes, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the next row of a stream, if its partition is wanted.
    ///
    /// # Errors
    /// When no write gives such a row.
    pub fn push(
        &mut self,
        row: &Row,
        is_wanted: impl FnOnce(&DecoratedKey) -> bool,
    ) -> Result<(), UnreadableRow> {
        let logged = LoggedRow { log: self.log, base: self.base, row };
        let operation = logged.operation()?;
        if matches!(operation, Operation::Preimage | Operation::Postimage) {
            return Ok(());
        }
        let key = logged.partition()?;
        if !is_wanted(&key) {
            return Ok(());
        }
        let (timestamp, size) = (row.liveness.timestamp, row.memory_size());
        let deletion = DeletionTime::new(timestamp, seconds(timestamp));
        let base = self.base;
        let update = self
            .partitions
            .entry(key)
            .or_insert_with_key(|key| PartitionUpdate::new(base.clone(), key.clone()));
        match operation {
            Operation::Update | Operation::Insert => match logged.is_static() {
                true => update.add_static(logged.written(Clustering::empty(), operation)?),
                false => update.add_row(logged.written(logged.clustering(), operation)?),
            },
            Operation::RowDelete => {
                let mut gone = Row::new(logged.clustering());
                gone.deletion = deletion;
                update.add_row(gone);
            }
            Operation::PartitionDelete => update.add_deletion(deletion),
            Operation::RangeFromInclusive => self.open = Some((logged.bound(Side::Before), timestamp)),
            Operation::RangeFromExclusive => self.open = Some((logged.bound(Side::After), timestamp)),
            Operation::RangeToInclusive | Operation::RangeToExclusive => {
                let side = if operation == Operation::RangeToInclusive { Side::After } else { Side::Before };
                let end = logged.bound(side);
                // Both rows of a range expire at one time.
                if let Some((start, at)) = self.open.take()
                    && at == timestamp
                {
                    update.add_range_tombstone(RangeTombstone { start, end, deletion });
                }
            }
            Operation::Preimage | Operation::Postimage => unreachable!("images are left out"),
        }
        self.bytes += size;
        Ok(())
    }

    /// The writes of each partition.
    pub fn finish(self) -> BTreeMap<DecoratedKey, PartitionUpdate> {
        self.partitions
    }
}

/// A row of a log, to be read.
struct LoggedRow<'a> {
    log: &'a Log,
    base: &'a Arc<Table>,
    row: &'a Row,
}

impl LoggedRow<'_> {
    fn unreadable(&self, reason: impl Into<String>) -> UnreadableRow {
        UnreadableRow { log: self.log.table().full_name(), reason: reason.into() }
    }

    /// The value of a column; the row is live, so that its cells are.
    fn value(&self, id: schema::ColumnId) -> Option<Bytes> {
        match self.row.get(id) {
            Some(mutation::DataRef::Simple(cell)) if !cell.is_tombstone() => Some(cell.to_bytes()),
            _ => None,
        }
    }

    fn operation(&self) -> Result<Operation, UnreadableRow> {
        let value = self.value(self.log.operation);
        let code = value.as_deref().and_then(|bytes| <[u8; 1]>::try_from(bytes).ok());
        code.and_then(|code| Operation::of_code(i8::from_be_bytes(code)))
            .ok_or_else(|| self.unreadable("it has no operation"))
    }

    fn partition(&self) -> Result<DecoratedKey, UnreadableRow> {
        let values: Option<Vec<Bytes>> = self.log.partition_key.iter().map(|id| self.value(*id)).collect();
        let values = values.ok_or_else(|| self.unreadable("it lacks a part of the partition key"))?;
        let components: Vec<&[u8]> = values.iter().map(|value| &**value).collect();
        Ok(DecoratedKey::new(DecoratedKey::compose(&components)))
    }

    /// The values of the first clustering columns, up to one that is null.
    fn prefix(&self) -> Vec<Option<Bytes>> {
        let values = self.log.clustering.iter().map(|id| self.value(*id));
        values.take_while(Option::is_some).collect()
    }

    fn clustering(&self) -> Clustering {
        let values = self.prefix();
        let components: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
        Clustering::new(self.base, &components)
    }

    fn bound(&self, side: Side) -> Bound {
        let values = self.prefix();
        let components: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
        Bound::new(self.base, &components, side)
    }

    fn is_static(&self) -> bool {
        !self.log.clustering.is_empty() && self.prefix().is_empty()
    }

    /// The row that was written.
    fn written(&self, clustering: Clustering, operation: Operation) -> Result<Row, UnreadableRow> {
        let timestamp = self.row.liveness.timestamp;
        let ttl = match self.value(self.log.ttl) {
            None => 0,
            Some(bytes) => <[u8; 8]>::try_from(&*bytes)
                .ok()
                .and_then(|bytes| Seconds::try_from(i64::from_be_bytes(bytes)).ok())
                .ok_or_else(|| self.unreadable("its time to live is none"))?,
        };
        let expires = seconds(timestamp).saturating_add(ttl).min(mutation::NO_DELETION - 1);
        let cell = |value: Bytes| match ttl {
            0 => Cell::live(timestamp, value),
            ttl => Cell::expiring(timestamp, ttl, expires, value),
        };
        let mut row = Row::new(clustering);
        if operation == Operation::Insert {
            row.liveness = match ttl {
                0 => LivenessInfo::forever(timestamp),
                ttl => LivenessInfo::expiring(timestamp, ttl, expires),
            };
        }
        for (id, logged) in &self.log.columns {
            let data = match logged.deleted_elements {
                None => self.simple(logged, &cell).map(ColumnData::Simple),
                Some(gone) => self.complex(logged, gone, &cell)?.map(ColumnData::Complex),
            };
            if let Some(data) = data {
                row.set(*id, data);
            }
        }
        Ok(row)
    }

    fn tombstone(&self) -> Cell {
        let timestamp = self.row.liveness.timestamp;
        Cell::tombstone(timestamp, seconds(timestamp))
    }

    fn simple(&self, logged: &Logged, cell: &dyn Fn(Bytes) -> Cell) -> Option<Cell> {
        match self.value(logged.value) {
            Some(value) => Some(cell(value)),
            None => self.value(logged.deleted).map(|_| self.tombstone()),
        }
    }

    fn complex(
        &self,
        logged: &Logged,
        gone: schema::ColumnId,
        cell: &dyn Fn(Bytes) -> Cell,
    ) -> Result<Option<Complex>, UnreadableRow> {
        let (timestamp, mut complex) = (self.row.liveness.timestamp, Complex::empty());
        if self.value(logged.deleted).is_some() {
            // Of the elements that were there before the write.
            let before = timestamp.saturating_sub(1);
            complex.deletion = DeletionTime::new(before, seconds(before));
        }
        let broken = || self.unreadable("a collection in it cannot be read");
        if let Some(value) = self.value(logged.value) {
            for (path, value) in elements(&logged.ty, &value).ok_or_else(broken)? {
                complex.cells.push(ComplexCell { path, cell: cell(value) });
            }
        }
        if let Some(paths) = self.value(gone) {
            for path in Elements::of_set(&paths).map_err(|_| broken())? {
                let path = path.ok().flatten().ok_or_else(broken)?;
                complex
                    .cells
                    .push(ComplexCell { path: Bytes::copy_from_slice(path), cell: self.tombstone() });
            }
        }
        let order = |one: &ComplexCell, other: &ComplexCell| {
            mutation::row::compare_paths(&logged.ty, &one.path, &other.path)
        };
        complex.cells.sort_by(order);
        Ok((!complex.is_empty()).then_some(complex))
    }
}

/// The elements of a column's value in the log: path, value; none for bytes that are no such value.
fn elements(ty: &CqlType, value: &[u8]) -> Option<Vec<(Bytes, Bytes)>> {
    let copy = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
    match ty {
        CqlType::Set { .. } => {
            let paths = Elements::of_set(value).ok()?;
            paths.map(|path| Some((copy(path.ok()??), Bytes::new()))).collect()
        }
        CqlType::Udt { .. } => {
            let fields = Fields::new(value).enumerate();
            let read = fields.map(|(at, field)| {
                let path = copy(&u16::try_from(at).ok()?.to_be_bytes());
                Some(field.ok()?.map(|value| (path, copy(value))))
            });
            read.collect::<Option<Vec<_>>>().map(|fields| fields.into_iter().flatten().collect())
        }
        _ => {
            let mut map = Elements::of_map(value).ok()?;
            let mut out = Vec::with_capacity(map.len() / 2);
            while let Some(key) = map.next() {
                out.push((copy(key.ok()??), copy(map.next()?.ok()??)));
            }
            Some(out)
        }
    }
}
