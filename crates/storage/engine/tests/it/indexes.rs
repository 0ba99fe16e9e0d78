//! Storage-attached indexes: through any writes, flushes, compactions, truncations and power failures, an index finds every row that a
//! scan with a filter finds, in ring order and once; a damaged file of an index is made again.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Canaries, Engine, EngineConfig, IndexQuery, Origin, Predicate, Read, ReadError, Rewrite, RewriteReport,
    StopRequest, SyncMode, TaskKind, Write,
};
use mutation::{
    Cell, Clustering, ColumnData, Complex, ComplexCell, DecoratedKey, DeletionTime, Fragment, LivenessInfo,
    PartitionRange, PartitionUpdate, RingPosition, Row, Seconds, Slices,
};
use rt::{Group, Instant, Rt, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};
use schema::{Index, IndexTarget, IndexedPart, Keyspace, Replication, Schema, Table, TableBuilder, TableId};
use types::CqlType;

use crate::attached::{index_file, overwrite};
use crate::world::on_a_node;

const PARTITIONS: u64 = 12;
const ROWS: u64 = 4;
const VALUES: u64 = 5;
/// Before the simulation's time: cells expired by now may be purged at any moment.
const NOW: Seconds = 1_700_000_000;
const LATER: Seconds = 2_000_000_000;

/// Indexes of the table: of which column which part.
const INDEXES: [(&str, IndexedPart); 8] = [
    ("v", IndexedPart::Whole),
    ("s", IndexedPart::Whole),
    ("ck", IndexedPart::Whole),
    ("pk2", IndexedPart::Whole),
    ("m", IndexedPart::Keys),
    ("m", IndexedPart::Values),
    ("m", IndexedPart::Entries),
    ("e", IndexedPart::Values),
];

/// The table with the first so many indexes.
fn table(indexes: usize) -> Arc<Table> {
    let mut table = TableBuilder::new("ks", "t", TableId([1; 16]))
        .partition_key("pk1", CqlType::Int)
        .partition_key("pk2", CqlType::Text)
        .clustering("ck", CqlType::Int, true)
        .static_column("s", CqlType::Text)
        .regular("e", CqlType::set(CqlType::Int, false))
        .regular("m", CqlType::map(CqlType::Int, CqlType::Text, false))
        .regular("v", CqlType::Varint)
        .build()
        .expect("a good table");
    for (at, (column, part)) in INDEXES.iter().enumerate().take(indexes) {
        let target = IndexTarget { column: (*column).to_owned(), part: *part };
        let name = format!("i{at}");
        let index = Index {
            name: name.clone(),
            targets: vec![target],
            class: None,
            options: Default::default(),
            local: false,
        };
        table.indexes.insert(name, index);
    }
    Arc::new(table)
}

fn schema(indexes: usize) -> Arc<Schema> {
    let mut keyspace = Keyspace::new("ks", Replication::Local);
    keyspace.tables.insert("t".to_owned(), table(indexes));
    Arc::new(Schema::default().with_keyspace(keyspace))
}

fn text(value: u64) -> Bytes {
    // Of different lengths, one the beginning of another, and with zeros.
    Bytes::from([&b"a\0b\xff"[..(value % 4) as usize], &value.to_be_bytes()[7..]].concat())
}

fn int(value: u64) -> Bytes {
    Bytes::copy_from_slice(&(value as i32).to_be_bytes())
}

fn varint(value: u64) -> Bytes {
    // -200, -100, 0, 100, 200: of one and of two bytes.
    let value = value as i16 * 100 - 200;
    let bytes = value.to_be_bytes();
    match i8::try_from(value) {
        Ok(short) => Bytes::copy_from_slice(&short.to_be_bytes()),
        Err(_) => Bytes::copy_from_slice(&bytes),
    }
}

fn partition(pk: u64) -> DecoratedKey {
    DecoratedKey::new(DecoratedKey::compose(&[&int(pk), &text(pk % VALUES)]))
}

