//! Golden tables: `> statement` and below it the client's result. `UPDATE=1` rewrites the files; a line that begins with
//! `# oracle:` says where Cassandra answers otherwise, and why that is accepted.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use cluster::SchemaEdit;
use exec::backend::Coordinator as _;
use exec::native::{ClientState, NativeFrontend};
use exec::{Caller, ExecLimits, Executor, NodeInfo, Principal};
use schema::Role;
use wire::client::{Answer, AnswerBody, Parameters, RequestWriter, ResultBody, Rows};
use wire::{
    CqlError, Decoder, Dialect, Encoder, ErrorKind, Message, ProtocolError, Request, ResponseWriter,
    TypeOption, Value, Version,
};

use crate::memory::{Memory, TestClock};

/// Runs a future that never waits.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("nothing in memory waits"),
    }
}

/// A node in memory with one client.
pub struct Node {
    cluster: Memory,
    frontend: NativeFrontend<Memory>,
    keyspace: std::cell::RefCell<Option<Rc<str>>>,
    /// The role of the client.
    role: std::cell::RefCell<Option<String>>,
    /// How many were executed.
    executed: std::cell::Cell<u32>,
    /// The sizes that answers were reported to have grown to.
    pub grown: std::cell::RefCell<Vec<usize>>,
}

pub fn dialect() -> Dialect {
    Dialect::new(Version::V5)
}

impl Node {
    pub fn new() -> Self {
        Self::of(Memory::new())
    }

    /// A node of that cluster.
    pub fn of(cluster: Memory) -> Self {
        Self::with_limits(cluster, ExecLimits::default())
    }

    /// A node of that cluster with other settings.
    pub fn with_limits(cluster: Memory, limits: ExecLimits) -> Self {
        Self::with_clock(cluster, limits, Rc::new(TestClock::default()))
    }

    /// The same with a clock.
    pub fn with_clock(cluster: Memory, limits: ExecLimits, clock: Rc<dyn exec::backend::Clock>) -> Self {
        let node = NodeInfo {
            cluster_name: "test".to_owned(),
            snitch: "SimpleSnitch".to_owned(),
            address: "127.0.0.1:9042".parse().unwrap(),
        };
        let executor = Executor::new(cluster.clone(), clock, node, limits);
        // No node has settings here: the error shows the change.
        executor.change_settings_with(Box::new(|name, value| {
            let asked = format!("{name} would become {value}");
            Box::pin(std::future::ready(Err(asked)))
        }));
        let frontend = NativeFrontend::new(Rc::new(executor));
        let (keyspace, role, executed, grown) = Default::default();
        Self { cluster, frontend, keyspace, role, executed, grown }
    }

    /// Whether a statement is tried without a future: every other one.
    fn is_tried_at_once(&self) -> bool {
        self.executed.replace(self.executed.get() + 1).is_multiple_of(2)
    }

    /// A node that asks for permissions, with a superuser that is logged in.
    pub fn with_superuser(limits: ExecLimits) -> Self {
        let cluster = Memory::new();
        let role = Role { can_login: true, is_superuser: true, ..Role::new("cassandra") };
        let change = cluster.change_schema(cluster.schema().version(), vec![SchemaEdit::PutRole(role)]);
        block_on(change).expect("the first role");
        let node = Self::with_limits(cluster, ExecLimits { authorizes: true, ..limits });
        node.log_in("cassandra");
        node
    }

    /// The executor.
    pub fn executor(&self) -> &Rc<Executor<Memory>> {
        self.frontend.executor()
    }

    /// Its cluster.
    pub fn cluster(&self) -> Memory {
        self.cluster.clone()
    }

    /// How requests of a role are served.
    pub fn service_level(&self, role: &str) -> Rc<schema::ServiceLevel> {
        self.frontend.executor().service_level(Some(role))
    }

    /// The client is another role from here on.
    pub fn log_in(&self, role: &str) {
        *self.role.borrow_mut() = Some(role.to_owned());
    }

    /// The options of a table that exists.
    pub fn options(&self, keyspace: &str, table: &str) -> schema::TableOptions {
        self.cluster.schema().table(keyspace, table).expect("the table exists").options.clone()
    }

    /// Sends a request through the codecs and hands its answer to `read`.
    pub fn request(&self, write: impl FnOnce(&mut RequestWriter)) -> Answer {
        self.try_request(write).expect("a request that we wrote")
    }

