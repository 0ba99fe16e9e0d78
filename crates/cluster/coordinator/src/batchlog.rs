//! Logged batches over several shards of this node: all or none, also across a crash. (`logged` has those over several nodes.)
//!
//! The whole batch is kept in `system.batches` before any of it is applied, and taken out when all of it is. What is still
//! there at a start, or when applying failed, is applied again (docs/design/batchlog.md).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mutation::{DecoratedKey, PartitionRange, PartitionUpdate};
use replica::{
    Keys, Limits, Origin, Partitions, Read, ReadCommand, Replica, ReplicaError, TraceLog, Truncation, Write,
};
use rt::{Group, Instant, Rt};
use schema::{Schema, Table};

use crate::batch_row::{self, Scope, StoredBatch, table_of};

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
    /// Batches of several nodes that are kept now, for this node and for others.
    pub kept: u64,
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
    /// Batches of several nodes that are being applied now.
    active: RefCell<BTreeSet<DecoratedKey>>,
    /// Batches of several nodes that are kept, and since when: to find those that were left without reading a table that is
    /// nearly all deletions, and whatever wall clocks show.
    kept: RefCell<BTreeMap<DecoratedKey, Instant>>,
    /// When the last batch was taken up, microseconds; [`i64::MIN`] for never.
    latest_micros: Cell<i64>,
    stats: Cell<BatchlogStats>,
}

/// A batch that is kept, until it was applied: when that does not end well, it is tried again later.
struct Unapplied<'a> {
    log: &'a Batchlog,
    key: Option<DecoratedKey>,
}

impl Drop for Unapplied<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.log.0.failed.borrow_mut().insert(key);
            self.log.retry_later();
        }
    }
}

/// A batch of several nodes that this shard is applying.
pub(crate) struct Active {
    log: Batchlog,
    pub(crate) batch: StoredBatch,
}