fn clustering(table: &Table, ck: u64) -> Clustering {
    Clustering::new(table, &[Some(&int(ck))])
}

fn config() -> EngineConfig {
    let mut config = EngineConfig::new(PathBuf::from("/data"), PathBuf::from("/log"));
    config.commitlog.sync = SyncMode::Batch;
    config.commitlog.segment_bytes = 96 << 10;
    config.memtable_bytes_max = 64 << 10;
    config
}

/// A random write.
fn update(rt: &Rt, table: &Arc<Table>, timestamp: i64) -> PartitionUpdate {
    let pick = |below| rt.random_below(below);
    let id = |name: &str| table.column(name).expect("it is there").id;
    let mut update = PartitionUpdate::new(table.clone(), partition(pick(PARTITIONS)));
    let deletion = DeletionTime::new(timestamp, NOW - 100);
    match pick(12) {
        0 => update.add_deletion(deletion),
        1 | 2 => {
            let mut row = Row::new(Clustering::empty());
            let cell = match pick(4) {
                0 => Cell::tombstone(timestamp, NOW - 100),
                _ => Cell::live(timestamp, text(pick(VALUES))),
            };
            row.set(id("s"), ColumnData::Simple(cell));
            update.add_static(row);
        }
        other => {
            let mut row = Row::new(clustering(table, pick(ROWS)));
            if other == 3 {
                row.deletion = deletion;
            } else if pick(2) == 0 {
                row.liveness = LivenessInfo::forever(timestamp);
            }
            if pick(2) == 0 {
                let cell = match pick(5) {
                    0 => Cell::tombstone(timestamp, NOW - 100),
                    1 => Cell::expiring(
                        timestamp,
                        60,
                        [NOW - 1, LATER][pick(2) as usize],
                        varint(pick(VALUES)),
                    ),
                    _ => Cell::live(timestamp, varint(pick(VALUES))),
                };
                row.set(id("v"), ColumnData::Simple(cell));
            }
            for (name, is_map) in [("m", true), ("e", false)] {
                if pick(2) == 0 {
                    let mut complex = Complex::empty();
                    if pick(3) == 0 {
                        complex.deletion = DeletionTime::new(timestamp - 1, NOW - 100);
                    }
                    let value = if is_map { text(pick(VALUES)) } else { Bytes::new() };
                    let cell = match pick(4) {
                        0 => Cell::tombstone(timestamp, NOW - 100),
                        _ => Cell::live(timestamp, value),
                    };
                    complex.cells.push(ComplexCell { path: int(pick(VALUES)), cell });
                    row.set(id(name), ColumnData::Complex(complex));
                }
            }
            update.add_row(row);
        }
    }
    update
}

/// A place as the tests compare it: the key, and the row's position or none.
type Spot = (DecoratedKey, Option<Vec<u8>>);

/// The places that an index finds, with the order and uniqueness checked; fails when the index is not there yet.
async fn places(
    engine: &Engine,
    table: &Table,
    query: &IndexQuery,
    range: &PartitionRange,
) -> Result<BTreeSet<Spot>, ReadError> {
    let slices = Slices::all();
    let mut reader = engine.read(&Read { index: Some(query), ..Read::new(table.id, range, &slices) })?;
    let (mut found, mut open, mut last): (_, Option<DecoratedKey>, Option<Spot>) =
        (BTreeSet::new(), None, None);
    while let Some(fragment) = reader.next().await? {
        let spot = match fragment {
            Fragment::PartitionStart { key, .. } => {
                assert!(open.replace(key).is_none(), "a partition ends before the next");
                continue;
            }
            Fragment::PartitionEnd => {
                assert!(open.take().is_some(), "a partition ends once");
                continue;
            }
            Fragment::StaticRow(row) => {
                assert!(row.has_live_cell(NOW));
                (open.clone().expect("in a partition"), None)
            }
            Fragment::Row(row) => {
                assert!(row.is_live(NOW) && row.columns().is_empty());
                (open.clone().expect("in a partition"), Some(row.clustering.position().to_vec()))
            }
            Fragment::RangeTombstoneChange { .. } => panic!("places have no deletions"),
        };
        assert!(last.as_ref().is_none_or(|last| *last < spot), "in ring order, once");
        assert!(range.contains(&spot.0));
        last = Some(spot.clone());
        found.insert(spot);
    }
    assert!(open.is_none());
    Ok(found)
}

