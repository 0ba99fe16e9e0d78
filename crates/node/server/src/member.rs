//! The node as its membership sees it: its configuration, and its shards.

use cluster::NodeIdentity;
use cluster::rollback::RollbackGuard;
use futures_util::future::{LocalBoxFuture, join_all};
use membership::{FetchedRanges, MembershipConfig, MembershipError, NodeShards, ShardTask};
use rpc::RpcConfig;
use rt::mesh::Port;
use topology::HostId;

use crate::boot::Directories;
use crate::facts::RELEASE_VERSION;
use crate::orders::{CarryOut, CloseClients, Figures, Order, Quiesce, Report};
use crate::{Config, NodeError};

/// The configuration of membership in this process lifetime, whose number is `generation`.
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
        ignored: config.ignored_for_replace().map(str::to_owned).collect(),
        initial_token: config.initial_token.trim().to_owned(),
        num_tokens: config.num_tokens,
        new_cluster: config.new_cluster,
        phi_convict_threshold: config.phi_convict_threshold,
        auto_bootstrap: config.auto_bootstrap,
        write_time_max,
        request_time_max: write_time_max.max(read_time_max),
    })
}

/// The configuration of connections to other nodes.
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
}

impl Shards {
    pub(crate) fn new(port: Port<Order, Report>) -> Self {
        Self { port }
    }
}

impl NodeShards for Shards {
    fn on_each(&self, task: ShardTask) -> LocalBoxFuture<'_, Vec<Result<FetchedRanges, MembershipError>>> {
        Box::pin(join_all(self.port.ask_each(CarryOut { task })))
    }

    fn close_clients(&self) -> LocalBoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(async {
            join_all(self.port.ask_each(CloseClients {})).await;
            Ok(())
        })
    }

    fn quiesce(&self) -> LocalBoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(async {
            join_all(self.port.ask_each(Quiesce {})).await;
            Ok(())
        })
    }

    fn batches_stored(&self) -> LocalBoxFuture<'_, u64> {
        Box::pin(async {
            let figures = join_all(self.port.ask_each(Figures {})).await;
            figures.into_iter().map(|figures| figures.batchlog.kept).sum()
        })
    }
}
