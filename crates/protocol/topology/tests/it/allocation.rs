//! Token allocation: how evenly nodes that join one after another share a ring.

use std::collections::BTreeMap;

use schema::Replication;
use topology::{HostId, Location, Placement, Ring, RingNode, allocate};

const TOKENS: usize = 16;

fn member(at: usize, location: Location) -> RingNode {
    let mut host = [0; 16];
    host[..8].copy_from_slice(&(at as u64).to_be_bytes());
    RingNode { host: HostId(host), location }
}

/// A ring that grows by one node a time.
fn grow(locations: &[Location], mut look: impl FnMut(&Ring)) {
    let mut members: Vec<(RingNode, Vec<i64>)> = Vec::new();
    for (at, location) in locations.iter().enumerate() {
        let ring = Ring::new(members.iter().cloned()).unwrap();
        let place = format!("{}:{}", location.datacenter, location.rack);
        let seed = stdx::murmur3::token(place.as_bytes()) as u64;
        let tokens = allocate(&ring, location, TOKENS, seed);
        assert_eq!(tokens.len(), TOKENS);
        assert!(tokens.is_sorted());
        members.push((member(at, location.clone()), tokens));
        look(&Ring::new(members.iter().cloned()).unwrap());
    }
}

/// How much more the fullest node of a datacenter keeps than an even share of its copies.
fn excess(ring: &Ring, replication: &Replication, datacenter: &str) -> f64 {
    let placement = Placement::new(ring, replication);
    let mut kept = vec![0u128; ring.nodes().len()];
    for (length, (_, replicas)) in ring.range_lengths().into_iter().zip(placement.ranges()) {
        for replica in replicas {
            kept[usize::from(replica.0)] += length;
        }
    }
    let here = ring.indexes().filter(|index| ring.node(*index).location.datacenter == datacenter);
    let kept: Vec<u128> = here.map(|index| kept[usize::from(index.0)]).collect();
    let mean = kept.iter().sum::<u128>() as f64 / kept.len() as f64;
    *kept.iter().max().unwrap() as f64 / mean
}

#[test]
fn nodes_of_one_rack_own_about_the_same() {
    let locations = vec![Location::new("dc1", "rack1"); 24];
    let (mut one, mut three) = (1.0f64, 1.0f64);
    grow(&locations, |ring| {
        one = one.max(excess(ring, &Replication::Simple { factor: 1 }, "dc1"));
        three = three.max(excess(ring, &Replication::Simple { factor: 3 }, "dc1"));
    });
    assert!(one < 1.15, "owned by the fullest node: {one:.3} of the mean");
    assert!(three < 1.4, "kept by the fullest node with three copies: {three:.3} of the mean");
}

#[test]
fn nodes_of_three_racks_keep_about_the_same() {
    let locations: Vec<Location> = (0..24).map(|at| Location::new("dc1", format!("r{}", at % 3))).collect();
    let replication = Replication::NetworkTopology { factors: BTreeMap::from([("dc1".to_owned(), 3)]) };
    let mut worst = 1.0f64;
    grow(&locations, |ring| {
        // Racks of unequal size cannot share evenly.
        if ring.nodes().len() % 3 == 0 {
            worst = worst.max(excess(ring, &replication, "dc1"));
        }
    });
    assert!(worst < 1.15, "kept by the fullest node: {worst:.3} of the mean");
}

#[test]
fn a_second_datacenter_does_not_disturb_the_first() {
    let locations: Vec<Location> =
        (0..8).map(|at| Location::new(if at < 4 { "dc1" } else { "dc2" }, "r1")).collect();
    let factors = BTreeMap::from([("dc1".to_owned(), 1), ("dc2".to_owned(), 1)]);
    let replication = Replication::NetworkTopology { factors };
    grow(&locations, |ring| {
        for datacenter in ["dc1", "dc2"] {
            if ring.nodes().iter().any(|node| node.location.datacenter == datacenter) {
                let excess = excess(ring, &replication, datacenter);
                assert!(excess < 1.15, "{datacenter} of {} nodes: {excess:.3}", ring.nodes().len());
            }
        }
    });
}
