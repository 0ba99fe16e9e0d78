//! Random process lifetimes of a node, each ended by a power failure, a kill or a stop: synced hints are delivered, nothing is invented, nothing
//! is left behind; and injected bugs are found.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hints::{Canaries, Hints, HintsConfig, ReplayEnd};
use rt::{Rt, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};

use crate::world::{DIRECTORY, GRACE, TABLE, hint_files, host, number_of, quick, update};

const HOSTS: u8 = 3;

/// The state of the test, across the lifetimes.
#[derive(Default)]
struct World {
    next: u64,
    /// Stored, by host and number.
    stored: BTreeSet<(u8, u64)>,
    /// The data that must survive the end that comes.
    safe: BTreeSet<(u8, u64)>,
    delivered: BTreeSet<(u8, u64)>,
    /// The last life only delivers.
    last_life: bool,
    shards_done: u16,
    failures: Vec<String>,
}

type Shared = Arc<Mutex<World>>;

#[derive(Clone, Copy)]
struct Plan {
    canaries: Canaries,
    /// A kill instead of a power failure: then written hints are safe, too.
    kill: bool,
    shards: u16,
    disk_errors: bool,
}

impl Plan {
    /// Not when the number of shards changes, nor after a write that failed and reached the file all the same: its hints
    /// are written again behind it.
    fn in_order(&self) -> bool {
        self.shards == 1 && !self.disk_errors
    }
}

fn config(plan: Plan) -> HintsConfig {
    HintsConfig {
        canaries: rt_sim::injected(plan.canaries),
        flush_period: Duration::from_millis(150),
        file_bytes_max: 9_000,
        ..quick()
    }
}

async fn store(rt: &Rt, hints: &Hints, to: u8, world: &Shared) -> Option<(u8, u64)> {
    let number = {
        let mut world = world.lock().unwrap();
        world.next += 1;
        world.next
    };
    let hint = hints::Hint {
        host: host(to),
        table: TABLE,
        update: update(number),
        grace_seconds: GRACE,
        begun_micros: rt.wall_micros(),
        now_micros: rt.wall_micros(),
        down_since_micros: None,
    };
    hints.store(hint).ok()?;
    world.lock().unwrap().stored.insert((to, number));
    Some((to, number))
}

/// Delivers; one in `fails` is refused (0 for none). The order within a shard's life is checked.
async fn replay(rt: &Rt, hints: &Hints, to: u8, fails: u64, world: &Shared, in_order: bool) -> ReplayEnd {
    let begun = RefCell::new(0);
    let outcome = hints
        .replay(host(to), |hint| {
            let number = number_of(&hint);
            if in_order && *begun.borrow() >= number {
                world.lock().unwrap().failures.push(format!("{number} comes after {}", begun.borrow()));
            }
            *begun.borrow_mut() = number;
            let refuse = fails > 0 && rt.random_below(fails) == 0;
            let pause = Duration::from_micros(rt.random_below(3000));
            let (rt, world) = (rt.clone(), world.clone());
            async move {
                rt.sleep(pause).await;
                if refuse {
                    return Err("refused");
                }
                world.lock().unwrap().delivered.insert((to, number));
                Ok(())
            }
        })
        .await;
    outcome.end
}

async fn random_life(rt: &Rt, hints: &Hints, plan: Plan, world: &Shared) {
    let mut since_sync = Vec::new();
    let in_order = plan.in_order();
    loop {
        let to = 1 + rt.random_below(u64::from(HOSTS)) as u8;
        match rt.random_below(40) {
            0..20 => {
                for _ in 0..rt.random_below(20) {
                    since_sync.extend(store(rt, hints, to, world).await);
                }
            }
            20..28 => {
                rt.sleep(Duration::from_millis(rt.random_below(30))).await;
            }
            28..31 => {
                if hints.sync().await.is_ok() {
                    world.lock().unwrap().safe.extend(since_sync.drain(..));
                }
            }
            31..33 if plan.kill && !plan.disk_errors => {
                // Far longer than writing takes.
                rt.sleep(Duration::from_millis(50)).await;
                world.lock().unwrap().safe.extend(since_sync.drain(..));
            }
            33..36 => {
                replay(rt, hints, to, 20, world, in_order).await;
            }
            36..38 => {
                let some = replay(rt, hints, to, 0, world, in_order);
                let _ = rt.timeout(Duration::from_millis(rt.random_below(20)), some).await;
            }
            _ => rt.yield_now().await,
        }
    }
}

