//! Sockets: listening, connecting, streams, and handing a connection to another shard.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;

use crate::driver::{Layered, ListenerDriver, NetDriver, StreamDriver};
use crate::net_options::{ConnectOptions, ListenOptions};

/// A failed attempt to listen, connect or take over a connection.
#[derive(Debug)]
pub struct NetError {
    /// The operation.
    pub op: NetOp,
    /// With which address.
    pub address: Option<SocketAddr>,
    /// The system's error.
    pub source: io::Error,
}

/// The operation of a [`NetError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetOp {
    /// Listening.
    Listen,
    /// Connecting.
    Connect,
    /// Accepting.
    Accept,
    /// Moving a connection between shards.
    HandOver,
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.op {
            NetOp::Listen => "listen on",
            NetOp::Connect => "connect to",
            NetOp::Accept => "accept a connection on",
            NetOp::HandOver => "hand over a connection of",
        };
        match self.address {
            Some(address) => write!(f, "cannot {verb} {address}: {}", self.source)?,
            None => write!(f, "cannot {verb} a socket: {}", self.source)?,
        }
        let advice = match (self.op, self.source.kind()) {
            (NetOp::Listen, io::ErrorKind::AddrInUse) => {
                "; another process has this port: stop it, or configure another port or address"
            }
            (NetOp::Listen, io::ErrorKind::AddrNotAvailable) => "; this machine has no such address",
            (NetOp::Listen, io::ErrorKind::PermissionDenied) => "; ports below 1024 need a privilege",
            (_, io::ErrorKind::Other) if matches!(self.source.raw_os_error(), Some(23 | 24)) => {
                "; raise the limit of open files (ulimit -n)"
            }
            _ => "",
        };
        f.write_str(advice)
    }
}

impl std::error::Error for NetError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// The network. Cheap to clone.
#[derive(Clone)]
pub struct Net {
    driver: Rc<dyn NetDriver>,
}

impl Net {
    /// For backends: the network behind `driver`.
    pub fn new(driver: Rc<dyn NetDriver>) -> Net {
        Net { driver }
    }

    /// Listens on `address`; port 0 takes any free one, see [`Listener::local_addr`].
    ///
    /// # Errors
    /// A [`NetError`] when the address is in use, is none of this machine, or needs a privilege.
    pub async fn listen(&self, address: SocketAddr, options: ListenOptions) -> Result<Listener, NetError> {
        let error = |source| NetError { op: NetOp::Listen, address: Some(address), source };
        let driver = self.driver.listen(address, options).await.map_err(error)?;
        Ok(Listener { driver })
    }

    /// Connects to `address`.
    ///
    /// # Errors
    /// A [`NetError`] when nobody listens there, the address cannot be reached, or the system has no socket left.
    pub async fn connect(&self, address: SocketAddr, options: ConnectOptions) -> Result<Stream, NetError> {
        let error = |source| NetError { op: NetOp::Connect, address: Some(address), source };
        let driver = self.driver.connect(address, options).await.map_err(error)?;
        Ok(Stream { driver })
    }

    /// Takes over a connection that another shard of this node has detached.
    ///
    /// # Errors
    /// A [`NetError`] when the system does not take the socket in, or a layer cannot be put over it again.
    pub fn attach(&self, detached: DetachedStream) -> Result<Stream, NetError> {
        let address = detached.peer;
        let error = |source| NetError { op: NetOp::HandOver, address: Some(address), source };
        let driver = self.attach_layers(detached.inner).map_err(error)?;
        Ok(Stream { driver })
    }

    fn attach_layers(&self, inner: Box<dyn Any + Send>) -> io::Result<Box<dyn StreamDriver>> {
        match inner.downcast::<Layered>() {
            Ok(layered) => Ok(layered.layer.over(self.attach_layers(layered.inner)?)),
            Err(inner) => self.driver.attach(inner),
        }
    }
}

/// A listening socket; closed when dropped.
pub struct Listener {
    driver: Box<dyn ListenerDriver>,
}

impl Listener {
    /// Waits for the next connection.
    ///
    /// # Errors
    /// A [`NetError`] of one connection or of a shortage, not of the listener: wait a little and go on.
    pub async fn accept(&self) -> Result<(Stream, SocketAddr), NetError> {
        let accepted = poll_fn(|cx| self.driver.poll_accept(cx)).await;
        match accepted {
            Ok((driver, peer)) => Ok((Stream { driver }, peer)),
            Err(source) => {
                Err(NetError { op: NetOp::Accept, address: self.driver.local_addr().ok(), source })
            }
        }
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// That of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.driver.local_addr()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener({:?})", self.driver.local_addr())
    }
}

/// A connection unbound from its shard, on its way to another.
pub struct DetachedStream {
    inner: Box<dyn Any + Send>,
    peer: SocketAddr,
}

impl DetachedStream {
    /// The other end.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }
}

