//! `TRACING ON`: where the time of a request went, on whichever shards.

use wire::Version;
use wire::client::{Answer, AnswerBody, Parameters, ResultBody};

use crate::client::Client;
use crate::node::Setup;

fn traced(client: &mut Client, text: &str) -> Answer {
    let parameters = Parameters::new(wire::Consistency::One, &[]);
    client.push(1, |request| {
        request.query(text, &parameters);
        request.set_tracing(true);
    });
    client.answer()
}

/// Activity and thread of a traced statement's events, in their order.
fn events(client: &mut Client, text: &str) -> Vec<(String, String)> {
    let answer = traced(client, text);
    assert!(matches!(answer.body, AnswerBody::Result(_)), "{text}: {answer:?}");
    let id: String =
        answer.tracing_id.expect("it is traced").iter().map(|byte| format!("{byte:02x}")).collect();
    let id = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-");
    let rows =
        client.texts(&format!("SELECT activity, thread FROM system_traces.events WHERE session_id = {id}"));
    rows.into_iter().map(|mut row| (row.remove(0), row.remove(0))).collect()
}

#[test]
fn a_trace_has_shards_and_sources() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    let mut client = node.client(0, Version::V4);
    client.create_keyspace();
    client.query("CREATE TABLE ks.t (k int, c int, v text, PRIMARY KEY (k, c))");
    let mut owners = [None, None];
    for k in 0..20 {
        let steps = events(&mut client, &format!("INSERT INTO ks.t (k, c, v) VALUES ({k}, 1, 'v')"));
        let logged =
            steps.iter().find(|(activity, _)| activity == "Appending to commitlog").expect("it is logged");
        let owner = if logged.1 == "shard-0" { 0 } else { 1 };
        owners[owner] = Some(k);
        let sent = steps.iter().any(|(activity, _)| activity == "Sending MUTATION to shard 1");
        assert_eq!(sent, owner == 1, "{steps:?}");
        assert!(steps.contains(&("Adding to t memtable".to_owned(), format!("shard-{owner}"))));
    }
    let (here, there) = (owners[0].expect("of 20"), owners[1].expect("of 20"));
    client.query(&format!("DELETE FROM ks.t WHERE k = {there} AND c = 2"));
    let has = |steps: &[(String, String)], activity: &str, thread: &str| {
        assert!(
            steps.iter().any(|(a, t)| a.starts_with(activity) && t == thread),
            "{activity} on {thread}: {steps:?}"
        );
    };
    let steps = events(&mut client, &format!("SELECT * FROM ks.t WHERE k = {there}"));
    has(&steps, "Sending READ to shard 1", "shard-0");
    has(&steps, "Executing single-partition query on ks.t", "shard-1");
    has(&steps, "Merging data from 1 memtables", "shard-1");
    has(&steps, "Read 1 live rows and 1 tombstone cells", "shard-1");
    has(&steps, "Processing response from shard 1", "shard-0");
    node.http(10000, "POST", "/storage_service/keyspace_flush/ks");
    assert!(node.stop().success());
    let node = Setup::new(dir.path()).start();
    let mut client = node.client(0, Version::V4);
    let read = format!("SELECT * FROM ks.t WHERE k = {here}");
    let steps = events(&mut client, &read);
    has(&steps, "Row cache miss", "shard-0");
    has(&steps, "Merging data from 1 sstables", "shard-0");
    has(&events(&mut client, &read), "Row cache hit", "shard-0");
    let absent = events(&mut client, "SELECT * FROM ks.t WHERE k = 123456");
    assert!(
        absent.iter().any(|(activity, _)| activity == "Bloom filter allows skipping 1 sstables"),
        "{absent:?}"
    );
    let scan = events(&mut client, "SELECT * FROM ks.t");
    has(&scan, "Reading ks.t from 2 shards", "shard-0");
    has(&scan, "Read 20 live rows and 1 tombstone cells", "shard-0");
}

#[test]
fn reads_over_too_many_tombstones_warn_and_fail() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let node =
        setup.option("tombstone_warn_threshold", "5").option("tombstone_failure_threshold", "10").start();
    let mut client = node.any_client();
    client.create_keyspace();
    client.query("CREATE TABLE ks.t (k int, c int, v text, PRIMARY KEY (k, c))");
    client.query("INSERT INTO ks.t (k, c, v) VALUES (1, 100, 'v')");
    for c in 0..7 {
        client.query(&format!("DELETE FROM ks.t WHERE k = 1 AND c = {c}"));
    }
    let answer = client.ask("SELECT * FROM ks.t WHERE k = 1");
    assert!(matches!(answer.body, AnswerBody::Result(ResultBody::Rows(_))));
    let warning = answer.warnings.first().expect("a warning").to_string();
    assert!(warning.starts_with("Read 1 live rows and 7 tombstone cells for query"), "{warning}");
    for c in 7..20 {
        client.query(&format!("DELETE FROM ks.t WHERE k = 1 AND c = {c}"));
    }
    let error = client.error("SELECT * FROM ks.t WHERE k = 1");
    assert!(matches!(error.kind, wire::ErrorKind::ReadFailure { .. }), "{error:?}");
    assert!(error.message.contains("READ_TOO_MANY_TOMBSTONES from"), "{}", error.message);
    assert!(error.message.contains("tombstone_failure_threshold"), "{}", error.message);
}

