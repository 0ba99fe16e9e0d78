//! A front end that is not CQL's: rows become JSON objects, values and paging states stay values.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use coordinator::Consistency;
use exec::backend::Coordinator as _;
use exec::expr::Value;
use exec::expr::bind::Binds;
use exec::lookup::Lookup;
use exec::plan::Plan;
use exec::request::Parameters;
use exec::sink::{Outcome, PagingState, ResultColumns, RowSink, Sink};
use exec::{ExecError, ExecLimits, Executor, NodeInfo};
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
        let schema = self.0.coordinator().schema();
        let (plan, markers) = Plan::parse(text, Some("ks"), &Lookup { schema: &schema })?;
        let values =
            markers.iter().zip(values).map(|(marker, value)| marker.checked(Bytes::copy_from_slice(value)));
        let binds: Binds = values.collect::<Result<Vec<Value>, _>>()?.into_iter().collect();
        let mut request = self.0.request(parameters, Some("ks"), None);
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
