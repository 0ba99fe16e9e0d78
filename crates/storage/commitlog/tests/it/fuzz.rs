//! Fuzzers of the log: entries, and segments with chunks and checksums around them, changed at random. Whatever the bytes
//! say, reading ends with updates or an error; it does not panic, go on without end, or take memory for what a hostile
//! length promises.
//!
//! The corpus is `testdata/fuzz`. It is also what the format is: `UPDATE=1 cargo test -p commitlog` writes it again, and
//! a change there means that logs of an earlier version may not be readable any more.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use commitlog::codec::{decode_update, encode_update};
use commitlog::entry::{Checkpoint, encode_updates, updates};
use commitlog::segment::{CHUNK_HEADER_LEN, ChunkHeader, ENTRY_HEADER_LEN, HEADER_LEN, SegmentHeader, scan};
use commitlog::{CommitLog, CommitLogConfig};
use mutation::{
    Bound, Cell, Clustering, ColumnData, Complex, ComplexCell, DecoratedKey, DeletionTime, LivenessInfo,
    PartitionUpdate, RangeTombstone, Row, Side,
};
use rt::{Group, IoBuf, LocalBoxFuture, OpenOptions, Rt, ShardId, ShardMain};
use rt_sim::{Config, NodeConfig, Simulation};
use schema::{Table, TableBuilder, TableId};
use testkit::fuzz::{Random, change, corpus, hunt};
use types::CqlType;

const TABLE: TableId = TableId([7; 16]);
const SEGMENT_LEN: usize = 16 << 10;
const HEADER: SegmentHeader = SegmentHeader {
    shard: 0,
    shard_count: 1,
    id: 3,
    salt: 0x8f31_2d4e_5566_7a1b,
    before: 0,
    bytes: SEGMENT_LEN as u64,
};

fn table() -> Arc<Table> {
    let map = CqlType::map(CqlType::Text, CqlType::Int, false);
    TableBuilder::new("ks", "t", TABLE)
        .partition_key("pk", CqlType::Blob)
        .clustering("c1", CqlType::Int, false)
        .clustering("c2", CqlType::Text, true)
        .static_column("s", CqlType::Blob)
        .regular("v", CqlType::Blob)
        .regular("w", CqlType::Int)
        .regular("m", map)
        .build_known()
}

fn clustering(table: &Table, number: i32, text: Option<&str>) -> Clustering {
    Clustering::new(table, &[Some(&number.to_be_bytes()), text.map(str::as_bytes)])
}

/// An update with one of everything.
fn full(table: &Arc<Table>) -> PartitionUpdate {
    let id = |name: &str| table.column(name).unwrap().id;
    let mut update = PartitionUpdate::new(table.clone(), DecoratedKey::new(Bytes::from_static(b"full")));
    update.add_deletion(DeletionTime::new(90, 1_700_000_000));
    let mut fixed = Row::new(Clustering::empty());
    fixed.set(id("s"), ColumnData::Simple(Cell::live(100, Bytes::from_static(b"static"))));
    update.add_static(fixed);
    let bound = |number: i32, side| Bound::new(table, &[Some(&number.to_be_bytes())], side);
    for (start, end) in
        [(bound(1, Side::Before), bound(4, Side::After)), (Bound::bottom(), bound(-7, Side::Before))]
    {
        let deletion = DeletionTime::new(95, 1_700_000_001);
        update.add_range_tombstone(RangeTombstone { start, end, deletion });
    }
    for number in 0..3 {
        let mut row = Row::new(clustering(table, number, (number > 0).then_some("text")));
        row.liveness = LivenessInfo::expiring(100 + i64::from(number), 600, 1_700_000_600);
        row.deletion = DeletionTime::new(98, 1_700_000_002);
        row.set(id("v"), ColumnData::Simple(Cell::tombstone(101, 1_700_000_003)));
        row.set(id("w"), ColumnData::Simple(Cell::expiring(101, 60, 1_700_000_060, vec![0, 0, 0, 9].into())));
        let element = |path: &'static str, value: i32| ComplexCell {
            path: Bytes::from_static(path.as_bytes()),
            cell: Cell::live(102, Bytes::copy_from_slice(&value.to_be_bytes())),
        };
        let cells = vec![element("a", 1), element("b", 2)];
        let deletion = DeletionTime::new(99, 1_700_000_004);
        row.set(id("m"), ColumnData::Complex(Complex { deletion, cells }));
        update.add_row(row);
    }
    update
}

/// An update as most writes make it.
fn small(table: &Arc<Table>, number: i32) -> PartitionUpdate {
    let key = Bytes::copy_from_slice(&number.to_be_bytes());
    let mut update = PartitionUpdate::new(table.clone(), DecoratedKey::new(key));
    let mut row = Row::new(clustering(table, number, Some("c")));
    row.liveness = LivenessInfo::forever(1_000);
    let value = Bytes::from(vec![number as u8; 30]);
    row.set(table.column("v").unwrap().id, ColumnData::Simple(Cell::live(1_000, value)));
    update.add_row(row);
    update
}

fn update_samples() -> Vec<(&'static str, Vec<u8>)> {
    let table = table();
    let encoded = |update: &PartitionUpdate| {
        let mut out = Vec::new();
        encode_update(update, &mut out);
        out
    };
    let mut deletion = PartitionUpdate::new(table.clone(), DecoratedKey::new(Bytes::from_static(b"gone")));
    deletion.add_deletion(DeletionTime::new(5, 1_700_000_000));
    vec![
        ("deletion", encoded(&deletion)),
        ("full", encoded(&full(&table))),
        ("small", encoded(&small(&table, 1))),
    ]
}

fn entry_samples() -> Vec<(&'static str, Vec<u8>)> {
    let table = table();
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
fn the_corpus_is_what_is_written_today() {
    for (kind, samples) in
        [("update", update_samples()), ("entry", entry_samples()), ("segment", segment_samples())]
    {
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
        let _ = decode_update(&part, |id| (id == TABLE).then(table));
    }
    found
}

#[test]
fn update() {
    let corpus = corpus(&folder("update"));
    hunt("commitlog update", |random| {
        let mut bytes = random.of(&corpus).clone();
        change(random, &mut bytes, &corpus);
        if let Ok(Some(read)) = decode_update(&Bytes::from(bytes), |_| Some(table())) {
            // What was read can be written, and is the same when it is read again.
            let mut again = Vec::new();
            encode_update(&read, &mut again);
            let second = decode_update(&Bytes::from(again), |_| Some(table())).unwrap().unwrap();
            assert_eq!((second.rows(), &second.static_row), (read.rows(), &read.static_row));
        }
    });
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
fn mend(bytes: &mut [u8]) {
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
            for (_, body) in entries {
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
    // Most of a segment is zeros; what is changed is the header, or something where chunks are.
    let start = if random.one_in(8) { 0 } else { HEADER_LEN };
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(start, |at| at + 64).clamp(start, bytes.len());
    let mut part = bytes[start..end].to_vec();
    change(random, &mut part, corpus);
    bytes.splice(start..end, part);
    if !random.one_in(3) {
        mend(bytes);
    }
}