/// All rows of the table, with their partition's static row.
async fn rows(engine: &Engine, table: &Table) -> Vec<(DecoratedKey, Option<Row>, Option<Row>)> {
    let (range, slices) = (PartitionRange::all(), Slices::all());
    let mut reader = engine.read(&Read::new(table.id, &range, &slices)).expect("the disk is well");
    let (mut all, mut open, mut statics) = (Vec::new(), None, None);
    while let Some(fragment) = reader.next().await.expect("the disk is well") {
        match fragment {
            Fragment::PartitionStart { key, .. } => (open, statics) = (Some(key), None),
            Fragment::StaticRow(row) => {
                statics = Some(row.clone());
                all.push((open.clone().expect("in a partition"), Some(row), None));
            }
            Fragment::Row(row) => {
                all.push((open.clone().expect("in a partition"), statics.clone(), Some(row)));
            }
            _ => {}
        }
    }
    all
}

/// The values of a row that an index has, as a query of it names them.
fn values_of(
    table: &Table,
    at: usize,
    key: &DecoratedKey,
    statics: Option<&Row>,
    row: Option<&Row>,
) -> Vec<Predicate> {
    let (name, part) = INDEXES[at];
    let column = table.column(name).expect("it is there");
    match name {
        "pk2" => {
            let components = DecoratedKey::components(&key.key, 2).expect("two");
            let lives =
                row.map_or_else(|| statics.is_some_and(|row| row.has_live_cell(NOW)), |row| row.is_live(NOW));
            lives.then(|| Predicate::Equal(Bytes::copy_from_slice(components[1]))).into_iter().collect()
        }
        "ck" => row
            .filter(|row| row.is_live(NOW))
            .and_then(|row| row.clustering.components().next().flatten().map(Bytes::copy_from_slice))
            .map(Predicate::Equal)
            .into_iter()
            .collect(),
        "s" if row.is_some() => Vec::new(),
        "s" | "v" => {
            let cell = if name == "s" { statics } else { row }.and_then(|row| row.cell(column.id));
            cell.filter(|cell| cell.is_live(NOW))
                .map(|cell| Predicate::Equal(cell.value.clone()))
                .into_iter()
                .collect()
        }
        _ => {
            let cells = row.and_then(|row| row.complex(column.id)).map_or(&[][..], |complex| &complex.cells);
            cells
                .iter()
                .filter(|element| element.cell.is_live(NOW))
                .map(|element| match part {
                    IndexedPart::Keys => Predicate::Equal(element.path.clone()),
                    IndexedPart::Values if name == "e" => Predicate::Equal(element.path.clone()),
                    IndexedPart::Values => Predicate::Equal(element.cell.value.clone()),
                    _ => Predicate::Entry { key: element.path.clone(), value: element.cell.value.clone() },
                })
                .collect()
        }
    }
}

