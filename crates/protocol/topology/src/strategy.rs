//! The rules of Cassandra's replication strategies: which of the owners of tokens, met in the order of the ring, become replicas.

use std::collections::{BTreeMap, BTreeSet};

use schema::Replication;
use smallvec::SmallVec;

use crate::placement::Replicas;
use crate::ring::{NodeIndex, Ring};

/// A replication's rule for the nodes of one ring.
pub(crate) enum Strategy {
    /// No replicas.
    Local,
    /// Every node.
    Everywhere,
    /// So many nodes.
    Simple { count: usize },
    /// So many nodes of each datacenter.
    Network(Network),
}

/// The rule of `NetworkTopologyStrategy`: so many replicas in each datacenter, in as many racks as there are.
pub(crate) struct Network {
    /// By node: its datacenter's place in `wanted` and its rack's number, if the replication names the datacenter.
    locations: Vec<Option<(u16, u16)>>,
    /// The needs of a range, by datacenter.
    wanted: SmallVec<[Wanted; 4]>,
}

/// The replicas that a range still needs of a datacenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    /// The datacenter's place in the replication.
    nth: usize,
    replicas_left: usize,
    /// How many replicas may stand in a rack that has one already, so that all racks still get one.
    repeats_left: usize,
}

/// The size of a datacenter.
#[derive(Default)]
struct Datacenter<'a> {
    nodes: usize,
    racks: BTreeSet<&'a str>,
}

impl Strategy {
    pub(crate) fn new(ring: &Ring, replication: &Replication) -> Self {
        match replication {
            Replication::Local => Self::Local,
            Replication::Everywhere => Self::Everywhere,
            Replication::Simple { factor } => {
                Self::Simple { count: (*factor as usize).min(ring.nodes().len()) }
            }
            Replication::NetworkTopology { factors } => Self::Network(Network::new(ring, factors)),
        }
    }

    /// Whether it makes of the same owners, met in the same order, the same replicas as the other one, if they have the same locations.
    pub(crate) fn chooses_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Simple { count }, Self::Simple { count: other }) => count == other,
            (Self::Network(one), Self::Network(other)) => one.wanted == other.wanted,
            _ => false,
        }
    }

    /// Adds the replicas of the range that ends at a place in the ring's tokens; how many tokens it has looked at.
    pub(crate) fn choose(&self, ring: &Ring, at: usize, replicas: &mut Replicas) -> usize {
        match self {
            Self::Local | Self::Everywhere => 1,
            Self::Simple { count } => simple(ring, at, *count, replicas),
            Self::Network(network) => network.choose(ring, at, replicas),
        }
    }
}

/// The next `count` nodes on the ring.
fn simple(ring: &Ring, at: usize, count: usize, replicas: &mut Replicas) -> usize {
    let mut walked = 0;
    for node in ring.walk(at) {
        if replicas.len() >= count {
            break;
        }
        walked += 1;
        if !replicas.contains(&node) {
            replicas.push(node);
        }
    }
    walked
}

impl Network {
    fn new(ring: &Ring, factors: &BTreeMap<String, u32>) -> Self {
        let mut datacenters: BTreeMap<&str, Datacenter<'_>> = BTreeMap::new();
        let mut racks: BTreeMap<(&str, &str), u16> = BTreeMap::new();
        for node in ring.nodes() {
            let (datacenter, rack) = (node.location.datacenter.as_str(), node.location.rack.as_str());
            let size = datacenters.entry(datacenter).or_default();
            size.nodes += 1;
            size.racks.insert(rack);
            let next = racks.len() as u16;
            racks.entry((datacenter, rack)).or_insert(next);
        }
        let mut wanted = SmallVec::new();
        let mut places: BTreeMap<&str, u16> = BTreeMap::new();
        for (nth, (name, factor)) in factors.iter().enumerate() {
            let Some(size) = datacenters.get(name.as_str()) else { continue };
            let factor = *factor as usize;
            let replicas_left = factor.min(size.nodes);
            if replicas_left > 0 {
                places.insert(name, wanted.len() as u16);
                let repeats_left = factor.saturating_sub(size.racks.len());
                wanted.push(Wanted { nth, replicas_left, repeats_left });
            }
        }
        let location = |node: &crate::RingNode| {
            let (datacenter, rack) = (node.location.datacenter.as_str(), node.location.rack.as_str());
            Some((*places.get(datacenter)?, racks[&(datacenter, rack)]))
        };
        Self { locations: ring.nodes().iter().map(location).collect(), wanted }
    }

    fn choose(&self, ring: &Ring, at: usize, replicas: &mut Replicas) -> usize {
        let mut wanted = self.wanted.clone();
        let mut missing = wanted.len();
        let mut racks: SmallVec<[u16; 6]> = SmallVec::new();
        let mut walked = 0;
        for node in ring.walk(at) {
            if missing == 0 {
                break;
            }
            walked += 1;
            let NodeIndex(index) = node;
            let Some((datacenter, rack)) = self.locations[usize::from(index)] else { continue };
            let here = &mut wanted[usize::from(datacenter)];
            if here.replicas_left == 0 || replicas.contains(&node) {
                continue;
            }
            if !racks.contains(&rack) {
                racks.push(rack);
            } else if here.repeats_left == 0 {
                continue;
            } else {
                here.repeats_left -= 1;
            }
            replicas.push(node);
            here.replicas_left -= 1;
            missing -= usize::from(here.replicas_left == 0);
        }
        walked
    }
}
