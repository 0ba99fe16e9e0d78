//! Nodes of a simulation with everything from the coordinator down to the disk.

use std::cell::{Cell as StdCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coordinator::{
    Canaries, CheckState, ClusterView, Consistency, Coordinator, DerivedCheck, DerivedCheckStatus, Handoff,
    HintKeeper, Phase, PullFrom, PullStats, RequestError, ViewNode, WriteKind, WriteOptions,
};
use engine::{Engine, EngineConfig};
use hints::{HintFigures, Hints, HintsConfig};
use mutation::{
    Cell, Clustering, ColumnData, DecoratedKey, DeletionTime, LivenessInfo, PartitionRange, PartitionUpdate,
    Row,
};
use replica::{Keys, Partitions, Read, ReadCommand, ReadPage, Replica, ReplicaConfig};
use rpc::{Messenger, PeerInfo, Peers, RpcConfig, handover_mesh};
use rt::mesh::Mesh;
use rt::{Group, Rt, ShardId, ShardMain};
use rt_sim::{Begun, Config, NodeConfig, Sim, Simulation};
use schema::{
    Cdc, CdcGeneration, CdcPreimage, CdcVnode, Derivation, HIDDEN, Keyspace, RateLimit, Replication, Schema,
    Table, TableBuilder, TableId, TombstoneGc,
};
use topology::{HostId, Location, TabletMaps};
use types::CqlType;

pub const SECOND: Duration = Duration::from_secs(1);

thread_local! {
    /// The coordinators that run, by node and shard. A test is one thread.
    static COORDINATORS: RefCell<BTreeMap<(usize, u16), Coordinator>> = const { RefCell::new(BTreeMap::new()) };
    /// For which nodes hints were kept, by which node.
    static HINTS: RefCell<Vec<(usize, HostId)>> = const { RefCell::new(Vec::new()) };
    /// The messengers of the first shards that run, by node.
    static MESSENGERS: RefCell<BTreeMap<usize, Messenger>> = const { RefCell::new(BTreeMap::new()) };
    /// Whether the commit logs of nodes that start sync each entry before it is acknowledged.
    pub static SYNCS_EACH: StdCell<bool> = const { StdCell::new(false) };
    /// The size of the commit log's segments, of which an entry may take half; none for the usual one.
    pub static SEGMENT_BYTES: StdCell<Option<u64>> = const { StdCell::new(None) };
    /// Whether nodes that start have a log that confirms.
    pub static CONFIRMS: StdCell<bool> = const { StdCell::new(true) };
    /// The topology version and the fence with which a node starts; none for those of a cluster that never changed.
    pub static STARTS_WITH: StdCell<Option<(usize, u64, u64)>> = const { StdCell::new(None) };
    /// So many keyspaces more, `more0` and so on, each with a table `t` and by a replication of its own.
    pub static MORE_KEYSPACES: StdCell<u8> = const { StdCell::new(0) };
    /// The tables that do not lie with their keyspaces, for the nodes that are started.
    pub static TABLETS: RefCell<TabletMaps> = RefCell::default();
    /// The hinted handoffs that run, by node and shard.
    static HANDOFFS: RefCell<BTreeMap<(usize, u16), Handoff>> = const { RefCell::new(BTreeMap::new()) };
}

pub fn coordinator(node: usize, shard: u16) -> Coordinator {
    COORDINATORS.with(|all| all.borrow().get(&(node, shard)).expect("the shard runs").clone())
}

/// The messenger of a node's first shard.
pub fn messenger(node: usize) -> Messenger {
    MESSENGERS.with(|all| all.borrow().get(&node).expect("the node runs").clone())
}

pub fn hints() -> Vec<(usize, HostId)> {
    HINTS.with(|hints| hints.borrow().clone())
}

/// Notes which hints a node would keep.
struct Noting(usize);

impl HintKeeper for Noting {
    fn keep(&self, host: HostId, _: &Table, _: Bytes, _: i64) -> bool {
        HINTS.with(|hints| hints.borrow_mut().push((self.0, host)));
        true
    }

    fn kept(&self) -> Vec<(HostId, HintFigures)> {
        Vec::new()
    }

    fn latest_micros(&self) -> i64 {
        i64::MIN
    }
}

/// Hints that a node keeps, by the host that they are for.
pub fn kept_hints(world: &World, node: usize) -> BTreeMap<HostId, u64> {
    let kept = world.on(node, 0, |_, coordinator| async move { coordinator.kept_hints().await });
    kept.into_iter().map(|(host, figures)| (host, figures.count)).collect()
}

pub fn handoff(node: usize, shard: u16) -> Handoff {
    HANDOFFS.with(|all| all.borrow().get(&(node, shard)).expect("the shard hands off").clone())
}

pub fn host(node: usize) -> HostId {
    HostId([node as u8 + 1; 16])
}

fn address(node: usize, port: u16) -> std::net::SocketAddr {
    ([10, 0, 0, node as u8 + 1], port).into()
}

/// `ks.t` and `ks.counts` with three copies, `limited` with three and with one, two reads and three writes a second, `one.t` with one, `wide.t` with three in each of two datacenters, and `system.paxos`.
pub fn schema() -> Schema {
    let factors = [("dc1", 3), ("dc2", 3)].map(|(name, copies)| (name.to_owned(), copies)).into();
    let mut wide = Keyspace::new("wide", Replication::NetworkTopology { factors });
    let mut three = Keyspace::new("ks", Replication::Simple { factor: 3 });
    let mut one = Keyspace::new("one", Replication::Simple { factor: 1 });
    for (keyspace, id) in [(&mut three, 7), (&mut one, 8), (&mut wide, 12)] {
        let table = TableBuilder::new(&keyspace.name, "t", TableId([id; 16]))
            .partition_key("k", CqlType::Int)
            .clustering("c", CqlType::Int, false)
            .regular("v", CqlType::Text)
            .build_known();
        keyspace.tables.insert("t".to_owned(), table);
    }
    for (keyspace, id) in [(&mut three, 14), (&mut one, 15)] {
        let mut limited = TableBuilder::new(&keyspace.name, "limited", TableId([id; 16]))
            .partition_key("k", CqlType::Int)
            .clustering("c", CqlType::Int, false)
            .regular("v", CqlType::Text);
        limited.options.per_partition_rate_limit =
            RateLimit { max_reads_per_second: Some(2), max_writes_per_second: Some(3) };
        keyspace.tables.insert("limited".to_owned(), limited.build_known());
    }
    let mut repaired = TableBuilder::new("ks", "repaired", TableId([13; 16]))
        .partition_key("k", CqlType::Int)
        .clustering("c", CqlType::Int, false)
        .regular("v", CqlType::Text);
    repaired.options.tombstone_gc = TombstoneGc::Repair { propagation_delay_seconds: 60 };
    three.tables.insert("repaired".to_owned(), repaired.build_known());
    let counts = TableBuilder::new("ks", "counts", TableId([9; 16]))
        .partition_key("k", CqlType::Int)
        .regular("n", CqlType::Counter)
        .build_known();
    three.tables.insert("counts".to_owned(), counts);
    [&mut three, &mut one].into_iter().for_each(add_views);
    [&mut three, &mut one].into_iter().for_each(add_captured);
    let mut schema = cluster::own_schema().with_keyspace(three).with_keyspace(one).with_keyspace(wide);
    for nth in 0..MORE_KEYSPACES.get() {
        schema = schema.with_keyspace(one_more(nth));
    }
    schema.with_keyspace(system()).with_cdc_generation(generation(&CAPTURED_SHARDS))
}

/// A keyspace with three copies in `dc1`, and some in a datacenter of its own that has no nodes.
fn one_more(nth: u8) -> Keyspace {
    let factors = [("dc1".to_owned(), 3), (format!("none{nth}"), 1)].into();
    let mut keyspace = Keyspace::new(format!("more{nth}"), Replication::NetworkTopology { factors });
    let table = TableBuilder::new(&keyspace.name, "t", TableId([200 + nth; 16]))
        .partition_key("k", CqlType::Int)
        .clustering("c", CqlType::Int, false)
        .regular("v", CqlType::Text)
        .build_known();
    keyspace.tables.insert("t".to_owned(), table);
    keyspace
}

/// Adds `viewed` with the views `by_v`, whose key has its regular column, and `by_c`, which hides it; `awaited`, whose view is waited for; and
/// `wide`, whose view hides a column for large texts.
fn add_views(keyspace: &mut Keyspace) {
    let id = |id: u8| TableId([if keyspace.name == "ks" { id } else { id + 10 }; 16]);
    let base = TableBuilder::new(&keyspace.name, "viewed", id(31))
        .partition_key("k", CqlType::Int)
        .clustering("c", CqlType::Int, false)
        .regular("v", CqlType::Text)
        .build_known();
    let mut by_v = TableBuilder::new(&keyspace.name, "by_v", id(32))
        .partition_key("v", CqlType::Text)
        .clustering("k", CqlType::Int, false)
        .clustering("c", CqlType::Int, false)
        .regular(HIDDEN, CqlType::Text);
    let mut by_c = TableBuilder::new(&keyspace.name, "by_c", id(33))
        .partition_key("c", CqlType::Int)
        .clustering("k", CqlType::Int, true)
        .regular(HIDDEN, CqlType::map(CqlType::Blob, CqlType::Blob, false));
    for view in [&mut by_v, &mut by_c] {
        let (where_clause, conditions) = (String::new(), Vec::new());
        let derivation = Derivation::View { base: base.id, all_columns: false, where_clause, conditions };
        view.derivation = Some(derivation);
    }
    let with_view = |name: &str, at: u8| {
        let base = TableBuilder::new(&keyspace.name, name, id(at))
            .partition_key("k", CqlType::Int)
            .clustering("c", CqlType::Int, false)
            .regular("v", CqlType::Text)
            .build_known();
        let mut view = TableBuilder::new(&keyspace.name, &format!("{name}_by_v"), id(at + 1))
            .partition_key("v", CqlType::Text)
            .clustering("k", CqlType::Int, false)
            .clustering("c", CqlType::Int, false)
            .regular(HIDDEN, CqlType::Text);
        let (where_clause, conditions) = (String::new(), Vec::new());
        view.derivation =
            Some(Derivation::View { base: base.id, all_columns: false, where_clause, conditions });
        (base, view)
    };
    let (awaited, mut awaited_by_v) = with_view("awaited", 34);
    awaited_by_v.options.synchronous_updates = true;
    let (graceless, mut graceless_by_v) = with_view("graceless", 38);
    graceless_by_v.options.gc_grace_seconds = 0;
    let wide = TableBuilder::new(&keyspace.name, "wide", id(36))
        .partition_key("k", CqlType::Int)
        .clustering("c", CqlType::Int, false)
        .regular("v", CqlType::Text)
        .build_known();
    let mut wide_by_c = TableBuilder::new(&keyspace.name, "wide_by_c", id(37))
        .partition_key("c", CqlType::Int)
        .clustering("k", CqlType::Int, true)
        .regular(HIDDEN, CqlType::map(CqlType::Blob, CqlType::Blob, false));
    let (where_clause, conditions) = (String::new(), Vec::new());
    wide_by_c.derivation =
        Some(Derivation::View { base: wide.id, all_columns: false, where_clause, conditions });
    let viewed = [base, by_v.build_known(), by_c.build_known()];
    let awaited = [awaited, awaited_by_v.build_known(), graceless, graceless_by_v.build_known()];
    for table in viewed.into_iter().chain(awaited).chain([wide, wide_by_c.build_known()]) {
        keyspace.tables.insert(table.name.clone(), table);
    }
}

/// The shards of the nodes for whose ring there are streams of changes.
pub const CAPTURED_SHARDS: [u16; 3] = [1, 2, 3];

/// Streams for the ring of nodes with so many shards, since ever.
fn generation(shards: &[u16]) -> CdcGeneration {
    let place = |place: usize| CdcVnode {
        upto: spread(place, 4 * shards.len()),
        shards: shards[place % shards.len()],
    };
    CdcGeneration { start_millis: 0, vnodes: (0..4 * shards.len()).map(place).collect() }
}

/// The regular columns of `imaged`.
pub const IMAGED: [&str; 5] = ["v", "w", "x", "y", "z"];

/// Adds `captured` and `imaged`, whose log has all of a row before its changes, with their logs.
fn add_captured(keyspace: &mut Keyspace) {
    let id = |id: u8| TableId([if keyspace.name == "ks" { id } else { id + 10 }; 16]);
    let mut base = TableBuilder::new(&keyspace.name, "captured", id(51))
        .partition_key("k", CqlType::Int)
        .clustering("c", CqlType::Int, false)
        .regular("v", CqlType::Text);
    base.options.cdc = Cdc { enabled: true, postimage: true, ..Cdc::default() };
    let base = base.build_known();
    let log = cdc::log_table(&base, id(52), None, 0).expect("a log of the table");
    let mut imaged = TableBuilder::new(&keyspace.name, "imaged", id(53))
        .partition_key("k", CqlType::Int)
        .clustering("c", CqlType::Int, false);
    for name in IMAGED {
        imaged = imaged.regular(name, CqlType::Text);
    }
    imaged.options.cdc = Cdc { enabled: true, preimage: CdcPreimage::Full, ..Cdc::default() };
    let imaged = imaged.build_known();
    let images = cdc::log_table(&imaged, id(54), None, 0).expect("a log of the table");
    for table in [base, Arc::new(log), imaged, Arc::new(images)] {
        keyspace.tables.insert(table.name.clone(), table);
    }
}

/// The tables of the node's own that the coordinator keeps things in.
fn system() -> Keyspace {
    let mut system = Keyspace::new("system", Replication::Local);
    system.system = true;
    system.computed = true;
    system.kept.extend(["batches".to_owned(), "paxos".to_owned()]);
    let mut builder = TableBuilder::new("system", "paxos", TableId([10; 16]))
        .partition_key("row_key", CqlType::Blob)
        .clustering("cf_id", CqlType::Uuid, false);
    for name in ["in_progress_ballot", "most_recent_commit_at", "proposal_ballot"] {
        builder = builder.regular(name, CqlType::Timeuuid);
    }
    for name in ["most_recent_commit", "proposal"] {
        builder = builder.regular(name, CqlType::Blob);
    }
    for name in ["most_recent_commit_version", "proposal_version"] {
        builder = builder.regular(name, CqlType::Int);
    }
    builder.options.gc_grace_seconds = 0;
    let batches = TableBuilder::new("system", "batches", TableId([11; 16]))
        .partition_key("id", CqlType::Timeuuid)
        .regular("version", CqlType::Int)
        .regular("mutations", CqlType::List { element: Arc::new(CqlType::Blob), frozen: false })
        .build_known();
    let built = TableBuilder::new("system", "built_views", TableId([112; 16]))
        .partition_key("keyspace_name", CqlType::Text)
        .clustering("view_name", CqlType::Text, false)
        .regular("view_id", CqlType::Uuid)
        .build_known();
    let begun = TableBuilder::new("system", "view_builds_in_progress", TableId([113; 16]))
        .partition_key("keyspace_name", CqlType::Text)
        .clustering("view_name", CqlType::Text, false)
        .clustering("start_token", CqlType::Text, false)
        .clustering("end_token", CqlType::Text, false)
        .regular("keys_built", CqlType::Bigint)
        .regular("last_token", CqlType::Text)
        .regular("view_id", CqlType::Uuid)
        .build_known();
    for table in [built, begun] {
        system.kept.insert(table.name.clone());
        system.tables.insert(table.name.clone(), table);
    }
    system.tables.insert("batches".to_owned(), batches);
    system.tables.insert("paxos".to_owned(), builder.build_known());
    system
}

pub fn table(keyspace: &str, name: &str) -> Arc<Table> {
    schema().table(keyspace, name).expect("it is there").clone()
}

/// The hints that nodes keep for each other.
#[derive(Clone)]
struct Keeping {
    hints: Option<HintsConfig>,
    /// Logged batches that were left are applied.
    replays: bool,
}

pub struct World {
    pub sim: Simulation,
    shape: Arc<Shape>,
}

/// The nodes of a world.
struct Shape {
    shards: Vec<u16>,
    /// Of each node; all are in `dc1` when there are none.
    datacenters: Vec<&'static str>,
}

impl Shape {
    fn location(&self, node: usize) -> Location {
        Location::new(self.datacenters.get(node).copied().unwrap_or("dc1"), "r1")
    }
}

impl World {
    /// Running nodes with so many shards each, that only note which hints they would keep.
    pub fn new(seed: u64, shards: &[u16], config: Config) -> World {
        Self::start(seed, shards, &[], config, Keeping { hints: None, replays: false })
    }

    /// Running nodes of one shard in these datacenters, that keep hints and deliver them.
    pub fn wide(seed: u64, datacenters: &[&'static str], config: Config) -> World {
        let keeping = Keeping { hints: Some(HintsConfig::default()), replays: false };
        Self::start(seed, &vec![1; datacenters.len()], datacenters, config, keeping)
    }

    /// [`World::new`] with nodes that keep hints and deliver them.
    pub fn with_handoff(seed: u64, shards: &[u16], config: Config, hints: HintsConfig) -> World {
        Self::start(seed, shards, &[], config, Keeping { hints: Some(hints), replays: false })
    }

    /// [`World::with_handoff`] with nodes that apply logged batches which were left, when they are four seconds old; with
    /// `replays` false they do not.
    pub fn with_batches(seed: u64, shards: &[u16], config: Config, replays: bool) -> World {
        Self::start(seed, shards, &[], config, Keeping { hints: Some(HintsConfig::default()), replays })
    }

    fn start(
        seed: u64,
        shards: &[u16],
        datacenters: &[&'static str],
        config: Config,
        keeping: Keeping,
    ) -> World {
        COORDINATORS.with(|all| all.borrow_mut().clear());
        HINTS.with(|hints| hints.borrow_mut().clear());
        HANDOFFS.with(|all| all.borrow_mut().clear());
        MESSENGERS.with(|all| all.borrow_mut().clear());
        let sim = Simulation::new(seed, config);
        let shape = Arc::new(Shape { shards: shards.to_vec(), datacenters: datacenters.to_vec() });
        for (node, count) in shards.iter().enumerate() {
            let (of, keeping) = (Arc::clone(&shape), keeping.clone());
            let config = NodeConfig { shards: *count, ..NodeConfig::default() };
            let id = sim.add_node(config, move |_| mains(node, &of, &keeping));
            sim.start(id);
        }
        sim.run_for(SECOND / 10);
        World { sim, shape }
    }

    /// Plants bugs in every running node.
    pub fn inject(&self, canaries: Canaries) {
        COORDINATORS.with(|all| {
            all.borrow().values().for_each(|coordinator| coordinator.inject(rt_sim::injected(canaries)))
        });
    }

    /// Has every running node believe that these nodes, and only these, live.
    pub fn believe(&self, alive: &[usize]) {
        self.believe_phases(alive, |_| Phase::Normal);
    }

    /// The same, while places change.
    pub fn believe_phases(&self, alive: &[usize], phase: impl Fn(usize) -> Phase) {
        self.believe_views(|node| view(node, &self.shape, alive, &phase));
    }

    /// The same when operators have declared nodes dead that are not being removed yet.
    pub fn believe_declared_dead(&self, alive: &[usize], phase: impl Fn(usize) -> Phase, dead: &[usize]) {
        let dead: BTreeSet<HostId> = dead.iter().map(|node| host(*node)).collect();
        self.believe_views(|node| view(node, &self.shape, alive, &phase).with_declared_dead(dead.clone()));
    }

    /// The same when an operator has named nodes as dead for the change.
    pub fn believe_ignored(&self, alive: &[usize], phase: impl Fn(usize) -> Phase, dead: &[usize]) {
        let dead: BTreeSet<HostId> = dead.iter().map(|node| host(*node)).collect();
        self.believe_views(|node| view(node, &self.shape, alive, &phase).with_ignored(dead.clone()));
    }

    /// The same when reads have switched to the future owners of the tokens.
    pub fn believe_switched(&self, alive: &[usize], phase: impl Fn(usize) -> Phase) {
        self.believe_views(|node| {
            let nodes = nodes(&self.shape, alive, &phase);
            ClusterView::switched(host(node), nodes).expect("tokens are apart")
        });
    }

    /// The same when a node is not in the cluster any more; it keeps its view.
    pub fn believe_gone(&self, gone: usize) {
        let alive: Vec<usize> = (0..self.shape.shards.len()).filter(|node| *node != gone).collect();
        self.believe_views(|node| {
            let mut nodes = nodes(&self.shape, &alive, &|_| Phase::Normal);
            if node != gone {
                nodes.remove(gone);
            }
            ClusterView::new(host(node), nodes).expect("tokens are apart")
        });
    }

    /// The nodes as views have them.
    pub fn nodes(&self, alive: &[usize], phase: impl Fn(usize) -> Phase) -> Vec<ViewNode> {
        nodes(&self.shape, alive, &phase)
    }

    fn believe_views(&self, view: impl Fn(usize) -> ClusterView) {
        COORDINATORS.with(|all| {
            for ((node, _), coordinator) in &*all.borrow() {
                coordinator.use_view(Arc::new(view(*node)));
            }
        });
    }

    /// Has a node fetch all that it owns of a table.
    pub fn rebuild(
        &self,
        node: usize,
        table: &Arc<Table>,
        from: PullFrom<'static>,
    ) -> Result<PullStats, RequestError> {
        let table = table.clone();
        self.on(node, 0, |_, coordinator| async move {
            let view = coordinator.view();
            let schema = coordinator.schema();
            let replication = &schema.keyspace(&table.keyspace).expect("it is there").replication;
            let mut stats = PullStats::default();
            for range in view.place(replication).now().ranges_of(view.own()) {
                stats += coordinator.pull(&table, range, from).await?;
            }
            Ok(stats)
        })
    }

    /// Has a node fetch all that it will own of a table.
    pub fn pull(&self, node: usize, table: &Arc<Table>) -> Result<PullStats, RequestError> {
        let table = table.clone();
        self.on(node, 0, |_, coordinator| async move {
            let view = coordinator.view();
            let schema = coordinator.schema();
            let keyspace = schema.keyspace(&table.keyspace).expect("it is there");
            let mut stats = PullStats::default();
            for range in view.place_keyspace(keyspace).gained(view.own()) {
                stats += coordinator.pull(&table, range, PullFrom::Quorum).await?;
            }
            Ok(stats)
        })
    }

    /// Runs a task on a shard of a node until its end.
    pub fn on<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        node: usize,
        shard: u16,
        task: impl FnOnce(Rt, Coordinator) -> F,
    ) -> T {
        join(&self.sim, begin(&self.sim, node, shard, task))
    }

    /// Runs a check of a derived table on a node until it ends.
    pub fn checked(&self, node: usize, wanted: DerivedCheck) -> DerivedCheckStatus {
        let id =
            self.on(node, 0, move |_, coordinator| async move { coordinator.begin_derived_check(wanted) });
        let id = id.expect("a derived table");
        for _ in 0..600 {
            let all = self.on(node, 0, |_, coordinator| async move { coordinator.derived_checks() });
            let status = all.into_iter().find(|status| status.id == id).expect("it is remembered");
            if status.state != CheckState::Running {
                return status;
            }
            self.sim.run_for(SECOND / 10);
        }
        panic!("the check does not end");
    }

    pub fn write(
        &self,
        node: usize,
        update: PartitionUpdate,
        consistency: Consistency,
    ) -> Result<(), RequestError> {
        self.on(node, 0, |rt, coordinator| async move { write(&rt, &coordinator, update, consistency).await })
    }

    pub fn read(
        &self,
        node: usize,
        command: ReadCommand,
        consistency: Consistency,
    ) -> Result<ReadPage, RequestError> {
        self.on(node, 0, |rt, coordinator| async move {
            coordinator.read(&command, consistency, rt.now() + 2 * SECOND).await
        })
    }

    /// The texts of a partition as one replica alone has them.
    pub fn kept(&self, node: usize, command: ReadCommand) -> Vec<(i32, String)> {
        self.on(node, 0, |_, coordinator| async move {
            texts(&coordinator.replica().read(Read::of(&command)).await.expect("the disk is well"))
        })
    }
}

pub async fn write(
    rt: &Rt,
    coordinator: &Coordinator,
    update: PartitionUpdate,
    consistency: Consistency,
) -> Result<(), RequestError> {
    let options = WriteOptions { consistency, kind: WriteKind::Simple, deadline: rt.now() + 2 * SECOND };
    // As a statement does.
    let mut update = Some(update);
    coordinator.write_now(&mut update, consistency);
    match update {
        None => Ok(()),
        Some(update) => coordinator.write(vec![update], options).await,
    }
}

pub fn begin<T: 'static, F: Future<Output = T> + 'static>(
    sim: &Sim,
    node: usize,
    shard: u16,
    task: impl FnOnce(Rt, Coordinator) -> F,
) -> Begun<T> {
    let rt = sim.rt(sim.node(node), ShardId(shard)).expect("the node runs");
    let future = task(rt.clone(), coordinator(node, shard));
    Begun::new(&rt, Group::Statement, future)
}

pub fn join<T: 'static>(sim: &Sim, begun: Begun<T>) -> T {
    begun.join(sim).expect("it ends")
}

fn view(own: usize, shape: &Shape, alive: &[usize], phase: &dyn Fn(usize) -> Phase) -> ClusterView {
    let view = ClusterView::new(host(own), nodes(shape, alive, phase)).expect("tokens are apart");
    view.with_tablets(TABLETS.with_borrow(Clone::clone))
}

fn nodes(shape: &Shape, alive: &[usize], phase: &dyn Fn(usize) -> Phase) -> Vec<ViewNode> {
    let shards = &shape.shards;
    let node = |(node, count): (usize, &u16)| ViewNode {
        host: host(node),
        native: address(node, 9042),
        internode: address(node, 7000),
        location: shape.location(node),
        shards: *count,
        // Four tokens each, spread evenly and interleaved.
        tokens: (0..4).map(|turn| spread(turn * shards.len() + node, 4 * shards.len())).collect(),
        alive: alive.contains(&node),
        ready: alive.contains(&node),
        release_version: "5.0.6".to_owned(),
        schema_version: None,
        phase: phase(node),
    };
    shards.iter().enumerate().map(node).collect()
}

fn spread(place: usize, of: usize) -> i64 {
    (i128::from(i64::MIN) + (1i128 << 64) * (place as i128 + 1) / (of as i128 + 1)) as i64
}

fn mains(node: usize, shape: &Arc<Shape>, keeping: &Keeping) -> Vec<ShardMain> {
    let count = shape.shards[node];
    let config = Arc::new(RpcConfig::new("test", host(node), address(node, 7000)));
    let ends = handover_mesh(count).into_iter().zip(Mesh::new(count, 256)).zip(Mesh::new(count, 256));
    ends.map(|((handover, replicas), coordinators)| {
        let (config, shape, keeping) = (Arc::clone(&config), Arc::clone(shape), keeping.clone());
        Box::new(move |rt: Rt| {
            let main = async move {
                let own = schema();
                let messenger = Messenger::new(&rt, config, handover);
                let (data, log) = (PathBuf::from("/data"), PathBuf::from("/log"));
                for directory in [&data, &log] {
                    rt.disk().create_dir_all(directory).await.expect("the disk is well");
                }
                let mut config = EngineConfig::new(data, log);
                config.host_id = host(node).0;
                if SYNCS_EACH.get() {
                    config.commitlog.sync = engine::SyncMode::Batch;
                }
                if let Some(bytes) = SEGMENT_BYTES.get() {
                    config.commitlog.segment_bytes = bytes;
                }
                let engine =
                    Engine::open(rt.clone(), config, Arc::new(own.stored())).await.expect("it opens");
                let replica_config = ReplicaConfig { tombstone_failure_threshold: 100_000 };
                let replica = Replica::new(&rt, engine, replicas.attach(&rt), replica_config);
                let everyone: Vec<usize> = (0..shape.shards.len()).collect();
                let own_view = view(node, &shape, &everyone, &|_| Phase::Normal);
                let own_view = match STARTS_WITH.get() {
                    Some((of, version, fence)) if of == node => own_view.numbered(version, fence),
                    _ => own_view,
                };
                let coordinator = Coordinator::new(
                    rt.clone(),
                    Arc::new(own_view),
                    replica,
                    coordinators.attach(&rt),
                    Arc::new(own),
                );
                coordinator.derive_views();
                coordinator.capture_changes();
                coordinator.connect(&messenger);
                coordinator.replay_batches().await.expect("the disk is well");
                if keeping.replays {
                    coordinator.replay_left_batches(4 * SECOND).detach();
                }
                match keeping.hints {
                    Some(config) => {
                        let hints =
                            Hints::open(&rt, Path::new("/hints"), config).await.expect("the disk is well");
                        let handoff = Handoff::start(&coordinator, hints);
                        HANDOFFS.with(|all| all.borrow_mut().insert((node, rt.shard().0), handoff));
                    }
                    None => coordinator.keep_hints_with(Box::new(Noting(node))),
                }
                let peer = |other: usize| {
                    let info = PeerInfo {
                        address: address(other, 7000),
                        shard_count: shape.shards[other],
                        near: rpc::Near::Rack,
                    };
                    (host(other), info)
                };
                messenger.set_peers(Arc::new(Peers::new((0..shape.shards.len()).map(peer))));
                if rt.shard() == ShardId(0) && CONFIRMS.get() {
                    coordinator.confirm_with(Box::new(|_| Box::pin(async { true })));
                }
                COORDINATORS.with(|all| all.borrow_mut().insert((node, rt.shard().0), coordinator));
                if rt.shard() == ShardId(0) {
                    MESSENGERS.with(|all| all.borrow_mut().insert(node, messenger.clone()));
                    messenger.listen().await.expect("the port is free");
                }
                std::future::pending::<()>().await;
            };
            Box::pin(main) as rt::LocalBoxFuture<()>
        }) as ShardMain
    })
    .collect()
}

pub fn key(k: i32) -> DecoratedKey {
    DecoratedKey::new(Bytes::copy_from_slice(&k.to_be_bytes()))
}

fn clustering(table: &Table, c: i32) -> Clustering {
    Clustering::new(table, &[Some(&c.to_be_bytes())])
}

/// Row `c` of partition `k` with a text.
pub fn row(table: &Arc<Table>, k: i32, c: i32, text: &str, timestamp: i64) -> PartitionUpdate {
    let mut row = Row::new(clustering(table, c));
    row.liveness = LivenessInfo::forever(timestamp);
    let column = table.column("v").expect("it has v").id;
    row.set(column, ColumnData::Simple(Cell::live(timestamp, Bytes::copy_from_slice(text.as_bytes()))));
    let mut update = PartitionUpdate::new(table.clone(), key(k));
    update.add_row(row);
    update
}

/// The deletion of row `c`.
pub fn deleted(table: &Arc<Table>, k: i32, c: i32, timestamp: i64, now: u32) -> PartitionUpdate {
    let mut row = Row::new(clustering(table, c));
    row.deletion = DeletionTime::new(timestamp, now);
    let mut update = PartitionUpdate::new(table.clone(), key(k));
    update.add_row(row);
    update
}

pub fn command(table: &Arc<Table>, partitions: Partitions, now: u32) -> ReadCommand {
    ReadCommand::all_of(table.clone(), partitions, now)
}

/// A read of one partition.
pub fn partition(table: &Arc<Table>, k: i32, now: u32) -> ReadCommand {
    command(table, Partitions::Keys(Keys::from_elem(key(k), 1)), now)
}

/// A read of everything.
pub fn everything(table: &Arc<Table>, now: u32) -> ReadCommand {
    command(table, Partitions::Range(PartitionRange::all()), now)
}

/// Rows of a page with their texts.
pub fn texts(page: &ReadPage) -> Vec<(i32, String)> {
    let row = |row: &Row| {
        let c = row.clustering.components().next().flatten().expect("one component");
        let text = match row.columns().first() {
            Some((_, ColumnData::Simple(cell))) => String::from_utf8_lossy(&cell.value).into_owned(),
            _ => String::new(),
        };
        (i32::from_be_bytes(c.try_into().expect("an int")), text)
    };
    page.partitions.iter().flat_map(|partition| &partition.rows).map(row).collect()
}

/// The wall clock of a node, in seconds.
pub fn seconds(sim: &Sim, node: usize) -> u32 {
    (sim.wall_micros(sim.node(node)) / 1_000_000) as u32
}
