//! SSTables of an operator's directory on their way into a table, while the node runs: first they are read as a whole and written anew
//! to a directory of the table's, apart by shard; then each shard adopts its part ([`crate::adopt`]) by one edit.
//!
//! Nothing is changed by the first step, and the operator's files stay: when the node stops in between, or a shard fails, the same import again has
//! the rows twice, which is the same as once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use compaction::OwnedRanges;
use mutation::{Fragment, FragmentBuffer, PartitionRange};
use rt::sync::Permit;
use rt::{Disk, DiskError};
use schema::{ColumnKind, Table, TableId};
use sstable::{Component, Descriptor, NoCache, Sstable, SstableError, SstableWriter, WriterOptions, Written};
use topology::TableSharder;

use crate::adopt::Incoming;
use crate::compact::ROOM_SPARED_MAX;
use crate::engine::Inner;
use crate::error::disk_or_source;
use crate::sharding::mark_of;
use crate::store::Store;
use crate::{Engine, MaintenanceError, Wanted};

/// The folder of a table with the SSTables that are about to be adopted.
const STAGING: &str = "importing";

/// SSTables to be adopted, by shard. No other import of the table begins while it lives.
pub struct Staged {
    inner: Rc<Inner>,
    folder: PathBuf,
    /// The files of each shard.
    pub shards: Vec<Vec<Incoming>>,
    sources: Vec<Descriptor>,
    /// Partitions that are in them, those in several counted for each.
    pub partitions: u64,
    _alone: Permit,
}

impl Staged {
    /// How many SSTables were read.
    pub fn sstables(&self) -> u64 {
        self.sources.len() as u64
    }

    /// Removes the SSTables that were read, when all of their rows have been adopted.
    ///
    /// # Errors
    /// [`MaintenanceError::Disk`]; those that stay can be imported again.
    pub async fn remove_sources(&self) -> Result<(), MaintenanceError> {
        for source in &self.sources {
            sstable::remove(self.inner.rt.disk(), source).await.map_err(disk_or_source)?;
        }
        Ok(())
    }

    /// Removes the files, which have been adopted or are not wanted.
    ///
    /// # Errors
    /// A [`DiskError`]; the next import or start removes them then.
    pub async fn remove(self) -> Result<(), DiskError> {
        remove(self.inner.rt.disk(), &self.folder).await
    }
}

/// No other import of the table begins while it lives.
pub struct ImportLock {
    store: Rc<Store>,
    permit: Permit,
}

impl Engine {
    /// Waits until no other import of a table runs that was begun on this shard.
    ///
    /// # Errors
    /// [`MaintenanceError::UnknownTable`], [`MaintenanceError::Stopped`].
    pub async fn lock_import(&self, table: TableId) -> Result<ImportLock, MaintenanceError> {
        let store = self.0.store(table).ok_or(MaintenanceError::UnknownTable(table))?;
        let permit = store.edits.import().await?;
        Ok(ImportLock { store, permit })
    }

    /// To be called on each shard before the files of an import are read: from here on the shard purges no tombstone that may hide their rows,
    /// and a truncation refuses them. Until [`Engine::end_import`].
    ///
    /// # Errors
    /// [`MaintenanceError::UnknownTable`].
    pub fn begin_import(&self, table: TableId) -> Result<(), MaintenanceError> {
        let awaited = self.await_files(table)?;
        self.0.imports.borrow_mut().insert(table, awaited);
        Ok(())
    }

    /// The shard has its part of an import, or gets none.
    pub fn end_import(&self, table: TableId) {
        self.0.imports.borrow_mut().remove(&table);
    }

    /// Reads the SSTables of a directory for an import, and writes them anew by shard.
    ///
    /// # Errors
    /// [`MaintenanceError::Source`] when a partition is not `owned`, or a file is damaged or not complete, is in a format that cannot be read, or
    /// has other types than the table; [`MaintenanceError::Disk`], [`MaintenanceError::UnknownTable`], [`MaintenanceError::Stopped`]. Nothing was changed then.
    pub async fn stage_import(
        &self,
        lock: ImportLock,
        directory: &Path,
        owned: &OwnedRanges,
    ) -> Result<Staged, MaintenanceError> {
        let inner = &self.0;
        let ImportLock { store, permit } = lock;
        if store.dropped.get() {
            return Err(MaintenanceError::UnknownTable(store.id));
        }
        crate::flush::make_dir(inner, &store).await?;
        let folder = store.dir.join(STAGING);
        let disk = inner.rt.disk();
        remove(disk, &folder).await?;
        let sources = sources_of(disk, directory).await?;
        disk.create_dir_durably(&folder).await?;
        let mut staging = Staging::new(inner, &store, folder.clone(), owned);
        let staged = staging.take(&sources).await;
        let Staging { shards, partitions, .. } = staging;
        let staged = Staged { inner: inner.clone(), folder, shards, sources, partitions, _alone: permit }
            .after(staged);
        staged.await
    }

