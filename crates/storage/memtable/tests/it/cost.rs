//! The cost of a write, and of a read's beginning, does not grow with the size of its partition.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use memtable::{Memtable, Part, PartitionCursor};
use mutation::{
    Bound, Cell, Clustering, ColumnData, Complex, ComplexCell, DecoratedKey, DeletionTime, FragmentBuffer,
    PartitionUpdate, RangeTombstone, Row, RowRange, Side, Slices,
};
use schema::{Table, TableBuilder, TableId};
use types::CqlType;

fn table() -> Arc<Table> {
    let map = CqlType::Map { key: Arc::new(CqlType::Int), value: Arc::new(CqlType::Blob), frozen: false };
    TableBuilder::new("ks", "t", TableId([1; 16]))
        .partition_key("pk", CqlType::Int)
        .clustering("ck", CqlType::Int, false)
        .regular("m", map)
        .build_known()
}

fn key() -> DecoratedKey {
    DecoratedKey::new(Bytes::from_static(b"key"))
}

/// Writes that are measured together.
const BATCH: u32 = 1_000;
/// Batches of a part of which the fastest counts: other work on the machine leaves some alone.
const BATCHES: usize = 16;

/// The time that a thousand writes take at best among the first of so many, among the next, and among the last.
fn at_first_next_and_last(
    writes: u32,
    memtable: &Memtable,
    update: impl Fn(u32) -> PartitionUpdate,
) -> [Duration; 3] {
    let mut times = Vec::new();
    for from in (0..writes).step_by(BATCH as usize) {
        let updates: Vec<PartitionUpdate> = (from..from + BATCH).map(&update).collect();
        let begun = Instant::now();
        updates.into_iter().for_each(|update| memtable.apply(update));
        times.push(begun.elapsed());
    }
    let best = |times: &[Duration]| *times.iter().min().expect("there are some");
    [best(&times[..BATCHES]), best(&times[BATCHES..2 * BATCHES]), best(&times[times.len() - BATCHES..])]
}

/// The last writes cost less than twice the first; where `warm`, less than three times those that come after the first 16,000 (time
/// that grew with the number of ranges would make it six times) and ten times the first: these still find all that they compare
/// with in the processor's cache, which nothing that is spread over 20 MB of memory can. Measured again where other work has
/// disturbed a part.
fn assert_flat(
    name: &str,
    table: &Arc<Table>,
    (writes, warm): (u32, bool),
    update: impl Fn(u32) -> PartitionUpdate,
) {
    let mut seen = Vec::new();
    for _ in 0..4 {
        let times = at_first_next_and_last(writes, &Memtable::new(table.clone()), &update);
        println!("{name}: {BATCH} writes at first, after 16,000, at last: {times:?}");
        let [first, next, last] = times;
        if last < if warm { 3 * next } else { 2 * first } && last < 10 * first {
            return;
        }
        seen.push(times);
    }
    panic!("{name}: {BATCH} writes at first, after 16,000, at last: {seen:?}");
}

/// A number of `0..2^20` for each of them, in no order.
fn scattered(n: u32) -> i32 {
    (n.wrapping_mul(2_654_435_761) >> 12) as i32
}

#[test]
fn range_deletions_cost_the_same_however_many_there_are() {
    let table = table();
    let places = [("scattered", scattered as fn(u32) -> i32, true), ("in order", |n| n as i32 * 3, false)];
    for (name, place, warm) in places {
        assert_flat(name, &table, (100_000, warm), |n| {
            let bound = |side| Bound::new(&table, &[Some(&place(n).to_be_bytes())], side);
            let mut update = PartitionUpdate::new(table.clone(), key());
            let (start, end) = (bound(Side::Before), bound(Side::After));
            update.add_range_tombstone(RangeTombstone { start, end, deletion: DeletionTime::new(1, 1) });
            update
        });
    }
}

