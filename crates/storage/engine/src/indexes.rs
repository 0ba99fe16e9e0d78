//! The indexes of SSTables: their files, and the task that makes those that are missing (docs/design/index.md).
//!
//! An SSTable that is new is indexed before it enters the set. One that has come otherwise, or whose file cannot be used, is
//! indexed by the builder of the shard; until then queries of that index fail.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use compaction::Progress;
use index::{Definition, IndexBuilder, IndexFile, IndexFileError, SstableIdentity};
use mutation::{Fragment, FragmentBuffer, PartitionRange};
use rt::{Disk, DiskError};
use schema::TableId;
use sstable::{Component, Descriptor, Generation, SstableError};

use crate::MaintenanceError;
use crate::engine::Inner;
use crate::live::LiveSstable;
use crate::store::Store;

/// The folder of index files in a table's directory.
const FOLDER: &str = "indexes";
/// Between two looks at whether an index is built anew.
const REBUILD_PAUSE: Duration = Duration::from_millis(20);

/// The file of one index of one SSTable.
pub(crate) fn path(dir: &Path, descriptor: &Descriptor, definition: &Definition) -> Option<PathBuf> {
    match descriptor.generation {
        Generation::Number(number) => {
            Some(dir.join(FOLDER).join(format!("{number}-{:016x}.db", definition.fingerprint())))
        }
        Generation::Time(_) => None,
    }
}

/// The SSTable of an index file.
fn generation_of(name: &str) -> Option<u64> {
    name.strip_suffix(".db")?.split_once('-')?.0.parse().ok()
}

/// Removes all index files of a table.
pub(crate) async fn remove_folder(disk: &Disk, dir: &Path) -> Result<(), DiskError> {
    let folder = dir.join(FOLDER);
    if disk.exists(&folder).await? { disk.remove_dir_all(&folder).await } else { Ok(()) }
}

impl LiveSstable {
    /// Its index of this definition.
    pub(crate) fn index(&self, definition: &Definition) -> Option<Rc<IndexFile>> {
        self.indexes.borrow().iter().find(|file| **file.definition() == *definition).cloned()
    }

    /// Takes an index into use.
    pub(crate) fn add_index(&self, file: Rc<IndexFile>) {
        assert!(self.index(file.definition()).is_none(), "an SSTable has one index of a definition");
        self.indexes.borrow_mut().push(file);
    }

    /// Takes an index out of use; it is made again.
    pub(crate) fn drop_index(&self, file: &Rc<IndexFile>) {
        self.indexes.borrow_mut().retain(|other| !Rc::ptr_eq(other, file));
    }
}

impl Store {
    /// Whether the table has this index; one that was dropped is in none of its definitions.
    pub(crate) fn is_indexed(&self, definition: &Definition) -> bool {
        self.memtables.definitions().iter().any(|known| **known == *definition)
    }

    /// Whether each memtable and each SSTable that can be read has an index of this definition.
    fn has_index(&self, definition: &Definition) -> bool {
        let readable = |live: &&Rc<LiveSstable>| !live.suspect.get();
        self.memtables.indexes(definition).is_some()
            && self.set().iter().filter(readable).all(|live| live.index(definition).is_some())
    }

    /// The indexes that can be queried, by table and name.
    pub(crate) fn built_indexes(&self) -> Vec<(TableId, String)> {
        let definitions = self.memtables.definitions();
        let built = definitions.iter().filter(|definition| self.has_index(definition));
        built.map(|definition| (self.id, definition.name.clone())).collect()
    }
}

