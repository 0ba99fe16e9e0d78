//! The bytes of a segment: a header block, then chunks of entries. Pure: it decides between valid, torn and damaged.
//!
//! ```text
//! header := "TORCLOG\n", version (4), shard (2), shard count (2), id (8), salt (8), id of the segment before (8), length of
//!           the file (8), CRC-32 (4); 4 KiB, zeros behind
//! chunk  := high half of the salt (4), CRC-32 of the rest of the chunk's header with segment id and salt (4), total length
//!           with padding (4), entry bytes (4), first entry's number (8), entries known to be synced (8), flags (4)
//! entry  := length of the body (4), CRC-32 of number, length and body, XOR the low half of the salt (4), body
//! ```
//!
//! All integers are big-endian. Entries are numbered without repetition over the life of the log; the number in an
//! entry's checksum distinguishes it from earlier content of the recycled file. The salt is random for each segment and never leaves
//! the file: client data, which a recycled file may still hold, cannot be made to pass for a chunk.
//! Version 1 has neither the salt nor the fields behind it.

use std::sync::LazyLock;

use mutation::codec;
use stdx::Reader;

/// Bytes before the first chunk.
pub const HEADER_LEN: usize = 4096;
/// Bytes of a chunk before its entries.
pub const CHUNK_HEADER_LEN: usize = 36;
/// Bytes of an entry before its body.
pub const ENTRY_HEADER_LEN: usize = 8;
/// Chunks begin at multiples of this.
pub const CHUNK_ALIGNMENT: usize = 8;
/// The version of the format that is written.
pub const VERSION: u32 = 2;
/// The version of the mutations in entries of [`VERSION`].
const MUTATIONS: codec::Version = codec::Version::V1;
const _: () = MUTATIONS.must_be_current();

/// No log gets so far; a larger number is not one.
pub const NUMBER_MAX: u64 = 1 << 62;

const MAGIC: &[u8; 8] = b"TORCLOG\n";
/// The first bytes of chunks of version 1.
const CHUNK_MAGIC: [u8; 4] = [0xc1, b'T', b'C', 0x7f];
/// Bytes that the checksum of a header covers.
const HEADER_USED: usize = 48;
/// The same of version 1.
const HEADER_USED_1: usize = 24;
const FLAG_END: u32 = 1;

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The owner of the segment.
    pub shard: u16,
    /// How many shards the node had.
    pub shard_count: u16,
    /// Rises from segment to segment of a shard.
    pub id: u64,
    /// Random; goes into every checksum of the segment. 0 in version 1.
    pub salt: u64,
    /// The id of the segment before, which is released before this one; 0 for none, and in version 1.
    pub before: u64,
    /// Length of the file, bytes, which is durable before the segment gets its name; 0 in version 1.
    pub bytes: u64,
    /// The version of the mutations in its entries. It follows from the version of the format.
    pub mutations: codec::Version,
}

/// Why a header cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// It was never written, or not wholly: the file holds nothing.
    Blank,
    /// A later version wrote it.
    NewerVersion(u32),
}

