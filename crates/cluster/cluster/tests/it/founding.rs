//! Founding a cluster: a seed that lost its disk must not found a second one beside the first.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::group_world::*;

fn id(node: usize) -> [u8; 16] {
    group(node).applied().state.cluster_id
}

/// The error with which a node ended.
fn told(cluster: &Cluster, node: usize) -> String {
    cluster.until("it gives up", || !cluster.sim.is_running(cluster.nodes[node]));
    cluster.sim.exits(cluster.nodes[node]).join("")
}

fn seeds(of: &[usize]) -> Vec<std::net::SocketAddr> {
    of.iter().map(|node| address(*node)).collect()
}

#[test]
fn a_first_seed_whose_disk_was_wiped_founds_no_second_cluster() {
    for answers in [false, true] {
        let mut cluster = Cluster::empty(60);
        let identity = Rc::new(Cell::new(0));
        let now = identity.clone();
        cluster.add_with(move |_| Setup { identity: now.get(), seeds: seeds(&[0, 1]), ..Setup::new(0) });
        for node in 1..3 {
            cluster.add(Setup { seeds: seeds(&[0, 1]), ..Setup::new(node) });
        }
        cluster.all_in(3);
        let first = id(1);
        assert!(first != [0; 16] && first == id(0) && first == id(2));
        // Its disk is gone, and there is no majority that could answer; or the other seed is down, too.
        cluster.crash(0);
        cluster.crash(2);
        if !answers {
            cluster.crash(1);
        }
        cluster.sim.wipe_disk(cluster.nodes[0]);
        identity.set(8);
        cluster.sim.start(cluster.nodes[0]);
        cluster.sim.run_for(Duration::from_secs(40));
        assert!(!is_in(0), "nobody said that there is no cluster");
        let said = told(&cluster, 0);
        assert!(said.contains("not known of every seed") && said.contains("new_cluster"), "{said}");
        // The others are back: it learns that it is still a member, under its old host id.
        for node in (1..3).filter(|node| !cluster.sim.is_running(cluster.nodes[*node])) {
            cluster.sim.start(cluster.nodes[node]);
        }
        cluster.until("they are back", || (1..3).all(is_in));
        cluster.sim.start(cluster.nodes[0]);
        let said = told(&cluster, 0);
        assert!(said.contains("is the address of host"), "{said}");
        assert_eq!(id(1), first);
    }
}

#[test]
fn seeds_that_start_together_make_one_cluster() {
    for seed in 0..8 {
        let mut cluster = Cluster::empty(70 + seed);
        // The lists name them in different orders: each of the first two stands first in its own.
        for (node, order) in [[0, 1, 2], [1, 0, 2], [0, 1, 2]].iter().enumerate() {
            cluster.add(Setup { seeds: seeds(order), ..Setup::new(node) });
            cluster.sim.run_for(Duration::from_millis(seed * 37));
        }
        let begun = cluster.sim.now();
        cluster.until("all are in", || (0..3).all(is_in));
        assert!(
            cluster.sim.now() - begun < Duration::from_secs(15),
            "that they have no cluster is said at once"
        );
        assert!(id(0) == id(1) && id(1) == id(2), "seed {seed}: one cluster");
        cluster.all_in(3);
    }
}

#[test]
fn a_cluster_is_founded_without_the_other_seeds_when_that_is_wanted() {
    let mut cluster = Cluster::empty(80);
    let asked = Rc::new(Cell::new(false));
    let now = asked.clone();
    cluster.add_with(move |_| Setup { new_cluster: now.get(), seeds: seeds(&[0, 1]), ..Setup::new(0) });
    let said = told(&cluster, 0);
    assert!(said.contains("10.0.0.2"), "it names the seed that does not answer: {said}");
    asked.set(true);
    cluster.sim.start(cluster.nodes[0]);
    cluster.until("it has founded", || is_in(0));
    // Asked for at a node to which another one answers for a cluster, it joins that one.
    cluster.add(Setup { new_cluster: true, seeds: seeds(&[1, 0]), ..Setup::new(1) });
    cluster.until("it is in", || is_in(1));
    assert_eq!(id(0), id(1));
    // And a name without an address may be that of a node that has a cluster.
    cluster.add(Setup { unresolved: vec!["elsewhere".into()], seeds: seeds(&[2]), ..Setup::new(2) });
    let said = told(&cluster, 2);
    assert!(said.contains("elsewhere: it has no address"), "{said}");
}

#[test]
fn nodes_of_two_clusters_of_one_name_do_not_take_each_other_for_members() {
    let mut cluster = Cluster::empty(81);
    let alone = Rc::new(Cell::new(false));
    let now = alone.clone();
    cluster.add(Setup::new(0));
    let of_second = move |_: &rt_sim::NodeInfo| {
        let named = if now.get() { [1] } else { [0] };
        Setup { seeds: seeds(&named), ..Setup::new(1) }
    };
    cluster.add_with(of_second);
    cluster.add(Setup::new(2));
    cluster.all_in(3);
    // With the address, the name and even the host id of a member, a cluster of its own.
    cluster.crash(1);
    cluster.sim.wipe_disk(cluster.nodes[1]);
    alone.set(true);
    cluster.sim.start(cluster.nodes[1]);
    cluster.until("it has founded", || is_in(1));
    assert_ne!(id(1), id(0));
    let change = |node: usize, name: String| {
        let changed = cluster.on(node, |rt, group| async move {
            let base = group.applied().state.schema.version();
            group.change_schema(base, keyspace(&name), rt.now() + 10 * SECOND, |_| true).await
        });
        changed.unwrap()
    };
    (0..9).for_each(|number| drop(change(1, format!("theirs{number}"))));
    let agreed = change(0, "ours".to_owned());
    assert!(group(1).applied().state.schema_number > agreed.number);
    assert_eq!(agreed.behind, [host(1)], "the version of another cluster's node does not count");
    assert!(group(1).applied().state.schema.keyspace("ours").is_none());
}
