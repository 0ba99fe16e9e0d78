//! Requests with a wrong number of values, and with page sizes that are none: code and text of Cassandra 5.0.6.

use wire::client::{AnswerBody, BatchItem, Parameters, ResultBody};
use wire::{BatchType, Consistency, Value};

use crate::golden::{Node, show};

const INSERT: &str = "INSERT INTO ks.t (k, v) VALUES (?, ?)";
const NAMED: &str = "INSERT INTO ks.t (k, v) VALUES (:a, :b)";
const SELECT: &str = "SELECT * FROM ks.t WHERE k = ?";
const ONE: Value<'_> = Value::Set(&[0, 0, 0, 1]);

fn node() -> Node {
    let node = Node::new();
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run("CREATE TABLE ks.t (k int PRIMARY KEY, v int)");
    node
}

/// The identifiers of a statement and of its result's metadata.
fn prepared(node: &Node, text: &str) -> (Vec<u8>, Vec<u8>) {
    match node.request(|request| request.prepare(text, None)).body {
        AnswerBody::Result(ResultBody::Prepared(prepared)) => {
            (prepared.metadata.id.to_vec(), prepared.result_metadata_id.unwrap_or_default().to_vec())
        }
        _ => panic!("{text} was not prepared"),
    }
}

#[test]
fn of_queries_and_prepared_statements() {
    let node = node();
    let all: &[(&str, usize, &[&str], Option<usize>)] = &[
        (INSERT, 0, &[], Some(0)),
        (INSERT, 1, &[], Some(1)),
        (INSERT, 3, &[], Some(3)),
        (INSERT, 2, &[], None),
        (INSERT, 2, &["v", "k"], None),
        (INSERT, 2, &["x", "v"], Some(1)),
        (NAMED, 2, &[], None),
        (NAMED, 1, &["a"], Some(1)),
        (NAMED, 2, &["a", "c"], Some(1)),
        (NAMED, 2, &["a", "a"], Some(1)),
        (NAMED, 2, &["A", "b"], Some(1)),
        (NAMED, 3, &["a", "b", "c"], None),
        (SELECT, 2, &[], Some(2)),
        ("SELECT * FROM ks.t", 1, &[], Some(1)),
        ("SELECT * FROM ks.t", 1, &["k"], None),
        ("TRUNCATE ks.t", 1, &[], Some(1)),
    ];
    for (text, count, names, bound) in all {
        let values = vec![ONE; *count];
        let mut parameters = Parameters::new(Consistency::One, &values);
        parameters.names = names;
        let queried = show(&node.request(|request| request.query(text, &parameters)));
        let (id, metadata) = prepared(&node, text);
        let executed = show(&node.request(|request| request.execute(&id, &metadata, &parameters)));
        let case = format!("{text} with {count} values {names:?}: {queried}; {executed}");
        let Some(bound) = bound else {
            assert!(!queried.contains('!') && !executed.contains('!'), "{case}");
            continue;
        };
        assert!(queried.contains("! Invalid: Invalid amount of bind variables"), "{case}");
        let markers = text.matches(['?', ':']).count();
        let expected =
            format!("! Invalid: there were {markers} markers(?) in CQL but {bound} bound variables");
        assert!(executed.contains(&expected), "{case}");
    }
}

#[test]
fn of_batches() {
    let node = node();
    let (id, _) = prepared(&node, INSERT);
    for count in [0, 1, 3] {
        let values = vec![ONE; count];
        for item in [BatchItem::Text(INSERT, &values), BatchItem::Prepared(&id, &values)] {
            let parameters = Parameters::new(Consistency::One, &[]);
            let first = BatchItem::Text(INSERT, &[ONE, ONE]);
            let items = [first, item];
            let answer = show(&node.request(|request| request.batch(BatchType::Logged, &items, &parameters)));
            let expected = format!("! Invalid: There were 2 markers(?) in CQL but {count} bound variables");
            assert!(answer.contains(&expected), "{count} values: {answer}");
        }
    }
    // The number of values is looked at before the statement is.
    let items = [BatchItem::Text("SELECT * FROM ks.t", &[ONE])];
    let parameters = Parameters::new(Consistency::One, &[]);
    let answer = show(&node.request(|request| request.batch(BatchType::Logged, &items, &parameters)));
    assert!(answer.contains("There were 0 markers(?) in CQL but 1 bound variables"), "{answer}");
    assert!(node.rows("SELECT * FROM ks.t").is_empty(), "nothing of a refused batch is written");
}

