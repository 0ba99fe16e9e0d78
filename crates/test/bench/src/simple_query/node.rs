//! One shard with everything below the sockets, and requests to it as their bytes would come from a client.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use cluster::group::{Group, GroupConfig, Opened};
use cluster::state::{MemberInfo, STATE_VERSION};
use coordinator::{ClusterView, Coordinator, Phase, ViewNode};
use engine::{Engine, EngineConfig};
use exec::native::{ClientState, NativeFrontend};
use exec::{Caller, ExecLimits, Executor, NodeInfo, Principal};
use replica::{Replica, ReplicaConfig, TableOperation};
use rpc::{Messenger, RpcConfig};
use rt::Rt;
use rt::mesh::Mesh;
use topology::{HostId, Location};
use wire::client::{Answer, AnswerBody, Parameters, RequestWriter, ResultBody};
use wire::{
    Consistency, Decoder, Dialect, Direction, Encoder, Envelope, Message, Request, ResponseWriter, Value,
    Version,
};

/// The bytes of a statement's id.
type StatementId = Bytes;

/// The version that the published figures of others were taken with.
const VERSION: Version = Version::V4;
/// Memory for memtables: nothing is flushed unless a flush is requested.
const MEMTABLE_BYTES: usize = 4 << 30;
/// The longest message, in bytes.
const MESSAGE_LEN_MAX: usize = 1 << 20;

/// The host that the node is.
const HOST: HostId = HostId([1; 16]);

/// A cluster of this node alone, whose log decides on the schema.
async fn found(rt: &Rt, directory: &Path) -> Result<Group, String> {
    let name = "simple-query";
    let internode = SocketAddr::from((Ipv4Addr::LOCALHOST, 7000));
    let endpoint = rpc::handover_mesh(1).pop().expect("one shard, one end");
    let messenger = Messenger::new(rt, Arc::new(RpcConfig::new(name, HOST, internode)), endpoint);
    let info = MemberInfo {
        internode,
        native: (Ipv4Addr::LOCALHOST, 9042).into(),
        location: Location::new("datacenter1", "rack1"),
        shard_count: 1,
        release_version: "5.0.6".to_owned(),
        state_version: STATE_VERSION,
    };
    // With the tables in `system` that a node stores votes and batches in.
    let mut own = cluster::own_schema();
    for keyspace in catalog::computed_keyspaces() {
        own = own.with_keyspace(keyspace);
    }
    let config = GroupConfig { own, ..GroupConfig::new(directory, name, HOST, info) };
    match Group::open(rt, &messenger, config).await.map_err(|error| error.to_string())? {
        Opened::Member(group) => Ok(group),
        Opened::Blank(blank) => blank.start_first_node(vec![0]).await.map_err(|error| error.to_string()),
    }
}

/// A node of one shard without sockets.
pub(super) struct Node {
    engine: Engine,
    replica: Replica,
    coordinator: Coordinator,
    frontend: NativeFrontend<Coordinator>,
    /// Buffers that a connection reuses: the outgoing bytes, and the memory of a response.
    connection: RefCell<(Encoder, BytesMut)>,
}

