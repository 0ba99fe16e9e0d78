//! The first places of a query, collected over several sources.

use std::collections::BTreeSet;

use mutation::{PartitionRange, Slices};

use crate::definition::TermRange;
use crate::place;
use crate::term::successor;

/// Places in order.
#[derive(Debug)]
enum Found {
    /// Of one term: each source has its places in order, so that most are behind the last.
    Run(Vec<Box<[u8]>>),
    /// Of several terms.
    Tree(BTreeSet<Box<[u8]>>),
}

impl Found {
    fn len(&self) -> usize {
        match self {
            Self::Run(places) => places.len(),
            Self::Tree(places) => places.len(),
        }
    }

    fn last(&self) -> Option<&[u8]> {
        match self {
            Self::Run(places) => places.last(),
            Self::Tree(places) => places.last(),
        }
        .map(|place| &**place)
    }

    fn insert(&mut self, place: &[u8]) {
        match self {
            Self::Run(places) => {
                if places.last().is_none_or(|last| **last < *place) {
                    places.push(place.into());
                } else if let Err(at) = places.binary_search_by(|known| (**known).cmp(place)) {
                    places.insert(at, place.into());
                }
            }
            Self::Tree(places) => {
                if !places.contains(place) {
                    places.insert(place.into());
                }
            }
        }
    }

    fn pop_last(&mut self) {
        match self {
            Self::Run(places) => _ = places.pop(),
            Self::Tree(places) => _ = places.pop_last(),
        }
    }

    fn take(&mut self) -> Vec<Box<[u8]>> {
        match self {
            Self::Run(places) => std::mem::take(places),
            Self::Tree(places) => std::mem::take(places).into_iter().collect(),
        }
    }
}

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
    /// The most places that are held: the least ones.
    pub(crate) limit: usize,
    found: Found,
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
        let found = if terms.is_one() { Found::Run(Vec::new()) } else { Found::Tree(BTreeSet::new()) };
        Self { terms, start, end, limit, found }
    }

    /// Whether a place is before all those that are wanted, among them, or behind.
    pub(crate) fn compare(&self, place: &[u8]) -> std::cmp::Ordering {
        if place < &self.start[..] {
            return std::cmp::Ordering::Less;
        }
        let is_behind = self.end.as_ref().is_some_and(|end| place >= &end[..])
            || self.found.len() == self.limit && self.found.last().is_some_and(|last| place > last);
        if is_behind { std::cmp::Ordering::Greater } else { std::cmp::Ordering::Equal }
    }

    /// Takes a place, if it is wanted; false when neither it nor a greater one is.
    pub(crate) fn offer(&mut self, place: &[u8]) -> bool {
        match self.compare(place) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Greater => false,
            std::cmp::Ordering::Equal => {
                self.found.insert(place);
                if self.found.len() > self.limit {
                    self.found.pop_last();
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
    pub(crate) fn take(&mut self) -> (Vec<Box<[u8]>>, bool) {
        let found = self.found.take();
        let is_more = found.len() == self.limit;
        if let Some(last) = found.last() {
            self.start = successor(last);
        }
        (found, is_more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sources one behind the other, each with its places in order, and those of several terms in any order.
    #[test]
    fn the_least_places_are_collected_once_and_in_order() {
        let term = TermRange { start: b"a".to_vec(), end: Some(b"a\0".to_vec()) };
        let terms = TermRange { start: b"a".to_vec(), end: None };
        for (terms, is_one) in [(term, true), (terms, false)] {
            assert_eq!(terms.is_one(), is_one);
            let mut gather = Gather::new(terms, &PartitionRange::all(), &Slices::all(), 4);
            for source in [[2, 4, 6, 8, 10], [1, 4, 5, 9, 11], [3, 6, 7, 8, 9]] {
                for place in source {
                    let is_wanted = gather.offer(&[place]);
                    assert!(is_wanted || place > 4, "{place} of {source:?}");
                }
            }
            let places: Vec<Box<[u8]>> = [1, 2, 3, 4].map(|place: u8| [place].into()).into();
            assert_eq!(gather.take(), (places, true));
            assert!(gather.offer(&[4]) && gather.offer(&[5]));
            assert_eq!(gather.take(), (vec![[5].into()], false), "resumes behind the last");
        }
    }
}