#[test]
fn pages_without_rows() {
    let node = node();
    node.run("INSERT INTO ks.t (k, v) VALUES (1, 1)");
    node.run("INSERT INTO ks.t (k, v) VALUES (2, 1)");
    let (id, metadata) = prepared(&node, SELECT);
    for (size, expected) in [(0, "! Protocol: The page size cannot be 0"), (-1, ""), (i32::MIN, "")] {
        let mut parameters = Parameters::new(Consistency::One, &[]);
        parameters.page_size = Some(size);
        for text in ["SELECT * FROM ks.t", "INSERT INTO ks.t (k) VALUES (3)", "DESCRIBE KEYSPACES"] {
            let answer = show(&node.request(|request| request.query(text, &parameters)));
            assert_eq!(answer.contains('!'), !expected.is_empty(), "{text} in pages of {size}: {answer}");
            assert!(answer.contains(expected), "{text} in pages of {size}: {answer}");
        }
        let values = [ONE];
        let parameters = Parameters { values: &values, ..parameters };
        let answer = show(&node.request(|request| request.execute(&id, &metadata, &parameters)));
        assert_eq!(answer.contains('!'), !expected.is_empty(), "EXECUTE in pages of {size}: {answer}");
        assert!(answer.contains(expected), "EXECUTE in pages of {size}: {answer}");
    }
}

