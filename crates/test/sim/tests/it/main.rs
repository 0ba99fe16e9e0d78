//! Tests of the simulator itself: it repeats itself, finds nothing in a few seeds, and finds an injected bug.

mod changes;

use std::collections::BTreeSet;

use sim::{Canary, ClusterShape, Options, run};

#[test]
fn a_few_seeds_are_right_and_repeat_themselves() {
    for seed in 1000..1004 {
        let first = run(seed, &Options::default());
        assert_eq!(first.failure, None, "seed {seed}, {}", first.plan);
        assert!(first.stats.writes > 0 && first.stats.reads > 0, "{:?}", first.stats);
        let second = run(seed, &Options::default());
        assert_eq!(
            (first.trace_hash, first.trace_events, first.stats),
            (second.trace_hash, second.trace_events, second.stats),
            "seed {seed}"
        );
    }
}

#[test]
fn a_injected_bug_is_found() {
    let canary = Canary::find("short-replay");
    assert!(canary.is_some());
    let options = Options { canary, ..Options::default() };
    assert!((0..20).any(|seed| run(seed, &options).failure.is_some()));
}

#[test]
fn kept_seeds_can_be_read() {
    for cluster in [false, true] {
        assert!(sim::kept_seeds(cluster).all(|(_, about)| !about.is_empty()));
    }
}

/// Seeds of clusters that every run of the tests takes.
const CLUSTER_SEEDS: u64 = 300;

#[test]
fn clusters_of_all_sizes_are_drawn() {
    let shapes: Vec<ClusterShape> = (0..CLUSTER_SEEDS).map(ClusterShape::of).collect();
    let nodes: BTreeSet<usize> = shapes.iter().map(|shape| shape.nodes).collect();
    let datacenters: BTreeSet<usize> = shapes.iter().map(|shape| shape.datacenters).collect();
    let shards: BTreeSet<u16> = shapes.iter().flat_map(|shape| shape.shards.clone()).collect();
    // One seed in fifty has a large cluster.
    let usual: BTreeSet<usize> = nodes.iter().copied().filter(|nodes| *nodes < 10).collect();
    // Two where a node alone grows.
    assert_eq!(usual, (2..=9).collect());
    assert!(nodes.len() > usual.len(), "no large cluster among {CLUSTER_SEEDS} seeds");
    let large = (0..20 * CLUSTER_SEEDS).map(|seed| ClusterShape::of(seed).nodes).filter(|nodes| *nodes >= 10);
    assert_eq!(large.collect::<BTreeSet<usize>>(), [12, 20, 30].into());
    assert_eq!(datacenters, (1..=3).collect());
    assert_eq!(shards, (1..=4).collect());
}

#[test]
fn a_seed_draws_the_same_machines_that_it_runs_on() {
    let options = Options { cluster: true, ..Options::default() };
    assert_eq!(run(3, &options).shape, Some(ClusterShape::of(3)));
}
