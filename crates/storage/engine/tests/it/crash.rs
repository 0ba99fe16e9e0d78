//! Crashes at random points: acknowledged writes are there, deleted rows stay away, batches are whole; and
//! injected bugs are found.

use std::sync::Arc;
use std::time::Duration;

use engine::{Canaries, SyncMode};
use rt::shard_mains;
use rt_sim::{Config, NodeConfig, Simulation};

use crate::world::{Plan, SharedWorld, World, node};

/// Runs one seed: some lifetimes of a node, each ended at a random point; returns the violations.
fn run(seed: u64, plan: Plan, power: bool) -> (Vec<String>, u64) {
    run_lives(seed, plan, |_| power)
}

/// [`run`], with `power` saying which lives end by a power failure.
fn run_lives(seed: u64, plan: Plan, power: impl Fn(u64) -> bool) -> (Vec<String>, u64) {
    let sim = Simulation::new(seed, Config::default());
    let world: SharedWorld = Arc::default();
    let shared = world.clone();
    let node = sim.add_node(NodeConfig::default(), move |_| {
        let shared = shared.clone();
        shard_mains(1, move |rt| node(rt, plan, shared.clone()))
    });
    let mut rng = sim.rng(0);
    sim.start(node);
    for life in 0..5 {
        let most = if rng.below(3) == 0 { 12_000 } else { 120 };
        sim.run_for(Duration::from_micros(rng.below(most * 1000)));
        if power(life) {
            sim.crash(node)
        } else {
            sim.kill(node)
        }
        sim.start(node);
    }
    let before = world.lock().unwrap().verified;
    let settled = world.clone();
    let ended = sim.run_until(|| {
        let world: &World = &settled.lock().unwrap();
        world.verified > before || !world.failures.is_empty()
    });
    let mut world = world.lock().unwrap();
    if let Err(stalled) = ended {
        world.failures.push(format!("stalled: {stalled:?}"));
    }
    let errors: Vec<String> =
        world.errors.drain(..).map(|error| format!("request failed: {error}")).collect();
    world.failures.extend(errors);
    (world.failures.clone(), world.settled.len() as u64)
}

const SEEDS_OF_FAILED_SYNCS: u64 = 60;

fn plan(sync: SyncMode) -> Plan {
    Plan { sync, canaries: Canaries::default(), gc_grace: 2, sstables: false, ops_max: 400 }
}

const PERIODIC: SyncMode = SyncMode::Periodic { period: Duration::from_millis(50) };
const GROUP: SyncMode = SyncMode::Group { window: Duration::from_millis(2) };

fn check(seeds: std::ops::Range<u64>, plan: Plan, power: bool) {
    let mut work = 0;
    for seed in seeds {
        let (failures, ops) = run(seed, plan, power);
        assert!(failures.is_empty(), "seed {seed}: {failures:#?}");
        work += ops;
    }
    assert!(work > 100, "the nodes did something: {work} operations");
}

#[test]
fn the_log_survives_the_end_of_the_process() {
    check(0..40, plan(PERIODIC), false);
}

#[test]
fn the_log_survives_power_loss() {
    check(0..40, plan(SyncMode::Batch), true);
    check(0..20, plan(GROUP), true);
}

/// Data that a killed process had written is still only in the system's memory when the next one replays it.
#[test]
fn the_log_survives_power_loss_after_a_kill() {
    for seed in 0..60 {
        let (failures, _) = run_lives(seed, plan(SyncMode::Batch), |life| life % 2 == 1);
        assert!(failures.is_empty(), "seed {seed}: {failures:#?}");
    }
}

fn with_sstables(sync: SyncMode) -> Plan {
    Plan { sstables: true, ..plan(sync) }
}

#[test]
fn sstables_survive_the_end_of_the_process() {
    check(0..10, with_sstables(PERIODIC), false);
}

#[test]
fn sstables_survive_power_loss() {
    check(0..10, with_sstables(SyncMode::Batch), true);
}

/// Syncs fail, and the system may take their pages for clean; the process ends, and the next one reads from memory data that the disk does not
/// have; the machine ends while that one still starts, or later. Nothing may depend on data that can vanish.
#[test]
fn failed_syncs_before_the_end_of_a_process_lose_nothing() {
    let mut refused = 0;
    for seed in 0..SEEDS_OF_FAILED_SYNCS {
        let sim = Simulation::new(seed, Config::default());
        let world: SharedWorld = Arc::default();
        let shared = world.clone();
        let plan = Plan { ops_max: 2_000, ..with_sstables(SyncMode::Batch) };
        let node = sim.add_node(NodeConfig::default(), move |_| {
            let shared = shared.clone();
            shard_mains(1, move |rt| node(rt, plan, shared.clone()))
        });
        let mut rng = sim.rng(0);
        sim.start(node);
        for _ in 0..6 {
            sim.run_for(Duration::from_micros(rng.below(400_000)));
            let rate = [30_000, 200_000, 500_000][rng.below(3) as usize];
            sim.configure_disk(node, |disk| disk.sync_error_per_million = rate);
            world.lock().unwrap().disk_fails = true;
            sim.run_for(Duration::from_micros(rng.below(60_000)));
            sim.configure_disk(node, |disk| disk.sync_error_per_million = 0);
            world.lock().unwrap().disk_fails = false;
            if rng.below(4) == 0 {
                sim.crash(node);
            } else {
                sim.kill(node);
            }
            sim.start(node);
            if rng.below(2) == 0 {
                sim.run_for(Duration::from_micros(rng.below(8_000)));
                sim.crash(node);
                sim.start(node);
            }
        }
        let before = world.lock().unwrap().verified;
        let settled = world.clone();
        sim.run_until(|| {
            let world: &World = &settled.lock().unwrap();
            world.verified > before || !world.failures.is_empty()
        })
        .unwrap_or_else(|stalled| panic!("seed {seed}: {stalled:?}"));
        let world = world.lock().unwrap();
        assert!(world.failures.is_empty(), "seed {seed}: {:#?}", world.failures);
        refused += world.errors.len();
    }
    assert!(refused > 20, "only {refused} requests met a failed sync");
}

