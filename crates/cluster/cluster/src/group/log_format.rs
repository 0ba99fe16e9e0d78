//! The format of the Raft log's files: valid, torn and damaged bytes. Pure.
//!
//! ```text
//! log-N      := magic "TORCRAFT" (8), version (4), N (8), number in the group (8), flags (1: snapshot-N exists), CRC-32 (4),
//!               then records
//! record     := magic (4), sequence from 0 (8), length (4), CRC-32 of the body (4), CRC-32 of the 20 bytes before (4), body
//! body       := flags (1: hard state, 2: entries), [hard state (24)], [count (4), entries]
//! snapshot-N := magic "TORCSNAP" (8), version (4), CRC-32 of the rest (4), snapshot
//! ```
//!
//! A record is written and synced before the next one is begun. So only the last one can be torn; a bad one that another follows
//! is damage.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use raft::codec::{self, CodecError};
use raft::{Entry, HardState, Snapshot};
use stdx::Reader;

/// The version of the forms here.
pub(crate) const VERSION: u32 = 1;
/// Bytes of a log's header.
pub(crate) const HEADER_LEN: usize = 33;
/// Bytes of a record before its body.
const RECORD_HEADER_LEN: usize = 24;

const LOG_MAGIC: &[u8; 8] = b"TORCRAFT";
const SNAPSHOT_MAGIC: &[u8; 8] = b"TORCSNAP";
const RECORD_MAGIC: [u8; 4] = [0xc2, b'T', b'R', 0x7e];
const FLAG_SNAPSHOT: u8 = 1;
const FLAG_HARD_STATE: u8 = 1;
const FLAG_ENTRIES: u8 = 2;

const _: () = assert!(HEADER_LEN == 8 + 4 + 8 + 8 + 1 + 4, "the header's length is that of its fields");
const _: () = assert!(RECORD_HEADER_LEN == 4 + 8 + 4 + 4 + 4, "and so is a record's");
const _: () = assert!(FLAG_HARD_STATE & FLAG_ENTRIES == 0, "a record's flags are bits of their own");

/// Damage of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Written by a later version.
    #[error(
        "written by a newer version ({found}, this version reads up to {VERSION}); start the newer version"
    )]
    Newer {
        /// The version found.
        found: u32,
    },
    /// The file's first bytes.
    #[error("its header is damaged")]
    Header,
    /// A checksum does not match.
    #[error("at byte {at}: a record is damaged, and others follow it")]
    Record {
        /// The offset.
        at: usize,
    },
    /// A checksum of a snapshot does not match.
    #[error("its checksum is {found:08x}, expected {expected:08x}")]
    Checksum {
        /// The checksum that it names.
        expected: u32,
        /// The checksum of its content.
        found: u32,
    },
    /// A valid checksum over something that cannot be.
    #[error("at byte {at}: {error}")]
    Content {
        /// The offset.
        at: usize,
        /// The error.
        error: CodecError,
    },
}

/// A log's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The file's number; the highest is the log.
    pub(crate) file: u64,
    /// The node's number in the group.
    pub(crate) member: u64,
    /// Whether the log begins after the snapshot of the same number.
    pub(crate) has_snapshot: bool,
}

impl Header {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_LEN);
        out.extend_from_slice(LOG_MAGIC);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&self.file.to_be_bytes());
        out.extend_from_slice(&self.member.to_be_bytes());
        out.push(u8::from(self.has_snapshot) * FLAG_SNAPSHOT);
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_be_bytes());
        assert_eq!(out.len(), HEADER_LEN, "a header has one length");
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(bytes);
        let mut read = || -> Result<_, stdx::ShortRead> {
            Ok((reader.bytes(8)?, reader.u32()?, reader.u64()?, reader.u64()?, reader.u8()?, reader.u32()?))
        };
        let (magic, version, file, member, flags, crc) = read().map_err(|_| Damage::Header)?;
        if magic != LOG_MAGIC {
            return Err(Damage::Header);
        }
        if version > VERSION {
            return Err(Damage::Newer { found: version });
        }
        if bytes.get(..HEADER_LEN - 4).map(crc32fast::hash) != Some(crc) || flags > FLAG_SNAPSHOT {
            return Err(Damage::Header);
        }
        Ok(Self { file, member, has_snapshot: flags == FLAG_SNAPSHOT })
    }
}

/// One write: promises, entries, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) hard_state: Option<HardState>,
    pub(crate) entries: Vec<Entry>,
}

