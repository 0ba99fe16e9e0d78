//! The row cache and partitions that are larger than it: of them the rows are cached that are used.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use engine::{Engine, EngineConfig, Origin, Read, RowLookup, SyncStep, Write};
use mutation::{
    Bound, Cell, Clustering, ColumnData, DataRef, DeletionTime, Fragment, PartitionRange, PartitionUpdate,
    RangeTombstone, Row, RowRange, Side, Slices,
};
use rt::Rt;
use schema::Table;

use crate::model::{key, schema};
use crate::world::on_a_node;

/// Rows of a partition, a kilobyte each.
const ROWS: i32 = 6_000;

fn slices(table: &Table, from: i32, upto: i32) -> Slices {
    let bound = |ck: i32, side| Bound::new(table, &[Some(&ck.to_be_bytes())], side);
    Slices::new(vec![RowRange { start: bound(from, Side::Before), end: bound(upto, Side::After) }])
}

fn row(table: &Table, ck: i32, timestamp: i64) -> Row {
    let mut row = Row::new(Clustering::new(table, &[Some(&ck.to_be_bytes())]));
    let id = table.column("a").expect("it has one").id;
    let value = [&timestamp.to_be_bytes()[..], &[7; 1_000]].concat();
    row.set(id, ColumnData::Simple(Cell::live(timestamp, Bytes::from(value))));
    row
}

struct Wide {
    engine: Engine,
    table: Arc<Table>,
}

impl Wide {
    async fn open(rt: Rt) -> Self {
        let schema = schema(1_000);
        let table = schema.table("ks", "t1").expect("it is in the schema").clone();
        let mut config = EngineConfig::new(PathBuf::from("/data"), PathBuf::from("/log"));
        config.memtable_bytes_max = 64 << 20;
        config.cache_bytes_max = 4 << 20;
        let engine = Engine::open(rt, config, schema).await.expect("an empty disk");
        Self { engine, table }
    }

    async fn write(&self, updates: impl IntoIterator<Item = PartitionUpdate>) {
        for update in updates {
            self.engine.apply(Write::all(Origin::Client, vec![update])).await.expect("the disk works");
        }
    }

    async fn write_rows(&self, rows: impl IntoIterator<Item = i32>, timestamp: i64) {
        let update = |ck| {
            PartitionUpdate::with_rows(self.table.clone(), key(1), vec![row(&self.table, ck, timestamp)])
        };
        self.write(rows.into_iter().map(update)).await;
    }

    async fn flush(&self) {
        self.engine.flush(self.table.id).await.expect("the disk works");
    }

    fn is_cached(&self, from: i32, upto: i32) -> bool {
        self.engine.sources_of(self.table.id, &key(1), &slices(&self.table, from, upto)).cached
    }

    /// The times of the rows that a read of some finds, at most so many.
    async fn read(&self, (from, upto): (i32, i32), reversed: bool, limit: usize) -> Vec<i64> {
        let (range, slices) = (PartitionRange::single(&key(1)), slices(&self.table, from, upto));
        let wanted = Read { reversed, ..Read::new(self.table.id, &range, &slices) };
        let mut reader = self.engine.read(&wanted).expect("the table is there");
        let mut found = Vec::new();
        while found.len() < limit {
            let fragment = match reader.try_next_sync().expect("the disk works") {
                SyncStep::Fragment(fragment) => fragment,
                SyncStep::End => break,
                SyncStep::Wait => match reader.next().await.expect("the disk works") {
                    Some(fragment) => fragment,
                    None => break,
                },
            };
            if let Fragment::Row(row) = fragment {
                let column = row.get(self.table.column("a").expect("it has one").id);
                let Some(DataRef::Simple(cell)) = column else { panic!("a value in {row:?}") };
                found.push(cell.timestamp);
            }
        }
        found
    }
}

impl Wide {
    /// Writes both columns of a row.
    async fn write_whole(&self, ck: i32, cell: Cell) {
        let mut row = row(&self.table, ck, cell.timestamp);
        for name in ["a", "b"] {
            row.set(self.table.column(name).expect("it has one").id, ColumnData::Simple(cell.clone()));
        }
        self.write([PartitionUpdate::with_rows(self.table.clone(), key(1), vec![row])]).await;
    }

    /// The time of a row's first column by a lookup of values in memory, none where it is not live; none of a row that has to be read.
    fn look_up(&self, ck: i32, bypass_cache: bool) -> Option<Option<i64>> {
        let (key, slices) = (key(1), slices(&self.table, ck, ck));
        let lookup = RowLookup { key: &key, slices: &slices, bypass_cache, values_only: true };
        let time = |row: Option<&Row>| {
            let live = row.filter(|row| row.is_live(1_000));
            Some(live.map(|row| match row.get(self.table.column("a").expect("it has one").id) {
                Some(DataRef::Simple(cell)) => cell.timestamp,
                other => panic!("{other:?}"),
            }))
        };
        self.engine.visit_only_row(&self.table, &lookup, time).expect("the table is there")
    }
}

