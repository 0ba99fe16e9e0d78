//! State that the connections of one shard share: handlers, peers, counters, and the tasks that `stop` ends.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use rt::executor::TurnHook;
use rt::sync::{Notify, Semaphore};
use rt::{Group, Instant, LocalBoxFuture, Port, Rt, ShardId, Task};
use stdx::{HashMap, LogLimit};
use topology::HostId;

use crate::accept::Acceptor;
use crate::forward::{ForwardedOutcome, ForwardedRequest, Forwarding, InTransit, SharedCallMessage};
use crate::inbound::Inbound;
use crate::link::Link;
use crate::messenger::{Handover, HandoverReply, Incoming, LocalCall, LocalOutcome};
use crate::pool::ConnectionsPerPeer;
use crate::queue::Budget;
use crate::serving::{self, Reply, ServedSet, Serving};
use crate::stats::{Counters, Dropped};
use crate::{Class, Near, PeerInfo, Peers, Refusal, RpcConfig, RpcError, Verb};

/// Serves a request of a verb.
pub(crate) type Handler = Rc<dyn Fn(Incoming, Reply) -> LocalBoxFuture<()>>;

/// The target of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A host, wherever it is.
    Host(HostId),
    /// The node that listens there.
    Address(SocketAddr),
}

/// A peer and the links of this shard to it.
pub(crate) struct Peer {
    pub(crate) key: Key,
    pub(crate) info: PeerInfo,
    /// The peer's shard count, from its hello.
    pub(crate) shard_count: Cell<u16>,
    /// By class: the shard of this node whose link this shard uses.
    owners: Cell<[u16; Class::ALL.len()]>,
    /// By class.
    links: RefCell<[Option<Rc<Link>>; Class::ALL.len()]>,
}

impl Peer {
    fn new(key: Key, info: PeerInfo, connections: &ConnectionsPerPeer, own: ShardId) -> Rc<Peer> {
        let shard_count = Cell::new(info.shard_count.max(1));
        let owners = Cell::new([own.0; Class::ALL.len()]);
        let peer = Peer { key, info, shard_count, owners, links: RefCell::default() };
        peer.set_owners(connections, own);
        Rc::new(peer)
    }

    /// The shard of this node whose link this shard uses.
    pub(crate) fn owner(&self, class: Class) -> ShardId {
        ShardId(self.owners.get()[class as usize])
    }

    /// An address is known to the shard alone that calls it, a host to all.
    fn set_owners(&self, connections: &ConnectionsPerPeer, own: ShardId) {
        if let Key::Host(host) = self.key {
            self.owners.set(Class::ALL.map(|class| connections.owner(class, own.0, host)));
        }
    }

    /// All links.
    pub(crate) fn links(&self) -> Vec<Rc<Link>> {
        self.links.borrow().iter().flatten().map(Rc::clone).collect()
    }

    /// This shard's own link to the peer.
    pub(crate) fn link(self: &Rc<Self>, shard: &Rc<Shard>, class: Class) -> Rc<Link> {
        let link = &mut self.links.borrow_mut()[class as usize];
        Rc::clone(link.get_or_insert_with(|| Link::new(shard, self, class)))
    }
}

/// The result of `work`, unless there is a notification before.
pub(crate) async fn unless<T>(notify: &Notify, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, mut notified) = (pin!(work), pin!(notify.notified()));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => notified.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// Tasks that end when they are done or when the set is cleared.
#[derive(Default)]
pub(crate) struct Tasks {
    next: Cell<u64>,
    running: RefCell<HashMap<u64, Task<()>>>,
}

impl Tasks {
    /// Starts a task that `stop` of the shard ends.
    pub(crate) fn spawn(shard: &Rc<Shard>, group: Group, future: impl Future<Output = ()> + 'static) {
        let tasks = &shard.tasks;
        let id = tasks.next.get();
        tasks.next.set(id + 1);
        let owner = Rc::clone(shard);
        let task = shard.rt.spawn(group, async move {
            future.await;
            let own = owner.tasks.running.borrow_mut().remove(&id);
            if let Some(own) = own {
                own.detach();
            }
        });
        tasks.running.borrow_mut().insert(id, task);
    }

