//! Partitions that are copied as the bytes that they are: rows are counted and not looked into. Their statistics
//! (timestamps, deletions, expirations) are then those of all of the source's partitions: not less than the true ones.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use mutation::PartitionRange;
use rt::Rt;
use schema::Table;

use super::SstableWriter;
use super::origin::Origin;
use crate::filter::key_hash;
use crate::reader::{ByteRange, Copied, RangePartition, Sstable};
use crate::{SstableError, Version, WriterOptions};

impl SstableWriter {
    /// Creates the files of SSTable `generation` in `dir`, to which partitions of `source` are copied, and nothing else is written.
    ///
    /// # Errors
    /// As [`SstableWriter::new`].
    ///
    /// # Panics
    /// When the source is of an older version than the written one.
    pub async fn copying(
        rt: &Rt,
        dir: impl Into<PathBuf>,
        generation: u64,
        (source, table): (&Sstable, Arc<Table>),
        options: WriterOptions,
    ) -> Result<Self, SstableError> {
        assert_eq!(source.descriptor().version, Version::CURRENT, "bytes are copied within one version");
        let metadata = source.metadata();
        let mut writer = Self::new(rt, dir, generation, table, options, metadata.header.encoding).await?;
        writer.header = metadata.header.clone();
        writer.origin = Some(Box::new(Origin::new(metadata.stats.clone(), source.large().clone())));
        Ok(writer)
    }

    /// Copies the partitions of a range for whose tokens `wanted` holds; they lie behind the partitions copied before.
    ///
    /// # Errors
    /// [`SstableError::Corrupt`] when the source is damaged, [`SstableError::Disk`] when it cannot be read or the copy
    /// cannot be written.
    ///
    /// # Panics
    /// When the writer was not made for copying, or the order is wrong.
    pub async fn copy(
        &mut self,
        source: &Rc<Sstable>,
        range: &PartitionRange,
        wanted: impl Fn(i64) -> bool,
    ) -> Result<(), SstableError> {
        assert!(self.origin.is_some(), "the writer was made for copying");
        let mut byte_range = ByteRange::begin(source, range).await?;
        while let Some(partition) = byte_range.next(&wanted).await? {
            self.copy_partition(&mut byte_range, &partition).await?;
        }
        Ok(())
    }

    async fn copy_partition(
        &mut self,
        byte_range: &mut ByteRange,
        partition: &RangePartition,
    ) -> Result<(), SstableError> {
        assert!(self.partition.is_none(), "partitions are copied whole");
        let key = &partition.key;
        let rises = self.index.bounds().is_none_or(|(_, last)| last < key);
        assert!(rises, "partitions are copied in ring order, got {key:?} after {:?}", self.index.bounds());
        let start = self.data.position();
        let mut rows = u64::from(byte_range.head(key, &mut self.data.pending).await?);
        loop {
            match byte_range.item(&mut self.data.pending).await? {
                Copied::Row => rows += 1,
                Copied::Marker => {}
                Copied::End => break,
            }
            self.cut().await?;
        }
        if let Some(filter) = &mut self.filter {
            filter.insert(key_hash(&key.key));
        }
        self.index.add_copied(key, start, &partition.row_index).await?;
        assert!(self.data.position() > start, "a partition that was copied has bytes");
        let bytes = self.data.position() - start;
        self.large.guard(&self.table, key, bytes);
        self.stats.partition(&key.key, bytes, None);
        if let Some(origin) = &mut self.origin {
            origin.add_rows(rows);
            self.large.found.take_over(&origin.large, key.token);
        }
        self.cut().await
    }
}
