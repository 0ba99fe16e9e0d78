//! TRUNCATE of one shard's part of a table ([`crate::truncation_record`] is its record).

use std::rc::Rc;

use rt::Instant;
use rt::sync::Permit;
use sstable::Descriptor;

use crate::edit::Edit;
use crate::engine::Inner;
use crate::live::LiveSstable;
use crate::store::Store;
use crate::truncation_record::{Name, encode, finish, propose};
use crate::{MaintenanceError, WriteError};

/// See [`crate::Engine::truncate`].
pub(crate) async fn truncate(
    inner: &Rc<Inner>,
    store: &Rc<Store>,
    at_micros: i64,
    expires: Instant,
) -> Result<(), MaintenanceError> {
    note(inner, at_micros);
    // A salvage of a damaged SSTable holds truncations back, and ends.
    store.edits.stop_compactions();
    let _no_late_writes = store.edits.truncation().await?;
    // Flushing first makes the rest one edit, and leaves nothing for the log to bring back.
    crate::flush::flush(inner, store).await?;
    store.edits.stop_compactions();
    let _alone = store.edits.alone().await?;
    // Of a memtable that is on its way since, the rows must not be seen longer than the SSTable that goes.
    store.memtables.wait_for_published().await;
    if store.dropped.get() {
        return Err(MaintenanceError::UnknownTable(store.id));
    }
    // From here on the removed rows are decided: those written by now. The process may have been paused on the way.
    if inner.rt.now() > expires {
        return Err(MaintenanceError::Expired);
    }
    let mut doomed: Vec<Rc<LiveSstable>> = store.set().to_vec();
    if inner.config.canaries.partial_truncate {
        doomed.pop();
    }
    crate::links::auto_snapshot(inner, store, &doomed, "truncated", at_micros).await?;
    crate::flush::make_dir(inner, store).await?;
    let disk = inner.rt.disk();
    let edit = Edit::begin(disk, &store.dir, "unknown", crate::commit::unique_id(inner)).await?;
    let id = edit.id();
    let (shard, shards) = (inner.rt.shard().0, inner.rt.shard_count());
    let name = Name { shard, shards, edit: Some(id.clone()) };
    if let Err(error) = propose(disk, &store.dir, &name, at_micros).await {
        // The next start undoes it when this fails.
        let _ = edit.abort().await;
        return Err(error.into());
    }
    let names: Vec<Descriptor> = doomed.iter().map(|live| live.sstable.descriptor().clone()).collect();
    let committed = crate::commit::commit_all(inner, store, edit, &names).await?;
    // It has happened. Reads from here on see all of it at once.
    store.truncated.set(store.truncated.get().max(at_micros));
    assert!(inner.truncated_latest.get() >= store.truncated.get(), "a truncation is known before it happens");
    inner.counters.forget_table(store.id);
    store.sstables.change(Vec::new(), &doomed);
    inner.cache.forget_table(store.id);
    if let Err(error) = crate::marks::forget(inner, store).await {
        // The next start does, because the SSTables that it names are gone.
        tracing::warn!("the repaired ranges of {} are not cleared yet: {error}", store.table().full_name());
    }
    let in_force = finish(disk, &store.dir, &id, true).await;
    if let Err(error) = &in_force {
        tracing::warn!("the record of a truncation is put in force by the next start: {error}");
    }
    crate::commit::retire(inner, &doomed, committed, in_force.is_ok()).await;
    Ok(())
}

/// See [`crate::Engine::learn_truncation`].
pub(crate) async fn learn(inner: &Rc<Inner>, store: &Store, at_micros: i64) -> Result<(), MaintenanceError> {
    note(inner, at_micros);
    if store.truncated.get() >= at_micros {
        return Ok(());
    }
    let _no_late_writes = store.edits.truncation().await?;
    if store.dropped.get() {
        return Err(MaintenanceError::UnknownTable(store.id));
    }
    if store.truncated.get() >= at_micros {
        return Ok(());
    }
    crate::flush::make_dir(inner, store).await?;
    let name = Name { shard: inner.rt.shard().0, shards: inner.rt.shard_count(), edit: None };
    let path = store.dir.join(name.to_string());
    inner.rt.disk().write_atomically(path, encode(at_micros).as_bytes()).await?;
    let before = store.truncated.replace(at_micros);
    assert!(before < at_micros, "the time of a table's last truncation only rises");
    Ok(())
}

/// Remembers the time of a truncation that was asked for.
pub(crate) fn note(inner: &Inner, at_micros: i64) {
    inner.truncated_latest.set(inner.truncated_latest.get().max(at_micros));
}

/// Keeps tables from being truncated while the result lives.
pub(crate) async fn hold_off(mut stores: Vec<Rc<Store>>) -> Result<Vec<Permit>, WriteError> {
    // In one order, so that two tasks that wait for tables that are about to be truncated do not wait for each other.
    stores.sort_by_key(|store| store.id);
    stores.dedup_by_key(|store| store.id);
    let mut held = Vec::with_capacity(stores.len());
    for store in stores {
        held.push(store.edits.without_truncation().await.map_err(|_| WriteError::Stopped)?);
    }
    Ok(held)
}
