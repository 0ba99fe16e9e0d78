//! Segments cut and damaged at every place.

use commitlog::segment::{
    CHUNK_HEADER_LEN, ChunkHeader, ENTRY_HEADER_LEN, HEADER_LEN, HeaderError, Scan, SegmentHeader, scan,
};
use mutation::codec::Version;
use proptest::prelude::*;

const SALT: u64 = 0x8f31_2d4e_5566_7a1b;
const HEADER: SegmentHeader = SegmentHeader {
    shard: 1,
    shard_count: 2,
    id: 9,
    salt: SALT,
    before: 7,
    bytes: 16 << 10,
    mutations: Version::CURRENT,
};

/// A segment of chunks, each with so many entries; every chunk says that the one before is synced.
fn segment(chunks: &[usize], end: bool, segment_len: usize) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = HEADER.encode();
    let mut starts = Vec::new();
    let (mut next, mut synced) = (1u64, 0);
    let mut put = |bytes: &mut Vec<u8>, entries: usize, is_end: bool| {
        starts.push(bytes.len());
        let mut content = Vec::new();
        let first = next;
        for _ in 0..entries {
            let body = vec![next as u8; 5 + (next as usize * 7) % 60];
            content.extend_from_slice(&(body.len() as u32).to_be_bytes());
            content.extend_from_slice(&HEADER.entry_crc(next, &body).to_be_bytes());
            content.extend_from_slice(&body);
            next += 1;
        }
        let total = (CHUNK_HEADER_LEN + content.len()).next_multiple_of(8);
        let header =
            ChunkHeader { total_len: total as u32, entries_len: content.len() as u32, first, synced, is_end };
        let at = bytes.len();
        bytes.extend_from_slice(&header.encode(&HEADER));
        bytes.extend_from_slice(&content);
        bytes.resize(at + total, 0);
        synced = next - 1;
    };
    for entries in chunks {
        put(&mut bytes, *entries, false);
    }
    if end {
        put(&mut bytes, 0, true);
    }
    assert!(bytes.len() <= segment_len);
    bytes.resize(segment_len, 0);
    (bytes, starts)
}

fn numbers(scan: &Scan) -> Vec<u64> {
    scan.entries.iter().map(|entry| entry.number).collect()
}

#[test]
fn headers() {
    let bytes = HEADER.encode();
    assert_eq!(SegmentHeader::decode(&bytes), Ok(HEADER));
    assert_eq!(SegmentHeader::decode(&[0; HEADER_LEN]), Err(HeaderError::Blank));
    for at in 0..52 {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        assert_ne!(SegmentHeader::decode(&damaged), Ok(HEADER), "byte {at}");
    }
    let mut newer = bytes;
    newer[11] = 3;
    assert_eq!(SegmentHeader::decode(&newer), Err(HeaderError::NewerVersion(3)));
}

#[test]
fn whole_segments() {
    let (bytes, _) = segment(&[3, 1, 4], true, 16 << 10);
    let found = scan(&bytes, &HEADER, HEADER_LEN, 0);
    assert_eq!(numbers(&found), (1..=8).collect::<Vec<_>>());
    assert!(found.ended && found.more_behind.is_none());
    assert_eq!((found.next, found.synced), (9, 8));

    let (bytes, _) = segment(&[3, 1, 4], false, 16 << 10);
    let found = scan(&bytes, &HEADER, HEADER_LEN, 0);
    assert!(!found.ended);
    // Nothing promises more than the found entries: the tail may be torn here.
    assert_eq!((found.next, found.synced), (9, 4));
}

/// Every byte of three chunks damaged in turn: entries before the damage are found, and because the third chunk
/// says that the second was synced, damage in the first two contradicts a promise, in the third it does not.
#[test]
fn damage_is_distinguished_from_a_torn_tail() {
    let (bytes, starts) = segment(&[3, 2, 2], false, 8 << 10);
    let used = starts[2] + 400;
    let whole = scan(&bytes, &HEADER, HEADER_LEN, 0);
    for at in HEADER_LEN..used.min(bytes.len()) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let found = scan(&damaged, &HEADER, HEADER_LEN, 0);
        if found.entries == whole.entries {
            continue; // padding, or the zeros behind
        }
        assert!(whole.entries.starts_with(&found.entries), "byte {at}");
        let contradicts = found.next <= found.synced;
        assert_eq!(contradicts, at < starts[2], "byte {at}: {found:?}");
        if at < starts[2] {
            assert!(found.more_behind.is_some());
        }
    }
}

