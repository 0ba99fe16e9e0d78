//! A table with one index on its column `v`, for tests of indexes that find the best rows: its writes through lifetimes, its searches, and the
//! damage of the index's file.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use engine::{Candidates, Engine, EngineConfig, NearestQuery, Origin, Place, ReadError, SyncMode, Write};
use mutation::{Cell, Clustering, ColumnData, DecoratedKey, PartitionUpdate, Row};
use rt::{OpenOptions, Rt, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};
use schema::{Index, IndexTarget, IndexedPart, Keyspace, Replication, Schema, Table, TableBuilder, TableId};
use types::CqlType;

/// The table, whose values have a type, with an index of a name, a class and options.
pub fn table(ty: CqlType, (name, class): (&str, &str), options: &[(&str, &str)]) -> Arc<Table> {
    let mut table = TableBuilder::new("ks", "t", TableId([1; 16]))
        .partition_key("k", CqlType::Int)
        .clustering("c", CqlType::Int, false)
        .regular("v", ty)
        .build()
        .expect("a good table");
    let targets = vec![IndexTarget { column: "v".to_owned(), part: IndexedPart::Whole }];
    let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let class = Some(class.to_owned());
    let index = Index { name: name.to_owned(), targets, class, options, local: false };
    table.indexes.insert(index.name.clone(), index);
    Arc::new(table)
}

pub fn schema(table: Arc<Table>) -> Arc<Schema> {
    let mut keyspace = Keyspace::new("ks", Replication::Local);
    keyspace.tables.insert("t".to_owned(), table);
    Arc::new(Schema::default().with_keyspace(keyspace))
}

pub fn config() -> EngineConfig {
    let mut config = EngineConfig::new(PathBuf::from("/data"), PathBuf::from("/log"));
    config.commitlog.sync = SyncMode::Batch;
    config.memtable_bytes_max = 256 << 10;
    config
}

fn int(value: u64) -> Bytes {
    Bytes::copy_from_slice(&(value as i32).to_be_bytes())
}

pub async fn write(engine: &Engine, table: &Arc<Table>, (k, c): (u64, u64), timestamp: i64, value: Bytes) {
    let mut update = PartitionUpdate::new(table.clone(), DecoratedKey::new(int(k)));
    let mut row = Row::new(Clustering::new(table, &[Some(&int(c))]));
    let id = table.column("v").expect("it is there").id;
    row.set(id, ColumnData::Simple(Cell::live(timestamp, value)));
    update.add_row(row);
    engine.apply(Write::one(Origin::Client, update)).await.expect("the disk is well");
}

/// The number of the row at a place, where each partition has so many rows.
pub fn row_of(place: &Place, rows: u64) -> usize {
    let int = |bytes: &[u8]| i32::from_be_bytes(bytes.try_into().expect("an int")) as u64;
    let clustering = place.clustering.as_ref().expect("a row");
    let c = int(clustering.components().next().flatten().expect("a component"));
    (int(&place.key.key) * rows + c) as usize
}

/// The answer to a search, as soon as the index can be queried.
pub async fn nearest(rt: &Rt, engine: &Engine, table: TableId, query: &NearestQuery) -> Candidates {
    for _ in 0..50 {
        match engine.nearest(table, query).await {
            Ok(found) => return found,
            Err(ReadError::IndexUnavailable(_)) => rt.sleep(Duration::from_millis(200)).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the index is not made again");
}

/// Rows through lifetimes, and the sum `S` of their checks' counts.
pub struct World<T, S> {
    timestamp: i64,
    /// The values that were acknowledged, by row.
    known: Vec<Option<T>>,
    /// The row of a write that was not acknowledged: nobody knows which value it has.
    unsure: Option<usize>,
    seen: S,
}

pub type SharedWorld<T, S> = Arc<Mutex<World<T, S>>>;

type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The writes and the check of a test.
pub struct Work<T, S> {
    pub table: Arc<Table>,
    /// Rows of each partition.
    pub rows: u64,
    /// Writes a random value to a row; the value.
    pub write: for<'a> fn(&'a Rt, &'a Engine, &'a Arc<Table>, (u64, u64), i64) -> Pending<'a, T>,
    /// Compares searches with the values.
    pub verify: for<'a> fn(&'a Rt, &'a Engine, &'a [Option<T>]) -> Pending<'a, S>,
    pub add: fn(&mut S, S),
}

