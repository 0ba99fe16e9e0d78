//! User-defined functions and aggregates in statements (`testdata/functions.txt`), and prepared statements that use them.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use exec::backend::Clock;
use exec::{ExecLimits, FunctionLimits};
use rt::Instant;
use wire::client::{AnswerBody, Parameters, ResultBody};
use wire::{Consistency, ErrorKind, Value};

use crate::golden::{Node, check_on, show};
use crate::memory::Memory;

fn limits() -> ExecLimits {
    let functions =
        FunctionLimits { enabled: true, fail_after: Duration::from_millis(20), ..FunctionLimits::default() };
    ExecLimits { functions, ..ExecLimits::default() }
}

fn node() -> Node {
    Node::with_limits(Memory::new(), limits())
}

#[test]
fn functions_and_aggregates() {
    check_on(&node(), "functions.txt");
}

#[test]
fn permissions_on_functions_and_aggregates() {
    check_on(&Node::with_superuser(limits()), "function_permissions.txt");
}

#[test]
fn functions_are_disabled_unless_the_configuration_enables_them() {
    let node = Node::new();
    node.query("CREATE KEYSPACE ks WITH replication = {'class':'SimpleStrategy','replication_factor':1}");
    let create = "CREATE FUNCTION ks.f(a int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return a'";
    let disabled = "! Invalid: User-defined functions are disabled in cassandra.yaml - set \
                    user_defined_functions_enabled=true to enable";
    assert_eq!(show(&node.query(create)), disabled);
    assert_eq!(show(&node.query("CREATE AGGREGATE ks.a(int) SFUNC f STYPE int")), disabled);
}

fn prepare(node: &Node, text: &str) -> bytes::Bytes {
    let answer = node.request(|request| request.prepare(text, None));
    match answer.body {
        AnswerBody::Result(ResultBody::Prepared(prepared)) => prepared.metadata.id,
        other => panic!("{other:?}"),
    }
}

fn execute(node: &Node, id: &bytes::Bytes, values: &[Value<'_>]) -> String {
    let answer = node.request(|request| {
        request.execute(id, &[], &Parameters::new(Consistency::One, values));
    });
    match &answer.body {
        AnswerBody::Error(error) if matches!(error.kind, ErrorKind::Unprepared { .. }) => {
            "unprepared".to_owned()
        }
        _ => show(&answer),
    }
}

#[test]
fn prepared_statements_follow_their_functions() {
    let node = node();
    for text in [
        "CREATE KEYSPACE ks WITH replication = {'class':'SimpleStrategy','replication_factor':1}",
        "CREATE TABLE ks.t (k int PRIMARY KEY, v int)",
        "CREATE FUNCTION ks.f(a int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return a + 1'",
        "CREATE FUNCTION ks.plus(s int, a int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return s + a'",
        "CREATE AGGREGATE ks.total(int) SFUNC plus STYPE int INITCOND 0",
    ] {
        assert_eq!(show(&node.query(text)), "schema", "{text}");
    }
    let bytes: Vec<[u8; 4]> = (0..10_i32).map(i32::to_be_bytes).collect();
    let int = |value: usize| Value::Set(&bytes[value]);
    let insert = prepare(&node, "INSERT INTO ks.t (k, v) VALUES (?, ks.f(?))");
    let select = prepare(&node, "SELECT ks.f(v) AS a FROM ks.t WHERE k = ks.f(?)");
    let total = prepare(&node, "SELECT ks.total(v) AS a FROM ks.t WHERE k = 1");
    let other = prepare(&node, "SELECT v FROM ks.t WHERE k = 1");
    assert_eq!(execute(&node, &insert, &[int(1), int(5)]), "void");
    assert_eq!(execute(&node, &select, &[int(0)]), "| a int\n  7");
    assert_eq!(execute(&node, &total, &[]), "| a int\n  6");
    // The new body counts at once.
    let replace = "CREATE OR REPLACE FUNCTION ks.f(a int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return a * 2'";
    assert_eq!(show(&node.query(replace)), "schema");
    assert_eq!(execute(&node, &insert, &[int(2), int(5)]), "void");
    assert_eq!(execute(&node, &select, &[int(1)]), "| a int\n  20");
    for drop in ["DROP AGGREGATE ks.total", "DROP FUNCTION ks.f"] {
        assert_eq!(show(&node.query(drop)), "schema");
    }
    assert_eq!(execute(&node, &insert, &[int(1), int(1)]), "unprepared");
    assert_eq!(execute(&node, &select, &[int(1)]), "unprepared");
    assert_eq!(execute(&node, &total, &[]), "unprepared");
    assert_eq!(execute(&node, &other, &[]), "| v int\n  6");
}

/// A clock whose every look is ten microseconds later.
#[derive(Default)]
struct Moving(Cell<u64>);

impl Clock for Moving {
    fn wall_micros(&self) -> i64 {
        1_700_000_000_000_000 + self.0.get() as i64
    }

    fn now(&self) -> Instant {
        self.0.set(self.0.get() + 10);
        Instant::from_nanos(self.0.get() * 1000)
    }

    fn random(&self) -> [u8; 16] {
        [7; 16]
    }
}

fn batch_of(statements: usize, value: &str) -> String {
    let insert = |k: usize| format!("INSERT INTO ks.t (k, v) VALUES ({k}, {value});");
    format!("BEGIN UNLOGGED BATCH {} APPLY BATCH", (0..statements).map(insert).collect::<String>())
}

/// The results of all statements of a batch are held until it is written: they count together, and so does their time.
#[test]
fn the_functions_of_a_batch_share_the_limits_of_a_request() {
    let write_timeout = Duration::from_millis(200);
    let limits = ExecLimits { write_timeout, range_timeout: write_timeout, ..limits() };
    let node = Node::with_clock(Memory::new(), limits, Rc::new(Moving::default()));
    for text in [
        "CREATE KEYSPACE ks WITH replication = {'class':'SimpleStrategy','replication_factor':1}",
        "CREATE TABLE ks.t (k int PRIMARY KEY, v int)",
        "CREATE FUNCTION ks.big(a int) CALLED ON NULL INPUT RETURNS text LANGUAGE lua AS 'return (''x''):rep(400000)'",
        "CREATE FUNCTION ks.size(a text) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return a and #a or 0'",
        "CREATE FUNCTION ks.slow(a int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS \
         'local s = 0 for i = 1, 15000 do s = s + i end return 1'",
    ] {
        assert_eq!(show(&node.query(text)), "schema", "{text}");
    }
    let written = |count: usize, value: &str| show(&node.query(&batch_of(count, value)));
    assert!(written(30, "ks.size(ks.big(1))").starts_with("void"));
    let refused = written(50, "ks.size(ks.big(1))");
    let expected =
        "! Invalid: The results of the user-defined functions of the request have more than 16777216 bytes";
    assert!(refused.starts_with(expected), "{refused}");
    assert_eq!(written(2, "ks.slow(1)"), "void");
    let refused = written(100, "ks.slow(1)");
    assert!(refused.contains("ran longer than its timeout"), "{refused}");
}
