//! The parts of an index that memtables and SSTables have: terms, vectors, or postings of texts.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use mutation::PartitionUpdate;
use rt::Disk;
use schema::Table;

use crate::definition::Definition;
use crate::file::{IndexFileError, SstableIdentity, TermsFile};
use crate::memory::MemoryTerms;
use crate::texts::MemoryTexts;
use crate::vectors::{MemoryVectors, VectorsFile};

/// One index of a memtable.
#[derive(Debug)]
pub enum MemoryIndex {
    /// On terms.
    Terms(MemoryTerms),
    /// On vectors.
    Vectors(MemoryVectors),
    /// Of full text.
    Texts(MemoryTexts),
}

impl MemoryIndex {
    /// Of an empty memtable.
    pub fn new(definition: Arc<Definition>) -> Self {
        match (definition.vectors(), definition.fulltext()) {
            (Some(_), _) => Self::Vectors(MemoryVectors::new(definition)),
            (None, Some(_)) => Self::Texts(MemoryTexts::new(definition)),
            (None, None) => Self::Terms(MemoryTerms::new(definition)),
        }
    }

    /// The definition of its index.
    pub fn definition(&self) -> &Arc<Definition> {
        match self {
            Self::Terms(terms) => terms.definition(),
            Self::Vectors(vectors) => vectors.definition(),
            Self::Texts(texts) => texts.definition(),
        }
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Terms(terms) => terms.bytes(),
            Self::Vectors(vectors) => vectors.bytes(),
            Self::Texts(texts) => texts.bytes(),
        }
    }

    /// Takes the terms or vectors of a write that its memtable takes.
    pub fn add(&self, table: &Table, update: &PartitionUpdate) {
        match self {
            Self::Terms(terms) => terms.add(table, update),
            Self::Vectors(vectors) => vectors.add(table, update),
            Self::Texts(texts) => texts.add(table, update),
        }
    }
}

/// One index of an SSTable.
pub enum IndexFile {
    /// On terms.
    Terms(TermsFile),
    /// On vectors.
    Vectors(VectorsFile),
    /// Of full text.
    Texts(TermsFile),
}

impl IndexFile {
    /// Opens the file of this SSTable and definition.
    ///
    /// # Errors
    /// When the disk refuses, and when it is not such a file or is damaged.
    pub async fn open(
        disk: &Disk,
        path: PathBuf,
        identity: SstableIdentity,
        definition: Arc<Definition>,
    ) -> Result<Rc<Self>, IndexFileError> {
        Ok(Rc::new(match (definition.vectors(), definition.fulltext()) {
            (Some(_), _) => Self::Vectors(VectorsFile::open(disk, path, identity, definition).await?),
            (None, Some(_)) => Self::Texts(TermsFile::open(disk, path, identity, definition).await?),
            (None, None) => Self::Terms(TermsFile::open(disk, path, identity, definition).await?),
        }))
    }

    /// The definition of its index.
    pub fn definition(&self) -> &Arc<Definition> {
        match self {
            Self::Terms(terms) => terms.definition(),
            Self::Vectors(vectors) => vectors.definition(),
            Self::Texts(texts) => texts.definition(),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        match self {
            Self::Terms(terms) => terms.path(),
            Self::Vectors(vectors) => vectors.path(),
            Self::Texts(texts) => texts.path(),
        }
    }

    /// How many terms or vectors at places it has.
    pub fn records(&self) -> u64 {
        match self {
            Self::Terms(terms) => terms.records(),
            Self::Vectors(vectors) => vectors.records(),
            Self::Texts(texts) => texts.records(),
        }
    }

    /// Bytes that it holds in memory.
    pub fn memory_size(&self) -> usize {
        match self {
            Self::Terms(terms) => terms.memory_size(),
            Self::Vectors(vectors) => vectors.memory_size(),
            Self::Texts(texts) => texts.memory_size(),
        }
    }
}
