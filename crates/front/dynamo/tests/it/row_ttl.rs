//! Rows of tables of CQL whose TTL column is over are deleted by the task that deletes items.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use cluster::SchemaEdit;
use coordinator::{Consistency, WriteKind, WriteOptions};
use dynamo::{Dynamo, Isolation};
use exec::backend::{Clock, Coordinator};
use exec::{ExecLimits, Executor, NodeInfo};
use mutation::row::ColumnData;
use mutation::{Cell, Clustering, DecoratedKey, PartitionUpdate, Row};
use replica::{Partitions, ReadCommand};
use schema::{Keyspace, Replication, Table, TableBuilder, TableId};
use types::CqlType;

use crate::memory::{Memory, TestClock};
use crate::ready;

/// The clock of the tests stands here, in seconds.
const NOW: i64 = 1_700_000_000;

struct World {
    memory: Memory,
    api: Dynamo<Memory>,
    clock: Rc<TestClock>,
}

impl World {
    fn new() -> Self {
        let node = NodeInfo {
            cluster_name: "c".to_owned(),
            snitch: "s".to_owned(),
            address: ([127, 0, 0, 1], 9042).into(),
        };
        let (memory, clock) = (Memory::new(), Rc::new(TestClock::default()));
        let executor = Executor::new(memory.clone(), clock.clone(), node, ExecLimits::default());
        let world = Self { memory, api: Dynamo::new(Rc::new(executor), Isolation::Always), clock };
        let replication = Replication::Simple { factor: 1 };
        world.change(vec![SchemaEdit::PutKeyspace(Keyspace::new("ks", replication))]);
        world
    }

    fn change(&self, edits: Vec<SchemaEdit>) {
        let base = self.memory.schema().version();
        ready(self.memory.change_schema(base, edits)).expect("the schema changes");
    }

    /// A table with a column `e` of a type, by which its rows expire with `ttl`.
    fn table(&self, name: &str, (clustered, ty): (bool, CqlType), ttl: bool) -> Arc<Table> {
        let id = TableId(*Bytes::from(format!("{name:>16}")).first_chunk().expect("sixteen bytes"));
        let mut builder = TableBuilder::new("ks", name, id).partition_key("p", CqlType::Int);
        if clustered {
            builder = builder.clustering("c", CqlType::Int, false).static_column("s", CqlType::Int);
        }
        builder = builder.regular("e", ty).regular("v", CqlType::Int);
        builder.ttl_column = ttl.then(|| "e".to_owned());
        self.change(vec![SchemaEdit::PutTable(builder.build().expect("a table"))]);
        self.memory.schema().table("ks", name).expect("the table").clone()
    }

    /// Writes rows, each with the value of `e`, or none.
    fn write(&self, table: &Arc<Table>, rows: &[(i32, i32, Option<Vec<u8>>)]) {
        for row in rows {
            let update = self.update(table, row);
            let options = WriteOptions {
                consistency: Consistency::One,
                kind: WriteKind::Simple,
                deadline: self.clock.now(),
            };
            ready(self.memory.write(vec![update], options)).expect("the write");
        }
    }

    fn update(&self, table: &Arc<Table>, (p, c, ends): &(i32, i32, Option<Vec<u8>>)) -> PartitionUpdate {
        let timestamp = self.clock.wall_micros();
        let column = |name: &str, value: &[u8]| {
            let cell = Cell::live(timestamp, Bytes::copy_from_slice(value));
            (table.column(name).expect("a column").id, ColumnData::Simple(cell))
        };
        let key = DecoratedKey::new(p.to_be_bytes().to_vec().into());
        let mut update = PartitionUpdate::new(table.clone(), key);
        let mut columns = vec![column("v", &c.to_be_bytes())];
        columns.extend(ends.as_ref().map(|ends| column("e", ends)));
        update.add_row(Row::from_columns(clustering(table, *c), columns));
        if table.has_static() {
            update.add_static(Row::from_columns(Clustering::empty(), vec![column("s", &[0; 4])]));
        }
        update
    }

