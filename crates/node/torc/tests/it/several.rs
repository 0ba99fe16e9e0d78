//! `torc dev --nodes`: several nodes in one process, which start and stop together.

use std::net::{IpAddr, Ipv4Addr, TcpListener};

use wire::Version;

use crate::client::Client;
use crate::node::{Setup, addresses, torc};

fn after(first: IpAddr, by: u32) -> IpAddr {
    let IpAddr::V4(first) = first else { panic!("tests use IPv4") };
    Ipv4Addr::from(u32::from(first) + by).into()
}

/// Three nodes that keep their data in `dir`.
fn three(dir: &std::path::Path) -> Setup {
    let setup = Setup { address: addresses(3), ..Setup::new(dir) };
    setup.shards(1).option("nodes", "3")
}

#[test]
fn each_node_has_an_address_and_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let setup = three(dir.path());
    let node = setup.start();
    assert!(node.ready_line.contains(": 3 nodes with 1 shard each, CQL on "), "{}", node.ready_line);
    let mut hosts = Vec::new();
    for by in 0..3 {
        let address = after(setup.address, by);
        assert!(node.ready_line.contains(&format!(" {address}:9042")), "{}", node.ready_line);
        let mut client = Client::connect((address, 9042).into(), Version::V5);
        let own = client.rows("SELECT rpc_address, host_id FROM system.local").remove(0);
        let IpAddr::V4(v4) = address else { panic!("tests use IPv4") };
        assert_eq!(own[0].as_deref(), Some(&v4.octets()[..]));
        hosts.push(own[1].clone());
        assert!(dir.path().join(format!("node{}", by + 1)).join("data").is_dir());
    }
    hosts.sort();
    hosts.dedup();
    assert_eq!(hosts.len(), 3, "each is somebody of its own");
    assert!(node.stop().success());
}

#[test]
fn written_rows_are_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let setup = three(dir.path());
    let node = setup.start();
    let mut client = node.any_client();
    client.create_keyspace();
    client.query("CREATE TABLE ks.t (k int PRIMARY KEY, v text)");
    for k in 0..20 {
        client.query(&format!("INSERT INTO ks.t (k, v) VALUES ({k}, 'v')"));
    }
    assert!(node.stop().success());
    let node = setup.start();
    // A node that is ready serves; the others hear of it a moment later.
    let rows = node.any_client().rows_when_available("SELECT * FROM ks.t");
    assert_eq!(rows.len(), 20);
    // One SIGINT is enough for all.
    node.signal("-INT");
    assert!(node.ended().success());
}

/// The tables of Cassandra about the messages between nodes and about repairs.
#[test]
fn tables_show_the_messages_between_nodes_and_their_repairs() {
    let dir = tempfile::tempdir().unwrap();
    let setup = three(dir.path());
    let node = setup.start();
    let mut client = node.any_client();
    client
        .query("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}");
    client.query("CREATE TABLE ks.t (k int PRIMARY KEY, v text)");
    for k in 0..20 {
        client.query(&format!("INSERT INTO ks.t (k, v) VALUES ({k}, 'v')"));
    }
    let others = [after(setup.address, 1), after(setup.address, 2)].map(|address| match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(_) => panic!("tests use IPv4"),
    });
    for (table, figures) in [
        ("internode_outbound", "sent_count, sent_bytes, active_connections"),
        ("internode_inbound", "received_count, received_bytes, processed_count"),
    ] {
        let rows = client.rows(&format!("SELECT address, dc, rack, {figures} FROM system_views.{table}"));
        let mut addresses: Vec<_> = rows.iter().filter_map(|row| row[0].clone()).collect();
        addresses.sort();
        assert_eq!(addresses, others, "{table} has the other nodes");
        for row in rows {
            assert_eq!(
                (row[1].as_deref(), row[2].as_deref()),
                (Some(&b"datacenter1"[..]), Some(&b"rack1"[..]))
            );
            for figure in &row[3..] {
                let bytes = figure.clone().expect("a figure").try_into().expect("a bigint");
                assert!(i64::from_be_bytes(bytes) > 0, "{table}: {row:?}");
            }
        }
    }
    assert!(client.rows("SELECT * FROM system_views.repairs").is_empty());
    let host = setup.address.to_string();
    let repaired = torc(&["nodetool", "-h", &host, "repair", "--full", "ks"]).status().expect("it runs");
    assert!(repaired.success());
    let columns = "keyspace_name, status, type, failure_cause, toTimestamp(id), state_init_timestamp";
    let mut rows = client.rows(&format!("SELECT {columns} FROM system_views.repairs"));
    assert_eq!(rows.len(), 1);
    let row = rows.remove(0);
    let text = |at: usize| row[at].as_deref().map(|bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned());
    assert_eq!((text(0), text(1), text(2)), (Some("ks".into()), Some("success".into()), Some("full".into())));
    assert_eq!((&row[3], &row[4]), (&None, &row[5]), "the id has the time of the begin");
    assert!(node.stop().success());
}

#[test]
fn a_node_that_cannot_start_ends_all() {
    let dir = tempfile::tempdir().unwrap();
    let setup = three(dir.path());
    let third = after(setup.address, 2);
    let taken = TcpListener::bind((third, 9042)).expect("the address is this test's");
    let Err(ended) = setup.try_start() else { panic!("it started") };
    assert!(!ended.status.success() && ended.status.code().is_some(), "{:?}", ended.status);
    let said: Vec<&str> = ended.err.lines().filter(|line| line.starts_with("torc: ")).collect();
    assert_eq!(said.len(), 1, "{}", ended.err);
    for word in ["node3: the CQL port", &third.to_string(), "native_transport_port"] {
        assert!(said[0].contains(word), "'{word}' is not in {}", said[0]);
    }
    drop(taken);
    setup.start();
}

#[test]
fn resources_that_cannot_be_shared_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (option, value) in
        [("commitlog_directory", "/tmp/x"), ("initial_token", "1"), ("broadcast_address", "127.0.0.1")]
    {
        let Err(ended) = three(dir.path()).option(option, value).try_start() else { panic!("{option}") };
        assert!(ended.err.contains("with --nodes each node has its own"), "{}", ended.err);
    }
    let Err(ended) = Setup { address: "::1".parse().unwrap(), ..three(dir.path()) }.try_start() else {
        panic!("there is one IPv6 loopback address")
    };
    assert!(ended.err.contains("IPv4"), "{}", ended.err);
}

#[test]
fn an_id_is_given_again_when_all_nodes_have_finished_the_drop() {
    let dir = tempfile::tempdir().unwrap();
    let setup = three(dir.path()).option("auto_snapshot", "false");
    let node = setup.start();
    let mut client = node.any_client();
    client
        .query("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}");
    let create =
        "CREATE TABLE ks.t (k int PRIMARY KEY, v text) WITH ID = 5a1c395e-b41f-11e5-9f22-ba0be0483c18";
    for _ in 0..2 {
        client.query(create);
        for k in 0..20 {
            client.query(&format!("INSERT INTO ks.t (k, v) VALUES ({k}, 'v')"));
        }
        client.query("DROP TABLE ks.t");
    }
    client.query(create);
    assert!(client.rows("SELECT * FROM ks.t").is_empty());
    node.kill();
    let node = setup.start();
    assert!(node.any_client().rows_when_available("SELECT * FROM ks.t").is_empty());
}
