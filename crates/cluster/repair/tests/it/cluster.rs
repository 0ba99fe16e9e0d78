//! Three simulated nodes of different shard counts that lack different rows: repaired, interrupted, cut off, cancelled.

use replica::Read;
use std::sync::Arc;
use std::time::Duration;

use mutation::{DeletionTime, PartitionUpdate};
use repair::{JobState, RepairConfig, RepairSettings};
use schema::Table;

use crate::world::{SECOND, World, everything, key, row, table};

pub const PARTITIONS: i32 = 200;
pub const ROWS: i32 = 10;

/// Without automatic repair.
pub fn by_hand() -> RepairConfig {
    let settings = RepairSettings { automatic: false, ..RepairSettings::default() };
    RepairConfig { settings, ..RepairConfig::default() }
}

/// Small segments, so that there is something to interrupt.
pub fn config() -> RepairConfig {
    RepairConfig { segment_bytes: 16 << 10, ..by_hand() }
}

/// Of each hundred rows each node lacks one, and each another; that is three that differ.
pub fn fill(world: &World, table: &Arc<Table>) {
    for node in 0..world.shards.len() {
        let lacks = |n: i32| n % 100 == 30 * node as i32;
        let all = (0..PARTITIONS * ROWS).filter(|n| !lacks(*n));
        let text = "some text of a usual length, so that a segment is not the whole table";
        world.write(node, all.map(|n| row(table, n / ROWS, n % ROWS, text, 1_000)).collect());
    }
}

pub fn assert_equal(world: &World, table: &Arc<Table>) {
    let first = world.kept(0, table);
    let rows: usize = first.partitions.iter().map(|partition| partition.rows.len()).sum();
    assert_eq!(rows as i32, PARTITIONS * ROWS, "all rows are there");
    for node in 1..world.shards.len() {
        assert_eq!(world.kept(node, table), first, "node {node}");
    }
}

#[test]
fn all_nodes_have_everything_afterwards() {
    for shards in [[1, 1, 1], [2, 2, 2], [1, 2, 3], [3, 2, 2]] {
        let world = World::new(1, &shards, by_hand());
        let table = table("t");
        fill(&world, &table);
        let begun = world.seconds(0);
        let status = world.wait(0, world.begin(0, &table, 0));
        assert_eq!((status.state, &*status.failures), (JobState::Done, &[] as &[String]), "{shards:?}");
        assert_eq!((status.units_done, status.units), (1, 1));
        let differing = (PARTITIONS * ROWS / 100 * 3) as u64;
        assert_eq!((status.differing, status.sent), (differing, differing), "each to the one that lacks it");
        assert_equal(&world, &table);
        let per_row = status.bytes / differing;
        println!("{shards:?}: {per_row} bytes a row that differs, {} kept", world.kept_bytes());
        assert!(per_row < 600, "{per_row} bytes a row that differs");
        assert!(world.kept_bytes() < 2 << 20, "{} bytes kept", world.kept_bytes());

        // All replicas have recorded it, also after a restart.
        world.sim.run_for(SECOND);
        world.restart(1);
        for node in 0..3 {
            let history = world.repair(node).history();
            let at = history.table(table.id).expect("it was repaired").oldest(i64::MIN, i64::MAX, u32::MAX);
            assert!(at >= begun, "node {node}: {at}");
        }
        // A repair that resumes from there has nothing to do; one that begins anew finds nothing that differs.
        let again = world.wait(2, world.begin(2, &table, begun));
        assert_eq!((again.state, again.elements), (JobState::Done, 0));
        let again = world.wait(2, world.begin(2, &table, 0));
        assert_eq!((again.state, again.differing), (JobState::Done, 0));
        assert!(again.elements >= (PARTITIONS * ROWS) as u64);
    }
}

