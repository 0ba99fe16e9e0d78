//! A table that is made with the id of one that was dropped (`WITH ID`) is empty, whenever the node ends in between.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{Canaries, Engine, EngineConfig, EngineSettings, Origin, SyncMode, Write};
use mutation::PartitionRange;
use rt::{Rt, shard_mains};
use rt_sim::{Config, NodeConfig, Simulation};
use schema::{Keyspace, Replication, Schema, Table};

use crate::model::{Change, Op, read, table, updates};
use crate::world::{Plan, config};

/// One thing that happens to table `t1`, whose id is always the same.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write(i32),
    /// The schema is without it.
    Leave,
    /// Its files are removed.
    Drop,
    Create,
    Expect(&'static [i32]),
}

use Step::{Create, Drop, Expect, Leave, Write as Put};

/// Lives of a node, which end by a kill: whether the schema has the table at the start, and the steps.
type Lives = &'static [(bool, &'static [Step])];

const SCENARIOS: &[Lives] = &[
    &[
        (true, &[Put(1), Leave, Drop, Create, Expect(&[]), Put(2), Expect(&[2])]),
        (true, &[Expect(&[2]), Put(3)]),
        (true, &[Expect(&[2, 3])]),
    ],
    &[(true, &[Put(1), Leave, Drop, Create]), (true, &[Expect(&[])])],
    &[(true, &[Put(1), Leave, Drop]), (false, &[Create, Put(2)]), (true, &[Expect(&[2])])],
    &[(true, &[Put(1), Leave]), (false, &[Create, Put(2)]), (true, &[Expect(&[2])])],
    &[(true, &[Put(1), Leave]), (false, &[]), (true, &[Expect(&[])])],
    &[
        (true, &[Put(1), Leave, Drop]),
        (false, &[]),
        (false, &[]),
        (true, &[Expect(&[]), Put(2), Expect(&[2])]),
    ],
];

fn schema_of(has_table: bool) -> Arc<Schema> {
    let empty = Schema::default().with_keyspace(Keyspace::new("ks", Replication::Local));
    let other = empty.with_table(table(2, 864_000));
    Arc::new(if has_table { other.with_table(table(1, 864_000)) } else { other })
}

fn one_row(table: &Arc<Table>, pk: i32) -> Write {
    let op = Op { number: 0, changes: vec![Change::Cell { pk, ck: 1, b: false, ts: 1 }], large: false };
    Write::all(Origin::Client, updates(table, &op, 1_700_000_000))
}

async fn life(rt: Rt, (has_table, steps): (bool, &'static [Step]), name: String) {
    let plan = Plan {
        sync: SyncMode::Batch,
        canaries: Canaries::default(),
        gc_grace: 864_000,
        sstables: true,
        ops_max: 0,
    };
    let settings = EngineSettings { auto_snapshot: false, ..EngineSettings::default() };
    let config = EngineConfig { settings, ..config(&plan) };
    let engine = Engine::open(rt.clone(), config, schema_of(has_table)).await.unwrap();
    let own = schema_of(true).table("ks", "t1").unwrap().clone();
    for step in steps {
        match step {
            Put(pk) => engine.apply(one_row(&own, *pk)).await.unwrap(),
            Leave => engine.set_schema(schema_of(false)).await,
            Drop => {
                engine.drop_table(own.id, rt.wall_micros()).await.unwrap();
                assert!(engine.remove_dropped_dir("ks", "t1", own.id).await.unwrap(), "{name}");
            }
            Create => engine.set_schema(schema_of(true)).await,
            Expect(rows) => {
                let found = read(&engine, &own, &PartitionRange::all(), false).await.unwrap();
                let found: Vec<i32> = found.into_keys().map(|(pk, _, _)| pk).collect();
                assert_eq!(found, *rows, "{name}");
            }
        }
    }
}

#[test]
fn it_has_nothing_of_the_dropped_one() {
    for (number, lives) in SCENARIOS.iter().enumerate() {
        let sim = Simulation::new(number as u64, Config::default());
        let (place, done) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
        let (of_node, ended) = (place.clone(), done.clone());
        let node = sim.add_node(NodeConfig::default(), move |_| {
            let (place, done) = (of_node.clone(), ended.clone());
            shard_mains(1, move |rt| {
                let (place, done) = (*place.lock().unwrap(), done.clone());
                async move {
                    life(rt.clone(), lives[place], format!("scenario {number}, life {place}")).await;
                    *done.lock().unwrap() += 1;
                    rt.sleep(Duration::MAX).await;
                }
            })
        });
        for life in 0..lives.len() {
            *place.lock().unwrap() = life;
            sim.start(node);
            let watched = done.clone();
            sim.run_until(|| *watched.lock().unwrap() > life).unwrap();
            sim.kill(node);
        }
    }
}
