//! Cleanup: rows that a node does not own any more are dropped from its SSTables, and its own rows stay.

use std::time::Duration;

use engine::{Canaries, Engine, Origin, OwnedRanges, SyncMode, Write};
use mutation::PartitionRange;
use rt::Rt;

use crate::model::{Change, Op, read, schema, updates};
use crate::world::{Plan, config, on_a_node};

const KEYS: i32 = 200;

/// The result of a cleanup: SSTables written anew by the first and by the second, and the keys with the token's sign before and after.
#[derive(Debug, Default)]
struct Seen {
    rewritten: [u64; 2],
    before: usize,
    after: usize,
    negative: usize,
}

async fn work(rt: Rt) -> Seen {
    let sync = SyncMode::Periodic { period: Duration::from_millis(50) };
    let plan = Plan { sync, canaries: Canaries::default(), gc_grace: 864_000, sstables: true, ops_max: 0 };
    let schema = schema(plan.gc_grace);
    let table = schema.table("ks", "t1").expect("it is in the schema").clone();
    let engine = Engine::open(rt.clone(), config(&plan), schema).await.expect("an empty disk");
    let mut seen = Seen::default();
    for pk in 0..KEYS {
        let change = Change::Cell { pk, ck: 0, b: false, ts: i64::from(pk) + 1 };
        let op = Op { number: pk as u64, changes: vec![change], large: false };
        for update in updates(&table, &op, 1_700_000_000) {
            seen.negative += usize::from(update.key.token < 0);
            engine.apply(Write::one(Origin::Client, update)).await.expect("the disk works");
        }
        if pk == KEYS / 2 {
            engine.flush(table.id).await.expect("the disk works");
        }
    }
    let all = PartitionRange::all();
    seen.before = read(&engine, &table, &all, false).await.expect("the disk works").len();
    let negative = || OwnedRanges::new([(i64::MIN, -1), (i64::MAX, i64::MIN)]);
    for rewritten in &mut seen.rewritten {
        *rewritten = engine.cleanup(table.id, negative).await.expect("the disk works");
    }
    seen.after = read(&engine, &table, &all, false).await.expect("the disk works").len();
    seen
}

#[test]
fn a_cleanup_drops_only_tokens_that_are_not_owned() {
    let seen = on_a_node(3, work);
    assert_eq!(seen.before, KEYS as usize);
    assert!(seen.negative > 50 && seen.negative < 150, "{seen:?}");
    assert_eq!(seen.after, seen.negative, "{seen:?}");
    // Memtables may have been flushed for want of room, too.
    assert!(seen.rewritten[0] >= 2, "{seen:?}");
    assert_eq!(seen.rewritten[1], 0, "a second one finds nothing");
}

/// The content of a partition that was read before it was dropped, and of which something else is written when its tokens are back.
async fn come_back(rt: Rt) -> [usize; 2] {
    let sync = SyncMode::Periodic { period: Duration::from_millis(50) };
    let plan = Plan { sync, canaries: Canaries::default(), gc_grace: 864_000, sstables: true, ops_max: 0 };
    let schema = schema(plan.gc_grace);
    let table = schema.table("ks", "t1").expect("it is in the schema").clone();
    let engine = Engine::open(rt.clone(), config(&plan), schema).await.expect("an empty disk");
    let mut seen = [0; 2];
    for (ck, seen) in (0..).zip(&mut seen) {
        let change = Change::Cell { pk: 1, ck, b: false, ts: i64::from(ck) + 1 };
        let op = Op { number: ck as u64, changes: vec![change], large: false };
        let mut partition = PartitionRange::all();
        for update in updates(&table, &op, 1_700_000_000) {
            partition = PartitionRange::single(&update.key);
            engine.apply(Write::one(Origin::Client, update)).await.expect("the disk works");
        }
        engine.flush(table.id).await.expect("the disk works");
        for _ in 0..2 {
            *seen = read(&engine, &table, &partition, false).await.expect("the disk works").len();
        }
        engine.cleanup(table.id, || OwnedRanges::new([])).await.expect("the disk works");
    }
    seen
}

#[test]
fn dropped_rows_do_not_come_back_with_their_tokens() {
    assert_eq!(on_a_node(5, come_back), [1, 1]);
}
