//! Liveness of three to five nodes: killed, restarted, parted, paused, stopped.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::liveness::{Liveness, LivenessConfig, LivenessDriver, Notice, OwnEndpoint};
use gossip::{DownReason, Key, Standing};
use rpc::{Messenger, RpcConfig, handover_mesh};
use rt::{Rt, ShardMain};
use rt_sim::{Config, LinkConfig, NodeConfig, NodeId, Simulation};
use topology::HostId;

fn host(node: usize) -> HostId {
    HostId([node as u8 + 1; 16])
}

fn address(node: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::from([10, 0, 0, node as u8 + 1]), 7000)
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

thread_local! {
    /// The running drivers, by node, and their notices. A test is one thread.
    static DRIVERS: RefCell<BTreeMap<usize, LivenessDriver>> = const { RefCell::new(BTreeMap::new()) };
    /// Each generation of a node is later than all before, as on disk.
    static GENERATIONS: RefCell<BTreeMap<usize, u64>> = const { RefCell::new(BTreeMap::new()) };
    static NOTICES: RefCell<Vec<(usize, Notice)>> = const { RefCell::new(Vec::new()) };
    /// The values that a subscriber on node 0 got.
    static SEEN: RefCell<Vec<Arc<Liveness>>> = const { RefCell::new(Vec::new()) };
}

fn driver(node: usize) -> LivenessDriver {
    DRIVERS.with(|all| all.borrow()[&node].clone())
}

fn notices() -> Vec<(usize, Notice)> {
    NOTICES.with(|all| all.borrow().clone())
}

/// A node with the host id of `identity` that seeds from node 0.
async fn main(rt: Rt, node: usize, identity: usize) {
    let config = Arc::new(RpcConfig::new("test", host(identity), address(node)));
    let endpoint = handover_mesh(1).pop().expect("one shard");
    let messenger = Messenger::new(&rt, config, endpoint);
    messenger.listen().await.expect("the port is free");
    let config = LivenessConfig::new(gossip::Config::new("test", vec![address(0)]));
    let generation = GENERATIONS.with(|all| {
        let mut all = all.borrow_mut();
        let last = all.entry(node).or_default();
        *last = (*last + 1).max(rt.wall_micros() as u64 / 1_000_000);
        *last
    });
    let own = OwnEndpoint {
        host: host(identity),
        generation,
        address: address(node),
        states: vec![(Key::DC, Bytes::from_static(b"dc1"))],
    };
    let notice = move |notice| NOTICES.with(|all| all.borrow_mut().push((node, notice)));
    let driver = LivenessDriver::start(&rt, &messenger, config, own, notice);
    DRIVERS.with(|all| all.borrow_mut().insert(node, driver.clone()));
    if node == 0 {
        let (waiting, subscriber) = (rt.clone(), driver.clone());
        waiting
            .spawn(rt::Group::Statement, async move {
                let mut version = 0;
                loop {
                    let value = subscriber.newer_than(version).await;
                    version = value.version;
                    SEEN.with(|all| all.borrow_mut().push(value));
                }
            })
            .detach();
    }
    rt.stop_requested().await;
    driver.stop().await;
    messenger.stop().await;
}

struct Cluster {
    sim: Simulation,
    nodes: Vec<NodeId>,
}

impl Cluster {
    fn new(seed: u64, nodes: usize) -> Self {
        Self::with_link(seed, nodes, LinkConfig::default())
    }

    fn with_link(seed: u64, nodes: usize, link: LinkConfig) -> Self {
        GENERATIONS.with(|all| all.borrow_mut().clear());
        let sim = Simulation::new(seed, Config { link, ..Config::default() });
        let mut cluster = Self { sim, nodes: Vec::new() };
        (0..nodes).for_each(|node| cluster.add(node, node));
        cluster.sim.run_for(seconds(15));
        cluster
    }

    /// Adds a node, with the host id of node `identity`.
    fn add(&mut self, node: usize, identity: usize) {
        let id = self.sim.add_node(NodeConfig::default(), move |_| {
            let main: ShardMain = Box::new(move |rt| Box::pin(main(rt, node, identity)));
            vec![main]
        });
        assert_eq!(id.index(), node);
        self.nodes.push(id);
        self.sim.start(id);
    }

    fn run(&self, duration: Duration) {
        self.sim.run_for(duration);
    }

    fn standing(&self, of: usize, at: usize) -> Option<Standing> {
        driver(at).current().peers.get(&host(of)).map(|peer| peer.standing)
    }

