//! Calls and requests whose connection belongs to another shard of this node.
//!
//! A call of a shard that shares a connection goes to the shard that owns it; a request of a peer goes from the shard that
//! owns its connection to the shard that it names, and the answer back. Calls in flight are bounded by count and bytes
//! as all queues are; beyond that it is refused at once.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use rt::sync::oneshot;
use rt::{Instant, ShardId};
use topology::HostId;

use crate::config::Limits;
use crate::messenger::LocalOutcome;
use crate::serving::{self, ForwardedFrom, Origin, Request, Served};
use crate::shard::{Key, Shard, Tasks, unless};
use crate::stats::Dropped;
use crate::{Class, PeerInfo, Refusal, RpcError, Verb};

/// Calls, and requests, under way from one shard to another.
pub(crate) const FORWARDED_MAX: usize = 16_384;

/// Lets the other shards of the node give calls and requests to this one.
pub(crate) fn serve(shard: &Rc<Shard>) {
    let weak = Rc::downgrade(shard);
    shard.shared_calls.serve(move |_, message| {
        let shard = Weak::upgrade(&weak);
        async move {
            match shard {
                Some(shard) => serve_call(shard, message).await,
                None => Err(RpcError::Stopped),
            }
        }
    });
    let weak = Rc::downgrade(shard);
    shard.requests.serve(move |_, request| {
        let shard = Weak::upgrade(&weak);
        async move {
            match shard {
                Some(shard) => serve_request(shard, request).await,
                None => None,
            }
        }
    });
}

/// Bytes that were given to other shards and have not been queued there.
#[derive(Clone, Default)]
pub(crate) struct InTransit(Arc<AtomicUsize>);

/// Counts bytes until it is dropped, on whatever shard.
pub(crate) struct Held {
    in_transit: InTransit,
    bytes: usize,
}

