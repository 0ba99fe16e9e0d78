//! A cluster of gossiping nodes over a network that delays, loses and parts, in virtual time. A seed decides everything.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gossip::{
    Change, Config, Delta, DownReason, Effect, Event, Gossip, Key, Message, Now, Standing, decode, encode,
};
use testkit::fuzz::Random;
use topology::HostId;

/// Wall clock at the world's beginning.
pub const WALL: u64 = 1_800_000_000;
const LATENCY_MILLIS: (u64, u64) = (1, 40);
const ECHO_TIMEOUT: Duration = Duration::from_secs(1);
/// From a look at an address without a process to the second refusal.
const LOOK: Duration = Duration::from_millis(200);

/// The host id of a node; scattered, so that nothing depends on their order.
pub fn host(node: usize) -> HostId {
    let mut random = Random(node as u64);
    let high = u128::from(random.next()) << 64;
    HostId((high | u128::from(random.next())).to_be_bytes())
}

pub fn address(node: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, (node >> 8) as u8, node as u8], 7_000))
}

enum What {
    Tick {
        node: usize,
        life: u64,
    },
    Deliver {
        to: SocketAddr,
        bytes: Bytes,
    },
    /// The answer to an echo, or to a look at an address.
    Echoed {
        node: usize,
        life: u64,
        event: Event,
    },
}

struct Node {
    gossip: Gossip,
    life: u64,
    address: SocketAddr,
    /// While it is paused: the messages that arrived meanwhile.
    paused: Option<Vec<What>>,
}

/// A node's observation of another, and its time.
#[derive(Clone, Debug)]
pub struct Noticed {
    pub at: Duration,
    pub by: usize,
    pub whom: HostId,
    pub change: Change,
}

/// Of all nodes together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub messages: u64,
    pub bytes: u64,
    /// Endpoints that messages name, counted when a message is sent and when it is received: the work of a machine, on any host
    /// the host that this runs on.
    pub entries: u64,
    /// Host time of the state machines and of coding their messages.
    pub cpu: Duration,
}

pub struct World {
    pub now: Duration,
    pub random: Random,
    /// Messages lost, in a thousand.
    pub lost_permille: u64,
    /// Whether a message from one node to another is held up.
    pub blocked: Box<dyn Fn(usize, usize) -> bool>,
    pub noticed: Vec<Noticed>,
    pub warnings: Vec<(usize, Effect)>,
    pub seeds: Vec<SocketAddr>,
    pub message_bytes_max: usize,
    /// The messages over the network, and their cost.
    pub cost: Cost,
    nodes: BTreeMap<usize, Node>,
    at_address: BTreeMap<SocketAddr, usize>,
    queue: BTreeMap<(Duration, u64), What>,
    sequence: u64,
}

/// The endpoints that a message names.
fn entries(message: &Message) -> u64 {
    let count = match message {
        Message::Syn { digests, .. } => digests.len(),
        Message::Ack { deltas, requests, .. } => deltas.len() + requests.len(),
        Message::Deltas(deltas) => deltas.len(),
        Message::Versions { versions, .. } => versions.len(),
        Message::Beats { beats, wanted, .. } => beats.len() + wanted.len(),
        Message::Gone { .. } => 1,
    };
    count as u64
}

impl World {
    pub fn new(seed: u64) -> Self {
        Self {
            now: Duration::ZERO,
            random: Random(seed),
            lost_permille: 0,
            blocked: Box::new(|_, _| false),
            noticed: Vec::new(),
            warnings: Vec::new(),
            seeds: vec![address(0)],
            message_bytes_max: Config::MESSAGE_BYTES_LEAST,
            cost: Cost::default(),
            nodes: BTreeMap::new(),
            at_address: BTreeMap::new(),
            queue: BTreeMap::new(),
            sequence: 0,
        }
    }

    /// A cluster whose nodes all know each other.
    pub fn settled(seed: u64, nodes: usize) -> Self {
        let mut world = Self::new(seed);
        (0..nodes).for_each(|node| world.start(node));
        world.run(Duration::from_secs(60));
        assert!(world.agrees(), "{:?}", world.disagreement());
        world.noticed.clear();
        world
    }

