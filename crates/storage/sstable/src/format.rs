//! A format decides how partitions and blocks of rows are found, and which files that takes. Each format is a folder; this is the
//! list of them, as enums, so that a read of an SSTable of any format costs no virtual call.
//!
//! Data, filter, statistics, compression and checksums are the same in all formats up to the capabilities of a [`Version`]. A new
//! format is a variant of [`Format`] and of each enum here, with its folder.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::rc::Rc;

use mutation::{DecoratedKey, DeletionTime, RingPosition};
use rt::{Disk, DiskError, Rt};
use schema::Table;

use crate::big::{self, WrittenIndex};
use crate::edge::Edge;
use crate::header::SerializationHeader;
use crate::index::{Entry, PartitionHead, ReadHead, ReadItem, RowBlock};
use crate::prefix::ValueType;
use crate::reader::RawScan;
use crate::unfiltered::decode::ItemDecoder;
use crate::version::Format;
use crate::{BlockCache, Descriptor, Integrity, Owner, SstableError, Version};

/// The first and the last token of an SSTable that may be damaged, and whose it is, as far as its files say so for certain.
///
/// # Errors
/// When the disk fails.
pub async fn known_tokens(
    disk: &Disk,
    descriptor: &Descriptor,
) -> Result<(Option<(i64, i64)>, Option<Owner>), DiskError> {
    match descriptor.version.format() {
        Format::Big => big::known_tokens(disk, descriptor).await,
    }
}

/// The partition index of an open SSTable.
pub(crate) enum PartitionIndex {
    Big(big::PartitionIndex),
}

impl PartitionIndex {
    /// Opens the index. Damaged parts of it are rebuilt where that is possible, and reported.
    pub(crate) async fn open(
        disk: &Disk,
        descriptor: &Descriptor,
        table: &Table,
        integrity: Option<&mut Integrity>,
        cache: Rc<dyn BlockCache>,
    ) -> Result<(Self, Option<SstableError>), SstableError> {
        match descriptor.version.format() {
            Format::Big => {
                let opened = big::PartitionIndex::open(disk, descriptor, table, integrity, cache).await?;
                Ok((Self::Big(opened.0), opened.1))
            }
        }
    }

    /// Its first partition.
    #[inline]
    pub(crate) fn first(&self) -> &DecoratedKey {
        match self {
            Self::Big(index) => index.first(),
        }
    }

    /// Its last partition.
    #[inline]
    pub(crate) fn last(&self) -> &DecoratedKey {
        match self {
            Self::Big(index) => index.last(),
        }
    }

    /// About how many partitions there are.
    pub(crate) fn estimated_partitions(&self) -> u64 {
        match self {
            Self::Big(index) => index.estimated_partitions(),
        }
    }

    /// The tokens of sampled partitions, in order.
    pub(crate) fn sampled_tokens(&self) -> impl Iterator<Item = i64> {
        match self {
            Self::Big(index) => index.sampled_tokens(),
        }
    }

    /// Bytes that it keeps in memory.
    pub(crate) fn memory_size(&self) -> usize {
        match self {
            Self::Big(index) => index.memory_size(),
        }
    }

    /// All entries, in order.
    pub(crate) fn entries(&self) -> IndexCursor {
        match self {
            Self::Big(index) => IndexCursor::Big(index.entries()),
        }
    }

    /// The entries behind `start`, in order.
    pub(crate) async fn entries_from(
        &self,
        start: &RingPosition,
        scan: bool,
    ) -> Result<IndexCursor, SstableError> {
        match self {
            Self::Big(index) => Ok(IndexCursor::Big(index.entries_from(start, scan).await?)),
        }
    }

    /// The entry of a key; none when it is not there.
    pub(crate) async fn find(&self, key: &DecoratedKey) -> Result<Option<Entry>, SstableError> {
        match self {
            Self::Big(index) => index.find(key).await,
        }
    }

    /// The row index of an entry's partition, if it has one.
    pub(crate) async fn row_index(&self, entry: &Entry) -> Result<Option<RowIndex>, SstableError> {
        match self {
            Self::Big(index) => Ok(index.row_index(entry).await?.map(RowIndex::Big)),
        }
    }

    /// The row index of an entry's partition as it is in the file; empty when it has none.
    pub(crate) async fn row_index_bytes(&self, entry: &Entry) -> Result<Vec<u8>, SstableError> {
        match self {
            Self::Big(index) => index.row_index_bytes(entry).await,
        }
    }
}

/// Reads the partition index in order.
pub(crate) enum IndexCursor {
    Big(big::IndexCursor),
}

impl IndexCursor {
    /// The next entry, with its key.
    pub(crate) async fn next(&mut self) -> Result<Option<Entry>, SstableError> {
        match self {
            Self::Big(cursor) => cursor.next().await,
        }
    }

    /// An error about the last item read.
    pub(crate) fn corrupt(&self, expected: impl Into<String>, found: impl Into<String>) -> SstableError {
        match self {
            Self::Big(cursor) => cursor.corrupt(expected, found),
        }
    }
}

/// The row index of a wide partition.
pub(crate) enum RowIndex {
    Big(big::RowIndex),
}

impl RowIndex {
    /// Its content about the partition.
    pub(crate) fn head(&self) -> PartitionHead {
        match self {
            Self::Big(index) => index.head(),
        }
    }

    /// How many blocks there are; never none.
    pub(crate) fn blocks(&self) -> u32 {
        match self {
            Self::Big(index) => index.blocks(),
        }
    }

    /// A block, which exists.
    pub(crate) async fn get(&mut self, block: u32, decoder: &ItemDecoder) -> Result<RowBlock, SstableError> {
        match self {
            Self::Big(index) => index.get(block, decoder).await,
        }
    }

