//! The decoder on its own: no copies, bounded memory, and an error for everything that is not the protocol.

use bytes::{BufMut, BytesMut};
use wire::client::RequestWriter;
use wire::{
    Compression, Decoder, Dialect, Direction, Encoder, Envelope, Flags, Framing, MAX_FRAME_PAYLOAD, Opcode,
    ProtocolError, Rejection, Version,
};

use crate::samples::{MESSAGE_LEN_MAX, codecs, decode_all, requests};

fn prepare(version: Version, text: &str) -> RequestWriter {
    let mut writer = RequestWriter::new(Dialect::new(version));
    writer.prepare(text, None);
    writer
}

fn bare(version: u8, flags: u8, opcode: u8, length: i32, body: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_slice(&[version, flags, 0, 9, opcode]);
    out.put_i32(length);
    out.put_slice(body);
    out
}

fn server() -> Decoder {
    Decoder::new(Direction::Request, MESSAGE_LEN_MAX)
}

fn first_error(decoder: &mut Decoder, bytes: &[u8]) -> ProtocolError {
    let mut input = BytesMut::from(bytes);
    decoder.next(&mut input).expect("an answer").expect_err("an error").error
}

#[test]
fn bodies_lie_in_the_read_buffer() {
    for (version, framing) in [(Version::V4, Framing::Bare), (Version::V5, Framing::Checksummed)] {
        let (mut decoder, mut encoder) = codecs(Direction::Request, version, (framing, None));
        for _ in 0..10 {
            encoder.push_request(1, &prepare(version, "SELECT …"));
        }
        let mut input = encoder.finish().split();
        let range = input.as_ptr_range();
        let mut count = 0;
        while let Some(envelope) = decoder.next(&mut input) {
            let body = envelope.expect("good").body.as_ptr_range();
            assert!(range.start <= body.start && body.end <= range.end, "the body was copied");
            count += 1;
        }
        assert_eq!(count, 10);
    }
}

#[test]
fn byte_by_byte() {
    for version in Version::ALL {
        for transport in crate::samples::transports(version) {
            let (mut decoder, mut encoder) = codecs(Direction::Request, version, transport);
            let requests = requests(Dialect::new(version));
            for request in &requests {
                encoder.push_request(1, request);
            }
            let bytes = encoder.finish().split();
            let mut input = BytesMut::new();
            let mut count = 0;
            for byte in &bytes {
                input.put_u8(*byte);
                count += decoder.feed(&mut input).inspect(|envelope| assert!(envelope.is_ok())).count();
                assert!(decoder.wanted() >= 1 && decoder.wanted() <= bytes.len());
            }
            assert_eq!(count, requests.len());
        }
    }
}

#[test]
fn versions_that_are_not_supported() {
    for version in [0, 1, 2, 6, 66, 127] {
        // The first byte is enough.
        assert_eq!(
            first_error(&mut server(), &[version]),
            ProtocolError::UnsupportedVersion { version },
            "version {version}"
        );
    }
    let mut decoder = server();
    let mut input = bare(6, 0x10, 5, 0, b"");
    let rejection =
        Rejection { stream: 9, version: None, error: ProtocolError::UnsupportedVersion { version: 6 } };
    assert_eq!(decoder.next(&mut input), Some(Err(rejection)));
    // Nothing more comes out, and the rest is dropped.
    input.extend_from_slice(&bare(4, 0, 5, 0, b""));
    assert_eq!(decoder.next(&mut input), None);
    assert!(input.is_empty());
    let mut input = BytesMut::from(&[1, 0, 7, 1, 0, 0, 0, 0][..]);
    assert_eq!(server().next(&mut input).map(|result| result.map_err(|e| e.stream)), Some(Err(7)));
}

#[test]
fn the_version_cannot_change() {
    let mut decoder = server();
    decoder.agree(Version::V4, Framing::Bare, None);
    let expected = ProtocolError::VersionChanged { version: 3, expected: Version::V4 };
    assert_eq!(first_error(&mut decoder, &bare(3, 0, 5, 0, b"")), expected);
    assert!(expected.is_fatal());
}

