//! A shard's stream as hyper wants it.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::rt::ReadBufCursor;
use rt::{Instant, Rt, Stream};

/// Bytes of one read of a stream.
const READ_LEN: usize = 8192;

/// An observer of a connection's reads and writes, from which timeouts follow.
pub trait Activity {
    /// Bytes have been read.
    fn read(&self, now: Instant);
    /// Bytes have been written.
    fn wrote(&self, now: Instant);
}

/// A stream for `hyper::server::conn::http1`, observed by `activity`.
pub struct Io<A> {
    rt: Rt,
    stream: Stream,
    activity: Rc<A>,
    /// The bytes of a read, which hyper copies: zeroed once, not for each of them.
    read: Box<[u8]>,
}

impl<A: Activity> Io<A> {
    /// This stream of the shard of `rt`.
    pub fn new(rt: Rt, stream: Stream, activity: Rc<A>) -> Self {
        Self { rt, stream, activity, read: vec![0; READ_LEN].into() }
    }
}

impl<A: Activity> hyper::rt::Read for Io<A> {
    #[expect(
        clippy::indexing_slicing,
        reason = "the length read is at most the room, which is at most the buffer"
    )]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let room = this.read.len().min(buf.remaining());
        let len = ready!(this.stream.poll_read(cx, &mut this.read[..room]))?;
        buf.put_slice(&this.read[..len]);
        if len > 0 {
            this.activity.read(this.rt.now());
        }
        Poll::Ready(Ok(()))
    }
}

impl<A: Activity> hyper::rt::Write for Io<A> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(self.stream.poll_write(cx, bytes))?;
        self.activity.wrote(self.rt.now());
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_shutdown(cx)
    }
}
