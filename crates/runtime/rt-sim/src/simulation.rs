//! Nodes, and the loop that runs them: one task of one shard at a time, chosen by the seed.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use rt::driver::Clock;
use rt::executor::Executor;
use rt::{Disk, Group, Instant, IoQueue, LocalBoxFuture, Net, Rt, RtParts, ShardId, ShardMain};

use crate::begun::Begun;
use crate::clock::NodeClock;
use crate::config::{Config, Crash, DiskConfig, LinkConfig, NodeConfig};
use crate::disk::{DiskFault, DiskImage, NodeDisk, SimDisk};
use crate::net::{Network, SimNet};
use crate::random::Rng;
use crate::shard_random::ShardRandom;
use crate::world::{SHARD_STREAMS, Stream, World};

/// Names a node of a simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(u16);

impl NodeId {
    /// Position in the order of [`Sim::add_node`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The environment of a node at its start.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// Its name in the simulation.
    pub id: NodeId,
    /// Its address.
    pub ip: IpAddr,
    /// Number of its shards.
    pub shards: u16,
    /// How often it was started before.
    pub starts: u64,
}

/// The state of a machine: its faults, not its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineState {
    /// Its process runs and is not paused.
    pub runs: bool,
    /// How often it was started.
    pub starts: u64,
    /// How its disk behaves, ordered faults apart.
    pub disk: DiskConfig,
    /// Virtual time since when this has been so.
    pub since: Duration,
}

/// The simulation cannot reach the awaited condition.
#[derive(Clone, Debug)]
pub struct Stalled {
    /// The seed, to see it again.
    pub seed: u64,
    /// Virtual time.
    pub at: Duration,
    /// Whether the time limit was reached; otherwise every task waits and nothing will ever happen.
    pub time_limit: bool,
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = if self.time_limit {
            "the limit of virtual time is reached"
        } else {
            "every task waits for ever"
        };
        write!(f, "the simulation of seed {} stalled at {:?}: {why}", self.seed, self.at)
    }
}

impl std::error::Error for Stalled {}

type ErasedMain = Box<dyn FnOnce(Rt) -> LocalBoxFuture<String>>;

struct Running {
    shards: Vec<Rt>,
    /// The results of the mains, as text.
    exits: Rc<RefCell<Vec<Option<String>>>>,
}

/// A shard that runs, as the loop sees it.
struct Runner {
    node: NodeId,
    shard: u16,
    executor: Executor,
    clock: Rc<NodeClock>,
    host: Host,
    /// The deadline of its first timer when that was last asked for, and the virtual time of it.
    deadline: Cell<Option<(Instant, u64)>>,
}

impl Runner {
    /// The virtual time of the first timer of the shard.
    fn next_deadline(&self) -> Option<u64> {
        let deadline = self.executor.next_deadline()?;
        match self.deadline.get() {
            Some((known, time)) if known == deadline => Some(time),
            _ => {
                let time = self.clock.world_time_of(deadline);
                self.deadline.set(Some((deadline, time)));
                Some(time)
            }
        }
    }
}

/// The waker of a shard's executor that may sleep: one that sleeps is not polled for work.
struct Host {
    awake: Arc<AtomicBool>,
    waker: Waker,
}

struct Awaken(Arc<AtomicBool>);

impl Wake for Awaken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Host {
    fn new() -> Self {
        let awake = Arc::new(AtomicBool::new(true));
        Self { waker: Waker::from(Arc::new(Awaken(Arc::clone(&awake)))), awake }
    }

    /// Whether the shard of this executor has something to do.
    fn has_work(&self, executor: &Executor) -> bool {
        if !self.awake.load(Ordering::Relaxed) {
            return false;
        }
        if executor.has_work() {
            return true;
        }
        self.awake.store(false, Ordering::Relaxed);
        assert!(executor.prepare_park(&self.waker), "nothing comes between two looks of one thread");
        false
    }
}

