//! A search for the nearest vectors, and the nearest places that it has met so far.

use hnsw::{Quantised, Similarity};

use crate::best::Best;

/// A step of an insertion into a graph, or of a search in it, in steps of [`rt::preempt::Pace`].
pub(super) const STEPS: usize = 100;
/// Products of components that take as long as such a step.
const PRODUCTS: usize = 1 << 18;

/// A comparison of two vectors in steps of [`rt::preempt::Pace`].
pub(super) fn steps_of_comparison(dimensions: usize) -> usize {
    (dimensions * STEPS).div_ceil(PRODUCTS)
}

/// The nearest places so far, each once with its nearest vector.
#[derive(Debug)]
pub(super) struct Nearest {
    pub(super) vector: Quantised,
    pub(super) similarity: Similarity,
    pub(super) count: usize,
    pub(super) best: Best,
}

impl Nearest {
    pub(super) fn new(vector: Quantised, similarity: Similarity, count: usize) -> Self {
        Self { vector, similarity, count, best: Best::new(count) }
    }

    /// Takes a place, if its vector is near enough.
    pub(super) fn offer(&mut self, place: &[u8], closeness: f32) {
        self.best.offer(place, closeness);
    }
}
