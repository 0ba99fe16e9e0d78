//! Streaming between nodes: complete, in order, bounded, and none of it lost or doubled by cuts and crashes.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use rt::{IoBuf, LocalBoxFuture, OpenOptions};
use rt_sim::{Begun, Config, LinkConfig, Sim};
use streaming::transfer::{
    FileRange, FileSink, FileSource, Item, ItemKind, Piece, Plan, Position, Source, StreamError, Summary,
    TransferId, refusal,
};

use crate::nodes::*;

const ID: TransferId = TransferId([42; 16]);
/// The lengths of the files that are sent; one is empty, one a single byte.
const LENGTHS: [usize; 5] = [300_000, 0, 1, 2_000_000, 65_536];
/// The offset in each file of the part that is sent.
const START: usize = 777;

fn file_plan() -> Plan {
    let item = |length: usize| Item {
        kind: ItemKind::File,
        length: Some(length as u64),
        descriptor: Bytes::from_static(b"Data.db"),
    };
    Plan::new(ID, Bytes::from_static(b"files"), LENGTHS.map(item).into()).unwrap()
}

/// Writes the files on node 0; returns the ranges to send.
fn files(sim: &Sim) -> Vec<FileRange> {
    let writing = begin(sim, 0, |rt, _| async move {
        rt.disk().create_dir_all("/data").await.unwrap();
        for (index, length) in LENGTHS.into_iter().enumerate() {
            let path = format!("/data/{index}");
            let file = rt.disk().open(&path, OpenOptions::READ_WRITE).await.unwrap();
            let bytes = content(START + length + 55, index as u32);
            file.write_at(0, IoBuf::copy_of(&bytes)).await.unwrap();
            file.sync_all().await.unwrap();
        }
    });
    join(sim, writing);
    let range = |(index, length): (usize, usize)| FileRange {
        path: format!("/data/{index}").into(),
        start: START as u64,
        length: length as u64,
        checksum: None,
    };
    LENGTHS.into_iter().enumerate().map(range).collect()
}

fn send_files(sim: &Sim, ranges: Vec<FileRange>, rate: Option<u64>) -> Begun<Result<Summary, StreamError>> {
    begin(sim, 0, move |rt, sender| async move {
        sender.set_bandwidth(rate);
        let source = FileSource::new(rt.disk(), ranges);
        sender.send(to(1), &file_plan(), &source).await
    })
}

fn check_files(sim: &Sim) {
    for (index, length) in LENGTHS.into_iter().enumerate() {
        let there = sim.read_file(sim.node(1), FileSink::path_of(&folder(ID), index as u32));
        let sent = content(START + length + 55, index as u32).slice(START..START + length);
        assert!(there.as_deref() == Some(&sent[..]), "file {index} of {length} bytes");
    }
}

#[test]
fn files_arrive_whole() {
    let sim = start(1, Config::default());
    let ranges = files(&sim);
    let sending = send_files(&sim, ranges, None);
    let summary = join(&sim, sending).unwrap();
    assert_eq!(summary, Summary { bytes: LENGTHS.iter().sum::<usize>() as u64, resumed: 0 });
    check_files(&sim);
    assert!(node(1).receiver.progress().is_empty());
    let leftover: Vec<_> =
        sim.files(sim.node(1)).into_iter().filter(|(path, _)| path.ends_with("tmp")).collect();
    assert!(leftover.is_empty());
}

#[test]
fn a_cut_in_the_middle_costs_only_the_bytes_in_flight() {
    for seed in 0..20 {
        let sim = start(100 + seed, Config::default());
        let ranges = files(&sim);
        let sending = send_files(&sim, ranges, Some(4_000_000));
        let mut cuts = 0;
        for _ in 0..3 {
            sim.run_for(Duration::from_millis(100 + seed * 7));
            if !sending.is_finished() {
                sim.reset_connections(sim.node(0), sim.node(1));
                cuts += 1;
            }
        }
        let summary = join(&sim, sending).unwrap();
        assert!(summary.resumed >= 1 && summary.resumed <= cuts, "seed {seed}: {summary:?}, {cuts} cuts");
        check_files(&sim);
        let received = node(1).messenger.stats().verb(rpc::Verb::StreamChunk).received_bytes;
        let most = LENGTHS.iter().sum::<usize>() as u64 + u64::from(cuts) * (600 << 10);
        assert!(received <= most, "seed {seed}: {received} of at most {most}");
    }
}

