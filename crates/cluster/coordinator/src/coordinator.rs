//! The coordinator of one shard: requests come in here whatever shard or node holds their data.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::{SchemaEdit, SchemaEvent};
use futures_util::future::join_all;
use hints::HintFigures;
use mutation::PartitionUpdate;
use replica::{Origin, Partitions, Read, ReadCommand, ReadPage, Replica, ReplicaError, TraceLog, Write};
use rpc::Messenger;
use rt::mesh::Port;
use rt::{Instant, Rt, ShardId, Task};
use schema::{Keyspace, Replication, Schema, Table, TableId};
use stdx::HashMap;
use topology::{HostId, NodeIndex};

use crate::batch_row;
use crate::batchlog::{BatchError, Batchlog, BatchlogStats};
use crate::computed::{self, ComputedTables};
use crate::contact::Needs;
use crate::fence::Fence;
use crate::forward::Outcomes;
use crate::latency::{Counters, RequestFigures};
use crate::lease::Lease;
use crate::paxos::Paxos;
use crate::read::{EffectiveReplicationMap, speculation_delay};
use crate::recent::RecentReads;
use crate::remote::{self, Calls, PeerError, Remote};
use crate::shard_calls::{self, NodeRequest, NodeResponse};
use crate::slowness::{Hosts, Waiting, Waits};
use crate::{
    Canaries, ClusterView, Consistency, Copies, ReplicaFailure, RequestError, SchemaChangeError, WriteKind,
    WriteOptions,
};

/// Reasons of failure as the protocol numbers them (v5, section 9, `<reasonmap>`).
const FAILURE_UNKNOWN: u16 = 0;
const FAILURE_TOO_MANY_TOMBSTONES: u16 = 1;
const FAILURE_INDEX_NOT_AVAILABLE: u16 = 6;

/// Called on each shard when the schema has changed, with what changed.
pub type SchemaListener = Box<dyn Fn(&Arc<Schema>, &[SchemaEvent])>;

/// Called on each shard when the cluster's nodes have changed, with the view before and the view now.
pub type ViewListener = Box<dyn Fn(&ClusterView, &Arc<ClusterView>)>;

/// Keeps updates for nodes that are away.
pub trait HintKeeper {
    /// Keeps an update: for which node, of which table, as a message, of a write that began then ([`Coordinator::begin_write`]); whether
    /// it is kept.
    fn keep(&self, host: HostId, table: &Table, update: Bytes, begun_micros: i64) -> bool;
    /// What is kept on this shard, by node.
    fn kept(&self) -> Vec<(HostId, HintFigures)>;
    /// When the latest write began of which something was kept, microseconds since the epoch; [`i64::MIN`] for none.
    fn latest_micros(&self) -> i64;
}

/// What a coordinator counts of its dealings with other nodes' replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicationStats {
    /// Reads for which a further replica was asked, because those asked first were slow.
    pub speculated: u64,
    /// Reads whose replicas did not say the same.
    pub mismatches: u64,
    /// Replicas that were told what a read found them to lack.
    pub repaired: u64,
    /// Writes that were sent to another datacenter once, for several replicas there.
    pub forwarded: u64,
    /// Requests of other nodes that were refused, because they used a stale topology version.
    pub refused_old_ring: u64,
    /// Requests for which this node heard of a later ring first, because replicas refused them.
    pub caught_up: u64,
    /// Updates that were kept for a node that was away.
    pub hinted: u64,
    /// Updates that could not be kept for a node that was away.
    pub not_hinted: u64,
}

/// One shard's coordinator. Cheap to clone.
#[derive(Clone)]
pub struct Coordinator(Rc<Inner>, Option<TraceLog>);

