//! The parts of a comparison of several replicas' pages, for reads and for repair: where pages end, the range that all cover, a
//! partition as a stream for the merge, and what one side lacks of it. Pure.

use std::cmp::Ordering;
use std::sync::Arc;

use mutation::{Bound, Clustering, Fragment, FragmentBuffer, PartitionUpdate, Row};
use schema::Table;

use crate::{PartitionResult, ReadPage, Resume};

/// Which of two ends of pages comes first in the order of a read.
pub fn order(left: &Resume, right: &Resume, reversed: bool) -> Ordering {
    let within = || match (&left.clustering, &right.clustering) {
        (Some(left), Some(right)) if reversed => right.cmp(left),
        (Some(left), Some(right)) => left.cmp(right),
        // Without a row: behind the whole partition.
        (left, right) => left.is_none().cmp(&right.is_none()),
    };
    left.key.cmp(&right.key).then_with(within)
}

/// Takes away what lies behind `end`.
pub fn clip(table: &Table, page: &mut ReadPage, end: &Resume, reversed: bool) {
    page.partitions.retain(|partition| partition.key <= end.key);
    let Some(last) = page.partitions.last_mut().filter(|partition| partition.key == end.key) else { return };
    let Some(clustering) = &end.clustering else { return };
    let behind = |row: &Row| {
        let order = row.clustering.cmp(clustering);
        if reversed { order.is_lt() } else { order.is_gt() }
    };
    let kept = last.rows.iter().position(behind).unwrap_or(last.rows.len());
    last.rows.truncate(kept);
    last.clip_ranges(table, clustering, reversed);
}

/// A partition as a stream.
pub fn fragments(partition: &PartitionResult, reversed: bool, out: &mut FragmentBuffer) {
    out.push_back(Fragment::PartitionStart { key: partition.key.clone(), deletion: partition.deletion });
    out.extend(partition.static_row.clone().map(Fragment::StaticRow));
    let mut changes = partition.range_tombstones.changes(reversed).into_iter().peekable();
    let comes_first = |bound: &Bound, clustering: &Clustering| {
        if reversed {
            bound.position() > clustering.position()
        } else {
            bound.position() < clustering.position()
        }
    };
    for row in &partition.rows {
        while let Some((bound, deletion)) = changes.next_if(|(bound, _)| comes_first(bound, &row.clustering))
        {
            out.push_back(Fragment::RangeTombstoneChange { bound, deletion });
        }
        out.push_back(Fragment::Row(row.clone()));
    }
    out.extend(changes.map(|(bound, deletion)| Fragment::RangeTombstoneChange { bound, deletion }));
    out.push_back(Fragment::PartitionEnd);
}

/// The updates that the replica that answered `page` needs to have all of `merged`.
pub fn lacks(
    table: &Arc<Table>,
    page: &ReadPage,
    merged: &[PartitionResult],
    reversed: bool,
) -> Vec<PartitionUpdate> {
    let mut theirs = page.partitions.iter().peekable();
    let mut out = Vec::new();
    for partition in merged {
        while theirs.next_if(|their| their.key < partition.key).is_some() {}
        let their = theirs.next_if(|their| their.key == partition.key);
        let nothing = PartitionResult::new(partition.key.clone());
        let missing = difference(their.unwrap_or(&nothing), partition, reversed);
        if !missing.is_empty() {
            out.push(missing.into_update(table, reversed));
        }
    }
    out
}

/// The part of `merged` that is not in `theirs`, row by row.
fn difference(theirs: &PartitionResult, merged: &PartitionResult, reversed: bool) -> PartitionResult {
    let mut out = PartitionResult::new(merged.key.clone());
    if merged.deletion.supersedes(&theirs.deletion) {
        out.deletion = merged.deletion;
    }
    if merged.static_row != theirs.static_row {
        out.static_row = merged.static_row.clone();
    }
    let mut rows = theirs.rows.iter().peekable();
    for row in &merged.rows {
        let comes_first = |their: &&Row| {
            if reversed { their.clustering > row.clustering } else { their.clustering < row.clustering }
        };
        while rows.next_if(comes_first).is_some() {}
        if rows.next_if(|their| their.clustering == row.clustering) != Some(row) {
            out.rows.push(row.clone());
        }
    }
    let missing = merged.range_tombstones.iter().filter(|range| !theirs.range_tombstones.has(range));
    out.range_tombstones = missing.cloned().collect();
    out
}
