//! Simulated nodes that run the cluster's group over the protocol between nodes, and nothing else.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cluster::group::{Applied, Group, GroupConfig, JoinError, Opened, VOTERS_MAX};
use cluster::liveness::{LivenessConfig, LivenessDriver, OwnEndpoint};
use cluster::rollback::RollbackGuard;
use cluster::state::{MemberInfo, STATE_VERSION};
use cluster::{NewTokens, NodeIdentity, SchemaEdit};
use rpc::{Messenger, RpcConfig, handover_mesh};
use rt::{Group as Tasks, LocalBoxFuture, Rt, ShardId, ShardMain};
use rt_sim::{Begun, Config, LinkConfig, NodeConfig, NodeId, NodeInfo, Simulation};
use schema::{Keyspace, Replication};
use topology::{HostId, Location};

pub const SECOND: Duration = Duration::from_secs(1);
pub const DIRECTORY: &str = "/data/node";

/// A task that a node's next process runs instead of the node.
type OfflineTask = Box<dyn FnOnce(Rt) -> LocalBoxFuture<String>>;

thread_local! {
    static OFFLINE: RefCell<BTreeMap<usize, OfflineTask>> = const { RefCell::new(BTreeMap::new()) };
    static SAID: RefCell<BTreeMap<usize, String>> = const { RefCell::new(BTreeMap::new()) };
    /// The groups that run, by node. A test is one thread.
    static GROUPS: RefCell<BTreeMap<usize, Group>> = const { RefCell::new(BTreeMap::new()) };
}

pub fn host(node: usize) -> HostId {
    HostId([node as u8 + 1; 16])
}

pub fn address(node: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::from([10, 0, 0, node as u8 + 1]), 7000)
}

pub fn group(node: usize) -> Group {
    GROUPS.with(|groups| groups.borrow().get(&node).expect("the node is in its group").clone())
}

pub fn is_in(node: usize) -> bool {
    GROUPS.with(|groups| groups.borrow().contains_key(&node))
}

/// The configuration of a node at its start.
#[derive(Clone, Debug)]
pub struct Setup {
    pub node: usize,
    pub identity: usize,
    pub cluster_name: String,
    pub rpc_name: String,
    pub seeds: Vec<SocketAddr>,
    pub internode: SocketAddr,
    pub snapshot_entries: u64,
    pub new_cluster: bool,
    pub unresolved: Vec<String>,
    /// It gossips, records its progress, and checks whether its disk was rolled back.
    pub guarded: bool,
    pub allow_rolled_back: bool,
}

impl Setup {
    pub fn new(node: usize) -> Self {
        Self {
            node,
            identity: node,
            cluster_name: "test".to_owned(),
            rpc_name: "test".to_owned(),
            seeds: vec![address(0)],
            internode: address(node),
            snapshot_entries: 20,
            new_cluster: false,
            unresolved: Vec::new(),
            guarded: false,
            allow_rolled_back: false,
        }
    }
}

async fn make_directory(rt: &Rt) {
    rt.disk().create_dir_all(DIRECTORY).await.unwrap();
    rt.disk().sync_dir("/").await.unwrap();
    rt.disk().sync_dir("/data").await.unwrap();
}

/// The guard against rollbacks, and the number of this process lifetime.
async fn guard(rt: &Rt, setup: &Setup, messenger: &Messenger) -> (RollbackGuard, u64) {
    let (directory, name) = (PathBuf::from(DIRECTORY), &setup.cluster_name);
    let mut known = NodeIdentity::open(rt, &directory, name, &NewTokens::Random(1)).await.unwrap();
    let (last, allowed) = (known.generation, setup.allow_rolled_back);
    let guard = RollbackGuard::open(rt, &directory, host(setup.identity), last, allowed).await.unwrap();
    guard.serve(messenger);
    (guard, known.begin_life(rt, &directory).await.unwrap())
}

async fn gossip(
    rt: &Rt,
    setup: &Setup,
    messenger: &Messenger,
    (guard, generation): (RollbackGuard, u64),
    group: Group,
) {
    guard.begin(generation).await;
    let config = gossip::Config::new(setup.cluster_name.clone(), setup.seeds.clone());
    let config = LivenessConfig { rollback: Some(guard), ..LivenessConfig::new(config) };
    let own =
        OwnEndpoint { host: host(setup.identity), generation, address: setup.internode, states: Vec::new() };
    let liveness = LivenessDriver::start(rt, messenger, config, own, |_| {});
    let follow = async move {
        let mut reader = group.subscribe();
        loop {
            let state = group.applied().state;
            let members = state.members.iter().map(|(host, member)| (*host, member.info.internode));
            liveness.set_members(members.collect());
            if reader.changed().await.is_err() {
                return;
            }
        }
    };
    rt.spawn(Tasks::Statement, follow).detach();
}

