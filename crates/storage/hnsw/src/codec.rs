//! A graph as bytes.
//!
//! ```text
//! graph := similarity (1), vint connections, vint beam, vint dimensions, vint count of nodes, [vint entry, { node }]
//! node  := scale (4), square of its length (4), components (1 each), vint levels, { vint count, { vint neighbour } }
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use stdx::Reader;
use stdx::vint::{read_unsigned, write_unsigned};

use crate::{BEAM_MAX, CONNECTIONS_MAX, DIMENSIONS_MAX, Graph, Options, Similarity};

/// More levels than 2³² nodes can have with two connections.
const LEVELS_MAX: usize = 64;

impl Graph {
    /// Appends the header before the nodes.
    #[expect(clippy::expect_used, reason = "the list has every measure")]
    pub fn encode_head(&self, out: &mut Vec<u8>) {
        let measure = Similarity::NAMES.iter().position(|(_, one)| *one == self.options.similarity);
        out.push(measure.expect("every measure has a name") as u8);
        for number in [self.options.connections, self.options.beam, self.dimensions, self.len()] {
            write_unsigned(number as u64, out);
        }
        if !self.is_empty() {
            write_unsigned(u64::from(self.entry), out);
        }
    }

    /// Appends a node.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn encode_node(&self, node: u32, out: &mut Vec<u8>) {
        let view = self.view(node);
        out.extend_from_slice(&view.scale.to_be_bytes());
        out.extend_from_slice(&view.square.to_be_bytes());
        out.extend(view.components.iter().map(|component| *component as u8));
        let levels = self.neighbours.get(node as usize).map_or(&[][..], Vec::as_slice);
        assert!(!levels.is_empty(), "a node is on a level");
        write_unsigned(levels.len() as u64, out);
        for neighbours in levels {
            write_unsigned(neighbours.len() as u64, out);
            neighbours.iter().for_each(|neighbour| write_unsigned(u64::from(*neighbour), out));
        }
    }
}

/// A graph that is read, node by node.
#[derive(Debug)]
pub struct Decoder {
    graph: Graph,
    count: u32,
}

impl Decoder {
    /// Reads the header before the nodes; none when it is malformed.
    pub fn new(reader: &mut Reader<'_>) -> Option<Self> {
        let similarity = Similarity::NAMES.get(usize::from(reader.u8().ok()?))?.1;
        let connections = number(reader, CONNECTIONS_MAX)?;
        let beam = number(reader, BEAM_MAX)?;
        let dimensions = number(reader, DIMENSIONS_MAX)?;
        if connections == 0 || beam == 0 || dimensions == 0 {
            return None;
        }
        let mut graph = Graph::new(Options { similarity, connections, beam }, dimensions);
        let count = u32::try_from(read_unsigned(reader).ok()?).ok()?;
        if count > 0 {
            graph.entry = u32::try_from(number(reader, count as usize - 1)?).ok()?;
        }
        Some(Self { graph, count })
    }

    /// Nodes that were not read yet.
    pub fn left(&self) -> usize {
        self.count as usize - self.graph.len()
    }

    /// Reads the next node; none when it is not one.
    pub fn node(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let Self { graph, count } = self;
        let scale = f32::from_bits(reader.u32().ok()?);
        let square = f32::from_bits(reader.u32().ok()?);
        let components = reader.bytes(graph.dimensions).ok()?;
        if !scale.is_finite() || !square.is_finite() {
            return None;
        }
        let levels = number(reader, LEVELS_MAX)?;
        let mut neighbours = Vec::with_capacity(levels);
        for level in 0..levels {
            let links = number(reader, graph.most(level))?;
            let links = (0..links).map(|_| Some(number(reader, *count as usize - 1)? as u32));
            neighbours.push(links.collect::<Option<Vec<u32>>>()?);
        }
        graph.components.extend(components.iter().map(|component| *component as i8));
        graph.scales.push((scale, square));
        graph.neighbours.push(neighbours);
        (levels > 0).then_some(())
    }

    /// The graph, when all nodes were read and each neighbour is on the level where it is one; none else.
    pub fn finish(self) -> Option<Graph> {
        let graph = self.graph;
        let is_whole = graph.len() == self.count as usize;
        let height = |node: u32| graph.neighbours.get(node as usize).map_or(0, Vec::len);
        let is_sound = is_whole
            && graph.neighbours.iter().all(|levels| {
                let mut levels = levels.iter().enumerate();
                levels.all(|(level, links)| links.iter().all(|link| height(*link) > level))
            })
            && (graph.is_empty() || graph.neighbours.iter().all(|node| node.len() <= height(graph.entry)));
        is_sound.then_some(graph)
    }
}

/// A number of at most `max`.
fn number(reader: &mut Reader<'_>, max: usize) -> Option<usize> {
    usize::try_from(read_unsigned(reader).ok()?).ok().filter(|number| *number <= max)
}
