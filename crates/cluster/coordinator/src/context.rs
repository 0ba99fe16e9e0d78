//! The context of all requests of a shard: the shard's replica, the cluster as the shard sees it, where tables are, the way
//! to other nodes and shards. The operations (`write`, `counter`, `read`, `logged`, `paxos`, ..) are given it, and not each other's state.

use std::cell::{Cell, OnceCell, RefCell};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use bytes::Bytes;
use cluster::liveness::Liveness;
use hints::HintFigures;
use mutation::PartitionUpdate;
use mutation::codec::Layouts;
use replica::{Read, ReadCommand, ReadPage, Replica, TraceLog};
use rpc::Messenger;
use rt::mesh::Port;
use rt::{Instant, Rt, ShardId};
use schema::{Replication, Schema, Table, TableId};
use stdx::HashMap;
use topology::HostId;

use crate::fence::Fence;
use crate::forward::Outcomes;
use crate::kind::Kind;
use crate::lease::Lease;
use crate::peer_error::PeerError;
use crate::placements::Placements;
use crate::rate_limit::RateLimiter;
use crate::recent::RecentReads;
use crate::remote::{Calls, Remote};
use crate::replication_map::EffectiveReplicationMap;
use crate::shard_calls::{NodeRequest, NodeResponse};
use crate::slowness::Waits;
use crate::table_figures::{self, RequestsByTable};
use crate::{Canaries, ClusterView, DataPlacement, RequestError};

/// Gives the gossip states of all nodes.
pub(crate) type Gossip = Box<dyn Fn() -> Liveness>;

/// Keeps updates for nodes that are down.
pub trait HintKeeper {
    /// Keeps an update: for which node, of which table, as a message, of a write that began then (its coordinator); whether
    /// it is kept.
    fn keep(&self, host: HostId, table: &Table, update: Bytes, begun_micros: i64) -> bool;
    /// The hints on this shard, by node.
    fn kept(&self) -> Vec<(HostId, HintFigures)>;
    /// When the latest write began of which something was kept, microseconds since the epoch; [`i64::MIN`] for none.
    fn latest_micros(&self) -> i64;
}

/// A coordinator's counters of its dealings with other nodes' replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicationStats {
    /// Reads for which a further replica was asked, because those asked first were slow.
    pub speculated: u64,
    /// Reads whose replicas did not say the same.
    pub mismatches: u64,
    /// Replicas that were sent rows that a read found them to lack.
    pub repaired: u64,
    /// Writes that were sent to another datacenter once, for several replicas there.
    pub forwarded: u64,
    /// Requests of other nodes that were refused, because they used a stale topology version.
    pub refused_old_ring: u64,
    /// Requests for which this node waited for a newer topology version first, because replicas refused them.
    pub caught_up: u64,
    /// Updates that were kept for a node that was away.
    pub hinted: u64,
    /// Updates that could not be kept for a node that was away.
    pub not_hinted: u64,
}

/// The state that the requests of one shard share, and the trace of one of them where it is traced. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Context(Rc<Shared>, Option<TraceLog>);

/// A [`Context`] that does not keep its shard's state.
pub(crate) struct WeakContext(Weak<Shared>);

impl WeakContext {
    pub(crate) fn upgrade(&self) -> Option<Context> {
        self.0.upgrade().map(|shared| Context(shared, None))
    }
}

struct Shared {
    rt: Rt,
    view: RefCell<Arc<ClusterView>>,
    schema: RefCell<Arc<Schema>>,
    placements: Placements,
    /// Of the tables that were asked for since the view or the schema changed last.
    erms: RefCell<HashMap<TableId, Rc<EffectiveReplicationMap>>>,
    replica: Replica,
    port: Port<NodeRequest, NodeResponse>,
    remote: OnceCell<Remote>,
    /// A random number that names this lifetime of the process.
    lifetime: u64,
    forwarded: Outcomes,
    fence: Fence,
    lease: Lease,
    hints: OnceCell<Box<dyn HintKeeper>>,
    /// The latest of [`Context::begin_write`].
    begun_latest: Cell<i64>,
    injected: Cell<Canaries>,
    /// Round robin over equal replicas: the next one to query.
    turn: Cell<usize>,
    replicated: Cell<ReplicationStats>,
    rates: RateLimiter,
    /// Reads of several replicas, by table.
    recent: RecentReads,
    /// All requests, by table.
    requests_by_table: RequestsByTable,
    layouts: Layouts,
    /// How long the reads of other nodes took.
    waits: Waits,
    /// Shard 0 only: the cluster's log, which decides on the schema.
    group: OnceCell<cluster::group::Group>,
    /// Shard 0 only: gossip.
    gossip: OnceCell<Gossip>,
}