async fn main(rt: Rt, setup: Setup) -> Result<(), String> {
    let offline = OFFLINE.with(|tasks| tasks.borrow_mut().remove(&setup.node));
    if let Some(task) = offline {
        let said = task(rt).await;
        SAID.with(|all| all.borrow_mut().insert(setup.node, said));
        return Ok(());
    }
    let identity = host(setup.identity);
    let config = Arc::new(RpcConfig::new(&setup.rpc_name, identity, setup.internode));
    let endpoint = handover_mesh(1).pop().expect("one shard");
    let messenger = Messenger::new(&rt, config, endpoint);
    make_directory(&rt).await;
    let guarded = if setup.guarded { Some(guard(&rt, &setup, &messenger).await) } else { None };
    messenger.listen().await.map_err(|error| error.to_string())?;
    let info = MemberInfo {
        internode: setup.internode,
        native: SocketAddr::new(setup.internode.ip(), 9042),
        location: Location::new("dc1", format!("rack{}", setup.node % 3)),
        shard_count: 1,
        release_version: "5.0.0".to_owned(),
        state_version: STATE_VERSION,
    };
    let mut config = GroupConfig::new(PathBuf::from(DIRECTORY), &setup.cluster_name, identity, info);
    config.snapshot_entries = setup.snapshot_entries;
    config.new_cluster = setup.new_cluster;
    config.unresolved_seeds = setup.unresolved.clone();
    config.rollback = guarded.as_ref().map(|(guard, _)| guard.clone());
    let opened = Group::open(&rt, &messenger, config).await.map_err(|error| error.to_string())?;
    let group = match opened {
        Opened::Member(group) => group,
        Opened::Blank(blank) => {
            let tokens = vec![setup.node as i64 * 1_000];
            let joined = blank.found_or_join(&setup.seeds, tokens, rt.now() + 60 * SECOND).await;
            joined.map_err(|error: JoinError| error.to_string())?
        }
    };
    // A node's reaction to a new schema, without its shards.
    let user = group.clone();
    rt.spawn(Tasks::Statement, async move {
        let mut reader = user.subscribe();
        loop {
            user.schema_in_use(user.applied().state.schema_number);
            if reader.changed().await.is_err() {
                return;
            }
        }
    })
    .detach();
    if let Some(guarded) = guarded {
        gossip(&rt, &setup, &messenger, guarded, group.clone()).await;
    }
    GROUPS.with(|groups| groups.borrow_mut().insert(setup.node, group.clone()));
    let mut ended = group.ended();
    while ended.get().is_none() {
        ended.changed().await.map_err(|error| error.to_string())?;
    }
    GROUPS.with(|groups| groups.borrow_mut().remove(&setup.node));
    let why = ended.get().as_ref().map(|why| why.to_string());
    messenger.stop().await;
    Err(why.unwrap_or_default())
}

pub struct Cluster {
    pub sim: Simulation,
    pub nodes: Vec<NodeId>,
}

impl Cluster {
    /// A world without nodes.
    pub fn empty(seed: u64) -> Self {
        Self::empty_with(seed, Config::default())
    }

    /// A world without nodes, whose links lose a little.
    pub fn empty_with(seed: u64, config: Config) -> Self {
        GROUPS.with(|groups| groups.borrow_mut().clear());
        let link = LinkConfig { loss_per_million: 1_000, ..LinkConfig::default() };
        Self { sim: Simulation::new(seed, Config { link, ..config }), nodes: Vec::new() }
    }

    /// Nodes that have come together.
    pub fn new(seed: u64, nodes: usize) -> Self {
        let mut cluster = Self::empty(seed);
        for node in 0..nodes {
            cluster.add(Setup::new(node));
        }
        cluster.all_in(nodes);
        cluster
    }

    pub fn add(&mut self, setup: Setup) -> NodeId {
        self.add_with(move |_| setup.clone())
    }

    /// A node whose set-up may differ from start to start.
    pub fn add_with(&mut self, setup: impl Fn(&NodeInfo) -> Setup + 'static) -> NodeId {
        let id = self.sim.add_node(NodeConfig::default(), move |info| {
            let setup = setup(info);
            let main: ShardMain<Result<(), String>> = Box::new(move |rt| Box::pin(main(rt, setup)));
            vec![main]
        });
        self.nodes.push(id);
        self.sim.start(id);
        id
    }

