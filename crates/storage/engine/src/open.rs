//! Start of a shard: SSTables are opened, then the commit log's entries beyond them are replayed.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use commitlog::{CommitLog, CommitLogError, Recovery, SegmentEntries};
use mutation::codec::{Decoded, Layouts, Version, decode};
use rt::{Group, Rt};
use schema::{Schema, TableId};
use sstable::{Sstable, SstableError};

use crate::damage::Damage;
use crate::engine::Inner;
use crate::error::log_failure;
use crate::generation::shard_of_generation;
use crate::live::LiveSstable;
use crate::quarantine::{generation_max, tokens_of};
use crate::schema_change::Definitions;
use crate::store::Store;
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
    rt.allow_injected(&config.canaries);
    if rt.shard_count() == 1 {
        crate::prepare::prepare(&rt, &config, &schema).await?;
    }
    let skip_sync = config.canaries.skip_commitlog_sync;
    let (log, recovery) = CommitLog::open(&rt, config.commitlog.clone(), skip_sync).await?;
    let inner = Inner::new(rt, config, log);
    let weak = Rc::downgrade(&inner);
    inner.log.on_failure(move |error| {
        if let Some(inner) = weak.upgrade() {
            inner.commit_log_failed(error);
        }
    });
    crate::schema_change::set_schema(&inner, &schema).await;
    for store in inner.stores_in_order() {
        open_sstables(&inner, &store).await?;
    }
    let is_damaged = !recovery.skipped.is_empty();
    for skipped in &recovery.skipped {
        tracing::error!("commitlog_ignore_errors: {skipped}");
    }
    if is_damaged {
        // Increments that others have may be lost here: the next ones must not be counted on from an earlier state under the same id.
        inner.counters.ids.forget(&inner.rt).await?;
    }
    replay(&inner, recovery).await?;
    inner.replaying.set(false);
    for store in inner.stores_in_order() {
        // Writes have the ids of the present definition.
        if !store.memtables.fill_under(&store.table()) {
            crate::flush::start(&inner, &store, None);
        }
    }
    if is_damaged {
        // The next start reads no further than to the damage: segments behind it must not have to be read again.
        for store in inner.stores_in_order() {
            crate::flush::flush(&inner, &store).await.map_err(open_error)?;
        }
    }
    crate::flush::release_log(&inner).await;
    let bytes: usize = inner.stores_in_order().iter().map(|store| store.memtables.bytes()).sum();
    assert_eq!(inner.memory.bytes(), bytes, "the memory of a shard is that of its memtables");
    start_tasks(&inner);
    Ok(Engine(inner))
}

