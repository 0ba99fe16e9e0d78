//! Settings of the connections between nodes, and the limits of everything that a peer can make grow.

use std::net::SocketAddr;
use std::time::Duration;

use topology::HostId;

use crate::hello::Versions;
use crate::packing::Packing;
use crate::secure::Secure;
use crate::verb::Class;

/// Between which nodes bodies are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressBetween {
    /// All.
    Nodes,
    /// Those of different datacenters.
    Datacenters,
}

/// How long things may take.
#[derive(Clone, Debug)]
pub struct Timeouts {
    /// Connecting and hello, at the side that connects.
    pub connect: Duration,
    /// From accepting a connection to its hello.
    pub hello: Duration,
    /// The keepalive interval of an idle connection.
    pub keepalive: Duration,
    /// A connection on which nothing came for this time is lost. More than twice `keepalive`.
    pub silence: Duration,
    /// A connection that no call used for this time is closed.
    pub unused: Duration,
    /// After a failed attempt to connect: the first pause, which doubles with every further failure.
    pub backoff_min: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
    /// How long a one-way message is worth sending.
    pub one_way: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            hello: Duration::from_secs(5),
            keepalive: Duration::from_secs(2),
            silence: Duration::from_secs(6),
            unused: Duration::from_secs(300),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
            one_way: Duration::from_secs(5),
        }
    }
}

/// How much of everything there may be. All but the last five belong to one shard.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The longest body, packed or not, in bytes.
    pub body_len_max: usize,
    /// Calls that wait for an answer of one connection.
    pub calls_max: usize,
    /// Bodies that wait to be written to one connection, in bytes.
    pub outgoing_bytes_max: usize,
    /// Frames that wait to be written to one connection.
    pub outgoing_count_max: usize,
    /// Bodies that wait to be written to all connections together, in bytes.
    pub outgoing_total_bytes_max: usize,
    /// Requests of peers that are being served, of each class; those whose handlers wait for other nodes
    /// ([`Verb::waits_for_others`](crate::Verb::waits_for_others)) are counted apart.
    pub serving_max: usize,
    /// Requests of peers that wait to be served, counted in the same way.
    pub waiting_count_max: usize,
    /// Bodies of requests of peers that clients wait for, waiting or being served, in bytes; half of it for those whose handlers wait for other
    /// nodes. Bulk transfer may have a quarter of this beside it, urgent messages an eighth.
    pub inbound_bytes_max: usize,
    /// Long frames that have begun to come in, in bytes; at least one may always come in.
    pub partial_bytes_max: usize,
    /// Accepted connections of the node that have not said hello yet. A further one takes the place of the oldest.
    pub greeting_max: usize,
    /// The same from one address. A further one takes the place of the oldest of these.
    pub greeting_per_address_max: usize,
    /// Accepted connections of the node from one address.
    pub per_address_max: usize,
    /// Accepted connections of the node; an eighth of them is for addresses of known nodes alone.
    pub connections_max: usize,
    /// Connections that the node makes to the hosts of the cluster. Where those do not suffice for one a shard, peer and
    /// class, shards share them.
    pub connections_out_max: usize,
}

impl Limits {
    /// Half of the bytes of a class's requests on a shard.
    pub(crate) fn requests_bytes_max(&self, class: Class) -> usize {
        match class {
            Class::Request => self.inbound_bytes_max / 2,
            Class::Bulk => self.inbound_bytes_max / 8,
            Class::Urgent => self.inbound_bytes_max / 16,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_len_max: 32 << 20,
            calls_max: 65_536,
            outgoing_bytes_max: 32 << 20,
            outgoing_count_max: 65_536,
            outgoing_total_bytes_max: 128 << 20,
            serving_max: 4_096,
            waiting_count_max: 65_536,
            inbound_bytes_max: 128 << 20,
            partial_bytes_max: 64 << 20,
            greeting_max: 1024,
            greeting_per_address_max: 256,
            per_address_max: 16_384,
            connections_max: 65_536,
            connections_out_max: 16_384,
        }
    }
}

/// The configuration of a node's connections to others.
#[derive(Clone, Debug)]
pub struct RpcConfig {
    /// Nodes of other clusters are refused.
    pub cluster_name: String,
    /// This node.
    pub host: HostId,
    /// Its listen address.
    pub listen: SocketAddr,
    /// How bodies are packed.
    pub compression: Packing,
    /// For which peers.
    pub compress_between: CompressBetween,
    /// Bodies of at least so many bytes are packed.
    pub compress_len_min: usize,
    /// The versions of the protocol that are spoken.
    pub versions: Versions,
    /// Encryption; none without.
    pub secure: Option<Secure>,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// How much of everything there may be.
    pub limits: Limits,
}

impl RpcConfig {
    /// The defaults for a node.
    pub fn new(cluster_name: impl Into<String>, host: HostId, listen: SocketAddr) -> RpcConfig {
        RpcConfig {
            cluster_name: cluster_name.into(),
            host,
            listen,
            compression: Packing::None,
            compress_between: CompressBetween::Nodes,
            compress_len_min: 1024,
            versions: Versions::SPOKEN,
            secure: None,
            timeouts: Timeouts::default(),
            limits: Limits::default(),
        }
    }
}
