//! Range tombstones: deletions of everything between two bounds of one partition.

use std::collections::VecDeque;

use crate::range_tree::{RangeTree, Walk};
use crate::{Bound, Clustering, DeletionTime, RangeTombstone, RowRange, Slices};

/// So many ranges lie in a vector; more lie in a tree, so that adding one does not move the others.
const FEW_MAX: usize = 32;
/// The cost of a range in a tree beside itself: room that its leaf leaves free, and its share of the other nodes.
const TREE_OVERHEAD: usize = size_of::<RangeTombstone>() / 2 + 16;
/// [`RangeTombstones::free_some`] frees so many at most.
pub const RANGES_FREED_AT_ONCE: usize = crate::range_tree::ENTRIES_MAX;
/// Ranges whose changes a stream looks up at once.
const CHANGES_AT_ONCE: usize = 64;

/// The range tombstones of one partition: in order, apart from each other, with overlaps resolved in favour of the
/// deletion that hides more. A clone of many shares them.
#[derive(Clone, Debug, Default)]
pub struct RangeTombstones {
    ranges: Ranges,
    /// The content of the ranges, the tree's part left out.
    bytes: usize,
}

#[derive(Clone, Debug)]
enum Ranges {
    Few(Vec<RangeTombstone>),
    Many(RangeTree),
}

impl Default for Ranges {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

fn size(range: &RangeTombstone) -> usize {
    size_of::<RangeTombstone>() + range.start.memory_size() + range.end.memory_size()
}

impl PartialEq for RangeTombstones {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for RangeTombstones {}

impl Ranges {
    /// Takes out the ranges that touch or overlap the span from `start` to `end`; where they were in the vector.
    fn take(&mut self, start: &Bound, end: &Bound) -> (usize, Vec<RangeTombstone>) {
        match self {
            Self::Few(ranges) => {
                let first = ranges.partition_point(|range| range.end < *start);
                let last = ranges.partition_point(|range| range.start <= *end);
                (first, ranges.drain(first..last).collect())
            }
            Self::Many(ranges) => {
                // The last that begins there or before, and the one before it, which may end there.
                let before =
                    ranges.walk(Some(start.position()), true).take_while(|range| range.end >= *start);
                let from = before.last().map_or(start, |range| &range.start);
                let met = ranges.walk(Some(from.position()), false).skip_while(|range| range.end < *start);
                let met = met.take_while(|range| range.start <= *end);
                let starts: Vec<Bound> = met.map(|range| range.start.clone()).collect();
                (0, starts.iter().map(|start| ranges.remove(start)).collect())
            }
        }
    }

    /// Puts ranges, in order, where [`Ranges::take`] made room.
    fn put(&mut self, at: usize, new: impl IntoIterator<Item = RangeTombstone>) {
        match self {
            Self::Few(ranges) => {
                ranges.splice(at..at, new);
                assert!(
                    at == 0 || ranges.get(at).is_none_or(|new| ranges[at - 1].end <= new.start),
                    "range tombstones stay apart"
                );
                if ranges.len() > FEW_MAX {
                    *self = Self::Many(RangeTree::of(std::mem::take(ranges)));
                }
            }
            Self::Many(ranges) => new.into_iter().for_each(|range| ranges.insert(range)),
        }
    }

    fn walk(&self, from: Option<&[u8]>, reversed: bool) -> Walk<'_> {
        match self {
            Self::Few(ranges) => Walk::of(ranges, from, reversed),
            Self::Many(ranges) => ranges.walk(from, reversed),
        }
    }
}

impl RangeTombstones {
    /// None.
    pub const fn new() -> Self {
        Self { ranges: Ranges::Few(Vec::new()), bytes: 0 }
    }

    /// The ranges in order.
    pub fn iter(&self) -> Walk<'_> {
        self.ranges.walk(None, false)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match &self.ranges {
            Ranges::Few(ranges) => ranges.len(),
            Ranges::Many(ranges) => ranges.len(),
        }
    }

