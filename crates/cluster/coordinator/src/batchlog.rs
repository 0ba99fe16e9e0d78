//! The logged batches that a shard stores, its own and those of other nodes' coordinators: rows of `system.batches`, and which of them are
//! there (docs/design/batchlog.md). `logged` writes and completes batches.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mutation::{DecoratedKey, PartitionRange, PartitionUpdate};
use replica::{Keys, Limits, Origin, Partitions, Read, ReadCommand, Replica, ReplicaError, Write};
use rt::{Instant, Rt};
use schema::{Schema, Table};
use types::uuid;

use crate::batch_row::{self, StoredBatch, table_of};

/// Keys of batches looked at in one step.
const PAGE_KEYS: usize = 1_024;
/// Batches read at once by a start.
const PAGE_ROWS: u64 = 64;
/// Bytes of batches read at once.
const PAGE_BYTES: usize = 4 << 20;

/// Bytes of memory of a stored batch: its key, its place in the ordered map, and since when it is there.
pub const KEPT_BATCH_BYTES: usize = 112;
/// Bytes of memory of the stored batches of a shard, unless it is set otherwise.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Figures since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchlogStats {
    /// Batches that were kept before they were applied.
    pub logged: u64,
    /// Batches that were applied again.
    pub replayed: u64,
    /// Batches of several nodes that are kept now, for this node and for others.
    pub kept: u64,
    /// Bytes of memory of these.
    pub kept_bytes: u64,
    /// Writes that were refused because too many batches are stored.
    pub refused: u64,
}

/// The batches of one shard.
#[derive(Clone)]
pub(crate) struct Batchlog(Rc<Inner>);

struct Inner {
    rt: Rt,
    replica: Replica,
    schema: RefCell<Arc<Schema>>,
    /// Batches of several nodes that are being applied now.
    active: RefCell<BTreeSet<DecoratedKey>>,
    /// Stored batches of several nodes, and since when: to find unfinished ones without reading a table that is
    /// nearly all deletions, and independently of wall clocks.
    kept: RefCell<BTreeMap<DecoratedKey, Instant>>,
    /// See [`Batchlog::pass_end`].
    pass_end: RefCell<Option<DecoratedKey>>,
    /// When the last batch was taken up, microseconds; [`i64::MIN`] for never.
    latest_micros: Cell<i64>,
    stats: Cell<BatchlogStats>,
    /// Bytes of memory that the stored batches may take before writes that store more are refused.
    kept_bytes_max: Cell<usize>,
}

/// A batch of several nodes that this shard is applying.
pub(crate) struct Active {
    log: Batchlog,
    pub(crate) batch: StoredBatch,
}

impl Drop for Active {
    fn drop(&mut self) {
        let was_active = self.log.0.active.borrow_mut().remove(&self.batch.key);
        assert!(was_active, "a batch is applied by the one that has begun it");
    }
}

impl Batchlog {
    pub(crate) fn new(rt: &Rt, replica: &Replica, schema: &Arc<Schema>) -> Self {
        Self(Rc::new(Inner {
            rt: rt.clone(),
            replica: replica.clone(),
            schema: RefCell::new(schema.clone()),
            active: RefCell::default(),
            kept: RefCell::default(),
            pass_end: RefCell::default(),
            latest_micros: Cell::new(i64::MIN),
            stats: Cell::default(),
            kept_bytes_max: Cell::new(KEPT_BYTES_MAX),
        }))
    }

    /// Takes over a changed schema.
    pub(crate) fn use_schema(&self, schema: &Arc<Schema>) {
        *self.0.schema.borrow_mut() = schema.clone();
    }

    pub(crate) fn stats(&self) -> BatchlogStats {
        let kept_bytes = self.kept_bytes() as u64;
        BatchlogStats { kept: self.0.kept.borrow().len() as u64, kept_bytes, ..self.0.stats.get() }
    }

    fn kept_bytes(&self) -> usize {
        self.0.kept.borrow().len() * KEPT_BATCH_BYTES
    }

