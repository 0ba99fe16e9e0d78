//! The graph: its nodes, and how close they are.

use std::cmp::Ordering;

use crate::quantised::View;
use crate::{BEAM_MAX, CONNECTIONS_MAX, DIMENSIONS_MAX, Quantised, Similarity};

/// How a graph is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The measure of closeness.
    pub similarity: Similarity,
    /// The most neighbours of a node on an upper level, 1 to [`CONNECTIONS_MAX`]; twice as many on the lowest.
    pub connections: usize,
    /// Candidates that an insertion chooses its neighbours from, 1 to [`BEAM_MAX`].
    pub beam: usize,
}

/// A node that a search has found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Its number: nodes are numbered in the order of their insertion.
    pub node: u32,
    /// How close its quantised vector is.
    pub closeness: f32,
}

impl Eq for Found {}

/// The closer is the greater; of two that are equally close, that inserted first.
impl Ord for Found {
    fn cmp(&self, other: &Self) -> Ordering {
        self.closeness.total_cmp(&other.closeness).then(other.node.cmp(&self.node))
    }
}

impl PartialOrd for Found {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A hierarchical navigable small world graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    pub(crate) options: Options,
    pub(crate) dimensions: usize,
    /// The components of all nodes, one behind the other.
    pub(crate) components: Vec<i8>,
    /// Of each node, the unit of its components and the square of its length.
    pub(crate) scales: Vec<(f32, f32)>,
    /// Of each node, its neighbours on each of its levels, from the lowest.
    pub(crate) neighbours: Vec<Vec<Vec<u32>>>,
    /// The node where every search begins, of the highest level.
    pub(crate) entry: u32,
}

impl Graph {
    /// A graph without nodes, for vectors of so many dimensions.
    ///
    /// # Panics
    /// When an option or the count of dimensions is out of its bounds.
    pub fn new(options: Options, dimensions: usize) -> Self {
        assert!((1..=CONNECTIONS_MAX).contains(&options.connections), "connections within their bounds");
        assert!((1..=BEAM_MAX).contains(&options.beam), "a beam within its bounds");
        assert!((1..=DIMENSIONS_MAX).contains(&dimensions), "dimensions within their bounds");
        Self {
            options,
            dimensions,
            components: Vec::new(),
            scales: Vec::new(),
            neighbours: Vec::new(),
            entry: 0,
        }
    }

    /// Count of its nodes.
    pub fn len(&self) -> usize {
        self.scales.len()
    }

    /// Whether it has no nodes.
    pub fn is_empty(&self) -> bool {
        self.scales.is_empty()
    }

    /// Count of the dimensions of its vectors.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// How it is built.
    pub fn options(&self) -> Options {
        self.options
    }

    /// How close a node's vector is to one.
    ///
    /// # Panics
    /// When there is no such node, or the vector has another count of dimensions.
    pub fn closeness(&self, vector: &Quantised, node: u32) -> f32 {
        self.closeness_of(vector.view(), node)
    }

    /// Bytes that it holds.
    pub fn memory_size(&self) -> usize {
        let lists = self.neighbours.iter().flatten();
        let links: usize = lists.map(|list| size_of_val(list) + list.capacity() * size_of::<u32>()).sum();
        self.components.capacity() + size_of_val(self.scales.as_slice()) + links
    }

    /// Adds a node without neighbours; its number and its highest level.
    pub(crate) fn push(&mut self, vector: &Quantised) -> (u32, usize) {
        assert_eq!(vector.dimensions(), self.dimensions, "vectors of one index have one length");
        let node = u32::try_from(self.len()).expect("fewer than 2^32 nodes");
        let View { components, scale, square } = vector.view();
        self.components.extend_from_slice(components);
        self.scales.push((scale, square));
        let level = self.level_of(node);
        self.neighbours.push(vec![Vec::new(); level + 1]);
        (node, level)
    }

    /// Levels of the graph.
    pub(crate) fn levels(&self) -> usize {
        self.neighbours[self.entry as usize].len()
    }

    /// The most neighbours of a node on a level.
    pub(crate) fn most(&self, level: usize) -> usize {
        if level == 0 { self.options.connections * 2 } else { self.options.connections }
    }

    /// The highest level of a node: each is one in `connections` of the level below, chosen by a hash of the number.
    fn level_of(&self, node: u32) -> usize {
        let uniform = ((mix(u64::from(node)) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        let per_level = (self.options.connections.max(2) as f64).ln();
        (-uniform.ln() / per_level) as usize
    }

    pub(crate) fn view(&self, node: u32) -> View<'_> {
        let at = node as usize;
        let (scale, square) = self.scales[at];
        let components = &self.components[at * self.dimensions..(at + 1) * self.dimensions];
        View { components, scale, square }
    }

    pub(crate) fn closeness_of(&self, vector: View<'_>, node: u32) -> f32 {
        vector.closeness(self.view(node), self.options.similarity)
    }

    pub(crate) fn found(&self, vector: View<'_>, node: u32) -> Found {
        Found { node, closeness: self.closeness_of(vector, node) }
    }
}

/// The finaliser of SplitMix64.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
