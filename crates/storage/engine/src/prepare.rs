//! The work that a node does once before its shards open: finish edits that a crash interrupted, and give every SSTable and every
//! entry of the commit logs to the one shard that owns it.
//!
//! Which shard owns an SSTable is noted in the SSTable ([`sstable::Integrity::owner`]). Of files that Cassandra wrote and
//! files of a node with another number of shards the keys in the index tell, and once that was found out it is noted. The
//! files of an SSTable that came without checksums are compared with each other before it is used.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use commitlog::{SegmentEntries, list_segments, read_header, read_shard};
use memtable::Memtable;
use mutation::codec::decode_update;
use mutation::{Fragment, FragmentBuffer, PartitionRange, PartitionUpdate};
use rt::Rt;
use schema::{Schema, Table, TableId};
use sstable::integrity::note_owner;
use sstable::{
    Component, Descriptor, Integrity, NoCache, Sstable, SstableError, SstableWriter, WriterOptions, certify,
    table_dir,
};
use topology::TableSharder;

use crate::edit::{Edit, finish_edits};
use crate::flush::{encoding_stats, write_memtable};
use crate::generation::{next_generation_after, shard_of_generation};
use crate::links::{is_backed_up, link_backup};
use crate::quarantine::generation_max;
use crate::schema_change::Definitions;
use crate::sharding::{Sharding, mark_of};
use crate::{EngineConfig, OpenError, quarantine};

/// To be called once a node, on one shard, before any [`crate::Engine::open`]: finishes or undoes edits that a crash
/// interrupted, and splits SSTables and commit logs that were written for another number of shards or copied in from
/// elsewhere.
///
/// # Errors
/// [`OpenError::Disk`] when the disk fails, [`OpenError::CommitLog`] when durable entries are damaged or missing,
/// [`OpenError::Sstable`] when an SSTable to be split cannot be written, [`OpenError::NewerVersion`].
pub async fn prepare(rt: &Rt, config: &EngineConfig, schema: &Arc<Schema>) -> Result<(), OpenError> {
    let disk = rt.disk();
    disk.create_dir_all(&config.data_directory).await?;
    let node = Node::new(rt, config);
    for table in schema.tables() {
        let dir = table_dir(&config.data_directory, table);
        if !disk.exists(&dir).await? {
            continue;
        }
        finish_edits(disk, &dir).await?;
        quarantine::settle(rt, &dir).await?;
        crate::import::remove_leftovers(disk, &dir).await?;
        crate::marks::remove_others(disk, &dir, Some(rt.shard_count())).await?;
        node.share_out_sstables(&table.with_dropped_columns(|_| true), &dir).await?;
    }
    node.share_out_logs(schema).await
}

/// The node whose files are prepared.
pub(crate) struct Node<'a> {
    rt: Rt,
    config: &'a EngineConfig,
    shards: u16,
    sharding: Sharding,
}

impl<'a> Node<'a> {
    pub(crate) fn new(rt: &Rt, config: &'a EngineConfig) -> Self {
        Self { rt: rt.clone(), config, shards: rt.shard_count(), sharding: Sharding::new(rt, config) }
    }

    /// Makes every SSTable of a table belong to one shard, and its number say which.
    async fn share_out_sstables(&self, table: &Arc<Table>, dir: &Path) -> Result<(), OpenError> {
        let disk = self.rt.disk();
        let mut generation = generation_max(disk, dir).await?;
        for descriptor in sstable::list_complete(disk, dir).await? {
            let shared_out = self.share_out(table, &descriptor, &mut generation).await;
            if !matches!(shared_out, Ok(false)) {
                // An edit is finished the way that a crash would leave to the next start.
                finish_edits(disk, dir).await?;
            }
            match shared_out {
                Ok(_) => {}
                Err(SstableError::Disk(error)) => return Err(error.into()),
                // Its owner is not known: no shard would notice that it is missing.
                Err(damage) => quarantine::set_aside(disk, &descriptor, &damage).await?,
            }
        }
        Ok(())
    }

