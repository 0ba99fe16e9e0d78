//! Nodes of a simulation with storage, connections and repair, and nothing else: the test sets the members of the ring and the live nodes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::{Engine, EngineConfig};
use mutation::{Clustering, ColumnData, DecoratedKey, LivenessInfo, PartitionRange, PartitionUpdate, Row};
use repair::plan::RepairOptions;
use repair::{ClusterContext, JobState, JobStatus, Members, Repair, RepairConfig, Wanted};
use replica::{
    Form, Origin, Partitions, Read, ReadCommand, ReadPage, Replica, ReplicaConfig, TableOperation, Write,
};
use rpc::{Messenger, PeerInfo, Peers, RpcConfig, handover_mesh};
use rt::mesh::Mesh;
use rt::sync::{Gate, GateGuard};
use rt::{Group, Rt, ShardId, ShardMain};
use rt_sim::{Config, NodeConfig, Simulation};
use schema::{Keyspace, Replication, Schema, Table, TableBuilder, TableId, TombstoneGc};
use topology::{HostId, Location, NodeIndex, Ring, RingNode, TabletMaps};
use types::CqlType;

pub const SECOND: Duration = Duration::from_secs(1);

/// A shard that runs.
#[derive(Clone)]
struct Running {
    replica: Replica,
    repair: Repair,
}

thread_local! {
    /// By node and shard. A test is one thread.
    static RUNNING: RefCell<BTreeMap<(usize, u16), Running>> = const { RefCell::new(BTreeMap::new()) };
    /// The node that every node believes to be dead.
    static DEAD: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    /// The change of a node's disk before it starts the next time.
    static BEFORE_START: RefCell<BTreeMap<usize, Loss>> = const { RefCell::new(BTreeMap::new()) };
    /// Whether every node believes that others join or leave.
    static CHANGING: Cell<bool> = const { Cell::new(false) };
    /// By node: its topology version; 0 for those that are not named.
    static TOPOLOGY: RefCell<BTreeMap<usize, u64>> = const { RefCell::new(BTreeMap::new()) };
    /// Nodes that are no replicas by their topology version.
    static FORMER: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The data that a disk may lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The SSTable of a table that was written last, on each shard.
    Newest(TableId),
    /// The one that was written first, on each shard.
    Oldest(TableId),
    /// The history of repairs.
    History,
    /// Everything: the node is a new one.
    All,
}

impl Loss {
    async fn happen(self, rt: &Rt) {
        let (disk, data) = (rt.disk(), PathBuf::from("/data"));
        match self {
            Self::All => {
                for directory in [&data, &PathBuf::from("/log")] {
                    disk.remove_dir_all(directory).await.expect("the disk is well");
                }
            }
            Self::History => disk.remove(data.join("repairs")).await.expect("the disk is well"),
            Self::Newest(id) | Self::Oldest(id) => {
                let dir = engine::dropped_table_dir(&data, "ks", &table_name(id), id);
                let entries = disk.list(&dir).await.expect("the disk is well");
                let number = |name: &str| name.strip_prefix("nb-")?.split('-').next()?.parse::<u64>().ok();
                let shards = u64::from(rt.shard_count());
                let own = |number: &u64| number % shards == u64::from(rt.shard().0);
                let numbers = entries.iter().filter_map(|entry| number(&entry.name)).filter(own);
                let lost = if matches!(self, Self::Newest(_)) { numbers.max() } else { numbers.min() }
                    .expect("it has files");
                for entry in entries.iter().filter(|entry| number(&entry.name) == Some(lost)) {
                    disk.remove(dir.join(&entry.name)).await.expect("the disk is well");
                }
            }
        }
    }
}

fn table_name(id: TableId) -> String {
    schema().table_by_id(id).expect("it is there").name.clone()
}

pub fn host(node: usize) -> HostId {
    HostId([node as u8 + 1; 16])
}

