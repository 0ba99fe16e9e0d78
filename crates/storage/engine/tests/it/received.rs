//! Updates that another node sent: the log has the bytes that were received, unless the write is only a part of them.
//!
//! The bytes are made unlike those that this node would write: each update names a column more, which no row has.

use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Derived, Engine, EngineConfig, Origin, Read, SyncMode, Truncation, Updates, Write, WriteObserver,
};
use mutation::codec::{DecodedUpdates, Layouts, decode_updates, encode_update};
use mutation::{
    Cell, Clustering, ColumnData, Fragment, LivenessInfo, PartitionRange, PartitionUpdate, Row, Slices,
};
use rt::{Instant, Rt, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};
use schema::{Keyspace, Replication, Schema, Table, TableBuilder, TableId};
use types::CqlType;

use crate::model::key;
use crate::world::on_a_node;

const TRUNCATED: i64 = 1_767_225_600_000_000;

fn table(keyspace: &str, name: &str, id: u8) -> Arc<Table> {
    let table = TableBuilder::new(keyspace, name, TableId([id; 16]));
    table.partition_key("k", CqlType::Int).regular("v", CqlType::Text).build_known()
}

/// Two tables with a log, and one without.
fn schema() -> (Arc<Schema>, [Arc<Table>; 3]) {
    let tables = [table("ks", "a", 1), table("ks", "b", 2), table("unlogged", "c", 3)];
    let mut keyspace = Keyspace::new("ks", Replication::Local);
    for table in &tables[..2] {
        keyspace.tables.insert(table.name.clone(), table.clone());
    }
    let mut unlogged = Keyspace { durable_writes: false, ..Keyspace::new("unlogged", Replication::Local) };
    unlogged.tables.insert("c".to_owned(), tables[2].clone());
    (Arc::new(Schema::default().with_keyspace(keyspace).with_keyspace(unlogged)), tables)
}

fn config() -> EngineConfig {
    let mut config = EngineConfig::new("/data".into(), "/log".into());
    config.commitlog.sync = SyncMode::Periodic { period: Duration::from_secs(10) };
    config
}

fn update(table: &Arc<Table>, k: i32) -> PartitionUpdate {
    let mut row = Row::new(Clustering::empty());
    row.liveness = LivenessInfo::forever(1_000);
    let value = Cell::live(1_000, Bytes::from(format!("value {k}")));
    row.set(table.column("v").expect("a column of the table").id, ColumnData::Simple(value));
    let mut update = PartitionUpdate::new(table.clone(), key(k));
    update.add_row(row);
    update
}

/// The names in an update beside its columns.
fn mark(k: i32) -> String {
    format!("mark-{k}")
}

/// Updates as another node might have sent them.
fn received(tables: &[Arc<Table>], updates: &[(usize, i32)]) -> DecodedUpdates {
    let mut run = vec![1, updates.len() as u8];
    for (table, k) in updates {
        let mut bytes = Vec::new();
        encode_update(&update(&tables[*table], *k), &mut bytes);
        // Id, key, base timestamp.
        let count = 16 + 1 + 4 + 8;
        assert_eq!(bytes[count..count + 3], [1, 1, b'v'], "one name");
        bytes[count] = 2;
        let mark = mark(*k).into_bytes();
        let name = [vec![mark.len() as u8], mark].concat();
        bytes.splice(count + 3..count + 3, name);
        run.push(u8::try_from(bytes.len()).expect("a short update"));
        run.extend_from_slice(&bytes);
    }
    let find = |id| tables.iter().find(|table| table.id == id).cloned();
    decode_updates(&Bytes::from(run), Some(&Layouts::default()), find).expect("the bytes are updates")
}

fn write(tables: &[Arc<Table>], updates: &[(usize, i32)]) -> Write {
    let DecodedUpdates { updates, encoded } = received(tables, updates);
    assert!(encoded.is_some(), "nothing was left out");
    Write { encoded, ..Write::all(Origin::Client, updates) }
}

/// How often the log holds the mark of each of these.
async fn marks_in_the_log(rt: &Rt, engine: &Engine, tables: &[Arc<Table>], of: &[i32]) -> Vec<usize> {
    engine.make_durable(tables[0].id).await.expect("the disk is well");
    let mut log = Vec::new();
    for entry in rt.disk().list("/log").await.unwrap() {
        log.extend(rt.disk().read_to_end(format!("/log/{}", entry.name), 1 << 30).await.unwrap());
    }
    let count = |k: &i32| {
        let mark = mark(*k).into_bytes();
        log.windows(mark.len()).filter(|bytes| *bytes == mark).count()
    };
    of.iter().map(count).collect()
}

async fn has(engine: &Engine, table: &Table, k: i32) -> bool {
    let (range, slices) = (PartitionRange::single(&key(k)), Slices::all());
    let mut reader = engine.read(&Read::new(table.id, &range, &slices)).expect("the disk is well");
    let mut found = false;
    while let Some(fragment) = reader.next().await.expect("the disk is well") {
        found |= matches!(fragment, Fragment::Row(_));
    }
    found
}

