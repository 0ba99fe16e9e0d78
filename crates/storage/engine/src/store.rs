//! One table of the shard: its memtables, its set of SSTables, and its figures.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use memtable::Memtable;
use mutation::purge::PurgeRule;
use mutation::{DecoratedKey, PartitionRange, Repaired, Seconds, Timestamp};
use rt::Instant;
use rt::sync::{Notify, Semaphore};
use schema::{Table, TableId};
use sstable::{Component, Descriptor, Generation};

use crate::live::LiveSstable;
use crate::marks::Marks;
use crate::quarantine::Damage;
use crate::truncation::TRUNCATIONS_ALL;
use crate::{MaintenanceError, ReadError, Sampled};

/// The SSTables of a table at a moment.
pub(crate) type SstableSet = Rc<Vec<Rc<LiveSstable>>>;

/// A memtable that takes no more writes and is on its way to an SSTable.
pub(crate) struct Flushing {
    pub(crate) memtable: Memtable,
    /// Number of its first log entry; none when its writes are not logged.
    pub(crate) first: Option<u64>,
    /// Its log entries have numbers below this.
    pub(crate) before: u64,
    /// The SSTable that it was written to, once it was.
    pub(crate) written: RefCell<Option<Rc<LiveSstable>>>,
    /// How often writing it failed, and why the last time.
    pub(crate) failure: RefCell<(u64, Option<String>)>,
    pub(crate) done: Cell<bool>,
    /// Told after every attempt.
    pub(crate) attempted: Notify,
}

/// Counts since start.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) reads: Cell<u64>,
    pub(crate) writes: Cell<u64>,
    pub(crate) switches: Cell<u64>,
    pub(crate) sstables_read: Cell<u64>,
    pub(crate) bloom_negatives: Cell<u64>,
    pub(crate) bloom_positives: Cell<u64>,
    pub(crate) bloom_false: Cell<u64>,
    pub(crate) cache_hits: Cell<u64>,
    pub(crate) cache_misses: Cell<u64>,
}

/// Adds to a counter.
pub(crate) fn count(counter: &Cell<u64>, by: u64) {
    counter.set(counter.get() + by);
}

/// One table.
pub(crate) struct Store {
    pub(crate) id: TableId,
    pub(crate) table: RefCell<Arc<Table>>,
    pub(crate) dir: PathBuf,
    /// When what of it was repaired.
    pub(crate) repaired: RefCell<Arc<Repaired>>,
    /// How far its SSTables have come with incremental repairs.
    pub(crate) marks: Marks,
    /// Whether writes go to the commit log.
    pub(crate) durable: Cell<bool>,
    pub(crate) dropped: Cell<bool>,
    pub(crate) active: RefCell<Memtable>,
    /// Number of the first log entry of the active memtable.
    pub(crate) active_first: Cell<Option<u64>>,
    /// When the active memtable took its first write.
    pub(crate) active_since: Cell<Instant>,
    /// Oldest first.
    pub(crate) flushing: RefCell<VecDeque<Rc<Flushing>>>,
    pub(crate) flush_running: Cell<bool>,
    pub(crate) sstables: RefCell<SstableSet>,
    /// The largest generation that is taken.
    pub(crate) generation: Cell<u64>,
    pub(crate) dir_made: Cell<bool>,
    /// Held while the set is edited by more than an addition: compactions take one unit, a truncation all.
    pub(crate) edits: Semaphore,
    /// Held wholly while the table is being truncated; a write that must lie before or behind that takes one unit.
    pub(crate) truncations: Semaphore,
    /// When the table was truncated last, microseconds of the wall clock; [`i64::MIN`] for never.
    pub(crate) truncated: Cell<i64>,
    /// SSTables that did not enter the set and could not be removed.
    pub(crate) strays: RefCell<Vec<Descriptor>>,
    pub(crate) counters: Counters,
    /// Which partitions are asked for most, while somebody wants to know.
    pub(crate) sampled: RefCell<Option<Box<Sampled>>>,
    /// Compactions of this table that run now are to stop.
    pub(crate) stop_compactions: Cell<u64>,
    /// Raised when a major compaction is about to take over from smaller ones.
    pub(crate) stop_minor: Cell<u64>,
    /// How many wait for SSTables from elsewhere, which may bring data older than a deletion that came meanwhile: nothing is
    /// forgotten until then.
    pub(crate) awaits_files: Cell<u32>,
    /// SSTables that could not be opened. What they hold is not known, so nothing of their ranges is read and nothing of
    /// the table is compacted: a deletion that is purged might be what hides their rows.
    pub(crate) damage: RefCell<Vec<Damage>>,
    /// Held while what can be read of damaged SSTables is written anew.
    pub(crate) mending: Semaphore,
}

