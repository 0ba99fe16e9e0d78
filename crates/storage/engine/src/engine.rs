//! The handle of one shard's storage, and the state that its parts share. Each part keeps its own state ([`crate::flushes`],
//! [`crate::compactions`], [`crate::memory`], …); here are their composition, and the admission of reads and writes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use cache::Cache;
use commitlog::CommitLog;
use compaction::Throttle;
use mutation::PartitionUpdate;
use rt::sync::Notify;
use rt::{DiskError, Rt, Task};
use schema::{Schema, Table, TableId};
use sstable::Owner;
use topology::{HostId, TableSharder, TabletMaps};

use crate::awaited::AwaitedFiles;
use crate::blocks::Blocks;
use crate::compactions::Compactions;
use crate::counter_id::CounterIds;
use crate::counter_state::CounterState;
use crate::error::is_shortage;
use crate::flushes::Flushes;
use crate::health::Health;
use crate::live::Trash;
use crate::locks::PartitionLocks;
use crate::memory::Memory;
use crate::request::{Origin, Updates, Write};
use crate::sharding::Sharding;
use crate::store::{Store, count};
use crate::tables::Tables;
use crate::{EngineConfig, EngineSettings, FailurePolicy, ReadError, WriteError};

/// The consequences of a write beside the updates that are applied with it.
pub trait FollowUp {
    /// The write is in its memtables and on its way into the log. A follow-up that is dropped before was of a write that was not applied.
    fn applied(&mut self);

    /// The write is as durable as it has to be before it is acknowledged, and is acknowledged when the result has ended.
    ///
    /// # Errors
    /// [`WriteError::FollowUp`] when updates that follow from the write are not stored in time; the write itself is.
    fn durable(self: Box<Self>) -> Pin<Box<dyn Future<Output = Result<(), WriteError>>>>;
}

/// The result of [`WriteObserver::derive`].
#[derive(Default)]
pub struct Derivation {
    /// Updates that are applied with the write.
    pub updates: Updates,
    /// Further consequences.
    pub follow_up: Option<Box<dyn FollowUp>>,
}

impl From<Updates> for Derivation {
    fn from(updates: Updates) -> Self {
        Self { updates, follow_up: None }
    }
}

/// A derivation under way.
pub type Derived<'a> = Pin<Box<dyn Future<Output = Result<Derivation, WriteError>> + 'a>>;

/// A schema that is being taken over.
pub type TakenOver<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Derives updates from the updates of base tables, before they are applied. Replaying the log does not observe again: the entry holds
/// the derived updates. SSTables that are adopted from other nodes are not observed.
pub trait WriteObserver {
    /// Whether something may follow from writes of this table by this origin. Asked for every update; the others cost nothing more.
    fn observes(&self, table: &Table, origin: Origin) -> bool;

    /// The consequences of an update of a base table, whose partition no other write changes until that is applied: a read of `engine`
    /// gives the partition as it was before. The derived updates are applied on this shard with the update, all or none, and not observed.
    ///
    /// # Errors
    ///
    /// Nothing of the write is applied then.
    fn derive<'a>(&'a self, engine: &'a Engine, origin: Origin, update: &'a PartitionUpdate) -> Derived<'a>;

    /// Takes over a changed schema, after the shard's tables have. The change takes effect in the last step.
    fn use_schema<'a>(&'a self, _before: &'a Schema, _schema: &'a Schema) -> TakenOver<'a> {
        Box::pin(std::future::ready(()))
    }

    /// Whether it observes any table of the schema. While none does, writes ask nothing else.
    fn is_needed(&self) -> bool {
        true
    }
}

/// The observers of a shard.
#[derive(Default)]
pub(crate) struct Observers {
    some: Cell<bool>,
    /// How often the schema has changed.
    pub(crate) changes: Cell<u64>,
    pub(crate) all: RefCell<Vec<Rc<dyn WriteObserver>>>,
    pub(crate) locks: PartitionLocks,
}

impl Observers {
    /// One more.
    pub(crate) fn add(&self, observer: Rc<dyn WriteObserver>) {
        self.some.set(self.some.get() || observer.is_needed());
        self.all.borrow_mut().push(observer);
    }

    async fn use_schema(&self, before: &Schema, schema: &Schema) {
        let observers = self.all.borrow().clone();
        for observer in &observers {
            observer.use_schema(before, schema).await;
            // In the step in which it has changed, and so where its last await is.
            self.some.set(observers.iter().any(|observer| observer.is_needed()));
            self.changes.set(self.changes.get() + 1);
        }
    }

