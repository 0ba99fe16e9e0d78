//! Random data, written and read in every way that a reader has, against a plain filter of the input.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use mutation::{ColumnSelection, Fragment, FragmentBuffer, PartitionRange, RingPosition, Slices, Timestamp};
use rt::Rt;
use schema::{ColumnId, Table};
use sstable::{
    Algorithm, Block, BlockCache, BlockKey, Compression, EncodingStats, LargeThresholds, Sstable,
    SstableSource, SstableWriter, WriterOptions, Written,
};

use crate::generate::{Partition, Random, expected, key, partitions, slices, table};
use crate::support::run;

/// Keeps everything.
#[derive(Default)]
pub struct Cache {
    blocks: RefCell<BTreeMap<BlockKey, Block>>,
    files: RefCell<u64>,
}

impl BlockCache for Cache {
    fn new_file(&self) -> u64 {
        *self.files.borrow_mut() += 1;
        *self.files.borrow()
    }
    fn get(&self, key: BlockKey) -> Option<Block> {
        self.blocks.borrow().get(&key).cloned()
    }
    fn insert(&self, key: BlockKey, block: &Block) {
        self.blocks.borrow_mut().insert(key, block.clone());
    }
    fn forget_file(&self, file: u64) {
        self.blocks.borrow_mut().retain(|key, _| key.file != file);
    }
}

pub fn options(random: &mut Random, table: &Table, count: usize) -> WriterOptions {
    let algorithm = [Algorithm::Lz4, Algorithm::Zstd, Algorithm::Snappy, Algorithm::Deflate, Algorithm::Noop]
        [random.below(5) as usize];
    let chunk_len = 1024 << random.below(4);
    let min_ratio = if random.one_in(2) { 1.2 } else { 0.0 };
    let compression = Compression { algorithm, chunk_len, min_ratio, level: 1 };
    WriterOptions {
        compression: (!random.one_in(5)).then_some(compression),
        index_interval: 1 + random.below(20) as u32,
        column_index_len: 64 << random.below(8),
        large: LargeThresholds { row_bytes: 60, partition_bytes: 400, ..LargeThresholds::DEFAULT },
        ..WriterOptions::for_table(table, count as u64)
    }
}

pub async fn write(
    rt: &Rt,
    dir: &str,
    table: &Arc<Table>,
    partitions: &[Partition],
    options: WriterOptions,
    encoding: EncodingStats,
) -> Written {
    rt.disk().create_dir_all(dir).await.unwrap();
    let mut writer = SstableWriter::new(rt, dir, 1, table.clone(), options, encoding).await.unwrap();
    for partition in partitions {
        for fragment in expected(partition, &Slices::all(), &ColumnSelection::All, false) {
            writer.push(fragment).await.unwrap();
        }
    }
    writer.finish().await.unwrap()
}

pub async fn drain(mut source: SstableSource) -> Vec<Fragment> {
    let mut buffer = FragmentBuffer::new();
    while source.fill_next(&mut buffer).await.unwrap() {}
    buffer.into()
}

fn all(
    partitions: &[&Partition],
    slices: &Slices,
    columns: &ColumnSelection,
    reversed: bool,
) -> Vec<Fragment> {
    partitions.iter().flat_map(|partition| expected(partition, slices, columns, reversed)).collect()
}

async fn check(rt: Rt, seed: u64) {
    let mut random = Random(seed);
    let table = table(&mut random);
    let partitions = partitions(&mut random, &table);
    let options = options(&mut random, &table, partitions.len());
    let encoding = EncodingStats {
        min_timestamp: -100 + random.below(50) as Timestamp,
        min_local_deletion: 800,
        min_ttl: 0,
    };
    let written = write(&rt, &format!("/data/{seed}"), &table, &partitions, options, encoding).await;
    assert_eq!(written.partitions, partitions.len() as u64);
    let cache = Rc::new(Cache::default());
    let sstable = Sstable::open(&rt, written.descriptor, table.clone(), cache).await.unwrap();
    assert_eq!(sstable.disk_len(), written.disk_len);
    assert_eq!(Some((sstable.first().clone(), sstable.last().clone())), written.bounds);

    let every: Vec<&Partition> = partitions.iter().collect();
    let everything = Rc::new(ColumnSelection::All);
    let whole = all(&every, &Slices::all(), &everything, false);
    assert_eq!(drain(sstable.scan(&PartitionRange::all())).await, whole, "scan of {seed}");
    for round in 0..6 {
        let slices = Rc::new(slices(&mut random, &table));
        let reversed = random.one_in(2);
        let mut ids: Vec<ColumnId> = table.columns().iter().map(|column| column.id).collect();
        ids.retain(|_| random.one_in(2));
        ids.sort();
        let columns =
            if random.one_in(2) { everything.clone() } else { Rc::new(ColumnSelection::Some(ids.into())) };
        let at = |random: &mut Random| {
            let key = key(random.below(partitions.len() as u64 * 2 + 2) as i32 - 1);
            match random.below(4) {
                0 => RingPosition::BeforeToken(key.token),
                1 => RingPosition::AfterToken(key.token),
                2 => RingPosition::BeforeKey(key),
                _ => RingPosition::AfterKey(key),
            }
        };
        let range = match random.below(3) {
            0 => PartitionRange::all(),
            1 => PartitionRange { start: at(&mut random), end: at(&mut random) },
            _ => PartitionRange::single(&key(random.below(partitions.len() as u64 * 2 + 1) as i32 - 1)),
        };
        let inside: Vec<&Partition> = partitions.iter().filter(|p| range.contains(&p.key)).collect();
        let found = drain(sstable.read(&range, &slices, &columns, reversed)).await;
        let wanted = all(&inside, &slices, &columns, reversed);
        assert!(
            found == wanted,
            "seed {seed} round {round}, {range:?} {slices:?} reversed {reversed}\n{found:#?}\n{wanted:#?}"
        );
    }
    for partition in &partitions {
        assert!(sstable.may_contain(&partition.key));
    }
}

#[test]
fn written_values_are_read() {
    let count = std::env::var("ROUND_TRIPS").ok().and_then(|count| count.parse().ok()).unwrap_or(100);
    let only = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in 0..count {
        let seed = only.unwrap_or(seed);
        run(move |rt| check(rt, seed));
        if only.is_some() {
            break;
        }
    }
}
