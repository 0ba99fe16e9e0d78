//! Fuzzers of the log: entries, and segments with chunks and checksums around them, changed at random. For any bytes
//! reading ends with updates or an error; it does not panic, run without end, or allocate the memory that a hostile
//! length promises.
//!
//! The corpus is `testdata/fuzz`. It also defines the format: `UPDATE=1 cargo test -p commitlog` writes it again, and
//! a change there means that logs of an earlier version may not be readable any more.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use commitlog::entry::{Checkpoint, encode_updates, updates};
use commitlog::segment::{CHUNK_HEADER_LEN, ChunkHeader, ENTRY_HEADER_LEN, HEADER_LEN, SegmentHeader, scan};
use commitlog::{CommitLog, CommitLogConfig};
use mutation::codec::{Version, decode_update};
use rt::{Group, IoBuf, LocalBoxFuture, OpenOptions, Rt, ShardId, ShardMain};
use rt_sim::{Config, NodeConfig, Simulation};
use schema::TableId;
use testkit::fuzz::{Random, change, corpus, hunt};
use testkit::updates::{TABLE, full, small, small_table};

const SEGMENT_LEN: usize = 16 << 10;
const HEADER: SegmentHeader = SegmentHeader {
    shard: 0,
    shard_count: 1,
    id: 3,
    salt: 0x8f31_2d4e_5566_7a1b,
    before: 0,
    bytes: SEGMENT_LEN as u64,
    mutations: Version::CURRENT,
};

fn entry_samples() -> Vec<(&'static str, Vec<u8>)> {
    let table = small_table();
    let mut batch = Vec::new();
    encode_updates(&[full(&table), small(&table, 2), small(&table, 3)], &mut batch);
    let mut checkpoint = Vec::new();
    let flushed = [(TABLE, 2), (TableId([9; 16]), 400)].into();
    Checkpoint { flushed, tails: [(2, 17)].into() }.encode(&mut checkpoint);
    let mut single = Vec::new();
    encode_updates(&[small(&table, 4)], &mut single);
    vec![("batch", batch), ("checkpoint", checkpoint), ("single", single)]
}

/// A segment of chunks with these entries.
fn segment(chunks: &[Vec<Vec<u8>>], is_ended: bool) -> Vec<u8> {
    let mut bytes = HEADER.encode();
    let mut number = 1;
    let mut put = |entries: &[Vec<u8>], is_end: bool| {
        let (first, mut content) = (number, Vec::new());
        for body in entries {
            content.extend_from_slice(&(body.len() as u32).to_be_bytes());
            content.extend_from_slice(&HEADER.entry_crc(number, body).to_be_bytes());
            content.extend_from_slice(body);
            number += 1;
        }
        let total = (CHUNK_HEADER_LEN + content.len()).next_multiple_of(8);
        let entries_len = content.len() as u32;
        let header = ChunkHeader {
            total_len: total as u32,
            entries_len,
            first,
            synced: first.saturating_sub(1),
            is_end,
        };
        let at = bytes.len();
        bytes.extend_from_slice(&header.encode(&HEADER));
        bytes.extend_from_slice(&content);
        bytes.resize(at + total, 0);
    };
    chunks.iter().for_each(|entries| put(entries, false));
    if is_ended {
        put(&[], true);
    }
    assert!(bytes.len() <= SEGMENT_LEN);
    bytes.resize(SEGMENT_LEN, 0);
    bytes
}

fn segment_samples() -> Vec<(&'static str, Vec<u8>)> {
    let bodies: Vec<Vec<u8>> = entry_samples().into_iter().map(|(_, body)| body).collect();
    let chunks = [bodies.clone(), bodies[..1].to_vec(), bodies];
    vec![("ended", segment(&chunks, true)), ("open", segment(&chunks[..2], false))]
}

fn folder(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/fuzz").join(kind)
}

#[test]
fn the_corpus_equals_the_present_encoding() {
    for (kind, samples) in [("entry", entry_samples()), ("segment", segment_samples())] {
        for (name, bytes) in samples {
            let path = folder(kind).join(name);
            if std::env::var_os("UPDATE").is_some() {
                std::fs::create_dir_all(folder(kind)).unwrap();
                std::fs::write(&path, &bytes).unwrap();
            }
            assert!(std::fs::read(&path).unwrap() == bytes, "{kind}/{name} is written otherwise");
        }
    }
}

/// Reads an entry as recovery does; how many updates are in it.
fn read_entry(body: Vec<u8>) -> usize {
    let body = Bytes::from(body);
    if let Some(checkpoint) = Checkpoint::decode(&body) {
        assert!(checkpoint.flushed.len() + checkpoint.tails.len() <= body.len());
    }
    let mut found = 0;
    for part in updates(&body).into_iter().flatten() {
        found += 1;
        assert!(found <= body.len(), "more updates than bytes");
        let Ok((at, part)) = part else { break };
        assert_eq!(part, body.slice(at..at + part.len()), "an offset says where its update lies");
        let _ = decode_update(Version::V1, &part, |id| (id == TABLE).then(small_table));
    }
    found
}

