//! `internode_inbound` and `internode_outbound`, the messages from and to each node; and the tables of the checks of clients' addresses.

use coordinator::ClusterView;
use topology::HostId;

use crate::rows::RowBuilder;

/// The messages from or to one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerFacts {
    /// The node.
    pub host: HostId,
    /// Figures by column. Columns without one are null.
    pub figures: Vec<(&'static str, i64)>,
}

/// A row for each node of the cluster. Others, which have left it, have no address.
pub(crate) async fn fill(rows: &mut RowBuilder, peers: &[PeerFacts], view: &ClusterView) {
    rows.each(peers, |rows, peer| {
        let Some(index) = view.index_of(peer.host) else { return };
        let node = view.node(index);
        let key = [
            ("address", node.internode.ip().into()),
            ("port", i32::from(node.internode.port()).into()),
            ("dc", node.location.datacenter.as_str().into()),
            ("rack", node.location.rack.as_str().into()),
        ];
        let figures = peer.figures.iter().map(|(column, figure)| (*column, (*figure).into()));
        rows.row(key.into_iter().chain(figures));
    })
    .await;
}

/// `cidr_filtering_metrics_counts` or `cidr_filtering_metrics_latencies`; the figures of the other one are empty.
pub(crate) fn cidr(rows: &mut RowBuilder, counts: &[(String, u64)], latencies: &[(&'static str, [f64; 5])]) {
    for (name, count) in counts {
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        rows.row([("name", name.as_str().into()), ("value", count.into())]);
    }
    for (name, [p50, p95, p99, p999, max]) in latencies {
        rows.row([
            ("name", (*name).into()),
            ("p50th", (*p50).into()),
            ("p95th", (*p95).into()),
            ("p99th", (*p99).into()),
            ("p999th", (*p999).into()),
            ("max", (*max).into()),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::tests::{cell, cluster, now, rows};

    #[test]
    fn a_node_that_has_left_has_no_row() {
        let view = cluster(&[("dc1", &[1]), ("dc2", &[2])]);
        let peer = |host| PeerFacts { host: HostId([host; 16]), figures: vec![("sent_count", 7)] };
        let peers = [peer(2), peer(9)];
        let shown = rows("internode_outbound", |rows| now(fill(rows, &peers, &view)));
        assert_eq!(shown.len(), 1);
        assert_eq!(cell(&shown[0], "sent_count"), Some(&7i64.to_be_bytes()[..]));
        assert_eq!(cell(&shown[0], "using_reserve_bytes"), None);
    }
}
