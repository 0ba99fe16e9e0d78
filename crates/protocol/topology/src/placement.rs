//! Which nodes keep a copy of what: ring and replication make a placement, token range → ordered replicas.
//!
//! The rules are those of Cassandra's strategies, held against Cassandra's own classes by `testdata/placement.tsv`.
//! A table's own map of tablets will make the same value in another way.

use std::collections::{BTreeMap, BTreeSet};

use schema::Replication;
use smallvec::SmallVec;

use crate::ring::{NodeIndex, Ring};

/// The replicas of a token range, the first one first.
pub type Replicas = SmallVec<[NodeIndex; 6]>;

/// Part of the ring: from a token (not included) to another (included); where the second is not greater, the range goes
/// around the ring's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenRange {
    /// The token before the first.
    pub after: i64,
    /// The last token.
    pub upto: i64,
}

/// Where the data of a keyspace lives: for every token range its replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The last token of each range, ascending, and its replicas.
    ranges: Vec<(i64, Replicas)>,
}

impl Placement {
    /// What a replication makes of a ring. [`Replication::Local`] places nothing in a ring: every node keeps its own, so
    /// that the placement has no replicas.
    pub fn new(ring: &Ring, replication: &Replication) -> Self {
        let racks = racks(ring);
        let of = |(at, &(token, _)): (usize, &(i64, NodeIndex))| {
            let replicas = match replication {
                Replication::Local => Replicas::new(),
                Replication::Everywhere => everywhere(ring, at),
                Replication::Simple { factor } => simple(ring, at, *factor),
                Replication::NetworkTopology { factors } => network_topology(ring, at, factors, &racks),
            };
            (token, replicas)
        };
        Self { ranges: ring.tokens().iter().enumerate().map(of).collect() }
    }

    /// A placement by the last token of each range, ascending, and the range's replicas.
    ///
    /// # Panics
    /// When the tokens do not ascend.
    pub fn of_ranges(ranges: Vec<(i64, Replicas)>) -> Self {
        assert!(ranges.is_sorted_by(|(one, _), (next, _)| one < next), "ranges end in the order of the ring");
        Self { ranges }
    }

    /// The replicas of a token; none when the ring is empty.
    pub fn replicas(&self, token: i64) -> &[NodeIndex] {
        if self.ranges.is_empty() {
            return &[];
        }
        let at = self.ranges.partition_point(|(upto, _)| *upto < token);
        &self.ranges[at % self.ranges.len()].1
    }

    /// Every range with its replicas, in the order of the ring.
    pub fn ranges(&self) -> impl Iterator<Item = (TokenRange, &[NodeIndex])> {
        let count = self.ranges.len();
        self.ranges.iter().enumerate().map(move |(at, (upto, replicas))| {
            let after = self.ranges[(at + count - 1) % count].0;
            (TokenRange { after, upto: *upto }, replicas.as_slice())
        })
    }

    /// The ranges of which a node keeps a copy.
    pub fn ranges_of(&self, node: NodeIndex) -> impl Iterator<Item = TokenRange> + '_ {
        self.ranges().filter(move |(_, replicas)| replicas.contains(&node)).map(|(range, _)| range)
    }

    /// The ranges of which a node is the first replica.
    pub fn primary_ranges_of(&self, node: NodeIndex) -> impl Iterator<Item = TokenRange> + '_ {
        self.ranges().filter(move |(_, replicas)| replicas.first() == Some(&node)).map(|(range, _)| range)
    }
}

/// Every node, the range's owner first.
fn everywhere(ring: &Ring, at: usize) -> Replicas {
    distinct(ring, at, ring.nodes().len())
}

/// The next `factor` nodes on the ring.
fn simple(ring: &Ring, at: usize, factor: u32) -> Replicas {
    distinct(ring, at, factor as usize)
}

fn distinct(ring: &Ring, at: usize, count: usize) -> Replicas {
    let mut replicas = Replicas::new();
    for node in ring.walk(at) {
        if replicas.len() >= count {
            break;
        }
        if !replicas.contains(&node) {
            replicas.push(node);
        }
    }
    replicas
}

/// A datacenter's size.
#[derive(Default)]
struct Datacenter<'a> {
    nodes: usize,
    racks: BTreeSet<&'a str>,
}

fn racks(ring: &Ring) -> BTreeMap<&str, Datacenter<'_>> {
    let mut datacenters: BTreeMap<&str, Datacenter<'_>> = BTreeMap::new();
    for node in ring.nodes() {
        let datacenter = datacenters.entry(&node.location.datacenter).or_default();
        datacenter.nodes += 1;
        datacenter.racks.insert(&node.location.rack);
    }
    datacenters
}

/// What a datacenter still lacks.
struct Wanted<'a> {
    replicas_left: usize,
    /// How many replicas may stand in a rack that has one already, so that all racks still get one.
    repeats_left: usize,
    racks: BTreeSet<&'a str>,
}

/// So many replicas in each datacenter, in as many racks as there are, in the order of the ring.
fn network_topology(
    ring: &Ring,
    at: usize,
    factors: &BTreeMap<String, u32>,
    datacenters: &BTreeMap<&str, Datacenter<'_>>,
) -> Replicas {
    let mut wanted: BTreeMap<&str, Wanted<'_>> = BTreeMap::new();
    for (name, factor) in factors {
        let Some(datacenter) = datacenters.get(name.as_str()) else { continue };
        let factor = *factor as usize;
        let replicas_left = factor.min(datacenter.nodes);
        if replicas_left > 0 {
            let repeats_left = factor.saturating_sub(datacenter.racks.len());
            wanted.insert(name, Wanted { replicas_left, repeats_left, racks: BTreeSet::new() });
        }
    }
    let mut replicas = Replicas::new();
    for node in ring.walk(at) {
        if wanted.is_empty() {
            break;
        }
        let location = &ring.node(node).location;
        let Some(here) = wanted.get_mut(location.datacenter.as_str()) else { continue };
        if replicas.contains(&node) {
            continue;
        }
        if !here.racks.insert(&location.rack) {
            if here.repeats_left == 0 {
                continue;
            }
            here.repeats_left -= 1;
        }
        replicas.push(node);
        here.replicas_left -= 1;
        if here.replicas_left == 0 {
            wanted.remove(location.datacenter.as_str());
        }
    }
    replicas
}
