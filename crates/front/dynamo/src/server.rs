//! The ports, without TLS and with it: shard 0 accepts, and the shards take turns with the connections.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use exec::backend::Coordinator;
use futures_util::FutureExt;
use rt::mesh::{Endpoint, Mesh, Port};
use rt::{DetachedStream, Group, ListenOptions, Listener, NetError, Rt, ShardId, Stream, Task};
use tls::Credentials;

use crate::http::{Progress, Service, serve};
use crate::http_date::DateHeader;
use crate::secure::{Transport, secure};
use crate::settings::ApiSettings;
use crate::{ApiFigures, Dynamo, HttpLimits};

/// How long the acceptor waits when the system has no more sockets.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often a node that stops looks whether requests are done.
const STOP_INTERVAL: Duration = Duration::from_millis(10);

/// A connection on its way to the shard that serves it, and the certificate for its handshake where its port uses TLS.
pub struct HandOver {
    stream: DetachedStream,
    tls: Option<Arc<Credentials>>,
}

/// A shard's end of the mesh on which connections travel.
pub type HandOverEndpoint = Endpoint<HandOver, ()>;

/// One end a shard.
pub fn hand_over_mesh(shard_count: u16, queue_max: usize) -> Vec<HandOverEndpoint> {
    Mesh::new(shard_count, queue_max)
}

/// The API's ports on one shard.
pub struct Server<C>(Rc<Inner<C>>);

struct Inner<C> {
    service: Rc<Service<C>>,
    port: Port<HandOver, ()>,
    ttl_period: Duration,
    accepting: RefCell<Vec<Task<()>>>,
    sweeping: RefCell<Option<Task<()>>>,
    expiring: RefCell<Option<Task<()>>>,
    backing_up: RefCell<Option<Task<()>>>,
    stopped: Cell<bool>,
    next: Cell<u64>,
    open: RefCell<BTreeMap<u64, Open>>,
}

/// A connection of this shard.
struct Open {
    progress: Rc<Progress>,
    address: IpAddr,
    task: Task<()>,
}

impl<C: Coordinator> Server<C> {
    /// Ready to serve connections, but not listening.
    /// `ttl_period` is the time between two looks for items whose time to live is over.
    pub fn new(
        rt: &Rt,
        dynamo: Dynamo<C>,
        limits: HttpLimits,
        ttl_period: Duration,
        endpoint: HandOverEndpoint,
    ) -> Self {
        let port = endpoint.attach(rt);
        let service = Service {
            rt: rt.clone(),
            dynamo,
            limits,
            in_flight: Rc::default(),
            answers: Rc::default(),
            date: DateHeader::default(),
        };
        let inner = Rc::new(Inner {
            service: Rc::new(service),
            port: port.clone(),
            ttl_period,
            accepting: RefCell::default(),
            sweeping: RefCell::default(),
            expiring: RefCell::default(),
            backing_up: RefCell::default(),
            stopped: Cell::new(false),
            next: Cell::new(0),
            open: RefCell::default(),
        });
        let this = Rc::downgrade(&inner);
        port.serve(move |_, given| {
            if let Some(inner) = this.upgrade()
                && let Ok(stream) = inner.service.rt.net().attach(given.stream)
            {
                inner.own(stream, given.tls);
            }
            std::future::ready(())
        });
        Self(inner)
    }

    /// Opens a port, for all shards; gives its address. With credentials it is one of TLS, which takes nothing else.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub async fn listen(
        &self,
        address: SocketAddr,
        tls: Option<Arc<Credentials>>,
    ) -> Result<SocketAddr, NetError> {
        let rt = &self.0.service.rt;
        if self.0.accepting.borrow().is_empty() {
            self.0.service.dynamo.fail_abandoned_transfers().await;
        }
        let listener = rt.net().listen(address, ListenOptions::default()).await?;
        let address = listener.local_addr().unwrap_or(address);
        let accepting = rt.spawn(Group::Statement, accept(self.0.clone(), listener, tls));
        self.0.accepting.borrow_mut().push(accepting);
        self.maintain();
        Ok(address)
    }

    /// Serves a connection without a port, to its end.
    pub async fn serve(&self, stream: Stream) {
        let (service, progress) = (self.0.service.clone(), Progress::new(self.0.service.rt.now()));
        connection(service, stream, None, Rc::new(progress)).await;
    }

    /// Starts the background tasks of a node that serves the API, once.
    fn maintain(&self) {
        if self.0.sweeping.borrow().is_some() {
            return;
        }
        let rt = &self.0.service.rt;
        let service = self.0.service.clone();
        let sweeping = rt.spawn(Group::Maintenance, async move { service.dynamo.sweep(&service.rt).await });
        *self.0.sweeping.borrow_mut() = Some(sweeping);
        let service = self.0.service.clone();
        let backing_up =
            rt.spawn(Group::Maintenance, async move { service.dynamo.keep_backups(&service.rt).await });
        *self.0.backing_up.borrow_mut() = Some(backing_up);
    }

    /// Starts to delete items and rows of CQL whose time to live is over, once; also on a node that does not serve the API.
    pub fn expire(&self) {
        if self.0.expiring.borrow().is_some() {
            return;
        }
        let rt = &self.0.service.rt;
        let (service, period) = (self.0.service.clone(), self.0.ttl_period);
        let expiring = rt
            .spawn(Group::Maintenance, async move { service.dynamo.expire_every(&service.rt, period).await });
        *self.0.expiring.borrow_mut() = Some(expiring);
    }

    /// Uses changed settings from the next request on.
    pub fn configure(&self, settings: ApiSettings) {
        self.0.service.dynamo.configure(settings);
    }

    /// The counters of this shard, with its connections and requests of this moment.
    pub fn figures(&self) -> ApiFigures {
        let open = self.0.open.borrow();
        let connections = open.values().filter(|open| !open.task.is_finished());
        let serving = connections.clone().filter(|open| open.progress.is_serving());
        ApiFigures {
            connections: connections.count() as u64,
            requests_serving: serving.count() as u64,
            requests_bytes: self.0.service.in_flight.bytes() as u64,
            ..self.0.service.dynamo.figures()
        }
    }

    /// Closes the ports, and the connections when their requests are done; those that are not within `grace` are cut.
    pub async fn stop(&self, grace: Duration) {
        self.0.stopped.set(true);
        let mut tasks = std::mem::take(&mut *self.0.accepting.borrow_mut());
        tasks.extend(self.0.sweeping.borrow_mut().take());
        tasks.extend(self.0.expiring.borrow_mut().take());
        tasks.extend(self.0.backing_up.borrow_mut().take());
        for task in tasks {
            task.cancel().await;
        }
        let rt = &self.0.service.rt;
        let deadline = rt.now() + grace;
        loop {
            let idle: Vec<_> = {
                let mut open = self.0.open.borrow_mut();
                let idle = open.iter().filter(|(_, one)| !one.progress.is_serving());
                let idle: Vec<u64> = idle.map(|(number, _)| *number).collect();
                idle.into_iter().filter_map(|number| open.remove(&number)).collect()
            };
            drop(idle);
            if self.0.open.borrow().is_empty() || rt.now() >= deadline {
                break;
            }
            rt.sleep(STOP_INTERVAL).await;
        }
        self.0.service.dynamo.stop_transfers().await;
        let left = std::mem::take(&mut *self.0.open.borrow_mut());
        if !left.is_empty() {
            tracing::warn!("{} connections of the DynamoDB API were still busy and are cut", left.len());
        }
    }
}

