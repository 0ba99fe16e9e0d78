//! `torc raft-log` as an operator uses it.

use std::path::Path;

use crate::node::{Setup, torc};

/// The tool's output, and whether it succeeded.
fn tool(data: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = torc(&["raft-log"]);
    command.args(arguments).arg("--data").arg(data);
    let done = command.output().expect("the binary is there");
    let text = [&done.stdout[..], &done.stderr].concat();
    (done.status.success(), String::from_utf8(text).expect("text"))
}

#[test]
fn the_log_of_a_stopped_node_is_shown_and_not_changed_without_need() {
    let place = tempfile::tempdir().unwrap();
    let node = Setup::new(place.path()).shards(1).start();
    node.any_client()
        .query("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    let data = place.path().join("data");
    let (worked, said) = tool(&data, &["show"]);
    assert!(
        !worked && said.contains("stop the node first"),
        "a node that runs has its log for itself: {said}"
    );
    assert!(node.stop().success());
    let (worked, said) = tool(&data, &["show"]);
    assert!(worked && said.contains("SchemaChange") && said.contains("votes, this node"), "{said}");
    let line = said.lines().find(|line| line.contains("SchemaChange")).unwrap();
    let numbers: Vec<&str> =
        line.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty()).collect();
    let (worked, said) = tool(&data, &["skip", "--index", numbers[0], "--term", numbers[1]]);
    assert!(!worked && said.contains("can be applied by this version"), "{said}");
    let nobody = "00000000-0000-0000-0000-000000000001";
    let (worked, said) = tool(&data, &["force-majority", "--lost-for-good", "--lost", nobody]);
    assert!(!worked && said.contains("is the host id of no member"), "{said}");
    let (worked, said) = tool(&data, &["force-majority", "--lost", nobody]);
    assert!(!worked && said.contains("--lost-for-good"), "it has to be said: {said}");
    let (worked, said) = tool(place.path(), &["show"]);
    assert!(!worked && said.contains("has no log of a cluster"), "{said}");
    // The node continues with its data.
    let node = Setup::new(place.path()).shards(1).start();
    node.any_client().query("CREATE TABLE ks.t (k int PRIMARY KEY)");
    assert!(node.stop().success());
}