impl Record {
    /// The record's bytes as the `sequence`th of its file.
    pub(crate) fn encode(&self, sequence: u64) -> Vec<u8> {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags =
            flag(self.hard_state.is_some(), FLAG_HARD_STATE) | flag(!self.entries.is_empty(), FLAG_ENTRIES);
        let mut body = vec![flags];
        if let Some(hard_state) = &self.hard_state {
            codec::put_hard_state(&mut body, hard_state);
        }
        if !self.entries.is_empty() {
            codec::put_entries(&mut body, &self.entries);
        }
        assert!(u32::try_from(body.len()).is_ok(), "a record's length has 32 bits");
        let mut out = Vec::with_capacity(RECORD_HEADER_LEN + body.len());
        out.extend_from_slice(&RECORD_MAGIC);
        out.extend_from_slice(&sequence.to_be_bytes());
        out.extend_from_slice(&(body.len() as u32).to_be_bytes());
        out.extend_from_slice(&crc32fast::hash(&body).to_be_bytes());
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_be_bytes());
        assert_eq!(out.len(), RECORD_HEADER_LEN, "a record's header has one length");
        out.extend_from_slice(&body);
        out
    }

    fn decode_body(body: &[u8]) -> Result<Self, CodecError> {
        let mut reader = Reader::new(body);
        let flags = reader.u8()?;
        if flags & !(FLAG_HARD_STATE | FLAG_ENTRIES) != 0 {
            return Err(CodecError::Kind { what: "record", found: flags });
        }
        let mut record = Self::default();
        if flags & FLAG_HARD_STATE != 0 {
            record.hard_state = Some(codec::take_hard_state(&mut reader)?);
        }
        if flags & FLAG_ENTRIES != 0 {
            record.entries = codec::take_entries(&mut reader)?;
        }
        codec::finish(&reader)?;
        Ok(record)
    }
}

/// The content of a log file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// The last promises.
    pub(crate) hard_state: HardState,
    /// The entries that stand.
    pub(crate) entries: Vec<Entry>,
    /// Records.
    pub(crate) records: u64,
    /// The length of the valid part.
    pub(crate) len: usize,
}

/// Reads the records behind a header. Bytes after the last valid record are ignored if they can be a torn write.
pub(crate) fn read_records(bytes: &[u8]) -> Result<Content, Damage> {
    let mut content = Content { len: HEADER_LEN, ..Content::default() };
    while let Some((body, next)) = record_at(bytes, content.len, content.records) {
        let record = Record::decode_body(body).map_err(|error| Damage::Content { at: content.len, error })?;
        if let Some(hard_state) = record.hard_state {
            content.hard_state = hard_state;
        }
        if let Some(first) = record.entries.first() {
            let kept = content.entries.partition_point(|entry| entry.index < first.index);
            content.entries.truncate(kept);
            content.entries.extend(record.entries);
        }
        content.records += 1;
        content.len = next;
    }
    let later = (content.len + 1..bytes.len()).find(|at| {
        let sequence =
            bytes.get(at + 4..at + 12).and_then(|part| Some(u64::from_be_bytes(part.try_into().ok()?)));
        sequence
            .is_some_and(|sequence| sequence > content.records && record_at(bytes, *at, sequence).is_some())
    });
    match later {
        Some(_) => Err(Damage::Record { at: content.len }),
        None => Ok(content),
    }
}

/// The body of a valid record that begins at `at`, and where it ends.
fn record_at(bytes: &[u8], at: usize, sequence: u64) -> Option<(&[u8], usize)> {
    let header = bytes.get(at..at + RECORD_HEADER_LEN)?;
    if !header.starts_with(&RECORD_MAGIC) {
        return None;
    }
    let mut reader = Reader::new(header.get(4..)?);
    let (found, len) = (reader.u64().ok()?, reader.u32().ok()? as usize);
    let (body_crc, header_crc) = (reader.u32().ok()?, reader.u32().ok()?);
    if found != sequence || crc32fast::hash(header.get(..RECORD_HEADER_LEN - 4)?) != header_crc {
        return None;
    }
    let start = at + RECORD_HEADER_LEN;
    let body = bytes.get(start..start.checked_add(len)?)?;
    (crc32fast::hash(body) == body_crc).then_some((body, start + len))
}

