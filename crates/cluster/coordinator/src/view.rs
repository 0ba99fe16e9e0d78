//! The cluster as the requests of a node see it: who is in the ring, where, and whether it is alive. A value; a change makes
//! another, which every shard is given.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use schema::{Keyspace, Replication};
use topology::{HostId, Location, NodeIndex, Placement, Replicas, Ring, RingNode, Sharder, TokenRange};

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

impl ViewNode {
    /// The shard of the node that owns a token.
    #[inline]
    pub fn shard_of(&self, token: i64) -> u16 {
        Sharder::new(self.shards).shard_of(token)
    }
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
    /// The same, and it will not come back: what only it has is lost.
    Removing,
}

impl Phase {
    /// Whether a node's tokens are going to be others'.
    pub fn goes(self) -> bool {
        matches!(self, Self::Leaving | Self::Removing)
    }
}

/// How a keyspace is replicated, and how it will be, or was when reads have gone over already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicated {
    /// Where reads find it.
    pub now: Replication,
    /// While its replicas move after ALTER KEYSPACE.
    pub other: Option<Replication>,
}

/// The nodes of the cluster and what follows from them.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// Those whom reads ask; they come first among the nodes.
    ring: Ring,
    nodes: Vec<ViewNode>,
    /// The nodes' places in `nodes`, by host.
    by_host: Vec<NodeIndex>,
    /// When nodes join or leave: the ring as it will be, or was when reads have gone over already, and its nodes' places in
    /// `nodes`.
    other: Option<(Ring, Vec<NodeIndex>)>,
    /// Whether reads ask the pending topology version.
    switched: bool,
    /// The datacenter of each node, as a number.
    datacenters: Vec<u16>,
    names: Vec<String>,
    own: NodeIndex,
    /// Who has left and may still answer what it was asked before.
    departed: Vec<ViewNode>,
    /// Who is down and has a replacement that waits for its turn.
    declared_dead: BTreeSet<HostId>,
    /// The ring's number, and the least one by which replicas may still be chosen.
    ring_number: u64,
    fence: u64,
    /// How keyspaces are replicated by the entry of the log that this view is of. Placement follows from one entry: the schema may be a
    /// moment behind or ahead.
    keyspaces: Arc<BTreeMap<String, Replicated>>,
}

impl ClusterView {
    /// A view of these nodes, `own` among them.
    ///
    /// # Panics
    /// When `own` is not among them.
    pub fn new(own: HostId, nodes: Vec<ViewNode>) -> Result<Self, topology::RingError> {
        Self::of(own, nodes, false)
    }

    /// The same when reads ask those already who will own the tokens, and writes still go to those, too, who did.
    ///
    /// # Panics
    /// When `own` is not among the nodes.
    pub fn switched(own: HostId, nodes: Vec<ViewNode>) -> Result<Self, topology::RingError> {
        Self::of(own, nodes, true)
    }

