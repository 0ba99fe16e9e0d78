//! The cluster as the requests of a node see it: who is in the ring, where, and whether it is alive. A value; a change makes
//! another, which every shard is given.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use schema::Replication;
use topology::{HostId, Location, NodeIndex, Placement, Replicas, Ring, RingNode, TokenRange};

/// A node of the cluster.
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
    /// The version of its schema, if it is not known to be this node's.
    pub schema_version: Option<[u8; 16]>,
    /// Whether its place changes.
    pub phase: Phase,
}

/// Where a node is on its way through the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// It owns its tokens.
    #[default]
    Normal,
    /// It will own its tokens: it takes writes of what it will own, and reads do not ask it.
    Joining,
    /// It owns its tokens still; those who will own them take writes already.
    Leaving,
}

/// The nodes of the cluster and what follows from them.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// Those who own tokens now; they come first among the nodes.
    ring: Ring,
    nodes: Vec<ViewNode>,
    /// When nodes join or leave: the ring as it will be, and its nodes' places in `nodes`.
    then: Option<(Ring, Vec<NodeIndex>)>,
    /// The datacenter of each node, as a number.
    datacenters: Vec<u16>,
    names: Vec<String>,
    own: NodeIndex,
}

impl ClusterView {
    /// A view of these nodes, `own` among them.
    ///
    /// # Panics
    /// When `own` is not among them.
    pub fn new(own: HostId, mut nodes: Vec<ViewNode>) -> Result<Self, topology::RingError> {
        nodes.sort_by_key(|node| node.phase == Phase::Joining);
        let member = |node: &ViewNode| {
            (RingNode { host: node.host, location: node.location.clone() }, node.tokens.clone())
        };
        let ring = Ring::new(nodes.iter().filter(|node| node.phase != Phase::Joining).map(member))?;
        let moves = nodes.iter().any(|node| node.phase != Phase::Normal);
        let then = if moves {
            let stays = |node: &&ViewNode| node.phase != Phase::Leaving && !node.tokens.is_empty();
            let places = (0..).map(NodeIndex).zip(&nodes).filter(|(_, node)| stays(node)).map(|(at, _)| at);
            let places = places.collect();
            Some((Ring::new(nodes.iter().filter(stays).map(member))?, places))
        } else {
            None
        };
        let mut numbers: BTreeMap<&str, u16> = BTreeMap::new();
        for node in &nodes {
            let next = numbers.len() as u16;
            numbers.entry(&node.location.datacenter).or_insert(next);
        }
        let datacenters = nodes.iter().map(|node| numbers[&*node.location.datacenter]).collect();
        let mut names = vec![String::new(); numbers.len()];
        numbers.iter().for_each(|(name, number)| names[usize::from(*number)] = (*name).to_owned());
        let own = nodes.iter().position(|node| node.host == own).expect("a node is in its own view");
        Ok(Self { ring, nodes, then, datacenters, names, own: NodeIndex(own as u16) })
    }

    /// A node that is the whole cluster.
    pub fn alone(node: ViewNode) -> Self {
        Self::new(node.host, vec![ViewNode { alive: true, ..node }]).expect("one node makes a ring")
    }

    /// Whether this node is the whole cluster.
    pub fn is_alone(&self) -> bool {
        self.nodes.len() == 1
    }

    /// Whether nodes are on their way into the ring or out of it.
    pub fn is_changing(&self) -> bool {
        self.then.is_some()
    }

    /// This node.
    pub fn own(&self) -> NodeIndex {
        self.own
    }

    /// The ring of those who own tokens now.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The places of all nodes.
    pub fn indexes(&self) -> impl Iterator<Item = NodeIndex> + use<> {
        (0..self.nodes.len() as u16).map(NodeIndex)
    }

    /// All nodes, this one included, in the order of their indexes.
    pub fn nodes(&self) -> &[ViewNode] {
        &self.nodes
    }

    /// The nodes that own tokens now: those that clients may know of.
    pub fn members(&self) -> &[ViewNode] {
        &self.nodes[..self.ring.nodes().len()]
    }

    /// A node.
    pub fn node(&self, index: NodeIndex) -> &ViewNode {
        &self.nodes[usize::from(index.0)]
    }

    /// The place of a node, whether it owns tokens or will.
    pub fn index_of(&self, host: HostId) -> Option<NodeIndex> {
        self.indexes().find(|index| self.node(*index).host == host)
    }

    /// Whether a node is believed to answer; this one always does.
    pub fn is_alive(&self, index: NodeIndex) -> bool {
        index == self.own || self.node(index).alive
    }

    /// The same of a host; none that is not in the cluster lives.
    pub fn is_alive_host(&self, host: HostId) -> bool {
        let at = self.indexes().find(|index| self.node(*index).host == host);
        at.is_some_and(|index| self.is_alive(index))
    }

    /// A number for a node's datacenter.
    pub fn datacenter(&self, index: NodeIndex) -> u16 {
        self.datacenters[usize::from(index.0)]
    }

    /// The name of a datacenter.
    pub fn datacenter_name(&self, number: u16) -> &str {
        &self.names[usize::from(number)]
    }

    /// The datacenters that have members, with how many those are.
    pub fn datacenter_sizes(&self) -> BTreeMap<&str, usize> {
        let mut sizes = BTreeMap::new();
        for node in self.members() {
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
    pub fn place(&self, replication: &Replication) -> Copies {
        let now = Placement::new(&self.ring, replication);
        let then =
            self.then.as_ref().map(|(ring, places)| (Placement::new(ring, replication), places.clone()));
        Copies { now, then }
    }
}

/// Where the copies of a keyspace are, and where they will be.
#[derive(Clone, Debug)]
pub struct Copies {
    now: Placement,
    then: Option<(Placement, Vec<NodeIndex>)>,
}

impl Copies {
    /// Where they are.
    pub fn now(&self) -> &Placement {
        &self.now
    }

    /// The replicas of a token.
    pub fn replicas(&self, token: i64) -> &[NodeIndex] {
        self.now.replicas(token)
    }

    /// Those who will be replicas of a token and are not yet: they take its writes.
    pub fn pending(&self, token: i64) -> Replicas {
        let Some((then, places)) = &self.then else { return Replicas::new() };
        let now = self.now.replicas(token);
        let places = then.replicas(token).iter().map(|node| places[usize::from(node.0)]);
        places.filter(|node| !now.contains(node)).collect()
    }

    /// The ranges of which a node will be a replica and is not yet.
    pub fn gained(&self, node: NodeIndex) -> Vec<TokenRange> {
        let Some((then, _)) = &self.then else { return Vec::new() };
        // Both rings' tokens cut the ring: within a piece neither placement changes.
        let mut cuts: Vec<i64> =
            self.now.ranges().chain(then.ranges()).map(|(range, _)| range.upto).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let before = |at: usize| cuts[(at + cuts.len() - 1) % cuts.len()];
        let pieces = cuts.iter().enumerate().map(|(at, upto)| TokenRange { after: before(at), upto: *upto });
        pieces.filter(|piece| self.pending(piece.upto).contains(&node)).collect()
    }
}