impl<C: Coordinator> Inner<C> {
    /// Serves a connection from now on. When there are too many, one that carries out no request gives way to it; it is closed where there
    /// is none.
    fn own(self: &Rc<Self>, stream: Stream, tls: Option<Arc<Credentials>>) {
        let number = self.next.get();
        self.next.set(number + 1);
        let mut open = self.open.borrow_mut();
        open.retain(|_, one| !one.task.is_finished());
        if self.stopped.get() {
            return;
        }
        if open.len() >= self.service.limits.connections_max {
            self.service.dynamo.metrics().count(|figures| figures.connections_shed += 1);
            let Some(idle) = idlest(&open) else { return };
            drop(open.remove(&idle));
        }
        let rt = &self.service.rt;
        let progress = Rc::new(Progress::new(rt.now()));
        let address = stream.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
        let connection = connection(self.service.clone(), stream, tls, progress.clone());
        let task = rt.spawn(Group::Statement, connection);
        open.insert(number, Open { progress, address, task });
    }
}

/// The connection that has been idle for longest, of the address with the most idle ones: a client with many idle connections keeps
/// no other client out.
fn idlest(open: &BTreeMap<u64, Open>) -> Option<u64> {
    let idle = open.iter().filter(|(_, one)| !one.progress.is_serving());
    let mut count_of: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for (_, one) in idle.clone() {
        *count_of.entry(one.address).or_default() += 1;
    }
    let (most, _) = count_of.into_iter().max_by_key(|(_, count)| *count)?;
    let theirs = idle.filter(|(_, one)| one.address == most);
    theirs.min_by_key(|(_, one)| one.progress.since()).map(|(number, _)| *number)
}

async fn connection<C: Coordinator>(
    service: Rc<Service<C>>,
    stream: Stream,
    tls: Option<Arc<Credentials>>,
    progress: Rc<Progress>,
) {
    let secured = match tls {
        None => Ok((stream, Transport::Plain)),
        Some(credentials) => {
            secure(&service.rt, service.limits.handshake_timeout, stream, &credentials).await
        }
    };
    match secured {
        Ok(secured) => serve(service, secured, progress).await,
        Err(error) => {
            service.dynamo.metrics().count(|figures| figures.tls_handshake_failures += 1);
            tracing::debug!("a connection to the DynamoDB API with TLS was closed: {error}");
        }
    }
}

async fn accept<C: Coordinator>(inner: Rc<Inner<C>>, listener: Listener, tls: Option<Arc<Credentials>>) {
    let (own, shards) = (inner.service.rt.shard(), inner.port.shard_count());
    let mut target = own;
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            inner.service.rt.sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // A shard that is busy for long, and takes no connections, gets no more of them: the others go on.
        let has_room = |shard: &ShardId| *shard == own || inner.port.has_room(*shard);
        let in_turn = (0..shards).map(|step| ShardId((target.0 + step) % shards));
        let taker = in_turn.into_iter().find(has_room).unwrap_or(own);
        if taker == own {
            inner.own(stream, tls.clone());
        } else if let Ok(detached) = stream.detach() {
            // On its way once it is polled; nothing here depends on the answer.
            let given = inner.port.call(taker, HandOver { stream: detached, tls: tls.clone() });
            let _ = given.now_or_never();
        }
        target = ShardId((taker.0 + 1) % shards.max(1));
    }
}