    /// Adds one, splitting it and the present ones where they overlap. An empty range adds nothing. Costs the logarithm of
    /// their number, plus the number of overlaps.
    pub fn insert(&mut self, new: RangeTombstone) {
        if new.start >= new.end || new.deletion.is_live() {
            return;
        }
        let bytes = size(&new);
        let new = match &mut self.ranges {
            Ranges::Many(ranges) => match ranges.insert_apart(new) {
                Ok(()) => {
                    self.bytes += bytes;
                    return;
                }
                Err(new) => new,
            },
            Ranges::Few(_) => new,
        };
        let (first, met) = self.ranges.take(&new.start, &new.end);
        if met.is_empty() {
            self.bytes += bytes;
            return self.ranges.put(first, [new]);
        }
        let mut pieces: Vec<RangeTombstone> = Vec::with_capacity(met.len() * 2 + 1);
        let mut push = |start: &Bound, end: &Bound, deletion: DeletionTime| {
            if start >= end {
                return;
            }
            match pieces.last_mut() {
                Some(last) if last.end == *start && last.deletion == deletion => last.end = end.clone(),
                _ => pieces.push(RangeTombstone { start: start.clone(), end: end.clone(), deletion }),
            }
        };
        let mut at = new.start.clone();
        for range in &met {
            // The part before the new range keeps its deletion; gaps take the new one; the overlap takes the larger.
            push(&range.start, &new.start, range.deletion);
            push(&at, &range.start, new.deletion);
            let (start, end) = ((&range.start).max(&new.start), (&range.end).min(&new.end));
            push(start, end, range.deletion.max(new.deletion));
            push((&new.end).max(&range.start), &range.end, range.deletion);
            at = at.max(range.end.clone());
        }
        push(&at, &new.end, new.deletion);
        self.bytes += pieces.iter().map(size).sum::<usize>();
        self.bytes -= met.iter().map(size).sum::<usize>();
        self.ranges.put(first, pieces);
    }

    /// Removes the parts within a range of rows.
    pub fn remove_within(&mut self, rows: &RowRange) {
        if self.is_empty() || rows.is_empty() {
            return;
        }
        let (first, met) = self.ranges.take(&rows.start, &rows.end);
        let outside = met.iter().flat_map(|range| {
            let before = RangeTombstone { end: range.end.clone().min(rows.start.clone()), ..range.clone() };
            let behind = RangeTombstone { start: range.start.clone().max(rows.end.clone()), ..range.clone() };
            [before, behind].into_iter().filter(|part| part.start < part.end)
        });
        let outside: Vec<RangeTombstone> = outside.collect();
        self.bytes += outside.iter().map(size).sum::<usize>();
        self.bytes -= met.iter().map(size).sum::<usize>();
        self.ranges.put(first, outside);
    }

    /// Those that overlap a range of rows, in order.
    pub fn overlapping<'a>(&'a self, rows: &'a RowRange) -> impl Iterator<Item = &'a RangeTombstone> {
        let walk = self.ranges.walk(Some(rows.start.position()), false);
        walk.skip_while(|range| range.end <= rows.start).take_while(|range| range.start < rows.end)
    }

    /// Whether this very range is one of them.
    pub fn has(&self, range: &RangeTombstone) -> bool {
        self.ranges.walk(Some(range.start.position()), true).next() == Some(range)
    }

    /// The marks of a stream in this direction: from each bound on, the deletion in force, the last one live again.
    /// In a reversed stream the bounds come in descending order.
    pub fn changes(&self, reversed: bool) -> Vec<(Bound, DeletionTime)> {
        let mut out: Vec<(Bound, DeletionTime)> = Vec::with_capacity(self.len() * 2);
        let mut push = |from: &Bound, upto: &Bound, deletion| {
            match out.last_mut() {
                // A range that begins where the one before ends takes over without a gap.
                Some((bound, open)) if bound == from => *open = deletion,
                _ => out.push((from.clone(), deletion)),
            }
            out.push((upto.clone(), DeletionTime::LIVE));
        };
        if reversed {
            let ranges = self.ranges.walk(None, true);
            ranges.for_each(|range| push(&range.end, &range.start, range.deletion));
        } else {
            self.iter().for_each(|range| push(&range.start, &range.end, range.deletion));
        }
        out
    }

    /// The range in which the row with this key lies.
    pub fn around(&self, key: &Clustering) -> Option<&RangeTombstone> {
        let before = self.ranges.walk(Some(key.position()), true).next();
        before.filter(|range| range.end.position() > key.position())
    }

    /// The deletion that covers the row with this key.
    pub fn covering(&self, key: &Clustering) -> DeletionTime {
        self.around(key).map_or(DeletionTime::LIVE, |range| range.deletion)
    }

    /// Removes ranges, or keeps them, as `keep` says.
    pub fn retain(&mut self, mut keep: impl FnMut(&RangeTombstone) -> bool) {
        match &mut self.ranges {
            Ranges::Few(ranges) => ranges.retain(keep),
            Ranges::Many(ranges) => {
                let kept = ranges.walk(None, false).filter(|range| keep(range)).cloned();
                *ranges = RangeTree::of(kept.collect::<Vec<_>>());
            }
        }
        self.bytes = self.iter().map(size).sum();
    }

    /// Bytes held, this value's own excluded. Costs nothing.
    pub fn memory_size(&self) -> usize {
        match &self.ranges {
            Ranges::Few(_) => self.bytes,
            Ranges::Many(ranges) => self.bytes + ranges.len() * TREE_OVERHEAD,
        }
    }
}

