//! The memtable against a naive model: every write stored in a list, every read answered by walking it.

mod cost;
mod freeing;
mod snapshots;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use memtable::{Memtable, MemtableSource, OnlyRow};
use mutation::merge::{Merger, Step};
use mutation::{
    Bound, Cell, Clustering, ColumnData, DecoratedKey, DeletionTime, Fragment, FragmentBuffer,
    PartitionRange, PartitionUpdate, RangeTombstone, Row, RowRange, Side, Slices,
};
use proptest::prelude::*;
use schema::{Table, TableBuilder, TableId};
use types::CqlType;

fn table() -> Arc<Table> {
    TableBuilder::new("ks", "t", TableId([1; 16]))
        .partition_key("pk", CqlType::Int)
        .clustering("ck", CqlType::Int, false)
        .static_column("s", CqlType::Int)
        .regular("a", CqlType::Int)
        .regular("b", CqlType::Int)
        .build_known()
}

fn key(n: i32) -> DecoratedKey {
    DecoratedKey::new(Bytes::copy_from_slice(&n.to_be_bytes()))
}

fn clustering(table: &Table, n: i32) -> Clustering {
    Clustering::new(table, &[Some(&n.to_be_bytes())])
}

fn bound(table: &Table, n: i32, side: Side) -> Bound {
    Bound::new(table, &[Some(&n.to_be_bytes())], side)
}

#[derive(Clone, Debug)]
enum Op {
    Cell { pk: i32, ck: i32, b: bool, ts: i64 },
    Row { pk: i32, ck: i32, ts: i64 },
    Range { pk: i32, from: i32, upto: i32, ts: i64 },
    Partition { pk: i32, ts: i64 },
    Static { pk: i32, ts: i64 },
}

fn op() -> impl Strategy<Value = Op> {
    let (pk, ck, ts) = (0..5i32, 0..12i32, 1..40i64);
    prop_oneof![
        10 => (pk.clone(), ck.clone(), any::<bool>(), ts.clone())
            .prop_map(|(pk, ck, b, ts)| Op::Cell { pk, ck, b, ts }),
        2 => (pk.clone(), ck.clone(), ts.clone()).prop_map(|(pk, ck, ts)| Op::Row { pk, ck, ts }),
        2 => (pk.clone(), ck.clone(), ck, ts.clone())
            .prop_map(|(pk, from, upto, ts)| Op::Range { pk, from, upto, ts }),
        1 => (pk.clone(), ts.clone()).prop_map(|(pk, ts)| Op::Partition { pk, ts }),
        1 => (pk, ts).prop_map(|(pk, ts)| Op::Static { pk, ts }),
    ]
}

fn update(table: &Arc<Table>, op: &Op) -> PartitionUpdate {
    let id = |name: &str| table.column(name).unwrap().id;
    let value = |ts: i64| Bytes::copy_from_slice(&(ts as i32).to_be_bytes());
    match op {
        Op::Cell { pk, ck, b, ts } => {
            let mut update = PartitionUpdate::new(table.clone(), key(*pk));
            let mut row = Row::new(clustering(table, *ck));
            row.set(id(if *b { "b" } else { "a" }), ColumnData::Simple(Cell::live(*ts, value(*ts))));
            update.add_row(row);
            update
        }
        Op::Row { pk, ck, ts } => {
            let mut update = PartitionUpdate::new(table.clone(), key(*pk));
            let mut row = Row::new(clustering(table, *ck));
            row.deletion = DeletionTime::new(*ts, 1);
            update.add_row(row);
            update
        }
        Op::Range { pk, from, upto, ts } => {
            let mut update = PartitionUpdate::new(table.clone(), key(*pk));
            update.add_range_tombstone(RangeTombstone {
                start: bound(table, *from, Side::Before),
                end: bound(table, *upto, Side::After),
                deletion: DeletionTime::new(*ts, 1),
            });
            update
        }
        Op::Partition { pk, ts } => {
            let mut update = PartitionUpdate::new(table.clone(), key(*pk));
            update.add_deletion(DeletionTime::new(*ts, 1));
            update
        }
        Op::Static { pk, ts } => {
            let mut update = PartitionUpdate::new(table.clone(), key(*pk));
            let mut row = Row::new(Clustering::empty());
            row.set(id("s"), ColumnData::Simple(Cell::live(*ts, value(*ts))));
            update.add_static(row);
            update
        }
    }
}

