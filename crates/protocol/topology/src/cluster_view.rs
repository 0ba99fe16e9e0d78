//! The cluster as the requests of a node see it: the nodes of the ring, their place and their liveness. A value; a change makes
//! another, which every shard is given. The placements of its keyspaces are computed before it is ([`ClusterView::with_placed`]).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use schema::{Keyspace, Replication, Table, TableId};

use crate::data_placement::DataPlacement;
use crate::placed_ring::PlacedRing;
use crate::tablets::TabletMaps;
use crate::{HostId, Location, NodeIndex, Replicas, Ring, RingNode, Sharder};

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewNode {
    /// Its role.
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
    /// Whether the node is of the ring of the present owners of tokens, or of the future ones.
    fn is_in_ring(&self, to_be: bool) -> bool {
        if to_be { !self.phase.goes() && !self.tokens.is_empty() } else { self.phase != Phase::Joining }
    }

    /// Whether rings have it where they have the other one.
    fn is_placed_as(&self, other: &Self) -> bool {
        self.host == other.host
            && self.phase == other.phase
            && self.location == other.location
            && self.tokens == other.tokens
    }
}

/// A shard of a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeShard<'a> {
    /// The node.
    pub node: &'a ViewNode,
    /// The number of the shard there.
    pub shard: u16,
}

/// Where a node is on its way through the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// It owns its tokens.
    #[default]
    Normal,
    /// It will own its tokens: it takes writes of its future ranges, and is not read from.
    Joining,
    /// It owns its tokens still; their future owners take writes already.
    Leaving,
    /// The same, and it will not come back: rows that only it has are lost.
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

/// The nodes of the cluster and everything derived from them.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// The nodes that are read from; they come first.
    ring: PlacedRing,
    nodes: Vec<ViewNode>,
    /// The nodes' places in `nodes`, by host.
    by_host: Arc<[NodeIndex]>,
    /// When nodes join or leave: the ring as it will be, or was when reads have gone over already, and its nodes' places in
    /// `nodes`.
    other: Option<(PlacedRing, Arc<[NodeIndex]>)>,
    /// Whether reads ask the pending topology version.
    switched: bool,
    /// The datacenter of each node, as a number.
    datacenters: Arc<[u16]>,
    names: Arc<[String]>,
    own: NodeIndex,
    /// The nodes that have left and may still answer earlier requests.
    departed: Vec<ViewNode>,
    /// The node that is down and has a replacement that waits until no other change is under way.
    declared_dead: BTreeSet<HostId>,
    /// The nodes without which the topology change under way continues while they are down.
    ignored: BTreeSet<HostId>,
    /// The generations of the nodes that gossip knows: which lifetime of its process each is in.
    generations: Arc<BTreeMap<HostId, u64>>,
    /// The ring's number, and the least one by which replicas may still be chosen.
    topology_version: u64,
    fence: u64,
    /// The least version of the cluster's state that a node of it reads and writes.
    oldest_version: u32,
    /// How keyspaces are replicated by the entry of the log that this view is of. Placement follows from one entry: the schema may be a
    /// moment behind or ahead.
    keyspaces: Arc<BTreeMap<String, Replicated>>,
    /// The tables that do not lie with their keyspaces.
    tablets: TabletMaps,
}

impl ClusterView {
    /// A view of these nodes, `own` among them.
    ///
    /// # Errors
    /// As [`Ring::new`](crate::Ring::new).
    ///
    /// # Panics
    /// When `own` is not among them.
    pub fn new(own: HostId, nodes: Vec<ViewNode>) -> Result<Self, crate::RingError> {
        Self::of(own, nodes, false)
    }

    /// The same when reads have switched to the future owners of the tokens, and writes still go to the previous ones, too.
    ///
    /// # Errors
    /// As [`Ring::new`](crate::Ring::new).
    ///
    /// # Panics
    /// When `own` is not among the nodes.
    pub fn switched(own: HostId, nodes: Vec<ViewNode>) -> Result<Self, crate::RingError> {
        Self::of(own, nodes, true)
    }

