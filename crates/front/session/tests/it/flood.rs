//! A hundred thousand connections whose handshake is never finished: each costs little, all are closed in time, and a client that
//! behaves is served meanwhile. The system's limit on open files forbids that with real sockets, so these are simulated.
//!
//! The cost of a connection is read from the size of a process that does nothing else, less that of one whose server takes the
//! same connections and only holds them: the test starts itself twice.

use std::net::SocketAddr;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::BytesMut;
use rt::sync::Semaphore;
use rt::{ConnectOptions, Group, ListenOptions, LocalBoxFuture, Rt, ShardMain, Stream, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};
use session::{AllowAll, SessionConfig, Sessions, SessionsEndpoint, sessions_mesh};
use wire::client::RequestWriter;
use wire::{Dialect, Encoder, Version};

use crate::client::Client;
use crate::world::{Echo, node};

const SHARDS: u16 = 2;
/// Machines that flood, tasks of each, connections of each task: a machine has 28,000 ports.
const MACHINES: u64 = 4;
const TASKS: u64 = 50;
const CONNECTIONS: u64 = 500;
const ALL: u64 = MACHINES * TASKS * CONNECTIONS;
/// The limit of a half-open connection's cost, bytes: buffers of a driver's first messages would be 2 KiB and more.
const COST_MAX: u64 = 4 << 10;
/// How long the well-behaved client may wait for an answer.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(500);
/// Says to the process which server it is to run.
const ROLE: &str = "TORC_TEST_FLOOD";

#[derive(Default)]
struct Counts {
    /// Connections that the server has, by shard.
    open: [AtomicU64; SHARDS as usize],
    /// Connections whose end the flooding machines have seen.
    closed: AtomicU64,
    /// Queries of the well-behaved client that were answered, and the longest time that one took, microseconds.
    answered: AtomicU64,
    slowest_micros: AtomicU64,
}

impl Counts {
    fn open(&self) -> u64 {
        self.open.iter().map(|open| open.load(Relaxed)).sum()
    }
}

async fn serve(rt: Rt, endpoint: SessionsEndpoint, address: SocketAddr, counts: Arc<Counts>) {
    let echo = Echo::new(&rt, Rc::default(), Semaphore::new(0));
    let config = SessionConfig::new(address);
    let sessions = Sessions::new(&rt, config, node(), Rc::new(AllowAll), endpoint, echo);
    if rt.shard().0 == 0 {
        sessions.listen().await.expect("the address is free");
    }
    loop {
        counts.open[rt.shard().index()].store(sessions.metrics().connections.get(), Relaxed);
        rt.sleep(Duration::from_millis(10)).await;
    }
}

/// A server that takes connections and does nothing with them.
async fn hold(rt: Rt, address: SocketAddr, counts: Arc<Counts>) {
    if rt.shard().0 != 0 {
        return std::future::pending().await;
    }
    let listener = rt.net().listen(address, ListenOptions::default()).await.expect("the address is free");
    let mut held = Vec::new();
    loop {
        held.push(listener.accept().await.expect("a connection"));
        counts.open[0].store(held.len() as u64, Relaxed);
    }
}

/// Connects, sends nothing, or half of a message, or a whole one that does not finish the handshake, and stays so.
async fn half_open(rt: &Rt, address: SocketAddr, nth: u64) -> Stream {
    let stream = rt.net().connect(address, ConnectOptions::default()).await.expect("the server listens");
    let dialect = Dialect::new(Version::V4);
    let (mut encoder, mut request) = (Encoder::new(), RequestWriter::new(dialect));
    request.options();
    encoder.push_request(0, &request);
    let bytes = encoder.finish();
    let said = match nth % 3 {
        0 => &[][..],
        1 => &bytes[..5],
        _ => &bytes[..],
    };
    stream.write_all(said).await.expect("the connection is open");
    stream
}

async fn flood(rt: Rt, address: SocketAddr, counts: Arc<Counts>) {
    rt.sleep(Duration::from_millis(100)).await;
    for _ in 0..TASKS {
        let (rt2, counts) = (rt.clone(), counts.clone());
        let task = async move {
            let mut streams = Vec::new();
            for nth in 0..CONNECTIONS {
                streams.push(half_open(&rt2, address, nth).await);
            }
            let mut buffer = BytesMut::new();
            for stream in streams {
                // Until the end, or an error, which is an end too.
                buffer.reserve(4096);
                while stream.read_buf(&mut buffer).await.is_ok_and(|read| read > 0) {
                    buffer.clear();
                }
                counts.closed.fetch_add(1, Relaxed);
            }
        };
        rt.spawn(Group::Statement, task).detach();
    }
    std::future::pending().await
}