#[test]
fn a_share_of_the_requests_is_traced_and_slow_ones_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).option("slow_query_log_timeout", "1us").start();
    let mut client = node.client(0, Version::V4);
    client.create_keyspace();
    client.query("CREATE TABLE ks.t (k int PRIMARY KEY)");
    let path = "/storage_service/trace_probability";
    assert_eq!(node.http(10000, "GET", path), "0.0");
    let sessions = |client: &mut Client, k: i32| {
        client.query(&format!("INSERT INTO ks.t (k) VALUES ({k})"));
        let answer = client.ask(&format!("SELECT * FROM ks.t WHERE k = {k}"));
        assert_eq!(answer.tracing_id, None, "without the flag no id is returned");
        let rows = client.texts("SELECT parameters['query'], request FROM system_traces.sessions");
        rows.iter().filter(|row| row[0].contains(&format!("k = {k}"))).count()
    };
    assert_eq!(sessions(&mut client, 1), 0);
    node.http(10000, "POST", &format!("{path}?probability=1"));
    assert_eq!((node.http(10000, "GET", path).as_str(), sessions(&mut client, 2)), ("1.0", 1));
    // The other shard traced as well.
    assert_eq!(sessions(&mut node.client(1, Version::V4), 3), 1);
    node.http(10000, "POST", &format!("{path}?probability=0"));
    assert_eq!(sessions(&mut client, 4), 0);
    let line = "<SELECT * FROM ks.t WHERE k = 4>, time ";
    node.says(line);
    assert!(node.log().contains("operations were slow in the last"), "{}", node.log());
}

#[test]
fn slow_requests_are_recorded_with_their_steps() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    let mut client = node.client(0, Version::V4);
    client.create_keyspace();
    client.query("CREATE TABLE ks.t (k int PRIMARY KEY)");
    let path = "/storage_service/slow_query";
    let disabled = r#"{"enable":false,"ttl":86400,"threshold":500000,"fast":false}"#;
    assert_eq!(node.http(10000, "GET", path), disabled);
    // The records of an INSERT of a key: their sessions, each with the number of its steps.
    let recorded = |client: &mut Client, k: i32| {
        let insert = format!("INSERT INTO ks.t (k) VALUES ({k})");
        assert_eq!(client.ask(&insert).tracing_id, None, "without the flag no id is returned");
        let rows = client.texts(
            "SELECT command, CAST(session_id AS text), CAST(ttl(duration) AS text), parameters['consistency_level'] \
             FROM system_traces.node_slow_log WHERE table_names CONTAINS 'ks.t' ALLOW FILTERING",
        );
        let own: Vec<_> = rows.into_iter().filter(|row| row[0] == insert).collect();
        let steps = |row: &Vec<String>| {
            assert!((8_000..=8_600).contains(&row[2].parse().expect("a number")), "{row:?}");
            assert_eq!(row[3], "ONE");
            let id = &row[1];
            let of = |table: &str| format!("SELECT {table} WHERE session_id = {id}");
            assert_eq!(client.texts(&of("request FROM system_traces.sessions")), [["Execute CQL3 query"]]);
            let times = "SELECT CAST(node_ip AS text) FROM system_traces.node_slow_log_time_idx";
            let times = format!("{times} WHERE session_id = {id} ALLOW FILTERING");
            assert_eq!(client.texts(&times).len(), 1);
            client.texts(&of("activity FROM system_traces.events")).len()
        };
        own.iter().map(steps).collect::<Vec<_>>()
    };
    let none: [usize; 0] = [];
    assert_eq!(recorded(&mut client, 1), none, "it is off");
    node.http(10000, "POST", &format!("{path}?enable=true&ttl=8600&threshold=0"));
    let steps = recorded(&mut client, 2);
    assert!(steps.len() == 1 && steps[0] > 2, "{steps:?}");
    node.http(10000, "POST", &format!("{path}?fast=true"));
    // The other shard records as well.
    assert_eq!(recorded(&mut node.client(1, Version::V4), 3), [0]);
    node.http(10000, "POST", &format!("{path}?threshold=60000000"));
    assert_eq!(recorded(&mut client, 4), none, "it is not slow");
    assert!(node.http(10000, "GET", path).contains("60000000"));
    node.http(10000, "POST", &format!("{path}?enable=false&threshold=0"));
    assert_eq!(recorded(&mut client, 5), none);
}
