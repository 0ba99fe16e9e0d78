//! Statements of sessions to the executor of the shard, and prepared statements from shard to shard.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use coordinator::Coordinator;
use exec::backend::Clock;
use exec::native::{ClientState, NativeFrontend, ROWS_UNREPORTED_MAX};
use exec::{Caller, ExecLimits, Executor, NodeInfo, Principal, SlowTracing};
use futures_util::future::join_all;
use rt::mesh::Endpoint;
use rt::{Group, Rt, ShardId, Task};
use schema::Schema;
use session::{ANSWER_BYTES, AnswerBooking, Client, Statement, StatementMessage, StatementProcessor};
use wire::ResponseWriter;

use crate::Config;
use crate::boot::Boot;
use crate::config::is_class;

/// Idle workers that are pooled, each some kilobytes.
const IDLE_WORKERS_MAX: usize = 64;

const _: () = assert!(ROWS_UNREPORTED_MAX <= ANSWER_BYTES, "what is not reported is booked before");

/// Between two times that slow statements are named in the log.
const SLOW_REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// The front end of a shard for its sessions, over the executor of the shard.
pub(crate) type ShardFrontend = Rc<NativeFrontend<Coordinator>>;

/// A statement that a client prepared on one shard, on its way to the others: a driver prepares it once a node, and may
/// execute it through any shard's connection.
#[derive(Clone, Debug)]
pub(crate) struct NewStatement {
    keyspace: Option<String>,
    text: String,
}

/// A shard's end of the mesh on which prepared statements travel.
pub(crate) type StatementsEndpoint = Endpoint<NewStatement, ()>;

/// The executor of one shard.
pub(crate) fn executor(
    rt: &Rt,
    boot: &Boot,
    coordinator: &Coordinator,
    statements: StatementsEndpoint,
) -> ShardFrontend {
    let config = &boot.config;
    let node = NodeInfo {
        cluster_name: config.cluster_name.clone(),
        snitch: "DynamicEndpointSnitch".to_owned(),
        address: SocketAddr::new(config.rpc_address, config.native_transport_port),
    };
    let clock: Rc<dyn Clock> = match boot.canaries.stale_timestamps {
        true => Rc::new(StaleClock { rt: rt.clone(), asked: Cell::new(0) }),
        false => Rc::new(rt.clone()),
    };
    let executor = Rc::new(Executor::new(coordinator.clone(), clock, node, limits(config)));
    let executor = Rc::new(NativeFrontend::new(executor));
    share_prepared(rt, &executor, statements);
    share_by_levels(rt, coordinator);
    executor
}

/// An injected bug: of eight timestamps one lies three seconds back.
struct StaleClock {
    rt: Rt,
    asked: Cell<u64>,
}

impl Clock for StaleClock {
    fn wall_micros(&self) -> i64 {
        self.rt.wall_micros()
    }

    fn issued(&self, drawn: i64) -> i64 {
        let asked = self.asked.replace(self.asked.get() + 1);
        if asked % 8 == 7 { drawn - 3_000_000 } else { drawn }
    }

    fn now(&self) -> rt::Instant {
        self.rt.now()
    }

    fn random(&self) -> [u8; 16] {
        Clock::random(&self.rt)
    }

