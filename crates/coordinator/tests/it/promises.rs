//! Random writes and reads at QUORUM under partitions and crashes: what was acknowledged is read ever after.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use coordinator::{Consistency, Coordinator};
use rt::Rt;
use rt_sim::{Config, Sim};

use crate::world::{SECOND, World, begin, join, partition, row, seconds, table, texts, write};

const KEYS: i32 = 4;
const NODES: usize = 3;

/// For each key the greatest timestamp that was acknowledged, or seen by a read: no later read may see less.
#[derive(Default)]
struct Promises {
    known: BTreeMap<i32, i64>,
    next: i64,
    writes: u64,
    reads: u64,
    refused: u64,
    broken: Vec<String>,
}

async fn client(rt: Rt, coordinator: Coordinator, promises: Rc<RefCell<Promises>>, now: u32) {
    let table = table("ks", "t");
    for _ in 0..12 {
        let k = rt.random_u64() as i32 & (KEYS - 1);
        if rt.random_u64() % 2 == 0 {
            let timestamp = {
                let mut promises = promises.borrow_mut();
                promises.next += 1;
                promises.next
            };
            let update = row(&table, k, 0, &timestamp.to_string(), timestamp);
            let written = write(&rt, &coordinator, update, Consistency::Quorum).await;
            let mut promises = promises.borrow_mut();
            match written {
                Ok(()) => {
                    promises.writes += 1;
                    let known = promises.known.entry(k).or_default();
                    *known = timestamp.max(*known);
                }
                Err(_) => promises.refused += 1,
            }
        } else {
            let known = promises.borrow().known.get(&k).copied().unwrap_or(0);
            let deadline = rt.now() + 2 * SECOND;
            let read = coordinator.read(&partition(&table, k, now), Consistency::Quorum, deadline).await;
            let mut promises = promises.borrow_mut();
            let Ok(page) = read else {
                promises.refused += 1;
                continue;
            };
            promises.reads += 1;
            let seen = texts(&page).first().map_or(0, |(_, text)| text.parse().expect("a number"));
            if seen < known {
                promises.broken.push(format!("key {k}: {known} was promised, {seen} is read"));
            }
            let known = promises.known.entry(k).or_default();
            *known = seen.max(*known);
        }
        rt.sleep(SECOND / 50).await;
    }
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

fn run(seed: u64) -> (u64, u64, u64) {
    let world = World::new(seed, &[1, 2, 1], Config::default());
    let promises = Rc::new(RefCell::new(Promises::default()));
    let now = seconds(&world.sim, 0);
    let clients: Vec<_> = (0..NODES)
        .flat_map(|node| [node, node])
        .map(|node| {
            let promises = promises.clone();
            begin(&world.sim, node, 0, move |rt, coordinator| client(rt, coordinator, promises, now))
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
    // Quiet again: everything that was promised is there, and a read at ALL leaves every replica with it.
    let table = table("ks", "t");
    let known = promises.borrow().known.clone();
    for (k, promised) in &known {
        for (node, consistency) in [(0, Consistency::Quorum), (1, Consistency::All)] {
            let page = world.read(node, partition(&table, *k, now), consistency).expect("all is well");
            let seen: i64 = texts(&page).first().map_or(0, |(_, text)| text.parse().expect("a number"));
            assert!(
                seen >= *promised,
                "seed {seed}: key {k}: {promised} was promised, {seen} is read at the end"
            );
        }
        let kept: Vec<_> = (0..NODES).map(|node| world.kept(node, partition(&table, *k, now))).collect();
        assert!(
            kept.iter().all(|other| *other == kept[0]),
            "seed {seed}: key {k}: replicas differ: {kept:?}"
        );
    }
    let promises = promises.borrow();
    assert!(promises.broken.is_empty(), "seed {seed}: {:?}", promises.broken);
    (promises.writes, promises.reads, promises.refused)
}

#[test]
fn what_a_quorum_acknowledged_every_later_quorum_sees() {
    let (mut writes, mut reads, mut refused) = (0, 0, 0);
    for seed in 0..40 {
        let (w, r, f) = run(seed);
        (writes, reads, refused) = (writes + w, reads + r, refused + f);
    }
    assert!(writes > 500 && reads > 500, "{writes} writes, {reads} reads");
    assert!(refused > 50, "faults have an effect: {refused}");
}