    fn of(own: HostId, mut nodes: Vec<ViewNode>, switched: bool) -> Result<Self, crate::RingError> {
        let is_read = |node: &ViewNode| node.is_in_ring(switched);
        let is_other = |node: &ViewNode| node.is_in_ring(!switched);
        nodes.sort_by_key(|node| !is_read(node));
        let member = |node: &ViewNode| {
            (RingNode { host: node.host, location: node.location.clone() }, node.tokens.clone())
        };
        let ring = PlacedRing::new(Ring::new(nodes.iter().filter(|node| is_read(node)).map(member))?);
        let other = if nodes.iter().any(|node| is_read(node) != is_other(node)) {
            let places = (0..).map(NodeIndex).zip(&nodes);
            let places = places.filter(|(_, node)| is_other(node)).map(|(at, _)| at).collect();
            let ring = Ring::new(nodes.iter().filter(|node| is_other(node)).map(member))?;
            Some((PlacedRing::new(ring), places))
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
        let host = |index: NodeIndex| nodes[usize::from(index.0)].host;
        assert!(by_host.windows(2).all(|two| host(two[0]) < host(two[1])), "a host is one node");
        // Reads choose nodes by their indexes in the ring.
        let is_placed = |(node, of_ring): (&ViewNode, &RingNode)| node.host == of_ring.host;
        let read = ring.ring().nodes();
        assert!(nodes.iter().zip(read).all(is_placed), "the nodes of the ring come first, in its order");
        assert!(!nodes[read.len()..].iter().any(is_read), "every node that reads ask is in the ring");
        Ok(Self {
            ring,
            nodes,
            by_host: by_host.into(),
            other,
            switched,
            datacenters,
            names: names.into(),
            own,
            departed: Vec::new(),
            declared_dead: BTreeSet::new(),
            ignored: BTreeSet::new(),
            generations: Arc::default(),
            topology_version: 0,
            fence: 0,
            oldest_version: u32::MAX,
            keyspaces: Arc::default(),
            tablets: TabletMaps::default(),
        })
    }

    /// A view of these nodes by the node that has `before`, whether reads have gone over or not. Where only liveness has changed since, it shares
    /// rings and placements with `before`.
    ///
    /// # Errors
    /// When the nodes are an invalid ring.
    ///
    /// # Panics
    /// When the node itself is not among them.
    pub fn after(
        before: &ClusterView,
        mut nodes: Vec<ViewNode>,
        switched: bool,
    ) -> Result<Self, crate::RingError> {
        nodes.sort_by_key(|node| !node.is_in_ring(switched));
        let is_same = before.switched == switched
            && before.nodes.len() == nodes.len()
            && before.nodes.iter().zip(&nodes).all(|(had, node)| had.is_placed_as(node));
        if !is_same {
            return Self::of(before.node(before.own).host, nodes, switched);
        }
        let own = before.own;
        assert_eq!(nodes[usize::from(own.0)].host, before.node(own).host, "a node keeps its place");
        Ok(Self {
            ring: before.ring.clone(),
            nodes,
            by_host: before.by_host.clone(),
            other: before.other.clone(),
            switched,
            datacenters: before.datacenters.clone(),
            names: before.names.clone(),
            own: before.own,
            departed: Vec::new(),
            declared_dead: BTreeSet::new(),
            ignored: BTreeSet::new(),
            generations: Arc::default(),
            topology_version: 0,
            fence: 0,
            oldest_version: u32::MAX,
            keyspaces: Arc::default(),
            tablets: before.tablets.clone(),
        })
    }

    /// Its rings with the placements that are known: the ring, and while it changes the other one.
    pub fn rings(&self) -> Vec<PlacedRing> {
        let other = self.other.as_ref().map(|(ring, _)| ring.clone());
        std::iter::once(self.ring.clone()).chain(other).collect()
    }

    /// The replications by which the keyspaces are placed on each of [`ClusterView::rings`].
    pub fn replications(&self) -> Vec<Vec<Replication>> {
        let mut now = vec![Replication::Local];
        now.extend(self.keyspaces.values().map(|keyspace| keyspace.now.clone()));
        let altered = self.keyspaces.values().filter_map(|keyspace| keyspace.other.clone());
        let all = now.iter().cloned().chain(altered).collect();
        let mut replications = vec![all];
        replications.extend(self.other.is_some().then_some(now));
        replications
    }

    /// The same with the placements of its rings, so that no request computes one.
    ///
    /// # Panics
    /// When there are more or fewer rings.
    #[must_use]
    pub fn with_placed(mut self, rings: Vec<PlacedRing>) -> Self {
        assert_eq!(
            rings.len(),
            1 + usize::from(self.other.is_some()),
            "the rings of a view stay as they are"
        );
        let mut rings = rings.into_iter();
        self.ring = rings.next().expect("a view has a ring");
        if let (Some((_, places)), Some(ring)) = (self.other.take(), rings.next()) {
            self.other = Some((ring, places));
        }
        self
    }

    /// The same with the replication of keyspaces by name; of those that are not named the schema says it.
    #[must_use]
    pub fn replicating(self, keyspaces: BTreeMap<String, Replicated>) -> Self {
        Self { keyspaces: Arc::new(keyspaces), ..self }
    }

    /// The same with nodes that have left: no new requests go to them, and connections to them stay until the cluster's log forgets them,
    /// for requests by the previous topology version.
    #[must_use]
    ///
    /// # Panics
    /// When one of them is a node of the view.
    pub fn with_departed(self, departed: Vec<ViewNode>) -> Self {
        let has_left = |node: &ViewNode| self.index_of(node.host).is_none();
        assert!(departed.iter().all(has_left), "a node that has left is no node of the view");
        Self { departed, ..self }
    }

    /// The nodes that have left and may still answer earlier requests.
    pub fn departed(&self) -> &[ViewNode] {
        &self.departed
    }

    /// The same with nodes that an operator has declared dead, and that are not being removed yet: a replacement of each waits for the
    /// topology change that is under way.
    #[must_use]
    pub fn with_declared_dead(self, declared_dead: BTreeSet<HostId>) -> Self {
        Self { declared_dead, ..self }
    }

    /// The same with the nodes that an operator has named as dead for the topology change that is under way.
    #[must_use]
    pub fn with_ignored(self, ignored: BTreeSet<HostId>) -> Self {
        Self { ignored, ..self }
    }

    /// The same with the generations of nodes: which lifetime of its process each is in.
    #[must_use]
    pub fn with_generations(self, generations: BTreeMap<HostId, u64>) -> Self {
        Self { generations: Arc::new(generations), ..self }
    }

    /// The generation of a node, which grows with each start of its process; none when it is not known.
    pub fn generation(&self, host: HostId) -> Option<u64> {
        self.generations.get(&host).copied()
    }

    /// Whether an operator has declared a node dead: it is being removed or replaced, or will be when its replacement's turn comes, or is
    /// ignored. A topology change does not wait for it while it is down.
    pub fn is_declared_dead(&self, index: NodeIndex) -> bool {
        self.is_ignored(index)
            || self.node(index).phase == Phase::Removing
            || self.declared_dead.contains(&self.node(index).host)
    }

    /// Whether the topology change under way continues without a node: it is down, and an operator has named it as dead for this change.
    pub fn is_ignored(&self, index: NodeIndex) -> bool {
        let node = self.node(index);
        !node.alive && self.ignored.contains(&node.host)
    }

    /// The same with the least version of the cluster's state that a node reads and writes; without it, all nodes are as this one.
    #[must_use]
    pub fn with_oldest_version(self, oldest_version: u32) -> Self {
        Self { oldest_version, ..self }
    }

    /// The least version of the cluster's state that a node reads and writes: nodes that must act alike act as
    /// nodes of this version do. The greatest number where no log says it.
    pub fn oldest_version(&self) -> u32 {
        self.oldest_version
    }

    /// The same with the number of its ring, which rises with every change, and the least one by which replicas may still be
    /// chosen.
    #[must_use]
    ///
    /// # Panics
    /// When its own ring may not be used.
    pub fn numbered(self, topology_version: u64, fence: u64) -> Self {
        assert!(fence <= topology_version, "requests of the view's own topology version are not refused");
        Self { topology_version, fence, ..self }
    }

    /// The number of the ring by which requests of this view choose replicas.
    pub fn topology_version(&self) -> u64 {
        self.topology_version
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

    /// The ring of the present owners of tokens, as reads see it.
    pub fn ring(&self) -> &Ring {
        self.ring.ring()
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
        &self.nodes[..self.ring().nodes().len()]
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

    /// How many racks each datacenter has, by name.
    pub fn rack_counts(&self) -> BTreeMap<&str, usize> {
        let mut racks: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for node in self.members() {
            racks.entry(&*node.location.datacenter).or_default().insert(&*node.location.rack);
        }
        racks.into_iter().map(|(datacenter, racks)| (datacenter, racks.len())).collect()
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
            && self.tablets == other.tablets
    }

    /// The same with tables that do not lie with their keyspaces.
    #[must_use]
    pub fn with_tablets(self, tablets: TabletMaps) -> Self {
        Self { tablets, ..self }
    }

    /// The tables that do not lie with their keyspaces.
    pub fn tablets(&self) -> &TabletMaps {
        &self.tablets
    }

    /// The shard of a node that owns a token of a table.
    #[inline]
    pub fn owner(&self, node: NodeIndex, table: TableId, token: i64) -> NodeShard<'_> {
        let node = self.node(node);
        let shard = self.tablets.shard_of(node.host, Sharder::new(node.shards), table, token);
        NodeShard { node, shard }
    }

    /// The first shard of a node, for requests that are of no token.
    pub fn first_shard(&self, node: NodeIndex) -> NodeShard<'_> {
        NodeShard { node: self.node(node), shard: 0 }
    }

    /// Where a replication puts its copies. Computed here unless it is the replication of a keyspace ([`ClusterView::with_placed`]).
    pub fn place(&self, replication: &Replication) -> DataPlacement {
        let other = self.other.as_ref().map(|(ring, places)| (ring.place(replication), places.clone()));
        DataPlacement::new(self.ring.place(replication), other, self.switched)
    }

    /// Where the copies of a keyspace are.
    pub fn place_keyspace(&self, keyspace: &Keyspace) -> DataPlacement {
        let known = self.keyspaces.get(&keyspace.name);
        let now = self.replication_of(keyspace);
        let Some(other) = known.and_then(|known| known.other.as_ref()) else { return self.place(now) };
        let other = (self.ring.place(other), self.ring().indexes().collect());
        DataPlacement::altered(self.ring.place(now), other, self.switched)
    }

    /// Where the copies of a table are, if it does not lie with its keyspace.
    pub fn place_tablets(&self, table: TableId) -> Option<DataPlacement> {
        Some(DataPlacement::at(self.tablets.of(table)?.place(|host| self.index_of(host))))
    }

    /// Where the copies of a table are.
    pub fn place_table(&self, keyspace: &Keyspace, table: &Table) -> DataPlacement {
        assert_eq!(table.keyspace, keyspace.name, "a table is placed with its keyspace's replication");
        self.place_tablets(table.id).unwrap_or_else(|| self.place_keyspace(keyspace))
    }

    /// Where the copies of a keyspace's tables are, with the tables of each placement.
    pub fn place_tables<'a>(
        &self,
        keyspace: &'a Keyspace,
    ) -> impl Iterator<Item = (DataPlacement, Vec<&'a Arc<Table>>)> + use<'a> {
        let (of_tablets, others): (Vec<_>, Vec<_>) =
            keyspace.tables.values().partition(|table| self.tablets.of(table.id).is_some());
        let placed: Vec<_> = of_tablets
            .into_iter()
            .filter_map(|table| Some((self.place_tablets(table.id)?, vec![table])))
            .collect();
        std::iter::once((self.place_keyspace(keyspace), others)).chain(placed)
    }

    /// Where the copies of keyspaces are, once for all that have one replication, with the first of them; and of each table that
    /// does not lie with its keyspace.
    pub fn place_each<'a>(
        &self,
        keyspaces: impl Iterator<Item = &'a Arc<Keyspace>>,
    ) -> Vec<(&'a Keyspace, DataPlacement)> {
        let mut placed: Vec<(&Keyspace, DataPlacement)> = Vec::new();
        let mut of_tablets: Vec<(&Keyspace, DataPlacement)> = Vec::new();
        let replication =
            |keyspace: &'a Keyspace| (self.replication_of(keyspace), self.other_replication_of(keyspace));
        for keyspace in keyspaces {
            if placed.iter().all(|(first, _)| replication(first) != replication(keyspace)) {
                placed.push((keyspace, self.place_keyspace(keyspace)));
            }
            let own = keyspace.tables.values().filter_map(|table| self.place_tablets(table.id));
            of_tablets.extend(own.map(|placement| (&**keyspace, placement)));
        }
        placed.extend(of_tablets);
        placed
    }

    /// When reads have switched: whether nodes of which `knows` is false could still make a quorum of the previous replicas of some range,
    /// in all or in a datacenter.
    pub fn blind_quorum(&self, copies: &DataPlacement, knows: impl Fn(NodeIndex) -> bool) -> bool {
        if !self.switched || copies.is_settled() {
            return false;
        }
        copies.pieces().any(|piece| {
            let (now, were): (_, Replicas) = (piece.now, piece.others().collect());
            let groups = were.iter().map(|node| Some(self.datacenter(*node))).chain([None]);
            let blind = |datacenter: Option<u16>| {
                let inside = |node: &&NodeIndex| datacenter.is_none_or(|dc| dc == self.datacenter(**node));
                let count = were.iter().filter(inside).count();
                let came = now.iter().filter(inside).any(|node| !were.contains(node));
                let changed = came || were.iter().filter(inside).any(|node| !now.contains(node));
                changed && were.iter().filter(inside).filter(|node| !knows(**node)).count() > count / 2
            };
            groups.into_iter().any(blind)
        })
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