    /// The range deletion in force where a block begins. The block before has to fit.
    pub(crate) async fn open_before(
        &mut self,
        number: u32,
        block: &RowBlock,
        decoder: &ItemDecoder,
    ) -> Result<DeletionTime, SstableError> {
        match self {
            Self::Big(index) => index.open_before(number, block, decoder).await,
        }
    }

    /// The first block for which `test` holds, with its number; blocks for which it holds follow those for which it does not.
    pub(crate) async fn first_where(
        &mut self,
        decoder: &ItemDecoder,
        test: impl Fn(&RowBlock) -> bool,
    ) -> Result<Option<(u32, RowBlock)>, SstableError> {
        match self {
            Self::Big(index) => index.first_where(decoder, test).await,
        }
    }
}

/// The index while its SSTable is written.
pub(crate) enum IndexWriter {
    Big(big::IndexWriter),
}

impl IndexWriter {
    /// Creates the index files of an SSTable in the version that is written. Every `interval` partitions are sampled.
    pub(crate) async fn create(
        disk: &Disk,
        descriptor: &Descriptor,
        interval: u32,
    ) -> Result<Self, SstableError> {
        assert_eq!(descriptor.version, Version::CURRENT, "one version is written");
        match descriptor.version.format() {
            Format::Big => Ok(Self::Big(big::IndexWriter::create(disk, descriptor, interval).await?)),
        }
    }

    /// How many bytes of the partition's rows a block of its row index is to have, where blocks of a small partition have `usual`.
    pub(crate) fn block_len(&self, usual: u64) -> u64 {
        match self {
            Self::Big(writer) => writer.block_len(usual),
        }
    }

    /// The first and the last partition so far.
    pub(crate) fn bounds(&self) -> Option<(&DecoratedKey, &DecoratedKey)> {
        match self {
            Self::Big(writer) => writer.bounds(),
        }
    }

    /// How many partitions were added.
    pub(crate) fn partitions(&self) -> u64 {
        match self {
            Self::Big(writer) => writer.partitions(),
        }
    }

    /// Begins the row index of a partition.
    pub(crate) fn start_partition(&mut self) {
        match self {
            Self::Big(writer) => writer.start_partition(),
        }
    }

    /// Adds a block of rows between two edges: its offset from the partition's start, its length, and the range deletion in force at
    /// its end.
    pub(crate) fn block(
        &mut self,
        types: &[ValueType],
        edges: (&Edge, &Edge),
        place: (u64, u64),
        open: DeletionTime,
    ) {
        match self {
            Self::Big(writer) => writer.block(types, edges, place, open),
        }
    }

    /// Adds the partition whose blocks were added, which begins at `position` in the data.
    pub(crate) async fn add(
        &mut self,
        key: &DecoratedKey,
        position: u64,
        head: PartitionHead,
    ) -> Result<(), SstableError> {
        match self {
            Self::Big(writer) => writer.add(key, position, head).await,
        }
    }

    /// Adds a partition whose row index, if it is not empty, is that of another file of the format.
    pub(crate) async fn add_copied(
        &mut self,
        key: &DecoratedKey,
        position: u64,
        row_index: &[u8],
    ) -> Result<(), SstableError> {
        match self {
            Self::Big(writer) => writer.add_copied(key, position, row_index).await,
        }
    }

    /// Writes the rest and makes the index durable.
    pub(crate) async fn finish(self) -> Result<WrittenIndex, SstableError> {
        match self {
            Self::Big(writer) => writer.finish().await,
        }
    }
}

/// Compares the index with the data, for a verification.
pub(crate) enum IndexCheck {
    Big(Box<big::IndexCheck>),
}

impl IndexCheck {
    /// Opens the files to compare.
    pub(crate) async fn open(
        rt: &Rt,
        descriptor: &Descriptor,
        header: &SerializationHeader,
        table: &Table,
    ) -> Result<Self, SstableError> {
        match descriptor.version.format() {
            Format::Big => {
                let check = big::IndexCheck::open(rt, descriptor, header, table).await?;
                Ok(Self::Big(Box::new(check)))
            }
        }
    }

    /// Takes the entry of the partition that was just read, and compares it.
    pub(crate) async fn entry(
        &mut self,
        key: &DecoratedKey,
        start: u64,
    ) -> Result<(Option<Entry>, Option<SstableError>), SstableError> {
        match self {
            Self::Big(check) => check.entry(key, start).await,
        }
    }

    /// Begins to compare the row index of a partition, if it has one, with the partition.
    pub(crate) async fn begin_rows(
        &mut self,
        head: &ReadHead,
        scan: &RawScan,
    ) -> Result<Option<SstableError>, SstableError> {
        match self {
            Self::Big(check) => check.begin_rows(head, scan).await,
        }
    }

    /// Compares the row index with the next item of the partition. After the first difference nothing of the partition is compared.
    pub(crate) async fn row(
        &mut self,
        item: ReadItem<'_>,
        scan: &RawScan,
    ) -> Result<Option<SstableError>, SstableError> {
        match self {
            Self::Big(check) => check.row(item, scan).await,
        }
    }

    /// Compares the row index with the end of the partition.
    pub(crate) async fn end_rows(
        &mut self,
        end: u64,
        scan: &RawScan,
    ) -> Result<Option<SstableError>, SstableError> {
        match self {
            Self::Big(check) => check.end_rows(end, scan).await,
        }
    }

    /// Bytes of positions that the comparison holds now.
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Big(check) => check.held_bytes(),
        }
    }

    /// The error in the index as a whole, once all partitions were compared.
    pub(crate) async fn finish(&mut self) -> Result<Option<SstableError>, SstableError> {
        match self {
            Self::Big(check) => check.finish().await,
        }
    }
}
