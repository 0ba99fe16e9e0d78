//! Rows leave in the order of their last use, and those that are left are right.

use std::sync::Arc;

use bytes::Bytes;
use cache::{Cache, CachedPartition};
use memtable::{PartitionCursor, Progress};
use mutation::{
    Bound, Cell, Clustering, ColumnData, DataRef, DecoratedKey, DeletionTime, Fragment, FragmentBuffer,
    PartitionUpdate, RangeTombstone, Row, RowRange, Side, Slices,
};
use schema::{Table, TableBuilder, TableId};
use types::CqlType;

const ROWS: i32 = 300;

fn table() -> Arc<Table> {
    TableBuilder::new("ks", "t", TableId([1; 16]))
        .partition_key("pk", CqlType::Int)
        .clustering("ck", CqlType::Int, false)
        .static_column("s", CqlType::Blob)
        .regular("a", CqlType::Blob)
        .build_known()
}

fn key(number: u32) -> DecoratedKey {
    DecoratedKey::new(Bytes::copy_from_slice(&number.to_be_bytes()))
}

fn bound(table: &Table, ck: i32, side: Side) -> Bound {
    Bound::new(table, &[Some(&ck.to_be_bytes())], side)
}

/// The rows from one to another, both included.
fn rows(table: &Table, from: i32, upto: i32) -> RowRange {
    RowRange { start: bound(table, from, Side::Before), end: bound(table, upto, Side::After) }
}

fn row(table: &Table, ck: i32, timestamp: i64, len: usize) -> Row {
    let mut row = Row::new(Clustering::new(table, &[Some(&ck.to_be_bytes())]));
    let id = table.column("a").expect("it has one").id;
    row.set(id, ColumnData::Simple(Cell::live(timestamp, Bytes::from(vec![7; len]))));
    row
}

/// The update that a read of the SSTables would give the cache.
fn within(all: &PartitionUpdate, slices: &Slices) -> PartitionUpdate {
    let mut part = PartitionUpdate::new(all.table.clone(), all.key.clone());
    part.add_deletion(all.deletion);
    part.set_static_row(all.static_row().cloned());
    all.rows()
        .iter()
        .filter(|row| slices.contains(&row.clustering))
        .for_each(|row| part.add_row(row.clone()));
    for range in slices.ranges() {
        for deletion in all.range_tombstones.overlapping(range) {
            let (start, end) = (deletion.start.clone(), deletion.end.clone());
            let (start, end) = (start.max(range.start.clone()), end.min(range.end.clone()));
            part.add_range_tombstone(RangeTombstone { start, end, deletion: deletion.deletion });
        }
    }
    part
}

/// The time of a row's only cell.
fn timestamp(row: &Row, table: &Table, column: &str) -> i64 {
    let column = row.get(table.column(column).expect("it has one").id);
    let Some(DataRef::Simple(cell)) = column else { panic!("a cell in {row:?}") };
    cell.timestamp
}

/// The rows that a reader of these fragments sees, and the time of the static row.
fn seen(table: &Table, fragments: &FragmentBuffer) -> (Option<i64>, Vec<(Clustering, i64)>) {
    let (mut of_partition, mut of_range) = (DeletionTime::LIVE, DeletionTime::LIVE);
    let (mut fixed, mut seen) = (None, Vec::new());
    for fragment in fragments {
        match fragment {
            Fragment::PartitionStart { deletion, .. } => of_partition = *deletion,
            Fragment::StaticRow(row) => fixed = Some(timestamp(row, table, "s")),
            Fragment::RangeTombstoneChange { deletion, .. } => of_range = *deletion,
            Fragment::Row(row) => {
                let at = timestamp(row, table, "a");
                if at > of_partition.max(of_range).timestamp {
                    seen.push((row.clustering.clone(), at));
                }
            }
            Fragment::PartitionEnd => {}
        }
    }
    (fixed, seen)
}

fn read(
    partition: &CachedPartition,
    slices: &Slices,
    cursor: &mut PartitionCursor,
    bytes: usize,
) -> FragmentBuffer {
    let mut out = FragmentBuffer::new();
    while partition.read(slices, false, cursor, &mut out, bytes) == Progress::More {}
    out
}

