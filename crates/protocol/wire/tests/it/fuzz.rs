//! A seeded fuzzer: good streams with a few bytes changed, and noise.
//!
//! The corpus is `testdata/fuzz`: every message in every dialect and framing. It also defines the protocol's bytes:
//! `UPDATE=1 cargo test -p wire` writes it again, and a change there is a change that clients see.

use std::path::{Path, PathBuf};

use bytes::BytesMut;
use testkit::fuzz::{Random, change, hunt};
use wire::client::Answer;
use wire::{Compression, Decoder, Dialect, Direction, Encoder, Framing, Request};

use crate::samples::{dialects, requests, responses, transports};

const MESSAGE_LEN_MAX: usize = 1 << 20;

/// Takes everything out of the bytes, in pieces, and reads it. It must not panic, and the
/// decoder must always advance.
fn run(direction: Direction, dialect: Dialect, decoder: &mut Decoder, bytes: &[u8], random: &mut Random) {
    let mut input = BytesMut::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (now, later) = rest.split_at((1 + random.below(400)).min(rest.len()));
        input.extend_from_slice(now);
        rest = later;
        let mut steps = 0;
        while let Some(result) = decoder.next(&mut input) {
            steps += 1;
            assert!(steps <= bytes.len(), "the decoder stands still");
            let Ok(envelope) = result else { continue };
            match direction {
                Direction::Request => {
                    if let Ok(request) = Request::decode(&envelope, dialect) {
                        let _ = format!("{request:?}");
                    }
                }
                Direction::Response => {
                    if let Ok(answer) = Answer::decode(&envelope, dialect) {
                        let _ = format!("{answer:?}");
                    }
                }
            }
        }
        assert!(decoder.wanted() <= MESSAGE_LEN_MAX + 9, "the decoder wants too much");
    }
}

/// Some messages with their bytes changed, before or after they were framed.
fn changed_messages(random: &mut Random) {
    let all = dialects();
    let dialect = all[random.below(all.len())];
    let ways = transports(dialect.version);
    let (framing, compression) = ways[random.below(ways.len())];
    let direction = if random.below(3) == 0 { Direction::Response } else { Direction::Request };
    let mut encoder = Encoder::new();
    // Damage before the frames are made gets past the checksums.
    let inner = random.below(2) == 0;
    if !inner {
        encoder.agree(framing, compression);
    }
    for _ in 0..1 + random.below(6) {
        match direction {
            Direction::Request => {
                let mut messages = requests(dialect);
                let index = random.below(messages.len());
                encoder.push_request(random.next() as i16, &messages.swap_remove(index));
            }
            Direction::Response => {
                let mut messages = responses(dialect);
                let index = random.below(messages.len());
                encoder.push(random.next() as i16, &messages.swap_remove(index));
            }
        }
    }
    let mut bytes = encoder.finish().to_vec();
    for _ in 0..random.below(6) {
        let at = random.below(bytes.len());
        match random.below(5) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.next() as u8),
            _ => {
                let end = (at + 4).min(bytes.len());
                bytes[at..end].fill(if random.below(2) == 0 { 0xFF } else { 0x7F });
            }
        }
        if bytes.is_empty() {
            bytes.push(dialect.version.number());
        }
    }
    let mut decoder = Decoder::new(direction, MESSAGE_LEN_MAX);
    if inner {
        decoder.agree(dialect.version, wire::Framing::Bare, compression);
    } else {
        decoder.agree(dialect.version, framing, compression);
    }
    run(direction, dialect, &mut decoder, &bytes, random);
}

/// One stream of the corpus: every message of a dialect in one framing.
struct Stream {
    dialect: Dialect,
    direction: Direction,
    framing: Framing,
    compression: Option<Compression>,
    bytes: Vec<u8>,
}

/// The streams as they are encoded today, with the names of their files.
fn streams() -> Vec<(PathBuf, Stream)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/fuzz");
    let mut found = Vec::new();
    for (number, dialect) in dialects().into_iter().enumerate() {
        for (way, (framing, compression)) in transports(dialect.version).into_iter().enumerate() {
            for direction in [Direction::Request, Direction::Response] {
                let mut encoder = Encoder::new();
                encoder.agree(framing, compression);
                match direction {
                    Direction::Request => requests(dialect)
                        .iter()
                        .enumerate()
                        .for_each(|(at, message)| encoder.push_request(at as i16, message)),
                    Direction::Response => responses(dialect)
                        .iter()
                        .enumerate()
                        .for_each(|(at, message)| encoder.push(at as i16, message)),
                }
                let bytes = encoder.finish().to_vec();
                let side = if direction == Direction::Request { "requests" } else { "responses" };
                let name = format!("dialect{number}-transport{way}-{side}");
                found.push((folder.join(name), Stream { dialect, direction, framing, compression, bytes }));
            }
        }
    }
    found
}

#[test]
fn the_corpus_equals_the_present_encoding() {
    for (path, stream) in streams() {
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &stream.bytes).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == stream.bytes, "{} is written otherwise", path.display());
    }
}

/// A stream of the corpus with its bytes changed.
fn changed_stream(random: &mut Random, streams: &[Stream], others: &[Vec<u8>]) {
    let stream = random.of(streams);
    let mut bytes = stream.bytes.clone();
    change(random, &mut bytes, others);
    let mut decoder = Decoder::new(stream.direction, MESSAGE_LEN_MAX);
    decoder.agree(stream.dialect.version, stream.framing, stream.compression);
    run(stream.direction, stream.dialect, &mut decoder, &bytes, random);
}

#[test]
fn damaged_streams() {
    let mut streams: Vec<Stream> = streams().into_iter().map(|(_, stream)| stream).collect();
    for (stream, (path, _)) in streams.iter_mut().zip(self::streams()) {
        stream.bytes = std::fs::read(path).unwrap();
    }
    let others: Vec<Vec<u8>> = streams.iter().map(|stream| stream.bytes.clone()).collect();
    hunt("wire streams", |random| {
        if random.one_in(2) {
            changed_messages(random);
        } else {
            changed_stream(random, &streams, &others);
        }
    });
}
