//! Columns that are dropped and added again: which cells are visible follows from their timestamps and the time of the drop, not from the
//! moments of flushes, compactions, reads and restarts between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use engine::{Canaries, Engine, Origin, Read, RowLookup, SyncMode, SyncStep, Write};
use mutation::{
    Cell, Clustering, ColumnData, Complex, ComplexCell, DeletionTime, Fragment, PartitionRange,
    PartitionUpdate, Row, Slices,
};
use rt::Rt;
use schema::{ColumnId, Keyspace, Replication, Schema, Table, TableBuilder, TableId};
use types::CqlType;

use crate::model::key;
use crate::world::{Plan, config, on_a_node};

const DROPPED: i64 = 1_000;
const VALUES: [&str; 3] = ["m", "s", "v"];

fn with_values(builder: TableBuilder) -> TableBuilder {
    let set = CqlType::Set { element: Arc::new(CqlType::Int), frozen: false };
    builder.static_column("s", CqlType::Int).regular("m", set).regular("v", CqlType::Int)
}

/// The definition with the columns, without them, and with them again.
fn definitions() -> [Table; 3] {
    let builder = TableBuilder::new("ks", "t", TableId([1; 16]))
        .partition_key("pk", CqlType::Int)
        .clustering("ck", CqlType::Int, false)
        .regular("w", CqlType::Int);
    let whole = with_values(builder).build().unwrap();
    let mut gone = whole.to_builder();
    VALUES.iter().for_each(|name| gone.drop_column(name, DROPPED));
    let gone = gone.build().unwrap();
    let back = with_values(gone.to_builder()).build().unwrap();
    [whole, gone, back]
}

fn schema(table: Table) -> Arc<Schema> {
    Arc::new(Schema::default().with_keyspace(Keyspace::new("ks", Replication::Local)).with_table(table))
}

/// A write of all columns of a partition that the table has, at one time; an overwrite of the set.
fn update(table: &Arc<Table>, pk: i32, timestamp: i64, names: &[&str]) -> PartitionUpdate {
    let cell = || Cell::live(timestamp, Bytes::from_static(&[0, 0, 0, 7]));
    let mut update = PartitionUpdate::new(table.clone(), key(pk));
    let mut row = Row::new(Clustering::new(table, &[Some(&[0; 4])]));
    for name in names {
        let Some(column) = table.column(name) else { continue };
        if *name == "s" {
            let mut fixed = Row::new(Clustering::empty());
            fixed.set(column.id, ColumnData::Simple(cell()));
            update.add_static(fixed);
        } else if column.is_complex() {
            let element =
                ComplexCell { path: Bytes::from((timestamp as i32).to_be_bytes().to_vec()), cell: cell() };
            let deletion = DeletionTime::new(timestamp - 1, 4_000_000_000);
            row.set(column.id, ColumnData::Complex(Complex { deletion, cells: vec![element] }));
        } else {
            row.set(column.id, ColumnData::Simple(cell()));
        }
    }
    update.add_row(row);
    update
}

type Seen = BTreeMap<(i32, String), Vec<i64>>;

/// The timestamps of each column of each partition, deletions of sets among them.
async fn seen(engine: &Engine, table: &Arc<Table>, range: &PartitionRange) -> Seen {
    let (slices, mut out, mut pk) = (Slices::all(), Seen::new(), 0);
    let mut reader = engine.read(&Read::new(table.id, range, &slices)).unwrap();
    loop {
        let mut fragment = match reader.try_next_sync().unwrap() {
            SyncStep::Fragment(fragment) => fragment,
            SyncStep::End => return out,
            SyncStep::Wait => match reader.next().await.unwrap() {
                Some(fragment) => fragment,
                None => return out,
            },
        };
        // As replicas read.
        if !fragment.keep_columns(table) {
            continue;
        }
        match &fragment {
            Fragment::PartitionStart { key, .. } => pk = i32::from_be_bytes(key.key[..].try_into().unwrap()),
            Fragment::Row(row) | Fragment::StaticRow(row) => out.extend(times(row, pk, table)),
            _ => {}
        }
    }
}

/// The timestamps of each column of a row.
fn times(row: &Row, pk: i32, table: &Table) -> Seen {
    let of = |(id, data): &(ColumnId, ColumnData)| {
        let times = match data {
            ColumnData::Simple(cell) => vec![cell.timestamp],
            ColumnData::Complex(complex) => {
                let cells = complex.cells.iter().map(|element| element.cell.timestamp);
                let deletion = (!complex.deletion.is_live()).then_some(complex.deletion.timestamp);
                deletion.into_iter().chain(cells).collect()
            }
        };
        ((pk, table.column_by_id(*id).unwrap().name.clone()), times)
    };
    row.columns().iter().map(of).collect()
}

/// The same of a partition whose only row memory knows, looked up where it lies.
fn looked_up(engine: &Engine, table: &Arc<Table>, pk: i32) -> Option<Seen> {
    let visit = |row: Option<&Row>| {
        // As replicas read.
        let is_known = row.is_none_or(|row| row.is_known_to(table));
        is_known.then(|| row.map(|row| times(row, pk, table)).unwrap_or_default())
    };
    let (key, slices) = (key(pk), Slices::all());
    let lookup = RowLookup { key: &key, slices: &slices, bypass_cache: false, values_only: false };
    engine.visit_only_row(table, &lookup, visit).unwrap()
}

