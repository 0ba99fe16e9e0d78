//! The first places of a query, collected over several sources.

use std::collections::BTreeSet;

use mutation::{PartitionRange, Slices};

use crate::definition::{TermRange, successor};
use crate::place;

/// The places that a query wants, and the first of them that were found.
///
/// Sources offer places in any order; at most `limit` are held, the least ones.
#[derive(Debug)]
pub struct Gather {
    pub(crate) terms: TermRange,
    /// Places below are out.
    pub(crate) start: Vec<u8>,
    /// Places from here on are out; none for no end.
    pub(crate) end: Option<Vec<u8>>,
    limit: usize,
    found: BTreeSet<Box<[u8]>>,
}

impl Gather {
    pub(crate) fn new(terms: TermRange, range: &PartitionRange, slices: &Slices, limit: usize) -> Self {
        assert!(limit > 0, "a query wants something");
        let mut start = place::bound(&range.start);
        if let (Some(key), false, Some(first)) = (range.as_single(), slices.is_all(), slices.ranges().first())
        {
            start = Some(place::row_bound(key, first.start.position()));
        }
        let end = place::bound(&range.end);
        // Nothing lies behind the last token.
        let (start, end) = match start {
            Some(start) => (start, end),
            None => (vec![0xff], Some(Vec::new())),
        };
        Self { terms, start, end, limit, found: BTreeSet::new() }
    }

    /// Whether a place is before all those that are wanted, among them, or behind.
    pub(crate) fn compare(&self, place: &[u8]) -> std::cmp::Ordering {
        if place < &self.start[..] {
            return std::cmp::Ordering::Less;
        }
        let is_behind = self.end.as_ref().is_some_and(|end| place >= &end[..])
            || self.found.len() == self.limit && self.found.last().is_some_and(|last| place > &last[..]);
        if is_behind { std::cmp::Ordering::Greater } else { std::cmp::Ordering::Equal }
    }

    /// Takes a place, if it is wanted; false when neither it nor a greater one is.
    pub(crate) fn offer(&mut self, place: &[u8]) -> bool {
        match self.compare(place) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Greater => false,
            std::cmp::Ordering::Equal => {
                if !self.found.contains(place) {
                    self.found.insert(place.into());
                    if self.found.len() > self.limit {
                        self.found.pop_last();
                    }
                }
                true
            }
        }
    }

    /// No places or terms can be found.
    pub(crate) fn is_void(&self) -> bool {
        self.terms.is_empty() || self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// The places found, in order; the next search resumes behind them. False with them when there are no others.
    pub(crate) fn take(&mut self) -> (BTreeSet<Box<[u8]>>, bool) {
        let found = std::mem::take(&mut self.found);
        let is_more = found.len() == self.limit;
        if let Some(last) = found.last() {
            self.start = successor(last);
        }
        (found, is_more)
    }
}
