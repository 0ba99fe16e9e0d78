//! The beginning of connections: connecting and saying hello on one side, accepting, judging and handing over to the
//! shard that is wanted on the other. Shard 0 accepts and counts; the other shards in turn do the handshake of TLS and wait
//! for the hello.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use rt::sync::Notify;
use rt::{ConnectOptions, DetachedStream, ListenOptions, Listener, NetError, ShardId, Stream};
use stdx::HashMap;
use tls::Accepted;

use crate::config::{CompressBetween, Limits};
use crate::hello::{
    Agreement, Hello, HelloAnswer, HelloError, HelloRefusal, Own, PREFIX_LEN, decode_prefix, judge,
};
use crate::inbound::{self, Inbound};
use crate::messenger::{HANDOVER_MAX, Handover, HandoverReply};
use crate::packing::Packing;
use crate::pipe::Pipe;
use crate::pool::wanted_shard;
use crate::shard::{Key, Peer, Shard, Tasks, unless};
use crate::{Class, RpcError, secure};

const REFUSED: &str = "refused an internode connection from";
/// How long the acceptor waits when the system has no more sockets.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Counts the accepted connections of the node; on shard 0.
///
/// Connections that have not said hello never keep others out: where there are too many, the oldest of them is closed. A
/// node says hello at once, so that only those that stay silent are old. Addresses of known nodes have a reserve.
#[derive(Default)]
pub(crate) struct Acceptor {
    total: Cell<usize>,
    by_address: RefCell<HashMap<IpAddr, usize>>,
    /// Those that have not said hello, in the order in which they came.
    greeting: RefCell<BTreeMap<u64, Greeting>>,
    next: Cell<u64>,
}

/// A connection that has not said hello.
struct Greeting {
    address: IpAddr,
    /// Comes from the address of a known node.
    known: bool,
    evicted: Notify,
}

