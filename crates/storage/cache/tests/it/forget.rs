//! A forgotten table is gone at once, and its memory in steps.

use bytes::Bytes;
use cache::Cache;
use mutation::{Cell, Clustering, ColumnData, DecoratedKey, PartitionUpdate, Row, Slices};
use schema::{Table, TableBuilder, TableId};
use types::CqlType;

fn key(number: u32) -> DecoratedKey {
    DecoratedKey::new(Bytes::copy_from_slice(&number.to_be_bytes()))
}

fn fill(cache: &Cache, table: &std::sync::Arc<Table>, keys: std::ops::Range<u32>) {
    for number in keys {
        let mut row = Row::new(Clustering::new(table, &[]));
        let id = table.column("a").expect("it has one").id;
        row.set(id, ColumnData::Simple(Cell::live(1, Bytes::from_static(b"value"))));
        let update = PartitionUpdate::with_rows(table.clone(), key(number), vec![row]);
        cache.insert(table, cache.epoch(table.id), update, Slices::all());
    }
}

fn has(cache: &Cache, table: &Table, number: u32) -> bool {
    cache.partition(table.id, &key(number), &Slices::all()).is_some()
}

#[test]
fn a_large_table_is_forgotten_in_steps() {
    let table = |number| {
        TableBuilder::new("ks", "t", TableId([number; 16]))
            .partition_key("pk", CqlType::Int)
            .regular("a", CqlType::Blob)
            .build_known()
    };
    let (large, other) = (table(1), table(2));
    let cache = Cache::new(64 << 20);
    fill(&cache, &large, 0..5_000);
    fill(&cache, &other, 0..10);
    let one = cache.stats().row_bytes / 5_010;
    cache.forget_table(large.id);
    assert!(!(0..5_000).any(|number| has(&cache, &large, number)), "nothing of it is found");
    let left = cache.stats().partitions;
    assert!((3_500..4_500).contains(&left), "{left} partitions are freed later");
    assert_eq!(cache.stats().rows, left);
    // The same keys again: they are not those that leave.
    fill(&cache, &large, 0..400);
    assert!((0..400).all(|number| has(&cache, &large, number)) && has(&cache, &other, 9));
    let stats = cache.stats();
    assert_eq!((stats.partitions, stats.rows, stats.partition_evictions), (410, 410, 0));
    assert_eq!(stats.row_bytes / 410, one);
}

#[test]
fn a_full_cache_evicts_what_is_forgotten() {
    let table = TableBuilder::new("ks", "t", TableId([1; 16]))
        .partition_key("pk", CqlType::Int)
        .regular("a", CqlType::Blob)
        .build_known();
    let cache = Cache::new(2 << 20);
    fill(&cache, &table, 0..2_200);
    assert_eq!(cache.stats().partition_evictions, 0);
    cache.forget_table(table.id);
    fill(&cache, &table, 0..10);
    // Blocks of a file need all of the room: those that leave give it up first, whichever they are.
    let file = cache.new_file();
    for block in 0..18 {
        cache.insert_block(file, block, &cache::Block::new(vec![0; 100 << 10]));
    }
    assert!((0..10).all(|number| has(&cache, &table, number)), "younger ones stay");
    assert!(cache.stats().partition_evictions > 500);
    fill(&cache, &table, 10..400);
    let stats = cache.stats();
    assert_eq!((stats.partitions, stats.rows), (400, 400));
}
