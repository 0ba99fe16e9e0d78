//! Tables whose token ranges are placed one by one, apart from ring and replication strategy: tablets. Of a token of such a table its map
//! says the nodes, and the shard on each.
//!
//! No statement makes a table of tablets yet: tables lie with their keyspaces, and a token's shard follows from the token. The maps come with
//! the view, so that everything that asks for replicas or shards goes by them; `coordinator it: table_placement` holds it to that.

use std::collections::BTreeSet;
use std::sync::Arc;

use schema::TableId;
use stdx::HashMap;

use crate::{HostId, NodeIndex, Placement, Sharder};

/// A range of tokens of a table, with its replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tablet {
    /// Its last token; it begins behind the last one of the tablet before.
    pub upto: i64,
    /// Its replicas in the order in which they are asked, each with its shard.
    pub replicas: Vec<(HostId, u16)>,
}

/// The tablets of a table, in the ring's order. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TabletMap(Arc<[Tablet]>);

impl TabletMap {
    /// # Panics
    /// When the tablets do not cover the ring, are in another order, or one has no replica.
    pub fn new(tablets: Vec<Tablet>) -> Self {
        assert_eq!(tablets.last().map(|last| last.upto), Some(i64::MAX), "tablets cover the ring");
        assert!(tablets.is_sorted_by(|one, next| one.upto < next.upto), "tablets are in the ring's order");
        assert!(tablets.iter().all(|tablet| !tablet.replicas.is_empty()), "a tablet has a replica");
        Self(tablets.into())
    }

    /// All of them.
    pub fn tablets(&self) -> &[Tablet] {
        &self.0
    }

    /// Where they are, by the indexes of a ring or view; without the replicas that are not there.
    pub fn place(&self, index_of: impl Fn(HostId) -> Option<NodeIndex>) -> Placement {
        let replicas =
            |tablet: &Tablet| tablet.replicas.iter().filter_map(|(host, _)| index_of(*host)).collect();
        Placement::of_ranges(self.0.iter().map(|tablet| (tablet.upto, replicas(tablet))).collect())
    }

    /// The tablet of a token.
    pub fn tablet_of(&self, token: i64) -> &Tablet {
        &self.0[self.0.partition_point(|tablet| tablet.upto < token)]
    }
}

/// The tablets of all tables that have some. Cheap to clone; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TabletMaps(Option<Arc<HashMap<TableId, TabletMap>>>);

impl TabletMaps {
    /// The tablets of these tables.
    pub fn new(maps: impl IntoIterator<Item = (TableId, TabletMap)>) -> Self {
        let maps: HashMap<TableId, TabletMap> = maps.into_iter().collect();
        Self((!maps.is_empty()).then(|| Arc::new(maps)))
    }

    /// The tablets of a table; none of one that lies with its keyspace.
    #[inline]
    pub fn of(&self, table: TableId) -> Option<&TabletMap> {
        self.0.as_ref()?.get(&table)
    }

    /// The shards of a node that own a table's tokens.
    pub fn sharder(&self, node: HostId, shard_count: u16, table: TableId) -> TableSharder {
        let tablets = self.of(table).map(|map| (map.clone(), node));
        TableSharder { by_token: Sharder::new(shard_count), tablets }
    }

    /// The shard of a node that owns a token of a table.
    #[inline]
    pub fn shard_of(&self, node: HostId, by_token: Sharder, table: TableId, token: i64) -> u16 {
        match self.of(table) {
            None => by_token.shard_of(token),
            Some(map) => shard_in(map, node, by_token, token),
        }
    }
}

/// The shard that a tablet map names; of a token of which the node is no replica, the one by the token. A map of a time at which the node had
/// more shards means the remainder.
fn shard_in(map: &TabletMap, node: HostId, by_token: Sharder, token: i64) -> u16 {
    let here = map.tablet_of(token).replicas.iter().find(|(host, _)| *host == node);
    here.map_or_else(|| by_token.shard_of(token), |(_, shard)| shard % by_token.shard_count())
}

/// Maps the tokens of one table to the shards of one node. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSharder {
    by_token: Sharder,
    tablets: Option<(TabletMap, HostId)>,
}

impl From<Sharder> for TableSharder {
    /// Of a table that lies with its keyspace.
    fn from(by_token: Sharder) -> Self {
        Self { by_token, tablets: None }
    }
}

impl TableSharder {
    /// How many shards the node has.
    pub fn shard_count(&self) -> u16 {
        self.by_token.shard_count()
    }

    /// Whether token and number of shards decide, as drivers compute it.
    pub fn is_by_token(&self) -> bool {
        self.tablets.is_none()
    }

    /// The shard that owns a token.
    #[inline]
    pub fn shard_of(&self, token: i64) -> u16 {
        match &self.tablets {
            None => self.by_token.shard_of(token),
            Some((map, node)) => shard_in(map, *node, self.by_token, token),
        }
    }

