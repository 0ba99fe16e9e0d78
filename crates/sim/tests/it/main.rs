//! Tests of the simulator itself: it repeats itself, finds nothing in a few seeds, and finds a planted bug.

mod changes;

use sim::{Canary, Options, run};

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
fn a_planted_bug_is_found() {
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
