//! Packs messages into the bytes of one write: envelope headers, compression, and v5's frames with as many
//! envelopes in each as fit.

use bytes::{BufMut, BytesMut};

use crate::client::RequestWriter;
use crate::compression::{COMPRESS_LEN_MIN, Compressor};
use crate::frame::{FrameHeader, payload_checksum};
use crate::{
    Compression, Direction, Flags, Framing, HEADER_LEN, Header, MAX_FRAME_PAYLOAD, Opcode, ProtocolError,
    ResponseWriter, Version,
};

/// Room for the header that a frame gets when it is closed.
const FRAME_HEADER_ROOM: [u8; 8] = [0; 8];

/// The outgoing bytes of one connection.
pub struct Encoder {
    framing: Framing,
    compression: Option<Compression>,
    out: BytesMut,
    /// Where the frame that still takes envelopes begins.
    open_frame: Option<usize>,
    compressor: Option<Box<Compressor>>,
    /// A body that is to be compressed, in one piece.
    plain: Vec<u8>,
    /// The part of a body before the content that was written by the caller.
    head: BytesMut,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An encoder of bare envelopes without compression.
    pub fn new() -> Self {
        Self {
            framing: Framing::Bare,
            compression: None,
            out: BytesMut::new(),
            open_frame: None,
            compressor: None,
            plain: Vec::new(),
            head: BytesMut::new(),
        }
    }

    /// Fixes framing and compression for the messages that follow.
    pub fn agree(&mut self, framing: Framing, compression: Option<Compression>) {
        self.close_frame(true);
        self.framing = framing;
        self.compression = compression;
    }

    /// Appends a response.
    pub fn push(&mut self, stream: i16, response: &ResponseWriter) {
        let mut head = std::mem::take(&mut self.head);
        head.clear();
        let parts = response.parts(&mut head);
        let header = Header {
            version: response.dialect().version.number(),
            direction: Direction::Response,
            flags: response.flags(),
            stream,
            opcode: response.opcode().code(),
            length: 0,
        };
        self.put(header, parts);
        self.head = head;
    }

    /// Appends a request.
    pub fn push_request(&mut self, stream: i16, request: &RequestWriter) {
        let header = Header {
            version: request.dialect().version.number(),
            direction: Direction::Request,
            flags: request.flags(),
            stream,
            opcode: request.opcode().code(),
            length: 0,
        };
        self.put(header, [request.body(), &[], &[], &[]]);
    }

    /// Bytes that wait to be written, an open frame's header included.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether nothing waits to be written.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Closes the open frame and gives the bytes that are to be written. The caller removes from the front the bytes that it
    /// wrote (`advance`, `split_to`) before the next message is pushed.
    pub fn finish(&mut self) -> &mut BytesMut {
        self.close_frame(true);
        &mut self.out
    }

    /// Appends the bare ERROR that refuses a protocol version ([`put_version_refusal`]).
    pub fn push_version_refusal(&mut self, version: u8, stream: i16) {
        put_version_refusal(version, stream, &mut self.out);
    }

    /// Whether there is no memory for messages yet: the time to give a pooled buffer.
    pub fn needs_buffer(&self) -> bool {
        self.out.capacity() == 0
    }

    /// Gives memory for the messages that follow.
    ///
    /// # Panics
    /// When bytes wait to be written.
    pub fn give_buffer(&mut self, buffer: BytesMut) {
        assert!(self.out.is_empty() && buffer.is_empty(), "a buffer is changed when nothing is in it");
        self.out = buffer;
    }

    /// Takes the memory back when nothing waits to be written, and drops the state of compression.
    pub fn take_buffer(&mut self) -> Option<BytesMut> {
        if !self.out.is_empty() {
            return None;
        }
        self.compressor = None;
        self.plain = Vec::new();
        Some(std::mem::take(&mut self.out))
    }

    #[expect(clippy::expect_used, reason = "bodies are limited to less than 2 GiB")]
    fn put(&mut self, header: Header, parts: [&[u8]; 4]) {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        let header = Header { length: i32::try_from(len).expect("a body is shorter than 2 GiB"), ..header };
        match (self.framing, self.compression) {
            (Framing::Bare, Some(compression))
                if len >= COMPRESS_LEN_MIN && header.opcode != Opcode::Startup.code() =>
            {
                self.put_compressed(compression, header, parts);
            }
            (Framing::Bare, _) => self.put_plain(&header, parts, len),
            _ if HEADER_LEN + len <= MAX_FRAME_PAYLOAD => self.put_contained(&header, parts, len),
            _ => self.put_long(&header, parts),
        }
    }

