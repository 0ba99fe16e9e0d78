//! A large memtable is freed by a task that gives way to others.

use std::cell::Cell as StdCell;
use std::rc::Rc;

use bytes::Bytes;
use memtable::Memtable;
use mutation::{Bound, Cell, ColumnData, DeletionTime, PartitionUpdate, RangeTombstone, Row, Side};
use rt::{Group, Rt};
use rt_sim::{Config, Simulation};

use crate::{clustering, key, table};

/// One partition with many rows, and many with one.
fn of_rows() -> Memtable {
    let table = table();
    let memtable = Memtable::new(table.clone());
    let a = table.column("a").expect("it has one").id;
    for n in 0..20_000 {
        for (pk, ck) in [(0, n), (n + 1, 0)] {
            let mut update = PartitionUpdate::new(table.clone(), key(pk));
            let mut row = Row::new(clustering(&table, ck));
            row.set(a, ColumnData::Simple(Cell::live(1, Bytes::from_static(b"four"))));
            update.add_row(row);
            memtable.apply(update);
        }
    }
    memtable
}

/// One partition with many deleted ranges.
fn of_ranges() -> Memtable {
    let table = table();
    let memtable = Memtable::new(table.clone());
    for n in 0..20_000 {
        let mut update = PartitionUpdate::new(table.clone(), key(0));
        let bound = |side| Bound::new(&table, &[Some(&(n * 3i32).to_be_bytes())], side);
        let (start, end) = (bound(Side::Before), bound(Side::After));
        update.add_range_tombstone(RangeTombstone { start, end, deletion: DeletionTime::new(1, 1) });
        memtable.apply(update);
    }
    memtable
}

async fn longest_poll(rt: Rt, memtable: fn() -> Memtable) -> (u64, u64) {
    let memtable = memtable();
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
    for (name, memtable) in [("rows", of_rows as fn() -> Memtable), ("ranges", of_ranges)] {
        let sim = Simulation::new(1, Config { preempt_per_million: 1_000_000, ..Config::default() });
        let (steps, ticks) = sim.block_on(move |rt| longest_poll(rt, memtable)).expect("it ends");
        assert!((1..=128).contains(&steps), "{name}: {steps} freed in one poll");
        assert!(ticks > 100, "{name}: another task ran {ticks} times");
    }
}