/// Live cells: (partition, clustering or none for static, column name) to timestamp.
type Visible = BTreeMap<(i32, Option<i32>, &'static str), i64>;

fn naive(ops: &[Op]) -> Visible {
    let deleted = |pk: i32, ck: Option<i32>| {
        ops.iter()
            .filter_map(|op| match op {
                Op::Row { pk: p, ck: c, ts } if *p == pk && Some(*c) == ck => Some(*ts),
                Op::Range { pk: p, from, upto, ts }
                    if *p == pk && ck.is_some_and(|ck| (*from..=*upto).contains(&ck)) =>
                {
                    Some(*ts)
                }
                Op::Partition { pk: p, ts } if *p == pk => Some(*ts),
                _ => None,
            })
            .max()
    };
    let mut out = Visible::new();
    for op in ops {
        let (pk, ck, name, ts) = match op {
            Op::Cell { pk, ck, b, ts } => (*pk, Some(*ck), if *b { "b" } else { "a" }, *ts),
            Op::Static { pk, ts } => (*pk, None, "s", *ts),
            _ => continue,
        };
        if deleted(pk, ck).is_none_or(|at| at < ts) {
            let entry = out.entry((pk, ck, name)).or_insert(ts);
            *entry = (*entry).max(ts);
        }
    }
    out
}

fn read(memtable: &Memtable, range: &PartitionRange, slices: &Slices, reversed: bool) -> Vec<Fragment> {
    let mut source = MemtableSource::new(memtable, range, slices, reversed);
    let mut merger = Merger::new(memtable.table(), 1, reversed);
    let mut out = Vec::new();
    loop {
        match merger.next() {
            Step::Fragment(fragment) => out.push(fragment),
            Step::Need(input) => {
                if !source.fill_now(merger.buffer(input)) {
                    merger.end(input);
                }
            }
            Step::End => return out,
        }
    }
}

fn number(bytes: &[u8]) -> i32 {
    i32::from_be_bytes(bytes.try_into().unwrap())
}

fn visible(table: &Table, fragments: &[Fragment], reversed: bool) -> Visible {
    let mut out = Visible::new();
    let mut pk = 0;
    let mut token = i64::MIN;
    let mut last: Option<i32> = None;
    for fragment in fragments {
        match fragment {
            Fragment::PartitionStart { key, .. } => {
                assert!(token < key.token, "partitions in ring order");
                (token, pk, last) = (key.token, number(&key.key), None);
            }
            Fragment::Row(row) | Fragment::StaticRow(row) => {
                let ck = row.clustering.components().next().map(|value| number(value.unwrap()));
                if ck.is_some() {
                    assert!(last.is_none_or(|last| if reversed { Some(last) > ck } else { Some(last) < ck }));
                    last = ck;
                }
                for (id, data) in row.columns() {
                    let ColumnData::Simple(cell) = data else { panic!("simple columns only") };
                    let name = ["s", "a", "b"].into_iter().find(|n| table.column(n).unwrap().id == *id);
                    out.insert((pk, ck, name.unwrap()), cell.timestamp);
                }
            }
            Fragment::RangeTombstoneChange { .. } | Fragment::PartitionEnd => {}
        }
    }
    out
}

proptest! {
    #[test]
    fn equals_the_naive_model(
        ops in prop::collection::vec(op(), 1..60),
        slices in prop::collection::vec((0..12i32, 0..12i32), 0..3),
        reversed in any::<bool>(),
    ) {
        let table = table();
        let memtable = Memtable::new(table.clone());
        ops.iter().for_each(|op| memtable.apply(update(&table, op)));
        let expected = naive(&ops);

        let all = read(&memtable, &PartitionRange::all(), &Slices::all(), reversed);
        prop_assert_eq!(visible(&table, &all, reversed), expected.clone());

        let asked = Slices::new(slices.iter().map(|(from, upto)| RowRange {
            start: bound(&table, *from, Side::Before),
            end: bound(&table, *upto, Side::After),
        }).collect());
        let inside = |ck: i32| slices.iter().any(|(from, upto)| (*from..=*upto).contains(&ck));
        for pk in 0..5 {
            let part = read(&memtable, &PartitionRange::single(&key(pk)), &asked, reversed);
            let wanted: Visible = expected.iter()
                .filter(|((p, ck, _), _)| *p == pk && ck.is_none_or(inside))
                .map(|(k, v)| (*k, *v))
                .collect();
            prop_assert_eq!(visible(&table, &part, reversed), wanted);
            for ck in 0..12 {
                let one = RowRange { start: bound(&table, ck, Side::Before), end: bound(&table, ck, Side::After) };
                let found = memtable.only_row(&key(pk), &Slices::new(vec![one]), true, |found| match found {
                    OnlyRow::More => None,
                    OnlyRow::Absent => Some(Visible::new()),
                    OnlyRow::Row(row) => {
                        let start = Fragment::PartitionStart { key: key(pk), deletion: DeletionTime::LIVE };
                        Some(visible(&table, &[start, Fragment::Row(row.clone())], false))
                    }
                });
                let wanted: Visible = expected.iter()
                    .filter(|((p, c, _), _)| (*p, *c) == (pk, Some(ck)))
                    .map(|(k, v)| (*k, *v))
                    .collect();
                prop_assert_eq!(found.unwrap_or_else(|| wanted.clone()), wanted);
            }
        }
        let keys: BTreeSet<i32> = ops.iter().map(|op| match op {
            Op::Cell { pk, .. } | Op::Row { pk, .. } | Op::Range { pk, .. } | Op::Partition { pk, .. }
            | Op::Static { pk, .. } => *pk,
        }).collect();
        prop_assert_eq!(memtable.partitions(), keys.len());
        prop_assert!(memtable.bytes() > 0);
    }

    /// Rows are written with one value in both columns while a reader is under way: every row that it sees is of
    /// one write, rows come in order, and rows that were there before the read are all seen.
    #[test]
    fn rows_are_whole_while_written(
        writes in prop::collection::vec(prop::collection::vec((0..400i32, 2..1000i64), 0..20), 1..30),
        reversed in any::<bool>(),
    ) {
        let table = table();
        let (a, b) = (table.column("a").unwrap().id, table.column("b").unwrap().id);
        let write = |memtable: &Memtable, ck: i32, ts: i64| {
            let mut update = PartitionUpdate::new(table.clone(), key(1));
            let mut row = Row::new(clustering(&table, ck));
            let value = Bytes::from(vec![ts as u8; 200]);
            row.set(a, ColumnData::Simple(Cell::live(ts, value.clone())));
            row.set(b, ColumnData::Simple(Cell::live(ts, value)));
            update.add_row(row);
            memtable.apply(update);
        };
        let memtable = Memtable::new(table.clone());
        (0..400).step_by(2).for_each(|ck| write(&memtable, ck, 1));
        let mut source =
            MemtableSource::new(&memtable, &PartitionRange::all(), &Slices::all(), reversed);
        let mut buffer = FragmentBuffer::new();
        let mut batches = 0;
        while source.fill_now(&mut buffer) {
            for (ck, ts) in writes.get(batches).into_iter().flatten() {
                write(&memtable, *ck, *ts);
            }
            batches += 1;
        }
        prop_assert!(batches > 3, "a batch is far smaller than the partition");
        let mut seen = Vec::new();
        for fragment in buffer {
            if let Fragment::Row(row) = fragment {
                prop_assert_eq!(row.cell(a), row.cell(b));
                seen.push(number(row.clustering.components().next().unwrap().unwrap()));
            }
        }
        if reversed {
            seen.reverse();
        }
        prop_assert!(seen.is_sorted_by(|x, y| x < y));
        let seen: BTreeSet<i32> = seen.into_iter().collect();
        prop_assert!((0..400).step_by(2).all(|ck| seen.contains(&ck)));
    }
}

#[test]
fn memory_is_accounted_within_a_factor() {
    let table = table();
    let memtable = Memtable::new(table.clone());
    let a = table.column("a").unwrap().id;
    for pk in 0..1000 {
        let mut update = PartitionUpdate::new(table.clone(), key(pk));
        let mut row = Row::new(clustering(&table, pk));
        row.set(a, ColumnData::Simple(Cell::live(1, Bytes::from(vec![0u8; 100]))));
        update.add_row(row);
        memtable.apply(update.clone());
        memtable.apply(update);
    }
    let each = memtable.bytes() / 1000;
    assert!((300..900).contains(&each), "{each} bytes a partition of one row of 100 bytes");
    assert_eq!((memtable.partitions(), memtable.rows()), (1000, 1000));
}
