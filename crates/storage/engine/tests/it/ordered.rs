//! Ordered indexes: through any writes, flushes, compactions and power failures, a scan finds every row that has all attributes of the key, at
//! its place in the order or among the unordered ones, in both directions and over any pages.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use engine::{
    ENTRY_OPTION, Engine, EngineConfig, IndexQuery, ORDER_OPTION, Order, OrderedScan, Origin, Place,
    Predicate, Read, ReadError, SyncMode, WantedOrphans, Write,
};
use mutation::{
    Cell, Clustering, ColumnData, Complex, ComplexCell, DecoratedKey, DeletionTime, Fragment, LivenessInfo,
    PartitionRange, PartitionUpdate, Row, Seconds, Slices,
};
use rt::{Rt, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};
use schema::{Index, IndexTarget, IndexedPart, Keyspace, Replication, Schema, Table, TableBuilder, TableId};
use types::CqlType;

const PARTITIONS: u64 = 6;
const ROWS: u64 = 4;
const VALUES: u64 = 3;
const NOW: Seconds = 1_700_000_000;

/// The attributes of each index, with their types: `p` and `c` are columns of the key.
const INDEXES: [&[(&str, &str)]; 4] = [
    &[("a", "S"), ("b", "N")],
    &[("p", "S"), ("b", "N")],
    &[("a", "S"), ("c", "S")],
    &[("a", "S"), ("b", "N"), ("d", "B")],
];

fn table() -> Arc<Table> {
    let mut table = TableBuilder::new("ks", "t", TableId([1; 16]))
        .partition_key("p", CqlType::Text)
        .clustering("c", CqlType::Text, false)
        .regular("attrs", CqlType::map(CqlType::Text, CqlType::Blob, false))
        .build()
        .expect("a good table");
    let mut attach = |name: String, option: &str, value: String| {
        let index = Index {
            name: name.clone(),
            targets: vec![IndexTarget { column: "attrs".to_owned(), part: IndexedPart::Entries }],
            class: Some("dynamodb".to_owned()),
            options: BTreeMap::from([(option.to_owned(), value)]),
            local: false,
        };
        table.indexes.insert(name, index);
    };
    attach("of_a".to_owned(), ENTRY_OPTION, "a".to_owned());
    for (at, attributes) in INDEXES.iter().enumerate() {
        attach(format!("i{at}"), ORDER_OPTION, Order::option(attributes.iter().copied()));
    }
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
    config.commitlog.segment_bytes = 96 << 10;
    config.memtable_bytes_max = 64 << 10;
    config
}

/// A value of a type, serialised: numbers of different lengths, texts of which one is the beginning of another.
fn value(kind: &str, at: u64) -> Vec<u8> {
    match kind {
        "S" => [&b"x"[..], &b"\0yz"[..at as usize]].concat(),
        "N" => [&[0; 4][..], &[&[0x85_u8][..], &[9], &[1, 0]][at as usize]].concat(),
        _ => vec![at as u8 ^ 0xff; 1 + at as usize],
    }
}

fn stored(kind: &str, bytes: &[u8]) -> Bytes {
    let first = match kind {
        "S" => 0,
        "B" => 1,
        _ => 3,
    };
    Bytes::from([&[first], bytes].concat())
}

fn partition(at: u64) -> DecoratedKey {
    DecoratedKey::new(Bytes::from(format!("p{at}")))
}

/// A random write: of the whole item, of some attributes, or a deletion.
fn update(rt: &Rt, table: &Arc<Table>, timestamp: i64) -> PartitionUpdate {
    let pick = |below| rt.random_below(below);
    let id = table.column("attrs").expect("it is there").id;
    let mut update = PartitionUpdate::new(table.clone(), partition(pick(PARTITIONS)));
    let mut row = Row::new(Clustering::new(table, &[Some(format!("c{}", pick(ROWS)).as_bytes())]));
    let kind = pick(16);
    if kind == 0 {
        update.add_deletion(DeletionTime::new(timestamp, NOW - 100));
        return update;
    }
    if kind == 1 {
        row.deletion = DeletionTime::new(timestamp, NOW - 100);
    } else {
        let mut attributes = Complex::empty();
        if kind < 6 {
            attributes.deletion = DeletionTime::new(timestamp - 1, NOW - 100);
        }
        for (name, ty) in [("a", "S"), ("b", "N"), ("d", "B"), ("x", "S")] {
            if pick(3) == 0 {
                continue;
            }
            let cell = match pick(8) {
                0 => Cell::tombstone(timestamp, NOW - 100),
                1 => Cell::live(timestamp, stored("S", b"of another type, or an unusual value")),
                _ => Cell::live(timestamp, stored(ty, &value(ty, pick(VALUES)))),
            };
            attributes.cells.push(ComplexCell { path: Bytes::from(name), cell });
        }
        if pick(4) != 0 {
            row.liveness = LivenessInfo::forever(timestamp);
        }
        if !attributes.is_empty() {
            row.set(id, ColumnData::Complex(attributes));
        }
    }
    update.add_row(row);
    update
}

