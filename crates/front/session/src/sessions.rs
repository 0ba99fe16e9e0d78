//! All CQL connections of a shard, and the messages between shards about them.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::time::Duration;

use rt::{Endpoint, Group, ListenOptions, Listener, Mesh, NetError, Rt, ShardId, Stream};
use tls::TlsError;
use wire::Event;

use crate::accept::Acceptor;
use crate::admission::{Admission, Lending};
use crate::buffers::Buffers;
use crate::connection::Connection;
use crate::lending::Ledger;
use crate::metrics::{count, subtract};
use crate::peers::Peers;
use crate::pending::Places;
use crate::security::{Security, plain, ports};
use crate::shard::{Call, Reply, Shard};
use crate::{
    Authenticator, ClientTls, ConnectionInfo, NodeDescription, SessionConfig, SessionMetrics,
    StatementProcessor,
};

/// Messages of the session layer under way between two shards.
const MESH_QUEUE_MAX: usize = 1024;
/// A client's connection without traffic is probed after so long, and closed when nobody answers for as long again.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// How long the acceptor waits when the system has no more sockets.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// One shard's end of the mesh between the session layers of a node, on its way to the shard.
pub struct SessionsEndpoint(Endpoint<Call, Reply>);

/// Connects the session layers of a node: one endpoint a shard, in the order of the shards.
pub fn sessions_mesh(shard_count: u16) -> Vec<SessionsEndpoint> {
    Mesh::new(shard_count, MESH_QUEUE_MAX).into_iter().map(SessionsEndpoint).collect()
}

/// The part of a shard's state that deals with its connections as a whole.
impl<P: StatementProcessor> Shard<P> {
    /// Runs a connection as a task of this shard until it ends.
    fn own(self: &Rc<Self>, stream: Stream, address: SocketAddr, security: Security) {
        count(&self.metrics.connections);
        count(&self.metrics.connections_opened);
        // Small answers must not wait for the acknowledgement of those before them; a failure only costs time.
        let _ = stream.set_nodelay(true);
        // A client that vanished without a word must not hold a connection for ever: their number is limited.
        let _ = stream.set_keepalive(KEEPALIVE_IDLE);
        let shard = Rc::clone(self);
        let connection = async move {
            let secured = match security {
                Security::Plain => Ok(plain(stream)),
                // Kept apart: a handshake takes more room than a connection that waits.
                security => Box::pin(security.secure(&shard.rt, &shard.config, stream)).await,
            };
            match secured {
                Ok(secured) => Connection::new(Rc::clone(&shard), secured, address).run().await,
                Err(error) => {
                    if matches!(error, TlsError::TimedOut(_)) {
                        count(&shard.metrics.handshake_timeouts);
                    }
                    shard.warn(address, &error.to_string());
                }
            }
            subtract(&shard.metrics.connections, 1);
            shard.port.call(ShardId(0), Call::Closed(address)).await;
        };
        self.rt.spawn(Group::Statement, connection).detach();
    }

    async fn answer(self: Rc<Self>, source: ShardId, call: Call) -> Reply {
        match call {
            Call::Own(detached, security) => {
                let address = detached.peer_addr();
                match self.rt.net().attach(detached) {
                    Ok(stream) => self.own(stream, address, security),
                    Err(_) => return Reply::Failed,
                }
                Reply::Done
            }
            Call::Closed(address) => {
                if let Some(acceptor) = &self.acceptor {
                    acceptor.closed(address.ip(), source);
                }
                Reply::Done
            }
            Call::Publish(event) => {
                self.peers.send(event, self.config.unwritten_events_max);
                Reply::Done
            }
            Call::List => Reply::Connections(self.peers.list(self.rt.shard().0)),
            Call::ShardAwarePort(port) => {
                self.shard_aware_port.set(Some(port));
                Reply::Done
            }
            Call::Lending(lending) => self.lend(source, lending).await,
            Call::Leased(address, bytes) => {
                self.admission.leased(address, bytes);
                Reply::Done
            }
        }
    }

    /// Shard 0: lends parts of the limits and takes them back.
    async fn lend(&self, source: ShardId, lending: Lending) -> Reply {
        let ledger = self.ledger.as_ref().expect("only shard 0 lends");
        match lending {
            Lending::Borrow(address, bytes) => {
                Reply::Leased(ledger.borrow_mut().borrow(source, address, bytes))
            }
            Lending::GiveBack(address, bytes) => {
                let leases = ledger.borrow_mut().give_back(address, bytes);
                for (shard, bytes) in leases {
                    self.port.call(shard, Call::Leased(address, bytes)).await;
                }
                Reply::Done
            }
        }
    }

