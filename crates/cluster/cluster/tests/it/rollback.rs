//! Disks that are restored from older images: a node that has lost acknowledged data does not participate, and no other node is stopped.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use rt::DiskOp;
use rt_sim::{DiskFault, DiskImage};

use crate::group_world::*;

/// An image that is older than this is noticed.
const WINDOW: Duration = Duration::from_secs(20);
const VICTIM: usize = 2;

/// Three nodes, and those of them that may start with a rolled back disk.
fn cluster(seed: u64) -> (Cluster, Rc<RefCell<BTreeSet<usize>>>) {
    let allowed = Rc::new(RefCell::new(BTreeSet::new()));
    let mut cluster = Cluster::empty(seed);
    for node in 0..3 {
        let allowed = allowed.clone();
        let seeds = vec![address(0), address(1)];
        cluster.add_with(move |_| Setup {
            guarded: true,
            allow_rolled_back: allowed.borrow().contains(&node),
            seeds: seeds.clone(),
            ..Setup::new(node)
        });
    }
    cluster.all_in(3);
    cluster.sim.run_for(5 * SECOND);
    (cluster, allowed)
}

fn image(cluster: &Cluster, node: usize) -> DiskImage {
    cluster.sim.handle().disk_image(cluster.nodes[node])
}

fn restore(cluster: &Cluster, node: usize, image: &DiskImage) {
    cluster.sim.handle().restore_disk(cluster.nodes[node], image);
}

fn start(cluster: &Cluster, node: usize) {
    cluster.sim.start(cluster.nodes[node]);
}

/// The node ends, and says why.
fn refused(cluster: &Cluster, node: usize) {
    cluster.until("it ends", || !cluster.sim.is_running(cluster.nodes[node]));
    let said = cluster.sim.exits(cluster.nodes[node]).join("");
    assert!(said.contains("disk was rolled back") && said.contains("--replace_address_first_boot"), "{said}");
    assert!(!is_in(node));
}

/// The node starts, and is there some time later.
fn accepted(cluster: &Cluster, node: usize) {
    cluster.until("it is in", || is_in(node));
    cluster.sim.run_for(WINDOW);
    assert!(is_in(node) && cluster.sim.is_running(cluster.nodes[node]));
}

#[test]
fn a_disk_that_went_back_within_a_process_lifetime_is_refused() {
    let (cluster, _) = cluster(70);
    let old = image(&cluster, VICTIM);
    cluster.sim.run_for(WINDOW);
    cluster.crash(VICTIM);
    restore(&cluster, VICTIM, &old);
    for _ in 0..2 {
        start(&cluster, VICTIM);
        refused(&cluster, VICTIM);
    }
    cluster.barrier(0);
}

#[test]
fn a_disk_that_went_back_across_a_start_is_refused_at_once() {
    let (cluster, _) = cluster(71);
    let old = image(&cluster, VICTIM);
    cluster.crash(VICTIM);
    start(&cluster, VICTIM);
    accepted(&cluster, VICTIM);
    let young = image(&cluster, VICTIM);
    cluster.crash(VICTIM);
    restore(&cluster, VICTIM, &old);
    start(&cluster, VICTIM);
    refused(&cluster, VICTIM);
    // Nothing but the age of the image is wrong.
    restore(&cluster, VICTIM, &young);
    start(&cluster, VICTIM);
    accepted(&cluster, VICTIM);
}

#[test]
fn nodes_remember_others_across_their_own_starts() {
    let (cluster, _) = cluster(72);
    let old = image(&cluster, VICTIM);
    cluster.sim.run_for(WINDOW + WINDOW);
    (0..3).for_each(|node| cluster.crash(node));
    start(&cluster, 0);
    start(&cluster, 1);
    cluster.sim.run_for(10 * SECOND);
    restore(&cluster, VICTIM, &old);
    start(&cluster, VICTIM);
    refused(&cluster, VICTIM);
}