fn caught(canaries: Canaries, base: Plan, power: bool, seeds: u64) -> usize {
    let plan = Plan { canaries, ..base };
    (0..seeds).filter(|seed| !run(*seed, plan, power).0.is_empty()).count()
}

#[test]
fn a_skipped_sync_is_caught() {
    let canaries = Canaries { skip_commitlog_sync: true, ..Canaries::default() };
    assert!(caught(canaries, plan(SyncMode::Batch), true, 20) > 5);
}

#[test]
fn a_replay_that_stops_early_is_caught() {
    let canaries = Canaries { replay_stops_early: true, ..Canaries::default() };
    assert!(caught(canaries, plan(PERIODIC), false, 20) > 5);
}

#[test]
fn a_dropped_range_tombstone_is_caught() {
    let canaries = Canaries { drop_range_tombstones: true, ..Canaries::default() };
    assert!(caught(canaries, with_sstables(PERIODIC), false, 20) > 5);
}

#[test]
fn a_purge_too_soon_is_caught() {
    let plan = Plan {
        canaries: Canaries { purge_too_soon: true, ..Canaries::default() },
        ..with_sstables(PERIODIC)
    };
    // Few runs compact in the moment that shows it.
    assert!((0..400).any(|seed| !run(seed, plan, false).0.is_empty()));
}

/// A node whose disk fails in ways that pass: nothing acknowledged is lost, and work continues afterwards.
#[test]
fn a_full_disk_refuses_writes_and_loses_nothing() {
    for seed in 0..4 {
        let sim = Simulation::new(seed, Config::default());
        let world: SharedWorld = Arc::default();
        let shared = world.clone();
        let plan = Plan { ops_max: 700, ..with_sstables(PERIODIC) };
        let node = sim.add_node(NodeConfig::default(), move |_| {
            let shared = shared.clone();
            shard_mains(1, move |rt| node(rt, plan, shared.clone()))
        });
        sim.start(node);
        sim.run_for(Duration::from_millis(100));
        sim.configure_disk(node, |disk| disk.capacity = 1);
        sim.run_for(Duration::from_secs(30));
        let refused = world.lock().unwrap().errors.len();
        sim.configure_disk(node, |disk| disk.capacity = 1 << 40);
        // Refused writes may or may not have happened: the next process lifetime decides.
        sim.kill(node);
        world.lock().unwrap().errors.clear();
        sim.start(node);
        let before = world.lock().unwrap().verified;
        let watched = world.clone();
        let ended = sim.run_until(|| {
            let world: &World = &watched.lock().unwrap();
            world.verified > before + 2 || !world.failures.is_empty()
        });
        let world = world.lock().unwrap();
        assert!(ended.is_ok() && world.failures.is_empty(), "seed {seed}: {:#?}", world.failures);
        assert!(world.errors.is_empty(), "seed {seed}: with room again writes succeed: {:?}", world.errors);
        assert!(refused > 0, "seed {seed}: a full disk is noticed");
    }
}

/// A byte of the log changes that was durable and that later chunks build on: the start is refused, and says where.
#[test]
fn damage_in_the_middle_of_the_log_is_refused() {
    let sim = Simulation::new(3, Config::default());
    let world: SharedWorld = Arc::default();
    let shared = world.clone();
    let plan = plan(SyncMode::Batch);
    let node = sim.add_node(NodeConfig::default(), move |_| {
        let shared = shared.clone();
        shard_mains(1, move |rt| node(rt, plan, shared.clone()))
    });
    sim.start(node);
    sim.run_for(Duration::from_millis(60));
    sim.kill(node);
    assert!(sim.corrupt_file(node, "/log/commitlog-0-2.log", 8240, 1), "{:?}", sim.files(node));
    sim.start(node);
    sim.run_for(Duration::from_millis(60));
    let world = world.lock().unwrap();
    let [failure] = world.failures.as_slice() else { panic!("one failure: {:?}", world.failures) };
    for part in ["commitlog-0-2.log is corrupt at offset 8", "commitlog_ignore_errors"] {
        assert!(failure.contains(part), "{failure}");
    }
}