    /// Ends all of them where they wait.
    pub(crate) fn clear(&self) {
        let running = std::mem::take(&mut *self.running.borrow_mut());
        drop(running);
    }
}

/// Gets the address of a peer to which a connection was lost.
type LostListener = Rc<dyn Fn(SocketAddr)>;

/// One shard's part of the protocol.
pub(crate) struct Shard {
    pub(crate) rt: Rt,
    pub(crate) config: Arc<RpcConfig>,
    pub(crate) counters: Counters,
    pub(crate) handlers: RefCell<Vec<Option<Handler>>>,
    pub(crate) serving: Serving,
    /// Bytes that are queued for writing.
    pub(crate) outgoing: Budget,
    /// Bytes that incoming long frames have reserved.
    pub(crate) partial: Semaphore,
    pub(crate) log_limit: RefCell<LogLimit>,
    pub(crate) peers: RefCell<HashMap<Key, Rc<Peer>>>,
    pub(crate) inbound: RefCell<HashMap<u64, Rc<Inbound>>>,
    pub(crate) inbound_made: Cell<u64>,
    pub(crate) stopped: Cell<bool>,
    /// Called with the address of a peer to which a connection broke or could not be made.
    pub(crate) on_lost: RefCell<Option<LostListener>>,
    pub(crate) tasks: Tasks,
    pub(crate) ended: Notify,
    /// Connections that each peer gets, with the peers that are known now.
    pub(crate) connections: Cell<ConnectionsPerPeer>,
    /// Requests that came over connections of other shards and are being served here.
    pub(crate) forwarded: RefCell<ServedSet>,
    /// Requests that came over connections of this shard and are being served by others.
    pub(crate) forwarding: Forwarding,
    /// Calls under way over connections of other shards, and their bytes that are not queued there.
    pub(crate) calls_shared: Cell<usize>,
    pub(crate) in_transit: InTransit,
    /// On shard 0.
    pub(crate) acceptor: Acceptor,
    /// Connections that say hello to this shard, by the number that the acceptor has given them.
    pub(crate) greeting: RefCell<HashMap<u64, Notify>>,
    pub(crate) shared_calls: Port<SharedCallMessage, LocalOutcome>,
    pub(crate) requests: Port<ForwardedRequest, ForwardedOutcome>,
    pub(crate) handover: Port<Handover, HandoverReply>,
    pub(crate) local: Port<LocalCall, LocalOutcome>,
}

impl Shard {
    /// The handler of a verb.
    pub(crate) fn handler(&self, verb: Verb) -> Option<Handler> {
        self.handlers.borrow().get(verb.index()).cloned().flatten()
    }

    /// The peer that a key names; an address needs not be known before.
    pub(crate) fn peer(&self, key: Key) -> Option<Rc<Peer>> {
        if let Some(peer) = self.peers.borrow().get(&key) {
            return Some(Rc::clone(peer));
        }
        let Key::Address(address) = key else { return None };
        Some(self.peer_or(key, PeerInfo { address, shard_count: 1, near: Near::Unknown }))
    }

    /// The peer that a key names; one that is not known yet is taken to be as another shard knows it.
    pub(crate) fn peer_or(&self, key: Key, info: PeerInfo) -> Rc<Peer> {
        let mut peers = self.peers.borrow_mut();
        let new = || Peer::new(key, info, &self.connections.get(), self.rt.shard());
        Rc::clone(peers.entry(key).or_insert_with(new))
    }

    /// The handler of a request of another shard's connection has ended.
    pub(crate) fn served_forwarded(self: &Rc<Self>, place: usize, outcome: &Result<bytes::Bytes, Refusal>) {
        let served = self.forwarded.borrow_mut().end(place);
        let Some(served) = served else { return };
        if let Some(task) = served.task {
            task.detach();
        }
        self.counters.verb(served.verb, |stats| {
            stats.served += 1;
            stats.served_bytes += outcome.as_ref().map_or(0, |body| body.len()) as u64;
        });
        serving::done(self, served.verb.class(), served.bytes);
    }

    /// Gives up the requests of other shards' connections that are past their deadline.
    pub(crate) fn expire_forwarded(self: &Rc<Self>) {
        let expired = self.forwarded.borrow_mut().expire(self.rt.now());
        for served in expired {
            self.counters.dropped(served.verb, Dropped::ExpiredServing);
            drop(served.task);
            serving::done(self, served.verb.class(), served.bytes);
        }
    }

