//! Partitions that are copied as bytes: an SSTable with the statistics of its source that verifies.

use std::rc::Rc;

use mutation::{Fragment, FragmentBuffer, PartitionRange, RingPosition};
use sstable::verify::verify;
use sstable::{EncodingStats, NoCache, Sstable, SstableWriter};

use crate::generate::{Random, partitions, slices, table};
use crate::round_trip::{options, write};
use crate::support::run;

async fn drain(mut source: sstable::SstableSource) -> Vec<Fragment> {
    let mut buffer = FragmentBuffer::new();
    while source.fill_next(&mut buffer).await.expect("it is sound") {}
    buffer.into()
}

/// The fragments of partitions for whose tokens `wanted` holds.
fn of_wanted(fragments: Vec<Fragment>, wanted: impl Fn(i64) -> bool) -> Vec<Fragment> {
    let mut inside = false;
    let kept = fragments.into_iter().filter(|fragment| {
        if let Fragment::PartitionStart { key, .. } = fragment {
            inside = wanted(key.token);
        }
        inside
    });
    kept.collect()
}

#[test]
fn a_copy_has_the_wanted_partitions_and_is_sound() {
    run(|rt| async move {
        let (mut copied, mut all_large) = (0, 0);
        for seed in 0..40 {
            let mut random = Random(seed);
            let table = table(&mut random);
            let partitions = partitions(&mut random, &table);
            let made = options(&mut random, &table, partitions.len());
            let encoding = EncodingStats { min_timestamp: -100, min_local_deletion: 800, min_ttl: 0 };
            let written =
                write(&rt, &format!("/copying/{seed}"), &table, &partitions, made.clone(), encoding).await;
            let open = |descriptor| Sstable::open(&rt, descriptor, table.clone(), Rc::new(NoCache));
            let source = open(written.descriptor).await.expect("it is sound");
            // Two token ranges, and in them the tokens of one shard.
            let middle = partitions[partitions.len() / 2].key.token;
            let is_wanted = |token: i64| token % 4 != 0;
            let first = PartitionRange {
                start: PartitionRange::all().start,
                end: RingPosition::AfterToken(middle.saturating_sub(1)),
            };
            let second = PartitionRange { start: RingPosition::AfterToken(middle), ..PartitionRange::all() };
            let dir = format!("/copying/{seed}-copy");
            rt.disk().create_dir_all(&dir).await.expect("the disk works");
            let options = options(&mut random, &table, partitions.len());
            let from = (&*source, table.clone());
            let mut writer = SstableWriter::copying(&rt, &dir, 9, from, options).await.expect("it too");
            for range in [&first, &second] {
                writer.copy(&source, range, is_wanted).await.expect("it is sound");
            }
            let written = writer.finish().await.expect("the disk works");
            let wanted = |token: i64| is_wanted(token) && token != middle;
            let all = PartitionRange::all();
            let expected = of_wanted(drain(source.scan(&all)).await, wanted);
            assert_eq!(written.bounds.is_none(), expected.is_empty(), "seed {seed}");
            if expected.is_empty() {
                continue;
            }
            copied += written.partitions;
            let copy = open(written.descriptor.clone()).await.expect("it is sound");
            assert!(drain(copy.scan(&all)).await == expected, "seed {seed}");
            let slices = Rc::new(slices(&mut random, &table));
            let every = Rc::new(mutation::ColumnSelection::All);
            for reversed in [false, true] {
                let part = |sstable: &Rc<Sstable>| drain(sstable.read(&all, &slices, &every, reversed));
                let there = of_wanted(part(&source).await, wanted);
                assert!(part(&copy).await == there, "seed {seed}, reversed {reversed}");
            }
            let large = source.large().records().iter().filter(|record| wanted(record.token));
            assert!(copy.large().records().iter().eq(large), "seed {seed}");
            all_large += copy.large().records().len();
            let found = verify(&rt, &written.descriptor).await.expect("the disk works");
            assert!(found.problems.is_empty(), "seed {seed}: {:?}", found.problems);
            assert_eq!((found.rows, found.partitions), (written.rows, written.partitions), "seed {seed}");
            assert!(copy.min_timestamp() >= source.min_timestamp());
            assert!(copy.max_timestamp() <= source.max_timestamp());
        }
        assert!(copied > 200 && all_large > 100, "{copied} partitions, {all_large} large");
    });
}
