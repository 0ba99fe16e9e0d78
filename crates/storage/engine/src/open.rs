//! Start of a shard: SSTables are opened, then what the commit log holds beyond them is replayed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cache::Cache;
use commitlog::codec::decode_update;
use commitlog::{CommitLog, CommitLogError, Recovery};
use compaction::Throttle;
use rt::sync::{Notify, Semaphore};
use rt::{Group, Rt};
use schema::Schema;
use sstable::{Sstable, SstableError};

use crate::cached::Blocks;
use crate::counter_id::CounterIds;
use crate::engine::Inner;
use crate::flush::FLUSH_SLOTS;
use crate::live::{LiveSstable, Trash};
use crate::locks::PartitionLocks;
use crate::observer::Observers;
use crate::quarantine::{Damage, generation_max, tokens_of};
use crate::store::{Store, shard_of_generation};
use crate::{Engine, EngineConfig, MaintenanceError, OpenError};

/// How often flush periods, the log and compaction are looked at.
const TICK: Duration = Duration::from_secs(1);

impl From<SstableError> for OpenError {
    fn from(error: SstableError) -> Self {
        match error {
            SstableError::Disk(error) => Self::Disk(error),
            other => Self::Sstable(other.to_string()),
        }
    }
}

impl From<CommitLogError> for OpenError {
    fn from(error: CommitLogError) -> Self {
        match error {
            CommitLogError::Disk(error) => Self::Disk(error),
            CommitLogError::NewerVersion { file, version } => {
                Self::NewerVersion { path: file, found: format!("commit log format {version}") }
            }
            lost @ (CommitLogError::Corrupt { .. } | CommitLogError::Missing { .. }) => {
                Self::CommitLog(lost.to_string())
            }
        }
    }
}

/// See [`Engine::open`].
pub(crate) async fn open(rt: Rt, config: EngineConfig, schema: Arc<Schema>) -> Result<Engine, OpenError> {
    if rt.shard_count() == 1 {
        crate::prepare::prepare(&rt, &config, &schema).await?;
    }
    let skip_sync = config.canaries.skip_commitlog_sync;
    let (log, recovery) = CommitLog::open(&rt, config.commitlog.clone(), skip_sync).await?;
    let inner = without_tables(rt, config, log);
    let weak = Rc::downgrade(&inner);
    inner.log.on_failure(move |error| {
        if let Some(inner) = weak.upgrade() {
            inner.commit_log_failed(error);
        }
    });
    inner.set_schema(&schema);
    for store in inner.stores_in_order() {
        open_sstables(&inner, &store).await?;
    }
    let is_damaged = !recovery.skipped.is_empty();
    for skipped in &recovery.skipped {
        tracing::error!("commitlog_ignore_errors: {skipped}");
    }
    replay(&inner, recovery).await?;
    inner.replaying.set(false);
    if is_damaged {
        // The next start reads no further than to the damage: what was behind it must not have to be read again.
        for store in inner.stores_in_order() {
            inner.flush(&store).await.map_err(open_error)?;
        }
    }
    inner.release_log().await;
    start_tasks(&inner);
    Ok(Engine(inner))
}

/// A shard's storage that is being opened.
fn without_tables(rt: Rt, config: EngineConfig, log: CommitLog) -> Rc<Inner> {
    let throttle = Throttle::new(config.compaction_bytes_per_second);
    let cache = Cache::new(config.cache_bytes_max);
    Rc::new(Inner {
        counter_ids: CounterIds::new(&rt, &config),
        rt,
        config,
        log,
        stores: RefCell::default(),
        dropping: RefCell::default(),
        blocks: Rc::new(Blocks(cache.clone())),
        cache,
        trash: Rc::new(Trash::default()),
        memtable_bytes: Cell::new(0),
        memory_freed: Notify::new(),
        throttled: Cell::new(0),
        flush_failure: RefCell::default(),
        flush_check: Notify::new(),
        flushes: Cell::new(0),
        flushes_failed: Cell::new(0),
        flushes_running: Cell::new(0),
        compaction_check: Notify::new(),
        compactions_running: Cell::new(0),
        compactions_done: Cell::new(0),
        compactions_failed: Cell::new(0),
        compaction_failure: RefCell::default(),
        compaction_tasks: RefCell::default(),
        compaction_bytes_in: Cell::new(0),
        compaction_bytes_out: Cell::new(0),
        compaction_history: RefCell::default(),
        throttle,
        replaying: Cell::new(true),
        stopped: Cell::new(false),
        died: RefCell::default(),
        stop_reason: RefCell::default(),
        reads_stopped: Cell::new(false),
        shortage: Cell::new(false),
        log_trouble: RefCell::default(),
        flush_slots: Semaphore::new(FLUSH_SLOTS),
        compacted_last: Cell::new(None),
        compaction_pauses: RefCell::default(),
        compaction_bytes_claimed: Cell::new(0),
        counter_locks: PartitionLocks::default(),
        observers: Observers::default(),
        unlogged_counters: RefCell::default(),
        truncated_latest: Cell::new(i64::MIN),
        tasks: RefCell::default(),
    })
}

