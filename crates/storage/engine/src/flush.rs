//! Memtables to SSTables: when, and how.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use memtable::{Memtable, MemtableSource};
use mutation::merge::{Merger, Step};
use mutation::purge::{PurgeRule, Purger};
use mutation::{Fragment, FragmentBuffer, NO_DELETION, PartitionRange, Seconds, Slices, Timestamp};
use rt::{Group, Rt};
use schema::Table;
use sstable::{Descriptor, EncodingStats, Sstable, SstableError, SstableWriter, WriterOptions, Written};

use crate::damage::damage_in;
use crate::engine::Inner;
use crate::error::{RETRY_PAUSE, disk_or_source, is_shortage, log_failure};
use crate::flushes::SLOTS;
use crate::live::LiveSstable;
use crate::memtables::Flushing;
use crate::sharding::mark_of;
use crate::store::Store;
use crate::{Canaries, FailurePolicy, MaintenanceError};

/// Flushes of different tables that are started at once for memory or the log.
const FLUSHES_MAX: u64 = 2;
const _: () = assert!(FLUSHES_MAX <= SLOTS as u64, "what is started for memory waits for no other flush");

/// Begins to flush a table's memtable; `before` is the number that its log entries lie below, the log's next one
/// unless the log is being replayed.
pub(crate) fn start(inner: &Rc<Inner>, store: &Rc<Store>, before: Option<u64>) -> Option<Rc<Flushing>> {
    let last = {
        let before = before.unwrap_or_else(|| inner.log.next_number());
        store.memtables.switch(store.table(), before)?
    };
    if store.memtables.begin_flushing() {
        inner.flushes.begin();
        let (shard, store) = (inner.clone(), store.clone());
        let task = inner.rt.spawn(Group::Flush, async move {
            flush_queue(&shard, &store).await;
            store.memtables.end_flushing();
            shard.flushes.end();
        });
        inner.keep_task(task);
    }
    Some(last)
}

/// Flushes a table's present memtable and waits for it.
pub(crate) async fn flush(inner: &Rc<Inner>, store: &Rc<Store>) -> Result<(), MaintenanceError> {
    flush_before(inner, store, None).await
}

/// [`flush`] while the log is being replayed.
pub(crate) async fn flush_before(
    inner: &Rc<Inner>,
    store: &Rc<Store>,
    before: Option<u64>,
) -> Result<(), MaintenanceError> {
    let Some(flushing) = start(inner, store, before) else { return Ok(()) };
    let failures = flushing.failure.borrow().0;
    while !flushing.done.get() {
        if inner.health.is_stopped() {
            return Err(MaintenanceError::Stopped);
        }
        if let (attempts, Some(reason)) = &*flushing.failure.borrow()
            && *attempts > failures
        {
            return Err(MaintenanceError::Source(reason.clone().into()));
        }
        flushing.attempted.notified().await;
    }
    Ok(())
}

/// Writes a table's closed memtables, oldest first; ends when there are none.
async fn flush_queue(inner: &Rc<Inner>, store: &Rc<Store>) {
    loop {
        let Some(flushing) = store.memtables.oldest() else { return };
        let slot = inner.flushes.slot().await;
        let outcome = flush_one(inner, store, &flushing).await;
        drop(slot);
        let outcome = match outcome {
            // Nobody will read it. Its files may have gone in the middle of this, and that is no failure of the disk.
            Err(error) if store.dropped.get() => {
                tracing::debug!("a memtable of a dropped table was not written: {}", error.0);
                leave_orphan(store, &flushing);
                Ok(())
            }
            outcome => outcome,
        };
        match outcome {
            Ok(()) => {
                store.memtables.finish(&flushing);
                inner.memory.give_back(flushing.bytes());
                if inner.flushes.succeeded() {
                    tracing::info!("memtables can be written again");
                }
                inner.memory.freed.notify_all();
                flushing.attempted.notify_all();
                release_log(inner).await;
            }
            Err(FlushError(error, part)) => {
                let shortage = matches!(&error, MaintenanceError::Disk(disk) if is_shortage(disk));
                if inner.flushes.has_failed(error.to_string(), shortage) {
                    tracing::error!("a memtable cannot be written and is tried again every second: {error}");
                }
                // Writes that wait for memory fail with the reason instead of waiting for the disk.
                inner.memory.freed.notify_all();
                let is_stop = inner.config.disk_failure_policy != FailurePolicy::Ignore;
                // A failure of the log is handled by `commit_failure_policy`, and was already.
                // An SSTable whose files are damaged before it is opened is written anew; a disk that damages the next one, too, is broken.
                let is_damaged =
                    matches!(&error, MaintenanceError::Source(source) if damage_in(&**source).is_some());
                let is_tolerated = shortage || is_damaged && flushing.failure.borrow().0 == 0;
                if is_stop && part == Part::Files && !is_tolerated {
                    inner.stop_by_failure(&error, inner.config.disk_failure_policy);
                }
                store.memtables.attempt_failed(&error.to_string());
                // The memtable stays, and so does its part of the log.
                inner.rt.sleep(RETRY_PAUSE).await;
            }
        }
    }
}

