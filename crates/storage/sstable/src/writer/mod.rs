//! Turns a stream of fragments into the files of an SSTable.

mod copy;
mod data;
mod origin;

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::try_join_all;
use mutation::{Bound, Clustering, DecoratedKey, DeletionTime, Fragment, Row};
use rt::{Disk, Rt};
use schema::Table;

use crate::edge::Edge;
use crate::filter::{Filter, key_hash};
use crate::format::IndexWriter;
use crate::guarded::GuardedPartitions;
use crate::header::SerializationHeader;
use crate::index::PartitionHead;
use crate::integrity::PageChecksums;
use crate::io::{AppendFile, rewrite, write_whole};
use crate::large::LargeCollector;
use crate::metadata::stats::StatsCollector;
use crate::metadata::{Metadata, PARTITIONER};
use crate::unfiltered::encode::ItemEncoder;
use crate::{
    Component, Descriptor, EncodingStats, Integrity, LargeData, Owner, SstableError, Version, WriterOptions,
    deletion, toc,
};
use data::{Chunks, DataFile};
use origin::Origin;

/// Writes one SSTable from fragments in order, holding a bounded part of it in memory: a chunk, a row, the row index of the
/// partition being written, the bloom filter and the samples of the index.
pub struct SstableWriter {
    rt: Rt,
    descriptor: Descriptor,
    table: Arc<Table>,
    options: WriterOptions,
    header: SerializationHeader,
    encoder: ItemEncoder,
    data: DataFile,
    index: IndexWriter,
    filter: Option<Filter>,
    stats: StatsCollector,
    large: LargeCollector,
    partition: Option<Partition>,
    /// Where partitions are copied from, when they are not written.
    origin: Option<Box<Origin>>,
}

/// The partition being written.
struct Partition {
    key: DecoratedKey,
    deletion: DeletionTime,
    /// Where it begins in the data.
    start: u64,
    /// Bytes before its first row; known once the static row was written.
    header_len: Option<u64>,
    /// Where the last item began, from the partition's start.
    previous: u64,
    /// The range deletion in force.
    open: DeletionTime,
    /// Its first item.
    first: Option<Edge>,
    /// Its last item so far.
    last: Option<Edge>,
    /// The first item of the current block of the row index, and where it began.
    block: Option<(Edge, u64)>,
}

/// A complete SSTable on disk.
#[derive(Clone, Debug)]
pub struct Written {
    /// Its name.
    pub descriptor: Descriptor,
    /// First and last partition; none when there was no partition, and then there is no SSTable.
    pub bounds: Option<(DecoratedKey, DecoratedKey)>,
    /// Partitions in it.
    pub partitions: u64,
    /// Rows in it, static rows included.
    pub rows: u64,
    /// Length of the data file.
    pub data_len: u64,
    /// Length of the data before compression.
    pub uncompressed_len: u64,
    /// Bytes of all files.
    pub disk_len: u64,
    /// Its partitions beyond bounds.
    pub guarded: GuardedPartitions,
}

impl SstableWriter {
    /// Creates the files of SSTable `generation` in `dir`, which must exist.
    ///
    /// # Errors
    /// [`SstableError::Disk`] when a file cannot be created or the directory cannot be synced.
    pub async fn new(
        rt: &Rt,
        dir: impl Into<PathBuf>,
        generation: u64,
        table: Arc<Table>,
        options: WriterOptions,
        encoding: EncodingStats,
    ) -> Result<Self, SstableError> {
        let descriptor = Descriptor::new(dir, generation);
        let header = SerializationHeader::of_table(&table, options.columns.as_deref(), encoding);
        let disk = rt.disk();
        // Durable before any other name: by it the files that a crash leaves are known as this writer's.
        drop(AppendFile::create(disk, descriptor.temporary_toc()).await?);
        disk.sync_dir(&descriptor.dir).await?;
        let data =
            DataFile::create(disk, descriptor.path(Component::Data), options.compression.as_ref()).await?;
        let index = IndexWriter::create(disk, &descriptor, options.index_interval).await?;
        Ok(Self {
            rt: rt.clone(),
            encoder: ItemEncoder::new(&header, &table),
            filter: Filter::new(options.estimated_partitions, options.bloom_fp_chance),
            stats: StatsCollector::new(),
            large: LargeCollector::new(options.large, rt.wall_micros()),
            partition: None,
            origin: None,
            descriptor,
            table,
            options,
            header,
            data,
            index,
        })
    }

