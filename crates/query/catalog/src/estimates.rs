//! `system.size_estimates` and `system.table_estimates`: about how much lies in the ranges whose first replica the node
//! is. Analytics tools split their scans by these.

use coordinator::ClusterView;
use schema::{Replication, Schema};
use topology::TokenRange;

use crate::rows::{Datum, RowBuilder};
use crate::{Facts, SizeFacts};

const PRIMARY: &str = "primary";

/// A range around the ring's end as the two ranges before and after it, the way that scans ask for them. The least token
/// stands for both ends.
fn unwrap(range: TokenRange) -> impl Iterator<Item = TokenRange> {
    let TokenRange { after, upto } = range;
    let whole = upto == i64::MIN || after < upto;
    let first = TokenRange { after, upto: if whole { upto } else { i64::MIN } };
    let second = TokenRange { after: i64::MIN, upto };
    [Some(first), (!whole).then_some(second)].into_iter().flatten()
}

/// The ranges that end at this node's tokens in the ring of its datacenter alone.
fn local_primary(view: &ClusterView) -> Vec<TokenRange> {
    let own = view.datacenter(view.own());
    let here = view.ring().tokens().iter().filter(|(_, node)| view.datacenter(*node) == own);
    let tokens: Vec<_> = here.collect();
    let Some(mut after) = tokens.last().map(|(token, _)| *token) else { return Vec::new() };
    let mut ranges = Vec::new();
    for (upto, owner) in tokens {
        if *owner == view.own() {
            ranges.push(TokenRange { after, upto: *upto });
        }
        after = *upto;
    }
    ranges
}

/// A part of a node's ranges of a keyspace.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    kind: &'static str,
    range: TokenRange,
    /// How much of all that the node keeps, partitions being spread evenly.
    share: f64,
}

fn parts(view: &ClusterView, replication: &Replication) -> Vec<Part> {
    let data_placement = view.place(replication);
    let placement = data_placement.now();
    let kept: f64 = placement.ranges_of(view.own()).map(TokenRange::share).sum();
    let primary: Vec<TokenRange> = placement.primary_ranges_of(view.own()).collect();
    let mut parts = Vec::new();
    for (kind, ranges) in [(PRIMARY, primary), ("local_primary", local_primary(view))] {
        parts.extend(ranges.into_iter().flat_map(unwrap).map(|range| {
            let share = if kept == 0.0 { 0.0 } else { (range.share() / kept).min(1.0) };
            Part { kind, range, share }
        }));
    }
    parts
}

pub(crate) async fn fill(rows: &mut RowBuilder, schema: &Schema, facts: &Facts) {
    let with_kind = rows.table().column("range_type").is_some();
    let add = |rows: &mut RowBuilder, size: &SizeFacts| {
        let Some(table) = schema.table_by_id(size.table) else { return };
        let Some(keyspace) = schema.keyspace(&table.keyspace) else { return };
        if keyspace.replication == Replication::Local {
            return;
        }
        let parts = parts(&facts.view, &keyspace.replication);
        for part in parts.iter().filter(|part| with_kind || part.kind == PRIMARY) {
            let mut row = vec![
                ("keyspace_name", Datum::from(table.keyspace.as_str())),
                ("table_name", table.name.as_str().into()),
                ("range_start", part.range.after.to_string().into()),
                ("range_end", part.range.upto.to_string().into()),
                ("mean_partition_size", size.partition_bytes_mean.into()),
                ("partitions_count", ((size.partitions as f64 * part.share) as i64).into()),
            ];
            if with_kind {
                row.push(("range_type", part.kind.into()));
            }
            rows.row(row);
        }
    };
    rows.each(&facts.sizes, add).await;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::nodes::tests::cluster;

    fn shown(view: &ClusterView, replication: &Replication) -> Vec<String> {
        let show =
            |part: &Part| format!("{} {} {} {:.2}", part.kind, part.range.after, part.range.upto, part.share);
        parts(view, replication).iter().map(show).collect()
    }

    const QUARTER: i64 = 1 << 62;

    #[test]
    fn a_range_around_the_end_is_two() {
        let alone = cluster(&[("a", &[QUARTER])]);
        let least = i64::MIN;
        let expected = [
            format!("primary {QUARTER} {least} 0.25"),
            format!("primary {least} {QUARTER} 0.75"),
            format!("local_primary {QUARTER} {least} 0.25"),
            format!("local_primary {least} {QUARTER} 0.75"),
        ];
        assert_eq!(shown(&alone, &Replication::Simple { factor: 1 }), expected);
        let least_token = cluster(&[("a", &[i64::MIN])]);
        let expected = ["primary", "local_primary"].map(|kind| format!("{kind} {least} {least} 1.00"));
        assert_eq!(shown(&least_token, &Replication::Simple { factor: 1 }), expected);
    }

    #[test]
    fn a_node_lists_the_ranges_whose_first_replica_it_is() {
        let view = cluster(&[("a", &[0]), ("b", &[QUARTER]), ("a", &[-QUARTER])]);
        // Every node keeps everything; this one is first for a quarter of it, and in its datacenter too.
        let everything = shown(&view, &Replication::Simple { factor: 3 });
        assert_eq!(
            everything,
            ["primary", "local_primary"].map(|kind| format!("{kind} {} 0 0.25", -QUARTER))
        );
        // It keeps nothing of a keyspace that lives elsewhere.
        let elsewhere = Replication::NetworkTopology { factors: BTreeMap::from([("b".to_owned(), 1)]) };
        assert_eq!(shown(&view, &elsewhere), [format!("local_primary {} 0 0.00", -QUARTER)]);
    }
}
