//! The cost of a write does not grow with the size of its partition.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use memtable::Memtable;
use mutation::{
    Bound, Cell, Clustering, ColumnData, Complex, ComplexCell, DecoratedKey, DeletionTime, PartitionUpdate,
    RangeTombstone, Row, Side,
};
use schema::{Table, TableBuilder, TableId};
use types::CqlType;

/// What caches of the processor cost; a walk over all that the partition holds takes some hundred microseconds.
const SLACK: Duration = Duration::from_micros(20);

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

/// What a write takes at best in the first and in the last fifth of so many, in parts so short that other work on the machine
/// leaves some alone.
fn first_and_last(
    writes: u32,
    memtable: &Memtable,
    update: impl Fn(u32) -> PartitionUpdate,
) -> (Duration, Duration) {
    let part = writes / 1_000;
    let mut times = Vec::new();
    for from in (0..writes).step_by(part as usize) {
        let updates: Vec<PartitionUpdate> = (from..from + part).map(&update).collect();
        let begun = Instant::now();
        updates.into_iter().for_each(|update| memtable.apply(update));
        times.push(begun.elapsed());
    }
    let best = |times: &[Duration]| *times.iter().min().expect("there are some") / part;
    (best(&times[1..200]), best(&times[800..]))
}

/// A number of `0..2^20` for each of them, in no order.
fn scattered(n: u32) -> i32 {
    (n.wrapping_mul(2_654_435_761) >> 12) as i32
}

#[test]
fn range_deletions_cost_the_same_however_many_there_are() {
    let table = table();
    for (name, place) in [("scattered", scattered as fn(u32) -> i32), ("in order", |n| n as i32 * 3)] {
        let memtable = Memtable::new(table.clone());
        let (first, last) = first_and_last(100_000, &memtable, |n| {
            let bound = |side| Bound::new(&table, &[Some(&place(n).to_be_bytes())], side);
            let mut update = PartitionUpdate::new(table.clone(), key());
            let (start, end) = (bound(Side::Before), bound(Side::After));
            update.add_range_tombstone(RangeTombstone { start, end, deletion: DeletionTime::new(1, 1) });
            update
        });
        println!("{name}: first {first:?}, last {last:?}");
        assert!(last < first * 2 + SLACK, "{name}: first {first:?}, last {last:?}");
    }
}

#[test]
fn map_entries_cost_the_same_however_many_there_are() {
    let table = table();
    let column = table.column("m").expect("it has a map").id;
    let memtable = Memtable::new(table.clone());
    let (first, last) = first_and_last(64_000, &memtable, |n| {
        let cell = Cell::live(1, Bytes::from_static(b"value"));
        let element = ComplexCell { path: Bytes::copy_from_slice(&n.to_be_bytes()), cell };
        let mut row = Row::new(Clustering::new(&table, &[Some(&[0, 0, 0, 1])]));
        row.set(column, ColumnData::Complex(Complex { cells: vec![element], ..Complex::empty() }));
        let mut update = PartitionUpdate::new(table.clone(), key());
        update.add_row(row);
        update
    });
    println!("map entries: first {first:?}, last {last:?}");
    assert!(last < first * 2 + SLACK, "first {first:?}, last {last:?}");
}