    /// Checks that every running node believes that exactly the running ones are alive.
    fn check(&self, what: &str) {
        let runs = |node: usize| self.sim.is_running(self.nodes[node]);
        let all = 0..self.nodes.len();
        for at in all.clone().filter(|node| runs(*node)) {
            for of in all.clone().filter(|node| *node != at) {
                let alive = driver(at).current().is_alive(host(of));
                assert_eq!(alive, runs(of), "{what}: {of} as {at} sees it: {:?}", self.standing(of, at));
            }
        }
    }
}

#[test]
fn nodes_find_each_other_by_a_seed() {
    for nodes in [1, 3, 5] {
        let cluster = Cluster::new(1, nodes);
        cluster.check("after the start");
        for node in 1..nodes {
            let value = driver(node).current();
            assert_eq!(value.endpoint(host(0)).unwrap().address, address(0));
            assert_eq!(value.endpoint(host(0)).unwrap().text(Key::DC), Some("dc1"));
        }
    }
}

#[test]
fn a_killed_node_is_down_and_up_again() {
    let cluster = Cluster::new(2, 5);
    cluster.run(seconds(60));
    // The seed dies; the others do not need it.
    for node in [3, 0] {
        cluster.sim.kill(cluster.nodes[node]);
        cluster.run(Duration::from_millis(1_900));
        cluster.check("2 s after the death of the process");
        assert_eq!(cluster.standing(node, 1), Some(Standing::Down(DownReason::Convicted)));
        let known = driver(1).current().peers[&host(node)].clone();
        cluster.run(seconds(30));
        cluster.check("it stays down");
        cluster.sim.start(cluster.nodes[node]);
        cluster.run(seconds(5));
        cluster.check("after the restart");
        let again = driver(1).current().peers[&host(node)].clone();
        assert!(again.endpoint.generation > known.endpoint.generation);
    }
    assert_eq!(notices(), []);
}

/// Under loss, whichever node dies: the signs of an end reach all in time.
#[test]
fn an_ended_process_is_convicted_in_less_than_two_seconds() {
    for seed in 0..20 {
        let loss_per_million = if seed % 2 == 0 { 0 } else { 20_000 };
        let link = LinkConfig { loss_per_million, ..LinkConfig::default() };
        let nodes = 2 + seed as usize % 7;
        let cluster = Cluster::with_link(50 + seed, nodes, link);
        cluster.run(seconds(20));
        cluster.check("before");
        cluster.sim.kill(cluster.nodes[seed as usize % nodes]);
        cluster.run(Duration::from_millis(1_990));
        cluster.check(&format!("2 s after the end of the process, seed {seed}"));
    }
}

/// A process that ends and starts again at once may be down for a moment, and is up for good then.
#[test]
fn a_restart_at_once_does_not_flap() {
    for (seed, pause_millis) in [0, 1, 50, 150, 250, 350, 500, 700, 1_000, 1_500].into_iter().enumerate() {
        SEEN.with(|all| all.borrow_mut().clear());
        let cluster = Cluster::new(80 + seed as u64, 5);
        cluster.run(seconds(20));
        let seen = SEEN.with(|all| all.borrow().len());
        let before = driver(0).current().peers[&host(3)].endpoint.generation;
        cluster.sim.kill(cluster.nodes[3]);
        cluster.run(Duration::from_millis(pause_millis));
        cluster.sim.start(cluster.nodes[3]);
        cluster.run(seconds(5));
        cluster.check("after the restart");
        cluster.run(seconds(60));
        cluster.check("a minute later");
        let values = SEEN.with(|all| all.borrow()[seen..].to_vec());
        let mut alive: Vec<bool> = values.iter().map(|value| value.is_alive(host(3))).collect();
        alive.dedup();
        assert_eq!(alive, [false, true], "restarted after {pause_millis} ms: down once and up for good");
        assert!(driver(0).current().peers[&host(3)].endpoint.generation > before);
        let others = values.iter().any(|value| [1, 2, 4].iter().any(|node| !value.is_alive(host(*node))));
        assert!(!others, "nobody else was down");
    }
}