struct Node {
    info: NodeInfo,
    clock: Rc<NodeClock>,
    disk: Rc<NodeDisk>,
    boot: Rc<dyn Fn(&NodeInfo) -> Vec<ErasedMain>>,
    running: Option<Running>,
    /// Its tasks and timers stand still, as after SIGSTOP.
    paused: bool,
    /// When it was last started, ended, paused, resumed, or given another disk or other properties of its disk.
    changed: u64,
    last_exits: Vec<String>,
}

enum Control {
    Start(NodeId),
    Down(NodeId, Crash),
    Pause(NodeId, bool),
}

/// A handle of a simulation, for use inside its tasks and outside. Cheap to clone.
#[derive(Clone)]
pub struct Sim(Rc<Inner>);

struct Inner {
    world: Rc<World>,
    network: Rc<Network>,
    nodes: RefCell<Vec<Node>>,
    client: Cell<Option<NodeId>>,
    in_task: Cell<bool>,
    control: RefCell<Vec<Control>>,
    /// The shards of all running nodes that are not paused, in the order of nodes and shards.
    runners: RefCell<Vec<Rc<Runner>>>,
    /// Positions of the runners that have work; stored to save the allocation.
    ready: RefCell<Vec<usize>>,
    /// Some main has returned since the loop looked last.
    some_exit: Rc<Cell<bool>>,
}

/// A simulation. Ends, with all its nodes, when dropped.
pub struct Simulation {
    sim: Sim,
}

impl Deref for Simulation {
    type Target = Sim;
    fn deref(&self) -> &Sim {
        &self.sim
    }
}

impl Simulation {
    /// A world without nodes. Everything that happens in it follows from `seed`.
    pub fn new(seed: u64, config: Config) -> Simulation {
        let world = Rc::new(World::new(seed, config));
        let network = Rc::new(Network::new(Rc::clone(&world)));
        Simulation {
            sim: Sim(Rc::new(Inner {
                world,
                network,
                nodes: RefCell::new(Vec::new()),
                client: Cell::new(None),
                in_task: Cell::new(false),
                control: RefCell::new(Vec::new()),
                runners: RefCell::new(Vec::new()),
                ready: RefCell::new(Vec::new()),
                some_exit: Rc::default(),
            })),
        }
    }

    /// A handle that tasks may keep.
    pub fn handle(&self) -> Sim {
        self.sim.clone()
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let world = &self.sim.0.world;
            eprintln!("simulation: seed {}, virtual time {:?}", world.seed, self.sim.now());
            for line in self.sim.trace_lines() {
                eprintln!("  {line}");
            }
            // Destructors of tasks may miss their expected state; the process ends the test anyway.
            return;
        }
        let count = self.sim.0.nodes.borrow().len();
        for node in 0..count {
            self.sim.take_down(NodeId(node as u16), Crash::Process);
        }
        // A node's part that still holds a handle of its disk does not hold the files as well.
        self.sim.0.nodes.borrow().iter().for_each(|node| node.disk.wipe());
        self.sim.0.world.clear_events();
        self.sim.0.network.clear();
    }
}

