//! A node of session layers only, whose statements are commands of a toy language.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rt::sync::Semaphore;
use rt::{LocalBoxFuture, Rt};
use session::{
    AllowAll, Authenticator, Client, ClientTls, NodeDescription, SessionConfig, Sessions, Statement,
    StatementMessage, StatementProcessor, sessions_mesh,
};
use wire::{ColumnSpec, CqlError, ErrorKind, Metadata, ResponseWriter, TypeOption, Version};

use crate::backend::Shards;

pub const ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 2, 1)), 9042);
pub const SHARD_AWARE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 2, 1)), 19_042);

/// Carries out statements such as `sleep 10`, `big 5000`, `hold`.
pub struct Echo {
    rt: Rt,
    pub begun: Rc<Cell<usize>>,
    /// `hold` waits for a permit.
    pub gate: Semaphore,
    metadata: Metadata,
}

impl Echo {
    pub fn new(rt: &Rt, begun: Rc<Cell<usize>>, gate: Semaphore) -> Self {
        let metadata = Metadata::new(vec![ColumnSpec {
            keyspace: "ks".into(),
            table: "t".into(),
            name: "v".into(),
            ty: TypeOption::Blob,
        }]);
        Self { rt: rt.clone(), begun, gate, metadata }
    }

    async fn run(
        rt: Rt,
        gate: Semaphore,
        metadata: Metadata,
        client: Rc<Client>,
        statement: Statement,
        mut response: ResponseWriter,
    ) -> ResponseWriter {
        let query = match statement.message {
            StatementMessage::Query(query) => query,
            StatementMessage::Prepare(prepare) => {
                response.set_keyspace(&prepare.text);
                return response;
            }
            StatementMessage::Execute(_) | StatementMessage::Batch(_) => {
                response.void();
                return response;
            }
        };
        if statement.tracing {
            response.set_tracing_id([5; 16]);
        }
        let (verb, argument) = query.text.split_once(' ').unwrap_or((&query.text, ""));
        let number = || argument.parse::<u64>().unwrap_or(1);
        match verb {
            "void" => response.void(),
            "sleep" => {
                rt.sleep(Duration::from_millis(number())).await;
                response.void();
            }
            "yield" => {
                for _ in 0..number() {
                    rt.yield_now().await;
                }
                response.void();
            }
            "hold" => {
                gate.acquire(1).await.expect("open").forget();
                response.void();
            }
            "use" => {
                client.set_keyspace(argument);
                response.set_keyspace(argument);
            }
            "keyspace" => {
                let keyspace = client.keyspace();
                let mut rows = response.rows(&metadata, false, None);
                rows.cell(keyspace.as_deref().unwrap_or_default().as_bytes());
                rows.end_row();
            }
            // As a SELECT whose rows are elsewhere.
            "fetch" => {
                let mut booking = session::AnswerBooking::default();
                std::future::poll_fn(|cx| client.poll_answer_room(&mut booking, cx)).await;
                rt.sleep(Duration::from_millis(10)).await;
                let mut rows = response.rows(&metadata, false, None);
                rows.cell(&vec![7; number() as usize]);
                rows.end_row();
            }
            // The same, and the rows come one after the other.
            "grow" => {
                let mut booking = session::AnswerBooking::default();
                std::future::poll_fn(|cx| client.poll_answer_room(&mut booking, cx)).await;
                let mut rows = response.rows(&metadata, false, None);
                for _ in 0..number() {
                    rows.cell(&[7; 64 << 10]);
                    rows.end_row();
                    booking.grow(rows.len());
                }
                gate.acquire(1).await.expect("open").forget();
            }
            "big" => {
                let mut rows = response.rows(&metadata, false, None);
                rows.cell(&vec![7; number() as usize]);
                rows.end_row();
            }
            "length" => {
                let value = query.parameters.values.shared(0).unwrap_or_default();
                let mut rows = response.rows(&metadata, true, None);
                rows.cell(value.len().to_string().as_bytes());
                rows.end_row();
            }
            _ => response.error(&CqlError::new(ErrorKind::SyntaxError, format!("no statement: {verb}"))),
        }
        response
    }
}