    /// Makes one SSTable belong to one shard; whether that took an edit. Without need only its metadata
    /// is read.
    async fn share_out(
        &self,
        table: &Arc<Table>,
        descriptor: &Descriptor,
        generation: &mut u64,
    ) -> Result<bool, SstableError> {
        let (disk, shards) = (self.rt.disk(), self.shards);
        let sharder = self.sharding.sharder_of(table.id);
        let named = if shards == 1 { Some(0) } else { shard_of_generation(descriptor, shards) };
        let integrity = self.integrity(descriptor).await?;
        let owner = integrity.as_ref().and_then(|integrity| integrity.owner);
        if owner.is_some() && owner == named.and_then(|shard| mark_of(&sharder, shard)) {
            return Ok(false);
        }
        let sstable = Sstable::open(&self.rt, descriptor.clone(), table.clone(), Rc::new(NoCache)).await?;
        let owners = self.owners(&sstable, &sharder).await?;
        let Some(shard) = owners.first().copied().filter(|_| owners.len() == 1) else {
            self.replace(&sstable, table, &sharder, generation).await?;
            return Ok(true);
        };
        drop(sstable);
        let mark = mark_of(&sharder, shard);
        let noted = match integrity {
            Some(integrity) => note_owner(disk, descriptor, integrity, mark).await,
            None => {
                tracing::info!(
                    "{descriptor} has no checksums of its index: all of its files are compared once"
                );
                certify(&self.rt, descriptor, mark).await
            }
        };
        match noted {
            // It was found sound and belongs here; the next start notes it.
            Err(SstableError::Disk(error)) if error.is_disk_full() && Some(shard) == named => {
                tracing::warn!("{descriptor} is used without checksums of its index: {error}");
                return Ok(false);
            }
            noted => noted?,
        }
        if Some(shard) == named {
            return Ok(false);
        }
        *generation = next_generation_after(*generation, shard, shards);
        let mut edit = self.begin_edit(&descriptor.dir).await?;
        self.rename(descriptor, *generation, &mut edit).await?;
        edit.commit(std::slice::from_ref(descriptor)).await?;
        Ok(true)
    }

    /// The SSTable's list of its files; nothing when that is damaged, because it can be found out anew.
    async fn integrity(&self, descriptor: &Descriptor) -> Result<Option<Integrity>, SstableError> {
        let disk = self.rt.disk();
        match Integrity::read(disk, descriptor).await {
            Err(SstableError::Corrupt(damage)) => {
                tracing::warn!("{damage}: all components of the SSTable are verified, and it is rebuilt");
                certify(&self.rt, descriptor, None).await?;
                Integrity::read(disk, descriptor).await
            }
            read => read,
        }
    }

    async fn begin_edit(&self, dir: &Path) -> Result<Edit, SstableError> {
        let mut id = [0; 16];
        self.rt.fill_random(&mut id);
        Ok(Edit::begin(self.rt.disk(), dir, "unknown", id).await?)
    }

    /// The shards that own partitions of an SSTable, by its index.
    async fn owners(
        &self,
        sstable: &Rc<Sstable>,
        sharder: &TableSharder,
    ) -> Result<BTreeSet<u16>, SstableError> {
        let ends = [sstable.first().token, sstable.last().token];
        let mut owners: BTreeSet<u16> = BTreeSet::new();
        owners.extend(sstable.sampled_tokens().chain(ends).map(|token| sharder.shard_of(token)));
        if owners.len() > 1 || self.shards == 1 {
            return Ok(owners);
        }
        let mut tokens = sstable.tokens();
        while let Some(token) = tokens.next().await? {
            owners.insert(sharder.shard_of(token));
            if owners.len() > 1 {
                break;
            }
        }
        Ok(owners)
    }

    /// Replaces an SSTable by one for each shard that owns partitions of it.
    async fn replace(
        &self,
        sstable: &Rc<Sstable>,
        table: &Arc<Table>,
        sharder: &TableSharder,
        generation: &mut u64,
    ) -> Result<(), SstableError> {
        let mut edit = self.begin_edit(&sstable.descriptor().dir).await?;
        if let Err(error) = self.split(sstable, (table, sharder), generation, &mut edit).await {
            edit.abort().await?;
            return Err(error);
        }
        edit.commit(std::slice::from_ref(sstable.descriptor())).await?;
        Ok(())
    }