/// Compares all indexes with a scan; whether all were there.
async fn verify(rt: &Rt, engine: &Engine, table: &Arc<Table>) -> bool {
    // Nobody writes between the two readings.
    let all = rows(engine, table).await;
    for at in 0..table.indexes.len() {
        let mut expected: Vec<(Predicate, Spot)> = Vec::new();
        for (key, statics, row) in &all {
            let place = row.as_ref().map(|row| row.clustering.position().to_vec());
            let values = values_of(table, at, key, statics.as_ref(), row.as_ref());
            expected.extend(values.into_iter().map(|value| (value, (key.clone(), place.clone()))));
        }
        let whole = PartitionRange::all();
        let key = partition(rt.random_below(PARTITIONS));
        let upto = PartitionRange { end: RingPosition::AfterKey(key.clone()), ..whole.clone() };
        let behind = PartitionRange { start: RingPosition::AfterToken(key.token), ..whole.clone() };
        for range in [whole, upto, behind, PartitionRange::single(&key)] {
            for (predicate, _) in &expected {
                let query = IndexQuery { index: format!("i{at}"), predicate: predicate.clone() };
                let found = match places(engine, table, &query, &range).await {
                    Ok(found) => found,
                    Err(ReadError::IndexUnavailable(_)) => return false,
                    Err(error) => panic!("{query:?}: {error}"),
                };
                let missed = expected
                    .iter()
                    .filter(|(other, spot)| other == predicate && range.contains(&spot.0))
                    .find(|(_, spot)| !found.contains(spot));
                assert!(missed.is_none(), "{query:?} in {range:?} misses {missed:?}");
            }
        }
        if at == 0 {
            ranges(engine, table, &expected).await;
        }
    }
    true
}

/// Queries of `v` between two values.
async fn ranges(engine: &Engine, table: &Table, expected: &[(Predicate, Spot)]) {
    for from in 0..VALUES {
        for to in 0..VALUES {
            let (with_from, with_to) = (from % 2 == 0, to % 2 == 0);
            let predicate = Predicate::Range {
                from: Some((varint(from), with_from)),
                to: (to != 3).then(|| (varint(to), with_to)),
            };
            let query = IndexQuery { index: "i0".to_owned(), predicate };
            let Ok(found) = places(engine, table, &query, &PartitionRange::all()).await else { return };
            for value in 0..VALUES {
                let is_in = (value > from || with_from && value == from)
                    && (to == 3 || value < to || with_to && value == to);
                let spots = expected.iter().filter(|(other, _)| *other == Predicate::Equal(varint(value)));
                for (_, spot) in spots.filter(|_| is_in) {
                    assert!(found.contains(spot), "{query:?} misses {value}");
                }
            }
        }
    }
}

#[derive(Default)]
struct World {
    timestamp: i64,
    indexes: usize,
    verified: u64,
    unavailable: u64,
}

async fn lifetime(rt: Rt, world: Arc<Mutex<World>>) {
    let indexes = world.lock().unwrap().indexes;
    let engine = Engine::open(rt.clone(), config(), schema(indexes)).await.expect("it opens");
    loop {
        let indexes = world.lock().unwrap().indexes;
        let table = table(indexes);
        // At the start the schema is the one of the open, and some indexes are added later.
        for _ in 0..rt.random_below(60) {
            let timestamp = {
                let mut world = world.lock().unwrap();
                world.timestamp += rt.random_below(3) as i64;
                world.timestamp
            };
            let write = Write::one(Origin::Client, update(&rt, &table, timestamp));
            engine.apply(write).await.expect("the disk is well");
        }
        match rt.random_below(8) {
            0 | 1 => engine.flush(table.id).await.expect("the disk is well"),
            2 => engine.compact(table.id).await.expect("the disk is well"),
            3 if rt.random_below(8) == 0 => {
                engine.truncate(table.id, rt.wall_micros(), Instant::MAX).await.expect("the disk is well");
            }
            4 => {
                let indexes = if rt.random_below(4) == 0 { 0 } else { INDEXES.len().min(indexes + 2) };
                world.lock().unwrap().indexes = indexes;
                engine.set_schema(schema(indexes)).await;
            }
            5 => rt.sleep(Duration::from_secs(2)).await,
            6 if rt.random_below(4) == 0 => {
                engine.rebuild_indexes(table.id, &[]).await.expect("nobody drops the table");
                let built = engine.built_indexes();
                assert_eq!(built.len(), table.indexes.len(), "all are there again: {built:?}");
            }
            _ => {}
        }
        let table = self::table(world.lock().unwrap().indexes);
        let is_there = verify(&rt, &engine, &table).await;
        let mut world = world.lock().unwrap();
        if is_there { world.verified += table.indexes.len() as u64 } else { world.unavailable += 1 }
    }
}