    /// Adds the next fragment. Partitions come in ring order, rows in clustering order.
    ///
    /// # Errors
    /// [`SstableError::Disk`] when the disk is full or fails.
    ///
    /// # Panics
    /// When the fragments are out of order, or a row has a column that was not announced.
    pub async fn push(&mut self, fragment: Fragment) -> Result<(), SstableError> {
        assert!(self.origin.is_none(), "the writer was made for copying");
        match fragment {
            Fragment::PartitionStart { key, deletion } => self.start_partition(key, deletion),
            Fragment::StaticRow(row) => self.static_row(&row),
            Fragment::Row(row) => self.row(row),
            Fragment::RangeTombstoneChange { bound, deletion } => {
                self.range_tombstone_change(bound, deletion)
            }
            Fragment::PartitionEnd => return self.end_partition().await,
        }
        self.cut().await
    }

    #[inline]
    async fn cut(&mut self) -> Result<(), SstableError> {
        if self.data.has_chunk() {
            self.data.cut().await?;
            self.rt.maybe_yield().await;
        }
        Ok(())
    }

    fn start_partition(&mut self, key: DecoratedKey, deletion: DeletionTime) {
        assert!(self.partition.is_none(), "a partition ends before the next begins");
        let rises = self.index.bounds().is_none_or(|(_, last)| *last < key);
        assert!(rises, "partitions are written in ring order, got {key:?} after {:?}", self.index.bounds());
        let start = self.data.position();
        let out = &mut self.data.pending;
        let key_len = u16::try_from(key.key.len()).expect("partition keys are below 64 KiB");
        out.extend_from_slice(&key_len.to_be_bytes());
        out.extend_from_slice(&key.key);
        deletion::write(deletion, out);
        self.stats.deletion(deletion);
        if !deletion.is_live() {
            self.large.deletion();
        }
        self.index.start_partition();
        let mut partition = Partition {
            key,
            deletion,
            start,
            header_len: None,
            previous: 0,
            open: DeletionTime::LIVE,
            first: None,
            last: None,
            block: None,
        };
        if self.header.statics.is_empty() {
            partition.header_len = Some(self.data.position() - start);
        }
        self.partition = Some(partition);
    }

    fn static_row(&mut self, row: &Row) {
        let partition = self.partition.as_mut().expect("a static row lies in a partition");
        if self.header.statics.is_empty() {
            assert!(row.is_empty(), "static columns were announced for {:?}", partition.key);
            return;
        }
        assert!(partition.header_len.is_none(), "a static row precedes the rows, and there is one at most");
        let start = self.data.position();
        self.encoder.row(row, true, 0, &self.table, &mut self.data.pending);
        if !row.is_empty() {
            self.stats.row(row);
            self.large.row(&self.table, &partition.key, row, self.data.position() - start);
        }
        partition.header_len = Some(self.data.position() - partition.start);
    }

    /// In files with static columns every partition has a static row, be it empty.
    fn complete_header(&mut self) {
        if self.partition.as_ref().expect("items lie in a partition").header_len.is_none() {
            self.static_row(&Row::new(Clustering::empty()));
        }
    }

    fn row(&mut self, row: Row) {
        self.complete_header();
        let (previous, at) = self.start_item(row.clustering.position());
        self.encoder.row(&row, false, previous, &self.table, &mut self.data.pending);
        self.stats.row(&row);
        let partition = self.partition.as_ref().expect("items lie in a partition");
        let bytes = self.data.position() - partition.start - at;
        self.large.row(&self.table, &partition.key, &row, bytes);
        self.end_item(Edge::Row(row.clustering), at);
    }

    fn range_tombstone_change(&mut self, bound: Bound, deletion: DeletionTime) {
        self.complete_header();
        let partition = self.partition.as_mut().expect("a range deletion lies in a partition");
        let before = partition.open;
        if before == deletion {
            return;
        }
        partition.open = deletion;
        let (previous, at) = self.start_item(bound.position());
        let kind = self.encoder.marker(&bound, before, deletion, previous, &mut self.data.pending);
        self.stats.deletion(before);
        self.stats.deletion(deletion);
        self.large.range_tombstone();
        self.end_item(Edge::Marker(bound, kind), at);
    }

