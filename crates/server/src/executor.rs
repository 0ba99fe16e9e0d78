//! Statements of sessions to the executor of the shard.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;

use coordinator::Coordinator;
use exec::{ClientState, ExecLimits, Executor, NodeInfo};
use rt::Rt;
use session::{Client, Statement, StatementMessage};
use wire::ResponseWriter;

use crate::Config;
use crate::node::Boot;

/// One statement being carried out.
pub(crate) type Processing = Pin<Box<dyn Future<Output = ResponseWriter>>>;
/// What carries statements out.
pub(crate) type Processor = Box<dyn Fn(Rc<Client>, Statement, ResponseWriter) -> Processing>;
/// The executor of a shard.
pub(crate) type ShardExecutor = Rc<Executor<Coordinator>>;

/// The executor of one shard.
pub(crate) fn executor(rt: &Rt, boot: &Boot, coordinator: &Coordinator) -> ShardExecutor {
    let config = &boot.config;
    let node = NodeInfo {
        cluster_name: config.cluster_name.clone(),
        snitch: "DynamicEndpointSnitch".to_owned(),
        datacenters: vec![config.datacenter.clone()],
        nodes: 1,
        address: SocketAddr::new(config.rpc_address, config.native_transport_port),
    };
    let clock = Rc::new(rt.clone());
    Rc::new(Executor::new(coordinator.clone(), clock, node, limits(config)))
}

fn limits(config: &Config) -> ExecLimits {
    let bytes = |size: crate::Size| usize::try_from(size.0).unwrap_or(usize::MAX);
    ExecLimits {
        read_timeout: config.read_request_timeout,
        range_timeout: config.range_request_timeout,
        write_timeout: config.write_request_timeout,
        counter_timeout: config.counter_write_request_timeout,
        truncate_timeout: config.truncate_request_timeout,
        batch_warn_bytes: bytes(config.batch_size_warn_threshold),
        batch_fail_bytes: bytes(config.batch_size_fail_threshold),
        batch_partitions_warn: config.unlogged_batch_across_partitions_warn_threshold as usize,
        tombstone_warn_threshold: u32::try_from(config.tombstone_warn_threshold).unwrap_or(u32::MAX),
        ..ExecLimits::default()
    }
}

/// Sessions' way to the executor.
pub(crate) fn processor(executor: ShardExecutor) -> Processor {
    Box::new(move |client, statement, response| {
        Box::pin(process(executor.clone(), client, statement, response))
    })
}

async fn process(
    executor: ShardExecutor,
    client: Rc<Client>,
    statement: Statement,
    mut out: ResponseWriter,
) -> ResponseWriter {
    let set_keyspace = |keyspace: &str| client.set_keyspace(keyspace);
    let state =
        ClientState { keyspace: client.keyspace(), address: client.address, set_keyspace: &set_keyspace };
    let tracing = statement.tracing;
    match &statement.message {
        StatementMessage::Query(query) => executor.query(&state, query, tracing, &mut out).await,
        StatementMessage::Prepare(prepare) => executor.prepare(&state, prepare, tracing, &mut out).await,
        StatementMessage::Execute(execute) => executor.execute(&state, execute, tracing, &mut out).await,
        StatementMessage::Batch(batch) => executor.batch(&state, batch, tracing, &mut out).await,
    }
    out
}