impl SegmentHeader {
    /// The header's bytes, [`HEADER_LEN`] of them.
    ///
    /// # Panics
    /// When it is to name another version of mutations than the one that is written.
    pub fn encode(&self) -> Vec<u8> {
        assert_eq!(self.mutations, MUTATIONS, "a new segment holds mutations of its format's version");
        let mut out = Vec::with_capacity(HEADER_LEN);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&self.shard.to_be_bytes());
        out.extend_from_slice(&self.shard_count.to_be_bytes());
        out.extend_from_slice(&self.id.to_be_bytes());
        out.extend_from_slice(&self.salt.to_be_bytes());
        out.extend_from_slice(&self.before.to_be_bytes());
        out.extend_from_slice(&self.bytes.to_be_bytes());
        assert_eq!(out.len(), HEADER_USED, "the checksum covers what is read of the header");
        assert!(self.shard < self.shard_count, "a segment belongs to one of the shards");
        assert!(self.before < self.id, "segments rise");
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_be_bytes());
        out.resize(HEADER_LEN, 0);
        out
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`HeaderError::Blank`] when the bytes are too few, or magic or checksum do not match;
    /// [`HeaderError::NewerVersion`] when a later version wrote it.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        Self::read(bytes).map_err(|_| HeaderError::Blank)?
    }

    fn read(bytes: &[u8]) -> Result<Result<Self, HeaderError>, stdx::ShortRead> {
        let mut reader = Reader::new(bytes);
        if reader.bytes(8)? != MAGIC {
            return Ok(Err(HeaderError::Blank));
        }
        let version = reader.u32()?;
        if version > VERSION {
            return Ok(Err(HeaderError::NewerVersion(version)));
        }
        let (shard, shard_count, id) = (reader.u16()?, reader.u16()?, reader.u64()?);
        let (salt, before, file_len, used) = match version {
            1 => (0, 0, 0, HEADER_USED_1),
            _ => (reader.u64()?, reader.u64()?, reader.u64()?, HEADER_USED),
        };
        if bytes.get(..used).map(crc32fast::hash) != Some(reader.u32()?) {
            return Ok(Err(HeaderError::Blank));
        }
        // Both versions of the format have the same mutations.
        let mutations = codec::Version::V1;
        Ok(Ok(Self { shard, shard_count, id, salt, before, bytes: file_len, mutations }))
    }

    /// The first bytes of chunks of the segment.
    fn magic(&self) -> [u8; 4] {
        if self.salt == 0 { CHUNK_MAGIC } else { ((self.salt >> 32) as u32).to_be_bytes() }
    }

    /// The checksum of an entry of this segment.
    pub fn entry_crc(&self, number: u64, body: &[u8]) -> u32 {
        entry_crc(number, body) ^ self.salt as u32
    }

    /// Adds the salt to the checksums of entries, which stand one behind the other in `entries` and have none yet.
    ///
    /// # Panics
    /// When the lengths of the entries do not lead to the end.
    #[expect(clippy::expect_used, reason = "this process wrote the entries")]
    pub fn salt_entries(&self, entries: &mut [u8]) {
        let mut rest = entries;
        while !rest.is_empty() {
            let (head, behind) = rest.split_first_chunk_mut().expect("entries stand one behind the other");
            self.salt_entry(head);
            let [len @ .., _, _, _, _] = *head;
            (_, rest) = behind.split_at_mut(u32::from_be_bytes(len) as usize);
        }
    }

    /// Adds the salt to the checksum in an entry's header.
    #[expect(clippy::expect_used, reason = "this process wrote the entries")]
    pub(crate) fn salt_entry(&self, head: &mut [u8; ENTRY_HEADER_LEN]) {
        let crc = head.last_chunk_mut::<4>().expect("an entry's header has eight bytes");
        *crc = (u32::from_be_bytes(*crc) ^ self.salt as u32).to_be_bytes();
    }
}

/// A chunk's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// From this chunk's start to the next one's.
    pub total_len: u32,
    /// Bytes of entries.
    pub entries_len: u32,
    /// Number of the first entry.
    pub first: u64,
    /// Entries up to this number were durable when the chunk was written.
    pub synced: u64,
    /// The segment's last chunk.
    pub is_end: bool,
}

impl ChunkHeader {
    /// The header's bytes.
    pub fn encode(&self, segment: &SegmentHeader) -> [u8; CHUNK_HEADER_LEN] {
        assert!((self.total_len as usize).is_multiple_of(CHUNK_ALIGNMENT), "chunks are aligned");
        assert!(
            self.total_len as usize >= CHUNK_HEADER_LEN + self.entries_len as usize,
            "a chunk's entries lie within it"
        );
        let mut out = [0; CHUNK_HEADER_LEN];
        out[..4].copy_from_slice(&segment.magic());
        out[8..12].copy_from_slice(&self.total_len.to_be_bytes());
        out[12..16].copy_from_slice(&self.entries_len.to_be_bytes());
        out[16..24].copy_from_slice(&self.first.to_be_bytes());
        out[24..32].copy_from_slice(&self.synced.to_be_bytes());
        out[32..36].copy_from_slice(&(if self.is_end { FLAG_END } else { 0 }).to_be_bytes());
        let crc = Self::crc(segment, &out[8..]);
        out[4..8].copy_from_slice(&crc.to_be_bytes());
        out
    }