/// The log that `work` leaves, and the keys that a node finds that replays the log after it.
fn before_and_after_a_power_failure<F>(
    seed: u64,
    work: impl Fn(Rt) -> F + Clone + Send + Sync + 'static,
) -> (Vec<usize>, String)
where
    F: Future<Output = Vec<usize>> + 'static,
{
    let sim = Simulation::new(seed, Config::default());
    let left: Arc<Mutex<(Option<Vec<usize>>, Option<String>)>> = Arc::default();
    let place = left.clone();
    let node = sim.add_node(NodeConfig::default(), move |_| {
        let (place, work) = (place.clone(), work.clone());
        shard_mains(1, move |rt: Rt| {
            let (place, work) = (place.clone(), work.clone());
            async move {
                if place.lock().unwrap().0.is_none() {
                    let found = work(rt).await;
                    place.lock().unwrap().0 = Some(found);
                    return std::future::pending::<()>().await;
                }
                let (schema, tables) = schema();
                let engine = Engine::open(rt, config(), schema).await.unwrap();
                let mut found = "found after a power failure:".to_owned();
                for table in &tables {
                    for k in 1..5 {
                        if has(&engine, table, k).await {
                            found += &format!(" {}{k}", table.name);
                        }
                    }
                }
                place.lock().unwrap().1 = Some(found);
                std::future::pending::<()>().await
            }
        })
    });
    sim.start(node);
    sim.run_until(|| left.lock().unwrap().0.is_some()).unwrap();
    sim.crash(node);
    sim.start(node);
    sim.run_until(|| left.lock().unwrap().1.is_some()).unwrap();
    let (marks, found) = std::mem::take(&mut *left.lock().unwrap());
    (marks.expect("the first process has ended"), found.expect("the second, too"))
}

#[test]
fn the_log_has_the_bytes_that_were_received() {
    let found = before_and_after_a_power_failure(1, |rt: Rt| async move {
        let (schema, tables) = schema();
        let engine = Engine::open(rt.clone(), config(), schema.clone()).await.unwrap();
        engine.apply(write(&tables, &[(0, 1)])).await.unwrap();
        engine.apply(write(&tables, &[(0, 2), (1, 3)])).await.unwrap();
        engine.apply(Write::one(Origin::Client, update(&tables[0], 4))).await.unwrap();
        marks_in_the_log(&rt, &engine, &tables, &[1, 2, 3, 4]).await
    });
    assert_eq!(found, (vec![1, 1, 1, 0], "found after a power failure: a1 a2 a4 b3".to_owned()));
}

#[test]
fn updates_that_a_truncation_leaves_out_are_not_logged() {
    let found = on_a_node(2, |rt: Rt| async move {
        let (schema, tables) = schema();
        let engine = Engine::open(rt.clone(), config(), schema).await.unwrap();
        engine.truncate(tables[0].id, TRUNCATED, Instant::MAX).await.unwrap();
        let late = |write: Write| write.with_truncation(Truncation::LeavesOut(TRUNCATED - 1));
        engine.apply(late(write(&tables, &[(0, 1), (1, 2)]))).await.unwrap();
        engine.apply(late(write(&tables, &[(1, 3)]))).await.unwrap();
        assert!(!has(&engine, &tables[0], 1).await && has(&engine, &tables[1], 2).await);
        marks_in_the_log(&rt, &engine, &tables, &[1, 2, 3]).await
    });
    assert_eq!(found, [0, 0, 1], "the bytes of a write that is only in part applied are encoded again");
}

#[test]
fn updates_of_a_keyspace_without_a_log_are_not_logged() {
    let found = on_a_node(3, |rt: Rt| async move {
        let (schema, tables) = schema();
        let engine = Engine::open(rt.clone(), config(), schema).await.unwrap();
        engine.apply(write(&tables, &[(0, 1), (2, 2)])).await.unwrap();
        engine.apply(write(&tables, &[(2, 3)])).await.unwrap();
        assert!(has(&engine, &tables[0], 1).await && has(&engine, &tables[2], 2).await);
        marks_in_the_log(&rt, &engine, &tables, &[1, 2, 3]).await
    });
    assert_eq!(found, [0, 0, 0]);
}

/// Writes the same key of the second table for each of the first.
struct Doubling(Arc<Table>);

impl WriteObserver for Doubling {
    fn observes(&self, table: &Table, _: Origin) -> bool {
        table.id != self.0.id
    }

    fn derive<'a>(&'a self, _: &'a Engine, _: Origin, base: &'a PartitionUpdate) -> Derived<'a> {
        let k = i32::from_be_bytes(base.key.key[..].try_into().expect("an int"));
        // Nothing follows from an odd one.
        let derived = if k % 2 == 0 { vec![update(&self.0, k)] } else { Updates::new() };
        Box::pin(async move { Ok(derived.into()) })
    }
}

#[test]
fn a_write_that_an_observer_adds_to_is_encoded_with_the_added_updates() {
    let found = before_and_after_a_power_failure(4, |rt: Rt| async move {
        let (schema, tables) = schema();
        let engine = Engine::open(rt.clone(), config(), schema.clone()).await.unwrap();
        engine.observe(Rc::new(Doubling(tables[1].clone())));
        engine.apply(write(&tables, &[(0, 2)])).await.unwrap();
        engine.apply(write(&tables, &[(0, 1)])).await.unwrap();
        marks_in_the_log(&rt, &engine, &tables, &[2, 1]).await
    });
    assert_eq!(found, (vec![0, 1], "found after a power failure: a1 a2 b2".to_owned()));
}