    /// Checks the order of items; gives the size of the item before and where this one begins in the partition.
    fn start_item(&mut self, position: &[u8]) -> (u64, u64) {
        let at = self.data.position();
        let partition = self.partition.as_mut().expect("items lie in a partition");
        let rises = partition.last.as_ref().is_none_or(|last| last.position() < position);
        assert!(rises, "items of {:?} are written in clustering order", partition.key);
        let at = at - partition.start;
        assert!(at > partition.previous || partition.previous == 0, "items follow each other");
        // The first item's predecessor is the partition's header.
        let previous = at - std::mem::replace(&mut partition.previous, at);
        (previous, at)
    }

    fn end_item(&mut self, edge: Edge, at: u64) {
        let end = self.data.position();
        let block_len = self.index.block_len(self.options.column_index_len as u64);
        let partition = self.partition.as_mut().expect("items lie in a partition");
        if partition.first.is_none() {
            partition.first = Some(edge.clone());
        }
        assert!(end > partition.start + at, "an item has bytes");
        let start = partition.block.get_or_insert_with(|| (edge.clone(), at)).1;
        partition.last = Some(edge);
        if end - partition.start - start >= block_len {
            self.end_block();
        }
    }

    fn end_block(&mut self) {
        let end = self.data.position();
        let partition = self.partition.as_mut().expect("blocks lie in a partition");
        if let Some((first, start)) = partition.block.take() {
            let last = partition.last.as_ref().expect("a block has an item");
            let width = end - partition.start - start;
            self.index.block(self.encoder.types(), (&first, last), (start, width), partition.open);
        }
    }

    async fn end_partition(&mut self) -> Result<(), SstableError> {
        self.complete_header();
        ItemEncoder::end_of_partition(&mut self.data.pending);
        self.end_block();
        let partition = self.partition.take().expect("the partition that ends has begun");
        assert!(partition.open.is_live(), "a range deletion ends before its partition {:?}", partition.key);
        let size = self.data.position() - partition.start;
        assert!(partition.header_len.is_some_and(|len| len < size), "a partition has an end behind its head");
        let hash = key_hash(&partition.key.key);
        if let Some(filter) = &mut self.filter {
            filter.insert(hash);
        }
        let head = PartitionHead {
            header_len: partition.header_len.expect("the header was completed"),
            deletion: partition.deletion,
        };
        self.index.add(&partition.key, partition.start, head).await?;
        self.large.end_partition(&self.table, &partition.key, size);
        self.stats.partition(&partition.key.key, size, partition.first.zip(partition.last));
        self.cut().await
    }

    /// Bytes of data that were written so far, before compression; to split outputs by size.
    pub fn uncompressed_len(&self) -> u64 {
        self.data.position()
    }

    /// Length of the data file so far.
    pub fn data_len(&self) -> u64 {
        self.data.file_len()
    }

    /// Partitions written so far.
    pub fn partitions(&self) -> u64 {
        self.index.partitions()
    }

