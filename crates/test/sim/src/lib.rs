//! Whole-node deterministic simulation: random clients over CQL against the real node, with faults and crashes, judged by
//! the reference database of `model`. A seed decides everything; see docs/design/simulator.md.
//!
//! There are two simulations: of one node (`single`), whose process lifetimes end in crashes, and of a cluster (`cluster`). Below them
//! are the common parts: statements and connections (`statement`, `client`, `api`, `rest`), the tables with their histories (`table`, `batches`,
//! `world`), random statements and comparing answers (`workload`, `check`, `session`), and the plan of a machine (`plan`). None of these
//! knows the director of a run. `changes` is independent.

mod api;
mod batches;
mod canary;
mod changes;
mod check;
mod client;
mod cluster;
mod plan;
mod report;
mod rest;
mod session;
mod single;
mod statement;
mod stats;
mod table;
mod workload;
mod world;

pub use canary::Canary;
pub use changes::{ChangeStats, RingChange, run_change};
pub use cluster::Focus;
pub use report::{ClusterShape, Options, Report};
pub use rt_sim::TRACE_BLOCK;
pub use stats::Stats;

/// The seeds that once found a bug, each with a word on it: of clusters or of the single node.
pub fn kept_seeds(cluster: bool) -> impl Iterator<Item = (u64, &'static str)> {
    let text = if cluster { include_str!("../seeds-cluster.txt") } else { include_str!("../seeds.txt") };
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| {
        let (seed, about) = line.split_once(' ').unwrap_or((line, ""));
        (seed.parse().expect("a line of seeds.txt begins with a number"), about)
    })
}

/// Runs a seed.
pub fn run(seed: u64, options: &Options) -> Report {
    if options.cluster { cluster::run(seed, options) } else { single::run(seed, options) }
}