#[test]
fn map_entries_cost_the_same_however_many_there_are() {
    let table = table();
    let column = table.column("m").expect("it has a map").id;
    assert_flat("map entries", &table, (64_000, false), |n| {
        let cell = Cell::live(1, Bytes::from_static(b"value"));
        let element = ComplexCell { path: Bytes::copy_from_slice(&n.to_be_bytes()), cell };
        let mut row = Row::new(Clustering::new(&table, &[Some(&[0, 0, 0, 1])]));
        row.set(column, ColumnData::Complex(Complex { cells: vec![element], ..Complex::empty() }));
        let mut update = PartitionUpdate::new(table.clone(), key());
        update.add_row(row);
        update
    });
}

/// A memtable with so many deleted ranges in a partition, and a row behind each.
fn with_ranges(table: &Arc<Table>, count: i32) -> Memtable {
    let memtable = Memtable::new(table.clone());
    for n in 0..count {
        let bound = |side| Bound::new(table, &[Some(&(n * 2).to_be_bytes())], side);
        let mut update = PartitionUpdate::new(table.clone(), key());
        let (start, end) = (bound(Side::Before), bound(Side::After));
        update.add_range_tombstone(RangeTombstone { start, end, deletion: DeletionTime::new(1, 1) });
        let mut row = Row::new(Clustering::new(table, &[Some(&(n * 2 + 1).to_be_bytes())]));
        row.liveness.timestamp = 1;
        update.add_row(row);
        memtable.apply(update);
    }
    memtable
}

/// The first batch of a read, as one with a LIMIT takes it, and a read of one row.
#[test]
fn the_begin_of_a_read_does_not_cost_all_ranges() {
    let table = table();
    let bound = |n: i32, side| Bound::new(&table, &[Some(&n.to_be_bytes())], side);
    let one_row = Slices::new(vec![RowRange { start: bound(99, Side::Before), end: bound(99, Side::After) }]);
    let (few, many) = (with_ranges(&table, 300), with_ranges(&table, 30_000));
    for (name, slices) in [("all", Slices::all()), ("one row", one_row)] {
        for reversed in [false, true] {
            let best = |memtable: &Memtable| {
                let times = (0..200).map(|_| {
                    let (mut cursor, mut out) = (PartitionCursor::default(), FragmentBuffer::new());
                    let begun = Instant::now();
                    memtable.read_partition(&key(), &slices, reversed, &mut cursor, &mut out, 4_096);
                    begun.elapsed()
                });
                times.min().expect("there are some")
            };
            let (few, many) = (best(&few), best(&many));
            println!("{name}, reversed {reversed}: {few:?} with 300 ranges, {many:?} with 30,000");
            assert!(many < few * 4, "{name}, reversed {reversed}: {few:?} with 300, {many:?} with 30,000");
        }
    }
}

/// A flush takes the rows that it brings into the row cache in such parts: a part of a large partition costs no more than one of a smaller one.
#[test]
fn a_part_costs_its_own_size() {
    let table = table();
    let best = |rows: i32| {
        let memtable = with_rows(&table, rows);
        let times = (0..50).map(|_| {
            let begun = Instant::now();
            let part = memtable.part(&key(), None, |_| true, 1 << 20);
            let took = begun.elapsed();
            let Part::Rows(part) = part else { panic!("{part:?}") };
            assert!(part.rest.is_some() && part.update.rows().len() < 1_100, "{part:?}");
            took
        });
        times.min().expect("there are some")
    };
    let (few, many) = (best(1_500), best(30_000));
    println!("a part of 1,500 rows in {few:?}, of 30,000 in {many:?}");
    assert!(many < few * 4, "a part of 1,500 rows in {few:?}, of 30,000 in {many:?}");
}

/// A memtable with so many rows in a partition.
fn with_rows(table: &Arc<Table>, count: i32) -> Memtable {
    let memtable = Memtable::new(table.clone());
    for n in 0..count {
        let mut row = Row::new(Clustering::new(table, &[Some(&n.to_be_bytes())]));
        row.liveness.timestamp = 1;
        let mut update = PartitionUpdate::new(table.clone(), key());
        update.add_row(row);
        memtable.apply(update);
    }
    memtable
}