/// Units of [`Store::edits`].
pub(crate) const EDITS_ALL: usize = 1 << 20;

impl Store {
    pub(crate) fn new(table: Arc<Table>, dir: PathBuf, durable: bool) -> Rc<Self> {
        Rc::new(Self {
            id: table.id,
            active: RefCell::new(Memtable::new(table.clone())),
            table: RefCell::new(table),
            dir,
            repaired: RefCell::default(),
            marks: Marks::new(),
            durable: Cell::new(durable),
            dropped: Cell::new(false),
            active_first: Cell::new(None),
            active_since: Cell::new(Instant::START),
            flushing: RefCell::default(),
            flush_running: Cell::new(false),
            sstables: RefCell::default(),
            generation: Cell::new(0),
            dir_made: Cell::new(false),
            edits: Semaphore::new(EDITS_ALL),
            truncations: Semaphore::new(TRUNCATIONS_ALL),
            truncated: Cell::new(i64::MIN),
            strays: RefCell::default(),
            counters: Counters::default(),
            sampled: RefCell::default(),
            stop_compactions: Cell::new(0),
            stop_minor: Cell::new(0),
            awaits_files: Cell::new(0),
            damage: RefCell::default(),
            mending: Semaphore::new(1),
        })
    }

    /// Takes an SSTable out of service.
    pub(crate) fn add_damage(&self, damage: Damage) {
        let (table, (first, last)) = (self.table.borrow().full_name(), damage.tokens);
        tracing::error!(
            "table {table} cannot be read on this shard from token {first} to {last}: {}",
            damage.reason
        );
        self.damage.borrow_mut().push(damage);
    }

    /// Whether an SSTable of this shard is out of service.
    pub(crate) fn is_damaged(&self) -> bool {
        !self.damage.borrow().is_empty()
    }

    /// The damaged SSTables in the table's directory.
    pub(crate) fn damaged_files(&self) -> Vec<Descriptor> {
        self.damage.borrow().iter().filter_map(|damage| damage.descriptor.clone()).collect()
    }

    /// Refuses a read of a range of which an SSTable is out of service.
    pub(crate) fn refuse_damaged(&self, range: &PartitionRange) -> Result<(), ReadError> {
        match self.damage.borrow().iter().find(|damage| damage.touches(range)) {
            Some(damage) => Err(ReadError::Source(damage.reason.clone().into())),
            None => Ok(()),
        }
    }

    /// Refuses what needs all SSTables of the table.
    pub(crate) fn refuse_if_damaged(&self) -> Result<(), MaintenanceError> {
        match self.damage.borrow().first() {
            Some(damage) => Err(MaintenanceError::Source(damage.reason.clone().into())),
            None => Ok(()),
        }
    }

    /// The table as last known.
    pub(crate) fn table(&self) -> Arc<Table> {
        self.table.borrow().clone()
    }

    /// What of it may be forgotten at `now`.
    pub(crate) fn purge_rule(&self, now: Seconds) -> PurgeRule {
        if self.awaits_files.get() > 0 {
            return PurgeRule::new(0, 0);
        }
        PurgeRule::for_table(&self.table.borrow(), now, &self.repaired.borrow())
    }

    /// The SSTables of this moment.
    pub(crate) fn set(&self) -> SstableSet {
        self.sstables.borrow().clone()
    }

    /// Changes the set: takes `removed` out and puts `added` in.
    pub(crate) fn change_set(&self, added: Vec<Rc<LiveSstable>>, removed: &[Rc<LiveSstable>]) {
        let mut set: Vec<Rc<LiveSstable>> = self.set().as_ref().clone();
        let before = set.len();
        set.retain(|live| !removed.iter().any(|gone| Rc::ptr_eq(live, gone)));
        assert_eq!(set.len() + removed.len(), before, "only members of the set are removed");
        set.extend(added);
        *self.sstables.borrow_mut() = Rc::new(set);
    }

