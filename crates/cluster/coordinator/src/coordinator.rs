//! The coordinator of one shard: requests come in here, with their data on any shard or node, and are counted.
//!
//! It decides where a table's rows come from and hands the request to its operation. The [`Context`] is shared by all operations.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use cluster::liveness::Liveness;
use cluster::{SchemaEdit, SchemaEvent};
use futures_util::future::join_all;
use hints::HintFigures;
use mutation::{DecoratedKey, PartitionRange, PartitionUpdate, Row};
use replica::{
    FragmentsPage, FragmentsRead, ReadCommand, ReadPage, Replica, ReplicaError, RowLookup, TraceLog,
};
use rt::sync::Semaphore;
use rt::{Instant, ShardId, Task};
use schema::{Schema, Table, TableId};
use smallvec::SmallVec;
use topology::HostId;

use crate::batchlog::{Batchlog, BatchlogStats};
use crate::build_requests::BuildRequests;
use crate::cdc_times;
use crate::computed::ComputedTables;
use crate::context::{Context, ReplicationStats, WeakContext};
use crate::counter::CounterWrites;
use crate::derived_checks::DerivedChecks;
use crate::given_id::GivenId;
use crate::hinting::HintKeeper;
use crate::kind::Kind;
use crate::latency::{Counters, RequestFigures};
use crate::local;
use crate::logged::Batches;
use crate::paxos::state::Paxos;
use crate::rate_check::RateCheck;
use crate::reads::Reads;
use crate::shard_calls;
use crate::table_figures::{self, TableFigures};
use crate::truncate::Truncations;
use crate::write::Writes;
use crate::{
    Canaries, ClusterView, Consistency, Operation, RequestError, SchemaChangeError, WriteKind, WriteOptions,
};

/// How long the other nodes are asked about an id that a client gives a new table.
const GIVEN_ID_TIMEOUT: Duration = Duration::from_secs(5);

/// Called on each shard when the schema has changed, with the changes.
pub type SchemaListener = Box<dyn Fn(&Arc<Schema>, &[SchemaEvent])>;

/// Called on each shard when the cluster's nodes have changed, with the view before and the view now.
pub type ViewListener = Box<dyn Fn(&ClusterView, &Arc<ClusterView>)>;

/// One shard's coordinator. Cheap to clone.
#[derive(Clone)]
pub struct Coordinator {
    context: Context,
    operations: Rc<Operations>,
}

/// A weak reference to a coordinator, held by its engine.
pub(crate) struct WeakCoordinator(WeakContext, Weak<Operations>);

impl WeakCoordinator {
    /// The coordinator, while its shard runs.
    pub(crate) fn upgrade(&self) -> Option<Coordinator> {
        Some(Coordinator { context: self.0.upgrade()?, operations: self.1.upgrade()? })
    }
}

/// The state of the operations of one shard.
pub(crate) struct Operations {
    pub(crate) reads: Rc<Reads>,
    writes: Counters,
    pub(crate) view_writes: Counters,
    pub(crate) batchlog: Batchlog,
    pub(crate) build_requests: BuildRequests,
    pub(crate) derived_checks: DerivedChecks,
    pub(crate) paxos: Rc<Paxos>,
    schema_listeners: RefCell<Vec<Rc<SchemaListener>>>,
    view_listeners: RefCell<Vec<Rc<ViewListener>>>,
    /// Shard 0 only: follows the cluster's log.
    pub(crate) following: RefCell<Option<Task<()>>>,
    /// Shard 0 only: one view at a time is given its placements.
    pub(crate) publishing: Semaphore,
    /// The nodes that are down, and since when this shard knows.
    down_since: RefCell<BTreeMap<HostId, Instant>>,
}

/// The tables of a write, each once.
fn tables_of(updates: &[PartitionUpdate]) -> SmallVec<[TableId; 1]> {
    let mut tables: SmallVec<[TableId; 1]> = SmallVec::new();
    for update in updates {
        // Updates of one table mostly follow each other.
        if tables.last() != Some(&update.table.id) {
            tables.push(update.table.id);
        }
    }
    if tables.len() > 1 {
        tables.sort_unstable();
        tables.dedup();
    }
    tables
}

