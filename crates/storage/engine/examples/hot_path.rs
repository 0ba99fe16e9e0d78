//! Counts the cost of a cached read and a one-row write at this level, without CQL and network around them:
//! `HOT_PATH=read cargo build --release -p engine --example hot_path`, then `valgrind --tool=callgrind` of it; also `write`, `cached`, and
//! `replica` and `replica-encoded`: a write that another node sent, decoding included, whose bytes go to the log or are encoded again.
//!
//! It runs on the simulated backend, whose own work shows in the profile apart from the engine's.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::{Engine, EngineConfig, Origin, Read, SyncMode, SyncStep, Write};
use mutation::codec::{Layouts, decode_updates, encode_updates};
use mutation::{
    Cell, Clustering, ColumnData, DecoratedKey, LivenessInfo, PartitionRange, PartitionUpdate, Row, Slices,
};
use rt::{Rt, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};
use schema::{Keyspace, Replication, Schema, Table, TableBuilder, TableId};
use types::CqlType;

const KEYS: u64 = 10_000;

fn schema() -> Arc<Schema> {
    let columns = (0..5).fold(
        TableBuilder::new("ks", "cf", TableId([9; 16])).partition_key("KEY", CqlType::Blob),
        |table, n| table.regular(format!("C{n}"), CqlType::Blob),
    );
    let keyspace = Keyspace::new("ks", Replication::Local);
    Arc::new(Schema::default().with_keyspace(keyspace).with_table(columns.build().expect("a valid table")))
}

fn key(n: u64) -> DecoratedKey {
    DecoratedKey::new(Bytes::copy_from_slice(&n.to_be_bytes()))
}

fn write(table: &Arc<Table>, n: u64, frame: &Bytes, timestamp: i64) -> PartitionUpdate {
    let mut row = Row::with_capacity(Clustering::empty(), 5);
    row.liveness = LivenessInfo::forever(timestamp);
    for (place, column) in table.regular_columns().iter().enumerate() {
        let value = frame.slice(place * 34..(place + 1) * 34);
        row.set(column.id, ColumnData::Simple(Cell::live(timestamp, value)));
    }
    let mut update = PartitionUpdate::new(table.clone(), key(n));
    update.add_row(row);
    update
}

async fn run(rt: Rt, what: String, count: u64) {
    let mut config = EngineConfig::new(PathBuf::from("/data"), PathBuf::from("/log"));
    config.commitlog.sync = SyncMode::Periodic { period: Duration::from_secs(10) };
    let schema = schema();
    let table = schema.table("ks", "cf").expect("it was just made").clone();
    let engine = Engine::open(rt.clone(), config, schema).await.expect("an empty disk");
    let frame = Bytes::from(vec![5u8; 4096]);
    for n in 0..KEYS {
        engine.apply(Write::one(Origin::Client, write(&table, n, &frame, 1))).await.expect("the disk works");
    }
    if what == "cached" {
        engine.flush(table.id).await.expect("the disk works");
    }
    if what.starts_with("replica") {
        for n in 0..count {
            receive(&engine, &table, (n % KEYS, 2 + n as i64), &frame, what == "replica").await;
        }
        return;
    }
    if what == "write" {
        for n in 0..count {
            engine
                .apply(Write::one(Origin::Client, write(&table, n % KEYS, &frame, 2 + n as i64)))
                .await
                .expect("the disk works");
        }
        return;
    }
    let slices = Slices::all();
    let mut cells = 0;
    for n in 0..count {
        cells += read(&engine, &table, &PartitionRange::single(&key(n * 7 % KEYS)), &slices).await;
    }
    assert_eq!(cells, count * 5, "every read finds its five cells");
}

/// A write as another node sends it.
#[inline(never)]
async fn receive(engine: &Engine, table: &Arc<Table>, (n, at): (u64, i64), frame: &Bytes, as_received: bool) {
    let mut run = Vec::with_capacity(512);
    encode_updates(&[write(table, n, frame, at)], &mut run);
    let received = decode_updates(&Bytes::from(run), Some(&Layouts::default()), |_| Some(table.clone()))
        .expect("it was just encoded");
    let encoded = received.encoded.filter(|_| as_received);
    let write = Write { encoded, ..Write::all(Origin::Client, received.updates) };
    engine.apply(write).await.expect("the disk works");
}

#[inline(never)]
async fn read(engine: &Engine, table: &Arc<Table>, range: &PartitionRange, slices: &Slices) -> u64 {
    let reader = engine.read(&Read::new(table.id, range, slices));
    let mut reader = reader.expect("the table is there");
    let mut cells = 0;
    loop {
        match reader.try_next_sync().expect("memory does not fail") {
            SyncStep::Fragment(mutation::Fragment::Row(row)) => cells += row.columns().len() as u64,
            SyncStep::Fragment(_) => {}
            SyncStep::End => return cells,
            SyncStep::Wait => panic!("everything is in memory"),
        }
    }
}

fn main() {
    let what = option_env!("HOT_PATH").unwrap_or("read").to_owned();
    let count = option_env!("HOT_PATH_COUNT").and_then(|count| count.parse().ok()).unwrap_or(20_000);
    let sim = Simulation::new(1, Config::default());
    let node = sim.add_node(NodeConfig::default(), move |_| {
        let what = what.clone();
        shard_mains(1, move |rt| run(rt, what.clone(), count))
    });
    sim.start(node);
    sim.run_until_exit(node).expect("it ends");
}
