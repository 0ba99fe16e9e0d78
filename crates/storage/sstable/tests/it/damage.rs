//! Damaged files: an error or the same answer, never a panic, never rows that were not written.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mutation::row::ColumnData;
use mutation::{
    Bound, Cell, Clustering, ColumnSelection, DecoratedKey, DeletionTime, Fragment, FragmentBuffer,
    PartitionRange, RangeTombstone, RangeTombstones, Row, Side, Slices,
};
use rt::Rt;
use schema::{Table, TableBuilder, TableId};
use sstable::dump::{DumpOptions, dump, table_of_header};
use sstable::reader::read_metadata;
use sstable::verify::verify;
use sstable::{
    Component, Descriptor, EncodingStats, NoCache, Sstable, SstableError, SstableSource, WriterOptions,
};
use types::CqlType;

use crate::generate::{Partition, Random, key, partitions, slices, table};
use crate::round_trip::{options, write};
use crate::support::{VERSIONS, fixtures, load, read, run};

async fn try_drain(mut source: SstableSource) -> Result<Vec<Fragment>, SstableError> {
    let mut buffer = FragmentBuffer::new();
    while source.fill_next(&mut buffer).await? {}
    Ok(buffer.into())
}

/// The reads of a file before and after it was damaged.
struct Questions {
    table: Arc<Table>,
    slices: Rc<Slices>,
    keys: Vec<mutation::DecoratedKey>,
}

impl Questions {
    async fn ask(&self, rt: &Rt, descriptor: &Descriptor) -> Result<Vec<Vec<Fragment>>, SstableError> {
        let sstable = Sstable::open(rt, descriptor.clone(), self.table.clone(), Rc::new(NoCache)).await?;
        let (all, every) = (PartitionRange::all(), Rc::new(ColumnSelection::All));
        let mut answers = vec![try_drain(sstable.scan(&all)).await?];
        for reversed in [false, true] {
            answers.push(try_drain(sstable.read(&all, &self.slices, &every, reversed)).await?);
        }
        for key in &self.keys {
            let single = PartitionRange::single(key);
            answers.push(try_drain(sstable.read(&single, &self.slices, &every, false)).await?);
        }
        Ok(answers)
    }
}

async fn put(rt: &Rt, path: &std::path::Path, bytes: &[u8]) {
    let _ = rt.disk().remove(path).await;
    crate::support::write(rt, path, bytes).await;
}

fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(2) {
        let at = random.below(bytes.len().max(1) as u64) as usize;
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.next() as u8),
            2 => {
                let end = (at + random.below(16) as usize).min(bytes.len());
                bytes[at..end].fill(0xff);
            }
            _ if bytes.is_empty() => {}
            _ => bytes[at] ^= 1 << random.below(8),
        }
    }
}

async fn fuzz(rt: Rt, seed: u64, until: Instant) -> u64 {
    let mut random = Random(seed);
    let table = table(&mut random);
    let mut partitions = partitions(&mut random, &table);
    partitions.truncate(40);
    let options = options(&mut random, &table, partitions.len());
    let encoding = EncodingStats { min_timestamp: -100, min_local_deletion: 800, min_ttl: 0 };
    let written = write(&rt, &format!("/fuzz/{seed}"), &table, &partitions, options, encoding).await;
    let descriptor = written.descriptor;
    let keys = partitions.iter().take(5).map(|partition| partition.key.clone()).collect();
    let slices = Rc::new(slices(&mut random, &table));
    let questions = Questions { table, slices, keys };
    let sound = questions.ask(&rt, &descriptor).await.unwrap();
    assert!(verify(&rt, &descriptor).await.unwrap().problems.is_empty());
    let mut rounds = 0;
    for _ in 0..60 {
        let component = Component::ALL[random.below(10) as usize];
        let path = descriptor.path(component);
        if !rt.disk().exists(&path).await.unwrap() {
            continue;
        }
        let before = read(&rt, &path).await;
        let mut after = before.clone();
        damage(&mut random, &mut after);
        if after == before {
            continue;
        }
        put(&rt, &path, &after).await;
        if let Ok(answers) = questions.ask(&rt, &descriptor).await {
            assert!(answers == sound, "seed {seed}: damage of {component:?} changes what is read");
        }
        let verified = verify(&rt, &descriptor).await.unwrap();
        if !matches!(component, Component::Toc | Component::Digest) {
            assert!(!verified.problems.is_empty(), "seed {seed}: damage of {component:?} is found");
        }
        let _ = dump(&rt, &descriptor, &DumpOptions::default(), &mut |_| {}).await;
        put(&rt, &path, &before).await;
        rounds += 1;
        if Instant::now() > until {
            break;
        }
    }
    rounds
}

