//! The rows of a snapshot, to be written elsewhere: each SSTable of its directory one after the other, in chunks of bounded memory. The table that
//! the snapshot is of may be gone; the rows are those of another one with the same columns.
//!
//! Timestamps and deletions are as they were, so that the same rows of several replicas, written in any order and any number of times, make the
//! same table.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use mutation::{FragmentBuffer, PartitionRange, PartitionUpdate};
use rt::Rt;
use schema::Table;
use sstable::{Component, Descriptor, NoCache, Sstable, SstableSource};

use crate::MaintenanceError;
use crate::chunks::Chunks;
use crate::error::disk_or_source;
use crate::import::{check_columns, refused, sources_of};

/// Bytes of rows that an update has at most, but for the last row of it.
const CHUNK_BYTES_MAX: usize = 64 << 10;

/// A reader of a snapshot's rows.
pub struct SnapshotRows {
    rt: Rt,
    table: Arc<Table>,
    /// SSTables that are not read yet, the next one last.
    left: Vec<Descriptor>,
    source: Option<SstableSource>,
    fragments: FragmentBuffer,
    chunks: Chunks,
}

impl SnapshotRows {
    /// Of the SSTables in a snapshot's directory, as rows of `table`. A directory that is not there has none.
    ///
    /// # Errors
    /// [`MaintenanceError::Source`] when a file has a format that cannot be read or is not complete; [`MaintenanceError::Disk`].
    pub async fn open(rt: &Rt, directory: &Path, table: Arc<Table>) -> Result<Self, MaintenanceError> {
        let left = match rt.disk().exists(directory).await? {
            true => sources_of(rt.disk(), directory).await?,
            false => Vec::new(),
        };
        let fragments = FragmentBuffer::new();
        let chunks = Chunks::new(table.clone(), CHUNK_BYTES_MAX);
        Ok(Self { rt: rt.clone(), table, left, source: None, fragments, chunks })
    }

    /// The next rows; none behind the last.
    ///
    /// # Errors
    /// [`MaintenanceError::Source`] when a file is damaged or has other columns than the table; [`MaintenanceError::Disk`].
    pub async fn next(&mut self) -> Result<Option<PartitionUpdate>, MaintenanceError> {
        loop {
            while let Some(mut fragment) = self.fragments.pop_front() {
                if !fragment.keep_columns(&self.table) {
                    continue;
                }
                if let Some(update) = self.chunks.push(fragment) {
                    return Ok(Some(update));
                }
            }
            if !self.fill().await? {
                return Ok(None);
            }
        }
    }

    /// Reads on; whether there was something.
    async fn fill(&mut self) -> Result<bool, MaintenanceError> {
        loop {
            if let Some(source) = &mut self.source
                && source.fill_next(&mut self.fragments).await.map_err(disk_or_source)?
            {
                return Ok(true);
            }
            assert!(self.chunks.is_between_partitions(), "an SSTable ends between partitions");
            let Some(next) = self.left.pop() else {
                self.source = None;
                return Ok(false);
            };
            let (data, digest) = (next.path(Component::Data), next.path(Component::Digest));
            sstable::verify::verify_digest(&self.rt, data, digest).await.map_err(disk_or_source)?;
            let opened = Sstable::open(&self.rt, next.clone(), self.table.clone(), Rc::new(NoCache)).await;
            let sstable = opened.map_err(disk_or_source)?;
            check_columns(&sstable, &self.table).map_err(|why| refused(format!("{next}: {why}")))?;
            self.source = Some(sstable.scan(&PartitionRange::all()));
        }
    }
}