    fn pause(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()>>> {
        Clock::pause(&self.rt, time)
    }
}

/// Logs slow statements for as long as the task is held.
pub(crate) fn log_slow(rt: &Rt, executor: &ShardFrontend) -> Task<()> {
    let (clock, executor) = (rt.clone(), executor.clone());
    rt.spawn(Group::Maintenance, async move {
        loop {
            clock.sleep(SLOW_REPORT_INTERVAL).await;
            if let Some(report) = executor.executor().report_slow() {
                tracing::info!("{report}");
            }
        }
    })
}

/// Shares the statements that a client prepared on one shard with every shard.
fn share_prepared(rt: &Rt, executor: &ShardFrontend, endpoint: StatementsEndpoint) {
    let port = endpoint.attach(rt);
    let this = Rc::downgrade(executor);
    port.serve(move |_, statement| {
        let executor = this.upgrade();
        async move {
            if let Some(executor) = executor {
                executor.remember(statement.keyspace.as_deref(), &statement.text).await;
            }
        }
    });
    let (own, shard_count) = (rt.shard(), rt.shard_count());
    if shard_count == 1 {
        return;
    }
    executor.on_prepared(Box::new(move |keyspace, text| {
        let statement = NewStatement { keyspace: keyspace.map(str::to_owned), text: text.to_owned() };
        let port = port.clone();
        Box::pin(async move {
            let others = (0..shard_count).map(ShardId).filter(|shard| *shard != own);
            join_all(others.map(|shard| port.call(shard, statement.clone()))).await;
        })
    }));
}

/// The scheduling group of a client's requests: that of the service level that gives its shares.
fn group_of(executor: &Executor<Coordinator>, client: &Client) -> Group {
    let place = executor.level_place(client.role());
    place.and_then(|place| Group::LEVELS.get(place).copied()).unwrap_or(Group::Statement)
}

/// Gives the groups of service levels the shares of the schema from now on: the first level has the first group.
fn share_by_levels(rt: &Rt, coordinator: &Coordinator) {
    let rt = rt.clone();
    let share = move |schema: &Schema| {
        for (group, level) in Group::LEVELS.into_iter().zip(schema.service_levels()) {
            rt.set_shares(group, level.shares);
        }
    };
    share(&coordinator.schema());
    coordinator.on_schema_change(Box::new(move |schema, _| share(schema)));
}

/// The settings of statements.
pub(crate) fn limits(config: &Config) -> ExecLimits {
    let bytes = |size: crate::Size| usize::try_from(size.0).unwrap_or(usize::MAX);
    ExecLimits {
        read_timeout: config.read_request_timeout,
        range_timeout: config.range_request_timeout,
        write_timeout: config.write_request_timeout,
        counter_timeout: config.counter_write_request_timeout,
        cas_contention_timeout: config.cas_contention_timeout,
        truncate_timeout: config.truncate_request_timeout,
        batch_warn_bytes: bytes(config.batch_size_warn_threshold),
        batch_fail_bytes: bytes(config.batch_size_fail_threshold),
        batch_partitions_warn: config.unlogged_batch_across_partitions_warn_threshold as usize,
        prepared_bytes: bytes(config.prepared_statements_cache_size),
        tombstone_warn_threshold: u32::try_from(config.tombstone_warn_threshold).unwrap_or(u32::MAX),
        trace_probability: config.trace_probability,
        slow_after: config.slow_query_log_timeout,
        slow_tracing: SlowTracing {
            enabled: config.slow_query_tracing,
            threshold: config.slow_query_tracing_threshold,
            ttl: u32::try_from(config.slow_query_tracing_ttl.as_secs()).unwrap_or(u32::MAX),
            fast: config.slow_query_tracing_fast,
        },
        authorizes: is_class(&config.authorizer, "CassandraAuthorizer"),
        restricts_datacenters: is_class(&config.network_authorizer, "CassandraNetworkAuthorizer"),
        restricts_addresses: is_class(&config.cidr_authorizer, "CassandraCIDRAuthorizer"),
        directory_roles: config.uses_directory_groups(),
        bcrypt_cost: config.auth_bcrypt_gensalt_log2_rounds,
        guardrails: config.guardrails().expect("they were checked with the configuration"),
        materialized_views: config.materialized_views_enabled,
        default_keyspace_rf: config.default_keyspace_rf.into(),
        data_masking: config.dynamic_data_masking_enabled,
        functions: exec::FunctionLimits {
            enabled: config.user_defined_functions_enabled,
            fail_after: config.user_defined_functions_fail_timeout,
            warn_after: config.user_defined_functions_warn_timeout,
            memory_bytes: bytes(config.user_defined_function_allocation_limit_bytes),
            wasm_memory_bytes: bytes(config.wasm_udf_memory_limit),
        },
    }
}

/// Sessions' way to the executor.
pub(crate) struct Processor {
    rt: Rt,
    executor: ShardFrontend,
    idle: Rc<RefCell<Vec<Worker>>>,
}

impl Processor {
    /// The way to an executor.
    pub(crate) fn new(rt: &Rt, executor: ShardFrontend) -> Self {
        Self { rt: rt.clone(), executor, idle: Rc::default() }
    }

    /// Has the connection, which is the running task, run in the group of its client.
    #[inline]
    fn schedule(&self, client: &Client) {
        self.rt.move_current(group_of(self.executor.executor(), client));
    }
}

impl StatementProcessor for Processor {
    type Processing = Processing;

