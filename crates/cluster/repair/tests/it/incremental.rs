//! Incremental repairs: they find everything that a full one would have found, in spite of late and
//! purged data, and read only new data.

use std::collections::BTreeSet;
use std::sync::Arc;

use mutation::PartitionUpdate;
use mutation::purge::PurgeRule;
use proptest::prelude::*;
use repair::{FollowerConfig, JobState, JobStatus, RepairConfig, RepairSettings, Slice};
use replica::TableOperation;
use schema::Table;
use testkit::data::{table as data_table, update};

use crate::cluster::{PARTITIONS, ROWS, assert_equal, config, fill};
use crate::convergence::{NOW, moved, scope, stamped};
use crate::memory::{Node, Wire, run, run_above};
use crate::world::{Loss, SECOND, World, row, table};

/// Updates, their partitions, and their nodes.
type Updates = Vec<(PartitionUpdate, i32, BTreeSet<usize>)>;

fn updates() -> impl Strategy<Value = Updates> {
    let holders = prop::collection::btree_set(0usize..3, 1..=3);
    prop::collection::vec((update(data_table()), 0i32..4, holders), 0..10)
}

/// One random case: the data before the first repair, and the writes after it.
#[derive(Debug)]
struct Case {
    before: Updates,
    after: Updates,
    shard_counts: [u16; 3],
    /// The node that compacts the data that the first repair has covered: before anything else comes, and after that.
    compacted: [[bool; 3]; 2],
    gc_before: u32,
    bytes_max: u32,
    forget_every: u64,
    seed: u64,
}

fn case() -> impl Strategy<Value = Case> {
    let shards = prop_oneof![Just([1, 1, 1]), Just([1, 2, 3]), Just([3, 2, 4])];
    let bytes_max = prop_oneof![Just(u32::MAX), 1u32..2_000];
    let rest = (prop_oneof![Just(u64::MAX), 1u64..4], any::<u64>());
    let compacted = prop_oneof![Just([[false; 3]; 2]), any::<[[bool; 3]; 2]>()];
    (updates(), updates(), shards, compacted, 99u32..105, bytes_max, rest).prop_map(
        |(before, after, shard_counts, compacted, gc_before, bytes_max, (forget_every, seed))| Case {
            before,
            after,
            shard_counts,
            compacted,
            gc_before,
            bytes_max,
            forget_every,
            seed,
        },
    )
}

/// The timestamps of generated data are below this one.
const TIMESTAMPS: i64 = 6;

fn hand_out(updates: Updates, (later, from): (i64, usize), nodes: &[Node]) {
    for (number, (update, k, holders)) in updates.into_iter().enumerate() {
        let update = stamped(moved(update, k), later, (from + number) as i64);
        holders.iter().for_each(|holder| nodes[*holder].updates.borrow_mut().push(update.clone()));
    }
}

