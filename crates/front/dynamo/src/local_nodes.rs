//! `GET /localnodes`: the addresses among which a client that spreads its requests chooses, as ScyllaDB gives them. It needs no signature.

use coordinator::{ClusterView, Phase, ViewNode};

use crate::signature::unescaped;

/// A JSON array of the addresses of the nodes that serve clients in this node's datacenter, or in the datacenter and rack that the query names;
/// an empty one where there are none of that name.
pub(crate) fn local_nodes(view: &ClusterView, query: &str) -> String {
    let asked = |name: &str| {
        let mut parameters = query.split('&').filter_map(|one| one.split_once('='));
        let (_, value) = parameters.find(|(key, value)| *key == name && !value.is_empty())?;
        Some(unescaped(&value.replace('+', " ")))
    };
    let own = view.node(view.own()).location.datacenter.clone();
    let (datacenter, rack) = (asked("dc").unwrap_or(own), asked("rack"));
    let serves = |node: &&ViewNode| {
        node.alive
            && node.ready
            && node.phase == Phase::Normal
            && node.location.datacenter == datacenter
            && rack.as_ref().is_none_or(|rack| node.location.rack == *rack)
    };
    let nodes = view.nodes().iter().filter(serves);
    serde_json::json!(nodes.map(|node| node.native.ip()).collect::<Vec<_>>()).to_string()
}

#[cfg(test)]
mod tests {
    use topology::{HostId, Location};

    use super::*;

    /// A node by its last byte of the address, its datacenter and its rack.
    fn node(number: u8, datacenter: &str, rack: &str) -> ViewNode {
        ViewNode {
            host: HostId([number; 16]),
            native: ([10, 0, 0, number], 9042).into(),
            internode: ([192, 168, 0, number], 7000).into(),
            location: Location::new(datacenter, rack),
            shards: 1,
            tokens: vec![i64::from(number)],
            alive: true,
            ready: true,
            release_version: String::new(),
            schema_version: None,
            phase: Phase::Normal,
        }
    }

    #[test]
    fn live_nodes_of_a_place_are_listed() {
        let nodes = vec![
            node(1, "east", "a"),
            node(2, "east", "b 2"),
            ViewNode { alive: false, ..node(3, "east", "a") },
            ViewNode { ready: false, ..node(4, "east", "a") },
            ViewNode { phase: Phase::Joining, ..node(5, "east", "a") },
            ViewNode { phase: Phase::Leaving, ..node(6, "east", "a") },
            node(7, "west", "a"),
        ];
        let view = ClusterView::new(HostId([1; 16]), nodes).expect("the tokens differ");
        for (query, expected) in [
            ("", r#"["10.0.0.1","10.0.0.2"]"#),
            ("dc=&rack=", r#"["10.0.0.1","10.0.0.2"]"#),
            ("dc=east&rack=b%202", r#"["10.0.0.2"]"#),
            ("rack=b+2", r#"["10.0.0.2"]"#),
            ("rack=a", r#"["10.0.0.1"]"#),
            ("dc=west", r#"["10.0.0.7"]"#),
            ("dc=west&rack=b", "[]"),
            ("dc=nowhere", "[]"),
        ] {
            assert_eq!(local_nodes(&view, query), expected, "{query}");
        }
    }
}