struct Inner {
    rt: Rt,
    view: RefCell<Arc<ClusterView>>,
    /// Where the tables of a keyspace are, until nodes or keyspaces change.
    placements: RefCell<HashMap<String, Arc<Copies>>>,
    remote: OnceCell<Remote>,
    forwarded: Outcomes,
    fence: Fence,
    lease: Lease,
    hints: OnceCell<Box<dyn HintKeeper>>,
    /// The latest of [`Coordinator::begin_write`].
    begun_latest: Cell<i64>,
    injected: Cell<Canaries>,
    /// Which of several equal replicas is asked next.
    turn: Cell<usize>,
    /// Nodes that lose ranges and were found to be down when these were to be fetched, and since when.
    awaited: RefCell<BTreeMap<HostId, Instant>>,
    replicated: Cell<ReplicationStats>,
    replica: Replica,
    port: Port<NodeRequest, NodeResponse>,
    schema: RefCell<Arc<Schema>>,
    batchlog: Batchlog,
    paxos: Paxos,
    reads: Counters,
    /// Reads of several replicas, by table.
    recent: RecentReads,
    /// How long the reads of other nodes took.
    waits: Waits,
    writes: Counters,
    listeners: RefCell<Vec<Rc<SchemaListener>>>,
    view_listeners: RefCell<Vec<Rc<ViewListener>>>,
    computed: RefCell<Option<Rc<dyn ComputedTables>>>,
    /// Shard 0 only: the cluster's log, which decides on the schema.
    group: OnceCell<cluster::group::Group>,
    following: RefCell<Option<Task<()>>>,
}

impl Coordinator {
    /// A coordinator over this shard's replica, with the schema of this moment. Shard 0 is then told to
    /// [`Coordinator::follow_schema`].
    pub fn new(
        rt: Rt,
        view: Arc<ClusterView>,
        replica: Replica,
        port: Port<NodeRequest, NodeResponse>,
        schema: Arc<Schema>,
    ) -> Self {
        let (paxos, forwarded) = (Paxos::new(&rt), Outcomes::new(&rt));
        let inner = Inner {
            batchlog: Batchlog::new(&rt, &replica, &schema),
            rt,
            view: RefCell::new(view),
            placements: RefCell::default(),
            remote: OnceCell::new(),
            forwarded,
            fence: Fence::default(),
            lease: Lease::default(),
            injected: Cell::default(),
            hints: OnceCell::new(),
            begun_latest: Cell::new(i64::MIN),
            turn: Cell::new(0),
            awaited: RefCell::default(),
            replicated: Cell::default(),
            replica,
            port: port.clone(),
            schema: RefCell::new(schema),
            paxos,
            reads: Counters::default(),
            recent: RecentReads::default(),
            waits: Waits::default(),
            writes: Counters::default(),
            listeners: RefCell::new(Vec::new()),
            view_listeners: RefCell::new(Vec::new()),
            computed: RefCell::new(None),
            group: OnceCell::new(),
            following: RefCell::default(),
        };
        let coordinator = Self(Rc::new(inner), None);
        let server = coordinator.clone();
        port.serve(move |_, request| {
            let coordinator = server.clone();
            async move { request.serve(&coordinator).await }
        });
        coordinator
    }

    /// The schema in use on this shard.
    pub fn schema(&self) -> Arc<Schema> {
        self.0.schema.borrow().clone()
    }

    /// The node's data.
    pub fn replica(&self) -> &Replica {
        &self.0.replica
    }

    /// The cluster as this shard sees it.
    pub fn view(&self) -> Arc<ClusterView> {
        self.0.view.borrow().clone()
    }

    /// Takes over a changed view of the cluster on this shard.
    pub fn use_view(&self, view: Arc<ClusterView>) {
        let old = self.0.view.replace(view.clone());
        self.0.fence.take_over(view.ring_number(), view.fence());
        // Gossip makes a view with every change of liveness; replicas are elsewhere only when the ring is another.
        if !view.places_as(&old) {
            self.0.placements.borrow_mut().clear();
        }
        self.0.awaited.borrow_mut().retain(|host, _| !view.is_alive_host(*host));
        self.0.waits.keep(|host| view.index_of(host).is_some());
        // Shard 0's connections follow the cluster's log, which knows of nodes earlier.
        if self.0.rt.shard() != ShardId(0)
            && let Some(remote) = self.0.remote.get()
        {
            remote.set_peers(&view);
        }
        let listeners = self.0.view_listeners.borrow().clone();
        listeners.iter().for_each(|listener| listener(&old, &view));
    }

