//! Masks of columns: the roles that see values, and those that see masked ones (`testdata/masks.txt`).

use exec::{ExecLimits, FunctionLimits};

use crate::golden::{Node, check_on, show};

fn limits(data_masking: bool) -> ExecLimits {
    let functions = FunctionLimits { enabled: true, ..FunctionLimits::default() };
    ExecLimits { data_masking, functions, bcrypt_cost: 4, ..ExecLimits::default() }
}

#[test]
fn masks() {
    check_on(&Node::with_superuser(limits(true)), "masks.txt");
}

const MADE: [&str; 5] = [
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE ks.t (k int PRIMARY KEY, v text MASKED WITH DEFAULT)",
    "INSERT INTO ks.t (k, v) VALUES (1, 'hello')",
    "CREATE ROLE ann",
    "GRANT SELECT ON ks.t TO ann",
];

/// The masked column as a role reads it through a node.
fn seen(node: &Node, role: &str) -> String {
    node.log_in(role);
    show(&node.query("SELECT v FROM ks.t"))
}

#[test]
fn masks_are_not_applied_where_they_are_off() {
    let node = Node::with_superuser(limits(true));
    MADE.iter().for_each(|text| node.run(text));
    assert_eq!(seen(&node, "ann"), "| v text\n  '****'");
    assert_eq!(seen(&node, "cassandra"), "| v text\n  'hello'");
    let off = Node::with_limits(node.cluster(), ExecLimits { authorizes: true, ..limits(false) });
    assert_eq!(seen(&off, "ann"), "| v text\n  'hello'");
    off.log_in("cassandra");
    let refused = show(&off.query("ALTER TABLE ks.t ALTER k MASKED WITH DEFAULT"));
    assert!(refused.contains("dynamic data masking is not enabled"), "{refused}");
    off.run("ALTER TABLE ks.t ALTER v DROP MASKED");
    assert_eq!(seen(&node, "ann"), "| v text\n  'hello'", "a mask can be dropped where masks are off");
    let anybody = Node::with_limits(node.cluster(), limits(true));
    anybody.run("ALTER TABLE ks.t ALTER v MASKED WITH DEFAULT");
    assert_eq!(seen(&anybody, "ann"), "| v text\n  'hello'", "without permissions everybody sees all");
}
