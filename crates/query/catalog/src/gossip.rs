//! Cassandra's `system_views.gossip_info`: the gossip state of each node.

use std::net::SocketAddr;

use crate::rows::{Datum, RowBuilder};

/// The gossip state of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GossipFacts {
    /// Its address for other nodes.
    pub address: SocketAddr,
    /// Seconds since 1970 at its start, or more.
    pub generation: u64,
    /// Its version when it last showed that it lives.
    pub heartbeat: u64,
    /// Its values: name as in `nodetool gossipinfo`, version, text.
    pub states: Vec<(&'static str, u64, String)>,
}

pub(crate) async fn fill(rows: &mut RowBuilder, nodes: &[GossipFacts]) {
    let number = |number: u64| Datum::Int(i32::try_from(number).unwrap_or(i32::MAX));
    let add = |rows: &mut RowBuilder, node: &GossipFacts| {
        let mut row: Vec<(String, Datum)> = vec![
            ("address".to_owned(), node.address.ip().into()),
            ("port".to_owned(), i32::from(node.address.port()).into()),
            ("hostname".to_owned(), node.address.ip().to_string().into()),
            ("generation".to_owned(), number(node.generation)),
            ("heartbeat".to_owned(), number(node.heartbeat)),
        ];
        for (name, version, text) in &node.states {
            // Values of Torc alone have no columns, and tokens have none but their version.
            let (name, of_version) = (name.to_lowercase(), format!("{}_version", name.to_lowercase()));
            if rows.table().column(&name).is_some() {
                row.push((name, text.as_str().into()));
            }
            if rows.table().column(&of_version).is_some() {
                row.push((of_version, number(*version)));
            }
        }
        rows.row(row.iter().map(|(name, datum)| (name.as_str(), datum.clone())));
    };
    rows.each(nodes, add).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::tests::{cell, now, rows};

    #[test]
    fn values_that_cassandra_has_no_column_for_are_left_out() {
        let node = GossipFacts {
            address: ([10, 0, 0, 1], 7000).into(),
            generation: 1_700_000_000,
            heartbeat: u64::MAX,
            states: vec![
                ("DC", 5, "north".to_owned()),
                ("SHARDS", 6, "4,12".to_owned()),
                ("TOKENS", 7, "1,2".to_owned()),
            ],
        };
        let shown = rows("gossip_info", |rows| now(fill(rows, &[node])));
        let [row] = shown.as_slice() else { panic!("{shown:?}") };
        assert_eq!(cell(row, "dc"), Some(&b"north"[..]));
        assert_eq!(cell(row, "dc_version"), Some(&5i32.to_be_bytes()[..]));
        assert_eq!(cell(row, "tokens_version"), Some(&7i32.to_be_bytes()[..]));
        assert_eq!(cell(row, "heartbeat"), Some(&i32::MAX.to_be_bytes()[..]));
        assert_eq!(cell(row, "rack"), None);
        assert!(row.iter().all(|(name, _)| !name.starts_with("shards") && name != "tokens"));
    }
}
