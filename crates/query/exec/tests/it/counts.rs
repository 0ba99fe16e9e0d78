//! The statements that a shard counts by their kind.

use exec::StatementCounts;
use rt::metrics::{Value, collect};

use crate::golden::Node;

/// The metrics that are not 0, by their names without the common begin.
fn counted(node: &Node) -> Vec<String> {
    let mut samples = Vec::new();
    collect(StatementCounts::METRICS, node.executor().statement_counts(), &[], &mut samples);
    let mut out = Vec::new();
    for one in samples {
        let Value::Number(number) = one.value else { panic!("{} is a counter", one.name) };
        let labels: String = one.labels.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        if number > 0.0 {
            out.push(format!("{}{labels} {number}", one.name.trim_start_matches("scylla_cql_")));
        }
    }
    out
}

#[test]
fn statements_are_counted_by_their_kind() {
    let node = Node::new();
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run("CREATE TABLE ks.t (k int, c int, v int, PRIMARY KEY (k, c))");
    assert_eq!(counted(&node), Vec::<String>::new(), "definitions are not counted");
    node.run("INSERT INTO ks.t (k, c, v) VALUES (1, 1, 1)");
    node.run("INSERT INTO ks.t (k, c, v) VALUES (1, 2, 1)");
    node.run("INSERT INTO ks.t (k, c, v) VALUES (1, 3, 1) IF NOT EXISTS");
    node.run("UPDATE ks.t SET v = 2 WHERE k = 1 AND c = 1");
    node.run("DELETE FROM ks.t WHERE k = 1 AND c = 2 IF EXISTS");
    node.run("BEGIN BATCH INSERT INTO ks.t (k, c) VALUES (2, 1) DELETE FROM ks.t WHERE k = 3 APPLY BATCH");
    node.rows("SELECT * FROM ks.t WHERE k = 1 AND c = 1");
    node.rows("SELECT * FROM ks.t WHERE k = 1 ORDER BY c DESC");
    node.rows("SELECT * FROM ks.t WHERE v = 2 ALLOW FILTERING");
    let expected = [
        "reads 3",
        "unpaged_select_queries 3",
        "reverse_queries 1",
        "filtered_read_requests 1",
        "inserts conditional=no 2",
        "inserts conditional=yes 1",
        "updates conditional=no 1",
        "deletes conditional=yes 1",
        "batches conditional=no 1",
        "statements_in_batches 2",
    ];
    assert_eq!(counted(&node), expected);
}
