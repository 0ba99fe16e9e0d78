//! A base is found equal to its replayed log, and different from the log of other writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cdc::{Divergence, Log, Naming, Replay, StreamId, Window, compare};
use mutation::{
    Bound, Cell, Clustering, ColumnData, Complex, ComplexCell, DecoratedKey, DeletionTime, LivenessInfo,
    PartitionUpdate, RangeTombstone, Row, Side,
};
use proptest::prelude::*;
use schema::Table;
use testkit::updates::table;

use crate::tables::{log, options};

const NOW: u32 = 5;
const ROWS: i32 = 4;
const WINDOW: Window = Window { since: 0, upto: 4_000_000 };

#[derive(Clone, Debug)]
enum Change {
    Insert(i32, u8),
    Value(i32, Option<u8>),
    Expiring(i32, u8),
    Whole(i32, Vec<u8>),
    Element(i32, u8, Option<u8>),
    Static(u8),
    DeleteRow(i32),
    DeleteRange(i32, i32),
    DeletePartition,
}

/// A write of the second after the first.
type Write = (i64, Change);

fn write() -> impl Strategy<Value = Write> {
    let (row, value) = (0..ROWS, any::<u8>());
    let change = prop_oneof![
        (row.clone(), value.clone()).prop_map(|(row, value)| Change::Insert(row, value)),
        (row.clone(), any::<Option<u8>>()).prop_map(|(row, value)| Change::Value(row, value)),
        (row.clone(), value.clone()).prop_map(|(row, value)| Change::Expiring(row, value)),
        (row.clone(), prop::collection::btree_set(0..3u8, 0..3))
            .prop_map(|(row, paths)| Change::Whole(row, paths.into_iter().collect())),
        (row.clone(), 0..3u8, any::<Option<u8>>())
            .prop_map(|(row, path, value)| Change::Element(row, path, value)),
        value.prop_map(Change::Static),
        row.clone().prop_map(Change::DeleteRow),
        (row.clone(), row).prop_map(|(from, upto)| Change::DeleteRange(from, upto)),
        Just(Change::DeletePartition),
    ];
    // Two apart: the deletion of a collection's former elements is just below its write.
    (0..200_000i64, change).prop_map(|(at, change)| (1_000_000 + 2 * at, change))
}

fn clustering(table: &Table, row: i32) -> Clustering {
    Clustering::new(table, &[Some(&row.to_be_bytes()), Some(b"c")])
}

fn update_of(table: &Arc<Table>, (at, change): &Write) -> PartitionUpdate {
    let at = *at;
    let mut update = PartitionUpdate::new(table.clone(), DecoratedKey::new(Bytes::from_static(b"pk")));
    let id = |name: &str| table.column(name).expect("a column").id;
    let bytes = |value: u8| Bytes::from(vec![value]);
    let cell = |value: &Option<u8>| match value {
        Some(value) => Cell::live(at, bytes(*value)),
        None => Cell::tombstone(at, 1),
    };
    let mut put = |row: i32, column: &str, data: ColumnData| {
        let mut it = Row::new(clustering(table, row));
        it.set(id(column), data);
        update.add_row(it);
    };
    match change {
        Change::Insert(row, value) => {
            let mut it = Row::new(clustering(table, *row));
            it.liveness = LivenessInfo::forever(at);
            it.set(id("v"), ColumnData::Simple(Cell::live(at, bytes(*value))));
            update.add_row(it);
        }
        Change::Value(row, value) => put(*row, "w", ColumnData::Simple(cell(value))),
        Change::Expiring(row, value) => {
            put(*row, "v", ColumnData::Simple(Cell::expiring(at, 1_000, 1_001, bytes(*value))));
        }
        Change::Whole(row, paths) => {
            let element = |path: &u8| ComplexCell { path: bytes(*path), cell: cell(&Some(*path)) };
            let complex = Complex {
                deletion: DeletionTime::new(at - 1, 1),
                cells: paths.iter().map(element).collect(),
            };
            put(*row, "m", ColumnData::Complex(complex));
        }
        Change::Element(row, path, value) => {
            let cells = vec![ComplexCell { path: bytes(*path), cell: cell(value) }];
            put(*row, "m", ColumnData::Complex(Complex { cells, ..Complex::empty() }));
        }
        Change::Static(value) => {
            let mut row = Row::new(Clustering::empty());
            row.set(id("s"), ColumnData::Simple(cell(&Some(*value))));
            update.add_static(row);
        }
        Change::DeleteRow(row) => {
            let mut it = Row::new(clustering(table, *row));
            it.deletion = DeletionTime::new(at, 1);
            update.add_row(it);
        }
        Change::DeleteRange(from, upto) => {
            let bound = |row: &i32, side| Bound::new(table, &[Some(&row.to_be_bytes())], side);
            let (from, upto) = (from.min(upto), from.max(upto));
            let (start, end) = (bound(from, Side::Before), bound(upto, Side::After));
            let deletion = DeletionTime::new(at, 1);
            update.add_range_tombstone(RangeTombstone { start, end, deletion });
        }
        Change::DeletePartition => update.add_deletion(DeletionTime::new(at, 1)),
    }
    update
}

