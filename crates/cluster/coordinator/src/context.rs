//! The context of all requests of a shard: the shard's replica, the cluster as the shard sees it, where tables are, the way
//! to other nodes and shards. The operations (`write`, `counter`, `read`, `logged`, `paxos`, ..) are given it, and not each other's state.

use std::cell::{Cell, OnceCell};
use std::future::Future;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use bytes::Bytes;
use cluster::liveness::Liveness;
use mutation::codec::Layouts;
use replica::{Read, ReadCommand, ReadPage, Replica, TraceLog};
use rpc::Messenger;
use rt::mesh::Port;
use rt::{Instant, Rt, ShardId};
use schema::{Schema, Table, TableId};
use topology::HostId;

use crate::fence::Fence;
use crate::forward::Outcomes;
use crate::hinting::Hinting;
use crate::lease::Lease;
use crate::peer_error::PeerError;
use crate::rate_limit::RateLimiter;
use crate::remote::{Calls, Remote};
use crate::replication_maps::ReplicationMaps;
use crate::shard_calls::{NodeRequest, NodeResponse};
use crate::slow_replicas::ReadLatencies;
use crate::table_figures::{self, RequestsByTable};
use crate::{Canaries, ClusterView};

/// Gives the gossip states of all nodes.
pub(crate) type Gossip = Box<dyn Fn() -> Liveness>;

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
    maps: ReplicationMaps,
    replica: Replica,
    port: Port<NodeRequest, NodeResponse>,
    remote: OnceCell<Remote>,
    /// A random number that names this lifetime of the process.
    lifetime: u64,
    forwarded: Outcomes,
    fence: Fence,
    lease: Lease,
    hinting: Hinting,
    injected: Cell<Canaries>,
    /// Round robin over equal replicas: the next one to query.
    turn: Cell<usize>,
    replicated: Cell<ReplicationStats>,
    rates: RateLimiter,
    reads: ReadLatencies,
    /// All requests, by table.
    requests_by_table: RequestsByTable,
    layouts: Layouts,
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
        // A restarted node serves replica requests before its first view is published.
        let fence = Fence::default();
        assert!(
            view.fence() <= view.topology_version(),
            "a fence is a topology version up to the current one"
        );
        fence.take_over(view.topology_version(), view.fence());
        let shared = Shared {
            lifetime,
            forwarded: Outcomes::new(lifetime),
            lease: Lease::new(&rt, &port),
            hinting: Hinting::new(&rt, &replica),
            reads: ReadLatencies::new(&rt),
            rt,
            maps: ReplicationMaps::new(view, schema),
            replica,
            port,
            remote: OnceCell::new(),
            fence,
            injected: Cell::default(),
            turn: Cell::new(0),
            replicated: Cell::default(),
            rates: RateLimiter::default(),
            requests_by_table: RequestsByTable::default(),
            layouts: Layouts::default(),
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

    /// The replication maps of tables, with the view and the schema that they follow from.
    pub(crate) fn maps(&self) -> &ReplicationMaps {
        &self.0.maps
    }

    /// The cluster as this shard sees it.
    pub(crate) fn view(&self) -> Arc<ClusterView> {
        self.0.maps.view()
    }

    /// The current schema.
    pub(crate) fn schema(&self) -> Arc<Schema> {
        self.0.maps.schema()
    }

    /// Takes over a changed view of the cluster; the one before.
    pub(crate) fn use_view(&self, view: &Arc<ClusterView>) -> Arc<ClusterView> {
        let old = self.0.maps.use_view(view);
        self.0.fence.take_over(view.topology_version(), view.fence());
        self.replica().engine().use_tablets(view.tablets());
        self.0.reads.keep_hosts(view);
        // Shard 0's connections follow the cluster's log, which knows of nodes earlier.
        if self.0.rt.shard() != ShardId(0)
            && let Some(remote) = self.0.remote.get()
        {
            remote.set_peers(view);
        }
        old
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

    /// The times at which writes begin, and the shard that keeps their hints.
    pub(crate) fn hinting(&self) -> &Hinting {
        &self.0.hinting
    }

    /// How long reads took of late.
    pub(crate) fn read_latencies(&self) -> &ReadLatencies {
        &self.0.reads
    }

    /// How often this shard's partitions were read and written of late.
    pub(crate) fn rate_limiter(&self) -> &RateLimiter {
        &self.0.rates
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

    /// The same for a traced request.
    pub(crate) fn traced(&self, trace: &TraceLog) -> Self {
        Self(self.0.clone(), Some(trace.clone()))
    }

    /// The trace of the request, if it is traced.
    pub(crate) fn trace(&self) -> Option<&TraceLog> {
        self.1.as_ref()
    }

    /// Records an event of a traced request.
    pub(crate) fn record(&self, activity: impl FnOnce() -> String) {
        if let Some(trace) = self.trace() {
            self.note(trace, activity());
        }
    }

    pub(crate) fn note(&self, trace: &TraceLog, activity: impl Into<String>) {
        trace.add(self.0.rt.now(), self.0.rt.shard().0, activity);
    }

    /// Asks this node's own replica: like another's, it is silent when the time is over, which it may be at the begin.
    pub(crate) async fn here<T, E: Into<PeerError>>(
        &self,
        deadline: Instant,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, PeerError> {
        let silent = || PeerError::Silent("timed out".to_owned());
        if self.rt().now() >= deadline {
            return Err(silent());
        }
        match self.rt().timeout_at(deadline, answer).await {
            Ok(answer) => answer.map_err(Into::into),
            Err(_) => Err(silent()),
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
        self.0.maps.inject(*canaries);
    }

    pub(crate) fn injected(&self) -> Canaries {
        self.0.injected.get()
    }

    /// The digest of a page, as replicas tell each other.
    pub(crate) async fn digest_of(&self, command: &ReadCommand, page: &ReadPage) -> u128 {
        crate::canaries::digest(self.injected(), command, page).await
    }

    /// Keeps an update for a node that is down; whether it was kept.
    pub(crate) fn keep_hint(&self, host: HostId, table: &Table, update: Bytes, begun_micros: i64) -> bool {
        if self.injected().dropped_hints {
            return true;
        }
        let kept = self.0.hinting.keep(host, table, update, begun_micros);
        self.count(|stats| if kept { stats.hinted += 1 } else { stats.not_hinted += 1 });
        kept
    }

    pub(crate) fn replication_stats(&self) -> ReplicationStats {
        self.0.replicated.get()
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut ReplicationStats)) {
        let mut stats = self.0.replicated.get();
        change(&mut stats);
        self.0.replicated.set(stats);
    }
}
