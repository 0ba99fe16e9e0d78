//! One connection's bytes: what is read is cut into frames, what is to be written leaves in as few writes as possible.

use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use bytes::BytesMut;
use rt::Stream;

use crate::frame::{Decoder, Frame, FrameError, REFUSAL_MESSAGE_LEN_MAX};
use crate::packing::{Packer, Packing, unpack};
use crate::write_buffer::{SLICES_MAX, WriteBuffer};

/// Room that a read has, in bytes.
const READ_LEN: usize = 64 << 10;
/// Less room than this is not worth a read.
const READ_LEN_MIN: usize = 4 << 10;
/// When so many bytes wait to be written, no more frames are taken from the queue.
const WRITE_LEN: usize = 256 << 10;

/// However short bodies have to be, a refusal may say why.
const BODY_LEN_MAX_LEAST: usize = REFUSAL_MESSAGE_LEN_MAX + 2;

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// So many bytes.
    Some(usize),
    /// Nothing yet.
    Nothing,
    /// The peer writes no more.
    End,
}

/// A connection past its hello.
pub(crate) struct Pipe {
    stream: Stream,
    input: BytesMut,
    decoder: Decoder,
    body_len_max: usize,
    pub(crate) out: WriteBuffer,
    pub(crate) packer: Packer,
}

impl Pipe {
    /// Frames over `stream` with bodies of at most `body_len_max` bytes.
    pub(crate) fn new(
        stream: Stream,
        body_len_max: usize,
        packing: Packing,
        compress_len_min: usize,
    ) -> Pipe {
        let body_len_max = body_len_max.max(BODY_LEN_MAX_LEAST);
        Pipe {
            stream,
            input: BytesMut::new(),
            decoder: Decoder::new(body_len_max),
            body_len_max,
            out: WriteBuffer::default(),
            packer: Packer::new(packing, compress_len_min),
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

    /// Reads once.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>) -> io::Result<Filled> {
        if self.input.capacity() - self.input.len() < READ_LEN_MIN {
            if self.stream.poll_read_ready(cx)?.is_pending() {
                return Ok(Filled::Nothing);
            }
            // Never much more than has come already, whatever length the peer promises.
            let missing = self.decoder.missing(self.input.len());
            self.input.reserve(missing.min(self.input.len()).max(READ_LEN));
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
