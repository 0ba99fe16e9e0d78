//! The nearest places that a search has met so far.

use std::collections::{BTreeMap, BTreeSet};

use hnsw::{Quantised, Similarity};

/// The nearest places so far, each once with its nearest vector.
#[derive(Debug)]
pub(super) struct Nearest {
    pub(super) vector: Quantised,
    pub(super) similarity: Similarity,
    pub(super) count: usize,
    places: BTreeMap<Box<[u8]>, Order>,
    order: BTreeSet<(Order, Box<[u8]>)>,
}

/// A closeness that is ordered by `total_cmp`.
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

impl Nearest {
    pub(super) fn new(vector: Quantised, similarity: Similarity, count: usize) -> Self {
        Self { vector, similarity, count, places: BTreeMap::new(), order: BTreeSet::new() }
    }

    /// Takes a place, if its vector is near enough.
    pub(super) fn offer(&mut self, place: &[u8], closeness: f32) {
        let is_full = self.order.len() == self.count;
        if is_full && self.order.first().is_none_or(|(least, _)| Order(closeness) <= *least) {
            return;
        }
        if let Some(known) = self.places.get_mut(place) {
            if *known >= Order(closeness) {
                return;
            }
            self.order.remove(&(*known, place.into()));
            *known = Order(closeness);
        } else {
            self.places.insert(place.into(), Order(closeness));
        }
        self.order.insert((Order(closeness), place.into()));
        if self.order.len() > self.count
            && let Some((_, farthest)) = self.order.pop_first()
        {
            self.places.remove(&farthest);
        }
        debug_assert_eq!(self.places.len(), self.order.len(), "each place has its place in the order");
    }

    /// The places with their closeness, the nearest first.
    pub(super) fn into_places(self) -> impl Iterator<Item = (f32, Box<[u8]>)> {
        self.order.into_iter().rev().map(|(Order(closeness), place)| (closeness, place))
    }
}
