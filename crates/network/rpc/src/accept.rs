//! The beginning of connections that peers make: accepting, judging and handing over to the shard that is wanted. Shard 0 accepts
//! and counts; the other shards in turn do the handshake of TLS and wait for the hello.

use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use rt::sync::Notify;
use rt::{DetachedStream, ListenOptions, Listener, NetError, ShardId, Stream};
use tls::Accepted;
use topology::HostId;

use crate::connections::Connections;
use crate::greet::read_hello;
use crate::handover::{Greeted, HANDOVER_MAX, Handover, HandoverReply, Raw};
use crate::hello::{Agreement, Hello, HelloAnswer, HelloRefusal, Own, judge};
use crate::inbound::Inbound;
use crate::inbound_task;
use crate::peer::Key;
use crate::secure::{self, EncryptBetween};
use crate::shard::{Shard, Tasks, unless};
use crate::{Class, Near};

const REFUSED: &str = "refused an internode connection from";
/// How long the acceptor waits when the system has no more sockets.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Listens; shard 0 does so for the node.
pub(crate) async fn listen(connections: &Rc<Connections>) -> Result<SocketAddr, NetError> {
    let shard = &connections.shard;
    assert_eq!(shard.rt.shard(), ShardId(0), "shard 0 accepts the connections of the node");
    let waiting = 2 * shard.config.limits.greeting_max;
    assert!(waiting <= HANDOVER_MAX, "an eviction does not wait for a place behind those that it evicts");
    let address = shard.config.listen;
    let listener = shard.rt.net().listen(address, ListenOptions::default()).await?;
    let bound = listener.local_addr().unwrap_or(address);
    Tasks::spawn(shard, Class::Urgent.group(), accept(Rc::clone(connections), listener));
    Ok(bound)
}

async fn accept(connections: Rc<Connections>, listener: Listener) {
    let shard = &connections.shard;
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                shard.rt.sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let known = connections.peers.knows(address.ip());
        let (number, evicted) = match connections.acceptor.admit(address.ip(), known, &shard.config.limits) {
            Ok(admitted) => admitted,
            Err(why) => {
                shard.warn(Some(address), REFUSED, why);
                continue;
            }
        };
        let owner = Rc::clone(&connections);
        let receiver = receiver(number, shard.rt.shard_count());
        Tasks::spawn(shard, Class::Urgent.group(), async move {
            let accepted = Admitted { number, stream, address, evicted };
            if !received_by(&owner, receiver, accepted).await {
                owner.acceptor.closed(address.ip());
            }
        });
    }
}

/// The shard that waits for the hello of the connection of a number: each in turn, shard 0 only where it is alone.
fn receiver(number: u64, shards: u16) -> ShardId {
    match shards {
        0 | 1 => ShardId(0),
        shards => ShardId(1 + (number % u64::from(shards - 1)) as u16),
    }
}

/// A connection that shard 0 has admitted.
struct Admitted {
    number: u64,
    stream: Stream,
    address: SocketAddr,
    evicted: Notify,
}

/// Has `receiver` wait for the hello of a connection; whether a shard owns it then.
async fn received_by(connections: &Rc<Connections>, receiver: ShardId, accepted: Admitted) -> bool {
    let shard = &connections.shard;
    let Admitted { number, stream, address, evicted } = accepted;
    let stream = match stream.detach() {
        Ok(stream) => stream,
        Err(error) => {
            connections.acceptor.greeted(number);
            shard.warn(Some(address), REFUSED, &error.to_string());
            return false;
        }
    };
    let raw = Box::new(Raw { number, stream, address });
    let mut receiving = pin!(connections.handover.call(receiver, Handover::Receive(raw)));
    let reply = match unless(&evicted, receiving.as_mut()).await {
        Some(reply) => reply,
        None => {
            shard.warn(Some(address), REFUSED, "too many connections have not said hello yet");
            connections.handover.call(receiver, Handover::Evict(number)).await;
            // It may just have said hello.
            receiving.await
        }
    };
    connections.acceptor.greeted(number);
    matches!(reply, HandoverReply::Done)
}

/// Takes over a connection of another shard, unless this one has stopped.
fn attach(shard: &Shard, stream: DetachedStream, address: SocketAddr) -> Option<Stream> {
    if shard.stopped.get() {
        return None;
    }
    let attached = shard.rt.net().attach(stream);
    attached.map_err(|error| shard.warn(Some(address), REFUSED, &error.to_string())).ok()
}

/// Waits for the hello of a connection that shard 0 has accepted, and gives the connection to the shard that it wants.
pub(crate) async fn receive_raw(connections: &Rc<Connections>, raw: Raw) -> HandoverReply {
    let Raw { number, stream, address } = raw;
    let Some(stream) = attach(&connections.shard, stream, address) else { return HandoverReply::Failed };
    let evicted = Notify::new();
    connections.greeting.borrow_mut().insert(number, evicted.clone());
    let greeted = unless(&evicted, receive(connections, stream, address)).await;
    connections.greeting.borrow_mut().remove(&number);
    match greeted {
        Some(Some((target, greeted))) => {
            connections.handover.call(target, Handover::Own(Box::new(greeted))).await
        }
        Some(None) | None => HandoverReply::Failed,
    }
}