impl Sim {
    /// Adds a node that is not started yet. `boot` is called at every start and gives the mains of its shards,
    /// as for `rt_uring::run`.
    pub fn add_node<T: fmt::Debug + 'static>(
        &self,
        config: NodeConfig,
        boot: impl Fn(&NodeInfo) -> Vec<ShardMain<T>> + 'static,
    ) -> NodeId {
        let world = &self.0.world;
        let mut nodes = self.0.nodes.borrow_mut();
        let id = NodeId(u16::try_from(nodes.len()).expect("fewer than 2^16 nodes"));
        let number = u32::from(id.0) + 1;
        let default_ip = IpAddr::from([10, 0, (number >> 8) as u8, number as u8]);
        let info =
            NodeInfo { id, ip: config.ip.unwrap_or(default_ip), shards: config.shards.max(1), starts: 0 };
        self.0.network.add_host(u64::from(id.0), info.ip);
        let boot = move |info: &NodeInfo| boot(info).into_iter().map(erase).collect();
        nodes.push(Node {
            clock: Rc::new(NodeClock::new(Rc::clone(world), config.clock)),
            disk: Rc::new(NodeDisk::new(Rc::clone(world), u64::from(id.0), config.disk)),
            info,
            boot: Rc::new(boot),
            running: None,
            paused: false,
            changed: 0,
            last_exits: Vec::new(),
        });
        id
    }

    /// The node that was added at this position.
    pub fn node(&self, index: usize) -> NodeId {
        assert!(index < self.0.nodes.borrow().len(), "there are not so many nodes");
        NodeId(index as u16)
    }

    /// Starts a node that is down. From inside a task, right after its poll.
    pub fn start(&self, node: NodeId) {
        self.control(Control::Start(node));
    }

    /// Loses a node's power: its tasks end where they wait, any part of the unsynced bytes of its disk is lost,
    /// its peers hear nothing. From inside a task, right after its poll.
    pub fn crash(&self, node: NodeId) {
        self.control(Control::Down(node, Crash::Power));
    }

    /// Ends a node's process as `kill -9` does: its writes stay, its connections are reset. From inside
    /// a task, right after its poll.
    pub fn kill(&self, node: NodeId) {
        self.control(Control::Down(node, Crash::Process));
    }

    /// Loses power and starts again.
    pub fn restart(&self, node: NodeId) {
        self.crash(node);
        self.start(node);
    }

    /// Stops a running node's tasks and timers as SIGSTOP does: its clocks go on, and results of its sockets and disk
    /// wait for it until [`Sim::resume`]. From inside a task, right after its poll.
    pub fn pause(&self, node: NodeId) {
        self.control(Control::Pause(node, true));
    }

    /// Lets a paused node go on. A node that is started runs.
    pub fn resume(&self, node: NodeId) {
        self.control(Control::Pause(node, false));
    }

    /// Gives a node that is down another number of shards.
    pub fn set_shards(&self, node: NodeId, shards: u16) {
        let mut nodes = self.0.nodes.borrow_mut();
        let node = &mut nodes[node.index()];
        assert!(node.running.is_none(), "only a node that is down gets another number of shards");
        node.info.shards = shards.max(1);
    }

    /// Asks shard 0 of a node to stop, as SIGTERM does.
    pub fn request_stop(&self, node: NodeId) {
        if let Some(rt) = self.rt(node, ShardId(0)) {
            rt.request_stop();
        }
    }

    /// Whether a node runs.
    pub fn is_running(&self, node: NodeId) -> bool {
        self.0.nodes.borrow()[node.index()].running.is_some()
    }

    /// How a machine is.
    pub fn machine(&self, node: NodeId) -> MachineState {
        let nodes = self.0.nodes.borrow();
        let node = &nodes[node.index()];
        MachineState {
            runs: node.running.is_some() && !node.paused,
            starts: node.info.starts,
            disk: node.disk.config(),
            since: Duration::from_nanos(node.changed),
        }
    }

    /// How one direction between two nodes behaves, none when it is cut; and since when.
    pub fn link(&self, from: NodeId, to: NodeId) -> (Option<LinkConfig>, Duration) {
        let (link, since) = self.0.network.direction(u64::from(from.0), u64::from(to.0));
        (link, Duration::from_nanos(since))
    }

    fn note_change(&self, node: NodeId) {
        self.0.nodes.borrow_mut()[node.index()].changed = self.0.world.now();
    }

    /// The results of a node's mains at its last clean end, as text.
    pub fn exits(&self, node: NodeId) -> Vec<String> {
        self.0.nodes.borrow()[node.index()].last_exits.clone()
    }

    /// The handle of a running shard, for tests that look inside.
    pub fn rt(&self, node: NodeId, shard: ShardId) -> Option<Rt> {
        let nodes = self.0.nodes.borrow();
        nodes[node.index()].running.as_ref()?.shards.get(shard.index()).cloned()
    }

    /// The most steps (rows, partitions, files) that one poll of a running node's tasks has counted since the last call: no
    /// time passes within a poll here, so this is how long polls are.
    pub fn take_longest_poll(&self, node: NodeId) -> u64 {
        let nodes = self.0.nodes.borrow();
        let shards = nodes[node.index()].running.iter().flat_map(|running| &running.shards);
        shards.map(|rt| rt.executor().take_longest_poll()).max().unwrap_or(0)
    }

    /// A node's address.
    pub fn ip(&self, node: NodeId) -> IpAddr {
        self.0.nodes.borrow()[node.index()].info.ip
    }

    /// Virtual time since the start.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.0.world.now())
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.0.world.seed
    }

    /// A generator for a test's own choices, a stream of its own.
    pub fn rng(&self, stream: u64) -> Rng {
        Rng::new(self.0.world.seed, u64::MAX - stream)
    }

    /// Everything that has happened, folded into one number: equal for equal seeds.
    pub fn trace_hash(&self) -> u64 {
        self.0.world.trace().borrow().hash()
    }

    /// Number of events in the trace.
    pub fn trace_events(&self) -> u64 {
        self.0.world.trace().borrow().events()
    }

    /// The folded trace after each [`crate::TRACE_BLOCK`] events: two runs part in the first block that differs.
    pub fn trace_blocks(&self) -> Vec<u64> {
        self.0.world.trace().borrow().blocks().to_vec()
    }

    /// The last events as text, when the configuration records any.
    pub fn trace_lines(&self) -> Vec<String> {
        self.0.world.trace().borrow().lines()
    }

    /// Folds an event of a test's own into the trace.
    pub fn note(&self, what: &'static str, words: &[u64]) {
        self.0.world.note(what, words);
    }

    /// Runs `action` at a virtual time (at once when that is past): a fault, most often.
    pub fn at(&self, time: Duration, action: impl FnOnce(&Sim) + 'static) {
        let sim = Rc::downgrade(&self.0);
        self.0.world.at(time.as_nanos() as u64, move || {
            if let Some(inner) = sim.upgrade() {
                action(&Sim(inner));
            }
        });
    }

    /// Runs `action` after a time from now.
    pub fn after(&self, delay: Duration, action: impl FnOnce(&Sim) + 'static) {
        self.at(self.now() + delay, action);
    }
}

