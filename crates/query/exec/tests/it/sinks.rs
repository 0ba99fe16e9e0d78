//! A front end that is not CQL's: rows become JSON objects, values and paging states stay values.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use coordinator::Consistency;
use exec::backend::Coordinator as _;
use exec::expr::bind::Binds;
use exec::lookup::Lookup;
use exec::plan::Plan;
use exec::request::Parameters;
use exec::sink::{Outcome, PagingState, ResultColumns, RowSink, Sink};
use exec::{Caller, ExecError, ExecLimits, Executor, NodeInfo, Principal};
use rt::Instant;
use schema::ServiceLevel;
use types::CqlType;

use crate::memory::{Memory, TestClock};

/// Rows as JSON objects.
#[derive(Default)]
struct Json {
    rows: Vec<String>,
    warnings: Vec<String>,
    next: Option<PagingState>,
}

/// The result under way.
struct JsonRows<'a> {
    columns: Vec<(String, CqlType)>,
    members: Vec<String>,
    out: &'a mut Json,
}

impl Sink for Json {
    type Rows<'r> = JsonRows<'r>;

    fn rows(&mut self, columns: &ResultColumns) -> JsonRows<'_> {
        JsonRows { columns: columns.columns.clone(), members: Vec::new(), out: self }
    }

    fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }
}

impl RowSink for JsonRows<'_> {
    fn cell(&mut self, value: Option<&[u8]>) {
        let (name, ty) = &self.columns[self.members.len()];
        let value = value.map_or_else(|| "null".to_owned(), |value| ty.to_json(value));
        self.members.push(format!("{name}: {value}"));
    }

    fn end_row(&mut self) {
        assert_eq!(self.members.len(), self.columns.len(), "a row has a cell a column");
        self.out.rows.push(format!("{{{}}}", std::mem::take(&mut self.members).join(", ")));
    }

    fn row_count(&self) -> u64 {
        self.out.rows.len() as u64
    }

    fn byte_count(&self) -> usize {
        self.out.rows.iter().map(String::len).sum()
    }

    fn is_too_large(&self) -> bool {
        false
    }

    fn set_paging_state(&mut self, state: &PagingState) {
        self.out.next = Some(state.clone());
    }
}

/// Polls a future that never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("nothing in memory waits"),
    }
}

/// A node in memory that is spoken to without a protocol.
struct Node(Executor<Memory>);

impl Node {
    fn new() -> Self {
        let node = NodeInfo {
            cluster_name: "test".to_owned(),
            snitch: "SimpleSnitch".to_owned(),
            address: "127.0.0.1:8000".parse().unwrap(),
        };
        Self(Executor::new(Memory::new(), Rc::new(TestClock::default()), node, ExecLimits::default()))
    }

    fn run(
        &self,
        text: &str,
        values: &[&[u8]],
        parameters: &Parameters,
    ) -> Result<(Outcome, Json), ExecError> {
        self.run_as(self.0.default_service_level(), text, values, parameters)
    }

    fn run_as(
        &self,
        service_level: &ServiceLevel,
        text: &str,
        values: &[&[u8]],
        parameters: &Parameters,
    ) -> Result<(Outcome, Json), ExecError> {
        let schema = self.0.coordinator().schema();
        let (plan, markers) = Plan::parse(text, Some("ks"), &Lookup { schema: &schema })?;
        let mut binds = Binds::none();
        for (marker, value) in markers.iter().zip(values) {
            binds.push_checked(marker, Bytes::copy_from_slice(value))?;
        }
        let principal = Principal { role: Some("ann"), address: "127.0.0.1:5000".parse().unwrap() };
        let caller = Caller { principal, service_level };
        let mut request = self.0.request(&caller, parameters, Some("ks"), None);
        let mut sink = Json::default();
        let outcome = now(self.0.run(&plan, &binds, &mut request, &mut sink))?;
        Ok((outcome, sink))
    }

    fn ok(&self, text: &str, values: &[&[u8]]) -> (Outcome, Json) {
        self.run(text, values, &Parameters::new(Consistency::One))
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }
}

#[test]
fn a_plan_runs_into_a_sink_that_is_not_cql() {
    let node = Node::new();
    let simple = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    let (created, _) = node.ok(&format!("CREATE KEYSPACE ks WITH replication = {simple}"), &[]);
    assert!(matches!(created, Outcome::SchemaChange(change) if change.keyspace == "ks"));
    node.ok("CREATE TABLE t (p text, c int, l list<int>, PRIMARY KEY (p, c))", &[]);
    for row in 0..5_i32 {
        let written = node.ok("INSERT INTO t (p, c, l) VALUES ('a', ?, [1, 2])", &[&row.to_be_bytes()]).0;
        assert_eq!(written, Outcome::Void);
    }
    // Pages: the state goes back as the value that came.
    let mut parameters = Parameters { page_size: Some(2), ..Parameters::new(Consistency::One) };
    let mut pages = Vec::new();
    loop {
        let (outcome, page) = node.run("SELECT * FROM t WHERE p = ?", &[b"a"], &parameters).unwrap();
        assert_eq!(outcome, Outcome::Rows);
        pages.push(page.rows);
        match page.next {
            Some(next) => parameters.paging_state = Some(next),
            None => break,
        }
    }
    let row = |c: i32| format!("{{p: \"a\", c: {c}, l: [1, 2]}}");
    assert_eq!(pages, [vec![row(0), row(1)], vec![row(2), row(3)], vec![row(4)]]);
    // A paging state of another table, or of another kind of statement, is refused.
    node.ok("CREATE TABLE other (p text PRIMARY KEY)", &[]);
    parameters.paging_state = parameters.paging_state.filter(|state| matches!(state, PagingState::Rows(_)));
    assert!(parameters.paging_state.is_some());
    for statement in ["SELECT * FROM other WHERE p = 'a'", "DESCRIBE KEYSPACES"] {
        let refused = node.run(statement, &[], &parameters).map(|(outcome, _)| outcome);
        assert!(matches!(refused, Err(ExecError::Protocol(_))), "{statement}: {refused:?}");
    }
    // Results whose columns depend on the outcome, warnings, and the rest.
    let conditional = "INSERT INTO t (p, c) VALUES ('a', 0) IF NOT EXISTS";
    assert_eq!(node.ok(conditional, &[]).1.rows, ["{[applied]: false, p: \"a\", c: 0, l: [1, 2]}"]);
    let counted = node.ok("SELECT count(*) FROM t", &[]).1;
    assert_eq!(counted.rows, ["{count: 5}"]);
    assert_eq!(counted.warnings, ["Aggregation query used without partition key"]);
    assert_eq!(node.ok("USE ks", &[]).0, Outcome::Keyspace("ks".to_owned()));
    assert!(node.run("SELECT * FROM t WHERE p = ?", &[&[0xFF]], &Parameters::new(Consistency::One)).is_err());
}

