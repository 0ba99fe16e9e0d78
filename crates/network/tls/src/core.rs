//! One side of a secured connection without IO: encrypted bytes in, plain bytes out, and the reverse.

use std::io::{self, Read, Write};

use bytes::{Buf, BytesMut};
use rustls::{Connection, Error};

/// The state of the protocol, and decrypted bytes that were not read yet.
pub(crate) struct Core {
    connection: Connection,
    plain: BytesMut,
}

impl Core {
    /// The state at the beginning.
    pub(crate) fn new(connection: Connection) -> Core {
        Core { connection, plain: BytesMut::new() }
    }

    /// Takes received bytes. Their decrypted content waits to be read; it is not longer than they were.
    #[expect(clippy::indexing_slicing, reason = "the buffer was just made longer")]
    pub(crate) fn receive(&mut self, mut encrypted: &[u8]) -> Result<(), Error> {
        while !encrypted.is_empty() {
            let taken = self.connection.read_tls(&mut encrypted);
            let taken = taken.map_err(|error| Error::General(error.to_string()))?;
            let state = self.connection.process_new_packets()?;
            let len = state.plaintext_bytes_to_read();
            let before = self.plain.len();
            self.plain.resize(before + len, 0);
            let read = self.connection.reader().read_exact(&mut self.plain[before..]);
            read.map_err(|error| Error::General(error.to_string()))?;
            if taken == 0 {
                // The other side has said that it ends.
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether something waits to be read.
    pub(crate) fn has_plain(&self) -> bool {
        !self.plain.is_empty()
    }

    /// Moves decrypted bytes that wait to be read.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> usize {
        let len = self.plain.len().min(into.len());
        let (from, into) = (self.plain.split_at(len).0, into.split_at_mut(len).0);
        into.copy_from_slice(from);
        self.plain.advance(len);
        len
    }

    /// Appends decrypted bytes that wait to be read, at most the room that `into` has.
    pub(crate) fn read_buf(&mut self, into: &mut BytesMut) -> usize {
        let len = self.plain.len().min(into.capacity() - into.len());
        into.extend_from_slice(self.plain.split_at(len).0);
        self.plain.advance(len);
        len
    }

    /// Gives the buffer back while nothing comes.
    pub(crate) fn rest(&mut self) {
        if self.plain.is_empty() && self.plain.capacity() > 0 {
            self.plain = BytesMut::new();
        }
    }

    /// Encrypts a part of the bytes to send; returns their number.
    pub(crate) fn send(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.connection.writer().write_vectored(slices)
    }

    /// Says that nothing more is sent.
    pub(crate) fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// Whether encrypted bytes wait to be written.
    pub(crate) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Writes encrypted bytes once.
    pub(crate) fn write_to(&mut self, wire: &mut dyn Write) -> io::Result<usize> {
        self.connection.write_tls(wire)
    }

    /// The verified certificate of the other side, in DER, if it has shown one.
    pub(crate) fn peer_certificate(&self) -> Option<&[u8]> {
        self.connection.peer_certificates()?.first().map(|certificate| &**certificate)
    }

    /// Whether the sides do not know each other yet.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }
}