/// Faults of network, disks and clocks.
impl Sim {
    /// Cuts both directions between two nodes.
    pub fn partition(&self, a: NodeId, b: NodeId) {
        self.partition_one_way(a, b);
        self.partition_one_way(b, a);
    }

    /// Cuts one direction.
    pub fn partition_one_way(&self, from: NodeId, to: NodeId) {
        self.0.network.block(u64::from(from.0), u64::from(to.0));
    }

    /// Cuts a node off from all others.
    pub fn isolate(&self, node: NodeId) {
        let count = self.0.nodes.borrow().len() as u16;
        for other in (0..count).map(NodeId).filter(|other| *other != node) {
            self.partition(node, other);
        }
    }

    /// Joins two nodes again, both directions.
    pub fn heal(&self, a: NodeId, b: NodeId) {
        self.0.network.unblock(u64::from(a.0), u64::from(b.0));
        self.0.network.unblock(u64::from(b.0), u64::from(a.0));
    }

    /// Removes all partitions.
    pub fn heal_all(&self) {
        self.0.network.unblock_all();
    }

    /// Sets how one direction between two nodes behaves; `None` for the default.
    pub fn set_link(&self, from: NodeId, to: NodeId, link: Option<LinkConfig>) {
        self.0.network.set_link(u64::from(from.0), u64::from(to.0), link);
    }

