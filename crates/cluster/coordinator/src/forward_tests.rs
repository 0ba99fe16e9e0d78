//! Tests of the ways of a write, and of the messages.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use topology::{Location, Phase, ViewNode};

/// Writes of a process lifetime.
const WRITES: u64 = 100;

/// Nodes in these datacenters; the first is this one.
fn view(datacenters: &[&str]) -> ClusterView {
    let node = |(at, datacenter): (usize, &&str)| ViewNode {
        host: HostId([at as u8 + 1; 16]),
        native: ([10, 0, 0, at as u8 + 1], 9042).into(),
        internode: ([10, 0, 0, at as u8 + 1], 7000).into(),
        location: Location::new(*datacenter, "r1"),
        shards: 1,
        tokens: vec![at as i64],
        alive: true,
        ready: true,
        release_version: "5.0.6".to_owned(),
        schema_version: None,
        phase: Phase::Normal,
    };
    let nodes = datacenters.iter().enumerate().map(node).collect();
    ClusterView::new(HostId([1; 16]), nodes).expect("tokens are apart")
}

fn indexes(nodes: &[u16]) -> Vec<NodeIndex> {
    nodes.iter().copied().map(NodeIndex).collect()
}

#[test]
fn one_node_of_each_other_datacenter_forwards() {
    let view = view(&["a", "a", "b", "b", "b", "c"]);
    for turn in 0..6 {
        let (direct, routes) = routes(&view, &indexes(&[1, 2, 3, 4, 5]), turn);
        assert_eq!(direct.to_vec(), indexes(&[1, 5]), "its own, and one that is alone");
        let [route] = &*routes else { panic!("{routes:?}") };
        let mut all = route.others.to_vec();
        all.push(route.first);
        all.sort_unstable();
        assert_eq!(all, indexes(&[2, 3, 4]));
        assert_eq!(route.first, NodeIndex(2 + turn as u16 % 3), "they take turns");
    }
    let (direct, routes) = routes(&view, &indexes(&[1]), 0);
    assert_eq!((direct.to_vec(), routes.len()), (indexes(&[1]), 0));
}

#[test]
fn messages_round_trip_and_cut_ones_are_refused() {
    let others = vec![(HostId([7; 16]), 1), (HostId([8; 16]), u64::MAX)];
    let message = encode(3, &others, b"an apply's body");
    assert_eq!(decode(&message), Ok((3, others, Bytes::from_static(b"an apply's body"))));
    for len in 0..message.len() - b"an apply's body".len() {
        assert!(decode(&message.slice(..len)).is_err(), "{len} bytes");
    }
    let mut endless = vec![VERSION, 0, 0];
    write_unsigned(OTHERS_MAX + 1, &mut endless);
    assert!(decode(&endless.into()).is_err());
    for outcome in [(0, true), (u64::MAX, false)] {
        assert_eq!(decode_outcome(&encode_outcome(outcome.0, outcome.1)), Some(outcome));
    }
    for garbage in
        [&[][..], &[VERSION, 1], &[VERSION, 0, 0, 0, 0, 0, 0, 0, 0, 2], &[9, 0, 0, 0, 0, 0, 0, 0, 0, 1]]
    {
        assert_eq!(decode_outcome(garbage), None, "{garbage:?}");
    }
}

#[test]
fn an_outcome_is_delivered_once_and_forgotten() {
    let outcomes = Outcomes { next: Cell::new(u64::MAX), waiting: RefCell::default() };
    let mut one = Expected::new(&outcomes);
    let other = Expected::new(&outcomes);
    assert_ne!(one.number, other.number);
    outcomes.notify(one.number, true);
    outcomes.notify(one.number, false);
    assert_eq!(one.receiver.try_recv(), Some(true));
    let number = other.number;
    drop((one, other));
    outcomes.notify(number, true);
    assert_eq!(outcomes.waiting(), 0);
}

#[test]
fn an_outcome_of_the_process_lifetime_before_names_no_write_of_this_one() {
    let sim = rt_sim::Simulation::new(1, rt_sim::Config::default());
    // The first number of the process lifetime before, and how many there have been.
    let (first, lifetimes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let shared = (first, lifetimes.clone());
    let node = sim.add_node(rt_sim::NodeConfig::default(), move |_| {
        let (first, lifetimes) = shared.clone();
        rt::shard_mains(1, move |rt| {
            let (first, lifetimes) = (first.clone(), lifetimes.clone());
            async move {
                let outcomes = Outcomes::new(rt.random_u64());
                let expected: Vec<_> = (0..WRITES).map(|_| outcomes.expect()).collect();
                // As many writes as there were before: their old outcomes come now.
                let before = first.swap(expected[0].0, Ordering::Relaxed);
                if lifetimes.fetch_add(1, Ordering::Relaxed) > 0 {
                    (0..WRITES).for_each(|nth| outcomes.notify(before.wrapping_add(nth), true));
                }
                assert_eq!(outcomes.waiting(), expected.len(), "no write takes an old outcome for its own");
            }
        })
    });
    for lifetime in 1..=5 {
        sim.start(node);
        sim.run_until_exit(node).expect("it ends");
        assert_eq!(lifetimes.load(Ordering::Relaxed), lifetime);
    }
}
