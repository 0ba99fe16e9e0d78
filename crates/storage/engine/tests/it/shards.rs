//! A node whose number of shards, or whose tablets, change between starts finds everything, each partition on the shard that owns it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{Canaries, Engine, EngineConfig, EngineSettings, Origin, SyncMode, Write, prepare};
use mutation::PartitionRange;
use rt::{IoBuf, OpenOptions, Rt, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};
use topology::{HostId, Tablet, TabletMap, TabletMaps};

use crate::model::{Change, Op, Visible, key, read, schema, updates, visible};
use crate::world::{Plan, config};

#[derive(Default)]
struct Shared {
    /// The initial content of the disk.
    files: Vec<(PathBuf, Vec<u8>)>,
    prepared: bool,
    /// The results of each shard.
    found: BTreeMap<u16, Visible>,
    failures: Vec<String>,
    done: u16,
}

const KEYS: i32 = 300;

fn ops() -> Vec<Op> {
    let cell = |pk: i32, ts: i64| Change::Cell { pk, ck: pk % 3, b: false, ts };
    let write = |number: i64| Op {
        number: number as u64,
        changes: vec![cell(number as i32 % KEYS, number + 1)],
        large: number % 50 == 0,
    };
    let mut ops: Vec<Op> = (0..900).map(write).collect();
    ops.push(Op { number: 900, changes: vec![Change::Partition { pk: 7, ts: 5000 }], large: false });
    ops
}

async fn restore(rt: &Rt, files: Vec<(PathBuf, Vec<u8>)>) {
    let disk = rt.disk();
    for (path, content) in files {
        disk.create_dir_all(path.parent().unwrap()).await.unwrap();
        let file = disk.open(&path, OpenOptions::CREATE_NEW).await.unwrap();
        if !content.is_empty() {
            file.write_at(0, IoBuf::copy_of(&content)).await.unwrap();
        }
    }
}

/// One life: shard 0 prepares, all open; with `write` each writes its part of the operations from `write` on and
/// flushes half of it; then all are read.
async fn life(
    rt: Rt,
    shared: Arc<Mutex<Shared>>,
    (plan, tablets): (Plan, TabletMaps),
    write: bool,
) -> Result<(), String> {
    let schema = schema(plan.gc_grace);
    let table = schema.table("ks", "t1").unwrap().clone();
    let settings = EngineSettings { incremental_backups: true, ..EngineSettings::default() };
    let config = EngineConfig { tablets: tablets.clone(), settings, ..config(&plan) };
    let host = HostId(config.host_id);
    if rt.shard().0 == 0 {
        let files = std::mem::take(&mut shared.lock().unwrap().files);
        restore(&rt, files).await;
        prepare(&rt, &config, &schema).await.map_err(|error| error.to_string())?;
        shared.lock().unwrap().prepared = true;
    }
    while !shared.lock().unwrap().prepared {
        rt.sleep(Duration::from_millis(1)).await;
    }
    let opened = Engine::open(rt.clone(), config, schema).await;
    let engine = opened.map_err(|error| error.to_string())?;
    let sharder = tablets.sharder(host, rt.shard_count(), table.id);
    assert!((0..KEYS).all(|pk| engine.shard_of(table.id, key(pk).token) == sharder.shard_of(key(pk).token)));
    if write {
        for (n, op) in ops().iter().enumerate() {
            for update in updates(&table, op, 1_700_000_000) {
                if sharder.shard_of(update.key.token) == rt.shard().0 {
                    engine
                        .apply(Write::one(Origin::Client, update))
                        .await
                        .map_err(|error| error.to_string())?;
                }
            }
            if n == 450 {
                engine.flush(table.id).await.map_err(|error| error.to_string())?;
            }
        }
    }
    let found = read(&engine, &table, &PartitionRange::all(), false).await?;
    for pk in 0..KEYS {
        let owned = sharder.shard_of(key(pk).token) == rt.shard().0;
        let part = read(&engine, &table, &PartitionRange::single(&key(pk)), false).await?;
        if !owned && !part.is_empty() {
            return Err(format!("partition {pk} on shard {} of {}", rt.shard(), rt.shard_count()));
        }
    }
    let mut shared = shared.lock().unwrap();
    shared.found.insert(rt.shard().0, found);
    shared.done += 1;
    Ok(())
}