#[test]
fn a_receiver_that_crashes_resumes_at_the_durable_position() {
    for seed in 0..20 {
        let sim = start(200 + seed, Config::default());
        let ranges = files(&sim);
        let sending = send_files(&sim, ranges, Some(2_000_000));
        sim.run_for(Duration::from_millis(200 + seed * 40));
        match seed % 2 {
            0 => sim.crash(sim.node(1)),
            _ => sim.kill(sim.node(1)),
        }
        sim.run_for(Duration::from_secs(3));
        assert!(!sending.is_finished(), "seed {seed}");
        sim.start(sim.node(1));
        let summary = join(&sim, sending).unwrap();
        assert!(summary.resumed >= 1, "seed {seed}: {summary:?}");
        check_files(&sim);
    }
}

#[test]
fn a_sender_that_crashes_resumes_where_the_receiver_is() {
    let sim = start(300, Config::default());
    let ranges = files(&sim);
    let first = send_files(&sim, ranges.clone(), Some(2_000_000));
    sim.run_for(Duration::from_millis(800));
    let before = node(1).receiver.progress();
    assert_eq!(before.len(), 1);
    assert_eq!((before[0].0, before[0].1), (ID, host(0)));
    assert!(before[0].2.bytes_done > 500_000, "{before:?}");
    sim.kill(sim.node(0));
    drop(first);
    sim.start(sim.node(0));
    sim.run_for(Duration::from_millis(100));
    let again = send_files(&sim, ranges, None);
    let summary = join(&sim, again).unwrap();
    assert_eq!(summary.resumed, 1);
    check_files(&sim);
    let after = node(0).messenger.stats().verb(rpc::Verb::StreamChunk).sent_bytes;
    let all = LENGTHS.iter().sum::<usize>() as u64;
    assert!(after + before[0].2.bytes_done < all + (600 << 10), "{after}");
}

#[test]
fn the_limit_of_bandwidth_holds_and_can_be_changed() {
    let sim = start(400, Config::default());
    let ranges = files(&sim);
    let begun = sim.now();
    let sending = send_files(&sim, ranges, Some(500_000));
    sim.run_for(Duration::from_secs(2));
    let progress = node(1).receiver.progress()[0].2;
    assert!((800_000..1_200_000).contains(&progress.bytes_done), "{progress:?}");
    assert!((400_000..600_000).contains(&progress.rate), "{progress:?}");
    let remaining = progress.remaining.expect("the length is known");
    assert!(remaining > Duration::from_secs(2) && remaining < Duration::from_secs(4), "{remaining:?}");
    join(&sim, sending).unwrap();
    let took = sim.now() - begun;
    assert!(took > Duration::from_millis(4_400) && took < Duration::from_millis(5_200), "{took:?}");
}

/// Rows as a source that knows its place only by cursors: row N is the number N, so many times.
struct RowSource {
    rows: u32,
    reads: Rc<Cell<usize>>,
}

fn row(number: u32) -> Vec<u8> {
    number.to_be_bytes().repeat(1 + number as usize % 500)
}

impl Source for RowSource {
    fn read(&self, from: Position, len_max: usize) -> LocalBoxFuture<Result<Piece, String>> {
        self.reads.set(self.reads.get() + 1);
        let rows = self.rows;
        Box::pin(async move {
            let first = match &from.cursor[..] {
                [] => 0,
                cursor => u32::from_be_bytes(cursor.try_into().map_err(|_| "no cursor of this source")?),
            };
            let (mut data, mut next) = (Vec::new(), first);
            while next < rows && data.len() + row(next).len() <= len_max {
                data.extend(row(next));
                next += 1;
            }
            let cursor = Bytes::copy_from_slice(&next.to_be_bytes());
            Ok(Piece { data: data.into(), cursor, last: next == rows })
        })
    }
}

fn row_plan(purpose: &'static [u8]) -> Plan {
    let item = Item { kind: ItemKind::Rows, length: None, descriptor: Bytes::new() };
    Plan::new(ID, Bytes::from_static(purpose), vec![item]).unwrap()
}

