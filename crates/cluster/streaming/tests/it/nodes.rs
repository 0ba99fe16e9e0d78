//! Nodes of a simulation that send and receive transfers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rpc::{Messenger, PeerInfo, Peers, RpcConfig, Target, handover_mesh};
use rt::{Group, LocalBoxFuture, Rt, ShardId, ShardMain};
use rt_sim::{Begun, Config, NodeConfig, Sim, Simulation};
use streaming::transfer::{
    Chunk, FileSink, Plan, Position, Receiver, Sender, Sink, StreamConfig, TransferId,
};
use topology::HostId;

/// The parts of a node of the test.
#[derive(Clone)]
pub struct Node {
    pub messenger: Messenger,
    pub receiver: Rc<Receiver>,
}

thread_local! {
    static NODES: RefCell<BTreeMap<usize, Node>> = const { RefCell::new(BTreeMap::new()) };
    static ROWS: RefCell<Rows> = RefCell::new(Rows::default());
}

/// The rows that a sink has received, over all its processes, and how it behaves.
#[derive(Clone, Default)]
pub struct Rows {
    pub written: Vec<u8>,
    pub position: Position,
    pub closed: Vec<bool>,
    /// How long a write takes.
    pub write_takes: Duration,
    /// Writes that fail.
    pub fails: bool,
    pub most_at_once: usize,
}

pub fn rows<T>(change: impl FnOnce(&mut Rows) -> T) -> T {
    ROWS.with(|rows| change(&mut rows.borrow_mut()))
}

/// A sink that stores everything in the test's own memory, as if it were durable at once.
struct RowSink {
    rt: Rt,
    at_once: Rc<Cell<usize>>,
}

impl Sink for RowSink {
    fn resume(&self) -> Position {
        rows(|rows| rows.position.clone())
    }

    fn write(&self, chunk: Chunk) -> LocalBoxFuture<Result<(), String>> {
        let (rt, at_once) = (self.rt.clone(), Rc::clone(&self.at_once));
        Box::pin(async move {
            at_once.set(at_once.get() + 1);
            let takes = rows(|rows| {
                rows.most_at_once = rows.most_at_once.max(at_once.get());
                rows.write_takes
            });
            rt.sleep(takes).await;
            at_once.set(at_once.get() - 1);
            rows(|rows| {
                if rows.fails {
                    return Err("the disk is full".to_owned());
                }
                rows.written.extend_from_slice(&chunk.data);
                rows.position = match chunk.last {
                    true => Position { item: chunk.item + 1, ..Position::default() },
                    false => Position {
                        item: chunk.item,
                        offset: chunk.offset + chunk.data.len() as u64,
                        cursor: chunk.cursor,
                    },
                };
                Ok(())
            })
        })
    }

    fn close(&self, complete: bool) -> LocalBoxFuture<Result<(), String>> {
        rows(|rows| rows.closed.push(complete));
        Box::pin(async { Ok(()) })
    }
}

pub fn host(node: usize) -> HostId {
    HostId([node as u8 + 1; 16])
}

fn address(node: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::from([10, 0, 0, node as u8 + 1]), 7000)
}

pub fn to(node: usize) -> Target {
    Target::Host { host: host(node), shard: 0 }
}

pub fn node(node: usize) -> Node {
    NODES.with(|nodes| nodes.borrow().get(&node).expect("it runs").clone())
}

pub fn folder(id: TransferId) -> PathBuf {
    PathBuf::from(format!("/incoming/{id}"))
}

/// How the nodes of these tests transfer.
pub fn config() -> StreamConfig {
    StreamConfig {
        chunk_len: 64 << 10,
        window: 512 << 10,
        give_up: Duration::from_secs(120),
        idle_max: Duration::from_secs(300),
        transfers_max: 3,
        ..StreamConfig::default()
    }
}

fn main_of(node: usize) -> ShardMain {
    let endpoint = handover_mesh(1).remove(0);
    Box::new(move |rt: Rt| {
        let messenger =
            Messenger::new(&rt, Arc::new(RpcConfig::new("test", host(node), address(node))), endpoint);
        let peer = |other: usize| {
            (host(other), PeerInfo { address: address(other), shard_count: 1, near: rpc::Near::Rack })
        };
        messenger.set_peers(Arc::new(Peers::new((0..3).map(peer))));
        let clock = rt.clone();
        let receiver = Receiver::new(&rt, &messenger, config(), move |_, plan: Rc<Plan>| {
            let rt = clock.clone();
            async move {
                match &plan.purpose()[..] {
                    b"files" => {
                        let sink = FileSink::open(rt.disk(), folder(plan.id()), plan).await;
                        sink.map(|sink| Rc::new(sink) as Rc<dyn Sink>).map_err(|error| error.to_string())
                    }
                    b"rows" => Ok(Rc::new(RowSink { rt, at_once: Rc::default() }) as Rc<dyn Sink>),
                    _ => Err("nobody wants this".to_owned()),
                }
            }
        });
        let made = Node { messenger: messenger.clone(), receiver: Rc::new(receiver) };
        NODES.with(|nodes| nodes.borrow_mut().insert(node, made));
        Box::pin(async move {
            messenger.listen().await.expect("the port is free");
            std::future::pending::<()>().await;
        })
    })
}

/// Three nodes that know each other.
pub fn start(seed: u64, config: Config) -> Simulation {
    rows(|rows| *rows = Rows::default());
    let sim = Simulation::new(seed, config);
    for node in 0..3 {
        let id = sim.add_node(NodeConfig::default(), move |_| vec![main_of(node)]);
        sim.start(id);
    }
    sim.run_for(Duration::from_millis(10));
    sim
}

/// Begins a task on a node.
pub fn begin<T: 'static, F: Future<Output = T> + 'static>(
    sim: &Sim,
    on: usize,
    task: impl FnOnce(Rt, Sender) -> F,
) -> Begun<T> {
    let rt = sim.rt(sim.node(on), ShardId(0)).expect("the node runs");
    let sender = Sender::new(&rt, &node(on).messenger, config(), None);
    let future = task(rt.clone(), sender);
    Begun::new(&rt, Group::Streaming, future)
}

/// Waits for the end of a task.
pub fn join<T: 'static>(sim: &Sim, begun: Begun<T>) -> T {
    begun.join(sim).expect("it ends")
}

/// Bytes in which every place is known.
pub fn content(len: usize, salt: u32) -> Bytes {
    let word = |i: u32| crc32fast::hash(&(u64::from(salt) << 32 | u64::from(i)).to_be_bytes()).to_be_bytes();
    (0..len.div_ceil(4) as u32).flat_map(word).take(len).collect()
}
