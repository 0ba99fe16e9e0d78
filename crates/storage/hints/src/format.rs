//! The bytes of a segment: a block of headers, then records; valid and damaged ones. Pure.
//!
//! ```text
//! block    := header, at 512 and 1024 the two positions, at 1536 the seal; 4 KiB, zeros between
//! header   := "TORCHINT", version (4), host (16), number (8), CRC-32 (4)
//! position := generation (8), offset (8), hints before it (8), CRC-32 with the number (4)
//! seal     := end (8), hints (8), times of the oldest and the newest (16), CRC-32 with the number (4)
//! record   := magic (4), CRC-32 of number, offset and the rest (4), length of the update (4), kept at, microseconds (8),
//!             grace, seconds (4), table (16), update
//! ```
//!
//! All integers are big-endian. Each part of the block lies in a sector of its own, so that a tear spoils one of them. Of the two
//! positions the older one is overwritten.

use stdx::{Reader, ShortRead};
use topology::HostId;

/// Bytes before the first record.
pub const BLOCK_LEN: usize = 4096;
/// Bytes of a record before its update.
pub const RECORD_HEADER_LEN: usize = 40;
/// The version of the format that is written.
pub const VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"TORCHINT";
const RECORD_MAGIC: [u8; 4] = [0xd1, b'H', b'N', 0x9e];
const POSITIONS_AT: [usize; 2] = [512, 1024];
const SEAL_AT: usize = 1536;
const HEADER_LEN: usize = 40;

/// The owner of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The host that its hints are for.
    pub host: HostId,
    /// Rises from segment to segment; `number % shard_count` is the shard that owns it.
    pub number: u64,
}

/// Why a block cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// It was never written, or not wholly.
    Blank,
    /// A later version wrote it.
    NewerVersion(u32),
}

/// How far a segment is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Of two positions the one with the larger generation counts.
    pub generation: u64,
    /// Everything before is delivered.
    pub offset: u64,
    /// Hints before it.
    pub hints: u64,
}

/// That a segment is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// Where its records end.
    pub end: u64,
    /// Its hints.
    pub hints: u64,
    /// When its oldest was kept, microseconds since 1970.
    pub oldest_micros: i64,
    /// When its newest was kept, microseconds since 1970.
    pub newest_micros: i64,
}

/// The content of the first block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The owner.
    pub header: Header,
    /// How far it is delivered.
    pub position: Position,
    /// Set when it was ended in order.
    pub seal: Option<Seal>,
}

impl Header {
    /// The block of a new segment, [`BLOCK_LEN`] bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK_LEN);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&self.host.0);
        out.extend_from_slice(&self.number.to_be_bytes());
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_be_bytes());
        assert_eq!(out.len(), HEADER_LEN, "the header has the length that it is read with");
        out.resize(BLOCK_LEN, 0);
        out
    }
}

impl Position {
    /// Where it goes in the file, and its bytes.
    pub fn encode(&self, number: u64) -> (u64, Vec<u8>) {
        let [even, odd] = POSITIONS_AT;
        let at = if self.generation.is_multiple_of(2) { even } else { odd };
        (at as u64, slot(number, at, [self.generation, self.offset, self.hints]))
    }
}

impl Seal {
    /// Where it goes in the file, and its bytes.
    pub fn encode(&self, number: u64) -> (u64, Vec<u8>) {
        (
            SEAL_AT as u64,
            slot(
                number,
                SEAL_AT,
                [self.end, self.hints, self.oldest_micros as u64, self.newest_micros as u64],
            ),
        )
    }
}

/// Numbers with their checksum.
fn slot<const N: usize>(number: u64, at: usize, words: [u64; N]) -> Vec<u8> {
    let mut out: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let crc = slot_crc(number, at, &out);
    out.extend_from_slice(&crc.to_be_bytes());
    out
}

fn slot_crc(number: u64, at: usize, words: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&number.to_be_bytes());
    crc.update(&(at as u64).to_be_bytes());
    crc.update(words);
    crc.finalize()
}

fn read_slot<const N: usize>(block: &[u8], number: u64, at: usize) -> Option<[u64; N]> {
    let mut reader = Reader::new(block.get(at..)?);
    let words = reader.bytes(N * 8).ok()?;
    if reader.u32().ok()? != slot_crc(number, at, words) {
        return None;
    }
    let mut reader = Reader::new(words);
    let mut out = [0; N];
    for word in &mut out {
        *word = reader.u64().ok()?;
    }
    Some(out)
}