    /// A cluster whose nodes all know each other, and say nothing but that they live: made at once, for large ones.
    pub fn acquainted(seed: u64, nodes: usize) -> Self {
        let mut world = Self::new(seed);
        world.message_bytes_max = 32 << 10;
        let generation = world.wall();
        let met = |node: usize| Delta {
            host: host(node),
            generation,
            address: address(node),
            heartbeat: 1,
            base: 0,
            states: BTreeMap::new(),
        };
        let all: Vec<Delta> = (0..nodes).map(met).collect();
        for node in 0..nodes {
            world.start_with(node, host(node), address(node), generation, vec![]);
            let others = all.iter().filter(|delta| delta.host != host(node)).cloned().collect();
            let state = world.nodes.get_mut(&node).expect("a node that runs");
            let now = Now { monotonic: Duration::ZERO, wall_seconds: generation };
            state.gossip.step(Event::Received(Message::Deltas(others)), now, &mut |_| 0);
            for other in (0..nodes).filter(|other| *other != node) {
                let echoed = Event::Echoed { host: host(other), generation, reached: true };
                state.gossip.step(echoed, now, &mut |_| 0);
            }
        }
        assert!(world.agrees(), "{:?}", world.disagreement());
        world
    }

    pub fn wall(&self) -> u64 {
        WALL + self.now.as_secs()
    }

    pub fn start(&mut self, node: usize) {
        self.start_as(node, host(node), address(node), self.wall());
    }

    pub fn start_as(&mut self, node: usize, host: HostId, address: SocketAddr, generation: u64) {
        let states = vec![(Key::DC, Bytes::from_static(b"dc1")), (Key::LOAD, Bytes::from_static(b"0"))];
        self.start_with(node, host, address, generation, states);
    }

    fn start_with(
        &mut self,
        node: usize,
        host: HostId,
        address: SocketAddr,
        generation: u64,
        states: Vec<(Key, Bytes)>,
    ) {
        let config =
            Config { message_bytes_max: self.message_bytes_max, ..Config::new("c", self.seeds.clone()) };
        let gossip = Gossip::new(config, host, generation, address, states);
        self.sequence += 1;
        let life = self.sequence;
        self.nodes.insert(node, Node { gossip, life, address, paused: None });
        self.at_address.insert(address, node);
        let first = self.now + Duration::from_millis(self.random.next() % 1_000);
        self.push(first, What::Tick { node, life });
    }

    /// The node is gone, without a word.
    pub fn kill(&mut self, node: usize) {
        if let Some(node) = self.nodes.remove(&node) {
            self.at_address.remove(&node.address);
        }
    }

    /// The node says good-bye and is gone.
    pub fn stop(&mut self, node: usize) {
        self.step(node, Event::Stop);
        self.kill(node);
    }

