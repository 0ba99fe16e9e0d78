//! Groups of three to five nodes that all change the schema at once, under partitions, crashes and power loss. At the end all
//! agree, what was acknowledged is there, and nothing was applied twice.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use cluster::group::{ChangeSchemaError, Group};
use rt::Rt;

use crate::group_world::*;

#[derive(Default)]
struct History {
    made: BTreeSet<String>,
    unknown: BTreeSet<String>,
    tried: u64,
}

/// Creates keyspaces for ever; each name is tried until it is made, or nobody knows.
async fn work(rt: Rt, group: Group, prefix: String, history: Rc<RefCell<History>>) {
    for number in 0.. {
        let name = format!("{prefix}_{number}");
        history.borrow_mut().tried += 1;
        // Until the answer is there, it is not known.
        history.borrow_mut().unknown.insert(name.clone());
        loop {
            let base = group.applied().state.schema.version();
            let deadline = rt.now() + 3 * SECOND;
            match group.change_schema(base, keyspace(&name), deadline, |_| false).await {
                Ok(_) => {
                    history.borrow_mut().unknown.remove(&name);
                    history.borrow_mut().made.insert(name);
                    break;
                }
                Err(ChangeSchemaError::Moved) => rt.sleep(Duration::from_millis(rt.random_below(50))).await,
                Err(_) => break,
            }
        }
        rt.sleep(Duration::from_millis(rt.random_below(200))).await;
    }
}

fn run(seed: u64) -> u64 {
    let count = 3 + (seed % 3) as usize;
    let cluster = Cluster::new(5_000 + seed, count);
    let mut rng = cluster.sim.rng(7);
    let history: Rc<RefCell<History>> = Rc::default();
    let begin = |node: usize, life: usize| {
        let history = Rc::clone(&history);
        cluster.begin(node, move |rt, group| work(rt, group, format!("ks{node}_{life}"), history))
    };
    let mut workers: Vec<_> = (0..count).map(|node| Some(begin(node, 0))).collect();
    for life in 1..15 {
        cluster.sim.run_for(Duration::from_millis(rng.below(3_000)));
        let node = rng.below(count as u64) as usize;
        match rng.below(6) {
            0 | 1 => {
                workers[node] = None;
                cluster.crash(node);
            }
            2 => cluster.sim.isolate(cluster.nodes[node]),
            3 => {
                let other = rng.below(count as u64) as usize;
                if other != node {
                    cluster.sim.partition_one_way(cluster.nodes[node], cluster.nodes[other]);
                }
            }
            4 => cluster.sim.heal_all(),
            _ => {}
        }
        for node in 0..count {
            if !cluster.sim.is_running(cluster.nodes[node]) && rng.below(2) == 0 {
                cluster.sim.start(cluster.nodes[node]);
            }
            if workers[node].is_none() && is_in(node) {
                workers[node] = Some(begin(node, life));
            }
        }
    }
    cluster.sim.heal_all();
    workers.clear();
    for node in 0..count {
        if !cluster.sim.is_running(cluster.nodes[node]) {
            cluster.sim.start(cluster.nodes[node]);
        }
    }
    cluster.until("everybody is back", || (0..count).all(is_in));
    cluster.sim.run_for(10 * SECOND);
    let state = cluster.barrier(0).state;
    for node in 1..count {
        let other = cluster.barrier(node).state;
        assert_eq!(other.schema.version(), state.schema.version(), "seed {seed}: node {node} disagrees");
        assert_eq!(other.encode(), state.encode(), "seed {seed}: node {node} disagrees");
    }
    let history = history.borrow();
    let names: BTreeSet<String> = (state.schema.keyspaces().map(|keyspace| keyspace.name.clone()))
        .filter(|name| name.starts_with("ks"))
        .collect();
    for name in &history.made {
        assert!(names.contains(name), "seed {seed}: {name} was acknowledged and is gone");
    }
    for name in &names {
        assert!(
            history.made.contains(name) || history.unknown.contains(name),
            "seed {seed}: nobody made {name}"
        );
    }
    // Every change made one keyspace; one that was applied twice would count twice.
    assert_eq!(state.schema_number, 1 + names.len() as u64, "seed {seed}");
    history.made.len() as u64
}

#[test]
fn groups_agree_under_faults() {
    let made: u64 = (0..12).map(run).sum();
    assert!(made > 300, "the group makes progress under faults: {made}");
}
