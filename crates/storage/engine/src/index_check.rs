//! Verification of the indexes of SSTables (docs/design/index.md): each is made from the rows once more, beside the present file, and the two
//! are compared.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use index::{Definition, IndexFile, IndexFileError, SstableIdentity};
use rt::{Disk, DiskError, OpenOptions};
use sstable::SstableError;

use crate::MaintenanceError;
use crate::engine::Inner;
use crate::indexes::{Speed, path, write_file};
use crate::live::LiveSstable;
use crate::stats::{RewriteReport, TaskKind};
use crate::store::Store;

/// Bytes of both files that are compared at once.
const COMPARED_LEN: usize = 256 << 10;

/// Verifies all indexes of a table on this shard, after a flush of its memtables. With `repair` those that differ are replaced.
pub(crate) async fn verify(
    inner: &Rc<Inner>,
    store: &Rc<Store>,
    repair: bool,
) -> Result<RewriteReport, MaintenanceError> {
    crate::flush::flush(inner, store).await?;
    let mut report = RewriteReport::default();
    // Files stay while their SSTables are held. The rows of a damaged one are not read, and so neither is its index.
    let held: Vec<Rc<LiveSstable>> = store.set().iter().filter(|live| !live.suspect.get()).cloned().collect();
    for live in held {
        for definition in store.memtables.definitions().iter() {
            let Some(file) = live.index(definition) else {
                report.note(format!("index {} is not built yet", definition.name));
                continue;
            };
            verify_one(inner, store, &live, &file, repair, &mut report).await?;
        }
        report.sstables += 1;
    }
    Ok(report)
}

async fn verify_one(
    inner: &Rc<Inner>,
    store: &Rc<Store>,
    live: &Rc<LiveSstable>,
    file: &Rc<IndexFile>,
    repair: bool,
    report: &mut RewriteReport,
) -> Result<(), MaintenanceError> {
    let (disk, definition) = (inner.rt.disk(), file.definition());
    let Some(present) = path(&store.dir, live.sstable.descriptor(), definition) else { return Ok(()) };
    // The next start removes one that stays, for no SSTable has an index of that name.
    let made = present.with_extension("check.db");
    assert_ne!(made, present, "the index is made beside the present file");
    let operation = inner.compactions.operation(TaskKind::Verification, store.table());
    let task = inner.compactions.show(crate::commit::unique_id(inner), &operation, 1);
    task.progress.bytes_total.set(live.sstable.uncompressed_len());
    let is_stopped = || operation.is_stopped() || inner.health.is_stopped();
    let speed = Speed::Limited(&is_stopped, Some(&task.progress));
    let identity = match write_file(inner, store, live, definition, &made, speed).await {
        Ok(Some(identity)) => identity,
        Ok(None) if store.dropped.get() => return Err(MaintenanceError::UnknownTable(store.id)),
        Ok(None) => {
            operation.refuse_stopped()?;
            // Without a stop of the node it is the index that was dropped.
            return if inner.health.is_stopped() { Err(MaintenanceError::Stopped) } else { Ok(()) };
        }
        Err(error) => {
            let _ = disk.remove(&made).await;
            if !matches!(error, SstableError::Corrupt(_)) {
                return Err(store.read_failed(live, error));
            }
            store.met_damage(live, &error);
            report.note(error.to_string());
            return Ok(());
        }
    };
    let differs = differs(disk, &present, &made).await;
    let outcome = match differs {
        Ok(false) => Ok(()),
        Ok(true) => settle(inner, (store, live, file), (&made, identity), repair, report).await,
        Err(error) => Err(error),
    };
    let _ = disk.remove(&made).await;
    outcome.map_err(|error| store.read_failed(live, error.into()))
}

/// Notes an index that differs, or replaces it: queries find the one or the other.
async fn settle(
    inner: &Inner,
    (store, live, file): (&Store, &LiveSstable, &Rc<IndexFile>),
    (made, identity): (&Path, SstableIdentity),
    repair: bool,
    report: &mut RewriteReport,
) -> Result<(), DiskError> {
    let (disk, definition): (&Disk, &Arc<Definition>) = (inner.rt.disk(), file.definition());
    let open = async |path: &Path| match IndexFile::open(disk, path.to_owned(), identity, definition.clone())
        .await
    {
        Ok(made) => Ok(Some(made)),
        Err(IndexFileError::Disk(error)) => Err(error),
        Err(IndexFileError::Unusable { .. }) => Ok(None),
    };
    let Some(right) = open(made).await? else { return Ok(()) };
    let problem = format!(
        "index {} of SSTable {} is not what its rows give: it has {} entries, and they give {}",
        definition.name,
        live.sstable.descriptor().generation,
        file.records(),
        right.records(),
    );
    tracing::warn!("{}: {problem}", store.table().full_name());
    if !repair {
        report.note(problem);
        return Ok(());
    }
    assert_ne!(made, file.path(), "it was made beside the present file");
    disk.rename(made, file.path()).await?;
    let renamed = open(file.path()).await?;
    // Dropped meanwhile, or made anew: then the other one is right.
    let is_present = live.index(definition).is_some_and(|present| Rc::ptr_eq(&present, file));
    if let Some(renamed) = renamed.filter(|_| is_present) {
        live.drop_index(file);
        live.add_index(renamed);
        report.indexes_replaced += 1;
    }
    Ok(())
}

/// Whether two files have other bytes.
async fn differs(disk: &Disk, one: &Path, other: &Path) -> Result<bool, DiskError> {
    let one = disk.open(one, OpenOptions::READ).await?;
    let other = disk.open(other, OpenOptions::READ).await?;
    let len = one.len().await?;
    if other.len().await? != len {
        return Ok(true);
    }
    let mut position = 0;
    while position < len {
        let count = COMPARED_LEN.min(usize::try_from(len - position).unwrap_or(COMPARED_LEN));
        let (a, b) = (one.read_exact_at(position, count).await?, other.read_exact_at(position, count).await?);
        if *a != *b {
            return Ok(true);
        }
        position += count as u64;
    }
    assert_eq!(position, len, "all of both was compared");
    Ok(false)
}
