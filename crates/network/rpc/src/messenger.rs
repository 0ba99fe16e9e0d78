//! [`Messenger`]: one shard's end of the protocol, as the rest of the node sees it.

use std::collections::BTreeSet;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use bytes::Bytes;
use rt::sync::oneshot;
use rt::{Instant, LocalBoxFuture, NetError, Rt, ShardId};
use topology::HostId;

use crate::connections::Connections;
use crate::forwarding::SharedCall;
use crate::handover::{Handover, HandoverEndpoint, HandoverReply, LocalCall, LocalOutcome};
use crate::peer::Key;
use crate::peer_table::PeerLinks;
use crate::request::Incoming;
use crate::serving::{Reply, ReplyTo};
use crate::shard::{Shard, Tasks};
use crate::stats::RpcStats;
use crate::{Amount, Class, Peers, Refusal, RpcConfig, RpcError, Verb, accept, forward};

/// The target of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A shard of a host of the cluster. The shard is taken modulo the peer's shard count.
    Host {
        /// The host.
        host: HostId,
        /// Its shard.
        shard: u16,
    },
    /// Shard 0 of the node that listens there and belongs to the cluster.
    Address(SocketAddr),
}

/// One shard's end of the internode protocol. Cheap to clone.
#[derive(Clone)]
pub struct Messenger {
    connections: Rc<Connections>,
}

impl Messenger {
    fn shard(&self) -> &Rc<Shard> {
        &self.connections.shard
    }

    /// Has `listener` called with the address of a peer to which a connection of this shard broke or could not be made: the
    /// peer's process may have ended.
    pub fn on_lost(&self, listener: impl Fn(SocketAddr) + 'static) {
        *self.shard().on_lost.borrow_mut() = Some(Rc::new(listener));
    }

    /// Has `listener` called with the address of a peer that refuses this node because it was removed from the cluster: that is for
    /// good, and the node must serve nobody any more.
    pub fn on_removed(&self, listener: impl Fn(SocketAddr) + 'static) {
        *self.shard().on_removed.borrow_mut() = Some(Rc::new(listener));
    }

    /// Refuses connections of these hosts on all shards of the node, which were removed from the cluster, and closes those that
    /// they have: so they learn of it. On shard 0.
    pub fn refuse_removed(&self, removed: BTreeSet<HostId>) {
        let (shard, removed) = (self.shard(), Arc::new(removed));
        assert_eq!(shard.rt.shard(), ShardId(0), "shard 0 knows who was removed");
        if shard.stopped.get() || *shard.removed.borrow() == removed {
            return;
        }
        self.connections.refuse_removed(&removed);
        for other in (1..shard.rt.shard_count()).map(ShardId) {
            let (port, removed) = (self.connections.handover.clone(), Arc::clone(&removed));
            Tasks::spawn(shard, Class::Urgent.group(), async move {
                port.call(other, Handover::Removed(removed)).await;
            });
        }
    }

    /// The end of the shard of `rt`, ready to own connections. To be made on every shard; shard 0 then calls
    /// [`Messenger::listen`].
    pub fn new(rt: &Rt, config: Arc<RpcConfig>, endpoint: HandoverEndpoint) -> Messenger {
        let connections = Connections::new(rt, config, endpoint);
        // A node that ends without `stop` would keep its connections for ever: they and their tasks hold each other.
        let ending = Rc::clone(&connections);
        rt.executor().on_shutdown(move || ending.end());
        let weak = Rc::downgrade(&connections);
        connections.handover.serve(move |_, request| {
            let connections = Weak::upgrade(&weak);
            async move {
                match (connections, request) {
                    (Some(connections), Handover::Receive(raw)) => {
                        accept::receive_raw(&connections, *raw).await
                    }
                    (Some(connections), Handover::Evict(number)) => accept::evict_here(&connections, number),
                    (Some(connections), Handover::Own(greeted)) => accept::own(&connections, *greeted),
                    (Some(connections), Handover::Closed(address)) => {
                        connections.acceptor.closed(address);
                        HandoverReply::Done
                    }
                    (Some(connections), Handover::Removed(removed)) => {
                        connections.refuse_removed(&removed);
                        HandoverReply::Done
                    }
                    (None, _) => HandoverReply::Failed,
                }
            }
        });
        let weak = Rc::downgrade(&connections);
        connections.local.serve(move |_, call: LocalCall| {
            let connections = Weak::upgrade(&weak);
            async move {
                match connections {
                    Some(connections) => serve_local(&connections, call).await,
                    None => Err(RpcError::Stopped),
                }
            }
        });
        forward::serve(&connections);
        Messenger { connections }
    }