    /// Takes over where the hosts are. Links to hosts that have moved or are gone are closed.
    pub(crate) fn set_peers(&self, new: &Peers) {
        let mut gone = Vec::new();
        let others = new.iter().filter(|(host, _)| *host != self.config.host).count();
        let (own, shards) = (self.rt.shard(), self.rt.shard_count());
        let connections = ConnectionsPerPeer::new(shards, others, self.config.limits.connections_out_max);
        let changed = self.connections.replace(connections) != connections;
        {
            let mut peers = self.peers.borrow_mut();
            peers.retain(|key, peer| {
                let Key::Host(host) = key else { return true };
                let kept = new.get(*host).is_some_and(|info| *info == peer.info);
                if !kept {
                    gone.push(Rc::clone(peer));
                }
                kept
            });
            for (host, info) in new.iter() {
                let key = Key::Host(host);
                let peer = peers.entry(key).or_insert_with(|| Peer::new(key, *info, &connections, own));
                if changed {
                    peer.set_owners(&connections, own);
                }
            }
        }
        for (peer, link) in
            gone.iter().flat_map(|peer| peer.links().into_iter().map(move |link| (peer, link)))
        {
            // A peer whose features became known is the same node: its queued messages go to it.
            if let Some(now) = self.peers.borrow().get(&peer.key).map(Rc::clone) {
                link.pass_on(&now);
            }
            link.close(&RpcError::Lost);
        }
    }

    /// Says why a connection was refused or closed: at most some lines a second, however many there are.
    pub(crate) fn warn(&self, peer: Option<SocketAddr>, what: &str, why: &str) {
        crate::stats::count(&self.counters.connections_refused);
        let suppressed = self.log_limit.borrow_mut().line(self.rt.now() - Instant::START);
        let peer = peer.map_or_else(|| "a peer".to_owned(), |address| address.to_string());
        match suppressed {
            None => {}
            Some(0) => tracing::warn!("{what} {peer}: {why}"),
            Some(suppressed) => {
                tracing::warn!("{what} {peer}: {why} ({suppressed} more such lines were left out)")
            }
        }
    }

    /// The name of an accepted connection within the shard.
    pub(crate) fn next_inbound(&self) -> u64 {
        self.inbound_made.set(self.inbound_made.get() + 1);
        self.inbound_made.get()
    }

    /// A host is there: what waits before it tries to connect again tries at once.
    pub(crate) fn is_there(&self, host: HostId) {
        let peer = self.peers.borrow().get(&Key::Host(host)).map(Rc::clone);
        for link in peer.iter().flat_map(|peer| peer.links()) {
            link.retry_now();
        }
    }

    /// Ends everything at once. Handlers go too: they may hold this shard alive.
    pub(crate) fn end(&self) {
        self.stopped.set(true);
        self.ended.notify_all();
        for greeting in self.greeting.borrow().values() {
            greeting.notify_one();
        }
        for link in self.links() {
            link.close(&RpcError::Stopped);
        }
        let peers = std::mem::take(&mut *self.peers.borrow_mut());
        self.serving.clear();
        let inbound = std::mem::take(&mut *self.inbound.borrow_mut());
        for connection in inbound.values() {
            connection.close();
        }
        let forwarded = self.forwarded.borrow_mut().clear();
        drop(forwarded);
        self.tasks.clear();
        let handlers = std::mem::take(&mut *self.handlers.borrow_mut());
        drop(self.on_lost.take());
        drop((peers, inbound, handlers));
    }

    /// All links of this shard.
    pub(crate) fn links(&self) -> Vec<Rc<Link>> {
        let peers: Vec<Rc<Peer>> = self.peers.borrow().values().map(Rc::clone).collect();
        peers.iter().flat_map(|peer| peer.links()).collect()
    }
}

/// Without this a node that ends without `stop` would keep its links for ever: they and the shard hold each other.
impl TurnHook for Shard {
    fn poll(&self) -> bool {
        false
    }

    fn flush(&self) {}

    fn has_input(&self) -> bool {
        false
    }

    fn shutdown(&self) {
        self.end();
    }
}
