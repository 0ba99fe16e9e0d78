//! `system.local`, `system.peers` and `system.peers_v2`: the nodes of the cluster, by which drivers find their way; and
//! `system_views.pending_hints`, the hints stored for them.

use std::collections::BTreeMap;

use coordinator::{ClusterView, HintFigures, ViewNode};
use schema::Schema;
use topology::HostId;

use crate::NodeFacts;
use crate::rows::{Datum, RowBuilder};

fn tokens(node: &ViewNode) -> Datum {
    Datum::texts(node.tokens.iter().map(ToString::to_string))
}

pub(crate) fn local(rows: &mut RowBuilder, schema: &Schema, node: &NodeFacts, view: &ClusterView) {
    let own = view.node(view.own());
    rows.row([
        ("key", "local".into()),
        ("bootstrapped", "COMPLETED".into()),
        ("broadcast_address", own.internode.ip().into()),
        ("broadcast_port", i32::from(own.internode.port()).into()),
        ("cluster_name", node.cluster_name.as_str().into()),
        ("cql_version", "3.4.7".into()),
        ("data_center", own.location.datacenter.as_str().into()),
        ("gossip_generation", node.started_seconds.into()),
        ("host_id", own.host.0.into()),
        ("listen_address", node.listen.ip().into()),
        ("listen_port", i32::from(node.listen.port()).into()),
        ("native_protocol_version", "5".into()),
        ("partitioner", "org.apache.cassandra.dht.Murmur3Partitioner".into()),
        ("rack", own.location.rack.as_str().into()),
        ("release_version", own.release_version.as_str().into()),
        ("rpc_address", own.native.ip().into()),
        ("rpc_port", i32::from(own.native.port()).into()),
        ("schema_version", schema.version().into()),
        ("tokens", tokens(own)),
    ]);
}

fn others(view: &ClusterView) -> impl Iterator<Item = &ViewNode> {
    let own = view.node(view.own()).host;
    view.members().iter().filter(move |node| node.host != own)
}

/// The version of a node's schema: a change of it was waited for at every live node; of another one it is the last it told of.
fn schema_version(node: &ViewNode, schema: &Schema) -> Datum {
    node.schema_version.or_else(|| node.alive.then(|| schema.version())).into()
}

pub(crate) async fn peers(rows: &mut RowBuilder, schema: &Schema, view: &ClusterView) {
    rows.each(others(view), |rows, node| {
        rows.row([
            ("peer", node.internode.ip().into()),
            ("data_center", node.location.datacenter.as_str().into()),
            ("host_id", node.host.0.into()),
            ("rack", node.location.rack.as_str().into()),
            ("release_version", node.release_version.as_str().into()),
            ("rpc_address", node.native.ip().into()),
            ("schema_version", schema_version(node, schema)),
            ("tokens", tokens(node)),
        ]);
    })
    .await;
}

pub(crate) async fn peers_v2(rows: &mut RowBuilder, schema: &Schema, view: &ClusterView) {
    rows.each(others(view), |rows, node| {
        rows.row([
            ("peer", node.internode.ip().into()),
            ("peer_port", i32::from(node.internode.port()).into()),
            ("data_center", node.location.datacenter.as_str().into()),
            ("host_id", node.host.0.into()),
            ("native_address", node.native.ip().into()),
            ("native_port", i32::from(node.native.port()).into()),
            ("rack", node.location.rack.as_str().into()),
            ("release_version", node.release_version.as_str().into()),
            ("schema_version", schema_version(node, schema)),
            ("tokens", tokens(node)),
        ]);
    })
    .await;
}