    fn put_plain(&mut self, header: &Header, parts: [&[u8]; 4], len: usize) {
        self.out.reserve(HEADER_LEN + len);
        self.out.put_slice(&header.encode());
        for part in parts {
            if !part.is_empty() {
                self.out.put_slice(part);
            }
        }
    }

    #[expect(clippy::expect_used, reason = "it is shorter than the plain body")]
    fn put_compressed(&mut self, compression: Compression, mut header: Header, parts: [&[u8]; 4]) {
        self.plain.clear();
        for part in parts {
            self.plain.extend_from_slice(part);
        }
        let compressor = self.compressor.get_or_insert_default();
        match compressor.compress_body(compression, &self.plain) {
            Some(packed) => {
                header.flags = Flags(header.flags.0 | Flags::COMPRESSION);
                header.length = i32::try_from(packed.len()).expect("shorter than the plain body");
                self.out.reserve(HEADER_LEN + packed.len());
                self.out.put_slice(&header.encode());
                self.out.put_slice(packed);
            }
            None => {
                let len = self.plain.len();
                self.put_plain(&header, parts, len);
            }
        }
    }

    /// An envelope that fits into one frame, together with others.
    fn put_contained(&mut self, header: &Header, parts: [&[u8]; 4], len: usize) {
        if let Some(start) = self.open_frame
            && self.out.len() - start - self.framing.header_len() + HEADER_LEN + len > MAX_FRAME_PAYLOAD
        {
            self.close_frame(true);
        }
        self.open_frame();
        self.put_plain(header, parts, len);
    }

    /// An envelope that needs several frames, which hold nothing else.
    fn put_long(&mut self, header: &Header, parts: [&[u8]; 4]) {
        self.close_frame(true);
        self.open_frame();
        self.out.put_slice(&header.encode());
        let mut room = MAX_FRAME_PAYLOAD - HEADER_LEN;
        for mut part in parts {
            while !part.is_empty() {
                if room == 0 {
                    self.close_frame(false);
                    self.open_frame();
                    room = MAX_FRAME_PAYLOAD;
                }
                let (now, later) = part.split_at(part.len().min(room));
                self.out.put_slice(now);
                room -= now.len();
                part = later;
            }
        }
        self.close_frame(false);
    }

    fn open_frame(&mut self) {
        if self.open_frame.is_none() {
            self.open_frame = Some(self.out.len());
            let (room, _) = FRAME_HEADER_ROOM.split_at(self.framing.header_len());
            self.out.put_slice(room);
        }
    }

    fn close_frame(&mut self, self_contained: bool) {
        let Some(start) = self.open_frame.take() else { return };
        let header_len = self.framing.header_len();
        let begin = start + header_len;
        let plain_len = self.out.len() - begin;
        assert!(plain_len <= MAX_FRAME_PAYLOAD, "a frame was filled beyond its limit");
        let mut frame = FrameHeader { payload_len: plain_len, unpacked_len: 0, self_contained };
        if self.framing == Framing::Lz4 && plain_len >= COMPRESS_LEN_MIN {
            let compressor = self.compressor.get_or_insert_default();
            let (_, plain) = self.out.split_at(begin);
            if let Some(packed) = compressor.compress_payload(plain) {
                self.out.truncate(begin);
                self.out.put_slice(packed);
                frame.payload_len = packed.len();
                frame.unpacked_len = plain_len;
            }
        }
        let (_, room_and_payload) = self.out.split_at_mut(start);
        let (room, payload) = room_and_payload.split_at_mut(header_len);
        let checksum = payload_checksum(payload);
        frame.encode(self.framing, room);
        self.out.put_u32_le(checksum);
    }
}

/// Appends the bare ERROR that refuses a protocol version: in the newest version of ours, or, for v1 and v2, whose
/// headers are shorter, in the version that was asked for.
pub fn put_version_refusal(version: u8, stream: i16, out: &mut BytesMut) {
    let error = ProtocolError::UnsupportedVersion { version };
    let message = error.to_string();
    let mut body = BytesMut::new();
    body.put_i32(error.code());
    crate::notation::put_string(&mut body, &message);
    if matches!(version, 1 | 2) {
        let stream = i8::try_from(stream).unwrap_or(0);
        out.put_slice(&[0x80 | version, 0]);
        out.put_i8(stream);
        out.put_u8(Opcode::Error.code());
        out.put_i32(crate::notation::length(body.len()));
    } else {
        let header = Header {
            version: Version::MAX.number(),
            direction: Direction::Response,
            flags: Flags(0),
            stream,
            opcode: Opcode::Error.code(),
            length: crate::notation::length(body.len()),
        };
        out.put_slice(&header.encode());
    }
    out.put_slice(&body);
}
