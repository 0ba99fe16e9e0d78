//! Snapshots of a node of two shards: of all tables and shards or of none, and never of two moments.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use engine::{Engine, EngineConfig, list_snapshots, snapshot_dir, table_dir};
use mutation::{Cell, Clustering, ColumnData, DecoratedKey, LivenessInfo, PartitionUpdate, Row};
use replica::{
    Origin, Replica, ReplicaConfig, SnapshotContent, SnapshotError, SnapshotNotes, Snapshots, TableOperation,
    Write,
};
use rt::mesh::Mesh;
use rt::{IoBuf, OpenOptions, Rt, ShardId, ShardMain};
use rt_sim::{Config, NodeConfig, Simulation};
use schema::{Keyspace, Replication, Schema, Table, TableBuilder, TableId};
use types::CqlType;

const DATA: &str = "/data";

fn tables() -> [Arc<Table>; 2] {
    [("a", 1), ("b", 2)].map(|(name, id)| {
        let table = TableBuilder::new("ks", name, TableId([id; 16]));
        table.partition_key("k", CqlType::Int).regular("v", CqlType::Int).build_known()
    })
}

fn schema() -> Arc<Schema> {
    let schema = Schema::default().with_keyspace(Keyspace::new("ks", Replication::Simple { factor: 1 }));
    Arc::new(tables().iter().fold(schema, |schema, table| schema.with_table(Table::clone(table))))
}

/// Writes ten partitions of a table, some of each shard, and flushes them.
async fn fill(replica: &Replica, table: &Arc<Table>, from: i32) {
    let mut shards = std::collections::BTreeSet::new();
    for k in from..from + 10 {
        let key = DecoratedKey::new(Bytes::copy_from_slice(&k.to_be_bytes()));
        shards.insert(replica.shard_of(table.id, key.token));
        let mut row = Row::new(Clustering::new(table, &[]));
        row.liveness = LivenessInfo::forever(1);
        let value = Cell::live(1, Bytes::copy_from_slice(&k.to_be_bytes()));
        row.set(table.column("v").expect("it has v").id, ColumnData::Simple(value));
        let mut update = PartitionUpdate::new(table.clone(), key);
        update.add_row(row);
        replica.apply(Write::one(Origin::Client, update)).await.expect("the disk is well");
    }
    assert_eq!(shards.len(), 2, "each shard has some");
    replica.table_operation(table.id, TableOperation::Flush).await.expect("the disk is well");
}

/// Bytes of all files by snapshot and table.
async fn stored(rt: &Rt) -> BTreeMap<String, u64> {
    let records = list_snapshots(rt.disk(), Path::new(DATA)).await.expect("the disk is well");
    records
        .into_iter()
        .map(|record| (format!("{} {}", record.name, record.table), record.disk_bytes))
        .collect()
}

fn names(stored: &BTreeMap<String, u64>) -> Vec<&str> {
    stored.keys().map(String::as_str).collect()
}

const NOTES: SnapshotNotes<'static> = SnapshotNotes {
    definition: &|table| format!("CREATE TABLE {};\n", table.full_name()),
    created_at: "then",
};

