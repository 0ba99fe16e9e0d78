//! Golden decisions: for a cluster drawn as text, the contacted replicas at each level, and the error when there are too few.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use schema::Keyspace;
use topology::{HostId, Location, ViewNode};

use super::*;

/// `dc/rack` for each node, `!` before one that is down; the first is this node.
fn view(nodes: &str) -> ClusterView {
    let node = |(at, text): (usize, &str)| {
        let (alive, place) = text.strip_prefix('!').map_or((true, text), |place| (false, place));
        let (datacenter, rack) = place.split_once('/').expect("dc/rack");
        ViewNode {
            host: HostId([at as u8 + 1; 16]),
            native: ([10, 0, 0, at as u8 + 1], 9042).into(),
            internode: ([10, 0, 0, at as u8 + 1], 7000).into(),
            location: Location::new(datacenter, rack),
            shards: 2,
            tokens: vec![at as i64 * 100],
            alive,
            ready: alive,
            release_version: "5.0.6".to_owned(),
            schema_version: None,
            phase: crate::Phase::Normal,
        }
    };
    ClusterView::new(HostId([1; 16]), nodes.split_whitespace().enumerate().map(node).collect()).unwrap()
}

fn each(factors: &[(&str, u32)]) -> Replication {
    let factors: BTreeMap<String, u32> = factors.iter().map(|(dc, n)| ((*dc).to_owned(), *n)).collect();
    Replication::NetworkTopology { factors }
}

/// The nodes that are asked, as numbers, or `required/alive`.
fn asked(nodes: &str, replication: &Replication, consistency: Consistency) -> String {
    let view = view(nodes);
    let placement = view.place(replication);
    let candidates = candidates(&view, placement.replicas(0), 0, &[]);
    match Needs::new(consistency, replication, &view, &[]).choose(consistency, &view, &candidates) {
        Ok(chosen) => chosen.iter().map(|node| (node.0 + 1).to_string()).collect::<Vec<_>>().join(" "),
        Err(RequestError::Unavailable { required, alive, .. }) => format!("{alive} of {required}"),
        Err(other) => panic!("{other}"),
    }
}

/// Placement is computed anew when it changes, not whenever gossip has news.
#[test]
fn placement_depends_on_the_ring_alone() {
    let all = view("a/r a/r b/r");
    for same in ["a/r !a/r b/r", "!a/r !a/r !b/r"] {
        assert!(view(same).places_as(&all), "{same}: liveness does not change the replicas");
    }
    for other in ["a/r a/r", "a/r a/r b/r b/r", "a/r a/r a/r", "a/r a/s b/r"] {
        assert!(!view(other).places_as(&all), "{other}");
    }
    let with_phase = |phase, switched: bool| {
        let nodes = all.nodes().iter().enumerate().map(|(at, node)| ViewNode {
            phase: if at == 2 { phase } else { crate::Phase::Normal },
            ..node.clone()
        });
        let own = HostId([1; 16]);
        let make = if switched { ClusterView::switched } else { ClusterView::new };
        make(own, nodes.collect()).unwrap()
    };
    let leaving = with_phase(crate::Phase::Leaving, false);
    assert!(!leaving.places_as(&all) && !with_phase(crate::Phase::Joining, false).places_as(&all));
    assert!(!with_phase(crate::Phase::Leaving, true).places_as(&leaving), "reads have gone over");
    assert!(with_phase(crate::Phase::Leaving, false).places_as(&leaving));
}