pub(crate) async fn pending_hints(
    rows: &mut RowBuilder,
    hints: &BTreeMap<HostId, HintFigures>,
    view: &ClusterView,
) {
    const UNKNOWN: &str = "UNKNOWN";
    rows.each(hints, |rows, (host, figures)| {
        let known = view.index_of(*host).map(|index| (view.node(index), view.is_alive(index)));
        let location = known.map(|(node, _)| &node.location);
        let status = match known {
            Some((_, true)) => "UP",
            Some((_, false)) => "DOWN",
            None => UNKNOWN,
        };
        rows.row([
            ("host_id", host.0.into()),
            ("address", known.map_or(Datum::Null, |(node, _)| node.internode.ip().into())),
            ("dc", location.map_or(UNKNOWN, |location| &location.datacenter).into()),
            ("files", i32::try_from(figures.files).unwrap_or(i32::MAX).into()),
            ("newest", (figures.newest_micros / 1_000).into()),
            ("oldest", (figures.oldest_micros / 1_000).into()),
            ("port", known.map_or(Datum::Null, |(node, _)| i32::from(node.internode.port()).into())),
            ("rack", location.map_or(UNKNOWN, |location| &location.rack).into()),
            ("status", status.into()),
        ]);
    })
    .await;
}

#[cfg(test)]
pub(crate) mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use mutation::row::ColumnData;
    use schema::{Keyspace, Replication};
    use topology::{HostId, Location};

    use super::*;

    /// A node for each datacenter and tokens; the first is this one.
    pub(crate) fn cluster(nodes: &[(&str, &[i64])]) -> ClusterView {
        let node = |(at, (datacenter, tokens)): (usize, &(&str, &[i64]))| ViewNode {
            host: HostId([at as u8 + 1; 16]),
            native: ([10, 0, 1, at as u8 + 1], 9042).into(),
            internode: ([10, 0, 0, at as u8 + 1], 7000).into(),
            location: Location::new(*datacenter, "r1"),
            shards: 2,
            tokens: tokens.to_vec(),
            alive: true,
            phase: coordinator::Phase::Normal,
            ready: true,
            release_version: "5.0.6".to_owned(),
            schema_version: (at != 2).then_some([9; 16]),
        };
        ClusterView::new(HostId([1; 16]), nodes.iter().enumerate().map(node).collect()).unwrap()
    }

    /// Runs a future that never waits: outside of an executor nothing yields.
    pub(crate) fn now(future: impl Future<Output = ()>) {
        let polled = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_ready(), "it waits for nothing");
    }

    /// The rows of a computed table, the first one of this name unless its keyspace is named, each as `column=bytes` of its regular columns.
    pub(crate) fn rows(name: &str, fill: impl FnOnce(&mut RowBuilder)) -> Vec<Vec<(String, Vec<u8>)>> {
        let (of, name) = name.split_once('.').map_or((None, name), |(of, name)| (Some(of), name));
        let mut computed = crate::computed_keyspaces().into_iter();
        let has = |keyspace: &Keyspace| {
            keyspace.tables.contains_key(name) && of.is_none_or(|of| of == keyspace.name)
        };
        let keyspace: Keyspace = computed.find(has).unwrap();
        assert_eq!(keyspace.replication, Replication::Local);
        let table = keyspace.tables[name].clone();
        let mut rows = RowBuilder::new(table.clone());
        fill(&mut rows);
        let updates = rows.finish();
        let shown = updates.iter().flat_map(|update| update.rows().iter()).map(|row| {
            let cells = table.columns().iter().filter_map(|column| match row.column(column.id) {
                Some(ColumnData::Simple(cell)) => Some((column.name.clone(), cell.value.to_vec())),
                Some(ColumnData::Complex(complex)) => {
                    let elements = complex.cells.iter().flat_map(|cell| cell.path.to_vec());
                    Some((column.name.clone(), elements.collect()))
                }
                None => None,
            });
            cells.collect::<Vec<_>>()
        });
        shown.collect()
    }

    pub(crate) fn cell<'a>(row: &'a [(String, Vec<u8>)], name: &str) -> Option<&'a [u8]> {
        row.iter().find(|(column, _)| column == name).map(|(_, value)| value.as_slice())
    }

    #[test]
    fn a_node_is_local_to_itself_and_the_others_are_its_peers() {
        let view = cluster(&[("a", &[1, -3]), ("b", &[2]), ("c", &[3])]);
        let node = NodeFacts {
            cluster_name: "rings".to_owned(),
            listen: ([192, 168, 0, 1], 7007).into(),
            started_seconds: 5,
            version: "1".to_owned(),
            build_mode: "debug",
            servers: Vec::new(),
        };
        let schema = Schema::default();
        // One that joins is nobody's peer yet.
        let mut nodes = view.nodes().to_vec();
        nodes[1].phase = coordinator::Phase::Joining;
        let joining = ClusterView::new(HostId([1; 16]), nodes).unwrap();
        assert_eq!(rows("peers", |rows| now(peers(rows, &schema, &joining))).len(), 1);
        assert_eq!(rows("peers_v2", |rows| now(peers_v2(rows, &schema, &joining))).len(), 1);

        let local = rows("local", |rows| local(rows, &schema, &node, &view));
        let local = &local[0];
        assert_eq!(cell(local, "broadcast_address"), Some(&[10, 0, 0, 1][..]));
        assert_eq!(cell(local, "listen_address"), Some(&[192, 168, 0, 1][..]));
        assert_eq!(cell(local, "rpc_address"), Some(&[10, 0, 1, 1][..]));
        assert_eq!(cell(local, "tokens"), Some(&b"-31"[..]));
        assert_eq!(cell(local, "data_center"), Some(&b"a"[..]));

        for (table, address) in [("peers", "rpc_address"), ("peers_v2", "native_address")] {
            let shown = |view: &ClusterView| {
                rows(table, |rows| match table {
                    "peers" => now(peers(rows, &schema, view)),
                    _ => now(peers_v2(rows, &schema, view)),
                })
            };
            let peers = shown(&view);
            let mut hosts: Vec<_> = peers.iter().map(|peer| cell(peer, "host_id").unwrap()[0]).collect();
            hosts.sort_unstable();
            assert_eq!(hosts, [2, 3], "{table}");
            for peer in &peers {
                let host = cell(peer, "host_id").unwrap()[0];
                assert_eq!(cell(peer, address), Some(&[10, 0, 1, host][..]));
                assert_eq!(cell(peer, "tokens"), Some(host.to_string().as_bytes()));
                let version = if host == 2 { [9; 16] } else { schema.version() };
                assert_eq!(cell(peer, "schema_version"), Some(&version[..]), "a live node has this node's");
            }
            let mut nodes = view.nodes().to_vec();
            nodes[2].alive = false;
            let peers = shown(&ClusterView::new(HostId([1; 16]), nodes).unwrap());
            let dead = peers.iter().find(|peer| cell(peer, "host_id").unwrap()[0] == 3).unwrap();
            assert_eq!(cell(dead, "schema_version"), None, "a dead node's unknown value is null");
        }
    }

    #[test]
    fn stored_hints_are_listed_with_their_node() {
        let view = cluster(&[("a", &[1]), ("b", &[2])]);
        let figures = |files| HintFigures {
            count: 9,
            bytes: 100,
            oldest_micros: 5_000_000,
            newest_micros: 6_000_000,
            files,
        };
        let hints = BTreeMap::from([(HostId([2; 16]), figures(3)), (HostId([7; 16]), figures(1))]);
        let mut shown = rows("pending_hints", |rows| now(pending_hints(rows, &hints, &view)));
        shown.sort_by_key(|row| cell(row, "files").map(<[u8]>::to_vec));
        let text = |row: usize, name: &str| {
            String::from_utf8_lossy(cell(&shown[row], name).unwrap_or_default()).into_owned()
        };
        assert_eq!([text(0, "status"), text(0, "dc"), text(0, "rack")], ["UNKNOWN"; 3]);
        assert_eq!(cell(&shown[0], "address"), None, "nobody knows where it is");
        assert_eq!([text(1, "status"), text(1, "dc"), text(1, "rack")], ["UP", "b", "r1"]);
        assert_eq!(cell(&shown[1], "address"), Some(&[10, 0, 0, 2][..]));
        assert_eq!(cell(&shown[1], "port"), Some(&7000i32.to_be_bytes()[..]));
        assert_eq!(cell(&shown[1], "files"), Some(&3i32.to_be_bytes()[..]));
        assert_eq!(cell(&shown[1], "oldest"), Some(&5_000i64.to_be_bytes()[..]));
        assert_eq!(cell(&shown[1], "newest"), Some(&6_000i64.to_be_bytes()[..]));
    }
}
