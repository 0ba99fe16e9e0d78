//! Cuts the bytes of a connection into envelopes: incremental, with bounded memory and, where a body lies whole
//! in the read buffer, without copying it.

use bytes::{Buf, Bytes, BytesMut};

use crate::compression::{decompress_body, decompress_lz4, unpacked_len};
use crate::frame::{FrameHeader, TRAILER_LEN, payload_checksum};
use crate::{
    Compression, Direction, Envelope, Flags, Framing, HEADER_LEN, Header, MAX_FRAME_PAYLOAD, ProtocolError,
    Version,
};

/// How much is taken at once for a message of v5 that is longer than a frame, however long it says it is.
const LONG_MESSAGE_CHUNK: usize = 2 * MAX_FRAME_PAYLOAD;

/// A message that is refused, and the stream on which to say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The message's stream id; 0 when it is not known.
    pub stream: i16,
    /// The message's version, when it is known and supported.
    pub version: Option<Version>,
    /// The error.
    pub error: ProtocolError,
}

impl Rejection {
    fn of(header: &Header, error: ProtocolError) -> Self {
        Self { stream: header.stream, version: Version::from_number(header.version), error }
    }

    /// Of a message whose header is not known.
    fn of_unknown(error: ProtocolError) -> Self {
        Self { stream: 0, version: None, error }
    }
}

/// A message that spans several frames, as far as it has come.
struct LongMessage {
    header: Header,
    /// Bytes of the body still missing.
    missing: usize,
    /// `None` when the message was refused and its rest is only skipped.
    body: Option<BytesMut>,
}

/// Cuts the bytes of one direction of a connection into envelopes.
///
/// The caller owns the read buffer and hands it to [`Decoder::next`] until that returns `None`. After an error for
/// which [`ProtocolError::is_fatal`] holds, nothing more comes out: answer it and close the connection.
pub struct Decoder {
    direction: Direction,
    message_len_max: usize,
    framing: Framing,
    compression: Option<Compression>,
    /// The only version accepted, once the connection has agreed on one.
    version: Option<Version>,
    /// Bytes of a refused bare envelope that are still to be skipped.
    skip: u64,
    /// The rest of the current frame of whole envelopes.
    payload: Bytes,
    long_message: Option<LongMessage>,
    /// How long the read buffer has to be for the next step.
    wanted: usize,
    /// Bytes, packed and unpacked, above which a bare message is not unpacked before they are permitted.
    unpermitted_max: usize,
    /// Bytes that are permitted for the message under way.
    permitted: usize,
    /// The bytes that the packed message under way takes, packed and unpacked.
    announced: Option<usize>,
    failed: bool,
}

impl Decoder {
    /// A decoder of bare envelopes that refuses messages of more than `message_len_max` bytes
    /// (`native_transport_max_frame_size`).
    pub fn new(direction: Direction, message_len_max: usize) -> Self {
        Self {
            direction,
            message_len_max,
            framing: Framing::Bare,
            compression: None,
            version: None,
            skip: 0,
            payload: Bytes::new(),
            long_message: None,
            wanted: 1,
            unpermitted_max: usize::MAX,
            permitted: 0,
            announced: None,
            failed: false,
        }
    }

    /// Has packed messages of v3 and v4 that take more than `max` bytes, packed and unpacked, wait for [`Decoder::permit`].
    pub fn set_unpermitted_max(&mut self, max: usize) {
        self.unpermitted_max = max;
    }

    /// The bytes that a packed message takes, packed and unpacked, which is here as a whole and waits for [`Decoder::permit`].
    pub fn awaits_permit(&self, input: &BytesMut) -> Option<usize> {
        self.lacking_permit().filter(|_| input.len() >= self.wanted)
    }

    /// The bytes that the packed message under way takes, if they are not permitted.
    fn lacking_permit(&self) -> Option<usize> {
        self.announced.filter(|bytes| *bytes > self.unpermitted_max.max(self.permitted))
    }

    /// Permits the message under way to take so many bytes.
    pub fn permit(&mut self, bytes: usize) {
        self.permitted = bytes;
    }

    /// Sets the longest message accepted from now on, in bytes with its header.
    pub fn set_message_len_max(&mut self, max: usize) {
        self.message_len_max = max;
    }

