//! Isolation of a read that stops inside a partition: the old rows that writers keep for it.
//!
//! A reader hands on rows a batch at a time, and other tasks write between two batches. A batch of statements on one
//! partition must be seen whole or not at all, so a write first stores the rows that it is about to change, as they
//! were, with every reader that stopped inside the partition and has them still ahead. Nothing is stored while no
//! reader stands there, which is nearly always: only a partition larger than one batch is ever read in several.

use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use mutation::{Clustering, Row};

/// A reader that stopped inside a partition.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// It resumes behind this row; none when it has not seen any.
    last: RefCell<Option<Clustering>>,
    reversed: bool,
    /// Rows ahead of it that were written since it began, as they were then; none for those that were not there.
    before: RefCell<BTreeMap<Clustering, Option<Row>>>,
}

impl Snapshot {
    /// Stops again, behind another row.
    pub(crate) fn advance(&self, last: Option<&Clustering>) {
        let Some(last) = last else { return };
        let mut before = self.before.borrow_mut();
        if !before.is_empty() {
            // Rows behind the reader are not asked for again.
            let ahead = before.split_off(last.position());
            if !self.reversed {
                *before = ahead;
            }
        }
        self.last.replace(Some(last.clone()));
    }

    /// The rows that were written since the reader began.
    pub(crate) fn written(&self) -> Ref<'_, BTreeMap<Clustering, Option<Row>>> {
        self.before.borrow()
    }

    fn store(&self, key: &Clustering, row: Option<&Row>) {
        let last = self.last.borrow();
        let is_ahead = last.as_ref().is_none_or(|last| if self.reversed { key < last } else { key > last });
        if is_ahead {
            self.before.borrow_mut().entry(key.clone()).or_insert_with(|| row.cloned());
        }
    }
}

/// The readers that stopped inside one partition.
#[derive(Debug, Default)]
pub(crate) struct Snapshots(RefCell<Vec<Weak<Snapshot>>>);

impl Snapshots {
    /// A reader stops behind `last`, and has seen nothing that was written since it began.
    pub(crate) fn open(&self, last: Option<Clustering>, reversed: bool) -> Rc<Snapshot> {
        let mut readers = self.0.borrow_mut();
        readers.retain(|reader| reader.strong_count() > 0);
        let snapshot = Rc::new(Snapshot { last: RefCell::new(last), reversed, before: RefCell::default() });
        readers.push(Rc::downgrade(&snapshot));
        snapshot
    }

    /// Whether a write need not record the rows that it changes.
    #[inline]
    pub(crate) fn is_empty(&mut self) -> bool {
        self.0.get_mut().is_empty()
    }

    /// Whether a reader may come back.
    pub(crate) fn has_readers(&mut self) -> bool {
        let readers = self.0.get_mut();
        readers.retain(|reader| reader.strong_count() > 0);
        !readers.is_empty()
    }

    /// A row is about to be written; none when there is none of this key yet.
    #[cold]
    pub(crate) fn before_write(&mut self, key: &Clustering, row: Option<&Row>) {
        self.0.get_mut().retain(|reader| match reader.upgrade() {
            Some(reader) => {
                reader.store(key, row);
                true
            }
            None => false,
        });
    }
}
