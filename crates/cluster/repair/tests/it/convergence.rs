//! Random replicas, each with a part of the updates and compacted at will: after repair all have the merge of all, deletions that
//! anyone remembers included, and another repair finds nothing to do.

use std::collections::BTreeSet;

use bytes::Bytes;
use mutation::purge::PurgeRule;
use mutation::{ColumnData, DecoratedKey, DeletionTime, PartitionUpdate, Row};
use proptest::prelude::*;
use repair::element::Printer;
use repair::merge::Holdings;
use repair::{FollowerConfig, Scope, Slice};
use replica::PartitionResult;
use testkit::data::{table, update};
use topology::TokenRange;

use crate::memory::{Node, Wire, run};

pub const NOW: u32 = 101;

pub fn scope(slice: Slice, gc_before: u32, seed: u64) -> Scope {
    let range = TokenRange { after: i64::MIN, upto: i64::MAX };
    Scope { table: table(), range, slice, now: NOW, gc_before, seed }
}

/// One of ten partitions, so that every shard has some.
pub fn moved(mut update: PartitionUpdate, k: i32) -> PartitionUpdate {
    update.key = DecoratedKey::new(Bytes::copy_from_slice(&k.to_be_bytes()));
    update
}

/// Gives every update timestamps of its own, `later` than those that it has. Without ties it does not matter in which order things are merged and forgotten.
pub fn stamped(mut update: PartitionUpdate, later: i64, number: i64) -> PartitionUpdate {
    let stamp =
        |timestamp: i64| if timestamp == i64::MIN { timestamp } else { (timestamp + later) * 64 + number };
    let deletion = |deletion: &mut DeletionTime| deletion.timestamp = stamp(deletion.timestamp);
    let row = |row: &mut Row| {
        row.liveness.timestamp = stamp(row.liveness.timestamp);
        deletion(&mut row.deletion);
        row.retain(|_, data| {
            match data {
                ColumnData::Simple(cell) => cell.timestamp = stamp(cell.timestamp),
                ColumnData::Complex(complex) => {
                    deletion(&mut complex.deletion);
                    complex.cells.iter_mut().for_each(|e| e.cell.timestamp = stamp(e.cell.timestamp));
                }
            }
            true
        });
    };
    deletion(&mut update.deletion);
    update.static_row_mut().into_iter().for_each(row);
    update.range_tombstones = update
        .range_tombstones
        .iter()
        .cloned()
        .map(|mut range| {
            deletion(&mut range.deletion);
            range
        })
        .collect();
    let mut out = PartitionUpdate::new(update.table.clone(), update.key.clone());
    out.deletion = update.deletion;
    out.set_static_row(update.static_row().cloned());
    out.range_tombstones = update.range_tombstones.clone();
    for mut one in update.into_rows() {
        row(&mut one);
        out.add_row(one);
    }
    out
}

/// How many elements there are of which not all nodes have the same version.
fn differing(scope: &Scope, forms: &[Vec<PartitionResult>]) -> u64 {
    let mut printer = Printer::new(&scope.table, scope.seed);
    let sets: Vec<BTreeSet<u64>> = forms
        .iter()
        .map(|form| {
            let mut set = BTreeSet::new();
            form.iter().for_each(|partition| {
                printer.partition(partition, false, |print| assert!(set.insert(print.content)));
            });
            set
        })
        .collect();
    let all: BTreeSet<u64> = sets.iter().flatten().copied().collect();
    all.iter().filter(|content| !sets.iter().all(|set| set.contains(content))).count() as u64
}

/// One random case.
#[derive(Debug)]
struct Case {
    updates: Vec<(PartitionUpdate, i32, BTreeSet<usize>)>,
    shard_counts: [u16; 3],
    compacted: [bool; 3],
    gc_before: u32,
    bytes_max: u32,
    breaks_after: Option<u64>,
    forget_every: u64,
    ties: bool,
    seed: u64,
}

fn case() -> impl Strategy<Value = Case> {
    let holders = prop::collection::btree_set(0usize..3, 1..=3);
    let updates = prop::collection::vec((update(table()), 0i32..10, holders), 0..14);
    let shards = prop_oneof![Just([1, 1, 1]), Just([2, 2, 2]), Just([1, 2, 3]), Just([3, 2, 4])];
    let bytes_max = prop_oneof![Just(u32::MAX), 1u32..2_000];
    let breaks = prop::option::of(0u64..30);
    let rest = (breaks, prop_oneof![Just(u64::MAX), 1u64..4], any::<bool>(), any::<u64>());
    (updates, shards, any::<[bool; 3]>(), 99u32..105, bytes_max, rest).prop_map(
        |(
            updates,
            shard_counts,
            compacted,
            gc_before,
            bytes_max,
            (breaks_after, forget_every, ties, seed),
        )| {
            Case {
                updates,
                shard_counts,
                compacted,
                gc_before,
                bytes_max,
                breaks_after,
                forget_every,
                ties,
                seed,
            }
        },
    )
}

