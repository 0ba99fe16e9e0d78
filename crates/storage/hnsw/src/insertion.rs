//! One insertion in steps: with thousands of dimensions and a wide beam it takes many milliseconds, and other tasks of the thread run in
//! between.

use crate::graph::Found;
use crate::walk::{Descent, LevelSearch, comparisons_a_step};
use crate::{Graph, Quantised};

/// An insertion under way. The graph must not be searched, nor another vector be inserted, before it has ended.
#[derive(Debug)]
pub struct Insertion {
    node: u32,
    /// The level under way.
    level: usize,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Goes down from the graph's entry, on a level that the node is not on.
    Descend { descent: Descent, to: usize },
    /// Looks for the nearest nodes of a level.
    Search(LevelSearch),
    /// Chooses neighbours among them.
    Choose { near: Found, chosen: Diverse },
    /// Connects the neighbours with the node, from one on. One that has too many then chooses anew.
    Connect { near: Found, chosen: Vec<u32>, next: usize, shrinking: Option<Diverse> },
    /// It is in the graph.
    Ended,
}

impl Graph {
    /// Adds a vector; the number of its node. Equal vectors should share a node: between many of them there is no direction to
    /// search in, and some would not be found.
    ///
    /// # Panics
    /// When the vector has another count of dimensions, or 2³² nodes are there.
    pub fn insert(&mut self, vector: &Quantised) -> u32 {
        let mut insertion = Insertion::begin(self, vector);
        while !insertion.step(self) {}
        insertion.node()
    }
}

impl Insertion {
    /// Begins to add a vector; the first node has nothing to be connected with.
    ///
    /// # Panics
    /// When the vector has another count of dimensions, or 2³² nodes are there.
    pub fn begin(graph: &mut Graph, vector: &Quantised) -> Self {
        let (node, own) = graph.push(vector);
        if node == 0 {
            return Self { node, level: 0, stage: Stage::Ended };
        }
        let top = graph.levels() - 1;
        let near = graph.found(graph.view(node), graph.entry);
        Self { node, level: top, stage: Stage::Descend { descent: Descent::from(near), to: own.min(top) } }
    }

    /// The number of the node.
    pub fn node(&self) -> u32 {
        self.node
    }

    /// Works for some ten microseconds; true when the node is in the graph.
    pub fn step(&mut self, graph: &mut Graph) -> bool {
        let mut left = comparisons_a_step(graph);
        while left > 0 && !matches!(self.stage, Stage::Ended) {
            let compared = self.advance(graph, left);
            left = left.saturating_sub(compared.max(1));
        }
        matches!(self.stage, Stage::Ended)
    }

    /// Makes one move, with about so many comparisons at most; their number.
    fn advance(&mut self, graph: &mut Graph, budget: usize) -> usize {
        let level = self.level;
        match &mut self.stage {
            Stage::Descend { descent, to } if level > *to => {
                let (compared, is_nearest) = descent.advance(graph, graph.view(self.node), level, budget);
                self.level -= usize::from(is_nearest);
                compared
            }
            Stage::Descend { descent, .. } => {
                let from = [descent.near()];
                self.stage = Stage::Search(LevelSearch::new(graph, &from, graph.options.beam, level));
                1
            }
            Stage::Search(search) => match search.visit(graph, graph.view(self.node), budget) {
                Some(compared) => compared,
                None => {
                    let Stage::Search(search) = std::mem::replace(&mut self.stage, Stage::Ended) else {
                        unreachable!("it is that stage");
                    };
                    let found = search.into_found();
                    let near = *found.first().expect("the search begins at a node");
                    let most = graph.options.connections.min(graph.most(level));
                    self.stage = Stage::Choose { near, chosen: Diverse::of(found, most) };
                    1
                }
            },
            Stage::Choose { near, chosen } => {
                let compared = chosen.advance(graph, budget);
                if let Some(chosen) = chosen.ended() {
                    self.stage = Stage::Connect { near: *near, chosen, next: 0, shrinking: None };
                }
                compared
            }
            Stage::Connect { chosen, next, shrinking, .. } if *next < chosen.len() => {
                let other = chosen[*next];
                let compared = connect(graph, (other, self.node), level, shrinking, budget);
                *next += usize::from(shrinking.is_none());
                compared
            }
            Stage::Connect { near, chosen, .. } => {
                graph.neighbours[self.node as usize][level] = std::mem::take(chosen);
                let near = *near;
                match level.checked_sub(1) {
                    Some(below) => {
                        self.level = below;
                        self.stage = Stage::Descend { descent: Descent::from(near), to: below };
                    }
                    None => {
                        if graph.neighbours[self.node as usize].len() > graph.levels() {
                            graph.entry = self.node;
                        }
                        self.stage = Stage::Ended;
                    }
                }
                1
            }
            Stage::Ended => 0,
        }
    }
}

/// Connects a node with the new one. Where it has too many neighbours then, it chooses among them: `shrinking` holds that until it is done.
fn connect(
    graph: &mut Graph,
    (other, node): (u32, u32),
    level: usize,
    shrinking: &mut Option<Diverse>,
    budget: usize,
) -> usize {
    let most = graph.most(level);
    let Some(chosen) = shrinking else {
        let links = &mut graph.neighbours[other as usize][level];
        links.push(node);
        if links.len() <= most {
            return 1;
        }
        let links = std::mem::take(links);
        let mut found: Vec<Found> = links.iter().map(|link| graph.found(graph.view(other), *link)).collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        *shrinking = Some(Diverse::of(found, most));
        return links.len();
    };
    let compared = chosen.advance(graph, budget);
    if let Some(links) = chosen.ended() {
        graph.neighbours[other as usize][level] = links;
        *shrinking = None;
    }
    compared
}

/// Of nodes in the order of their closeness to one, at most `most` that lie in different directions: none is closer to one chosen
/// before than to the node itself (the paper's algorithm 4); the remaining room takes the nearest of the others.
#[derive(Debug)]
struct Diverse {
    found: Vec<Found>,
    most: usize,
    next: usize,
    chosen: Vec<u32>,
    others: Vec<u32>,
}

impl Diverse {
    fn of(found: Vec<Found>, most: usize) -> Self {
        assert!(found.is_sorted_by(|one, next| one >= next), "the nearest first");
        Self { found, most, next: 0, chosen: Vec::with_capacity(most), others: Vec::new() }
    }

    /// Looks at the next nodes, with about so many comparisons; their number.
    fn advance(&mut self, graph: &Graph, budget: usize) -> usize {
        let mut compared = 0;
        while compared < budget && !self.is_ended() {
            let one = self.found[self.next];
            self.next += 1;
            let is_apart = self.chosen.iter().all(|other| {
                compared += 1;
                graph.closeness_of(graph.view(one.node), *other) < one.closeness
            });
            if is_apart {
                self.chosen.push(one.node)
            } else {
                self.others.push(one.node)
            }
            compared += 1;
        }
        compared
    }

    fn is_ended(&self) -> bool {
        self.next == self.found.len() || self.chosen.len() == self.most
    }

    /// The chosen nodes, when all were looked at that count.
    fn ended(&mut self) -> Option<Vec<u32>> {
        if !self.is_ended() {
            return None;
        }
        let mut chosen = std::mem::take(&mut self.chosen);
        let room = self.most - chosen.len();
        chosen.extend(self.others.drain(..).take(room));
        Some(chosen)
    }
}
