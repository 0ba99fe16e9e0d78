//! One table of the shard: its parts, each with a file of its own.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use mutation::purge::PurgeRule;
use mutation::{DecoratedKey, PartitionUpdate, Recast, Repaired, Seconds};
use schema::{Table, TableId};
use sstable::SstableError;

use crate::damage::{Damage, Damages};
use crate::edits::Edits;
use crate::error::disk_or_source;
use crate::live::LiveSstable;
use crate::local_counters::LocalCounters;
use crate::memtables::Memtables;
use crate::sstables::{OfSet, SstableSet, Sstables};
use crate::watermark::Marks;
use crate::{MaintenanceError, Sampled};

/// Counts since start.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) reads: Cell<u64>,
    pub(crate) writes: Cell<u64>,
    pub(crate) sstables_read: Cell<u64>,
    pub(crate) bloom_negatives: Cell<u64>,
    pub(crate) bloom_positives: Cell<u64>,
    pub(crate) bloom_false: Cell<u64>,
    pub(crate) cache_hits: Cell<u64>,
    pub(crate) cache_misses: Cell<u64>,
    /// Bytes of data of a flushed SSTable, a moving average; 0 while nothing was flushed.
    pub(crate) flush_bytes: Cell<u64>,
}

impl Counters {
    /// A memtable became an SSTable of so many bytes of data.
    pub(crate) fn flushed(&self, bytes: u64) {
        let before = self.flush_bytes.get();
        let average = if before == 0 { bytes } else { before - before / 8 + bytes / 8 };
        assert!(average <= before.max(bytes), "an average is not above what it is of");
        self.flush_bytes.set(average);
    }
}

/// Adds to a counter.
pub(crate) fn count(counter: &Cell<u64>, by: u64) {
    counter.set(counter.get() + by);
}

/// The bytes that wait to be compacted while so many compactions of the shard run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KnownBacklog {
    pub(crate) running: u64,
    pub(crate) bytes: u64,
}

/// One table.
pub(crate) struct Store {
    pub(crate) id: TableId,
    pub(crate) dir: PathBuf,
    table: RefCell<Arc<Table>>,
    /// The table remembers columns that were dropped.
    has_dropped: Cell<bool>,
    /// Leaves out of updates of the present definition the dropped cells of columns that were added again.
    recast: RefCell<Option<Rc<Recast>>>,
    /// Whether writes go to the commit log.
    pub(crate) durable: Cell<bool>,
    /// Some writes of this process did not go to the commit log.
    pub(crate) unlogged: Cell<bool>,
    pub(crate) dropped: Cell<bool>,
    /// When the table was truncated last, microseconds of the wall clock; [`i64::MIN`] for never.
    pub(crate) truncated: Cell<i64>,
    pub(crate) memtables: Memtables,
    pub(crate) sstables: Sstables,
    /// Locks on the set of SSTables.
    pub(crate) edits: Edits,
    /// SSTables that are out of service.
    pub(crate) damages: Damages,
    /// The repair times of its ranges.
    pub(crate) repaired: RefCell<Arc<Repaired>>,
    /// How far its SSTables have come with incremental repairs.
    pub(crate) marks: Marks,
    pub(crate) counters: Counters,
    /// The latencies of its requests, and the tombstones and SSTables of its reads.
    pub(crate) local: LocalCounters,
    /// Compactions of it are not started by themselves until an operator allows them again, or the node ends.
    pub(crate) auto_compaction_stopped: Cell<bool>,
    /// No tombstone of it is purged until an operator allows it again, or the node ends.
    pub(crate) tombstone_gc_stopped: Cell<bool>,
    /// Bytes that wait to be compacted.
    pub(crate) backlog: OfSet<KnownBacklog>,
    /// Bytes of the metadata of the SSTables.
    pub(crate) metadata_bytes: OfSet<u64>,
    /// An index could not be built, and that was logged.
    pub(crate) indexes_failing: Cell<bool>,
    /// Which partitions are asked for most, while somebody wants to know.
    pub(crate) sampled: RefCell<Option<Box<Sampled>>>,
}

impl Store {
    pub(crate) fn new(table: Arc<Table>, dir: PathBuf, durable: bool) -> Rc<Self> {
        Rc::new(Self {
            id: table.id,
            dir,
            memtables: Memtables::new(table.clone()),
            has_dropped: Cell::new(!table.dropped_columns.is_empty()),
            recast: RefCell::new(Recast::new(&table, &table).map(Rc::new)),
            table: RefCell::new(table),
            durable: Cell::new(durable),
            unlogged: Cell::new(false),
            dropped: Cell::new(false),
            truncated: Cell::new(i64::MIN),
            sstables: Sstables::default(),
            edits: Edits::new(),
            damages: Damages::default(),
            repaired: RefCell::default(),
            marks: Marks::new(),
            counters: Counters::default(),
            local: LocalCounters::default(),
            auto_compaction_stopped: Cell::new(false),
            tombstone_gc_stopped: Cell::new(false),
            backlog: OfSet::default(),
            metadata_bytes: OfSet::default(),
            indexes_failing: Cell::new(false),
            sampled: RefCell::default(),
        })
    }

    /// The table as last known.
    pub(crate) fn table(&self) -> Arc<Table> {
        self.table.borrow().clone()
    }

    /// The description by `of` of the table as last known.
    pub(crate) fn of_table<T>(&self, of: impl FnOnce(&Table) -> T) -> T {
        of(&self.table.borrow())
    }

    /// Whether columns of the table were dropped.
    pub(crate) fn has_dropped(&self) -> bool {
        self.has_dropped.get()
    }

