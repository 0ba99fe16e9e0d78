//! Nodes of a simulation that only run the protocol.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rpc::{Incoming, Messenger, PeerInfo, Peers, Refusal, RpcConfig, RpcError, Target, Verb, handover_mesh};
use rt::{Group, Rt, ShardId, ShardMain};
use rt_sim::{Begun, Config, NodeConfig, Sim, Simulation};
use topology::HostId;

pub const PORT: u16 = 7000;

thread_local! {
    /// The messengers that run, by node and shard. A test is one thread.
    static MESSENGERS: RefCell<BTreeMap<(usize, u16), Messenger>> = const { RefCell::new(BTreeMap::new()) };
}

pub fn host(node: usize) -> HostId {
    HostId([node as u8 + 1; 16])
}

pub fn address(node: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::from([10, 0, 0, node as u8 + 1]), PORT)
}

pub fn messenger(node: usize, shard: u16) -> Messenger {
    MESSENGERS.with(|all| all.borrow().get(&(node, shard)).expect("the shard runs").clone())
}

type Change = Arc<dyn Fn(usize, &mut RpcConfig) + Send + Sync>;

/// The options of a test's cluster.
pub struct Cluster {
    pub seed: u64,
    /// Shards of each node.
    pub shards: Vec<u16>,
    pub config: Config,
    pub change: Change,
}

impl Cluster {
    pub fn new(seed: u64, shards: &[u16]) -> Cluster {
        Cluster { seed, shards: shards.to_vec(), config: Config::default(), change: Arc::new(|_, _| ()) }
    }

    pub fn change(mut self, change: impl Fn(usize, &mut RpcConfig) + Send + Sync + 'static) -> Cluster {
        self.change = Arc::new(change);
        self
    }

    /// The running nodes, which know each other.
    pub fn start(self) -> Simulation {
        let sim = Simulation::new(self.seed, self.config);
        let shards = Arc::new(self.shards.clone());
        for (node, count) in self.shards.iter().enumerate() {
            let (shards, change) = (Arc::clone(&shards), Arc::clone(&self.change));
            let id = sim.add_node(NodeConfig { shards: *count, ..NodeConfig::default() }, move |info| {
                let mut config = RpcConfig::new("test", host(node), address(node));
                change(node, &mut config);
                mains(node, info.shards, Arc::new(config), &shards)
            });
            sim.start(id);
        }
        sim.run_for(Duration::from_millis(10));
        sim
    }
}

fn mains(node: usize, count: u16, config: Arc<RpcConfig>, shards: &Arc<Vec<u16>>) -> Vec<ShardMain> {
    let endpoints = handover_mesh(count);
    let main = |endpoint| {
        let (config, shards) = (Arc::clone(&config), Arc::clone(shards));
        Box::new(move |rt: Rt| {
            let messenger = Messenger::new(&rt, config, endpoint);
            serve(&rt, &messenger);
            let peer = |other: usize| {
                let info =
                    PeerInfo { address: address(other), shard_count: shards[other], near: rpc::Near::Rack };
                (host(other), info)
            };
            messenger.set_peers(Arc::new(Peers::new((0..shards.len()).map(peer))));
            let shard = rt.shard();
            MESSENGERS.with(|all| all.borrow_mut().insert((node, shard.0), messenger.clone()));
            let end = async move {
                if shard == ShardId(0) {
                    messenger.listen().await.expect("the port is free");
                }
                std::future::pending::<()>().await;
            };
            Box::pin(end) as rt::LocalBoxFuture<()>
        }) as ShardMain
    };
    endpoints.into_iter().map(main).collect()
}