#[test]
fn an_index_finds_the_rows_that_a_filter_finds() {
    let (mut verified, mut unavailable) = (0, 0);
    for seed in 0..30 {
        let sim = Simulation::new(seed, Config::default());
        let world = Arc::new(Mutex::new(World { indexes: seed as usize % 3 * 4, ..World::default() }));
        let shared = world.clone();
        let node = sim.add_node(NodeConfig::default(), move |_| {
            let shared = shared.clone();
            shard_mains(1, move |rt| lifetime(rt, shared.clone()))
        });
        let mut rng = sim.rng(0);
        sim.start(node);
        for life in 0..4 {
            sim.run_for(Duration::from_millis(500 + rng.below(4_000)));
            if life % 2 == 0 {
                sim.crash(node)
            } else {
                sim.kill(node)
            }
            sim.start(node);
        }
        sim.run_for(Duration::from_secs(3));
        let world = world.lock().unwrap();
        verified += world.verified;
        unavailable += world.unavailable;
    }
    println!("{verified} indexes compared, {unavailable} times one was not there yet");
    assert!(verified > 2_000 && unavailable > 10, "{verified} {unavailable}");
    assert!(unavailable < verified / 10, "{verified} {unavailable}");
}

/// An index that a faulty node has made of three rows in four: a verification finds it, and replaces it while queries go on.
#[test]
fn an_index_that_differs_from_its_rows_is_found_and_replaced() {
    on_a_node(6, |rt| async move {
        let table = table(2);
        let query = IndexQuery { index: "i0".to_owned(), predicate: Predicate::Equal(varint(1)) };
        let lost_places = Canaries { lost_places: true, ..Canaries::default() };
        let faulty = EngineConfig { canaries: rt_sim::injected(lost_places), ..config() };
        let engine = Engine::open(rt.clone(), faulty, schema(2)).await.unwrap();
        many(&rt, &engine, &table, 400).await;
        engine.flush(table.id).await.unwrap();
        engine.stop().await.unwrap();
        let engine = Engine::open(rt.clone(), config(), schema(2)).await.unwrap();
        let found = async || places(&engine, &table, &query, &PartitionRange::all()).await.unwrap().len();
        let verify =
            async |repair| engine.rewrite(table.id, Rewrite::VerifyIndexes { repair }).await.unwrap();
        let few = found().await;
        assert!(few < 80, "{few} of 80");
        let report = verify(false).await;
        let differs = |problem: &String| problem.contains("index i0") && problem.contains("and they give");
        assert!(report.sstables > 0 && report.problems.iter().all(differs), "{report:?}");
        assert_eq!((report.problems.len() as u64, report.indexes_replaced), (report.sstables, 0));
        assert_eq!(found().await, few, "nothing was replaced");
        let report = verify(true).await;
        assert_eq!((report.problems, report.indexes_replaced), (vec![], report.sstables));
        assert_eq!(found().await, 80);
        // Rows that are in memory alone are flushed first.
        many(&rt, &engine, &table, 10).await;
        let report = verify(true).await;
        assert!(report.sstables > 0, "{report:?}");
        assert_eq!(report, RewriteReport { sstables: report.sstables, ..RewriteReport::default() });
        let (path, _) = index_file(&rt).await;
        let files = rt.disk().list(path.parent().expect("the folder of indexes")).await.unwrap();
        assert!(files.iter().all(|file| !file.name.contains("check")), "nothing is left: {files:?}");
        engine.stop().await.unwrap();
    });
}

/// Rows that make a file of several blocks and segments of one.
async fn many(rt: &Rt, engine: &Engine, table: &Arc<Table>, count: u64) {
    let v = table.column("v").expect("it is there").id;
    for pk in 0..count {
        let mut update = PartitionUpdate::new(table.clone(), partition(pk));
        let mut row = Row::new(clustering(table, pk % ROWS));
        row.set(v, ColumnData::Simple(Cell::live(1, varint(pk % VALUES))));
        update.add_row(row);
        engine.apply(Write::one(Origin::Client, update)).await.expect("the disk is well");
        rt.maybe_yield().await;
    }
}