    fn of(own: HostId, mut nodes: Vec<ViewNode>, switched: bool) -> Result<Self, topology::RingError> {
        let owned = |node: &ViewNode| node.phase != Phase::Joining;
        let will_own = |node: &ViewNode| !node.phase.goes() && !node.tokens.is_empty();
        let is_read = |node: &ViewNode| if switched { will_own(node) } else { owned(node) };
        let is_other = |node: &ViewNode| if switched { owned(node) } else { will_own(node) };
        nodes.sort_by_key(|node| !is_read(node));
        let member = |node: &ViewNode| {
            (RingNode { host: node.host, location: node.location.clone() }, node.tokens.clone())
        };
        let ring = Ring::new(nodes.iter().filter(|node| is_read(node)).map(member))?;
        let other = if nodes.iter().any(|node| is_read(node) != is_other(node)) {
            let places = (0..).map(NodeIndex).zip(&nodes);
            let places = places.filter(|(_, node)| is_other(node)).map(|(at, _)| at).collect();
            Some((Ring::new(nodes.iter().filter(|node| is_other(node)).map(member))?, places))
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
        let own = NodeIndex(own as u16);
        let mut by_host: Vec<NodeIndex> = (0..nodes.len() as u16).map(NodeIndex).collect();
        by_host.sort_unstable_by_key(|index| nodes[usize::from(index.0)].host);
        Ok(Self {
            ring,
            nodes,
            by_host,
            other,
            switched,
            datacenters,
            names,
            own,
            departed: Vec::new(),
            declared_dead: BTreeSet::new(),
            ring_number: 0,
            fence: 0,
            keyspaces: Arc::default(),
        })
    }

    /// The same with the replication of keyspaces by name; of those that are not named the schema says it.
    #[must_use]
    pub fn replicating(self, keyspaces: BTreeMap<String, Replicated>) -> Self {
        Self { keyspaces: Arc::new(keyspaces), ..self }
    }

    /// The same with nodes that have left: nobody is to ask them, and connections to them stay until the cluster's log forgets them,
    /// for what they were asked by the previous topology version.
    #[must_use]
    pub fn with_departed(self, departed: Vec<ViewNode>) -> Self {
        Self { departed, ..self }
    }

    /// Who has left and may still answer what it was asked before.
    pub(crate) fn departed(&self) -> &[ViewNode] {
        &self.departed
    }

    /// The same with nodes that an operator has declared dead, and that are not being removed yet: a replacement of each waits for the
    /// topology change that is under way.
    #[must_use]
    pub fn with_declared_dead(self, declared_dead: BTreeSet<HostId>) -> Self {
        Self { declared_dead, ..self }
    }

    /// Whether an operator has declared a node dead: it is being removed or replaced, or will be when its replacement's turn comes. A
    /// topology change does not wait for it while it is down.
    pub fn is_declared_dead(&self, index: NodeIndex) -> bool {
        let node = self.node(index);
        node.phase == Phase::Removing || self.declared_dead.contains(&node.host)
    }

    /// The same with the number of its ring, which rises with every change, and the least one by which replicas may still be
    /// chosen.
    #[must_use]
    pub fn numbered(self, ring_number: u64, fence: u64) -> Self {
        Self { ring_number, fence, ..self }
    }

    /// The number of the ring by which requests of this view choose replicas.
    pub fn ring_number(&self) -> u64 {
        self.ring_number
    }

    /// Requests with lower numbers are refused.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// A node that is the whole cluster.
    pub fn alone(node: ViewNode) -> Self {
        Self::new(node.host, vec![ViewNode { alive: true, ..node }]).expect("one node makes a ring")
    }

    /// Whether this node is the whole cluster.
    pub fn is_alone(&self) -> bool {
        self.nodes.len() == 1
    }

    /// Whether nodes are on their way into the ring or out of it, or a keyspace's replicas move.
    pub fn is_changing(&self) -> bool {
        self.other.is_some() || self.keyspaces.values().any(|keyspace| keyspace.other.is_some())
    }

    /// This node.
    pub fn own(&self) -> NodeIndex {
        self.own
    }

    /// The ring of those who own tokens now, as reads see it.
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
        let place = self.by_host.binary_search_by_key(&host, |index| self.node(*index).host).ok()?;
        Some(self.by_host[place])
    }

    /// Whether a node is believed to answer; this one always does.
    pub fn is_alive(&self, index: NodeIndex) -> bool {
        index == self.own || self.node(index).alive
    }

    /// The same of a host; none that is not in the cluster lives.
    pub fn is_alive_host(&self, host: HostId) -> bool {
        self.index_of(host).is_some_and(|index| self.is_alive(index))
    }

    /// A number for a node's datacenter.
    pub fn datacenter(&self, index: NodeIndex) -> u16 {
        self.datacenters[usize::from(index.0)]
    }

    /// The name of a datacenter.
    pub fn datacenter_name(&self, number: u16) -> &str {
        &self.names[usize::from(number)]
    }

