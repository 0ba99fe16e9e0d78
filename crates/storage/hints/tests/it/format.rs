//! The bytes of a segment: decoding gives the encoded hints, and no bytes make a reader panic.

use hints::format::{
    BLOCK_LEN, Block, BlockError, Header, Position, RECORD_HEADER_LEN, RecordHeader, Seal, file_name,
    find_record, parse_file_name, record_crc,
};
use proptest::prelude::*;
use topology::HostId;

fn put(block: &mut [u8], (at, bytes): (u64, Vec<u8>)) {
    block[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
}

proptest! {
    #[test]
    fn a_block_comes_back(host: [u8; 16], number: u64, from in 4096..u64::MAX, hints: u64, seal: bool, flip: Option<u16>) {
        let header = Header { host: HostId(host), number };
        let mut block = header.encode();
        prop_assert_eq!(block.len(), BLOCK_LEN);
        let older = Position { generation: 4, offset: from - 1, hints };
        let newer = Position { generation: 5, offset: from, hints };
        put(&mut block, newer.encode(number));
        if from > 4096 {
            put(&mut block, older.encode(number));
        }
        let end = Seal { end: from, hints, oldest_micros: -5, newest_micros: 7 };
        if seal {
            put(&mut block, end.encode(number));
        }
        let expected = Block { header, position: newer, seal: seal.then_some(end) };
        prop_assert_eq!(Block::decode(&block), Ok(expected));
        if let Some(flip) = flip {
            let at = usize::from(flip) % (8 * BLOCK_LEN);
            block[at / 8] ^= 1 << (at % 8);
            // One bit spoils one part of it at most, and no part is wrong.
            match Block::decode(&block) {
                Ok(read) => {
                    prop_assert_eq!(read.header, header);
                    let start = Position { offset: 4096, ..Position::default() };
                    prop_assert!([newer, older, start].contains(&read.position));
                    prop_assert!(read.seal.is_none() || read.seal == expected.seal);
                }
                Err(BlockError::Blank) => prop_assert!(at / 8 < 40),
                Err(BlockError::NewerVersion(_)) => prop_assert!((8..12).contains(&(at / 8))),
            }
        }
    }

    #[test]
    fn a_record_comes_back(number: u64, offset: u64, begun_micros: i64, grace_seconds: u32, table: [u8; 16],
            update in prop::collection::vec(any::<u8>(), 0..300), flip: u16) {
        let header = RecordHeader { update_len: update.len() as u32, begun_micros, grace_seconds, table };
        let mut bytes = header.encode(number, offset, &update).to_vec();
        bytes.extend_from_slice(&update);
        prop_assert_eq!(bytes.len() as u64, header.record_len());
        let (read, crc) = RecordHeader::decode(&bytes).unwrap();
        prop_assert_eq!(read, header);
        let sum = |bytes: &[u8]| record_crc(number, offset, &bytes[8..RECORD_HEADER_LEN], &bytes[RECORD_HEADER_LEN..]);
        prop_assert_eq!(sum(&bytes), crc);
        prop_assert_eq!(find_record(&bytes), Some(0));
        let at = usize::from(flip) % (8 * bytes.len());
        bytes[at / 8] ^= 1 << (at % 8);
        let still_valid = RecordHeader::decode(&bytes).is_some_and(|(_, crc)| sum(&bytes) == crc);
        prop_assert!(!still_valid, "a changed bit is found");
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
        let _ = Block::decode(&bytes);
        let _ = RecordHeader::decode(&bytes);
        let _ = find_record(&bytes);
        let mut with_magic = Header { host: HostId([1; 16]), number: 1 }.encode();
        let len = bytes.len().min(BLOCK_LEN - 40);
        with_magic[40..40 + len].copy_from_slice(&bytes[..len]);
        prop_assert!(Block::decode(&with_magic).is_ok());
    }

    #[test]
    fn names_come_back_and_others_are_refused(host: [u8; 16], number: u64, other in "[0-9a-f]{30,34}[-_][0-9+]{0,4}(\\.hints)?") {
        let header = Header { host: HostId(host), number };
        prop_assert_eq!(parse_file_name(&file_name(header.host, number)), Some(header));
        if let Some(header) = parse_file_name(&other) {
            prop_assert_eq!(file_name(header.host, header.number), other);
        }
    }
}

#[test]
fn a_newer_version_is_reported() {
    let mut block = Header { host: HostId([1; 16]), number: 1 }.encode();
    block[11] = 9;
    assert_eq!(Block::decode(&block), Err(BlockError::NewerVersion(9)));
}