/// `ks.t` with three copies, `ks.gc` beside it, which forgets deletions after repairs.
pub fn schema() -> Schema {
    let mut keyspace = Keyspace::new("ks", Replication::Simple { factor: 3 });
    for (name, id, gc) in
        [("t", 7, TombstoneGc::Timeout), ("gc", 8, TombstoneGc::Repair { propagation_delay_seconds: 10 })]
    {
        let mut builder = TableBuilder::new("ks", name, TableId([id; 16]))
            .partition_key("k", CqlType::Int)
            .clustering("c", CqlType::Int, false)
            .regular("v", CqlType::Text);
        builder.options.tombstone_gc = gc;
        builder.options.gc_grace_seconds = 4 * 3_600;
        keyspace.tables.insert(name.to_owned(), builder.build_known());
    }
    Schema::default().with_keyspace(keyspace)
}

pub fn table(name: &str) -> Arc<Table> {
    schema().table("ks", name).expect("it is there").clone()
}

struct Around {
    schema: Arc<Schema>,
    own: usize,
    nodes: usize,
}

impl ClusterContext for Around {
    fn schema(&self) -> Arc<Schema> {
        self.schema.clone()
    }

    fn members(&self) -> Members {
        let nodes = self.nodes;
        let member = |node: usize| {
            let tokens = (0..4).map(|turn| spread(turn * nodes + node, 4 * nodes)).collect();
            (RingNode { host: host(node), location: Location::new("dc1", "r1") }, tokens)
        };
        let alive = (0..nodes).map(|node| DEAD.with(|dead| !dead.borrow().contains(&node))).collect();
        let ring = Ring::new((0..nodes).map(member)).expect("tokens are apart");
        let topology = self.topology();
        let (own, tablets) = (NodeIndex(self.own as u16), TabletMaps::default());
        Members { ring, own, alive, changing: CHANGING.get(), topology, tablets }
    }

    fn admit(&self, topology: u64) -> Result<GateGuard, u64> {
        let own = self.topology();
        if own == topology { Ok(Gate::new().enter().expect("it is open")) } else { Err(own) }
    }

    fn takes(&self, _table: &Table, _token: i64) -> bool {
        !FORMER.with(|former| former.borrow().contains(&self.own))
    }
}

impl Around {
    fn topology(&self) -> u64 {
        TOPOLOGY.with(|all| all.borrow().get(&self.own).copied().unwrap_or(0))
    }
}

fn spread(place: usize, of: usize) -> i64 {
    (i128::from(i64::MIN) + (1i128 << 64) * (place as i128 + 1) / (of as i128 + 1)) as i64
}

fn address(node: usize) -> std::net::SocketAddr {
    ([10, 0, 0, node as u8 + 1], 7000).into()
}

pub struct World {
    pub sim: Simulation,
    pub shards: Vec<u16>,
}

impl World {
    /// Running nodes with so many shards each.
    pub fn new(seed: u64, shards: &[u16], config: RepairConfig) -> World {
        RUNNING.with(|all| all.borrow_mut().clear());
        DEAD.with(|dead| dead.borrow_mut().clear());
        CHANGING.set(false);
        TOPOLOGY.with(|all| all.borrow_mut().clear());
        FORMER.with(|former| former.borrow_mut().clear());
        let sim = Simulation::new(seed, Config::default());
        let of = Arc::new(shards.to_vec());
        for (node, count) in shards.iter().enumerate() {
            let (of, config) = (Arc::clone(&of), config.clone());
            let id = sim.add_node(NodeConfig { shards: *count, ..NodeConfig::default() }, move |_| {
                mains(node, &of, &config)
            });
            sim.start(id);
        }
        sim.run_for(SECOND / 10);
        World { sim, shards: shards.to_vec() }
    }

    /// Has every node believe that these are dead.
    pub fn believe_dead(&self, nodes: &[usize]) {
        DEAD.with(|dead| *dead.borrow_mut() = nodes.to_vec());
    }

    /// Has every node believe that others join or leave.
    pub fn believe_changing(&self, changing: bool) {
        CHANGING.set(changing);
    }

    /// Has a node have a topology version.
    pub fn believe_topology(&self, node: usize, version: u64) {
        TOPOLOGY.with(|all| all.borrow_mut().insert(node, version));
    }

    /// Has nodes take no writes of the table's tokens any more.
    pub fn believe_former(&self, nodes: &[usize]) {
        FORMER.with(|former| *former.borrow_mut() = nodes.to_vec());
    }