    /// Reaches the other nodes through `messenger` from now on, and answers them.
    ///
    /// # Panics
    /// When it is called twice.
    pub fn connect(&self, messenger: &Messenger) {
        let connected = self.0.remote.set(Remote::new(messenger.clone()));
        assert!(connected.is_ok(), "a coordinator is connected once");
        remote::serve(self, messenger);
    }

    /// Keeps updates for nodes that are away with `keeper` from now on.
    ///
    /// # Panics
    /// When it is called twice.
    pub fn keep_hints_with(&self, keeper: Box<dyn HintKeeper>) {
        assert!(self.0.hints.set(keeper).is_ok(), "hints have one keeper");
    }

    /// What this shard counts of its dealings with other nodes.
    pub fn replication_stats(&self) -> ReplicationStats {
        self.0.replicated.get()
    }

    /// Calls `listener` on this shard at every later change of the cluster's nodes.
    pub fn on_view_change(&self, listener: ViewListener) {
        self.0.view_listeners.borrow_mut().push(Rc::new(listener));
    }

    /// Calls `listener` on this shard at every later change of the schema.
    pub fn on_schema_change(&self, listener: SchemaListener) {
        self.0.listeners.borrow_mut().push(Rc::new(listener));
    }

    /// Answers reads of computed keyspaces from `tables` from now on.
    pub fn compute_with(&self, tables: Rc<dyn ComputedTables>) {
        *self.0.computed.borrow_mut() = Some(tables);
    }

