//! A large memtable is freed by a task that gives way to others.

use std::cell::Cell as StdCell;
use std::rc::Rc;

use bytes::Bytes;
use memtable::Memtable;
use mutation::{Cell, ColumnData, PartitionUpdate, Row};
use rt::{Group, Rt};
use rt_sim::{Config, Simulation};

use crate::{clustering, key, table};

async fn longest_poll(rt: Rt) -> (u64, u64) {
    let table = table();
    let memtable = Memtable::new(table.clone());
    let a = table.column("a").expect("it has one").id;
    for n in 0..20_000 {
        // One partition with many rows, and many with one.
        for (pk, ck) in [(0, n), (n + 1, 0)] {
            let mut update = PartitionUpdate::new(table.clone(), key(pk));
            let mut row = Row::new(clustering(&table, ck));
            row.set(a, ColumnData::Simple(Cell::live(1, Bytes::from_static(b"four"))));
            update.add_row(row);
            memtable.apply(update);
        }
    }
    rt.executor().take_longest_poll();
    let ticks = Rc::new(StdCell::new(0u64));
    let (counted, rt2) = (ticks.clone(), rt.clone());
    let ticker = rt.spawn(Group::Statement, async move {
        loop {
            counted.set(counted.get() + 1);
            rt2.yield_now().await;
        }
    });
    let others = rt.executor().task_count();
    drop(memtable);
    while rt.executor().task_count() > others {
        rt.yield_now().await;
    }
    drop(ticker);
    (rt.executor().take_longest_poll(), ticks.get())
}

#[test]
fn a_large_memtable_is_freed_in_steps() {
    let sim = Simulation::new(1, Config { preempt_per_million: 1_000_000, ..Config::default() });
    let (steps, ticks) = sim.block_on(longest_poll).expect("it ends");
    assert!((1..=128).contains(&steps), "{steps} rows or partitions in one poll");
    assert!(ticks > 100, "another task ran {ticks} times");
}
