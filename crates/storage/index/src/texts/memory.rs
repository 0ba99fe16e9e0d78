//! The postings of a memtable.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use mutation::PartitionUpdate;
use schema::Table;

use super::entry::Entry;
use super::posting::postings_of;
use crate::definition::Definition;
use crate::place;

/// The memory of a posting beside its bytes.
const OVERHEAD: usize = 56;
/// The memory of a term beside its bytes, with the tree of its postings, whose first node has room for eleven.
const TERM_OVERHEAD: usize = 450;

type Postings = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// The postings of one index in a memtable. Each version of a text has its own: its place is followed by its number.
#[derive(Debug)]
pub struct MemoryTexts {
    definition: Arc<Definition>,
    terms: RefCell<BTreeMap<Box<[u8]>, Postings>>,
    bytes: Cell<usize>,
    /// How many texts there are, and how many terms they have.
    counts: Cell<(u64, u64)>,
}

impl MemoryTexts {
    pub(crate) fn new(definition: Arc<Definition>) -> Self {
        let (terms, bytes, counts) = (RefCell::default(), Cell::new(0), Cell::default());
        Self { definition, terms, bytes, counts }
    }

    pub(crate) fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    pub(super) fn counts(&self) -> (u64, u64) {
        self.counts.get()
    }

    /// Takes the postings of a write that its memtable takes.
    pub(crate) fn add(&self, table: &Table, update: &PartitionUpdate) {
        let mut bytes = self.bytes.get();
        let mut terms = self.terms.borrow_mut();
        let rows = update.rows().iter().map(|row| (row, false));
        for (row, is_static) in update.static_row().into_iter().map(|row| (row, true)).chain(rows) {
            let Some(fulltext) = self.definition.fulltext() else { continue };
            self.definition.values_of(table, &update.key, row, is_static, |value, _| {
                let (texts, all) = self.counts.get();
                let mut place = Vec::new();
                place::encode(&update.key, (!is_static).then_some(&row.clustering), &mut place);
                place.extend_from_slice(&texts.to_be_bytes());
                let count = postings_of(fulltext, value, |term, posting| {
                    if !terms.contains_key(term) {
                        bytes += term.len() + TERM_OVERHEAD;
                        terms.insert(term.into(), Postings::new());
                    }
                    bytes += place.len() + posting.len() + OVERHEAD;
                    let postings = terms.get_mut(term).expect("it was put there");
                    postings.insert(place.as_slice().into(), posting.into());
                });
                if let Some(count) = count {
                    self.counts.set((texts + 1, all + u64::from(count)));
                }
            });
        }
        self.bytes.set(bytes);
    }

    /// How many texts have a term.
    pub(super) fn count(&self, term: &[u8]) -> u64 {
        self.terms.borrow().get(term).map_or(0, |postings| postings.len() as u64)
    }

    /// The next postings of a term from a place on, or behind it.
    pub(super) fn postings(&self, term: &[u8], from: Bound<&[u8]>, count: usize) -> Vec<Entry> {
        let terms = self.terms.borrow();
        let Some(postings) = terms.get(term) else { return Vec::new() };
        let found = postings.range::<[u8], _>((from, Bound::Unbounded)).take(count);
        found.map(|(place, posting)| Entry { place: place.clone(), posting: posting.clone() }).collect()
    }

    /// The terms from one on, or behind it, that begin with some bytes.
    pub(super) fn terms(&self, from: Bound<&[u8]>, start: &[u8], count: usize) -> Vec<Box<[u8]>> {
        let terms = self.terms.borrow();
        let found = terms.range::<[u8], _>((from, Bound::Unbounded)).map(|(term, _)| term);
        found.take_while(|term| term.starts_with(start)).take(count).cloned().collect()
    }
}