    /// Reads.
    pub async fn read(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<ReadPage, RequestError> {
        let kind = self.check(&command.table, consistency).inspect_err(|error| self.0.reads.failed(error))?;
        if kind == Kind::Computed {
            self.tell(|| format!("Computing {}", command.table.full_name()));
            let tables = self.0.computed.borrow().clone();
            let rows = match tables {
                Some(tables) => tables.rows(command).await,
                None => Vec::new(),
            };
            return Ok(computed::read(command, rows));
        }
        let rt = &self.0.rt;
        let began = rt.now();
        let result = if kind == Kind::Replicated {
            self.tell(|| format!("Reading {} from replicas", command.table.full_name()));
            // Boxed: what several replicas take must not make every read's state larger.
            let erm = self.erm(&command.table)?;
            Box::pin(self.read_replicas(erm, command, consistency, deadline)).await
        } else {
            // Pinned here, so that it is not moved on its way into the timeout.
            let read = pin!(self.0.replica.read(Read::of(command).traced(self.trace())));
            match rt.timeout_at(deadline, read).await {
                Ok(Ok(page)) => Ok(page),
                Ok(Err(error)) => Err(self.read_failed(consistency, error)),
                Err(_) => {
                    self.tell(|| "Timed out".to_owned());
                    Err(RequestError::ReadTimeout {
                        consistency,
                        received: 0,
                        required: 1,
                        data_present: false,
                    })
                }
            }
        };
        let now = rt.now();
        if kind == Kind::Replicated {
            self.note_recent(command, began, now);
        }
        self.0.reads.ended(now - began, &result);
        result
    }

    /// [`Coordinator::read`] that tells its steps.
    pub async fn read_traced(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        deadline: Instant,
        trace: &TraceLog,
    ) -> Result<ReadPage, RequestError> {
        self.traced(trace).read(command, consistency, deadline).await
    }

    /// [`Coordinator::write`] that tells its steps.
    pub async fn write_traced(
        &self,
        updates: Vec<PartitionUpdate>,
        options: WriteOptions,
        trace: &TraceLog,
    ) -> Result<(), RequestError> {
        self.traced(trace).write(updates, options).await
    }

    /// The same coordinator for a traced request.
    pub fn traced(&self, trace: &TraceLog) -> Self {
        Self(self.0.clone(), Some(trace.clone()))
    }

    /// Records an event of a traced request.
    pub(crate) fn tell(&self, activity: impl FnOnce() -> String) {
        if let Some(trace) = self.trace() {
            self.note(trace, activity());
        }
    }

    /// The trace of the request, if it is traced.
    pub(crate) fn trace(&self) -> Option<&TraceLog> {
        self.1.as_ref()
    }

    pub(crate) fn note(&self, trace: &TraceLog, activity: impl Into<String>) {
        trace.add(self.0.rt.now(), self.0.rt.shard().0, activity);
    }

    pub(crate) fn paxos(&self) -> &Paxos {
        &self.0.paxos
    }

    /// Whether a table's rows are computed when they are read.
    pub(crate) fn is_computed(&self, table: &Table) -> bool {
        let schema = self.0.schema.borrow();
        schema.keyspace(&table.keyspace).is_some_and(|keyspace| keyspace.computes(&table.name))
    }

    /// The shard that this is.
    pub fn shard(&self) -> u16 {
        self.0.rt.shard().0
    }

    /// Writes. Updates of one shard become visible and durable together.
    pub async fn write(
        &self,
        updates: Vec<PartitionUpdate>,
        options: WriteOptions,
    ) -> Result<(), RequestError> {
        let kind = self.check_writes(&updates, options)?;
        self.tell(|| format!("Determining replicas for {} mutations", updates.len()));
        let (rt, replica) = (&self.0.rt, &self.0.replica);
        let began = rt.now();
        // What begins while this node is alone is waited for when another joins.
        let _under_way = (kind == Kind::Stored).then(|| self.fence().enter());
        let result = if kind == Kind::Replicated && options.kind == WriteKind::Batch && updates.len() > 1 {
            Box::pin(self.write_logged(updates, options)).await
        } else if kind == Kind::Replicated {
            Box::pin(self.write_replicas(updates, options)).await
        } else if options.kind == WriteKind::Batch && !replica.is_one_shard(&updates) {
            self.tell(|| {
                "Writing to and removing from the batchlog (system.batches) around the batch".to_owned()
            });
            Box::pin(self.write_batch(updates, options)).await
        } else {
            let apply = pin!(replica.apply(Write::all(Origin::Client, updates).traced(self.trace())));
            let applied = rt.timeout_at(options.deadline, apply).await;
            self.written(applied, options.consistency, options.kind)
        };
        self.0.writes.ended(rt.now() - began, &result);
        result
    }

    /// A logged batch over several shards; one shard alone applies its part in one entry of its log.
    async fn write_batch(
        &self,
        updates: Vec<PartitionUpdate>,
        options: WriteOptions,
    ) -> Result<(), RequestError> {
        let schema = self.schema();
        let Some(batches) = batch_row::table_of(&schema) else {
            let write = Write::all(Origin::Client, updates).traced(self.trace());
            let result = self.0.rt.timeout_at(options.deadline, self.0.replica.apply(write)).await;
            return self.written(result, options.consistency, options.kind);
        };
        let apply = self.0.batchlog.apply(batches, updates, self.trace());
        let applied = self.0.rt.timeout_at(options.deadline, apply).await;
        let (result, kind) = match applied {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(BatchError::NotLogged(error))) => (Ok(Err(error)), WriteKind::BatchLog),
            Ok(Err(BatchError::NotApplied(error))) => (Ok(Err(error)), options.kind),
            Err(elapsed) => (Err(elapsed), options.kind),
        };
        self.written(result, options.consistency, kind)
    }

    /// Applies the logged batches that a crash interrupted; how many there were. To be called on every shard when all
    /// are open and no client is let in yet.
    pub async fn replay_batches(&self) -> Result<u64, ReplicaError> {
        self.0.batchlog.replay().await
    }

    /// Reads and writes that this shard coordinated, those of computed tables apart.
    pub fn request_figures(&self) -> (RequestFigures, RequestFigures) {
        (self.0.reads.figures(), self.0.writes.figures())
    }

    /// What this shard's batchlog has done.
    pub fn batchlog_stats(&self) -> BatchlogStats {
        self.0.batchlog.stats()
    }

