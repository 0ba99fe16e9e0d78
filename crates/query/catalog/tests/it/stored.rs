//! Reads of `system_schema`: in pages, in each order, of a part; and their cost where the schema is large.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use catalog::{COLUMNS_A_STEP, StoredSchema};
use coordinator::{ComputedRows, read_computed};
use mutation::{Bound, DecoratedKey, PartitionRange, RowRange, Side, Slices};
use replica::{Partitions, ReadCommand};
use rt_sim::{Config, Simulation};
use schema::{Keyspace, Replication, Schema, TableBuilder, TableId};
use types::{CqlType, UserType};

fn keyspace(name: &str, tables: u32, columns: u32) -> Keyspace {
    let mut keyspace = Keyspace::new(name, Replication::Local);
    for number in 0..tables {
        let mut id = [name.len() as u8; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        let mut table =
            TableBuilder::new(name, format!("t{number:05}"), TableId(id)).partition_key("k", CqlType::Int);
        for column in 0..columns {
            table = table.regular(format!("c{column:05}"), CqlType::Int);
        }
        let table = table.build_known();
        keyspace.tables.insert(table.name.clone(), table);
        let (name, fields) = (format!("u{number:05}"), vec![("f".to_owned(), CqlType::Int)]);
        let ty = UserType { keyspace: keyspace.name.clone(), name: name.clone(), fields };
        keyspace.types.insert(name, Arc::new(ty));
    }
    keyspace
}

fn schema(keyspaces: impl IntoIterator<Item = Keyspace>) -> Arc<Schema> {
    let computed = catalog::computed_keyspaces().into_iter();
    Arc::new(computed.chain(keyspaces).fold(Schema::default(), |schema, one| schema.with_keyspace(one)))
}

fn key(name: &str) -> DecoratedKey {
    DecoratedKey::new(name.as_bytes().to_vec().into())
}

fn one_keyspace(name: &str) -> Partitions {
    Partitions::Keys([key(name)].into_iter().collect())
}

fn command(schema: &Schema, name: &str, partitions: Partitions) -> ReadCommand {
    let table = schema.table("system_schema", name).expect("it is there").clone();
    ReadCommand::all_of(table, partitions, 0)
}

/// A row's keyspace and clustering key.
type RowKey = (String, Vec<String>);

/// A read's rows, those that were made for them, steps, and the longest poll in steps of executors' tasks.
#[derive(Default)]
struct Seen {
    rows: Vec<RowKey>,
    made: usize,
    pages: usize,
    polls: usize,
}

/// Reads page after page; each object that is looked at is a place to yield.
fn read(schema: &Arc<Schema>, mut command: ReadCommand) -> Seen {
    let sim = Simulation::new(3, Config { preempt_per_million: 1_000_000, ..Config::default() });
    let schema = schema.clone();
    let seen = sim.block_on(move |_| async move {
        let mut seen = Seen::default();
        loop {
            let made = Rc::new(Cell::new(0));
            let count = made.clone();
            let stored =
                StoredSchema::new(&command, &schema).expect("of system_schema").inspect(move |part| {
                    assert!(part.rows().len() <= 5_000, "a part is of a table");
                    count.set(count.get() + part.rows().len());
                });
            let (page, polls) =
                polled(read_computed(&command, ComputedRows::InOrder(Box::new(stored)))).await;
            seen.made += made.get();
            seen.polls += polls;
            seen.pages += 1;
            for partition in &page.partitions {
                let keyspace = String::from_utf8_lossy(&partition.key.key).into_owned();
                seen.rows.extend(partition.rows.iter().map(|row| {
                    let components = row.clustering.components();
                    let texts =
                        components.map(|c| String::from_utf8_lossy(c.unwrap_or_default()).into_owned());
                    (keyspace.clone(), texts.collect())
                }));
            }
            command.resume = page.more;
            if command.resume.is_none() {
                return seen;
            }
        }
    });
    seen.expect("it ends")
}

async fn polled<T>(future: impl Future<Output = T>) -> (T, usize) {
    let (mut future, mut polls) = (pin!(future), 0);
    let out = poll_fn(|cx| {
        polls += 1;
        future.as_mut().poll(cx)
    });
    (out.await, polls)
}

fn each_once(rows: &[RowKey]) -> bool {
    rows.iter().collect::<BTreeSet<_>>().len() == rows.len()
}

#[test]
fn pages_of_a_large_keyspace_make_each_row_about_once() {
    let schema = schema([keyspace("ks", 5_000, 3)]);
    for (name, rows) in [("tables", 5_000), ("columns", 20_000), ("types", 5_000)] {
        for reversed in [false, true] {
            let mut command = command(&schema, name, one_keyspace("ks"));
            command.limits.rows = 100;
            command.reversed = reversed;
            let seen = read(&schema, command);
            println!("{name}: {} rows made in {} pages, {} polls", seen.made, seen.pages, seen.polls);
            assert_eq!(seen.rows.len(), rows, "{name}");
            assert!(each_once(&seen.rows), "{name}");
            let in_order = |a: &RowKey, b: &RowKey| if reversed { a.1 > b.1 } else { a.1 < b.1 };
            assert!(seen.rows.is_sorted_by(in_order), "{name}");
            assert!(seen.pages >= rows / 100);
            assert!(seen.made < rows * 2, "{name}: {} rows were made for {rows}", seen.made);
            // A part of 64 steps or 64 rows at most lie between two looks.
            assert!(seen.polls > rows / 64, "{name}: {} polls", seen.polls);
        }
    }
}

#[test]
fn a_table_of_many_columns_is_made_in_steps() {
    let schema = schema([keyspace("ks", 2, 2_000)]);
    let mut command = command(&schema, "columns", one_keyspace("ks"));
    let mut parts =
        StoredSchema::new(&command, &schema).expect("of system_schema").map(|part| part.rows().len());
    let (begun, rest): (Vec<usize>, usize) = (parts.by_ref().take(8).collect(), parts.sum());
    let steps = 2_001 / COLUMNS_A_STEP;
    assert_eq!(begun[..steps], vec![0; steps], "the part of a table comes when all its columns are made");
    assert_eq!(begun[steps] + rest, 2 * 2_001);
    command.limits.rows = 700;
    let seen = read(&schema, command);
    assert_eq!(seen.rows.len(), 2 * 2_001);
    assert!(each_once(&seen.rows));
}

#[test]
fn only_the_wanted_rows_are_made() {
    let schema = schema([keyspace("ks", 300, 2), keyspace("other", 40, 1)]);
    let range = |from: &str, upto: &str, columns: &ReadCommand| RowRange {
        start: Bound::new(&columns.table, &[Some(from.as_bytes())], Side::Before),
        end: Bound::new(&columns.table, &[Some(upto.as_bytes())], Side::After),
    };
    for (names, made) in [
        (vec![("t00007", "t00007")], 3),
        (vec![("t00010", "t00019"), ("t00200", "t00200")], 33),
        (vec![("a", "b")], 0),
        (vec![], 0),
    ] {
        let mut columns = command(&schema, "columns", one_keyspace("ks"));
        columns.slices = Slices::new(names.iter().map(|(from, upto)| range(from, upto, &columns)).collect());
        for reversed in [false, true] {
            let seen = read(&schema, ReadCommand { reversed, ..columns.clone() });
            assert_eq!((seen.rows.len(), seen.made), (made, made), "{names:?}");
        }
    }
    let others = read(&schema, command(&schema, "columns", one_keyspace("other")));
    assert_eq!((others.rows.len(), others.made), (80, 80));
    assert_eq!(read(&schema, command(&schema, "columns", one_keyspace("nobody"))).made, 0);
}

#[test]
fn keyspaces_come_in_the_order_of_the_read() {
    let names = ["b", "aa", "ccc"];
    let schema = schema(names.map(|name| keyspace(name, 3, 1)));
    let listed = names.iter().chain(["nobody"].iter()).map(|name| key(name)).collect();
    let mut ring: Vec<&str> =
        [&names[..], &["system", "system_auth", "system_distributed", "system_schema"]].concat();
    ring.sort_by_key(|name| key(name));
    for (partitions, expected) in
        [(Partitions::Keys(listed), names.to_vec()), (Partitions::Range(PartitionRange::all()), ring)]
    {
        for (name, rows) in [("keyspaces", 1), ("columns", 6), ("types", 3), ("functions", 0)] {
            for limit in [1, 4, u64::MAX] {
                let mut command = command(&schema, name, partitions.clone());
                command.limits.rows = limit;
                let seen = read(&schema, command);
                let mut order: Vec<&str> = seen.rows.iter().map(|row| row.0.as_str()).collect();
                let own = |keyspace: &&str| names.contains(keyspace);
                assert_eq!(order.iter().filter(|name| own(name)).count(), rows * 3, "{name}, {limit}");
                assert!(each_once(&seen.rows), "{name}, {limit}");
                order.dedup();
                let expected = expected.iter().filter(|name| order.contains(name)).copied();
                assert_eq!(order, expected.collect::<Vec<_>>(), "{name}, {limit}");
            }
        }
    }
}