    /// The rows as partition and clustering key, and the partitions with a static row.
    fn rows(&self, table: &Arc<Table>) -> (Vec<(i32, i32)>, Vec<i32>) {
        let all = Partitions::Range(mutation::PartitionRange::all());
        let command = ReadCommand::all_of(table.clone(), all, NOW as u32);
        let page = ready(self.memory.read(&command, Consistency::One, self.clock.now())).expect("a page");
        let int = |bytes: &[u8]| i32::from_be_bytes(bytes.try_into().expect("an int"));
        let (mut rows, mut statics) = (Vec::new(), Vec::new());
        let v = table.column("v").expect("a column").id;
        for partition in &page.partitions {
            let p = int(&partition.key.key);
            statics.extend(partition.static_row.is_some().then_some(p));
            rows.extend(partition.rows.iter().map(|row| (p, int(&row.cell(v).expect("a value").value))));
        }
        rows.sort_unstable();
        statics.sort_unstable();
        (rows, statics)
    }
}

fn clustering(table: &Table, c: i32) -> Clustering {
    match table.clustering().is_empty() {
        true => Clustering::empty(),
        false => Clustering::new(table, &[Some(&c.to_be_bytes())]),
    }
}

#[test]
fn rows_whose_time_is_over_are_deleted_and_no_others() {
    let world = World::new();
    let bigint = |seconds: i64| Some(seconds.to_be_bytes().to_vec());
    let table = world.table("a", (true, CqlType::Bigint), true);
    let rows =
        [(1, 1, bigint(NOW - 1)), (1, 2, bigint(NOW)), (1, 3, None), (1, 4, bigint(0)), (2, 5, bigint(-5))];
    world.write(&table, &rows);
    let other = world.table("other", (true, CqlType::Bigint), false);
    world.write(&other, &rows);
    assert_eq!(ready(world.api.expire()), Ok(3));
    // Static rows stay: they belong to no row.
    assert_eq!(world.rows(&table), (vec![(1, 2), (1, 3)], vec![1, 2]));
    assert_eq!(world.rows(&other).0.len(), 5);
    assert_eq!(ready(world.api.expire()), Ok(0));
}

#[test]
fn a_partition_of_one_row_is_deleted_by_a_column_of_each_type() {
    let world = World::new();
    let int = |seconds: i64| Some((seconds as i32).to_be_bytes().to_vec());
    let long = |value: i64| Some(value.to_be_bytes().to_vec());
    let of = [
        ("i", CqlType::Int, [int(NOW - 1), int(NOW + 1)]),
        ("b", CqlType::Bigint, [long(NOW - 1), long(NOW + 1)]),
        ("t", CqlType::Timestamp, [long(NOW * 1000 - 1), long(NOW * 1000 + 1)]),
    ];
    for (name, ty, [over, lasting]) in of {
        let table = world.table(name, (false, ty), true);
        world.write(&table, &[(1, 1, over), (2, 2, lasting), (3, 3, None)]);
        assert_eq!(ready(world.api.expire()), Ok(1), "{name}");
        assert_eq!(world.rows(&table).0, [(2, 2), (3, 3)], "{name}");
    }
}

#[test]
fn the_definition_of_the_table_decides() {
    let world = World::new();
    let table = world.table("a", (false, CqlType::Int), false);
    let over = Some(((NOW - 1) as i32).to_be_bytes().to_vec());
    world.write(&table, &[(1, 1, over)]);
    assert_eq!(ready(world.api.expire()), Ok(0));
    let mut changed = table.to_builder();
    changed.ttl_column = Some("e".to_owned());
    world.change(vec![SchemaEdit::PutTable(changed.build().expect("a table"))]);
    assert_eq!(ready(world.api.expire()), Ok(1));
    assert_eq!(world.rows(&table).0, []);
}

#[test]
fn a_row_that_is_given_more_time_before_its_deletion_stays() {
    let world = World::new();
    let bigint = |seconds: i64| Some(seconds.to_be_bytes().to_vec());
    let table = world.table("a", (true, CqlType::Bigint), true);
    world.write(&table, &[(1, 1, bigint(NOW - 1))]);
    // The page that finds the row has been read by then.
    *world.memory.between.borrow_mut() = Some(world.update(&table, &(1, 1, bigint(NOW + 100))));
    assert_eq!(ready(world.api.expire()), Ok(0));
    assert!(world.memory.between.borrow().is_none(), "the row was to be deleted");
    assert_eq!(world.rows(&table).0, [(1, 1)]);
}
