//! The set of SSTables of one table, and the names that it gives out.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;

use sstable::Descriptor;

use crate::generation::next_generation_after;
use crate::live::LiveSstable;

/// The SSTables of a table at a moment.
pub(crate) type SstableSet = Rc<Vec<Rc<LiveSstable>>>;

/// The SSTables of one table.
#[derive(Default)]
pub(crate) struct Sstables {
    set: RefCell<SstableSet>,
    /// The largest generation that is taken.
    generation: Cell<u64>,
    /// SSTables that did not enter the set and could not be removed.
    orphans: RefCell<Vec<Descriptor>>,
    has_dir: Cell<bool>,
}

impl Sstables {
    /// The set now, without a copy.
    #[inline]
    pub(crate) fn current(&self) -> Ref<'_, SstableSet> {
        self.set.borrow()
    }

    /// The set of this moment.
    pub(crate) fn set(&self) -> SstableSet {
        self.set.borrow().clone()
    }

    /// Changes the set: takes `removed` out and puts `added` in.
    pub(crate) fn change(&self, added: Vec<Rc<LiveSstable>>, removed: &[Rc<LiveSstable>]) {
        let mut set: Vec<Rc<LiveSstable>> = self.set().as_ref().clone();
        let before = set.len();
        set.retain(|live| !removed.iter().any(|gone| Rc::ptr_eq(live, gone)));
        assert_eq!(set.len() + removed.len(), before, "only members of the set are removed");
        let is_member = |generation| set.iter().any(|one| one.sstable.descriptor().generation == generation);
        assert!(
            !added.iter().any(|live| is_member(live.sstable.descriptor().generation.clone())),
            "an SSTable enters the set once"
        );
        set.extend(added);
        *self.set.borrow_mut() = Rc::new(set);
    }

    /// Generations up to this are taken, by any shard.
    pub(crate) fn set_taken(&self, generation: u64) {
        assert!(generation >= self.generation.get(), "generations that are taken stay taken");
        self.generation.set(generation);
    }

    /// A generation that no other SSTable has, on any shard: shard `shard` of `count` takes those equal to it modulo
    /// the count.
    pub(crate) fn next_generation(&self, shard: u16, count: u16) -> u64 {
        let before = self.generation.get();
        let generation = next_generation_after(before, shard, count);
        assert!(generation > before, "a generation is given out once");
        self.generation.set(generation);
        generation
    }

    /// Whether the table's directory is there for certain.
    pub(crate) fn has_dir(&self) -> bool {
        self.has_dir.get()
    }

    /// The table's directory is durable.
    pub(crate) fn dir_is_made(&self) {
        self.has_dir.set(true);
    }

    /// An SSTable did not enter the set and could not be removed: it goes with the next edit.
    pub(crate) fn add_orphan(&self, orphan: Descriptor) {
        let is_member = self.current().iter().any(|live| *live.sstable.descriptor() == orphan);
        assert!(!is_member, "an SSTable of the set is no orphan");
        self.orphans.borrow_mut().push(orphan);
    }

    /// SSTables that did not enter the set and could not be removed.
    pub(crate) fn orphans(&self) -> Vec<Descriptor> {
        self.orphans.borrow().clone()
    }

    /// An edit took these along.
    pub(crate) fn forget_orphans(&self, gone: &[Descriptor]) {
        self.orphans.borrow_mut().retain(|orphan| !gone.contains(orphan));
    }
}
