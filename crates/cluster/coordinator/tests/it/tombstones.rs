//! A read of a partition with as many range tombstones as a page may hold keeps no shard for long: neither those that send the page
//! or its digest, nor the one that compares and merges them.

use std::time::{Duration, Instant};

use coordinator::Consistency;
use mutation::{Bound, DeletionTime, PartitionUpdate, RangeTombstone, Side};
use replica::{Origin, Write};
use rt_sim::Config;
use schema::Table;

use crate::world::*;

/// A little less than `tombstone_failure_threshold` allows: both ends count.
const RANGES: i32 = 49_500;
/// Ranges of one write.
const AT_ONCE: i32 = 500;
/// Ranges that are worked on in one step.
const RANGES_A_STEP: usize = 64;
/// How often a read goes over all ranges, at least: each of three replicas makes a page and encodes or digests it, and one digest more is made. Where
/// replicas differ two pages are decoded, and three merged and compared.
const PASSES_MIN: usize = 6;
/// CPU of the longest step (opt-level 1: 64 ms when a batch of a memtable held all ranges before an only row).
const STEP_MAX: Duration = Duration::from_millis(20);
/// Of so many reads the best is judged.
const READS: usize = 3;

/// Partition 1 without the rows `2 * n` of these numbers.
fn ranges(table: &std::sync::Arc<Table>, numbers: std::ops::Range<i32>) -> PartitionUpdate {
    let mut update = PartitionUpdate::new(table.clone(), key(1));
    for n in numbers {
        let bound = |side| Bound::new(table, &[Some(&(2 * n).to_be_bytes())], side);
        let deletion = DeletionTime::new(1, u32::MAX - 1);
        update.add_range_tombstone(RangeTombstone {
            start: bound(Side::Before),
            end: bound(Side::After),
            deletion,
        });
    }
    update
}

/// CPU of this thread so far; where the system does not say it, the time.
fn cpu(began: Instant) -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    nanos.map_or_else(|| began.elapsed(), Duration::from_nanos)
}

/// A read's rows, how many steps of the simulator it takes, and the CPU of the longest one: mostly a poll of one task.
fn stepped(world: &World, table: &std::sync::Arc<Table>) -> (Vec<(i32, String)>, usize, Duration) {
    let command = partition(table, 1, seconds(&world.sim, 0));
    let read = begin(&world.sim, 0, 0, |rt, coordinator| async move {
        coordinator.read(&command, Consistency::All, rt.now() + 60 * SECOND).await
    });
    let (began, mut longest, mut steps) = (Instant::now(), Duration::ZERO, 0);
    let mut before = cpu(began);
    let ran = world.sim.run_until(|| {
        let now = cpu(began);
        longest = longest.max(now - before);
        before = now;
        steps += 1;
        read.is_finished()
    });
    ran.expect("it ends");
    let page = join(&world.sim, read).expect("all replicas are up");
    (texts(&page), steps, longest)
}

#[test]
fn a_read_over_50_000_range_tombstones_gives_way() {
    let world = World::new(1, &[1, 1, 1], Config { preempt_per_million: 1_000_000, ..Config::default() });
    let table = table("ks", "t");
    for from in (0..RANGES).step_by(AT_ONCE as usize) {
        world.write(0, ranges(&table, from..from + AT_ONCE), Consistency::All).expect("all replicas are up");
    }
    world.write(0, row(&table, 1, 2 * RANGES + 1, "behind", 2), Consistency::All).expect("they are up");
    for differ in [false, true] {
        let mismatches = || coordinator(0, 0).replication_stats().mismatches;
        let before = mismatches();
        let (mut best, mut fewest) = (Duration::MAX, usize::MAX);
        for turn in 0..READS as i32 {
            if differ {
                // One replica has a range more than the others.
                let more = ranges(&table, RANGES + turn..RANGES + turn + 1);
                let applied = world.on(1, 0, |_, coordinator| async move {
                    coordinator.replica().apply(Write::all(Origin::Client, vec![more])).await
                });
                applied.expect("the disk is well");
            }
            let (seen, steps, longest) = stepped(&world, &table);
            assert_eq!(seen, [(2 * RANGES + 1, "behind".to_owned())]);
            (best, fewest) = (best.min(longest), fewest.min(steps));
        }
        println!("replicas that differ {differ}: {fewest} steps, of which the longest took {best:?}");
        assert_eq!(mismatches() - before, if differ { READS as u64 } else { 0 });
        let least = PASSES_MIN * RANGES as usize / RANGES_A_STEP;
        assert!(fewest > least, "replicas that differ {differ}: {fewest} steps");
        assert!(best < STEP_MAX, "replicas that differ {differ}: one step took {best:?}");
    }
}
