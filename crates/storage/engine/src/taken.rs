//! SSTables that a compaction has taken: no other takes them until they are given back.

use std::cell::Cell;
use std::rc::Rc;

use crate::live::LiveSstable;

/// The limits of compactions.
pub(crate) trait Takable {
    /// Set while a compaction owns it.
    fn compacting(&self) -> &Cell<bool>;
}

impl Takable for LiveSstable {
    fn compacting(&self) -> &Cell<bool> {
        &self.compacting
    }
}

/// SSTables that a compaction has taken, until it is dropped.
pub(crate) struct Taken<T: Takable>(Vec<Rc<T>>);

impl<T: Takable> Taken<T> {
    /// Takes SSTables that are free.
    pub(crate) fn new(sstables: Vec<Rc<T>>) -> Self {
        for one in &sstables {
            let was_taken = one.compacting().replace(true);
            assert!(!was_taken, "an SSTable is taken by one compaction at a time");
        }
        Self(sstables)
    }

    /// Those that are taken.
    pub(crate) fn sstables(&self) -> &[Rc<T>] {
        &self.0
    }

    /// Gives back the others: another compaction may take them from here on.
    pub(crate) fn retain(&mut self, kept: &[Rc<T>]) {
        self.0.retain(|one| {
            let is_kept = kept.iter().any(|kept| Rc::ptr_eq(one, kept));
            if !is_kept {
                give_back(&**one);
            }
            is_kept
        });
        assert_eq!(self.0.len(), kept.len(), "a compaction keeps SSTables that it has taken");
    }
}

impl<T: Takable> Drop for Taken<T> {
    fn drop(&mut self) {
        self.0.iter().for_each(|one| give_back(&**one));
    }
}

fn give_back(one: &impl Takable) {
    let was_taken = one.compacting().replace(false);
    assert!(was_taken, "an SSTable that is given back was taken");
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One(Cell<bool>);

    impl Takable for One {
        fn compacting(&self) -> &Cell<bool> {
            &self.0
        }
    }

    /// A compaction that left out an SSTable for want of room does not give it back a second time, when another owns it.
    #[test]
    fn a_left_out_item_belongs_to_its_next_taker() {
        let all = [(); 3].map(|()| Rc::new(One(Cell::new(false))));
        let mut first = Taken::new(all.to_vec());
        first.retain(&all[..2]);
        let second = Taken::new(vec![all[2].clone()]);
        drop(first);
        assert_eq!(all.each_ref().map(|one| one.0.get()), [false, false, true]);
        drop(second);
        assert!(!all[2].0.get());
    }
}
