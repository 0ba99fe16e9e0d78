//! The cost of the cache does not grow with its content beside the requested rows.

use std::time::{Duration, Instant};

use bytes::Bytes;
use cache::{Block, Cache};
use mutation::{
    Bound, Cell, Clustering, ColumnData, DecoratedKey, PartitionUpdate, Row, RowRange, Side, Slices,
};
use schema::{Table, TableBuilder, TableId};
use types::CqlType;

fn key() -> DecoratedKey {
    DecoratedKey::new(Bytes::from_static(b"key"))
}

fn slice(table: &Table, ck: i32) -> Slices {
    let bound = |side| Bound::new(table, &[Some(&ck.to_be_bytes())], side);
    Slices::new(vec![RowRange { start: bound(Side::Before), end: bound(Side::After) }])
}

/// A read of a row that is there, or is not, in a partition of which so many ranges are known. None leaves.
#[test]
fn reads_of_absent_rows_stay_flat() {
    let table = TableBuilder::new("ks", "t", TableId([1; 16]))
        .partition_key("pk", CqlType::Int)
        .clustering("ck", CqlType::Int, false)
        .regular("a", CqlType::Blob)
        .build_known();
    let cache = Cache::new(2 << 20);
    let epoch = cache.epoch(table.id);
    let has_read = |ck: i32| {
        let found = cache.partition(table.id, &key(), &slice(&table, ck)).is_some();
        if !found {
            let mut row = Row::new(Clustering::new(&table, &[Some(&ck.to_be_bytes())]));
            let id = table.column("a").expect("it has one").id;
            row.set(id, ColumnData::Simple(Cell::live(1, Bytes::from_static(b"value"))));
            let rows = if (0..10).contains(&ck) { vec![row] } else { Vec::new() };
            let update = PartitionUpdate::with_rows(table.clone(), key(), rows);
            cache.insert(&table, epoch, update, slice(&table, ck));
        }
        found
    };
    let mut times = Vec::new();
    (0..10).for_each(|ck| assert!(!has_read(ck)));
    for from in (0..200_000i32).step_by(1_000) {
        let begun = Instant::now();
        for ck in from..from + 1_000 {
            let ck = ck.wrapping_mul(7_919) % 1_000_003 + 1_000;
            has_read(ck);
            assert!(has_read(ck), "the row just read is known");
        }
        times.push(begun.elapsed());
        // Rows that are read stay.
        assert!((0..10).all(has_read), "a row left");
    }
    let best = |times: &[Duration]| *times.iter().min().expect("there are some");
    let (first, last) = (best(&times[..20]), best(&times[180..]));
    println!("a thousand reads of absent rows: {first:?} at first, {last:?} at last");
    assert!(last < first * 3, "a thousand reads took {first:?} at first, {last:?} at last");
    let stats = cache.stats();
    assert_eq!((stats.partitions, stats.rows), (1, 10));
    assert_eq!((stats.row_evictions, stats.partition_evictions), (0, 0));
    assert!((1 << 20..=2 << 20).contains(&stats.row_bytes), "{} bytes", stats.row_bytes);
}

/// The time that it takes at best to forget 64 blocks of one file beside so many of another.
fn forgetting(others: u64) -> Duration {
    let cache = Cache::new(1 << 30);
    let block = Block::new(vec![0; 100]);
    (0..others).for_each(|n| cache.insert_block(0, n, &block));
    let times = (1..=50).map(|file| {
        (0..64).for_each(|n| cache.insert_block(file, n, &block));
        let begun = Instant::now();
        cache.forget_file(file);
        begun.elapsed()
    });
    times.min().expect("there are some")
}

#[test]
fn forgetting_a_file_does_not_cost_the_blocks_of_others() {
    let (few, many) = (forgetting(64), forgetting(100_000));
    println!("64 blocks are forgotten in {few:?} beside 64 others, in {many:?} beside 100,000");
    assert!(many < few * 4, "{few:?} beside 64 others, {many:?} beside 100,000");
}