    /// Gives an SSTable another number: its files get second names, the TOC last.
    async fn rename(&self, from: &Descriptor, generation: u64, edit: &mut Edit) -> Result<(), SstableError> {
        let disk = self.rt.disk();
        let target = Descriptor { generation: sstable::Generation::Number(generation), ..from.clone() };
        edit.add(&target).await?;
        for component in Component::ALL {
            match disk.hard_link(from.path(component), target.path(component)).await {
                Err(error) if error.is_not_found() => {}
                done => done?,
            }
        }
        Ok(disk.sync_dir(&from.dir).await?)
    }

    /// Writes an SSTable anew, one for each shard that owns partitions of it.
    async fn split(
        &self,
        sstable: &Rc<Sstable>,
        (table, sharder): (&Arc<Table>, &TableSharder),
        generation: &mut u64,
        edit: &mut Edit,
    ) -> Result<(), SstableError> {
        let count = self.shards;
        let mut writers: BTreeMap<u16, SstableWriter> = BTreeMap::new();
        let mut source = sstable.scan(&PartitionRange::all());
        let mut fragments = FragmentBuffer::new();
        let mut owner = 0;
        while source.fill_next(&mut fragments).await? {
            self.rt.maybe_yield().await;
            while let Some(fragment) = fragments.pop_front() {
                if let Fragment::PartitionStart { key, .. } = &fragment {
                    owner = sharder.shard_of(key.token);
                    if let Entry::Vacant(vacant) = writers.entry(owner) {
                        *generation = next_generation_after(*generation, owner, count);
                        edit.add(&Descriptor::new(&sstable.descriptor().dir, *generation)).await?;
                        let writer = self.writer(sstable, (table, sharder), *generation, owner).await?;
                        vacant.insert(writer);
                    }
                }
                writers.get_mut(&owner).expect("opened at the partition's start").push(fragment).await?;
            }
        }
        for writer in writers.into_values() {
            let written = writer.finish().await?;
            assert!(written.partitions > 0, "a shard's part is begun with a partition");
        }
        Ok(())
    }

    async fn writer(
        &self,
        sstable: &Rc<Sstable>,
        (table, sharder): (&Arc<Table>, &TableSharder),
        generation: u64,
        owner: u16,
    ) -> Result<SstableWriter, SstableError> {
        let partitions = sstable.estimated_partitions() / u64::from(self.shards) + 1;
        let mut options = WriterOptions::for_table(table, partitions);
        options.level = sstable.level();
        options.repaired_at = sstable.repaired_at();
        options.host_id = Some(self.config.host_id);
        options.large = self.config.settings.large;
        options.owner = mark_of(sharder, owner);
        let encoding = sstable.metadata().header.encoding;
        let dir = sstable.descriptor().dir.clone();
        SstableWriter::new(&self.rt, dir, generation, table.clone(), options, encoding).await
    }

    /// When the logs were written by another number of shards, writes their content to SSTables of the present owners
    /// and removes them.
    async fn share_out_logs(&self, schema: &Arc<Schema>) -> Result<(), OpenError> {
        let disk = self.rt.disk();
        let count = self.shards;
        let mut shards = BTreeSet::new();
        let mut foreign = false;
        for (shard, path) in list_segments(disk, &self.config.commitlog.directory).await? {
            shards.insert(shard);
            let header = read_header(disk, &path).await?;
            foreign |= header.is_none_or(|header| header.shard_count != count);
        }
        if !foreign {
            return Ok(());
        }
        commitlog::remove_spares(disk, &self.config.commitlog.directory, count).await?;
        for shard in shards {
            let paths = self.write_logged_of(shard, &|id| schema.table_by_id(id).cloned()).await?;
            for path in paths {
                if let Some(archive) = &self.config.commitlog.archive_directory {
                    disk.create_dir_durably(archive).await?;
                    commitlog::archive(disk, &path, archive).await?;
                }
                disk.remove(&path).await?;
                // Each for itself: after a power failure none is missing between two others.
                disk.sync_dir(&self.config.commitlog.directory).await?;
            }
        }
        Ok(())
    }