impl Node {
    /// Opens a node whose files live in a directory, or, where the disk is memory, anywhere.
    pub(super) async fn open(rt: &Rt, directory: Option<&Path>) -> Result<Self, String> {
        let root = directory.map_or_else(|| PathBuf::from("/simple-query"), Path::to_owned);
        let (data, log) = (root.join("data"), root.join("commitlog"));
        for directory in [&data, &log] {
            rt.disk().create_dir_all(directory).await.map_err(|error| error.to_string())?;
        }
        let group = found(rt, &data).await?;
        let schema = group.applied().state.schema.clone();
        let config = EngineConfig { memtable_bytes_max: MEMTABLE_BYTES, ..EngineConfig::new(data, log) };
        let engine = Engine::open(rt.clone(), config, Arc::new(schema.stored()));
        let engine = engine.await.map_err(|error| error.to_string())?;
        let replica_end = Mesh::new(1, 16).pop().expect("one shard, one end");
        let coordinator_end = Mesh::new(1, 16).pop().expect("one shard, one end");
        let replica_config = ReplicaConfig { tombstone_failure_threshold: 100_000 };
        let replica = Replica::new(rt, engine.clone(), replica_end.attach(rt), replica_config);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 9042));
        let view = ClusterView::alone(ViewNode {
            host: HOST,
            native: address,
            internode: (Ipv4Addr::LOCALHOST, 7000).into(),
            location: Location::new("datacenter1", "rack1"),
            shards: 1,
            tokens: vec![0],
            alive: true,
            ready: true,
            release_version: "5.0.6".to_owned(),
            schema_version: None,
            phase: Phase::Normal,
        });
        let coordinator =
            Coordinator::new(rt.clone(), Arc::new(view), replica.clone(), coordinator_end.attach(rt), schema);
        coordinator.derive_views();
        coordinator.capture_changes();
        coordinator.follow(&group, Box::new(|_, _| None));
        let node =
            NodeInfo { cluster_name: "simple-query".to_owned(), snitch: "SimpleSnitch".to_owned(), address };
        let clock = Rc::new(rt.clone());
        let executor = Executor::new(coordinator.clone(), clock, node, ExecLimits::default());
        let connection = RefCell::new((Encoder::new(), BytesMut::with_capacity(4096)));
        let frontend = NativeFrontend::new(Rc::new(executor));
        Ok(Node { engine, replica, coordinator, frontend, connection })
    }

    /// The executor of its statements.
    pub(super) fn executor(&self) -> &Rc<Executor<Coordinator>> {
        self.frontend.executor()
    }

    /// Ends storage in order.
    pub(super) async fn stop(&self) -> Result<(), String> {
        self.engine.stop().await.map_err(|error| error.to_string())
    }

    /// The way of a request from its envelope to the response in a connection's outgoing bytes; their number.
    pub(super) async fn answer_len(&self, envelope: &Envelope) -> Result<usize, String> {
        self.carry_out(envelope).await?;
        let mut connection = self.connection.borrow_mut();
        let output = connection.0.finish();
        let len = output.len();
        output.advance(len);
        Ok(len)
    }

    async fn carry_out(&self, envelope: &Envelope) -> Result<(), String> {
        let dialect = Dialect::new(envelope.version);
        let request = Request::decode(envelope, dialect).map_err(|error| error.to_string())?;
        let buffer = std::mem::take(&mut self.connection.borrow_mut().1);
        let mut response = ResponseWriter::with_buffer(dialect, buffer);
        let set_keyspace = |_: &str| {};
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 40_000));
        let client = ClientState {
            keyspace: None,
            caller: Caller {
                principal: Principal { role: None, address },
                service_level: self.frontend.executor().default_service_level(),
            },
            set_keyspace: &set_keyspace,
            answer_room: &|_| std::task::Poll::Ready(()),
            answer_grown: &|_| {},
        };
        match &request.message {
            Message::Query(query) => self.frontend.query(&client, query, false, &mut response).await,
            Message::Prepare(prepare) => self.frontend.prepare(&client, prepare, false, &mut response).await,
            // As a session does it.
            Message::Execute(execute)
                if self.frontend.execute_now(&client.caller, execute, &mut response) => {}
            Message::Execute(execute) => self.frontend.execute(&client, execute, false, &mut response).await,
            other => return Err(format!("no statement: {other:?}")),
        }
        let mut connection = self.connection.borrow_mut();
        connection.0.push(envelope.stream, &response);
        connection.1 = response.into_buffer();
        Ok(())
    }

    /// The same, with the answer as a client reads it.
    async fn answer(&self, envelope: &Envelope) -> Result<AnswerBody, String> {
        self.carry_out(envelope).await?;
        let mut bytes = self.connection.borrow_mut().0.finish().split();
        let envelope = Decoder::new(Direction::Response, MESSAGE_LEN_MAX).next(&mut bytes);
        let envelope = envelope.ok_or("no answer")?.map_err(|rejection| rejection.error.to_string())?;
        let answer = Answer::decode(&envelope, Dialect::new(VERSION)).map_err(|error| error.to_string())?;
        match answer.body {
            AnswerBody::Error(error) => Err(error.to_string()),
            body => Ok(body),
        }
    }

    /// The answer to a request, in words.
    pub(super) async fn explain(&self, envelope: &Envelope) -> String {
        match self.answer(envelope).await {
            Ok(answer) => format!("{answer:?}"),
            Err(error) => error,
        }
    }

    /// A statement as text.
    pub(super) async fn query(&self, text: &str) -> Result<(), String> {
        let mut writer = RequestWriter::new(Dialect::new(VERSION));
        writer.query(text, &Parameters::new(Consistency::One, &[]));
        self.answer(&received(&writer)?).await.map(drop).map_err(|error| format!("{text}: {error}"))
    }

    /// Prepares a statement.
    pub(super) async fn prepare(&self, text: &str) -> Result<StatementId, String> {
        let mut writer = RequestWriter::new(Dialect::new(VERSION));
        writer.prepare(text, None);
        match self.answer(&received(&writer)?).await? {
            AnswerBody::Result(ResultBody::Prepared(prepared)) => Ok(prepared.metadata.id),
            other => Err(format!("{text}: {other:?}")),
        }
    }

    /// The request that executes a statement, as it comes out of a connection.
    pub(super) fn execute_request(&self, id: &StatementId, values: &[&[u8]]) -> Result<Envelope, String> {
        let values: Vec<_> = values.iter().map(|value| Value::Set(value)).collect();
        let parameters = Parameters { skip_metadata: true, ..Parameters::new(Consistency::One, &values) };
        let mut writer = RequestWriter::new(Dialect::new(VERSION));
        writer.execute(id, &[], &parameters);
        received(&writer)
    }

    /// Carries out a statement, which has to succeed.
    pub(super) async fn expect_answer(&self, envelope: &Envelope) -> Result<(), String> {
        self.answer(envelope).await.map(drop)
    }

    /// Carries out a write.
    pub(super) async fn expect_void(&self, envelope: &Envelope) -> Result<(), String> {
        match self.answer(envelope).await? {
            AnswerBody::Result(ResultBody::Void) => Ok(()),
            other => Err(format!("a write was answered with {other:?}")),
        }
    }

    /// Carries out a read, whose answer has to be one row of these cells.
    pub(super) async fn expect_row(&self, envelope: &Envelope, cells: &[&[u8]]) -> Result<(), String> {
        let AnswerBody::Result(ResultBody::Rows(rows)) = self.answer(envelope).await? else {
            return Err("a read was not answered with rows".to_owned());
        };
        let found = rows.to_vec().map_err(|error| error.to_string())?;
        let same =
            |row: &Vec<Option<Vec<u8>>>| row.iter().map(Option::as_deref).eq(cells.iter().copied().map(Some));
        if found.len() == 1 && found.iter().all(same) {
            return Ok(());
        }
        Err(format!("{} rows, or other cells than were written", found.len()))
    }

    /// Does something to a table's files.
    pub(super) async fn table_operation(
        &self,
        keyspace: &str,
        table: &str,
        operation: TableOperation,
    ) -> Result<(), String> {
        let schema = self.coordinator.schema();
        let found = schema.keyspace(keyspace).and_then(|keyspace| keyspace.tables.get(table));
        let id = found.ok_or_else(|| format!("there is no table {keyspace}.{table}"))?.id;
        self.replica.table_operation(id, operation).await.map_err(|error| error.to_string())
    }
}

/// A request on its way through a connection's encoder and decoder.
fn received(writer: &RequestWriter) -> Result<Envelope, String> {
    let mut encoder = Encoder::new();
    encoder.push_request(1, writer);
    let mut bytes = encoder.finish().split();
    let envelope = Decoder::new(Direction::Request, MESSAGE_LEN_MAX).next(&mut bytes);
    envelope.ok_or("a request of its own is cut short")?.map_err(|rejection| rejection.error.to_string())
}
