//! The set of SSTables of one table, and the names that it gives out.

use std::cell::{Cell, Ref, RefCell};
use std::ops::Deref;
use std::rc::{Rc, Weak};

use mutation::{DecoratedKey, PartitionRange, Timestamp};
use sstable::Descriptor;
use sstable::filter::HashedKey;

use crate::generation::next_generation_after;
use crate::intervals::Intervals;
use crate::live::LiveSstable;

/// The SSTables of a table at a moment.
#[derive(Default)]
pub(crate) struct SstableSet {
    members: Vec<Rc<LiveSstable>>,
    intervals: Intervals,
    /// The latest timestamp of all that they hold.
    newest: Timestamp,
}

impl SstableSet {
    fn of(members: Vec<Rc<LiveSstable>>) -> Self {
        let bounds = |member: usize| bounds_of(&members, member);
        let intervals = Intervals::of(members.len(), bounds);
        let newest = members.iter().map(|live| live.sstable.max_timestamp()).max().unwrap_or(Timestamp::MIN);
        Self { members, intervals, newest }
    }

    /// No cell, mark or deletion in them has a later timestamp.
    #[inline]
    pub(crate) fn newest(&self) -> Timestamp {
        self.newest
    }

    /// Those that may hold a partition, by their key ranges and bloom filters.
    #[inline]
    pub(crate) fn holding(&self, hashed: &HashedKey<'_>, mut each: impl FnMut(&Rc<LiveSstable>)) {
        let (key, members) = (hashed.key(), &self.members);
        let ends_before = |member: usize| bounds_of(members, member).1 < key;
        let begins_after = |member: usize| key < bounds_of(members, member).0;
        self.intervals.overlapping(ends_before, begins_after, |member| {
            if let Some(live) = members.get(member).filter(|live| live.sstable.may_contain_hashed(hashed)) {
                each(live);
            }
        });
    }

    /// Those whose key ranges overlap a range of partitions.
    pub(crate) fn overlapping(&self, range: &PartitionRange) -> Vec<Rc<LiveSstable>> {
        let members = &self.members;
        let ends_before = |member: usize| !range.start.is_before(bounds_of(members, member).1);
        let begins_after = |member: usize| range.end.is_before(bounds_of(members, member).0);
        let mut found = Vec::new();
        self.intervals
            .overlapping(ends_before, begins_after, |member| found.extend(members.get(member).cloned()));
        found
    }
}

/// The first and the last partition of a member.
fn bounds_of(members: &[Rc<LiveSstable>], member: usize) -> (&DecoratedKey, &DecoratedKey) {
    let sstable = &members[member].sstable;
    (sstable.first(), sstable.last())
}

impl Deref for SstableSet {
    type Target = [Rc<LiveSstable>];

    fn deref(&self) -> &Self::Target {
        &self.members
    }
}

/// A figure of a set of SSTables, computed again when the set has changed.
#[derive(Default)]
pub(crate) struct OfSet<T>(RefCell<(Weak<SstableSet>, T)>);

impl<T: Copy> OfSet<T> {
    /// The figure of this set: the last one if it was of the same set and `holds`.
    pub(crate) fn get(
        &self,
        set: &Rc<SstableSet>,
        holds: impl FnOnce(&T) -> bool,
        compute: impl FnOnce() -> T,
    ) -> T {
        if let (of, figure) = &*self.0.borrow()
            && std::ptr::eq(of.as_ptr(), Rc::as_ptr(set))
            && holds(figure)
        {
            return *figure;
        }
        let figure = compute();
        self.0.replace((Rc::downgrade(set), figure));
        figure
    }
}

/// The SSTables of one table.
#[derive(Default)]
pub(crate) struct Sstables {
    set: RefCell<Rc<SstableSet>>,
    /// The largest generation that is taken.
    generation: Cell<u64>,
    /// SSTables that did not enter the set and could not be removed.
    orphans: RefCell<Vec<Descriptor>>,
    has_dir: Cell<bool>,
}

impl Sstables {
    /// The set now, without a copy.
    #[inline]
    pub(crate) fn current(&self) -> Ref<'_, Rc<SstableSet>> {
        self.set.borrow()
    }

    /// The set of this moment.
    pub(crate) fn set(&self) -> Rc<SstableSet> {
        self.set.borrow().clone()
    }

    /// Changes the set: takes `removed` out and puts `added` in.
    pub(crate) fn change(&self, added: Vec<Rc<LiveSstable>>, removed: &[Rc<LiveSstable>]) {
        let mut members = self.set().to_vec();
        let before = members.len();
        members.retain(|live| !removed.iter().any(|gone| Rc::ptr_eq(live, gone)));
        assert_eq!(members.len() + removed.len(), before, "only members of the set are removed");
        let is_member = |live: &Rc<LiveSstable>| {
            let generation = &live.sstable.descriptor().generation;
            members.iter().any(|member| member.sstable.descriptor().generation == *generation)
        };
        assert!(!added.iter().any(is_member), "an SSTable enters the set once");
        members.extend(added);
        *self.set.borrow_mut() = Rc::new(SstableSet::of(members));
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