    /// A generation that no other SSTable has, on any shard: shard `shard` of `count` takes those equal to it modulo
    /// the count.
    pub(crate) fn next_generation(&self, shard: u16, count: u16) -> u64 {
        let generation = next_generation_after(self.generation.get(), shard, count);
        self.generation.set(generation);
        generation
    }

    /// All memtables, the active one first.
    pub(crate) fn memtables(&self) -> Vec<Memtable> {
        let active = self.active.borrow().clone();
        std::iter::once(active)
            .chain(self.flushing.borrow().iter().rev().map(|flushing| flushing.memtable.clone()))
            .collect()
    }

    /// Bytes of all memtables.
    pub(crate) fn memtable_bytes(&self) -> usize {
        let flushing: usize = self.flushing.borrow().iter().map(|flushing| flushing.memtable.bytes()).sum();
        self.active.borrow().bytes() + flushing
    }

    /// The oldest log entry that no SSTable holds yet.
    pub(crate) fn first_unflushed(&self) -> Option<u64> {
        let flushing = self.flushing.borrow();
        flushing.iter().filter_map(|flushing| flushing.first).chain(self.active_first.get()).min()
    }

    /// The smallest timestamp of what memtables may hold for a key.
    pub(crate) fn memtable_timestamp_min(&self, key: &DecoratedKey) -> Timestamp {
        self.memtables()
            .iter()
            .filter(|memtable| memtable.contains(key))
            .map(|memtable| memtable.stats().timestamp_min)
            .min()
            .unwrap_or(Timestamp::MAX)
    }

    /// Closes the active memtable, whose log entries have numbers below `before`, and puts it in the queue for flushing.
    /// The last of the queue, if anything waits there now.
    pub(crate) fn switch(&self, before: u64) -> Option<Rc<Flushing>> {
        if !self.active.borrow().is_empty() {
            let fresh = Memtable::new(self.table());
            let memtable = self.active.replace(fresh);
            let flushing = Flushing {
                memtable,
                first: self.active_first.take(),
                before,
                written: RefCell::default(),
                failure: RefCell::default(),
                done: Cell::new(false),
                attempted: Notify::new(),
            };
            self.flushing.borrow_mut().push_back(Rc::new(flushing));
            count(&self.counters.switches, 1);
        }
        self.flushing.borrow().back().cloned()
    }
}

/// The next generation of a shard after one that is taken.
pub(crate) fn next_generation_after(taken: u64, shard: u16, count: u16) -> u64 {
    let (shard, count) = (u64::from(shard), u64::from(count.max(1)));
    let round = taken / count;
    let candidate = round * count + shard;
    // Generations begin at 1.
    if candidate > taken && candidate > 0 { candidate } else { candidate + count }
}

/// The shard that an SSTable's number belongs to; none for other kinds of generations.
pub(crate) fn shard_of_generation(descriptor: &Descriptor, count: u16) -> Option<u16> {
    match descriptor.generation {
        Generation::Number(number) => Some((number % u64::from(count.max(1))) as u16),
        Generation::Time(_) => None,
    }
}

/// The number of a file's SSTable, whether complete or not.
pub(crate) fn generation_of_name(name: &str) -> Option<u64> {
    let name = name.strip_suffix(".tmp").unwrap_or(name);
    let (descriptor, _): (Descriptor, Component) = Descriptor::parse(name)?;
    match descriptor.generation {
        Generation::Number(number) => Some(number),
        Generation::Time(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_of_shards_never_meet() {
        for count in 1..5u16 {
            for shard in 0..count {
                let mut taken = 0;
                for _ in 0..5 {
                    let next = next_generation_after(taken, shard, count);
                    assert!(next > taken && next > 0 && next % u64::from(count) == u64::from(shard));
                    assert!(next <= taken + u64::from(count));
                    taken = next;
                }
            }
        }
        assert_eq!(generation_of_name("nb-12-big-Data.db"), Some(12));
        assert_eq!(generation_of_name("nb-3gub_0a2o_2xnhc2ejdkv5ccufvt-big-Data.db"), None);
    }
}