    /// Resets all connections between two nodes.
    pub fn reset_connections(&self, a: NodeId, b: NodeId) {
        self.0.network.reset_between(u64::from(a.0), u64::from(b.0));
    }

    /// How often the product is delayed on purpose at those of its points (`Rt::buggify`) that the seed has chosen, per million;
    /// 0, as at the begin, for never.
    pub fn set_buggify(&self, per_million: u32) {
        self.0.world.set_buggify(per_million);
    }

    /// Changes how a node's disk behaves.
    pub fn configure_disk(&self, node: NodeId, change: impl FnOnce(&mut DiskConfig)) {
        if self.disk(node).configure(change) {
            self.note_change(node);
        }
    }

    /// Puts a new, empty disk into a machine that is down.
    pub fn wipe_disk(&self, node: NodeId) {
        assert!(!self.is_running(node), "only a node that is down gets another disk");
        self.disk(node).wipe();
        self.note_change(node);
    }

    /// A snapshot of a machine's disk now: the synced writes, at least.
    pub fn disk_image(&self, node: NodeId) -> DiskImage {
        self.disk(node).image()
    }

    /// Restores the disk of a machine that is down from a snapshot.
    pub fn restore_disk(&self, node: NodeId, image: &DiskImage) {
        assert!(!self.is_running(node), "only a node that is down has its disk restored");
        self.disk(node).restore(image);
        self.note_change(node);
    }

    /// Orders an error for certain operations.
    pub fn inject_disk_fault(&self, node: NodeId, fault: DiskFault) {
        self.disk(node).inject(fault);
        self.note_change(node);
    }

    /// Cancels the errors that were ordered.
    pub fn clear_disk_faults(&self, node: NodeId) {
        self.disk(node).clear_faults();
    }

    /// Changes a bit in every sector of a range of a file; false when there is no such file.
    pub fn corrupt_file(&self, node: NodeId, path: impl AsRef<Path>, position: u64, len: u64) -> bool {
        self.disk(node).corrupt(path.as_ref(), position, len)
    }

    /// Removes a file of a machine that is down, as an operator does; false when there is no such file.
    pub fn remove_file(&self, node: NodeId, path: impl AsRef<Path>) -> bool {
        assert!(!self.is_running(node), "files are removed only from a node that is down");
        self.disk(node).remove(path.as_ref())
    }

    /// A file's content as a reader would see it.
    pub fn read_file(&self, node: NodeId, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.disk(node).read_file(path.as_ref())
    }

    /// Bytes that a node has read out of its files since it was added.
    pub fn disk_bytes_read(&self, node: NodeId) -> u64 {
        self.disk(node).read_bytes()
    }

    /// All files of a node with their lengths, by path.
    pub fn files(&self, node: NodeId) -> Vec<(PathBuf, u64)> {
        self.disk(node).files()
    }

    /// A node's wall clock, in microseconds since 1970.
    pub fn wall_micros(&self, node: NodeId) -> i64 {
        self.0.nodes.borrow()[node.index()].clock.wall_micros()
    }

    /// Moves a node's wall clock; negative is back.
    pub fn jump_clock(&self, node: NodeId, micros: i64) {
        self.0.world.note("clock jump", &[u64::from(node.0), micros as u64]);
        self.0.nodes.borrow()[node.index()].clock.jump_wall(micros);
    }

    /// Lets a node's clocks run faster (or slower) by parts per million.
    pub fn set_clock_drift(&self, node: NodeId, drift_ppm: i32) {
        self.0.world.note("clock drift", &[u64::from(node.0), drift_ppm as u64]);
        self.0.nodes.borrow()[node.index()].clock.set_drift(drift_ppm);
        // Their deadlines are at other times from now on.
        self.list_runners();
    }

