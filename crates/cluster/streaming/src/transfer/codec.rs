//! The bodies of the verbs `StreamOpen`, `StreamChunk` and `StreamClose`, and of their answers.
//!
//! Each begins with a version. Lengths are held against limits before memory is taken. A chunk's checksum covers where
//! it belongs, too: one that is delivered to another place is as wrong as one that is damaged.

use bytes::{BufMut, Bytes, BytesMut};
use stdx::{Reader, ShortRead};

use super::plan::{
    CURSOR_LEN_MAX, DESCRIPTOR_LEN_MAX, ITEMS_MAX, Item, ItemKind, Plan, Position, TransferId,
};

const VERSION: u8 = 1;
/// The longest data of one chunk in bytes.
pub const CHUNK_LEN_MAX: usize = 4 << 20;
/// An item takes at least so many bytes in a message.
const ITEM_LEN_MIN: usize = 4;

/// Bytes that are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// It is of a version that is not known.
    #[error("version {0} is not known")]
    Version(u8),
    /// It ends too early, or has bytes after its end.
    #[error("it is too short or too long")]
    Length,
    /// A field has no meaning, or is beyond its limit.
    #[error("{0}")]
    Field(&'static str),
    /// The checksum of a chunk is wrong.
    #[error("the chunk's checksum is {read:08x}, computed is {computed:08x}")]
    Checksum {
        /// The checksum in the message.
        read: u32,
        /// The checksum of its content.
        computed: u32,
    },
}

impl From<ShortRead> for CodecError {
    fn from(_: ShortRead) -> Self {
        CodecError::Length
    }
}

/// Reads a message that `read` knows, which must take all of it.
fn decode<T>(
    body: &[u8],
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, CodecError>,
) -> Result<T, CodecError> {
    let mut reader = Reader::new(body);
    let version = reader.u8()?;
    if version != VERSION {
        return Err(CodecError::Version(version));
    }
    let message = read(&mut reader)?;
    if reader.is_empty() { Ok(message) } else { Err(CodecError::Length) }
}

fn transfer(reader: &mut Reader<'_>) -> Result<TransferId, CodecError> {
    Ok(TransferId(reader.array()?))
}

fn bytes(reader: &mut Reader<'_>, len_max: usize, what: &'static str) -> Result<Bytes, CodecError> {
    let len = reader.u32()? as usize;
    if len > len_max {
        return Err(CodecError::Field(what));
    }
    Ok(Bytes::copy_from_slice(reader.bytes(len)?))
}

#[expect(clippy::expect_used, reason = "plans and cursors are checked against their limits")]
fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32(u32::try_from(bytes.len()).expect("lengths are within their limits"));
    out.extend_from_slice(bytes);
}

fn position(reader: &mut Reader<'_>) -> Result<Position, CodecError> {
    let (item, offset) = (reader.u32()?, reader.u64()?);
    Ok(Position { item, offset, cursor: bytes(reader, CURSOR_LEN_MAX, "the cursor is too long")? })
}

fn put_position(out: &mut BytesMut, position: &Position) {
    out.put_u32(position.item);
    out.put_u64(position.offset);
    put_bytes(out, &position.cursor);
}

/// A transfer begins, or resumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// All of it.
    pub plan: Plan,
}

impl Open {
    /// As bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        out.extend_from_slice(&self.plan.id().0);
        put_bytes(&mut out, self.plan.purpose());
        out.put_u32(self.plan.items().len() as u32);
        for item in self.plan.items() {
            out.put_u8(item.kind as u8);
            match item.length {
                Some(length) => {
                    out.put_u8(1);
                    out.put_u64(length);
                }
                None => out.put_u8(0),
            }
            put_bytes(&mut out, &item.descriptor);
        }
        out.freeze()
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`CodecError`] when the version is unknown, the bytes are cut off or too many, a field has an undefined value,
    /// or the plan exceeds its limits.
    pub fn decode(body: &[u8]) -> Result<Open, CodecError> {
        decode(body, |reader| {
            let id = transfer(reader)?;
            let purpose = bytes(reader, DESCRIPTOR_LEN_MAX, "the purpose is too long")?;
            let count = reader.u32()? as usize;
            if count > ITEMS_MAX {
                return Err(CodecError::Field("too many items"));
            }
            let mut items = Vec::with_capacity(count.min(reader.len() / ITEM_LEN_MIN));
            for _ in 0..count {
                let kind = match reader.u8()? {
                    1 => ItemKind::File,
                    2 => ItemKind::Rows,
                    _ => return Err(CodecError::Field("an unknown kind of item")),
                };
                let length = match reader.u8()? {
                    0 => None,
                    1 => Some(reader.u64()?),
                    _ => return Err(CodecError::Field("an item's length is there or not")),
                };
                let descriptor = bytes(reader, DESCRIPTOR_LEN_MAX, "a descriptor is too long")?;
                items.push(Item { kind, length, descriptor });
            }
            let plan = Plan::new(id, purpose, items);
            Ok(Open { plan: plan.map_err(|_| CodecError::Field("the plan is beyond its limits"))? })
        })
    }
}