/// Left to themselves, nodes repair their own ranges as they become due, and go on doing so.
#[test]
fn nodes_repair_by_themselves() {
    let world = World::new(6, &[1, 2, 1], RepairConfig::default());
    let table = table("t");
    fill(&world, &table);
    let begun = world.seconds(0);
    // A grace of four hours: due every three hours, and ranges never repaired within a quarter of that.
    world.sim.run_for(SECOND * 3_600);
    assert_equal(&world, &table);
    let oldest = |node: usize| {
        let history = world.repair(node).history();
        history.table(table.id).map_or(0, |repaired| repaired.oldest(i64::MIN, i64::MAX, u32::MAX))
    };
    let first = [0, 1, 2].map(oldest);
    assert!(first.iter().all(|at| *at >= begun), "{first:?} after {begun}");
    world.sim.run_for(SECOND * 3_600 * 3);
    assert!((0..3).all(|node| oldest(node) > first[node]), "and again: {:?}", [0, 1, 2].map(oldest));
}

#[test]
fn a_peer_that_dies_fails_the_range_and_the_next_repair_completes_it() {
    let world = World::new(2, &[2, 1, 2], RepairConfig { attempts_max: 2, timeout: 2 * SECOND, ..config() });
    let table = table("t");
    fill(&world, &table);
    let job = world.begin(0, &table, 0);
    world.sim.run_until(|| world.status(0, job).sent > 5).expect("it repairs");
    world.sim.kill(world.sim.node(2));
    let status = world.wait(0, job);
    assert_eq!(status.state, JobState::Failed);
    assert!(status.failures[0].contains("03030303-0303-0303-0303-030303030303"), "{:?}", status.failures);
    assert_eq!(world.repair(0).history().table(table.id), None, "nothing is taken down");

    world.believe_dead(&[2]);
    let refused = world.wait(0, world.begin(0, &table, 0));
    assert_eq!(refused.state, JobState::Failed);
    assert!(refused.failures[0].contains("is down"), "{:?}", refused.failures);

    world.sim.start(world.sim.node(2));
    world.believe_dead(&[]);
    world.sim.run_for(5 * SECOND);
    let done = world.wait(0, world.begin(0, &table, 0));
    assert_eq!(done.state, JobState::Done, "{:?}", done.failures);
    assert!(done.differing < 60, "what was repaired before is still repaired: {}", done.differing);
    assert_equal(&world, &table);
}

#[test]
fn a_short_partition_is_waited_out() {
    for seed in 0..10 {
        let world = World::new(seed, &[1, 2, 1], RepairConfig { timeout: 2 * SECOND, ..config() });
        let table = table("t");
        fill(&world, &table);
        let job = world.begin(0, &table, 0);
        world.sim.run_until(|| world.status(0, job).sent > 3).expect("it repairs");
        let node = |n: usize| world.sim.node(n);
        match seed % 3 {
            0 => world.sim.isolate(node(1)),
            1 => world.sim.partition_one_way(node(2), node(0)),
            _ => world.sim.reset_connections(node(0), node(1)),
        }
        world.sim.after(3 * SECOND, |sim| sim.heal_all());
        let status = world.wait(0, job);
        assert_eq!(status.state, JobState::Done, "seed {seed}: {:?}", status.failures);
        assert_equal(&world, &table);
    }
}

#[test]
fn a_master_that_dies_leaves_nothing_behind() {
    let world = World::new(3, &[2, 2, 1], config());
    let table = table("t");
    fill(&world, &table);
    let job = world.begin(0, &table, 0);
    world.sim.run_until(|| world.status(0, job).sent > 3).expect("it repairs");
    assert!(world.kept_bytes() > 0, "followers hold what they are asked about");
    world.restart(0);
    // Another node repairs the same, and the followers' pieces are within their limit.
    let job = world.begin(1, &table, 0);
    assert_eq!(world.ended(1, job, Some(Duration::ZERO)), JobState::Running, "nobody waits for it");
    assert_ne!(world.ended(1, job, None), JobState::Running, "it was waited for");
    let status = world.status(1, job);
    assert_eq!(status.state, JobState::Done, "{:?}", status.failures);
    assert!(world.kept_bytes() < 1 << 20, "{} bytes kept", world.kept_bytes());
    assert_equal(&world, &table);
    world.sim.run_for(121 * SECOND);
    assert_eq!(world.kept_bytes(), 0, "nobody asks any more");
}