/// The same of a partition that is wholly in memory.
fn truth(all: &PartitionUpdate, slices: &Slices) -> (Option<i64>, Vec<(Clustering, i64)>) {
    let visible = all.rows().iter().filter(|row| slices.contains(&row.clustering)).filter_map(|row| {
        let at = timestamp(row, &all.table, "a");
        (at > all.deletion_at(&row.clustering).timestamp).then(|| (row.clustering.clone(), at))
    });
    (all.static_row().map(|row| timestamp(row, &all.table, "s")), visible.collect())
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    /// Some rows, some of one, all, or none.
    fn slices(&mut self, table: &Table) -> Slices {
        let mut one = |most: u64| {
            let from = self.below(ROWS as u64) as i32;
            rows(table, from, from + self.below(most) as i32)
        };
        let (narrow, wide) = (vec![one(2), one(2), one(4)], vec![one(120)]);
        match self.below(10) {
            0 => Slices::all(),
            1 => Slices::none(),
            2..=6 => Slices::new(narrow),
            _ => Slices::new(wide),
        }
    }

    /// A write as a flush brings it.
    fn update(&mut self, table: &Arc<Table>, key: DecoratedKey, now: i64) -> PartitionUpdate {
        let mut update = PartitionUpdate::new(table.clone(), key);
        for _ in 0..self.below(12) {
            update.add_row(row(table, self.below(ROWS as u64) as i32, now, self.below(900) as usize));
        }
        let time = DeletionTime { timestamp: now - 1, local: 1 };
        match self.below(12) {
            0 => update.add_deletion(DeletionTime { timestamp: now - 40, local: 1 }),
            1..=3 => {
                let RowRange { start, end } = rows(table, self.below(300) as i32, self.below(300) as i32);
                update.add_range_tombstone(RangeTombstone { start, end, deletion: time });
            }
            4 => {
                let mut fixed = Row::new(Clustering::empty());
                let id = table.column("s").expect("it has one").id;
                let value = Bytes::from(vec![1; self.below(500) as usize]);
                fixed.set(id, ColumnData::Simple(Cell::live(now, value)));
                update.add_static(fixed);
            }
            _ => {}
        }
        update
    }
}

/// Reads, flushes and evictions in any order: the cache answers as the SSTables would.
#[test]
fn answers_are_right_while_rows_leave() {
    let table = table();
    let (mut hits, mut evicted) = (0, 0);
    for seed in 0..40 {
        let mut random = Random(seed);
        let cache = Cache::new(200 << 10);
        let file = cache.new_file();
        let mut truths: Vec<_> = (0..3).map(|n| PartitionUpdate::new(table.clone(), key(n))).collect();
        let mut held: Vec<(CachedPartition, PartitionCursor, Slices, FragmentBuffer, PartitionUpdate)> =
            Vec::new();
        for now in 1..1_500 {
            let at = random.below(3) as usize;
            match random.below(20) {
                0..=3 => {
                    let update = random.update(&table, key(at as u32), now);
                    truths[at].merge(update.clone());
                    cache.next_epoch(table.id);
                    cache.merge(&table, update);
                }
                4 => cache.insert_block(file, now as u64, &cache::Block::new(vec![0; 4 << 10])),
                5 if random.below(10) == 0 => cache.forget_partition(table.id, &key(at as u32)),
                5 if random.below(40) == 0 => cache.forget_table(table.id),
                6 if held.len() < 2 => {
                    // A reader that resumes later: it sees the rows of the time when it began.
                    let slices = random.slices(&table);
                    if let Some(partition) = cache.partition(table.id, &key(at as u32), &slices) {
                        let (mut cursor, mut out) = (PartitionCursor::default(), FragmentBuffer::new());
                        if partition.read(&slices, false, &mut cursor, &mut out, 600) == Progress::More {
                            held.push((partition, cursor, slices, out, truths[at].clone()));
                        }
                    }
                }
                7 if !held.is_empty() => {
                    let (partition, mut cursor, slices, mut out, before) = held.swap_remove(0);
                    out.extend(read(&partition, &slices, &mut cursor, 600));
                    assert_eq!(seen(&table, &out), truth(&before, &slices), "seed {seed}, time {now}");
                }
                _ => {
                    let slices = random.slices(&table);
                    match cache.partition(table.id, &key(at as u32), &slices) {
                        Some(partition) => {
                            hits += 1;
                            let out = read(&partition, &slices, &mut PartitionCursor::default(), 4_000);
                            assert_eq!(
                                seen(&table, &out),
                                truth(&truths[at], &slices),
                                "seed {seed}, time {now}"
                            );
                        }
                        None => {
                            let epoch = cache.epoch(table.id);
                            cache.insert(&table, epoch, within(&truths[at], &slices), slices.clone());
                        }
                    }
                }
            }
            // The next insertion evicts the rows that readers kept.
            cache.insert_block(file, 10_000 + now as u64, &cache::Block::new(Vec::new()));
            let stats = cache.stats();
            let bytes = stats.row_bytes + stats.block_bytes;
            assert!(bytes <= 200 << 10 || !held.is_empty(), "seed {seed}, time {now}: {bytes} bytes");
        }
        evicted += cache.stats().row_evictions;
        held.clear();
        cache.forget_table(table.id);
        (0..100).for_each(|_| cache.forget_table(table.id));
        let stats = cache.stats();
        assert_eq!((stats.row_bytes, stats.partitions, stats.rows), (0, 0, 0), "seed {seed}");
    }
    println!("{hits} hits, {evicted} rows evicted");
    assert!(hits > 5_000 && evicted > 50_000, "{hits} hits, {evicted} rows evicted");
}