fn send_rows(sim: &Sim, count: u32) -> (Begun<Result<Summary, StreamError>>, Rc<Cell<usize>>) {
    let reads = Rc::new(Cell::new(0));
    let source = RowSource { rows: count, reads: Rc::clone(&reads) };
    let begun =
        begin(sim, 0, move |_, sender| async move { sender.send(to(1), &row_plan(b"rows"), &source).await });
    (begun, reads)
}

#[test]
fn rows_arrive_once_and_in_order_whatever_is_cut() {
    for seed in 0..20 {
        let sim = start(500 + seed, Config::default());
        rows(|rows| rows.write_takes = Duration::from_millis(5));
        let (sending, _) = send_rows(&sim, 3_000);
        for cut in 0..3 {
            sim.run_for(Duration::from_millis(40 + seed * 3));
            match (seed + cut) % 3 {
                0 => sim.reset_connections(sim.node(0), sim.node(1)),
                1 => {
                    sim.kill(sim.node(1));
                    sim.start(sim.node(1));
                }
                _ => {
                    sim.partition(sim.node(0), sim.node(1));
                    sim.run_for(Duration::from_secs(8));
                    sim.heal_all();
                }
            }
        }
        join(&sim, sending).unwrap();
        let expected: Vec<u8> = (0..3_000).flat_map(row).collect();
        rows(|rows| {
            assert!(
                rows.written == expected,
                "seed {seed}: {} of {} bytes",
                rows.written.len(),
                expected.len()
            );
            assert_eq!(rows.closed, [true], "seed {seed}");
            assert_eq!(rows.most_at_once, 1, "seed {seed}");
        });
    }
}

/// The connection breaks while the sink is busy: the chunk comes again before it is written.
#[test]
fn a_chunk_that_comes_again_is_written_once() {
    let sim = start(540, Config::default());
    rows(|rows| rows.write_takes = Duration::from_secs(2));
    let (sending, _) = send_rows(&sim, 50);
    sim.run_for(Duration::from_millis(100));
    sim.reset_connections(sim.node(0), sim.node(1));
    sim.run_for(Duration::from_secs(1));
    let chunks = node(1).messenger.stats().verb(rpc::Verb::StreamChunk).received;
    assert_eq!((chunks, rows(|rows| rows.written.len())), (2, 0), "it has come twice");
    join(&sim, sending).unwrap();
    let expected: Vec<u8> = (0..50).flat_map(row).collect();
    rows(|rows| {
        assert!(rows.written == expected, "{} of {} bytes", rows.written.len(), expected.len());
        assert_eq!(rows.most_at_once, 1);
    });
}

/// The connection breaks at every moment of a transfer of one chunk, the closing included.
#[test]
fn a_cut_at_the_end_closes_once() {
    let mut resumed = 0;
    for moment in 0..60u64 {
        let sim = start(550 + moment, Config::default());
        let (sending, _) = send_rows(&sim, 50);
        sim.run_for(Duration::from_micros(moment * 100));
        sim.reset_connections(sim.node(0), sim.node(1));
        resumed += join(&sim, sending).unwrap().resumed;
        let expected: Vec<u8> = (0..50).flat_map(row).collect();
        rows(|rows| {
            assert!(rows.written == expected, "moment {moment}");
            assert_eq!(rows.closed, [true], "moment {moment}");
        });
        assert!(
            node(1).receiver.progress().is_empty(),
            "moment {moment}: a complete transfer is not begun again"
        );
    }
    assert!(resumed > 5, "{resumed}: the moments lie in the transfers");
}

#[test]
fn a_slow_sink_slows_the_source() {
    let sim = start(600, Config::default());
    rows(|rows| rows.write_takes = Duration::from_millis(500));
    let (sending, reads) = send_rows(&sim, 3_000);
    sim.run_for(Duration::from_secs(3));
    let written = rows(|rows| rows.written.len());
    assert!(written > 0 && written <= 6 * (64 << 10));
    // The written bytes, the window, and the bytes read ahead.
    assert!(reads.get() <= 6 + 9 + 1, "{} reads", reads.get());
    let stats = node(1).messenger.stats();
    assert!(stats.inbound_bytes <= 600 << 10, "{stats:?}");
    rows(|rows| rows.write_takes = Duration::ZERO);
    join(&sim, sending).unwrap();
}

