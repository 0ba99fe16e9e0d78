//! The time since each table's repair: the repaired share of this node's owned ranges, and since when. Pure.

use mutation::Seconds;
use schema::{Replication, Schema, TableId};
use topology::{NodeIndex, Placement, Ring, TokenRange};

use crate::history::History;
use crate::plan::{share, straight};

/// One table of which this node keeps a part.
#[derive(Clone, Debug, PartialEq)]
pub struct TableAge {
    /// Which table.
    pub table: TableId,
    /// The share of this node's owned ranges that was ever repaired, from 0 to 1.
    pub repaired: f64,
    /// When the part was repaired for which that is longest ago; none while nothing was.
    pub oldest: Option<Seconds>,
    /// When the part was repaired for which that is shortest ago.
    pub newest: Option<Seconds>,
    /// When everything was compared of the part for which that is longest ago; none while it never was of all that the node keeps.
    pub oldest_full: Option<Seconds>,
}

/// All tables of which this node keeps a part that others keep too.
pub fn ages(schema: &Schema, ring: &Ring, own: NodeIndex, history: &History) -> Vec<TableAge> {
    let mut out = Vec::new();
    for keyspace in schema.keyspaces() {
        if keyspace.computed || keyspace.replication == Replication::Local {
            continue;
        }
        let placement = Placement::new(ring, &keyspace.replication);
        let shared = placement.ranges().filter(|(_, replicas)| replicas.len() > 1 && replicas.contains(&own));
        let kept: Vec<TokenRange> = shared.flat_map(|(range, _)| straight(range)).collect();
        if kept.is_empty() {
            continue;
        }
        let all: f64 = kept.iter().copied().map(share).sum();
        for table in keyspace.tables.values() {
            let known = history.table(table.id).map_or(&[][..], |repaired| repaired.ranges());
            let within = known.iter().flat_map(|&(after, upto, at)| {
                let clip = move |range: &TokenRange| TokenRange {
                    after: range.after.max(after),
                    upto: range.upto.min(upto),
                };
                let clipped = kept.iter().map(clip).filter(|range| range.after < range.upto);
                clipped.map(move |range| (share(range), at))
            });
            let within: Vec<(f64, Seconds)> = within.collect();
            // The sum of nothing would be -0.
            let repaired = within.iter().fold(0.0, |sum, (share, _)| sum + share);
            out.push(TableAge {
                table: table.id,
                repaired: f64::min(repaired / all, 1.0),
                oldest: within.iter().map(|(_, at)| *at).min(),
                newest: within.iter().map(|(_, at)| *at).max(),
                oldest_full: kept
                    .iter()
                    .map(|range| history.oldest_full(table.id, *range, Seconds::MAX))
                    .min()
                    .filter(|at| *at > 0),
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use schema::{Keyspace, TableBuilder};
    use topology::{HostId, Location, RingNode};
    use types::CqlType;

    use super::*;

    #[test]
    fn only_owned_ranges_count() {
        let node = |n: u8, token| {
            (RingNode { host: HostId([n; 16]), location: Location::new("dc1", "r1") }, vec![token])
        };
        // With replication factor 2 the first node owns three quarters: all but the tokens above its own token up to the second's.
        let ring = Ring::new([node(1, -(1 << 62)), node(2, 0), node(3, 1 << 62)]).unwrap();
        let table = TableBuilder::new("ks", "t", TableId([7; 16])).partition_key("k", CqlType::Int);
        let mut keyspace = Keyspace::new("ks", Replication::Simple { factor: 2 });
        keyspace.tables.insert("t".to_owned(), Arc::new(table.build().unwrap()));
        let alone = TableBuilder::new("alone", "t", TableId([8; 16])).partition_key("k", CqlType::Int);
        let mut single = Keyspace::new("alone", Replication::Simple { factor: 1 });
        single.tables.insert("t".to_owned(), Arc::new(alone.build().unwrap()));
        let schema = Schema::default().with_keyspace(keyspace).with_keyspace(single);
        let mut history = History::default();
        let shown = |history: &History| {
            let ages = ages(&schema, &ring, NodeIndex(0), history);
            assert_eq!((ages.len(), ages[0].table), (1, TableId([7; 16])));
            assert_eq!(ages[0].oldest_full, ages[0].oldest.filter(|_| ages[0].repaired > 0.9));
            (ages[0].repaired, ages[0].oldest, ages[0].newest)
        };
        assert_eq!(shown(&history), (0.0, None, None));
        assert!(shown(&history).0.is_sign_positive());
        history.insert(TableId([7; 16]), TokenRange { after: -(1 << 61), upto: 0 }, (50, 50), true);
        assert_eq!(shown(&history), (0.0, None, None), "that lies on the other nodes");
        history.insert(TableId([7; 16]), TokenRange { after: 0, upto: i64::MAX }, (100, 100), true);
        let (repaired, oldest, newest) = shown(&history);
        assert!((repaired - 2.0 / 3.0).abs() < 1e-9, "{repaired}");
        assert_eq!((oldest, newest), (Some(100), Some(100)));
        history.insert(TableId([7; 16]), TokenRange { after: i64::MIN, upto: 0 }, (300, 300), true);
        let (repaired, oldest, newest) = shown(&history);
        assert!((repaired - 1.0).abs() < 1e-9, "{repaired}");
        assert_eq!((oldest, newest), (Some(100), Some(300)));
    }
}