/// Compares the rows of a scan, and those of reads of each partition, twice, so that the second time the cache answers.
async fn check(engine: &Engine, table: &Arc<Table>, wanted: &Seen, case: &str) {
    assert_eq!(seen(engine, table, &PartitionRange::all()).await, *wanted, "scan, {case}");
    for round in 0..2 {
        let mut found = Seen::new();
        for pk in 1..=6 {
            found.extend(seen(engine, table, &PartitionRange::single(&key(pk))).await);
        }
        assert_eq!(found, *wanted, "round {round}, {case}");
        for pk in 1..=6 {
            let Some(found) = looked_up(engine, table, pk) else { continue };
            let wanted = wanted.iter().filter(|((of, _), _)| *of == pk);
            assert!(found.iter().eq(wanted), "round {round}, lookup of {pk}: {found:?}, {case}");
        }
    }
}

fn expected(entries: &[(i32, &str, &[i64])]) -> Seen {
    entries.iter().map(|(pk, name, times)| ((*pk, (*name).to_owned()), times.to_vec())).collect()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Between {
    Nothing,
    Flush,
    Compact,
    Restart,
}

const BETWEEN: [Between; 4] = [Between::Nothing, Between::Flush, Between::Compact, Between::Restart];

async fn between(rt: &Rt, engine: Engine, what: Between, table: &Table) -> Engine {
    match what {
        Between::Nothing => {}
        Between::Flush => engine.flush(table.id).await.unwrap(),
        Between::Compact => {
            engine.flush(table.id).await.unwrap();
            engine.compact(table.id).await.unwrap();
        }
        Between::Restart => {
            engine.stop().await.unwrap();
            drop(engine);
            return Engine::open(rt.clone(), config(&plan()), schema(table.clone())).await.unwrap();
        }
    }
    engine
}

fn plan() -> Plan {
    Plan { sync: SyncMode::Batch, canaries: Canaries::default(), gc_grace: 0, sstables: true, ops_max: 0 }
}

/// Drops the columns and adds them again; something happens before the drop, between, after the addition, and after later writes.
async fn history(rt: Rt, steps: [Between; 4]) {
    let case = format!("{steps:?}");
    let [whole, gone, back] = definitions();
    let mut engine = Engine::open(rt.clone(), config(&plan()), schema(whole.clone())).await.unwrap();
    let table = Arc::new(whole.clone());
    let all = ["m", "s", "v", "w"];
    let late = update(&table, 5, 2_500, &["v"]);
    for one in [
        update(&table, 1, 500, &all),
        update(&table, 2, 2_000, &all),
        update(&table, 3, 500, &["m"]),
        update(&table, 3, 2_000, &["m"]),
        update(&table, 6, 500, &["v", "w"]),
    ] {
        engine.apply(Write::one(Origin::Client, one)).await.unwrap();
    }
    engine = between(&rt, engine, steps[0], &whole).await;

    // The ids of a process that restarts are anew those of the definition.
    let gone = gone.with_ids_of(&whole);
    engine.set_schema(schema(gone.clone())).await;
    let table = Arc::new(gone.clone());
    let wanted = expected(&[(1, "w", &[500]), (2, "w", &[2_000]), (6, "w", &[500])]);
    check(&engine, &table, &wanted, &format!("dropped, {case}")).await;
    engine = between(&rt, engine, steps[1], &gone).await;
    check(&engine, &table, &wanted, &format!("dropped, {case}")).await;

    let back = back.with_ids_of(&gone);
    engine.set_schema(schema(back.clone())).await;
    let table = Arc::new(back.clone());
    let mut wanted = expected(&[
        (1, "w", &[500]),
        (2, "m", &[1_999, 2_000]),
        (2, "s", &[2_000]),
        (2, "v", &[2_000]),
        (2, "w", &[2_000]),
        (3, "m", &[1_999, 2_000]),
        (6, "w", &[500]),
    ]);
    check(&engine, &table, &wanted, &format!("added, {case}")).await;
    engine = between(&rt, engine, steps[2], &back).await;
    check(&engine, &table, &wanted, &format!("added, {case}")).await;

    // Older than the drop; and one that was under way since before it.
    for one in [update(&table, 4, 600, &all), update(&table, 4, 600, &["v"]), late] {
        engine.apply(Write::one(Origin::Client, one)).await.unwrap();
    }
    let several = vec![update(&table, 5, 1_000, &["s", "v"]), update(&table, 4, 1_001, &["m"])];
    engine.apply(Write::all(Origin::Client, several)).await.unwrap();
    wanted.extend(expected(&[(4, "w", &[600]), (5, "v", &[2_500])]));
    wanted.extend(expected(&[(4, "m", &[1_001])]));
    check(&engine, &table, &wanted, &format!("written, {case}")).await;
    engine = between(&rt, engine, steps[3], &back).await;
    check(&engine, &table, &wanted, &format!("written, {case}")).await;
    engine.flush(table.id).await.unwrap();
    check(&engine, &table, &wanted, &format!("flushed, {case}")).await;
    engine.stop().await.unwrap();
}

#[test]
fn what_is_visible_does_not_depend_on_the_moments_of_flushes() {
    for number in 0..BETWEEN.len().pow(4) {
        let at = |place: u32| BETWEEN[number / BETWEEN.len().pow(place) % BETWEEN.len()];
        let steps = [at(0), at(1), at(2), at(3)];
        on_a_node(number as u64, move |rt| history(rt, steps));
    }
}