async fn life(rt: Rt, plan: Plan, world: Shared) {
    let hints = loop {
        match Hints::open(&rt, Path::new(DIRECTORY), config(plan)).await {
            Ok(hints) => break hints,
            Err(_) => rt.sleep(Duration::from_millis(10)).await,
        }
    };
    if !world.lock().unwrap().last_life {
        return random_life(&rt, &hints, plan, &world).await;
    }
    for to in 1..=HOSTS {
        let end = replay(&rt, &hints, to, 0, &world, plan.in_order()).await;
        if !matches!(end, ReplayEnd::Complete) {
            world.lock().unwrap().failures.push(format!("the last replay ended with {end:?}"));
        }
    }
    if !hints.hosts().is_empty() {
        world.lock().unwrap().failures.push(format!("left behind: {:?}", hints.hosts()));
    }
    hints.stop().await;
    world.lock().unwrap().shards_done += 1;
}

/// Some process lifetimes; returns the violations.
fn run(seed: u64, plan: Plan) -> Vec<String> {
    let sim = Simulation::new(seed, Config::default());
    let world = Shared::default();
    let shared = world.clone();
    let node = sim.add_node(NodeConfig { shards: plan.shards, ..NodeConfig::default() }, move |info| {
        let shared = shared.clone();
        shard_mains(info.shards, move |rt| life(rt, plan, shared.clone()))
    });
    let mut rng = sim.rng(0);
    if plan.disk_errors {
        sim.configure_disk(node, |disk| {
            disk.write_error_per_million = 20_000;
            disk.read_error_per_million = 5_000;
            disk.sync_error_per_million = 50_000;
            disk.short_per_million = 50_000;
        });
    }
    sim.start(node);
    let mut shards = plan.shards;
    for _ in 0..6 {
        sim.run_for(Duration::from_micros(rng.below(600_000)));
        if plan.kill {
            sim.kill(node);
        } else {
            sim.crash(node);
        }
        if plan.shards > 1 {
            shards = 1 + rng.below(4) as u16;
            sim.set_shards(node, shards);
        }
        sim.start(node);
    }
    sim.kill(node);
    sim.configure_disk(node, |disk| {
        disk.write_error_per_million = 0;
        disk.read_error_per_million = 0;
        disk.sync_error_per_million = 0;
    });
    world.lock().unwrap().last_life = true;
    sim.start(node);
    let done = world.clone();
    let ended = sim.run_until(|| done.lock().unwrap().shards_done == shards);
    let mut world = world.lock().unwrap();
    let world = &mut *world;
    if let Err(stalled) = ended {
        world.failures.push(stalled.to_string());
    }
    let lost: Vec<_> = world.safe.difference(&world.delivered).collect();
    if !lost.is_empty() {
        world.failures.push(format!("{} of {} safe hints never arrived", lost.len(), world.safe.len()));
    }
    let invented: Vec<_> = world.delivered.difference(&world.stored).collect();
    if !invented.is_empty() {
        world.failures.push(format!("never stored: {invented:?}"));
    }
    let files = hint_files(&sim, node);
    if !files.is_empty() {
        world.failures.push(format!("files left: {files:?}"));
    }
    if world.safe.len() < 20 {
        world.failures.push(format!("only {} hints were safe", world.safe.len()));
    }
    std::mem::take(&mut world.failures)
}

const HEALTHY: Plan = Plan {
    canaries: Canaries { drop_hint: false, skip_sync: false, skip_at_resume: false, keep_files: false },
    kill: false,
    shards: 1,
    disk_errors: false,
};

fn check(seeds: std::ops::Range<u64>, plan: Plan) {
    for seed in seeds {
        let failures = run(seed, plan);
        assert!(failures.is_empty(), "seed {seed}: {failures:#?}");
    }
}

#[test]
fn synced_hints_survive_a_power_failure() {
    check(0..60, HEALTHY);
}

#[test]
fn written_hints_survive_a_kill() {
    check(0..40, Plan { kill: true, ..HEALTHY });
}

#[test]
fn files_find_their_shard_when_the_number_of_shards_changes() {
    check(0..40, Plan { shards: 3, ..HEALTHY });
}

#[test]
fn disk_errors_lose_nothing_that_was_synced() {
    check(0..40, Plan { disk_errors: true, ..HEALTHY });
    check(100..120, Plan { disk_errors: true, shards: 2, ..HEALTHY });
}

#[test]
fn injected_bugs_are_found() {
    let found =
        |canaries| (0..20).filter(|seed| !run(*seed, Plan { canaries, ..HEALTHY }).is_empty()).count();
    let none = Canaries::default();
    assert!(found(Canaries { drop_hint: true, ..none }) >= 18);
    assert!(found(Canaries { skip_sync: true, ..none }) >= 15);
    assert!(found(Canaries { skip_at_resume: true, ..none }) >= 5);
}