#[test]
fn a_cancelled_repair_stops_and_can_be_begun_again() {
    let world = World::new(4, &[1, 1, 2], {
        let settings = RepairSettings { bytes_per_second: 20_000, ..config().settings };
        RepairConfig { settings, ..config() }
    });
    let table = table("t");
    fill(&world, &table);
    let job = world.begin(0, &table, 0);
    world.sim.run_until(|| world.status(0, job).sent > 3).expect("it repairs");
    let underway = world.status(0, job);
    assert!(underway.share > 0.0 && underway.share < 1.0, "{}", underway.share);
    assert!(underway.left.is_some_and(|left| left > SECOND / 10), "{:?}", underway.left);
    assert!(world.cancel(0, job));
    assert!(!world.cancel(0, job + 1), "there is no such job");
    let sent = world.status(0, job).sent;
    assert_eq!(world.status(0, job).state, JobState::Cancelled);
    world.sim.run_for(5 * SECOND);
    assert_eq!(world.status(0, job).sent, sent, "it does not continue");

    let begun = world.sim.now();
    let status = world.wait(0, world.begin(0, &table, 0));
    assert_eq!(status.state, JobState::Done);
    assert_equal(&world, &table);
    // The limit is kept: most of the traffic is paid for before the next segment.
    let seconds = (world.sim.now() - begun).as_secs_f64();
    assert!(status.bytes as f64 / seconds < 30_000.0, "{} bytes in {seconds} s", status.bytes);
}

/// A repair is recorded with the earliest clock of its replicas, and not at all when a clock is far away: else deletions that others never had would
/// be purged.
#[test]
fn a_repair_is_not_recorded_by_a_clock_that_is_ahead() {
    let world = World::new(6, &[1, 1, 1], config());
    let table = table("gc");
    fill(&world, &table);
    world.sim.jump_clock(world.sim.node(0), 86_400_000_000);
    let status = world.wait(0, world.begin(0, &table, 0));
    assert_eq!(status.failures.len(), 1, "{:?}", status.failures);
    assert!(status.failures[0].contains("its clock is 86"), "{:?}", status.failures);
    world.sim.run_for(SECOND);
    (0..3).for_each(|node| assert!(world.repair(node).history().table(table.id).is_none(), "node {node}"));

    // Within the limit the time is that of the clock that is behind.
    world.sim.jump_clock(world.sim.node(0), 40_000_000 - 86_400_000_000);
    let status = world.wait(0, world.begin(0, &table, 0));
    assert_eq!(status.state, JobState::Done, "{:?}", status.failures);
    world.sim.run_for(SECOND);
    for node in 0..3 {
        let history = world.repair(node).history();
        let at = history.table(table.id).expect("it was repaired").oldest(i64::MIN, i64::MAX, u32::MAX);
        assert!(at <= world.seconds(1), "node {node}: {at}");
    }
}