    /// Writes the rest, makes all files durable, and the TOC last: from then on the SSTable exists. Without any
    /// partition the files are removed.
    ///
    /// # Errors
    /// [`SstableError::Disk`] when the disk is full or fails. The SSTable does not exist then, and its files are those
    /// that [`remove_unfinished`](crate::remove_unfinished) removes.
    pub async fn finish(mut self) -> Result<Written, SstableError> {
        assert!(self.partition.is_none(), "the last partition ends before the file");
        let bounds = self.index.bounds().map(|(first, last)| (first.clone(), last.clone()));
        assert_eq!(bounds.is_none(), self.index.partitions() == 0, "partitions have a first and a last");
        assert_eq!(bounds.is_none(), self.data.position() == 0, "data is that of partitions");
        let mut written = Written {
            descriptor: self.descriptor.clone(),
            partitions: self.index.partitions(),
            rows: self.origin.as_ref().map_or(self.stats.rows(), |origin| origin.rows()),
            data_len: 0,
            uncompressed_len: self.data.position(),
            disk_len: 0,
            guarded: std::mem::take(&mut self.large.guarded),
            bounds,
        };
        if written.bounds.is_none() {
            self.abort().await?;
            return Ok(written);
        }
        let (chunks, digest) = self.data.finish().await?;
        written.data_len = self.data.file_len();
        assert_eq!(self.data.position(), written.uncompressed_len, "all data was cut into chunks");
        let index = self.index.finish().await?;
        let mut files = vec![(Component::Digest, toc::encode_digest(digest))];
        let mut ratio = -1.0;
        match chunks {
            Chunks::Compressed(info) => {
                ratio = written.data_len as f64 / info.data_len as f64;
                files.push((Component::CompressionInfo, info.encode()));
            }
            Chunks::Plain(checksums) => files.push((Component::Crc, checksums.encode())),
        }
        if let Some(filter) = &mut self.filter {
            // A merge does not know before how many keys its inputs share, and how many go into each output.
            filter.shrink_to(written.partitions, self.options.bloom_fp_chance);
            files.push((Component::Filter, filter.encode()));
        }
        files.extend(index.files);
        let cardinality = self.stats.cardinality.clone();
        let options = &self.options;
        let stats = self.stats.build(ratio, options.level, options.repaired_at, options.host_id);
        assert_eq!(
            stats.partition_sizes.count(),
            written.partitions,
            "each partition of the index is counted"
        );
        let metadata = Metadata {
            partitioner: PARTITIONER.to_owned(),
            bloom_fp_chance: options.bloom_fp_chance,
            cardinality: Some(cardinality),
            stats: match &self.origin {
                Some(origin) => origin.stats(stats),
                None => stats,
            },
            header: self.header,
        };
        files.push((Component::Statistics, metadata.encode()));

        let integrity = integrity_of(written.data_len, index.pages, options.owner, &files, self.large.found);
        files.push((Component::Torc, integrity.encode()));

        let toc_len = complete(self.rt.disk(), &self.descriptor, &files).await?;
        let small: u64 = files.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        written.disk_len = written.data_len + index.len + small + toc_len;
        Ok(written)
    }

    /// Gives up: removes the files.
    ///
    /// # Errors
    /// [`SstableError::Disk`] when a file cannot be removed.
    pub async fn abort(self) -> Result<(), SstableError> {
        let Self { rt, descriptor, data, index, .. } = self;
        drop((data, index));
        crate::remove(rt.disk(), &descriptor).await
    }
}

const _: () = assert!(
    Version::CURRENT.capabilities().has_metadata_checksums,
    "statistics that are written have checksums of their own"
);

/// The checksums of an SSTable's components besides its data and its index.
fn integrity_of(
    data_len: u64,
    index: PageChecksums,
    owner: Option<Owner>,
    files: &[(Component, Vec<u8>)],
    large: LargeData,
) -> Integrity {
    // Statistics have checksums of their own, and change when the level does.
    let checked =
        files.iter().filter(|(component, _)| !matches!(component, Component::Digest | Component::Statistics));
    let whole = checked.map(|(component, bytes)| (*component, bytes.len() as u64, crc32fast::hash(bytes)));
    Integrity { data_len, owner, index, whole: whole.collect(), large }
}

/// Writes the small components, and then gives the TOC its name; gives the TOC's length.
async fn complete(
    disk: &Disk,
    descriptor: &Descriptor,
    files: &[(Component, Vec<u8>)],
) -> Result<u64, SstableError> {
    let mut components = vec![Component::Data, Component::Index, Component::Toc];
    components.extend(files.iter().map(|(component, _)| *component));
    components.sort();
    assert!(components.is_sorted_by(|one, next| one < next), "each component is written once");
    assert_eq!(components.last(), Some(&Component::Toc), "the list of components comes last");
    let toc = toc::encode_toc(&components);
    try_join_all(
        files.iter().map(|(component, bytes)| write_whole(disk, descriptor.path(*component), bytes)),
    )
    .await?;
    rewrite(disk, descriptor.temporary_toc(), &toc).await?;
    // All names are durable before the TOC says that they are there.
    disk.sync_dir(&descriptor.dir).await?;
    disk.rename(descriptor.temporary_toc(), descriptor.path(Component::Toc)).await?;
    disk.sync_dir(&descriptor.dir).await?;
    Ok(toc.len() as u64)
}