/// A chunk that did not reach the disk wholly, over the old content of a recycled file: the same sizes, other numbers.
#[test]
fn stale_entries_of_a_recycled_file_do_not_count() {
    let (old, starts) = segment(&[2, 2], false, 8 << 10);
    let mut bytes = old.clone();
    // A new life of the file under the same id would be told by numbers alone; take that worst case.
    let first = 101u64;
    let entries_len = starts[1] - starts[0] - CHUNK_HEADER_LEN;
    let header = ChunkHeader {
        total_len: (starts[1] - starts[0]) as u32,
        entries_len: entries_len as u32,
        first,
        synced: 100,
        is_end: false,
    };
    bytes[starts[0]..starts[0] + CHUNK_HEADER_LEN].copy_from_slice(&header.encode(&HEADER));
    let found = scan(&bytes, &HEADER, HEADER_LEN, 0);
    assert_eq!(found.entries, []);
    assert_eq!(found.stop, starts[0] + CHUNK_HEADER_LEN);
    // And under another id not even the chunk counts.
    let other = SegmentHeader { id: 10, ..HEADER };
    assert_eq!(scan(&old, &other, HEADER_LEN, 0).entries, []);
    assert!(ENTRY_HEADER_LEN < CHUNK_HEADER_LEN);
}

proptest! {
    #[test]
    fn cuts_leave_a_prefix(chunks in prop::collection::vec(1..5usize, 1..6), cut in 0.0..1.0f64) {
        let (bytes, _) = segment(&chunks, true, 16 << 10);
        let whole = scan(&bytes, &HEADER, HEADER_LEN, 0);
        let mut torn = bytes.clone();
        let at = HEADER_LEN + ((torn.len() - HEADER_LEN) as f64 * cut / 4.0) as usize;
        torn[at..].fill(0);
        let found = scan(&torn, &HEADER, HEADER_LEN, 0);
        prop_assert!(whole.entries.starts_with(&found.entries));
        prop_assert!(found.next.max(1) > found.synced, "a cut alone never contradicts a promise");
        prop_assert!(found.more_behind.is_none());
    }

    #[test]
    fn any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..2000), valid in any::<bool>()) {
        if valid {
            let mut with = HEADER.encode();
            with.append(&mut bytes);
            bytes = with;
        }
        let _ = SegmentHeader::decode(&bytes);
        let _ = scan(&bytes, &HEADER, HEADER_LEN, 0);
    }
}

#[test]
fn numbers_that_no_log_reaches_are_none() {
    let header = ChunkHeader { total_len: 40, entries_len: 0, first: u64::MAX, synced: 0, is_end: false };
    assert_eq!(ChunkHeader::decode(&header.encode(&HEADER), &HEADER, 40), None);
    let header = ChunkHeader { first: 7, synced: u64::MAX, ..header };
    assert_eq!(ChunkHeader::decode(&header.encode(&HEADER), &HEADER, 40), None);
}

/// Bytes that a client writes may be a chunk of the log, to the byte; in a recycled file it may lie behind the end of the new entries.
#[test]
fn a_blob_does_not_pass_for_a_chunk() {
    let content = |header: &SegmentHeader| {
        let body = [7u8; 24];
        let mut content = 24u32.to_be_bytes().to_vec();
        content.extend_from_slice(&header.entry_crc(900, &body).to_be_bytes());
        content.extend_from_slice(&body);
        let chunk = ChunkHeader { total_len: 72, entries_len: 32, first: 900, synced: 899, is_end: false };
        [chunk.encode(header).to_vec(), content, vec![0; 4]].concat()
    };
    let (old, starts) = segment(&[2, 2, 1], false, 8 << 10);
    let behind = starts[2] + 512;
    // With the salt it would count as a promise that entry 899 is durable: without it, it is nothing.
    let mut bytes = old.clone();
    bytes[behind..behind + 72].copy_from_slice(&content(&HEADER));
    assert_eq!(scan(&bytes, &HEADER, HEADER_LEN, 0).synced, 899);
    for salt in [0, 1, SALT ^ 1, SALT ^ (1 << 63), SALT.swap_bytes()] {
        let mut bytes = old.clone();
        bytes[behind..behind + 72].copy_from_slice(&content(&SegmentHeader { salt, ..HEADER }));
        let found = scan(&bytes, &HEADER, HEADER_LEN, 0);
        assert_eq!(found, scan(&old, &HEADER, HEADER_LEN, 0), "{salt:x}");
    }
}

#[test]
fn segments_of_version_1_are_read() {
    let mut bytes = b"TORCLOG\n".to_vec();
    bytes.extend_from_slice(&[0, 0, 0, 1, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9]);
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_be_bytes());
    bytes.resize(HEADER_LEN, 0);
    let header = SegmentHeader::decode(&bytes).unwrap();
    assert_eq!(header, SegmentHeader { salt: 0, before: 0, bytes: 0, ..HEADER });
    // A chunk as version 1 wrote it, with its own magic number.
    let chunk = [
        &[0xc1, b'T', b'C', 0x7f, 0, 0, 0, 0][..],
        &[0, 0, 0, 40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1],
        &[0; 4],
    ]
    .concat();
    let mut crc = crc32fast::Hasher::new();
    crc.update(&9u64.to_be_bytes());
    crc.update(&chunk[8..36]);
    let mut chunk = chunk;
    chunk[4..8].copy_from_slice(&crc.finalize().to_be_bytes());
    bytes.extend_from_slice(&chunk);
    let found = scan(&bytes, &header, HEADER_LEN, 0);
    assert_eq!((found.ended, found.next, found.synced), (true, 5, 4));
}