    /// Sets the options agreed on by STARTUP: the version, the framing and the compression of everything that follows.
    ///
    /// # Panics
    /// When called in the middle of a frame: the caller stops taking envelopes at the one that changes the framing.
    pub fn agree(&mut self, version: Version, framing: Framing, compression: Option<Compression>) {
        assert!(self.payload.is_empty() && self.long_message.is_none(), "framing changed inside a frame");
        self.version = Some(version);
        self.framing = framing;
        self.compression = compression;
    }

    /// How many bytes the read buffer has to hold before [`Decoder::next`] can do its next step; a hint for its
    /// size that hostile peers can raise to no more than the longest message.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// Length of the message that is under way, with its header, as far as that is known: the memory that it will
    /// take when it is all here and unpacked. Never more than the longest message, twice.
    pub fn message_len(&self) -> Option<usize> {
        match (&self.long_message, self.framing) {
            (Some(long), _) => long.body.as_ref().map(|body| HEADER_LEN + body.len() + long.missing),
            (None, Framing::Bare) if self.announced.is_some() => self.announced,
            (None, Framing::Bare) if self.wanted > HEADER_LEN => Some(self.wanted),
            (None, _) => None,
        }
    }

    /// Whether part of a message has been taken from the read buffer and is kept here.
    pub fn is_inside_message(&self) -> bool {
        self.skip > 0 || self.long_message.is_some() || !self.payload.is_empty()
    }