async fn lead(rt: Rt, replica: Replica) {
    let [a, b] = tables();
    let (snapshots, both) = (Snapshots::new(&replica, PathBuf::from(DATA)), [a.clone(), b.clone()]);
    fill(&replica, &a, 0).await;
    assert_eq!(snapshots.take(&both, "one", SnapshotContent::Written, NOTES).await, Ok(()));
    let one = stored(&rt).await;
    assert_eq!(names(&one), ["one a"], "a table without rows has no files to link");
    let file = async |name: &str| {
        let directory = snapshot_dir(&table_dir(Path::new(DATA), &a), "one");
        let bytes = rt.disk().read_to_end(directory.join(name), 10_000).await.expect("it is there");
        String::from_utf8(bytes).expect("it is text")
    };
    assert_eq!(file("schema.cql").await, "CREATE TABLE ks.a;\n");
    let manifest = file("manifest.json").await;
    assert!(manifest.contains("-Data.db\"") && manifest.contains("\"created_at\" : \"then\""), "{manifest}");
    // All files have other names now: no link would clash.
    fill(&replica, &a, 10).await;
    replica.table_operation(a.id, TableOperation::Compact).await.expect("the disk is well");
    fill(&replica, &b, 0).await;
    let exists = |name: &str| SnapshotError::Exists { table: "ks.a".to_owned(), name: name.to_owned() };
    for tables in [&both[..], &[b.clone(), a.clone()], &both[..1]] {
        assert_eq!(snapshots.take(tables, "one", SnapshotContent::Written, NOTES).await, Err(exists("one")));
        assert_eq!(stored(&rt).await, one, "it is as it was, and no table has a part of another one");
    }
    // Of two at once one is made.
    let (first, second) = futures_util::future::join(
        snapshots.take(&both, "two", SnapshotContent::Written, NOTES),
        snapshots.take(&both, "two", SnapshotContent::Written, NOTES),
    )
    .await;
    assert_eq!((first, second), (Ok(()), Err(exists("two"))));
    assert_eq!(names(&stored(&rt).await), ["one a", "two a", "two b"]);
    // Where one table fails, nothing is left of the others.
    let file = snapshot_dir(&table_dir(Path::new(DATA), &b), "x").parent().expect("a directory").to_owned();
    let two = rt.disk().list(&file).await.expect("it is there");
    assert_eq!(two.len(), 1);
    rt.disk().remove_dir_all(&file).await.expect("the disk is well");
    let blocking = rt.disk().open(&file, OpenOptions::CREATE_NEW).await.expect("the disk is well");
    blocking.write_at(0, IoBuf::copy_of(b"no directory")).await.expect("the disk is well");
    let failed = snapshots.take(&both, "three", SnapshotContent::Written, NOTES).await;
    assert!(matches!(&failed, Err(SnapshotError::Failed { table, .. }) if table == "ks.b"), "{failed:?}");
    rt.disk().remove(&file).await.expect("the disk is well");
    assert_eq!(names(&stored(&rt).await), ["one a", "two a"]);
    assert_eq!(snapshots.take(&both, "three", SnapshotContent::Written, NOTES).await, Ok(()));
    assert_eq!(names(&stored(&rt).await), ["one a", "three a", "three b", "two a"]);
    clear(&rt, &replica, &snapshots).await;
}

/// Snapshots are removed by their names, also those of a table that is dropped.
async fn clear(rt: &Rt, replica: &Replica, snapshots: &Snapshots) {
    let [a, _] = tables();
    let drop = TableOperation::Drop { at_micros: 77 };
    replica.table_operation(a.id, drop).await.expect("the disk is well");
    replica.remove_dropped_dir("ks", "a", a.id).await.expect("the disk is well");
    let all = list_snapshots(rt.disk(), Path::new(DATA)).await.expect("the disk is well");
    assert_eq!(names(&stored(rt).await), ["dropped-77-a a", "one a", "three a", "three b", "two a"]);
    let three: Vec<_> = all.iter().filter(|record| record.name == "three").cloned().collect();
    assert_eq!(snapshots.remove(&three).await, Ok(2));
    assert_eq!(names(&stored(rt).await), ["dropped-77-a a", "one a", "two a"]);
    assert_eq!(snapshots.remove(&three).await, Ok(0));
    assert_eq!(snapshots.remove(&all).await, Ok(3));
    assert!(stored(rt).await.is_empty());
}

#[test]
fn a_snapshot_is_of_one_moment_or_not_made() {
    let sim = Simulation::new(1, Config::default());
    let node = sim.add_node(NodeConfig { shards: 2, ..NodeConfig::default() }, |_| {
        let main = |endpoint: rt::mesh::Endpoint<_, _>| -> ShardMain<()> {
            Box::new(move |rt: Rt| {
                Box::pin(async move {
                    let config = EngineConfig::new(PathBuf::from(DATA), PathBuf::from("/log"));
                    let engine = Engine::open(rt.clone(), config, schema()).await.expect("it opens");
                    let port = endpoint.attach(&rt);
                    let config = ReplicaConfig { tombstone_failure_threshold: 1_000 };
                    let replica = Replica::new(&rt, engine, port, config);
                    if rt.shard() == ShardId(0) {
                        lead(rt, replica).await;
                    } else {
                        rt.sleep(std::time::Duration::from_secs(600)).await;
                    }
                })
            })
        };
        Mesh::new(2, 256).into_iter().map(main).collect()
    });
    sim.start(node);
    sim.run_until_exit(node).expect("it ends");
    assert_eq!(sim.exits(node), ["()", "()"]);
}
