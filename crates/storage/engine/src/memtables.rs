//! The memtables of one table: the one that takes writes, and those on their way to SSTables.

use std::cell::{Cell, Ref, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use index::{Definition, MemoryIndex};
use memtable::Memtable;
use mutation::{DecoratedKey, PartitionUpdate, Timestamp};
use rt::Instant;
use rt::sync::Notify;
use schema::Table;

use crate::live::LiveSstable;

/// A memtable that takes no more writes and is on its way to an SSTable.
pub(crate) struct Flushing {
    pub(crate) memtable: Memtable,
    indexes: MemoryIndexes,
    /// Number of its first log entry; none when its writes are not logged.
    pub(crate) first: Option<u64>,
    /// Its log entries have numbers below this.
    pub(crate) before: u64,
    /// The SSTable that it was written to, once it was.
    pub(crate) written: RefCell<Option<Rc<LiveSstable>>>,
    /// How often writing it failed, and why the last time.
    pub(crate) failure: RefCell<(u64, Option<String>)>,
    pub(crate) done: Cell<bool>,
    /// Its SSTable is in the set, and nothing can fail any more before it is done: until then readers find its rows in both.
    pub(crate) published: Cell<bool>,
    /// Notified after every attempt.
    pub(crate) attempted: Notify,
}

impl Flushing {
    /// Bytes that it holds, with its indexes.
    pub(crate) fn bytes(&self) -> usize {
        self.memtable.bytes() + self.indexes.bytes()
    }
}

/// The indexes of one memtable.
#[derive(Clone, Default)]
struct MemoryIndexes(Rc<[Rc<MemoryIndex>]>);

impl MemoryIndexes {
    /// Of an empty memtable.
    fn new(definitions: &[Arc<Definition>]) -> Self {
        Self(definitions.iter().map(|definition| Rc::new(MemoryIndex::new(definition.clone()))).collect())
    }

    #[inline]
    fn bytes(&self) -> usize {
        self.0.iter().map(|index| index.bytes()).sum()
    }

    fn get(&self, definition: &Definition) -> Option<&Rc<MemoryIndex>> {
        self.0.iter().find(|index| **index.definition() == *definition)
    }
}

fn definitions_of(table: &Table) -> Rc<[Arc<Definition>]> {
    table.indexes.values().filter_map(|index| Definition::new(table, index)).map(Arc::new).collect()
}

/// The memtables of one table.
pub(crate) struct Memtables {
    active: RefCell<Memtable>,
    /// The indexes of the active memtable. It may lack one that was created after its first write, and have one that was dropped.
    indexes: RefCell<MemoryIndexes>,
    /// The indexes of the table.
    definitions: RefCell<Rc<[Arc<Definition>]>>,
    /// Number of the first log entry of the active memtable.
    first: Cell<Option<u64>>,
    /// When the active memtable took its first write.
    since: Cell<Instant>,
    /// Oldest first.
    flushing: RefCell<VecDeque<Rc<Flushing>>>,
    /// A task writes them to SSTables.
    is_flushing: Cell<bool>,
    /// Memtables that were closed since start.
    switches: Cell<u64>,
}

impl Memtables {
    pub(crate) fn new(table: Arc<Table>) -> Self {
        let definitions = definitions_of(&table);
        Self {
            active: RefCell::new(Memtable::new(table)),
            indexes: RefCell::new(MemoryIndexes::new(&definitions)),
            definitions: RefCell::new(definitions),
            first: Cell::new(None),
            since: Cell::new(Instant::START),
            flushing: RefCell::default(),
            is_flushing: Cell::new(false),
            switches: Cell::new(0),
        }
    }

    /// The indexes of the table.
    pub(crate) fn definitions(&self) -> Rc<[Arc<Definition>]> {
        self.definitions.borrow().clone()
    }

    /// Takes over the indexes of a changed definition of the table.
    pub(crate) fn set_indexes_of(&self, table: &Table) {
        let definitions = definitions_of(table);
        if *self.definitions.borrow() == definitions {
            return;
        }
        if self.active.borrow().is_empty() {
            *self.indexes.borrow_mut() = MemoryIndexes::new(&definitions);
        }
        *self.definitions.borrow_mut() = definitions;
    }

    /// Whether the active memtable lacks one of the table's indexes.
    pub(crate) fn lacks_index(&self) -> bool {
        let indexes = self.indexes.borrow();
        !self.active.borrow().is_empty()
            && self.definitions.borrow().iter().any(|definition| indexes.get(definition).is_none())
    }

    /// This index of each memtable; none when a memtable that is not empty lacks it.
    pub(crate) fn indexes(&self, definition: &Definition) -> Option<Vec<Rc<MemoryIndex>>> {
        let mut found = Vec::new();
        match self.indexes.borrow().get(definition) {
            Some(index) => found.push(index.clone()),
            None if self.active.borrow().is_empty() => {}
            None => return None,
        }
        for flushing in self.flushing.borrow().iter() {
            found.push(flushing.indexes.get(definition)?.clone());
        }
        Some(found)
    }

    /// Bytes of the memtable that takes writes, with its indexes.
    pub(crate) fn active_bytes(&self) -> usize {
        self.active.borrow().bytes() + self.indexes.borrow().bytes()
    }

    /// The memtable that takes writes.
    #[inline]
    pub(crate) fn active(&self) -> Ref<'_, Memtable> {
        self.active.borrow()
    }

    /// Whether no other memtable is there than the active one.
    #[inline]
    pub(crate) fn is_one(&self) -> bool {
        self.flushing.borrow().is_empty()
    }

    /// How many are on their way to SSTables.
    pub(crate) fn flushing(&self) -> usize {
        self.flushing.borrow().len()
    }

    /// Number of the first log entry of the active memtable.
    pub(crate) fn active_first(&self) -> Option<u64> {
        self.first.get()
    }

    /// When the active memtable took its first write.
    pub(crate) fn active_since(&self) -> Instant {
        self.since.get()
    }

    /// Memtables that were closed since start.
    pub(crate) fn switches(&self) -> u64 {
        self.switches.get()
    }

    /// Applies an update that is entry `number` of the log; the bytes of the memtable before and after.
    #[inline]
    pub(crate) fn apply(
        &self,
        update: PartitionUpdate,
        number: Option<u64>,
        now: impl FnOnce() -> Instant,
    ) -> (usize, usize) {
        let active = self.active.borrow();
        if active.is_empty() {
            self.since.set(now());
        }
        if self.first.get().is_none() {
            self.first.set(number);
        }
        debug_assert!(
            number.is_none_or(|number| self.first.get().is_some_and(|first| first <= number)),
            "a memtable's entries come in the order of their numbers"
        );
        let indexes = self.indexes.borrow();
        if indexes.0.is_empty() {
            let before = active.bytes();
            active.apply(update);
            return (before, active.bytes());
        }
        let before = active.bytes() + indexes.bytes();
        let table = active.table();
        indexes.0.iter().for_each(|index| index.add(&table, &update));
        active.apply(update);
        (before, active.bytes() + indexes.bytes())
    }

    /// Has the active memtable be filled by this definition; false when it is being filled by another one.
    pub(crate) fn fill_under(&self, table: &Arc<Table>) -> bool {
        let active = self.active.borrow();
        if active.is_empty() {
            active.set_table(table.clone());
        }
        Arc::ptr_eq(&active.table(), table)
    }

    /// Whether a condition holds for each of them, the active one first.
    pub(crate) fn all_of(&self, mut is_met: impl FnMut(&Memtable) -> bool) -> bool {
        let flushing = self.flushing.borrow();
        is_met(&self.active.borrow()) && flushing.iter().rev().all(|flushing| is_met(&flushing.memtable))
    }

    /// All of them, the active one first.
    pub(crate) fn all(&self) -> Vec<Memtable> {
        let active = self.active.borrow().clone();
        std::iter::once(active)
            .chain(self.flushing.borrow().iter().rev().map(|flushing| flushing.memtable.clone()))
            .collect()
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> usize {
        let flushing: usize = self.flushing.borrow().iter().map(|flushing| flushing.bytes()).sum();
        self.active_bytes() + flushing
    }

    /// The oldest log entry that no SSTable holds yet.
    pub(crate) fn first_unflushed(&self) -> Option<u64> {
        let flushing = self.flushing.borrow();
        flushing.iter().filter_map(|flushing| flushing.first).chain(self.first.get()).min()
    }

    /// The smallest timestamp that they may hold for a key.
    pub(crate) fn timestamp_min(&self, key: &DecoratedKey) -> Timestamp {
        self.all()
            .iter()
            .filter(|memtable| memtable.contains(key))
            .map(|memtable| memtable.stats().timestamp_min)
            .min()
            .unwrap_or(Timestamp::MAX)
    }

    /// Closes the active memtable, whose log entries have numbers below `before`, and puts it in the queue for flushing.
    /// The last of the queue, if anything waits there now.
    pub(crate) fn switch(&self, table: Arc<Table>, before: u64) -> Option<Rc<Flushing>> {
        if !self.active.borrow().is_empty() {
            let first = self.first.take();
            assert!(first.is_none_or(|first| first < before), "a memtable ends behind its first entry");
            let behind = self.flushing.borrow().back().map_or(0, |last| last.before);
            assert!(behind <= before, "memtables are closed in the order of their entries");
            let flushing = Flushing {
                memtable: self.active.replace(Memtable::new(table)),
                indexes: self.indexes.replace(MemoryIndexes::new(&self.definitions.borrow())),
                first,
                before,
                written: RefCell::default(),
                failure: RefCell::default(),
                done: Cell::new(false),
                published: Cell::new(false),
                attempted: Notify::new(),
            };
            self.flushing.borrow_mut().push_back(Rc::new(flushing));
            self.switches.set(self.switches.get() + 1);
        }
        self.flushing.borrow().back().cloned()
    }

    /// Begins to write them to SSTables; false when somebody does.
    pub(crate) fn begin_flushing(&self) -> bool {
        !self.is_flushing.replace(true)
    }

    /// Nobody writes them any more.
    pub(crate) fn end_flushing(&self) {
        assert!(self.flushing.borrow().is_empty(), "flushing ends when no memtable waits for it");
        let was_flushing = self.is_flushing.replace(false);
        assert!(was_flushing, "flushing ends once");
    }

    /// The one that is to be written next.
    pub(crate) fn oldest(&self) -> Option<Rc<Flushing>> {
        self.flushing.borrow().front().cloned()
    }

    /// Returns when no memtable is there whose SSTable is in the set. That does not wait for a disk that fails.
    pub(crate) async fn wait_for_published(&self) {
        while let Some(oldest) = self.oldest().filter(|oldest| oldest.published.get()) {
            oldest.attempted.notified().await;
        }
    }

    /// The oldest one is in an SSTable, or is not needed any more.
    pub(crate) fn finish(&self, flushing: &Rc<Flushing>) {
        let done = self.flushing.borrow_mut().pop_front();
        assert!(done.is_some_and(|done| Rc::ptr_eq(&done, flushing)), "flushes end in order");
        let was_done = flushing.done.replace(true);
        assert!(!was_done, "a memtable is flushed once");
    }

    /// Writing the oldest one failed. Those behind it wait for the same disk: the waiters of all of them are notified.
    pub(crate) fn attempt_failed(&self, reason: &str) {
        for waiting in self.flushing.borrow().iter() {
            assert!(!waiting.done.get(), "a memtable that is in an SSTable waits no more");
            let attempts = waiting.failure.borrow().0 + 1;
            *waiting.failure.borrow_mut() = (attempts, Some(reason.to_owned()));
            waiting.attempted.notify_all();
        }
    }

    /// Wakes the waiters for a flush.
    pub(crate) fn wake_waiting(&self) {
        self.flushing.borrow().iter().for_each(|flushing| flushing.attempted.notify_all());
    }
}