impl RangeTombstones {
    /// Frees some of them, unless a clone shares them; false when none is left. For an owner that frees many in steps.
    pub fn free_some(&mut self) -> bool {
        if let Ranges::Many(ranges) = &mut self.ranges
            && ranges.free_some()
        {
            return true;
        }
        *self = Self::new();
        false
    }
}

/// The changes that a stream announces of a partition's ranges as they are now ([`RangeTombstones::changes`]), clipped to slices: looked up
/// some at a time, so that a stream that ends early has not cost all of them.
#[derive(Clone, Debug)]
pub struct RangeChanges {
    ranges: RangeTombstones,
    reversed: bool,
    /// Index of the slice being looked up, in the direction of the stream.
    slice: usize,
    /// The start of the last range that was looked up in it.
    last: Option<Bound>,
    /// The end of that range, until it is known whether the next one begins there.
    open: Option<Bound>,
    ready: VecDeque<(Bound, DeletionTime)>,
}

impl RangeChanges {
    /// Of ranges that may change afterwards.
    pub fn new(ranges: &RangeTombstones, reversed: bool) -> Self {
        let ready = VecDeque::new();
        Self { ranges: ranges.clone(), reversed, slice: 0, last: None, open: None, ready }
    }

    /// The next change. `slices` are the same at every call.
    pub fn peek(&mut self, slices: &Slices) -> Option<&(Bound, DeletionTime)> {
        while self.ready.is_empty() {
            let ranges = slices.ranges();
            let at = if self.reversed { ranges.len().checked_sub(self.slice + 1) } else { Some(self.slice) };
            match at.and_then(|at| ranges.get(at)) {
                Some(slice) => self.look_up(slice),
                None => {
                    self.ready.push_back((self.open.take()?, DeletionTime::LIVE));
                }
            }
        }
        self.ready.front()
    }

    /// Takes the change that [`RangeChanges::peek`] has shown.
    pub fn pop(&mut self) -> Option<(Bound, DeletionTime)> {
        self.ready.pop_front()
    }

    /// Looks up the next ranges of a slice, or advances to the next slice.
    fn look_up(&mut self, slice: &RowRange) {
        let (reversed, before) = (self.reversed, self.last.take());
        let edge = if reversed { &slice.end } else { &slice.start };
        // The walk begins with the last range that was looked up, or with one that may lie before the slice.
        let is_passed = |range: &&RangeTombstone| match &before {
            Some(before) => range.start == *before,
            None if reversed => range.start >= slice.end,
            None => range.end <= slice.start,
        };
        let is_inside = |range: &&RangeTombstone| {
            if reversed { range.end > slice.start } else { range.start < slice.end }
        };
        let walk = self.ranges.ranges.walk(Some(before.as_ref().unwrap_or(edge).position()), reversed);
        let mut looked_up = 0;
        for range in walk.skip_while(is_passed).take_while(is_inside).take(CHANGES_AT_ONCE) {
            let (start, end) = ((&range.start).max(&slice.start), (&range.end).min(&slice.end));
            let (from, upto) = if reversed { (end, start) } else { (start, end) };
            // A range that begins where the one before ends takes over without a gap.
            if let Some(open) = self.open.replace(upto.clone())
                && open != *from
            {
                self.ready.push_back((open, DeletionTime::LIVE));
            }
            self.ready.push_back((from.clone(), range.deletion));
            looked_up += 1;
            if looked_up == CHANGES_AT_ONCE {
                self.last = Some(range.start.clone());
            }
        }
        self.slice += usize::from(looked_up < CHANGES_AT_ONCE);
    }
}

impl IntoIterator for RangeTombstones {
    type Item = RangeTombstone;
    type IntoIter = std::vec::IntoIter<RangeTombstone>;

    fn into_iter(self) -> Self::IntoIter {
        match self.ranges {
            Ranges::Few(ranges) => ranges.into_iter(),
            Ranges::Many(ranges) => ranges.walk(None, false).cloned().collect::<Vec<_>>().into_iter(),
        }
    }
}

impl FromIterator<RangeTombstone> for RangeTombstones {
    fn from_iter<T: IntoIterator<Item = RangeTombstone>>(iter: T) -> Self {
        let mut out = Self::new();
        iter.into_iter().for_each(|range| out.insert(range));
        out
    }
}

/// Clips range tombstones to slices, as sources do before they hand them on.
pub fn clip(ranges: &RangeTombstones, slices: &Slices) -> RangeTombstones {
    if slices.is_all() {
        return ranges.clone();
    }
    let mut out = RangeTombstones::new();
    for slice in slices.ranges() {
        for range in ranges.overlapping(slice) {
            out.insert(RangeTombstone {
                start: range.start.clone().max(slice.start.clone()),
                end: range.end.clone().min(slice.end.clone()),
                deletion: range.deletion,
            });
        }
    }
    out
}