/// Connects, asks, connects anew, for as long as the simulation runs.
async fn behave(rt: Rt, address: SocketAddr, counts: Arc<Counts>) {
    rt.sleep(Duration::from_millis(50)).await;
    loop {
        let mut client = Client::connect(&rt, address, None, Version::V5).await;
        client.start_up(&[]).await;
        for _ in 0..40 {
            let asked = rt.now();
            client.query("void").await;
            let took = rt.now() - asked;
            counts.slowest_micros.fetch_max(took.as_micros() as u64, Relaxed);
            counts.answered.fetch_add(1, Relaxed);
            rt.sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux says how large a process is");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("the second number of statm") * 4096
}

/// Runs one of the servers under the flood; how much the process grew while all connections came up.
fn run(bare: bool) -> u64 {
    let simulation = Simulation::new(1, Config::default());
    let sim = simulation.handle();
    let counts: Arc<Counts> = Arc::default();
    let of_server = counts.clone();
    let server = sim.add_node(NodeConfig { shards: SHARDS, ..NodeConfig::default() }, move |info| {
        let address = SocketAddr::new(info.ip, 9042);
        let counts = of_server.clone();
        if bare {
            return shard_mains(SHARDS, move |rt| hold(rt, address, counts.clone()));
        }
        let main = |endpoint| {
            let counts = counts.clone();
            Box::new(move |rt| Box::pin(serve(rt, endpoint, address, counts)) as LocalBoxFuture<()>)
                as ShardMain<()>
        };
        sessions_mesh(SHARDS).into_iter().map(main).collect()
    });
    let address = SocketAddr::new(sim.ip(server), 9042);
    let client = |good: bool| {
        let counts = counts.clone();
        sim.add_node(NodeConfig::default(), move |_| {
            let counts = counts.clone();
            shard_mains(1, move |rt| -> LocalBoxFuture<()> {
                let counts = counts.clone();
                match good {
                    true => Box::pin(behave(rt, address, counts)),
                    false => Box::pin(flood(rt, address, counts)),
                }
            })
        })
    };
    let machines: Vec<_> = (0..MACHINES).map(|_| client(false)).collect();
    sim.start(server);
    let behaves = (!bare).then(|| client(true));
    sim.run_for(Duration::from_millis(20));
    let before = resident();
    machines.into_iter().chain(behaves).for_each(|node| sim.start(node));
    let watched = counts.clone();
    sim.run_until(|| watched.open() >= ALL).expect("they all come up");
    let grown = resident() - before;
    if bare {
        return grown;
    }
    let (up, asked) = (sim.now(), counts.answered.load(Relaxed));
    assert!(up < SessionConfig::new(address).handshake_timeout, "all are open at once, at {up:?}");
    let watched = counts.clone();
    sim.run_until(|| watched.closed.load(Relaxed) >= ALL && watched.open() <= 1).expect("they are closed");
    let limit = up + SessionConfig::new(address).handshake_timeout + Duration::from_secs(2);
    assert!(sim.now() < limit, "closed at {:?}, up at {up:?}", sim.now());
    let slowest = Duration::from_micros(counts.slowest_micros.load(Relaxed));
    assert!(slowest < ANSWER_TIME_MAX, "an answer took {slowest:?}");
    assert!(
        asked > 3 && counts.answered.load(Relaxed) > asked + 500,
        "the client was served before and after"
    );
    println!("all up at {up:?}, all closed at {:?}, slowest answer {slowest:?}", sim.now());
    grown
}

/// The report of a process of its own.
fn grown_in_a_process(role: &str) -> u64 {
    let test = "flood::a_hundred_thousand_half_open_connections";
    let output = Command::new(std::env::current_exe().expect("this binary has a path"))
        .args(["--exact", test, "--nocapture", "--test-threads", "1"])
        .env(ROLE, role)
        .output()
        .expect("it can be started");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{role}: {said}{}", String::from_utf8_lossy(&output.stderr));
    println!("{role}: {said}");
    let grown = said.lines().find_map(|line| line.strip_prefix("grown by ")?.parse().ok());
    grown.expect("the process says how much it has grown")
}

#[test]
fn a_hundred_thousand_half_open_connections() {
    if let Ok(role) = std::env::var(ROLE) {
        println!("\ngrown by {}", run(role == "bare"));
        return;
    }
    let (bare, sessions) = (grown_in_a_process("bare"), grown_in_a_process("sessions"));
    let cost = sessions.saturating_sub(bare) / ALL;
    println!("a half-open connection costs {cost} bytes beside its socket");
    assert!(cost > 0 && cost <= COST_MAX, "{cost} bytes a connection: {sessions} less {bare}");
}
