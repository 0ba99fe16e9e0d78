//! The input of a seed's run and its result: options, and the report. Both simulations take the one and give the other.

use std::time::Duration;

use rt_sim::{Config, Rng, Sim};

use crate::canary::Canary;
use crate::cluster::Focus;
use crate::plan::pick;
use crate::stats::Stats;
use crate::world::World;

/// Virtual time that no run reaches.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// Times between two readings of a clock, nanoseconds; without any two readings in a row are equal.
const CLOCK_READ_COSTS: [u64; 4] = [0, 10, 50, 120];
/// Draws of the simulated machine itself.
const MACHINE_STREAM: u64 = 7;

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
    pub(crate) fn canaries(&self) -> rt::Injected<server::Canaries> {
        rt_sim::injected(self.canary.map(Canary::injected).unwrap_or_default())
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
    pub simulated: Duration,
    /// How much CPU time it took, which the caller measures: this crate knows no clock but the simulated one.
    pub spent: Duration,
    /// The folded trace after each [`TRACE_BLOCK`](rt_sim::TRACE_BLOCK) events.
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
            simulated: Duration::ZERO,
            spent: Duration::ZERO,
            trace_blocks: Vec::new(),
            trace: Vec::new(),
            stats: Stats::default(),
        }
    }
}

/// The simulated machine of a seed.
pub(crate) fn simulation_config(seed: u64, options: &Options) -> Config {
    let mut rng = Rng::new(seed, MACHINE_STREAM);
    let cost = *pick(&mut rng, &CLOCK_READ_COSTS);
    Config {
        clock_read_cost: Duration::from_nanos(cost),
        trace_lines_max: options.trace_lines_max,
        trace_lines_from: options.trace_lines_from,
        time_max: TIME_MAX,
        ..Config::default()
    }
}

/// The report of a run that has ended.
pub(crate) fn report(seed: u64, sim: &Sim, world: &World, plan: String) -> Report {
    Report {
        seed,
        failure: world.failure.clone(),
        plan,
        shape: None,
        trace_hash: sim.trace_hash(),
        trace_events: sim.trace_events(),
        simulated: sim.now(),
        spent: Duration::ZERO,
        trace_blocks: sim.trace_blocks(),
        trace: sim.trace_lines(),
        stats: world.stats,
    }
}