    /// Reads a header that stands `room` bytes before the segment's end; none if there is no valid one.
    pub fn decode(bytes: &[u8], segment: &SegmentHeader, room: usize) -> Option<Self> {
        let bytes = bytes.get(..CHUNK_HEADER_LEN)?;
        let mut reader = Reader::new(bytes);
        if reader.bytes(4).ok()? != segment.magic()
            || reader.u32().ok()? != Self::crc(segment, bytes.get(8..)?)
        {
            return None;
        }
        let header = Self {
            total_len: reader.u32().ok()?,
            entries_len: reader.u32().ok()?,
            first: reader.u64().ok()?,
            synced: reader.u64().ok()?,
            is_end: reader.u32().ok()? & FLAG_END != 0,
        };
        let (total, entries) = (header.total_len as usize, header.entries_len as usize);
        let fits = total <= room
            && total.is_multiple_of(CHUNK_ALIGNMENT)
            && CHUNK_HEADER_LEN.checked_add(entries).is_some_and(|used| used <= total)
            && header.first.max(header.synced) <= NUMBER_MAX;
        fits.then_some(header)
    }

    /// No entry of the chunk has a larger number.
    fn number_max(&self) -> u64 {
        self.first.saturating_add(u64::from(self.entries_len) / ENTRY_HEADER_LEN as u64)
    }

    #[expect(clippy::expect_used, reason = "the array has the length of both headers")]
    fn crc(segment: &SegmentHeader, rest: &[u8]) -> u32 {
        // In one piece: a checksum of three costs three times as much.
        let mut covered = [0; 16 + CHUNK_HEADER_LEN];
        covered[..8].copy_from_slice(&segment.id.to_be_bytes());
        covered[8..16].copy_from_slice(&segment.salt.to_be_bytes());
        let begin = if segment.salt == 0 { 8 } else { 16 };
        let end = begin + rest.len();
        let place = covered.get_mut(begin..end).expect("a chunk's header fits behind its segment's");
        place.copy_from_slice(rest);
        let mut crc = hasher();
        crc.update(covered.get(..end).expect("it ends behind its header"));
        crc.finalize()
    }
}

/// The header of an entry, without the salt of its segment.
///
/// # Panics
/// When the body is empty or does not fit into a segment.
#[expect(clippy::expect_used, reason = "entries are smaller than a segment")]
pub(crate) fn entry_header(number: u64, body: &[u8]) -> [u8; ENTRY_HEADER_LEN] {
    assert!(!body.is_empty(), "an entry has a kind");
    let len = u32::try_from(body.len()).expect("entries are smaller than a segment");
    let mut head = [0; ENTRY_HEADER_LEN];
    head[..4].copy_from_slice(&len.to_be_bytes());
    head[4..].copy_from_slice(&entry_crc(number, body).to_be_bytes());
    head
}

/// A checksum of nothing yet. Cloned: the look at the features of the processor costs as much as the checksum of a short entry.
fn hasher() -> crc32fast::Hasher {
    static EMPTY: LazyLock<crc32fast::Hasher> = LazyLock::new(crc32fast::Hasher::new);
    EMPTY.clone()
}

/// The checksum of an entry, without the salt of its segment.
fn entry_crc(number: u64, body: &[u8]) -> u32 {
    let mut crc = hasher();
    let mut head = [0; 12];
    head[..8].copy_from_slice(&number.to_be_bytes());
    head[8..].copy_from_slice(&(body.len() as u32).to_be_bytes());
    crc.update(&head);
    crc.update(body);
    crc.finalize()
}

/// A valid entry of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPlace {
    /// Its number.
    pub number: u64,
    /// Where its body begins in the file.
    pub offset: usize,
    /// Bytes of its body.
    pub len: usize,
}