    /// Sets all nodes' wall clocks off by up to `most`, by the seed.
    pub fn scatter_clocks(&self, most: Duration) {
        let count = self.0.nodes.borrow().len() as u16;
        for node in 0..count {
            let micros = self.0.world.draw(Stream::Clock, |rng| rng.between(Duration::ZERO, most * 2)) / 1000;
            self.jump_clock(NodeId(node), micros as i64 - most.as_micros() as i64);
        }
    }

    fn disk(&self, node: NodeId) -> Rc<NodeDisk> {
        Rc::clone(&self.0.nodes.borrow()[node.index()].disk)
    }
}

/// Running.
impl Sim {
    /// Runs until `done` is true. It is called after every step.
    ///
    /// # Errors
    /// [`Stalled`] as [`Sim::step`].
    pub fn run_until(&self, mut done: impl FnMut() -> bool) -> Result<(), Stalled> {
        while !done() {
            self.step()?;
        }
        Ok(())
    }

    /// Runs for a virtual time; nothing happening is no error here.
    pub fn run_for(&self, duration: Duration) {
        let reached = Rc::new(Cell::new(false));
        let mark = Rc::clone(&reached);
        self.after(duration, move |_| mark.set(true));
        while !reached.get() && self.step().is_ok() {}
    }

    /// Runs until all mains of a node have returned and the node has ended.
    ///
    /// # Errors
    /// [`Stalled`] as [`Sim::step`].
    pub fn run_until_exit(&self, node: NodeId) -> Result<(), Stalled> {
        self.run_until(|| !self.is_running(node))
    }

