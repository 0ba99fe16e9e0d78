//! An SSTable that is open for reading: its parts in memory, and its files.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use mutation::{Bound, DecoratedKey, NO_DELETION, RowRange, Seconds, Side, Slices, Timestamp};
use rt::{Disk, Rt};
use schema::Table;

use crate::checksums::ChunkChecksums;
use crate::component::{COMPONENT_LEN_MAX, load, load_checked};
use crate::compression_info::CompressionInfo;
use crate::filter::{Filter, HashedKey, key_hash};
use crate::format::{IndexCursor, PartitionIndex};
use crate::io::{BlockFile, Layout};
use crate::metadata::{Metadata, PARTITIONER};
use crate::unfiltered::decode::ItemDecoder;
use crate::version::Version;
use crate::{BlockCache, Component, Descriptor, Integrity, LargeData, SstableError};

/// Metadata beyond this size is not believed.
const STATISTICS_LEN_MAX: usize = 64 << 20;

/// An open SSTable: its index, filter and metadata in memory, its files open.
pub struct Sstable {
    pub(super) rt: Rt,
    descriptor: Descriptor,
    pub(super) table: RefCell<Arc<Table>>,
    decoder: RefCell<Rc<ItemDecoder>>,
    metadata: Metadata,
    filter: Option<Filter>,
    pub(super) index: PartitionIndex,
    pub(super) data: Rc<BlockFile>,
    disk_len: u64,
    rebuilt: Vec<SstableError>,
    large: Arc<LargeData>,
    /// Between these bounds lies all that it holds of any partition; none when that is not known.
    rows: Option<RowRange>,
}

impl std::fmt::Debug for Sstable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sstable({})", self.descriptor)
    }
}

/// Reads the metadata of an SSTable.
///
/// # Errors
/// [`SstableError::Missing`] when there is no such file, [`SstableError::Corrupt`] when it is damaged,
/// [`SstableError::Disk`].
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