impl Drop for Active {
    fn drop(&mut self) {
        self.log.0.active.borrow_mut().remove(&self.batch.key);
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
            active: RefCell::default(),
            kept: RefCell::default(),
            latest_micros: Cell::new(i64::MIN),
            stats: Cell::default(),
        }))
    }

    /// Takes over a changed schema.
    pub(crate) fn use_schema(&self, schema: &Arc<Schema>) {
        *self.0.schema.borrow_mut() = schema.clone();
    }

    pub(crate) fn stats(&self) -> BatchlogStats {
        BatchlogStats {
            waiting: self.0.failed.borrow().len() as u64,
            kept: self.0.kept.borrow().len() as u64,
            ..self.0.stats.get()
        }
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
        trace: Option<&TraceLog>,
    ) -> Result<(), BatchError> {
        let replica = &self.0.replica;
        let (key, at_micros) = self.new_key();
        let batch = StoredBatch::new(key.clone(), at_micros, Scope::Node, updates.iter());
        let row = Write::one(Origin::System, batch.row(batches)).traced(trace);
        replica.apply(row).await.map_err(BatchError::NotLogged)?;
        self.count(|stats| stats.logged += 1);
        let mut kept = Unapplied { log: self, key: Some(key) };
        let write = Write::all(Origin::Client, updates).with_truncation(Truncation::LeavesOut(at_micros));
        replica.apply(write.traced(trace)).await.map_err(BatchError::NotApplied)?;
        if let Some(key) = kept.key.take() {
            self.forget(batches, key, at_micros).await;
        }
        Ok(())
    }

    /// Takes a batch out. When that fails it is applied again later, which changes nothing.
    pub(crate) async fn forget(&self, batches: &Arc<Table>, key: DecoratedKey, at_micros: i64) {
        self.0.rt.buggify("batchlog: a batch is applied, and not removed").await;
        self.note_gone(&key);
        let removal = batch_row::removal(batches, key.clone(), at_micros, self.0.rt.wall_micros());
        if let Err(error) = self.0.replica.apply(Write::one(Origin::System, removal)).await {
            self.note_kept(key, at_micros);
            tracing::debug!("a batch that was applied stays in system.batches: {error}");
        }
    }

    /// A batch of several nodes that begins to be kept and applied here: until the result is dropped it is not replayed.
    pub(crate) fn begin<'a>(&self, updates: impl Iterator<Item = &'a PartitionUpdate>) -> Active {
        let (key, at_micros) = self.new_key();
        self.0.active.borrow_mut().insert(key.clone());
        self.note_kept(key.clone(), at_micros);
        self.count(|stats| stats.logged += 1);
        let batch = StoredBatch::new(key, at_micros, Scope::Cluster, updates);
        Active { log: self.clone(), batch }
    }

    /// A batch of several nodes is kept: until it is taken out, this shard sees to it. A truncation must be later.
    pub(crate) fn note_kept(&self, key: DecoratedKey, at_micros: i64) {
        self.0.latest_micros.set(self.0.latest_micros.get().max(at_micros));
        self.0.kept.borrow_mut().insert(key, self.0.rt.now());
    }

    /// A batch of several nodes is not kept any more.
    pub(crate) fn note_gone(&self, key: &DecoratedKey) {
        self.0.kept.borrow_mut().remove(key);
    }

    /// Batches of several nodes that are kept here for longer than `age`, and that this shard is not applying.
    pub(crate) fn left(&self, age: Duration) -> Vec<DecoratedKey> {
        let now = self.0.rt.now();
        let (active, kept) = (self.0.active.borrow(), self.0.kept.borrow());
        let left = kept.iter().filter(|(key, since)| now - **since >= age && !active.contains(key));
        left.map(|(key, _)| key.clone()).collect()
    }

    /// Reads a batch, on whatever shard of this node it is; none when it was taken out.
    pub(crate) async fn find(&self, key: &DecoratedKey) -> Result<Option<StoredBatch>, ReplicaError> {
        let schema = self.0.schema.borrow().clone();
        let Some(batches) = table_of(&schema) else { return Ok(None) };
        let command = read_of(batches, Partitions::Keys(Keys::from_elem(key.clone(), 1)));
        let page = self.0.replica.read(Read::of(&command)).await?;
        Ok(page.partitions.first().map(|partition| StoredBatch::read(batches, partition)))
    }

    pub(crate) fn note_replayed(&self) {
        self.count(|stats| stats.replayed += 1);
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

    /// Applies every batch that this shard keeps for the shards of its node; how many there were. Those of several nodes
    /// wait until these are known.
    pub(crate) async fn replay(&self) -> Result<u64, ReplicaError> {
        let schema = self.0.schema.borrow().clone();
        let Some(batches) = table_of(&schema) else { return Ok(0) };
        let mut command = read_of(batches, Partitions::Range(PartitionRange::all()));
        command.limits = Limits { rows: PAGE_ROWS, rows_per_partition: u64::MAX, bytes: PAGE_BYTES };
        let mut replayed = 0;
        loop {
            let read = Read::of(&command).here().over_all_tombstones();
            let page = self.0.replica.read(read).await?;
            for partition in &page.partitions {
                let batch = StoredBatch::read(batches, partition);
                match batch.scope {
                    Scope::Cluster => self.note_kept(batch.key, batch.at_micros),
                    Scope::Node => {
                        self.replay_one(&schema, batch).await?;
                        replayed += 1;
                    }
                }
            }
            if page.more.is_none() {
                return Ok(replayed);
            }
            command.resume = page.more;
        }
    }

    async fn replay_one(&self, schema: &Arc<Schema>, batch: StoredBatch) -> Result<(), ReplicaError> {
        let updates = batch.fresh_updates(schema, self.0.rt.wall_micros())?;
        if !updates.is_empty() {
            // What was truncated since must not come back either.
            let write = Write::all(Origin::Batchlog, updates);
            let write = write.with_truncation(Truncation::LeavesOut(batch.at_micros));
            self.0.replica.apply(write).await?;
        }
        if let Some(batches) = table_of(schema) {
            self.forget(batches, batch.key, batch.at_micros).await;
        }
        self.note_replayed();
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
            let command = read_of(batches, Partitions::Keys(Keys::from_elem(key.clone(), 1)));
            let done = async {
                let read = Read::of(&command).here().over_all_tombstones();
                for partition in &self.0.replica.read(read).await?.partitions {
                    self.replay_one(&schema, StoredBatch::read(batches, partition)).await?;
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

/// Reads kept batches.
fn read_of(batches: &Arc<Table>, partitions: Partitions) -> ReadCommand {
    ReadCommand { bypass_cache: true, ..ReadCommand::all_of(batches.clone(), partitions, 0) }
}
