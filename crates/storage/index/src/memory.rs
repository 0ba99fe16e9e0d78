//! The terms of a memtable.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use mutation::PartitionUpdate;
use rt::preempt::Pace;
use schema::Table;

use crate::definition::Definition;
use crate::gather::Gather;
use crate::ordered_gather::OrderedGather;
use crate::place;
use crate::term::successor;

/// The memory of a place beside its bytes: a pointer, a length, and its share of a tree's nodes.
const OVERHEAD: usize = 40;
/// The memory of a term beside its bytes, with the tree of its places, whose first node has room for eleven.
const TERM_OVERHEAD: usize = 270;

type Terms = BTreeMap<Box<[u8]>, BTreeSet<Box<[u8]>>>;

/// The terms of one index in a memtable.
#[derive(Debug)]
pub struct MemoryTerms {
    definition: Arc<Definition>,
    terms: RefCell<Terms>,
    bytes: Cell<usize>,
}

impl MemoryTerms {
    /// Of an empty memtable.
    pub fn new(definition: Arc<Definition>) -> Self {
        Self { definition, terms: RefCell::default(), bytes: Cell::new(0) }
    }

    /// The definition of its index.
    pub fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Takes the terms of a write that its memtable takes.
    pub fn add(&self, table: &Table, update: &PartitionUpdate) {
        let mut bytes = self.bytes.get();
        let mut terms = self.terms.borrow_mut();
        let mut place = Vec::new();
        let rows = update.rows().iter().map(|row| (row, false));
        for (row, is_static) in update.static_row().into_iter().map(|row| (row, true)).chain(rows) {
            place.clear();
            self.definition.terms_of(table, &update.key, row, is_static, |term| {
                if place.is_empty() {
                    place::encode(&update.key, (!is_static).then_some(&row.clustering), &mut place);
                }
                if !terms.contains_key(term) {
                    bytes += term.len() + TERM_OVERHEAD;
                    terms.insert(term.into(), BTreeSet::new());
                }
                let places = terms.get_mut(term).expect("it was put there");
                if places.insert(place.as_slice().into()) {
                    bytes += place.len() + OVERHEAD;
                }
            });
        }
        self.bytes.set(bytes);
    }

    /// Offers the places of the terms that are wanted.
    pub(crate) async fn gather(&self, gather: &mut Gather) {
        if gather.is_void() {
            return;
        }
        let mut pace = Pace::new();
        let mut next: Bound<Box<[u8]>> = Bound::Included(gather.terms.start.as_slice().into());
        loop {
            let mut pauses_at = None;
            {
                let terms = self.terms.borrow();
                let from = (next.as_ref().map(|term| &**term), Bound::Unbounded);
                for (term, places) in terms.range::<[u8], _>(from) {
                    if gather.terms.end.as_ref().is_some_and(|end| **term >= **end) {
                        break;
                    }
                    let from = (Bound::Included(gather.start.clone().into_boxed_slice()), Bound::Unbounded);
                    for place in places.range::<Box<[u8]>, _>(from) {
                        pace.count(1);
                        if !gather.offer(place) {
                            break;
                        }
                    }
                    pace.count(1);
                    if pace.is_due() {
                        pauses_at = Some(term.clone());
                        break;
                    }
                }
            }
            match pauses_at {
                None => return,
                Some(term) => {
                    pace.pause().await;
                    next = Bound::Excluded(term);
                }
            }
        }
    }
}

impl MemoryTerms {
    /// Offers the terms and places of a scan, in its order.
    pub(crate) async fn scan(&self, gather: &mut OrderedGather) {
        let mut pace = Pace::new();
        let (mut start, mut end) = (gather.start.clone(), gather.end.clone());
        while let Some(last) = self.scan_some(gather, (&start, &end), &mut pace) {
            pace.pause().await;
            match gather.is_reversed {
                false => start = successor(&last),
                true => end = last,
            }
        }
    }

    /// Offers those between two ends, until no more are wanted or the scan has to yield: then the last one that was offered.
    fn scan_some(
        &self,
        gather: &mut OrderedGather,
        (start, end): (&[u8], &[u8]),
        pace: &mut Pace,
    ) -> Option<Vec<u8>> {
        let terms = self.terms.borrow();
        // The start may lie among the places of a term.
        let before = terms
            .range::<[u8], _>((Bound::Unbounded, Bound::Included(start)))
            .next_back()
            .map(|(term, _)| &**term);
        let first = before.filter(|term| start.starts_with(term)).unwrap_or(start);
        if first >= end {
            return None;
        }
        let mut of_terms = terms.range::<[u8], _>((Bound::Included(first), Bound::Excluded(end)));
        let mut bytes = Vec::new();
        let is_reversed = gather.is_reversed;
        while let Some((term, places)) = if is_reversed { of_terms.next_back() } else { of_terms.next() } {
            let from = start.strip_prefix(&**term).map_or(Bound::Unbounded, Bound::Included);
            let to = end.strip_prefix(&**term).map_or(Bound::Unbounded, Bound::Excluded);
            if matches!((from, to), (Bound::Included(from), Bound::Excluded(to)) if from >= to) {
                continue;
            }
            let mut of_places = places.range::<[u8], _>((from, to));
            while let Some(place) = if is_reversed { of_places.next_back() } else { of_places.next() } {
                bytes.clear();
                bytes.extend_from_slice(term);
                bytes.extend_from_slice(place);
                pace.count(1);
                if !gather.offer(&bytes, term.len()) {
                    return None;
                }
                if pace.is_due() {
                    return Some(bytes);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use mutation::{Cell as RowCell, Clustering, ColumnData, DecoratedKey, Row};
    use schema::{Index, IndexTarget, IndexedPart, TableBuilder, TableId};
    use types::CqlType;

    use super::*;

    /// Rows of as many values have a tree of places each, whose node has room for eleven.
    #[test]
    fn a_term_of_one_place_counts_with_the_node_of_its_places() {
        let table = TableBuilder::new("ks", "t", TableId([1; 16]))
            .partition_key("p", CqlType::Blob)
            .regular("v", CqlType::Blob)
            .build()
            .expect("a good table");
        let table = Arc::new(table);
        let id = table.column("v").expect("a column").id;
        let bytes = |values: u8| {
            let index = Index {
                name: "i".to_owned(),
                targets: vec![IndexTarget { column: "v".to_owned(), part: IndexedPart::Whole }],
                class: None,
                options: Default::default(),
                local: false,
            };
            let terms = MemoryTerms::new(Arc::new(Definition::new(&table, &index).expect("an index")));
            for at in 0..200_u8 {
                let key = DecoratedKey::new(Bytes::from(vec![at]));
                let mut update = PartitionUpdate::new(table.clone(), key);
                let cell = ColumnData::Simple(RowCell::live(1, Bytes::from(vec![at % values])));
                update.add_row(Row::from_columns(Clustering::empty(), vec![(id, cell)]));
                terms.add(&table, &update);
            }
            terms.bytes()
        };
        let node = 11 * size_of::<Box<[u8]>>();
        let (many, few) = (bytes(200), bytes(2));
        assert!(many > 200 * node + few, "{many} bytes of 200 terms, {few} of 2");
        assert!(many < 200 * 3 * node, "{many} bytes of 200 terms");
    }
}