    /// Stops a node as `kill -9` does, and starts it again.
    pub fn restart(&self, node: usize) {
        self.sim.kill(self.sim.node(node));
        self.sim.start(self.sim.node(node));
        self.sim.run_for(SECOND / 10);
    }

    /// Stops a node, and starts it again when its disk has lost something.
    pub fn restart_after(&self, node: usize, loss: Loss) {
        self.sim.kill(self.sim.node(node));
        BEFORE_START.with(|all| all.borrow_mut().insert(node, loss));
        self.sim.start(self.sim.node(node));
        self.sim.run_for(SECOND / 10);
        BEFORE_START.with(|all| all.borrow_mut().clear());
    }

    /// Maintains one table on a node.
    pub fn maintain(&self, node: usize, table: &Arc<Table>, operation: TableOperation) {
        let id = table.id;
        self.on(node, move |_, replica, _| async move {
            replica.table_operation(id, operation).await.expect("the disk is well");
        });
    }

    /// Takes a node's power, and starts it again.
    pub fn lose_power(&self, node: usize) {
        self.sim.crash(self.sim.node(node));
        self.sim.start(self.sim.node(node));
        self.sim.run_for(SECOND / 10);
    }

    /// Runs a task on shard 0 of a node until its end.
    pub fn on<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        node: usize,
        task: impl FnOnce(Rt, Replica, Repair) -> F,
    ) -> T {
        let rt = self.sim.rt(self.sim.node(node), ShardId(0)).expect("the node runs");
        let Running { replica, repair } =
            RUNNING.with(|all| all.borrow().get(&(node, 0)).expect("the shard runs").clone());
        let future = task(rt.clone(), replica, repair);
        let result = Rc::new(RefCell::new(None));
        let output = Rc::clone(&result);
        let task = rt.spawn(Group::Statement, async move { *output.borrow_mut() = Some(future.await) });
        self.sim.run_until(|| task.is_finished()).expect("it ends");
        result.borrow_mut().take().expect("a finished task has left its result")
    }

    pub fn repair(&self, node: usize) -> Repair {
        RUNNING.with(|all| all.borrow().get(&(node, 0)).expect("the shard runs").repair.clone())
    }

    /// Writes on one node alone.
    pub fn write(&self, node: usize, updates: Vec<PartitionUpdate>) {
        self.on(node, |_, replica, _| async move {
            for update in updates {
                replica.apply(Write::one(Origin::Client, update)).await.expect("the disk is well");
            }
        });
    }

    /// All that a node has, deletions included.
    pub fn kept(&self, node: usize, table: &Arc<Table>) -> ReadPage {
        let command = everything(table, self.seconds(node), Form::Full);
        self.on(node, |_, replica, _| async move {
            ReadPage { tombstones: 0, ..replica.read(Read::of(&command)).await.expect("the disk is well") }
        })
    }

    pub fn seconds(&self, node: usize) -> u32 {
        (self.sim.wall_micros(self.sim.node(node)) / 1_000_000) as u32
    }

    /// Begins a repair of one table by a node.
    pub fn begin(&self, node: usize, table: &Arc<Table>, unless_since: u32) -> u64 {
        self.begin_wanted(node, table, unless_since, true)
    }

    /// Begins a repair of one table by a node that leaves out data compared before.
    pub fn begin_incremental(&self, node: usize, table: &Arc<Table>) -> u64 {
        self.begin_wanted(node, table, 0, false)
    }

    fn begin_wanted(&self, node: usize, table: &Arc<Table>, unless_since: u32, full: bool) -> u64 {
        let tables = vec![table.name.clone()];
        let wanted = Wanted {
            keyspace: "ks".to_owned(),
            tables,
            options: RepairOptions::all(),
            unless_since,
            full,
            units_at_once: usize::MAX,
        };
        self.on(node, |_, _, repair| async move { repair.begin(wanted).expect("it can be planned") })
    }

    pub fn status(&self, node: usize, job: u64) -> JobStatus {
        self.repair(node).status(job).expect("it was begun")
    }

    /// Waits for the end of a repair.
    pub fn wait(&self, node: usize, job: u64) -> JobStatus {
        let ended = || self.status(node, job).state != JobState::Running;
        self.sim.run_until(ended).expect("it ends");
        self.status(node, job)
    }

    /// The state of a repair when it has ended, or after a time.
    pub fn ended(&self, node: usize, job: u64, timeout: Option<Duration>) -> JobState {
        self.on(node, |_, _, repair| async move { repair.ended(job, timeout).await });
        self.status(node, job).state
    }

    pub fn cancel(&self, node: usize, job: u64) -> bool {
        self.on(node, |_, _, repair| async move { repair.cancel(job).await })
    }

    /// Bytes that the shards of all nodes keep for masters at most.
    pub fn kept_bytes(&self) -> usize {
        RUNNING
            .with(|all| all.borrow().values().map(|running| running.repair.kept_bytes()).max().unwrap_or(0))
    }
}

