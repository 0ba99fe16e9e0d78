//! A secured connection as a stream over any backend's driver.

use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use rt::driver::{Layer, Layered, StreamDriver};

use crate::core::Core;
use crate::error::explain;

/// The limit of one read of the connection below.
pub(crate) const READ_LEN: usize = 16 << 10;

/// The connection below, for rustls to write to.
pub(crate) struct Wire<'a, 'b> {
    pub(crate) driver: &'a dyn StreamDriver,
    pub(crate) cx: &'a mut Context<'b>,
}

impl io::Write for Wire<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        or_would_block(self.driver.poll_write(self.cx, bytes))
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        or_would_block(self.driver.poll_write_vectored(self.cx, slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn or_would_block(written: Poll<io::Result<usize>>) -> io::Result<usize> {
    match written {
        Poll::Ready(written) => written,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// Writes all encrypted bytes that wait.
pub(crate) fn poll_flush(
    core: &mut Core,
    driver: &dyn StreamDriver,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while core.wants_write() {
        match core.write_to(&mut Wire { driver, cx }) {
            Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
    Poll::Ready(Ok(()))
}

struct State {
    core: Core,
    /// The buffer for reads of the connection below; empty while nothing arrives.
    encrypted: Vec<u8>,
    /// Bytes that are encrypted, but not yet reported as written: they are when all of them have left.
    accepted: usize,
    /// A writer waits for the connection below; it writes all that there is.
    writing: bool,
    closing: bool,
    /// The other side sends no more.
    ended: bool,
}

/// A connection whose handshake is done.
///
/// A write reports bytes when they have left encrypted, so a write that has to wait must be tried again with the same bytes
/// at its beginning; all code over `rt` does that.
pub(crate) struct TlsStream {
    driver: Box<dyn StreamDriver>,
    state: RefCell<State>,
}

impl TlsStream {
    pub(crate) fn new(driver: Box<dyn StreamDriver>, core: Core) -> TlsStream {
        let state =
            State { core, encrypted: Vec::new(), accepted: 0, writing: false, closing: false, ended: false };
        TlsStream { driver, state: RefCell::new(state) }
    }

    /// Ready when there is something to read, or nothing will come any more.
    fn poll_fill(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = &mut *self.state.borrow_mut();
        while !state.core.has_plain() && !state.ended {
            if self.driver.poll_read_ready(cx)?.is_pending() {
                state.core.rest();
                state.encrypted = Vec::new();
                return Poll::Pending;
            }
            state.encrypted.resize(READ_LEN, 0);
            let read = ready!(self.driver.poll_read(cx, &mut state.encrypted))?;
            state.ended = read == 0;
            let received = state.core.receive(state.encrypted.split_at(read).0);
            let received =
                received.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, explain(&error)));
            if !state.writing && state.core.wants_write() {
                // An alert, or an answer to a change of keys. Unsent bytes leave with the next write.
                let _ = poll_flush(&mut state.core, &*self.driver, cx)?;
            }
            received?;
        }
        Poll::Ready(Ok(()))
    }
}

impl StreamDriver for TlsStream {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_fill(cx)
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_fill(cx))?;
        Poll::Ready(Ok(self.state.borrow_mut().core.read(buf)))
    }

    fn poll_read_buf(&self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        ready!(self.poll_fill(cx))?;
        Poll::Ready(Ok(self.state.borrow_mut().core.read_buf(buf)))
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.driver.poll_write_ready(cx)
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let state = &mut *self.state.borrow_mut();
        loop {
            let flushed = poll_flush(&mut state.core, &*self.driver, cx);
            state.writing = flushed.is_pending();
            ready!(flushed)?;
            let total: usize = slices.iter().map(|slice| slice.len()).sum();
            let accepted = std::mem::take(&mut state.accepted);
            if accepted > total {
                let error = "a write that had to wait was not tried again";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidInput, error)));
            }
            if accepted > 0 || total == 0 {
                return Poll::Ready(Ok(accepted));
            }
            state.accepted = state.core.send(slices)?;
            if state.accepted == 0 {
                return Poll::Ready(Ok(0));
            }
        }
    }

    fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = &mut *self.state.borrow_mut();
        if !state.closing {
            state.closing = true;
            state.core.close();
        }
        ready!(poll_flush(&mut state.core, &*self.driver, cx))?;
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
        let layer = Box::new(Moving(self.state.into_inner()));
        Ok(Box::new(Layered { inner, layer }))
    }
}

/// The state on its way to another shard.
struct Moving(State);

impl Layer for Moving {
    fn over(self: Box<Self>, driver: Box<dyn StreamDriver>) -> Box<dyn StreamDriver> {
        Box::new(TlsStream { driver, state: RefCell::new(self.0) })
    }
}