/// A view made after another equals one made without it.
#[test]
fn a_view_after_another_shares_its_ring_alone() {
    let replication = Replication::Simple { factor: 2 };
    let keyspaces: BTreeMap<_, _> = ["one", "other"]
        .map(|name| (name.to_owned(), crate::Replicated { now: replication.clone(), other: None }))
        .into();
    let placed = |view: ClusterView, before: Option<&ClusterView>| {
        let view = view.replicating(keyspaces.clone());
        // Outside of an executor nothing yields.
        crate::placements::placed(view, before).now_or_never().expect("nothing is waited for")
    };
    let now = |view: &ClusterView| view.place(&replication).now() as *const topology::Placement;
    let first = placed(view("a/r a/r a/r a/r"), None);
    let keyspace = |name: &str| first.place_keyspace(&Keyspace::new(name, replication.clone()));
    assert!(std::ptr::eq(keyspace("one").now(), keyspace("other").now()), "one replication, one placement");
    let mut nodes = view("a/r !a/r a/r a/r").nodes().to_vec();
    let convicted = placed(ClusterView::after(&first, nodes.clone(), false).unwrap(), Some(&first));
    assert!(!convicted.is_alive(NodeIndex(1)) && convicted.places_as(&first));
    assert_eq!(now(&convicted), now(&first), "liveness changes no placement");
    // The same where the ring was made anew.
    let convicted = placed(view("a/r !a/r a/r a/r"), Some(&first));
    assert_eq!(now(&convicted), now(&first));
    for (phase, switched) in [(crate::Phase::Leaving, false), (crate::Phase::Leaving, true)] {
        nodes[2].phase = phase;
        let made = if switched { ClusterView::switched } else { ClusterView::new };
        let anew = placed(made(HostId([1; 16]), nodes.clone()).unwrap(), None);
        let after = placed(ClusterView::after(&first, nodes.clone(), switched).unwrap(), Some(&first));
        assert!(after.places_as(&anew) && !after.places_as(&first));
        assert_eq!(after.nodes(), anew.nodes());
        for token in (-50..400).step_by(50) {
            let [after, anew] = [&after, &anew].map(|view| view.place(&replication));
            assert_eq!(after.replicas(token), anew.replicas(token), "{token}");
            assert_eq!(after.others(token), anew.others(token), "{token}");
        }
    }
}

#[test]
fn replicas_by_consistency_level() {
    use Consistency::{All, EachQuorum, LocalOne, LocalQuorum, One, Quorum, Three, Two};
    let three = Replication::Simple { factor: 3 };
    let both = each(&[("dc1", 3), ("dc2", 3)]);
    let one_rack = "a/r a/r a/r";
    let two = "dc1/r dc1/r dc1/r dc2/r dc2/r dc2/r";
    let rows: &[(&str, &Replication, Consistency, &str)] = &[
        (one_rack, &three, One, "1"),
        (one_rack, &three, Quorum, "1 2"),
        (one_rack, &three, All, "1 2 3"),
        ("a/r !a/r a/r", &three, Quorum, "1 3"),
        ("a/r !a/r a/r", &three, All, "2 of 3"),
        ("a/r !a/r !a/r", &three, Quorum, "1 of 2"),
        ("a/r !a/r !a/r", &three, Two, "1 of 2"),
        ("a/r a/r", &three, Three, "2 of 3"),
        // The near ones first: this node, its rack, its datacenter.
        ("a/r1 a/r2 a/r1", &three, Quorum, "1 3"),
        (two, &both, LocalOne, "1"),
        (two, &both, LocalQuorum, "1 2"),
        (two, &both, EachQuorum, "1 2 4 5"),
        (two, &both, Quorum, "1 2 3 4"),
        ("dc1/r dc1/r dc1/r dc2/r !dc2/r !dc2/r", &both, EachQuorum, "1 of 2"),
        ("dc1/r dc1/r dc1/r !dc2/r !dc2/r !dc2/r", &both, LocalQuorum, "1 2"),
        ("dc1/r dc1/r dc1/r !dc2/r !dc2/r !dc2/r", &both, Quorum, "3 of 4"),
        // Nobody else can stand in for the local datacenter.
        ("dc1/r !dc1/r !dc1/r dc2/r dc2/r dc2/r", &both, LocalQuorum, "1 of 2"),
        ("dc1/r dc2/r", &each(&[("dc2", 1)]), LocalOne, "0 of 1"),
        ("dc1/r dc2/r", &each(&[("dc2", 1)]), One, "2"),
        // A datacenter that the keyspace names and that has no nodes.
        ("dc1/r", &each(&[("dc1", 1), ("dc2", 1)]), EachQuorum, "0 of 1"),
        ("dc1/r", &each(&[("dc1", 1), ("dc2", 1)]), LocalQuorum, "1"),
        ("dc1/r", &each(&[("dc2", 3)]), One, "0 of 1"),
        ("a/r", &three, Quorum, "1 of 2"),
        ("a/r", &three, LocalQuorum, "1 of 2"),
        ("a/r", &three, One, "1"),
    ];
    for (nodes, replication, consistency, expected) in rows {
        assert_eq!(
            asked(nodes, replication, *consistency),
            *expected,
            "{nodes} {replication:?} {consistency:?}"
        );
    }
}