    /// Counts: the cells of each update hold deltas.
    pub async fn increment(
        &self,
        updates: Vec<PartitionUpdate>,
        options: WriteOptions,
    ) -> Result<(), RequestError> {
        let kind = self.check_writes(&updates, options)?;
        let began = self.0.rt.now();
        let _under_way = (kind == Kind::Stored).then(|| self.fence().enter());
        let result = if kind == Kind::Replicated {
            Box::pin(self.increment_replicas(updates, options)).await
        } else {
            let count = futures_util::future::try_join_all(
                updates.into_iter().map(|update| self.count_here(update, self.trace())),
            );
            let result = self.0.rt.timeout_at(options.deadline, count).await;
            self.written(result.map(|done| done.map(|_| ())), options.consistency, WriteKind::Counter)
        };
        self.0.writes.ended(self.0.rt.now() - began, &result);
        result
    }

    /// When each shard of this node truncated a table last: what was read elsewhere before that is not to come here after it.
    pub(crate) async fn truncated_at(&self, table: TableId) -> Vec<i64> {
        join_all(self.0.port.ask_each(shard_calls::TruncatedAt { table })).await
    }

    /// A time behind every write, logged batch and hint that any shard has taken up, however the wall clock was moved meanwhile;
    /// [`i64::MIN`] when there was none.
    pub(crate) async fn behind_pending(&self) -> i64 {
        let latest = join_all(self.0.port.ask_each(shard_calls::LatestPending {})).await;
        let known = latest.into_iter().filter(|latest| *latest > i64::MIN);
        known.map(|latest| latest.saturating_add(1)).max().unwrap_or(i64::MIN)
    }

    /// When this shard took up its last write or logged batch, or that of its last hint, microseconds; [`i64::MIN`] for never.
    pub(crate) fn latest_pending(&self) -> i64 {
        let hint = self.0.hints.get().map_or(i64::MIN, |keeper| keeper.latest_micros());
        let latest = hint.max(self.0.batchlog.latest_micros()).max(self.0.begun_latest.get());
        latest.max(self.0.paxos.voted_micros())
    }

    /// Changes the schema, if it is still the one with version `base`; returns when every shard uses the new one.
    pub async fn change_schema(
        &self,
        base: [u8; 16],
        edits: Vec<SchemaEdit>,
    ) -> Result<(), SchemaChangeError> {
        self.0.port.ask(ShardId(0), shard_calls::ChangeSchema { base, edits }).await
    }

    /// Where the tables of a write are: with several replicas if one of them is.
    fn check_writes(&self, updates: &[PartitionUpdate], options: WriteOptions) -> Result<Kind, RequestError> {
        let mut kind = Kind::Stored;
        for update in updates {
            let checked = self.check(&update.table, options.consistency);
            if checked.inspect_err(|error| self.0.writes.failed(error))? == Kind::Replicated {
                kind = Kind::Replicated;
            }
        }
        Ok(kind)
    }

    fn check(&self, table: &Table, consistency: Consistency) -> Result<Kind, RequestError> {
        let schema = self.0.schema.borrow();
        let Some(keyspace) = schema.keyspace(&table.keyspace) else { return Err(no_keyspace(table)) };
        if keyspace.computes(&table.name) {
            return Ok(Kind::Computed);
        }
        if keyspace.replication == Replication::Local {
            return Ok(Kind::Stored);
        }
        let view = self.0.view.borrow();
        if !view.is_alone() {
            return Ok(Kind::Replicated);
        }
        if !keyspace.system {
            check_alone(keyspace, consistency, &view)?;
        }
        Ok(Kind::Stored)
    }

    pub(crate) fn keyspace_of(&self, table: &Table) -> Result<(Arc<Copies>, Replication), RequestError> {
        let schema = self.0.schema.borrow();
        let Some(keyspace) = schema.keyspace(&table.keyspace) else { return Err(no_keyspace(table)) };
        let view = self.0.view.borrow();
        let mut placements = self.0.placements.borrow_mut();
        let placement = match placements.get(&table.keyspace) {
            Some(placement) => placement.clone(),
            None => {
                let placement = Arc::new(view.place_keyspace(keyspace));
                placements.insert(table.keyspace.clone(), placement.clone());
                placement
            }
        };
        Ok((placement, view.replication_of(keyspace).clone()))
    }

