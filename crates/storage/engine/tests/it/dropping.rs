//! Tables come and go while others work: a table that is dropped takes its own directory and nothing else with it, and work on
//! it at that moment is no failure of the disk.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{Canaries, Engine, MaintenanceError, Origin, SyncMode, Write, WriteError};
use mutation::PartitionRange;
use rt::{Group, Instant, Rt, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};
use schema::{Keyspace, Replication, Schema};

use crate::model::{Change, Op, read, table, updates};
use crate::world::{Plan, config, on_a_node};

/// A table is made in a keyspace whose last one is being removed, and written to its directory.
async fn table_made_beside_a_removal(rt: Rt) {
    let schema = |tables: &[u8]| {
        let empty = Schema::default().with_keyspace(Keyspace::new("ks", Replication::Local));
        Arc::new(tables.iter().fold(empty, |schema, id| schema.with_table(table(*id, 864_000))))
    };
    let (first, second) = (schema(&[1]), schema(&[2]));
    let (dropped, made) =
        (first.table("ks", "t1").unwrap().clone(), second.table("ks", "t2").unwrap().clone());
    let sync = SyncMode::Periodic { period: Duration::from_millis(50) };
    let plan = Plan { sync, canaries: Canaries::default(), gc_grace: 864_000, sstables: true, ops_max: 0 };
    let engine = Engine::open(rt.clone(), config(&plan), first).await.unwrap();
    let op = |ts| Op { number: 0, changes: vec![Change::Cell { pk: 1, ck: 1, b: false, ts }], large: false };
    engine.apply(Write::all(Origin::Client, updates(&dropped, &op(1), 1_700_000_000))).await.unwrap();
    engine.flush(dropped.id).await.unwrap();
    engine.set_schema(schema(&[])).await;
    engine.drop_table(dropped.id, 1).await.unwrap();
    let dir = engine::dropped_table_dir(Path::new("/data"), "ks", "t1", dropped.id);
    rt.disk().remove_dir_all(dir.join("snapshots")).await.unwrap();
    let (removing, id) = (engine.clone(), dropped.id);
    let removal =
        rt.spawn(Group::Statement, async move { removing.remove_dropped_dir("ks", "t1", id).await });
    rt.sleep(Duration::from_micros(rt.random_below(1_000))).await;
    engine.set_schema(second).await;
    engine.apply(Write::all(Origin::Client, updates(&made, &op(1), 1_700_000_000))).await.unwrap();
    engine.flush(made.id).await.unwrap();
    removal.await.unwrap();
    assert!(!rt.disk().exists(&dir).await.unwrap());
    let found = read(&engine, &made, &PartitionRange::all(), false).await.unwrap();
    assert_eq!(found.len(), 1, "the flushed row is there");
    let files = rt.disk().list(engine::dropped_table_dir(Path::new("/data"), "ks", "t2", made.id)).await;
    assert!(files.is_ok_and(|files| !files.is_empty()), "the table that was made has its files");
}

#[test]
fn the_directory_of_a_keyspace_stays_when_a_table_is_made_meanwhile() {
    for seed in 0..500 {
        let sim = Simulation::new(seed, Config::default());
        let node = sim.add_node(NodeConfig::default(), |_| shard_mains(1, table_made_beside_a_removal));
        sim.start(node);
        sim.run_until_exit(node).unwrap();
        assert_eq!(sim.exits(node), ["()"], "seed {seed}");
    }
}

