//! The best places that a search has met so far.

use std::collections::{BTreeMap, BTreeSet};

/// The best places so far, each once, by its greatest score.
#[derive(Debug)]
pub(crate) struct Best {
    count: usize,
    places: BTreeMap<Box<[u8]>, Order>,
    order: BTreeSet<(Order, Box<[u8]>)>,
}

/// A score that is ordered by `total_cmp`.
#[derive(Clone, Copy, Debug)]
struct Order(f32);

impl Ord for Order {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Order {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Order {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Order {}

impl Best {
    pub(crate) fn new(count: usize) -> Self {
        Self { count, places: BTreeMap::new(), order: BTreeSet::new() }
    }

    /// Takes a place, if its score is great enough.
    pub(crate) fn offer(&mut self, place: &[u8], score: f32) {
        let is_full = self.order.len() == self.count;
        if is_full && self.order.first().is_none_or(|(least, _)| Order(score) <= *least) {
            return;
        }
        if let Some(known) = self.places.get_mut(place) {
            if *known >= Order(score) {
                return;
            }
            self.order.remove(&(*known, place.into()));
            *known = Order(score);
        } else {
            self.places.insert(place.into(), Order(score));
        }
        self.order.insert((Order(score), place.into()));
        if self.order.len() > self.count
            && let Some((_, worst)) = self.order.pop_first()
        {
            self.places.remove(&worst);
        }
        debug_assert_eq!(self.places.len(), self.order.len(), "each place has its place in the order");
    }

    /// The places with their scores, the greatest first.
    pub(crate) fn into_places(self) -> impl Iterator<Item = (f32, Box<[u8]>)> {
        self.order.into_iter().rev().map(|(Order(score), place)| (score, place))
    }
}