    fn process_now(&self, client: &Client, execute: &wire::Execute, response: &mut ResponseWriter) -> bool {
        let executor = self.executor.executor();
        self.schedule(client);
        let of_role;
        let service_level = match client.role() {
            None => executor.default_service_level(),
            role => {
                of_role = executor.service_level(role);
                &of_role
            }
        };
        let principal = Principal { role: client.role(), address: client.address };
        self.executor.execute_now(&Caller { principal, service_level }, execute, response)
    }

    fn sheds_load(&self, client: &Client) -> Option<bool> {
        self.executor.executor().service_level(client.role()).workload.sheds_load()
    }

    fn process(&self, client: Rc<Client>, statement: Statement, response: ResponseWriter) -> Processing {
        self.schedule(&client);
        let idle = self.idle.borrow_mut().pop();
        let worker = idle.unwrap_or_else(|| Worker::new(self.executor.clone()));
        *worker.slot.job.borrow_mut() = Some((client, statement, response));
        Processing { worker: Some(worker), idle: self.idle.clone() }
    }
}

/// A future that carries out one statement after another. The state of a statement under way takes some kilobytes:
/// making room for it and moving it there for each would cost more than many a statement.
struct Worker {
    slot: Rc<Slot>,
    work: Pin<Box<dyn Future<Output = ()>>>,
}

/// A worker's next statement, and its answer.
#[derive(Default)]
struct Slot {
    job: RefCell<Option<(Rc<Client>, Statement, ResponseWriter)>>,
    answer: RefCell<Option<ResponseWriter>>,
}

impl Worker {
    fn new(executor: ShardFrontend) -> Self {
        let slot = Rc::new(Slot::default());
        let work = Box::pin(work(executor, slot.clone()));
        Self { slot, work }
    }
}

async fn work(executor: ShardFrontend, slot: Rc<Slot>) {
    loop {
        let (client, statement, response) =
            poll_fn(|_| slot.job.borrow_mut().take().map_or(Poll::Pending, Poll::Ready)).await;
        let answer = process(&executor, &client, &statement, response).await;
        *slot.answer.borrow_mut() = Some(answer);
    }
}

/// A statement under way. Dropped before its end it takes its worker along, whose state is that of the statement.
pub(crate) struct Processing {
    worker: Option<Worker>,
    idle: Rc<RefCell<Vec<Worker>>>,
}

impl Future for Processing {
    type Output = ResponseWriter;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ResponseWriter> {
        let worker = self.worker.as_mut().expect("a statement is polled until it is done");
        assert!(worker.work.as_mut().poll(cx).is_pending(), "a worker never ends");
        let Some(answer) = worker.slot.answer.borrow_mut().take() else { return Poll::Pending };
        let worker = self.worker.take();
        let mut idle = self.idle.borrow_mut();
        if idle.len() < IDLE_WORKERS_MAX {
            idle.extend(worker);
        }
        Poll::Ready(answer)
    }
}

async fn process(
    executor: &ShardFrontend,
    client: &Client,
    statement: &Statement,
    mut out: ResponseWriter,
) -> ResponseWriter {
    let set_keyspace = |keyspace: &str| client.set_keyspace(keyspace);
    let booking = RefCell::new(AnswerBooking::default());
    let answer_room = |cx: &mut Context<'_>| client.poll_answer_room(&mut booking.borrow_mut(), cx);
    let answer_grown = |bytes: usize| booking.borrow_mut().grow(bytes);
    let service_level = executor.executor().service_level(client.role());
    let state = ClientState {
        keyspace: client.keyspace(),
        caller: Caller {
            principal: Principal { role: client.role(), address: client.address },
            service_level: &service_level,
        },
        set_keyspace: &set_keyspace,
        answer_room: &answer_room,
        answer_grown: &answer_grown,
    };
    let tracing = statement.tracing;
    match &statement.message {
        StatementMessage::Query(query) => executor.query(&state, query, tracing, &mut out).await,
        StatementMessage::Prepare(prepare) => executor.prepare(&state, prepare, tracing, &mut out).await,
        StatementMessage::Execute(execute) => executor.execute(&state, execute, tracing, &mut out).await,
        StatementMessage::Batch(batch) => executor.batch(&state, batch, tracing, &mut out).await,
    }
    out
}
