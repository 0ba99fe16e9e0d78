//! A partition read in batches of any size is the partition as it was when its reading began, regardless of writes between
//! the batches.

use memtable::{Memtable, PartitionCursor, Progress};
use mutation::{FragmentBuffer, RowRange, Side, Slices};
use proptest::prelude::*;

use crate::{Op, bound, key, op, table, update};

/// The same on a single partition.
fn on_one(op: Op) -> Op {
    match op {
        Op::Cell { ck, b, ts, .. } => Op::Cell { pk: 0, ck, b, ts },
        Op::Row { ck, ts, .. } => Op::Row { pk: 0, ck, ts },
        Op::Range { from, upto, ts, .. } => Op::Range { pk: 0, from, upto, ts },
        Op::Partition { ts, .. } => Op::Partition { pk: 0, ts },
        Op::Static { ts, .. } => Op::Static { pk: 0, ts },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_read_in_batches_is_of_one_moment(
        before in prop::collection::vec(op().prop_map(on_one), 1..40),
        between in prop::collection::vec(prop::collection::vec(op().prop_map(on_one), 0..4), 1..20),
        slices in prop_oneof![
            Just(None),
            prop::collection::vec((0..12i32, 0..12i32), 1..4).prop_map(Some),
        ],
        bytes_max in prop_oneof![Just(1usize), 1..600usize],
        reversed in any::<bool>(),
        readers in 1..4usize,
    ) {
        let table = table();
        let slices = slices.map_or_else(Slices::all, |slices| {
            let range = |(from, upto)| RowRange {
                start: bound(&table, from, Side::Before),
                end: bound(&table, upto, Side::After),
            };
            Slices::new(slices.into_iter().map(range).collect())
        });
        let memtable = Memtable::new(table.clone());
        before.iter().for_each(|op| memtable.apply(update(&table, op)));
        let read = |cursor: &mut PartitionCursor, bytes_max| {
            let mut out = FragmentBuffer::new();
            let progress = memtable.read_partition(&key(0), &slices, reversed, cursor, &mut out, bytes_max);
            (out, progress == Progress::More)
        };
        // Several readers at once, each of which begins a batch later than the one before.
        let mut reads: Vec<(PartitionCursor, FragmentBuffer, FragmentBuffer, bool)> = Vec::new();
        let mut between = between.iter().cycle();
        loop {
            if reads.len() < readers {
                let (expected, _) = read(&mut PartitionCursor::default(), usize::MAX);
                reads.push((PartitionCursor::default(), FragmentBuffer::new(), expected, true));
            }
            for (cursor, seen, _, more) in reads.iter_mut().filter(|(.., more)| *more) {
                let (mut batch, has_more) = read(cursor, bytes_max);
                prop_assert!(!batch.is_empty(), "a batch has a fragment at least");
                seen.append(&mut batch);
                *more = has_more;
            }
            if reads.len() == readers && reads.iter().all(|(.., more)| !more) {
                break;
            }
            for op in between.next().expect("they come round") {
                memtable.apply(update(&table, op));
            }
        }
        for (_, seen, expected, _) in reads {
            prop_assert_eq!(seen, expected);
        }
    }
}

/// A batch that held all of them would be one poll of a read.
#[test]
fn a_batch_is_bounded_before_an_only_row_too() {
    let table = table();
    let memtable = Memtable::new(table.clone());
    for n in 0..1_000 {
        let (from, upto) = (2 * n, 2 * n);
        memtable.apply(update(&table, &Op::Range { pk: 0, from, upto, ts: 1 }));
    }
    memtable.apply(update(&table, &Op::Row { pk: 0, ck: 2_001, ts: 1 }));
    for reversed in [false, true] {
        let (mut cursor, mut batches) = (PartitionCursor::default(), 0);
        loop {
            let mut out = FragmentBuffer::new();
            let progress =
                memtable.read_partition(&key(0), &Slices::all(), reversed, &mut cursor, &mut out, 4_096);
            assert!(out.len() <= 100, "{} fragments in a batch", out.len());
            batches += 1;
            if progress != Progress::More {
                break;
            }
        }
        assert!(batches > 20, "{batches}");
    }
}