async fn life(rt: Rt, drops: Arc<Mutex<u32>>) {
    let schema = |tables: &[u8]| {
        let empty = Schema::default().with_keyspace(Keyspace::new("ks", Replication::Local));
        Arc::new(tables.iter().fold(empty, |schema, id| schema.with_table(table(*id, 864_000))))
    };
    let both = schema(&[1, 2]);
    let (dropped, kept) = (both.table("ks", "t1").unwrap().clone(), both.table("ks", "t2").unwrap().clone());
    let sync = SyncMode::Periodic { period: Duration::from_millis(50) };
    let plan = Plan { sync, canaries: Canaries::default(), gc_grace: 864_000, sstables: true, ops_max: 0 };
    let engine = Engine::open(rt.clone(), config(&plan), both).await.unwrap();
    let op = |ts| Op { number: 0, changes: vec![Change::Cell { pk: 1, ck: 1, b: false, ts }], large: false };
    engine.apply(Write::all(Origin::Client, updates(&dropped, &op(1), 1_700_000_000))).await.unwrap();
    engine.apply(Write::all(Origin::Client, updates(&kept, &op(1), 1_700_000_000))).await.unwrap();
    engine.flush(dropped.id).await.unwrap();
    let (own, flushing, id) = (rt.clone(), engine.clone(), kept.id);
    let flush = rt.spawn(Group::Statement, async move {
        own.sleep(Duration::from_micros(own.random_below(3_000))).await;
        flushing.flush(id).await
    });
    engine.set_schema(schema(&[2])).await;
    engine.drop_table(dropped.id, 1).await.unwrap();
    if engine.remove_dropped_dir("ks", "t1", dropped.id).await.unwrap() {
        *drops.lock().unwrap() += 1;
    }
    flush.await.unwrap();
    engine.stop().await.unwrap();
    let engine = Engine::open(rt.clone(), config(&plan), schema(&[2])).await.unwrap();
    let found = read(&engine, &kept, &PartitionRange::all(), false).await.unwrap();
    assert_eq!(found.len(), 1, "what was flushed is there");
}

#[test]
fn dropping_a_table_leaves_the_directory_of_its_neighbour() {
    let drops = Arc::new(Mutex::new(0));
    for seed in 0..200 {
        let sim = Simulation::new(seed, Config::default());
        let counted = drops.clone();
        let node = sim.add_node(NodeConfig::default(), move |_| {
            let drops = counted.clone();
            shard_mains(1, move |rt| life(rt, drops.clone()))
        });
        sim.start(node);
        sim.run_until_exit(node).unwrap();
        assert_eq!(sim.exits(node), ["()"], "seed {seed}");
    }
    assert!(*drops.lock().unwrap() > 100, "{drops:?} directories were removed");
}

/// The decisions of a cluster, and how far the engine has taken it over.
#[derive(Default)]
struct Decided {
    next: u8,
    tables: Vec<u8>,
    /// Of which the directory was not removed yet.
    unfinished: Vec<u8>,
    refused: u32,
    writes: u32,
    truncations: u32,
}

const LAST_TABLE: u8 = 40;

fn id_of(id: u8) -> schema::TableId {
    schema::TableId([id; 16])
}

fn schema_of(tables: &[u8]) -> Arc<Schema> {
    let empty = Schema::default().with_keyspace(Keyspace::new("ks", Replication::Local));
    Arc::new(tables.iter().fold(empty, |schema, id| schema.with_table(table(*id, 864_000))))
}

/// Applies the decisions, as the node's shard 0 does: the schema first, then the drops, then the directories of all tables
/// that are gone by the decisions of that moment, which may be later ones.
async fn follow(rt: Rt, engine: Engine, decided: Arc<Mutex<Decided>>) {
    let mut had: Vec<u8> = Vec::new();
    loop {
        let now = decided.lock().unwrap().tables.clone();
        if now != had {
            engine.set_schema(schema_of(&now)).await;
            for gone in had.iter().filter(|id| !now.contains(id)) {
                engine.drop_table(id_of(*gone), rt.wall_micros()).await.expect("the disk works");
            }
            had = now;
            let unfinished = decided.lock().unwrap().unfinished.clone();
            for gone in unfinished {
                if engine.remove_dropped_dir("ks", &format!("t{gone}"), id_of(gone)).await.unwrap() {
                    decided.lock().unwrap().unfinished.retain(|id| *id != gone);
                }
            }
        } else if now.is_empty() && decided.lock().unwrap().next > LAST_TABLE {
            return;
        }
        rt.sleep(Duration::from_micros(rt.random_below(500))).await;
    }
}

