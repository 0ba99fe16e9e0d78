//! The simulation of a single node: process lifetimes, each with a workload and an end, and after each start a reading of everything
//! (docs/design/simulator.md).
//!
//! From below: the clients (`worker`, `schemer`), the state of a run (`director`), its faults (`nemesis`), and the phases (`phases`). None
//! of them knows one above.

mod director;
mod nemesis;
mod phases;
mod schemer;
mod worker;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rt_sim::{NodeConfig, Simulation};

use crate::plan::Plan;
use crate::report::{Options, Report, report, simulation_config};
use crate::single::director::Director;
use crate::world::World;

/// Runs a seed of the single node's simulation.
pub(crate) fn run(seed: u64, options: &Options) -> Report {
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