/// Opens the data file with the description of its chunks.
pub(crate) async fn open_data(
    disk: &Disk,
    descriptor: &Descriptor,
    integrity: Option<&Integrity>,
    cache: Rc<dyn BlockCache>,
) -> Result<BlockFile, SstableError> {
    let info_path = descriptor.path(Component::CompressionInfo);
    let crc_path = descriptor.path(Component::Crc);
    let info = load(disk, info_path.clone(), COMPONENT_LEN_MAX).await?;
    let crcs = match &info {
        Some(_) => None,
        None => load(disk, crc_path.clone(), COMPONENT_LEN_MAX).await?,
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

/// The content that this version cannot use, and the way out.
fn unsupported(metadata: &Metadata) -> Option<String> {
    if metadata.partitioner != PARTITIONER && !metadata.partitioner.ends_with("Murmur3Partitioner") {
        return Some(format!(
            "its partitions are ordered by {}, only {PARTITIONER} is supported; copy its rows with a client",
            metadata.partitioner
        ));
    }
    // Two local shards of an owner are added up, of two remote ones the later counts, and a global one replaces both. Merged as if all were
    // global, as those that later versions write, they would lose counts without a sign. Nothing but increments, led by each of their
    // owners, makes global ones of them.
    metadata.stats.has_legacy_counter_shards.then(|| {
        "it has local or remote counter shards, as Cassandra before 2.1 wrote them, which later versions (also nodetool scrub and \
         upgradesstables) write again as they are; copy the counters of its table with a client, for instance with COPY of cqlsh"
            .to_owned()
    })
}

impl Sstable {
    /// Opens an SSTable of `table`.
    ///
    /// # Errors
    /// [`SstableError::Missing`] when data, index or statistics are not there, [`SstableError::Corrupt`] when one of
    /// them is damaged, [`SstableError::Unsupported`] when another partitioner orders it or it has counters from before Cassandra 2.1, [`SstableError::WrongTable`]
    /// when its types are not those of `table`, [`SstableError::Disk`]. Filter and summary are rebuilt instead.
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
        if let Some(what) = unsupported(&metadata) {
            return Err(SstableError::Unsupported { file: statistics, what });
        }
        let decoder = ItemDecoder::new(&metadata.header, &table)
            .map_err(|what| SstableError::WrongTable { file: statistics, what })?;
        let data = Rc::new(open_data(disk, &descriptor, integrity.as_ref(), cache.clone()).await?);
        let (index, index_problem) =
            PartitionIndex::open(disk, &descriptor, &table, integrity.as_mut(), cache).await?;
        let (filter, filter_problem) =
            load_filter(disk, &descriptor, integrity.as_ref(), &metadata, &index).await?;
        let rows = rows_of(&metadata, descriptor.version, &table);
        let rebuilt = index_problem.into_iter().chain(filter_problem).collect();

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
            index,
            data,
            disk_len,
            rebuilt,
            large: Arc::new(integrity.map(|integrity| integrity.large).unwrap_or_default()),
            rows,
        }))
    }

    /// The errors in its summary and its filter, which were made anew from the index therefore: reads are right, and
    /// the next start has to do it again unless it is compacted before.
    pub fn rebuilt(&self) -> &[SstableError] {
        &self.rebuilt
    }

    /// Its large partitions, rows and cells.
    pub fn large(&self) -> &Arc<LargeData> {
        &self.large
    }

    /// Its name.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The reader of its rows by that definition.
    pub(super) fn decoder(&self) -> Rc<ItemDecoder> {
        self.decoder.borrow().clone()
    }

    /// Everything that Statistics.db says.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Takes notice of a changed definition of its table, for reads that start from now on.
    ///
    /// # Errors
    /// [`SstableError::WrongTable`] when the types of the file are not those of the definition; the present one stays
    /// then.
    pub fn set_table(&self, table: Arc<Table>) -> Result<(), SstableError> {
        assert_eq!(table.id, self.table.borrow().id, "an SSTable stays with its table");
        let decoder = self.new_decoder(&table)?;
        *self.decoder.borrow_mut() = Rc::new(decoder);
        *self.table.borrow_mut() = table;
        Ok(())
    }

    fn new_decoder(&self, table: &Table) -> Result<ItemDecoder, SstableError> {
        ItemDecoder::new(&self.metadata.header, table).map_err(|what| SstableError::WrongTable {
            file: self.descriptor.path(Component::Statistics),
            what,
        })
    }

    /// The reader of its rows by another definition than the present one; none for the present one.
    pub(super) fn decoder_under(&self, table: &Table) -> Result<Option<ItemDecoder>, SstableError> {
        assert_eq!(table.id, self.table.borrow().id, "an SSTable stays with its table");
        if std::ptr::eq(&**self.table.borrow(), table) {
            return Ok(None);
        }
        self.new_decoder(table).map(Some)
    }

    /// Whether it may hold cells of a column that was dropped which are newer than the drop.
    pub fn may_hold_newer(&self, dropped: &schema::DroppedColumn) -> bool {
        let header = &self.metadata.header;
        let columns = if dropped.is_static { &header.statics } else { &header.regulars };
        self.max_timestamp() > dropped.dropped_micros
            && columns.iter().any(|column| column.name == dropped.name)
    }

    /// Whether it can hold something that a read of these rows needs, by the smallest and largest clustering key. Files with static
    /// columns, tombstones or expiring cells always can: they may have a static row or the deletion of a partition.
    #[inline]
    pub fn may_contain_rows(&self, slices: &Slices) -> bool {
        let Some(rows) = self.rows.as_ref().filter(|_| !slices.is_all()) else { return true };
        let ranges = slices.ranges();
        // The first range that does not end before the rows.
        let at = ranges.partition_point(|range| range.end <= rows.start);
        ranges.get(at).is_some_and(|range| range.start < rows.end)
    }

    /// Whether the partition can be in it, by key range and bloom filter. No IO.
    pub fn may_contain(&self, key: &DecoratedKey) -> bool {
        self.may_contain_hashed(&HashedKey::new(key))
    }

    /// [`Sstable::may_contain`] of a key that is looked for in several.
    #[inline]
    pub fn may_contain_hashed(&self, key: &HashedKey<'_>) -> bool {
        key.key >= self.index.first()
            && key.key <= self.index.last()
            && self.filter.as_ref().is_none_or(|filter| filter.may_contain(key.hash()))
    }

    /// Its first partition.
    pub fn first(&self) -> &DecoratedKey {
        self.index.first()
    }

    /// Its last partition.
    pub fn last(&self) -> &DecoratedKey {
        self.index.last()
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
            + self.index.memory_size()
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
            None => self.index.estimated_partitions(),
        }
    }

    /// The tokens of sampled partitions, in order: some of them, evenly.
    pub fn sampled_tokens(&self) -> impl Iterator<Item = i64> {
        self.index.sampled_tokens()
    }

    /// The tokens of all partitions, in order, out of the index.
    pub fn tokens(&self) -> IndexTokens {
        IndexTokens(self.index.entries())
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
    #[expect(clippy::expect_used, reason = "entries read in order have their keys")]
    pub async fn next_key(&mut self) -> Result<Option<DecoratedKey>, SstableError> {
        let entry = self.0.next().await?;
        Ok(entry.map(|entry| entry.key.expect("entries read in order have their keys")))
    }
}

