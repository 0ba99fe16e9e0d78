//! Groups of three to five nodes that all change the schema at once, under partitions, crashes and power loss. At the end all
//! agree, acknowledged changes are there, and none was applied twice.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use cluster::group::{ChangeSchemaError, Group};
use cluster::state::{Command, Outcome};
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

/// Asks for a node's removal until somebody knows that it is done.
async fn remove(rt: Rt, group: Group, gone: usize) {
    loop {
        let command = Command::RemoveMember { host: host(gone) };
        if let Ok(outcome) = group.propose(command, rt.now() + 5 * SECOND).await {
            assert!(!matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
            return;
        }
    }
}

/// How many changes were acknowledged, and the trace of everything that happened.
fn run(seed: u64) -> (u64, u64) {
    let mut count = 3 + (seed % 3) as usize;
    let mut cluster = Cluster::new(5_000 + seed, count);
    let mut removal = None;
    let mut rng = cluster.sim.rng(7);
    let history: Rc<RefCell<History>> = Rc::default();
    let begin = |cluster: &Cluster, node: usize, life: usize| {
        let history = Rc::clone(&history);
        cluster.begin(node, move |rt, group| work(rt, group, format!("ks{node}_{life}"), history))
    };
    let mut workers: Vec<_> = (0..count).map(|node| Some(begin(&cluster, node, 0))).collect();
    for life in 1..15 {
        cluster.sim.run_for(Duration::from_millis(rng.below(3_000)));
        if life == 4 && seed % 2 == 0 {
            // Another one joins in the middle of it.
            cluster.add(Setup { seeds: vec![address(0), address(1)], ..Setup::new(count) });
            workers.push(None);
            count += 1;
        }
        if life == 9 && seed % 3 == 0 && is_in(0) {
            removal = Some(cluster.begin(0, |rt, group| remove(rt, group, 2)));
        }
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
                workers[node] = Some(begin(&cluster, node, life));
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
    cluster.until("all nodes that were not removed are back", || {
        let gone = |node| is_in(0) && group(0).applied().state.was_removed(host(node));
        (0..count).all(|node| is_in(node) != gone(node))
    });
    cluster.sim.run_for(10 * SECOND);
    drop(removal);
    let state = cluster.barrier(0).state;
    let present = |node: &usize| !state.was_removed(host(*node));
    let members = (0..count).filter(present).count();
    assert_eq!(state.members.len(), members, "seed {seed}");
    cluster.until("the group is in line with the members", || {
        group(0).status().is_some_and(|status| status.membership.voters.len() == votes(members))
    });
    let state = cluster.barrier(0).state;
    for node in (1..count).filter(|node| !state.was_removed(host(*node))) {
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
    (history.made.len() as u64, cluster.sim.trace_hash())
}

#[test]
fn groups_agree_under_faults() {
    let made: u64 = (0..10).map(|seed| run(seed).0).sum();
    assert!(made > 300, "the group makes progress under faults: {made}");
}

/// The algorithm draws random numbers of its own; nothing may come of them.
#[test]
fn a_seed_decides_everything() {
    assert_eq!(run(100), run(100));
}

#[test]
fn a_full_disk_is_waited_for() {
    let cluster = Cluster::new(77, 3);
    cluster.all_in(3);
    let full = (0..3).find(|node| *node != cluster.leader()).unwrap();
    let node = cluster.nodes[full];
    cluster.sim.configure_disk(node, |disk| disk.capacity = 1);
    let leader = cluster.leader();
    let change = |name: String| {
        cluster.on(leader, move |rt, group| async move {
            let base = group.applied().state.schema.version();
            group.change_schema(base, keyspace(&name), rt.now() + 10 * SECOND, |_| false).await.map(|_| ())
        })
    };
    let last = "while_full_49";
    (0..50).for_each(|number| change(format!("while_full_{number}")).unwrap());
    cluster.sim.run_for(30 * SECOND);
    assert!(
        group(full).applied().state.schema.keyspace(last).is_none(),
        "an entry that is not on disk counts nowhere"
    );
    cluster.sim.configure_disk(node, |disk| disk.capacity = 1 << 40);
    cluster.until("the node has caught up without a restart", || {
        group(full).applied().state.schema.keyspace(last).is_some()
    });
    change("afterwards".to_owned()).unwrap();
}
