//! Incremental backups: the switches of node and table, and that no SSTable is missing in them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use engine::{Canaries, Engine, EngineConfig, EngineSettings, Origin, SyncMode, Write};
use rt::{Instant, OpenOptions, Rt};
use schema::{Schema, Table};
use sstable::Component;

use crate::model::{Change, Op, schema, updates};
use crate::world::{Plan, config, on_a_node};

fn settings(incremental_backups: bool) -> EngineConfig {
    let plan = Plan {
        sync: SyncMode::Batch,
        canaries: Canaries::default(),
        gc_grace: 1000,
        sstables: true,
        ops_max: 0,
    };
    let settings = EngineSettings { incremental_backups, auto_snapshot: false, ..EngineSettings::default() };
    EngineConfig { settings, auto_compaction: false, ..config(&plan) }
}

/// The schema, and its table with this option.
fn with_option(of_table: Option<bool>) -> (Arc<Schema>, Arc<Table>) {
    let schema = schema(1000);
    let mut table = (**schema.table("ks", "t1").unwrap()).clone();
    table.options.incremental_backups = of_table;
    let keyspace = schema::Keyspace::new("ks", schema::Replication::Local);
    let schema = Arc::new(Schema::default().with_keyspace(keyspace).with_table(table));
    let table = schema.table("ks", "t1").unwrap().clone();
    (schema, table)
}

async fn flush_one(engine: &Engine, table: &Arc<Table>, pk: i32) {
    let op = Op { number: 1, changes: vec![Change::Cell { pk, ck: 0, b: false, ts: 1 }], large: false };
    for update in updates(table, &op, 1) {
        engine.apply(Write::one(Origin::Client, update)).await.unwrap();
    }
    engine.flush(table.id).await.unwrap();
}

fn dir(table: &Table) -> PathBuf {
    sstable::table_dir(&settings(false).data_directory, table)
}

/// The names of the data files in a directory of the table.
async fn data_files(rt: &Rt, table: &Table, below: &str) -> BTreeSet<String> {
    let dir = dir(table).join(below);
    if !rt.disk().exists(&dir).await.unwrap() {
        return BTreeSet::new();
    }
    let entries = rt.disk().list(&dir).await.unwrap();
    entries.into_iter().map(|entry| entry.name).filter(|name| name.ends_with("-Data.db")).collect()
}

#[test]
fn a_table_only_switches_backups_off() {
    let expected = [(false, Some(true), 0), (false, None, 0), (true, Some(false), 0), (true, None, 1)];
    for (seed, (of_node, of_table, count)) in expected.into_iter().enumerate() {
        on_a_node(seed as u64, move |rt| async move {
            let (schema, table) = with_option(of_table);
            let engine = Engine::open(rt.clone(), settings(of_node), schema).await.unwrap();
            flush_one(&engine, &table, 1).await;
            assert_eq!(data_files(&rt, &table, "backups").await.len(), count, "{of_node} {of_table:?}");
        });
    }
}

#[test]
fn no_sstable_has_the_name_of_one_in_the_backups_or_a_snapshot() {
    on_a_node(5, |rt| async move {
        let (schema, table) = with_option(None);
        for start in 0..3 {
            let engine = Engine::open(rt.clone(), settings(start != 2), schema.clone()).await.unwrap();
            for pk in 0..2 {
                flush_one(&engine, &table, pk).await;
            }
            if start == 2 {
                engine.snapshot(table.id, "s").await.unwrap();
            }
            // Nothing is left in the directory by which the next start could see which numbers were taken.
            engine.truncate(table.id, rt.wall_micros(), Instant::MAX).await.unwrap();
            engine.stop().await.unwrap();
        }
        assert_eq!(data_files(&rt, &table, "backups").await.len(), 4);
        let of_snapshot = data_files(&rt, &table, "snapshots/s").await;
        let engine = Engine::open(rt.clone(), settings(false), schema).await.unwrap();
        flush_one(&engine, &table, 7).await;
        let now = data_files(&rt, &table, "").await;
        assert_eq!((of_snapshot.len(), now.len()), (2, 1));
        assert!(now.is_disjoint(&of_snapshot), "{now:?} {of_snapshot:?}");
    });
}

#[test]
fn a_file_of_another_sstable_in_the_backups_holds_no_flush_up() {
    on_a_node(6, |rt| async move {
        let (schema, table) = with_option(None);
        let engine = Engine::open(rt.clone(), settings(true), schema).await.unwrap();
        flush_one(&engine, &table, 1).await;
        let first = data_files(&rt, &table, "backups").await.pop_first().unwrap();
        let next = first.replace("-1-", "-2-");
        assert_ne!(next, first);
        // Copied there by hand, with the number that comes next.
        rt.disk().write_atomically(dir(&table).join("backups").join(&next), b"other").await.unwrap();
        flush_one(&engine, &table, 2).await;
        assert_eq!(data_files(&rt, &table, "").await, BTreeSet::from([first, next.clone()]));
        let path = dir(&table).join("backups").join(next);
        assert_eq!(rt.disk().read_to_end(path, 100).await.unwrap(), b"other");
    });
}

#[test]
fn a_snapshot_has_the_sstables_that_are_out_of_service() {
    on_a_node(7, |rt| async move {
        let (schema, table) = with_option(None);
        let engine = Engine::open(rt.clone(), settings(false), schema.clone()).await.unwrap();
        flush_one(&engine, &table, 1).await;
        flush_one(&engine, &table, 2).await;
        engine.stop().await.unwrap();
        let damaged = sstable::list_complete(rt.disk(), &dir(&table)).await.unwrap().remove(0);
        let path = damaged.path(Component::Statistics);
        rt.disk().remove(&path).await.unwrap();
        let file = rt.disk().open(&path, OpenOptions::CREATE_NEW).await.unwrap();
        file.write_at(0, rt::IoBuf::copy_of(b"no statistics")).await.unwrap();
        file.sync_all().await.unwrap();

        let engine = Engine::open(rt.clone(), settings(false), schema).await.unwrap();
        assert_eq!(engine.sstable_count(table.id), 1, "one is out of service");
        engine.snapshot(table.id, "s").await.unwrap();
        assert_eq!(data_files(&rt, &table, "snapshots/s").await, data_files(&rt, &table, "").await);
        assert_eq!(data_files(&rt, &table, "snapshots/s").await.len(), 2);
    });
}
