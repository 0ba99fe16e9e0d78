//! The vectors of a memtable, one behind the other: a search looks at each of them, a write does nothing but append.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use hnsw::Quantised;
use mutation::PartitionUpdate;
use rt::preempt::Pace;
use schema::Table;

use super::nearest::{Nearest, steps_of_comparison};
use crate::definition::Definition;
use crate::place;

/// The memory of a vector and its place beside their bytes.
const OVERHEAD: usize = size_of::<(Box<[u8]>, Quantised)>() + 32;

/// The vectors of one index in a memtable.
#[derive(Debug)]
pub struct MemoryVectors {
    definition: Arc<Definition>,
    /// Each version of a row has its own: which of them counts is known when the row is read.
    vectors: RefCell<Vec<(Box<[u8]>, Quantised)>>,
    bytes: Cell<usize>,
}

impl MemoryVectors {
    pub(crate) fn new(definition: Arc<Definition>) -> Self {
        Self { definition, vectors: RefCell::default(), bytes: Cell::new(0) }
    }

    pub(crate) fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Takes the vectors of a write that its memtable takes.
    pub(crate) fn add(&self, table: &Table, update: &PartitionUpdate) {
        let mut vectors = self.vectors.borrow_mut();
        let rows = update.rows().iter().map(|row| (row, false));
        for (row, is_static) in update.static_row().into_iter().map(|row| (row, true)).chain(rows) {
            let Some(vector) = self.definition.vector_of(table, &update.key, row, is_static) else {
                continue;
            };
            let mut place = Vec::new();
            place::encode(&update.key, (!is_static).then_some(&row.clustering), &mut place);
            self.bytes.set(self.bytes.get() + place.len() + vector.memory_size() + OVERHEAD);
            vectors.push((place.into_boxed_slice(), vector));
        }
    }

    /// Offers the vectors that are nearest.
    pub(super) async fn offer(&self, nearest: &mut Nearest) {
        let compared = steps_of_comparison(self.definition.dimensions());
        let (mut pace, mut at) = (Pace::new(), 0);
        loop {
            {
                // Those added meanwhile are looked at, too.
                let vectors = self.vectors.borrow();
                while let Some((place, vector)) = vectors.get(at) {
                    nearest.offer(place, vector.closeness(&nearest.vector, nearest.similarity));
                    at += 1;
                    pace.count(compared);
                    if pace.is_due() {
                        break;
                    }
                }
                if at == vectors.len() {
                    return;
                }
            }
            pace.pause().await;
        }
    }
}
