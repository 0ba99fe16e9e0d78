//! Placement against a table that Cassandra's strategies made (`testdata/README.md`), and properties that hold for all.

use std::collections::BTreeMap;

use schema::Replication;
use topology::{HostId, Location, NodeIndex, Placement, Ring, RingNode};

fn node(at: usize, datacenter: &str, rack: &str) -> RingNode {
    let mut host = [0; 16];
    host[..8].copy_from_slice(&(at as u64).to_be_bytes());
    RingNode { host: HostId(host), location: Location::new(datacenter, rack) }
}

fn replication(text: &str) -> Replication {
    let mut words = text.split(' ');
    match words.next() {
        Some("simple") => Replication::Simple { factor: words.next().unwrap().parse().unwrap() },
        Some("network") => {
            let factor = |word: &str| {
                let (name, factor) = word.split_once('=').unwrap();
                (name.to_owned(), factor.parse().unwrap())
            };
            Replication::NetworkTopology { factors: words.map(factor).collect() }
        }
        other => panic!("unknown strategy {other:?}"),
    }
}

#[test]
fn replicas_are_those_that_cassandra_chooses() {
    let table = include_str!("../../testdata/placement.tsv");
    let mut members: Vec<(RingNode, Vec<i64>)> = Vec::new();
    let (mut ring, mut placement) = (Ring::default(), None);
    let (mut checked, mut which) = (0, "");
    for line in table.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields.as_slice() {
            ["ring", _] => members.clear(),
            ["node", datacenter, rack, tokens] => {
                let tokens = tokens.split(' ').map(|token| token.parse().unwrap()).collect();
                members.push((node(members.len(), datacenter, rack), tokens));
            }
            ["strategy", name] => {
                ring = Ring::new(members.iter().cloned()).unwrap();
                placement = Some(Placement::new(&ring, &replication(name)));
                which = name;
            }
            ["token", token, replicas] => {
                let expected: Vec<NodeIndex> = replicas
                    .split(' ')
                    .filter(|at| !at.is_empty())
                    .map(|at| NodeIndex(at.parse().unwrap()))
                    .collect();
                let token = token.parse().unwrap();
                let placement: &Placement = placement.as_ref().unwrap();
                assert_eq!(
                    placement.replicas(token),
                    expected,
                    "{which}, token {token}, ring {:?}",
                    ring.nodes()
                );
                checked += 1;
            }
            _ => panic!("what is {line:?}"),
        }
    }
    assert!(checked > 4_000, "the table was read: {checked}");
}

#[test]
fn ranges_cover_the_ring_and_belong_to_their_replicas() {
    let ring = Ring::new([
        (node(0, "dc1", "a"), vec![-50, 10]),
        (node(1, "dc1", "b"), vec![-20, 30]),
        (node(2, "dc2", "a"), vec![0]),
    ])
    .unwrap();
    let factors = BTreeMap::from([("dc1".to_owned(), 1), ("dc2".to_owned(), 1)]);
    let placement = Placement::new(&ring, &Replication::NetworkTopology { factors });
    let ranges: Vec<_> = placement.ranges().collect();
    assert_eq!(ranges.len(), 5);
    for pair in ranges.windows(2) {
        assert_eq!(pair[0].0.upto, pair[1].0.after, "no gap between ranges");
    }
    assert_eq!((ranges[0].0.after, ranges[0].0.upto), (30, -50), "the first goes around the ring's end");
    for (range, replicas) in &ranges {
        assert_eq!(placement.replicas(range.upto), *replicas);
        assert_eq!(placement.replicas(range.after.wrapping_add(1)), *replicas);
        assert_eq!(replicas.len(), 2);
    }
    assert_eq!(
        placement.ranges_of(NodeIndex(2)).count(),
        5,
        "the only node of its datacenter has everything"
    );
    let primary: usize = ring.indexes().map(|index| placement.primary_ranges_of(index).count()).sum();
    assert_eq!(primary, 5, "every range has one first replica");
}

#[test]
fn local_places_nothing_and_everywhere_places_all() {
    let ring = Ring::new([(node(0, "dc1", "a"), vec![0]), (node(1, "dc1", "a"), vec![9])]).unwrap();
    assert!(Placement::new(&ring, &Replication::Local).replicas(5).is_empty());
    assert_eq!(Placement::new(&ring, &Replication::Everywhere).replicas(5), [NodeIndex(1), NodeIndex(0)]);
    assert!(Placement::new(&Ring::default(), &Replication::Simple { factor: 1 }).replicas(5).is_empty());
}
