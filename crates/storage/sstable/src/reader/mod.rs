//! Reads the partitions of an SSTable.

mod blocks;
mod cursor;
mod lookup;
mod raw;
mod reverse;
mod source;
mod stretch;

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use mutation::{ColumnSelection, DecoratedKey, PartitionRange, Seconds, Slices, Timestamp};
use rt::{Disk, DiskError, Rt};
use schema::Table;

use crate::checksums::ChunkChecksums;
use crate::compression_info::CompressionInfo;
use crate::filter::{Filter, key_hash};
use crate::metadata::{Metadata, PARTITIONER};
use crate::summary::{Summary, SummaryBuilder};
use crate::unfiltered::decode::ItemDecoder;
use crate::{BlockCache, Component, Descriptor, Integrity, SstableError};
pub(crate) use blocks::{BlockFile, Layout};
pub(crate) use lookup::{BlockLookup, Entry, IndexCursor};
pub(crate) use raw::{RawItem, RawScan};
pub use source::SstableSource;
pub(crate) use stretch::{Copied, Stretch, StretchPartition};

/// Metadata beyond this size is not believed.
const STATISTICS_LEN_MAX: usize = 64 << 20;
/// The largest filter, summary and list of chunks that are loaded.
const COMPONENT_LEN_MAX: usize = 4 << 30;

/// An open SSTable: its filter, summary and metadata in memory, its files open.
pub struct Sstable {
    rt: Rt,
    descriptor: Descriptor,
    table: RefCell<Arc<Table>>,
    decoder: RefCell<Rc<ItemDecoder>>,
    metadata: Metadata,
    filter: Option<Filter>,
    summary: Summary,
    data: Rc<BlockFile>,
    index: Rc<BlockFile>,
    disk_len: u64,
    rebuilt: Vec<SstableError>,
}

impl std::fmt::Debug for Sstable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sstable({})", self.descriptor)
    }
}