/// An SSTable that was written and did not enter the set goes with the files of its table.
fn leave_orphan(store: &Store, flushing: &Flushing) {
    if let Some(live) = flushing.written.take() {
        store.sstables.add_orphan(live.sstable.descriptor().clone());
    }
}

/// Writes one memtable and puts the SSTable into the set.
async fn flush_one(inner: &Rc<Inner>, store: &Rc<Store>, flushing: &Rc<Flushing>) -> Result<(), FlushError> {
    assert!(!flushing.done.get(), "a memtable is flushed until it is in an SSTable, and not again");
    if store.dropped.get() {
        leave_orphan(store, flushing);
        return Ok(());
    }
    // An attempt may have written the file and then failed to log that; writing it again would fill the disk, and
    // removing it is no way back once the log may have taken the note.
    let before = flushing.written.borrow().clone();
    if before.is_none() && flushing.first.is_some() {
        // An entry may span tables: with a periodic sync a power failure could otherwise keep this table's part, which is
        // then in the SSTable, and lose the parts of the others with the unsynced end of the log.
        inner.log.sync().await.map_err(|error| FlushError(log_failure(error), Part::Log))?;
    }
    let live = match before {
        Some(live) => Some(live),
        None => write_and_open(inner, store, &flushing.memtable).await.map_err(disk_or_source)?,
    };
    *flushing.written.borrow_mut() = live.clone();
    if let Some(live) = &live {
        // Before the log forgets the rows: after a crash in between nothing would link the file.
        crate::links::back_up(inner, store, live).await?;
    }
    if let Some(first) = flushing.first {
        assert!(first < flushing.before, "what is recorded as flushed covers the memtable's first entry");
        inner.rt.buggify("flush: the file is written, its note is not").await;
        // Before a compaction can see the SSTable: rows that it then purges must not come back from the log.
        let recorded = inner.log.record_flushed(store.id, flushing.before).await;
        recorded.map_err(|error| FlushError(log_failure(error), Part::Log))?;
    }
    inner.rt.buggify("flush: the note is written, readers go by the memtable").await;
    if let Some(live) = live {
        let speed = crate::indexes::Speed::Unlimited;
        crate::indexes::build_new(inner, store, std::slice::from_ref(&live), speed).await;
        inner.cache.next_epoch(store.id);
        store.counters.flushed(live.sstable.data_len());
        store.sstables.change(vec![live.clone()], &[]);
        flushing.published.set(true);
        inner.rt.buggify("flush: the SSTable is in the set, and the memtable is still read").await;
        crate::marks::note(inner, store).await;
        crate::cache_fill::merge_into_cache(inner, store, &flushing.memtable, &live).await;
        inner.compactions.check.notify_one();
    }
    Ok(())
}

/// Writes a memtable to an SSTable; none when it holds nothing worth a file.
async fn write_and_open(
    inner: &Rc<Inner>,
    store: &Rc<Store>,
    memtable: &Memtable,
) -> Result<Option<Rc<LiveSstable>>, SstableError> {
    let Some(written) = write_sstable(inner, store, memtable).await? else { return Ok(None) };
    let descriptor = written.descriptor.clone();
    match Sstable::open(&inner.rt, descriptor.clone(), store.table(), inner.blocks.clone()).await {
        Ok(sstable) => {
            crate::large::guarded(&store.table(), &written);
            let sstable = crate::large::warned(&store.table(), sstable);
            Ok(Some(LiveSstable::new(sstable, &inner.trash, inner.rt.wall_micros())))
        }
        Err(error) => {
            // The next attempt writes another.
            discard(inner, store, descriptor).await;
            Err(error)
        }
    }
}

