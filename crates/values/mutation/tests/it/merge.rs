//! The fragment merger against merging the updates one by one, forward and reversed.

use std::sync::Arc;

use mutation::merge::{Merger, Step};
use mutation::{DeletionTime, Fragment, FragmentBuffer, PartitionUpdate, RangeTombstones, Row};
use proptest::prelude::*;
use schema::Table;

use testkit::data::{table, update};

/// The fragments of one update.
fn fragments(update: &PartitionUpdate, reversed: bool) -> FragmentBuffer {
    let mut middle: Vec<(Vec<u8>, Fragment)> =
        update.rows().iter().map(|r| (r.clustering.position().to_vec(), Fragment::Row(r.clone()))).collect();
    let mut changes: std::collections::BTreeMap<Vec<u8>, Fragment> = Default::default();
    for range in update.range_tombstones.iter() {
        let (open, close) = if reversed { (&range.end, &range.start) } else { (&range.start, &range.end) };
        let change = |bound: &mutation::Bound, deletion| Fragment::RangeTombstoneChange {
            bound: bound.clone(),
            deletion,
        };
        // Touching ranges share a bound: there the opening side wins over the closing one.
        changes.insert(open.position().to_vec(), change(open, range.deletion));
        changes.entry(close.position().to_vec()).or_insert_with(|| change(close, DeletionTime::LIVE));
    }
    middle.extend(changes);
    middle.sort_by(|a, b| if reversed { b.0.cmp(&a.0) } else { a.0.cmp(&b.0) });
    let mut out = FragmentBuffer::new();
    out.push_back(Fragment::PartitionStart { key: update.key.clone(), deletion: update.deletion });
    out.extend(update.static_row().cloned().map(Fragment::StaticRow));
    out.extend(middle.into_iter().map(|(_, fragment)| fragment));
    out.push_back(Fragment::PartitionEnd);
    out
}

/// The content of the merged stream, a partition each: deletion, static row, rows, range tombstones.
type Seen = (DeletionTime, Option<Row>, Vec<Row>, RangeTombstones);

fn expected(table: &Arc<Table>, updates: &[PartitionUpdate]) -> Vec<Seen> {
    let mut merged: std::collections::BTreeMap<_, PartitionUpdate> = Default::default();
    for update in updates {
        merged
            .entry(update.key.clone())
            .or_insert_with(|| PartitionUpdate::new(table.clone(), update.key.clone()))
            .merge(update.clone());
    }
    let seen = |update: PartitionUpdate| {
        let deletion = update.deletion;
        let hide = |mut row: Row, more: DeletionTime| {
            row.delete_shadowed(deletion.max(more));
            (!row.is_empty()).then_some(row)
        };
        let mut ranges = update.range_tombstones.clone();
        ranges.retain(|range| range.deletion.supersedes(&deletion));
        let static_row = update.static_row().cloned().and_then(|row| hide(row, DeletionTime::LIVE));
        let rows = update.rows().iter();
        let rows = rows.filter_map(|row| hide(row.clone(), ranges.covering(&row.clustering))).collect();
        (deletion, static_row, rows, ranges)
    };
    merged.into_values().map(seen).collect()
}

fn run(table: &Arc<Table>, updates: &[PartitionUpdate], reversed: bool, chunk: usize) -> Vec<Seen> {
    let mut sources: Vec<FragmentBuffer> = updates.iter().map(|u| fragments(u, reversed)).collect();
    let mut merger = Merger::new(table.clone(), sources.len(), reversed);
    let mut out: Vec<Seen> = Vec::new();
    let mut open: Option<(mutation::Bound, DeletionTime)> = None;
    loop {
        match merger.next() {
            Step::End => return out,
            Step::Need(input) => {
                let take = sources[input].len().min(chunk);
                if take == 0 {
                    merger.end(input);
                }
                merger.buffer(input).extend(sources[input].drain(..take));
            }
            Step::Fragment(fragment) => match fragment {
                Fragment::PartitionStart { deletion, .. } => {
                    out.push((deletion, None, Vec::new(), RangeTombstones::new()));
                }
                Fragment::StaticRow(row) => out.last_mut().expect("started").1 = Some(row),
                Fragment::Row(row) => out.last_mut().expect("started").2.push(row),
                Fragment::RangeTombstoneChange { bound, deletion } => {
                    if let Some((from, before)) = open.take() {
                        let (start, end) =
                            if reversed { (bound.clone(), from) } else { (from, bound.clone()) };
                        let range = mutation::RangeTombstone { start, end, deletion: before };
                        out.last_mut().expect("started").3.insert(range);
                    }
                    open = (!deletion.is_live()).then_some((bound, deletion));
                }
                Fragment::PartitionEnd => assert!(open.is_none(), "ranges are closed at the end"),
            },
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn merged_streams_equal_merged_updates(
        updates in prop::collection::vec(update(table()), 1..5), chunk in 1usize..6
    ) {
        let table = table();
        let forward = expected(&table, &updates);
        prop_assert_eq!(run(&table, &updates, false, chunk), forward.clone());
        let mut backward = forward;
        backward.iter_mut().for_each(|partition| partition.2.reverse());
        prop_assert_eq!(run(&table, &updates, true, chunk), backward);
    }
}