    /// The node is paused until [`World::resume`]; its clock runs on.
    pub fn pause(&mut self, node: usize) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.paused.get_or_insert_default();
        }
    }

    pub fn resume(&mut self, node: usize) {
        let held = self.nodes.get_mut(&node).and_then(|node| node.paused.take());
        for what in held.into_iter().flatten() {
            self.push(self.now, what);
        }
    }

    pub fn set(&mut self, node: usize, key: Key, value: &str) {
        self.step(node, Event::Set(vec![(key, Bytes::copy_from_slice(value.as_bytes()))]));
    }

    /// A node receives a message.
    pub fn hear(&mut self, node: usize, message: Message) {
        self.step(node, Event::Received(message));
    }

    pub fn gossip(&self, node: usize) -> &Gossip {
        &self.nodes[&node].gossip
    }

    pub fn running(&self) -> Vec<usize> {
        self.nodes.keys().copied().collect()
    }

    fn push(&mut self, at: Duration, what: What) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), what);
    }

    /// Lets time pass.
    pub fn run(&mut self, duration: Duration) {
        let until = self.now + duration;
        while let Some(entry) = self.queue.first_entry() {
            if entry.key().0 > until {
                break;
            }
            let ((at, _), what) = entry.remove_entry();
            self.now = at.max(self.now);
            self.happen(what);
        }
        self.now = until;
    }

    /// Lets rounds pass until something holds; how many that took, at most `rounds_max`.
    pub fn rounds_until(
        &mut self,
        rounds_max: usize,
        mut holds: impl FnMut(&World) -> bool,
    ) -> Option<usize> {
        for round in 0..=rounds_max {
            if holds(self) {
                return Some(round);
            }
            self.run(Duration::from_secs(1));
        }
        None
    }

    fn happen(&mut self, what: What) {
        let (node, life) = match &what {
            What::Tick { node, life } | What::Echoed { node, life, .. } => (*node, Some(*life)),
            What::Deliver { to, .. } => match self.at_address.get(to) {
                Some(node) => (*node, None),
                None => return,
            },
        };
        let Some(state) = self.nodes.get_mut(&node) else { return };
        if life.is_some_and(|life| life != state.life) {
            return;
        }
        if let Some(held) = &mut state.paused {
            held.push(what);
            return;
        }
        match what {
            What::Tick { node, life } => {
                self.step(node, Event::Tick);
                let next = self.now + Duration::from_millis(950 + self.random.next() % 100);
                self.push(next, What::Tick { node, life });
            }
            What::Deliver { bytes, .. } => {
                let began = Instant::now();
                let message = decode(&bytes).expect("a node's message can be decoded");
                self.cost.cpu += began.elapsed();
                self.cost.entries += entries(&message);
                self.step(node, Event::Received(message));
            }
            What::Echoed { event, .. } => self.step(node, event),
        }
    }

    fn step(&mut self, node: usize, event: Event) {
        let now = Now { monotonic: self.now, wall_seconds: self.wall() };
        let random = &mut self.random;
        let state = self.nodes.get_mut(&node).expect("a node that runs");
        let began = Instant::now();
        let effects = state.gossip.step(event, now, &mut |bound| random.next() % bound);
        self.cost.cpu += began.elapsed();
        for effect in effects {
            match effect {
                Effect::Send { to, message } => {
                    let began = Instant::now();
                    let bytes = encode(&message);
                    self.cost.cpu += began.elapsed();
                    self.cost.messages += 1;
                    self.cost.entries += entries(&message);
                    self.cost.bytes += bytes.len() as u64;
                    assert!(bytes.len() <= self.message_bytes_max, "{} bytes", bytes.len());
                    if let Some(delay) = self.way(node, to) {
                        self.push(self.now + delay, What::Deliver { to, bytes });
                    }
                }
                Effect::Probe { host, address, generation } => self.probe(node, host, address, generation),
                Effect::Suspect { host, address, generation } => self.look(node, host, address, generation),
                Effect::Changed { host, change } => {
                    self.noticed.push(Noticed { at: self.now, by: node, whom: host, change });
                }
                warning => self.warnings.push((node, warning)),
            }
        }
    }

    /// How long a message takes; `None` when it does not arrive.
    fn way(&mut self, from: usize, to: SocketAddr) -> Option<Duration> {
        let to = *self.at_address.get(&to)?;
        let lost = self.random.next() % 1_000 < self.lost_permille;
        let (least, most) = LATENCY_MILLIS;
        let delay = Duration::from_millis(least + self.random.next() % (most - least));
        (!lost && !(self.blocked)(from, to)).then_some(delay)
    }

    fn probe(&mut self, node: usize, host: HostId, address: SocketAddr, generation: u64) {
        let life = self.nodes[&node].life;
        let there = self.way(node, address);
        let target = self.at_address.get(&address).copied();
        let back = target.and_then(|target| self.way(target, self.nodes[&node].address));
        let answers = target.map(|target| &self.nodes[&target]).is_some_and(|target| {
            let own = target.gossip.own();
            target.paused.is_none() && own.host == host && own.generation == generation
        });
        let (delay, reached) = match (there, back) {
            (Some(there), Some(back)) if answers => (there + back, true),
            _ => (ECHO_TIMEOUT, false),
        };
        let event = Event::Echoed { host, generation, reached };
        self.push(self.now + delay, What::Echoed { node, life, event });
    }

    /// `by` looks at the address of a host: a process that ended refuses, one that stands still does not.
    pub fn look(&mut self, by: usize, host: HostId, address: SocketAddr, generation: u64) {
        if !self.at_address.contains_key(&address) {
            let life = self.nodes[&by].life;
            let event = Event::Gone { host, generation };
            self.push(self.now + LOOK, What::Echoed { node: by, life, event });
        }
    }

    /// Whether every node holds exactly those alive that run.
    pub fn agrees(&self) -> bool {
        self.disagreement().is_none()
    }

    pub fn disagreement(&self) -> Option<String> {
        let running: BTreeSet<HostId> = self.nodes.values().map(|node| node.gossip.own().host).collect();
        for (number, node) in &self.nodes {
            let mut alive: BTreeSet<HostId> = node
                .gossip
                .peers()
                .filter(|peer| peer.standing == Standing::Alive)
                .map(|peer| peer.endpoint.host)
                .collect();
            alive.insert(node.gossip.own().host);
            if alive != running {
                let wrong: Vec<_> = alive.symmetric_difference(&running).collect();
                return Some(format!("node {number} is wrong about {wrong:?}"));
            }
        }
        None
    }

    /// Whether every node knows the newest values of every other that runs.
    pub fn converged(&self) -> bool {
        self.nodes.values().all(|node| {
            let own = node.gossip.own();
            self.nodes.values().filter(|other| other.gossip.own().host != own.host).all(|other| {
                let known = other.gossip.peer(own.host);
                known.is_some_and(|peer| {
                    peer.endpoint.states == own.states && peer.endpoint.generation == own.generation
                })
            })
        })
    }

    /// All convictions: by which node, of which.
    pub fn convictions(&self) -> Vec<Noticed> {
        let convicted = |noticed: &&Noticed| noticed.change == Change::Down(DownReason::Convicted);
        self.noticed.iter().filter(convicted).cloned().collect()
    }
}