/// The result of a walk over a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Valid entries before the stop.
    pub entries: Vec<EntryPlace>,
    /// Where the walk stopped: at the end mark, or at the first thing that is no valid chunk or entry.
    pub stop: usize,
    /// Whether an end mark was met: the segment is complete.
    pub ended: bool,
    /// The first number that may stand at the stop.
    pub next: u64,
    /// The largest promise of durability in this segment's chunks, those behind the stop included.
    pub synced: u64,
    /// Where the first valid chunk behind the stop lies.
    pub more_behind: Option<usize>,
    /// No number in the segment is larger, whether valid or behind the stop.
    pub number_max: u64,
}

/// Walks over the chunks of a segment; `bytes` is the whole file. With `from` beyond the header it resumes at a chunk.
pub fn scan(bytes: &[u8], header: &SegmentHeader, from: usize, next: u64) -> Scan {
    let mut found = Scan { stop: from.max(HEADER_LEN), next, ..Scan::default() };
    while let Some(chunk) = chunk_at(bytes, found.stop, header) {
        if chunk.first < found.next {
            break;
        }
        found.synced = found.synced.max(chunk.synced);
        found.number_max = found.number_max.max(chunk.number_max());
        if !chunk_entries(bytes, found.stop, (header, &chunk), &mut found) {
            break;
        }
        found.stop += chunk.total_len as usize;
        if chunk.is_end {
            found.ended = true;
            return found;
        }
    }
    look_behind(bytes, header, &mut found);
    assert!(found.stop <= bytes.len().max(from).max(HEADER_LEN), "a walk stays in the file");
    assert!(found.more_behind.is_none_or(|at| at >= found.stop), "what is behind the stop is behind it");
    debug_assert!(
        found.entries.is_sorted_by(|one, next| one.number < next.number),
        "entries are numbered in order"
    );
    found
}

fn chunk_at(bytes: &[u8], at: usize, segment: &SegmentHeader) -> Option<ChunkHeader> {
    let rest = bytes.get(at..)?;
    ChunkHeader::decode(rest, segment, rest.len())
}

/// Collects the entries of a chunk; false at the first damaged one, with the stop there.
fn chunk_entries(
    bytes: &[u8],
    start: usize,
    (segment, chunk): (&SegmentHeader, &ChunkHeader),
    found: &mut Scan,
) -> bool {
    let mut at = start + CHUNK_HEADER_LEN;
    let end = at + chunk.entries_len as usize;
    let mut number = chunk.first;
    while at < end {
        let mut reader = Reader::new(bytes.get(at..end).unwrap_or_default());
        let entry = (|| {
            let len = reader.u32().ok()? as usize;
            let crc = reader.u32().ok()?;
            let body = reader.bytes(len).ok()?;
            (segment.entry_crc(number, body) == crc).then_some(len)
        })();
        let Some(len) = entry else {
            (found.next, found.stop) = (number, at);
            return false;
        };
        found.entries.push(EntryPlace { number, offset: at + ENTRY_HEADER_LEN, len });
        at += ENTRY_HEADER_LEN + len;
        number += 1;
    }
    found.next = number;
    true
}

/// Looks for valid chunks behind the stop: their promises of durability tell a torn tail from damage.
fn look_behind(bytes: &[u8], header: &SegmentHeader, found: &mut Scan) {
    let magic = header.magic();
    let mut at = found.stop.next_multiple_of(CHUNK_ALIGNMENT);
    while at + CHUNK_HEADER_LEN <= bytes.len() {
        let chunk = (bytes.get(at..at + 4) == Some(&magic[..]))
            .then(|| chunk_at(bytes, at, header))
            .flatten()
            .filter(|chunk| chunk.first >= found.next);
        match chunk {
            Some(chunk) => {
                found.synced = found.synced.max(chunk.synced);
                found.number_max = found.number_max.max(chunk.number_max());
                found.more_behind.get_or_insert(at);
                at += (chunk.total_len as usize).max(CHUNK_ALIGNMENT);
            }
            None => at += CHUNK_ALIGNMENT,
        }
    }
}