    /// Makes an update one of the present definition: without cells that were dropped, and with the ids of columns that were added again
    /// since it was made. Whether that changed it.
    #[inline]
    pub(crate) fn recast(&self, update: &mut PartitionUpdate) -> bool {
        self.has_dropped.get() && self.recast_with_care(update)
    }

    #[inline(never)]
    fn recast_with_care(&self, update: &mut PartitionUpdate) -> bool {
        let table = self.table();
        assert!(!table.dropped_columns.is_empty(), "only dropped columns change the meaning of an update");
        let recast = match Arc::ptr_eq(&update.table, &table) {
            true => self.recast.borrow().clone(),
            false => Recast::new(&update.table, &table).map(Rc::new),
        };
        recast.is_some_and(|recast| recast.update(update, &table))
    }

    /// Takes over a changed definition. A memtable that holds cells of a column which is gone was closed before, and is written by the
    /// definition under which it was filled.
    pub(crate) fn set_table(&self, table: &Arc<Table>) {
        assert_eq!(table.id, self.id, "a table keeps its id");
        if Arc::ptr_eq(&*self.table.borrow(), table) {
            return;
        }
        *self.table.borrow_mut() = table.clone();
        self.has_dropped.set(!table.dropped_columns.is_empty());
        *self.recast.borrow_mut() = Recast::new(table, table).map(Rc::new);
        self.memtables.set_indexes_of(table);
        for memtable in self.memtables.all() {
            let recast = Recast::new(&memtable.table(), table);
            if memtable.is_empty() || !recast.is_some_and(|recast| recast.changes_ids()) {
                memtable.set_table(table.clone());
            }
        }
        assert!(
            Arc::ptr_eq(&self.memtables.active().table(), table),
            "writes have the ids of the present one"
        );
        for live in self.set().iter() {
            // A definition that does not fit its files was refused when it was made; a file that was copied in may
            // still not fit, and is then read by the definition that it was opened with.
            let _ = live.sstable.set_table(table.clone());
        }
    }

    /// The deletions of it that may be forgotten at `now`.
    pub(crate) fn purge_rule(&self, now: Seconds) -> PurgeRule {
        if self.edits.awaits_files() {
            return PurgeRule::new(0, 0);
        }
        if self.tombstone_gc_stopped.get() {
            return PurgeRule::new(now, 0);
        }
        PurgeRule::for_table(&self.table.borrow(), now, &self.repaired.borrow())
    }

    /// The SSTables of this moment.
    pub(crate) fn set(&self) -> Rc<SstableSet> {
        self.sstables.set()
    }

    /// Takes an SSTable out of service.
    pub(crate) fn add_damage(&self, damage: Damage) {
        let (table, (first, last)) = (self.table.borrow().full_name(), damage.tokens);
        tracing::error!(
            "table {table} cannot be read on this shard from token {first} to {last}: {}",
            damage.reason
        );
        self.damages.add(damage);
    }

    /// Whether the next repair is to salvage a member of the set. A count that was lost in part must not be continued, and is not
    /// repaired from the rows of others.
    pub(crate) fn is_to_salvage(&self, live: &LiveSstable) -> bool {
        let is_new = live.suspect.get() && live.salvaged.borrow().is_none();
        is_new && !live.is_beyond_repair.get() && !self.table.borrow().is_counter() && self.damages.is_empty()
    }

    /// The error of an operation that has left damaged SSTables as they are, having done all others.
    ///
    /// # Errors
    /// [`MaintenanceError::Source`] with their names.
    pub(crate) fn refuse_left_out(
        &self,
        is_due: impl Fn(&LiveSstable) -> bool,
    ) -> Result<(), MaintenanceError> {
        let set = self.set();
        let damaged = set.iter().filter(|live| live.suspect.get() && is_due(live));
        let left_out: Vec<String> = damaged.map(|live| live.sstable.descriptor().to_string()).collect();
        if left_out.is_empty() || self.dropped.get() {
            return Ok(());
        }
        let names = left_out.join(", ");
        Err(MaintenanceError::Source(
            format!(
                "damaged and left as they are: {names}; the table's other SSTables are done. nodetool repair has the other replicas send what is lost \
                 (docs/operations/damage.md)"
            )
            .into(),
        ))
    }

    /// Takes down that a member of the set is damaged, and reports it the first time.
    pub(crate) fn met_damage(&self, live: &LiveSstable, reason: &SstableError) {
        if live.suspect.replace(true) {
            return;
        }
        let (table, sstable) = (self.table.borrow().full_name(), &live.sstable);
        tracing::error!(
            "SSTable {} of table {table}, tokens {} to {}, is damaged: {reason}. Reads that need the damaged place fail on this \
             node, and it is not compacted; `nodetool repair` of the table has the other replicas send what is lost \
             (docs/operations/damage.md)",
            sstable.descriptor(),
            sstable.first().token,
            sstable.last().token
        );
    }

    /// The error of reading a member of the set; takes down that it is damaged where that is why.
    pub(crate) fn read_failed(&self, live: &LiveSstable, error: SstableError) -> MaintenanceError {
        if matches!(error, SstableError::Corrupt(_)) {
            self.met_damage(live, &error);
        }
        disk_or_source(error)
    }

    #[inline]
    pub(crate) fn sample_read(&self, key: &DecoratedKey) {
        if let Some(sampled) = &mut *self.sampled.borrow_mut() {
            sampled.reads.count(&key.key);
        }
    }

    #[inline]
    pub(crate) fn sample_write(&self, key: &DecoratedKey) {
        if let Some(sampled) = &mut *self.sampled.borrow_mut() {
            sampled.writes.count(&key.key);
        }
    }
}
