//! The choice of the nodes that store a batch.

use super::*;
use crate::{Phase, ViewNode};
use topology::{HostId, Location};

/// A view by racks, one letter a node; `-` for one that is down, `+` for one that joins, `x` in front for another datacenter. The first is this node.
fn view(nodes: &[&str]) -> ClusterView {
    let node = |(at, text): (usize, &&str)| {
        let datacenter = if text.starts_with('x') { "dc2" } else { "dc1" };
        ViewNode {
            host: HostId([at as u8 + 1; 16]),
            native: ([10, 0, 1, at as u8], 9042).into(),
            internode: ([10, 0, 0, at as u8], 7000).into(),
            location: Location::new(datacenter, text.trim_matches(['x', '-', '+'])),
            shards: 1,
            tokens: vec![at as i64],
            alive: !text.ends_with('-'),
            ready: true,
            phase: if text.ends_with('+') { Phase::Joining } else { Phase::Normal },
            release_version: String::new(),
            schema_version: None,
        }
    };
    ClusterView::new(HostId([1; 16]), nodes.iter().enumerate().map(node).collect()).unwrap()
}

/// Every choice that turns lead to, as places in the list.
fn choices(nodes: &[&str]) -> Vec<Vec<u16>> {
    let view = view(nodes);
    let choose = |turn| {
        let mut chosen: Vec<u16> = choose_holders(&view, turn).iter().map(|node| node.0).collect();
        chosen.sort_unstable();
        chosen
    };
    let mut all: Vec<Vec<u16>> = (0..60).map(choose).collect();
    all.sort();
    all.dedup();
    all
}

#[test]
fn holders_are_alive_near_and_apart() {
    let none: [&[u16]; 1] = [&[]];
    assert_eq!(choices(&["a"]), none);
    assert_eq!(choices(&["a", "a-", "xb", "b-"]), none, "a down or remote node stores nothing");
    assert_eq!(choices(&["a", "a+"]), none, "a joining node may not serve yet");
    assert_eq!(choices(&["a", "a"]), [[1]]);
    assert_eq!(choices(&["a", "a", "a"]), [[1, 2]]);
    assert_eq!(choices(&["a", "a", "b"]), [[1, 2]], "the other rack, and what there is");
    assert_eq!(choices(&["a", "a", "b", "b"]), [[2, 3]], "not the own rack when there are others");
    assert_eq!(choices(&["a", "b", "c"]), [[1, 2]]);
    // One of each of two other racks, whichever.
    let apart = choices(&["a", "b", "b", "c", "c", "a"]);
    assert!(apart.len() > 1, "the choice varies: {apart:?}");
    assert!(apart.iter().all(|chosen| chosen[0] <= 2 && (3..5).contains(&chosen[1])), "{apart:?}");
    // Every node has its turn.
    let all: std::collections::BTreeSet<u16> =
        choices(&["a", "a", "a", "a", "a"]).concat().into_iter().collect();
    assert_eq!(all, (1..5).collect());
    let all: std::collections::BTreeSet<u16> = choices(&["a", "b", "c", "d"]).concat().into_iter().collect();
    assert_eq!(all, (1..4).collect());
}