async fn lifetime<T: Clone, S>(rt: Rt, world: SharedWorld<T, S>, work: Work<T, S>) {
    let engine = Engine::open(rt.clone(), config(), schema(work.table.clone())).await.expect("it opens");
    let table = work.table.id;
    loop {
        let (unsure, count) = {
            let world = world.lock().unwrap();
            (world.unsure, world.known.len() as u64)
        };
        let some = (0..rt.random_below(150)).map(|_| rt.random_below(count) as usize);
        for row in unsure.into_iter().chain(some) {
            let timestamp = {
                let mut world = world.lock().unwrap();
                world.timestamp += 1;
                world.unsure = Some(row);
                world.timestamp
            };
            let place = (row as u64 / work.rows, row as u64 % work.rows);
            let value = (work.write)(&rt, &engine, &work.table, place, timestamp).await;
            let mut world = world.lock().unwrap();
            world.known[row] = Some(value);
            world.unsure = None;
        }
        let known = world.lock().unwrap().known.clone();
        let seen = (work.verify)(&rt, &engine, &known).await;
        (work.add)(&mut world.lock().unwrap().seen, seen);
        match rt.random_below(4) {
            0 | 1 => engine.flush(table).await.expect("the disk is well"),
            2 => engine.compact(table).await.expect("the disk is well"),
            _ => {}
        }
        if rt.random_below(6) == 0 {
            return engine.stop().await.expect("the disk is well");
        }
    }
}

/// Runs a node of `partitions` through so many crashes, each after so long; the sum of the checks' counts.
pub fn lifetimes<T, S>(
    (seed, partitions): (u64, u64),
    (crashes, each): (u32, Duration),
    work: fn() -> Work<T, S>,
) -> S
where
    T: Clone + Send + 'static,
    S: Clone + Default + Send + 'static,
{
    let sim = Simulation::new(seed, Config::default());
    let known = vec![None; (partitions * work().rows) as usize];
    let world = Arc::new(Mutex::new(World { timestamp: 0, known, unsure: None, seen: S::default() }));
    let shared = world.clone();
    let node = sim.add_node(NodeConfig::default(), move |_| {
        let shared = shared.clone();
        shard_mains(1, move |rt| lifetime(rt, shared.clone(), work()))
    });
    sim.start(node);
    for _ in 0..crashes {
        sim.run_for(each);
        sim.crash(node);
        sim.start(node);
    }
    world.lock().unwrap().seen.clone()
}

/// The file of the index, and its bytes.
pub async fn index_file(rt: &Rt) -> (PathBuf, Vec<u8>) {
    let folder = PathBuf::from("/data/ks").join(&rt.disk().list("/data/ks").await.unwrap()[0].name);
    let folder = folder.join("indexes");
    let path = folder.join(&rt.disk().list(&folder).await.unwrap()[0].name);
    let bytes = rt.disk().read_to_end(&path, 1 << 30).await.unwrap();
    (path, bytes)
}

pub async fn overwrite(rt: &Rt, path: &PathBuf, bytes: &[u8]) {
    let options = OpenOptions { truncate: true, ..OpenOptions::READ_WRITE };
    let file = rt.disk().open(path, options).await.unwrap();
    file.write_at(0, rt::IoBuf::copy_of(bytes)).await.unwrap();
}

/// A file cut off, emptied, lengthened, and with a flipped bit so many times.
pub fn damaged(rt: &Rt, good: &[u8], flips: usize) -> Vec<Vec<u8>> {
    let mut all = vec![good[..good.len() / 2].to_vec(), Vec::new(), [good, b"x"].concat()];
    for _ in 0..flips {
        let mut bad = good.to_vec();
        bad[rt.random_below(good.len() as u64) as usize] ^= 1 << rt.random_below(8);
        all.push(bad);
    }
    all
}