    /// The shards of another node by whose mapping (`other`, of the same table) they may own tokens that shard `own` of this node owns.
    /// Of a tablet of which a node is no replica, any of its shards may.
    pub fn shards_in_common(&self, own: u16, other: &Self) -> BTreeSet<u16> {
        let (ones, others) = (self.shard_count(), other.shard_count());
        assert!(own < ones, "a shard of this node");
        let (Some((map, node)), Some((_, other_node))) = (&self.tablets, &other.tablets) else {
            return (0..others).filter(|other| by_token_in_common((own, ones), (*other, others))).collect();
        };
        let mut found = BTreeSet::new();
        for tablet in map.tablets() {
            let shard_of = |host: &HostId| {
                tablet.replicas.iter().find(|(replica, _)| replica == host).map(|(_, shard)| *shard)
            };
            if shard_of(node).is_some_and(|shard| shard % ones != own) {
                continue;
            }
            match shard_of(other_node) {
                Some(shard) => drop(found.insert(shard % others)),
                None => found.extend(0..others),
            }
        }
        found
    }
}

/// Whether two shards, each of so many, own tokens in common where the token decides.
fn by_token_in_common((one, ones): (u16, u16), (other, others): (u16, u16)) -> bool {
    let (one, ones, other, others) = (u32::from(one), u32::from(ones), u32::from(other), u32::from(others));
    one * others < (other + 1) * ones && other * ones < (one + 1) * others
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: TableId = TableId([1; 16]);
    const NODES: [HostId; 2] = [HostId([1; 16]), HostId([2; 16])];

    fn maps() -> TabletMaps {
        let tablet = |upto, replicas: &[(HostId, u16)]| Tablet { upto, replicas: replicas.to_vec() };
        let tablets = vec![
            tablet(-7, &[(NODES[0], 2), (NODES[1], 0)]),
            tablet(40, &[(NODES[1], 1)]),
            tablet(i64::MAX, &[(NODES[0], 5)]),
        ];
        TabletMaps::new([(TABLE, TabletMap::new(tablets))])
    }

    #[test]
    fn a_tablet_says_the_shard_of_each_replica() {
        let maps = maps();
        for (node, shards) in [(NODES[0], [2, 2, 2, 2]), (NODES[1], [0, 0, 1, 1])] {
            let sharder = maps.sharder(node, 3, TABLE);
            assert!(!sharder.is_by_token());
            for (token, shard) in [i64::MIN, -7, -6, 40].into_iter().zip(shards) {
                let is_replica =
                    maps.of(TABLE).unwrap().tablet_of(token).replicas.iter().any(|r| r.0 == node);
                let shard = if is_replica { shard } else { Sharder::new(3).shard_of(token) };
                assert_eq!(sharder.shard_of(token), shard, "{token}");
                assert_eq!(maps.shard_of(node, Sharder::new(3), TABLE, token), shard, "{token}");
            }
        }
        // Shard 5 of a node that has three shards now.
        assert_eq!(maps.sharder(NODES[0], 3, TABLE).shard_of(41), 2);
    }

    #[test]
    fn of_other_tables_the_token_decides() {
        let sharder = maps().sharder(NODES[0], 3, TableId([2; 16]));
        assert!(sharder.is_by_token());
        assert_eq!(sharder, Sharder::new(3).into());
    }

    /// The shards of another node that own tokens of a shard, by looking at tokens.
    fn looked_up(one: &TableSharder, own: u16, other: &TableSharder) -> BTreeSet<u16> {
        // Of all of the ring, and of the part of it over which the shards repeat.
        let steps = |bits: u32| (0..4096u64).map(move |step| (step << bits) as i64);
        let tokens = steps(52).chain(steps(40)).chain(-100..100);
        tokens.filter(|token| one.shard_of(*token) == own).map(|token| other.shard_of(token)).collect()
    }

    #[test]
    fn shards_in_common_are_those_that_own_a_token_in_common() {
        for (ones, others) in [(1, 1), (1, 4), (2, 3), (3, 2), (4, 4), (5, 8)] {
            let (one, other) =
                (TableSharder::from(Sharder::new(ones)), TableSharder::from(Sharder::new(others)));
            for own in 0..ones {
                assert_eq!(
                    one.shards_in_common(own, &other),
                    looked_up(&one, own, &other),
                    "{own} of {ones}, {others}"
                );
            }
        }
    }

    #[test]
    fn shards_in_common_go_by_the_tablets() {
        let tablet = |upto, one, other| Tablet { upto, replicas: vec![(NODES[0], one), (NODES[1], other)] };
        // Shard 0 of the one owns tokens of shards 3 and 1 of the other, which by the tokens alone are of none of its.
        let tablets = vec![tablet(-50, 0, 3), tablet(0, 1, 0), tablet(60, 0, 1), tablet(i64::MAX, 2, 2)];
        let maps = TabletMaps::new([(TABLE, TabletMap::new(tablets))]);
        let (one, other) = (maps.sharder(NODES[0], 3, TABLE), maps.sharder(NODES[1], 4, TABLE));
        for own in 0..3 {
            assert_eq!(one.shards_in_common(own, &other), looked_up(&one, own, &other), "shard {own}");
        }
        assert_eq!(one.shards_in_common(0, &other), [1, 3].into());
        for own in 0..4 {
            assert_eq!(other.shards_in_common(own, &one), looked_up(&other, own, &one), "shard {own}");
        }
    }

    #[test]
    fn of_a_tablet_without_the_node_any_shard_may_have_some() {
        let maps = maps();
        let (one, other) = (maps.sharder(NODES[0], 6, TABLE), maps.sharder(NODES[1], 2, TABLE));
        for own in 0..6 {
            assert!(
                one.shards_in_common(own, &other).is_superset(&looked_up(&one, own, &other)),
                "shard {own}"
            );
        }
    }
}