#[test]
fn responses_are_not_requests() {
    let expected = ProtocolError::WrongDirection { expected: Direction::Request, opcode: 8 };
    assert_eq!(first_error(&mut server(), &bare(0x84, 0, 8, 0, b"")), expected);
}

#[test]
fn an_unknown_opcode_costs_only_its_message() {
    for opcode in [0, 2, 4, 6, 8, 0x0C, 0x11, 0xFF] {
        let mut decoder = server();
        let mut input = bare(4, 0, opcode, 3, b"abc");
        input.extend_from_slice(&bare(4, 0, 5, 0, b""));
        let all: Vec<_> = decoder.feed(&mut input).collect();
        let error = ProtocolError::UnknownOpcode { opcode };
        assert_eq!(all[0], Err(Rejection { stream: 9, version: Some(Version::V4), error }));
        assert_eq!(all[1].as_ref().expect("good").opcode, Opcode::Options);
    }
}

#[test]
fn too_long_messages_are_skipped_without_being_kept() {
    let max = 1000;
    let mut decoder = Decoder::new(Direction::Request, max);
    let mut input = bare(4, 0, 7, 5000, b"");
    let error = ProtocolError::MessageTooLong { length: 5009, max };
    let version = Some(Version::V4);
    assert_eq!(decoder.next(&mut input), Some(Err(Rejection { stream: 9, version, error: error.clone() })));
    assert_eq!(error.to_string(), "Request is too big: length 5009 exceeds maximum allowed length 1000.");
    for _ in 0..5 {
        assert_eq!(decoder.next(&mut input), None);
        assert!(input.is_empty() && decoder.is_inside_message() && decoder.wanted() == 1);
        input.extend_from_slice(&[b'x'; 1000]);
    }
    input.extend_from_slice(&bare(4, 0, 5, 0, b""));
    assert_eq!(decoder.next(&mut input).expect("there").expect("good").opcode, Opcode::Options);
    // A negative length is a long one.
    let huge = bare(4, 0, 7, -1, b"");
    let expected = ProtocolError::MessageTooLong { length: u64::from(u32::MAX) + 9, max };
    assert_eq!(first_error(&mut Decoder::new(Direction::Request, max), &huge), expected);
}

#[test]
fn packed_bodies_that_lie_about_their_length() {
    let with = |compression| {
        let mut decoder = server();
        decoder.agree(Version::V4, Framing::Bare, compression);
        decoder
    };
    let packed = |body: &[u8]| bare(4, Flags::COMPRESSION, 7, body.len() as i32, body);
    assert_eq!(first_error(&mut with(None), &packed(b"abc")), ProtocolError::CompressionNotAgreed);
    let bad = |error| matches!(error, ProtocolError::BadCompression { .. });
    let mut lz4 = with(Some(Compression::Lz4));
    assert!(bad(first_error(&mut lz4, &packed(&[0, 0]))));
    // 16 MiB out of three bytes.
    assert_eq!(
        first_error(&mut lz4, &packed(&[0x00, 0xFF, 0xFF, 0xFF, 1, 2, 3])),
        ProtocolError::BadCompression { reason: "the declared length is impossible" }
    );
    assert!(matches!(
        first_error(&mut lz4, &packed(&[0xFF, 0xFF, 0xFF, 0xFF, 1, 2, 3])),
        ProtocolError::MessageTooLong { .. }
    ));
    assert!(bad(first_error(&mut lz4, &packed(&[0, 0, 0, 9, 0x10, b'a']))));
    let mut snappy = with(Some(Compression::Snappy));
    assert!(bad(first_error(&mut snappy, &packed(&[0xFF, 0xFF, 0x7F, 0, 1]))));
    assert!(bad(first_error(&mut snappy, &packed(&[0xFF; 12]))));
    assert!(bad(first_error(&mut snappy, &packed(&[4, 0xFF, 1]))));
}

