//! The beginning of connections: connecting and saying hello on one side, accepting, judging and handing over to the
//! shard that is wanted on the other. Accepting runs on shard 0.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use rt::{ConnectOptions, DetachedStream, ListenOptions, Listener, NetError, ShardId, Stream};
use stdx::HashMap;
use tls::Accepted;

use crate::config::{CompressBetween, Limits};
use crate::hello::{
    Agreement, Hello, HelloAnswer, HelloError, HelloRefusal, Own, PREFIX_LEN, decode_prefix, judge,
};
use crate::inbound::{self, Inbound};
use crate::messenger::{Handover, HandoverReply};
use crate::packing::Packing;
use crate::pipe::Pipe;
use crate::shard::{Key, Peer, Shard, Tasks};
use crate::{Class, RpcError, secure};

const REFUSED: &str = "refused an internode connection from";
/// How long the acceptor waits when the system has no more sockets.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Counts the accepted connections of the node; on shard 0.
#[derive(Default)]
pub(crate) struct Acceptor {
    total: Cell<usize>,
    greeting: Cell<usize>,
    by_address: RefCell<HashMap<IpAddr, usize>>,
}

impl Acceptor {
    /// Counts a connection that has not said hello, unless there are too many.
    fn admit(&self, address: IpAddr, limits: &Limits) -> Result<(), &'static str> {
        if self.greeting.get() >= limits.greeting_max {
            return Err("too many connections have not said hello yet");
        }
        if self.total.get() >= limits.connections_max {
            return Err("this node has too many connections");
        }
        let mut by_address = self.by_address.borrow_mut();
        let of_address = by_address.get(&address).copied().unwrap_or(0);
        if of_address >= limits.per_address_max {
            return Err("this address has too many connections");
        }
        by_address.insert(address, of_address + 1);
        self.total.set(self.total.get() + 1);
        self.greeting.set(self.greeting.get() + 1);
        Ok(())
    }

    /// A connection has said hello, or has ended before it did.
    fn greeted(&self) {
        self.greeting.set(self.greeting.get() - 1);
    }

    /// A connection has ended.
    pub(crate) fn closed(&self, address: IpAddr) {
        self.total.set(self.total.get() - 1);
        let mut by_address = self.by_address.borrow_mut();
        let of_address = by_address.get_mut(&address).expect("its connection was admitted");
        *of_address -= 1;
        if *of_address == 0 {
            by_address.remove(&address);
        }
    }
}

/// A connection that has said hello, on its way to the shard that was wanted.
pub(crate) struct Greeted {
    stream: DetachedStream,
    address: SocketAddr,
    hello: Hello,
    agreed: Agreement,
}

/// Reads magic, length and the rest.
async fn read_hello<T>(
    stream: &Stream,
    decode: impl FnOnce(&[u8; PREFIX_LEN], &[u8]) -> Result<T, HelloError>,
) -> Result<T, String> {
    let mut prefix = [0; PREFIX_LEN];
    stream.read_exact(&mut prefix).await.map_err(|error| error.to_string())?;
    let len = decode_prefix(&prefix).map_err(|error| error.to_string())?;
    let mut following = vec![0; len];
    stream.read_exact(&mut following).await.map_err(|error| error.to_string())?;
    decode(&prefix, &following).map_err(|error| error.to_string())
}

