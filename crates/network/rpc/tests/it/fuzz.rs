//! A seeded fuzzer over bytes from the network that nobody has authenticated yet: hello, its answer, and frames.
//!
//! The corpus is `testdata/fuzz`; it also documents the protocol's bytes: `UPDATE=1 cargo test -p rpc` writes it
//! again, and a change there is a change that nodes of other versions see.

use std::io::IoSlice;
use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use rpc::frame::{Decoder, HEADER_LEN, Header, Kind, decode_refusal, encode_refusal};
use rpc::hello::{
    Agreement, Hello, HelloAnswer, HelloRefusal, Own, PREFIX_LEN, Versions, decode_prefix, judge,
};
use rpc::{Class, Packer, Packing, Refusal, Verb, WriteBuffer, unpack};
use testkit::fuzz::{Random, change, corpus, hunt};
use topology::HostId;

const BODY_LEN_MAX: usize = 1 << 20;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/fuzz")
}

/// Every kind of frame, and bodies of every packing.
fn frames(packing: Packing) -> Vec<u8> {
    let mut out = WriteBuffer::default();
    let mut packer = Packer::new(packing, 100);
    for (index, verb) in Verb::ALL.iter().enumerate() {
        let stream = (index as u64) << 32 | 7;
        let body = Bytes::from(b"partition ".repeat(index * 3));
        let header =
            Header::outgoing(Kind::Request, verb.number(), stream, 2_000).to_shard(index as u16 * 300);
        out.push(header, body, &mut packer);
    }
    let refusal = encode_refusal(&Refusal::new(Refusal::OVERLOADED, "too many requests wait"));
    let rest = [
        (Kind::OneWay, Verb::Gossip.number(), Bytes::from_static(b"digest")),
        (Kind::Answer, Verb::Read.number(), Bytes::from(b"row ".repeat(900))),
        (Kind::Refusal, Verb::Apply.number(), refusal),
        (Kind::Ping, 0, Bytes::new()),
        (Kind::Pong, 0, Bytes::new()),
    ];
    for (kind, verb, body) in rest {
        out.push(Header::outgoing(kind, verb, 1 << 32, 0), body, &mut packer);
    }
    let mut bytes = Vec::new();
    while !out.is_empty() {
        let mut slices = [IoSlice::new(&[]); 32];
        let used = out.slices(&mut slices);
        let written: Vec<u8> = slices[..used].iter().flat_map(|slice| slice.to_vec()).collect();
        out.advance(written.len());
        bytes.extend(written);
    }
    bytes
}

fn hello() -> Hello {
    Hello {
        versions: Versions::SPOKEN,
        host: HostId([9; 16]),
        shard_count: 8,
        source_shard: 3,
        wanted_shard: 5,
        class: Class::Urgent,
        packings: Packing::Lz4.bit() | Packing::Zstd.bit(),
        cluster_name: "Test Cluster".to_owned(),
    }
}

fn answers() -> [HelloAnswer; 2] {
    let accepted = Ok(Agreement { version: 2, packing: Packing::Zstd });
    let refused = Err(HelloRefusal::new(HelloRefusal::CLUSTER_NAME, "another cluster"));
    [accepted, refused].map(|outcome| HelloAnswer {
        outcome,
        host: HostId([8; 16]),
        shard_count: 2,
        shard: 1,
    })
}

fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let [accepted, refused] = answers();
    vec![
        ("frames-lz4", frames(Packing::Lz4)),
        ("frames-none", frames(Packing::None)),
        ("frames-zstd", frames(Packing::Zstd)),
        ("hello", hello().encode().to_vec()),
        ("hello-accepted", accepted.encode().to_vec()),
        ("hello-refused", refused.encode().to_vec()),
    ]
}

#[test]
fn the_corpus_equals_the_present_encoding() {
    for (name, bytes) in samples() {
        let path = folder().join(name);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(folder()).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == bytes, "{} is written otherwise", path.display());
    }
}

/// Writes the right checksums over those that the changes have broken, so that the code behind them is reached.
fn fix_checksums(bytes: &mut [u8]) {
    let mut at = 0;
    while at + HEADER_LEN <= bytes.len() {
        let len = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let body = at + HEADER_LEN;
        let end = body.saturating_add(len).min(bytes.len());
        let checksum = crc32fast::hash(&bytes[body..end]);
        bytes[at + 22..at + 26].copy_from_slice(&checksum.to_be_bytes());
        let checksum = crc32fast::hash(&bytes[at..at + 26]);
        bytes[at + 26..at + 30].copy_from_slice(&checksum.to_be_bytes());
        at = end;
    }
}

/// Takes the frames out, in pieces; it must end, and nothing may panic.
fn read_frames(random: &mut Random, bytes: &[u8]) {
    let mut decoder = Decoder::new(BODY_LEN_MAX);
    let mut input = BytesMut::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (now, later) = rest.split_at((1 + random.below(3000)).min(rest.len()));
        input.extend_from_slice(now);
        rest = later;
        loop {
            match decoder.next(&mut input) {
                Ok(Some(frame)) => {
                    let body = unpack(frame.header.packing, frame.body, BODY_LEN_MAX);
                    if let Ok(body) = body {
                        assert!(body.len() <= BODY_LEN_MAX);
                        let _ = decode_refusal(&body);
                    }
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
        assert!(decoder.missing(input.len()) <= BODY_LEN_MAX.max(HEADER_LEN), "the decoder wants too much");
    }
}

fn read_hello(bytes: &mut Vec<u8>, fixed: bool) {
    if fixed && bytes.len() > PREFIX_LEN + 4 {
        let following = bytes.len() - PREFIX_LEN;
        bytes[8..10].copy_from_slice(&(following as u16).to_be_bytes());
        let end = bytes.len() - 4;
        let checksum = crc32fast::hash(&bytes[..end]);
        bytes[end..].copy_from_slice(&checksum.to_be_bytes());
    }
    let Some((prefix, following)) = bytes.split_first_chunk::<PREFIX_LEN>() else { return };
    if decode_prefix(prefix).is_err() {
        return;
    }
    if let Ok(hello) = Hello::decode(prefix, following) {
        let own = Own { cluster_name: "Test Cluster", host: HostId([1; 16]), versions: Versions::SPOKEN };
        let _ = judge(own, &hello);
    }
    if let Ok(answer) = HelloAnswer::decode(prefix, following) {
        let _ = answer.encode();
    }
}

#[test]
fn bytes_from_the_network() {
    let others = corpus(&folder());
    hunt("rpc", |random| {
        let at = random.below(others.len());
        let mut bytes = others[at].clone();
        change(random, &mut bytes, &others);
        let fixed = random.one_in(2);
        // The first three are frames, the others greetings.
        if at < 3 {
            if fixed {
                fix_checksums(&mut bytes);
            }
            read_frames(random, &bytes);
        } else {
            read_hello(&mut bytes, fixed);
        }
    });
}