/// A node that starts where no other node knows of the rollback continues, without a vote, and stops as soon as one comes that does; a start in
/// between hides nothing.
#[test]
fn a_rolled_back_disk_is_found_by_a_witness_that_answers_later() {
    for starts in [1, 3] {
        let (cluster, _) = cluster(73);
        let old = image(&cluster, VICTIM);
        cluster.sim.run_for(WINDOW + WINDOW);
        (0..3).for_each(|node| cluster.crash(node));
        restore(&cluster, VICTIM, &old);
        for start_number in 0..starts {
            if start_number > 0 {
                cluster.crash(VICTIM);
            }
            start(&cluster, VICTIM);
            accepted(&cluster, VICTIM);
        }
        start(&cluster, 0);
        refused(&cluster, VICTIM);
    }
}

#[test]
fn a_cluster_that_is_restored_as_a_whole_starts() {
    let (cluster, allowed) = cluster(74);
    let old: Vec<DiskImage> = (0..3).map(|node| image(&cluster, node)).collect();
    cluster.sim.run_for(WINDOW + WINDOW);
    let young: Vec<DiskImage> = (0..3).map(|node| image(&cluster, node)).collect();
    cluster.sim.run_for(WINDOW);
    (0..3).for_each(|node| cluster.crash(node));
    (0..3).for_each(|node| restore(&cluster, node, &old[node]));
    (0..3).for_each(|node| start(&cluster, node));
    (0..3).for_each(|node| accepted(&cluster, node));
    // Images of different ages: an operator has to say that this is meant.
    (0..3).for_each(|node| cluster.crash(node));
    restore(&cluster, VICTIM, &old[VICTIM]);
    (0..2).for_each(|node| restore(&cluster, node, &young[node]));
    (0..3).for_each(|node| start(&cluster, node));
    refused(&cluster, VICTIM);
    allowed.borrow_mut().insert(VICTIM);
    start(&cluster, VICTIM);
    accepted(&cluster, VICTIM);
    // Once is enough.
    allowed.borrow_mut().clear();
    cluster.crash(VICTIM);
    start(&cluster, VICTIM);
    accepted(&cluster, VICTIM);
    cluster.barrier(VICTIM);
}

/// A node whose disk refuses records announces that to the others, and they do not convict it.
#[test]
fn a_disk_that_takes_no_records_is_not_one_that_went_back() {
    for errno in [5, 28] {
        let (cluster, _) = cluster(75);
        let path_contains = "progress.json".to_owned();
        let fault = DiskFault { op: DiskOp::Create, path_contains, errno, skip: 0, times: u32::MAX };
        cluster.sim.handle().inject_disk_fault(cluster.nodes[VICTIM], fault);
        for _ in 0..2 {
            cluster.sim.run_for(3 * WINDOW);
            assert!(is_in(VICTIM));
            cluster.crash(VICTIM);
            start(&cluster, VICTIM);
            accepted(&cluster, VICTIM);
        }
        // And the disk can be written again: from then on the others remember.
        cluster.sim.handle().clear_disk_faults(cluster.nodes[VICTIM]);
        cluster.sim.run_for(WINDOW);
        let old = image(&cluster, VICTIM);
        cluster.sim.run_for(WINDOW);
        cluster.crash(VICTIM);
        restore(&cluster, VICTIM, &old);
        start(&cluster, VICTIM);
        refused(&cluster, VICTIM);
    }
}

/// Starts one after the other, with clocks that jump: none is ever refused.
#[test]
fn healthy_nodes_start_however_often_and_whatever_their_clocks_show() {
    for seed in 76..80 {
        let (cluster, _) = cluster(seed);
        for round in 0..12 {
            let node = round % 3;
            cluster.sim.run_for(Duration::from_millis(seed * 97 * round as u64 % 25_000));
            cluster.crash(node);
            let hours = [-5, 3, 0, -1][round % 4] * 3_600_000_000_i64;
            cluster.sim.handle().jump_clock(cluster.nodes[node], hours);
            start(&cluster, node);
            cluster.until("it is in", || is_in(node));
        }
        cluster.sim.run_for(WINDOW);
        assert!((0..3).all(is_in));
    }
}