#[test]
fn equals_take_turns() {
    let view = view("a/r1 b/r b/r b/r");
    let replicas = [NodeIndex(1), NodeIndex(2), NodeIndex(3)];
    let first: Vec<u16> = (0..4).map(|turn| candidates(&view, &replicas, turn, &[])[0].0).collect();
    assert_eq!(first, [1, 2, 3, 1]);
}

#[test]
fn a_slow_replica_is_queried_last_of_its_datacenter() {
    let view = view("a/r a/r a/s a/s b/r");
    let all: Vec<NodeIndex> = view.ring().indexes().collect();
    let order = |slow: &[u16]| -> Vec<u16> {
        let slow: Vec<HostId> = slow.iter().map(|node| view.node(NodeIndex(*node)).host).collect();
        candidates(&view, &all, 0, &slow).iter().map(|node| node.0).collect()
    };
    assert_eq!(order(&[]), [0, 1, 2, 3, 4]);
    assert_eq!(order(&[1]), [0, 2, 3, 1, 4], "a neighbour that is slow comes after other racks");
    assert_eq!(order(&[2, 4]), [0, 1, 3, 2, 4]);
}

#[test]
fn any_is_content_with_a_hint() {
    let view = view("a/r !a/r !a/r");
    let replication = Replication::Simple { factor: 3 };
    let needs = Needs::new(Consistency::Any, &replication, &view, &[]);
    assert!(needs.check(Consistency::Any, &view, &[]).is_ok());
}

#[test]
fn a_tally_ends_as_soon_as_it_is_decided() {
    let view = view("dc1/r dc1/r dc1/r dc2/r dc2/r dc2/r");
    let replication = each(&[("dc1", 3), ("dc2", 3)]);
    let all: Vec<NodeIndex> = view.ring().indexes().collect();
    let (near, far) = (view.datacenter(NodeIndex(0)), view.datacenter(NodeIndex(3)));
    let tally = |consistency| Tally::new(&Needs::new(consistency, &replication, &view, &[]), &view, &all);

    let mut quorum = tally(Consistency::LocalQuorum);
    quorum.acknowledge(NodeIndex(0), far);
    quorum.acknowledge(NodeIndex(0), far);
    quorum.acknowledge(NodeIndex(0), near);
    assert!(!quorum.is_met(), "the far ones do not count");
    assert_eq!((quorum.received(), quorum.required()), (1, 2));
    quorum.acknowledge(NodeIndex(0), near);
    assert!(quorum.is_met());

    let mut each = tally(Consistency::EachQuorum);
    [near, near, near, far].into_iter().for_each(|dc| each.acknowledge(NodeIndex(0), dc));
    assert!(!each.is_met() && !each.is_hopeless());
    each.fail(NodeIndex(0), far);
    assert!(!each.is_hopeless(), "one more of the far ones suffices");
    each.fail(NodeIndex(0), far);
    assert!(each.is_hopeless());
}

#[test]
fn a_timeout_waits_for_those_that_may_still_answer() {
    let view = view("dc1/r dc1/r dc1/r");
    let replication = Replication::Simple { factor: 3 };
    let all: Vec<NodeIndex> = view.ring().indexes().collect();
    let needs = Needs::new(Consistency::Quorum, &replication, &view, &[]);
    let mut tally = Tally::new(&needs, &view, &all);
    let datacenter = view.datacenter(all[0]);
    tally.fail(all[0], datacenter);
    assert!(!tally.gives_up(true) && !tally.gives_up(false), "two may answer");
    tally.fail(all[1], datacenter);
    assert!(tally.gives_up(false), "a failure is answered at once");
    assert!(!tally.gives_up(true), "a timeout counts the third one's answer");
    tally.acknowledge(all[2], datacenter);
    assert!(tally.gives_up(true) && !tally.is_met());
    assert_eq!((tally.received(), tally.required()), (1, 2));
}

