//! Prepared statements: known on every shard, bounded, and dropped when their table changes.

use wire::client::AnswerBody;
use wire::{ErrorKind, Version};

use crate::client::Client;
use crate::node::Setup;

const ONE: &[u8] = &1i32.to_be_bytes();

fn make_table(client: &mut Client) {
    client.create_keyspace();
    client.query("CREATE TABLE ks.t (k int PRIMARY KEY, a text)");
    client.query("INSERT INTO ks.t (k, a) VALUES (1, 'one')");
}

fn is_unprepared(answer: &AnswerBody) -> bool {
    matches!(answer, AnswerBody::Error(error) if matches!(error.kind, ErrorKind::Unprepared { .. }))
}

#[test]
fn a_statement_prepared_on_one_shard_is_executed_on_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    let (mut zero, mut one) = (node.client(0, Version::V4), node.client(1, Version::V4));
    make_table(&mut zero);
    for (here, there) in
        [(&mut zero, "SELECT a FROM ks.t WHERE k = ?"), (&mut one, "SELECT * FROM ks.t WHERE k = ?")]
    {
        here.prepare(there);
    }
    let by_zero = zero.prepare("SELECT k, a FROM ks.t WHERE k = ?");
    assert_eq!(one.executed_rows(&by_zero, &[ONE]).rows, 1);
    let by_one = one.prepare("SELECT a, k FROM ks.t WHERE k = ?");
    assert_eq!(zero.executed_rows(&by_one, &[ONE]).rows, 1);
    let listed = one.texts("SELECT query_string FROM system.prepared_statements");
    assert_eq!(listed.len(), 4, "{listed:?}");
    assert!(listed.contains(&vec!["SELECT a, k FROM ks.t WHERE k = ?".to_owned()]));
}

#[test]
fn statements_beyond_the_cache_are_prepared_again() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).option("prepared_statements_cache_size", "64KiB").start();
    let (mut zero, mut one) = (node.client(0, Version::V4), node.client(1, Version::V4));
    make_table(&mut zero);
    let first = zero.prepare("SELECT a FROM ks.t WHERE k = ?");
    for n in 0..100 {
        zero.prepare(&format!("SELECT a AS name_{n} FROM ks.t WHERE k = ?"));
    }
    assert!(is_unprepared(&zero.execute(&first, &[ONE])));
    assert!(is_unprepared(&one.execute(&first, &[ONE])));
    let again = zero.prepare("SELECT a FROM ks.t WHERE k = ?");
    assert_eq!(again.metadata.id, first.metadata.id);
    assert_eq!(one.executed_rows(&again, &[ONE]).rows, 1);
    let count = zero.rows("SELECT prepared_id FROM system.prepared_statements").len();
    assert!((5..40).contains(&count), "{count}");
    assert!(node.metric("scylla_cql_prepared_cache_evictions") >= 100.0);
    let long = format!("SELECT a FROM ks.t WHERE k = ? AND a = '{}' ALLOW FILTERING", "x".repeat(10_000));
    one.push(1, |request| request.prepare(&long, None));
    let AnswerBody::Error(error) = one.answer().body else { panic!("it was prepared") };
    assert!(error.message.contains("is larger than allowed maximum"), "{}", error.message);
}

#[test]
fn a_change_of_the_columns_ends_a_statement() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    let (mut old, mut new) = (node.client(0, Version::V4), node.client(1, Version::V5));
    make_table(&mut old);
    const ALL: &str = "SELECT * FROM ks.t WHERE k = ?";
    let known_by_old = old.prepare(ALL);
    let known_by_new = new.prepare(ALL);
    old.query("ALTER TABLE ks.t WITH comment = 'the same columns'");
    assert_eq!(new.executed_rows(&known_by_new, &[ONE]).new_metadata_id, None);
    assert_eq!(old.executed_rows(&known_by_old, &[ONE]).metadata, None);
    old.query("ALTER TABLE ks.t ADD b int");
    assert!(is_unprepared(&new.execute(&known_by_new, &[ONE])));
    assert!(is_unprepared(&old.execute(&known_by_old, &[ONE])));
    let anew = new.prepare(ALL);
    assert_ne!(anew.result_metadata_id, known_by_new.result_metadata_id);
    // A client with the old columns gets the new ones: by their id in v5, by name in v4.
    let rows = new.executed_rows(&known_by_new, &[ONE]);
    assert_eq!((rows.columns, rows.new_metadata_id), (3, anew.result_metadata_id.clone()));
    assert_eq!(rows.metadata.expect("named").len(), 3);
    assert_eq!(new.executed_rows(&anew, &[ONE]).metadata, None);
    assert_eq!(old.executed_rows(&known_by_old, &[ONE]).metadata.expect("named").len(), 3);
    old.query("DROP TABLE ks.t");
    assert!(is_unprepared(&new.execute(&anew, &[ONE])));
    assert!(new.rows("SELECT prepared_id FROM system.prepared_statements").is_empty());
}