fn check(case: Case) -> Result<(), TestCaseError> {
    let nodes: Vec<Node> = case.shard_counts.iter().map(|count| Node::new(Vec::new(), *count)).collect();
    let (rule, count) = (PurgeRule::new(NOW, case.gc_before), case.before.len());
    hand_out(case.before, (0, 0), &nodes);
    let slices = *case.shard_counts.iter().min().expect("three nodes");
    let wire = Wire::new(&data_table(), &nodes, FollowerConfig::default());
    wire.forget_every.set(case.forget_every);
    let mut covered: Vec<usize> = nodes.iter().map(|node| node.updates.borrow().len()).collect();
    // Nothing was past its grace then: a tombstone past it, on one node alone, would count as purged by all.
    for number in 0..slices {
        let scope = scope(Slice { number, of: slices }, 0, case.seed);
        run(&wire, &scope, &nodes, case.bytes_max);
    }
    let all = repair::piece::command(&scope(Slice::ALL, case.gc_before, case.seed), None, usize::MAX);
    let compact = |which: [bool; 3], covered: &mut Vec<usize>| {
        for (at, node) in nodes.iter().enumerate().filter(|(at, _)| which[*at]) {
            covered[at] = node.compact_covered(&all, covered[at], rule.clone());
        }
    };
    compact(case.compacted[0], &mut covered);
    // A deletion is purged when its grace is over, in which everything older has arrived: writes are late only where nothing is purged.
    let is_purged = case.compacted.iter().flatten().any(|compacted| *compacted);
    hand_out(case.after, (if is_purged { TIMESTAMPS } else { 0 }, count), &nodes);
    compact(case.compacted[1], &mut covered);

    let everything: Vec<PartitionUpdate> =
        nodes.iter().flat_map(|node| node.updates.borrow().clone()).collect();
    let truth = Node::new(everything, 1);
    let alive = |node: &Node| node.merged(&all, Some(PurgeRule::new(NOW, u32::MAX)));
    // Rows that one repair sends lie above the watermarks of their receivers, and are compared once more: that converges.
    let counts = || -> Vec<usize> { nodes.iter().map(|node| node.updates.borrow().len()).collect() };
    let mut grown = Vec::new();
    for round in 1..=5 {
        let next = counts();
        for number in 0..slices {
            let scope = scope(Slice { number, of: slices }, 0, case.seed ^ round);
            run_above(&wire, &scope, &nodes, &covered, case.bytes_max);
        }
        for (at, node) in nodes.iter().enumerate() {
            prop_assert_eq!(alive(node), alive(&truth), "node {} in round {}", at, round);
            // It may know deletions that others have forgotten, and lacks none that anyone knows within its grace.
            let known = node.merged(&all, Some(rule.clone()));
            let truth = truth.merged(&all, Some(rule.clone())).into_iter();
            let mut both = node.updates.borrow().clone();
            both.extend(truth.map(|partition| partition.into_update(&data_table(), false)));
            let both = Node::new(both, 1).merged(&all, Some(rule.clone()));
            prop_assert_eq!(known, both, "node {} in round {}", at, round);
        }
        grown.push(counts().iter().sum::<usize>() - next.iter().sum::<usize>());
        covered = next;
    }
    prop_assert_eq!(grown.last(), Some(&0), "{:?} updates were written in these rounds", grown);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn comparing_new_data_is_enough(case in case()) {
        check(case)?;
    }
}

const ALL_ROWS: i32 = PARTITIONS * ROWS;

/// One row in a hundred is written anew, on two nodes of three.
fn change(world: &World, table: &Arc<Table>, round: i32) {
    for node in [round as usize % 3, (round as usize + 1) % 3] {
        let changed = (0..ALL_ROWS).filter(|n| n % 100 == round);
        let text = format!("changed in round {round}");
        let update = |n: i32| row(table, n / ROWS, n % ROWS, &text, 2_000 + i64::from(round));
        world.write(node, changed.map(update).collect());
    }
}

fn repair(world: &World, node: usize, table: &Arc<Table>) -> JobStatus {
    let status = world.wait(node, world.begin_incremental(node, table));
    assert_eq!(status.state, JobState::Done, "{:?}", status.failures);
    status
}

/// Whether a repair compared only new data, and how many rows.
fn compared(status: &JobStatus) -> (bool, u64) {
    (status.units_incremental == status.units, status.elements)
}

/// Nodes that were repaired once.
fn repaired_world(seed: u64, shards: &[u16], table: &Arc<Table>) -> World {
    let world = World::new(seed, shards, config());
    fill(&world, table);
    let first = repair(&world, 0, table);
    assert_eq!(first.units_incremental, 0, "there is nothing to build on");
    // A segment counts as many as the node has of it that has most.
    assert!(first.elements >= ALL_ROWS as u64 * 99 / 100, "{}", first.elements);
    world
}

#[test]
fn only_new_data_is_compared() {
    for shards in [[1, 1, 1], [1, 2, 3], [3, 2, 2]] {
        let table = table("t");
        let world = repaired_world(21, &shards, &table);
        // Rows sent by the first repair are above the marks of their receivers, and are compared once more.
        let sent = (ALL_ROWS / 100) as u64;
        let second = repair(&world, 1, &table);
        assert!(second.units_incremental == second.units && second.elements <= 3 * sent, "{second:?}");
        for round in 1..4 {
            change(&world, &table, round);
            if round == 2 {
                world.restart(1);
            }
            let status = repair(&world, round as usize % 3, &table);
            let (incremental, elements) = compared(&status);
            assert!(incremental && elements >= sent && elements < 6 * sent, "round {round}: {status:?}");
            assert!(status.sent >= sent, "{status:?}");
            assert_equal(&world, &table);
        }
        // One that compares everything finds that nothing was left out.
        let full = world.wait(2, world.begin(2, &table, 0));
        assert_eq!((full.state, full.differing, full.units_incremental), (JobState::Done, 0, 0));
        assert!(full.elements >= ALL_ROWS as u64, "{full:?}");
        let rest = repair(&world, 0, &table);
        assert_eq!((rest.units_incremental, rest.elements), (rest.units, 0), "{rest:?}");
    }
}

