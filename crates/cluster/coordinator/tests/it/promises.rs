//! Random writes, deletions and reads at QUORUM under partitions: acknowledged writes are read ever after, rows that one read has
//! shown the next one shows, and hints bring every replica its missed writes. Injected bugs are found.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use coordinator::{Canaries, Consistency, Coordinator};
use hints::HintsConfig;
use rt::Rt;
use rt_sim::{Config, Sim};

use crate::world::{SECOND, World, begin, deleted, join, partition, row, seconds, table, texts, write};

const KEYS: i32 = 4;
const NODES: usize = 3;
/// Seeds within which an injected bug is found.
const CANARY_SEEDS: u64 = 10;

/// The state of a key. A value's timestamp is its text.
#[derive(Clone, Default)]
struct Known {
    /// No later read may show a smaller timestamp: twice that of a value, one more when it was deleted.
    least: i64,
    /// Timestamps of the deletions that were sent.
    deletions: Vec<i64>,
}

impl Known {
    /// A value with this timestamp, or its deletion, is there.
    fn raise(&mut self, timestamp: i64, deletion: bool) {
        self.least = self.least.max(2 * timestamp + i64::from(deletion));
    }

    /// Whether a read may show a value with this timestamp, or none; then no later one may show less.
    fn see(&mut self, seen: Option<i64>) -> bool {
        match seen {
            Some(timestamp) if 2 * timestamp < self.least => return false,
            Some(timestamp) => self.raise(timestamp, false),
            None if self.least == 0 => {}
            None if self.least % 2 == 1 => {}
            None if self.deletions.iter().all(|deletion| 2 * deletion < self.least) => return false,
            // Some deletion above the value is there; which one is not known.
            None => self.least += 1,
        }
        true
    }
}

#[derive(Default)]
struct Promises {
    known: BTreeMap<i32, Known>,
    next: i64,
    writes: u64,
    reads: u64,
    refused: u64,
    broken: Vec<String>,
}

impl Promises {
    fn write(&mut self, k: i32, deletion: bool) -> i64 {
        self.next += 1;
        if deletion {
            self.known.entry(k).or_default().deletions.push(self.next);
        }
        self.next
    }

    fn see(&mut self, k: i32, before: &Known, seen: Option<i64>) {
        self.reads += 1;
        // Writes acknowledged while the read was under way need not be in it.
        let mut known = before.clone();
        known.deletions.clone_from(&self.known.entry(k).or_default().deletions);
        if !known.see(seen) {
            self.broken.push(format!("key {k}: {} was promised, {seen:?} is read", before.least));
        }
        let now = self.known.entry(k).or_default();
        now.least = now.least.max(known.least);
    }
}

async fn client(rt: Rt, coordinator: Coordinator, promises: Rc<RefCell<Promises>>, now: u32, reads: u64) {
    let table = table("ks", "t");
    for _ in 0..12 {
        let k = rt.random_u64() as i32 & (KEYS - 1);
        if rt.random_below(100) >= reads {
            let deletion = rt.random_below(3) == 0;
            let timestamp = promises.borrow_mut().write(k, deletion);
            let update = match deletion {
                true => deleted(&table, k, 0, timestamp, now),
                false => row(&table, k, 0, &timestamp.to_string(), timestamp),
            };
            let written = write(&rt, &coordinator, update, Consistency::Quorum).await;
            let mut promises = promises.borrow_mut();
            match written {
                Ok(()) => {
                    promises.writes += 1;
                    promises.known.entry(k).or_default().raise(timestamp, deletion);
                }
                Err(_) => promises.refused += 1,
            }
        } else {
            let before = promises.borrow().known.get(&k).cloned().unwrap_or_default();
            let deadline = rt.now() + 2 * SECOND;
            let read = coordinator.read(&partition(&table, k, now), Consistency::Quorum, deadline).await;
            let mut promises = promises.borrow_mut();
            match read {
                Ok(page) => promises.see(k, &before, shown(&texts(&page))),
                Err(_) => promises.refused += 1,
            }
        }
        rt.sleep(SECOND / 50).await;
    }
}

fn shown(texts: &[(i32, String)]) -> Option<i64> {
    texts.first().map(|(_, text)| text.parse().expect("a number"))
}

fn disturb(sim: &Sim, turn: u64) {
    let node = |n: u64| sim.node(n as usize % NODES);
    match turn % 6 {
        0 => sim.isolate(node(turn / 6)),
        1 => sim.partition(node(turn / 6), node(turn / 6 + 1)),
        2 => sim.partition_one_way(node(turn / 6), node(turn / 6 + 1)),
        3 => sim.reset_connections(node(turn / 6), node(turn / 6 + 2)),
        _ => sim.heal_all(),
    }
}

