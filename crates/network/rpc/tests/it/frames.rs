//! Frames and the greeting come back as they were written, and damage is seen.

use std::io::IoSlice;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use rpc::FrameError;
use rpc::frame::{Decoder, Frame, HEADER_LEN, Header, Kind, decode_refusal, encode_refusal};
use rpc::{Packer, Packing, Refusal, WriteBuffer, unpack};

/// Bytes that are written in pieces of these lengths, over and over.
fn drain(out: &mut WriteBuffer, pieces: &[usize]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut pieces = pieces.iter().cycle();
    while !out.is_empty() {
        let mut slices = [IoSlice::new(&[]); 32];
        let used = out.slices(&mut slices);
        let all: Vec<u8> = slices[..used].iter().flat_map(|slice| slice.to_vec()).collect();
        let piece = (*pieces.next().expect("it never ends")).clamp(1, all.len());
        bytes.extend_from_slice(&all[..piece]);
        out.advance(piece);
    }
    bytes
}

fn packings() -> impl Strategy<Value = Packing> {
    prop_oneof![Just(Packing::None), Just(Packing::Lz4), Just(Packing::Zstd)]
}

fn bodies() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..200),
        1 => prop::collection::vec(any::<u8>(), 0..5000),
        // A body that can be packed.
        2 => (any::<u8>(), 0usize..9000).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn headers() -> impl Strategy<Value = Header> {
    let kinds = prop_oneof![
        Just(Kind::Request),
        Just(Kind::OneWay),
        Just(Kind::Answer),
        Just(Kind::Refusal),
        Just(Kind::Ping),
        Just(Kind::Pong)
    ];
    (kinds, any::<u8>(), any::<u64>(), any::<u32>(), any::<u16>()).prop_map(
        |(kind, verb, stream, remaining, shard)| {
            Header::outgoing(kind, verb, stream, remaining).to_shard(shard)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn frames_come_back(
        frames in prop::collection::vec((headers(), bodies()), 1..12),
        packing in packings(),
        pieces in prop::collection::vec(1usize..5000, 1..5),
    ) {
        let mut out = WriteBuffer::default();
        let mut packer = Packer::new(packing, 64);
        let mut len = 0;
        for (at, (header, body)) in frames.iter().enumerate() {
            // In one part or two, the bytes are the same.
            let (head, tail) = body.split_at(if at % 2 == 0 { 0 } else { body.len().min(at * 7) });
            len += out.push_parts(*header, head, Bytes::copy_from_slice(tail), &mut packer);
        }
        prop_assert_eq!(out.len(), len);
        let bytes = drain(&mut out, &pieces);
        prop_assert_eq!(bytes.len(), len);
        let mut decoder = Decoder::new(10_000);
        let mut input = BytesMut::new();
        let mut back = Vec::new();
        for piece in bytes.chunks(pieces[0]) {
            input.extend_from_slice(piece);
            while let Some(Frame { header, body }) = decoder.next(&mut input).unwrap() {
                back.push((header, unpack(header.packing, body, 10_000).unwrap()));
            }
        }
        prop_assert_eq!(back.len(), frames.len());
        for ((header, body), (sent, sent_body)) in back.iter().zip(&frames) {
            prop_assert_eq!(&body[..], &sent_body[..]);
            let fields = Header { body_len: 0, body_checksum: 0, packing: Packing::None, ..*header };
            prop_assert_eq!(fields, *sent);
        }
    }

    #[test]
    fn every_changed_bit_is_seen(header in headers(), body in bodies(), at in any::<prop::sample::Index>()) {
        let mut out = WriteBuffer::default();
        out.push(header, Bytes::from(body), &mut Packer::new(Packing::Lz4, 64));
        let mut bytes = drain(&mut out, &[usize::MAX]);
        let bit = at.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let mut input = BytesMut::from(&bytes[..]);
        let result = Decoder::new(10_000).next(&mut input);
        let seen = if bit / 8 < HEADER_LEN {
            matches!(result, Err(FrameError::HeaderChecksum { .. }))
        } else {
            matches!(result, Err(FrameError::BodyChecksum { .. }))
        };
        prop_assert!(seen, "bit {} gives {:?}", bit, result);
    }

    #[test]
    fn refusals_come_back(code in any::<u16>(), message in ".{0,50}") {
        let refusal = Refusal::new(code, message);
        prop_assert_eq!(decode_refusal(&encode_refusal(&refusal)), refusal);
    }
}

#[test]
fn a_length_is_held_against_the_limit_before_memory_is_taken() {
    let header = Header { body_len: u32::MAX, ..Header::outgoing(Kind::Request, 1, 1, 1) };
    let mut input = BytesMut::from(&header.encode()[..]);
    let result = Decoder::new(1000).next(&mut input);
    assert_eq!(result, Err(FrameError::TooLong { len: u64::from(u32::MAX), max: 1000 }));
}

#[test]
fn values_reserved_for_later_versions_are_refused() {
    for (at, value, field) in [(4, 7, "kind"), (6, 3, "packing"), (7, 1, "eighth byte")] {
        let mut bytes = Header::outgoing(Kind::Ping, 0, 0, 0).encode();
        bytes[at] = value;
        let checksum = crc32(&bytes[..26]);
        bytes[26..].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(Header::decode(&bytes), Err(FrameError::Unknown { field, value }));
    }
}

/// CRC-32 by bits, as the dissector and other readers of the protocol may compute it.
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 },
        )
    })
}

#[test]
fn a_long_refusal_is_cut_between_characters() {
    let refusal = Refusal::new(7, "ß".repeat(5000));
    let back = decode_refusal(&encode_refusal(&refusal));
    assert_eq!(back.message, "ß".repeat(2048));
    assert_eq!(decode_refusal(&[1]), Refusal::new(0, "\u{1}"));
    assert_eq!(decode_refusal(&[0, 9, 0xFF]), Refusal::new(9, "\u{FFFD}"));
}
