//! Messages between the shards of a node about connections, calls and requests, and the ends of the mesh that carry them.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use rt::{DetachedStream, Endpoint, Instant, Mesh};
use topology::HostId;

use crate::forwarding::{FORWARDED_MAX, ForwardedRequest, SharedCallMessage};
use crate::hello::{Agreement, Hello};
use crate::request::ForwardedOutcome;
use crate::{RpcError, Verb};

/// Connections that are on their way from one shard to another, including those that have not said hello and messages that evict them.
pub(crate) const HANDOVER_MAX: usize = 8192;
/// Calls between two shards of this node under way.
const LOCAL_CALLS_MAX: usize = 4096;

/// A connection that was accepted and has not said hello, on its way to the shard that waits for it.
pub(crate) struct Raw {
    pub(crate) number: u64,
    pub(crate) stream: DetachedStream,
    pub(crate) address: SocketAddr,
}

/// A connection that has said hello, on its way to the shard that was wanted.
pub(crate) struct Greeted {
    pub(crate) stream: DetachedStream,
    pub(crate) address: SocketAddr,
    pub(crate) hello: Hello,
    pub(crate) agreed: Agreement,
}

/// Requests between shards about connections.
pub(crate) enum Handover {
    /// Wait for the hello of this connection, which shard 0 has accepted.
    Receive(Box<Raw>),
    /// The connection of this number has not said hello and has to make room.
    Evict(u64),
    /// Own this connection from now on.
    Own(Box<Greeted>),
    /// Refuse these hosts, which were removed from the cluster.
    Removed(Arc<BTreeSet<HostId>>),
    /// To shard 0: a connection of this address has ended.
    Closed(IpAddr),
}

/// Their answers.
pub(crate) enum HandoverReply {
    /// It was done.
    Done,
    /// The connection could not be handed over.
    Failed,
}

/// A call from one shard of the node to another.
pub(crate) struct LocalCall {
    pub(crate) verb: Verb,
    pub(crate) body: Bytes,
    pub(crate) deadline: Instant,
}

/// The result of a call between shards of the node.
pub(crate) type LocalOutcome = Result<Bytes, RpcError>;

/// One shard's end of the mesh between the messengers of a node, on its way to the shard.
pub struct HandoverEndpoint {
    pub(crate) handover: Endpoint<Handover, HandoverReply>,
    pub(crate) local: Endpoint<LocalCall, LocalOutcome>,
    pub(crate) shared_calls: Endpoint<SharedCallMessage, LocalOutcome>,
    pub(crate) requests: Endpoint<ForwardedRequest, ForwardedOutcome>,
}

/// Connects the messengers of a node: one endpoint a shard, in the order of the shards.
pub fn handover_mesh(shard_count: u16) -> Vec<HandoverEndpoint> {
    let handover = Mesh::new(shard_count, HANDOVER_MAX);
    let local = Mesh::new(shard_count, LOCAL_CALLS_MAX);
    let shared_calls = Mesh::new(shard_count, FORWARDED_MAX);
    let requests = Mesh::new(shard_count, FORWARDED_MAX);
    let all = handover.into_iter().zip(local).zip(shared_calls).zip(requests);
    all.map(|(((handover, local), shared_calls), requests)| HandoverEndpoint {
        handover,
        local,
        shared_calls,
        requests,
    })
    .collect()
}
