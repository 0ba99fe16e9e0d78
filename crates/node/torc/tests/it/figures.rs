//! Figures of tables: large partitions, rows and cells, and how long requests take.

use std::collections::BTreeMap;

use crate::client::Client;
use crate::node::Setup;

fn text(value: &Option<Vec<u8>>) -> String {
    String::from_utf8(value.clone().expect("it is not null")).expect("text")
}

fn bigint(value: &Option<Vec<u8>>) -> i64 {
    i64::from_be_bytes(value.clone().expect("it is not null").try_into().expect("eight bytes"))
}

fn double(value: &Option<Vec<u8>>) -> f64 {
    f64::from_be_bytes(value.clone().expect("it is not null").try_into().expect("eight bytes"))
}

fn make_keyspace(client: &mut Client) {
    client.create_keyspace();
}

#[test]
fn large_data_is_listed_until_its_sstables_go() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path())
        .option("compaction_large_cell_warning_threshold_mb", "1")
        .option("compaction_large_row_warning_threshold_mb", "1")
        .option("compaction_rows_count_warning_threshold", "5")
        .option("compaction_collection_elements_count_warning_threshold", "3")
        .option("auto_snapshot", "false");
    let node = setup.start();
    let mut client = node.any_client();
    make_keyspace(&mut client);
    client.query(
        "CREATE TABLE ks.t (k int, j text, c int, d text, v text, m map<int, int>, PRIMARY KEY ((k, j), c, d))",
    );
    for c in 0..6 {
        client.query(&format!("INSERT INTO ks.t (k, j, c, d, v) VALUES (1, 'many', {c}, 'x', 'y')"));
    }
    let long = "z".repeat(1 << 20);
    client.query(&format!("INSERT INTO ks.t (k, j, c, d, v) VALUES (2, 'long', 7, 'x', '{long}z')"));
    client.query("INSERT INTO ks.t (k, j, c, d, m) VALUES (3, 'map', 8, 'x', {1: 1, 2: 2, 3: 3, 4: 4})");
    client.query("INSERT INTO ks.t (k, j, c, d, m) VALUES (4, 'small', 8, 'x', {1: 1, 2: 2, 3: 3})");
    let listed = |client: &mut Client| {
        let of = "FROM system.large_partitions WHERE keyspace_name = 'ks' AND table_name = 't'";
        let partitions = client.rows(&format!("SELECT partition_key, rows, dead_rows, sstable_name {of}"));
        let partitions: Vec<(String, i64, i64)> = partitions
            .iter()
            .inspect(|row| assert!(text(&row[3]).ends_with("-big-Data.db")))
            .map(|row| (text(&row[0]), bigint(&row[1]), bigint(&row[2])))
            .collect();
        let rows = client.rows("SELECT partition_key, clustering_key, row_size FROM system.large_rows");
        let rows: Vec<(String, String, bool)> =
            rows.iter().map(|row| (text(&row[0]), text(&row[1]), bigint(&row[2]) > 1 << 20)).collect();
        let cells = client.rows(
            "SELECT partition_key, clustering_key, column_name, collection_elements FROM system.large_cells",
        );
        let mut cells: Vec<(String, String, String, i64)> =
            cells.iter().map(|row| (text(&row[0]), text(&row[1]), text(&row[2]), bigint(&row[3]))).collect();
        cells.sort();
        (partitions, rows, cells)
    };
    assert_eq!(listed(&mut client), (vec![], vec![], vec![]), "all is in memtables");
    node.http(10000, "POST", "/storage_service/keyspace_flush/ks");
    let expected = (
        vec![("1:many".to_owned(), 6, 0)],
        vec![("2:long".to_owned(), "7:x".to_owned(), true)],
        vec![
            ("2:long".to_owned(), "7:x".to_owned(), "v".to_owned(), 0),
            ("3:map".to_owned(), "8:x".to_owned(), "m".to_owned(), 4),
        ],
    );
    assert_eq!(listed(&mut client), expected);
    let log = node.log();
    for line in ["large partition ks/t: 1:many", "large row ks/t: 2:long 7:x", "large collection ks/t: 3:map"]
    {
        assert!(log.contains(line), "{line}: {log}");
    }
    assert!(node.stop().success());
    let node = setup.start();
    let mut client = node.any_client();
    assert_eq!(listed(&mut client), expected, "after a restart");
    client.query("TRUNCATE ks.t");
    assert_eq!(listed(&mut client), (vec![], vec![], vec![]));
}