/// With `tombstone_gc` by repair a deletion stays, however old, until a repair of all replicas has carried it everywhere.
#[test]
fn deletions_are_forgotten_after_a_repair() {
    let world = World::new(5, &[1, 2, 1], config());
    let table = table("gc");
    let deletion = |at: u32| {
        let mut update = PartitionUpdate::new(table.clone(), key(1));
        update.add_deletion(DeletionTime::new(2_000, at));
        update
    };
    for node in 0..3 {
        world.write(node, vec![row(&table, 1, 1, "dead", 1_000), row(&table, 2, 2, "alive", 1_000)]);
    }
    // Made a month ago, and one node has missed it.
    let now = world.seconds(0);
    for node in 0..2 {
        world.write(node, vec![deletion(now - 30 * 86_400)]);
    }
    let partitions = |node: usize| {
        let command = everything(&table, world.seconds(node), replica::Form::Whole);
        let id = table.id;
        world.on(node, move |_, replica, _| async move {
            use replica::TableOperation::{Compact, Flush};
            for operation in [Flush, Compact] {
                replica.table_operation(id, operation).await.expect("the disk is well");
            }
            replica.read(Read::of(&command)).await.expect("the disk is well").partitions
        })
    };
    assert_eq!([0, 1, 2].map(|node| partitions(node).len()), [2, 2, 2]);
    assert!(!partitions(0).iter().all(|partition| partition.deletion.is_live()), "still known");

    let status = world.wait(1, world.begin(1, &table, 0));
    assert_eq!(status.state, JobState::Done, "{:?}", status.failures);
    world.sim.run_for(SECOND);
    for node in 0..3 {
        let left = partitions(node);
        assert_eq!(left.len(), 1, "node {node}: {left:?}");
        assert_eq!(left[0].key, key(2));
    }
    world.restart(2);
    let after = world.wait(2, world.begin(2, &table, 0));
    assert_eq!((after.state, after.differing), (JobState::Done, 0));
}

/// The leader or a follower is killed or loses its power at each of many places of a repair, from its first query to the records that are written
/// at its end. The records are true on every node, the dead ones left nothing, and the next repair, by any node, completes it.
#[test]
fn any_node_may_die_at_any_step() {
    let whole = (PARTITIONS * ROWS) as u64;
    let (mut ended, mut taken_down) = (0, 0);
    for step in 0..24_u64 {
        let config = RepairConfig { attempts_max: 2, timeout: 2 * SECOND, ..config() };
        let world = World::new(step, &[1, 2, 1], config);
        let table = table("t");
        fill(&world, &table);
        // The earlier data is durable: that is the commit log's task.
        world.sim.run_for(15 * SECOND);
        let victim = (step % 3) as usize;
        let job = world.begin(0, &table, 0);
        let far = || {
            let status = world.status(0, job);
            status.state != JobState::Running || (step < 20 && status.elements >= whole * step / 20)
        };
        world.sim.run_until(far).expect("it repairs");
        ended += u64::from(world.status(0, job).state != JobState::Running);
        match step / 3 % 2 {
            0 => world.restart(victim),
            _ => world.lose_power(victim),
        }
        let known = |node: usize| world.repair(node).history().table(table.id).is_some();
        if (0..3).any(known) {
            taken_down += 1;
            assert_equal(&world, &table);
        }
        if victim != 0 {
            let status = world.wait(0, job);
            assert!(matches!(status.state, JobState::Done | JobState::Failed), "step {step}: {status:?}");
        }
        let next = world.wait(victim, world.begin(victim, &table, 0));
        assert_eq!(next.state, JobState::Done, "step {step}: {:?}", next.failures);
        assert_equal(&world, &table);
        assert!(world.repair(victim).history().table(table.id).is_some());
    }
    assert!(ended >= 4 && ended < 12, "most die in the middle: {ended} had ended");
    assert!(taken_down >= 4, "{taken_down}");
}

/// While nodes join or leave, a repair repairs and is not recorded: a pending replica may lack rows that the others were sent.
#[test]
fn nothing_is_taken_down_during_a_topology_change() {
    let world = World::new(7, &[1, 1, 1], by_hand());
    let table = table("t");
    fill(&world, &table);
    world.believe_changing(true);
    let status = world.wait(0, world.begin(0, &table, 0));
    assert_eq!((status.state, status.differing > 0), (JobState::Done, true), "{:?}", status.failures);
    assert_equal(&world, &table);
    assert!((0..3).all(|node| world.repair(node).history().table(table.id).is_none()));
    world.believe_changing(false);
    let again = world.wait(0, world.begin(0, &table, 0));
    assert_eq!((again.state, again.differing), (JobState::Done, 0));
    world.sim.run_for(SECOND);
    assert!((0..3).all(|node| world.repair(node).history().table(table.id).is_some()));
}