impl Context {
    pub(crate) fn new(
        rt: Rt,
        view: Arc<ClusterView>,
        replica: Replica,
        port: Port<NodeRequest, NodeResponse>,
        schema: Arc<Schema>,
    ) -> Self {
        replica.engine().use_tablets(view.tablets());
        let lifetime = rt.random_u64();
        let shared = Shared {
            lifetime,
            forwarded: Outcomes::new(lifetime),
            lease: Lease::new(&rt, &port),
            rt,
            view: RefCell::new(view),
            schema: RefCell::new(schema),
            placements: Placements::default(),
            erms: RefCell::default(),
            replica,
            port,
            remote: OnceCell::new(),
            fence: Fence::default(),
            hints: OnceCell::new(),
            begun_latest: Cell::new(i64::MIN),
            injected: Cell::default(),
            turn: Cell::new(0),
            replicated: Cell::default(),
            rates: RateLimiter::default(),
            recent: RecentReads::default(),
            requests_by_table: RequestsByTable::default(),
            layouts: Layouts::default(),
            waits: Waits::default(),
            group: OnceCell::new(),
            gossip: OnceCell::new(),
        };
        Self(Rc::new(shared), None)
    }

    pub(crate) fn downgrade(&self) -> WeakContext {
        WeakContext(Rc::downgrade(&self.0))
    }

    pub(crate) fn rt(&self) -> &Rt {
        &self.0.rt
    }

    /// The node's data.
    pub(crate) fn replica(&self) -> &Replica {
        &self.0.replica
    }

    pub(crate) fn port(&self) -> &Port<NodeRequest, NodeResponse> {
        &self.0.port
    }

    /// The shard that this is.
    pub(crate) fn shard(&self) -> u16 {
        self.0.rt.shard().0
    }

    /// The schema in use on this shard.
    pub(crate) fn schema(&self) -> Arc<Schema> {
        self.0.schema.borrow().clone()
    }

    /// The cluster as this shard sees it.
    pub(crate) fn view(&self) -> Arc<ClusterView> {
        self.0.view.borrow().clone()
    }

    /// Takes over a changed view of the cluster; the one before.
    pub(crate) fn use_view(&self, view: &Arc<ClusterView>) -> Arc<ClusterView> {
        let old = self.0.view.replace(view.clone());
        assert!(
            view.topology_version() >= old.topology_version(),
            "a shard's topology version never goes back"
        );
        let own = view.node(view.own()).host;
        assert_eq!(own, old.node(old.own()).host, "a node keeps its host id");
        self.0.erms.borrow_mut().clear();
        self.0.fence.take_over(view.topology_version(), view.fence());
        // Gossip makes a view with every change of liveness; replicas are elsewhere only when the ring is another.
        if !view.places_as(&old) {
            self.0.placements.clear();
            self.replica().engine().use_tablets(view.tablets());
        }
        self.0.waits.keep(|host| view.index_of(host).is_some());
        // Shard 0's connections follow the cluster's log, which knows of nodes earlier.
        if self.0.rt.shard() != ShardId(0)
            && let Some(remote) = self.0.remote.get()
        {
            remote.set_peers(view);
        }
        old
    }

    /// Takes over a changed schema.
    pub(crate) fn use_schema(&self, schema: &Arc<Schema>) {
        let old = self.0.schema.replace(schema.clone());
        self.0.erms.borrow_mut().clear();
        self.0.placements.use_schema(&old, schema);
    }

