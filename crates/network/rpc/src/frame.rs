//! Frames: a header of fixed length with a checksum of its own, and a body with another.
//!
//! | offset | bytes | field |
//! |-------:|------:|-------|
//! | 0      | 4     | length of the body as it lies on the wire |
//! | 4      | 1     | kind ([`Kind`]) |
//! | 5      | 1     | verb ([`crate::Verb::number`]), 0 where the kind has none |
//! | 6      | 1     | packing of the body ([`Packing`]) |
//! | 7      | 1     | 0 |
//! | 8      | 8     | stream: ties an answer to its request |
//! | 16     | 4     | milliseconds that the request has left; 0 in answers |
//! | 20     | 2     | shard that is to serve it, taken modulo the shards that there are; 0 in answers |
//! | 22     | 4     | CRC-32 of the body as it lies on the wire |
//! | 26     | 4     | CRC-32 of the 26 bytes before |
//!
//! Everything is big-endian. The body of a refusal is a code (2 bytes) and a message; a packed body has its unpacked
//! length (4 bytes) in front.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use bytes::{Bytes, BytesMut};
use stdx::Reader;

use crate::Refusal;
use crate::frame_error::FrameError;
use crate::packing::Packing;

/// Length of a header in bytes.
pub const HEADER_LEN: usize = 30;
/// The length of the header's part that its checksum covers.
const CHECKED_LEN: usize = 26;
/// The longest message of a refusal in bytes; longer ones are cut.
pub const REFUSAL_MESSAGE_LEN_MAX: usize = 4 << 10;

/// The purpose of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Wants an answer.
    Request = 1,
    /// Wants none.
    OneWay = 2,
    /// The answer of a request that was served.
    Answer = 3,
    /// The answer of a request that was not.
    Refusal = 4,
    /// Wants a pong: is the peer there?
    Ping = 5,
    /// The peer is there.
    Pong = 6,
}

impl Kind {
    fn from_number(number: u8) -> Option<Kind> {
        let all = [Kind::Request, Kind::OneWay, Kind::Answer, Kind::Refusal, Kind::Ping, Kind::Pong];
        all.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the body on the wire.
    pub body_len: u32,
    /// The purpose of the frame.
    pub kind: Kind,
    /// The verb's number; it need not be one that this version knows.
    pub verb: u8,
    /// How the body is packed.
    pub packing: Packing,
    /// Ties an answer to its request.
    pub stream: u64,
    /// Milliseconds that the request has left.
    pub remaining_ms: u32,
    /// The shard that is to serve the request, taken modulo the shards that there are.
    pub shard: u16,
    /// CRC-32 of the body on the wire.
    pub body_checksum: u32,
}

impl Header {
    /// The header of a frame to send; fields derived from the body are filled in when it is written.
    pub fn outgoing(kind: Kind, verb: u8, stream: u64, remaining_ms: u32) -> Header {
        let packing = Packing::None;
        Header { body_len: 0, kind, verb, packing, stream, remaining_ms, shard: 0, body_checksum: 0 }
    }

    /// The same for a shard of the peer.
    pub fn to_shard(self, shard: u16) -> Header {
        Header { shard, ..self }
    }

    /// The header as it lies on the wire.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[0..4].copy_from_slice(&self.body_len.to_be_bytes());
        out[4] = self.kind as u8;
        out[5] = self.verb;
        out[6] = self.packing as u8;
        out[8..16].copy_from_slice(&self.stream.to_be_bytes());
        out[16..20].copy_from_slice(&self.remaining_ms.to_be_bytes());
        out[20..22].copy_from_slice(&self.shard.to_be_bytes());
        out[22..26].copy_from_slice(&self.body_checksum.to_be_bytes());
        let checksum = crc32fast::hash(&out[..CHECKED_LEN]);
        out[26..30].copy_from_slice(&checksum.to_be_bytes());
        out
    }

