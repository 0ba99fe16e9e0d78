//! Delays on purpose at points of the product: by the seed, only where they are wanted, and none by default.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use rt::{Group, ShardId, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};

const POINTS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

/// How long each point took, visited twenty times, and the folded trace.
fn delays(seed: u64, per_million: u32) -> (Vec<Duration>, u64) {
    let sim = Simulation::new(seed, Config::default());
    let node = sim
        .add_node(NodeConfig::default(), |info| shard_mains(info.shards, |_| std::future::pending::<()>()));
    sim.start(node);
    sim.set_buggify(per_million);
    let rt = sim.rt(node, ShardId(0)).expect("the machine runs");
    let taken = Rc::new(RefCell::new(Vec::new()));
    let (inner, out) = (rt.clone(), taken.clone());
    let task = rt.spawn(Group::Statement, async move {
        for point in POINTS {
            let begun = inner.now();
            for _ in 0..20 {
                inner.buggify(point).await;
            }
            out.borrow_mut().push(inner.now() - begun);
        }
    });
    sim.run_until(|| task.is_finished()).unwrap();
    (taken.take(), sim.trace_hash())
}

#[test]
fn a_seed_delays_some_points_and_always_the_same() {
    let mut chosen = 0;
    for seed in 0..20 {
        let (first, second) = (delays(seed, 300_000), delays(seed, 300_000));
        assert_eq!(first, second, "seed {seed}");
        chosen += first.0.iter().filter(|taken| **taken > Duration::from_micros(100)).count();
    }
    let all = 20 * POINTS.len();
    assert!((all / 5..all / 2).contains(&chosen), "about one point in three, not {chosen} of {all}");
}

#[test]
fn by_default_nothing_is_delayed() {
    let (taken, _) = delays(3, 0);
    assert!(taken.iter().all(|taken| taken.is_zero()), "{taken:?}");
}
