//! Range tombstones: deletions of everything between two bounds of one partition.

use crate::{Bound, Clustering, DeletionTime};

/// One deletion of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeTombstone {
    /// Where it begins.
    pub start: Bound,
    /// Where it ends; after `start`.
    pub end: Bound,
    /// What it hides.
    pub deletion: DeletionTime,
}

/// The range tombstones of one partition: in order, apart from each other, with overlaps resolved in favour of the
/// deletion that hides more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeTombstones {
    ranges: Vec<RangeTombstone>,
}

impl RangeTombstones {
    /// None.
    pub const fn new() -> Self {
        Self { ranges: Vec::new() }
    }

    /// The ranges in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &RangeTombstone> {
        self.ranges.iter()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Adds one, splitting it and what it meets where they overlap. An empty range adds nothing.
    pub fn insert(&mut self, new: RangeTombstone) {
        if new.start >= new.end || new.deletion.is_live() {
            return;
        }
        let first = self.ranges.partition_point(|range| range.end < new.start);
        let last = self.ranges.partition_point(|range| range.start <= new.end);
        let met: Vec<RangeTombstone> = self.ranges[first..last].to_vec();
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
        self.ranges.splice(first..last, pieces);
        assert!(
            first == 0
                || first >= self.ranges.len()
                || self.ranges[first - 1].end <= self.ranges[first].start,
            "range tombstones stay apart"
        );
    }

    /// What a stream in this direction announces: from each bound on, the deletion in force, the last one live again.
    /// In a reversed stream the bounds come in descending order.
    pub fn changes(&self, reversed: bool) -> Vec<(Bound, DeletionTime)> {
        let mut out: Vec<(Bound, DeletionTime)> = Vec::with_capacity(self.ranges.len() * 2);
        let mut push = |from: &Bound, upto: &Bound, deletion| {
            match out.last_mut() {
                // A range that begins where the one before ends takes over without a gap.
                Some((bound, open)) if bound == from => *open = deletion,
                _ => out.push((from.clone(), deletion)),
            }
            out.push((upto.clone(), DeletionTime::LIVE));
        };
        if reversed {
            self.ranges.iter().rev().for_each(|range| push(&range.end, &range.start, range.deletion));
        } else {
            self.ranges.iter().for_each(|range| push(&range.start, &range.end, range.deletion));
        }
        out
    }

    /// The deletion that covers the row with this key.
    pub fn covering(&self, key: &Clustering) -> DeletionTime {
        let at = self.ranges.partition_point(|range| range.end.position() <= key.position());
        match self.ranges.get(at) {
            Some(range) if range.start.position() <= key.position() => range.deletion,
            _ => DeletionTime::LIVE,
        }
    }

    /// Removes ranges, or keeps them, as `keep` says.
    pub fn retain(&mut self, keep: impl FnMut(&RangeTombstone) -> bool) {
        self.ranges.retain(keep);
    }

    /// Bytes held, this value's own excluded.
    pub fn memory_size(&self) -> usize {
        self.ranges
            .iter()
            .map(|range| size_of::<RangeTombstone>() + range.start.memory_size() + range.end.memory_size())
            .sum()
    }
}

impl FromIterator<RangeTombstone> for RangeTombstones {
    fn from_iter<T: IntoIterator<Item = RangeTombstone>>(iter: T) -> Self {
        let mut out = Self::new();
        iter.into_iter().for_each(|range| out.insert(range));
        out
    }
}