impl Coordinator {
    /// A coordinator that nobody can call yet: [`Coordinator::new`] has the other shards reach it.
    pub(crate) fn over(context: Context) -> Self {
        let operations = Operations {
            reads: Rc::default(),
            writes: Counters::default(),
            view_writes: Counters::default(),
            batchlog: Batchlog::new(context.rt(), context.replica(), &context.schema()),
            build_requests: BuildRequests::default(),
            derived_checks: DerivedChecks::default(),
            paxos: Rc::new(Paxos::new(context.rt())),
            schema_listeners: RefCell::default(),
            view_listeners: RefCell::default(),
            following: RefCell::default(),
            publishing: Semaphore::new(1),
            down_since: RefCell::default(),
        };
        let operations = Rc::new(operations);
        let ending = Rc::downgrade(&operations);
        context.rt().executor().on_shutdown(move || {
            // The front end listens to the coordinator, and holds it.
            if let Some(operations) = ending.upgrade() {
                operations.schema_listeners.take();
                operations.view_listeners.take();
                operations.reads.forget_computed();
            }
        });
        Self { context, operations }
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn downgrade(&self) -> WeakCoordinator {
        WeakCoordinator(self.context.downgrade(), Rc::downgrade(&self.operations))
    }

    pub(crate) fn operations(&self) -> &Operations {
        &self.operations
    }

    /// The schema in use on this shard.
    pub fn schema(&self) -> Arc<Schema> {
        self.context.schema()
    }

    /// The node's data.
    pub fn replica(&self) -> &Replica {
        self.context.replica()
    }

    /// The cluster as this shard sees it.
    pub fn view(&self) -> Arc<ClusterView> {
        self.context.view()
    }

    /// The shard that this is.
    pub fn shard(&self) -> u16 {
        self.context.shard()
    }

    /// Whether this node takes writes of a table's token: it is a replica, will be one, or was until reads have gone over.
    pub fn takes_token(&self, table: &Table, token: i64) -> bool {
        self.context.maps().takes_token(table, token)
    }

    /// Takes over a changed view of the cluster on this shard.
    pub fn use_view(&self, view: Arc<ClusterView>) {
        let old = self.context.use_view(&view);
        self.note_down(&view);
        let listeners = self.operations.view_listeners.borrow().clone();
        listeners.iter().for_each(|listener| listener(&old, &view));
    }

    /// Takes over a changed schema on this shard.
    pub(crate) fn use_schema(&self, schema: &Arc<Schema>, events: &[SchemaEvent]) {
        self.context.maps().use_schema(schema);
        self.operations.batchlog.use_schema(schema);
        let listeners = self.operations.schema_listeners.borrow().clone();
        for listener in listeners {
            listener(schema, events);
        }
    }

    /// Keeps updates for nodes that are down with `keeper` from now on.
    ///
    /// # Panics
    /// When it is called twice.
    pub fn keep_hints_with(&self, keeper: Box<dyn HintKeeper>) {
        self.context.hinting().keep_with(keeper);
    }

    /// The counters of this shard of its dealings with other nodes.
    pub fn replication_stats(&self) -> ReplicationStats {
        self.context.replication_stats()
    }

    /// Calls `listener` on this shard at every later change of the cluster's nodes.
    pub fn on_view_change(&self, listener: ViewListener) {
        self.operations.view_listeners.borrow_mut().push(Rc::new(listener));
    }

    /// Calls `listener` on this shard at every later change of the schema.
    pub fn on_schema_change(&self, listener: SchemaListener) {
        self.operations.schema_listeners.borrow_mut().push(Rc::new(listener));
    }

    /// Answers reads of computed keyspaces from `tables` from now on.
    pub fn compute_with(&self, tables: Rc<dyn ComputedTables>) {
        self.operations.reads.compute_with(tables);
    }

    /// Injects bugs, for tests of tests.
    ///
    /// # Panics
    /// Outside of the simulator.
    pub fn inject(&self, canaries: rt::Injected<Canaries>) {
        self.context.inject(canaries);
    }

    /// The bugs that are injected.
    pub fn injected(&self) -> Canaries {
        self.context.injected()
    }

    /// Reads.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] before anything was asked; [`RequestError::ReadTimeout`] and
    /// [`RequestError::ReadFailure`] when too few replicas answer or some fail; [`RequestError::RateLimit`],
    /// [`RequestError::Overloaded`], [`RequestError::Invalid`] when the table or index is gone.
    pub async fn read(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<ReadPage, RequestError> {
        self.operations.reads.read(&self.context, command, consistency, deadline).await
    }

    /// Hands the live row that a lookup, of a request that began then, finds to `visit` where it lies, when this node is the only replica of the partition and its shard
    /// has all of it in memory; its result, and the tombstones in the row. None when [`Coordinator::read`] is to be used.
    #[inline]
    pub fn row_here<T>(
        &self,
        lookup: &RowLookup<'_>,
        (consistency, began): (Consistency, Instant),
        visit: impl FnOnce(Option<&Row>) -> T,
    ) -> Option<(T, u64)> {
        self.operations.reads.row_here(&self.context, lookup, (consistency, began), visit)
    }

    /// The names of this node's sources that may hold something of a partition: see [`Replica::fragment_sources`].
    ///
    /// # Errors
    /// [`RequestError::ReadTimeout`], [`RequestError::ReadFailure`].
    pub async fn fragment_sources(
        &self,
        table: &Table,
        key: &DecoratedKey,
        deadline: Instant,
    ) -> Result<Vec<String>, RequestError> {
        let answer = self.replica().fragment_sources(table.id, key);
        local::inspect(&self.context, table, deadline, answer).await
    }

    /// Reads fragments of a partition in one of this node's sources.
    ///
    /// # Errors
    /// [`RequestError::ReadTimeout`], [`RequestError::ReadFailure`].
    pub async fn read_fragments(
        &self,
        table: &Table,
        read: FragmentsRead,
        deadline: Instant,
    ) -> Result<FragmentsPage, RequestError> {
        let answer = self.replica().read_fragments(read);
        local::inspect(&self.context, table, deadline, answer).await
    }

    /// The keys of at most so many partitions of a range that this node has anything of, in ring order.
    ///
    /// # Errors
    /// [`RequestError::ReadTimeout`], [`RequestError::ReadFailure`].
    pub async fn partition_keys(
        &self,
        table: &Table,
        range: &PartitionRange,
        count_max: usize,
        deadline: Instant,
    ) -> Result<Vec<DecoratedKey>, RequestError> {
        let answer = self.replica().partition_keys(table.id, range, count_max);
        local::inspect(&self.context, table, deadline, answer).await
    }

    /// The same coordinator for a traced request.
    pub fn traced(&self, trace: &TraceLog) -> Self {
        Self { context: self.context.traced(trace), operations: self.operations.clone() }
    }

    /// Writes. Updates of one shard become visible and durable together.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`], [`RequestError::Invalid`] (table gone, mutation too large, timestamp outside of
    /// the streams of changes) and a [`RequestError::RateLimit`] of the coordinator before anything was written;
    /// [`RequestError::WriteTimeout`], [`RequestError::WriteFailure`] and [`RequestError::Overloaded`] when it may yet
    /// take effect.
    pub async fn write(
        &self,
        updates: Vec<PartitionUpdate>,
        options: WriteOptions,
    ) -> Result<(), RequestError> {
        let (context, operations) = (&self.context, &self.operations);
        let kind = self.kind_of(&updates)?;
        if updates.iter().any(|update| update.table.options.cdc.enabled) {
            let checked = cdc_times::check_times(context, &updates);
            checked.inspect_err(|error| operations.writes.failed(error))?;
        }
        self.check_rates(&updates).await?;
        let tables = tables_of(&updates);
        context.record(|| format!("Determining replicas for {} mutations", updates.len()));
        let began = context.rt().now();
        let result = if kind == Kind::Replicated {
            self.write_replicated(updates, options).await
        } else {
            local::write(context, updates, options).await
        };
        let now = context.rt().now();
        operations.writes.ended(now - began, &result);
        for table in tables {
            context.count_request(table, table_figures::Kind::Write, began, now);
        }
        result
    }

    /// Takes and writes one update, when this node is its only replica and nothing has to be waited for. An update that is left was not
    /// written, and nothing was counted: [`Coordinator::write`] is to be used, which also finds the error that there may be.
    #[inline]
    pub fn write_now(&self, update: &mut Option<PartitionUpdate>, consistency: Consistency) {
        let (context, operations) = (&self.context, &self.operations);
        let Some(table) = update.as_ref().map(|update| update.table.id) else { return };
        if let Some(began) = Writes::new(context).write_now(update, consistency) {
            assert!(update.is_none(), "an update that is counted was written");
            let now = context.rt().now();
            operations.writes.ended(now - began, &Ok(()));
            context.count_request(table, table_figures::Kind::Write, began, now);
        }
    }

    async fn write_replicated(
        &self,
        updates: Vec<PartitionUpdate>,
        options: WriteOptions,
    ) -> Result<(), RequestError> {
        let writes = Writes::new(&self.context);
        let may_be_torn = options.kind == WriteKind::Batch && updates.len() > 1;
        if let Some(erm) = writes.only_here(&updates, options.consistency)?
            && (!may_be_torn || self.context.replica().is_one_shard(&updates))
        {
            return writes.write_here(&erm, updates, options).await;
        }
        // Boxed: the state for several replicas must not make every write's state larger.
        if may_be_torn {
            Box::pin(Batches::new(&self.context, &self.operations.batchlog).write(updates, options)).await
        } else {
            Box::pin(writes.write(updates, options)).await
        }
    }

    /// Learns which logged batches this shard keeps, and completes them where no other node is there to do so; how many it completed. To be
    /// called on every shard when all are open and no client is let in yet.
    ///
    /// # Errors
    /// When the batches cannot be read.
    pub async fn replay_batches(&self) -> Result<u64, ReplicaError> {
        self.operations.batchlog.load().await?;
        if !self.context.view().is_alone() {
            // They wait until the other nodes are known to be up or down.
            return Ok(0);
        }
        Batches::new(&self.context, &self.operations.batchlog).complete_all().await
    }

    /// Reads and writes that this shard coordinated, those of computed tables apart.
    pub fn request_figures(&self) -> (RequestFigures, RequestFigures) {
        (self.operations.reads.figures(), self.operations.writes.figures())
    }

    /// Reads of ranges of partitions that this shard coordinated.
    pub fn range_figures(&self) -> RequestFigures {
        self.operations.reads.range_figures()
    }

    /// Deliveries of updates of materialized views from this shard to replicas on other shards and nodes.
    pub fn view_write_figures(&self) -> RequestFigures {
        self.operations.view_writes.figures()
    }

    /// The requests of each table that this node coordinated.
    pub async fn table_figures(&self) -> BTreeMap<TableId, TableFigures> {
        let mut sums: BTreeMap<TableId, TableFigures> = BTreeMap::new();
        let shards = join_all(self.context.port().ask_each(shard_calls::RequestsOfTables {})).await;
        for (table, figures) in shards.into_iter().flatten() {
            sums.entry(table).or_default().merge(&figures);
        }
        sums
    }

    /// Changes how many bytes of memory logged batches and updates of views that wait for replicas may take on this shard, of
    /// [`KEPT_BATCH_BYTES`](crate::KEPT_BATCH_BYTES) each: writes that would store more of them are refused.
    pub fn set_kept_batch_bytes_max(&self, bytes: usize) {
        self.operations.batchlog.set_kept_bytes_max(bytes);
    }

    /// The counters of this shard's batchlog.
    pub fn batchlog_stats(&self) -> BatchlogStats {
        self.operations.batchlog.stats()
    }

    /// Counts: the cells of each update hold deltas.
    ///
    /// # Errors
    /// As [`Coordinator::write`]. After a timeout the increment may have been applied, so that a retry may count twice.
    pub async fn increment(
        &self,
        updates: Vec<PartitionUpdate>,
        options: WriteOptions,
    ) -> Result<(), RequestError> {
        let context = &self.context;
        self.check_rates(&updates).await?;
        let tables = tables_of(&updates);
        let began = context.rt().now();
        let result = Box::pin(CounterWrites::new(context).increment(updates, options)).await;
        let now = context.rt().now();
        self.operations.writes.ended(now - began, &result);
        for table in tables {
            context.count_request(table, table_figures::Kind::Write, began, now);
        }
        result
    }

    /// Removes everything from a table and from its views, on every node.
    ///
    /// # Errors
    /// When a node is down, or a shard has failed or not answered in time.
    pub async fn truncate(&self, table: &Table, deadline: Instant) -> Result<(), RequestError> {
        let truncations = Truncations::new(&self.context);
        truncations.truncate(table, deadline).await?;
        let schema = self.context.schema();
        let views: Vec<&Arc<Table>> = schema
            .keyspace(&table.keyspace)
            .map(|keyspace| keyspace.views_of(table.id).collect())
            .unwrap_or_default();
        for view in &views {
            truncations.truncate(view, deadline).await?;
        }
        if !views.is_empty() {
            // For writes to the base between its truncation and a view's.
            truncations.rebuild_views(table.id, deadline).await?;
        }
        Ok(())
    }

    /// When this shard took up its last write or logged batch, or that of its last hint, microseconds; [`i64::MIN`] for never.
    pub(crate) fn latest_pending(&self) -> i64 {
        let latest = self.context.hinting().latest_write().max(self.operations.batchlog.latest_micros());
        latest.max(self.operations.paxos.voted_micros())
    }

    /// Changes the schema, if it is still the one with version `base`; returns when every shard uses the new one.
    ///
    /// # Errors
    /// [`SchemaChangeError::Moved`] when the schema has another version, [`SchemaChangeError::Invalid`] when an edit
    /// does not fit it, [`SchemaChangeError::Behind`] when it is decided and a live node does not use it in time,
    /// [`SchemaChangeError::Failed`].
    pub async fn change_schema(
        &self,
        base: [u8; 16],
        edits: Vec<SchemaEdit>,
    ) -> Result<(), SchemaChangeError> {
        self.context.port().ask(ShardId(0), shard_calls::ChangeSchema { base, edits }).await
    }

    /// Refuses to give a new table an id by which a node may still have data of a dropped table. To be asked before
    /// [`Coordinator::change_schema`] of the same `base`.
    ///
    /// # Errors
    /// [`SchemaChangeError::Moved`]; [`SchemaChangeError::Invalid`] when a node is down, does not use the schema of `base` yet, or has not
    /// removed a dropped table of this id.
    pub async fn check_given_id(&self, base: [u8; 16], id: TableId) -> Result<(), SchemaChangeError> {
        let deadline = self.context.rt().now() + GIVEN_ID_TIMEOUT;
        match GivenId(&self.context).check(id, base, deadline).await {
            // Other nodes use a newer one, too.
            Err(_) if self.schema().version() != base => Err(SchemaChangeError::Moved),
            Err(reason) => Err(SchemaChangeError::Invalid(reason)),
            Ok(()) => Ok(()),
        }
    }

    /// Refuses writes whose partitions have reached their limit.
    async fn check_rates(&self, updates: &[PartitionUpdate]) -> Result<(), RequestError> {
        for update in updates.iter().filter(|update| update.table.is_rate_limited()) {
            let checked =
                RateCheck(&self.context).check(&update.table, update.key.token, Operation::Write).await;
            checked.inspect_err(|error| self.operations.writes.failed(error))?;
        }
        Ok(())
    }

    /// Where the tables of a write are: replicated if one of them is.
    fn kind_of(&self, updates: &[PartitionUpdate]) -> Result<Kind, RequestError> {
        let mut kind = Kind::Local;
        for update in updates {
            let checked = self.context.maps().kind(&update.table);
            if checked.inspect_err(|error| self.operations.writes.failed(error))? == Kind::Replicated {
                kind = Kind::Replicated;
            }
        }
        Ok(kind)
    }

    /// Shard 0: the gossip state of all nodes comes from `gossip`.
    ///
    /// # Panics
    /// When it was set before.
    pub fn set_gossip(&self, gossip: impl Fn() -> Liveness + 'static) {
        self.context.set_gossip(Box::new(gossip));
    }

    /// The gossip states of all nodes; none before this node takes part in it.
    pub async fn gossiped(&self) -> Option<Liveness> {
        let found = self.context.port().ask(ShardId(0), shard_calls::Gossiped {}).await;
        found.map(|liveness| *liveness)
    }

    /// The hints that all shards of this node keep for nodes that are down.
    pub async fn kept_hints(&self) -> BTreeMap<HostId, HintFigures> {
        let stored = join_all(self.context.port().ask_each(shard_calls::StoredHints {})).await;
        let mut sums: BTreeMap<HostId, HintFigures> = BTreeMap::new();
        for (host, figures) in stored.into_iter().flatten() {
            sums.entry(host).or_default().merge(&figures);
        }
        sums
    }

    fn note_down(&self, view: &ClusterView) {
        let (now, mut since) = (self.context.rt().now(), self.operations.down_since.borrow_mut());
        since.retain(|host, _| !view.is_alive_host(*host) && view.index_of(*host).is_some());
        for node in view.nodes().iter().filter(|node| !view.is_alive_host(node.host)) {
            since.entry(node.host).or_insert(now);
        }
    }

    /// Whether a node that is down has been so for less than `patience`: it may only be restarting.
    pub(crate) fn is_awaited(&self, host: HostId, patience: Duration) -> bool {
        let now = self.context.rt().now();
        let since = *self.operations.down_since.borrow_mut().entry(host).or_insert(now);
        now - since < patience
    }
}
