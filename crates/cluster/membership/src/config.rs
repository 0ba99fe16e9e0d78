//! The configuration of membership.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use cluster::rollback::RollbackGuard;
use cluster::state::{MemberInfo, STATE_VERSION};
use topology::{HostId, Location};

/// This node, and how it is configured.
#[derive(Clone)]
pub struct MembershipConfig {
    /// The node's host id.
    pub host: HostId,
    /// The number of this process lifetime.
    pub generation: u64,
    /// The tokens of the node's identity, which it has when it founds a cluster.
    pub tokens: Vec<i64>,
    /// Whether this node's disk was restored from an older image.
    pub guard: RollbackGuard,
    /// The node's own directory: identity, the cluster's log, notes for a restart.
    pub directory: PathBuf,
    /// `cluster_name`.
    pub cluster_name: String,
    /// Its address for other nodes.
    pub internode: SocketAddr,
    /// Its address for clients.
    pub native: SocketAddr,
    /// Its datacenter and rack.
    pub location: Location,
    /// The release version, which drivers read from `system.local`.
    pub release_version: String,
    /// `seeds`, resolved.
    pub seeds: Vec<SocketAddr>,
    /// `seeds` as they were written, for messages.
    pub seeds_text: String,
    /// Seeds whose names have no address.
    pub unresolved_seeds: Vec<String>,
    /// The dead node that this one replaces: a host id or an address.
    pub replaces: Option<String>,
    /// `ignore_dead_nodes_for_replace`: host ids or addresses of other dead nodes, without which it replaces that one.
    pub ignored: Vec<String>,
    /// `initial_token`.
    pub initial_token: String,
    /// `num_tokens`.
    pub num_tokens: u16,
    /// The first start of this node founds a cluster regardless of its seeds.
    pub new_cluster: bool,
    /// `phi_convict_threshold`.
    pub phi_convict_threshold: f64,
    /// `auto_bootstrap`: a node that joins streams the data that it will own.
    pub auto_bootstrap: bool,
    /// The longest time that a write may take.
    pub write_time_max: Duration,
    /// The longest time that any request may take.
    pub request_time_max: Duration,
}

impl MembershipConfig {
    pub(crate) fn info(&self, shards: u16) -> MemberInfo {
        MemberInfo {
            internode: self.internode,
            native: self.native,
            location: self.location.clone(),
            shard_count: shards,
            release_version: self.release_version.clone(),
            state_version: STATE_VERSION,
        }
    }
}