/// Closes a connection that has not said hello.
pub(crate) fn evict_here(connections: &Connections, number: u64) -> HandoverReply {
    if let Some(greeting) = connections.greeting.borrow().get(&number) {
        greeting.notify_one();
    }
    HandoverReply::Done
}

/// The accepted connection, decrypted if it is encrypted.
async fn decrypted(shard: &Shard, stream: Stream) -> Result<Accepted, String> {
    let Some(secure) = &shard.config.secure else {
        return Ok(Accepted { stream, encrypted: false, certificate: None });
    };
    let optional = secure.between != EncryptBetween::Nodes;
    let limit = shard.config.timeouts.hello;
    let accepted = tls::accept(&shard.rt, stream, &secure.credentials, optional, limit).await;
    accepted.map_err(|error| error.to_string())
}

/// Waits for the hello of a connection and checks it. Both sides log a refusal.
async fn receive(
    connections: &Rc<Connections>,
    stream: Stream,
    address: SocketAddr,
) -> Option<(ShardId, Greeted)> {
    let shard = &connections.shard;
    let config = &shard.config;
    let refused = |why: &str| shard.warn(Some(address), REFUSED, why);
    let Accepted { stream, encrypted, .. } =
        decrypted(shard, stream).await.inspect_err(|error| refused(error)).ok()?;
    let hello = match shard.rt.timeout(config.timeouts.hello, read_hello(&stream, Hello::decode)).await {
        Ok(Ok(hello)) => hello,
        Ok(Err(error)) => {
            refused(&error);
            return None;
        }
        Err(_) => {
            refused("it said no hello in time");
            return None;
        }
    };
    let own = Own { cluster_name: &config.cluster_name, host: config.host, versions: config.versions };
    let target = ShardId(hello.wanted_shard % shard.rt.shard_count());
    let known = connections.peers.known(Key::Host(hello.host));
    let near = known.map_or(Near::Unknown, |known| known.peer.info.near);
    let judged = judge(own, &hello).and_then(|agreed| {
        let may = secure::check(config.secure.as_ref(), near, encrypted);
        may.map(|()| agreed).map_err(|why| HelloRefusal::new(HelloRefusal::PLAINTEXT, why))
    });
    let judged = judged.and_then(|agreed| match shard.was_removed(hello.host) {
        true => Err(HelloRefusal::new(HelloRefusal::REMOVED, removed(hello.host))),
        false => Ok(agreed),
    });
    match judged {
        Ok(agreed) => match stream.detach() {
            Ok(stream) => Some((target, Greeted { stream, address, hello, agreed })),
            Err(error) => {
                refused(&error.to_string());
                None
            }
        },
        Err(refusal) => {
            // The side that connects knows whether it has reached itself, and logs it otherwise.
            if refusal.code != HelloRefusal::SAME_HOST {
                refused(&refusal.message);
            }
            let answer = answer(shard, Err(refusal), target);
            let farewell = async {
                stream.write_all(&answer.encode()).await?;
                stream.shutdown().await?;
                // Closing with unread bytes would take the answer away from the peer.
                while stream.read(&mut [0; 256]).await? > 0 {}
                std::io::Result::Ok(())
            };
            // A peer that does not want to know is closed all the same.
            let _ = shard.rt.timeout(config.timeouts.hello, farewell).await;
            None
        }
    }
}

fn removed(host: HostId) -> String {
    format!(
        "host {host} was removed from the cluster and its data is out of date; clear its data directory, and it joins as a new node"
    )
}

fn answer(shard: &Shard, outcome: Result<Agreement, HelloRefusal>, target: ShardId) -> HelloAnswer {
    let shard_count = shard.rt.shard_count();
    HelloAnswer { outcome, host: shard.config.host, shard_count, shard: target.0 }
}

/// Takes over a connection on the shard that was wanted, answers its hello and serves it.
pub(crate) fn own(connections: &Rc<Connections>, greeted: Greeted) -> HandoverReply {
    let Greeted { stream, address, hello, agreed } = greeted;
    let shard = &connections.shard;
    let Some(stream) = attach(shard, stream, address) else { return HandoverReply::Failed };
    if shard.was_removed(hello.host) {
        // A moment ago; the next hello has the refusal.
        return HandoverReply::Failed;
    }
    connections.peers.is_there(hello.host);
    let inbound = Inbound::new(shard, hello.host, address, hello.class);
    let id = connections.next_inbound();
    connections.inbound.borrow_mut().insert(id, Rc::clone(&inbound));
    let owner = Rc::clone(connections);
    Tasks::spawn(shard, hello.class.group(), async move {
        // A failure only costs time.
        let _ = stream.set_nodelay(true);
        let welcome = answer(&owner.shard, Ok(agreed), owner.shard.rt.shard()).encode();
        let written =
            owner.shard.rt.timeout(owner.shard.config.timeouts.hello, stream.write_all(&welcome)).await;
        if matches!(written, Ok(Ok(()))) {
            inbound_task::run(&owner, inbound, stream, agreed).await;
        }
        owner.inbound.borrow_mut().remove(&id);
        owner.handover.call(ShardId(0), Handover::Closed(address.ip())).await;
    });
    HandoverReply::Done
}