/// Clients work while the network parts; `reads` of a hundred operations are reads.
fn work(world: &World, seed: u64, reads: u64) -> Promises {
    let promises = Rc::new(RefCell::new(Promises::default()));
    let now = seconds(&world.sim, 0);
    let clients: Vec<_> = (0..NODES)
        .flat_map(|node| [node, node])
        .map(|node| {
            let promises = promises.clone();
            begin(&world.sim, node, 0, move |rt, coordinator| client(rt, coordinator, promises, now, reads))
        })
        .collect();
    for turn in 0..8 {
        world.sim.after(SECOND / 10 * turn, move |sim| disturb(sim, seed.wrapping_add(u64::from(turn))));
    }
    world.sim.after(SECOND * 5, |sim| sim.heal_all());
    for client in clients {
        join(&world.sim, client);
    }
    world.sim.heal_all();
    world.sim.run_for(20 * SECOND);
    std::mem::take(&mut *promises.borrow_mut())
}

/// Reads and writes; how many, or the violation.
fn run(seed: u64, canaries: Canaries) -> Result<(u64, u64, u64), String> {
    let world = World::new(seed, &[1, 2, 1], Config::default());
    world.inject(canaries);
    let mut promises = work(&world, seed, 50);
    let (table, now) = (table("ks", "t"), seconds(&world.sim, 0));
    // Quiet again: everything that was promised is there, and a read at ALL leaves every replica with it.
    for k in 0..KEYS {
        for (node, consistency) in [(0, Consistency::Quorum), (1, Consistency::All)] {
            let page = world.read(node, partition(&table, k, now), consistency);
            let page = page.map_err(|error| format!("all is well, and yet: {error}"))?;
            let before = promises.known.get(&k).cloned().unwrap_or_default();
            promises.see(k, &before, shown(&texts(&page)));
        }
        let kept: Vec<_> = (0..NODES).map(|node| world.kept(node, partition(&table, k, now))).collect();
        if kept.iter().any(|other| *other != kept[0]) {
            return Err(format!("key {k}: replicas differ: {kept:?}"));
        }
    }
    match promises.broken.first() {
        Some(broken) => Err(broken.clone()),
        None => Ok((promises.writes, promises.reads, promises.refused)),
    }
}

/// Only writes, and hints that are delivered: afterwards each replica by itself has all that was promised.
fn run_hints(seed: u64, canaries: Canaries) -> Result<u64, String> {
    let world = World::with_handoff(seed, &[1, 2, 1], Config::default(), HintsConfig::default());
    world.inject(canaries);
    let promises = work(&world, seed, 0);
    world.sim.run_for(120 * SECOND);
    let (table, now) = (table("ks", "t"), seconds(&world.sim, 0));
    for (k, known) in &promises.known {
        for node in 0..NODES {
            let kept = shown(&world.kept(node, partition(&table, *k, now)));
            if !known.clone().see(kept) {
                return Err(format!("key {k}: {} was promised, node {node} has {kept:?}", known.least));
            }
        }
    }
    Ok(promises.writes)
}

#[test]
fn every_later_quorum_sees_writes_that_a_quorum_acknowledged() {
    let (mut writes, mut reads, mut refused) = (0, 0, 0);
    for seed in 0..40 {
        let done = run(seed, Canaries::default());
        let (w, r, f) = done.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        (writes, reads, refused) = (writes + w, reads + r, refused + f);
    }
    assert!(writes > 500 && reads > 500, "{writes} writes, {reads} reads");
    assert!(refused > 50, "faults have an effect: {refused}");
}

#[test]
fn hints_bring_every_replica_the_acknowledged_writes() {
    let mut writes = 0;
    for seed in 0..20 {
        let done = run_hints(seed, Canaries::default());
        writes += done.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
    assert!(writes > 500, "{writes} writes");
}

/// Finds an injected bug; says after how many seeds.
fn caught(name: &str, run: impl Fn(u64) -> Option<String>) {
    let found = (0..CANARY_SEEDS).find_map(|seed| run(seed).map(|broken| (seed, broken)));
    let (seed, broken) = found.unwrap_or_else(|| panic!("{name} is not found by {CANARY_SEEDS} seeds"));
    println!("{name}: seed {seed}: {broken}");
}

#[test]
fn a_quorum_that_is_short_is_caught() {
    let canaries = Canaries { short_quorum: true, ..Canaries::default() };
    caught("a short quorum", |seed| run(seed, canaries).err());
}

#[test]
fn a_dropped_hint_is_caught() {
    let canaries = Canaries { dropped_hints: true, ..Canaries::default() };
    caught("a dropped hint", |seed| run_hints(seed, canaries).err());
}
