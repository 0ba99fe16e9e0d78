//! Writes `Index.db` and `Summary.db` beside the data.

use mutation::{DecoratedKey, DeletionTime};
use rt::Disk;

use super::entry::{self, RowIndexBuilder};
use super::summary::SummaryBuilder;
use crate::edge::Edge;
use crate::index::PartitionHead;
use crate::integrity::PageChecksums;
use crate::io::AppendFile;
use crate::prefix::ValueType;
use crate::{Component, Descriptor, SstableError};

/// The index while its SSTable is written.
pub(crate) struct IndexWriter {
    file: AppendFile,
    summary: SummaryBuilder,
    row_index: RowIndexBuilder,
    /// Bytes of the entry being written.
    entry: Vec<u8>,
    /// The position of the last partition in the data.
    last: Option<u64>,
}

/// A finished index.
pub(crate) struct WrittenIndex {
    /// Length of the index file.
    pub(crate) len: u64,
    /// Checksums of its pages.
    pub(crate) pages: PageChecksums,
    /// The small files that belong to it, which are still to be written.
    pub(crate) files: Vec<(Component, Vec<u8>)>,
}

impl IndexWriter {
    /// Creates the index file. Every `interval` partitions are sampled.
    pub(crate) async fn create(
        disk: &Disk,
        descriptor: &Descriptor,
        interval: u32,
    ) -> Result<Self, SstableError> {
        let file = AppendFile::create_checked(disk, descriptor.path(Component::Index)).await?;
        let summary = SummaryBuilder::new(interval);
        Ok(Self { file, summary, row_index: RowIndexBuilder::default(), entry: Vec::new(), last: None })
    }

    /// The first and the last partition so far.
    pub(crate) fn bounds(&self) -> Option<(&DecoratedKey, &DecoratedKey)> {
        self.summary.bounds()
    }

    /// How many partitions were added.
    pub(crate) fn partitions(&self) -> u64 {
        self.summary.keys_seen()
    }

    /// Begins the row index of a partition.
    pub(crate) fn start_partition(&mut self) {
        self.row_index.clear();
    }

    /// See [`RowIndexBuilder::block_len`].
    pub(crate) fn block_len(&self, usual: u64) -> u64 {
        self.row_index.block_len(usual)
    }

    /// Adds a block of `width` bytes that begins `offset` bytes into the partition; `open` is the range deletion in force at its end.
    pub(crate) fn block(
        &mut self,
        types: &[ValueType],
        (first, last): (&Edge, &Edge),
        (offset, width): (u64, u64),
        open: DeletionTime,
    ) {
        self.row_index.push(types, first, last, offset, width, open);
    }

    /// Adds the partition whose blocks were added, which begins at `position` in the data.
    pub(crate) async fn add(
        &mut self,
        key: &DecoratedKey,
        position: u64,
        head: PartitionHead,
    ) -> Result<(), SstableError> {
        self.entry.clear();
        entry::write_entry(&key.key, position, Some(&self.row_index), head, &mut self.entry);
        self.append(key, position).await
    }

    /// Adds a partition whose row index, if it is not empty, is that of another file of the format. Its places count from the
    /// partition's start.
    pub(crate) async fn add_copied(
        &mut self,
        key: &DecoratedKey,
        position: u64,
        row_index: &[u8],
    ) -> Result<(), SstableError> {
        assert!(self.row_index.is_empty(), "a partition that is copied has the row index of its source");
        self.entry.clear();
        entry::write_copied_entry(&key.key, position, row_index, &mut self.entry);
        self.append(key, position).await
    }

    async fn append(&mut self, key: &DecoratedKey, position: u64) -> Result<(), SstableError> {
        assert!(!self.entry.is_empty(), "an entry has a key");
        let before = self.last.replace(position);
        assert!(before.is_none_or(|before| before < position), "partitions follow each other in the data");
        self.summary.add(key, self.file.len());
        self.file.append(&self.entry).await
    }

    /// Writes the rest and makes the index durable.
    ///
    /// # Panics
    /// When there is no partition.
    pub(crate) async fn finish(mut self) -> Result<WrittenIndex, SstableError> {
        self.file.finish().await?;
        let summary = self.summary.build().expect("there is a partition").encode();
        let files = vec![(Component::Summary, summary)];
        let (len, pages) = (self.file.len(), self.file.page_checksums());
        assert!(len > 0, "an index has an entry");
        assert_eq!(pages.file_len, len, "the checksums are of the index that was written");
        Ok(WrittenIndex { len, pages, files })
    }
}
