//! When memtables are flushed: often enough that writes find room, and never in crumbs.

use std::time::Duration;

use engine::{Canaries, Engine, EngineStats, Origin, SyncMode, Write};
use mutation::PartitionRange;
use rt::{Group, Rt};

use crate::model::{Change, Op, read, schema, updates};
use crate::world::{Plan, config, on_a_node};

const BUDGET: usize = 1 << 20;
const WRITES: i32 = 2_000;
const WRITERS: i32 = 16;

/// Writes far more than the budget holds, many writes at once.
async fn work(rt: Rt) -> EngineStats {
    let sync = SyncMode::Periodic { period: Duration::from_millis(50) };
    let plan = Plan { sync, canaries: Canaries::default(), gc_grace: 864_000, sstables: true, ops_max: 0 };
    let schema = schema(plan.gc_grace);
    let table = schema.table("ks", "t1").expect("it is in the schema").clone();
    let mut config = config(&plan);
    config.memtable_bytes_max = BUDGET;
    config.commitlog.total_bytes_max = 1 << 30;
    let engine = Engine::open(rt.clone(), config, schema).await.expect("an empty disk");
    let mut tasks = Vec::new();
    for writer in 0..WRITERS {
        let (rt2, engine, table) = (rt.clone(), engine.clone(), table.clone());
        tasks.push(rt.spawn(Group::Statement, async move {
            for pk in (writer..WRITES).step_by(WRITERS as usize) {
                let change = Change::Cell { pk, ck: 0, b: false, ts: i64::from(pk) + 1 };
                let op = Op { number: pk as u64, changes: vec![change], large: true };
                for update in updates(&table, &op, 1_700_000_000) {
                    // The first of them gives up slow writes: a dropped future does not wait any more.
                    let patience = Duration::from_millis(if writer == 0 { 2 } else { 60_000 });
                    let _ = rt2.timeout(patience, engine.apply(Write::one(Origin::Client, update))).await;
                }
            }
        }));
    }
    for task in tasks {
        task.await;
    }
    let found = read(&engine, &table, &PartitionRange::all(), false).await.expect("the disk works");
    assert!(found.len() >= (WRITES - WRITES / WRITERS) as usize, "{} rows", found.len());
    engine.stats()
}

#[test]
fn a_slow_flush_is_not_followed_by_many_small_ones() {
    let stats = on_a_node(3, work);
    // About four kilobytes a write, and half of the budget a flush.
    let most = WRITES as u64 * 5_500 / (BUDGET as u64 / 2);
    assert!((4..=most).contains(&stats.flushes), "{} flushes, at most {most}", stats.flushes);
    assert!(stats.flushes_pending <= 2, "{} flushes are pending", stats.flushes_pending);
    assert_eq!(stats.writes_throttled, 0, "nobody waits any more");
}