/// A snapshot's file.
pub(crate) fn encode_snapshot(snapshot: &Snapshot) -> Vec<u8> {
    let mut body = Vec::with_capacity(snapshot.data.len() + 256);
    codec::put_snapshot(&mut body, snapshot);
    let mut out = Vec::with_capacity(body.len() + 16);
    out.extend_from_slice(SNAPSHOT_MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&crc32fast::hash(&body).to_be_bytes());
    out.extend_from_slice(&body);
    out
}

/// Decodes the bytes of [`encode_snapshot`].
pub(crate) fn decode_snapshot(bytes: &[u8]) -> Result<Snapshot, Damage> {
    let mut reader = Reader::new(bytes);
    let mut read = || -> Result<_, stdx::ShortRead> { Ok((reader.bytes(8)?, reader.u32()?, reader.u32()?)) };
    let (magic, version, expected) = read().map_err(|_| Damage::Header)?;
    if magic != SNAPSHOT_MAGIC || version == 0 {
        return Err(Damage::Header);
    }
    if version > VERSION {
        return Err(Damage::Newer { found: version });
    }
    let found = crc32fast::hash(reader.rest());
    if found != expected {
        return Err(Damage::Checksum { expected, found });
    }
    let snapshot = codec::take_snapshot(&mut reader).and_then(|snapshot| {
        codec::finish(&reader)?;
        Ok(snapshot)
    });
    snapshot.map_err(|error| Damage::Content { at: 16, error })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use raft::{Membership, Payload};

    use super::*;

    fn entry(index: u64, term: u64) -> Entry {
        Entry { index, term, payload: Payload::Command(Bytes::from(vec![index as u8; 40])) }
    }

    fn file() -> Vec<u8> {
        let mut bytes = Header { file: 3, member: 7, has_snapshot: true }.encode();
        let hard_state = Some(HardState { term: 2, vote: 1, commit: 4 });
        let records = [
            Record { hard_state, entries: vec![entry(5, 2), entry(6, 2), entry(7, 2)] },
            Record {
                hard_state: Some(HardState { term: 3, vote: 0, commit: 5 }),
                entries: vec![entry(6, 3)],
            },
            Record { hard_state: None, entries: vec![entry(7, 3)] },
        ];
        for (sequence, record) in records.iter().enumerate() {
            bytes.extend(record.encode(sequence as u64));
        }
        bytes
    }

    #[test]
    fn later_records_win() {
        let bytes = file();
        assert_eq!(Header::decode(&bytes), Ok(Header { file: 3, member: 7, has_snapshot: true }));
        let content = read_records(&bytes).unwrap();
        assert_eq!(content.entries, [entry(5, 2), entry(6, 3), entry(7, 3)]);
        assert_eq!(content.hard_state, HardState { term: 3, vote: 0, commit: 5 });
        assert_eq!((content.records, content.len), (3, bytes.len()));
    }

    /// Wherever the file ends, the records before the last one are there.
    #[test]
    fn a_torn_tail_is_cut() {
        let bytes = file();
        let ends: Vec<usize> =
            (HEADER_LEN..=bytes.len()).map(|len| read_records(&bytes[..len]).unwrap().len).collect();
        assert!(ends.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(*ends.last().unwrap(), bytes.len());
        let mut distinct = ends.clone();
        distinct.dedup();
        assert_eq!(distinct.len(), 4, "no record, one, two, three");
    }

    #[test]
    fn damage_before_the_last_record_is_reported() {
        let bytes = file();
        let last = *(HEADER_LEN..bytes.len())
            .map(|len| read_records(&bytes[..len]).unwrap().len)
            .collect::<Vec<_>>()
            .last()
            .unwrap();
        for at in HEADER_LEN..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            let read = read_records(&changed);
            if at < last {
                assert!(matches!(read, Err(Damage::Record { .. })), "byte {at}: {read:?}");
            } else {
                assert_eq!(read.unwrap().len, last, "byte {at} is in the last record, which can be torn");
            }
        }
        for at in 0..HEADER_LEN {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert!(Header::decode(&changed).is_err());
        }
    }

    #[test]
    fn a_snapshot_is_whole_or_refused() {
        let membership = Membership::alone(4);
        let snapshot = Snapshot { index: 9, term: 2, membership, data: Bytes::from_static(b"state") };
        let bytes = encode_snapshot(&snapshot);
        assert_eq!(decode_snapshot(&bytes), Ok(snapshot));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(decode_snapshot(&changed).is_err(), "byte {at}");
            assert!(decode_snapshot(&bytes[..at]).is_err(), "{at} bytes");
        }
    }
}
