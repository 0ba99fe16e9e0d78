//! The simulation of a cluster: several nodes, each with a disk and clocks of its own, clients that ask any of them at levels
//! that they draw, and a checker a promise (docs/design/simulator.md).
//!
//! From below: the plan of a seed (`plan`), a node and its health (`node`, `health`), the models of tables (`models`), the clients
//! (`clients`), the state of a run (`director`), the faults (`nemesis`), the checkers (`checks`), and the phases of a run (`phases`).
//! None of them knows one above.

mod checks;
mod clients;
mod director;
mod health;
mod models;
mod nemesis;
mod node;
mod phases;
mod plan;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rt::Injected;
use rt_sim::{NodeConfig, Rng, Sim, Simulation};
use server::Canaries;

use crate::cluster::director::ClusterDirector;
use crate::cluster::models::ddl::Known;
use crate::cluster::models::indexed::SharedIndexed;
use crate::cluster::models::items::Items;
use crate::cluster::models::lwt::LwtTables;
use crate::cluster::models::replicating::SharedCopied;
use crate::cluster::models::serial::Registers;
use crate::cluster::models::stamps::Stamps;
use crate::cluster::models::truncating::SharedCut;
use crate::cluster::node::{METRICS_PORT, Member, Place, Served};
use crate::cluster::plan::ClusterPlan;
pub use crate::cluster::plan::focus::Focus;
use crate::report::{ClusterShape, Options, Report, report, simulation_config};
use crate::world::World;

/// Draws that were added later, so that earlier ones keep their values.
const DETAILS_STREAM: u64 = 12;
const PLAN_STREAM: u64 = 13;
const LARGE_STREAM: u64 = 15;
/// Draws of operations that came later.
const OPERATIONS_STREAM: u64 = 21;
/// The random stream of the plan, and of its execution.
const SCENARIO_STREAM: u64 = 1;

/// Adds a node to the simulation; the first is the seed of all.
fn add_member(sim: &Sim, plan: &Rc<ClusterPlan>, nth: usize, canaries: Injected<Canaries>) -> Member {
    let ready = Arc::new(AtomicU64::new(0));
    let config = NodeConfig { shards: plan.shards[nth], disk: plan.machine.disk(), ..NodeConfig::default() };
    let (plan, hook) = (plan.clone(), ready.clone());
    let rng = RefCell::new(sim.rng(100 + nth as u64));
    let replaces = Rc::new(RefCell::new(None));
    let replaced = replaces.clone();
    let served = Served::default();
    let serves = served.clone();
    let id = sim.add_node(config, move |info| {
        let mut config = plan.config(&mut rng.borrow_mut(), nth, info.ip);
        config.replace_address_first_boot =
            replaced.borrow().map_or_else(String::new, |dead: IpAddr| dead.to_string());
        (config.prometheus_address, config.prometheus_port) = (info.ip, METRICS_PORT);
        // Where the other seeds join later, the first node has new_cluster set; later never, also after a loss of its disk.
        let alone = plan.founders < plan::SEEDS.min(plan.shards.len());
        config.new_cluster = nth == 0 && alone && hook.load(Ordering::Relaxed) == 0;
        serves.start();
        let (hook, serves) = (hook.clone(), serves.clone());
        let ready = Arc::new(move |_: &server::ReadyReport| {
            hook.fetch_add(1, Ordering::Relaxed);
            serves.ready();
        });
        server::mains_with_canaries(config, canaries, info.shards, ready)
    });
    Member {
        id,
        ready,
        place: Rc::new(Cell::new(Place::Spare)),
        served,
        joins: false,
        replaces,
        faulty: false,
        disk_failed: false,
        starts_from: None,
        unsynced_since: None,
    }
}

/// The plan of a seed.
fn draw(seed: u64, options: &Options, rng: &mut Rng) -> ClusterPlan {
    let wanted = options.focus.or(options.canary.and_then(|canary| canary.focus));
    let size = |drawn: usize| if options.nodes > 0 { options.nodes } else { drawn };
    let mut plan = match Focus::of(seed, wanted).filter(|_| options.nodes == 0 || wanted.is_some()) {
        None => {
            let mut details = Rng::new(seed, PLAN_STREAM);
            let large = plan::large(&mut Rng::new(seed, LARGE_STREAM)).filter(|_| options.nodes == 0);
            let nodes = size(plan::size(rng, &mut details));
            let mut plan = ClusterPlan::draw(rng, large.unwrap_or(nodes));
            if large.is_some() {
                plan.shards.fill(1);
                plan.rounds = 1;
            }
            plan.draw_details(&mut details);
            plan
        }
        Some((focus, mut details)) => {
            let mut plan = ClusterPlan::draw(rng, size(focus.size(&mut details)));
            focus.apply(&mut plan, &mut details);
            plan
        }
    };
    plan.draw_operations(&mut Rng::new(seed, OPERATIONS_STREAM));
    plan
}

fn shape(plan: &ClusterPlan) -> ClusterShape {
    let datacenters: BTreeSet<&String> = plan.datacenters.iter().collect();
    ClusterShape { nodes: plan.shards.len(), datacenters: datacenters.len(), shards: plan.shards.clone() }
}

impl ClusterShape {
    /// The machines that a seed draws.
    pub fn of(seed: u64) -> Self {
        // As the simulation numbers the streams of those above it.
        shape(&draw(seed, &Options::default(), &mut Rng::new(seed, u64::MAX - SCENARIO_STREAM)))
    }
}

/// Runs a seed.
pub(crate) fn run(seed: u64, options: &Options) -> Report {
    let simulation = Simulation::new(seed, simulation_config(seed, options));
    let sim = simulation.handle();
    let mut rng = sim.rng(SCENARIO_STREAM);
    let plan = draw(seed, options, &mut rng);
    let nodes = plan.shards.len();
    let plan = Rc::new(plan);
    let canaries = options.canaries();
    let members: Vec<Member> = (0..nodes).map(|nth| add_member(&sim, &plan, nth, canaries)).collect();
    let ids = members.iter().map(|member| member.id).collect();
    let world = Rc::new(RefCell::new(World::new(sim.clone(), ids)));
    world.borrow_mut().is_wide = plan.distance.is_some() || plan.links.is_some();
    world.borrow_mut().limits_connections = plan.limits.is_some();
    let (shared, directed, inner) = (world.clone(), plan.clone(), sim.clone());
    let ended = sim.block_on(move |rt| {
        ClusterDirector {
            rt,
            sim: inner,
            nodes: members,
            registers: Rc::new(RefCell::new(Registers::new())),
            lwt: LwtTables::new(&directed),
            stamps: Rc::new(RefCell::new(Stamps::new())),
            cut: SharedCut::default(),
            indexed: SharedIndexed::default(),
            items: Rc::new(RefCell::new(Items::new(directed.homes().len() as u64))),
            copied: SharedCopied::default(),
            details: Rng::new(seed, DETAILS_STREAM),
            schema: Rc::new(RefCell::new(Known::all(directed.changers))),
            copies: directed.copies.clone(),
            plan: directed,
            world: shared,
            rng,
            change: None,
            changed: false,
            hints_lost: false,
            began: Duration::ZERO,
            rotten: None,
            asking: Vec::new(),
        }
        .run()
    });
    let mut world = world.borrow_mut();
    if let Err(stalled) = ended {
        world.fail(stalled.to_string());
    }
    Report { shape: Some(shape(&plan)), ..report(seed, &sim, &world, format!("{plan:?}")) }
}