/// Makes these indexes of a table anew, or all; queries of them fail until that is done.
pub(crate) async fn rebuild(inner: &Inner, store: &Store, names: &[String]) -> Result<(), MaintenanceError> {
    let definitions = store.memtables.definitions();
    let is_named = |definition: &Definition| names.is_empty() || names.contains(&definition.name);
    if let Some(unknown) = names.iter().find(|name| !definitions.iter().any(|it| it.name == **name)) {
        return Err(MaintenanceError::UnknownIndex(unknown.clone()));
    }
    for live in store.set().iter() {
        let files = live.indexes.borrow().clone();
        for file in files.iter().filter(|file| is_named(file.definition())) {
            live.drop_index(file);
            if let Some(path) = path(&store.dir, live.sstable.descriptor(), file.definition()) {
                // A file that cannot be removed is replaced.
                let _ = inner.rt.disk().remove(path).await;
            }
        }
    }
    loop {
        let definitions = store.memtables.definitions();
        if definitions.iter().filter(|it| is_named(it)).all(|it| store.has_index(it)) {
            return Ok(());
        }
        if store.dropped.get() {
            return Err(MaintenanceError::UnknownTable(store.id));
        }
        if inner.health.is_stopped() {
            return Err(MaintenanceError::Stopped);
        }
        inner.index_check.notify_one();
        inner.rt.sleep(REBUILD_PAUSE).await;
    }
}

/// How fast an SSTable is indexed.
#[derive(Clone, Copy)]
pub(crate) enum Speed<'a> {
    /// At once: a memtable's memory is free again only after that, and writes wait for it.
    Unlimited,
    /// No faster than compactions may read, step by step, until this is true. The bytes that were read are counted, if it is shown.
    Limited(&'a dyn Fn() -> bool, Option<&'a Progress>),
}

impl Speed<'_> {
    fn is_stopped(self) -> bool {
        matches!(self, Self::Limited(stop, _) if stop())
    }
}

/// Indexes SSTables that are about to enter the set. Failures are left to the builder: rows are not to wait for their indexes.
pub(crate) async fn build_new(inner: &Inner, store: &Store, added: &[Rc<LiveSstable>], speed: Speed<'_>) {
    for definition in store.memtables.definitions().iter() {
        for live in added {
            if store.dropped.get() || speed.is_stopped() {
                return;
            }
            if !store.is_indexed(definition) {
                break;
            }
            if let Err(error) = build_index(inner, store, live, definition, speed).await {
                index_failed(store, definition, &error);
            }
        }
    }
}

/// Removes the index files of SSTables that did not enter the set.
pub(crate) async fn discard(inner: &Inner, added: &[Rc<LiveSstable>]) {
    for live in added {
        for file in live.indexes.take() {
            // The next start removes those that stay.
            let _ = inner.rt.disk().remove(file.path().to_owned()).await;
        }
    }
}

/// Opens the index files of an SSTable that was there at the start.
pub(crate) async fn open(inner: &Inner, store: &Store, live: &LiveSstable) {
    for definition in store.memtables.definitions().iter() {
        let descriptor = live.sstable.descriptor();
        let Some(path) = path(&store.dir, descriptor, definition) else { continue };
        let Ok(identity) = identity(inner, live).await else { continue };
        match IndexFile::open(inner.rt.disk(), path, identity, definition.clone()).await {
            Ok(file) => live.add_index(file),
            Err(IndexFileError::Disk(error)) if error.is_not_found() => {}
            Err(error) => tracing::warn!("{error}; it is made again"),
        }
    }
}

/// Removes index files of SSTables that are not there any more, of this shard's generations.
pub(crate) async fn remove_orphans(inner: &Inner, store: &Store) -> Result<(), DiskError> {
    let (disk, folder) = (inner.rt.disk(), store.dir.join(FOLDER));
    if !disk.exists(&folder).await? {
        return Ok(());
    }
    let (shard, count) = (u64::from(inner.rt.shard().0), u64::from(inner.rt.shard_count()));
    let set = store.set();
    let definitions = store.memtables.definitions();
    let wanted: Vec<PathBuf> = set
        .iter()
        .flat_map(|live| definitions.iter().map(move |definition| (live, definition)))
        .filter_map(|(live, definition)| path(&store.dir, live.sstable.descriptor(), definition))
        .collect();
    for entry in disk.list(&folder).await? {
        let is_own = generation_of(&entry.name).is_some_and(|generation| generation % count == shard);
        let path = folder.join(&entry.name);
        if is_own && !wanted.contains(&path) {
            disk.remove(&path).await?;
        }
    }
    Ok(())
}

