//! [`Messenger`]: one shard's end of the protocol, as the rest of the node sees it.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use bytes::Bytes;
use rt::executor::TurnHook;
use rt::sync::{Notify, Semaphore, oneshot};
use rt::{Endpoint, Instant, LocalBoxFuture, Mesh, NetError, Rt, ShardId};
use topology::HostId;

use crate::accept::{self, Acceptor, Greeted, Raw};
use crate::forward::{
    self, FORWARDED_MAX, ForwardedOutcome, ForwardedRequest, Forwarding, InTransit, SharedCall,
    SharedCallMessage,
};
use crate::pool::ConnectionsPerPeer;
use crate::queue::Budget;
use crate::serving::{Reply, ReplyTo, Serving};
use crate::shard::{Key, Peer, Shard, Tasks};
use crate::stats::{Counters, RpcStats};
use crate::{Class, Peers, Refusal, RpcConfig, RpcError, Verb};

/// Connections that are on their way from one shard to another, those that have not said hello and what evicts them among them.
pub(crate) const HANDOVER_MAX: usize = 8192;
/// Calls between two shards of this node under way.
const LOCAL_CALLS_MAX: usize = 4096;

/// Requests between shards about connections.
pub(crate) enum Handover {
    /// Wait for the hello of this connection, which shard 0 has accepted.
    Receive(Box<Raw>),
    /// The connection of this number has not said hello and has to make room.
    Evict(u64),
    /// Own this connection from now on.
    Own(Box<Greeted>),
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
    verb: Verb,
    body: Bytes,
    deadline: Instant,
}

/// The result of a call between shards of the node.
pub(crate) type LocalOutcome = Result<Bytes, RpcError>;

/// One shard's end of what connects the messengers of a node, on its way to the shard.
pub struct HandoverEndpoint {
    handover: Endpoint<Handover, HandoverReply>,
    local: Endpoint<LocalCall, LocalOutcome>,
    shared_calls: Endpoint<SharedCallMessage, LocalOutcome>,
    requests: Endpoint<ForwardedRequest, ForwardedOutcome>,
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

/// A request of a peer.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The host that asks.
    pub from: HostId,
    /// The source address of its connection; not its listen address.
    pub address: SocketAddr,
    /// The verb.
    pub verb: Verb,
    /// With which content.
    pub body: Bytes,
    /// When it does not want the answer any more.
    pub deadline: Instant,
}

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
    shard: Rc<Shard>,
}

impl Messenger {
    /// Has `listener` called with the address of a peer to which a connection of this shard broke or could not be made: the
    /// peer's process may have ended.
    pub fn on_lost(&self, listener: impl Fn(SocketAddr) + 'static) {
        *self.shard.on_lost.borrow_mut() = Some(Rc::new(listener));
    }