    /// The same of a request that may be refused for its form.
    pub fn try_request(&self, write: impl FnOnce(&mut RequestWriter)) -> Result<Answer, ProtocolError> {
        let mut request = RequestWriter::new(dialect());
        write(&mut request);
        let (mut encoder, mut bytes) = (Encoder::new(), BytesMut::new());
        encoder.push_request(1, &request);
        bytes.extend_from_slice(encoder.finish());
        let envelope = decode(wire::Direction::Request, &mut bytes);
        let request = Request::decode(&envelope, dialect())?;
        let mut response = ResponseWriter::new(dialect());
        self.process(&request, &mut response);
        let (mut encoder, mut bytes) = (Encoder::new(), BytesMut::new());
        encoder.push(1, &response);
        bytes.extend_from_slice(encoder.finish());
        let answer = Answer::decode(&decode(wire::Direction::Response, &mut bytes), dialect());
        Ok(answer.expect("an answer that we wrote"))
    }

    fn process(&self, request: &Request, out: &mut ResponseWriter) {
        // Nothing in memory waits, but user-defined functions yield.
        let mut future = pin!(self.carry_out(request, out));
        let mut context = Context::from_waker(Waker::noop());
        while future.as_mut().poll(&mut context).is_pending() {}
    }

    /// A query on an executor whose tasks give way to others; how many bytes its answer has.
    pub async fn query_with_others(&self, text: &str) -> usize {
        let mut request = RequestWriter::new(dialect());
        request.query(text, &Parameters::new(wire::Consistency::One, &[]));
        let (mut encoder, mut bytes) = (Encoder::new(), BytesMut::new());
        encoder.push_request(1, &request);
        bytes.extend_from_slice(encoder.finish());
        let envelope = decode(wire::Direction::Request, &mut bytes);
        let request = Request::decode(&envelope, dialect()).expect("a request that we wrote");
        let mut response = ResponseWriter::new(dialect());
        self.carry_out(&request, &mut response).await;
        let mut encoder = Encoder::new();
        encoder.push(1, &response);
        encoder.finish().len()
    }

    async fn carry_out(&self, request: &Request, out: &mut ResponseWriter) {
        let set = |keyspace: &str| *self.keyspace.borrow_mut() = Some(keyspace.into());
        let keyspace = self.keyspace.borrow().clone();
        let role = self.role.borrow().clone();
        let service_level = self.frontend.executor().service_level(role.as_deref());
        let client = ClientState {
            keyspace,
            caller: Caller {
                principal: Principal { role: role.as_deref(), address: "127.0.0.1:5000".parse().unwrap() },
                service_level: &service_level,
            },
            set_keyspace: &set,
            answer_room: &|_| std::task::Poll::Ready(()),
            answer_grown: &|bytes| self.grown.borrow_mut().push(bytes),
        };
        let tracing = request.tracing;
        match &request.message {
            Message::Query(query) => self.frontend.query(&client, query, tracing, out).await,
            Message::Prepare(prepare) => self.frontend.prepare(&client, prepare, tracing, out).await,
            // Half of them are tried at once, as a session tries all.
            Message::Execute(execute)
                if !tracing
                    && self.is_tried_at_once()
                    && self.frontend.execute_now(&client.caller, execute, out) => {}
            Message::Execute(execute) => self.frontend.execute(&client, execute, tracing, out).await,
            Message::Batch(batch) => self.frontend.batch(&client, batch, tracing, out).await,
            other => panic!("{other:?} is no statement"),
        }
    }

    /// How many rows a SELECT returns, and the activities of its trace.
    pub fn traced(&self, text: &str) -> (usize, Vec<String>) {
        let answer = self.request(|request| {
            request.query(text, &Parameters::new(wire::Consistency::One, &[]));
            request.set_tracing(true);
        });
        let id = types::uuid::format(&answer.tracing_id.expect("a tracing id")).unwrap();
        let AnswerBody::Result(ResultBody::Rows(rows)) = answer.body else { panic!("{text} has no rows") };
        let events = self.rows(&format!("SELECT activity FROM system_traces.events WHERE session_id = {id}"));
        let text = |row: Vec<Option<Vec<u8>>>| String::from_utf8(row[0].clone().unwrap()).unwrap();
        (rows.to_vec().unwrap().len(), events.into_iter().map(text).collect())
    }