/// A machine that is gone refuses nothing: its silence counts.
#[test]
fn a_node_without_power_is_down_by_its_silence() {
    let cluster = Cluster::new(21, 5);
    cluster.run(seconds(60));
    let before = driver(1).current().version;
    cluster.sim.crash(cluster.nodes[3]);
    cluster.run(seconds(15));
    assert!(driver(1).current().is_alive(host(3)), "the silence of a moment is no death");
    assert_eq!(driver(1).current().version, before, "no change, no new value");
    cluster.run(seconds(10));
    cluster.check("25 s after the power failure");
    let known = driver(1).current().peers[&host(3)].clone();
    let down_for = cluster.sim.wall_micros(cluster.nodes[1]) - known.since_micros;
    assert!((0..10_000_000).contains(&down_for), "down since {down_for} µs");
}

/// Broken connections and pauses are no signs of a death: only an address that refuses connections is.
#[test]
fn broken_connections_and_pauses_convict_nobody() {
    for seed in 0..6 {
        let link = LinkConfig { loss_per_million: 100_000, ..LinkConfig::default() };
        let cluster = Cluster::with_link(30 + seed, 4, link);
        cluster.run(seconds(30));
        cluster.check("before");
        let version = driver(2).current().version;
        for round in 0..20 {
            let paused = cluster.nodes[round % 2];
            cluster.sim.pause(paused);
            for other in &cluster.nodes[2..] {
                cluster.sim.reset_connections(paused, *other);
            }
            cluster.sim.reset_connections(cluster.nodes[2], cluster.nodes[3]);
            cluster.run(seconds(5));
            cluster.sim.resume(paused);
            cluster.run(seconds(5));
        }
        cluster.check("afterwards");
        assert_eq!(driver(2).current().version, version, "nothing has changed");
    }
}

#[test]
fn a_node_that_stops_announces_it() {
    let cluster = Cluster::new(3, 4);
    cluster.sim.request_stop(cluster.nodes[2]);
    cluster.run(seconds(1));
    assert!(!cluster.sim.is_running(cluster.nodes[2]));
    cluster.check("a second later");
    assert_eq!(cluster.standing(2, 1), Some(Standing::Down(DownReason::Shutdown)));
    cluster.sim.start(cluster.nodes[2]);
    cluster.run(seconds(5));
    cluster.check("after the restart");
}

/// A node that comes back turns to all members at once: nobody has to wait for a round of gossip to count it in.
#[test]
fn a_node_that_returns_is_up_everywhere_before_the_next_round() {
    let cluster = Cluster::new(13, 5);
    let members = (0..5).map(|node| (host(node), address(node))).collect::<BTreeMap<_, _>>();
    (0..5).for_each(|node| driver(node).set_members(members.clone()));
    cluster.run(seconds(5));
    cluster.sim.request_stop(cluster.nodes[2]);
    cluster.run(seconds(1));
    cluster.check("when it has stopped");
    cluster.sim.start(cluster.nodes[2]);
    cluster.run(Duration::from_millis(1));
    assert!((0..5).all(|node| !driver(2).is_reached_by(host(node))), "it has only begun");
    driver(2).set_members(members);
    cluster.run(Duration::from_millis(200));
    cluster.check("200 ms after the start");
    for node in [0, 1, 3, 4] {
        assert!(driver(2).is_reached_by(host(node)), "it knows that {node} counts it in");
    }
}

#[test]
fn a_partition_is_noticed_on_both_sides_and_heals() {
    for loss_per_million in [0, 20_000] {
        let link = LinkConfig { loss_per_million, ..LinkConfig::default() };
        let cluster = Cluster::with_link(4, 5, link);
        cluster.check("before");
        let side = |node: usize| node < 2;
        for (a, b) in (0..2).flat_map(|a| (2..5).map(move |b| (a, b))) {
            cluster.sim.partition(cluster.nodes[a], cluster.nodes[b]);
        }
        cluster.run(seconds(40));
        for (at, of) in (0..5).flat_map(|at| (0..5).map(move |of| (at, of))).filter(|(at, of)| at != of) {
            let alive = driver(at).current().is_alive(host(of));
            assert_eq!(alive, side(at) == side(of), "{of} as {at} sees it");
        }
        cluster.sim.heal_all();
        cluster.run(seconds(20));
        cluster.check("after the partition");
    }
}

#[test]
fn an_unreachable_node_is_not_up_although_others_hear_it() {
    let cluster = Cluster::new(12, 4);
    let (one, three) = (cluster.nodes[1], cluster.nodes[3]);
    cluster.sim.kill(three);
    cluster.run(seconds(30));
    cluster.sim.partition_one_way(one, three);
    cluster.sim.start(three);
    cluster.run(seconds(30));
    assert!(driver(2).current().is_alive(host(3)));
    assert_eq!(cluster.standing(3, 1), Some(Standing::Down(DownReason::NotReached)));
    assert!(driver(1).snapshot().peers[&host(3)].endpoint.heartbeat > 15, "its news come through others");
    cluster.sim.heal_all();
    cluster.run(seconds(10));
    cluster.check("when it can be reached");
}