/// Null, unset and empty values where a value has to be, with the texts of Cassandra 5.0.6.
#[test]
fn values_that_are_none() {
    let node = node();
    node.run("CREATE TYPE ks.u (a int, b int)");
    node.run(
        "CREATE TABLE ks.c (k int PRIMARY KEY, m map<int, int>, st set<int>, l list<int>, ve vector<float, 2>, vt vector<text, 2>, \
         u u, fu frozen<u>)",
    );
    node.run("INSERT INTO ks.c (k, m, st, l) VALUES (1, {1: 2}, {1, 2, 3}, [1, 2])");
    let two = Value::Set(&[0, 0, 0, 2]);
    let empty = Value::Set(&[]);
    let cases: &[(&str, &[Value<'_>], &str)] = &[
        (
            "INSERT INTO ks.c (k, ve) VALUES (1, [?, ?])",
            &[ONE, empty],
            "! Invalid: null is not supported inside vectors",
        ),
        (
            "INSERT INTO ks.c (k, ve) VALUES (1, [?, ?])",
            &[ONE, Value::Null],
            "! Invalid: null is not supported inside vectors",
        ),
        ("INSERT INTO ks.c (k, vt) VALUES (1, [?, ?])", &[ONE, empty], "void"),
        (
            "INSERT INTO ks.c (k, fu) VALUES (1, {a: ?, b: ?})",
            &[ONE, Value::Unset],
            "! Invalid: Invalid unset value for field 'b' of user defined type u",
        ),
        ("INSERT INTO ks.c (k, u) VALUES (1, {a: ?, b: ?})", &[ONE, Value::Unset], "void"),
        ("SELECT m[?] FROM ks.c WHERE k = 1", &[ONE], "  2"),
        (
            "SELECT m[?] FROM ks.c WHERE k = 1",
            &[Value::Null],
            "! Invalid: Invalid null value for element selection on m",
        ),
        (
            "SELECT m[?] FROM ks.c WHERE k = 1",
            &[Value::Unset],
            "! Invalid: Invalid unset value for element selection on m",
        ),
        (
            "SELECT st[?..?] FROM ks.c WHERE k = 1",
            &[Value::Null, two],
            "! Invalid: Invalid null value for slice selection on st",
        ),
        ("SELECT st[?..?] FROM ks.c WHERE k = 1", &[Value::Unset, ONE], "  0x000000010000000400000001"),
        (
            "SELECT (list<int>)[?, ?] FROM ks.c WHERE k = 1",
            &[ONE, two],
            "  0x00000002000000040000000100000004",
        ),
        ("DELETE l[?] FROM ks.c WHERE k = 1", &[Value::Unset], "void"),
        ("DELETE st[?] FROM ks.c WHERE k = 1", &[Value::Unset], "void"),
        ("DELETE m[?] FROM ks.c WHERE k = 1", &[Value::Unset], "! Invalid: Invalid unset map key"),
        (
            "UPDATE ks.c SET l[?] = 3 WHERE k = 1",
            &[Value::Unset],
            "! Invalid: Invalid unset value for list index",
        ),
    ];
    for (text, values, expected) in cases {
        let (id, metadata) = prepared(&node, text);
        let parameters = Parameters::new(Consistency::One, values);
        let answer = show(&node.request(|request| request.execute(&id, &metadata, &parameters)));
        assert!(answer.contains(expected), "{text} with {values:?}: {answer}");
    }
    assert_eq!(node.rows("SELECT l FROM ks.c WHERE k = 1").len(), 1);
}

/// A list of values, of which some may be null.
fn list(values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut bytes = (values.len() as u32).to_be_bytes().to_vec();
    for value in values {
        let len = value.map_or(-1, |value| value.len() as i32);
        bytes.extend(len.to_be_bytes());
        bytes.extend(value.unwrap_or_default());
    }
    bytes
}

/// Clients send the elements of sets in any order, also of those among the values of an IN.
#[test]
fn sets_among_the_values_of_in() {
    let node = node();
    node.run(
        "CREATE TABLE ks.s (k frozen<set<int>>, c frozen<set<int>>, s set<int>, l list<frozen<set<int>>>, v int, \
         PRIMARY KEY (k, c))",
    );
    node.run("INSERT INTO ks.s (k, c, s, l, v) VALUES ({1, 2}, {1, 2}, {1, 2}, [{1, 2}], 1)");
    let (one, two) = ([0, 0, 0, 1], [0, 0, 0, 2]);
    let set = list(&[Some(&two), Some(&one), Some(&two)]);
    let update =
        |condition: &str| format!("UPDATE ks.s SET v = 7 WHERE k = {{1, 2}} AND c = {{1, 2}} IF {condition}");
    let statements = [
        ("SELECT v FROM ks.s WHERE k IN ?".to_owned(), "  7"),
        ("SELECT v FROM ks.s WHERE k = {1, 2} AND c IN ?".to_owned(), "  7"),
        ("SELECT v FROM ks.s WHERE k = {1, 2} AND c NOT IN ? ALLOW FILTERING".to_owned(), ""),
    ];
    let conditions = ["s IN ?", "l[0] IN ?", "s NOT IN ?"];
    let applied = conditions.map(|condition| {
        let is_in = !condition.contains("NOT");
        (update(condition), if is_in { "true" } else { "false" })
    });
    let answer_of = |text: &str, value: &[u8]| {
        let (id, metadata) = prepared(&node, text);
        let values = [Value::Set(value)];
        let parameters = Parameters::new(Consistency::Quorum, &values);
        show(&node.request(|request| request.execute(&id, &metadata, &parameters)))
    };
    for (text, expected) in &applied {
        for values in [list(&[Some(&set)]), list(&[None, Some(&set)])] {
            let answer = answer_of(text, &values);
            assert!(answer.contains(expected), "{text}: {answer}");
        }
    }
    for (text, expected) in &statements {
        let answer = answer_of(text, &list(&[Some(&set)]));
        assert_eq!(answer.lines().skip(1).collect::<String>(), *expected, "{text}: {answer}");
    }
}

/// The time of a request has 32 bits without a sign; deletions and ends of life have no later time than files hold.
#[test]
fn times_beyond_the_last_second() {
    let node = node();
    node.run("INSERT INTO ks.t (k, v) VALUES (1, 1) USING TTL 100");
    let run = |text: &str, now: i32| {
        let mut parameters = Parameters::new(Consistency::One, &[]);
        parameters.now_in_seconds = Some(now);
        show(&node.request(|request| request.query(text, &parameters)))
    };
    assert!(run("SELECT v FROM ks.t WHERE k = 1", 0).contains("  1"));
    for now in [-1, i32::MIN, i32::MAX] {
        assert!(!run("SELECT v FROM ks.t WHERE k = 1", now).contains("  1"), "at {now}");
        assert!(!run("INSERT INTO ks.t (k, v) VALUES (2, 2)", now).contains('!'), "at {now}");
        assert!(run("SELECT v FROM ks.t WHERE k = 2", now).contains("  2"), "at {now}");
        assert!(!run("DELETE FROM ks.t WHERE k = 2", now).contains('!'), "at {now}");
        assert!(!run("SELECT v FROM ks.t WHERE k = 2", now).contains("  2"), "at {now}");
        let expires = run("INSERT INTO ks.t (k, v) VALUES (3, 3) USING TTL 1", now);
        assert!(expires.contains("exceeds maximum supported expiration date"), "at {now}: {expires}");
    }
}

/// The keyspace of a request is looked for before the statement is read.
#[test]
fn keyspaces_of_requests() {
    let node = node();
    let expected = "! Invalid: Keyspace 'nope' does not exist";
    let mut parameters = Parameters::new(Consistency::One, &[]);
    parameters.keyspace = Some("nope");
    for text in
        ["SELECT * FROM ks.t", "SELECT * FROM t", "USE ks", "CREATE TABLE t (k int PRIMARY KEY)", "nonsense"]
    {
        let answer = show(&node.request(|request| request.query(text, &parameters)));
        assert!(answer.contains(expected), "{text}: {answer}");
        let answer = show(&node.request(|request| request.prepare(text, Some("nope"))));
        assert!(answer.contains(expected), "PREPARE {text}: {answer}");
    }
    let items = [BatchItem::Text(INSERT, &[ONE, ONE])];
    let answer = show(&node.request(|request| request.batch(BatchType::Logged, &items, &parameters)));
    assert!(answer.contains(expected), "{answer}");
    parameters.keyspace = Some("ks");
    let answer = show(&node.request(|request| request.query("SELECT * FROM t", &parameters)));
    assert!(!answer.contains('!'), "{answer}");
}

#[test]
fn counters_at_serial_levels() {
    let node = node();
    node.run("CREATE TABLE ks.n (k int PRIMARY KEY, n counter)");
    for consistency in [Consistency::Serial, Consistency::LocalSerial] {
        let parameters = Parameters::new(consistency, &[]);
        let answer = show(
            &node.request(|request| request.query("UPDATE ks.n SET n = n + 1 WHERE k = 1", &parameters)),
        );
        assert!(answer.contains("! Invalid: Counter operations are inherently non-serializable"), "{answer}");
        let answer =
            show(&node.request(|request| request.query("INSERT INTO ks.t (k) VALUES (1)", &parameters)));
        assert!(
            answer.contains("! Invalid: You must use conditional updates for serializable writes"),
            "{answer}"
        );
    }
}

#[test]
fn of_the_faults_of_a_write_keys_are_reported_before_using_and_values() {
    let node = node();
    node.run("CREATE TABLE ks.c (k int, c int, v int, PRIMARY KEY (k, c))");
    const MIN: Value<'_> = Value::Set(&[0x80, 0, 0, 0, 0, 0, 0, 0]);
    const NEGATIVE: Value<'_> = Value::Set(&[0xff; 4]);
    const TTL: &str = "! Invalid: A TTL must be greater or equal to 0, but was -1";
    const NO_TIMESTAMP: &str = "! Invalid: Invalid null value of timestamp";
    let write = "UPDATE ks.c USING TIMESTAMP ? AND TTL ? SET v = 1 WHERE k = ? AND c = ?";
    let conditional = "UPDATE ks.c USING TTL ? SET v = 1 WHERE k = ? AND c = ? IF v = 1";
    let cases: [(&str, &[Value<'_>], &str); 9] = [
        (write, &[Value::Null, NEGATIVE, Value::Null, Value::Null], NO_TIMESTAMP),
        (
            write,
            &[MIN, NEGATIVE, Value::Null, Value::Unset],
            "! Invalid: Invalid null value in condition for column k",
        ),
        (write, &[MIN, NEGATIVE, Value::Set(b""), Value::Unset], "! Invalid: Key may not be empty"),
        (write, &[MIN, NEGATIVE, ONE, Value::Unset], "! Invalid: Invalid unset value for column c"),
        (write, &[MIN, NEGATIVE, ONE, ONE], TTL),
        (
            write,
            &[MIN, Value::Null, ONE, ONE],
            "! Invalid: Out of bound timestamp, must be in [-9223372036854775807, 9223372036854775807]",
        ),
        // The empty value is a null.
        (write, &[Value::Unset, Value::Set(b""), ONE, ONE], "void"),
        (
            conditional,
            &[NEGATIVE, ONE, Value::Null],
            "! Invalid: Invalid null value in condition for column c",
        ),
        (conditional, &[NEGATIVE, ONE, ONE], TTL),
    ];
    for (text, values, answer) in cases {
        let (id, known) = prepared(&node, text);
        let got = node.request(|request| request.execute(&id, &known, &Node::values(values)));
        assert_eq!(show(&got), answer, "{text} with {values:?}");
    }
}