fn merged(table: &Arc<Table>, writes: &[Write]) -> PartitionUpdate {
    let mut all = PartitionUpdate::new(table.clone(), DecoratedKey::new(Bytes::from_static(b"pk")));
    writes.iter().for_each(|write| all.merge(update_of(table, write)));
    all
}

fn replayed(log: &Log, table: &Arc<Table>, writes: &[Write]) -> Option<PartitionUpdate> {
    let mut replay = Replay::new(log, table);
    for write in writes {
        let stream = &mut |_| StreamId([1; 16]);
        for change in log.changes(None, &update_of(table, write), stream, Naming::Canonical) {
            for row in change.rows() {
                replay.push(row, |_| true).expect("a row of the log");
            }
        }
    }
    let mut all = replay.finish();
    assert!(all.len() <= 1, "there is one partition");
    all.pop_first().map(|(_, update)| update)
}

/// The differences by row; the static row is none.
fn differences(
    table: &Arc<Table>,
    base: &PartitionUpdate,
    replayed: Option<&PartitionUpdate>,
) -> BTreeMap<Option<i32>, Divergence> {
    let mut found = BTreeMap::new();
    for number in 0..ROWS {
        let clustering = clustering(table, number);
        let row = Some(base.row_at(&clustering)).filter(|row| row.is_live(NOW));
        let divergence = compare(table, replayed, Some(&clustering), row.as_ref(), WINDOW, NOW);
        found.extend(divergence.map(|divergence| (Some(number), divergence)));
    }
    let mut row = base.static_row().cloned().unwrap_or_else(|| Row::new(Clustering::empty()));
    row.delete_shadowed(base.deletion);
    let row = Some(row).filter(|row| row.has_live_cell(NOW));
    let divergence = compare(table, replayed, None, row.as_ref(), WINDOW, NOW);
    found.extend(divergence.map(|divergence| (None, divergence)));
    found
}

proptest! {
    #[test]
    fn a_base_is_its_replayed_log(writes in prop::collection::vec(write(), 0..20)) {
        let (table, log) = (table(), log(options(false)));
        let replayed = replayed(&log, &table, &writes);
        prop_assert_eq!(differences(&table, &merged(&table, &writes), replayed.as_ref()), BTreeMap::new());
    }

    #[test]
    fn a_change_that_one_of_them_lacks_is_found(writes in prop::collection::vec(write(), 0..20), row in 0..ROWS) {
        let (table, log) = (table(), log(options(false)));
        let mut all = writes.clone();
        all.push((2_000_000, Change::Insert(row, 7)));
        let without = replayed(&log, &table, &writes);
        let found = differences(&table, &merged(&table, &all), without.as_ref());
        prop_assert_eq!(found, BTreeMap::from([(Some(row), Divergence::Unlogged)]));
        let with = replayed(&log, &table, &all);
        let found = differences(&table, &merged(&table, &writes), with.as_ref());
        prop_assert_eq!(found, BTreeMap::from([(Some(row), Divergence::Unapplied)]));
        // A row that was deleted by the log alone.
        let mut gone = all.clone();
        gone.push((2_000_002, Change::DeleteRange(row, row)));
        let with = replayed(&log, &table, &gone);
        let found = differences(&table, &merged(&table, &all), with.as_ref());
        prop_assert_eq!(found, BTreeMap::from([(Some(row), Divergence::Unapplied)]));
    }
}

/// Of writes before the log, and of those behind the time at which it was read, nothing is expected.
#[test]
fn writes_outside_of_the_window_are_not_compared() {
    let table = table();
    let base = merged(&table, &[(1_000_000, Change::Insert(1, 1)), (3_000_000, Change::Insert(2, 2))]);
    let looked = |since, upto| {
        let row = |number| {
            let clustering = clustering(&table, number);
            let row = base.row_at(&clustering);
            compare(&table, None, Some(&clustering), Some(&row), Window { since, upto }, NOW)
        };
        (row(1), row(2))
    };
    let unlogged = Some(Divergence::Unlogged);
    assert_eq!(looked(0, 4_000_000), (unlogged, unlogged));
    assert_eq!(looked(1_000_001, 3_000_000), (None, unlogged));
    assert_eq!(looked(1_000_000, 2_999_999), (unlogged, None));
}
