//! A table is dropped while another one of its keyspace writes its first SSTable: the directory of one goes, that of the other
//! stays.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{Canaries, Engine, SyncMode};
use mutation::PartitionRange;
use rt::{Group, Rt, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};
use schema::{Keyspace, Replication, Schema};

use crate::model::{Change, Op, read, table, updates};
use crate::world::{Plan, config};

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
    engine.apply(updates(&dropped, &op(1), 1_700_000_000)).await.unwrap();
    engine.apply(updates(&kept, &op(1), 1_700_000_000)).await.unwrap();
    engine.flush(dropped.id).await.unwrap();
    let (own, flushing, id) = (rt.clone(), engine.clone(), kept.id);
    let flush = rt.spawn(Group::Statement, async move {
        own.sleep(Duration::from_micros(own.random_below(3_000))).await;
        flushing.flush(id).await
    });
    engine.set_schema(schema(&[2]));
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
