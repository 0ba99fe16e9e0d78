//! SSTables that came from elsewhere as files become this shard's, as one edit: after a crash all of them are there or none.
//!
//! Their data are older than writes that came here meanwhile. So a deletion must not be forgotten while they are awaited
//! ([`Engine::await_files`]), no compaction may be in the middle of deciding that ([`crate::edits`]), a table that
//! was truncated takes nothing that was asked for before, and the row cache, which claims to know all SSTables, forgets the table.

use std::path::PathBuf;
use std::rc::Rc;

use rt::OpenOptions;
use schema::TableId;
use sstable::{Component, Descriptor, Sstable, SstableError};

use crate::awaited::AwaitedFiles;
use crate::edit::Edit;
use crate::engine::Inner;
use crate::error::disk_or_source;
use crate::files::Wanted;
use crate::indexes::Speed;
use crate::live::LiveSstable;
use crate::store::Store;
use crate::{Engine, MaintenanceError};

/// The files of one SSTable, wherever they are, on the same file system as the tables.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Which of its files is where.
    pub files: Vec<(Component, PathBuf)>,
}

impl Incoming {
    fn path(&self, component: Component) -> Option<&PathBuf> {
        self.files.iter().find(|(known, _)| *known == component).map(|(_, path)| path)
    }
}

/// The data that was taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// SSTables.
    pub sstables: u64,
    /// Bytes of their files.
    pub bytes: u64,
}

impl Engine {
    /// To be called before files are requested of another node: from here on no tombstone is purged whose data they might resurrect.
    ///
    /// # Errors
    /// [`MaintenanceError::UnknownTable`].
    pub fn await_files(&self, table: TableId) -> Result<AwaitedFiles, MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        store.edits.begin_await();
        // Those that run go by the old rule.
        store.edits.stop_minor();
        let truncated = store.truncated.get();
        Ok(AwaitedFiles { store, truncated })
    }

    /// Adopts SSTables. They have to hold only `wanted` partitions, and the table must not have been truncated since they
    /// were `awaited`. The files are linked: their old names are the caller's to remove.
    ///
    /// # Errors
    /// [`MaintenanceError::Truncated`] and [`MaintenanceError::UnknownTable`] when the table was truncated or dropped
    /// meanwhile, [`MaintenanceError::NotWanted`] when a file holds other data than is wanted,
    /// [`MaintenanceError::Source`] when one is damaged, [`MaintenanceError::Disk`], [`MaintenanceError::Stopped`].
    /// Nothing is taken over then.
    pub async fn adopt(
        &self,
        awaited: &AwaitedFiles,
        incoming: &[Incoming],
        wanted: &Wanted,
    ) -> Result<Adopted, MaintenanceError> {
        let (inner, store) = (&self.0, &awaited.store);
        assert!(store.edits.awaits_files(), "files are adopted while they are awaited");
        for one in incoming {
            if let (Some(data), Some(digest)) = (one.path(Component::Data), one.path(Component::Digest)) {
                let sound = sstable::verify::verify_digest(&inner.rt, data.clone(), digest.clone()).await;
                sound.map_err(disk_or_source)?;
            }
        }
        if incoming.is_empty() {
            return Ok(Adopted::default());
        }
        store.edits.stop_minor();
        let _alone = store.edits.alone().await?;
        if store.dropped.get() {
            return Err(MaintenanceError::UnknownTable(store.id));
        }
        if store.truncated.get() != awaited.truncated {
            return Err(MaintenanceError::Truncated);
        }
        crate::flush::make_dir(inner, store).await?;
        let mut edit =
            Edit::begin(inner.rt.disk(), &store.dir, "stream", crate::commit::unique_id(inner)).await?;
        let added = match take_in(inner, store, incoming, wanted, &mut edit).await {
            Ok(added) => added,
            Err(error) => {
                // The next start undoes it when this fails.
                let _ = edit.abort().await;
                return Err(error);
            }
        };
        let is_stopped = || inner.health.is_stopped();
        crate::indexes::build_new(inner, store, &added, Speed::Limited(&is_stopped, None)).await;
        let committed = crate::commit::commit(inner, store, edit, &[]).await?;
        let bytes = added.iter().map(|live| live.sstable.disk_len()).sum();
        let adopted = Adopted { sstables: added.len() as u64, bytes };
        store.sstables.change(added, &[]);
        inner.cache.forget_table(store.id);
        crate::marks::note(inner, store).await;
        crate::commit::retire(inner, &[], committed, true).await;
        inner.compactions.check.notify_one();
        Ok(adopted)
    }
}

/// Gives SSTables their names in the table's directory, and opens them.
async fn take_in(
    inner: &Inner,
    store: &Rc<Store>,
    incoming: &[Incoming],
    wanted: &Wanted,
    edit: &mut Edit,
) -> Result<Vec<Rc<LiveSstable>>, MaintenanceError> {
    let mut added: Vec<Rc<LiveSstable>> = Vec::with_capacity(incoming.len());
    for one in incoming {
        let generation = store.sstables.next_generation(inner.rt.shard().0, inner.rt.shard_count());
        let target = Descriptor::new(&store.dir, generation);
        edit.add(&target).await?;
        link_statistics(inner, store, one, &target).await.map_err(disk_or_source)?;
        let others = Component::ALL.into_iter().filter(|component| *component != Component::Statistics);
        for component in others {
            // The list of components is the last of them: with it the SSTable exists.
            if let Some(path) = one.path(component) {
                inner.rt.disk().hard_link(path, target.path(component)).await?;
            }
        }
        inner.rt.disk().sync_dir(&store.dir).await?;
        let opened = Sstable::open(&inner.rt, target, store.table(), inner.blocks.clone()).await;
        let sstable = opened.map_err(disk_or_source)?;
        let ends = [sstable.first().token, sstable.last().token];
        if let Some(token) = sstable.sampled_tokens().chain(ends).find(|token| !wanted.contains(*token)) {
            return Err(MaintenanceError::NotWanted(format!("token {token}")));
        }
        let live = LiveSstable::new(sstable, &inner.trash, inner.rt.wall_micros());
        crate::links::back_up(inner, store, &live).await?;
        added.push(live);
    }
    Ok(added)
}

/// The statistics of an adopted SSTable: their repair state was another node's, and its level holds only where nothing
/// of that level is in the way.
async fn link_statistics(
    inner: &Inner,
    store: &Store,
    one: &Incoming,
    target: &Descriptor,
) -> Result<(), SstableError> {
    let disk = inner.rt.disk();
    let Some(path) = one.path(Component::Statistics) else { return Ok(()) };
    let to = target.path(Component::Statistics);
    disk.hard_link(path, &to).await?;
    let mut metadata = sstable::read_metadata(disk, target).await?;
    let set = store.set();
    let crowded = set.iter().any(|live| live.sstable.level() == metadata.stats.level);
    let level = if crowded { 0 } else { metadata.stats.level };
    let stats = &mut metadata.stats;
    if stats.level == level && stats.repaired_at == 0 && stats.pending_repair.is_none() {
        return Ok(());
    }
    (stats.level, stats.repaired_at, stats.pending_repair) = (level, 0, None);
    disk.remove(&to).await?;
    let file = disk.open(&to, OpenOptions::CREATE_NEW).await?;
    file.write_at(0, rt::IoBuf::copy_of(&metadata.encode())).await?;
    Ok(file.sync_all().await?)
}