impl Acceptor {
    /// Counts a connection before its hello: its number, and the notification when it has to make room.
    fn admit(&self, address: IpAddr, known: bool, limits: &Limits) -> Result<(u64, Notify), &'static str> {
        let of_address = self.by_address.borrow().get(&address).copied().unwrap_or(0);
        let mut greeting = self.greeting.borrow_mut();
        let same = |one: &Greeting| one.address == address;
        if greeting.len() >= limits.greeting_per_address_max
            && greeting.values().filter(|one| same(one)).count() >= limits.greeting_per_address_max
        {
            evict(&mut greeting, same);
        } else if of_address >= limits.per_address_max && !evict(&mut greeting, same) {
            return Err("this address has too many connections");
        }
        if greeting.len() >= limits.greeting_max && !evict(&mut greeting, |one| !one.known) {
            evict(&mut greeting, |_| true);
        }
        // An eighth is for known nodes alone.
        let most = if known { limits.connections_max } else { limits.connections_max / 8 * 7 };
        if self.total.get() >= most && !evict(&mut greeting, |one| known || !one.known) {
            return Err("this node has too many connections");
        }
        *self.by_address.borrow_mut().entry(address).or_insert(0) += 1;
        self.total.set(self.total.get() + 1);
        let number = self.next.get();
        self.next.set(number + 1);
        let evicted = Notify::new();
        greeting.insert(number, Greeting { address, known, evicted: evicted.clone() });
        Ok((number, evicted))
    }

    /// A connection has said hello, or has ended before it did.
    fn greeted(&self, number: u64) {
        self.greeting.borrow_mut().remove(&number);
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

/// Closes the oldest of some; whether there was one.
fn evict(greeting: &mut BTreeMap<u64, Greeting>, which: impl Fn(&Greeting) -> bool) -> bool {
    let oldest = greeting.iter().find(|(_, one)| which(one)).map(|(number, _)| *number);
    match oldest.and_then(|number| greeting.remove(&number)) {
        Some(one) => {
            one.evicted.notify_one();
            true
        }
        None => false,
    }
}

/// A connection that was accepted and has not said hello, on its way to the shard that waits for it.
pub(crate) struct Raw {
    number: u64,
    stream: DetachedStream,
    address: SocketAddr,
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
pub(crate) async fn greet(shard: &Shard, peer: &Peer, class: Class) -> Result<Pipe, RpcError> {
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
    let (own, shard_count) = (shard.rt.shard().0, shard.rt.shard_count());
    let wanted_shard = match peer.key {
        Key::Host(_) => wanted_shard(class, (own, shard_count), peer.shard_count.get(), config.host),
        Key::Address(_) => 0,
    };
    let hello = Hello {
        versions: config.versions,
        host: config.host,
        shard_count,
        source_shard: own,
        wanted_shard,
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

/// The effect of the peer's answer on this side.
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
        let message = format!("{address} is not {expected} but {}: has the address moved?", answer.host);
        return Err(RpcError::Mismatch(message));
    }
    let config = &shard.config;
    let versions = config.versions;
    if agreed.version < versions.min || agreed.version > versions.max {
        let message = format!("{address} chose version {}; this node supports {versions}", agreed.version);
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
    let waiting = 2 * shard.config.limits.greeting_max;
    assert!(waiting <= HANDOVER_MAX, "an eviction does not wait for a place behind those that it evicts");
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
        let known = knows(&shard, address.ip());
        let (number, evicted) = match shard.acceptor.admit(address.ip(), known, &shard.config.limits) {
            Ok(admitted) => admitted,
            Err(why) => {
                shard.warn(Some(address), REFUSED, why);
                continue;
            }
        };
        let owner = Rc::clone(&shard);
        let receiver = receiver(number, shard.rt.shard_count());
        Tasks::spawn(&shard, Class::Urgent.group(), async move {
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
async fn received_by(shard: &Rc<Shard>, receiver: ShardId, accepted: Admitted) -> bool {
    let Admitted { number, stream, address, evicted } = accepted;
    let stream = match stream.detach() {
        Ok(stream) => stream,
        Err(error) => {
            shard.acceptor.greeted(number);
            shard.warn(Some(address), REFUSED, &error.to_string());
            return false;
        }
    };
    let raw = Box::new(Raw { number, stream, address });
    let mut receiving = pin!(shard.handover.call(receiver, Handover::Receive(raw)));
    let reply = match unless(&evicted, receiving.as_mut()).await {
        Some(reply) => reply,
        None => {
            shard.warn(Some(address), REFUSED, "too many connections have not said hello yet");
            shard.handover.call(receiver, Handover::Evict(number)).await;
            // It may just have said hello.
            receiving.await
        }
    };
    shard.acceptor.greeted(number);
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
pub(crate) async fn receive_raw(shard: &Rc<Shard>, raw: Raw) -> HandoverReply {
    let Raw { number, stream, address } = raw;
    let Some(stream) = attach(shard, stream, address) else { return HandoverReply::Failed };
    let evicted = Notify::new();
    shard.greeting.borrow_mut().insert(number, evicted.clone());
    let greeted = unless(&evicted, receive(shard, stream, address)).await;
    shard.greeting.borrow_mut().remove(&number);
    match greeted {
        Some(Some((target, greeted))) => shard.handover.call(target, Handover::Own(Box::new(greeted))).await,
        Some(None) | None => HandoverReply::Failed,
    }
}

/// Closes a connection that has not said hello.
pub(crate) fn evict_here(shard: &Shard, number: u64) -> HandoverReply {
    if let Some(greeting) = shard.greeting.borrow().get(&number) {
        greeting.notify_one();
    }
    HandoverReply::Done
}

/// Whether a known node has this address.
fn knows(shard: &Shard, address: IpAddr) -> bool {
    let of_host =
        |(key, peer): (&Key, &Rc<Peer>)| matches!(key, Key::Host(_)) && peer.info.address.ip() == address;
    shard.peers.borrow().iter().any(of_host)
}

/// Waits for the hello of a connection and checks it. Both sides log a refusal.
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

/// Takes over a connection on the shard that was wanted, answers its hello and serves it.
pub(crate) fn own(shard: &Rc<Shard>, greeted: Greeted) -> HandoverReply {
    let Greeted { stream, address, hello, agreed } = greeted;
    let Some(stream) = attach(shard, stream, address) else { return HandoverReply::Failed };
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

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    #[test]
    fn limits_are_exact() {
        let limits = Limits { connections_max: 8, per_address_max: 2, ..Limits::default() };
        let acceptor = Acceptor::default();
        let greeted = |last| {
            let admitted = acceptor.admit(ip(last), false, &limits);
            admitted.map(|(number, _)| acceptor.greeted(number))
        };
        assert!(greeted(1).is_ok() && greeted(1).is_ok());
        assert!(greeted(1).unwrap_err().contains("address"));
        for last in 2..7 {
            assert!(greeted(last).is_ok());
        }
        assert!(greeted(9).unwrap_err().contains("node"), "the eighth is for known nodes");
        let (number, _) = acceptor.admit(ip(9), true, &limits).unwrap();
        acceptor.greeted(number);
        assert!(acceptor.admit(ip(10), true, &limits).err().unwrap().contains("node"));
        acceptor.closed(ip(9));
        acceptor.closed(ip(1));
        assert!(greeted(1).is_ok());
        for address in [1, 1, 2, 3, 4, 5, 6] {
            acceptor.closed(ip(address));
        }
        assert!(acceptor.by_address.borrow().is_empty() && acceptor.total.get() == 0);
    }

    #[test]
    fn those_that_stay_silent_make_room() {
        let limits = Limits {
            greeting_max: 6,
            greeting_per_address_max: 2,
            connections_max: 800,
            ..Limits::default()
        };
        let acceptor = Acceptor::default();
        let greeting = || -> Vec<u64> { acceptor.greeting.borrow().keys().copied().collect() };
        let enter = |last, known| acceptor.admit(ip(last), known, &limits).map(|(number, _)| number);
        for number in 0..3 {
            assert_eq!(enter(1, false), Ok(number));
        }
        assert_eq!(greeting(), [1, 2], "an address's oldest");
        let member = enter(2, true).unwrap();
        for last in 3..6 {
            assert!(enter(last, false).is_ok());
        }
        assert_eq!(greeting(), [1, 2, member, 4, 5, 6]);
        for last in 6..60 {
            assert!(enter(last, false).is_ok());
        }
        assert!(
            greeting().contains(&member) && greeting().len() == 6,
            "the oldest, but of a known node's none"
        );
        for _ in 0..2 {
            assert!(enter(1, true).is_ok());
        }
    }

    #[test]
    fn silent_connections_do_not_exhaust_the_total() {
        let limits = Limits { connections_max: 16, ..Limits::default() };
        let acceptor = Acceptor::default();
        for last in 0..100 {
            assert!(acceptor.admit(ip(last), false, &limits).is_ok());
        }
        assert_eq!(acceptor.greeting.borrow().len(), 14);
    }
}
