//! The graph of an SSTable's vectors, read from its file into memory.
//!
//! ```text
//! file   := header, { chunk }                          header as of terms; the first chunk has the graph's head, the last is empty
//! chunk  := length of the content (4), content, crc    content: whole nodes, each with its places
//! node   := as `hnsw` encodes it, vint count, { vint length, place }
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::path::PathBuf;
use std::sync::Arc;

use hnsw::{Decoder, Graph, Search};
use rt::preempt::Pace;
use rt::{Disk, DiskError, File, OpenOptions};
use stdx::Reader;
use stdx::vint::read_unsigned;

use super::nearest::{Nearest, STEPS, steps_of_comparison};
use crate::definition::Definition;
use crate::file::{HEADER_LEN, IndexFileError, PART_LEN_MAX, SstableIdentity, header, unseal};

/// A chunk is closed when it has so many bytes.
pub(super) const CHUNK_LEN: usize = 256 << 10;
/// Nodes that are read between two looks at the time.
const NODES_A_STEP: usize = 16;

/// The vectors of one index in an SSTable.
pub struct VectorsFile {
    path: PathBuf,
    definition: Arc<Definition>,
    graph: Graph,
    places: Places,
}

/// The places of each node, one behind the other.
#[derive(Default)]
struct Places {
    bytes: Vec<u8>,
    /// Where each place ends in `bytes`.
    ends: Vec<u64>,
    /// Where the places of each node end in `ends`.
    of_nodes: Vec<u64>,
}

impl Places {
    #[allow(
        clippy::indexing_slicing,
        reason = "places were read with their nodes, and end in the order in which they stand"
    )]
    fn of(&self, node: usize) -> impl Iterator<Item = &[u8]> {
        let start = node.checked_sub(1).map_or(0, |before| self.of_nodes[before]) as usize;
        (start..self.of_nodes[node] as usize).map(|at| {
            let from = at.checked_sub(1).map_or(0, |before| self.ends[before]) as usize;
            &self.bytes[from..self.ends[at] as usize]
        })
    }

    /// Reads the places of the next node; none when they are not such.
    fn read(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let count = read_unsigned(reader).ok()?;
        for _ in 0..count {
            let len = usize::try_from(read_unsigned(reader).ok()?).ok()?;
            self.bytes.extend_from_slice(reader.bytes(len).ok()?);
            self.ends.push(self.bytes.len() as u64);
        }
        self.of_nodes.push(self.ends.len() as u64);
        (count > 0).then_some(())
    }
}

impl VectorsFile {
    pub(crate) async fn open(
        disk: &Disk,
        path: PathBuf,
        identity: SstableIdentity,
        definition: Arc<Definition>,
    ) -> Result<Self, IndexFileError> {
        let file = disk.open(&path, OpenOptions::READ).await?;
        let unusable = |reason| IndexFileError::Unusable { path: path.clone(), reason };
        let len = file.len().await?;
        if len < HEADER_LEN as u64 {
            return Err(unusable("it is cut off"));
        }
        if *file.read_exact_at(0, HEADER_LEN).await? != *header(identity, &definition) {
            return Err(unusable("it belongs to another SSTable or index, or is of another version"));
        }
        let mut chunks = Chunks { file: &file, len, position: HEADER_LEN as u64 };
        let damaged = || unusable("its graph is damaged");
        let head = chunks.next().await?.ok_or_else(damaged)?;
        let mut decoder = Decoder::new(&mut Reader::new(&head)).ok_or_else(damaged)?;
        let mut places = Places::default();
        let mut pace = Pace::new();
        loop {
            let chunk = chunks.next().await?.ok_or_else(damaged)?;
            if chunk.is_empty() {
                break;
            }
            let mut reader = Reader::new(&chunk);
            while !reader.is_empty() {
                for _ in 0..NODES_A_STEP {
                    if reader.is_empty() {
                        break;
                    }
                    if decoder.left() == 0 {
                        return Err(damaged());
                    }
                    decoder.node(&mut reader).ok_or_else(damaged)?;
                    places.read(&mut reader).ok_or_else(damaged)?;
                }
                pace.step().await;
            }
        }
        let graph = decoder.finish().filter(|_| chunks.position == len).ok_or_else(damaged)?;
        let of_index = definition.vectors().is_some_and(|options| graph.options() == options);
        if !of_index || graph.dimensions() != definition.dimensions() {
            return Err(damaged());
        }
        assert_eq!(places.of_nodes.len(), graph.len(), "each node was read with its places");
        Ok(Self { path, definition, graph, places })
    }

    pub(crate) fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    pub(crate) fn records(&self) -> u64 {
        self.places.ends.len() as u64
    }

    pub(crate) fn memory_size(&self) -> usize {
        let Places { bytes, ends, of_nodes } = &self.places;
        self.graph.memory_size() + bytes.len() + (ends.len() + of_nodes.len()) * size_of::<u64>()
    }

    /// Offers the vectors that are nearest: as many as are wanted, or all.
    #[expect(clippy::expect_used, reason = "graphs number their nodes with 32 bits")]
    pub(super) async fn offer(&self, nearest: &mut Nearest) {
        let wanted = nearest.count.min(self.graph.len());
        let (mut found, mut pace) = (Vec::new(), Pace::new());
        if wanted < self.graph.len() {
            let mut search =
                Search::begin(&self.graph, &nearest.vector, wanted, self.definition.search_beam());
            while !search.step() {
                pace.steps(STEPS).await;
            }
            found = search.into_found();
        }
        if found.len() == wanted {
            for one in found {
                for place in self.places.of(one.node as usize) {
                    nearest.offer(place, one.closeness);
                    pace.step().await;
                }
            }
            return;
        }
        let compared = steps_of_comparison(self.graph.dimensions());
        // All of them, or some that no edge leads to.
        for node in 0..self.graph.len() {
            let node_number = u32::try_from(node).expect("nodes have 32 bits");
            let closeness = self.graph.closeness(&nearest.vector, node_number);
            pace.steps(compared).await;
            for place in self.places.of(node) {
                nearest.offer(place, closeness);
                pace.step().await;
            }
        }
    }
}

/// The chunks of a file in order.
struct Chunks<'a> {
    file: &'a File,
    len: u64,
    position: u64,
}

impl Chunks<'_> {
    /// The content of the next chunk; none when it is damaged.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, DiskError> {
        if self.len - self.position < 8 {
            return Ok(None);
        }
        let head = self.file.read_exact_at(self.position, 4).await?;
        let Ok(content) = Reader::new(&head).u32() else { return Ok(None) };
        let content = content as usize;
        let whole = content + 8;
        if content > PART_LEN_MAX || whole as u64 > self.len - self.position {
            return Ok(None);
        }
        let bytes = self.file.read_exact_at(self.position, whole).await?;
        self.position += whole as u64;
        Ok(unseal(&bytes).and_then(|content| content.get(4..)).map(<[u8]>::to_vec))
    }
}