/// A connection; closed when dropped. Methods take `&self`: one task may read while another writes, but not two
/// tasks in the same direction. Neither reading nor writing allocates.
pub struct Stream {
    driver: Box<dyn StreamDriver>,
}

impl Stream {
    /// A stream over any driver: how TLS is put around a connection.
    pub fn from_driver(driver: Box<dyn StreamDriver>) -> Stream {
        Stream { driver }
    }

    /// The driver, to be wrapped.
    pub fn into_driver(self) -> Box<dyn StreamDriver> {
        self.driver
    }

    /// Ready when a read would not wait.
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.driver.poll_read_ready(cx)
    }

    /// Reads into a slice; 0 at the end of the stream.
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.driver.poll_read(cx, buf)
    }

    /// Appends to `buf` at most its spare capacity (which must not be 0); 0 at the end of the stream.
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub fn poll_read_buf(&self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        debug_assert!(buf.capacity() > buf.len(), "no room to read into");
        self.driver.poll_read_buf(cx, buf)
    }

    /// Ready when a write would not wait.
    ///
    /// # Errors
    /// As [`Stream::write_all`].
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.driver.poll_write_ready(cx)
    }

    /// Writes a part of `bytes`.
    ///
    /// # Errors
    /// As [`Stream::write_all`].
    pub fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.driver.poll_write(cx, bytes)
    }

    /// Writes a part of `slices`.
    ///
    /// # Errors
    /// As [`Stream::write_all`].
    pub fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.driver.poll_write_vectored(cx, slices)
    }

    /// Closes the writing side.
    ///
    /// # Errors
    /// As [`Stream::write_all`].
    pub fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.driver.poll_shutdown(cx)
    }

    /// Waits until a read would not wait. An idle connection that waits here needs no buffer.
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.driver.poll_read_ready(cx)).await
    }

    /// Reads into a slice; 0 at the end of the stream.
    ///
    /// # Errors
    /// That of the system or of a layer (TLS) when the connection is broken: reset, unreachable, no answer to
    /// keepalive.
    pub async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.driver.poll_read(cx, buf)).await
    }

    /// Appends to `buf` at most its spare capacity (which must not be 0); 0 at the end of the stream.
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub async fn read_buf(&self, buf: &mut BytesMut) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read_buf(cx, buf)).await
    }

    /// Fills `buf`.
    ///
    /// # Errors
    /// One of kind `UnexpectedEof` when the stream ends before that; else as [`Stream::read`].
    pub async fn read_exact(&self, buf: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.read(&mut buf[filled..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => filled += read,
            }
        }
        Ok(())
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// That of the system or of a layer (TLS) when the connection is broken or its writing side closed. A part may have
    /// been sent.
    pub async fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match poll_fn(|cx| self.driver.poll_write(cx, rest)).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => rest = &rest[written..],
            }
        }
        Ok(())
    }

    /// Writes all of `slices`, one after another, with as few system calls as possible.
    ///
    /// # Errors
    /// As [`Stream::write_all`].
    pub async fn write_all_vectored(&self, slices: &mut [io::IoSlice<'_>]) -> io::Result<()> {
        let mut rest = slices;
        io::IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match poll_fn(|cx| self.driver.poll_write_vectored(cx, rest)).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => io::IoSlice::advance_slices(&mut rest, written),
            }
        }
        Ok(())
    }

    /// Closes the writing side; the other end reads to its end.
    ///
    /// # Errors
    /// As [`Stream::write_all`].
    pub async fn shutdown(&self) -> io::Result<()> {
        poll_fn(|cx| self.driver.poll_shutdown(cx)).await
    }

    /// Whether small writes leave at once.
    ///
    /// # Errors
    /// That of the system.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.driver.set_nodelay(nodelay)
    }

    /// Turns TCP keepalive on (RFC 9293, section 3.8.4): after `idle` without traffic the other end is probed, and the connection fails
    /// when it does not answer for as long again, or has forgotten it.
    ///
    /// # Errors
    /// That of the system.
    pub fn set_keepalive(&self, idle: Duration) -> io::Result<()> {
        self.driver.set_keepalive(idle)
    }

    /// The other end.
    ///
    /// # Errors
    /// That of the system, when the connection is broken.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.driver.peer_addr()
    }

    /// This end.
    ///
    /// # Errors
    /// That of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.driver.local_addr()
    }

    /// Unbinds the connection from this shard, for [`Net::attach`] on another.
    ///
    /// # Errors
    /// A [`NetError`] when the other end's address is not known any more, or the system does not give the socket back.
    pub fn detach(self) -> Result<DetachedStream, NetError> {
        let error = |source| NetError { op: NetOp::HandOver, address: None, source };
        let peer = self.driver.peer_addr().map_err(error)?;
        let inner = self.driver.detach().map_err(error)?;
        Ok(DetachedStream { inner, peer })
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?})", self.driver.peer_addr())
    }
}
