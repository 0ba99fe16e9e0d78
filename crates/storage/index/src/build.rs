//! Makes the index of an SSTable from its fragments.

use std::path::PathBuf;
use std::sync::Arc;

use mutation::{DecoratedKey, Fragment};
use rt::{Disk, DiskError};
use schema::Table;

use crate::definition::Definition;
use crate::file::{IndexWriter, SstableIdentity};
use crate::place;

/// An index in the making.
pub struct IndexBuilder {
    writer: IndexWriter,
    definition: Arc<Definition>,
    table: Arc<Table>,
    key: Option<DecoratedKey>,
    place: Vec<u8>,
}

impl IndexBuilder {
    /// Begins a file, over whatever has its name.
    ///
    /// # Errors
    /// When the disk refuses.
    pub async fn create(
        disk: &Disk,
        path: PathBuf,
        identity: SstableIdentity,
        (table, definition): (Arc<Table>, Arc<Definition>),
    ) -> Result<Self, DiskError> {
        let writer = IndexWriter::create(disk, path, identity, &definition).await?;
        Ok(Self { writer, definition, table, key: None, place: Vec::new() })
    }

    /// Takes the next fragment of the SSTable.
    ///
    /// # Errors
    /// When the disk refuses.
    ///
    /// # Panics
    /// When a row comes outside of a partition.
    pub async fn push(&mut self, fragment: Fragment) -> Result<(), DiskError> {
        match fragment {
            Fragment::PartitionStart { key, .. } => self.key = Some(key),
            Fragment::PartitionEnd => self.key = None,
            Fragment::StaticRow(row) => self.push_row(&row, true),
            Fragment::Row(row) => self.push_row(&row, false),
            Fragment::RangeTombstoneChange { .. } => {}
        }
        if self.writer.is_full() { self.writer.write_segment().await } else { Ok(()) }
    }

    fn push_row(&mut self, row: &mutation::Row, is_static: bool) {
        let Self { writer, definition, table, key, place } = self;
        let key = key.as_ref().expect("a row is in a partition");
        place.clear();
        place::encode(key, (!is_static).then_some(&row.clustering), place);
        definition.terms_of(table, key, row, is_static, |term| writer.add(term, place));
    }

    /// Ends the file and makes it durable; its path.
    ///
    /// # Errors
    /// When the disk refuses.
    pub async fn finish(self) -> Result<PathBuf, DiskError> {
        let path = self.writer.path().clone();
        self.writer.finish().await?;
        Ok(path)
    }
}