/// Makes and drops tables, and works on those that there are.
async fn client(rt: Rt, engine: Engine, decided: Arc<Mutex<Decided>>) {
    loop {
        rt.sleep(Duration::from_micros(rt.random_below(3_000))).await;
        let tables = decided.lock().unwrap().tables.clone();
        let (next, choice) = (decided.lock().unwrap().next, rt.random_below(12));
        if tables.is_empty() && next > LAST_TABLE {
            return;
        }
        if next <= LAST_TABLE && (tables.len() < 2 || choice == 0) {
            let mut decided = decided.lock().unwrap();
            decided.next += 1;
            decided.tables.push(next);
            continue;
        }
        let one = tables[rt.random_below(tables.len() as u64) as usize];
        let id = id_of(one);
        let done: Result<(), MaintenanceError> = match choice {
            1 | 2 => {
                let mut decided = decided.lock().unwrap();
                if decided.tables.contains(&one) {
                    decided.tables.retain(|id| *id != one);
                    decided.unfinished.push(one);
                }
                Ok(())
            }
            3 | 4 => {
                decided.lock().unwrap().truncations += 1;
                engine.truncate(id, rt.wall_micros(), Instant::MAX).await
            }
            5 | 6 => engine.flush(id).await,
            7 => engine.compact(id).await,
            8 => engine.take_mark(id, true).await.map(|_| ()),
            9 => engine.snapshot(id, &format!("s{}", rt.random_below(1 << 40))).await,
            _ => {
                let table = schema_of(&[one]).table("ks", &format!("t{one}")).unwrap().clone();
                let ts = rt.wall_micros();
                let change = Change::Cell { pk: rt.random_below(5) as i32, ck: 1, b: false, ts };
                let op = Op { number: 0, changes: vec![change], large: true };
                match engine.apply(Write::all(Origin::Client, updates(&table, &op, 1_700_000_000))).await {
                    Ok(()) => decided.lock().unwrap().writes += 1,
                    Err(WriteError::UnknownTable(_)) => {}
                    Err(error) => panic!("a write to {one}: {error}"),
                }
                Ok(())
            }
        };
        match done {
            Ok(()) => {}
            Err(MaintenanceError::UnknownTable(_) | MaintenanceError::Cancelled) => {
                decided.lock().unwrap().refused += 1;
            }
            Err(error) => panic!("operation {choice} on table {one}: {error}"),
        }
    }
}

async fn side_by_side(rt: Rt) -> (u32, u32, u32) {
    let sync = SyncMode::Periodic { period: Duration::from_millis(50) };
    let plan = Plan { sync, canaries: Canaries::default(), gc_grace: 864_000, sstables: true, ops_max: 0 };
    let engine = Engine::open(rt.clone(), config(&plan), schema_of(&[])).await.unwrap();
    let decided = Arc::new(Mutex::new(Decided { next: 1, ..Decided::default() }));
    let mut tasks = vec![rt.spawn(Group::Statement, follow(rt.clone(), engine.clone(), decided.clone()))];
    for _ in 0..8 {
        tasks.push(rt.spawn(Group::Statement, client(rt.clone(), engine.clone(), decided.clone())));
    }
    for task in tasks {
        task.await;
    }
    // The storage works as on the first day.
    engine.set_schema(schema_of(&[200])).await;
    let last = schema_of(&[200]).table("ks", "t200").unwrap().clone();
    let op = Op { number: 0, changes: vec![Change::Cell { pk: 1, ck: 1, b: false, ts: 1 }], large: false };
    engine
        .apply(Write::all(Origin::Client, updates(&last, &op, 1_700_000_000)))
        .await
        .expect("the storage works");
    engine.flush(last.id).await.expect("and so does flushing");
    let decided = decided.lock().unwrap();
    (decided.writes, decided.truncations, decided.refused)
}

#[test]
fn create_drop_insert_and_truncate_side_by_side() {
    let (mut writes, mut truncations, mut refused) = (0, 0, 0);
    for seed in 0..60 {
        let (more_writes, more_truncations, more_refused) = on_a_node(seed, side_by_side);
        writes += more_writes;
        truncations += more_truncations;
        refused += more_refused;
    }
    assert!(writes > 900 && truncations > 1000 && refused > 100, "{writes} {truncations} {refused}");
}