#[test]
fn pending_replicas_are_waited_for_beside_the_others() {
    let view = view("a/r a/r a/r a/r");
    let replication = Replication::Simple { factor: 3 };
    let needs = Needs::new(Consistency::Quorum, &replication, &view, &[NodeIndex(3)]);
    assert_eq!(needs.required(), 3);
    assert_eq!(Needs::new(Consistency::One, &replication, &view, &[NodeIndex(3)]).required(), 2);
}

#[test]
fn while_a_node_joins_its_writes_go_to_it_and_its_reads_do_not() {
    let mut nodes = view("a/r a/r a/r a/r").nodes().to_vec();
    nodes[3].phase = crate::Phase::Joining;
    nodes[3].tokens = vec![150];
    let view = ClusterView::new(HostId([1; 16]), nodes).unwrap();
    let placement = view.place(&Replication::Simple { factor: 2 });
    // Nodes 0, 1, 2 own 0, 100, 200; 150 will belong to node 3.
    let places = |token| {
        let numbers = |nodes: &[NodeIndex]| nodes.iter().map(|node| node.0).collect::<Vec<_>>();
        (numbers(placement.replicas(token)), numbers(&placement.pending(token)))
    };
    assert_eq!(places(50), (vec![1, 2], vec![3]));
    assert_eq!(places(120), (vec![2, 0], vec![3]));
    assert_eq!(places(180), (vec![2, 0], vec![]));
    assert_eq!(places(-5), (vec![0, 1], vec![]));
    let gained = placement.gained(NodeIndex(3));
    let range = |after, upto| topology::TokenRange { after, upto };
    assert_eq!(gained, [range(0, 100), range(100, 150)]);
    assert!(placement.gained(NodeIndex(0)).is_empty());
}

#[test]
fn while_a_node_leaves_pending_replicas_take_its_writes() {
    let mut nodes = view("a/r a/r a/r").nodes().to_vec();
    nodes[1].phase = crate::Phase::Leaving;
    let view = ClusterView::new(HostId([1; 16]), nodes).unwrap();
    let placement = view.place(&Replication::Simple { factor: 1 });
    assert_eq!((placement.replicas(50), &*placement.pending(50)), (&[NodeIndex(1)][..], &[NodeIndex(2)][..]));
    assert_eq!(placement.gained(NodeIndex(2)), [topology::TokenRange { after: 0, upto: 100 }]);
}

/// Each keyspace's tokens: the replicas that are read, and the others that are written to.
fn places(view: &ClusterView, factor: u32, token: i64) -> (Vec<u8>, Vec<u8>) {
    let placement = view.place(&Replication::Simple { factor });
    let hosts = |nodes: &[NodeIndex]| nodes.iter().map(|node| view.node(*node).host.0[0]).collect::<Vec<_>>();
    (hosts(placement.replicas(token)), hosts(&placement.pending(token)))
}

#[test]
fn when_reads_switch_writes_still_go_to_the_previous_replicas() {
    let mut nodes = view("a/r a/r a/r").nodes().to_vec();
    let first = nodes[0].host.0[0];
    nodes[1].phase = crate::Phase::Leaving;
    let own = nodes[1].host;
    let before = ClusterView::new(own, nodes.clone()).unwrap();
    let after = ClusterView::switched(own, nodes).unwrap();
    assert_eq!(places(&before, 1, 50), (vec![first + 1], vec![first + 2]));
    assert_eq!(places(&after, 1, 50), (vec![first + 2], vec![first + 1]));
    assert_eq!(places(&after, 1, 150), (vec![first + 2], vec![]));
    assert_eq!(after.members().len(), 2);
    let placement = after.place(&Replication::Simple { factor: 1 });
    assert!(placement.pending_nodes().is_empty(), "nobody fetches any more");
    let placement = before.place(&Replication::Simple { factor: 1 });
    assert_eq!(placement.pending_nodes(), [NodeIndex(2)].into());
    // It keeps the ranges that are read from it and those that are written to it.
    assert_eq!(placement.kept(NodeIndex(2)).len(), 2);
    assert_eq!(placement.kept(NodeIndex(0)).len(), 1);
}

