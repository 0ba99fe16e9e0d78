//! Nodes of one shard in a simulation, put together as the server does it, without a front end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::SchemaEdit;
use cluster::rollback::RollbackGuard;
use cluster::state::ClusterState;
use coordinator::{Canaries, Coordinator};
use engine::{Engine, EngineConfig};
use futures_util::future::LocalBoxFuture;
use membership::{
    FetchedRanges, Membership, MembershipConfig, MembershipError, NodeShards, RangeStreamer, ShardTask,
    TopologyChanges, open_group,
};
use replica::{Replica, ReplicaConfig};
use rpc::{Messenger, RpcConfig, handover_mesh};
use rt::mesh::Mesh;
use rt::{Group, Rt, ShardId, ShardMain};
use rt_sim::{Begun, Config, NodeConfig, Simulation};
use schema::{Keyspace, Replication, Table, TableBuilder, TableId};
use streaming::{Streaming, StreamingConfig};
use topology::{HostId, Location};
use types::CqlType;

pub const SECOND: Duration = Duration::from_secs(1);
/// A topology change takes no longer, the minute that it waits for nodes that are down included.
const PATIENCE: Duration = Duration::from_secs(300);
const TOKENS: u16 = 8;

/// A node that runs.
#[derive(Clone)]
pub struct Node {
    pub rt: Rt,
    pub coordinator: Coordinator,
    pub changes: TopologyChanges,
    pub membership: Membership,
    pub streaming: Streaming,
}

thread_local! {
    /// The nodes that run and have entered the ring. A test is one thread.
    static NODES: RefCell<BTreeMap<usize, Node>> = const { RefCell::new(BTreeMap::new()) };
}

/// A node that takes a dead one's place, that one's address, and the other dead nodes that it ignores.
type Replacement = (usize, String, Vec<String>);

thread_local! {
    static REPLACEMENT: RefCell<Option<Replacement>> = const { RefCell::new(None) };
}

pub fn host(node: usize) -> HostId {
    HostId([node as u8 + 1; 16])
}

fn address(node: usize, port: u16) -> SocketAddr {
    ([10, 0, 0, node as u8 + 1], port).into()
}

/// `ks.t` with three replicas, whose tombstones may be purged after a second.
pub fn table() -> Arc<Table> {
    let mut table = TableBuilder::new("ks", "t", TableId([7; 16]))
        .partition_key("k", CqlType::Int)
        .clustering("c", CqlType::Int, false)
        .regular("v", CqlType::Text);
    table.options.gc_grace_seconds = 1;
    table.build_known()
}

fn schema_edits() -> Vec<SchemaEdit> {
    let keyspace = Keyspace::new("ks", Replication::Simple { factor: 3 });
    vec![SchemaEdit::PutKeyspace(keyspace), SchemaEdit::PutTable(Table::clone(&table()))]
}

/// The one shard of a node.
struct OneShard {
    rt: Rt,
    streamer: RangeStreamer,
}

impl NodeShards for OneShard {
    fn on_each(&self, task: ShardTask) -> LocalBoxFuture<'_, Vec<Result<FetchedRanges, MembershipError>>> {
        Box::pin(async move { vec![self.streamer.carry_out(&self.rt, task).await] })
    }

    fn close_clients(&self) -> LocalBoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(async { Ok(()) })
    }

    fn quiesce(&self) -> LocalBoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(async { Ok(()) })
    }

    fn batches_stored(&self) -> LocalBoxFuture<'_, u64> {
        Box::pin(async { 0 })
    }
}