async fn wait_for(rt: &Rt, engine: &Engine, table: &Table, query: &IndexQuery) -> BTreeSet<Spot> {
    for _ in 0..50 {
        match places(engine, table, query, &PartitionRange::all()).await {
            Ok(found) => return found,
            Err(ReadError::IndexUnavailable(_)) => rt.sleep(Duration::from_millis(200)).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the index is not made again");
}

#[test]
fn an_index_is_made_anew_on_request() {
    on_a_node(5, |rt| async move {
        const COUNT: u64 = 400;
        let table = table(2);
        let query = IndexQuery { index: "i0".to_owned(), predicate: Predicate::Equal(varint(1)) };
        let engine = Engine::open(rt.clone(), config(), schema(2)).await.unwrap();
        many(&rt, &engine, &table, COUNT).await;
        engine.flush(table.id).await.unwrap();
        let expected = wait_for(&rt, &engine, &table, &query).await;
        let both = || engine.built_indexes().iter().map(|(_, name)| name.clone()).collect::<Vec<_>>();
        assert_eq!(both(), ["i0", "i1"]);
        // Meanwhile it cannot be queried, and the other one can.
        let (names, began) = (["i0".to_owned()], rt.now());
        let seen = std::cell::RefCell::new(Vec::new());
        let look = async {
            rt.yield_now().await;
            seen.replace(both());
        };
        let rebuilt = engine.rebuild_indexes(table.id, &names);
        let (done, ()) = futures_util::future::join(rebuilt, look).await;
        done.unwrap();
        assert_eq!(*seen.borrow(), ["i1"]);
        assert_eq!(both(), ["i0", "i1"]);
        assert_eq!(places(&engine, &table, &query, &PartitionRange::all()).await.unwrap(), expected);
        assert!(rt.now() - began < Duration::from_secs(1), "it does not wait for the builder's next look");
        let unknown = engine.rebuild_indexes(table.id, &["i9".to_owned()]).await.unwrap_err();
        assert!(unknown.to_string().contains("no index i9"), "{unknown}");
        engine.stop().await.unwrap();
    });
}

#[test]
fn a_damaged_file_is_made_again() {
    on_a_node(3, |rt| async move {
        const COUNT: u64 = 4_000;
        let table = table(1);
        let query = |value| IndexQuery { index: "i0".to_owned(), predicate: Predicate::Equal(varint(value)) };
        let mut config = config();
        config.memtable_bytes_max = 64 << 20;
        let engine = Engine::open(rt.clone(), config.clone(), schema(1)).await.unwrap();
        many(&rt, &engine, &table, COUNT).await;
        engine.flush(table.id).await.unwrap();
        assert_eq!(wait_for(&rt, &engine, &table, &query(1)).await.len() as u64, COUNT / VALUES);
        let (path, good) = index_file(&rt).await;
        let folder = path.parent().expect("the folder of indexes");
        assert!(good.len() > 40 << 10, "several blocks: {} bytes", good.len());
        engine.stop().await.unwrap();
        let mut places_of_damage: Vec<usize> = (0..64).chain(good.len() - 64..good.len()).collect();
        places_of_damage.extend((0..60).map(|_| rt.random_below(good.len() as u64) as usize));
        for at in places_of_damage {
            let mut bad = good.clone();
            bad[at] ^= 1 << rt.random_below(8);
            overwrite(&rt, &path, &bad).await;
            let engine = Engine::open(rt.clone(), config.clone(), schema(1)).await.unwrap();
            let mut sum = 0;
            for value in 0..VALUES {
                sum += wait_for(&rt, &engine, &table, &query(value)).await.len() as u64;
            }
            assert_eq!(sum, COUNT, "a byte at {at} was flipped");
            engine.stop().await.unwrap();
        }
        // A file of another SSTable by its name, and one that was cut off.
        for bad in [&good[..good.len() / 2], &b""[..], &[good.as_slice(), b"x"].concat()] {
            overwrite(&rt, &path, bad).await;
            let engine = Engine::open(rt.clone(), config.clone(), schema(1)).await.unwrap();
            assert_eq!(wait_for(&rt, &engine, &table, &query(2)).await.len() as u64, COUNT / VALUES);
            engine.stop().await.unwrap();
        }
        // An index that is dropped leaves nothing, nor does a table.
        let engine = Engine::open(rt.clone(), config.clone(), schema(0)).await.unwrap();
        rt.sleep(Duration::from_secs(2)).await;
        assert!(rt.disk().list(folder).await.unwrap().is_empty());
        engine.set_schema(schema(1)).await;
        wait_for(&rt, &engine, &table, &query(1)).await;
        assert!(!rt.disk().list(folder).await.unwrap().is_empty());
        engine.stop().await.unwrap();
    });
}

#[test]
fn a_query_of_something_else_is_refused() {
    on_a_node(4, |rt| async move {
        let table = table(8);
        let engine = Engine::open(rt.clone(), config(), schema(8)).await.unwrap();
        let ask = async |index: &str, predicate: Predicate| {
            let query = IndexQuery { index: index.to_owned(), predicate };
            places(&engine, &table, &query, &PartitionRange::all()).await
        };
        assert!(matches!(ask("i9", Predicate::Equal(int(1))).await, Err(ReadError::IndexUnavailable(_))));
        assert!(matches!(
            ask("i2", Predicate::Equal(Bytes::from_static(b"xx"))).await,
            Err(ReadError::Source(_))
        ));
        let entry = Predicate::Entry { key: int(1), value: text(1) };
        assert!(matches!(ask("i4", entry.clone()).await, Err(ReadError::Source(_))));
        assert!(matches!(ask("i6", Predicate::Equal(int(1))).await, Err(ReadError::Source(_))));
        assert!(ask("i6", entry).await.unwrap().is_empty());
        let empty = Predicate::Range { from: Some((int(3), false)), to: Some((int(3), true)) };
        assert!(ask("i2", empty).await.unwrap().is_empty());
    });
}

/// An engine whose compactions may read so many bytes a second, and `count` partitions of about 2,000 bytes each that do not compress, in as
/// many SSTables as `files`.
async fn limited(rt: &Rt, rate: u64, files: u64, count: u64) -> (Engine, Arc<Table>) {
    let mut config = config();
    config.auto_compaction = false;
    config.memtable_bytes_max = 64 << 20;
    config.settings.compaction_bytes_per_second = rate;
    let (engine, table) = (Engine::open(rt.clone(), config, schema(2)).await.unwrap(), table(2));
    for file in 0..files {
        for pk in 0..count {
            write_long(rt, &engine, &table, file * count + pk).await;
        }
        let began = rt.now();
        engine.flush(table.id).await.unwrap();
        assert!(rt.now() - began < Duration::from_secs(1), "a flush waits for nobody");
    }
    (engine, table)
}

async fn write_long(rt: &Rt, engine: &Engine, table: &Arc<Table>, pk: u64) {
    let mut value = vec![0; 2_000];
    rt.fill_random(&mut value);
    let mut row = Row::new(Clustering::empty());
    row.set(
        table.column("s").expect("it is there").id,
        ColumnData::Simple(Cell::live(1, Bytes::from(value))),
    );
    let mut update = PartitionUpdate::new(table.clone(), partition(pk));
    update.add_static(row);
    engine.apply(Write::one(Origin::Client, update)).await.expect("the disk is well");
}

#[test]
fn the_builder_is_limited_and_flushes_are_not() {
    on_a_node(7, |rt| async move {
        let (engine, table) = limited(&rt, 64 << 10, 1, 300).await;
        let (building, id, began) = (engine.clone(), table.id, rt.now());
        let rebuilt = rt.spawn(Group::Maintenance, async move { building.rebuild_indexes(id, &[]).await });
        let mut flushed = 0;
        while engine.built_indexes().len() < 2 {
            write_long(&rt, &engine, &table, flushed).await;
            let began = rt.now();
            engine.flush(table.id).await.unwrap();
            assert!(rt.now() - began < Duration::from_secs(1), "a flush waits for the builder");
            flushed += 1;
            rt.sleep(Duration::from_secs(1)).await;
        }
        rebuilt.await.unwrap();
        // 600 KiB twice.
        let took = rt.now() - began;
        assert!((12..30).contains(&took.as_secs()), "{took:?} for two indexes, {flushed} flushes");
        engine.stop().await.unwrap();
    });
}

/// Making an index of all takes 9 seconds: of one that is dropped the builder makes no more, and of the next all.
#[test]
fn the_builder_leaves_an_index_that_is_dropped() {
    on_a_node(11, |rt| async move {
        let (engine, table) = limited(&rt, 64 << 10, 1, 300).await;
        let (building, id) = (engine.clone(), table.id);
        let rebuilt = rt.spawn(Group::Maintenance, async move { building.rebuild_indexes(id, &[]).await });
        rt.sleep(Duration::from_secs(1)).await;
        assert!(engine.built_indexes().is_empty());
        let tasks = engine.stats().compaction_tasks;
        let [task] = &tasks[..] else { panic!("{tasks:?}") };
        assert_eq!((task.kind, &*task.table, task.sstables), (TaskKind::IndexBuild, "t", 1));
        assert!(0 < task.bytes_done && task.bytes_done < task.bytes_total, "it is under way: {task:?}");
        assert_eq!(engine.stop_operations(&StopRequest::Id(task.id)), 0, "it would begin again");
        let mut rest = Table::clone(&table);
        rest.indexes.remove("i0").expect("it was there");
        let mut keyspace = Keyspace::new("ks", Replication::Local);
        keyspace.tables.insert("t".to_owned(), Arc::new(rest));
        let dropped = rt.now();
        engine.set_schema(Arc::new(Schema::default().with_keyspace(keyspace))).await;
        rebuilt.await.unwrap();
        let took = rt.now() - dropped;
        assert_eq!(engine.built_indexes(), [(table.id, "i1".to_owned())]);
        assert!((6..13).contains(&took.as_secs()), "{took:?} for the index that stays");
        assert!(engine.stats().compaction_tasks.is_empty(), "none is shown that has ended");
        let (path, _) = index_file(&rt).await;
        let files = rt.disk().list(path.parent().expect("the folder of indexes")).await.unwrap();
        assert_eq!(files.len(), 1, "nothing is left of the one that was dropped");
        engine.stop().await.unwrap();
    });
}

#[test]
fn a_compaction_can_be_stopped_while_it_indexes() {
    on_a_node(8, |rt| async move {
        let (engine, table) = limited(&rt, 64 << 10, 2, 150).await;
        let files = async || {
            let (path, _) = index_file(&rt).await;
            rt.disk().list(path.parent().expect("the folder of indexes")).await.unwrap().len()
        };
        assert_eq!(files().await, 4);
        let (working, id) = (engine.clone(), table.id);
        let work = rt.spawn(Group::Maintenance, async move { working.compact(id).await });
        // Reading all of it takes 9 seconds: the merge is over, and the first index is being made.
        rt.sleep(Duration::from_secs(14)).await;
        let asked = rt.now();
        assert_eq!(engine.stop_operations(&StopRequest::Kind(TaskKind::Compaction, None)), 1);
        let failed = work.await.unwrap_err();
        assert!(failed.to_string().contains("an operator stopped it"), "{failed}");
        assert!(rt.now() - asked < Duration::from_secs(6), "it ends with the step");
        assert_eq!((engine.sstable_count(table.id), engine.built_indexes().len()), (2, 2));
        assert_eq!(files().await, 4, "nothing is left of the index that was begun");
        engine.compact(table.id).await.unwrap();
        assert_eq!((engine.sstable_count(table.id), engine.built_indexes().len()), (1, 2));
        engine.stop().await.unwrap();
    });
}