impl InTransit {
    fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts so many bytes; one call alone may have more than `max`.
    fn hold(&self, bytes: usize, max: usize) -> Option<Held> {
        let before = self.bytes();
        if before > 0 && before + bytes > max {
            return None;
        }
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Some(Held { in_transit: self.clone(), bytes })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.in_transit.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A call over a connection of the shard that gets it.
pub(crate) struct SharedCall {
    pub(crate) host: HostId,
    /// The host's address as the caller knows it; the owner may not know it yet.
    pub(crate) info: PeerInfo,
    /// The shard of the peer that is to serve it.
    pub(crate) shard: u16,
    pub(crate) verb: Verb,
    pub(crate) body: [Bytes; 2],
    pub(crate) deadline: Instant,
    pub(crate) answered: bool,
}

/// The same on its way.
pub(crate) struct SharedCallMessage {
    call: SharedCall,
    held: Held,
}

/// Calls a peer over a connection of `owner`.
pub(crate) async fn call(shard: &Rc<Shard>, owner: ShardId, call: SharedCall) -> LocalOutcome {
    let (verb, deadline) = (call.verb, call.deadline);
    let len = call.body.iter().map(Bytes::len).sum();
    let held = shard.in_transit.hold(len, shard.config.limits.outgoing_bytes_max);
    let room = shard.shared_calls.in_flight(owner) < FORWARDED_MAX;
    let Some(held) = held.filter(|_| room) else {
        shard.counters.dropped(verb, Dropped::QueueFull);
        return Err(RpcError::Overloaded);
    };
    shard.calls_shared.set(shard.calls_shared.get() + 1);
    let waiting = Counted(&shard.calls_shared);
    let work = shard.shared_calls.call(owner, SharedCallMessage { call, held });
    let outcome = unless(&shard.ended, shard.rt.timeout_at(deadline, work)).await;
    drop(waiting);
    match outcome {
        Some(Ok(outcome)) => outcome,
        Some(Err(_)) => Err(RpcError::TimedOut),
        None => Err(RpcError::Stopped),
    }
}

struct Counted<'a>(&'a Cell<usize>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Sends a message that wants no answer over a connection of `owner`.
pub(crate) fn send(shard: &Rc<Shard>, owner: ShardId, message: SharedCall) {
    let sender = Rc::clone(shard);
    Tasks::spawn(shard, message.verb.group(), async move {
        // Nobody waits for the outcome; a dropped message is counted.
        let _ = call(&sender, owner, message).await;
    });
}

/// Makes a call of another shard over this shard's connection.
async fn serve_call(shard: Rc<Shard>, message: SharedCallMessage) -> LocalOutcome {
    let SharedCallMessage { call, held } = message;
    if shard.stopped.get() {
        return Err(RpcError::Stopped);
    }
    let peer = shard.peer_or(Key::Host(call.host), call.info);
    let link = peer.link(&shard, call.verb.class());
    // From here on the queue of the connection counts the bytes.
    drop(held);
    if call.answered {
        return link.call(call.shard, call.verb, call.body, call.deadline).await;
    }
    let [_, body] = call.body;
    link.send(call.shard, call.verb, body);
    Ok(Bytes::new())
}

/// A request of a peer on its way to the shard that it names.
pub(crate) struct ForwardedRequest {
    from: HostId,
    address: SocketAddr,
    verb: Verb,
    body: Bytes,
    deadline: Instant,
}

/// How it was served; none when it was past its deadline.
pub(crate) type ForwardedOutcome = Option<Result<Bytes, Refusal>>;

/// The requests that other shards are serving for connections of this one.
pub(crate) struct Forwarding {
    count: Cell<usize>,
    /// By class: their bytes, and how many there may be.
    bytes: [(Cell<usize>, usize); Class::ALL.len()],
}

impl Forwarding {
    /// None yet.
    pub(crate) fn new(limits: &Limits) -> Forwarding {
        let of_class = |class| (Cell::new(0), serving::bytes_max(class, limits));
        Forwarding { count: Cell::new(0), bytes: Class::ALL.map(of_class) }
    }

    fn begin(&self, class: Class, bytes: usize) -> bool {
        let (used, max) = &self.bytes[class as usize];
        if used.get() > 0 && used.get() + bytes > *max {
            return false;
        }
        used.set(used.get() + bytes);
        self.count.set(self.count.get() + 1);
        true
    }

    /// One has ended.
    pub(crate) fn done(&self, class: Class, bytes: usize) {
        let (used, _) = &self.bytes[class as usize];
        used.set(used.get() - bytes);
        self.count.set(self.count.get() - 1);
    }

    /// How many there are, and their bytes.
    pub(crate) fn depth(&self) -> (usize, usize) {
        (self.count.get(), self.bytes.iter().map(|(used, _)| used.get()).sum())
    }
}

/// Gives a request that came over a connection of this shard to the shard that it names.
pub(crate) fn request(shard: &Rc<Shard>, target: ShardId, request: Request) {
    let class = request.verb.class();
    let bytes = request.bytes_counted();
    let room = shard.requests.in_flight(target) < FORWARDED_MAX && shard.forwarding.begin(class, bytes);
    if !room {
        shard.counters.dropped(request.verb, Dropped::Overloaded);
        request.refuse(Refusal::new(Refusal::OVERLOADED, "too many requests wait for another shard"));
        return;
    }
    let Request { origin, verb, body, deadline } = request;
    let Origin::Connection { connection, stream } = origin else {
        unreachable!("a request is forwarded once, by the shard that owns its connection");
    };
    let served = Served { stream, verb, deadline, bytes, forwarded: true, task: None };
    let place = connection.served.borrow_mut().begin(served);
    let message =
        ForwardedRequest { from: connection.from, address: connection.address, verb, body, deadline };
    let (port, waiting) = (shard.requests.clone(), Rc::clone(&connection));
    let task = shard.rt.spawn(verb.group(), async move {
        let outcome = port.call(target, message).await;
        waiting.forwarded(place, outcome);
    });
    connection.served.borrow_mut().started(place, task);
}

/// Serves a request that came over a connection of another shard.
async fn serve_request(shard: Rc<Shard>, request: ForwardedRequest) -> ForwardedOutcome {
    let stopped = || Some(Err(Refusal::new(Refusal::STOPPED, "the shard that was to serve it has stopped")));
    if shard.stopped.get() {
        return stopped();
    }
    let ForwardedRequest { from, address, verb, body, deadline } = request;
    shard.counters.verb(verb, |stats| {
        stats.received += 1;
        stats.received_bytes += body.len() as u64;
    });
    let (answer, answered) = oneshot::channel();
    let origin = Origin::Shard(Box::new(ForwardedFrom { host: from, address, answer }));
    serving::take(&shard, Request { origin, verb, body, deadline });
    match shard.rt.timeout_at(deadline, answered).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) if shard.stopped.get() => stopped(),
        Ok(Err(_)) => None,
        Err(_) => {
            shard.expire_forwarded();
            None
        }
    }
}
