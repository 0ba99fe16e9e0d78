//! A drop that a crash interrupted is finished by the next start: the automatic snapshot has the rows that only the commit log had.

use std::path::Path;
use std::sync::{Arc, Mutex};

use engine::{
    Canaries, Engine, EngineConfig, EngineSettings, Origin, SyncMode, UnfinishedDrop, Write, finish_drops,
    prepare,
};
use mutation::PartitionRange;
use rt::{Rt, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};
use schema::{Keyspace, Replication, Schema, Table};

use crate::model::{Change, Op, read, schema, updates};
use crate::world::{Plan, config};

const ROWS: i32 = 12;
const FLUSHED: i32 = 4;
const DROPPED: i64 = 5_000;

fn engine_config() -> EngineConfig {
    let sync = SyncMode::Batch;
    let plan = Plan { sync, canaries: Canaries::default(), gc_grace: 864_000, sstables: true, ops_max: 0 };
    let settings = EngineSettings { auto_snapshot: true, ..EngineSettings::default() };
    EngineConfig { settings, ..config(&plan) }
}

async fn partitions(engine: &Engine, table: &Arc<Table>) -> Vec<i32> {
    let found = read(engine, table, &PartitionRange::all(), false).await.expect("the table can be read");
    found.into_keys().map(|(pk, _, _)| pk).collect()
}

/// Writes rows of which some are flushed, and is killed.
async fn filling(rt: Rt, filled: Arc<Mutex<bool>>) {
    let schema = schema(864_000);
    let table = schema.table("ks", "t1").unwrap().clone();
    let engine = Engine::open(rt.clone(), engine_config(), schema).await.unwrap();
    for pk in 0..ROWS {
        let op = Op { number: 0, changes: vec![Change::Cell { pk, ck: 0, b: false, ts: 1 }], large: false };
        let write = Write::all(Origin::Client, updates(&table, &op, 1_700_000_000));
        engine.apply(write).await.unwrap();
        if pk == FLUSHED - 1 {
            engine.flush(table.id).await.unwrap();
        }
    }
    *filled.lock().unwrap() = true;
    std::future::pending::<()>().await;
}

/// Starts without the table, twice as after another crash, and reads the snapshot by putting it back. Gives the partitions in it.
async fn finishing(rt: Rt, is_defined: bool, found: Arc<Mutex<Vec<i32>>>) {
    let with_table = schema(864_000);
    let table = with_table.table("ks", "t1").unwrap().clone();
    let without = Arc::new(Schema::default().with_keyspace(Keyspace::new("ks", Replication::Local)));
    let dropped = UnfinishedDrop {
        keyspace: "ks".to_owned(),
        name: "t1".to_owned(),
        id: table.id,
        at_micros: DROPPED,
        snapshot: true,
        definition: is_defined.then(|| table.clone()),
    };
    for _ in 0..2 {
        finish_drops(&rt, &engine_config(), std::slice::from_ref(&dropped)).await.unwrap();
    }
    prepare(&rt, &engine_config(), &without).await.unwrap();
    let engine = Engine::open(rt.clone(), engine_config(), without).await.unwrap();
    engine.stop().await.unwrap();

    let engine = Engine::open(rt.clone(), engine_config(), with_table.clone()).await.unwrap();
    assert_eq!(partitions(&engine, &table).await, Vec::<i32>::new(), "the table is gone");
    engine.stop().await.unwrap();
    let dir = engine::dropped_table_dir(Path::new("/data"), "ks", "t1", table.id);
    let snapshot = dir.join(format!("snapshots/dropped-{DROPPED}-t1"));
    for file in rt.disk().list(&snapshot).await.unwrap() {
        rt.disk().hard_link(snapshot.join(&file.name), dir.join(&file.name)).await.unwrap();
    }
    let engine = Engine::open(rt.clone(), engine_config(), with_table).await.unwrap();
    let partitions = partitions(&engine, &table).await;
    *found.lock().unwrap() = partitions;
    engine.stop().await.unwrap();
}

#[test]
fn the_snapshot_of_an_interrupted_drop_has_the_rows_of_the_commit_log() {
    for is_defined in [true, false] {
        let sim = Simulation::new(11, Config::default());
        let (filled, found) = (Arc::new(Mutex::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (of_node, of_start) = (filled.clone(), found.clone());
        let node = sim.add_node(NodeConfig::default(), move |_| {
            let (filled, found) = (of_node.clone(), of_start.clone());
            shard_mains(1, move |rt| {
                let (filled, found) = (filled.clone(), found.clone());
                async move {
                    let is_filled = *filled.lock().unwrap();
                    match is_filled {
                        false => filling(rt, filled).await,
                        true => finishing(rt, is_defined, found).await,
                    }
                }
            })
        });
        sim.start(node);
        let watched = filled.clone();
        sim.run_until(|| *watched.lock().unwrap()).unwrap();
        sim.crash(node);
        sim.start(node);
        sim.run_until_exit(node).unwrap();
        assert_eq!(sim.exits(node), ["()"]);
        // Without a definition, in a list of an earlier version, its entries cannot be read.
        let expected = if is_defined { ROWS } else { FLUSHED };
        assert_eq!(*found.lock().unwrap(), (0..expected).collect::<Vec<_>>());
    }
}