    /// Whether nobody observes this write.
    #[inline]
    pub(crate) fn ignore(&self, write: &Write) -> bool {
        self.ignore_updates(&write.updates, write.origin)
    }

    /// Whether nobody observes these updates.
    #[inline]
    pub(crate) fn ignore_updates(&self, updates: &[PartitionUpdate], origin: Origin) -> bool {
        !self.some.get() || !self.observe(updates, origin)
    }

    #[inline(never)]
    fn observe(&self, updates: &[PartitionUpdate], origin: Origin) -> bool {
        let all = self.all.borrow();
        let is_observed =
            |update: &PartitionUpdate| all.iter().any(|observer| observer.observes(&update.table, origin));
        updates.iter().any(is_observed)
    }
}

/// One shard's storage. Cheap to clone; belongs to one shard.
#[derive(Clone)]
pub struct Engine(pub(crate) Rc<Inner>);

pub(crate) struct Inner {
    pub(crate) rt: Rt,
    pub(crate) config: EngineConfig,
    pub(crate) settings: Cell<EngineSettings>,
    pub(crate) log: CommitLog,
    pub(crate) tables: Tables,
    pub(crate) cache: Cache,
    pub(crate) blocks: Rc<dyn sstable::BlockCache>,
    pub(crate) trash: Rc<Trash>,
    pub(crate) memory: Memory,
    pub(crate) flushes: Flushes,
    pub(crate) sharding: Sharding,
    /// Notified when an index may be missing.
    pub(crate) index_check: Notify,
    pub(crate) compactions: Compactions,
    pub(crate) health: Health,
    pub(crate) counters: CounterState,
    /// The observers that see writes before they are applied.
    pub(crate) observers: Observers,
    /// The files that imports under way bring.
    pub(crate) imports: RefCell<BTreeMap<TableId, AwaitedFiles>>,
    /// The log is being replayed.
    pub(crate) replaying: Cell<bool>,
    /// See [`Engine::truncated_latest`].
    pub(crate) truncated_latest: Cell<i64>,
    tasks: RefCell<Vec<Task<()>>>,
}

impl Engine {
    /// The shard of this node that owns a token of a table.
    #[inline]
    pub fn shard_of(&self, table: TableId, token: i64) -> u16 {
        self.0.sharding.shard_of(table, token)
    }

    /// The shards of this node that own the tokens of a table.
    pub fn own_sharder(&self, table: TableId) -> TableSharder {
        self.0.sharding.sharder_of(table)
    }

    /// The shards of a node that own the tokens of a table.
    pub fn sharder(&self, node: HostId, shard_count: u16, table: TableId) -> TableSharder {
        self.0.sharding.sharder(node, shard_count, table)
    }

    /// Takes over the tablets of a changed view.
    pub fn use_tablets(&self, tablets: &TabletMaps) {
        self.0.sharding.use_tablets(tablets);
    }
}

impl Inner {
    /// A shard's storage without tables, that is about to replay its log.
    pub(crate) fn new(rt: Rt, config: EngineConfig, log: CommitLog) -> Rc<Self> {
        let cache = Cache::new(config.cache_bytes_max);
        let executor = rt.executor().clone();
        let inner = Rc::new(Self {
            counters: CounterState::new(CounterIds::new(&rt, &config)),
            memory: Memory::new(config.memtable_bytes_max, config.canaries.unlimited_memtables),
            compactions: Compactions::new(Throttle::new(config.settings.compaction_bytes_per_second)),
            blocks: Rc::new(Blocks(cache.clone())),
            flushes: Flushes::new(),
            sharding: Sharding::new(&rt, &config),
            index_check: Notify::new(),
            settings: Cell::new(config.settings),
            rt,
            config,
            log,
            tables: Tables::default(),
            cache,
            trash: Rc::default(),
            health: Health::default(),
            observers: Observers::default(),
            imports: RefCell::default(),
            replaying: Cell::new(true),
            truncated_latest: Cell::new(i64::MIN),
            tasks: RefCell::default(),
        });
        let ending = Rc::downgrade(&inner);
        executor.on_shutdown(move || {
            // Observers hold a coordinator, and that this engine.
            let observers = ending.upgrade().map(|inner| inner.observers.all.take());
            drop(observers);
        });
        inner
    }

    /// This shard, as SSTables name it.
    pub(crate) fn owner(&self) -> Owner {
        Owner { shard: self.rt.shard().0, shards: self.rt.shard_count() }
    }

