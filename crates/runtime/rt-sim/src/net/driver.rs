//! The simulated network as one shard of a node sees it.

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use rt::driver::{ListenerDriver, LocalBoxFuture, NetDriver, StreamDriver};
use rt::sync::oneshot;
use rt::{ConnectOptions, ListenOptions};

use super::{Attempt, Listening, Network, Segment};
use crate::world::Stream;

/// Reads and writes that take only a part of the bytes.
const PARTIAL_PER_MILLION: u32 = 60_000;

pub(crate) struct SimNet {
    pub(crate) network: Rc<Network>,
    pub(crate) node: u64,
    pub(crate) ip: IpAddr,
}

fn remember(slot: &mut Option<Waker>, waker: &Waker) {
    match slot {
        Some(known) => known.clone_from(waker),
        None => *slot = Some(waker.clone()),
    }
}

impl SimNet {
    fn listen_now(&self, mut address: SocketAddr, options: ListenOptions) -> io::Result<SimListener> {
        let ip = address.ip();
        if ip != self.ip && !ip.is_loopback() && !ip.is_unspecified() {
            return Err(io::Error::from_raw_os_error(99));
        }
        let mut state = self.network.state.borrow_mut();
        if address.port() == 0 {
            address.set_port(state.ephemeral_port(self.node)?);
        }
        let conflict = state.listeners.values().any(|other| {
            let same_ip =
                other.address.ip() == ip || other.address.ip().is_unspecified() || ip.is_unspecified();
            let shared = other.reuse_port && options.reuse_port;
            other.node == self.node && other.address.port() == address.port() && same_ip && !shared
        });
        if conflict {
            return Err(io::Error::from_raw_os_error(98));
        }
        let id = state.new_id();
        let listening = Listening {
            node: self.node,
            address,
            reuse_port: options.reuse_port,
            backlog: options.backlog.max(1) as usize,
            queue: VecDeque::new(),
            waker: None,
        };
        state.listeners.insert(id, listening);
        self.network.world.note("listen", &[self.node, u64::from(address.port())]);
        Ok(SimListener { network: Rc::clone(&self.network), id, address })
    }

    fn local_address(&self, to: SocketAddr, options: ConnectOptions) -> io::Result<SocketAddr> {
        let own = if to.ip().is_loopback() { to.ip() } else { self.ip };
        let mut state = self.network.state.borrow_mut();
        let wanted = options.local.map_or(0, |local| local.port());
        if wanted == 0 {
            return Ok(SocketAddr::new(own, state.ephemeral_port(self.node)?));
        }
        let local = SocketAddr::new(own, wanted);
        state.hosts.get_mut(&self.node).expect("a known node").ports_repeat = true;
        let taken = state.connections.values().any(|connection| {
            let [client, server] = &connection.ends;
            client.open && client.node == self.node && client.address == local && server.address == to
        });
        if taken { Err(io::Error::from_raw_os_error(98)) } else { Ok(local) }
    }
}

impl NetDriver for SimNet {
    fn listen(
        &self,
        address: SocketAddr,
        options: ListenOptions,
    ) -> LocalBoxFuture<io::Result<Box<dyn ListenerDriver>>> {
        let result = self.listen_now(address, options);
        Box::pin(async move { result.map(|listener| Box::new(listener) as Box<dyn ListenerDriver>) })
    }

    fn connect(
        &self,
        address: SocketAddr,
        options: ConnectOptions,
    ) -> LocalBoxFuture<io::Result<Box<dyn StreamDriver>>> {
        let local = self.local_address(address, options);
        let network = Rc::clone(&self.network);
        let from = self.node;
        Box::pin(async move {
            let to = network.state.borrow().node_of(address.ip(), from);
            let (answer, answered) = oneshot::channel();
            let timeout = network.world.config.connect_timeout.as_nanos() as u64;
            let deadline = network.world.now() + timeout;
            network.attempt(Attempt { from, to, address, local: local?, deadline, answer });
            match answered.await {
                Ok(id) => Ok(Box::new(SimStream::new(network, id?, 0)) as Box<dyn StreamDriver>),
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            }
        })
    }

    fn attach(&self, detached: Box<dyn Any + Send>) -> io::Result<Box<dyn StreamDriver>> {
        let detached = detached.downcast::<Detached>();
        let detached = detached.map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(Box::new(SimStream::new(Rc::clone(&self.network), detached.id, detached.side)))
    }
}

struct SimListener {
    network: Rc<Network>,
    id: u64,
    address: SocketAddr,
}

impl ListenerDriver for SimListener {
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Box<dyn StreamDriver>, SocketAddr)>> {
        let mut state = self.network.state.borrow_mut();
        let Some(listener) = state.listeners.get_mut(&self.id) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let Some(id) = listener.queue.pop_front() else {
            remember(&mut listener.waker, cx.waker());
            return Poll::Pending;
        };
        let peer = state.connections.get(&id).map(|connection| connection.ends[0].address);
        drop(state);
        self.network.world.note("accept", &[id]);
        match peer {
            Some(peer) => Poll::Ready(Ok((Box::new(SimStream::new(Rc::clone(&self.network), id, 1)), peer))),
            // It broke while it waited.
            None => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        let listener = self.network.state.borrow_mut().listeners.remove(&self.id);
        for id in listener.into_iter().flat_map(|listener| listener.queue) {
            self.network.send(id, 1, Segment::Reset);
            self.network.close(id, 1);
        }
    }
}