    /// What a request of a table with several replicas has to know.
    pub(crate) fn erm(&self, table: &Table) -> Result<EffectiveReplicationMap, RequestError> {
        let (placement, replication) = self.keyspace_of(table)?;
        let (view, schema) = (self.view(), self.0.schema.borrow());
        let keyspace = schema.keyspace(&table.keyspace);
        let other_replication = keyspace.and_then(|keyspace| view.other_replication_of(keyspace)).cloned();
        Ok(EffectiveReplicationMap {
            view,
            placement,
            replication,
            other_replication,
            injected: self.injected(),
        })
    }

    /// Whether this node takes the writes of an update's token: it is a replica, will be one, or was until reads have gone over.
    pub(crate) fn takes(&self, update: &PartitionUpdate) -> bool {
        self.takes_token(&update.table, update.key.token)
    }

    /// Whether this node takes writes of a table's token: it is a replica, will be one, or was until reads have gone over.
    pub fn takes_token(&self, table: &Table, token: i64) -> bool {
        let Ok((placement, replication)) = self.keyspace_of(table) else { return true };
        let own = self.0.view.borrow().own();
        replication == Replication::Local || placement.takes(own, token)
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.0.lease
    }

    pub(crate) fn port(&self) -> &Port<NodeRequest, NodeResponse> {
        &self.0.port
    }

    pub(crate) fn group(&self) -> Option<&cluster::group::Group> {
        self.0.group.get()
    }

    pub(crate) fn set_group(&self, group: cluster::group::Group) {
        assert!(self.0.group.set(group).is_ok(), "a coordinator follows one log");
    }

    pub(crate) fn set_following(&self, task: Option<Task<()>>) -> Option<Task<()>> {
        self.0.following.replace(task)
    }

    /// Splits updates into those of tables that this node alone keeps, and those that have replicas on several.
    pub(crate) fn split(
        &self,
        updates: Vec<PartitionUpdate>,
    ) -> (Vec<PartitionUpdate>, Vec<PartitionUpdate>) {
        let is_here = |update: &PartitionUpdate| {
            let replication = self.keyspace_of(&update.table).map(|(_, replication)| replication);
            self.view().is_alone() || matches!(replication, Ok(Replication::Local))
        };
        updates.into_iter().partition(is_here)
    }

    pub(crate) fn batchlog(&self) -> &Batchlog {
        &self.0.batchlog
    }

    pub(crate) fn rt(&self) -> &Rt {
        &self.0.rt
    }