pub(crate) async fn identity(inner: &Inner, live: &LiveSstable) -> Result<SstableIdentity, SstableError> {
    let digest = live.sstable.descriptor().path(Component::Digest);
    let checksum = sstable::verify::read_digest(&inner.rt, digest).await?.unwrap_or(0);
    Ok(SstableIdentity { len: live.sstable.data_len(), checksum })
}

/// Makes an index of an SSTable, unless the table or the index is dropped or `speed` ends it meanwhile.
pub(crate) async fn build_index(
    inner: &Inner,
    store: &Store,
    live: &Rc<LiveSstable>,
    definition: &Arc<Definition>,
    speed: Speed<'_>,
) -> Result<(), SstableError> {
    if live.index(definition).is_some() {
        return Ok(());
    }
    let Some(path) = path(&store.dir, live.sstable.descriptor(), definition) else { return Ok(()) };
    let Some(identity) = write_file(inner, store, live, definition, &path, speed).await? else {
        return Ok(());
    };
    inner.rt.buggify("index: its file is written, nobody goes by it").await;
    match IndexFile::open(inner.rt.disk(), path, identity, definition.clone()).await {
        Ok(file) => live.add_index(file),
        Err(IndexFileError::Disk(error)) => return Err(error.into()),
        Err(error) => tracing::error!("{error}, although it was just written; it is made again"),
    }
    Ok(())
}

/// Writes the file of an index; the SSTable that it is of. None, and no file, when the table or the index is dropped or `speed` ends it.
pub(crate) async fn write_file(
    inner: &Inner,
    store: &Store,
    live: &LiveSstable,
    definition: &Arc<Definition>,
    path: &Path,
    speed: Speed<'_>,
) -> Result<Option<SstableIdentity>, SstableError> {
    let disk = inner.rt.disk();
    disk.create_dir_durably(store.dir.join(FOLDER)).await?;
    let identity = identity(inner, live).await?;
    let of = (store.table(), definition.clone());
    let mut builder = IndexBuilder::create(disk, path.to_owned(), identity, of).await?;
    let mut source = live.sstable.scan(&PartitionRange::all());
    let (mut fragments, mut rows, mut read, mut shown) = (FragmentBuffer::new(), 0_u64, 0, 0);
    while source.fill_next(&mut fragments).await? {
        if let Speed::Limited(_, progress) = speed {
            if let Some(progress) = progress {
                progress.advance(&mut shown, source.position());
            }
            inner
                .compactions
                .throttle
                .take_step(&inner.rt, &live.sstable, &mut read, source.position())
                .await;
        }
        while let Some(fragment) = fragments.pop_front() {
            if inner.config.canaries.lost_places && matches!(&fragment, Fragment::Row(_)) {
                rows += 1;
                if rows % 4 == 1 {
                    continue;
                }
            }
            builder.push(fragment).await?;
        }
        if store.dropped.get() || speed.is_stopped() || !store.is_indexed(definition) {
            drop(builder);
            // The next attempt, or the next start, replaces one that stays.
            let _ = disk.remove(path).await;
            return Ok(None);
        }
    }
    builder.finish().await?;
    Ok(Some(identity))
}

pub(crate) fn index_failed(store: &Store, definition: &Definition, error: &SstableError) {
    if store.dropped.get() || store.indexes_failing.replace(true) {
        return;
    }
    let table = store.table().full_name();
    tracing::error!(
        "index {} of table {table} cannot be built, and is tried again every second: {error}",
        definition.name
    );
}
