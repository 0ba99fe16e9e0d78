//! Logged batches over several shards: all or none, also across a crash.
//!
//! The whole batch is kept in `system.batches` before any of it is applied, and taken out when all of it is. What is still
//! there at a start, or when applying failed, is applied again (docs/design/batchlog.md).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mutation::row::ColumnData;
use mutation::{
    Cell as Value, Clustering, ColumnSelection, Complex, ComplexCell, DecoratedKey, DeletionTime,
    LivenessInfo, PartitionRange, PartitionUpdate, Row, Slices,
};
use replica::{Form, Keys, Limits, PartitionResult, Partitions, ReadCommand, Replica, ReplicaError};
use rt::{Group, Rt};
use schema::{Schema, Table};

/// Version of the form in which updates are kept.
const VERSION: i32 = 1;
/// 100 ns between the epoch of UUIDs (1582) and that of Unix.
const UUID_EPOCH: i64 = 0x01b2_1dd2_1381_4000;
/// Batches read at once by a replay.
const PAGE_ROWS: u64 = 64;
/// Bytes of batches read at once.
const PAGE_BYTES: usize = 4 << 20;
/// Pause before batches that failed are tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Why a logged batch failed.
pub(crate) enum BatchError {
    /// It was not kept: nothing of it was applied.
    NotLogged(ReplicaError),
    /// It is kept, and a part of it could not be applied yet.
    NotApplied(ReplicaError),
}

/// Figures since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchlogStats {
    /// Batches that were kept before they were applied.
    pub logged: u64,
    /// Batches that were applied again.
    pub replayed: u64,
    /// Batches that wait to be applied again.
    pub waiting: u64,
}

/// The batches of one shard.
#[derive(Clone)]
pub(crate) struct Batchlog(Rc<Inner>);

struct Inner {
    rt: Rt,
    replica: Replica,
    schema: RefCell<Arc<Schema>>,
    /// Batches that are kept and were not applied wholly.
    failed: RefCell<BTreeSet<DecoratedKey>>,
    retrying: Cell<bool>,
    /// When the last batch was taken up, microseconds; [`i64::MIN`] for never.
    latest_micros: Cell<i64>,
    stats: Cell<BatchlogStats>,
}

/// A batch that is kept, until it was applied: when that does not end well, it is tried again later.
struct Kept<'a> {
    log: &'a Batchlog,
    key: Option<DecoratedKey>,
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.log.0.failed.borrow_mut().insert(key);
            self.log.retry_later();
        }
    }
}

impl Batchlog {
    pub(crate) fn new(rt: &Rt, replica: &Replica, schema: &Arc<Schema>) -> Self {
        Self(Rc::new(Inner {
            rt: rt.clone(),
            replica: replica.clone(),
            schema: RefCell::new(schema.clone()),
            failed: RefCell::default(),
            retrying: Cell::new(false),
            latest_micros: Cell::new(i64::MIN),
            stats: Cell::default(),
        }))
    }

    /// Takes over a changed schema.
    pub(crate) fn use_schema(&self, schema: &Arc<Schema>) {
        *self.0.schema.borrow_mut() = schema.clone();
    }

    pub(crate) fn stats(&self) -> BatchlogStats {
        BatchlogStats { waiting: self.0.failed.borrow().len() as u64, ..self.0.stats.get() }
    }

    /// When the last batch was taken up, microseconds; [`i64::MIN`] for never.
    pub(crate) fn latest_micros(&self) -> i64 {
        self.0.latest_micros.get()
    }

    fn count(&self, change: impl FnOnce(&mut BatchlogStats)) {
        let mut stats = self.0.stats.get();
        change(&mut stats);
        self.0.stats.set(stats);
    }

    /// Applies updates of several shards, all or none.
    pub(crate) async fn apply(
        &self,
        batches: &Arc<Table>,
        updates: Vec<PartitionUpdate>,
    ) -> Result<(), BatchError> {
        let replica = &self.0.replica;
        let (key, at_micros) = self.new_key();
        let row = keep(batches, &key, at_micros, &updates);
        replica.apply_here(row).await.map_err(BatchError::NotLogged)?;
        self.count(|stats| stats.logged += 1);
        let mut kept = Kept { log: self, key: Some(key) };
        replica.apply_since(updates, at_micros).await.map_err(BatchError::NotApplied)?;
        if let Some(key) = kept.key.take() {
            self.forget(batches, key, at_micros).await;
        }
        Ok(())
    }