/// Of a partition that is larger than the cache, the rows stay that are used.
#[test]
fn rows_of_a_large_partition_leave_one_by_one() {
    let table = table();
    let cache = Cache::new(1 << 20);
    let epoch = cache.epoch(table.id);
    let has_read = |ck: i32| {
        let slices = Slices::new(vec![rows(&table, ck, ck)]);
        let found = cache.partition(table.id, &key(1), &slices).is_some();
        if !found {
            let update = PartitionUpdate::with_rows(table.clone(), key(1), vec![row(&table, ck, 1, 1_000)]);
            cache.insert(&table, epoch, update, slices);
        }
        found
    };
    (0..100).for_each(|ck| assert!(!has_read(ck)));
    let mut missed = 0;
    for ck in 1_000..21_000 {
        assert!(!has_read(ck));
        missed += i32::from(!has_read(ck % 100));
    }
    assert_eq!(missed, 0, "rows left that were in use");
    let stats = cache.stats();
    assert_eq!(stats.partitions, 1);
    assert!(stats.rows > 500 && stats.row_evictions > 19_000, "{stats:?}");
    // Read as one, in parts of some rows: the older parts leave, and the younger are found.
    let all: Vec<Row> = (0..400).map(|ck| row(&table, ck, 1, 1_000)).collect();
    let update = PartitionUpdate::with_rows(table.clone(), key(2), all);
    cache.insert(&table, epoch, update, Slices::new(vec![rows(&table, 0, 399)]));
    (1_000..1_600).for_each(|ck| assert!(!has_read(ck)));
    let left = (0..400).filter(|ck| {
        let slices = Slices::new(vec![rows(&table, *ck, *ck)]);
        cache.partition(table.id, &key(2), &slices).is_some()
    });
    let left = left.count();
    assert!((50..350).contains(&left), "{left} rows are left");
}

/// A smaller budget is kept in steps, a larger one at once.
#[test]
fn the_budget_moves() {
    let table = table();
    let cache = Cache::new(4 << 20);
    let epoch = cache.epoch(table.id);
    let fill = |ks: std::ops::Range<u32>| {
        for k in ks {
            let update = PartitionUpdate::with_rows(table.clone(), key(k), vec![row(&table, 1, 1, 1_000)]);
            cache.insert(&table, epoch, update, Slices::new(vec![rows(&table, 1, 1)]));
        }
    };
    fill(0..2_000);
    let before = cache.stats();
    assert!(before.row_evictions == 0 && !cache.shrink(10), "{before:?}");
    cache.set_bytes_max(1 << 20);
    assert!(cache.shrink(10));
    assert_eq!(cache.stats().row_evictions, 10);
    // An insertion evicts more than it brings, and not all at once.
    fill(2_500..2_501);
    let bytes = cache.stats().row_bytes;
    assert!(bytes > 1 << 20 && bytes < before.row_bytes, "{bytes}");
    while cache.shrink(10) {}
    assert!(cache.stats().row_bytes <= 1 << 20 && cache.stats().rows > 400, "{:?}", cache.stats());
    cache.set_bytes_max(4 << 20);
    fill(3_000..4_000);
    let grown = cache.stats();
    assert!(grown.rows > 1_500 && grown.row_bytes > 1 << 20, "{grown:?}");
}