fn mains(node: usize, shards: &Arc<Vec<u16>>, repair_config: &RepairConfig) -> Vec<ShardMain> {
    let count = shards[node];
    let config = Arc::new(RpcConfig::new("test", host(node), address(node)));
    let ends = handover_mesh(count).into_iter().zip(Mesh::new(count, 256));
    ends.map(|(handover, replicas)| {
        let (config, shards, repair_config) =
            (Arc::clone(&config), Arc::clone(shards), repair_config.clone());
        Box::new(move |rt: Rt| {
            let main = async move {
                let schema = Arc::new(schema());
                let messenger = Messenger::new(&rt, config, handover);
                let (data, log) = (PathBuf::from("/data"), PathBuf::from("/log"));
                let loss = BEFORE_START.with(|all| all.borrow().get(&node).copied());
                let of_node = matches!(loss, Some(Loss::All | Loss::History));
                if let Some(loss) = loss.filter(|_| !of_node || rt.shard() == ShardId(0)) {
                    loss.happen(&rt).await;
                }
                for directory in [&data, &log] {
                    rt.disk().create_dir_all(directory).await.expect("the disk is well");
                }
                let engine = Engine::open(rt.clone(), EngineConfig::new(data.clone(), log), schema.clone());
                let replica_config = ReplicaConfig { tombstone_failure_threshold: 100_000 };
                let engine = engine.await.expect("it opens");
                let replica = Replica::new(&rt, engine, replicas.attach(&rt), replica_config);
                let around = Rc::new(Around { schema, own: node, nodes: shards.len() });
                let repair =
                    Repair::open(&rt, host(node), &messenger, replica.clone(), around, repair_config, &data)
                        .await
                        .expect("the disk is well");
                let peer = |other: usize| {
                    let info = PeerInfo {
                        address: address(other),
                        shard_count: shards[other],
                        near: rpc::Near::Rack,
                    };
                    (host(other), info)
                };
                messenger.set_peers(Arc::new(Peers::new((0..shards.len()).map(peer))));
                let running = Running { replica, repair: repair.clone() };
                RUNNING.with(|all| all.borrow_mut().insert((node, rt.shard().0), running));
                if rt.shard() == ShardId(0) {
                    messenger.listen().await.expect("the port is free");
                    repair.start().await;
                }
                std::future::pending::<()>().await;
            };
            Box::pin(main) as rt::LocalBoxFuture<()>
        }) as ShardMain
    })
    .collect()
}

pub fn everything(table: &Arc<Table>, now: u32, form: Form) -> ReadCommand {
    let all = Partitions::Range(PartitionRange::all());
    ReadCommand { form, ..ReadCommand::all_of(table.clone(), all, now) }
}

/// Row `c` of partition `k` with a text.
pub fn row(table: &Arc<Table>, k: i32, c: i32, text: &str, timestamp: i64) -> PartitionUpdate {
    let mut row = Row::new(Clustering::new(table, &[Some(&c.to_be_bytes())]));
    row.liveness = LivenessInfo::forever(timestamp);
    let column = table.column("v").expect("it has v").id;
    row.set(
        column,
        ColumnData::Simple(mutation::Cell::live(timestamp, Bytes::copy_from_slice(text.as_bytes()))),
    );
    let mut update = PartitionUpdate::new(table.clone(), key(k));
    update.add_row(row);
    update
}

pub fn key(k: i32) -> DecoratedKey {
    DecoratedKey::new(Bytes::copy_from_slice(&k.to_be_bytes()))
}