    /// Has this shard borrow from shard 0 when it lacks room.
    fn borrow_from_shard_0(self: &Rc<Self>) {
        let weak = Rc::downgrade(self);
        self.admission.borrow_from(Box::new(move |lending| {
            let Some(shard) = Weak::upgrade(&weak) else { return };
            let rt = shard.rt.clone();
            let send = async move {
                let reply = shard.port.call(ShardId(0), Call::Lending(lending)).await;
                if let (Lending::Borrow(address, _), Reply::Leased(bytes)) = (lending, reply) {
                    shard.admission.leased(address, bytes);
                }
            };
            rt.spawn(Group::Statement, send).detach();
        }));
    }

    /// Accepts connections until the task is cancelled.
    async fn accept(self: Rc<Self>, listener: Listener, (shard_aware, security): (bool, Security)) {
        let acceptor = self.acceptor.as_ref().expect("only shard 0 accepts");
        loop {
            let (stream, address) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(_) => {
                    count(&self.metrics.accept_errors);
                    self.rt.sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let target = match shard_aware {
                true => acceptor.shard_of_port(address.port()),
                false => acceptor.least_loaded(),
            };
            if !acceptor.admit(address.ip(), target) {
                count(&self.metrics.connections_refused);
                continue;
            }
            if target == self.rt.shard() {
                self.own(stream, address, security.clone());
                continue;
            }
            let given = match stream.detach() {
                Ok(detached) => self.port.call(target, Call::Own(detached, security.clone())).await,
                Err(_) => Reply::Failed,
            };
            if matches!(given, Reply::Failed) {
                count(&self.metrics.accept_errors);
                acceptor.closed(address.ip(), target);
            }
        }
    }
}

/// The addresses at which a node accepts connections; with the ports that the system chose where port 0 was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListeningAddresses {
    /// The ordinary port.
    pub native: SocketAddr,
    /// The port where the client chooses the shard.
    pub shard_aware: Option<SocketAddr>,
    /// The port with TLS; it may be the ordinary one.
    pub native_tls: Option<SocketAddr>,
    /// The port where the client chooses the shard, with TLS.
    pub shard_aware_tls: Option<SocketAddr>,
}

/// The CQL connections of one shard. Cheap to clone.
pub struct Sessions<P: StatementProcessor> {
    shard: Rc<Shard<P>>,
}

impl<P: StatementProcessor> Clone for Sessions<P> {
    fn clone(&self) -> Self {
        Self { shard: Rc::clone(&self.shard) }
    }
}

impl<P: StatementProcessor> Sessions<P> {
    /// The session layer of the shard of `rt`, ready to own connections. To be made on every shard; shard 0 then
    /// calls [`Sessions::listen`].
    pub fn new(
        rt: &Rt,
        config: SessionConfig,
        node: NodeDescription,
        authenticator: Rc<dyn Authenticator>,
        endpoint: SessionsEndpoint,
        processor: P,
    ) -> Self {
        let metrics = Rc::new(SessionMetrics::default());
        let limit = config.native_transport_max_request_data_in_flight;
        let limit_per_ip = config.native_transport_max_request_data_in_flight_per_ip;
        let admission =
            Admission::new(limit, limit_per_ip, rt.shard_count(), Rc::clone(&metrics), |metrics| {
                &metrics.request_bytes_in_flight
            });
        if config.canaries.leaked_bytes {
            admission.inject_leak();
        }
        let of_answers = config.answer_bytes_max / usize::from(rt.shard_count());
        let answers = Admission::new(of_answers, of_answers / 2, 1, Rc::clone(&metrics), |metrics| {
            &metrics.answer_bytes_in_flight
        });
        let ledger = (rt.shard() == ShardId(0))
            .then(|| RefCell::new(Ledger::new(limit, limit_per_ip, rt.shard_count())));
        let acceptor = (rt.shard() == ShardId(0)).then(|| {
            Acceptor::new(
                rt.shard_count(),
                config.native_transport_max_concurrent_connections,
                config.native_transport_max_concurrent_connections_per_ip,
            )
        });
        let port = endpoint.0.attach(rt);
        let shard = Rc::new(Shard {
            rt: rt.clone(),
            shard_aware_port: Cell::new(None),
            config,
            node,
            authenticator,
            processor,
            metrics,
            admission,
            answers,
            buffers: Buffers::default(),
            places: Places::default(),
            peers: Peers::default(),
            acceptor,
            ledger,
            accepting: RefCell::default(),
            log_limit: RefCell::default(),
            port: port.clone(),
        });
        if rt.shard_count() > 1 {
            shard.borrow_from_shard_0();
        }
        let weak = Rc::downgrade(&shard);
        port.serve(move |source, call| {
            let shard = Weak::upgrade(&weak);
            async move {
                match shard {
                    Some(shard) => shard.answer(source, call).await,
                    None => Reply::Failed,
                }
            }
        });
        Self { shard }
    }

