//! A connection of which some bytes were read already, to detect its protocol.

use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use rt::driver::{Layer, Layered, StreamDriver};

/// Gives the bytes first.
pub(crate) struct Prefixed {
    driver: Box<dyn StreamDriver>,
    prefix: RefCell<Bytes>,
}

impl Prefixed {
    pub(crate) fn new(driver: Box<dyn StreamDriver>, prefix: Bytes) -> Prefixed {
        Prefixed { driver, prefix: RefCell::new(prefix) }
    }

    /// Takes at most `len` bytes of the prefix.
    fn take(&self, len: usize) -> Bytes {
        let mut prefix = self.prefix.borrow_mut();
        let len = prefix.len().min(len);
        prefix.split_to(len)
    }

    fn has_prefix(&self) -> bool {
        self.prefix.borrow().has_remaining()
    }
}

impl StreamDriver for Prefixed {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_prefix() { Poll::Ready(Ok(())) } else { self.driver.poll_read_ready(cx) }
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if !self.has_prefix() {
            return self.driver.poll_read(cx, buf);
        }
        let taken = self.take(buf.len());
        buf.split_at_mut(taken.len()).0.copy_from_slice(&taken);
        Poll::Ready(Ok(taken.len()))
    }

    fn poll_read_buf(&self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        if !self.has_prefix() {
            return self.driver.poll_read_buf(cx, buf);
        }
        let taken = self.take(buf.capacity() - buf.len());
        buf.extend_from_slice(&taken);
        Poll::Ready(Ok(taken.len()))
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.driver.poll_write_ready(cx)
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.driver.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.driver.poll_write_vectored(cx, slices)
    }

    fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.driver.poll_shutdown(cx)
    }

    fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.driver.set_nodelay(nodelay)
    }

    fn set_keepalive(&self, idle: Duration) -> io::Result<()> {
        self.driver.set_keepalive(idle)
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.driver.peer_addr()
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.driver.local_addr()
    }

    fn detach(self: Box<Self>) -> io::Result<Box<dyn Any + Send>> {
        let inner = self.driver.detach()?;
        let prefix = self.prefix.into_inner();
        // When all of it was read, the connection is as any other.
        if prefix.is_empty() {
            Ok(inner)
        } else {
            Ok(Box::new(Layered { inner, layer: Box::new(Moving(prefix)) }))
        }
    }
}

/// The bytes on their way to another shard.
struct Moving(Bytes);

impl Layer for Moving {
    fn over(self: Box<Self>, driver: Box<dyn StreamDriver>) -> Box<dyn StreamDriver> {
        Box::new(Prefixed::new(driver, self.0))
    }
}