#[test]
fn a_paused_node_convicts_nobody_when_it_resumes() {
    for pause in [10, 60] {
        SEEN.with(|all| all.borrow_mut().clear());
        let cluster = Cluster::new(5, 3);
        cluster.run(seconds(60));
        cluster.sim.pause(cluster.nodes[0]);
        cluster.run(seconds(pause));
        assert_eq!(driver(1).current().is_alive(host(0)), pause < 18);
        let seen = SEEN.with(|all| all.borrow().len());
        cluster.sim.resume(cluster.nodes[0]);
        cluster.run(seconds(15));
        cluster.check("after the pause");
        let values = SEEN.with(|all| all.borrow()[seen..].to_vec());
        let convicted = values.iter().any(|value| !value.is_alive(host(1)) || !value.is_alive(host(2)));
        assert!(!convicted, "after a pause of {pause} s node 0 believed {values:?}");
        assert_eq!(driver(0).stats().pauses, 1);
    }
}

#[test]
fn a_lossy_network_convicts_nobody() {
    let link = LinkConfig { loss_per_million: 50_000, ..LinkConfig::default() };
    let cluster = Cluster::with_link(6, 4, link);
    cluster.check("before");
    let version = driver(2).current().version;
    cluster.run(seconds(600));
    cluster.check("after ten minutes");
    assert_eq!(driver(2).current().version, version, "nothing has changed");
}

#[test]
fn news_reach_subscribers() {
    SEEN.with(|all| all.borrow_mut().clear());
    let cluster = Cluster::new(7, 3);
    let load = || driver(0).current().peers[&host(2)].endpoint.text(Key::LOAD).map(str::to_owned);
    assert_eq!(load(), None);
    driver(2).set(vec![(Key::LOAD, Bytes::from_static(b"12345"))]);
    assert_eq!(driver(2).current().own.text(Key::LOAD), Some("12345"), "a node sees its own state at once");
    cluster.run(seconds(5));
    assert_eq!(load().as_deref(), Some("12345"));
    let seen = SEEN.with(|all| all.borrow().clone());
    assert!(seen.windows(2).all(|pair| pair[0].version < pair[1].version));
    assert_eq!(seen.last(), Some(&driver(0).current()));
    // The heartbeat, which changes every second, wakes no listener; a snapshot shows it.
    let (before, heartbeat) = (driver(0).current(), driver(0).snapshot().peers[&host(2)].endpoint.heartbeat);
    cluster.run(seconds(10));
    assert_eq!(driver(0).current(), before);
    assert!(driver(0).snapshot().peers[&host(2)].endpoint.heartbeat > heartbeat + 7);
    assert!(driver(0).phi(host(2)) < 2.0);
}

#[test]
fn a_second_node_with_a_host_id_is_reported() {
    let mut cluster = Cluster::new(8, 3);
    cluster.add(3, 1);
    cluster.run(seconds(20));
    let told = notices();
    let [(1, Notice::HostIdTaken { address: other, .. })] = told[..] else { panic!("{told:?}") };
    assert_eq!(other, address(3));
    assert_eq!(
        driver(2).current().endpoint(host(1)).unwrap().address,
        address(3),
        "the newer generation counts"
    );
}

#[test]
fn a_former_member_is_forgotten() {
    let cluster = Cluster::new(9, 4);
    let members = |nodes: &[usize]| nodes.iter().map(|node| (host(*node), address(*node))).collect();
    for node in 0..3 {
        driver(node).set_members(members(&[0, 1, 2, 3]));
        driver(node).set_members(members(&[0, 1, 2]));
    }
    cluster.run(seconds(30));
    for node in 0..3 {
        assert!(driver(node).current().endpoint(host(3)).is_none(), "node {node} remembers it");
    }
}

#[test]
fn the_same_seed_is_the_same_history() {
    let history = |seed| {
        SEEN.with(|all| all.borrow_mut().clear());
        let cluster = Cluster::new(seed, 3);
        cluster.sim.kill(cluster.nodes[1]);
        cluster.run(seconds(30));
        (cluster.sim.trace_hash(), SEEN.with(|all| all.borrow().len()))
    };
    assert_eq!(history(10), history(10));
    assert_ne!(history(10).0, history(11).0);
}