    /// Whether there is more than one datacenter.
    pub fn is_wide(&self) -> bool {
        self.names.len() > 1
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

    /// The distance of a node that stands in another datacenter.
    pub const OTHER_DATACENTER: u8 = 3;

    /// How far away a node is: 0 this node, 1 its rack, 2 its datacenter, 3 further.
    pub fn distance(&self, index: NodeIndex) -> u8 {
        let (own, other) = (&self.node(self.own).location, &self.node(index).location);
        match (index == self.own, own.datacenter == other.datacenter, own.rack == other.rack) {
            (true, _, _) => 0,
            (_, true, true) => 1,
            (_, true, false) => 2,
            _ => Self::OTHER_DATACENTER,
        }
    }

    /// Whether every replication puts its copies where the other view puts them, by the same indexes.
    pub fn places_as(&self, other: &ClusterView) -> bool {
        self.switched == other.switched
            && self.ring == other.ring
            && self.other == other.other
            && self.keyspaces == other.keyspaces
    }

    /// Where a replication puts its copies.
    pub fn place(&self, replication: &Replication) -> Copies {
        let now = Placement::new(&self.ring, replication);
        let other =
            self.other.as_ref().map(|(ring, places)| (Placement::new(ring, replication), places.clone()));
        Copies { now, other, switched: self.switched, is_altered: false }
    }

    /// Where the copies of a keyspace are.
    pub fn place_keyspace(&self, keyspace: &Keyspace) -> Copies {
        let known = self.keyspaces.get(&keyspace.name);
        let Some(other) = known.and_then(|known| known.other.as_ref()) else {
            return self.place(self.replication_of(keyspace));
        };
        let now = Placement::new(&self.ring, self.replication_of(keyspace));
        let places = self.ring.indexes().collect();
        let other = Some((Placement::new(&self.ring, other), places));
        Copies { now, other, switched: self.switched, is_altered: true }
    }

    /// How reads find a keyspace replicated.
    pub fn replication_of<'a>(&'a self, keyspace: &'a Keyspace) -> &'a Replication {
        self.keyspaces.get(&keyspace.name).map_or(&keyspace.replication, |known| &known.now)
    }

    /// How a keyspace will be replicated, or was, while its replicas move.
    pub fn other_replication_of(&self, keyspace: &Keyspace) -> Option<&Replication> {
        self.keyspaces.get(&keyspace.name)?.other.as_ref()
    }
}

/// Where the copies of a keyspace are, and where they will be.
#[derive(Clone, Debug)]
pub struct Copies {
    now: Placement,
    other: Option<(Placement, Vec<NodeIndex>)>,
    switched: bool,
    /// The replication changes, and not the ring.
    is_altered: bool,
}

impl Copies {
    /// Copies that stay where a placement has them, by the indexes of a view.
    pub fn at(placement: Placement) -> Self {
        Self { now: placement, other: None, switched: false, is_altered: false }
    }

    /// Where reads find them.
    pub fn now(&self) -> &Placement {
        &self.now
    }

    /// The replicas of a token.
    pub fn replicas(&self, token: i64) -> &[NodeIndex] {
        self.now.replicas(token)
    }

    /// Those who will be replicas of a token and are not yet, or who were when reads have gone over: they take its writes.
    pub fn pending(&self, token: i64) -> Replicas {
        let now = self.now.replicas(token);
        self.others(token).into_iter().filter(|node| !now.contains(node)).collect()
    }

    /// The replicas of a token in the ring, or by the replication, to be, or of before when reads have gone over.
    pub(crate) fn others(&self, token: i64) -> Replicas {
        let Some((other, places)) = &self.other else { return Replicas::new() };
        other.replicas(token).iter().map(|node| places[usize::from(node.0)]).collect()
    }

    /// Whether no replica of any token moves.
    pub(crate) fn is_settled(&self) -> bool {
        self.other.is_none()
    }

    /// Whether a node takes the writes of a token.
    pub(crate) fn takes(&self, node: NodeIndex, token: i64) -> bool {
        self.replicas(token).contains(&node) || self.others(token).contains(&node)
    }

    /// Whether all nodes that take the writes of one token take those of another, too.
    pub(crate) fn go_with(&self, token: i64, other: i64) -> bool {
        let mut nodes = self.replicas(token).iter().copied().chain(self.others(token));
        nodes.all(|node| self.takes(node, other))
    }

    /// Whether a node has what was written to a token before: it is a replica, or was until reads went over. One that will be a replica has not
    /// yet.
    pub(crate) fn is_complete(&self, node: NodeIndex, token: i64) -> bool {
        self.replicas(token).contains(&node) || self.switched && self.others(token).contains(&node)
    }