fn check(case: Case) -> Result<(), TestCaseError> {
    let mut updates: [Vec<PartitionUpdate>; 3] = Default::default();
    for (number, (update, k, holders)) in case.updates.into_iter().enumerate() {
        let mut update = moved(update, k);
        if !case.ties {
            update = stamped(update, 0, number as i64);
        }
        holders.iter().for_each(|holder| updates[*holder].push(update.clone()));
    }
    let nodes: Vec<Node> = updates
        .into_iter()
        .zip(case.shard_counts)
        .map(|(updates, count)| Node::new(updates, count))
        .collect();
    let rule = PurgeRule::new(NOW, case.gc_before);
    let slices = *case.shard_counts.iter().min().expect("three nodes");
    let whole = scope(Slice::ALL, case.gc_before, case.seed);
    let all = repair::piece::command(&whole, None, usize::MAX);
    for (node, compacted) in nodes.iter().zip(case.compacted) {
        if compacted {
            node.compact(&all, rule.clone());
        }
    }
    let everything: Vec<PartitionUpdate> =
        nodes.iter().flat_map(|node| node.updates.borrow().clone()).collect();
    let truth = Node::new(everything, 1).merged(&all, Some(rule.clone()));
    let forms: Vec<_> = nodes.iter().map(|node| node.merged(&all, Some(rule.clone()))).collect();

    let wire = Wire::new(&table(), &nodes, FollowerConfig::default());
    wire.breaks_after.set(case.breaks_after);
    wire.forget_every.set(case.forget_every);
    let mut found = 0;
    for number in 0..slices {
        let scope = scope(Slice { number, of: slices }, case.gc_before, case.seed);
        found += run(&wire, &scope, &nodes, case.bytes_max).differing;
    }
    if case.bytes_max == u32::MAX && case.breaks_after.is_none() {
        prop_assert_eq!(found, differing(&whole, &forms), "only what differs is fetched");
    }
    let after: Vec<_> = nodes.iter().map(|node| node.merged(&all, Some(rule.clone()))).collect();
    for (at, form) in after.iter().enumerate() {
        prop_assert_eq!(form, &after[0], "node {} after repair", at);
    }
    if !case.ties {
        prop_assert_eq!(&after[0], &truth, "the merge of all");
    }

    // Compaction of the sent rows changes nothing, and nothing is sent again.
    nodes[1].compact(&all, rule.clone());
    for number in 0..slices {
        let scope = scope(Slice { number, of: slices }, case.gc_before, case.seed ^ 1);
        let again = run(&wire, &scope, &nodes, u32::MAX);
        prop_assert_eq!((again.differing, again.sent), (0, 0), "a second repair finds nothing");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn all_nodes_end_with_the_merge(case in case()) {
        check(case)?;
    }
}

/// Two participants may send one row: each printed it with a column that the master knows to be dropped, so that their
/// hashes differed and the master fetched both (cluster seed 23000403).
#[test]
fn a_row_that_is_fetched_twice_is_sent_once() {
    let scope = scope(Slice::ALL, 0, 7);
    let mut row = Row::new(testkit::data::clustering(&table(), 3));
    row.deletion = DeletionTime { timestamp: 5, local: 6 };
    let mut update = PartitionUpdate::new(table(), DecoratedKey::new(Bytes::from_static(b"\0\0\0\x01")));
    update.add_row(row);
    let fetched = PartitionResult::from_update(update.clone(), false);
    let (mut printer, mut elements) = (Printer::new(&scope.table, scope.seed), Vec::new());
    printer.elements(fetched.clone(), false, &mut elements);
    let contents: Vec<u64> = elements.iter().map(|(print, _)| print.content).collect();
    assert_eq!(contents.len(), 1, "a row");
    let holdings = Holdings::new(&[0, 1], &[contents, vec![]]);
    let lacking = holdings.lacking(&scope, None, vec![fetched.clone(), fetched]);
    assert!(lacking[0].is_empty(), "the first node has the row");
    let sent: Vec<&[Row]> = lacking[1].iter().map(PartitionUpdate::rows).collect();
    assert_eq!(sent, [update.rows()]);
}