async fn config(rt: &Rt, node: usize) -> MembershipConfig {
    let directory = PathBuf::from("/node");
    for directory in ["/node", "/data", "/log"] {
        rt.disk().create_dir_durably(&PathBuf::from(directory)).await.expect("the disk is well");
    }
    let generation = (rt.wall_micros() / 1_000_000) as u64;
    let guard = RollbackGuard::open(rt, &directory, host(node), generation, false).await;
    let replacement = REPLACEMENT.with(|replacement| replacement.borrow().clone());
    let (replaces, ignored) = match replacement.filter(|(by, ..)| *by == node) {
        Some((_, dead, ignored)) => (Some(dead), ignored),
        None => (None, Vec::new()),
    };
    MembershipConfig {
        host: host(node),
        generation,
        tokens: (0..i64::from(TOKENS)).map(|nth| nth << 60).collect(),
        guard: guard.expect("the disk is well"),
        directory,
        cluster_name: "test".to_owned(),
        internode: address(node, 7000),
        native: address(node, 9042),
        location: Location::new("dc1", "r1"),
        release_version: "5.0.6".to_owned(),
        seeds: vec![address(0, 7000)],
        seeds_text: "node 0".to_owned(),
        unresolved_seeds: Vec::new(),
        replaces,
        ignored,
        initial_token: String::new(),
        num_tokens: TOKENS,
        new_cluster: false,
        phi_convict_threshold: 8.0,
        auto_bootstrap: true,
        write_time_max: 2 * SECOND,
        request_time_max: 10 * SECOND,
    }
}

/// From an empty process to a node of the ring.
async fn run(rt: Rt, node: usize, canaries: Canaries) {
    let rpc = Arc::new(RpcConfig::new("test", host(node), address(node, 7000)));
    let messenger = Messenger::new(&rt, rpc, handover_mesh(1).pop().expect("one shard"));
    let config = config(&rt, node).await;
    let (guard, generation) = (config.guard.clone(), config.generation);
    guard.serve(&messenger);
    messenger.listen().await.expect("the port is free");
    let group =
        open_group(&rt, &messenger, &config, cluster::own_schema()).await.expect("there is a cluster");
    guard.begin(generation).await;
    let membership = Membership::start(&rt, &messenger, config, group);
    let schema = membership.group().applied().state.schema.clone();
    let view = coordinator::placed(membership.view(None).expect("it is a member"), None).await;
    let engine = EngineConfig::new(PathBuf::from("/data"), PathBuf::from("/log"));
    let engine = Engine::open(rt.clone(), engine, Arc::new(schema.stored())).await.expect("it opens");
    let replica_port = Mesh::new(1, 256).pop().expect("one shard").attach(&rt);
    let replica_config = ReplicaConfig { tombstone_failure_threshold: 10_000 };
    let replica = Replica::new(&rt, engine.clone(), replica_port, replica_config);
    let port = Mesh::new(1, 256).pop().expect("one shard").attach(&rt);
    let coordinator = Coordinator::new(rt.clone(), Arc::new(view), replica, port, schema);
    coordinator.inject(rt_sim::injected(canaries));
    coordinator.connect(&messenger);
    let streaming = StreamingConfig::new(PathBuf::from("/node/streaming"));
    let streaming = Streaming::open(&rt, host(node), &messenger, &engine, streaming).await;
    let streaming = streaming.expect("the disk is well");
    let streamer = RangeStreamer::new(&coordinator, &engine, &streaming);
    membership.follow(&coordinator);
    let shards = Rc::new(OneShard { rt: rt.clone(), streamer });
    let changes = TopologyChanges::new(&rt, &membership, &coordinator, shards);
    membership.hear_of_others(rt.now() + 5 * SECOND).await;
    if membership.is_joining() {
        changes.join().await.expect("it is let in");
    } else {
        membership.catch_up(rt.now() + 10 * SECOND).await.expect("it is a member");
    }
    membership.set_ready(true);
    changes.start();
    let running = Node { rt, coordinator, changes, membership, streaming };
    NODES.with(|nodes| nodes.borrow_mut().insert(node, running));
    std::future::pending::<()>().await;
}

pub struct World {
    pub sim: Simulation,
}