    /// Listens on both ports and gives every connection to its shard; to be called on shard 0.
    ///
    /// # Errors
    /// As [`Sessions::listen_with`].
    ///
    /// # Panics
    /// On another shard.
    pub async fn listen(&self) -> Result<ListeningAddresses, NetError> {
        self.listen_with(None).await
    }

    /// The same with TLS.
    ///
    /// # Errors
    /// A [`NetError`] when one of the addresses is in use, is none of this machine, or needs a privilege.
    pub async fn listen_with(&self, tls: Option<ClientTls>) -> Result<ListeningAddresses, NetError> {
        let shard = &self.shard;
        assert_eq!(shard.rt.shard(), ShardId(0), "shard 0 accepts the connections of the node");
        let options = ListenOptions::default();
        let (mut listeners, mut bound) = (Vec::new(), Vec::new());
        for on in ports(&shard.config, tls.as_ref()) {
            let listener = shard.rt.net().listen(on.address, options).await?;
            let address = listener.local_addr().unwrap_or(on.address);
            bound.push((on.shard_aware, on.security.is_tls(), address));
            listeners.push((listener, on));
        }
        let first = |aware: bool, with_tls: bool| {
            let port = bound.iter().find(|port| port.0 == aware && (port.1 || !with_tls));
            port.map(|port| port.2)
        };
        let listening = ListeningAddresses {
            native: first(false, false).unwrap_or(shard.config.native_transport_address),
            shard_aware: first(true, false),
            native_tls: first(false, true),
            shard_aware_tls: first(true, true),
        };
        if let Some(bound) = listening.shard_aware {
            for target in 0..shard.rt.shard_count() {
                shard.port.call(ShardId(target), Call::ShardAwarePort(bound.port())).await;
            }
        }
        for (listener, on) in listeners {
            let accept = Rc::clone(shard).accept(listener, (on.shard_aware, on.security));
            shard.accepting.borrow_mut().push(shard.rt.spawn(Group::Statement, accept));
        }
        Ok(listening)
    }

    /// The counters of this shard.
    pub fn metrics(&self) -> &SessionMetrics {
        &self.shard.metrics
    }

    /// The connections of all shards.
    pub async fn connections(&self) -> Vec<ConnectionInfo> {
        let mut all = Vec::new();
        for shard in 0..self.shard.rt.shard_count() {
            if let Reply::Connections(list) = self.shard.port.call(ShardId(shard), Call::List).await {
                all.extend(list);
            }
        }
        all
    }

    /// Sends an event to the clients of this shard that have registered for its kind.
    pub fn publish(&self, event: Event) {
        self.shard.peers.send(event, self.shard.config.unwritten_events_max);
    }

    /// Sends an event to the clients of all shards that have registered for its kind.
    pub async fn publish_everywhere(&self, event: Event) {
        for shard in 0..self.shard.rt.shard_count() {
            self.shard.port.call(ShardId(shard), Call::Publish(event.clone())).await;
        }
    }

    /// Ends the connections of this shard: no more are accepted or read, the requests under way are finished and
    /// answered. Gives how many connections were still there after `grace`; they end with their tasks.
    pub async fn stop(&self, grace: Duration) -> usize {
        let accepting = std::mem::take(&mut *self.shard.accepting.borrow_mut());
        drop(accepting);
        self.shard.peers.stop();
        let _ = self.shard.rt.timeout(grace, self.shard.peers.gone()).await;
        self.shard.peers.len()
    }

    /// Lets this shard have connections again after [`Sessions::stop`]; to be called on every shard before shard 0 listens again.
    pub fn resume(&self) {
        self.shard.peers.resume();
    }
}