#[test]
fn requests_are_counted_by_table() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    let mut client = node.any_client();
    make_keyspace(&mut client);
    client.query("CREATE TABLE ks.t (k int, c int, v int, PRIMARY KEY (k, c))");
    client.query("CREATE TABLE ks.quiet (k int PRIMARY KEY)");
    for k in 0..10 {
        for c in 0..4 {
            client.query(&format!("INSERT INTO ks.t (k, c, v) VALUES ({k}, {c}, 1)"));
        }
    }
    client.query("DELETE FROM ks.t WHERE k = 3 AND c = 1");
    client.query("INSERT INTO ks.t (k, c, v) VALUES (3, 0, 2) IF NOT EXISTS");
    for k in 0..10 {
        client.rows(&format!("SELECT * FROM ks.t WHERE k = {k}"));
    }
    client.rows("SELECT * FROM ks.t");
    let mut of = |table: &str, columns: &str| -> BTreeMap<String, Vec<f64>> {
        let rows = client.rows(&format!(
            "SELECT table_name, count, {columns} FROM system_views.{table} WHERE keyspace_name = 'ks' ALLOW FILTERING"
        ));
        let figures = |row: &[Option<Vec<u8>>]| {
            let rest = row[2..].iter().map(double);
            [bigint(&row[1]) as f64].into_iter().chain(rest).collect()
        };
        rows.iter().map(|row| (text(&row[0]), figures(row))).collect()
    };
    let columns = "p50th_ms, p99th_ms, max_ms, per_second";
    for (table, at_least, at_most) in [
        ("coordinator_write_latency", 42.0, 42.0),
        ("coordinator_scan_latency", 1.0, 1.0),
        // The conditional write reads and writes, too; each of two shards scans.
        ("coordinator_read_latency", 10.0, 11.0),
        ("local_write_latency", 41.0, 43.0),
        ("local_read_latency", 10.0, 13.0),
        ("local_scan_latency", 1.0, 2.0),
    ] {
        let figures = of(table, columns);
        let [count, p50, p99, max, rate] = figures["t"][..] else { panic!("{figures:?}") };
        assert!((at_least..=at_most).contains(&count), "{table}: {figures:?}");
        assert!(0.0 < p50 && p50 <= p99 && p99 <= max && max < 60_000.0, "{table}: {figures:?}");
        assert!(rate > 0.0, "{table}: {figures:?}");
        assert_eq!(figures["quiet"], [0.0; 5], "{table}");
    }
    let rows = of("rows_per_read", "p50th, p99th, max");
    assert_eq!(rows["t"][1], 4.0, "{rows:?}");
    assert!(rows["t"][3] >= 10.0, "a scan of a shard meets more: {rows:?}");
    let tombstones = of("tombstones_per_read", "p50th, p99th, max");
    assert_eq!((tombstones["t"][1], tombstones["t"][3]), (0.0, 1.0), "{tombstones:?}");
    assert!(of("coordinator_read_latency", columns).len() == 2);
    let gossip = client.rows("SELECT generation, dc, rack, rpc_ready FROM system_views.gossip_info");
    assert_eq!(gossip.len(), 1);
    assert!(gossip[0][0].as_ref().is_some_and(|generation| generation[0] < 0x80));
    assert_eq!((text(&gossip[0][1]), text(&gossip[0][2])), ("datacenter1".to_owned(), "rack1".to_owned()));
    client.query("DROP TABLE ks.t");
    let mut names = client.rows("SELECT table_name FROM system_views.local_read_latency");
    names.retain(|row| text(&row[0]) == "t");
    assert!(names.is_empty());
}