/// Reads a component, if it is there.
async fn component(disk: &Disk, path: PathBuf, limit: usize) -> Result<Option<Vec<u8>>, DiskError> {
    match disk.read_to_end(path, limit).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the metadata of an SSTable.
pub async fn read_metadata(disk: &Disk, descriptor: &Descriptor) -> Result<Metadata, SstableError> {
    read_checked_metadata(disk, descriptor, None).await
}

async fn read_checked_metadata(
    disk: &Disk,
    descriptor: &Descriptor,
    integrity: Option<&Integrity>,
) -> Result<Metadata, SstableError> {
    let path = descriptor.path(Component::Statistics);
    let bytes = disk.read_to_end(&path, STATISTICS_LEN_MAX).await;
    let bytes = bytes.map_err(|error| SstableError::of_component(&path, error))?;
    if let Some(integrity) = integrity {
        integrity.check(descriptor, Component::Statistics, &bytes)?;
    }
    Metadata::decode(&bytes, descriptor.version).map_err(|error| error.in_file(&path, 0))
}

/// Opens the data file with what describes its chunks.
pub(crate) async fn open_data(
    disk: &Disk,
    descriptor: &Descriptor,
    integrity: Option<&Integrity>,
    cache: Rc<dyn BlockCache>,
) -> Result<BlockFile, SstableError> {
    let info_path = descriptor.path(Component::CompressionInfo);
    let crc_path = descriptor.path(Component::Crc);
    let info = component(disk, info_path.clone(), COMPONENT_LEN_MAX).await?;
    let crcs = match &info {
        Some(_) => None,
        None => component(disk, crc_path.clone(), COMPONENT_LEN_MAX).await?,
    };
    if let Some(integrity) = integrity {
        for (component, bytes) in [(Component::CompressionInfo, &info), (Component::Crc, &crcs)] {
            match bytes {
                Some(bytes) => integrity.check(descriptor, component, bytes)?,
                None if integrity.lists(component) => {
                    return Err(SstableError::Missing { file: descriptor.path(component) });
                }
                None => {}
            }
        }
    }
    let layout = |file_len: u64| {
        if let Some(integrity) = integrity {
            Integrity::check_len(descriptor, Component::Data, integrity.data_len, file_len)?;
        }
        if let Some(bytes) = info {
            let info = CompressionInfo::decode(&bytes, descriptor.version, file_len);
            return Ok(Layout::Compressed(info.map_err(|error| error.in_file(&info_path, 0))?));
        }
        let checksums = crcs.map(|bytes| ChunkChecksums::decode(&bytes)).transpose();
        Ok(Layout::Plain(checksums.map_err(|error| error.in_file(&crc_path, 0))?))
    };
    BlockFile::open(disk, descriptor.path(Component::Data), layout, cache).await
}

impl Sstable {
    /// Opens an SSTable of `table`.
    pub async fn open(
        rt: &Rt,
        descriptor: Descriptor,
        table: Arc<Table>,
        cache: Rc<dyn BlockCache>,
    ) -> Result<Rc<Self>, SstableError> {
        let disk = rt.disk();
        let mut integrity = Integrity::read(disk, &descriptor).await?;
        let metadata = read_checked_metadata(disk, &descriptor, integrity.as_ref()).await?;
        let statistics = descriptor.path(Component::Statistics);
        if metadata.partitioner != PARTITIONER && !metadata.partitioner.ends_with("Murmur3Partitioner") {
            let what = format!(
                "its partitions are ordered by {}, only {PARTITIONER} is supported",
                metadata.partitioner
            );
            return Err(SstableError::Unsupported { file: statistics, what });
        }
        let decoder = ItemDecoder::new(&metadata.header, &table)
            .map_err(|what| SstableError::WrongTable { file: statistics, what })?;
        let data = Rc::new(open_data(disk, &descriptor, integrity.as_ref(), cache.clone()).await?);
        let pages = integrity.as_mut().map(|integrity| std::mem::take(&mut integrity.index));
        let index_path = descriptor.path(Component::Index);
        let index = Rc::new(BlockFile::open(disk, index_path, |_| Ok(Layout::Pages(pages)), cache).await?);
        let Lookups { summary, filter, rebuilt } =
            Lookups::load(disk, &descriptor, &table, integrity.as_ref(), &metadata, &index).await?;

        let mut disk_len = 0;
        for component in Component::ALL {
            match disk.len(descriptor.path(component)).await {
                Ok(len) => disk_len += len,
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Rc::new(Self {
            rt: rt.clone(),
            descriptor,
            table: RefCell::new(table),
            decoder: RefCell::new(Rc::new(decoder)),
            metadata,
            filter,
            summary,
            data,
            index,
            disk_len,
            rebuilt,
        }))
    }

    /// What is wrong with its summary and its filter, which were made anew from the index therefore: reads are right, and
    /// the next start has to do it again unless it is compacted before.
    pub fn rebuilt(&self) -> &[SstableError] {
        &self.rebuilt
    }

    /// Its name.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Everything that Statistics.db says.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Takes notice of a changed definition of its table, for reads that start from now on.
    pub fn set_table(&self, table: Arc<Table>) -> Result<(), SstableError> {
        let decoder = ItemDecoder::new(&self.metadata.header, &table).map_err(|what| {
            SstableError::WrongTable { file: self.descriptor.path(Component::Statistics), what }
        })?;
        *self.decoder.borrow_mut() = Rc::new(decoder);
        *self.table.borrow_mut() = table;
        Ok(())
    }

    /// Whether the partition can be in it, by key range and bloom filter. No IO.
    pub fn may_contain(&self, key: &DecoratedKey) -> bool {
        *key >= self.summary.first
            && *key <= self.summary.last
            && self.filter.as_ref().is_none_or(|filter| filter.may_contain(key_hash(&key.key)))
    }

    /// Its first partition.
    pub fn first(&self) -> &DecoratedKey {
        &self.summary.first
    }

    /// Its last partition.
    pub fn last(&self) -> &DecoratedKey {
        &self.summary.last
    }

    /// Smallest write timestamp in it.
    pub fn min_timestamp(&self) -> Timestamp {
        self.metadata.stats.min_timestamp
    }

    /// Largest write timestamp in it.
    pub fn max_timestamp(&self) -> Timestamp {
        self.metadata.stats.max_timestamp
    }

    /// Smallest local deletion or expiration time; [`mutation::NO_DELETION`] when there is none.
    pub fn min_local_deletion(&self) -> Seconds {
        self.metadata.stats.min_local_deletion
    }

    /// Largest local deletion time; [`mutation::NO_DELETION`] when something in it never expires.
    pub fn max_local_deletion(&self) -> Seconds {
        self.metadata.stats.max_local_deletion
    }

    /// Estimated share of cells that are tombstones or expired, made before `gc_before`.
    pub fn droppable_tombstone_ratio(&self, gc_before: Seconds) -> f64 {
        self.metadata.stats.droppable_tombstone_ratio(gc_before)
    }

    /// Length of the data file.
    pub fn data_len(&self) -> u64 {
        self.data.file_len()
    }

    /// Length of the data before compression.
    pub fn uncompressed_len(&self) -> u64 {
        self.data.len()
    }

    /// Bytes of all its files.
    pub fn disk_len(&self) -> u64 {
        self.disk_len
    }

    /// Bytes that it keeps in memory.
    pub fn memory_size(&self) -> usize {
        size_of::<Self>()
            + self.filter.as_ref().map_or(0, Filter::memory_size)
            + self.summary.memory_size()
            + self.data.memory_size()
    }

    /// Level in leveled compaction.
    pub fn level(&self) -> u32 {
        self.metadata.stats.level
    }

    /// When its data was repaired, milliseconds; 0 for never.
    pub fn repaired_at(&self) -> i64 {
        self.metadata.stats.repaired_at
    }

    /// Estimated number of partitions.
    pub fn estimated_partitions(&self) -> u64 {
        match &self.metadata.cardinality {
            Some(sketch) => sketch.estimate().max(1),
            None => u64::from(self.summary.full_size) * u64::from(self.summary.interval),
        }
    }

    /// The tokens of sampled partitions, in order: one in [`Summary::interval`].
    pub fn sampled_tokens(&self) -> impl Iterator<Item = i64> {
        self.summary.tokens()
    }

    /// The tokens of all partitions, in order, out of the index.
    pub fn tokens(&self) -> IndexTokens {
        IndexTokens(IndexCursor::new(self.index.clone(), 0, true))
    }

    /// The partitions of `range` that are in it, with the rows of `slices` in order (descending when `reversed`).
    /// Columns that are not selected come without their values, so that they still tell whether a row exists. Range
    /// deletions are clipped to the slices.
    pub fn read(
        self: &Rc<Self>,
        range: &PartitionRange,
        slices: &Rc<Slices>,
        columns: &Rc<ColumnSelection>,
        reversed: bool,
    ) -> SstableSource {
        SstableSource::new(self.clone(), range, slices, columns, reversed, false)
    }

    /// Everything, in large reads that leave the cache alone: for compaction and streaming.
    pub fn scan(self: &Rc<Self>, range: &PartitionRange) -> SstableSource {
        SstableSource::new(self.clone(), range, &Rc::new(Slices::all()), &ColumnSelection::All, false, true)
    }
}

/// The tokens of an SSTable's partitions.
pub struct IndexTokens(IndexCursor);

impl IndexTokens {
    /// The next token; none at the end.
    ///
    /// # Errors
    /// When the index is damaged, or the disk fails.
    pub async fn next(&mut self) -> Result<Option<i64>, SstableError> {
        Ok(self.next_key().await?.map(|key| key.token))
    }

    /// The next key; none at the end.
    ///
    /// # Errors
    /// As [`IndexTokens::next`].
    pub async fn next_key(&mut self) -> Result<Option<DecoratedKey>, SstableError> {
        let entry = self.0.next().await?;
        Ok(entry.map(|entry| entry.key.expect("entries read in order have their keys")))
    }
}

/// What finds a partition in the index.
struct Lookups {
    summary: Summary,
    filter: Option<Filter>,
    rebuilt: Vec<SstableError>,
}

impl Lookups {
    /// Loads summary and filter. Where one is not what was written it is made anew from the index.
    async fn load(
        disk: &Disk,
        descriptor: &Descriptor,
        table: &Table,
        integrity: Option<&Integrity>,
        metadata: &Metadata,
        index: &Rc<BlockFile>,
    ) -> Result<Self, SstableError> {
        let mut rebuilt = Vec::new();
        let mut load = async |part: Component| {
            let path = descriptor.path(part);
            let bytes = component(disk, path.clone(), COMPONENT_LEN_MAX).await?;
            let checked = match (&bytes, integrity) {
                (Some(bytes), Some(integrity)) => integrity.check(descriptor, part, bytes),
                (None, Some(integrity)) if integrity.lists(part) => Err(SstableError::Missing { file: path }),
                _ => return Ok::<_, SstableError>((bytes, false)),
            };
            match checked {
                Ok(()) => Ok((bytes, false)),
                Err(problem) => {
                    rebuilt.push(problem);
                    Ok((None, true))
                }
            }
        };
        let (summary, _) = load(Component::Summary).await?;
        let (filter, make_filter) = load(Component::Filter).await?;
        let in_file =
            |part: Component| move |error: crate::DecodeError| error.in_file(&descriptor.path(part), 0);
        let summary = summary.map(|bytes| Summary::decode(&bytes, index.len())).transpose();
        let mut summary = summary.map_err(in_file(Component::Summary))?;
        let filter = filter.map(|bytes| Filter::decode(&bytes, descriptor.version)).transpose();
        let mut filter = filter.map_err(in_file(Component::Filter))?;
        if summary.is_none() || make_filter {
            let keys = metadata.cardinality.as_ref().map_or(1024, |sketch| sketch.estimate());
            let fresh = if make_filter { Filter::new(keys, metadata.bloom_fp_chance) } else { None };
            let interval = table.options.min_index_interval.max(1);
            let (sampled, filled) = rebuild(index, interval, fresh).await?;
            summary = Some(summary.unwrap_or(sampled));
            filter = filter.or(filled);
        }
        let missing = || SstableError::Missing { file: descriptor.path(Component::Summary) };
        Ok(Self { summary: summary.ok_or_else(missing)?, filter, rebuilt })
    }
}

/// Samples the index anew, and fills a filter with its keys.
async fn rebuild(
    index: &Rc<BlockFile>,
    interval: u32,
    mut filter: Option<Filter>,
) -> Result<(Summary, Option<Filter>), SstableError> {
    let mut builder = SummaryBuilder::new(interval);
    let mut cursor = IndexCursor::new(index.clone(), 0, true);
    let mut position = 0;
    while let Some(entry) = cursor.next().await? {
        let key = entry.key.as_ref().expect("entries read in order have their keys");
        if builder.bounds().is_some_and(|(_, last)| last >= key) {
            return Err(cursor.corrupt("keys in ring order", format!("{key:?}")));
        }
        builder.add(key, position);
        if let Some(filter) = &mut filter {
            filter.insert(key_hash(&key.key));
        }
        position = cursor.position();
    }
    let summary = builder.build().ok_or_else(|| {
        SstableError::corrupt(index.path(), 0, "an index of at least one partition", "none")
    })?;
    Ok((summary, filter))
}