/// Opens the SSTables of a table that belong to this shard.
async fn open_sstables(inner: &Rc<Inner>, store: &Store) -> Result<(), OpenError> {
    let disk = inner.rt.disk();
    if !disk.exists(&store.dir).await? {
        return Ok(());
    }
    let taken = disk.list(&store.dir).await?;
    store.sstables.set_taken(generation_max(disk, &store.dir).await?);
    let count = inner.rt.shard_count();
    let truncated =
        crate::truncation_record::read(disk, &store.dir, &taken, (inner.rt.shard().0, count)).await?;
    store.truncated.set(truncated.here);
    crate::truncation::note(inner, truncated.anywhere);
    assert!(truncated.here <= truncated.anywhere, "a shard is one of those that truncated");
    let mut found = Vec::new();
    for descriptor in sstable::list_complete(disk, &store.dir).await? {
        if count > 1 && shard_of_generation(&descriptor, count) != Some(inner.rt.shard().0) {
            continue;
        }
        match Sstable::open(&inner.rt, descriptor.clone(), store.table(), inner.blocks.clone()).await {
            Ok(sstable) => {
                for problem in sstable.rebuilt() {
                    tracing::warn!(
                        "{problem}: it is rebuilt from the index at each start until the SSTable is compacted"
                    );
                }
                let live = LiveSstable::new(sstable, &inner.trash, 0);
                crate::indexes::open(inner, store, &live).await;
                found.push(live);
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
    if store.table().is_counter() && !store.damages.is_empty() {
        inner.counters.ids.forget(&inner.rt).await?;
    }
    store.sstables.change(found, &[]);
    crate::indexes::remove_orphans(inner, store).await?;
    crate::marks::open(inner, store, &store.set()).await
}

/// Applies the log entries that are not in SSTables.
async fn replay(inner: &Rc<Inner>, mut recovery: Recovery) -> Result<(), OpenError> {
    let flushed = std::mem::take(&mut recovery.checkpoint.flushed);
    let (layouts, mut definitions) = (Layouts::default(), Definitions::default());
    let mut gone = BTreeSet::new();
    let mut segment = recovery.next_segment().await?;
    while let Some(SegmentEntries { mutations, entries }) = segment {
        segment = recovery.next_segment().await?;
        if segment.is_none() && inner.config.canaries.replay_stops_early {
            break;
        }
        for (number, body) in entries {
            for update in commitlog::entry::updates(&body).into_iter().flatten() {
                let (_, update) = update.map_err(|short| unreadable(number, &short.to_string()))?;
                let table = replay_update(
                    inner,
                    number,
                    (mutations, &update),
                    &flushed,
                    (&layouts, &mut definitions),
                )?;
                gone.extend(table);
            }
            // On a full disk the rest stays in memory, which the log has room for too: the rows can be read, and are
            // written when there is space. The same goes for other things that have run out.
            if inner.memory.is_half_full() && !inner.flushes.is_short() {
                for store in inner.stores_in_order() {
                    match crate::flush::flush_before(inner, &store, Some(number + 1)).await {
                        Err(_) if inner.flushes.is_short() => break,
                        flushed => flushed.map_err(open_error)?,
                    }
                }
            }
            inner.rt.maybe_yield().await;
        }
    }
    let known: BTreeSet<TableId> =
        flushed.into_keys().filter(|table| inner.store(*table).is_none()).collect();
    inner.log.note_dropped(&known);
    if !gone.is_empty() {
        // Their drop may have been interrupted. A later table may have the id of one.
        let before = inner.log.next_number();
        let recorded = inner.log.record_dropped(&gone, before).await;
        recorded.map_err(|error| open_error(log_failure(error)))?;
    }
    Ok(())
}

/// Applies an update that no SSTable holds; the id of its table when that is in the schema no more.
fn replay_update(
    inner: &Inner,
    number: u64,
    (version, update): (Version, &Bytes),
    flushed: &BTreeMap<TableId, u64>,
    (layouts, definitions): (&Layouts, &mut Definitions),
) -> Result<Option<TableId>, OpenError> {
    let (mut of, mut gone) = (None, None);
    let is_needed = |id: TableId| flushed.get(&id).is_none_or(|upto| number > *upto);
    let decoded = decode(version, update, Some(layouts), |id| {
        let Some(store) = inner.store(id) else {
            gone = Some(id).filter(|id| is_needed(*id));
            return None;
        };
        let table = definitions.of(&store.table());
        of = Some(store);
        Some(table)
    });
    let decoded = decoded.map_err(|error| unreadable(number, &error.to_string()))?;
    if let (Some(Decoded { update, .. }), Some(store)) = (decoded, of)
        && is_needed(store.id)
    {
        store.memtables.fill_under(&update.table);
        inner.apply_to(&store, update, Some(number));
    }
    Ok(gone)
}

/// An entry whose checksum is right and whose content is not of this version.
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
                crate::flush::by_period(&inner);
                crate::shares::adjust_compaction(&inner, crate::backlog::bytes(&inner));
                crate::budget::adjust(&inner).await;
                inner.flushes.check.notify_one();
                inner.compactions.check.notify_one();
                inner.index_check.notify_one();
            }
        }
    };
    let sweeping = {
        let inner = inner.clone();
        async move {
            loop {
                inner.trash.filled.notified().await;
                // Removals that fail here are finished by the edit's log at the next start.
                let _ = inner.trash.empty(inner.rt.disk()).await;
            }
        }
    };
    inner.keep_task(rt.spawn(Group::Flush, crate::flush::controller(inner.clone())));
    inner.keep_task(rt.spawn(Group::Compaction, crate::compact::controller(inner.clone())));
    inner.keep_task(rt.spawn(Group::Maintenance, crate::index_builder::builder(inner.clone())));
    inner.keep_task(rt.spawn(Group::Maintenance, ticking));
    inner.keep_task(rt.spawn(Group::Maintenance, sweeping));
}
