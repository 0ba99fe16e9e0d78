//! A seeded fuzzer: good streams with a few bytes changed, and noise. `FUZZ_SECONDS` (default 3) says how long,
//! `FUZZ_SEED` where it begins; a failure names the seed that repeats it.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use wire::client::Answer;
use wire::{Decoder, Dialect, Direction, Encoder, Request};

use crate::samples::{dialects, requests, responses, transports};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

const MESSAGE_LEN_MAX: usize = 1 << 20;

/// Takes everything out of the bytes, in pieces, and reads it. What matters is that nothing panics, and that the
/// decoder always moves on.
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

fn round(seed: u64) {
    let random = &mut Random(seed);
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

#[test]
fn damaged_streams() {
    let variable = |name: &str, default: u64| {
        std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
    };
    let until = Instant::now() + Duration::from_secs(variable("FUZZ_SECONDS", 3));
    let mut seed = variable("FUZZ_SEED", 1);
    let mut rounds = 0_u64;
    while Instant::now() < until {
        let result = std::panic::catch_unwind(|| round(seed));
        if let Err(panic) = result {
            eprintln!("repeat with FUZZ_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
        seed += 1;
        rounds += 1;
    }
    assert!(rounds > 0);
}
