//! Writes the graph of an SSTable's vectors to a file (`vectors::file` has the layout). The graph is made in memory, where a
//! search needs it as well.

use std::path::PathBuf;

use hnsw::{Graph, Insertion, Quantised};
use rt::preempt::Pace;
use rt::{Disk, DiskError, File, IoBuf, OpenOptions};
use stdx::HashMap;
use stdx::vint::write_unsigned;

use super::file::CHUNK_LEN;
use super::nearest::STEPS;
use crate::definition::Definition;
use crate::file::{SstableIdentity, header, seal};

/// Vectors in the making.
pub(crate) struct VectorsWriter {
    file: File,
    path: PathBuf,
    header: Vec<u8>,
    graph: Graph,
    /// The node of each vector: equal ones share it.
    nodes: HashMap<Quantised, u32>,
    /// Of each node, the places that have its vector.
    places: Vec<Vec<Box<[u8]>>>,
    pace: Pace,
    /// The vector that was added last, until it is in the graph.
    insertion: Option<Insertion>,
}

impl VectorsWriter {
    /// A new file, replacing one of that name: it counts when [`VectorsWriter::finish`] has returned.
    pub(crate) async fn create(
        disk: &Disk,
        path: PathBuf,
        identity: SstableIdentity,
        definition: &Definition,
    ) -> Result<Self, DiskError> {
        let options = OpenOptions { truncate: true, ..OpenOptions::READ_WRITE };
        let file = disk.open(&path, options).await?;
        let options = definition.vectors().expect("only made for an index on vectors");
        let graph = Graph::new(options, definition.dimensions());
        let header = header(identity, definition);
        Ok(Self {
            file,
            path,
            header,
            graph,
            nodes: HashMap::default(),
            places: Vec::new(),
            pace: Pace::new(),
            insertion: None,
        })
    }

    /// Adds the vector of a place: [`VectorsWriter::settle`] comes before the next one.
    pub(crate) fn add(&mut self, vector: &Quantised, place: &[u8]) {
        let node = match self.nodes.get(vector) {
            Some(node) => *node,
            None => {
                assert!(self.insertion.is_none(), "one vector is inserted behind the other");
                let insertion = Insertion::begin(&mut self.graph, vector);
                let node = insertion.node();
                self.insertion = Some(insertion);
                self.nodes.insert(vector.clone(), node);
                self.places.push(Vec::new());
                node
            }
        };
        self.places[node as usize].push(place.into());
    }

    /// Ends the insertion under way; other tasks run in between when it is time.
    pub(crate) async fn settle(&mut self) {
        while let Some(insertion) = &mut self.insertion {
            if insertion.step(&mut self.graph) {
                self.insertion = None;
            }
            self.pace.steps(STEPS).await;
        }
    }

    /// Writes the file and makes it durable; its path.
    pub(crate) async fn finish(mut self) -> Result<PathBuf, DiskError> {
        assert!(self.insertion.is_none(), "each vector is in the graph");
        let mut out = std::mem::take(&mut self.header);
        let mut position = 0;
        let mut chunk = Vec::with_capacity(CHUNK_LEN * 2);
        self.graph.encode_head(&mut chunk);
        put_chunk(&mut chunk, &mut out);
        for (node, places) in self.places.iter().enumerate() {
            self.graph.encode_node(u32::try_from(node).expect("nodes have 32 bits"), &mut chunk);
            write_unsigned(places.len() as u64, &mut chunk);
            for place in places {
                write_unsigned(place.len() as u64, &mut chunk);
                chunk.extend_from_slice(place);
            }
            if chunk.len() >= CHUNK_LEN {
                put_chunk(&mut chunk, &mut out);
                position = write(&self.file, position, &mut out).await?;
            }
            self.pace.step().await;
        }
        if !chunk.is_empty() {
            put_chunk(&mut chunk, &mut out);
        }
        // Of length zero: the end.
        put_chunk(&mut chunk, &mut out);
        write(&self.file, position, &mut out).await?;
        self.file.sync_all().await?;
        Ok(self.path)
    }
}

/// Appends a chunk with its length and checksum, and empties it.
fn put_chunk(chunk: &mut Vec<u8>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&u32::try_from(chunk.len()).expect("a chunk is below 4 GiB").to_be_bytes());
    out.extend_from_slice(chunk);
    seal(out, start);
    chunk.clear();
}

async fn write(file: &File, position: u64, bytes: &mut Vec<u8>) -> Result<u64, DiskError> {
    file.write_at(position, IoBuf::copy_of(bytes)).await?;
    let end = position + bytes.len() as u64;
    bytes.clear();
    Ok(end)
}