    /// The way to other nodes.
    pub(crate) fn remote(&self) -> Calls<'_> {
        let remote = self.0.remote.get();
        let remote = remote.expect("a node of several is connected before it learns of the others");
        Calls { remote, coordinator: self }
    }

    /// Which rings are over.
    pub(crate) fn fence(&self) -> &Fence {
        &self.0.fence
    }

    /// Writes that another node passes on, and whose outcomes it tells.
    pub(crate) fn forwarded(&self) -> &Outcomes {
        &self.0.forwarded
    }

    /// What this node's own replica has.
    pub(crate) async fn read_here(
        &self,
        command: &ReadCommand,
        deadline: Instant,
    ) -> Result<ReadPage, PeerError> {
        self.here(deadline, self.replica().read(Read::of(command).traced(self.trace()))).await
    }

    /// Whether a node that is down has been waited for less than `patience` since it was asked for first.
    pub(crate) fn is_awaited(&self, host: HostId, patience: Duration) -> bool {
        let now = self.0.rt.now();
        let since = *self.0.awaited.borrow_mut().entry(host).or_insert(now);
        now - since < patience
    }

    pub(crate) fn next_turn(&self) -> usize {
        let turn = self.0.turn.get();
        self.0.turn.set(turn.wrapping_add(1));
        turn
    }

    /// Plants bugs, for tests of tests.
    pub fn inject(&self, canaries: Canaries) {
        self.0.injected.set(canaries);
    }

    pub(crate) fn injected(&self) -> Canaries {
        self.0.injected.get()
    }

    /// What a page comes to, as replicas tell each other.
    pub(crate) fn digest_of(&self, command: &ReadCommand, page: &ReadPage) -> u128 {
        crate::canaries::digest(self.injected(), command, page)
    }

    /// After how long a further replica of a table is asked.
    pub(crate) fn speculation(&self, table: &Table) -> Option<Duration> {
        let now = self.0.rt.now();
        speculation_delay(&table.options.speculative_retry, |share| self.0.recent.below(table.id, share, now))
    }

    /// A read of one partition that began then has ended.
    fn note_recent(&self, command: &ReadCommand, began: Instant, now: Instant) {
        if is_of_one_partition(command) {
            let known = |id| self.schema().table_by_id(id).is_some();
            self.0.recent.ended(command.table.id, now - began, now, known);
        }
    }

    /// Of these replicas, those that have been slow of late, compared with others as near.
    pub(crate) fn slow_among(&self, view: &ClusterView, replicas: &[NodeIndex]) -> Hosts {
        let now = self.0.rt.now();
        let slow = |far: bool| {
            let others = replicas.iter().filter(|node| **node != view.own() && view.is_alive(**node));
            let equals =
                others.filter(|node| (view.distance(**node) >= ClusterView::OTHER_DATACENTER) == far);
            let equals: Hosts = equals.map(|node| view.node(*node).host).collect();
            if equals.len() > 1 { self.0.waits.slow(&equals, now) } else { Hosts::new() }
        };
        let mut all = slow(false);
        all.extend(slow(true));
        all
    }

    /// A read is sent to a node: until what this gives is dropped, the node is waited for. None for what tells nothing of nodes.
    pub(crate) fn wait_for(
        &self,
        view: &ClusterView,
        node: NodeIndex,
        command: &ReadCommand,
    ) -> Option<Waiting<'_>> {
        let tells = node != view.own() && is_of_one_partition(command);
        tells.then(|| Waiting::new(&self.0.waits, &self.0.rt, view.node(node).host))
    }

    /// When a write begins, microseconds since 1970: later than every truncation that this shard knows of, and known to those that come
    /// (`LatestPending`), wherever the wall clock stands. What is left of the write, a hint, counts as of then: a truncation removes it
    /// with what the other replicas have of the write.
    pub(crate) fn begin_write(&self) -> i64 {
        let truncated = self.0.replica.engine().truncated_latest();
        let begun_micros = self.0.rt.wall_micros().max(truncated.saturating_add(1));
        self.0.begun_latest.set(self.0.begun_latest.get().max(begun_micros));
        begun_micros
    }

    /// Keeps an update for a node that is away; whether it was kept.
    pub(crate) fn keep_hint(&self, host: HostId, table: &Table, update: Bytes, begun_micros: i64) -> bool {
        if self.0.injected.get().dropped_hints {
            return true;
        }
        let kept = self.0.hints.get().is_some_and(|keeper| keeper.keep(host, table, update, begun_micros));
        self.count(|stats| if kept { stats.hinted += 1 } else { stats.not_hinted += 1 });
        kept
    }

    /// What all shards of this node keep for nodes that are away.
    pub async fn kept_hints(&self) -> BTreeMap<HostId, HintFigures> {
        let stored = join_all(self.0.port.ask_each(shard_calls::StoredHints {})).await;
        let mut sums: BTreeMap<HostId, HintFigures> = BTreeMap::new();
        for (host, figures) in stored.into_iter().flatten() {
            sums.entry(host).or_default().merge(&figures);
        }
        sums
    }

    /// What this shard stores for nodes that are down.
    pub(crate) fn stored_hints(&self) -> Vec<(HostId, HintFigures)> {
        self.0.hints.get().map(|keeper| keeper.kept()).unwrap_or_default()
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut ReplicationStats)) {
        let mut stats = self.0.replicated.get();
        change(&mut stats);
        self.0.replicated.set(stats);
    }

    fn failure(&self, code: u16, error: &ReplicaError) -> Vec<ReplicaFailure> {
        let view = self.0.view.borrow();
        let address = view.node(view.own()).native.ip();
        vec![ReplicaFailure { address, code, message: error.to_string() }]
    }

    fn read_failed(&self, consistency: Consistency, error: ReplicaError) -> RequestError {
        let code = match &error {
            ReplicaError::UnknownTable(_) => return RequestError::Invalid("unconfigured table".to_owned()),
            ReplicaError::TooManyTombstones { .. } => FAILURE_TOO_MANY_TOMBSTONES,
            ReplicaError::IndexUnavailable(_) => FAILURE_INDEX_NOT_AVAILABLE,
            _ => FAILURE_UNKNOWN,
        };
        let failures = self.failure(code, &error);
        RequestError::ReadFailure { consistency, received: 0, required: 1, data_present: false, failures }
    }

    fn written(
        &self,
        result: Result<Result<(), ReplicaError>, rt::Elapsed>,
        consistency: Consistency,
        kind: WriteKind,
    ) -> Result<(), RequestError> {
        let error = match result {
            Ok(Ok(())) => return Ok(()),
            Err(_) => return Err(RequestError::WriteTimeout { consistency, received: 0, required: 1, kind }),
            Ok(Err(error)) => error,
        };
        match error {
            ReplicaError::MutationTooLarge { .. } => Err(RequestError::Invalid(error.to_string())),
            ReplicaError::UnknownTable(_) => Err(RequestError::Invalid("unconfigured table".to_owned())),
            _ => {
                let failures = self.failure(FAILURE_UNKNOWN, &error);
                Err(RequestError::WriteFailure { consistency, received: 0, required: 1, kind, failures })
            }
        }
    }

    pub(crate) fn use_schema(&self, schema: Arc<Schema>) {
        let old = self.0.schema.replace(schema.clone());
        self.0.placements.borrow_mut().retain(|name, _| {
            let replication = |schema: &Schema| schema.keyspace(name).map(|it| it.replication.clone());
            replication(&old).is_some_and(|before| replication(&schema) == Some(before))
        });
        self.0.batchlog.use_schema(&schema);
        let events = cluster::events(&old, &schema);
        let listeners = self.0.listeners.borrow().clone();
        for listener in listeners {
            listener(&schema, &events);
        }
    }
}

