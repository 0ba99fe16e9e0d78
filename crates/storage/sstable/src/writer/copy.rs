//! Partitions that are copied as the bytes that they are: rows are counted and not looked into. What is said of them as a whole
//! (timestamps, deletions, expirations) is then what the source says of all of its partitions: not less than is true.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use mutation::PartitionRange;
use rt::Rt;
use schema::Table;

use super::SstableWriter;
use crate::filter::key_hash;
use crate::index;
use crate::metadata::Stats;
use crate::reader::{Copied, Sstable, Stretch, StretchPartition};
use crate::{SstableError, Version, WriterOptions};

/// What a copy takes over from its source.
pub(super) struct Origin {
    stats: Stats,
    rows: u64,
}

impl SstableWriter {
    /// Creates the files of SSTable `generation` in `dir`, to which partitions of `source` are copied, and nothing else is written.
    ///
    /// # Panics
    /// When the source is of an older version than what is written.
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
        writer.origin = Some(Box::new(Origin { stats: metadata.stats.clone(), rows: 0 }));
        Ok(writer)
    }

    /// Copies the partitions of a range for whose tokens `wanted` holds; they lie behind what was copied before.
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
        let mut stretch = Stretch::begin(source, range).await?;
        while let Some(partition) = stretch.next(&wanted).await? {
            self.copy_partition(&mut stretch, &partition).await?;
        }
        Ok(())
    }

    async fn copy_partition(
        &mut self,
        stretch: &mut Stretch,
        partition: &StretchPartition,
    ) -> Result<(), SstableError> {
        let key = &partition.key;
        let rises = self.summary.bounds().is_none_or(|(_, last)| last < key);
        assert!(rises, "partitions are copied in ring order, got {key:?} after {:?}", self.summary.bounds());
        let start = self.data.position();
        let mut rows = u64::from(stretch.head(key, &mut self.data.pending).await?);
        loop {
            match stretch.item(&mut self.data.pending).await? {
                Copied::Row => rows += 1,
                Copied::Marker => {}
                Copied::End => break,
            }
            self.cut().await?;
        }
        if let Some(filter) = &mut self.filter {
            filter.insert(key_hash(&key.key));
        }
        self.entry.clear();
        // Places in a row index count from the partition's start.
        index::write_copied_entry(&key.key, start, &partition.row_index, &mut self.entry);
        self.summary.add(key, self.index.len());
        self.stats.partition(&key.key, self.data.position() - start, None);
        self.index.append(&self.entry).await?;
        if let Some(origin) = &mut self.origin {
            origin.rows += rows;
        }
        self.cut().await
    }
}

impl Origin {
    /// The statistics of what was copied, as far as `counted` knows; the rest is the source's.
    pub(super) fn stats(&self, counted: Stats) -> Stats {
        let all = &self.stats;
        let share = self.rows as f64 / all.total_rows.max(1) as f64;
        Stats {
            partition_sizes: counted.partition_sizes,
            compression_ratio: counted.compression_ratio,
            level: counted.level,
            repaired_at: counted.repaired_at,
            host_id: counted.host_id,
            total_rows: self.rows,
            total_columns_set: (all.total_columns_set as f64 * share) as u64,
            pending_repair: None,
            commit_log_intervals: Vec::new(),
            ..all.clone()
        }
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }
}