#[test]
fn damage_is_noticed() {
    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let start = std::env::var("FUZZ_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut seed = start;
    while Instant::now() < until || seed == start {
        run(move |rt| async move {
            fuzz(rt, seed, until).await;
        });
        seed += 1;
    }
    println!("{} seeds", seed - start);
}

#[test]
fn sound_files_verify() {
    run(|rt| async move {
        for (version, name) in
            VERSIONS.iter().flat_map(|v| fixtures(v.name()).into_iter().map(|n| (v.name(), n)))
        {
            let descriptor = load(&rt, version, &name).await;
            let found = verify(&rt, &descriptor).await.unwrap();
            assert!(found.problems.is_empty(), "{version} {name}: {:?}", found.problems);
            assert!(found.partitions > 0 && found.bytes > 0);
        }
    });
}

#[test]
fn errors_have_place_and_reason() {
    run(|rt| async move {
        let descriptor = load(&rt, "nb", "wide").await;
        let path = descriptor.path(Component::Data);
        let mut bytes = read(&rt, &path).await;
        bytes[5000] ^= 4;
        put(&rt, &path, &bytes).await;
        let metadata = read_metadata(rt.disk(), &descriptor).await.unwrap();
        let table = Arc::new(table_of_header(&metadata.header).unwrap());
        let sstable = Sstable::open(&rt, descriptor.clone(), table, Rc::new(NoCache)).await.unwrap();
        let error = try_drain(sstable.scan(&PartitionRange::all())).await.unwrap_err();
        let SstableError::Corrupt(corruption) = &error else { panic!("{error}") };
        assert_eq!(corruption.file, path);
        assert!(corruption.expected.starts_with("checksum ") && corruption.offset <= 5000, "{error}");
        assert!(verify(&rt, &descriptor).await.unwrap().problems.len() >= 2);
    });
}

#[test]
fn unfinished_files_are_left_out_and_removed() {
    run(|rt| async move {
        let mut random = Random(3);
        let table = table(&mut random);
        let partitions = partitions(&mut random, &table);
        let options = options(&mut random, &table, 1);
        let written = write(&rt, "/left", &table, &partitions, options.clone(), EncodingStats::NONE).await;
        let unfinished =
            sstable::SstableWriter::new(&rt, "/left", 2, table.clone(), options.clone(), EncodingStats::NONE);
        drop(unfinished.await.unwrap());
        assert_eq!(
            sstable::list_complete(rt.disk(), "/left".as_ref()).await.unwrap(),
            std::slice::from_ref(&written.descriptor)
        );
        assert_eq!(sstable::remove_unfinished(rt.disk(), "/left".as_ref()).await.unwrap(), 1);
        assert_eq!(sstable::remove_unfinished(rt.disk(), "/left".as_ref()).await.unwrap(), 0);
        // An SSTable that lacks its TOC for another reason is no leftover.
        let toc = written.descriptor.path(Component::Toc);
        let bytes = read(&rt, &toc).await;
        rt.disk().remove(&toc).await.unwrap();
        assert_eq!(sstable::remove_unfinished(rt.disk(), "/left".as_ref()).await.unwrap(), 0);
        assert!(rt.disk().exists(written.descriptor.path(Component::Data)).await.unwrap());
        put(&rt, &toc, &bytes).await;
        // Without a partition there is no SSTable.
        let empty =
            sstable::SstableWriter::new(&rt, "/left", 3, table, options, EncodingStats::NONE).await.unwrap();
        assert!(empty.finish().await.unwrap().bounds.is_none());
        sstable::remove(rt.disk(), &written.descriptor).await.unwrap();
        assert!(rt.disk().list("/left").await.unwrap().is_empty());
    });
}

/// The byte of the statistics that says that a counter has local or remote shards: they would be merged as if all were global.
#[test]
fn counters_from_before_cassandra_2_1_are_refused_by_name() {
    run(|rt| async move {
        let descriptor = load(&rt, "mc", "plain").await;
        let metadata = read_metadata(rt.disk(), &descriptor).await.unwrap();
        assert!(!metadata.stats.has_legacy_counter_shards);
        let table = Arc::new(table_of_header(&metadata.header).unwrap());
        let path = descriptor.path(Component::Statistics);
        let mut bytes = read(&rt, &path).await;
        // The last component is the header; that of the statistics ends before it, with columns, rows, a position, and intervals of two.
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let starts: Vec<(usize, usize)> = (0..word(0)).map(|n| (word(4 + 8 * n), word(8 + 8 * n))).collect();
        let header = starts.iter().find(|(kind, _)| *kind == 3).expect("it has a header").1;
        let flag = header - (8 + 8 + 12 + 4 + 24 * metadata.stats.commit_log_intervals.len()) - 1;
        assert_eq!(std::mem::replace(&mut bytes[flag], 1), 0);
        put(&rt, &path, &bytes).await;
        let metadata = read_metadata(rt.disk(), &descriptor).await.unwrap();
        assert!(metadata.stats.has_legacy_counter_shards, "the byte is the flag's");
        let refused = Sstable::open(&rt, descriptor.clone(), table, Rc::new(NoCache)).await;
        let error = refused.err().expect("it is refused");
        assert!(matches!(&error, SstableError::Unsupported { file, .. } if *file == path), "{error}");
        assert!(!error.is_corruption());
        let text = error.to_string();
        assert!(text.contains("remote counter shards") && text.contains("COPY of cqlsh"), "{text}");
    });
}

/// A partition of so many rows, with range deletions that are open over some of them; and a small one.
async fn wide(rt: &Rt, dir: &str, rows: i32) -> (Descriptor, u32) {
    let table = TableBuilder::new("ks", "t", TableId([7; 16]))
        .partition_key("k", CqlType::Int)
        .clustering("c", CqlType::Int, false)
        .regular("v", CqlType::Int)
        .build_known();
    let column = table.column("v").unwrap().id;
    let bound = |c: i32, side| Bound::new(&table, &[Some(&c.to_be_bytes())], side);
    let partition = |(key, rows): (DecoratedKey, i32)| {
        let row = |c: i32| {
            let mut row = Row::new(Clustering::new(&table, &[Some(&c.to_be_bytes())]));
            row.set(column, ColumnData::Simple(Cell::live(9, Bytes::copy_from_slice(&c.to_be_bytes()))));
            row
        };
        let mut ranges = RangeTombstones::new();
        for quarter in [0, 2] {
            let (start, end) =
                (bound(rows / 4 * quarter, Side::Before), bound(rows / 4 * (quarter + 1), Side::After));
            ranges.insert(RangeTombstone { start, end, deletion: DeletionTime::new(5, 1_000) });
        }
        let rows = (0..rows).map(row).collect();
        Partition { key, deletion: DeletionTime::LIVE, static_row: None, rows, ranges }
    };
    let mut partitions: Vec<Partition> = [(key(1), rows), (key(2), 3)].into_iter().map(partition).collect();
    partitions.sort_by(|a, b| a.key.cmp(&b.key));
    let options = WriterOptions { column_index_len: 1 << 10, ..WriterOptions::for_table(&table, 2) };
    let encoding = EncodingStats { min_timestamp: 0, min_local_deletion: 800, min_ttl: 0 };
    let written = write(rt, dir, &table, &partitions, options, encoding).await;
    let index = read(rt, &written.descriptor.path(Component::Index)).await;
    (written.descriptor, index.len() as u32)
}

#[test]
fn a_wide_partition_is_compared_with_its_row_index_block_by_block() {
    run(|rt| async move {
        let mut held = Vec::new();
        for rows in [2_000, 120_000] {
            let (descriptor, _) = wide(&rt, &format!("/wide/{rows}"), rows).await;
            let found = verify(&rt, &descriptor).await.unwrap();
            assert!(found.problems.is_empty(), "{:?}", found.problems);
            assert_eq!((found.partitions, found.rows), (2, rows as u64 + 3));
            held.push(found.held_bytes_max);
        }
        assert!(held[0] > 0 && held[1] <= 256, "bytes of positions for 2,000 and 120,000 rows: {held:?}");
    });
}

#[test]
fn every_difference_between_a_row_index_and_its_partition_is_found() {
    run(|rt| async move {
        let (descriptor, len) = wide(&rt, "/wide", 2_000).await;
        let path = descriptor.path(Component::Index);
        // Without its checksums the comparison is all that finds them.
        rt.disk().remove(descriptor.path(Component::Torc)).await.unwrap();
        let sound = read(&rt, &path).await;
        assert!(verify(&rt, &descriptor).await.unwrap().problems.is_empty());
        let mut unnoticed = Vec::new();
        for at in 0..len as usize {
            let mut damaged = sound.clone();
            damaged[at] ^= 1 << (at % 8);
            put(&rt, &path, &damaged).await;
            if verify(&rt, &descriptor).await.unwrap().problems.is_empty() {
                unnoticed.push(at);
            }
        }
        // The local time of the deletion that the partition does not have means nothing.
        let is_one_time =
            unnoticed.first().zip(unnoticed.last()).is_none_or(|(first, last)| last - first < 4);
        assert!(is_one_time && len > 700, "bytes {unnoticed:?} of {len}");
        put(&rt, &path, &sound).await;
        assert!(verify(&rt, &descriptor).await.unwrap().problems.is_empty());
    });
}
