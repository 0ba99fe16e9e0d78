//! Sockets through tokio.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use rt::driver::{ListenerDriver, LocalBoxFuture, NetDriver, StreamDriver};
use rt::{ConnectOptions, ListenOptions};
use socket2::TcpKeepalive;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Probes of the other end without an answer before a connection fails.
const KEEPALIVE_PROBES: u32 = 6;

fn socket_for(address: SocketAddr) -> io::Result<TcpSocket> {
    if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }
}

/// The machine's network.
pub(crate) struct SystemNet;

impl NetDriver for SystemNet {
    fn listen(
        &self,
        address: SocketAddr,
        options: ListenOptions,
    ) -> LocalBoxFuture<io::Result<Box<dyn ListenerDriver>>> {
        let listen = move || {
            let socket = socket_for(address)?;
            socket.set_reuseaddr(true)?;
            if options.reuse_port {
                socket.set_reuseport(true)?;
            }
            socket.bind(address)?;
            let listener = socket.listen(options.backlog)?;
            Ok(Box::new(SystemListener { listener }) as Box<dyn ListenerDriver>)
        };
        Box::pin(async move { listen() })
    }

    fn connect(
        &self,
        address: SocketAddr,
        options: ConnectOptions,
    ) -> LocalBoxFuture<io::Result<Box<dyn StreamDriver>>> {
        Box::pin(async move {
            let socket = socket_for(address)?;
            if let Some(local) = options.local {
                socket.set_reuseaddr(true)?;
                socket.bind(local)?;
            }
            let stream = socket.connect(address).await?;
            Ok(Box::new(SystemStream::new(stream)) as Box<dyn StreamDriver>)
        })
    }

    fn attach(&self, detached: Box<dyn Any + Send>) -> io::Result<Box<dyn StreamDriver>> {
        let stream = detached.downcast::<std::net::TcpStream>();
        let stream = stream
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "not a socket of this machine"))?;
        Ok(Box::new(SystemStream::new(TcpStream::from_std(*stream)?)))
    }
}

struct SystemListener {
    listener: TcpListener,
}

impl ListenerDriver for SystemListener {
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Box<dyn StreamDriver>, SocketAddr)>> {
        let (stream, peer) = ready!(self.listener.poll_accept(cx))?;
        Poll::Ready(Ok((Box::new(SystemStream::new(stream)), peer)))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// tokio's traits want `&mut`, ours give `&`: reader and writer are tasks of one thread that are never polled
/// inside one another, so the cell is never borrowed twice. (`try_read` would do without, but costs a system
/// call more an answer, because it does not remember that a short read has emptied the socket.)
struct SystemStream {
    stream: RefCell<TcpStream>,
}

impl SystemStream {
    fn new(stream: TcpStream) -> SystemStream {
        SystemStream { stream: RefCell::new(stream) }
    }
}

impl StreamDriver for SystemStream {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.borrow().poll_read_ready(cx)
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(buf);
        ready!(Pin::new(&mut *self.stream.borrow_mut()).poll_read(cx, &mut buf))?;
        Poll::Ready(Ok(buf.filled().len()))
    }

    fn poll_read_buf(&self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        let mut spare = ReadBuf::uninit(buf.spare_capacity_mut());
        ready!(Pin::new(&mut *self.stream.borrow_mut()).poll_read(cx, &mut spare))?;
        let read = spare.filled().len();
        // SAFETY: the first `read` bytes of the spare capacity have just been initialised.
        unsafe { buf.set_len(buf.len() + read) };
        Poll::Ready(Ok(read))
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.borrow().poll_write_ready(cx)
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_write_vectored(cx, slices)
    }

    fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_shutdown(cx)
    }

    fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.stream.borrow().set_nodelay(nodelay)
    }

    fn set_keepalive(&self, idle: Duration) -> io::Result<()> {
        let probes = TcpKeepalive::new()
            .with_time(idle)
            .with_interval(idle.div_f64(f64::from(KEEPALIVE_PROBES)).max(Duration::from_secs(1)))
            .with_retries(KEEPALIVE_PROBES);
        socket2::SockRef::from(&*self.stream.borrow()).set_tcp_keepalive(&probes)
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.borrow().peer_addr()
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.borrow().local_addr()
    }

    fn detach(self: Box<Self>) -> io::Result<Box<dyn Any + Send>> {
        Ok(Box::new(self.stream.into_inner().into_std()?))
    }
}