#[test]
fn entry() {
    let corpus = corpus(&folder("entry"));
    assert!(corpus.iter().map(|body| read_entry(body.clone())).sum::<usize>() >= 4);
    hunt("commitlog entry", |random| {
        let mut bytes = random.of(&corpus).clone();
        change(random, &mut bytes, &corpus);
        read_entry(bytes);
    });
}

/// Gives entries and chunks their checksums again, as far as their lengths still lead from one to the next.
fn fix_checksums(bytes: &mut [u8]) {
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).map(|four| u32::from_be_bytes(four.try_into().unwrap()) as usize)
    };
    let mut at = HEADER_LEN;
    while let (Some(total), Some(entries)) = (word(bytes, at + 8), word(bytes, at + 12)) {
        if total < CHUNK_HEADER_LEN || at + CHUNK_HEADER_LEN > bytes.len() {
            return;
        }
        let mut number = word(bytes, at + 20).unwrap_or(0) as u64;
        let end = at.saturating_add(CHUNK_HEADER_LEN + entries).min(bytes.len());
        let mut entry = at + CHUNK_HEADER_LEN;
        while let Some(len) = word(bytes, entry)
            && let Some(body) = bytes.get(entry + ENTRY_HEADER_LEN..entry + ENTRY_HEADER_LEN + len)
            && entry + ENTRY_HEADER_LEN + len <= end
        {
            let crc = HEADER.entry_crc(number, body).to_be_bytes();
            bytes[entry + 4..entry + 8].copy_from_slice(&crc);
            entry += ENTRY_HEADER_LEN + len;
            number += 1;
        }
        let mut crc = crc32fast::Hasher::new();
        crc.update(&HEADER.id.to_be_bytes());
        crc.update(&HEADER.salt.to_be_bytes());
        crc.update(&bytes[at + 8..at + CHUNK_HEADER_LEN]);
        let crc = crc.finalize().to_be_bytes();
        bytes[at + 4..at + 8].copy_from_slice(&crc);
        at += total;
    }
}

/// Opens a log of this one segment in a simulated node, and reads everything in it.
fn recover(bytes: Vec<u8>) {
    let sim = Simulation::new(1, Config::default());
    let node = sim.add_node(NodeConfig::default(), |_| {
        let main: ShardMain = Box::new(|_| Box::pin(std::future::pending()) as LocalBoxFuture<()>);
        vec![main]
    });
    sim.start(node);
    let rt = sim.rt(node, ShardId(0)).unwrap();
    let task = rt.spawn(Group::Statement, recovered(rt.clone(), bytes));
    sim.run_until(|| task.is_finished()).unwrap();
}

async fn recovered(rt: Rt, bytes: Vec<u8>) {
    rt.disk().create_dir_all("/log").await.unwrap();
    let options = OpenOptions { truncate: true, ..OpenOptions::READ_WRITE };
    let file = rt.disk().open("/log/commitlog-0-3.log", options).await.unwrap();
    file.write_at(0, IoBuf::copy_of(&bytes)).await.unwrap();
    for ignore_errors in [false, true] {
        let config = CommitLogConfig {
            segment_bytes: SEGMENT_LEN as u64,
            ignore_errors,
            ..CommitLogConfig::new("/log".into())
        };
        let Ok((log, mut recovery)) = CommitLog::open(&rt, config, false).await else { continue };
        while let Ok(Some(entries)) = recovery.next_segment().await {
            for (_, body) in entries.entries {
                read_entry(body.to_vec());
            }
        }
        let _ = log.close().await;
        return;
    }
}

#[test]
fn segments() {
    let corpus = corpus(&folder("segment"));
    hunt("commitlog segments", |random| {
        let mut bytes = random.of(&corpus).clone();
        damage(random, &mut bytes, &corpus);
        let header = SegmentHeader::decode(&bytes).unwrap_or(HEADER);
        let found = scan(&bytes, &header, HEADER_LEN, 0);
        assert!(found.entries.len() <= bytes.len() / ENTRY_HEADER_LEN);
        assert!(found.entries.windows(2).all(|pair| pair[0].number < pair[1].number));
        if random.one_in(4) {
            recover(bytes);
        }
    });
}

fn damage(random: &mut Random, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    // Most of a segment is zeros; changes hit the header, or something where chunks are.
    let start = if random.one_in(8) { 0 } else { HEADER_LEN };
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(start, |at| at + 64).clamp(start, bytes.len());
    let mut part = bytes[start..end].to_vec();
    change(random, &mut part, corpus);
    bytes.splice(start..end, part);
    if !random.one_in(3) {
        fix_checksums(bytes);
    }
}
