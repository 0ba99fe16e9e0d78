//! The node as its membership sees it: its configuration, and its shards.

use cluster::NodeIdentity;
use cluster::rollback::RollbackGuard;
use futures_util::future::{LocalBoxFuture, join_all};
use membership::{FetchedRanges, MembershipConfig, MembershipError, NodeShards, ShardTask};
use rpc::RpcConfig;
use rt::ShardId;
use rt::mesh::Port;
use topology::HostId;

use crate::facts::RELEASE_VERSION;
use crate::node::{Directories, Order, Report};
use crate::{Config, NodeError};

/// What membership has to know of the node in this process lifetime, whose number is `generation`.
pub(crate) fn config(
    config: &Config,
    identity: &NodeIdentity,
    (generation, guard): (u64, RollbackGuard),
    directories: &Directories,
) -> Result<MembershipConfig, NodeError> {
    let write_time_max = config.write_request_timeout.max(config.counter_write_request_timeout);
    let read_time_max = config.read_request_timeout.max(config.range_request_timeout);
    Ok(MembershipConfig {
        host: HostId(identity.host_id),
        generation,
        tokens: identity.tokens.clone(),
        guard,
        directory: directories.node.clone(),
        cluster_name: config.cluster_name.clone(),
        internode: config.internode_address(),
        native: config.native_address(),
        location: config.location(),
        release_version: RELEASE_VERSION.to_owned(),
        seeds: config.seed_addresses().map_err(|error| NodeError::Cluster(error.to_string()))?,
        seeds_text: config.seeds.clone(),
        unresolved_seeds: config.unresolved_seeds().map(str::to_owned).collect(),
        replaces: config.replaces().map(str::to_owned),
        initial_token: config.initial_token.trim().to_owned(),
        num_tokens: config.num_tokens,
        new_cluster: config.new_cluster,
        phi_convict_threshold: config.phi_convict_threshold,
        auto_bootstrap: config.auto_bootstrap,
        write_time_max,
        request_time_max: write_time_max.max(read_time_max),
    })
}

/// How the node speaks with others.
pub(crate) fn rpc_config(config: &Config, host: HostId) -> RpcConfig {
    let listen = (config.listen_address, config.storage_port).into();
    let (compression, compress_between) = config.packing();
    let defaults = RpcConfig::new(config.cluster_name.clone(), host, listen);
    let most = config.connection_limits();
    let mut limits = defaults.limits.clone();
    limits.connections_max = limits.connections_max.min(most.internode);
    limits.connections_out_max = limits.connections_out_max.min(most.internode_out);
    RpcConfig { compression, compress_between, limits, ..defaults }
}

/// The node's shards, reached from shard 0.
pub(crate) struct Shards {
    port: Port<Order, Report>,
    count: u16,
}

impl Shards {
    pub(crate) fn new(port: Port<Order, Report>, count: u16) -> Self {
        Self { port, count }
    }

    async fn each(&self, order: Order) -> Vec<Report> {
        join_all((0..self.count).map(|shard| self.port.call(ShardId(shard), order.clone()))).await
    }

    /// Gives every shard an order without a result; the first failure when all have reported.
    async fn all(&self, order: Order) -> Result<(), MembershipError> {
        self.each(order).await.into_iter().try_for_each(|report| match report {
            Report::Done(result) => result.map_err(|error| MembershipError::Cluster(error.to_string())),
            Report::Fetched(_) | Report::Figures(_) => panic!("that is no answer to an order"),
        })
    }
}

impl NodeShards for Shards {
    fn on_each(&self, task: ShardTask) -> LocalBoxFuture<'_, Vec<Result<FetchedRanges, MembershipError>>> {
        Box::pin(async move {
            let fetched = |report| match report {
                Report::Fetched(fetched) => fetched,
                Report::Done(_) | Report::Figures(_) => panic!("that is no answer to a task"),
            };
            self.each(Order::Task(task)).await.into_iter().map(fetched).collect()
        })
    }

    fn close_clients(&self) -> LocalBoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(self.all(Order::CloseFront))
    }

    fn quiesce(&self) -> LocalBoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(self.all(Order::Quiet))
    }

    fn batches_stored(&self) -> LocalBoxFuture<'_, u64> {
        Box::pin(async move {
            let kept = |report: Report| match report {
                Report::Figures(figures) => figures.batchlog.kept,
                Report::Done(_) | Report::Fetched(_) => 0,
            };
            self.each(Order::Figures).await.into_iter().map(kept).sum()
        })
    }
}