impl World {
    /// So many nodes, of which the first runs alone in its cluster and the others are not started yet.
    pub fn new(seed: u64, nodes: usize, canaries: Canaries) -> Self {
        NODES.with(|nodes| nodes.borrow_mut().clear());
        REPLACEMENT.with(|replacement| *replacement.borrow_mut() = None);
        let sim = Simulation::new(seed, Config::default());
        for node in 0..nodes {
            sim.add_node(NodeConfig::default(), move |_| {
                let main: ShardMain<()> = Box::new(move |rt: Rt| Box::pin(run(rt, node, canaries)));
                vec![main]
            });
        }
        let world = Self { sim };
        world.start(0);
        world.on(0, |node| async move {
            let base = node.coordinator.schema().version();
            node.coordinator.change_schema(base, schema_edits()).await.expect("it is alone");
        });
        world
    }

    /// Starts a node and waits until it is in the ring.
    pub fn start(&self, node: usize) {
        self.sim.start(self.sim.node(node));
        self.wait_until(|| NODES.with(|nodes| nodes.borrow().contains_key(&node)));
    }

    /// Has a node take the place of a dead one, without other dead nodes, from its next start on; it is not waited for.
    pub fn replace(&self, node: usize, dead: usize, ignored: &[usize]) {
        let ip = |node: usize| address(node, 7000).ip().to_string();
        let replacement = (node, ip(dead), ignored.iter().map(|node| ip(*node)).collect());
        REPLACEMENT.with(|known| *known.borrow_mut() = Some(replacement));
        self.sim.start(self.sim.node(node));
    }

    /// Whether a node runs and has entered the ring.
    pub fn is_in(&self, node: usize) -> bool {
        NODES.with(|nodes| nodes.borrow().contains_key(&node))
    }

    /// Has every node in the ring send files at this rate, bytes a second, or at once.
    pub fn set_bandwidth(&self, bytes_per_second: Option<u64>) {
        NODES.with(|nodes| {
            nodes.borrow().values().for_each(|node| node.streaming.set_bandwidth(bytes_per_second));
        });
    }

    /// The state of the cluster's log as a node knows it.
    pub fn state(&self, node: usize) -> Arc<ClusterState> {
        NODES.with(|nodes| nodes.borrow()[&node].membership.group().applied().state)
    }

    /// Changes how many replicas the keyspace has.
    pub fn alter(&self, node: usize, factor: u32) {
        let keyspace = Keyspace::new("ks", Replication::Simple { factor });
        self.on(node, move |Node { coordinator, .. }| async move {
            let base = coordinator.schema().version();
            let edits = vec![SchemaEdit::PutKeyspace(keyspace)];
            coordinator.change_schema(base, edits).await.expect("a majority is up");
        });
    }

    /// Ends a node's process.
    pub fn kill(&self, node: usize) {
        NODES.with(|nodes| nodes.borrow_mut().remove(&node));
        self.sim.kill(self.sim.node(node));
    }

    /// Lets time pass until something holds.
    pub fn wait_until(&self, mut holds: impl FnMut() -> bool) {
        let mut waited = Duration::ZERO;
        while !holds() {
            self.sim.run_for(SECOND / 2);
            waited += SECOND / 2;
            assert!(waited < PATIENCE, "it takes too long");
        }
    }

    /// Begins a task on a node.
    pub fn begin<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        node: usize,
        task: impl FnOnce(Node) -> F,
    ) -> Begun<T> {
        let running = NODES.with(|nodes| nodes.borrow().get(&node).cloned()).expect("the node runs");
        let rt = self.sim.rt(self.sim.node(node), ShardId(0)).expect("the node runs");
        Begun::new(&rt, Group::Statement, task(running))
    }

    /// Runs a task on a node until its end.
    pub fn on<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        node: usize,
        task: impl FnOnce(Node) -> F,
    ) -> T {
        self.begin(node, task).join(&self.sim).expect("it ends")
    }
}