    /// The end of the shard of `rt`, ready to own connections. To be made on every shard; shard 0 then calls
    /// [`Messenger::listen`].
    pub fn new(rt: &Rt, config: Arc<RpcConfig>, endpoint: HandoverEndpoint) -> Messenger {
        let handover = endpoint.handover.attach(rt);
        let local = endpoint.local.attach(rt);
        let shared_calls = endpoint.shared_calls.attach(rt);
        let requests = endpoint.requests.attach(rt);
        let connections = ConnectionsPerPeer::new(rt.shard_count(), 0, config.limits.connections_out_max);
        let shard = Rc::new(Shard {
            rt: rt.clone(),
            serving: Serving::new(&config.limits),
            outgoing: Budget::new(config.limits.outgoing_total_bytes_max),
            partial: Semaphore::new(config.limits.partial_bytes_max.max(config.limits.body_len_max)),
            log_limit: RefCell::default(),
            forwarding: Forwarding::new(&config.limits),
            config,
            counters: Counters::default(),
            handlers: RefCell::new(vec![None; Verb::COUNT]),
            peers: RefCell::default(),
            inbound: RefCell::default(),
            inbound_made: Cell::new(0),
            stopped: Cell::new(false),
            on_lost: RefCell::default(),
            tasks: Tasks::default(),
            ended: Notify::new(),
            connections: Cell::new(connections),
            forwarded: RefCell::default(),
            calls_shared: Cell::new(0),
            in_transit: InTransit::default(),
            acceptor: Acceptor::default(),
            greeting: RefCell::default(),
            handover: handover.clone(),
            local: local.clone(),
            shared_calls,
            requests,
        });
        rt.executor().add_hook(Rc::clone(&shard) as Rc<dyn TurnHook>);
        let weak = Rc::downgrade(&shard);
        handover.serve(move |_, request| {
            let shard = Weak::upgrade(&weak);
            async move {
                match (shard, request) {
                    (Some(shard), Handover::Receive(raw)) => accept::receive_raw(&shard, *raw).await,
                    (Some(shard), Handover::Evict(number)) => accept::evict_here(&shard, number),
                    (Some(shard), Handover::Own(greeted)) => accept::own(&shard, *greeted),
                    (Some(shard), Handover::Closed(address)) => {
                        shard.acceptor.closed(address);
                        HandoverReply::Done
                    }
                    (None, _) => HandoverReply::Failed,
                }
            }
        });
        let weak = Rc::downgrade(&shard);
        local.serve(move |_, call: LocalCall| {
            let shard = Weak::upgrade(&weak);
            async move {
                match shard {
                    Some(shard) => serve_local(&shard, call).await,
                    None => Err(RpcError::Stopped),
                }
            }
        });
        forward::serve(&shard);
        Messenger { shard }
    }