    /// Changes how many bytes of memory the stored batches may take before writes that store more are refused.
    pub(crate) fn set_kept_bytes_max(&self, bytes: usize) {
        self.0.kept_bytes_max.set(bytes);
    }

    /// Whether one more batch may be stored.
    ///
    /// # Errors
    /// The sentence for the client when those that are stored, because replicas of their updates are down, take all of their memory.
    pub(crate) fn check_room(&self) -> Result<(), String> {
        if self.kept_bytes() + KEPT_BATCH_BYTES <= self.0.kept_bytes_max.get() {
            return Ok(());
        }
        self.count(|stats| stats.refused += 1);
        Err(format!(
            "{} logged batches and updates of views or CDC logs wait on this shard for replicas that are down, and no more are \
             stored; bring these nodes back",
            self.0.kept.borrow().len()
        ))
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
        assert!(self.0.active.borrow_mut().insert(key.clone()), "a batch has a key of its own");
        self.note_kept(key.clone(), at_micros);
        self.count(|stats| stats.logged += 1);
        let batch = StoredBatch::new(key, at_micros, updates);
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

    /// Batches of several nodes that are kept here for longer than `age`, and that this shard is not applying: of the next [`PAGE_KEYS`]
    /// behind `after`, and where the page ends, if others are behind it.
    pub(crate) fn left(
        &self,
        age: Duration,
        after: Option<&DecoratedKey>,
    ) -> (Vec<DecoratedKey>, Option<DecoratedKey>) {
        let now = self.0.rt.now();
        let (active, kept) = (self.0.active.borrow(), self.0.kept.borrow());
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut page, mut end) = (Vec::new(), None);
        for (looked_at, (key, since)) in kept.range((begin, Bound::Unbounded)).enumerate() {
            if looked_at == PAGE_KEYS {
                assert!(end.is_some(), "the next page begins behind this one");
                return (page, end);
            }
            if now - *since >= age && !active.contains(key) {
                page.push(key.clone());
            }
            end = Some(key.clone());
        }
        assert!(page.len() <= PAGE_KEYS, "a page is looked at in one step");
        (page, None)
    }

    /// Where the last pass over the batches that are left has ended, if it was before all of them. The next one begins there.
    pub(crate) fn pass_end(&self) -> &RefCell<Option<DecoratedKey>> {
        &self.0.pass_end
    }

    /// Reads a batch, on any shard of this node; none when it was removed.
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
        let batches = table_of(&self.0.schema.borrow()).map(|table| table.id);
        self.0.latest_micros.set(at_micros);
        loop {
            let mut random = [0; 8];
            rt.fill_random(&mut random);
            let random = u64::from_be_bytes(random);
            let clock_and_node = uuid::clock_and_node((random >> 48) as u16, random);
            let id = uuid::time_uuid(at_micros.saturating_mul(10), clock_and_node);
            let key = DecoratedKey::new(id.to_vec().into());
            if batches.is_none_or(|table| replica.shard_of(table, key.token) == rt.shard().0) {
                return (key, at_micros);
            }
        }
    }

    /// Learns which batches this shard keeps.
    ///
    /// # Errors
    /// When `system.batches` cannot be read.
    pub(crate) async fn load(&self) -> Result<(), ReplicaError> {
        let schema = self.0.schema.borrow().clone();
        let Some(batches) = table_of(&schema) else { return Ok(()) };
        let mut command = read_of(batches, Partitions::Range(PartitionRange::all()));
        command.limits = Limits { rows: PAGE_ROWS, rows_per_partition: u64::MAX, bytes: PAGE_BYTES };
        loop {
            let read = Read::of(&command).here().over_all_tombstones();
            let page = self.0.replica.read(read).await?;
            for partition in &page.partitions {
                let batch = StoredBatch::read(batches, partition);
                self.note_kept(batch.key, batch.at_micros);
            }
            if page.more.is_none() {
                return Ok(());
            }
            command.resume = page.more;
        }
    }
}

/// Reads kept batches.
fn read_of(batches: &Arc<Table>, partitions: Partitions) -> ReadCommand {
    ReadCommand { bypass_cache: true, ..ReadCommand::all_of(batches.clone(), partitions, 0) }
}