    /// Everything that can be cut from `input` now.
    ///
    /// # Errors
    /// As [`Decoder::next`].
    pub fn feed<'a>(
        &'a mut self,
        input: &'a mut BytesMut,
    ) -> impl Iterator<Item = Result<Envelope, Rejection>> + 'a {
        std::iter::from_fn(move || self.next(input))
    }

    /// The next envelope from the front of `input`; `None` when more bytes are needed.
    ///
    /// # Errors
    /// A [`Rejection`] when an envelope or frame breaks the protocol. After a [fatal](ProtocolError::is_fatal) one,
    /// nothing more comes and the connection has to be closed.
    pub fn next(&mut self, input: &mut BytesMut) -> Option<Result<Envelope, Rejection>> {
        if self.failed {
            input.clear();
            return None;
        }
        let next = match self.framing {
            Framing::Bare => self.next_bare(input),
            Framing::Checksummed | Framing::Lz4 => self.next_framed(input),
        };
        if let Some(Err(rejection)) = &next
            && rejection.error.is_fatal()
        {
            self.failed = true;
            self.payload = Bytes::new();
            self.long_message = None;
        }
        next
    }

    #[expect(clippy::expect_used, reason = "the length is below the limit of a message")]
    fn next_bare(&mut self, input: &mut BytesMut) -> Option<Result<Envelope, Rejection>> {
        if self.skip > 0 {
            let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(input.len());
            input.advance(skipped);
            self.skip -= skipped as u64;
            self.wanted = 1;
            if self.skip > 0 {
                return None;
            }
        }
        // The first byte is judged alone: headers of v1 and v2 are shorter than ours.
        let first = *input.first()? & 0x7F;
        if Version::from_number(first).is_none() {
            let error = ProtocolError::UnsupportedVersion { version: first };
            return Some(Err(Rejection { stream: stream_of_unsupported(input), version: None, error }));
        }
        let Some(bytes) = input.first_chunk::<HEADER_LEN>() else {
            self.wanted = HEADER_LEN;
            return None;
        };
        let header = Header::decode(bytes);
        let refused = |error| Some(Err(Rejection::of(&header, error)));
        let length = u64::from(header.length.cast_unsigned());
        if length + HEADER_LEN as u64 > self.message_len_max as u64 {
            input.advance(HEADER_LEN);
            self.skip = length;
            self.wanted = 1;
            let error = ProtocolError::MessageTooLong {
                length: length + HEADER_LEN as u64,
                max: self.message_len_max,
            };
            return refused(error);
        }
        let checked = self.check(&header);
        if let Err(error) = &checked
            && error.is_fatal()
        {
            return refused(error.clone());
        }
        let length = usize::try_from(length).expect("at most the longest message");
        self.announced = self.taken_unpacked(&header, length, input);
        if input.len() < HEADER_LEN + length || self.lacking_permit().is_some() {
            self.wanted = HEADER_LEN + length;
            return None;
        }
        (self.wanted, self.permitted, self.announced) = (1, 0, None);
        input.advance(HEADER_LEN);
        let body = if length == 0 { Bytes::new() } else { input.split_to(length).freeze() };
        Some(
            checked
                .and_then(|(version, opcode)| self.unpack(&header, version, opcode, body))
                .map_err(|error| Rejection::of(&header, error)),
        )
    }

    /// The bytes that a packed message takes, packed and unpacked, once its first bytes are here; none of one that is not packed.
    fn taken_unpacked(&self, header: &Header, length: usize, input: &BytesMut) -> Option<usize> {
        let compression = self.compression.filter(|_| header.flags.has(Flags::COMPRESSION))?;
        let start = input.get(HEADER_LEN..)?;
        let unpacked = unpacked_len(compression, start, length, self.message_len_max)?;
        Some(HEADER_LEN + length + unpacked)
    }

    /// Checks a header against the connection.
    fn check(&self, header: &Header) -> Result<(Version, crate::Opcode), ProtocolError> {
        let checked = header.check(self.direction);
        match self.version {
            Some(expected) if header.version != expected.number() => {
                Err(ProtocolError::VersionChanged { version: header.version, expected })
            }
            _ => checked,
        }
    }

    /// Unpacks the body of a bare envelope, if it is packed.
    fn unpack(
        &self,
        header: &Header,
        version: Version,
        opcode: crate::Opcode,
        body: Bytes,
    ) -> Result<Envelope, ProtocolError> {
        let mut flags = header.flags;
        let mut body = body;
        if flags.has(Flags::COMPRESSION) && self.framing == Framing::Bare {
            let compression = self.compression.ok_or(ProtocolError::CompressionNotAgreed)?;
            if !body.is_empty() {
                body = decompress_body(compression, &body, self.message_len_max)?;
            }
        }
        flags.0 &= !Flags::COMPRESSION;
        Ok(Envelope { version, flags, stream: header.stream, opcode, body })
    }

    fn next_framed(&mut self, input: &mut BytesMut) -> Option<Result<Envelope, Rejection>> {
        loop {
            if !self.payload.is_empty() {
                return Some(self.next_contained());
            }
            let (header, payload) = match self.next_frame(input)? {
                Ok(frame) => frame,
                Err(error) => return Some(Err(Rejection::of_unknown(error))),
            };
            if header.self_contained {
                self.payload = payload;
            } else if let Some(done) = self.part_of_long_message(payload) {
                return Some(done);
            }
        }
    }

    /// Takes one frame from the input, checks and unpacks it.
    fn next_frame(&mut self, input: &mut BytesMut) -> Option<Result<(FrameHeader, Bytes), ProtocolError>> {
        let header_len = self.framing.header_len();
        let Some(bytes) = input.get(..header_len) else {
            self.wanted = header_len;
            return None;
        };
        let header = match FrameHeader::decode(self.framing, bytes) {
            Ok(header) => header,
            Err(error) => return Some(Err(error)),
        };
        let frame_len = header_len + header.payload_len + TRAILER_LEN;
        if input.len() < frame_len {
            self.wanted = frame_len;
            return None;
        }
        self.wanted = 1;
        input.advance(header_len);
        let payload = input.split_to(header.payload_len);
        let computed = payload_checksum(&payload);
        let read = input.get_u32_le();
        if read != computed {
            return Some(Err(ProtocolError::PayloadChecksum { read, computed }));
        }
        if header.unpacked_len == 0 {
            return Some(Ok((header, payload.freeze())));
        }
        let unpacked = match decompress_lz4(&payload, header.unpacked_len) {
            Ok(unpacked) => unpacked,
            // A frame whose checksum is right but whose block is not: the peer is broken, and its content is lost.
            Err(_) => return Some(Err(ProtocolError::BrokenFrame { reason: "its LZ4 block is damaged" })),
        };
        Some(Ok((header, unpacked)))
    }

    /// Cuts the next envelope from a frame of whole envelopes.
    fn next_contained(&mut self) -> Result<Envelope, Rejection> {
        let Some(bytes) = self.payload.first_chunk::<HEADER_LEN>() else {
            let error = ProtocolError::BrokenFrame { reason: "it ends inside an envelope's header" };
            return Err(Rejection::of_unknown(error));
        };
        let header = Header::decode(bytes);
        let reject = |error| Rejection::of(&header, error);
        let length = usize::try_from(header.length)
            .map_err(|_| reject(ProtocolError::NegativeLength { length: header.length }))?;
        self.payload.advance(HEADER_LEN);
        if length > self.payload.len() {
            return Err(reject(ProtocolError::BrokenFrame { reason: "it ends inside an envelope's body" }));
        }
        let body = self.payload.split_to(length);
        if length + HEADER_LEN > self.message_len_max {
            let length = (length + HEADER_LEN) as u64;
            return Err(reject(ProtocolError::MessageTooLong { length, max: self.message_len_max }));
        }
        let (version, opcode) = self.check(&header).map_err(reject)?;
        self.unpack(&header, version, opcode, body).map_err(reject)
    }

    /// Adds a frame to the long message that is under way, or starts one with it.
    fn part_of_long_message(&mut self, payload: Bytes) -> Option<Result<Envelope, Rejection>> {
        let mut long = match self.long_message.take() {
            Some(long) => long,
            None => return self.start_long_message(payload),
        };
        let header = long.header;
        let broken = |reason| Some(Err(Rejection::of(&header, ProtocolError::BrokenFrame { reason })));
        if payload.is_empty() {
            return broken("an empty part of a long message");
        }
        let Some(missing) = long.missing.checked_sub(payload.len()) else {
            return broken("a long message is longer than it says");
        };
        long.missing = missing;
        if let Some(body) = &mut long.body {
            body.extend_from_slice(&payload);
        }
        self.continue_long_message(long)
    }

    fn start_long_message(&mut self, mut payload: Bytes) -> Option<Result<Envelope, Rejection>> {
        let Some(bytes) = payload.first_chunk::<HEADER_LEN>() else {
            let error =
                ProtocolError::BrokenFrame { reason: "the first part of a long message has no header" };
            return Some(Err(Rejection::of_unknown(error)));
        };
        let header = Header::decode(bytes);
        let refused = |error| Some(Err(Rejection::of(&header, error)));
        payload.advance(HEADER_LEN);
        let Ok(length) = usize::try_from(header.length) else {
            return refused(ProtocolError::NegativeLength { length: header.length });
        };
        let Some(missing) = length.checked_sub(payload.len()) else {
            return refused(ProtocolError::BrokenFrame { reason: "a long message is longer than it says" });
        };
        let mut long = LongMessage { header, missing, body: None };
        let mut error = self.check(&header).err();
        if length + HEADER_LEN > self.message_len_max {
            let length = (length + HEADER_LEN) as u64;
            error = Some(ProtocolError::MessageTooLong { length, max: self.message_len_max });
        }
        if let Some(error) = error {
            if missing > 0 {
                self.long_message = Some(long);
            }
            return refused(error);
        }
        let mut body = BytesMut::with_capacity(length.min(LONG_MESSAGE_CHUNK));
        body.extend_from_slice(&payload);
        long.body = Some(body);
        self.continue_long_message(long)
    }

    /// Hands out a long message that is complete, or keeps it.
    fn continue_long_message(&mut self, long: LongMessage) -> Option<Result<Envelope, Rejection>> {
        if long.missing > 0 {
            self.long_message = Some(long);
            return None;
        }
        let body = long.body?.freeze();
        let reject = |error| Rejection::of(&long.header, error);
        Some(
            self.check(&long.header)
                .and_then(|(version, opcode)| self.unpack(&long.header, version, opcode, body))
                .map_err(reject),
        )
    }
}

/// The stream id of a message in a version that is not supported, as far as it is there: one byte in v1 and v2,
/// two later.
fn stream_of_unsupported(input: &[u8]) -> i16 {
    match *input {
        [1 | 2, _, stream, ..] => i16::from(stream.cast_signed()),
        [_, _, high, low, ..] => i16::from_be_bytes([high, low]),
        _ => 0,
    }
}