#[test]
fn a_node_in_the_place_of_a_dead_one_gains_all_that_it_had() {
    let mut nodes = view("a/r a/r a/r a/r").nodes().to_vec();
    let first = nodes[0].host.0[0];
    nodes[1].phase = crate::Phase::Removing;
    nodes[1].alive = false;
    nodes[3].phase = crate::Phase::Joining;
    nodes[3].tokens = nodes[1].tokens.clone();
    let own = nodes[0].host;
    let now = ClusterView::new(own, nodes.clone()).unwrap();
    assert_eq!(places(&now, 2, 50), (vec![first + 1, first + 2], vec![first + 3]));
    assert_eq!(places(&now, 2, 150), (vec![first + 2, first], vec![]));
    let pending_nodes = now.place(&Replication::Simple { factor: 2 }).pending_nodes();
    assert_eq!(pending_nodes, [now.index_of(HostId([first + 3; 16])).unwrap()].into());
    let then = ClusterView::switched(own, nodes).unwrap();
    assert_eq!(places(&then, 2, 50), (vec![first + 3, first + 2], vec![first + 1]));
}

#[test]
fn while_replicas_move_each_replication_has_its_quorum() {
    let view = view("a/r a/r a/r");
    let (one, three) = (Replication::Simple { factor: 1 }, Replication::Simple { factor: 3 });
    let all: Vec<NodeIndex> = view.ring().indexes().collect();
    let (before, after) = (Replicas::from_slice(&all[..1]), Replicas::from_slice(&all));
    let needs = |consistency| {
        let now = Needs::new(consistency, &one, &view, &[]).among(&before);
        now.and(Needs::new(consistency, &three, &view, &[]).among(&after))
    };
    let met = |consistency, nodes: &[usize]| {
        let mut tally = Tally::new(&needs(consistency), &view, &all);
        nodes.iter().for_each(|at| tally.acknowledge(all[*at], view.datacenter(all[*at])));
        tally.is_met()
    };
    assert!(
        met(Consistency::One, &[0]) && !met(Consistency::One, &[1, 2]),
        "a replica that is read now has to acknowledge"
    );
    assert!(met(Consistency::Quorum, &[0, 2]) && !met(Consistency::Quorum, &[0]));
    assert!(!met(Consistency::Quorum, &[1, 2]), "a read of one replica would miss it");
    assert!(needs(Consistency::Quorum).check(Consistency::Quorum, &view, &all[1..]).is_err());
    assert_eq!(
        needs(Consistency::Quorum).required_of(&all),
        3,
        "any two might be those who are not read now"
    );
}

#[test]
fn when_a_replication_loses_replicas_those_that_stay_fetch_from_the_leaving_ones() {
    let keyspace = Keyspace::new("ks", Replication::Simple { factor: 3 });
    let altered = |now: u32, other: u32, switched: bool| {
        let view = view("a/r a/r a/r a/r");
        let nodes = view.nodes().to_vec();
        let view = match switched {
            true => ClusterView::switched(HostId([1; 16]), nodes),
            false => ClusterView::new(HostId([1; 16]), nodes),
        };
        let [now, other] = [now, other].map(|factor| Replication::Simple { factor });
        let replicated = crate::Replicated { now, other: Some(other) };
        let view = view.unwrap().replicating([("ks".to_owned(), replicated)].into());
        (view.place_keyspace(&keyspace), view)
    };
    let (fewer, view) = altered(3, 1, false);
    assert!(view.is_changing());
    let token = 0;
    assert_eq!(fewer.replicas(token).len(), 3);
    assert_eq!((fewer.pending(token).len(), fewer.losing(token).len()), (0, 2));
    let stays = fewer.replicas(token)[0];
    assert!(fewer.gained(stays).iter().any(|range| range.upto == token), "what the others have at ONE");
    let (more, _) = altered(1, 3, false);
    assert_eq!((more.replicas(token).len(), more.pending(token).len(), more.losing(token).len()), (1, 2, 0));
    assert!(
        more.pending(token).iter().all(|node| more.gained(*node).iter().any(|range| range.upto == token))
    );
    assert!(!more.gained(stays).iter().any(|range| range.upto == token));
    let (over, view) = altered(3, 1, true);
    assert_eq!((over.replicas(token).len(), over.pending(token).len()), (3, 0));
    assert!(over.gained(stays).is_empty() && over.takes(stays, token));
    assert_eq!(view.replication_of(&keyspace), &Replication::Simple { factor: 3 });
    // Readers by the previous replication suffice for its quorum, and do not see writes by the current one.
    assert!(view.blind_quorum(&over, |node| node != stays));
}