/// Removes an SSTable that did not enter the set. Files that cannot be removed repeat rows that the set will hold; the next edit
/// removes them.
async fn discard(inner: &Inner, store: &Store, descriptor: Descriptor) {
    if sstable::remove(inner.rt.disk(), &descriptor).await.is_err() {
        store.sstables.add_orphan(descriptor);
    }
}

async fn write_sstable(
    inner: &Rc<Inner>,
    store: &Rc<Store>,
    memtable: &Memtable,
) -> Result<Option<Written>, SstableError> {
    make_dir(inner, store).await?;
    // The one under which it was filled, if columns of that were dropped since.
    let table = memtable.table();
    let mut options = WriterOptions::for_table(&table, memtable.partitions() as u64);
    options.host_id = Some(inner.config.host_id);
    options.owner = mark_of(&inner.sharding.sharder_of(table.id), inner.rt.shard().0);
    options.large = inner.settings.get().large;
    let generation = store.sstables.next_generation(inner.rt.shard().0, inner.rt.shard_count());
    let encoding = encoding_stats(memtable);
    let dir = store.dir.clone();
    let writer = SstableWriter::new(&inner.rt, dir, generation, table.clone(), options, encoding).await;
    let canaries = *inner.config.canaries;
    let written = match writer {
        Ok(writer) => write_memtable(&inner.rt, &table, memtable, writer, canaries).await,
        Err(error) => Err(error),
    };
    if let Ok(written) = &written {
        let partitions = memtable.partitions() as u64;
        assert!(written.partitions <= partitions, "a flush writes partitions of its memtable");
    }
    let empty = matches!(&written, Ok(written) if written.bounds.is_none());
    if written.is_err() || empty {
        discard(inner, store, Descriptor::new(&store.dir, generation)).await;
    }
    Ok(if empty { None } else { Some(written?) })
}

/// Makes a table's directory durable when the first file of this process comes.
pub(crate) async fn make_dir(inner: &Inner, store: &Store) -> Result<(), rt::DiskError> {
    if store.sstables.has_dir() {
        return Ok(());
    }
    inner.rt.disk().create_dir_durably(&store.dir).await?;
    store.sstables.dir_is_made();
    Ok(())
}

/// Gives back segments of the log that no memtable needs.
pub(crate) async fn release_log(inner: &Inner) {
    if inner.replaying.get() {
        // Entries that were not replayed yet are in no memtable, and still needed.
        return;
    }
    let needed = inner.stores_in_order().iter().filter_map(|store| store.memtables.first_unflushed()).min();
    let next = inner.log.next_number();
    assert!(needed.is_none_or(|needed| needed < next), "memtables hold entries that are in the log");
    let before = needed.unwrap_or(next);
    // Segments that cannot be removed now are retried after the next flush.
    let _ = inner.log.release_before(before).await;
}

/// Watches memory, the log's size and the tables' flush periods, and starts flushes.
pub(crate) async fn controller(inner: Rc<Inner>) {
    loop {
        inner.flushes.check.notified().await;
        crate::shares::adjust_flush(&inner);
        if inner.health.is_stopped() {
            continue;
        }
        if !inner.config.canaries.unlimited_memtables {
            flush_for_memory(&inner);
        }
        flush_for_log(&inner);
    }
}

/// Half of the budget is for new writes, the other half for memtables on their way to files: memtables that are
/// being flushed do not count here, or every write meanwhile would close a memtable of its own.
fn flush_for_memory(inner: &Rc<Inner>) {
    let mut stores = inner.stores_in_order();
    let active = |store: &Rc<Store>| store.memtables.active_bytes();
    let mut total: usize = stores.iter().map(active).sum();
    assert!(total <= inner.memory.bytes(), "active memtables are counted in the shard's memory");
    stores.sort_by_key(|store| std::cmp::Reverse(active(store)));
    for store in stores {
        if total <= inner.config.memtable_bytes_max / 2 || inner.flushes.running() >= FLUSHES_MAX {
            return;
        }
        let bytes = active(&store);
        if bytes * 4 < total && inner.flushes.running() > 0 {
            // The large ones are under way; many small ones would only make small SSTables.
            return;
        }
        assert!(bytes <= total, "each memtable is counted once");
        total -= bytes;
        start(inner, &store, None);
    }
}