    /// Answers requests of a verb on this shard. The handler's future runs in the verb's scheduling group and is
    /// dropped at the deadline, after which no answer is sent; it goes on when the connection is lost.
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
        if self.shard.stopped.get() {
            return;
        }
        let mut handlers = self.shard.handlers.borrow_mut();
        let place = handlers.get_mut(verb.index()).expect("one place a verb");
        assert!(place.replace(Rc::new(run)).is_none(), "{} has one handler", verb.name());
    }

    /// Listens for other nodes; with the port that the system chose where port 0 was asked for.
    ///
    /// # Panics
    /// On another shard than 0.
    pub async fn listen(&self) -> Result<SocketAddr, NetError> {
        accept::listen(&self.shard).await
    }

    /// Takes over where the hosts of the cluster are. Calls to hosts that have moved or are gone fail at once.
    pub fn set_peers(&self, peers: Arc<Peers>) {
        if !self.shard.stopped.get() {
            self.shard.set_peers(&peers);
        }
    }

    /// The peer that `to` names, and its shard.
    fn peer(&self, to: Target) -> Result<(Rc<Peer>, u16), RpcError> {
        let (key, shard) = match to {
            Target::Host { host, shard } => (Key::Host(host), shard),
            Target::Address(address) => (Key::Address(address), 0),
        };
        Ok((self.shard.peer(key).ok_or(RpcError::UnknownHost)?, shard))
    }

    /// The shard of this node whose connection carries a class to a peer, when it is another one.
    fn owner(&self, peer: &Peer, class: Class) -> Option<(HostId, ShardId)> {
        let (owner, Key::Host(host)) = (peer.owner(class), peer.key) else { return None };
        (owner != self.shard.rt.shard()).then_some((host, owner))
    }

    fn check(&self, len: usize) -> Result<(), RpcError> {
        if self.shard.stopped.get() {
            return Err(RpcError::Stopped);
        }
        let max = self.shard.config.limits.body_len_max;
        if len > max { Err(RpcError::TooLarge { len, max }) } else { Ok(()) }
    }

    /// The shard of this node that `to` names, if it does.
    fn own_shard(&self, to: Target) -> Option<ShardId> {
        match to {
            Target::Host { host, shard } if host == self.shard.config.host => {
                Some(ShardId(shard % self.shard.rt.shard_count()))
            }
            _ => None,
        }
    }

    /// Asks a peer and waits for the answer until the deadline. A call whose future is dropped is still sent and
    /// served. A call to this node itself meets no socket.
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
            let call = self.shard.local.call(own, LocalCall { verb, body, deadline });
            return self.shard.rt.timeout_at(deadline, call).await.unwrap_or(Err(RpcError::TimedOut));
        }
        let (peer, shard) = self.peer(to)?;
        let body = [head, tail];
        if let Some((host, owner)) = self.owner(&peer, verb.class()) {
            let info = peer.info;
            let call = SharedCall { host, info, shard, verb, body, deadline, answered: true };
            // Boxed, so that calls over this shard's own connection are not longer for it.
            return Box::pin(forward::call(&self.shard, owner, call)).await;
        }
        peer.link(&self.shard, verb.class()).call(shard, verb, body, deadline).await
    }

    /// Sends a message that wants no answer; dropped and counted when it cannot be sent.
    pub fn send(&self, to: Target, verb: Verb, body: Bytes) {
        if self.check(body.len()).is_err() {
            self.shard.counters.dropped(verb, crate::Dropped::QueueFull);
            return;
        }
        if let Some(own) = self.own_shard(to) {
            let deadline = self.shard.rt.now() + self.shard.config.timeouts.one_way;
            let port = self.shard.local.clone();
            Tasks::spawn(&self.shard, verb.group(), async move {
                // Nobody waits for the outcome.
                let _ = port.call(own, LocalCall { verb, body, deadline }).await;
            });
            return;
        }
        let Ok((peer, shard)) = self.peer(to) else {
            self.shard.counters.dropped(verb, crate::Dropped::NotConnected);
            return;
        };
        if let Some((host, owner)) = self.owner(&peer, verb.class()) {
            let deadline = self.shard.rt.now() + self.shard.config.timeouts.one_way;
            let (info, body) = (peer.info, [Bytes::new(), body]);
            let message = SharedCall { host, info, shard, verb, body, deadline, answered: false };
            forward::send(&self.shard, owner, message);
            return;
        }
        peer.link(&self.shard, verb.class()).send(shard, verb, body);
    }

    /// Closes all connections of this shard, and the listener when it is shard 0. Calls in flight end: those of
    /// this shard with [`RpcError::Stopped`], requests of peers where they wait.
    pub async fn stop(&self) {
        self.shard.end();
    }

    /// The counters and gauges of this shard's connections.
    pub fn stats(&self) -> RpcStats {
        let shard = &self.shard;
        let mut stats = shard.counters.snapshot();
        for link in shard.links() {
            let (count, bytes, waiting) = link.depth();
            stats.outgoing_count += count;
            stats.outgoing_bytes += bytes;
            stats.calls_waiting += waiting;
        }
        for connection in shard.inbound.borrow().values() {
            let (count, bytes) = connection.depth();
            stats.outgoing_count += count;
            stats.outgoing_bytes += bytes;
        }
        let partial_max = shard.config.limits.partial_bytes_max.max(shard.config.limits.body_len_max);
        stats.partial_bytes = partial_max - shard.partial.available();
        (stats.serving, stats.waiting, stats.inbound_bytes) = shard.serving.depth();
        (stats.forwarding, stats.forwarding_bytes) = shard.forwarding.depth();
        stats.calls_shared = shard.calls_shared.get();
        stats
    }
}

/// Serves a call of another shard of this node, or of this one.
async fn serve_local(shard: &Rc<Shard>, call: LocalCall) -> LocalOutcome {
    let LocalCall { verb, body, deadline } = call;
    if shard.stopped.get() {
        return Err(RpcError::Stopped);
    }
    let Some(handler) = shard.handler(verb) else {
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