/// Values of a key by the attributes' order, and where they are.
type Entry = (Vec<Vec<u8>>, DecoratedKey, Vec<u8>);

/// The rows that have all attributes of an index.
async fn expected(engine: &Engine, table: &Table, attributes: &[(&str, &str)]) -> BTreeSet<Entry> {
    let (range, slices) = (PartitionRange::all(), Slices::all());
    let mut reader = engine.read(&Read::new(table.id, &range, &slices)).expect("the disk is well");
    let id = table.column("attrs").expect("it is there").id;
    let (mut all, mut open) = (BTreeSet::new(), None);
    while let Some(fragment) = reader.next().await.expect("the disk is well") {
        let row = match fragment {
            Fragment::PartitionStart { key, .. } => {
                open = Some(key);
                continue;
            }
            Fragment::Row(row) if row.is_live(NOW) => row,
            _ => continue,
        };
        let key = open.clone().expect("in a partition");
        let of = |(name, kind): &(&str, &str)| match *name {
            "p" => Some(key.key.to_vec()),
            "c" => row.clustering.components().next()?.map(<[u8]>::to_vec),
            name => {
                let cells = &row.complex(id)?.cells;
                let element = cells.iter().find(|element| element.path == name.as_bytes())?;
                let value = &element.cell.value;
                let is_kind = stored(kind, &[])[0] == *value.first()?;
                (element.cell.is_live(NOW) && is_kind).then(|| value[1..].to_vec())
            }
        };
        if let Some(values) = attributes.iter().map(of).collect::<Option<Vec<_>>>() {
            all.insert((values, key.clone(), row.clustering.position().to_vec()));
        }
    }
    all
}

/// The places of a scan by pages, and those that are unordered.
async fn scanned(
    engine: &Engine,
    table: &Table,
    mut scan: OrderedScan,
) -> Result<(Vec<(Bytes, Place)>, Vec<Place>), ReadError> {
    let (mut all, mut unordered): (Vec<(Bytes, Place)>, _) = (Vec::new(), Vec::new());
    loop {
        let found = engine.scan_index(table.id, &scan).await?;
        assert!(found.places.len() <= scan.count && !found.has_more_unordered);
        for (term, place) in &found.places {
            let of = |place: &Place| {
                let row = place.clustering.as_ref().expect("terms are of rows");
                (place.key.clone(), row.position().to_vec())
            };
            if let Some((last, at)) = all.last() {
                let (a, b) = ((last.clone(), of(at)), (term.clone(), of(place)));
                assert!(if scan.is_reversed { a > b } else { a < b }, "{a:?} before {b:?} of {scan:?}");
            }
            assert!((&*scan.start..&*scan.end).contains(&&**term));
            all.push((term.clone(), place.clone()));
        }
        unordered.extend(found.unordered);
        if found.places.len() < scan.count {
            return Ok((all, unordered));
        }
        scan.after = all.last().cloned();
        scan.unordered = None;
    }
}

