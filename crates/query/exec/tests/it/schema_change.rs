//! The events of a schema change that clients get.

use wire::client::AnswerBody;
use wire::{Consistency, ErrorKind, WriteType};

use crate::golden::{Node, show};
use crate::memory::Memory;

/// A driver that were told OK would use the table at a node that does not know it yet.
#[test]
fn a_change_that_live_nodes_do_not_use_in_time_is_a_write_timeout() {
    let node = Node::of(Memory::new().with_behind(1));
    let answer = node.request(|request| {
        let text =
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
        request.query(text, &Node::values(&[]));
    });
    let AnswerBody::Error(error) = &answer.body else { panic!("{}", show(&answer)) };
    let ErrorKind::WriteTimeout { consistency, received, block_for, write_type, .. } = &error.kind else {
        panic!("{}", show(&answer));
    };
    assert_eq!((*consistency, *received, *block_for), (Consistency::All, 2, 3));
    assert_eq!(*write_type, WriteType::Simple, "which no driver tries again by itself");
}

/// Rows that are left of a dropped table would be rows of the new one.
#[test]
fn an_id_of_which_rows_are_left_is_not_given() {
    let node = Node::new();
    let create = |name: &str| {
        format!("CREATE TABLE ks.{name} (k int PRIMARY KEY) WITH ID = 5a1c395e-b41f-11e5-9f22-ba0be0483c18")
    };
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run(&create("first"));
    node.run("DROP TABLE ks.first");
    node.run(&create("second"));
    node.run("INSERT INTO ks.second (k) VALUES (1)");
    node.run("DROP TABLE ks.second");
    node.run("CREATE TABLE ks.base (k int, c int, PRIMARY KEY (k, c))");
    let view = "CREATE MATERIALIZED VIEW ks.by_c AS SELECT * FROM ks.base WHERE k IS NOT NULL AND c IS NOT NULL \
                PRIMARY KEY (c, k) WITH ID = 5a1c395e-b41f-11e5-9f22-ba0be0483c18";
    for statement in [&create("third"), view] {
        let refused = node.refusal(statement).expect("a refusal");
        assert!(refused.contains("cannot be given"), "{statement}: {refused}");
    }
}