    /// The error of a statement; none when it is carried out.
    pub fn refusal(&self, text: &str) -> Option<String> {
        match self.query(text).body {
            AnswerBody::Error(error) => Some(error.message),
            _ => None,
        }
    }

    pub fn query(&self, text: &str) -> Answer {
        self.request(|request| request.query(text, &Parameters::new(wire::Consistency::One, &[])))
    }

    /// A query at a level, without values.
    pub fn query_at(&self, text: &str, consistency: wire::Consistency) -> Answer {
        self.request(|request| request.query(text, &Parameters::new(consistency, &[])))
    }

    /// A query that must succeed with rows.
    pub fn rows(&self, text: &str) -> Vec<Vec<Option<Vec<u8>>>> {
        self.rows_at(text, wire::Consistency::One)
    }

    /// [`Node::rows`] at a consistency level.
    pub fn rows_at(&self, text: &str, level: wire::Consistency) -> Vec<Vec<Option<Vec<u8>>>> {
        match self.request(|request| request.query(text, &Parameters::new(level, &[]))).body {
            AnswerBody::Result(ResultBody::Rows(rows)) => rows.to_vec().unwrap(),
            other => panic!("{text}: {other:?}"),
        }
    }

    /// A statement that must succeed.
    pub fn run(&self, text: &str) {
        if let AnswerBody::Error(error) = self.query(text).body {
            panic!("{text}: {error}");
        }
    }

    pub fn values<'a>(values: &'a [Value<'a>]) -> Parameters<'a> {
        Parameters::new(wire::Consistency::One, values)
    }
}

fn decode(direction: wire::Direction, bytes: &mut BytesMut) -> wire::Envelope {
    let mut decoder = Decoder::new(direction, 1 << 28);
    decoder.next(bytes).expect("a whole message").expect("a valid one")
}

fn type_name(ty: &TypeOption) -> String {
    match ty {
        TypeOption::Varchar => "text".to_owned(),
        TypeOption::List(element) => format!("list<{}>", type_name(element)),
        TypeOption::Set(element) => format!("set<{}>", type_name(element)),
        TypeOption::Map(entry) => format!("map<{}, {}>", type_name(&entry.0), type_name(&entry.1)),
        TypeOption::Tuple(items) => {
            format!("tuple<{}>", items.iter().map(type_name).collect::<Vec<_>>().join(", "))
        }
        TypeOption::Udt(udt) => {
            let fields: Vec<String> =
                udt.fields.iter().map(|(n, t)| format!("{n} {}", type_name(t))).collect();
            format!("udt:{}({})", udt.name, fields.join(", "))
        }
        TypeOption::Custom(class) => format!("'{class}'"),
        native => format!("{native:?}").to_lowercase(),
    }
}

fn shown(ty: &TypeOption, value: Option<&[u8]>) -> String {
    let Some(value) = value else { return "null".to_owned() };
    let integer = || {
        let wide = num(value);
        if value.is_empty() { "''".to_owned() } else { wide }
    };
    match ty {
        TypeOption::Tinyint
        | TypeOption::Smallint
        | TypeOption::Int
        | TypeOption::Bigint
        | TypeOption::Counter
        | TypeOption::Varint => integer(),
        TypeOption::Timestamp => format!("ts{}", integer()),
        TypeOption::Varchar | TypeOption::Ascii => format!("'{}'", String::from_utf8_lossy(value)),
        TypeOption::Boolean => (value == [1]).to_string(),
        TypeOption::Double => format!("{:?}", f64::from_be_bytes(value.try_into().unwrap())),
        TypeOption::Float => format!("f{:?}", f64::from(f32::from_be_bytes(value.try_into().unwrap()))),
        _ => format!("0x{}", value.iter().map(|b| format!("{b:02x}")).collect::<String>()),
    }
}

fn num(value: &[u8]) -> String {
    match value.len() {
        0 => "0".to_owned(),
        1..=16 => {
            let fill = if value[0] & 0x80 != 0 { 0xFF } else { 0 };
            let mut wide = [fill; 16];
            wide[16 - value.len()..].copy_from_slice(value);
            i128::from_be_bytes(wide).to_string()
        }
        _ => "big".to_owned(),
    }
}

fn error_name(error: &CqlError) -> &'static str {
    match error.kind {
        ErrorKind::SyntaxError => "Syntax",
        ErrorKind::Invalid => "Invalid",
        ErrorKind::ConfigError => "Config",
        ErrorKind::AlreadyExists { .. } => "AlreadyExists",
        ErrorKind::Unprepared { .. } => "Unprepared",
        ErrorKind::FunctionFailure { .. } => "FunctionFailure",
        ErrorKind::Unauthorized => "Unauthorized",
        ErrorKind::ProtocolError => "Protocol",
        ErrorKind::ServerError => "Server",
        _ => "Other",
    }
}