    /// Reaches the other nodes through `messenger` from now on.
    ///
    /// # Panics
    /// When it is called twice.
    pub(crate) fn connect(&self, messenger: &Messenger) {
        let connected = self.0.remote.set(Remote::new(messenger.clone()));
        assert!(connected.is_ok(), "a coordinator is connected once");
    }

    /// The way to other nodes.
    pub(crate) fn remote(&self) -> Calls<'_> {
        let remote = self.0.remote.get();
        let remote = remote.expect("a node of several is connected before it learns of the others");
        Calls { remote, rt: self.rt(), trace: self.trace() }
    }

    /// The cluster's log, on shard 0 once it follows it.
    pub(crate) fn group(&self) -> Option<&cluster::group::Group> {
        self.0.group.get()
    }

    pub(crate) fn set_group(&self, group: cluster::group::Group) {
        assert_eq!(self.0.rt.shard(), ShardId(0), "shard 0 follows the cluster's log");
        assert!(self.0.group.set(group).is_ok(), "a coordinator follows one log");
    }

    /// Which topology versions are stale.
    pub(crate) fn fence(&self) -> &Fence {
        &self.0.fence
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.0.lease
    }

    /// A random number that names this lifetime of the process, on this shard.
    pub(crate) fn lifetime(&self) -> u64 {
        self.0.lifetime
    }

    /// Writes that another node forwards, and whose outcomes it reports.
    pub(crate) fn forwarded(&self) -> &Outcomes {
        &self.0.forwarded
    }

    /// How often this shard's partitions were read and written of late.
    pub(crate) fn rate_limiter(&self) -> &RateLimiter {
        &self.0.rates
    }

    pub(crate) fn recent(&self) -> &RecentReads {
        &self.0.recent
    }

    /// The gossip states of all nodes, on shard 0.
    pub(crate) fn gossiped(&self) -> Option<Liveness> {
        self.0.gossip.get().map(|gossip| gossip())
    }

    /// Uses the state of `gossip` from now on.
    pub(crate) fn set_gossip(&self, gossip: Gossip) {
        assert_eq!(self.0.rt.shard(), ShardId(0), "shard 0 takes part in gossip");
        assert!(self.0.gossip.set(gossip).is_ok(), "gossip is set once");
    }

    /// The layouts of the rows that are received.
    pub(crate) fn layouts(&self) -> &Layouts {
        &self.0.layouts
    }

    pub(crate) fn requests_by_table(&self) -> &RequestsByTable {
        &self.0.requests_by_table
    }

    /// A request of a table has ended, well or not.
    pub(crate) fn count_request(
        &self,
        table: TableId,
        kind: table_figures::Kind,
        began: Instant,
        now: Instant,
    ) {
        let known = |table| self.schema().table_by_id(table).is_some();
        self.0.requests_by_table.ended(table, kind, now - began, now, known);
    }

    pub(crate) fn waits(&self) -> &Waits {
        &self.0.waits
    }

    /// The same for a traced request.
    pub(crate) fn traced(&self, trace: &TraceLog) -> Self {
        Self(self.0.clone(), Some(trace.clone()))
    }

    /// The trace of the request, if it is traced.
    pub(crate) fn trace(&self) -> Option<&TraceLog> {
        self.1.as_ref()
    }

    /// Records an event of a traced request.
    pub(crate) fn tell(&self, activity: impl FnOnce() -> String) {
        if let Some(trace) = self.trace() {
            self.note(trace, activity());
        }
    }

    pub(crate) fn note(&self, trace: &TraceLog, activity: impl Into<String>) {
        trace.add(self.0.rt.now(), self.0.rt.shard().0, activity);
    }

    /// Where a table's tokens are, and how it is replicated.
    pub(crate) fn placement_of(
        &self,
        table: &Table,
    ) -> Result<(Arc<DataPlacement>, Replication), RequestError> {
        let schema = self.0.schema.borrow();
        let Some(keyspace) = schema.keyspace(&table.keyspace) else { return Err(no_keyspace(table)) };
        let view = self.0.view.borrow();
        let placement = self.0.placements.of(&view, keyspace, table);
        Ok((placement, view.replication_of(keyspace).clone()))
    }

    /// The replication map by which a request of a table chooses replicas; made once for each table and view.
    ///
    /// # Errors
    /// When the table's keyspace is gone.
    pub(crate) fn erm(&self, table: &Table) -> Result<Rc<EffectiveReplicationMap>, RequestError> {
        if let Some(erm) = self.0.erms.borrow().get(&table.id) {
            return Ok(erm.clone());
        }
        let (placement, replication) = self.placement_of(table)?;
        let (view, schema) = (self.view(), self.0.schema.borrow());
        let keyspace = schema.keyspace(&table.keyspace);
        let other_replication = keyspace.and_then(|keyspace| view.other_replication_of(keyspace)).cloned();
        let erm = Rc::new(EffectiveReplicationMap {
            view,
            placement,
            replication,
            other_replication,
            injected: self.injected(),
            kind: self.kind(table)?,
        });
        self.0.erms.borrow_mut().insert(table.id, erm.clone());
        Ok(erm)
    }

    /// Whether this node takes the writes of an update's token: it is a replica, will be one, or was until reads have gone over.
    pub(crate) fn takes(&self, update: &PartitionUpdate) -> bool {
        self.takes_token(&update.table, update.key.token)
    }

    /// Whether this node takes writes of a table's token: it is a replica, will be one, or was until reads have gone over.
    pub(crate) fn takes_token(&self, table: &Table, token: i64) -> bool {
        let Ok((placement, replication)) = self.placement_of(table) else { return true };
        let own = self.0.view.borrow().own();
        replication == Replication::Local || placement.takes(own, token)
    }

    /// Whether all nodes that take the writes of one token of a table take those of another, too.
    pub(crate) fn go_with(&self, table: &Table, token: i64, other: i64) -> bool {
        let Ok((placement, replication)) = self.placement_of(table) else { return false };
        replication == Replication::Local || placement.go_with(token, other)
    }

    /// Whether a host takes writes of a table's token, as [`Context::takes_token`] says of this one.
    pub(crate) fn host_takes_token(&self, host: HostId, table: &Table, token: i64) -> bool {
        let Ok((placement, _)) = self.placement_of(table) else { return false };
        let node = self.0.view.borrow().index_of(host);
        node.is_some_and(|node| placement.takes(node, token))
    }

    /// Whether this node has the earlier writes of a table's token, and not only those since it became a pending replica.
    pub(crate) fn is_complete(&self, table: &Table, token: i64) -> bool {
        let Ok((placement, replication)) = self.placement_of(table) else { return false };
        let view = self.0.view.borrow();
        view.is_alone() || replication == Replication::Local || placement.is_complete(view.own(), token)
    }

    /// Whether a table's token concerns no other node: each node has the table of its own, or this one is its only replica and none moves.
    pub(crate) fn is_only_here(&self, table: &Table, token: i64) -> bool {
        let is_only_here = |erm: Rc<EffectiveReplicationMap>| {
            erm.replication == Replication::Local || erm.is_only_here(token)
        };
        self.0.view.borrow().is_alone() || self.erm(table).is_ok_and(is_only_here)
    }

    /// Asks this node's own replica: like another's, it is silent when the time is over.
    pub(crate) async fn here<T, E: Into<PeerError>>(
        &self,
        deadline: Instant,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, PeerError> {
        match self.rt().timeout_at(deadline, answer).await {
            Ok(answer) => answer.map_err(Into::into),
            Err(_) => Err(PeerError::Silent("timed out".to_owned())),
        }
    }

    /// The data of this node's own replica.
    pub(crate) async fn read_here(
        &self,
        command: &ReadCommand,
        deadline: Instant,
    ) -> Result<ReadPage, PeerError> {
        // Pinned here, so that it is not moved on its way into the timeout.
        let read = pin!(self.replica().read(Read::of(command).traced(self.trace())));
        self.here(deadline, read).await
    }

    pub(crate) fn next_turn(&self) -> usize {
        let turn = self.0.turn.get();
        self.0.turn.set(turn.wrapping_add(1));
        turn
    }

    /// Injects bugs, for tests of tests.
    ///
    /// # Panics
    /// Outside of the simulator.
    pub(crate) fn inject(&self, canaries: rt::Injected<Canaries>) {
        self.0.rt.allow_injected(&canaries);
        self.0.injected.set(*canaries);
        self.0.erms.borrow_mut().clear();
    }

    pub(crate) fn injected(&self) -> Canaries {
        self.0.injected.get()
    }

    /// The digest of a page, as replicas tell each other.
    pub(crate) async fn digest_of(&self, command: &ReadCommand, page: &ReadPage) -> u128 {
        crate::canaries::digest(self.injected(), command, page).await
    }

    /// When a write begins, microseconds since 1970: later than every truncation that this shard knows of, and known to those that come
    /// (`LatestPending`), whatever the wall clock shows. The rest of the write, a hint, counts as of then: a truncation removes it
    /// with the write's rows on the other replicas.
    pub(crate) fn begin_write(&self) -> i64 {
        let truncated = self.0.replica.engine().truncated_latest();
        let begun_micros = self.0.rt.wall_micros().max(truncated.saturating_add(1));
        self.0.begun_latest.set(self.0.begun_latest.get().max(begun_micros));
        begun_micros
    }

    /// Keeps an update for a node that is down; whether it was kept.
    pub(crate) fn keep_hint(&self, host: HostId, table: &Table, update: Bytes, begun_micros: i64) -> bool {
        if self.injected().dropped_hints {
            return true;
        }
        let kept = self.0.hints.get().is_some_and(|keeper| keeper.keep(host, table, update, begun_micros));
        self.count(|stats| if kept { stats.hinted += 1 } else { stats.not_hinted += 1 });
        kept
    }

    /// Keeps updates for nodes that are down with `keeper` from now on.
    ///
    /// # Panics
    /// When it is called twice.
    pub(crate) fn keep_hints_with(&self, keeper: Box<dyn HintKeeper>) {
        assert!(self.0.hints.set(keeper).is_ok(), "hints have one keeper");
    }

    /// The hints that this shard stores for nodes that are down.
    pub(crate) fn stored_hints(&self) -> Vec<(HostId, HintFigures)> {
        self.0.hints.get().map(|keeper| keeper.kept()).unwrap_or_default()
    }

    /// When this shard took up its last write, or that of its last hint, microseconds; [`i64::MIN`] for never.
    pub(crate) fn latest_write(&self) -> i64 {
        let hint = self.0.hints.get().map_or(i64::MIN, |keeper| keeper.latest_micros());
        hint.max(self.0.begun_latest.get())
    }

    pub(crate) fn replication_stats(&self) -> ReplicationStats {
        self.0.replicated.get()
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut ReplicationStats)) {
        let mut stats = self.0.replicated.get();
        change(&mut stats);
        self.0.replicated.set(stats);
    }

    /// Where a table's rows come from.
    pub(crate) fn kind(&self, table: &Table) -> Result<Kind, RequestError> {
        if let Some(erm) = self.0.erms.borrow().get(&table.id) {
            return Ok(erm.kind);
        }
        let schema = self.0.schema.borrow();
        let Some(keyspace) = schema.keyspace(&table.keyspace) else { return Err(no_keyspace(table)) };
        if keyspace.computes(&table.name) {
            return Ok(Kind::Computed);
        }
        Ok(if keyspace.replication == Replication::Local { Kind::Local } else { Kind::Replicated })
    }

    /// Whether a table's rows are computed when they are read.
    pub(crate) fn is_computed(&self, table: &Table) -> bool {
        let schema = self.0.schema.borrow();
        schema.keyspace(&table.keyspace).is_some_and(|keyspace| keyspace.computes(&table.name))
    }
}

fn no_keyspace(table: &Table) -> RequestError {
    RequestError::Invalid(format!("Keyspace {} does not exist", table.keyspace))
}