    /// Writes the rows of these tables that only the commit logs of the node have to SSTables.
    pub(crate) async fn write_logged(
        &self,
        table_of: &impl Fn(TableId) -> Option<Arc<Table>>,
    ) -> Result<(), OpenError> {
        let segments = list_segments(self.rt.disk(), &self.config.commitlog.directory).await?;
        let shards: BTreeSet<u16> = segments.into_iter().map(|(shard, _)| shard).collect();
        for shard in shards {
            self.write_logged_of(shard, table_of).await?;
        }
        Ok(())
    }

    /// Writes the rows of these tables that only the commit log of one shard has to SSTables of the present owners. Gives the files of
    /// the log.
    async fn write_logged_of(
        &self,
        shard: u16,
        table_of: &impl Fn(TableId) -> Option<Arc<Table>>,
    ) -> Result<Vec<PathBuf>, OpenError> {
        let (mut recovery, paths) = read_shard(&self.rt, &self.config.commitlog, shard).await?;
        let flushed = std::mem::take(&mut recovery.checkpoint.flushed);
        let (mut held, mut definitions) = (Held::default(), Definitions::default());
        while let Some(SegmentEntries { mutations, entries }) = recovery.next_segment().await? {
            for (number, body) in entries {
                for update in commitlog::entry::updates(&body).into_iter().flatten() {
                    let unreadable =
                        |reason: String| OpenError::CommitLog(format!("entry {number}: {reason}"));
                    let (_, update) = update.map_err(|short| unreadable(short.to_string()))?;
                    let decoded = decode_update(mutations, &update, |id| {
                        table_of(id).map(|table| definitions.of(&table))
                    });
                    let update = decoded.map_err(|error| unreadable(error.to_string()))?;
                    let wanted = |update: &PartitionUpdate| {
                        flushed.get(&update.table.id).is_none_or(|upto| number > *upto)
                    };
                    if let Some(update) = update.filter(wanted) {
                        let owner = self.sharding.sharder_of(update.table.id).shard_of(update.key.token);
                        held.add(update, owner);
                    }
                }
                self.rt.maybe_yield().await;
            }
            if held.bytes() > self.config.memtable_bytes_max / 2 {
                self.write_held(std::mem::take(&mut held)).await?;
            }
        }
        self.write_held(held).await?;
        Ok(paths)
    }

    async fn write_held(&self, held: Held) -> Result<(), OpenError> {
        let disk = self.rt.disk();
        for ((_, owner), memtable) in held.memtables {
            let table = memtable.table();
            let dir = table_dir(&self.config.data_directory, &table);
            disk.create_dir_durably(&dir).await?;
            let taken = generation_max(disk, &dir).await?;
            let generation = next_generation_after(taken, owner, self.shards);
            let mut options = WriterOptions::for_table(&table, memtable.partitions() as u64);
            options.host_id = Some(self.config.host_id);
            options.large = self.config.settings.large;
            options.owner = mark_of(&self.sharding.sharder_of(table.id), owner);
            let encoding = encoding_stats(&memtable);
            let writer =
                SstableWriter::new(&self.rt, dir.clone(), generation, table.clone(), options, encoding)
                    .await?;
            let written =
                write_memtable(&self.rt, &table, &memtable, writer, crate::Canaries::default()).await?;
            if written.bounds.is_none() {
                sstable::remove(disk, &written.descriptor).await?;
            } else if self.config.settings.incremental_backups && is_backed_up(&table) {
                link_backup(disk, &written.descriptor, &table).await?;
            }
        }
        Ok(())
    }
}

/// The updates that were read from logs and not written yet, by table and owner.
#[derive(Default)]
struct Held {
    memtables: BTreeMap<(TableId, u16), Memtable>,
}

impl Held {
    fn add(&mut self, update: PartitionUpdate, owner: u16) {
        let place = (update.table.id, owner);
        let memtable = self.memtables.entry(place).or_insert_with(|| Memtable::new(update.table.clone()));
        memtable.apply(update);
    }

    fn bytes(&self) -> usize {
        self.memtables.values().map(Memtable::bytes).sum()
    }
}