/// Where a table's rows come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// On this node.
    Stored,
    /// On several nodes.
    Replicated,
    /// Nowhere: they are made when they are asked for.
    Computed,
}

fn no_keyspace(table: &Table) -> RequestError {
    RequestError::Invalid(format!("Keyspace {} does not exist", table.keyspace))
}

/// Whether a node alone can serve a consistency level: it holds one copy of whatever is kept in its datacenter.
fn check_alone(
    keyspace: &Keyspace,
    consistency: Consistency,
    view: &ClusterView,
) -> Result<(), RequestError> {
    // Nearly every keyspace of a node alone.
    if matches!(keyspace.replication, Replication::Simple { factor: 1 }) {
        match consistency {
            Consistency::Two | Consistency::Three => {}
            _ => return Ok(()),
        }
    }
    let own = [view.own()];
    let here = match &keyspace.replication {
        Replication::NetworkTopology { factors } => {
            factors.get(&view.node(view.own()).location.datacenter).is_some_and(|copies| *copies > 0)
        }
        _ => true,
    };
    let alive: &[NodeIndex] = if here { &own } else { &[] };
    Needs::new(consistency, &keyspace.replication, view, &[]).check(consistency, view, alive)
}

/// Reads of one partition are alike enough to be compared.
fn is_of_one_partition(command: &ReadCommand) -> bool {
    matches!(&command.partitions, Partitions::Keys(keys) if keys.len() == 1)
}