    /// Whether replicas of a token, or of any, move and reads have not gone over yet.
    pub(crate) fn is_leased(&self, token: Option<i64>) -> bool {
        if self.switched || self.other.is_none() {
            return false;
        }
        token.is_none_or(|token| !self.pending(token).is_empty() || !self.losing(token).is_empty())
    }

    /// Who fetches a token's range: those who will be replicas and are not yet. Where a replication has fewer replicas than before, also
    /// those who stay: what a quorum of before has, a quorum of those who are left has to have.
    fn fetchers(&self, token: i64) -> Replicas {
        if self.is_altered && !self.losing(token).is_empty() {
            self.others(token)
        } else {
            self.pending(token)
        }
    }

    /// Those who are replicas of a token and will not be, while reads still ask them: what only they have has to be fetched from them.
    pub fn losing(&self, token: i64) -> Replicas {
        if self.switched || self.other.is_none() {
            return Replicas::new();
        }
        let stay = self.others(token);
        self.now.replicas(token).iter().copied().filter(|node| !stay.contains(node)).collect()
    }

    /// When reads have gone over: whether nodes of which `knows` is false could still make a quorum of what some range's replicas
    /// were, in all or in a datacenter.
    pub fn blind_quorum(&self, view: &ClusterView, knows: impl Fn(NodeIndex) -> bool) -> bool {
        let Some((other, places)) = self.other.as_ref().filter(|_| self.switched) else { return false };
        let place = |node: &NodeIndex| places[usize::from(node.0)];
        self.pieces().iter().any(|piece| {
            let now = self.now.replicas(piece.upto);
            let were: Replicas = other.replicas(piece.upto).iter().map(place).collect();
            let groups = were.iter().map(|node| Some(view.datacenter(*node))).chain([None]);
            let blind = |datacenter: Option<u16>| {
                let inside = |node: &&NodeIndex| datacenter.is_none_or(|dc| dc == view.datacenter(**node));
                let count = were.iter().filter(inside).count();
                let came = now.iter().filter(inside).any(|node| !were.contains(node));
                let changed = came || were.iter().filter(inside).any(|node| !now.contains(node));
                changed && were.iter().filter(inside).filter(|node| !knows(**node)).count() > count / 2
            };
            groups.into_iter().any(blind)
        })
    }

    /// The ranges of which a node will be a replica and is not yet.
    pub fn gained(&self, node: NodeIndex) -> Vec<TokenRange> {
        if self.switched || self.other.is_none() {
            return Vec::new();
        }
        self.pieces().into_iter().filter(|piece| self.fetchers(piece.upto).contains(&node)).collect()
    }

    /// Those who gain a range.
    pub fn pending_nodes(&self) -> BTreeSet<NodeIndex> {
        if self.switched || self.other.is_none() {
            return BTreeSet::new();
        }
        self.pieces().iter().flat_map(|piece| self.fetchers(piece.upto)).collect()
    }

    /// The ranges of which a node is a replica whom reads ask.
    pub fn owned(&self, node: NodeIndex) -> Vec<TokenRange> {
        self.now.ranges_of(node).collect()
    }

    /// The ranges that a node keeps: as a replica, or as one that takes writes.
    pub fn kept(&self, node: NodeIndex) -> Vec<TokenRange> {
        let keeps = |piece: &TokenRange| {
            self.replicas(piece.upto).contains(&node) || self.pending(piece.upto).contains(&node)
        };
        self.pieces().into_iter().filter(keeps).collect()
    }

    /// The ring in pieces within which no placement changes: the tokens of both rings cut it.
    fn pieces(&self) -> Vec<TokenRange> {
        let others = self.other.iter().flat_map(|(other, _)| other.ranges());
        let mut cuts: Vec<i64> = self.now.ranges().chain(others).map(|(range, _)| range.upto).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let before = |at: usize| cuts[(at + cuts.len() - 1) % cuts.len()];
        cuts.iter().enumerate().map(|(at, upto)| TokenRange { after: before(at), upto: *upto }).collect()
    }
}