    /// Takes a batch out. When that fails it is applied again at the next start, which changes nothing.
    async fn forget(&self, batches: &Arc<Table>, key: DecoratedKey, at_micros: i64) {
        let mut update = PartitionUpdate::new(batches.clone(), key);
        let seconds = u32::try_from(self.0.rt.wall_micros() / 1_000_000).unwrap_or(0);
        update.add_deletion(DeletionTime::new(at_micros, seconds));
        if let Err(error) = self.0.replica.apply_here(update).await {
            tracing::debug!("a batch that was applied stays in system.batches: {error}");
        }
    }

    /// A time-based UUID whose token this shard owns, and its time in microseconds: later than that of all batches before,
    /// and of all truncations, also when the wall clock went back.
    fn new_key(&self) -> (DecoratedKey, i64) {
        let (rt, replica) = (&self.0.rt, &self.0.replica);
        let before = self.0.latest_micros.get().max(replica.engine().truncated_latest());
        let at_micros = rt.wall_micros().max(before.saturating_add(1));
        self.0.latest_micros.set(at_micros);
        loop {
            let mut id = [0; 16];
            rt.fill_random(&mut id[8..]);
            let ticks = (at_micros * 10 + UUID_EPOCH) as u64;
            id[..4].copy_from_slice(&(ticks as u32).to_be_bytes());
            id[4..6].copy_from_slice(&((ticks >> 32) as u16).to_be_bytes());
            id[6..8].copy_from_slice(&((ticks >> 48) as u16 & 0x0fff | 0x1000).to_be_bytes());
            id[8] = id[8] & 0x3f | 0x80;
            let key = DecoratedKey::new(id.to_vec().into());
            if replica.shard_of(key.token) == rt.shard().0 {
                return (key, at_micros);
            }
        }
    }

    /// Applies every batch of this shard that is kept; how many there were.
    pub(crate) async fn replay(&self) -> Result<u64, ReplicaError> {
        let schema = self.0.schema.borrow().clone();
        let Some(batches) = table_of(&schema) else { return Ok(0) };
        let mut command = ReadCommand {
            table: batches.clone(),
            partitions: Partitions::Range(PartitionRange::all()),
            slices: Slices::all(),
            columns: ColumnSelection::All,
            reversed: false,
            limits: Limits { rows: PAGE_ROWS, rows_per_partition: u64::MAX, bytes: PAGE_BYTES },
            resume: None,
            now: 0,
            bypass_cache: true,
            form: Form::Live,
        };
        let mut replayed = 0;
        loop {
            let page = self.0.replica.read_here(&command).await?;
            for partition in &page.partitions {
                self.replay_one(&schema, batches, partition).await?;
                replayed += 1;
            }
            if page.more.is_none() {
                return Ok(replayed);
            }
            command.resume = page.more;
        }
    }

    async fn replay_one(
        &self,
        schema: &Arc<Schema>,
        batches: &Arc<Table>,
        kept: &PartitionResult,
    ) -> Result<(), ReplicaError> {
        let now = self.0.rt.wall_micros();
        let (updates, at_micros) = kept_updates(schema, batches, kept)?;
        // What was deleted since may be purged after gc_grace: what is older than that must not come back.
        let fresh = |update: &PartitionUpdate| {
            let age = (now - at_micros) / 1_000_000;
            age < i64::from(update.table.options.gc_grace_seconds)
        };
        let updates: Vec<PartitionUpdate> = updates.into_iter().filter(fresh).collect();
        if !updates.is_empty() {
            // What was truncated since must not come back either.
            self.0.replica.apply_since(updates, at_micros).await?;
        }
        self.forget(batches, kept.key.clone(), at_micros).await;
        self.count(|stats| stats.replayed += 1);
        Ok(())
    }

    /// Sees to it that batches which failed are tried again.
    fn retry_later(&self) {
        if self.0.retrying.replace(true) {
            return;
        }
        let log = self.clone();
        let retry = async move {
            while !log.0.failed.borrow().is_empty() {
                log.0.rt.sleep(RETRY_PAUSE).await;
                log.retry().await;
            }
            log.0.retrying.set(false);
        };
        self.0.rt.spawn(Group::Maintenance, retry).detach();
    }