#[test]
fn a_sink_that_fails_is_reported_and_not_retried() {
    let sim = start(700, Config::default());
    rows(|rows| rows.fails = true);
    let (sending, _) = send_rows(&sim, 100);
    let Err(StreamError::Refused(refused)) = join(&sim, sending) else { panic!("it fails") };
    assert_eq!((refused.code, refused.message.as_str()), (refusal::SINK, "the disk is full"));
    assert!(node(1).receiver.progress().is_empty());
    let unwanted = begin(&sim, 0, |_, sender| async move {
        let source = RowSource { rows: 1, reads: Rc::default() };
        sender.send(to(1), &row_plan(b"something"), &source).await
    });
    let Err(StreamError::Refused(refused)) = join(&sim, unwanted) else { panic!("nobody wants it") };
    assert_eq!(refused.message, "nobody wants this");
}

#[test]
fn a_source_that_fails_ends_the_transfer() {
    let sim = start(800, Config::default());
    let mut ranges = files(&sim);
    ranges[3].path = "/data/gone".into();
    let sending = send_files(&sim, ranges, None);
    let Err(StreamError::Source(error)) = join(&sim, sending) else { panic!("it fails") };
    assert!(error.contains("/data/gone"), "{error}");
    let abandoning = begin(&sim, 0, |_, sender| async move { sender.abandon(to(1), ID).await });
    join(&sim, abandoning).unwrap();
    let kept: Vec<_> =
        sim.files(sim.node(1)).into_iter().filter(|(path, _)| path.starts_with(folder(ID))).collect();
    assert!(kept.is_empty(), "{kept:?}");
    assert!(sim.read_file(sim.node(0), Path::new("/data/0")).is_some());
}

#[test]
fn a_transfer_without_a_receiver_is_given_up() {
    let sim = start(900, Config::default());
    sim.kill(sim.node(1));
    let begun = sim.now();
    let (sending, _) = send_rows(&sim, 10);
    let gave_up = join(&sim, sending);
    assert!(matches!(gave_up, Err(StreamError::GaveUp(_))), "{gave_up:?}");
    let took = sim.now() - begun;
    assert!(took >= Duration::from_secs(120) && took < Duration::from_secs(150), "{took:?}");
}

#[test]
fn an_idle_transfer_is_forgotten_and_there_are_only_so_many() {
    let sim = start(1000, Config::default());
    rows(|rows| rows.write_takes = Duration::from_millis(100));
    let many: Vec<_> = (0..4u8)
        .map(|number| {
            begin(&sim, 0, move |rt, sender| async move {
                let item = Item { kind: ItemKind::Rows, length: None, descriptor: Bytes::new() };
                let plan =
                    Plan::new(TransferId([number; 16]), Bytes::from_static(b"rows"), vec![item]).unwrap();
                let source = RowSource { rows: 3_000, reads: Rc::default() };
                // Cut short: the receiver has a part.
                rt.timeout(Duration::from_secs(1), sender.send(to(1), &plan, &source)).await.is_err()
            })
        })
        .collect();
    sim.run_for(Duration::from_millis(500));
    assert_eq!(node(1).receiver.progress().len(), 3, "the fourth waits");
    for cut in many {
        assert!(join(&sim, cut));
    }
    sim.run_for(Duration::from_secs(400));
    assert!(node(1).receiver.progress().is_empty());
}

#[test]
fn lossy_and_slow_links_only_take_longer() {
    let sim = start(1100, Config::default());
    let link = LinkConfig {
        latency_max: Duration::from_millis(40),
        bandwidth: Some(2 << 20),
        loss_per_million: 20_000,
        reset_per_million: 2_000,
        ..LinkConfig::default()
    };
    for (from, target) in [(0, 1), (1, 0)] {
        sim.set_link(sim.node(from), sim.node(target), Some(link));
    }
    let ranges = files(&sim);
    let sending = send_files(&sim, ranges, None);
    join(&sim, sending).unwrap();
    check_files(&sim);
}