#[test]
fn empty_packed_bodies_are_empty() {
    let mut decoder = server();
    decoder.agree(Version::V4, Framing::Bare, Some(Compression::Lz4));
    let envelopes = decode_all(&mut decoder, &bare(4, Flags::COMPRESSION, 5, 0, b""));
    assert!(envelopes[0].body.is_empty() && !envelopes[0].flags.has(Flags::COMPRESSION));
}

fn framed(framing: Framing) -> (Decoder, Encoder) {
    let compression = (framing == Framing::Lz4).then_some(Compression::Lz4);
    codecs(Direction::Request, Version::V5, (framing, compression))
}

#[test]
fn every_flipped_bit_in_a_frame_is_noticed() {
    for framing in [Framing::Checksummed, Framing::Lz4] {
        let (_, mut encoder) = framed(framing);
        encoder.push_request(1, &prepare(Version::V5, &"SELECT ".repeat(60)));
        let good = encoder.finish().split();
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let (mut decoder, _) = framed(framing);
            let error = first_error(&mut decoder, &bytes);
            assert!(error.is_fatal());
            assert!(matches!(
                error,
                ProtocolError::HeaderChecksum { .. } | ProtocolError::PayloadChecksum { .. }
            ));
        }
    }
}

#[test]
fn envelopes_share_frames_and_long_ones_span_them() {
    let (mut decoder, mut encoder) = framed(Framing::Checksummed);
    for _ in 0..100 {
        encoder.push_request(1, &prepare(Version::V5, "SELECT"));
    }
    let bytes = encoder.finish().split();
    assert_eq!(bytes.len(), 100 * (9 + 4 + 6 + 4) + 6 + 4, "a hundred envelopes in one frame");
    assert_eq!(decode_all(&mut decoder, &bytes).len(), 100);

    let text = "x".repeat(3 * MAX_FRAME_PAYLOAD);
    encoder.push_request(1, &prepare(Version::V5, "before"));
    encoder.push_request(2, &prepare(Version::V5, &text));
    encoder.push_request(3, &prepare(Version::V5, "after"));
    let bytes = encoder.finish().split();
    let overhead = (bytes.len() - text.len() - 3 * (9 + 4 + 4) - 11) as f64 / 10.0;
    assert_eq!(overhead, 6.0, "one frame, four frames, one frame");
    let streams: Vec<_> = decode_all(&mut decoder, &bytes).iter().map(|envelope| envelope.stream).collect();
    assert_eq!(streams, [1, 2, 3]);
}

/// Frames of any content, made by an encoder of raw bytes.
fn frame(self_contained: bool, payload: &[u8]) -> BytesMut {
    let mut header = payload.len() as u32;
    header |= u32::from(self_contained) << 17;
    let [a, b, c, _] = header.to_le_bytes();
    let mut out = BytesMut::from(&[a, b, c][..]);
    let mut crc = 0x87_5060_u32;
    for byte in [a, b, c] {
        crc ^= u32::from(byte) << 16;
        for _ in 0..8 {
            crc <<= 1;
            if crc & 0x100_0000 != 0 {
                crc ^= 0x197_4F0B;
            }
        }
    }
    out.put_slice(&crc.to_le_bytes()[..3]);
    out.put_slice(payload);
    let mut checked = vec![0xFA, 0x2D, 0x55, 0xCA];
    checked.extend_from_slice(payload);
    out.put_u32_le(crc32fast::hash(&checked));
    out
}