/// Compares all indexes with a reading of the table; whether all were there, and how many rows were unordered.
async fn verify(rt: &Rt, engine: &Engine, table: &Arc<Table>) -> Option<(u64, u64)> {
    let (mut in_order, mut out_of_order) = (0, 0);
    for (at, attributes) in INDEXES.iter().enumerate() {
        let expected = expected(engine, table, attributes).await;
        let index = &table.indexes[&format!("i{at}")];
        let order = Order::new(table, index).expect("it is ordered");
        let hashes: BTreeSet<&Vec<u8>> = expected.iter().map(|(values, ..)| &values[0]).collect();
        for hash in hashes {
            let start = order.prefix([hash.as_slice()].into_iter());
            let value = stored("S", hash);
            let predicate = Predicate::Entry { key: Bytes::from("a"), value };
            let scan = OrderedScan {
                index: index.name.clone(),
                end: Order::behind(start.clone()).into(),
                start: start.into(),
                after: None,
                is_reversed: rt.random_below(2) == 0,
                count: 1 + rt.random_below(5) as usize,
                partition: (attributes[0].0 == "p").then(|| DecoratedKey::new(Bytes::from(hash.clone()))),
                unordered: order.has_orphans().then(|| WantedOrphans {
                    term: order.orphans(hash).into(),
                    query: IndexQuery { index: "of_a".to_owned(), predicate: predicate.clone() },
                }),
            };
            let (places, unordered) = match scanned(engine, table, scan).await {
                Ok(found) => found,
                Err(ReadError::IndexUnavailable(_)) => return None,
                Err(error) => panic!("{error}"),
            };
            // A scan has the terms of its hash key alone.
            let is_of_hash = |term: &Bytes| order.values(term).is_some_and(|values| values[0] == *hash);
            assert!(places.iter().all(|(term, _)| is_of_hash(term)), "index {at}, {hash:?}: {places:?}");
            for (values, key, row) in expected.iter().filter(|(values, ..)| values[0] == *hash) {
                let is_place = |place: &Place| {
                    place.key == *key
                        && place.clustering.as_ref().is_some_and(|one| one.position() == row.as_slice())
                };
                let is_value = |term: &Bytes| order.values(term).as_ref() == Some(values);
                if places.iter().any(|(term, place)| is_value(term) && is_place(place)) {
                    in_order += 1;
                } else {
                    let is_there = unordered.iter().any(is_place);
                    assert!(is_there, "index {at} misses {values:?} at {key:?}: {places:?}, {unordered:?}");
                    out_of_order += 1;
                }
            }
        }
    }
    Some((in_order, out_of_order))
}

#[derive(Default)]
struct World {
    timestamp: i64,
    in_order: u64,
    out_of_order: u64,
}

async fn lifetime(rt: Rt, world: Arc<Mutex<World>>) {
    let engine = Engine::open(rt.clone(), config(), schema()).await.expect("it opens");
    let table = table();
    loop {
        for _ in 0..rt.random_below(30) {
            let timestamp = {
                let mut world = world.lock().unwrap();
                world.timestamp += 8;
                world.timestamp
            };
            // Some come late. No two writes have one timestamp, nor one just below, which is of the deletion of the item that a write replaces.
            let late = rt.random_below(4) as i64;
            let timestamp = timestamp - 80 * late + 2 * late;
            let write = Write::one(Origin::Client, update(&rt, &table, timestamp));
            engine.apply(write).await.expect("the disk is well");
        }
        match rt.random_below(6) {
            0 | 1 => engine.flush(table.id).await.expect("the disk is well"),
            2 => engine.compact(table.id).await.expect("the disk is well"),
            3 => rt.sleep(Duration::from_secs(2)).await,
            _ => {}
        }
        if let Some((in_order, out_of_order)) = verify(&rt, &engine, &table).await {
            let mut world = world.lock().unwrap();
            world.in_order += in_order;
            world.out_of_order += out_of_order;
        }
    }
}

#[test]
fn a_scan_finds_the_rows_with_all_attributes_in_order_or_among_the_unordered() {
    let (mut in_order, mut out_of_order) = (0, 0);
    for seed in 0..20 {
        let sim = Simulation::new(seed, Config::default());
        let world = Arc::new(Mutex::new(World::default()));
        let shared = world.clone();
        let node = sim.add_node(NodeConfig::default(), move |_| {
            let shared = shared.clone();
            shard_mains(1, move |rt| lifetime(rt, shared.clone()))
        });
        let mut rng = sim.rng(0);
        sim.start(node);
        for life in 0..3 {
            sim.run_for(Duration::from_millis(500 + rng.below(3_000)));
            if life % 2 == 0 {
                sim.crash(node)
            } else {
                sim.kill(node)
            }
            sim.start(node);
        }
        sim.run_for(Duration::from_secs(2));
        let world = world.lock().unwrap();
        in_order += world.in_order;
        out_of_order += world.out_of_order;
    }
    println!("{in_order} rows in order, {out_of_order} unordered");
    assert!(in_order > 5_000 && out_of_order > 500, "{in_order} {out_of_order}");
}