/// The log is over its limit: tables that hold its oldest segment go first.
fn flush_for_log(inner: &Rc<Inner>) {
    let Some(before) = inner.log.flush_needed_before() else { return };
    let mut oldest: Vec<(u64, Rc<Store>)> = inner
        .stores_in_order()
        .into_iter()
        .filter_map(|store| Some((store.memtables.active_first().filter(|first| *first < before)?, store)))
        .collect();
    oldest.sort_by_key(|(first, _)| *first);
    // The end of each of them looks here again.
    for (_, store) in oldest {
        if inner.flushes.running() >= FLUSHES_MAX {
            return;
        }
        start(inner, &store, None);
    }
}

/// Flushes tables whose `memtable_flush_period_in_ms` has passed; called about every second.
pub(crate) fn by_period(inner: &Rc<Inner>) {
    let now = inner.rt.now();
    for store in inner.stores_in_order() {
        let period = store.of_table(|table| table.options.memtable_flush_period_in_ms);
        let due = period > 0
            && !store.memtables.active().is_empty()
            && now - store.memtables.active_since() >= Duration::from_millis(u64::from(period));
        if due {
            start(inner, &store, None);
        }
    }
}

/// Why a flush failed, and of which part of the disk that is a sign.
struct FlushError(MaintenanceError, Part);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Data files.
    Files,
    /// The commit log.
    Log,
}

impl From<MaintenanceError> for FlushError {
    fn from(error: MaintenanceError) -> Self {
        Self(error, Part::Files)
    }
}

impl From<rt::DiskError> for FlushError {
    fn from(error: rt::DiskError) -> Self {
        Self(error.into(), Part::Files)
    }
}

pub(crate) fn encoding_stats(memtable: &Memtable) -> EncodingStats {
    let stats = memtable.stats();
    let none = EncodingStats::NONE;
    EncodingStats {
        min_timestamp: if stats.timestamp_min == Timestamp::MAX {
            none.min_timestamp
        } else {
            stats.timestamp_min
        },
        min_local_deletion: if stats.local_deletion_min == NO_DELETION {
            none.min_local_deletion
        } else {
            stats.local_deletion_min
        },
        min_ttl: if stats.ttl_min == Seconds::MAX { none.min_ttl } else { stats.ttl_min },
    }
}

/// Writes a memtable that takes no more writes. `canaries` are injected bugs.
pub(crate) async fn write_memtable(
    rt: &Rt,
    table: &Arc<Table>,
    memtable: &Memtable,
    mut writer: SstableWriter,
    canaries: Canaries,
) -> Result<Written, SstableError> {
    let mut source = MemtableSource::new(memtable, &PartitionRange::all(), &Slices::all(), false);
    let mut merger = Merger::new(table.clone(), 1, false);
    // Purges nothing; it only leaves out empty partitions.
    let mut purger = Purger::new(PurgeRule::new(0, 0));
    let mut kept = FragmentBuffer::new();
    loop {
        match merger.next() {
            Step::Fragment(mut fragment) => {
                // Columns that the definition of a write had and this one has not.
                if !fragment.keep_columns(table) {
                    continue;
                }
                let injected = match &fragment {
                    Fragment::RangeTombstoneChange { .. } => canaries.drop_range_tombstones,
                    Fragment::StaticRow(_) => canaries.drop_static_rows,
                    _ => false,
                };
                if injected {
                    continue;
                }
                purger.push(fragment, |_| Timestamp::MIN, &mut kept);
            }
            Step::Need(input) => {
                rt.maybe_yield().await;
                if !source.fill_now(merger.buffer(input)) {
                    merger.end(input);
                }
            }
            Step::End => break,
        }
        while let Some(fragment) = kept.pop_front() {
            writer.push(fragment).await?;
        }
    }
    writer.finish().await
}