/// A connection between shards.
struct Detached {
    id: u64,
    side: usize,
}

struct SimStream {
    network: Rc<Network>,
    id: u64,
    side: usize,
    detached: Cell<bool>,
}

impl SimStream {
    fn new(network: Rc<Network>, id: u64, side: usize) -> SimStream {
        SimStream { network, id, side, detached: Cell::new(false) }
    }

    fn partial(&self, len: usize) -> usize {
        self.network.world.draw(Stream::Net, |rng| {
            if len > 1 && rng.chance(PARTIAL_PER_MILLION) {
                1 + rng.below(len as u64 - 1) as usize
            } else {
                len
            }
        })
    }

    /// Calls `read` with at most `max` bytes that are there.
    fn poll_take(
        &self,
        cx: &mut Context<'_>,
        max: usize,
        read: impl FnOnce(&mut VecDeque<u8>, usize),
    ) -> Poll<io::Result<usize>> {
        let mut state = self.network.state.borrow_mut();
        let Some(connection) = state.connections.get_mut(&self.id) else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        };
        let [one, two] = &mut connection.ends;
        let (own, peer) = if self.side == 0 { (one, two) } else { (two, one) };
        if own.inbox.is_empty() {
            if let Some(error) = own.error {
                return Poll::Ready(Err(error.into()));
            }
            if own.at_end || max == 0 {
                return Poll::Ready(Ok(0));
            }
            remember(&mut own.reader, cx.waker());
            return Poll::Pending;
        }
        let len = self.partial(own.inbox.len().min(max));
        read(&mut own.inbox, len);
        peer.unread_by_peer -= len;
        if let Some(writer) = peer.writer.take() {
            writer.wake();
        }
        Poll::Ready(Ok(len))
    }

    /// Room for writing, at least 1 when ready.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut state = self.network.state.borrow_mut();
        let Some(connection) = state.connections.get_mut(&self.id) else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        };
        let own = &mut connection.ends[self.side];
        if let Some(error) = own.error {
            return Poll::Ready(Err(error.into()));
        }
        if own.fin_sent {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = self.network.world.config.window_bytes.saturating_sub(own.unread_by_peer);
        if room == 0 {
            remember(&mut own.writer, cx.waker());
            return Poll::Pending;
        }
        Poll::Ready(Ok(room))
    }

    fn send(&self, data: Vec<u8>) {
        {
            let mut state = self.network.state.borrow_mut();
            let connection = state.connections.get_mut(&self.id).expect("there was room in it");
            connection.ends[self.side].unread_by_peer += data.len();
        }
        self.network.send(self.id, self.side, Segment::Data(data));
    }

    fn address(&self, side: usize) -> io::Result<SocketAddr> {
        let state = self.network.state.borrow();
        let connection = state.connections.get(&self.id).ok_or(io::ErrorKind::NotConnected)?;
        Ok(connection.ends[side].address)
    }
}

impl StreamDriver for SimStream {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.network.state.borrow_mut();
        let Some(connection) = state.connections.get_mut(&self.id) else { return Poll::Ready(Ok(())) };
        let own = &mut connection.ends[self.side];
        if own.inbox.is_empty() && own.error.is_none() && !own.at_end {
            remember(&mut own.reader, cx.waker());
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let max = buf.len();
        self.poll_take(cx, max, |inbox, len| {
            for (target, byte) in buf.iter_mut().zip(inbox.drain(..len)) {
                *target = byte;
            }
        })
    }

    fn poll_read_buf(&self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        let max = buf.capacity() - buf.len();
        self.poll_take(cx, max, |inbox, len| {
            let (front, back) = inbox.as_slices();
            let first = front.len().min(len);
            buf.put_slice(&front[..first]);
            buf.put_slice(&back[..len - first]);
            inbox.drain(..len);
        })
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_room(cx).map_ok(|_| ())
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        let room = match self.poll_room(cx) {
            Poll::Ready(Ok(room)) => room,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        };
        let len = self.partial(total.min(room));
        if len > 0 {
            let mut data = Vec::with_capacity(len);
            for slice in slices {
                let rest = len - data.len();
                data.extend_from_slice(&slice[..slice.len().min(rest)]);
            }
            self.send(data);
        }
        Poll::Ready(Ok(len))
    }

    fn poll_shutdown(&self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        {
            let mut state = self.network.state.borrow_mut();
            let Some(connection) = state.connections.get_mut(&self.id) else { return Poll::Ready(Ok(())) };
            let own = &mut connection.ends[self.side];
            if own.error.is_some() || std::mem::replace(&mut own.fin_sent, true) {
                return Poll::Ready(Ok(()));
            }
        }
        self.network.send(self.id, self.side, Segment::Fin);
        Poll::Ready(Ok(()))
    }

    fn set_nodelay(&self, _nodelay: bool) -> io::Result<()> {
        Ok(())
    }

    fn set_keepalive(&self, idle: Duration) -> io::Result<()> {
        self.network.keep_alive(self.id, self.side, idle);
        Ok(())
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.address(1 - self.side)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.address(self.side)
    }

    fn detach(self: Box<Self>) -> io::Result<Box<dyn Any + Send>> {
        self.detached.set(true);
        Ok(Box::new(Detached { id: self.id, side: self.side }))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        if !self.detached.get() {
            self.network.close(self.id, self.side);
        }
    }
}
