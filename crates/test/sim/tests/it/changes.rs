//! Topology changes under load, with a crash of a participant in the middle: no acknowledged write is lost.

use sim::{ChangeStats, RingChange, run_change};

/// Runs seeds of a change, with and without a crash.
fn check(change: RingChange, seeds: std::ops::Range<u64>) {
    let mut sum = ChangeStats::default();
    for seed in seeds {
        for crash in [false, true] {
            let stats = run_change(seed, change, crash)
                .unwrap_or_else(|broken| panic!("seed {seed} of {change:?}, crash {crash}: {broken}"));
            sum.acknowledged += stats.acknowledged;
            sum.reads += stats.reads;
        }
    }
    assert!(sum.acknowledged > 200 && sum.reads > 200, "{sum:?}");
}

#[test]
fn a_node_joins() {
    check(RingChange::Join, 0..4);
}

#[test]
fn a_node_leaves() {
    check(RingChange::Decommission, 0..4);
}

#[test]
fn a_dead_node_is_removed() {
    check(RingChange::Remove, 0..4);
}

#[test]
fn a_dead_node_is_replaced() {
    check(RingChange::Replace, 0..4);
}

#[test]
fn a_dead_node_is_replaced_before_others_join() {
    check(RingChange::ReplaceAmongJoins, 0..3);
}

#[test]
fn a_node_is_rebuilt() {
    check(RingChange::Rebuild, 0..3);
}
