//! A search for the nearest vectors, and the nearest places that it has met so far.

use hnsw::{Quantised, Similarity};

use crate::best::Best;

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