/// A row that was written whole after all that is in files is found without them and the cache; no other is.
#[test]
fn a_whole_row_that_is_later_than_the_files_hides_them() {
    on_a_node(4, |rt| async move {
        let wide = Wide::open(rt).await;
        let live = |timestamp| Cell::live(timestamp, Bytes::from_static(b"value"));
        wide.write_whole(1, live(100)).await;
        wide.flush().await;
        assert_eq!((wide.look_up(1, true), wide.look_up(1, false)), (None, Some(Some(100))));
        for (timestamp, seen) in [(50, 100), (100, 100)] {
            wide.write_whole(1, live(timestamp)).await;
            assert_eq!((wide.look_up(1, true), wide.look_up(1, false)), (None, Some(Some(seen))));
        }
        wide.write_whole(1, live(200)).await;
        assert_eq!((wide.look_up(1, true), wide.look_up(1, false)), (Some(Some(200)), Some(Some(200))));
        // A part of the row, and a row that ends: files may show another value or the row itself.
        wide.write_rows([2], 300).await;
        assert_eq!((wide.look_up(2, true), wide.look_up(2, false)), (None, Some(Some(300))));
        wide.write_whole(3, Cell::expiring(300, 60, 2_000, Bytes::from_static(b"value"))).await;
        assert_eq!((wide.look_up(3, true), wide.look_up(3, false)), (None, Some(Some(300))));
        // A deletion in a file that is later than the row.
        let mut deleted = Row::new(Clustering::new(&wide.table, &[Some(&4_i32.to_be_bytes())]));
        deleted.deletion = DeletionTime::new(400, 900);
        wide.write([PartitionUpdate::with_rows(wide.table.clone(), key(1), vec![deleted])]).await;
        wide.flush().await;
        wide.write_whole(4, live(350)).await;
        assert_eq!((wide.look_up(4, true), wide.look_up(4, false)), (None, Some(None)));
        wide.engine.stop().await.expect("the disk works");
    });
}

/// A flush moves a partition of any size into the cache, as far as there is room.
#[test]
fn a_flush_brings_a_partition_larger_than_the_cache() {
    on_a_node(1, |rt| async move {
        let wide = Wide::open(rt).await;
        wide.write_rows(0..ROWS, 1).await;
        wide.flush().await;
        assert!(wide.is_cached(ROWS - 1_000, ROWS), "the rows that came last");
        assert!(!wide.is_cached(0, 10), "the cache has no room for all");
        assert_eq!(wide.read((0, ROWS), false, usize::MAX).await.len(), ROWS as usize);
        let stats = wide.engine.stats();
        // Blocks of the files have the rest of the room.
        assert!((1 << 20..=4 << 20).contains(&stats.row_cache_bytes), "{} bytes", stats.row_cache_bytes);
        assert_eq!((stats.row_cache_partitions, stats.row_cache_partition_evictions), (1, 0));
    });
}

/// Reads of all of a partition, in either direction and with limits, leave in the cache the rows that are read again and again.
#[test]
fn rows_in_use_stay_while_all_are_read() {
    on_a_node(2, |rt| async move {
        let wide = Wide::open(rt).await;
        wide.write_rows((0..ROWS).step_by(2), 1).await;
        wide.flush().await;
        wide.write_rows((1..ROWS).step_by(2), 1).await;
        wide.flush().await;
        let hot = || (0..100).map(|n| n * 59);
        for ck in hot() {
            wide.read((ck, ck), false, 1).await;
        }
        for round in 0..20 {
            let (from, reversed) = (round * 300, round % 2 == 1);
            let found = wide.read((from, from + 299), reversed, usize::MAX).await;
            assert_eq!(found.len(), 300);
            assert!(wide.is_cached(from, from + 299), "a slice of 300 rows is cached, reversed {reversed}");
            assert!(hot().all(|ck| wide.is_cached(ck, ck)), "rows in use left in round {round}");
            for ck in hot() {
                assert_eq!(wide.read((ck, ck), false, 1).await, [1]);
            }
        }
        // A reader that ends at its limit leaves its rows.
        assert_eq!(wide.read((0, ROWS), false, 150).await.len(), 150);
        assert!(wide.is_cached(0, 148));
        assert!(wide.engine.stats().row_cache_evictions > 1_000);
    });
}

/// Writes and deletions that are flushed are merged into the rows that are cached of a large partition.
#[test]
fn flushes_are_merged_into_cached_rows() {
    on_a_node(3, |rt| async move {
        let wide = Wide::open(rt).await;
        wide.write_rows(0..ROWS, 1).await;
        wide.flush().await;
        wide.read((0, 999), false, usize::MAX).await;
        assert!(wide.is_cached(0, 999));
        wide.write_rows((0..ROWS).step_by(10), 2).await;
        let mut deletion = PartitionUpdate::new(wide.table.clone(), key(1));
        let RowRange { start, end } = slices(&wide.table, 500, 4_000).ranges()[0].clone();
        let time = DeletionTime { timestamp: 3, local: 1 };
        deletion.add_range_tombstone(RangeTombstone { start, end, deletion: time });
        wide.write([deletion]).await;
        wide.flush().await;
        assert!(wide.is_cached(0, 999), "merged, and not forgotten");
        let expected: Vec<i64> = (0..500).map(|ck| if ck % 10 == 0 { 2 } else { 1 }).collect();
        assert_eq!(wide.read((0, 999), false, usize::MAX).await, expected);
        let all = wide.read((0, ROWS), true, usize::MAX).await;
        assert_eq!(all.len(), ROWS as usize - 3_501);
    });
}