impl StatementProcessor for Echo {
    type Processing = LocalBoxFuture<ResponseWriter>;

    /// As the service level of the role would have it; here an option of STARTUP.
    fn sheds_load(&self, client: &Client) -> Option<bool> {
        let option = client.options.iter().find(|(name, _)| name == "WORKLOAD_TYPE");
        option.map(|(_, workload)| workload == "interactive")
    }

    fn process(
        &self,
        client: Rc<Client>,
        statement: Statement,
        response: ResponseWriter,
    ) -> Self::Processing {
        self.begun.set(self.begun.get() + 1);
        let (rt, gate, metadata) = (self.rt.clone(), self.gate.clone(), self.metadata.clone());
        Box::pin(Self::run(rt, gate, metadata, client, statement, response))
    }
}

/// A test's view of the node.
#[derive(Clone)]
pub struct World {
    pub rt: Rt,
    pub sessions: Vec<Sessions<Echo>>,
    pub begun: Rc<Cell<usize>>,
    pub gate: Semaphore,
    pub clock: Rc<crate::backend::TestClock>,
}

impl World {
    pub async fn connect(&self, version: Version) -> crate::client::Client {
        crate::client::Client::connect(&self.rt, ADDRESS, None, version).await
    }

    /// A client that is ready for statements.
    pub async fn ready(&self, version: Version) -> crate::client::Client {
        let mut client = self.connect(version).await;
        client.start_up(&[]).await;
        client
    }

    pub fn metrics(&self) -> &session::SessionMetrics {
        self.sessions[0].metrics()
    }

    pub async fn sleep(&self, millis: u64) {
        self.rt.sleep(Duration::from_millis(millis)).await;
    }
}

pub fn config() -> SessionConfig {
    SessionConfig { shard_aware_address: Some(SHARD_AWARE), ..SessionConfig::new(ADDRESS) }
}

pub fn node() -> NodeDescription {
    NodeDescription {
        cql_version: "3.4.7".into(),
        host_id: "8d5ed9f4-7764-4dbd-bad8-43fddce94b7c".into(),
        partitioner: "org.apache.cassandra.dht.Murmur3Partitioner".into(),
        sharding_ignore_msb: 12,
        shard_aware_port_ssl: None,
        tablets: false,
    }
}

/// Runs a test against a node.
pub fn run_with<F: Future<Output = ()> + 'static>(
    shard_count: u16,
    config: SessionConfig,
    authenticator: impl Fn() -> Rc<dyn Authenticator>,
    test: impl FnOnce(World) -> F,
) {
    run_secured(shard_count, config, None, authenticator, test);
}

/// The same, where clients may have to use TLS.
pub fn run_secured<F: Future<Output = ()> + 'static>(
    shard_count: u16,
    config: SessionConfig,
    tls: Option<ClientTls>,
    authenticator: impl Fn() -> Rc<dyn Authenticator>,
    test: impl FnOnce(World) -> F,
) {
    let shards = Shards::new(shard_count);
    let begun = Rc::new(Cell::new(0));
    let gate = Semaphore::new(0);
    let start = |(rt, endpoint): (&Rt, session::SessionsEndpoint)| {
        let echo = Echo::new(rt, Rc::clone(&begun), gate.clone());
        Sessions::new(rt, config.clone(), node(), authenticator(), endpoint, echo)
    };
    let sessions: Vec<_> = shards.rts.iter().zip(sessions_mesh(shard_count)).map(start).collect();
    let first = sessions[0].clone();
    shards.block_on(async move { first.listen_with(tls).await }).expect("the addresses are free");
    let clock = Rc::clone(&shards.clock);
    let world = World { rt: shards.rts[0].clone(), sessions, begun, gate, clock };
    shards.block_on(test(world));
}

pub fn run<F: Future<Output = ()> + 'static>(test: impl FnOnce(World) -> F) {
    run_with(1, config(), || Rc::new(AllowAll), test);
}

pub fn run_config<F: Future<Output = ()> + 'static>(config: SessionConfig, test: impl FnOnce(World) -> F) {
    run_with(1, config, || Rc::new(AllowAll), test);
}
