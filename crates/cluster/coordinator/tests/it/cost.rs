//! What a change of who lives, or of the topology version, costs a shard of a large cluster: the figures of docs/design/topology.md.

use std::sync::Arc;
use std::time::{Duration, Instant};

use coordinator::{ClusterView, Phase, ViewNode};
use rt_sim::Config;
use topology::{HostId, Location};

use crate::world::*;

const NODES: u16 = 1_000;
const TOKENS: u64 = 16;
/// The best of so many runs is judged: what else the host does is not meant.
const RUNS: usize = 5;
/// Time of a core, at opt-level 1, for each node's change that a shard hears of: it hears of one in a second at most, on the average.
const COST_MAX: Duration = Duration::from_millis(10);

/// A thousand nodes in three racks; which of them live depends on `turn`.
fn nodes(turn: u16) -> Vec<ViewNode> {
    let node = |nth: u16| {
        let mut id = [7; 16];
        id[..2].copy_from_slice(&nth.to_be_bytes());
        // Anything that spreads.
        let token =
            |turn: u64| (u64::from(nth) * TOKENS + turn + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64;
        let [high, low] = nth.to_be_bytes();
        ViewNode {
            host: if nth == 0 { host(0) } else { HostId(id) },
            native: ([10, 1, high, low], 9042).into(),
            internode: ([10, 1, high, low], 7000).into(),
            location: Location::new("dc1", format!("rack{}", nth % 3)),
            shards: 1,
            tokens: (0..TOKENS).map(token).collect(),
            alive: nth != turn,
            ready: true,
            release_version: "5.0.6".to_owned(),
            schema_version: None,
            phase: Phase::Normal,
        }
    };
    (0..NODES).map(node).collect()
}

/// The least that something takes, given the number of the run.
fn least(mut run: impl FnMut(u16) -> Duration) -> Duration {
    (1..=RUNS as u16).map(|turn| run(turn)).min().expect("there are runs")
}

#[test]
fn a_view_of_a_thousand_nodes_is_made_and_taken_over_quickly() {
    let world = World::new(1, &[1], Config::default());
    let made = least(|turn| {
        let nodes = nodes(turn);
        let began = Instant::now();
        let view = ClusterView::new(host(0), nodes).expect("tokens are apart");
        let took = began.elapsed();
        assert_eq!(view.nodes().len(), usize::from(NODES));
        took
    });
    let taken_over = least(|turn| {
        let view = Arc::new(ClusterView::new(host(0), nodes(turn)).expect("tokens are apart"));
        let began = Instant::now();
        coordinator(0, 0).use_view(view);
        began.elapsed()
    });
    // Who waits for all live nodes asks of each whether it lives.
    let view = ClusterView::new(host(0), nodes(1)).expect("tokens are apart");
    let asked = least(|_| {
        let began = Instant::now();
        let alive = view.nodes().iter().filter(|node| view.is_alive_host(node.host)).count();
        assert_eq!(alive, usize::from(NODES) - 1);
        began.elapsed()
    });
    println!(
        "{NODES} nodes: a view is made in {made:?}, taken over in {taken_over:?}, asked of all hosts in {asked:?}"
    );
    drop(world);
    assert!(made + taken_over + asked <= COST_MAX, "{made:?}, {taken_over:?}, {asked:?}");
}
