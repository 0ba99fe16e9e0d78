//! The cluster as the requests of a node see it: who is in the ring, where, and whether it is alive. A value; a change makes
//! another, which every shard is given.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use schema::Replication;
use topology::{HostId, Location, NodeIndex, Placement, Ring, RingNode};

/// A node of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewNode {
    /// Who it is.
    pub host: HostId,
    /// Where its clients find it (`rpc_address`, `native_transport_port`): how errors name it.
    pub native: SocketAddr,
    /// Where other nodes find it (`broadcast_address`, `storage_port`).
    pub internode: SocketAddr,
    /// Where it stands.
    pub location: Location,
    /// Its shards; a request goes to the one that owns the token.
    pub shards: u16,
    /// Its tokens.
    pub tokens: Vec<i64>,
    /// Whether it is believed to answer.
    pub alive: bool,
    /// Whether it says that it lets clients in.
    pub ready: bool,
    /// The version of Cassandra whose interface it has; drivers choose their ways by it.
    pub release_version: String,
    /// The version of its schema, once it has told it; for this node itself the schema tells.
    pub schema_version: Option<[u8; 16]>,
}

/// The nodes of the ring and what follows from them.
#[derive(Clone, Debug)]
pub struct ClusterView {
    ring: Ring,
    nodes: Vec<ViewNode>,
    /// The datacenter of each node, as a number.
    datacenters: Vec<u16>,
    names: Vec<String>,
    own: NodeIndex,
}

impl ClusterView {
    /// A view of these nodes, `own` among them.
    pub fn new(own: HostId, nodes: Vec<ViewNode>) -> Result<Self, topology::RingError> {
        let member = |node: &ViewNode| {
            (RingNode { host: node.host, location: node.location.clone() }, node.tokens.clone())
        };
        let ring = Ring::new(nodes.iter().map(member))?;
        let mut numbers: BTreeMap<&str, u16> = BTreeMap::new();
        for node in &nodes {
            let next = numbers.len() as u16;
            numbers.entry(&node.location.datacenter).or_insert(next);
        }
        let datacenters = nodes.iter().map(|node| numbers[&*node.location.datacenter]).collect();
        let mut names = vec![String::new(); numbers.len()];
        numbers.iter().for_each(|(name, number)| names[usize::from(*number)] = (*name).to_owned());
        let own = ring.index_of(own).expect("a node is in its own view");
        Ok(Self { ring, nodes, datacenters, names, own })
    }

    /// A node that is the whole cluster.
    pub fn alone(node: ViewNode) -> Self {
        Self::new(node.host, vec![ViewNode { alive: true, ..node }]).expect("one node makes a ring")
    }

    /// Whether this node is the whole cluster.
    pub fn is_alone(&self) -> bool {
        self.nodes.len() == 1
    }

    /// This node.
    pub fn own(&self) -> NodeIndex {
        self.own
    }

    /// The ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// All nodes, this one included, in the order of their indexes.
    pub fn nodes(&self) -> &[ViewNode] {
        &self.nodes
    }

    /// A node.
    pub fn node(&self, index: NodeIndex) -> &ViewNode {
        &self.nodes[usize::from(index.0)]
    }

    /// Whether a node is believed to answer; this one always does.
    pub fn is_alive(&self, index: NodeIndex) -> bool {
        index == self.own || self.node(index).alive
    }

    /// A number for a node's datacenter.
    pub fn datacenter(&self, index: NodeIndex) -> u16 {
        self.datacenters[usize::from(index.0)]
    }

    /// The name of a datacenter.
    pub fn datacenter_name(&self, number: u16) -> &str {
        &self.names[usize::from(number)]
    }

    /// The datacenters that have nodes, with how many those are.
    pub fn datacenter_sizes(&self) -> BTreeMap<&str, usize> {
        let mut sizes = BTreeMap::new();
        for node in &self.nodes {
            *sizes.entry(&*node.location.datacenter).or_insert(0) += 1;
        }
        sizes
    }

    /// The number of a datacenter that has nodes.
    pub fn datacenter_number(&self, name: &str) -> Option<u16> {
        self.names.iter().position(|known| known == name).map(|at| at as u16)
    }

    /// How far away a node is: 0 this node, 1 its rack, 2 its datacenter, 3 further.
    pub fn distance(&self, index: NodeIndex) -> u8 {
        let (own, other) = (&self.node(self.own).location, &self.node(index).location);
        match (index == self.own, own.datacenter == other.datacenter, own.rack == other.rack) {
            (true, _, _) => 0,
            (_, true, true) => 1,
            (_, true, false) => 2,
            _ => 3,
        }
    }

    /// Where a replication puts its copies.
    pub fn place(&self, replication: &Replication) -> Arc<Placement> {
        Arc::new(Placement::new(&self.ring, replication))
    }
}