/// The bounds of everything that a file holds of a partition; none when they are not known, or something is beside its rows.
fn rows_of(metadata: &Metadata, version: Version, table: &Table) -> Option<RowRange> {
    let stats = &metadata.stats;
    let has_only_rows = stats.min_local_deletion == NO_DELETION && metadata.header.statics.is_empty();
    if version < Version::Md || !has_only_rows {
        return None;
    }
    let bound = |values: &[bytes::Bytes], side| {
        let is_sound = !values.is_empty()
            && values.len() <= table.clustering().len()
            && values.iter().zip(table.clustering()).all(|(value, column)| column.ty.validate(value).is_ok());
        let prefix: Vec<Option<&[u8]>> = values.iter().map(|value| Some(&**value)).collect();
        is_sound.then(|| Bound::new(table, &prefix, side))
    };
    let start = bound(&stats.min_clustering, Side::Before)?;
    Some(RowRange { start, end: bound(&stats.max_clustering, Side::After)? })
}

/// Loads the filter. A damaged one is rebuilt from the index, and reported.
#[expect(clippy::expect_used, reason = "entries read in order have their keys")]
async fn load_filter(
    disk: &Disk,
    descriptor: &Descriptor,
    integrity: Option<&Integrity>,
    metadata: &Metadata,
    index: &PartitionIndex,
) -> Result<(Option<Filter>, Option<SstableError>), SstableError> {
    let (bytes, problem) = load_checked(disk, descriptor, Component::Filter, integrity).await?;
    if let Some(bytes) = bytes {
        let filter = Filter::decode(&bytes, descriptor.version);
        let in_file = |error: crate::DecodeError| error.in_file(&descriptor.path(Component::Filter), 0);
        return Ok((Some(filter.map_err(in_file)?), problem));
    }
    if problem.is_none() {
        return Ok((None, None));
    }
    let keys = metadata.cardinality.as_ref().map_or(1024, |sketch| sketch.estimate());
    let Some(mut filter) = Filter::new(keys, metadata.bloom_fp_chance) else { return Ok((None, problem)) };
    let mut entries = index.entries();
    let mut last = None;
    while let Some(entry) = entries.next().await? {
        let key = entry.key.expect("entries read in order have their keys");
        if last.as_ref().is_some_and(|last| *last >= key) {
            return Err(entries.corrupt("keys in ring order", format!("{key:?}")));
        }
        filter.insert(key_hash(&key.key));
        last = Some(key);
    }
    Ok((Some(filter), problem))
}
