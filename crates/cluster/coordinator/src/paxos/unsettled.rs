//! Partitions whose vote is in memtables and perhaps not on disk: the commit log did not take it, or nobody waited until it had.
//!
//! A vote that follows builds on the state that it reads, writes the changed part, and is taken to have the rest on disk already: `settle` writes all
//! of it again before.

use std::cell::RefCell;

use mutation::DecoratedKey;
use schema::TableId;
use stdx::HashSet;

/// A partition.
pub(super) type Key = (TableId, DecoratedKey);

/// The partitions of a shard whose last vote may not be on disk. More than the maximum by the votes under way at most.
#[derive(Default)]
pub(super) struct Unsettled(RefCell<HashSet<Key>>);

impl Unsettled {
    /// Whether a partition is one of them.
    pub(super) fn contains(&self, key: &Key) -> bool {
        self.0.borrow().contains(key)
    }

    /// Another partition than `key` that has to be written again before `key` may be voted on, as there are `max` of them.
    pub(super) fn in_the_way(&self, key: &Key, max: usize) -> Option<Key> {
        let all = self.0.borrow();
        if all.len() < max || all.contains(key) {
            return None;
        }
        let first = all.iter().next().cloned();
        assert!(first.is_some(), "a full set has a partition");
        first
    }

    /// All of its state is on disk, or nobody asks for it any more.
    pub(super) fn settled(&self, key: &Key) {
        self.0.borrow_mut().remove(key);
    }

    /// To be called before a vote on a partition is written; [`Writing::done`] when all of it is on disk as its request asks.
    pub(super) fn writing(&self, table: TableId, key: &DecoratedKey) -> Writing<'_> {
        let key = (table, key.clone());
        assert!(!self.contains(&key), "a vote is written over one that is on disk");
        Writing { unsettled: self, key, is_done: false }
    }
}

/// A vote that is being written. Its partition is unsettled when this is dropped before it is done: the write has failed, or is waited for no longer.
pub(super) struct Writing<'a> {
    unsettled: &'a Unsettled,
    key: Key,
    is_done: bool,
}

impl Writing<'_> {
    pub(super) fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.unsettled.0.borrow_mut().insert(self.key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn key(name: &'static str) -> DecoratedKey {
        DecoratedKey::new(Bytes::from_static(name.as_bytes()))
    }

    #[test]
    fn a_vote_that_did_not_end_is_remembered_and_a_full_set_lets_only_its_own_vote() {
        let (unsettled, table) = (Unsettled::default(), TableId([1; 16]));
        unsettled.writing(table, &key("a")).done();
        assert!(!unsettled.contains(&(table, key("a"))));
        drop(unsettled.writing(table, &key("a")));
        assert!(unsettled.contains(&(table, key("a"))));
        assert_eq!(unsettled.in_the_way(&(table, key("b")), 2), None, "there is room");
        drop(unsettled.writing(table, &key("b")));
        assert_eq!(unsettled.in_the_way(&(table, key("b")), 2), None, "its own vote makes room");
        let first = unsettled.in_the_way(&(table, key("c")), 2).expect("it is full");
        unsettled.settled(&first);
        assert_eq!(unsettled.in_the_way(&(table, key("c")), 2), None);
    }
}
