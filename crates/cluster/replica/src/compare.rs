//! The parts of a comparison of several replicas' pages, for reads and for repair: where pages end, the range that all cover, a
//! partition as a stream for the merge, and the part of it that one side lacks. Pure, but for the yields of loops over all range
//! tombstones of a large page.

use std::cmp::Ordering;
use std::sync::Arc;

use mutation::range::RangeChanges;
use mutation::{
    Bound, Clustering, Fragment, FragmentBuffer, PartitionUpdate, RangeTombstone, RangeTombstones, Row,
    Slices,
};
use rt::preempt::Pace;
use schema::Table;

use crate::steps::free_ranges;
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

/// Removes everything behind `end`.
pub fn clip(page: &mut ReadPage, end: &Resume, reversed: bool) {
    if let Some((last, clustering)) = clip_rows(page, end, reversed) {
        last.clip_ranges(clustering, reversed);
    }
}

/// [`clip`] in steps.
pub async fn clip_in_steps(page: &mut ReadPage, end: &Resume, reversed: bool, pace: &mut Pace) {
    let Some((last, clustering)) = clip_rows(page, end, reversed) else { return };
    let wanted = PartitionResult::upto(clustering, reversed);
    let mut kept = RangeTombstones::new();
    for range in last.range_tombstones.overlapping(&wanted) {
        let (start, end) = ((&range.start).max(&wanted.start), (&range.end).min(&wanted.end));
        kept.insert(RangeTombstone { start: start.clone(), end: end.clone(), deletion: range.deletion });
        pace.step().await;
    }
    free_ranges(std::mem::replace(&mut last.range_tombstones, kept), pace).await;
}

/// Takes away partitions and rows that lie behind `end`; in which partition it lies, and behind which row.
fn clip_rows<'a>(
    page: &'a mut ReadPage,
    end: &'a Resume,
    reversed: bool,
) -> Option<(&'a mut PartitionResult, &'a Clustering)> {
    page.partitions.retain(|partition| partition.key <= end.key);
    let last = page.partitions.last_mut().filter(|partition| partition.key == end.key)?;
    let clustering = end.clustering.as_ref()?;
    let behind = |row: &Row| {
        let order = row.clustering.cmp(clustering);
        if reversed { order.is_lt() } else { order.is_gt() }
    };
    let kept = last.rows.iter().position(behind).unwrap_or(last.rows.len());
    last.rows.truncate(kept);
    Some((last, clustering))
}

/// A partition as a stream.
pub fn fragments(partition: &PartitionResult, reversed: bool, out: &mut FragmentBuffer) {
    out.extend(stream(partition, reversed));
}

/// A partition as a stream, fragment by fragment.
pub fn stream(partition: &PartitionResult, reversed: bool) -> impl Iterator<Item = Fragment> {
    let all = Slices::all();
    let mut changes = RangeChanges::new(&partition.range_tombstones, reversed);
    let comes_first = move |bound: &Bound, clustering: &Clustering| {
        if reversed {
            bound.position() > clustering.position()
        } else {
            bound.position() < clustering.position()
        }
    };
    let mut rows = partition.rows.iter().peekable();
    let inner = std::iter::from_fn(move || {
        let row = rows.peek();
        if let Some((bound, _)) = changes.peek(&all)
            && row.is_none_or(|row| comes_first(bound, &row.clustering))
        {
            let (bound, deletion) = changes.pop().expect("it was seen");
            return Some(Fragment::RangeTombstoneChange { bound, deletion });
        }
        rows.next().cloned().map(Fragment::Row)
    });
    let start = Fragment::PartitionStart { key: partition.key.clone(), deletion: partition.deletion };
    let static_row = partition.static_row.clone().map(Fragment::StaticRow);
    std::iter::once(start).chain(static_row).chain(inner).chain([Fragment::PartitionEnd])
}

/// The updates that the replica that answered `page` needs to have all of `merged`.
pub fn lacks(
    table: &Arc<Table>,
    page: &ReadPage,
    merged: &[PartitionResult],
    reversed: bool,
) -> Vec<PartitionUpdate> {
    let missing = pairs(page, merged).filter_map(|(theirs, merged)| {
        let mut missing = difference(theirs, merged, reversed);
        let ranges = merged.range_tombstones.iter().filter(|range| is_missing(theirs, range));
        missing.range_tombstones = ranges.cloned().collect();
        (!missing.is_empty()).then(|| missing.into_update(table, reversed))
    });
    missing.collect()
}

/// [`lacks`] in steps.
pub async fn lacks_in_steps(
    table: &Arc<Table>,
    page: &ReadPage,
    merged: &[PartitionResult],
    reversed: bool,
    pace: &mut Pace,
) -> Vec<PartitionUpdate> {
    let mut out = Vec::new();
    for (theirs, merged) in pairs(page, merged) {
        let mut missing = difference(theirs, merged, reversed);
        for range in merged.range_tombstones.iter() {
            if is_missing(theirs, range) {
                missing.range_tombstones.insert(range.clone());
            }
            pace.step().await;
        }
        if !missing.is_empty() {
            out.push(missing.into_update(table, reversed));
        }
    }
    out
}

fn is_missing(theirs: Option<&PartitionResult>, range: &RangeTombstone) -> bool {
    theirs.is_none_or(|theirs| !theirs.range_tombstones.has(range))
}

/// Each merged partition with that of a page.
fn pairs<'a>(
    page: &'a ReadPage,
    merged: &'a [PartitionResult],
) -> impl Iterator<Item = (Option<&'a PartitionResult>, &'a PartitionResult)> {
    let mut theirs = page.partitions.iter().peekable();
    merged.iter().map(move |partition| {
        while theirs.next_if(|their| their.key < partition.key).is_some() {}
        (theirs.next_if(|their| their.key == partition.key), partition)
    })
}

/// The part of `merged` that is not in `theirs`, row by row, range tombstones apart.
fn difference(theirs: Option<&PartitionResult>, merged: &PartitionResult, reversed: bool) -> PartitionResult {
    let mut out = PartitionResult::new(merged.key.clone());
    let nothing = PartitionResult::new(merged.key.clone());
    let theirs = theirs.unwrap_or(&nothing);
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
    out
}
