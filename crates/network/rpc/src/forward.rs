//! Calls and requests whose connection belongs to another shard of this node.
//!
//! A call of a shard that shares a connection goes to the shard that owns it; a request of a peer goes from the shard that
//! owns its connection to the shard that it names, and the answer back. Calls in flight are bounded by count and bytes
//! as all queues are; beyond that it is refused at once.

use std::cell::Cell;
use std::rc::{Rc, Weak};

use bytes::Bytes;
use rt::ShardId;
use rt::sync::oneshot;

use crate::connections::Connections;
use crate::forwarding::{FORWARDED_MAX, ForwardedRequest, SharedCall, SharedCallMessage};
use crate::handover::LocalOutcome;
use crate::inbound::Inbound;
use crate::peer::Key;
use crate::request::{ForwardedFrom, ForwardedOutcome, Origin, Request};
use crate::served::Served;
use crate::shard::{Tasks, unless};
use crate::stats::Dropped;
use crate::{Refusal, RpcError};

/// Lets the other shards of the node give calls and requests to this one.
pub(crate) fn serve(connections: &Rc<Connections>) {
    let weak = Rc::downgrade(connections);
    connections.shared_calls.serve(move |_, message| {
        let connections = Weak::upgrade(&weak);
        async move {
            match connections {
                Some(connections) => serve_call(connections, message).await,
                None => Err(RpcError::Stopped),
            }
        }
    });
    let weak = Rc::downgrade(connections);
    connections.requests.serve(move |_, request| {
        let connections = Weak::upgrade(&weak);
        async move {
            match connections {
                Some(connections) => serve_request(connections, request).await,
                None => None,
            }
        }
    });
}

/// Calls a peer over a connection of `owner`.
pub(crate) async fn call(connections: &Rc<Connections>, owner: ShardId, call: SharedCall) -> LocalOutcome {
    let shard = &connections.shard;
    let (verb, deadline) = (call.verb, call.deadline);
    let len = call.body.iter().map(Bytes::len).sum();
    let held = connections.in_transit.hold(len, shard.config.limits.outgoing_bytes_max);
    let room = connections.shared_calls.in_flight(owner) < FORWARDED_MAX;
    let Some(held) = held.filter(|_| room) else {
        shard.counters.dropped(verb, Dropped::QueueFull);
        return Err(RpcError::Overloaded);
    };
    connections.calls_shared.set(connections.calls_shared.get() + 1);
    let waiting = Counted(&connections.calls_shared);
    let work = connections.shared_calls.call(owner, SharedCallMessage { call, held });
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
pub(crate) fn send(connections: &Rc<Connections>, owner: ShardId, message: SharedCall) {
    let sender = Rc::clone(connections);
    Tasks::spawn(&connections.shard, message.verb.group(), async move {
        // Nobody waits for the outcome; a dropped message is counted.
        let _ = call(&sender, owner, message).await;
    });
}

/// Makes a call of another shard over this shard's connection.
async fn serve_call(connections: Rc<Connections>, message: SharedCallMessage) -> LocalOutcome {
    let SharedCallMessage { call, held } = message;
    if connections.shard.stopped.get() {
        return Err(RpcError::Stopped);
    }
    let peer = connections.peers.peer_or(Key::Host(call.host), call.info);
    let link = peer.link(&connections.shard, call.verb.class());
    // From here on the queue of the connection counts the bytes.
    drop(held);
    if call.answered {
        return link.call(call.shard, call.verb, call.body, call.deadline).await;
    }
    let [_, body] = call.body;
    link.send(call.shard, call.verb, body);
    Ok(Bytes::new())
}

/// Gives a request that came over a connection of this shard to the shard that it names.
pub(crate) fn request(connections: &Rc<Connections>, target: ShardId, request: Request) {
    let bytes = request.bytes_counted();
    let in_flight = connections.requests.in_flight(target);
    if !connections.forwarding.begin(request.verb, bytes, in_flight) {
        connections.shard.counters.dropped(request.verb, Dropped::Overloaded);
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
    let (forwarder, waiting) = (Rc::clone(connections), Rc::clone(&connection));
    let task = connections.shard.rt.spawn(verb.group(), async move {
        let outcome = forwarder.requests.call(target, message).await;
        served_elsewhere(&forwarder, &waiting, place, outcome);
    });
    connection.served.borrow_mut().started(place, task);
}

/// Another shard has served a request of a connection, or has given it up.
fn served_elsewhere(
    connections: &Connections,
    connection: &Inbound,
    place: usize,
    outcome: ForwardedOutcome,
) {
    let served = connection.served.borrow_mut().end(place);
    let Some(mut served) = served else { return };
    if let Some(task) = served.task.take() {
        task.detach();
    }
    match outcome.is_some() {
        true => connection.stats.served(served.bytes),
        false => connection.stats.expired(served.bytes),
    }
    if let Some(outcome) = outcome {
        connection.answer(served.stream, served.verb, served.deadline, outcome);
    }
    connections.done(&served);
}

/// Serves a request that came over a connection of another shard.
async fn serve_request(connections: Rc<Connections>, request: ForwardedRequest) -> ForwardedOutcome {
    let stopped = || Some(Err(Refusal::new(Refusal::STOPPED, "the shard that was to serve it has stopped")));
    let shard = &connections.shard;
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
    connections.serving.take(Request { origin, verb, body, deadline });
    match shard.rt.timeout_at(deadline, answered).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) if shard.stopped.get() => stopped(),
        Ok(Err(_)) => None,
        Err(_) => {
            connections.serving.expire_forwarded();
            None
        }
    }
}
