//! Makes the index of an SSTable from its fragments: of its terms, or of its vectors.

use std::path::PathBuf;
use std::sync::Arc;

use mutation::{DecoratedKey, Fragment};
use rt::{Disk, DiskError};
use schema::Table;

use crate::definition::Definition;
use crate::file::{SstableIdentity, TermsWriter};
use crate::place;
use crate::texts::postings_of;
use crate::vectors::VectorsWriter;

/// The file in the making.
enum Made {
    Terms(TermsWriter),
    Vectors(VectorsWriter),
}

/// An index in the making.
pub struct IndexBuilder {
    made: Made,
    definition: Arc<Definition>,
    table: Arc<Table>,
    key: Option<DecoratedKey>,
    place: Vec<u8>,
}

impl IndexBuilder {
    /// Begins a file, replacing one of that name.
    ///
    /// # Errors
    /// When the disk refuses.
    pub async fn create(
        disk: &Disk,
        path: PathBuf,
        identity: SstableIdentity,
        (table, definition): (Arc<Table>, Arc<Definition>),
    ) -> Result<Self, DiskError> {
        let made = match definition.vectors() {
            None => Made::Terms(TermsWriter::create(disk, path, identity, &definition).await?),
            Some(_) => Made::Vectors(VectorsWriter::create(disk, path, identity, &definition).await?),
        };
        Ok(Self { made, definition, table, key: None, place: Vec::new() })
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
        match &mut self.made {
            Made::Terms(writer) if writer.is_full() => writer.write_segment().await,
            Made::Terms(_) => Ok(()),
            Made::Vectors(writer) => {
                writer.settle().await;
                Ok(())
            }
        }
    }

    fn push_row(&mut self, row: &mutation::Row, is_static: bool) {
        let Self { made, definition, table, key, place } = self;
        let key = key.as_ref().expect("a row is in a partition");
        place.clear();
        place::encode(key, (!is_static).then_some(&row.clustering), place);
        match made {
            Made::Terms(writer) if let Some(fulltext) = definition.fulltext() => {
                definition.values_of(table, key, row, is_static, |value, _| {
                    let count = postings_of(fulltext, value, |term, posting| {
                        writer.add_posting(term, place, posting);
                    });
                    if let Some(count) = count {
                        writer.count_text(count);
                    }
                });
            }
            Made::Terms(writer) => {
                definition.terms_of(table, key, row, is_static, |term| writer.add(term, place));
            }
            Made::Vectors(writer) => {
                if let Some(vector) = definition.vector_of(table, key, row, is_static) {
                    writer.add(&vector, place);
                }
            }
        }
    }

    /// Ends the file and makes it durable; its path.
    ///
    /// # Errors
    /// When the disk refuses.
    pub async fn finish(self) -> Result<PathBuf, DiskError> {
        match self.made {
            Made::Terms(writer) => writer.finish().await,
            Made::Vectors(writer) => writer.finish().await,
        }
    }
}
