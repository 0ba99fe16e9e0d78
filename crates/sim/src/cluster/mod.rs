//! The simulation of a cluster: several nodes, each with a disk and clocks of its own, clients that ask any of them at levels
//! that they draw, and a checker a promise (docs/design/simulator.md).

mod atomic;
mod bounded;
mod ddl;
mod director;
mod durable;
mod equal;
mod kept;
mod left_behind;
mod monotonic;
mod nemesis;
mod plan;
mod repaired;
mod resurrection;
mod ring;
mod schema;
mod serial;
mod truncation;
mod worker;

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rt_sim::{NodeConfig, Sim, Simulation};
use server::Canaries;

pub(crate) use crate::cluster::atomic::Batches;
use crate::cluster::ddl::Known;
use crate::cluster::director::{ClusterDirector, Member, Place};
use crate::cluster::plan::ClusterPlan;
use crate::cluster::serial::Registers;
use crate::world::World;
use crate::{Options, Report};

/// Where nodes tell their metrics.
const METRICS_PORT: u16 = 9180;

/// Adds a node to the simulation; the first is the seed of all.
fn add_member(sim: &Sim, plan: &Rc<ClusterPlan>, nth: usize, canaries: Canaries) -> Member {
    let ready = Arc::new(AtomicU64::new(0));
    let config = NodeConfig { shards: plan.shards[nth], disk: plan.machine.disk(), ..NodeConfig::default() };
    let (plan, hook) = (plan.clone(), ready.clone());
    let rng = RefCell::new(sim.rng(100 + nth as u64));
    let replaces = Rc::new(RefCell::new(None));
    let replaced = replaces.clone();
    let id = sim.add_node(config, move |info| {
        let mut config = plan.config(&mut rng.borrow_mut(), nth, info.ip);
        config.replace_address_first_boot =
            replaced.borrow().map_or_else(String::new, |dead: IpAddr| dead.to_string());
        (config.prometheus_address, config.prometheus_port) = (info.ip, METRICS_PORT);
        let hook = hook.clone();
        let ready = Arc::new(move |_: &server::ReadyReport| {
            hook.fetch_add(1, Ordering::Relaxed);
        });
        server::mains_with_canaries(config, canaries, info.shards, ready)
    });
    Member {
        id,
        ready,
        place: Place::Spare,
        joins: false,
        replaces,
        troubled: false,
        disk_failed: false,
        starts_from: None,
    }
}

/// Runs a seed.
pub(crate) fn run(seed: u64, options: &Options) -> Report {
    let simulation = Simulation::new(seed, crate::simulation_config(seed, options));
    let sim = simulation.handle();
    let mut rng = sim.rng(1);
    let nodes = if options.nodes > 0 { options.nodes } else { plan::size(&mut rng) };
    let plan = Rc::new(ClusterPlan::draw(&mut rng, nodes));
    let canaries = options.canaries();
    let members: Vec<Member> = (0..nodes).map(|nth| add_member(&sim, &plan, nth, canaries)).collect();
    let ids = members.iter().map(|member| member.id).collect();
    let world = Rc::new(RefCell::new(World::new(sim.clone(), ids)));
    world.borrow_mut().is_wide = plan.distance.is_some();
    let (shared, directed, inner) = (world.clone(), plan.clone(), sim.clone());
    let ended = sim.block_on(move |rt| {
        ClusterDirector {
            rt,
            sim: inner,
            nodes: members,
            registers: Rc::new(RefCell::new(Registers::new())),
            schema: Rc::new(RefCell::new(Known::all(directed.changers))),
            plan: directed,
            world: shared,
            rng,
            change: None,
            changed: false,
            hints_lost: false,
            asking: Vec::new(),
        }
        .run()
    });
    let mut world = world.borrow_mut();
    if let Err(stalled) = ended {
        world.fail(stalled.to_string());
    }
    crate::report(seed, &sim, &world, format!("{plan:?}"))
}