    /// Adopts a shard's part of an import that was begun.
    ///
    /// # Errors
    /// As [`Engine::adopt`]; [`MaintenanceError::Truncated`] when the table was truncated since the import was begun.
    pub async fn adopt_import(
        &self,
        table: TableId,
        files: &[Incoming],
        owned: OwnedRanges,
    ) -> Result<(), MaintenanceError> {
        let rt = &self.0.rt;
        let wanted = Wanted { tokens: owned, shard: rt.shard().0, sharder: self.own_sharder(table) };
        let begun = self.0.imports.borrow_mut().remove(&table);
        let awaited = begun.ok_or(MaintenanceError::Cancelled)?;
        self.adopt(&awaited, files, &wanted).await?;
        Ok(())
    }
}

impl Staged {
    /// Gives the files when all were read, and removes them otherwise.
    async fn after(self, read: Result<(), MaintenanceError>) -> Result<Self, MaintenanceError> {
        match read {
            Ok(()) => Ok(self),
            Err(error) => {
                // The next import or start removes them when this fails.
                let _ = self.remove().await;
                Err(error)
            }
        }
    }
}

/// Removes leftovers of an import that was interrupted.
pub(crate) async fn remove_leftovers(disk: &Disk, table_dir: &Path) -> Result<(), DiskError> {
    remove(disk, &table_dir.join(STAGING)).await
}

async fn remove(disk: &Disk, folder: &Path) -> Result<(), DiskError> {
    if disk.exists(folder).await? { disk.remove_dir_all(folder).await } else { Ok(()) }
}

pub(crate) fn refused(text: String) -> MaintenanceError {
    MaintenanceError::Source(text.into())
}

/// The SSTables of a directory, all of which can be read as far as their names tell.
pub(crate) async fn sources_of(disk: &Disk, directory: &Path) -> Result<Vec<Descriptor>, MaintenanceError> {
    let entries = match disk.list(directory).await {
        Err(error) if error.is_not_found() => {
            return Err(refused(format!("there is no directory {}", directory.display())));
        }
        listed => listed?,
    };
    let complete = sstable::list_complete(disk, directory).await.map_err(disk_or_source)?;
    for data in entries.iter().filter(|entry| entry.name.ends_with(Component::Data.name())) {
        let path = directory.join(&data.name);
        let Some((descriptor, _)) = Descriptor::parse(&path) else {
            return Err(refused(format!("{} is in a format that cannot be read", path.display())));
        };
        if !complete.contains(&descriptor) {
            return Err(refused(format!(
                "{descriptor} is not complete: it has no {}",
                Component::Toc.name()
            )));
        }
    }
    Ok(complete)
}

/// Compares the columns of a file with those of a table: values are checked by their types when they are read later, and an SSTable from
/// elsewhere may have any.
pub(crate) fn check_columns(sstable: &Sstable, table: &Table) -> Result<(), String> {
    let header = &sstable.metadata().header;
    if !header.key_types.iter().eq(table.partition_key().iter().map(|column| &column.ty)) {
        return Err("its partition key has other types than that of the table".to_owned());
    }
    if header.clustering_types != table.clustering_types() {
        return Err("its clustering columns have other types or orders than those of the table".to_owned());
    }
    let statics = header.statics.iter().map(|column| (column, ColumnKind::Static));
    let regulars = header.regulars.iter().map(|column| (column, ColumnKind::Regular));
    for (column, kind) in statics.chain(regulars) {
        match table.column(&column.name) {
            Some(known) if known.kind == kind && known.ty == column.ty => {}
            Some(_) => {
                return Err(format!("its column {} has another type than that of the table", column.name));
            }
            // Values of a column that was dropped are older than that, or the column would be there.
            None if table.dropped_columns.contains_key(&column.name) => {}
            None => return Err(format!("the table has no column {}", column.name)),
        }
    }
    Ok(())
}

/// The writing of the staged SSTables.
struct Staging<'a> {
    inner: &'a Rc<Inner>,
    store: &'a Store,
    table: Arc<Table>,
    folder: PathBuf,
    owned: &'a OwnedRanges,
    sharder: TableSharder,
    generation: u64,
    shards: Vec<Vec<Incoming>>,
    partitions: u64,
}

impl<'a> Staging<'a> {
    fn new(inner: &'a Rc<Inner>, store: &'a Store, folder: PathBuf, owned: &'a OwnedRanges) -> Self {
        let count = inner.rt.shard_count();
        let shards = (0..count).map(|_| Vec::new()).collect();
        let sharder = inner.sharding.sharder_of(store.id);
        let table = store.table();
        Self { inner, store, table, folder, owned, sharder, generation: 0, shards, partitions: 0 }
    }