/// The history that a repair counts on is gone from a disk, one way or another: everything is compared, and is there again afterwards.
#[test]
fn after_a_loss_everything_is_compared() {
    let table = table("t");
    let losses = [Loss::Newest(table.id), Loss::Oldest(table.id), Loss::History, Loss::All];
    for (seed, loss) in (30..).zip(losses) {
        let world = repaired_world(seed, &[1, 2, 1], &table);
        change(&world, &table, 1);
        repair(&world, 1, &table);
        for node in 0..3 {
            world.maintain(node, &table, TableOperation::Flush);
        }
        world.restart_after(1, loss);
        let after = repair(&world, 2, &table);
        assert_eq!(after.units_incremental, 0, "{loss:?}: {after:?}");
        assert_equal(&world, &table);
        let next = repair(&world, 1, &table);
        let few = next.elements < ALL_ROWS as u64 / 10 || loss == Loss::All || loss == Loss::Oldest(table.id);
        assert!(few, "{loss:?}: {next:?}");
        assert_equal(&world, &table);
    }
    // A truncation that one node has missed.
    let world = repaired_world(40, &[1, 2, 1], &table);
    let at_micros = world.sim.wall_micros(world.sim.node(2));
    world.maintain(2, &table, TableOperation::Truncate { at_micros, expires: rt::Instant::MAX });
    assert_eq!(repair(&world, 0, &table).units_incremental, 0);
    assert_equal(&world, &table);
}

/// The leader or a follower dies anywhere in an incremental repair, and some nodes compact meanwhile: the next one, by any node, ends
/// with all nodes equal, and one that compares everything finds nothing more.
#[test]
fn a_node_may_die_at_any_step() {
    let table = table("t");
    let mut incremental = 0;
    for step in 0..12_u64 {
        let world = repaired_world(50 + step, &[1, 2, 1], &table);
        change(&world, &table, 1);
        // The earlier data is durable: that is the commit log's task.
        world.sim.run_for(15 * SECOND);
        let job = world.begin_incremental(0, &table);
        let far = || {
            let status = world.status(0, job);
            status.state != JobState::Running || status.elements >= 5 * step
        };
        world.sim.run_until(far).expect("it repairs");
        let victim = (step % 3) as usize;
        world.maintain((victim + 1) % 3, &table, TableOperation::Flush);
        if step % 4 == 1 {
            world.maintain((victim + 1) % 3, &table, TableOperation::Compact);
        }
        match step / 3 % 2 {
            0 => world.restart(victim),
            _ => world.lose_power(victim),
        }
        if victim != 0 {
            world.wait(0, job);
        }
        change(&world, &table, 2);
        let next = repair(&world, victim, &table);
        incremental += u64::from(next.units_incremental == next.units);
        assert_equal(&world, &table);
        let full = world.wait(1, world.begin(1, &table, 0));
        assert_eq!((full.state, full.differing), (JobState::Done, 0), "step {step}: {full:?}");
    }
    assert!(incremental >= 6, "most build on what was repaired: {incremental}");
}

/// Left to themselves nodes compare new data, and everything from time to time.
#[test]
fn nodes_compare_everything_from_time_to_time() {
    let full_interval = 7 * 3_600;
    let world = World::new(70, &[1, 2, 1], {
        let settings = RepairSettings { full_interval, ..RepairSettings::default() };
        RepairConfig { settings, ..RepairConfig::default() }
    });
    let table = table("t");
    fill(&world, &table);
    let begun = world.seconds(0);
    let stats = || [0, 1, 2].map(|node: usize| world.repair(node).stats());
    world.sim.run_for(SECOND * 3_600 * 5);
    let early = stats();
    assert!(early.iter().all(|stats| stats.ranges_incremental > 0), "{early:?}");
    world.sim.run_for(SECOND * 3_600 * 10);
    let late = stats();
    for (early, late) in early.iter().zip(&late) {
        let full = |stats: &repair::RepairStats| stats.ranges - stats.ranges_incremental;
        assert!(full(late) > full(early) && full(early) > 0, "{early:?}, {late:?}");
        assert!(late.ranges_incremental > early.ranges_incremental, "{early:?}, {late:?}");
    }
    for node in 0..3 {
        let oldest =
            world.repair(node).history().oldest_full(table.id, scope(Slice::ALL, 0, 0).range, u32::MAX);
        assert!(oldest > begun + full_interval, "node {node}: {oldest} after {begun}");
    }
    assert_equal(&world, &table);
}