impl Block {
    /// Reads a segment's first block.
    ///
    /// # Errors
    /// [`BlockError::Blank`] when the bytes are too few, or magic or checksum do not match;
    /// [`BlockError::NewerVersion`] when a later version wrote it. A damaged position or seal is no error: the older
    /// position holds, or the segment is not sealed.
    pub fn decode(bytes: &[u8]) -> Result<Self, BlockError> {
        let header = read_header(bytes)?;
        let position = |at| {
            let [generation, offset, hints] = read_slot(bytes, header.number, at)?;
            (offset >= BLOCK_LEN as u64).then_some(Position { generation, offset, hints })
        };
        let newest = POSITIONS_AT.into_iter().filter_map(position).max_by_key(|found| found.generation);
        let start = Position { offset: BLOCK_LEN as u64, ..Position::default() };
        let seal = read_slot(bytes, header.number, SEAL_AT)
            .map(|[end, hints, oldest, newest]| Seal {
                end,
                hints,
                oldest_micros: oldest as i64,
                newest_micros: newest as i64,
            })
            .filter(|seal| seal.end >= BLOCK_LEN as u64);
        Ok(Self { header, position: newest.unwrap_or(start), seal })
    }
}

fn read_header(bytes: &[u8]) -> Result<Header, BlockError> {
    let mut reader = Reader::new(bytes);
    let mut read = || -> Result<_, ShortRead> {
        Ok((reader.bytes(8)?, reader.u32()?, reader.bytes(16)?, reader.u64()?, reader.u32()?))
    };
    let (magic, version, host, number, crc) = read().map_err(|_| BlockError::Blank)?;
    if magic != MAGIC {
        return Err(BlockError::Blank);
    }
    if version > VERSION {
        return Err(BlockError::NewerVersion(version));
    }
    if bytes.get(..HEADER_LEN - 4).map(crc32fast::hash) != Some(crc) {
        return Err(BlockError::Blank);
    }
    let host = HostId(host.try_into().map_err(|_| BlockError::Blank)?);
    Ok(Header { host, number })
}

/// A record without its update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Bytes of the update.
    pub update_len: u32,
    /// When its write began, microseconds since 1970.
    pub begun_micros: i64,
    /// For how long it may be delivered, seconds.
    pub grace_seconds: u32,
    /// The table that it is for.
    pub table: [u8; 16],
}

impl RecordHeader {
    /// Bytes of the whole record.
    pub fn record_len(&self) -> u64 {
        RECORD_HEADER_LEN as u64 + u64::from(self.update_len)
    }

    /// The bytes before the update, for a record at `offset` of segment `number`.
    pub fn encode(&self, number: u64, offset: u64, update: &[u8]) -> [u8; RECORD_HEADER_LEN] {
        assert_eq!(self.update_len as usize, update.len(), "the header is that of the update");
        let mut out = [0; RECORD_HEADER_LEN];
        out[..4].copy_from_slice(&RECORD_MAGIC);
        out[8..12].copy_from_slice(&self.update_len.to_be_bytes());
        out[12..20].copy_from_slice(&self.begun_micros.to_be_bytes());
        out[20..24].copy_from_slice(&self.grace_seconds.to_be_bytes());
        out[24..].copy_from_slice(&self.table);
        let crc = record_crc(number, offset, &out[8..], update);
        out[4..8].copy_from_slice(&crc.to_be_bytes());
        out
    }

    /// Reads the header of an update, with the checksum to be compared with [`record_crc`] when the update is there;
    /// none if no record can begin here.
    pub fn decode(bytes: &[u8]) -> Option<(Self, u32)> {
        let mut reader = Reader::new(bytes);
        if reader.bytes(4).ok()? != RECORD_MAGIC {
            return None;
        }
        let crc = reader.u32().ok()?;
        let header = Self {
            update_len: reader.u32().ok()?,
            begun_micros: reader.i64().ok()?,
            grace_seconds: reader.u32().ok()?,
            table: reader.bytes(16).ok()?.try_into().ok()?,
        };
        Some((header, crc))
    }
}

/// The checksum of a record: `head` is the bytes between it and the update.
pub fn record_crc(number: u64, offset: u64, head: &[u8], update: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&number.to_be_bytes());
    crc.update(&offset.to_be_bytes());
    crc.update(head);
    crc.update(update);
    crc.finalize()
}

/// Where the next record may begin in `bytes`, for looking behind a damaged one.
pub fn find_record(bytes: &[u8]) -> Option<usize> {
    bytes.windows(RECORD_MAGIC.len()).position(|window| window == RECORD_MAGIC)
}

/// The name of a segment's file.
pub fn file_name(host: HostId, number: u64) -> String {
    let hex: String = host.0.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{hex}-{number}.hints")
}

/// Host and number of a segment's file; none for other names.
pub fn parse_file_name(name: &str) -> Option<Header> {
    let (hex, number) = name.strip_suffix(".hints")?.split_once('-')?;
    if hex.len() != 32 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut host = [0; 16];
    for (index, byte) in host.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    let header = Header { host: HostId(host), number: number.parse().ok()? };
    (file_name(header.host, header.number) == name).then_some(header)
}