    /// A node whose first start is something else, which ends by itself.
    pub fn add_before_raft(
        &mut self,
        setup: Setup,
        first: impl Fn(Rt) -> LocalBoxFuture<()> + Send + Sync + 'static,
    ) {
        let first = Arc::new(first);
        let id = self.sim.add_node(NodeConfig::default(), move |info| {
            let (setup, first) = (setup.clone(), first.clone());
            let begin = info.starts == 0;
            let main: ShardMain<Result<(), String>> = Box::new(move |rt| {
                Box::pin(async move {
                    if !begin {
                        return main(rt, setup).await;
                    }
                    make_directory(&rt).await;
                    first(rt).await;
                    Ok(())
                })
            });
            vec![main]
        });
        self.nodes.push(id);
        self.sim.start(id);
    }

    /// Runs until a condition holds; fails after two virtual minutes.
    pub fn until(&self, what: &str, done: impl Fn() -> bool) {
        for _ in 0..1_200 {
            if done() {
                return;
            }
            self.sim.run_for(Duration::from_millis(100));
        }
        for node in 0..self.nodes.len() {
            if is_in(node) {
                eprintln!("{node}: {:?}", group(node).status());
            }
            eprintln!("{node}: {:?}", self.sim.exits(self.nodes[node]));
        }
        panic!("never: {what}");
    }

    /// Everybody is a member, and as many vote as an odd number allows.
    pub fn all_in(&self, count: usize) {
        self.until("everybody is in", || {
            (0..count).all(|node| {
                let status = is_in(node).then(|| group(node).status()).flatten();
                status.is_some_and(|status| {
                    status.membership.all().len() == count && status.membership.voters.len() == votes(count)
                })
            })
        });
    }

    pub fn leader(&self) -> usize {
        let leads = |node: &usize| {
            is_in(*node)
                && self.sim.is_running(self.nodes[*node])
                && group(*node).status().is_some_and(|status| status.log.role == raft::Role::Leader)
        };
        let term = |node: &usize| group(*node).status().map(|status| status.log.term);
        (0..self.nodes.len()).filter(leads).max_by_key(term).expect("somebody leads")
    }

    pub fn crash(&self, node: usize) {
        self.sim.crash(self.nodes[node]);
        GROUPS.with(|groups| groups.borrow_mut().remove(&node));
    }

    /// Ends the process; its writes are still in the system's page cache.
    pub fn kill(&self, node: usize) {
        self.sim.kill(self.nodes[node]);
        GROUPS.with(|groups| groups.borrow_mut().remove(&node));
    }

    /// Runs a task with the disk of a stopped node, and returns its result.
    pub fn offline(&self, node: usize, task: impl FnOnce(Rt) -> LocalBoxFuture<String> + 'static) -> String {
        let id = self.nodes[node];
        assert!(!self.sim.is_running(id), "a node that runs has its log for itself");
        OFFLINE.with(|tasks| tasks.borrow_mut().insert(node, Box::new(task)));
        self.sim.start(id);
        self.until("it is done", || !self.sim.is_running(id));
        SAID.with(|all| all.borrow_mut().remove(&node)).expect("it has ended by itself")
    }

    /// Begins a task on a node.
    pub fn begin<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        node: usize,
        task: impl FnOnce(Rt, Group) -> F,
    ) -> Begun<T> {
        let rt = self.sim.rt(self.nodes[node], ShardId(0)).expect("the node runs");
        let future = task(rt.clone(), group(node));
        Begun::new(&rt, Tasks::Statement, future)
    }

    /// Runs a task on a node until its end.
    pub fn on<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        node: usize,
        task: impl FnOnce(Rt, Group) -> F,
    ) -> T {
        self.begin(node, task).join(&self.sim).expect("it ends")
    }

    /// The state at a node after everything that was acknowledged.
    pub fn barrier(&self, node: usize) -> Applied {
        self.on(node, |rt, group| async move { group.barrier(rt.now() + 30 * SECOND).await })
            .expect("a majority is up")
    }
}

/// How many of so many nodes vote.
pub fn votes(count: usize) -> usize {
    (count - (count + 1) % 2).min(VOTERS_MAX)
}

pub fn keyspace(name: &str) -> Vec<SchemaEdit> {
    vec![SchemaEdit::PutKeyspace(Keyspace::new(name, Replication::Simple { factor: 1 }))]
}

/// CPU time of this thread, as Linux counts it, to exclude other load of the host.
pub fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a mounted /proc");
    Duration::from_nanos(text.split_ascii_whitespace().next().expect("a number").parse().expect("a number"))
}