/// Connects to a peer and says hello.
pub(crate) async fn greet(shard: &Shard, peer: &Peer, wanted: u16, class: Class) -> Result<Pipe, RpcError> {
    let address = peer.info.address;
    let config = &shard.config;
    let failed = |error: String| RpcError::Connect(format!("{address}: {error}"));
    let connected = shard.rt.net().connect(address, ConnectOptions::default()).await;
    let stream = connected.map_err(|error| RpcError::Connect(error.to_string()))?;
    // Small requests must not wait for the acknowledgement of those before them; a failure only costs time.
    let _ = stream.set_nodelay(true);
    let (stream, encrypted) = secure::connected(shard, &peer.info, stream).await?;
    let compress = match config.compress_between {
        CompressBetween::Nodes => true,
        CompressBetween::Datacenters => !peer.info.near.in_datacenter(),
    };
    let hello = Hello {
        versions: config.versions,
        host: config.host,
        shard_count: shard.rt.shard_count(),
        source_shard: shard.rt.shard().0,
        wanted_shard: wanted,
        class,
        packings: if compress { config.compression.bit() } else { 0 },
        cluster_name: config.cluster_name.clone(),
    };
    stream.write_all(&hello.encode()).await.map_err(|error| failed(error.to_string()))?;
    let answer = read_hello(&stream, HelloAnswer::decode).await.map_err(|error| {
        if encrypted {
            // Only now it becomes known when the peer did not like this node's certificate.
            shard.warn(Some(address), "no internode connection to", &error);
        }
        failed(error)
    })?;
    let agreed = agreed(shard, peer, &answer).inspect_err(|error| {
        shard.warn(Some(address), "no internode connection to", &error.to_string());
    })?;
    peer.shard_count.set(answer.shard_count);
    Ok(Pipe::new(stream, shard, agreed.packing))
}

/// What the peer's answer means for this side.
fn agreed(shard: &Shard, peer: &Peer, answer: &HelloAnswer) -> Result<Agreement, RpcError> {
    let address = peer.info.address;
    let agreed = match &answer.outcome {
        Ok(agreed) => *agreed,
        Err(refusal) => {
            let message = format!("{address} refused: {}", refusal.message);
            return Err(match refusal.code {
                HelloRefusal::TOO_MANY | HelloRefusal::NOT_READY => RpcError::Connect(message),
                HelloRefusal::SAME_HOST => RpcError::SameHost(address),
                _ => RpcError::Mismatch(message),
            });
        }
    };
    if let Some(expected) = peer.expected()
        && expected != answer.host
    {
        let message = format!("{address} is not {expected:?} but {:?}: has the address moved?", answer.host);
        return Err(RpcError::Mismatch(message));
    }
    let config = &shard.config;
    let versions = config.versions;
    if agreed.version < versions.min || agreed.version > versions.max {
        let message = format!("{address} chose version {}; this node speaks {versions}", agreed.version);
        return Err(RpcError::Mismatch(message));
    }
    if agreed.packing != Packing::None && agreed.packing != config.compression {
        return Err(RpcError::Mismatch(format!("{address} chose a packing that was not offered")));
    }
    Ok(agreed)
}

/// Listens; shard 0 does so for the node.
pub(crate) async fn listen(shard: &Rc<Shard>) -> Result<SocketAddr, NetError> {
    assert_eq!(shard.rt.shard(), ShardId(0), "shard 0 accepts the connections of the node");
    let address = shard.config.listen;
    let listener = shard.rt.net().listen(address, ListenOptions::default()).await?;
    let bound = listener.local_addr().unwrap_or(address);
    Tasks::spawn(shard, Class::Urgent.group(), accept(Rc::clone(shard), listener));
    Ok(bound)
}

async fn accept(shard: Rc<Shard>, listener: Listener) {
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                shard.rt.sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if let Err(why) = shard.acceptor.admit(address.ip(), &shard.config.limits) {
            shard.warn(Some(address), REFUSED, why);
            continue;
        }
        let receiver = Rc::clone(&shard);
        Tasks::spawn(&shard, Class::Urgent.group(), async move {
            let greeted = receive(&receiver, stream, address).await;
            receiver.acceptor.greeted();
            let owned = match greeted {
                Some((target, greeted)) => hand_over(&receiver, target, greeted).await,
                None => false,
            };
            if !owned {
                receiver.acceptor.closed(address.ip());
            }
        });
    }
}

