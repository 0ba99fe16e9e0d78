//! ScyllaDB's `system.cluster_status`: the nodes, whether they are up, and their shares of the ring; and `system.token_ring`: which of
//! them have the replicas of each token range.

use coordinator::{ClusterView, Phase};
use schema::{Replication, Schema};

use crate::rows::RowBuilder;

/// A row for each node, with its share of the tokens in percent, replicas not counted. The load is null: a shard does not know that of
/// other nodes.
pub(crate) async fn cluster_status(rows: &mut RowBuilder, view: &ClusterView) {
    let mut owned = vec![0_u128; view.nodes().len()];
    for ((_, owner), length) in view.ring().tokens().iter().zip(view.ring().range_lengths()) {
        owned[usize::from(owner.0)] += length;
    }
    let nodes = view.indexes().zip(view.nodes()).zip(owned);
    rows.each(nodes, |rows, ((index, node), owned)| {
        let status = match node.phase {
            Phase::Normal => "NORMAL",
            Phase::Joining => "JOINING",
            Phase::Leaving | Phase::Removing => "LEAVING",
        };
        let percent = owned as f64 / 2_f64.powi(64) * 100.0;
        rows.row([
            ("peer", node.internode.ip().into()),
            ("dc", node.location.datacenter.as_str().into()),
            ("draining", matches!(node.phase, Phase::Leaving | Phase::Removing).into()),
            ("excluded", false.into()),
            ("host_id", node.host.0.into()),
            ("owns", (percent as f32).into()),
            ("rack", node.location.rack.as_str().into()),
            ("status", status.into()),
            ("tokens", i32::try_from(node.tokens.len()).unwrap_or(i32::MAX).into()),
            ("up", view.is_alive(index).into()),
        ]);
    })
    .await;
}

/// ScyllaDB's name in the place of a table's, where all tables of a keyspace are placed alike.
const EVERY_TABLE: &str = "<ALL>";

/// A row for each token range of each replicated keyspace and each of its replicas.
pub(crate) async fn token_ring(rows: &mut RowBuilder, schema: &Schema, view: &ClusterView) {
    for keyspace in schema.keyspaces().filter(|keyspace| keyspace.replication != Replication::Local) {
        let placement = view.place_keyspace(keyspace);
        rows.each(placement.now().ranges(), |rows, (range, replicas)| {
            for node in replicas.iter().map(|replica| view.node(*replica)) {
                rows.row([
                    ("keyspace_name", keyspace.name.as_str().into()),
                    ("table_name", EVERY_TABLE.into()),
                    ("start_token", range.after.to_string().into()),
                    ("endpoint", node.internode.ip().into()),
                    ("dc", node.location.datacenter.as_str().into()),
                    ("end_token", range.upto.to_string().into()),
                    ("rack", node.location.rack.as_str().into()),
                ]);
            }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::tests::{cell, cluster, now, rows};

    #[test]
    fn each_node_has_its_share_and_is_up_or_not() {
        let quarter = i64::MAX / 2;
        let mut nodes = cluster(&[("a", &[0, quarter]), ("b", &[-quarter])]).nodes().to_vec();
        nodes[1].alive = false;
        nodes[1].phase = Phase::Removing;
        let view = ClusterView::new(nodes[0].host, nodes).unwrap();
        let mut shown = rows("cluster_status", |rows| now(cluster_status(rows, &view)));
        shown.sort_by_key(|row| cell(row, "host_id").map(<[u8]>::to_vec));
        let owns = |row: usize| f32::from_be_bytes(cell(&shown[row], "owns").unwrap().try_into().unwrap());
        assert_eq!([owns(0), owns(1)], [50.0, 50.0]);
        let texts: Vec<&[u8]> = shown.iter().map(|row| cell(row, "status").unwrap()).collect();
        assert_eq!(texts, [&b"NORMAL"[..], b"LEAVING"]);
        let up: Vec<u8> = shown.iter().map(|row| cell(row, "up").unwrap()[0]).collect();
        assert_eq!(up, [1, 0]);
        assert_eq!(cell(&shown[0], "tokens"), Some(&2i32.to_be_bytes()[..]));
        let draining: Vec<u8> = shown.iter().map(|row| cell(row, "draining").unwrap()[0]).collect();
        assert_eq!(draining, [0, 1]);
        assert_eq!(cell(&shown[0], "load"), None);
    }
}