fn show_rows(rows: &Rows, out: &mut Vec<String>) {
    let metadata = rows.metadata.as_ref().expect("metadata was not skipped");
    let columns: Vec<String> =
        metadata.columns().iter().map(|c| format!("{} {}", c.name, type_name(&c.ty))).collect();
    out.push(format!("| {}", columns.join(" | ")));
    for row in rows.to_vec().unwrap() {
        let cells: Vec<String> =
            row.iter().zip(metadata.columns()).map(|(v, c)| shown(&c.ty, v.as_deref())).collect();
        out.push(format!("  {}", cells.join(" | ")));
    }
    if rows.paging_state.is_some() {
        out.push("more".to_owned());
    }
}

/// The client's view of an answer.
pub fn show(answer: &Answer) -> String {
    let mut out = Vec::new();
    match &answer.body {
        AnswerBody::Error(error) => out.push(format!("! {}: {}", error_name(error), error.message)),
        AnswerBody::Result(ResultBody::Rows(rows)) => show_rows(rows, &mut out),
        AnswerBody::Result(ResultBody::Void) => out.push("void".to_owned()),
        AnswerBody::Result(ResultBody::SetKeyspace(_)) => out.push("use".to_owned()),
        AnswerBody::Result(ResultBody::SchemaChange(_)) => out.push("schema".to_owned()),
        AnswerBody::Result(ResultBody::Prepared(prepared)) => {
            let spec = |m: &wire::Metadata| {
                let columns = m.columns();
                let one_table = columns.iter().all(|c| c.table == columns[0].table);
                let table = |c: &wire::ColumnSpec| match one_table {
                    true => String::new(),
                    false => format!("{}.{}.", c.keyspace, c.table),
                };
                let shown = columns.iter().map(|c| format!("{}{} {}", table(c), c.name, type_name(&c.ty)));
                shown.collect::<Vec<_>>().join(", ")
            };
            let key = format!("{:?}", prepared.metadata.partition_key_markers);
            out.push(format!("  vars ({}) pk {key}", spec(&prepared.metadata.bind_markers)));
        }
        other => out.push(format!("{other:?}")),
    }
    out.extend(answer.warnings.iter().map(|warning| format!("warning: {warning}")));
    out.join("\n")
}

/// Runs every statement of a file on a fresh node and compares the results.
pub fn check(name: &str) {
    check_on(&Node::new(), name);
}

/// Runs every statement of a file on a node and compares the results.
pub fn check_on(node: &Node, name: &str) {
    check_with(node, name, |_| None);
}

/// [`check_on`] where `instead` may answer a statement itself, in the form of the file.
pub fn check_with(node: &Node, name: &str, instead: impl Fn(&str) -> Option<String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut actual = String::new();
    let mut answered = false;
    for line in text.lines() {
        if let Some(statement) = line.strip_prefix("> ") {
            let answer = instead(statement).unwrap_or_else(|| match statement.strip_prefix("PREPARE ") {
                Some(text) => show(&node.request(|request| request.prepare(text, None))),
                None => show(&node.query(statement)),
            });
            actual.push_str(&format!("{line}\n{answer}\n"));
            answered = true;
        } else if let Some(role) = line.strip_prefix('@') {
            node.log_in(role);
            actual.push_str(&format!("{line}\n"));
        } else if line.starts_with('#') || (line.is_empty() && !answered) {
            actual.push_str(line);
            actual.push('\n');
        }
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &actual).unwrap();
        return;
    }
    if actual != text {
        let (mut wrong, mut shown) = (String::new(), 0);
        let mut statement = "";
        let lines = text.lines().zip(actual.lines());
        for (expected, got) in lines {
            if expected.starts_with("> ") {
                statement = expected;
            }
            if expected != got && shown < 400 {
                wrong.push_str(&format!("{statement}\n  expected {expected}\n  got      {got}\n"));
                shown += 1;
            }
        }
        panic!("{name} differs:\n{wrong}");
    }
}
