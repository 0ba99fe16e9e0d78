//! Indexes on vectors: after any writes, flushes, compactions and power failures the rows of all vectors are among the candidates when as many are asked
//! for, and a damaged file is made again.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Candidate, Engine, EngineConfig, NearestQuery, NearestTo, Origin, ReadError, Similarity, SyncMode, Write,
};
use mutation::{Cell, Clustering, ColumnData, DecoratedKey, PartitionUpdate, Row};
use rt::{OpenOptions, Rt, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};
use schema::{Index, IndexTarget, IndexedPart, Keyspace, Replication, Schema, Table, TableBuilder, TableId};
use types::CqlType;

use crate::world::on_a_node;

const DIMENSIONS: usize = 6;
const PARTITIONS: u64 = 30;
const ROWS: u64 = 10;

fn table() -> Arc<Table> {
    let mut table = TableBuilder::new("ks", "t", TableId([1; 16]))
        .partition_key("k", CqlType::Int)
        .clustering("c", CqlType::Int, false)
        .regular("v", CqlType::vector(CqlType::Float, DIMENSIONS as u32))
        .build()
        .expect("a good table");
    let targets = vec![IndexTarget { column: "v".to_owned(), part: IndexedPart::Whole }];
    let options = [("maximum_node_connections", "4"), ("construction_beam_width", "20")];
    let options = options.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let index =
        Index { name: "near".to_owned(), targets, class: Some("sai".to_owned()), options, local: false };
    table.indexes.insert(index.name.clone(), index);
    Arc::new(table)
}

fn schema() -> Arc<Schema> {
    let mut keyspace = Keyspace::new("ks", Replication::Local);
    keyspace.tables.insert("t".to_owned(), table());
    Arc::new(Schema::default().with_keyspace(keyspace))
}

fn config() -> EngineConfig {
    let mut config = EngineConfig::new(PathBuf::from("/data"), PathBuf::from("/log"));
    config.commitlog.sync = SyncMode::Batch;
    config.memtable_bytes_max = 256 << 10;
    config
}

fn vector(rt: &Rt) -> Vec<f32> {
    // Some of them often, so that equal vectors meet.
    let whole = rt.random_below(8) == 0;
    let component = || rt.random_below(2_000) as f32 / 1_000.0 - 1.0;
    (0..DIMENSIONS).map(|_| if whole { component().round() } else { component() }).collect()
}

async fn write(rt: &Rt, engine: &Engine, table: &Arc<Table>, (k, c): (u64, u64), timestamp: i64) -> Vec<f32> {
    let int = |value: u64| Bytes::copy_from_slice(&(value as i32).to_be_bytes());
    let mut update = PartitionUpdate::new(table.clone(), DecoratedKey::new(int(k)));
    let mut row = Row::new(Clustering::new(table, &[Some(&int(c))]));
    let vector = vector(rt);
    let value: Vec<u8> = vector.iter().flat_map(|one| one.to_be_bytes()).collect();
    let id = table.column("v").expect("it is there").id;
    row.set(id, ColumnData::Simple(Cell::live(timestamp, Bytes::from(value))));
    update.add_row(row);
    engine.apply(Write::one(Origin::Client, update)).await.expect("the disk is well");
    vector
}