#[test]
fn frames_with_wrong_content() {
    let broken = |frames: &[BytesMut]| {
        let (mut decoder, _) = framed(Framing::Checksummed);
        let mut input = BytesMut::from(&frames.concat()[..]);
        let last = decoder.feed(&mut input).last().expect("an answer");
        matches!(last.expect_err("an error").error, ProtocolError::BrokenFrame { .. })
    };
    let whole = bare(5, 0, 9, 20, &[0; 20]);
    assert!(broken(&[frame(true, &whole[..5])]));
    assert!(broken(&[frame(true, &whole[..25])]));
    assert!(broken(&[frame(false, &whole[..5])]));
    assert!(broken(&[frame(false, &whole[..20]), frame(false, &whole[10..])]), "longer than it says");
    assert!(broken(&[frame(false, &whole[..20]), frame(false, &[])]), "an empty part");
    assert!(broken(&[frame(false, &[&whole[..], &[0]].concat())]));
    // Legal, if odd: an empty frame, and another message between the parts of a long one.
    let (mut decoder, _) = framed(Framing::Checksummed);
    let options = bare(5, 0, 5, 0, b"");
    let frames =
        [frame(true, b""), frame(false, &whole[..20]), frame(true, &options), frame(false, &whole[20..])];
    let opcodes: Vec<_> = decode_all(&mut decoder, &frames.concat()).iter().map(|e| e.opcode).collect();
    assert_eq!(opcodes, [Opcode::Options, Opcode::Prepare]);
}

#[test]
fn long_messages_that_are_refused_are_skipped() {
    for (header, fatal) in [
        (bare(5, 0, 9, MESSAGE_LEN_MAX as i32, b""), false),
        (bare(5, 0, 0x44, 3 * MAX_FRAME_PAYLOAD as i32, b""), false),
        (bare(4, 0, 9, 3 * MAX_FRAME_PAYLOAD as i32, b""), true),
        (bare(5, 0, 9, -3, b""), true),
    ] {
        let (mut decoder, _) = framed(Framing::Checksummed);
        let length = i32::from_be_bytes(header[5..9].try_into().expect("four bytes"));
        let mut input = frame(false, &header);
        let rejection = decoder.next(&mut input).expect("at once").expect_err("refused");
        assert_eq!(rejection.stream, 9);
        assert_eq!(rejection.error.is_fatal(), fatal);
        if fatal {
            continue;
        }
        let mut left = length as usize;
        while left > 0 {
            let part = left.min(MAX_FRAME_PAYLOAD);
            left -= part;
            let mut input = frame(false, &vec![0; part]);
            assert_eq!(decoder.next(&mut input), None);
        }
        let mut input = frame(true, &bare(5, 0, 5, 0, b""));
        assert_eq!(decoder.next(&mut input).expect("there").expect("good").opcode, Opcode::Options);
    }
}

#[test]
fn an_envelope_in_a_frame_with_a_bad_header() {
    let mut payload = bare(5, 0, 0x44, 2, b"ab");
    payload.extend_from_slice(&bare(5, 0, 5, 0, b""));
    let (mut decoder, _) = framed(Framing::Checksummed);
    let mut input = frame(true, &payload);
    let all: Vec<_> = decoder.feed(&mut input).collect();
    assert_eq!(all.len(), 2);
    let error = ProtocolError::UnknownOpcode { opcode: 0x44 };
    assert_eq!(all[0], Err(Rejection { stream: 9, version: Some(Version::V5), error }));
    assert!(all[1].is_ok());
}

#[test]
fn the_length_of_a_message_under_way_is_known() {
    let mut decoder = server();
    let mut input = bare(4, 0, 7, 70_000, b"abc");
    assert_eq!(decoder.next(&mut input), None);
    assert_eq!(decoder.message_len(), Some(70_009));
    let (mut decoder, mut encoder) = framed(Framing::Checksummed);
    encoder.push_request(2, &prepare(Version::V5, &"x".repeat(2 * MAX_FRAME_PAYLOAD)));
    let mut input = encoder.finish().split();
    let rest = input.split_off(input.len() - 100);
    assert_eq!(decoder.next(&mut input), None);
    assert_eq!(decoder.message_len(), Some(9 + 4 + 2 * MAX_FRAME_PAYLOAD + 4));
    input.unsplit(rest);
    assert!(decoder.next(&mut input).expect("complete").is_ok());
    assert_eq!(decoder.message_len(), None);
}

#[test]
fn an_envelope_puts_itself_back() {
    let bytes = bare(4, 0x02, 9, 5, b"abcde");
    let envelope: Envelope = decode_all(&mut server(), &bytes).remove(0);
    let mut out = BytesMut::new();
    envelope.put(&mut out);
    assert_eq!(out, bytes);
}
