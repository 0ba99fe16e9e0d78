//! Whole-node deterministic simulation: random clients over CQL against the real node, with faults and crashes, judged by
//! the reference database of `model`. A seed decides everything; see docs/design/simulator.md.

mod canary;
mod changes;
mod check;
mod client;
mod cluster;
mod director;
mod nemesis;
mod plan;
mod rest;
mod schemer;
mod statement;
mod worker;
mod workload;
mod world;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::director::Director;
use crate::plan::Plan;
pub use crate::world::Stats;
use crate::world::World;
pub use canary::Canary;
pub use changes::{ChangeStats, RingChange, run_change};
pub use cluster::Focus;
pub use rt_sim::TRACE_BLOCK;
use rt_sim::{NodeConfig, Simulation};

/// How to run a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// An injected bug.
    pub canary: Option<Canary>,
    /// Simulate a cluster instead of a single node.
    pub cluster: bool,
    /// The focus of the cluster's scenario, instead of the seed's.
    pub focus: Option<Focus>,
    /// Nodes of the cluster; 0 for as many as the seed says.
    pub nodes: usize,
    /// Events of the trace that are stored as text.
    pub trace_lines_max: usize,
    /// Keep the first events after this one instead of the last of all; 0 for the last.
    pub trace_lines_from: u64,
}

impl Options {
    /// The injected bugs of the nodes.
    fn canaries(&self) -> server::Canaries {
        self.canary.map(Canary::injected).unwrap_or_default()
    }
}

/// The machines of a simulated cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterShape {
    /// How many nodes there are, those included that join later.
    pub nodes: usize,
    /// In how many datacenters.
    pub datacenters: usize,
    /// The shards of each node.
    pub shards: Vec<u16>,
}

impl ClusterShape {
    /// The machines that a seed draws.
    pub fn of(seed: u64) -> Self {
        cluster::shape_of(seed)
    }
}

/// The result of a run of one seed.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The violation, with its history; none when all is right.
    pub failure: Option<String>,
    /// The scenario of the seed, in a line.
    pub plan: String,
    /// The machines of its cluster; none of a node alone.
    pub shape: Option<ClusterShape>,
    /// The folded trace: equal for equal seeds.
    pub trace_hash: u64,
    /// Events in the trace.
    pub trace_events: u64,
    /// How long it took by the simulated clock.
    pub simulated: std::time::Duration,
    /// How much CPU time it took, which the caller measures: this crate knows no clock but the simulated one.
    pub spent: std::time::Duration,
    /// The folded trace after each [`TRACE_BLOCK`] events.
    pub trace_blocks: Vec<u64>,
    /// The last events as text.
    pub trace: Vec<String>,
    /// The counters.
    pub stats: Stats,
}

impl Report {
    /// Of a run that failed to end.
    pub fn of_failure(seed: u64, failure: String) -> Self {
        Self {
            seed,
            failure: Some(failure),
            plan: String::new(),
            shape: None,
            trace_hash: 0,
            trace_events: 0,
            simulated: std::time::Duration::ZERO,
            spent: std::time::Duration::ZERO,
            trace_blocks: Vec::new(),
            trace: Vec::new(),
            stats: Stats::default(),
        }
    }
}

/// The seeds that once found a bug, each with a word on it: of clusters or of the single node.
pub fn kept_seeds(cluster: bool) -> impl Iterator<Item = (u64, &'static str)> {
    let text = if cluster { include_str!("../seeds-cluster.txt") } else { include_str!("../seeds.txt") };
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| {
        let (seed, about) = line.split_once(' ').unwrap_or((line, ""));
        (seed.parse().expect("a line of seeds.txt begins with a number"), about)
    })
}

/// Virtual time that no run reaches.
const TIME_MAX: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// Times between two readings of a clock, nanoseconds; without any two readings in a row are equal.
const CLOCK_READ_COSTS: [u64; 4] = [0, 10, 50, 120];
/// Draws of the simulated machine itself.
const MACHINE_STREAM: u64 = 7;

fn simulation_config(seed: u64, options: &Options) -> rt_sim::Config {
    let mut rng = rt_sim::Rng::new(seed, MACHINE_STREAM);
    let cost = *plan::pick(&mut rng, &CLOCK_READ_COSTS);
    rt_sim::Config {
        clock_read_cost: std::time::Duration::from_nanos(cost),
        trace_lines_max: options.trace_lines_max,
        trace_lines_from: options.trace_lines_from,
        time_max: TIME_MAX,
        ..rt_sim::Config::default()
    }
}

fn report(seed: u64, sim: &rt_sim::Sim, world: &World, plan: String) -> Report {
    Report {
        seed,
        failure: world.failure.clone(),
        plan,
        shape: None,
        trace_hash: sim.trace_hash(),
        trace_events: sim.trace_events(),
        simulated: sim.now(),
        spent: std::time::Duration::ZERO,
        trace_blocks: sim.trace_blocks(),
        trace: sim.trace_lines(),
        stats: world.stats,
    }
}

/// Runs a seed.
pub fn run(seed: u64, options: &Options) -> Report {
    if options.cluster { cluster::run(seed, options) } else { run_single(seed, options) }
}

/// Runs a seed of the single node's simulation.
fn run_single(seed: u64, options: &Options) -> Report {
    let simulation = Simulation::new(seed, simulation_config(seed, options));
    let sim = simulation.handle();
    let mut rng = sim.rng(1);
    let plan = Rc::new(Plan::draw(&mut rng));
    let ready = Arc::new(AtomicU64::new(0));
    let node_config = NodeConfig { shards: plan.shards, disk: plan.disk(), ..NodeConfig::default() };
    let canaries = options.canaries();
    let (node_plan, hook) = (plan.clone(), ready.clone());
    let node_rng = RefCell::new(sim.rng(2));
    let node = sim.add_node(node_config, move |info| {
        let config = node_plan.config(&mut node_rng.borrow_mut(), info.ip, info.shards);
        let hook = hook.clone();
        let ready = Arc::new(move |_: &server::ReadyReport| {
            hook.fetch_add(1, Ordering::Relaxed);
        });
        server::mains_with_canaries(config, canaries, info.shards, ready)
    });
    let world = Rc::new(RefCell::new(World::new(sim.clone(), vec![node])));
    world.borrow_mut().shards = plan.shards;
    let (shared, directed, inner) = (world.clone(), plan.clone(), sim.clone());
    let ended = sim.block_on(move |rt| {
        Director {
            rt,
            sim: inner,
            node,
            plan: directed,
            world: shared,
            rng,
            ready,
            unsynced_since: None,
            disk_failed: false,
            tasks_of_lifetime: Vec::new(),
        }
        .run()
    });
    let mut world = world.borrow_mut();
    if let Err(stalled) = ended {
        world.fail(stalled.to_string());
    }
    report(seed, &sim, &world, format!("{plan:?}"))
}