    pub(crate) fn store(&self, table: TableId) -> Option<Rc<Store>> {
        self.tables.get(table)
    }

    pub(crate) fn store_of_write(&self, table: TableId) -> Result<Rc<Store>, WriteError> {
        self.store(table).ok_or(WriteError::UnknownTable(table))
    }

    /// All tables, by id: an order that does not depend on history.
    pub(crate) fn stores_in_order(&self) -> Vec<Rc<Store>> {
        self.tables.in_order()
    }

    /// See [`crate::schema_change::set_schema`].
    pub(crate) async fn set_schema(&self, schema: &Arc<Schema>, take_over: impl Fn(&Rc<Store>, &Arc<Table>)) {
        let before = self.tables.set_schema(&self.config.data_directory, schema, take_over).await;
        self.observers.use_schema(&before, schema).await;
        self.index_check.notify_one();
    }

    /// Keeps a task until it ends, or the storage is stopped.
    pub(crate) fn keep_task(&self, task: Task<()>) {
        let mut tasks = self.tasks.borrow_mut();
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }

    /// The background tasks, for the caller that stops the storage.
    pub(crate) fn take_tasks(&self) -> Vec<Task<()>> {
        std::mem::take(&mut *self.tasks.borrow_mut())
    }

    pub(crate) fn now_seconds(&self) -> mutation::Seconds {
        mutation::Seconds::try_from(self.rt.wall_micros() / 1_000_000).unwrap_or(0)
    }

    #[inline]
    pub(crate) fn can_write_now(&self) -> bool {
        !self.health.is_stopped() && !self.memory.is_full() && self.log.has_room()
    }

    #[cold]
    async fn wait_to_write(&self) -> Result<(), WriteError> {
        while self.memory.is_full() && !self.health.is_stopped() {
            self.flushes.check.notify_one();
            let waiting = self.memory.wait();
            self.memory.freed.notified().await;
            drop(waiting);
            if let Some(reason) = self.flushes.failure()
                && self.memory.is_full()
            {
                return Err(WriteError::CommitLog(format!(
                    "memtables are full and cannot be flushed: {reason}"
                )));
            }
        }
        self.log.wait_for_room().await;
        if self.health.is_stopped() { Err(WriteError::Stopped) } else { Ok(()) }
    }

    /// Waits until a write may begin.
    pub(crate) async fn admit_write(&self) -> Result<(), WriteError> {
        while !self.can_write_now() {
            self.wait_to_write().await?;
        }
        Ok(())
    }

    /// Applies an update to its memtable.
    pub(crate) fn apply_to(&self, store: &Store, update: PartitionUpdate, number: Option<u64>) {
        assert!(!store.dropped.get(), "a table that is dropped takes no writes");
        store.sample_write(&update.key);
        if number.is_none() {
            store.unlogged.set(true);
        }
        let (before, after) = store.memtables.apply(update, number, || self.rt.now());
        self.memory.changed(before, after);
        count(&store.counters.writes, 1);
        if self.memory.is_half_full() {
            self.flushes.check.notify_one();
        }
    }

    /// The disk failed the commit log, whether somebody waits for it or not.
    pub(crate) fn commit_log_failed(&self, error: &DiskError) {
        let policy = self.config.commit_failure_policy;
        if is_shortage(error) {
            return self.health.warn_of_log(format!("the commit log is tried again: {error}"));
        }
        if policy == FailurePolicy::Ignore {
            let text = format!("the commit log failed, which commit_failure_policy ignores: {error}");
            return self.health.warn_of_log(text);
        }
        if matches!(policy, FailurePolicy::Stop | FailurePolicy::Die) {
            self.health.stop_reads();
        }
        self.stop_by_failure(error, policy);
    }

    #[inline]
    pub(crate) fn admit_read(&self) -> Result<(), ReadError> {
        if self.health.refuses_reads() { Err(ReadError::Stopped) } else { Ok(()) }
    }

    /// Refuses writes from now on, because the disk failed; by the policy `Die` the whole node ends.
    pub(crate) fn stop_by_failure(&self, reason: &dyn std::fmt::Display, policy: FailurePolicy) {
        if !self.health.fail(reason) {
            return;
        }
        tracing::error!(
            shard = self.rt.shard().0,
            "the storage of this shard stops taking requests: {reason}. Fix the cause and start the node again"
        );
        if policy == FailurePolicy::Die {
            self.health.die(format!("the node ends because the disk failed: {reason}"));
            self.rt.request_stop();
        }
        self.memory.freed.notify_all();
    }
}