/// Serves requests, and records them.
fn serve(rt: &Rt, messenger: &Messenger) {
    let shard = rt.shard().0;
    messenger.serve(Verb::Echo, |incoming: Incoming| async move { Ok(incoming.body) });
    // The shard that serves, the caller, and the body.
    messenger.serve(Verb::Read, move |incoming: Incoming| async move {
        let mut answer = vec![shard as u8, incoming.from.0[0]];
        answer.extend_from_slice(&incoming.body);
        Ok(Bytes::from(answer))
    });
    messenger.serve(Verb::Apply, |incoming: Incoming| async move {
        Err(Refusal::new(100, format!("no {} bytes", incoming.body.len())))
    });
    // Answers after so many milliseconds.
    let clock = rt.clone();
    messenger.serve(Verb::Truncate, move |incoming: Incoming| {
        let rt = clock.clone();
        async move {
            let millis = u64::from_be_bytes(incoming.body[..8].try_into().unwrap());
            let _alive = Alive::new();
            rt.sleep(Duration::from_millis(millis)).await;
            Ok(incoming.body)
        }
    });
    messenger.serve(Verb::StreamChunk, |incoming: Incoming| async move { Ok(incoming.body) });
    messenger.serve(Verb::Gossip, |incoming: Incoming| async move {
        GOSSIP.with(|heard| heard.borrow_mut().push(incoming.body));
        Ok(Bytes::new())
    });
}

thread_local! {
    static GOSSIP: RefCell<Vec<Bytes>> = const { RefCell::new(Vec::new()) };
    static ALIVE: RefCell<(usize, usize)> = const { RefCell::new((0, 0)) };
}

/// One-way messages that were served on any node.
pub fn gossip_heard() -> Vec<Bytes> {
    GOSSIP.with(|heard| heard.borrow().clone())
}

/// Slow handlers that run, and that ever ran.
pub fn slow_handlers() -> (usize, usize) {
    ALIVE.with(|alive| *alive.borrow())
}

struct Alive;

impl Alive {
    fn new() -> Alive {
        ALIVE.with(|alive| {
            let mut alive = alive.borrow_mut();
            (alive.0, alive.1) = (alive.0 + 1, alive.1 + 1);
        });
        Alive
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        ALIVE.with(|alive| alive.borrow_mut().0 -= 1);
    }
}

pub fn to(node: usize, shard: u16) -> Target {
    Target::Host { host: host(node), shard }
}

/// Begins a task on a shard of a node.
pub fn begin<T: 'static, F: Future<Output = T> + 'static>(
    sim: &Sim,
    node: usize,
    shard: u16,
    task: impl FnOnce(Rt, Messenger) -> F,
) -> Begun<T> {
    let rt = sim.rt(sim.node(node), ShardId(shard)).expect("the node runs");
    let future = task(rt.clone(), messenger(node, shard));
    Begun::new(&rt, Group::Statement, future)
}

/// Waits for the end of a task.
pub fn join<T: 'static>(sim: &Sim, begun: Begun<T>) -> T {
    begun.join(sim).expect("it ends")
}

/// Begins a call whose handler takes a minute.
pub fn begin_slow(sim: &Sim, from: (usize, u16), target: Target) -> Begun<Result<Bytes, RpcError>> {
    begin(sim, from.0, from.1, move |rt, messenger| async move {
        let body = Bytes::from(60_000u64.to_be_bytes().to_vec());
        messenger.call(target, Verb::Truncate, body, rt.now() + 100 * SECOND).await
    })
}

/// Runs a task on a shard of a node until its end.
pub fn on<T: 'static, F: Future<Output = T> + 'static>(
    sim: &Sim,
    node: usize,
    shard: u16,
    task: impl FnOnce(Rt, Messenger) -> F,
) -> T {
    join(sim, begin(sim, node, shard, task))
}

/// One call with a body and a timeout.
pub fn call(
    sim: &Sim,
    from: (usize, u16),
    target: Target,
    verb: Verb,
    body: impl Into<Bytes>,
    timeout: Duration,
) -> Result<Bytes, RpcError> {
    let body = body.into();
    on(sim, from.0, from.1, |rt, messenger| async move {
        messenger.call(target, verb, body, rt.now() + timeout).await
    })
}

pub const SECOND: Duration = Duration::from_secs(1);