/// Opens the SSTables of a table that belong to this shard.
async fn open_sstables(inner: &Rc<Inner>, store: &Store) -> Result<(), OpenError> {
    let disk = inner.rt.disk();
    if !disk.exists(&store.dir).await? {
        return Ok(());
    }
    let taken = disk.list(&store.dir).await?;
    store.generation.set(generation_max(disk, &store.dir).await?);
    let count = inner.rt.shard_count();
    let truncated = crate::truncation::read(disk, &store.dir, &taken, (inner.rt.shard().0, count)).await?;
    store.truncated.set(truncated.here);
    inner.note_truncation(truncated.anywhere);
    let mut found = Vec::new();
    for descriptor in sstable::list_complete(disk, &store.dir).await? {
        if count > 1 && shard_of_generation(&descriptor, count) != Some(inner.rt.shard().0) {
            continue;
        }
        match Sstable::open(&inner.rt, descriptor.clone(), store.table(), inner.blocks.clone()).await {
            Ok(sstable) => {
                for problem in sstable.rebuilt() {
                    tracing::warn!(
                        "{problem}; until it is compacted it is made anew from the index at each start"
                    );
                }
                found.push(LiveSstable::new(sstable, &inner.trash, 0));
            }
            Err(SstableError::Disk(error)) => return Err(error.into()),
            // Other tables, and other ranges of this one, are not to suffer from it.
            Err(error) => {
                let (tokens, reason) = (tokens_of(disk, &descriptor).await?.0, error.to_string());
                store.add_damage(Damage { descriptor: Some(descriptor), tokens, reason });
            }
        }
    }
    for damage in crate::quarantine::list(disk, &store.dir, inner.owner()).await? {
        store.add_damage(damage);
    }
    if store.table().is_counter() && store.is_damaged() {
        inner.counter_ids.forget(&inner.rt).await?;
    }
    store.change_set(found, &[]);
    crate::marks::open(inner, store, &store.set()).await
}

/// Applies what the log holds beyond the SSTables.
async fn replay(inner: &Rc<Inner>, mut recovery: Recovery) -> Result<(), OpenError> {
    let flushed = std::mem::take(&mut recovery.checkpoint.flushed);
    let mut segment = recovery.next_segment().await?;
    while let Some(entries) = segment {
        segment = recovery.next_segment().await?;
        if segment.is_none() && inner.config.canaries.replay_stops_early {
            break;
        }
        for (number, body) in entries {
            for update in commitlog::entry::updates(&body).into_iter().flatten() {
                let (_, update) = update.map_err(|short| unreadable(number, &short.to_string()))?;
                replay_update(inner, number, &update, &flushed)?;
            }
            // On a full disk the rest stays in memory, which the log has room for too: what is there can be read, and is
            // written when there is space. The same goes for other things that have run out.
            if inner.memtable_bytes.get() > inner.config.memtable_bytes_max / 2 && !inner.shortage.get() {
                for store in inner.stores_in_order() {
                    match inner.flush_before(&store, Some(number + 1)).await {
                        Err(_) if inner.shortage.get() => break,
                        flushed => flushed.map_err(open_error)?,
                    }
                }
            }
            inner.rt.maybe_yield().await;
        }
    }
    Ok(())
}

fn replay_update(
    inner: &Inner,
    number: u64,
    update: &Bytes,
    flushed: &std::collections::BTreeMap<schema::TableId, u64>,
) -> Result<(), OpenError> {
    let mut of = None;
    let decoded = decode_update(update, |id| {
        let store = inner.store(id)?;
        let table = store.table();
        of = Some(store);
        Some(table)
    });
    let decoded = decoded.map_err(|error| unreadable(number, &error.to_string()))?;
    if let (Some(update), Some(store)) = (decoded, of)
        && flushed.get(&store.id).is_none_or(|upto| number > *upto)
    {
        inner.apply_to(&store, update, Some(number));
    }
    Ok(())
}

/// An entry whose checksum is right and whose content is not what this version writes.
fn unreadable(number: u64, reason: &str) -> OpenError {
    OpenError::CommitLog(format!(
        "entry {number} of the commit log cannot be read although its checksum is right: {reason}; start the version \
         that wrote it and drain it first"
    ))
}

pub(crate) fn open_error(error: MaintenanceError) -> OpenError {
    match error {
        MaintenanceError::Disk(error) => OpenError::Disk(error),
        other => OpenError::Sstable(other.to_string()),
    }
}

fn start_tasks(inner: &Rc<Inner>) {
    let rt = &inner.rt;
    let ticking = {
        let inner = inner.clone();
        async move {
            loop {
                inner.rt.sleep(TICK).await;
                inner.flush_by_period();
                inner.flush_check.notify_one();
                inner.compaction_check.notify_one();
            }
        }
    };
    let sweeping = {
        let inner = inner.clone();
        async move {
            loop {
                inner.trash.filled.notified().await;
                // What fails here is finished by the edit's log at the next start.
                let _ = inner.trash.empty(inner.rt.disk()).await;
            }
        }
    };
    let mut tasks = inner.tasks.borrow_mut();
    tasks.push(rt.spawn(Group::Flush, inner.clone().flush_controller()));
    tasks.push(rt.spawn(Group::Compaction, inner.clone().compaction_controller()));
    tasks.push(rt.spawn(Group::Maintenance, ticking));
    tasks.push(rt.spawn(Group::Maintenance, sweeping));
}