/// Runs a node of so many shards on these files; the rows of all its shards, and its files.
fn run(
    shards: u16,
    files: Vec<(PathBuf, Vec<u8>)>,
    (plan, tablets): (Plan, &TabletMaps),
    write: bool,
) -> (Visible, Vec<(PathBuf, Vec<u8>)>) {
    let sim = Simulation::new(u64::from(shards), Config::default());
    let shared = Arc::new(Mutex::new(Shared { files, ..Shared::default() }));
    let (of_node, tablets) = (shared.clone(), tablets.clone());
    let node = sim.add_node(NodeConfig { shards, ..NodeConfig::default() }, move |_| {
        let (shared, tablets) = (of_node.clone(), tablets.clone());
        shard_mains(shards, move |rt: Rt| {
            let (shared, tablets) = (shared.clone(), tablets.clone());
            async move {
                if let Err(failure) = life(rt, shared.clone(), (plan, tablets), write).await {
                    shared.lock().unwrap().failures.push(failure);
                }
                std::future::pending::<()>().await;
            }
        })
    });
    sim.start(node);
    let watched = shared.clone();
    sim.run_until(|| {
        let shared = watched.lock().unwrap();
        shared.done == shards || !shared.failures.is_empty()
    })
    .unwrap();
    sim.kill(node);
    let shared = shared.lock().unwrap();
    assert!(shared.failures.is_empty(), "{:?}", shared.failures);
    let mut together = Visible::new();
    for found in shared.found.values() {
        for (place, ts) in found {
            assert!(together.insert(*place, *ts).is_none(), "{place:?} is on two shards");
        }
    }
    let read = |(path, _): (PathBuf, u64)| sim.read_file(node, &path).map(|content| (path, content));
    let files = sim.files(node).into_iter().filter_map(read).collect();
    (together, files)
}

/// SSTables in the incremental backups.
fn backed_up(files: &[(PathBuf, Vec<u8>)]) -> usize {
    let is_data = |path: &PathBuf| path.to_string_lossy().ends_with("-Data.db");
    let is_backup = |path: &PathBuf| path.parent().is_some_and(|dir| dir.ends_with("backups"));
    files.iter().filter(|(path, _)| is_data(path) && is_backup(path)).count()
}

fn plan() -> Plan {
    let sync = SyncMode::Periodic { period: Duration::from_millis(50) };
    Plan { sync, canaries: Canaries::default(), gc_grace: 864_000, sstables: true, ops_max: 0 }
}

#[test]
fn changing_the_number_of_shards_loses_nothing() {
    let (plan, none) = (plan(), TabletMaps::default());
    let expected = visible(ops().iter());
    let (mut found, mut files) = run(1, Vec::new(), (plan, &none), true);
    assert_eq!(found, expected);
    let flushed = backed_up(&files);
    assert!(flushed > 0);
    for shards in [3, 2, 2, 1, 4] {
        if shards == 2 {
            assert!(
                backed_up(&files) > flushed,
                "rows of the log that were shared out are in the backups, too"
            );
        }
        (found, files) = run(shards, files, (plan, &none), false);
        assert_eq!(found, expected, "{shards} shards");
    }
}

#[test]
fn tablets_are_on_their_shards_after_a_start() {
    let plan = plan();
    let table = schema(plan.gc_grace).table("ks", "t1").unwrap().id;
    let tablets = |shards: &[u16]| {
        let count = shards.len() as i128;
        let upto = |nth: usize| match nth + 1 == shards.len() {
            true => i64::MAX,
            false => (i128::from(i64::MIN) + (1i128 << 64) * (nth as i128 + 1) / count) as i64,
        };
        let tablet = |(nth, shard): (usize, &u16)| Tablet {
            upto: upto(nth),
            replicas: vec![(HostId([0; 16]), *shard)],
        };
        TabletMaps::new([(table, TabletMap::new(shards.iter().enumerate().map(tablet).collect()))])
    };
    let expected = visible(ops().iter());
    let (mut found, mut files) = run(1, Vec::new(), (plan, &TabletMaps::default()), true);
    assert_eq!(found, expected);
    // Out of the log and out of SSTables that tokens have shared out; then tablets that have moved; then fewer shards than the map names.
    for (shards, of_tablets) in
        [(3, &[2, 0, 2, 1][..]), (3, &[0, 1, 1, 2]), (3, &[1]), (2, &[2, 0, 2]), (2, &[])]
    {
        let maps = if of_tablets.is_empty() { TabletMaps::default() } else { tablets(of_tablets) };
        (found, files) = run(shards, files, (plan, &maps), false);
        assert_eq!(found, expected, "{shards} shards, tablets on {of_tablets:?}");
    }
}
