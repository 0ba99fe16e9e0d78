//! One connection's bytes: reads are cut into frames, and frames leave in as few writes as possible.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use rt::Stream;
use rt::sync::Permit;
use rt::sync::semaphore::{Acquire, Semaphore};

use crate::frame::{Decoder, Frame, REFUSAL_MESSAGE_LEN_MAX};
use crate::frame_error::FrameError;
use crate::packing::{Packer, Packing, unpack};
use crate::shard::Shard;
use crate::write_buffer::{SLICES_MAX, WriteBuffer};

/// Room that a read has, in bytes.
const READ_LEN: usize = 64 << 10;
/// Less room than this is not worth a read.
const READ_LEN_MIN: usize = 4 << 10;
/// When so many bytes wait to be written, no more frames are taken from the queue.
const WRITE_LEN: usize = 256 << 10;

/// However short bodies have to be, a refusal may say why.
const BODY_LEN_MAX_LEAST: usize = REFUSAL_MESSAGE_LEN_MAX + 2;

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// So many bytes.
    Some(usize),
    /// Nothing yet.
    Nothing,
    /// The peer writes no more.
    End,
}

/// The memory of a long frame that is coming in.
enum Booking {
    None,
    Held(#[expect(dead_code, reason = "holds the memory until it is dropped")] Permit),
    Waiting(Pin<Box<Acquire>>),
}

/// A connection past its hello.
pub(crate) struct Pipe {
    stream: Stream,
    input: BytesMut,
    decoder: Decoder,
    body_len_max: usize,
    budget: Semaphore,
    booking: Booking,
    pub(crate) out: WriteBuffer,
    pub(crate) packer: Packer,
}

impl Pipe {
    /// Frames over `stream`.
    pub(crate) fn new(stream: Stream, shard: &Shard, packing: Packing) -> Pipe {
        let body_len_max = shard.config.limits.body_len_max.max(BODY_LEN_MAX_LEAST);
        Pipe {
            stream,
            input: BytesMut::new(),
            decoder: Decoder::new(body_len_max),
            body_len_max,
            budget: shard.partial.clone(),
            booking: Booking::None,
            out: WriteBuffer::default(),
            packer: Packer::new(packing, shard.config.compress_len_min),
        }
    }

    /// Whether more frames should be made ready for writing.
    pub(crate) fn wants_frames(&self) -> bool {
        self.out.len() < WRITE_LEN
    }

    /// Writes until nothing is left (true) or the socket takes no more.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        while !self.out.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let used = self.out.slices(&mut slices);
            let Some(slices) = slices.get(..used) else { return Ok(true) };
            match self.stream.poll_write_vectored(cx, slices)? {
                Poll::Pending => return Ok(false),
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => self.out.advance(written),
            }
        }
        Ok(true)
    }

    /// Whether nothing is read because too many long frames are coming in over other connections.
    pub(crate) fn waits_for_room(&self) -> bool {
        matches!(self.booking, Booking::Waiting(_))
    }

    /// Books the memory of a long frame whose header has come; ready when it may come in.
    fn poll_booking(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let len = self.decoder.body_len();
        loop {
            match &mut self.booking {
                Booking::None if len <= READ_LEN => return Poll::Ready(()),
                Booking::None => match self.budget.try_acquire(len) {
                    Some(permit) => self.booking = Booking::Held(permit),
                    None => self.booking = Booking::Waiting(Box::pin(self.budget.acquire(len))),
                },
                Booking::Held(_) => return Poll::Ready(()),
                Booking::Waiting(acquire) => match std::task::ready!(acquire.as_mut().poll(cx)) {
                    Ok(permit) => self.booking = Booking::Held(permit),
                    // The budget is never closed; without it the frame may come in as the others do.
                    Err(_) => return Poll::Ready(()),
                },
            }
        }
    }

    /// Reads once.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>) -> io::Result<Filled> {
        if self.poll_booking(cx).is_pending() {
            return Ok(Filled::Nothing);
        }
        let missing = self.decoder.missing(self.input.len());
        let room = self.input.capacity() - self.input.len();
        if room < READ_LEN_MIN.max(missing) {
            if self.stream.poll_read_ready(cx)?.is_pending() {
                return Ok(Filled::Nothing);
            }
            // A long frame has its memory booked: it moves once, to where it has all its room.
            self.input.reserve(missing.max(READ_LEN));
        }
        match self.stream.poll_read_buf(cx, &mut self.input)? {
            Poll::Pending => Ok(Filled::Nothing),
            Poll::Ready(0) => Ok(Filled::End),
            Poll::Ready(read) => Ok(Filled::Some(read)),
        }
    }

    /// The next frame that is here as a whole, its body unpacked.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some(mut frame) = self.decoder.next(&mut self.input)? else { return Ok(None) };
        self.booking = Booking::None;
        frame.body = unpack(frame.header.packing, frame.body, self.body_len_max)?;
        Ok(Some(frame))
    }

    /// Gives buffers back that are not needed while the connection waits.
    pub(crate) fn rest(&mut self) {
        if self.input.is_empty() && self.input.capacity() > 0 {
            self.input = BytesMut::new();
        }
        self.out.rest();
    }
}
