//! Buffers that the connections of a shard share, so that an idle connection holds none.

use std::cell::RefCell;

use bytes::BytesMut;

/// Room that a connection has when it begins to read, in bytes.
pub(crate) const READ_BUFFER: usize = 32 << 10;
/// Room that an answer has when it is begun, in bytes.
const ANSWER_BUFFER: usize = 512;
/// Larger buffers are freed.
const KEPT_CAPACITY_MAX: usize = 256 << 10;
/// So many free buffers of each kind are pooled.
const KEPT_MAX: usize = 32;

/// The pools of one shard.
#[derive(Default)]
pub(crate) struct Buffers {
    /// For the bytes of connections, in and out.
    transport: RefCell<Vec<BytesMut>>,
    /// For single answers.
    answers: RefCell<Vec<BytesMut>>,
}

impl Buffers {
    /// An empty buffer for the bytes of a connection.
    pub(crate) fn transport(&self) -> BytesMut {
        self.transport.borrow_mut().pop().unwrap_or_else(|| BytesMut::with_capacity(READ_BUFFER))
    }

    /// Takes an empty buffer back. One whose memory is still used by a request is let go.
    pub(crate) fn return_transport(&self, mut buffer: BytesMut) {
        let mut pool = self.transport.borrow_mut();
        if pool.len() < KEPT_MAX
            && (buffer.capacity() >= READ_BUFFER || buffer.try_reclaim(READ_BUFFER))
            && buffer.capacity() <= KEPT_CAPACITY_MAX
        {
            pool.push(buffer);
        }
    }

    /// An empty buffer for an answer.
    pub(crate) fn answer(&self) -> BytesMut {
        self.answers.borrow_mut().pop().unwrap_or_else(|| BytesMut::with_capacity(ANSWER_BUFFER))
    }

    /// Takes the buffer of an answer back.
    pub(crate) fn return_answer(&self, buffer: BytesMut) {
        let mut pool = self.answers.borrow_mut();
        if pool.len() < KEPT_MAX && buffer.capacity() > 0 && buffer.capacity() <= KEPT_CAPACITY_MAX {
            pool.push(buffer);
        }
    }
}
