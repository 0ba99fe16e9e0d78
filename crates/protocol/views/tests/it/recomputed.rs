//! Differential test: after any writes, received by replicas in any order, a view equals its recomputation from the base.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use mutation::{
    Bound, Cell, Clustering, ColumnData, Complex, ComplexCell, DecoratedKey, DeletionTime, LivenessInfo,
    PartitionUpdate, RangeTombstone, Row, Seconds, Side,
};
use proptest::prelude::*;
use schema::{Column, Table};
use views::View;

use crate::tables;

/// The clock of all writes. Values with a TTL expire later, at 20 or 40.
const NOW: Seconds = 10;

#[derive(Clone, Debug)]
enum Change {
    Mark(Option<Seconds>),
    Set(&'static str, i32, Option<Seconds>),
    Unset(&'static str),
    Element(i32, Option<i32>, Option<Seconds>),
    Clear,
    Row,
    Range(i32),
    Partition,
}

#[derive(Clone, Debug)]
struct Write {
    partition: i32,
    row: i32,
    timestamp: i64,
    changes: Vec<Change>,
}

fn write() -> impl Strategy<Value = Write> {
    let expires = || prop_oneof![3 => Just(None), 1 => Just(Some(20)), 1 => Just(Some(40))];
    let column = || prop_oneof![3 => Just("a"), 1 => Just("b")];
    let change = prop_oneof![
        2 => expires().prop_map(Change::Mark),
        6 => (column(), 0..3i32, expires()).prop_map(|(name, value, end)| Change::Set(name, value, end)),
        2 => column().prop_map(Change::Unset),
        2 => (0..2i32, prop::option::of(0..3i32), expires()).prop_map(|(k, v, end)| Change::Element(k, v, end)),
        1 => Just(Change::Clear),
        1 => Just(Change::Row),
        1 => (0..3i32).prop_map(Change::Range),
        1 => Just(Change::Partition),
    ];
    let changes = prop::collection::vec(change, 1..4);
    (1..3i32, 0..3i32, 1..7i64, changes).prop_map(|(partition, row, timestamp, changes)| Write {
        partition,
        row,
        timestamp,
        changes,
    })
}

fn int(value: i32) -> Bytes {
    Bytes::copy_from_slice(&value.to_be_bytes())
}

fn update(base: &Arc<Table>, write: &Write) -> PartitionUpdate {
    let id = |name: &str| base.column(name).expect("a column of the base").id;
    let mut update = PartitionUpdate::new(base.clone(), DecoratedKey::new(int(write.partition)));
    let (at, key) = (write.timestamp, Clustering::new(base, &[Some(&int(write.row))]));
    let deletion = DeletionTime::new(at, NOW);
    let cell = |value: i32, end: Option<Seconds>| match end {
        None => Cell::live(at, int(value)),
        Some(end) => Cell::expiring(at, end - NOW, end, int(value)),
    };
    let gone = Cell::tombstone(at, NOW);
    for change in &write.changes {
        let mut row = Row::new(key.clone());
        match change {
            Change::Mark(None) => row.liveness = LivenessInfo::forever(at),
            Change::Mark(Some(end)) => row.liveness = LivenessInfo::expiring(at, end - NOW, *end),
            Change::Set(name, value, end) => row.set(id(name), ColumnData::Simple(cell(*value, *end))),
            Change::Unset(name) => row.set(id(name), ColumnData::Simple(gone.clone())),
            Change::Element(path, value, end) => {
                let cell = value.map_or_else(|| gone.clone(), |value| cell(value, *end));
                let cells = vec![ComplexCell { path: int(*path), cell }];
                row.set(id("m"), ColumnData::Complex(Complex { cells, ..Complex::empty() }));
            }
            Change::Clear => {
                row.set(id("m"), ColumnData::Complex(Complex { deletion, cells: Vec::new() }));
            }
            Change::Row => row.deletion = deletion,
            Change::Range(from) => update.add_range_tombstone(RangeTombstone {
                start: Bound::new(base, &[Some(&int(*from))], Side::Before),
                end: Bound::top(),
                deletion,
            }),
            Change::Partition => update.add_deletion(deletion),
        }
        if !row.is_empty() {
            update.add_row(row);
        }
    }
    update
}

type Partitions = BTreeMap<DecoratedKey, PartitionUpdate>;

fn apply(partitions: &mut Partitions, update: PartitionUpdate) {
    match partitions.get_mut(&update.key) {
        Some(partition) => partition.merge(update),
        None => drop(partitions.insert(update.key.clone(), update)),
    }
}

/// The rows that a reader of a table finds in it, without the rows hidden in them.
fn rows(partitions: &Partitions) -> impl Iterator<Item = (&DecoratedKey, Row)> {
    partitions.values().flat_map(|partition| {
        partition.rows().iter().map(|row| {
            let mut row = row.clone();
            row.normalise();
            row.delete_shadowed(partition.deletion.max(partition.range_tombstones.covering(&row.clustering)));
            (&partition.key, row)
        })
    })
}

fn shown(row: &Row, column: &Column, now: Seconds) -> String {
    match row.column(column.id) {
        None => String::new(),
        Some(ColumnData::Simple(cell)) if cell.is_live(now) => format!("{cell:?}"),
        Some(ColumnData::Simple(_)) => String::new(),
        Some(ColumnData::Complex(complex)) => {
            let live = complex.cells.iter().filter(|element| element.cell.is_live(now));
            live.map(|element| format!("{:?}={:?} ", element.path, element.cell)).collect()
        }
    }
}

/// The rows of the view as texts: key columns by name, then others.
fn recomputed(base: &Arc<Table>, of: &Partitions, view: &View, now: Seconds) -> Vec<String> {
    let mut found = Vec::new();
    for (key, row) in rows(of) {
        let mut texts: BTreeMap<String, String> = BTreeMap::new();
        texts.insert("p".to_owned(), format!("{:?}", key.key));
        texts.insert("c".to_owned(), format!("{:?}", row.clustering.components().next().unwrap().unwrap()));
        let table = view.table();
        let keys: Vec<&str> = table
            .partition_key()
            .iter()
            .chain(table.clustering())
            .map(|column| column.name.as_str())
            .collect();
        let value = |name: &str| {
            let cell = row.cell(base.column(name).unwrap().id).filter(|cell| cell.is_live(now));
            cell.map(|cell| i32::from_be_bytes(cell.value.as_ref().try_into().unwrap()))
        };
        let c = i32::from_be_bytes(row.clustering.components().next().unwrap().unwrap().try_into().unwrap());
        let is_there = match keys.as_slice() {
            // The two with conditions.
            ["p", "c"] => row.is_live(now) && (c == 0 || c == 2),
            ["p", "a", "c"] => value("a").is_some_and(|a| a >= 1),
            keys if keys.contains(&"a") => value("a").is_some(),
            _ => row.is_live(now),
        };
        if !is_there {
            continue;
        }
        if let Some(a) = value("a").filter(|_| keys.contains(&"a")) {
            texts.insert("a".to_owned(), format!("{:?}", int(a)));
        }
        for column in table.regular_columns().iter().filter(|column| !column.name.is_empty()) {
            let of = base.column(&column.name).unwrap();
            texts.insert(column.name.clone(), shown(&row, of, now));
        }
        found.push(format!("{texts:?}").replace("b\\\"", "\\\""));
    }
    found.sort();
    found
}

/// The rows that a reader finds in the view, in the same form.
fn found(of: &Partitions, view: &View, now: Seconds) -> Vec<String> {
    let mut found = Vec::new();
    for (key, row) in rows(of).filter(|(key, row)| view.is_present(key, row, now)) {
        let mut texts: BTreeMap<String, String> = BTreeMap::new();
        let table = view.table();
        let components = DecoratedKey::components(&key.key, table.partition_key().len()).unwrap();
        for (column, value) in table.partition_key().iter().zip(components) {
            texts.insert(column.name.clone(), text_of(&column.name, value));
        }
        for (column, value) in table.clustering().iter().zip(row.clustering.components()) {
            texts.insert(column.name.clone(), text_of(&column.name, value.unwrap()));
        }
        for column in table.regular_columns().iter().filter(|column| !column.name.is_empty()) {
            texts.insert(column.name.clone(), shown(&row, column, now));
        }
        found.push(format!("{texts:?}").replace("b\\\"", "\\\""));
    }
    found.sort();
    found
}

fn text_of(name: &str, value: &[u8]) -> String {
    match name {
        "c" => format!("{value:?}"),
        _ => format!("{:?}", Bytes::copy_from_slice(value)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_view_equals_its_recomputation(
        writes in prop::collection::vec(write(), 1..12),
        orders in prop::collection::vec(prop::collection::vec(any::<u32>(), 24), 3),
    ) {
        let base = tables::base();
        let updates: Vec<PartitionUpdate> = writes.iter().map(|write| update(&base, write)).collect();
        for view in tables::views(&base) {
            // All that follows from writes at any replica, as one view replica may get it.
            let mut together: Vec<(u32, PartitionUpdate)> = Vec::new();
            let mut replica = Partitions::new();
            for order in &orders {
                replica = Partitions::new();
                let mut paired = Partitions::new();
                // Some come twice.
                let mut arrivals: Vec<(u32, &PartitionUpdate)> =
                    updates.iter().chain(&updates).enumerate().map(|(at, update)| (order[at % order.len()], update)).collect();
                arrivals.sort_by_key(|(at, _)| *at);
                for (at, update) in arrivals {
                    let empty = PartitionUpdate::new(base.clone(), update.key.clone());
                    let before = replica.get(&update.key).unwrap_or(&empty);
                    for change in view.changes(before, update, NOW) {
                        together.push((at.rotate_left(16), change.clone()));
                        apply(&mut paired, change);
                    }
                    apply(&mut replica, update.clone());
                }
                for now in [NOW, 30, 50] {
                    prop_assert_eq!(found(&paired, &view, now), recomputed(&base, &replica, &view, now), "paired at {}, {:?}", now, view.table());
                }
            }
            together.sort_by_key(|(at, _)| *at);
            let mut merged = Partitions::new();
            together.into_iter().for_each(|(_, change)| apply(&mut merged, change));
            let mut built = Partitions::new();
            replica.values().flat_map(|partition| view.all(partition, NOW)).for_each(|change| apply(&mut built, change));
            for now in [NOW, 30, 50] {
                let expected = recomputed(&base, &replica, &view, now);
                prop_assert_eq!(found(&merged, &view, now), expected.clone(), "of all replicas at {}", now);
                prop_assert_eq!(found(&built, &view, now), expected, "built at {}", now);
            }
        }
    }
}

/// The view's rows at all places where either of two has any.
fn places(of: &[&Partitions]) -> Vec<(DecoratedKey, Clustering)> {
    let rows = of.iter().flat_map(|partitions| partitions.values());
    let places = rows.flat_map(|partition| {
        partition.rows().iter().map(|row| (partition.key.clone(), row.clustering.clone()))
    });
    let mut places: Vec<_> = places.collect();
    places.sort();
    places.dedup();
    places
}

fn row_at(of: &Partitions, key: &DecoratedKey, clustering: &Clustering) -> Option<Row> {
    of.get(key).map(|partition| partition.row_at(clustering))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// A view of one base is compared with another base: differences are those that a reader sees, and mending removes them.
    #[test]
    fn a_view_that_differs_from_its_base_is_found_and_repaired(
        writes in prop::collection::vec(write(), 1..8),
        others in prop::collection::vec(write(), 0..8),
    ) {
        let base = tables::base();
        let applied = |writes: &[Write]| {
            let mut partitions = Partitions::new();
            writes.iter().for_each(|write| apply(&mut partitions, update(&base, write)));
            partitions
        };
        let (own, other) = (applied(&writes), applied(&others));
        let texts = |rows: Vec<String>| {
            let mut texts: Vec<String> = rows.iter().map(|row| without_timestamps(row)).collect();
            texts.sort();
            texts
        };
        for view in tables::views(&base) {
            let derived = |of: &Partitions| {
                let mut built = Partitions::new();
                of.values().flat_map(|partition| view.all(partition, NOW)).for_each(|change| apply(&mut built, change));
                built
            };
            let (right, mut shown) = (derived(&own), derived(&other));
            let expected = |key: &DecoratedKey, clustering: &Clustering| {
                let (base_key, base_row) = view.origin(&base, key, clustering).expect("a key of the view");
                let row = row_at(&own, &base_key, &base_row)?;
                view.expected(&base_key, &row, NOW).filter(|(at, row)| (at, &row.clustering) == (key, clustering))
            };
            let compared = |shown: &Partitions, key: &DecoratedKey, clustering: &Clustering| {
                let expected = expected(key, clustering).map(|(_, row)| row);
                view.compare(key, expected.as_ref(), row_at(shown, key, clustering).as_ref(), NOW)
            };
            let places = places(&[&right, &shown]);
            let differs = places.iter().any(|(key, row)| compared(&shown, key, row).is_some());
            // A raised timestamp alone is no difference: repairs leave such cells.
            if texts(found(&shown, &view, NOW)) != texts(recomputed(&base, &own, &view, NOW)) {
                prop_assert!(differs, "not found in {:?}", view.table());
            }
            for (key, clustering) in &places {
                prop_assert_eq!(compared(&right, key, clustering), None, "right in {:?}", view.table());
                for floor in [i64::MIN, 10] {
                    let there = row_at(&shown, key, clustering);
                    if compared(&shown, key, clustering).is_none() {
                        continue;
                    }
                    let wanted = expected(key, clustering).map(|(_, row)| row);
                    let repaired = view.repair(clustering, wanted.as_ref(), there.as_ref(), floor, NOW);
                    let mut update = PartitionUpdate::new(view.table().clone(), key.clone());
                    update.add_row(repaired);
                    apply(&mut shown, update);
                }
                prop_assert_eq!(compared(&shown, key, clustering), None, "repaired in {:?}", view.table());
            }
            for now in [NOW, 30, 50] {
                let expected = recomputed(&base, &own, &view, now);
                prop_assert_eq!(texts(found(&shown, &view, now)), texts(expected), "repaired, at {}", now);
            }
        }
    }
}

/// A row's text without the timestamps of its cells, which mending may have raised.
fn without_timestamps(row: &str) -> String {
    let mut parts = row.split('@');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| out + part.trim_start_matches(|c: char| c.is_ascii_digit()))
}