/// The position at which a transfer continues, and its window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAnswer {
    /// Everything before is there.
    pub resume: Position,
    /// Bytes that may be under way.
    pub window: u32,
}

/// The present position, and the window; an [`OpenAnswer`] by another name.
pub type ChunkAnswer = OpenAnswer;

impl OpenAnswer {
    /// As bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(32 + self.resume.cursor.len());
        out.put_u8(VERSION);
        put_position(&mut out, &self.resume);
        out.put_u32(self.window);
        out.freeze()
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`CodecError`] when the version is unknown, or the bytes are cut off or too many.
    pub fn decode(body: &[u8]) -> Result<OpenAnswer, CodecError> {
        decode(body, |reader| Ok(OpenAnswer { resume: position(reader)?, window: reader.u32()? }))
    }
}

/// A part of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Of which transfer.
    pub transfer: TransferId,
    /// Of which item.
    pub item: u32,
    /// The offset in the item.
    pub offset: u64,
    /// Whether the item ends with it.
    pub last: bool,
    /// Of rows: where the next batch begins.
    pub cursor: Bytes,
    /// The bytes.
    pub data: Bytes,
}

impl Chunk {
    fn checksum(message: &[u8], data: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(message);
        hasher.update(data);
        hasher.finalize()
    }

    /// As bytes.
    ///
    /// # Panics
    /// When data or cursor are beyond their limits.
    pub fn encode(&self) -> Bytes {
        [self.encode_head(), self.data.clone()].concat().into()
    }

    /// All but the data, which follow it.
    ///
    /// # Panics
    /// When data or cursor are beyond their limits.
    pub fn encode_head(&self) -> Bytes {
        assert!(self.data.len() <= CHUNK_LEN_MAX, "a chunk has at most 4 MiB");
        assert!(self.cursor.len() <= CURSOR_LEN_MAX, "a cursor has at most 128 KiB");
        let mut out = BytesMut::with_capacity(64 + self.cursor.len());
        out.put_u8(VERSION);
        out.extend_from_slice(&self.transfer.0);
        out.put_u32(self.item);
        out.put_u64(self.offset);
        out.put_u8(u8::from(self.last));
        put_bytes(&mut out, &self.cursor);
        let checksum = Self::checksum(&out, &self.data);
        out.put_u32(checksum);
        out.freeze()
    }

    /// From bytes; the data stay where they are.
    ///
    /// # Errors
    /// [`CodecError::Checksum`] when the chunk was damaged; [`CodecError`] when the version is unknown, the bytes are
    /// cut off, or a field exceeds its limit.
    pub fn decode(body: &Bytes) -> Result<Chunk, CodecError> {
        decode(body, |reader| {
            let transfer = transfer(reader)?;
            let (item, offset) = (reader.u32()?, reader.u64()?);
            let last = match reader.u8()? {
                0 => false,
                1 => true,
                _ => return Err(CodecError::Field("a chunk is the last one or not")),
            };
            let cursor = bytes(reader, CURSOR_LEN_MAX, "the cursor is too long")?;
            let covered = body.len() - reader.len();
            let read = reader.u32()?;
            let data = reader.bytes(reader.len())?;
            if data.len() > CHUNK_LEN_MAX {
                return Err(CodecError::Field("the chunk is too long"));
            }
            let computed = Self::checksum(body.get(..covered).unwrap_or_default(), data);
            if read != computed {
                return Err(CodecError::Checksum { read, computed });
            }
            let data = body.slice(body.len() - data.len()..);
            Ok(Chunk { transfer, item, offset, last, cursor, data })
        })
    }

    /// Its item and offset.
    pub fn place(&self) -> (u32, u64) {
        (self.item, self.offset)
    }
}

/// A transfer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close {
    /// Which.
    pub transfer: TransferId,
    /// Whether everything was sent; otherwise the receiver forgets it.
    pub complete: bool,
}

impl Close {
    /// As bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(18);
        out.put_u8(VERSION);
        out.extend_from_slice(&self.transfer.0);
        out.put_u8(u8::from(self.complete));
        out.freeze()
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`CodecError`] when the version is unknown, the bytes are cut off or too many, or a field has an undefined
    /// value.
    pub fn decode(body: &[u8]) -> Result<Close, CodecError> {
        decode(body, |reader| {
            let transfer = transfer(reader)?;
            match reader.u8()? {
                0 => Ok(Close { transfer, complete: false }),
                1 => Ok(Close { transfer, complete: true }),
                _ => Err(CodecError::Field("a transfer is complete or not")),
            }
        })
    }
}
