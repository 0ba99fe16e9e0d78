//! The reads of a start from large SSTables: their metadata, and neither their data nor their indexes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{Canaries, Engine, EngineConfig, Origin, SyncMode, Write, prepare};
use mutation::PartitionRange;
use rt::{Rt, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};
use schema::{Keyspace, Replication, Schema};
use sstable::{Component, Descriptor};
use topology::Sharder;

use crate::model::{Change, Op, key, read, table, updates};
use crate::world::{Plan, config};

const SHARDS: u16 = 2;
/// Wide partitions of each SSTable, and rows of about 4 kB in each.
const PARTITIONS: usize = 100;
const ROWS: i32 = 12;
/// SSTables of the table.
const SSTABLES: u64 = 1_000;

/// A table whose data is not compressed: the values of the tests are all too alike.
fn uncompressed() -> Arc<Schema> {
    let mut table = table(1, 864_000);
    table.options.compression.insert("enabled".to_owned(), "false".to_owned());
    let keyspace = Keyspace::new("ks", Replication::Local);
    Arc::new(Schema::default().with_keyspace(keyspace).with_table(table))
}

fn settings() -> EngineConfig {
    let sync = SyncMode::Periodic { period: Duration::from_millis(50) };
    let plan = Plan { sync, canaries: Canaries::default(), gc_grace: 864_000, sstables: true, ops_max: 0 };
    let mut config = EngineConfig { auto_compaction: false, ..config(&plan) };
    config.memtable_bytes_max = 64 << 20;
    config.commitlog.segment_bytes = 1 << 20;
    config.commitlog.total_bytes_max = 128 << 20;
    config
}

/// Writes one SSTable of wide partitions on the first shard, and gives it many names.
async fn fill(rt: &Rt) {
    let schema = uncompressed();
    let table = schema.table("ks", "t1").unwrap().clone();
    prepare(rt, &settings(), &schema).await.unwrap();
    let engine = Engine::open(rt.clone(), settings(), schema).await.unwrap();
    let own = (0..).filter(|pk| Sharder::new(SHARDS).shard_of(key(*pk).token) == 0);
    for pk in own.take(PARTITIONS) {
        for ck in 0..ROWS {
            let change = Change::Cell { pk, ck, b: false, ts: i64::from(pk * 100 + ck) };
            let op = Op { number: 1, changes: vec![change], large: true };
            for update in updates(&table, &op, 1_700_000_000) {
                engine.apply(Write::one(Origin::Client, update)).await.unwrap();
            }
        }
    }
    engine.flush(table.id).await.unwrap();
    engine.stop().await.unwrap();
    let dir = Path::new("/data/ks").join(rt.disk().list("/data/ks").await.unwrap()[0].name.clone());
    let written = sstable::list_complete(rt.disk(), &dir).await.unwrap().remove(0);
    for number in 1..SSTABLES {
        let target = Descriptor::new(&dir, 10_000 + number * u64::from(SHARDS));
        for component in Component::ALL {
            match rt.disk().hard_link(written.path(component), target.path(component)).await {
                Err(error) if error.is_not_found() => {}
                done => done.unwrap(),
            }
        }
    }
}

#[derive(Default)]
struct Shared {
    prepared: bool,
    opened: u16,
    failures: Vec<String>,
}

/// Opens one shard; the first one prepares.
async fn start(rt: Rt, shared: Arc<Mutex<Shared>>) -> Result<(), String> {
    let schema = uncompressed();
    let table = schema.table("ks", "t1").unwrap().clone();
    if rt.shard().0 == 0 {
        prepare(&rt, &settings(), &schema).await.map_err(|error| error.to_string())?;
        shared.lock().unwrap().prepared = true;
    }
    while !shared.lock().unwrap().prepared {
        rt.sleep(Duration::from_millis(1)).await;
    }
    let engine = Engine::open(rt.clone(), settings(), schema).await.map_err(|error| error.to_string())?;
    let expected = if rt.shard().0 == 0 { SSTABLES } else { 0 };
    assert_eq!(engine.sstable_count(table.id) as u64, expected);
    shared.lock().unwrap().opened += 1;
    // Only when all bytes were counted.
    rt.sleep(Duration::from_secs(3600)).await;
    read(&engine, &table, &PartitionRange::all(), false).await.map(|_| ())
}

#[test]
fn a_start_reads_less_than_a_hundredth_of_the_data() {
    let sim = Simulation::new(1, Config::default());
    let filled = Arc::new(Mutex::new(false));
    let shared = Arc::new(Mutex::new(Shared::default()));
    let (of_node, is_filled) = (shared.clone(), filled.clone());
    let node = sim.add_node(NodeConfig { shards: SHARDS, ..NodeConfig::default() }, move |_| {
        let (shared, filled) = (of_node.clone(), is_filled.clone());
        shard_mains(SHARDS, move |rt: Rt| {
            let (shared, filled) = (shared.clone(), filled.clone());
            async move {
                let done = *filled.lock().unwrap();
                if !done && rt.shard().0 == 0 {
                    fill(&rt).await;
                    *filled.lock().unwrap() = true;
                } else if done && let Err(failure) = start(rt, shared.clone()).await {
                    shared.lock().unwrap().failures.push(failure);
                }
                std::future::pending::<()>().await;
            }
        })
    });
    sim.start(node);
    sim.run_until(|| *filled.lock().unwrap()).unwrap();
    sim.kill(node);
    let is_data = |path: &PathBuf| path.to_string_lossy().ends_with("-Data.db");
    let data: u64 = sim.files(node).iter().filter(|(path, _)| is_data(path)).map(|(_, len)| len).sum();
    let before = sim.disk_bytes_read(node);
    let began = std::time::Instant::now();
    sim.start(node);
    sim.run_until(|| shared.lock().unwrap().opened == SHARDS || !shared.lock().unwrap().failures.is_empty())
        .unwrap();
    let read = sim.disk_bytes_read(node) - before;
    let took = began.elapsed();
    println!("{SSTABLES} SSTables, {data} bytes of data: {read} bytes read in {took:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(shared.lock().unwrap().failures, Vec::<String>::new());
    assert!(read * 100 < data, "{read} bytes are read of {data}");
}
