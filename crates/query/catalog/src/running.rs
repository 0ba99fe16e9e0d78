//! The running node in the tables of both peers: its snapshots, its options, its versions, the servers for its clients, and ScyllaDB's
//! `system.runtime_info`.

use crate::rows::{Datum, RowBuilder};
use crate::{Facts, NodeFacts, OptionFacts, ServerFacts, SnapshotFacts};

/// The version of Cassandra whose interface this is.
const COMPATIBLE_VERSION: &str = "5.0.6";

pub(crate) async fn fill(rows: &mut RowBuilder, facts: &Facts) {
    let scylla = rows.table().keyspace == "system";
    match rows.table().name.clone().as_str() {
        "snapshots" if scylla => rows.each(&facts.snapshots, snapshot_of_table).await,
        "snapshots" => rows.each(&facts.snapshots, snapshot).await,
        "config" => rows.each(&facts.options, option).await,
        "protocol_servers" => facts.node.servers.iter().for_each(|one| server(rows, one)),
        "versions" => versions(rows, &facts.node),
        "runtime_info" => facts.runtime.iter().for_each(|(group, item, value)| {
            rows.row([
                ("group", (*group).into()),
                ("item", (*item).into()),
                ("value", value.as_str().into()),
            ]);
        }),
        // The others exist because drivers and tools look for them; this version has nothing to say in them.
        _ => {}
    }
}

/// A row of Cassandra's table. None expires.
fn snapshot(rows: &mut RowBuilder, one: &SnapshotFacts) {
    rows.row([
        ("name", one.name.as_str().into()),
        ("keyspace_name", one.keyspace.as_str().into()),
        ("table_name", one.table.as_str().into()),
        ("created_at", one.created_millis.into()),
        ("ephemeral", false.into()),
        ("size_on_disk", one.disk_bytes.into()),
        ("true_size", one.true_bytes.into()),
    ]);
}

/// A row of ScyllaDB's table.
fn snapshot_of_table(rows: &mut RowBuilder, one: &SnapshotFacts) {
    rows.row([
        ("keyspace_name", one.keyspace.as_str().into()),
        ("table_name", one.table.as_str().into()),
        ("snapshot_name", one.name.as_str().into()),
        ("live", one.true_bytes.into()),
        ("total", one.disk_bytes.into()),
    ]);
}

/// Whether a file, a flag or the environment gave a value is not recorded: each is `config`.
fn option(rows: &mut RowBuilder, one: &OptionFacts) {
    rows.row([
        ("name", one.name.as_str().into()),
        ("source", if one.is_default { "default" } else { "config" }.into()),
        ("type", one.kind.into()),
        ("value", one.json.as_str().into()),
    ]);
}

fn server(rows: &mut RowBuilder, one: &ServerFacts) {
    rows.row([
        ("name", one.name.into()),
        ("is_running", (!one.addresses.is_empty()).into()),
        ("listen_addresses", Datum::list(one.addresses.iter().map(ToString::to_string))),
        ("protocol", one.protocol.into()),
        ("protocol_version", one.version.into()),
    ]);
}

fn versions(rows: &mut RowBuilder, node: &NodeFacts) {
    rows.row([
        ("key", "local".into()),
        ("build_mode", node.build_mode.into()),
        ("compatible_version", COMPATIBLE_VERSION.into()),
        ("version", node.version.as_str().into()),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::tests::{cell, rows};

    fn texts(table: &str, fill: impl FnOnce(&mut RowBuilder), columns: &[&str]) -> Vec<Vec<String>> {
        let shown = |row: &Vec<(String, Vec<u8>)>| -> Vec<String> {
            let text = |name: &&str| String::from_utf8_lossy(cell(row, name).unwrap_or(b"null")).into_owned();
            columns.iter().map(text).collect()
        };
        let mut all: Vec<Vec<String>> = rows(table, fill).iter().map(shown).collect();
        all.sort();
        all
    }

    #[test]
    fn an_option_says_whether_it_is_the_default() {
        let option_of = |name: &str, is_default| OptionFacts {
            name: name.to_owned(),
            kind: "integer",
            is_default,
            json: "7".to_owned(),
        };
        let fill = |rows: &mut RowBuilder| {
            option(rows, &option_of("a", true));
            option(rows, &option_of("b", false));
        };
        let shown = texts("config", fill, &["source", "type", "value"]);
        assert_eq!(shown, [["config", "integer", "7"], ["default", "integer", "7"]]);
    }

    #[test]
    fn a_server_without_an_address_does_not_run() {
        let servers = [
            ServerFacts {
                name: "native",
                protocol: "cql",
                version: Some("3.4.7"),
                addresses: vec![([127, 0, 0, 1], 9042).into()],
            },
            ServerFacts { name: "alternator", protocol: "dynamodb", version: None, addresses: Vec::new() },
        ];
        let fill = |rows: &mut RowBuilder| servers.iter().for_each(|one| server(rows, one));
        let shown = texts("protocol_servers", fill, &["is_running", "protocol", "protocol_version"]);
        assert_eq!(shown, [["\0", "dynamodb", "null"], ["\u{1}", "cql", "3.4.7"]]);
    }

    #[test]
    fn live_are_the_bytes_that_only_the_snapshot_holds() {
        let one = SnapshotFacts {
            name: "s".to_owned(),
            keyspace: "k".to_owned(),
            table: "t".to_owned(),
            true_bytes: 5,
            disk_bytes: 9,
            created_millis: Some(1_700_000_000_123),
        };
        // The name is in both keyspaces: the first one is ScyllaDB's.
        let shown = rows("snapshots", |rows| snapshot_of_table(rows, &one));
        assert_eq!(cell(&shown[0], "live"), Some(&5i64.to_be_bytes()[..]));
        assert_eq!(cell(&shown[0], "total"), Some(&9i64.to_be_bytes()[..]));
    }
}