async fn ask(rt: &Rt, engine: &Engine, vector: Vec<f32>, count: usize) -> Vec<Candidate> {
    let query = NearestQuery { index: "near".to_owned(), to: NearestTo::Vector(vector), count };
    for _ in 0..50 {
        match engine.nearest(table().id, &query).await {
            Ok(found) => return found.places,
            Err(ReadError::IndexUnavailable(_)) => rt.sleep(Duration::from_millis(200)).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the index is not made again");
}

/// The vectors that were acknowledged, by row; in the order of all rows.
type Known = Vec<Option<Vec<f32>>>;

/// Compares searches with the rows; the part of the nearest that was found.
async fn verify(rt: &Rt, engine: &Engine, known: &Known) -> (usize, usize) {
    let live = known.iter().flatten().count();
    let row_of = |candidate: &Candidate| {
        let int = |bytes: &[u8]| i32::from_be_bytes(bytes.try_into().expect("an int")) as u64;
        let clustering = candidate.place.clustering.as_ref().expect("a row");
        let c = int(clustering.components().next().flatten().expect("a component"));
        (int(&candidate.place.key.key) * ROWS + c) as usize
    };
    let target = vector(rt);
    let all = ask(rt, engine, target.clone(), 10_000).await;
    assert_eq!(all.len(), live, "each row once");
    assert!(all.iter().all(|one| known[row_of(one)].is_some()));
    assert!(all.is_sorted_by(|a, b| a.closeness >= b.closeness));
    let closeness = |row: usize| {
        let vector = known[row].as_ref().expect("a live row");
        Similarity::Cosine.closeness(&target, vector)
    };
    let mut nearest: Vec<usize> = (0..known.len()).filter(|row| known[*row].is_some()).collect();
    nearest.sort_by(|a, b| closeness(*b).total_cmp(&closeness(*a)));
    nearest.truncate(5);
    let found = ask(rt, engine, target.clone(), 50).await;
    assert_eq!(found.len(), live.min(50));
    (nearest.iter().filter(|row| found.iter().any(|one| row_of(one) == **row)).count(), nearest.len())
}

#[derive(Default)]
struct World {
    timestamp: i64,
    known: Known,
    /// The row of a write that was not acknowledged: nobody knows which vector it has.
    unsure: Option<usize>,
    found: usize,
    wanted: usize,
}

async fn lifetime(rt: Rt, world: Arc<Mutex<World>>) {
    let engine = Engine::open(rt.clone(), config(), schema()).await.expect("it opens");
    let table = table();
    loop {
        let unsure = world.lock().unwrap().unsure;
        let rows = unsure
            .into_iter()
            .chain((0..rt.random_below(150)).map(|_| rt.random_below(PARTITIONS * ROWS) as usize));
        for row in rows {
            let timestamp = {
                let mut world = world.lock().unwrap();
                world.timestamp += 1;
                world.unsure = Some(row);
                world.timestamp
            };
            let vector = write(&rt, &engine, &table, (row as u64 / ROWS, row as u64 % ROWS), timestamp).await;
            let mut world = world.lock().unwrap();
            world.known[row] = Some(vector);
            world.unsure = None;
        }
        let known = world.lock().unwrap().known.clone();
        let (found, wanted) = verify(&rt, &engine, &known).await;
        {
            let mut world = world.lock().unwrap();
            world.found += found;
            world.wanted += wanted;
        }
        match rt.random_below(4) {
            0 | 1 => engine.flush(table.id).await.expect("the disk is well"),
            2 => engine.compact(table.id).await.expect("the disk is well"),
            _ => {}
        }
        if rt.random_below(6) == 0 {
            return engine.stop().await.expect("the disk is well");
        }
    }
}

#[test]
fn every_row_is_found() {
    let (mut found, mut wanted) = (0, 0);
    for seed in 0..12 {
        let sim = Simulation::new(seed, Config::default());
        let known = vec![None; (PARTITIONS * ROWS) as usize];
        let world = Arc::new(Mutex::new(World { known, ..World::default() }));
        let shared = world.clone();
        let node = sim.add_node(NodeConfig::default(), move |_| {
            let shared = shared.clone();
            shard_mains(1, move |rt| lifetime(rt, shared.clone()))
        });
        sim.start(node);
        for _ in 0..4 {
            sim.run_for(Duration::from_secs(20));
            sim.crash(node);
            sim.start(node);
        }
        let world = world.lock().unwrap();
        found += world.found;
        wanted += world.wanted;
    }
    println!("{found} of {wanted} of the nearest were found");
    assert!(wanted > 500, "{wanted}");
    assert!(found * 100 >= wanted * 97, "{found} of {wanted}");
}

#[test]
fn a_damaged_graph_is_made_again() {
    on_a_node(3, |rt| async move {
        let table = table();
        let engine = Engine::open(rt.clone(), config(), schema()).await.unwrap();
        let mut known: Known = Vec::new();
        for k in 0..PARTITIONS {
            for c in 0..ROWS {
                known.push(Some(write(&rt, &engine, &table, (k, c), 1).await));
            }
        }
        engine.flush(table.id).await.unwrap();
        verify(&rt, &engine, &known).await;
        engine.stop().await.unwrap();
        let folder = PathBuf::from("/data/ks").join(&rt.disk().list("/data/ks").await.unwrap()[0].name);
        let folder = folder.join("indexes");
        let path = folder.join(&rt.disk().list(&folder).await.unwrap()[0].name);
        let good = rt.disk().read_to_end(&path, 1 << 30).await.unwrap();
        let mut damaged: Vec<Vec<u8>> =
            vec![good[..good.len() / 2].to_vec(), Vec::new(), [good.as_slice(), b"x"].concat()];
        for _ in 0..40 {
            let mut bad = good.clone();
            bad[rt.random_below(good.len() as u64) as usize] ^= 1 << rt.random_below(8);
            damaged.push(bad);
        }
        for bad in damaged {
            let options = OpenOptions { truncate: true, ..OpenOptions::READ_WRITE };
            let file = rt.disk().open(&path, options).await.unwrap();
            file.write_at(0, rt::IoBuf::copy_of(&bad)).await.unwrap();
            let engine = Engine::open(rt.clone(), config(), schema()).await.unwrap();
            verify(&rt, &engine, &known).await;
            engine.stop().await.unwrap();
        }
    });
}

#[test]
fn a_search_for_something_else_is_refused() {
    on_a_node(4, |rt| async move {
        let engine = Engine::open(rt.clone(), config(), schema()).await.unwrap();
        let ask = async |index: &str, vector: Vec<f32>| {
            engine
                .nearest(
                    table().id,
                    &NearestQuery { index: index.to_owned(), to: NearestTo::Vector(vector), count: 3 },
                )
                .await
        };
        assert!(matches!(ask("far", vec![1.0; DIMENSIONS]).await, Err(ReadError::IndexUnavailable(_))));
        assert!(matches!(ask("near", vec![1.0; 2]).await, Err(ReadError::Source(_))));
        assert!(matches!(ask("near", vec![f32::NAN; DIMENSIONS]).await, Err(ReadError::Source(_))));
        assert!(ask("near", vec![1.0; DIMENSIONS]).await.unwrap().places.is_empty());
    });
}
