//! Range tombstones: deletions of everything between two bounds of one partition.

use std::collections::BTreeMap;
use std::ops::Bound::{Included, Unbounded};

use crate::{Bound, Clustering, DeletionTime, RowRange};

/// One deletion of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeTombstone {
    /// Its position.
    pub start: Bound,
    /// Where it ends; after `start`.
    pub end: Bound,
    /// What it hides.
    pub deletion: DeletionTime,
}

/// So many ranges lie in a vector; more lie in a tree, so that adding one does not move the others.
const FEW_MAX: usize = 32;
/// What a range costs in a tree beside itself: its key, and its share of the nodes.
const TREE_OVERHEAD: usize = size_of::<Bound>() + 16;

/// The range tombstones of one partition: in order, apart from each other, with overlaps resolved in favour of the
/// deletion that hides more.
#[derive(Clone, Debug, Default)]
pub struct RangeTombstones {
    ranges: Ranges,
    /// What the ranges hold, the tree's part left out.
    bytes: usize,
}

#[derive(Clone, Debug)]
enum Ranges {
    Few(Vec<RangeTombstone>),
    /// By their starts.
    Many(BTreeMap<Bound, RangeTombstone>),
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
    /// Takes out the ranges that touch or overlap what lies from `start` to `end`; where they were in the vector.
    fn take(&mut self, start: &Bound, end: &Bound) -> (usize, Vec<RangeTombstone>) {
        match self {
            Self::Few(ranges) => {
                let first = ranges.partition_point(|range| range.end < *start);
                let last = ranges.partition_point(|range| range.start <= *end);
                (first, ranges.drain(first..last).collect())
            }
            Self::Many(ranges) => {
                let before = ranges.range::<Bound, _>(..start).next_back();
                let from = before.filter(|(_, range)| range.end >= *start).map_or(start, |(from, _)| from);
                let keys: Vec<Bound> =
                    ranges.range::<Bound, _>(from..=end).map(|(key, _)| key.clone()).collect();
                (0, keys.iter().filter_map(|key| ranges.remove(key)).collect())
            }
        }
    }

    /// Puts ranges, in order, where [`Ranges::take`] made room.
    fn put(&mut self, at: usize, new: Vec<RangeTombstone>) {
        match self {
            Self::Few(ranges) => {
                assert!(
                    at == 0 || new.first().is_none_or(|new| ranges[at - 1].end <= new.start),
                    "range tombstones stay apart"
                );
                ranges.splice(at..at, new);
                if ranges.len() > FEW_MAX {
                    let ranges = std::mem::take(ranges).into_iter();
                    *self = Self::Many(ranges.map(|range| (range.start.clone(), range)).collect());
                }
            }
            Self::Many(ranges) => ranges.extend(new.into_iter().map(|range| (range.start.clone(), range))),
        }
    }

    /// The ranges that overlap what lies from `start` to `end`, in order.
    fn overlapping<'a>(
        &'a self,
        start: &'a Bound,
        end: &'a Bound,
    ) -> impl Iterator<Item = &'a RangeTombstone> {
        let (few, before, many) = match self {
            Self::Few(ranges) => {
                let first = ranges.partition_point(|range| range.end <= *start);
                (&ranges[first..], None, None)
            }
            Self::Many(ranges) => {
                let before = ranges.range::<Bound, _>(..start).next_back().map(|(_, range)| range);
                (
                    Default::default(),
                    before.filter(|range| range.end > *start),
                    Some(ranges.range::<Bound, _>(start..)),
                )
            }
        };
        let many = many.into_iter().flatten().map(|(_, range)| range);
        few.iter().chain(before).chain(many).take_while(move |range| range.start < *end)
    }
}

impl RangeTombstones {
    /// None.
    pub const fn new() -> Self {
        Self { ranges: Ranges::Few(Vec::new()), bytes: 0 }
    }

    /// The ranges in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &RangeTombstone> {
        let (few, many) = match &self.ranges {
            Ranges::Few(ranges) => (ranges.as_slice(), None),
            Ranges::Many(ranges) => (Default::default(), Some(ranges)),
        };
        few.iter().chain(many.into_iter().flat_map(BTreeMap::values))
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

    /// Adds one, splitting it and what it meets where they overlap. An empty range adds nothing. Costs the logarithm of
    /// how many there are, and what it meets.
    pub fn insert(&mut self, new: RangeTombstone) {
        if new.start >= new.end || new.deletion.is_live() {
            return;
        }
        let (first, met) = self.ranges.take(&new.start, &new.end);
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
            // What lies before the new range keeps its deletion; gaps take the new one; the overlap takes the larger.
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

    /// Those that overlap a range of rows, in order.
    pub fn overlapping<'a>(&'a self, rows: &'a RowRange) -> impl Iterator<Item = &'a RangeTombstone> {
        self.ranges.overlapping(&rows.start, &rows.end)
    }

    /// What a stream in this direction announces: from each bound on, the deletion in force, the last one live again.
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
            self.iter().rev().for_each(|range| push(&range.end, &range.start, range.deletion));
        } else {
            self.iter().for_each(|range| push(&range.start, &range.end, range.deletion));
        }
        out
    }

    /// The deletion that covers the row with this key.
    pub fn covering(&self, key: &Clustering) -> DeletionTime {
        let before = match &self.ranges {
            Ranges::Few(ranges) => {
                let next = ranges.partition_point(|range| range.start.position() <= key.position());
                next.checked_sub(1).map(|at| &ranges[at])
            }
            Ranges::Many(ranges) => {
                let upto = ranges.range::<[u8], _>((Unbounded, Included(key.position())));
                upto.map(|(_, range)| range).next_back()
            }
        };
        match before {
            Some(range) if range.end.position() > key.position() => range.deletion,
            _ => DeletionTime::LIVE,
        }
    }

    /// Removes ranges, or keeps them, as `keep` says.
    pub fn retain(&mut self, mut keep: impl FnMut(&RangeTombstone) -> bool) {
        match &mut self.ranges {
            Ranges::Few(ranges) => ranges.retain(keep),
            Ranges::Many(ranges) => ranges.retain(|_, range| keep(range)),
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

impl FromIterator<RangeTombstone> for RangeTombstones {
    fn from_iter<T: IntoIterator<Item = RangeTombstone>>(iter: T) -> Self {
        let mut out = Self::new();
        iter.into_iter().for_each(|range| out.insert(range));
        out
    }
}