    async fn retry(&self) {
        let schema = self.0.schema.borrow().clone();
        let Some(batches) = table_of(&schema) else { return };
        let failed: Vec<DecoratedKey> = self.0.failed.borrow().iter().cloned().collect();
        for key in failed {
            let command = ReadCommand {
                table: batches.clone(),
                partitions: Partitions::Keys(Keys::from_elem(key.clone(), 1)),
                slices: Slices::all(),
                columns: ColumnSelection::All,
                reversed: false,
                limits: Limits::NONE,
                resume: None,
                now: 0,
                bypass_cache: true,
                form: Form::Live,
            };
            let done = async {
                for partition in &self.0.replica.read_here(&command).await?.partitions {
                    self.replay_one(&schema, batches, partition).await?;
                }
                Ok::<_, ReplicaError>(())
            };
            match done.await {
                Ok(()) => drop(self.0.failed.borrow_mut().remove(&key)),
                Err(error) => {
                    tracing::warn!(
                        "a logged batch could not be completed yet and will be tried again: {error}"
                    );
                    return;
                }
            }
        }
    }
}

/// The table of kept batches.
pub(crate) fn table_of(schema: &Schema) -> Option<&Arc<Table>> {
    schema.table("system", "batches")
}

/// The row that keeps a batch.
fn keep(
    batches: &Arc<Table>,
    key: &DecoratedKey,
    at_micros: i64,
    updates: &[PartitionUpdate],
) -> PartitionUpdate {
    let mut row = Row::new(Clustering::empty());
    row.liveness = LivenessInfo::forever(at_micros);
    if let Some(column) = batches.column("version") {
        let version = VERSION.to_be_bytes().to_vec();
        row.set(column.id, ColumnData::Simple(Value::live(at_micros, version.into())));
    }
    if let Some(column) = batches.column("mutations") {
        let one = |(place, update): (usize, &PartitionUpdate)| {
            let mut bytes = Vec::new();
            replica::codec::encode_update(update, &mut bytes);
            ComplexCell { path: path(&key.key, place).into(), cell: Value::live(at_micros, bytes.into()) }
        };
        let cells = updates.iter().enumerate().map(one).collect();
        row.set(column.id, ColumnData::Complex(Complex { cells, ..Complex::empty() }));
    }
    let mut update = PartitionUpdate::new(batches.clone(), key.clone());
    update.add_row(row);
    update
}

/// The key of a list's element: time-based UUIDs that rise with the place, whichever way their bytes are compared.
fn path(id: &[u8], place: usize) -> Vec<u8> {
    let mut path = id.to_vec();
    for (at, shift) in [(12, 21), (13, 14), (14, 7), (15, 0)] {
        path[at] = (place >> shift) as u8 & 0x7f;
    }
    path
}

/// What a row keeps, and since when. Updates of tables that are gone are left out.
fn kept_updates(
    schema: &Schema,
    batches: &Table,
    kept: &PartitionResult,
) -> Result<(Vec<PartitionUpdate>, i64), ReplicaError> {
    let mut updates = Vec::new();
    let mut at_micros = i64::MIN;
    let column = batches.column("mutations").map(|column| column.id);
    for row in &kept.rows {
        at_micros = at_micros.max(row.liveness.timestamp);
        for (id, data) in row.columns() {
            let (ColumnData::Complex(list), true) = (data, Some(*id) == column) else { continue };
            for element in &list.cells {
                let bytes = &element.cell.value;
                let update = replica::codec::decode_update(bytes, |id| schema.table_by_id(id).cloned());
                let unreadable = |error: &dyn std::fmt::Display| {
                    ReplicaError::Storage(format!("a batch in system.batches cannot be read: {error}"))
                };
                updates.extend(update.map_err(|error| unreadable(&error))?);
            }
        }
    }
    Ok((updates, at_micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_in_the_order_of_their_places() {
        let paths: Vec<Vec<u8>> = [0, 1, 127, 128, 129, 20_000].map(|place| path(&[0x91; 16], place)).into();
        assert!(paths.is_sorted());
        assert!(paths.iter().all(|path| path[12..].iter().all(|byte| *byte < 0x80)));
    }
}
