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
use crate::{BlockCache, Component, Descriptor, SstableError};
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
    let path = descriptor.path(Component::Statistics);
    let bytes = disk.read_to_end(&path, STATISTICS_LEN_MAX).await?;
    Metadata::decode(&bytes, descriptor.version).map_err(|error| error.in_file(&path, 0))
}

/// Opens the data file with what describes its chunks.
pub(crate) async fn open_data(
    disk: &Disk,
    descriptor: &Descriptor,
    cache: Rc<dyn BlockCache>,
) -> Result<BlockFile, SstableError> {
    let info_path = descriptor.path(Component::CompressionInfo);
    let crc_path = descriptor.path(Component::Crc);
    let info = component(disk, info_path.clone(), COMPONENT_LEN_MAX).await?;
    let crcs = match &info {
        Some(_) => None,
        None => component(disk, crc_path.clone(), COMPONENT_LEN_MAX).await?,
    };
    let layout = |file_len: u64| {
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
        let metadata = read_metadata(disk, &descriptor).await?;
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
        let data = Rc::new(open_data(disk, &descriptor, cache.clone()).await?);
        let index_path = descriptor.path(Component::Index);
        let index = Rc::new(BlockFile::open(disk, index_path, |_| Ok(Layout::Pages), cache).await?);

        let summary_path = descriptor.path(Component::Summary);
        let summary = match component(disk, summary_path.clone(), COMPONENT_LEN_MAX).await? {
            Some(bytes) => {
                Summary::decode(&bytes, index.len()).map_err(|error| error.in_file(&summary_path, 0))?
            }
            None => rebuild_summary(&index, table.options.min_index_interval.max(1)).await?,
        };
        let filter_path = descriptor.path(Component::Filter);
        let filter = component(disk, filter_path.clone(), COMPONENT_LEN_MAX).await?;
        let filter = filter.map(|bytes| Filter::decode(&bytes, descriptor.version)).transpose();
        let filter = filter.map_err(|error| error.in_file(&filter_path, 0))?;

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
        }))
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

/// Samples the index anew, for an SSTable without a summary.
async fn rebuild_summary(index: &Rc<BlockFile>, interval: u32) -> Result<Summary, SstableError> {
    let mut builder = SummaryBuilder::new(interval);
    let mut cursor = IndexCursor::new(index.clone(), 0, true);
    let mut position = 0;
    while let Some(entry) = cursor.next().await? {
        let key = entry.key.as_ref().expect("entries read in order have their keys");
        if builder.bounds().is_some_and(|(_, last)| last >= key) {
            return Err(cursor.corrupt("keys in ring order", format!("{key:?}")));
        }
        builder.add(key, position);
        position = cursor.position();
    }
    builder
        .build()
        .ok_or_else(|| SstableError::corrupt(index.path(), 0, "an index of at least one partition", "none"))
}