    async fn take(&mut self, sources: &[Descriptor]) -> Result<(), MaintenanceError> {
        let rt = &self.inner.rt;
        for source in sources {
            let (data, digest) = (source.path(Component::Data), source.path(Component::Digest));
            sstable::verify::verify_digest(rt, data, digest).await.map_err(disk_or_source)?;
            let opened = Sstable::open(rt, source.clone(), self.table.clone(), Rc::new(NoCache)).await;
            let sstable = opened.map_err(disk_or_source)?;
            check_columns(&sstable, &self.table).map_err(|why| refused(format!("{source}: {why}")))?;
            self.claim(&sstable).await?;
            self.split(&sstable).await?;
        }
        Ok(())
    }

    /// Refuses an SSTable for which there is no room.
    async fn claim(&self, sstable: &Sstable) -> Result<(), MaintenanceError> {
        let disk = self.inner.rt.disk();
        let (free, total) = (disk.free_space(&self.folder).await?, disk.total_space(&self.folder).await?);
        let spared = ROOM_SPARED_MAX.min(total / 20) + self.inner.compactions.claimed();
        if sstable.disk_len() > free.saturating_sub(spared) {
            let (needed, free) = (sstable.disk_len().div_ceil(1 << 20), free >> 20);
            let name = sstable.descriptor();
            return Err(refused(format!(
                "{name} needs {needed} MiB, and the file system has {free} MiB free"
            )));
        }
        Ok(())
    }

    /// Writes an SSTable anew, one for each shard that owns partitions of it.
    async fn split(&mut self, sstable: &Rc<Sstable>) -> Result<(), MaintenanceError> {
        let mut writers: BTreeMap<u16, SstableWriter> = BTreeMap::new();
        let mut source = sstable.scan(&PartitionRange::all());
        let (mut fragments, mut owner, mut read) = (FragmentBuffer::new(), 0, 0);
        while source.fill_next(&mut fragments).await.map_err(disk_or_source)? {
            if self.inner.health.is_stopped() {
                return Err(MaintenanceError::Stopped);
            }
            if self.store.dropped.get() {
                return Err(MaintenanceError::UnknownTable(self.store.id));
            }
            let throttle = &self.inner.compactions.throttle;
            throttle.take_step(&self.inner.rt, sstable, &mut read, source.position()).await;
            while let Some(mut fragment) = fragments.pop_front() {
                if let Fragment::PartitionStart { key, .. } = &fragment {
                    if !self.owned.contains(key.token) {
                        let (name, token) = (sstable.descriptor(), key.token);
                        return Err(refused(format!(
                            "{name} holds the partition of token {token}, of which this node is no replica"
                        )));
                    }
                    self.partitions += 1;
                    owner = self.sharder.shard_of(key.token);
                    if let Entry::Vacant(vacant) = writers.entry(owner) {
                        self.generation += 1;
                        let writer = self.writer(sstable, owner).await.map_err(disk_or_source)?;
                        vacant.insert(writer);
                    }
                }
                if fragment.keep_columns(&self.table) {
                    let writer = writers.get_mut(&owner).expect("opened at the partition's start");
                    writer.push(fragment).await.map_err(disk_or_source)?;
                }
            }
        }
        for (shard, writer) in writers {
            let written = writer.finish().await.map_err(disk_or_source)?;
            if let Some(incoming) = self.incoming(written).await? {
                self.shards.get_mut(usize::from(shard)).expect("a shard of this node").push(incoming);
            }
        }
        Ok(())
    }

    /// The files of a written SSTable; none when it has nothing in it.
    async fn incoming(&self, written: Written) -> Result<Option<Incoming>, MaintenanceError> {
        if written.bounds.is_none() {
            return Ok(None);
        }
        let mut files = Vec::new();
        for component in Component::ALL {
            let path = written.descriptor.path(component);
            if self.inner.rt.disk().exists(&path).await? {
                files.push((component, path));
            }
        }
        Ok(Some(Incoming { files }))
    }

    async fn writer(&self, source: &Sstable, shard: u16) -> Result<SstableWriter, SstableError> {
        let count = self.sharder.shard_count();
        let partitions = source.estimated_partitions() / u64::from(count) + 1;
        let mut options = WriterOptions::for_table(&self.table, partitions);
        options.host_id = Some(self.inner.config.host_id);
        options.large = self.inner.settings.get().large;
        options.owner = mark_of(&self.sharder, shard);
        let encoding = source.metadata().header.encoding;
        let (rt, folder, table) = (&self.inner.rt, self.folder.clone(), self.table.clone());
        SstableWriter::new(rt, folder, self.generation, table, options, encoding).await
    }
}