    /// Answers requests of a verb on this shard. The handler's future runs in the verb's scheduling group and is
    /// dropped at the deadline, after which no answer is sent; it continues when the connection is lost.
    ///
    /// # Panics
    /// When the verb has a handler already.
    pub fn serve<F>(&self, verb: Verb, handler: impl Fn(Incoming) -> F + 'static)
    where
        F: Future<Output = Result<Bytes, Refusal>> + 'static,
    {
        let run = move |incoming: Incoming, reply: Reply| -> LocalBoxFuture<()> {
            let future = handler(incoming);
            Box::pin(async move { reply.send(future.await) })
        };
        if !self.shard().stopped.get() {
            self.connections.serving.serve(verb, Rc::new(run));
        }
    }

    /// Listens for other nodes; with the port that the system chose where port 0 was asked for.
    ///
    /// # Errors
    /// A [`NetError`] when the address is in use, is none of this machine, or needs a privilege.
    ///
    /// # Panics
    /// On another shard than 0.
    pub async fn listen(&self) -> Result<SocketAddr, NetError> {
        accept::listen(&self.connections).await
    }

    /// Takes over where the hosts of the cluster are. Calls to hosts that have moved or are gone fail at once.
    pub fn set_peers(&self, peers: Arc<Peers>) {
        if !self.shard().stopped.get() {
            self.connections.peers.set_peers(&peers);
        }
    }

    /// The peer that `to` names, and its shard.
    fn peer(&self, to: Target) -> Result<(Rc<PeerLinks>, u16), RpcError> {
        let (key, shard) = match to {
            Target::Host { host, shard } => (Key::Host(host), shard),
            Target::Address(address) => (Key::Address(address), 0),
        };
        Ok((self.connections.peers.peer(key).ok_or(RpcError::UnknownHost)?, shard))
    }

    /// The shard of this node whose connection carries a class to a peer, when it is another one.
    fn owner(&self, peer: &PeerLinks, class: Class) -> Option<(HostId, ShardId)> {
        let (owner, Key::Host(host)) = (peer.owner(class), peer.peer.key) else { return None };
        (owner != self.shard().rt.shard()).then_some((host, owner))
    }

    fn check(&self, len: usize) -> Result<(), RpcError> {
        if self.shard().stopped.get() {
            return Err(RpcError::Stopped);
        }
        let max = self.shard().config.limits.body_len_max;
        if len > max { Err(RpcError::TooLarge { len, max }) } else { Ok(()) }
    }

    /// The shard of this node that `to` names, if it does.
    fn own_shard(&self, to: Target) -> Option<ShardId> {
        match to {
            Target::Host { host, shard } if host == self.shard().config.host => {
                Some(ShardId(shard % self.shard().rt.shard_count()))
            }
            _ => None,
        }
    }

    /// Asks a peer and waits for the answer until the deadline. A call whose future is dropped is still sent and
    /// served. A call to this node itself meets no socket.
    ///
    /// # Errors
    /// [`RpcError::TooLarge`], [`RpcError::UnknownHost`], [`RpcError::Stopped`] and those of the connection before the
    /// request has left; [`RpcError::TimedOut`] and a lost connection when it may have been carried out; the peer's
    /// refusal.
    pub async fn call(
        &self,
        to: Target,
        verb: Verb,
        body: Bytes,
        deadline: Instant,
    ) -> Result<Bytes, RpcError> {
        self.call_parts(to, verb, Bytes::new(), body, deadline).await
    }

    /// The same with a body of two parts, which arrive as one: a long second part is written from where it is.
    ///
    /// # Errors
    /// As [`Messenger::call`].
    pub async fn call_parts(
        &self,
        to: Target,
        verb: Verb,
        head: Bytes,
        tail: Bytes,
        deadline: Instant,
    ) -> Result<Bytes, RpcError> {
        self.check(head.len() + tail.len())?;
        if let Some(own) = self.own_shard(to) {
            let body = if head.is_empty() { tail } else { Bytes::from([head, tail].concat()) };
            let call = self.connections.local.call(own, LocalCall { verb, body, deadline });
            return self.shard().rt.timeout_at(deadline, call).await.unwrap_or(Err(RpcError::TimedOut));
        }
        let (peer, shard) = self.peer(to)?;
        let body = [head, tail];
        if let Some((host, owner)) = self.owner(&peer, verb.class()) {
            let info = peer.peer.info;
            let call = SharedCall { host, info, shard, verb, body, deadline, answered: true };
            // Boxed, so that calls over this shard's own connection are not longer for it.
            return Box::pin(forward::call(&self.connections, owner, call)).await;
        }
        peer.link(self.shard(), verb.class()).call(shard, verb, body, deadline).await
    }

    /// Sends a message that wants no answer; dropped and counted when it cannot be sent.
    pub fn send(&self, to: Target, verb: Verb, body: Bytes) {
        if self.check(body.len()).is_err() {
            self.shard().counters.dropped(verb, crate::Dropped::QueueFull);
            return;
        }
        if let Some(own) = self.own_shard(to) {
            let deadline = self.shard().rt.now() + self.shard().config.timeouts.one_way;
            let port = self.connections.local.clone();
            Tasks::spawn(self.shard(), verb.group(), async move {
                // Nobody waits for the outcome.
                let _ = port.call(own, LocalCall { verb, body, deadline }).await;
            });
            return;
        }
        let Ok((peer, shard)) = self.peer(to) else {
            self.shard().counters.dropped(verb, crate::Dropped::NotConnected);
            return;
        };
        if let Some((host, owner)) = self.owner(&peer, verb.class()) {
            let deadline = self.shard().rt.now() + self.shard().config.timeouts.one_way;
            let (info, body) = (peer.peer.info, [Bytes::new(), body]);
            let message = SharedCall { host, info, shard, verb, body, deadline, answered: false };
            forward::send(&self.connections, owner, message);
            return;
        }
        peer.link(self.shard(), verb.class()).send(shard, verb, body);
    }

    /// Closes all connections of this shard, and the listener when it is shard 0. Calls in flight end: those of
    /// this shard with [`RpcError::Stopped`], requests of peers where they wait.
    pub async fn stop(&self) {
        self.connections.end();
    }

    /// The counters and gauges of this shard's connections.
    pub fn stats(&self) -> RpcStats {
        let (connections, shard) = (&self.connections, self.shard());
        let mut stats = shard.counters.snapshot();
        stats.peers = shard.peers.snapshot();
        for (key, link) in connections.peers.links_by_key() {
            let (count, bytes, waiting) = link.depth();
            if let Key::Host(host) = key
                && let Some(peer) = stats.peers.get_mut(&host)
            {
                let waiting = Amount { count: count as u64, bytes: bytes as u64 };
                peer.pending = peer.pending.plus(waiting);
                peer.connections += u64::from(link.is_open());
            }
            stats.outgoing_count += count;
            stats.outgoing_bytes += bytes;
            stats.calls_waiting += waiting;
        }
        for connection in connections.inbound.borrow().values() {
            let (count, bytes) = connection.depth();
            stats.outgoing_count += count;
            stats.outgoing_bytes += bytes;
        }
        let partial_max = shard.config.limits.partial_bytes_max.max(shard.config.limits.body_len_max);
        stats.partial_bytes = partial_max - shard.partial.available();
        (stats.serving, stats.waiting, stats.inbound_bytes) = connections.serving.depth();
        (stats.forwarding, stats.forwarding_bytes) = connections.forwarding.depth();
        stats.calls_shared = connections.calls_shared.get();
        stats
    }
}

/// Serves a call of another shard of this node, or of this one.
async fn serve_local(connections: &Rc<Connections>, call: LocalCall) -> LocalOutcome {
    let shard = &connections.shard;
    let LocalCall { verb, body, deadline } = call;
    if shard.stopped.get() {
        return Err(RpcError::Stopped);
    }
    let Some(handler) = connections.serving.handler(verb) else {
        let message = format!("{} is not served here", verb.name());
        return Err(RpcError::Refused(Refusal::new(Refusal::UNKNOWN_VERB, message)));
    };
    let config = &shard.config;
    let incoming = Incoming { from: config.host, address: config.listen, verb, body, deadline };
    let (sender, receiver) = oneshot::channel();
    let served = shard.rt.timeout_at(deadline, handler(incoming, Reply(ReplyTo::Local(sender))));
    Tasks::spawn(shard, verb.group(), async move {
        // Past its deadline the sender is dropped with the handler.
        let _ = served.await;
    });
    receiver.await.unwrap_or(Err(RpcError::TimedOut))
}
