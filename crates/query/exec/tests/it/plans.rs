//! The plans of statements: a golden table in which a change of an access path shows.

use std::path::Path;
use std::sync::Arc;

use exec::backend::Coordinator as _;
use exec::explain::explain;
use exec::lookup::Lookup;
use exec::plan::Plan;
use schema::Schema;

use crate::golden::Node;
use crate::memory::Memory;

/// The plan of a statement, or why it has none.
fn shown(text: &str, schema: &Arc<Schema>) -> String {
    match Plan::parse(text, Some("ks"), &Lookup { schema }) {
        Ok((plan, _)) => explain(&plan),
        Err(error) => format!("! {error}\n"),
    }
}

/// Statements that change the schema are run, the plans of all others are shown.
fn check(name: &str, plans_min: usize) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let cluster = Memory::new();
    let node = Node::of(cluster.clone());
    let (mut actual, mut plans) = (String::new(), 0);
    for line in text.lines() {
        if let Some(statement) = line.strip_prefix("> ") {
            actual.push_str(line);
            actual.push('\n');
            if statement.starts_with("CREATE") {
                node.run(statement);
            } else {
                actual.push_str(&shown(statement, &cluster.schema()));
                plans += 1;
            }
        } else if line.starts_with('#') {
            actual.push_str(line);
            actual.push('\n');
        }
    }
    assert!(plans >= plans_min, "the table has {plans} plans");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &actual).unwrap();
        return;
    }
    let first = text.lines().zip(actual.lines()).find(|(expected, got)| expected != got);
    assert_eq!(actual, text, "the first difference: {first:?}");
}

#[test]
fn access_paths() {
    check("plans.txt", 60);
}

#[test]
fn access_paths_by_way_of_indexes() {
    check("index_plans.txt", 200);
}