    /// Reads a header and checks it.
    ///
    /// # Errors
    /// [`FrameError::HeaderChecksum`] when it was damaged, [`FrameError::Unknown`] when a field has a value of a later
    /// version.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Header, FrameError> {
        let (checked, checksum) = bytes.split_at(CHECKED_LEN);
        let computed = crc32fast::hash(checked);
        let mut checksum = Reader::new(checksum);
        let read = checksum.u32().unwrap_or(!computed);
        if read != computed {
            return Err(FrameError::HeaderChecksum { read, computed });
        }
        let [l0, l1, l2, l3, kind, verb, packing, zero, rest @ ..] = *bytes;
        let mut rest = Reader::new(&rest);
        let unknown = |field, value| FrameError::Unknown { field, value };
        if zero != 0 {
            return Err(unknown("eighth byte", zero));
        }
        let short = |_| FrameError::HeaderChecksum { read, computed };
        Ok(Header {
            body_len: u32::from_be_bytes([l0, l1, l2, l3]),
            kind: Kind::from_number(kind).ok_or(unknown("kind", kind))?,
            verb,
            packing: Packing::from_number(packing).ok_or(unknown("packing", packing))?,
            stream: rest.u64().map_err(short)?,
            remaining_ms: rest.u32().map_err(short)?,
            shard: rest.u16().map_err(short)?,
            body_checksum: rest.u32().map_err(short)?,
        })
    }
}

/// A frame that was read: its body is as on the wire, checked but not yet unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The header.
    pub header: Header,
    /// The body; a slice of the buffer read from the socket, not a copy.
    pub body: Bytes,
}

/// Finds the frames in the bytes of a connection.
#[derive(Debug)]
pub struct Decoder {
    body_len_max: usize,
    /// The header of a frame whose body has not come yet.
    header: Option<Header>,
}

impl Decoder {
    /// Frames with bodies of at most so many bytes.
    pub fn new(body_len_max: usize) -> Decoder {
        Decoder { body_len_max, header: None }
    }

    /// Takes the next frame off the front of `input`, when it is there as a whole.
    ///
    /// # Errors
    /// As [`Header::decode`]; [`FrameError::TooLong`] when the body exceeds the limit, [`FrameError::BodyChecksum`]
    /// when it was damaged. The position of the next frame is lost then: the connection has to be closed.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        let header = match self.header {
            Some(header) => header,
            None => {
                let Some(bytes) = input.first_chunk::<HEADER_LEN>() else { return Ok(None) };
                let header = Header::decode(bytes)?;
                if header.body_len as usize > self.body_len_max {
                    let len = u64::from(header.body_len);
                    return Err(FrameError::TooLong { len, max: self.body_len_max });
                }
                bytes::Buf::advance(input, HEADER_LEN);
                self.header = Some(header);
                header
            }
        };
        let body_len = header.body_len as usize;
        if input.len() < body_len {
            return Ok(None);
        }
        let body = input.split_to(body_len).freeze();
        self.header = None;
        let computed = crc32fast::hash(&body);
        if computed != header.body_checksum {
            return Err(FrameError::BodyChecksum { read: header.body_checksum, computed });
        }
        Ok(Some(Frame { header, body }))
    }

    /// Length of the body that is coming in; 0 between frames.
    pub fn body_len(&self) -> usize {
        self.header.map_or(0, |header| header.body_len as usize)
    }

    /// How many bytes the next frame lacks at least; `have` are there already.
    pub fn missing(&self, have: usize) -> usize {
        let needed = self.header.map_or(HEADER_LEN, |header| header.body_len as usize);
        needed.saturating_sub(have)
    }
}

/// The body of a refusal.
pub fn encode_refusal(refusal: &Refusal) -> Bytes {
    let mut end = refusal.message.len().min(REFUSAL_MESSAGE_LEN_MAX);
    while !refusal.message.is_char_boundary(end) {
        end -= 1;
    }
    let message = refusal.message.get(..end).unwrap_or_default();
    let mut out = BytesMut::with_capacity(2 + message.len());
    out.extend_from_slice(&refusal.code.to_be_bytes());
    out.extend_from_slice(message.as_bytes());
    out.freeze()
}

/// Reads the body of a refusal. Any bytes of a peer give one.
pub fn decode_refusal(body: &[u8]) -> Refusal {
    let mut reader = Reader::new(body);
    let code = reader.u16().unwrap_or(0);
    let kept = reader.rest().len().min(REFUSAL_MESSAGE_LEN_MAX);
    let message = String::from_utf8_lossy(reader.bytes(kept).unwrap_or_default()).into_owned();
    Refusal { code, message }
}