/// Waits for the hello of a connection and judges it. A refusal is told to both sides.
async fn receive(shard: &Rc<Shard>, stream: Stream, address: SocketAddr) -> Option<(ShardId, Greeted)> {
    let config = &shard.config;
    let refused = |why: &str| shard.warn(Some(address), REFUSED, why);
    let Accepted { stream, encrypted } =
        secure::accepted(shard, stream).await.inspect_err(|error| refused(error)).ok()?;
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
    let known = shard.peers.borrow().get(&Key::Host(hello.host)).map(Rc::clone);
    let judged = judge(own, &hello).and_then(|agreed| {
        let may = secure::check(shard, known.as_deref(), encrypted);
        may.map(|()| agreed).map_err(|why| HelloRefusal::new(HelloRefusal::PLAINTEXT, why))
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
            refused(&refusal.message);
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

fn answer(shard: &Shard, outcome: Result<Agreement, HelloRefusal>, target: ShardId) -> HelloAnswer {
    let shard_count = shard.rt.shard_count();
    HelloAnswer { outcome, host: shard.config.host, shard_count, shard: target.0 }
}

/// Gives a connection to its shard; whether that has taken it.
async fn hand_over(shard: &Rc<Shard>, target: ShardId, greeted: Greeted) -> bool {
    let reply = shard.handover.call(target, Handover::Own(Box::new(greeted))).await;
    matches!(reply, HandoverReply::Done)
}

/// Takes over a connection on the shard that was wanted, answers its hello and serves it.
pub(crate) fn own(shard: &Rc<Shard>, greeted: Greeted) -> HandoverReply {
    let Greeted { stream, address, hello, agreed } = greeted;
    if shard.stopped.get() {
        return HandoverReply::Failed;
    }
    let stream = match shard.rt.net().attach(stream) {
        Ok(stream) => stream,
        Err(error) => {
            shard.warn(Some(address), REFUSED, &error.to_string());
            return HandoverReply::Failed;
        }
    };
    shard.is_there(hello.host);
    let inbound = Inbound::new(shard, hello.host, address, hello.class);
    let id = shard.next_inbound();
    shard.inbound.borrow_mut().insert(id, Rc::clone(&inbound));
    let owner = Rc::clone(shard);
    Tasks::spawn(shard, hello.class.group(), async move {
        // A failure only costs time.
        let _ = stream.set_nodelay(true);
        let welcome = answer(&owner, Ok(agreed), owner.rt.shard()).encode();
        let written = owner.rt.timeout(owner.config.timeouts.hello, stream.write_all(&welcome)).await;
        if matches!(written, Ok(Ok(()))) {
            inbound::run(inbound, stream, agreed).await;
        }
        owner.inbound.borrow_mut().remove(&id);
        owner.handover.call(ShardId(0), Handover::Closed(address.ip())).await;
    });
    HandoverReply::Done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_exact() {
        let limits = Limits { greeting_max: 3, connections_max: 4, per_address_max: 2, ..Limits::default() };
        let acceptor = Acceptor::default();
        let ip = |last| IpAddr::from([127, 0, 0, last]);
        assert!(acceptor.admit(ip(1), &limits).is_ok() && acceptor.admit(ip(1), &limits).is_ok());
        assert!(acceptor.admit(ip(1), &limits).unwrap_err().contains("address"));
        assert!(acceptor.admit(ip(2), &limits).is_ok());
        assert!(acceptor.admit(ip(3), &limits).unwrap_err().contains("hello"));
        acceptor.greeted();
        assert!(acceptor.admit(ip(3), &limits).is_ok());
        acceptor.greeted();
        assert!(acceptor.admit(ip(4), &limits).unwrap_err().contains("node"));
        acceptor.closed(ip(1));
        assert!(acceptor.admit(ip(1), &limits).is_ok());
        for address in [1, 1, 2, 3] {
            acceptor.closed(ip(address));
        }
        assert!(acceptor.by_address.borrow().is_empty() && acceptor.total.get() == 0);
    }
}
