//! Indexes of full text: after any writes, flushes, compactions and power failures a search finds the rows whose texts a comparison of all of
//! them finds, in the order of their relevance, and a damaged file is made again.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Candidates, Engine, EngineConfig, NearestQuery, NearestTo, Origin, ReadError, SyncMode, TextStatistics,
    Write,
};
use mutation::{Cell, Clustering, ColumnData, DecoratedKey, PartitionUpdate, Row};
use rt::{OpenOptions, Rt, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};
use schema::{Index, IndexTarget, IndexedPart, Keyspace, Replication, Schema, Table, TableBuilder, TableId};
use text::{Document, FullText, TextQuery};
use types::CqlType;

use crate::world::on_a_node;

const PARTITIONS: u64 = 20;
const ROWS: u64 = 8;

const QUERIES: [&str; 12] = [
    "alpha",
    "alpha beta",
    "alpha AND beta",
    "gamma -alpha",
    "\"alpha beta\"",
    "\"alpha gamma\"~2",
    "al*",
    "alhpa~",
    "(alpha OR delta) AND NOT beta",
    "usual rare7",
    "rare*",
    "nothing",
];

fn table() -> Arc<Table> {
    let mut table = TableBuilder::new("ks", "t", TableId([1; 16]))
        .partition_key("k", CqlType::Int)
        .clustering("c", CqlType::Int, false)
        .regular("v", CqlType::Text)
        .build()
        .expect("a good table");
    let targets = vec![IndexTarget { column: "v".to_owned(), part: IndexedPart::Whole }];
    let class = Some("fulltext_index".to_owned());
    let index = Index { name: "words".to_owned(), targets, class, options: Default::default(), local: false };
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

fn sentence(rt: &Rt) -> String {
    let words = ["alpha", "beta", "gamma", "delta", "usual", "usual", "usual", "alpine"];
    let word = || match rt.random_below(10) {
        0 => format!("rare{}", rt.random_below(40)),
        _ => words[rt.random_below(words.len() as u64) as usize].to_owned(),
    };
    (0..rt.random_below(12)).map(|_| word()).collect::<Vec<_>>().join(" ")
}

async fn write(rt: &Rt, engine: &Engine, table: &Arc<Table>, (k, c): (u64, u64), timestamp: i64) -> String {
    let int = |value: u64| Bytes::copy_from_slice(&(value as i32).to_be_bytes());
    let mut update = PartitionUpdate::new(table.clone(), DecoratedKey::new(int(k)));
    let mut row = Row::new(Clustering::new(table, &[Some(&int(c))]));
    let text = sentence(rt);
    let id = table.column("v").expect("it is there").id;
    row.set(id, ColumnData::Simple(Cell::live(timestamp, Bytes::from(text.clone()))));
    update.add_row(row);
    engine.apply(Write::one(Origin::Client, update)).await.expect("the disk is well");
    text
}

async fn ask(rt: &Rt, engine: &Engine, text: &str, count: usize) -> Candidates {
    let query = NearestQuery { index: "words".to_owned(), to: NearestTo::Text(text.to_owned()), count };
    for _ in 0..50 {
        match engine.nearest(table().id, &query).await {
            Ok(found) => return found,
            Err(ReadError::IndexUnavailable(_)) => rt.sleep(Duration::from_millis(200)).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the index is not made again");
}

/// The texts that were acknowledged, by row.
type Known = Vec<Option<String>>;

/// Compares searches with the texts; how many rows were found.
async fn verify(rt: &Rt, engine: &Engine, known: &Known) -> usize {
    let fulltext = FullText::of(&Default::default()).expect("options");
    let mut rows = 0;
    for text in QUERIES {
        let query = TextQuery::parse(text, &fulltext.analyzer, true).expect("a query");
        let found = ask(rt, engine, text, 10_000).await;
        let row_of = |at: usize| {
            let int = |bytes: &[u8]| i32::from_be_bytes(bytes.try_into().expect("an int")) as u64;
            let place = &found.places[at].place;
            let clustering = place.clustering.as_ref().expect("a row");
            let c = int(clustering.components().next().flatten().expect("a component"));
            (int(&place.key.key) * ROWS + c) as usize
        };
        let mut is_found = vec![false; known.len()];
        for at in 0..found.places.len() {
            assert!(!std::mem::replace(&mut is_found[row_of(at)], true), "{text}: each row comes once");
        }
        assert!(found.places.is_sorted_by(|a, b| a.closeness >= b.closeness), "{text}");
        let TextStatistics { texts, .. } = found.statistics;
        assert!(texts >= known.iter().flatten().count() as u64, "{text}: each version is counted");
        for (row, value) in known.iter().enumerate() {
            let Some(value) = value else { continue };
            let document = Document::new(&query, &fulltext.analyzer, value.as_bytes()).expect("a text");
            let Some(score) = query.score(&document, &found.statistics) else { continue };
            rows += 1;
            assert!(is_found[row], "{text}: {value} is missing");
            // Or that of an older version, which is greater.
            let at = (0..found.places.len()).find(|at| row_of(*at) == row).expect("it is found");
            assert!(found.places[at].closeness >= score, "{text}: {value}");
        }
        // The first of few are the first of all, unless a flush has dropped older versions meanwhile.
        let few = ask(rt, engine, text, 3).await;
        if few.statistics != found.statistics {
            continue;
        }
        let scores =
            |all: &Candidates| all.places.iter().take(3).map(|one| one.closeness).collect::<Vec<_>>();
        assert_eq!(scores(&few), scores(&found), "{text}");
    }
    rows
}

#[derive(Default)]
struct World {
    timestamp: i64,
    known: Known,
    /// The row of a write that was not acknowledged: nobody knows which text it has.
    unsure: Option<usize>,
    rows: usize,
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
            let text = write(&rt, &engine, &table, (row as u64 / ROWS, row as u64 % ROWS), timestamp).await;
            let mut world = world.lock().unwrap();
            world.known[row] = Some(text);
            world.unsure = None;
        }
        let known = world.lock().unwrap().known.clone();
        let rows = verify(&rt, &engine, &known).await;
        world.lock().unwrap().rows += rows;
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
fn every_text_is_found() {
    let mut rows = 0;
    for seed in 0..8 {
        let sim = Simulation::new(seed, Config::default());
        let known = vec![None; (PARTITIONS * ROWS) as usize];
        let world = Arc::new(Mutex::new(World { known, ..World::default() }));
        let shared = world.clone();
        let node = sim.add_node(NodeConfig::default(), move |_| {
            let shared = shared.clone();
            shard_mains(1, move |rt| lifetime(rt, shared.clone()))
        });
        sim.start(node);
        for _ in 0..3 {
            sim.run_for(Duration::from_secs(10));
            sim.crash(node);
            sim.start(node);
        }
        rows += world.lock().unwrap().rows;
    }
    assert!(rows > 5_000, "{rows} rows make no test");
}

#[test]
fn a_damaged_file_is_made_again() {
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
        assert!(verify(&rt, &engine, &known).await > 200);
        engine.stop().await.unwrap();
        let folder = PathBuf::from("/data/ks").join(&rt.disk().list("/data/ks").await.unwrap()[0].name);
        let folder = folder.join("indexes");
        let path = folder.join(&rt.disk().list(&folder).await.unwrap()[0].name);
        let good = rt.disk().read_to_end(&path, 1 << 30).await.unwrap();
        let mut damaged: Vec<Vec<u8>> =
            vec![good[..good.len() / 2].to_vec(), Vec::new(), [good.as_slice(), b"x"].concat()];
        for _ in 0..30 {
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

/// Posting lists of many blocks, in memory and in a file; a prefix of too many texts is refused and not held.
#[test]
fn long_lists_of_postings() {
    on_a_node(5, |rt| async move {
        let table = table();
        let mut settings = config();
        settings.memtable_bytes_max = 256 << 20;
        let engine = Engine::open(rt.clone(), settings, schema()).await.unwrap();
        let id = table.column("v").expect("it is there").id;
        let int = |value: i32| Bytes::copy_from_slice(&value.to_be_bytes());
        const COUNT: i32 = 70_000;
        for k in 0..COUNT / 1_000 {
            let mut update = PartitionUpdate::new(table.clone(), DecoratedKey::new(int(k)));
            for c in 0..1_000 {
                let mut row = Row::new(Clustering::new(&table, &[Some(&int(c))]));
                let rare = if (k * 1_000 + c) % 7_000 == 3 { "needle" } else { "hay" };
                let text = format!("common {rare} w{k}x{c}");
                row.set(id, ColumnData::Simple(Cell::live(1, Bytes::from(text))));
                update.add_row(row);
            }
            engine.apply(Write::one(Origin::Client, update)).await.expect("the disk is well");
        }
        for is_flushed in [false, true] {
            if is_flushed {
                engine.flush(table.id).await.unwrap();
            }
            let common = ask(&rt, &engine, "common", 50).await;
            assert_eq!((common.places.len(), common.statistics.texts), (50, COUNT as u64));
            let with = common.statistics.with_leaf[0];
            assert!(with.abs_diff(COUNT as u64) < 7_000, "{with} texts have the word");
            for (query, count) in
                [("common AND needle", 10), ("\"common needle\"", 10), ("needle -common", 0), ("w3x77", 1)]
            {
                assert_eq!(
                    ask(&rt, &engine, query, 100).await.places.len(),
                    count,
                    "{query}, flushed: {is_flushed}"
                );
            }
            assert_eq!(ask(&rt, &engine, "w3x9*", 1_000).await.places.len(), 111);
            let all =
                NearestQuery { index: "words".to_owned(), to: NearestTo::Text("w*".to_owned()), count: 5 };
            let refused = engine.nearest(table.id, &all).await.map(|found| found.places.len());
            assert!(
                matches!(&refused, Err(ReadError::Source(error)) if error.to_string().contains("too many texts")),
                "{refused:?}"
            );
        }
        engine.stop().await.unwrap();
    });
}

#[test]
fn a_search_for_something_else_is_refused() {
    on_a_node(4, |rt| async move {
        let engine = Engine::open(rt.clone(), config(), schema()).await.unwrap();
        let ask = async |index: &str, to: NearestTo| {
            let query = NearestQuery { index: index.to_owned(), to, count: 3 };
            engine.nearest(table().id, &query).await
        };
        let text = |text: &str| NearestTo::Text(text.to_owned());
        assert!(matches!(ask("none", text("a")).await, Err(ReadError::IndexUnavailable(_))));
        assert!(matches!(ask("words", text("\"a")).await, Err(ReadError::Source(_))));
        assert!(matches!(ask("words", NearestTo::Vector(vec![1.0])).await, Err(ReadError::Source(_))));
        assert_eq!(ask("words", text("a")).await.unwrap().places, []);
    });
}