/// An operation's deadline is the statement's timeout, else the service level's, else the node's; and never later than the
/// request's own deadline.
#[test]
fn deadlines_come_from_statement_service_level_node_and_request() {
    let node = Node::new();
    node.0.coordinator().shows_deadlines.set(true);
    node.ok(
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        &[],
    );
    node.ok("CREATE TABLE t (p int PRIMARY KEY, v int)", &[]);
    node.ok("CREATE TABLE counts (p int PRIMARY KEY, n counter)", &[]);
    let seconds = Duration::from_secs;
    let level = ServiceLevel { timeout: Some(seconds(7)), ..ServiceLevel::new("slow") };
    let due = |level: &ServiceLevel, text: &str, values: &[&[u8]], deadline: Option<Duration>| {
        let deadline = deadline.map(|after| Instant::START + after);
        let parameters = Parameters { deadline, ..Parameters::new(Consistency::One) };
        node.run_as(level, text, values, &parameters).unwrap_or_else(|error| panic!("{text}: {error}"));
        let due = node.0.coordinator().last_deadline().expect("an operation");
        due.duration_since(Instant::START)
    };
    let limits = ExecLimits::default();
    let default = node.0.default_service_level();
    for (text, using, of_node) in [
        ("SELECT * FROM t WHERE p = 1", "SELECT * FROM t WHERE p = 1 USING TIMEOUT 3s", limits.read_timeout),
        ("SELECT * FROM t", "SELECT * FROM t USING TIMEOUT 3s", limits.range_timeout),
        (
            "INSERT INTO t (p, v) VALUES (1, 2)",
            "INSERT INTO t (p, v) VALUES (1, 2) USING TIMEOUT 3s",
            limits.write_timeout,
        ),
        (
            "UPDATE t SET v = 2 WHERE p = 1 IF EXISTS",
            "UPDATE t USING TIMEOUT 3s SET v = 2 WHERE p = 1 IF EXISTS",
            limits.write_timeout,
        ),
        (
            "UPDATE counts SET n = n + 1 WHERE p = 1",
            "UPDATE counts USING TIMEOUT 3s SET n = n + 1 WHERE p = 1",
            limits.counter_timeout,
        ),
        (
            "BEGIN BATCH INSERT INTO t (p, v) VALUES (1, 2) APPLY BATCH",
            "BEGIN BATCH USING TIMEOUT 3s INSERT INTO t (p, v) VALUES (1, 2) APPLY BATCH",
            limits.write_timeout,
        ),
        (
            "BEGIN BATCH INSERT INTO t (p, v) VALUES (9, 2) IF NOT EXISTS APPLY BATCH",
            "BEGIN BATCH USING TIMEOUT 3s INSERT INTO t (p, v) VALUES (9, 2) IF NOT EXISTS APPLY BATCH",
            limits.write_timeout,
        ),
        ("TRUNCATE t", "TRUNCATE t USING TIMEOUT 3s", limits.truncate_timeout),
    ] {
        assert_eq!(due(default, text, &[], None), of_node, "{text}");
        assert_eq!(due(&level, text, &[], None), seconds(7), "{text}");
        assert_eq!(due(&level, using, &[], None), seconds(3), "{using}");
        assert_eq!(due(&level, text, &[], Some(seconds(1))), seconds(1), "{text}");
        assert_eq!(due(&level, text, &[], Some(seconds(600))), seconds(7), "{text}");
    }
    // Of a marker: months, days and nanoseconds as vints, here 2 s.
    let two_seconds = types::duration::Duration { months: 0, days: 0, nanos: 2_000_000_000 }.to_bytes();
    for text in [
        "TRUNCATE t USING TIMEOUT ?",
        "BEGIN BATCH USING TIMEOUT ? INSERT INTO t (p, v) VALUES (1, 2) APPLY BATCH",
    ] {
        assert_eq!(due(&level, text, &[&two_seconds], None), seconds(2), "{text}");
    }
}

/// Every module but one is free of the protocol.
#[test]
fn only_the_native_front_end_knows_the_protocol() {
    fn files(directory: &Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { files(&path, found) } else { found.push(path) }
        }
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    files(&source, &mut found);
    let names = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        text.contains("wire::") || text.contains("use wire")
    };
    let (native, others): (Vec<_>, Vec<_>) =
        found.iter().partition(|path| path.starts_with(source.join("native")));
    assert!(native.iter().any(|path| names(path)), "the search finds what it looks for");
    let wrong: Vec<_> = others.into_iter().filter(|path| names(path)).collect();
    assert!(wrong.is_empty(), "these know the protocol: {wrong:?}");
}