    /// Runs a client: a task on a machine of its own, which never fails, until its end.
    ///
    /// # Errors
    /// [`Stalled`] as [`Sim::step`], when the client has not ended by then.
    pub fn block_on<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        client: impl FnOnce(Rt) -> F,
    ) -> Result<T, Stalled> {
        let node = self.client();
        let rt = self.rt(node, ShardId(0)).expect("the client's machine runs");
        Begun::new(&rt, Group::Statement, client(rt.clone())).join(self)
    }

    /// The machine of [`Sim::block_on`], to cut it off from nodes.
    pub fn client(&self) -> NodeId {
        if let Some(client) = self.0.client.get() {
            return client;
        }
        let config = NodeConfig { ip: Some([10, 255, 255, 254].into()), ..NodeConfig::default() };
        let node = self.add_node(config, |_| rt::shard_mains(1, |_| std::future::pending::<()>()));
        self.0.client.set(Some(node));
        self.start(node);
        node
    }

    /// Runs one task, or lets time pass to the next event.
    ///
    /// # Errors
    /// [`Stalled`] when every task waits and no event is left, or the limit of virtual time is reached.
    pub fn step(&self) -> Result<(), Stalled> {
        let world = &self.0.world;
        self.apply_control();
        match self.choose() {
            Some(runner) => {
                self.run_task(&runner);
                world.advance_to(world.now() + world.config.poll_cost.as_nanos() as u64);
            }
            None => self.let_time_pass()?,
        }
        world.run_due();
        for runner in self.0.runners.borrow().iter() {
            if runner.next_deadline().is_some_and(|deadline| deadline <= world.now()) {
                runner.executor.fire_timers(runner.clock.now());
            }
        }
        if self.0.some_exit.replace(false) {
            self.end_finished();
        }
        Ok(())
    }

    /// One of the shards that have work, by the seed.
    fn choose(&self) -> Option<Rc<Runner>> {
        let runners = self.0.runners.borrow();
        let mut ready = self.0.ready.borrow_mut();
        ready.clear();
        ready.extend((0..runners.len()).filter(|index| {
            let Runner { executor, host, .. } = &*runners[*index];
            host.has_work(executor)
        }));
        if ready.is_empty() {
            return None;
        }
        let chosen = self.0.world.draw(Stream::Schedule, |rng| rng.below(ready.len() as u64));
        Some(Rc::clone(&runners[ready[chosen as usize]]))
    }

    fn run_task(&self, runner: &Runner) {
        let world = &self.0.world;
        let executor = &runner.executor;
        let _entered = executor.enter();
        let cost = world.config.poll_cost.as_nanos() as u64;
        self.0.in_task.set(true);
        let pick = |count: usize| world.draw(Stream::Schedule, |rng| rng.below(count as u64)) as usize;
        let flush = world.draw(Stream::Schedule, |rng| rng.below(2) == 0);
        let ran = executor.run_one(cost, flush, pick);
        self.0.in_task.set(false);
        if let Some((group, slot)) = ran {
            let place = (u64::from(runner.node.0) << 16) | u64::from(runner.shard);
            world.note("run", &[place, group.index() as u64, u64::from(slot)]);
        }
    }

    fn let_time_pass(&self) -> Result<(), Stalled> {
        let world = &self.0.world;
        let mut next = world.next_event();
        for runner in self.0.runners.borrow().iter() {
            if let Some(time) = runner.next_deadline() {
                next = Some(next.map_or(time, |next| next.min(time)));
            }
        }
        let limit = world.config.time_max.as_nanos() as u64;
        match next {
            Some(time) if time <= limit => {
                world.advance_to(time.max(world.now()));
                world.note("time", &[]);
                Ok(())
            }
            _ => Err(Stalled { seed: world.seed, at: self.now(), time_limit: next.is_some() }),
        }
    }

    fn control(&self, control: Control) {
        self.0.control.borrow_mut().push(control);
        if !self.0.in_task.get() {
            self.apply_control();
        }
    }

    fn apply_control(&self) {
        let orders = std::mem::take(&mut *self.0.control.borrow_mut());
        for order in orders {
            match order {
                Control::Start(node) => self.boot(node),
                Control::Down(node, crash) => self.take_down(node, crash),
                Control::Pause(node, paused) => {
                    self.0.world.note("pause", &[u64::from(node.0), u64::from(paused)]);
                    if std::mem::replace(&mut self.0.nodes.borrow_mut()[node.index()].paused, paused)
                        != paused
                    {
                        self.note_change(node);
                    }
                    self.list_runners();
                }
            }
        }
    }

    fn boot(&self, id: NodeId) {
        let (info, boot, clock, disk) = {
            let mut nodes = self.0.nodes.borrow_mut();
            let node = &mut nodes[id.index()];
            if node.running.is_some() {
                return;
            }
            let info = node.info.clone();
            node.info.starts += 1;
            (info, Rc::clone(&node.boot), Rc::clone(&node.clock), Rc::clone(&node.disk))
        };
        let world = &self.0.world;
        world.note("start", &[u64::from(id.0), info.starts]);
        clock.node_started();
        self.note_change(id);
        self.0.network.host_up(u64::from(id.0));
        let mains = boot(&info);
        assert_eq!(mains.len(), usize::from(info.shards), "one main for each shard of the node");
        let exits = Rc::new(RefCell::new(vec![None; mains.len()]));
        let mut shards = Vec::new();
        for (shard, main) in (0..info.shards).zip(mains) {
            let rt = self.assemble(&info, shard, &clock, &disk);
            let (exits, main_rt) = (Rc::clone(&exits), rt.clone());
            let some_exit = Rc::clone(&self.0.some_exit);
            let main = async move {
                let exit = main(main_rt).await;
                exits.borrow_mut()[usize::from(shard)] = Some(exit);
                some_exit.set(true);
            };
            rt.spawn(Group::Statement, main).detach();
            shards.push(rt);
        }
        let mut nodes = self.0.nodes.borrow_mut();
        let node = &mut nodes[id.index()];
        (node.running, node.paused) = (Some(Running { shards, exits }), false);
        drop(nodes);
        self.list_runners();
    }

    fn list_runners(&self) {
        let mut runners = self.0.runners.borrow_mut();
        runners.clear();
        for node in self.0.nodes.borrow().iter().filter(|node| !node.paused) {
            let shards = node.running.iter().flat_map(|running| &running.shards);
            runners.extend(shards.map(|rt| {
                Rc::new(Runner {
                    node: node.info.id,
                    shard: rt.shard().0,
                    executor: rt.executor().clone(),
                    clock: Rc::clone(&node.clock),
                    host: Host::new(),
                    deadline: Cell::new(None),
                })
            }));
        }
    }

    fn assemble(&self, info: &NodeInfo, shard: u16, clock: &Rc<NodeClock>, disk: &Rc<NodeDisk>) -> Rt {
        let clock = Rc::clone(clock) as Rc<dyn Clock>;
        let node = u64::from(info.id.0);
        let speed = disk.config().speed;
        let goal = speed.map_or(Duration::ZERO, |(_, goal)| goal);
        let queue = IoQueue::new(Rc::clone(&clock), speed.map(|(speed, _)| speed), info.shards, goal);
        let stream = SHARD_STREAMS + (node << 40 | info.starts << 16 | u64::from(shard));
        let net = SimNet { network: Rc::clone(&self.0.network), node, ip: info.ip };
        Rt::new(RtParts {
            shard: ShardId(shard),
            shard_count: info.shards,
            executor: Executor::new(Rc::clone(&clock)),
            clock,
            random: Rc::new(ShardRandom {
                rng: RefCell::new(Rng::new(self.0.world.seed, stream)),
                world: Rc::clone(&self.0.world),
            }),
            disk: Disk::new(Rc::new(SimDisk(Rc::clone(disk))), queue),
            net: Net::new(Rc::new(net)),
        })
    }

    /// Ends a node: its tasks, whose sockets the kernel closes unless power is gone, then the loss of its disk.
    fn take_down(&self, id: NodeId, crash: Crash) {
        let (running, disk) = {
            let mut nodes = self.0.nodes.borrow_mut();
            let node = &mut nodes[id.index()];
            (node.running.take(), Rc::clone(&node.disk))
        };
        let Some(running) = running else { return };
        self.list_runners();
        self.note_change(id);
        self.0.world.note("down", &[u64::from(id.0), u64::from(crash == Crash::Power)]);
        if crash == Crash::Power {
            self.0.network.host_down(u64::from(id.0), crash);
        }
        self.0.in_task.set(true);
        for rt in &running.shards {
            let _entered = rt.executor().enter();
            rt.executor().shutdown();
        }
        self.0.in_task.set(false);
        drop(running);
        if crash == Crash::Process {
            self.0.network.host_down(u64::from(id.0), crash);
        }
        disk.crash(crash);
    }

    /// Ends the nodes whose mains have all returned.
    fn end_finished(&self) {
        let finished: Vec<(NodeId, Vec<String>)> = {
            let nodes = self.0.nodes.borrow();
            let exits = |node: &Node| -> Option<Vec<String>> {
                node.running.as_ref()?.exits.borrow().iter().cloned().collect()
            };
            nodes.iter().filter_map(|node| Some((node.info.id, exits(node)?))).collect()
        };
        for (id, exits) in finished {
            self.0.nodes.borrow_mut()[id.index()].last_exits = exits;
            self.take_down(id, Crash::Process);
        }
    }
}

fn erase<T: fmt::Debug + 'static>(main: ShardMain<T>) -> ErasedMain {
    Box::new(move |rt| Box::pin(async move { format!("{:?}", main(rt).await) }))
}

impl<T: 'static> Begun<T> {
    /// Runs the simulation until it ends.
    ///
    /// # Errors
    /// [`Stalled`] as [`Sim::step`], when the task has not ended by then.
    pub fn join(self, sim: &Sim) -> Result<T, Stalled> {
        sim.run_until(|| self.is_finished())?;
        Ok(self.take())
    }
}
