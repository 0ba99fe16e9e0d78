//! Walks over a graph, in moves of few comparisons: down its levels, and around one level.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Graph;
use crate::graph::Found;
use crate::quantised::View;

/// Products of components that one step makes, unless a single comparison has more.
const PRODUCTS_A_STEP: usize = 1 << 18;

/// Comparisons that one step makes: some ten microseconds of work.
pub(crate) fn comparisons_a_step(graph: &Graph) -> usize {
    (PRODUCTS_A_STEP / graph.dimensions()).max(1)
}

/// A greedy walk to the nearest node of a level, and of those below it.
#[derive(Debug)]
pub(crate) struct Descent {
    near: Found,
    /// The nearest of its neighbours that were compared.
    best: Option<Found>,
    /// The neighbour that is compared next.
    next: usize,
}

impl Descent {
    pub(crate) fn from(near: Found) -> Self {
        Self { near, best: None, next: 0 }
    }

    /// The nearest node so far.
    pub(crate) fn near(&self) -> Found {
        self.near
    }

    /// Compares so many neighbours at most: how many, and whether none of the level is nearer any more.
    pub(crate) fn advance(
        &mut self,
        graph: &Graph,
        vector: View<'_>,
        level: usize,
        budget: usize,
    ) -> (usize, bool) {
        let neighbours = &graph.neighbours[self.near.node as usize][level];
        assert!(self.next <= neighbours.len(), "the graph stays as it is during a walk");
        let upto = neighbours.len().min(self.next + budget.max(1));
        let compared = &neighbours[self.next..upto];
        self.best = compared.iter().map(|node| graph.found(vector, *node)).chain(self.best).max();
        self.next = upto;
        if upto < neighbours.len() {
            return (compared.len(), false);
        }
        self.next = 0;
        match self.best.take().filter(|best| *best > self.near) {
            Some(nearer) => {
                self.near = nearer;
                (compared.len(), false)
            }
            None => (compared.len(), true),
        }
    }
}

/// A best-first search on one level, node by node.
#[derive(Debug)]
pub(crate) struct LevelSearch {
    seen: Bits,
    open: BinaryHeap<Found>,
    best: BinaryHeap<Reverse<Found>>,
    beam: usize,
    level: usize,
    /// The node whose neighbours are compared, and the next of them.
    visited: Option<(u32, usize)>,
}

impl LevelSearch {
    pub(crate) fn new(graph: &Graph, from: &[Found], beam: usize, level: usize) -> Self {
        let mut seen = Bits::new(graph.len());
        from.iter().for_each(|found| {
            seen.set(found.node);
        });
        let open = from.iter().copied().collect();
        let best = from.iter().copied().map(Reverse).collect();
        assert!(beam >= 1 && !from.is_empty(), "a search begins somewhere and finds something");
        Self { seen, open, best, beam, level, visited: None }
    }

    /// Looks at neighbours of the nearest node that is left, and gives how many were compared, `budget` at most; none when the search has ended.
    pub(crate) fn visit(&mut self, graph: &Graph, vector: View<'_>, budget: usize) -> Option<usize> {
        let (visited, mut next) = match self.visited.take() {
            Some(visited) => visited,
            None => {
                let next = self.open.pop()?;
                let is_full = self.best.len() >= self.beam;
                if is_full && self.best.peek().is_some_and(|Reverse(worst)| next < *worst) {
                    return None;
                }
                (next.node, 0)
            }
        };
        let neighbours = &graph.neighbours[visited as usize][self.level];
        let mut compared = 0;
        while next < neighbours.len() && compared < budget.max(1) {
            let node = neighbours[next];
            next += 1;
            if !self.seen.set(node) {
                continue;
            }
            compared += 1;
            self.found(graph.found(vector, node));
        }
        if next < neighbours.len() {
            self.visited = Some((visited, next));
        }
        assert!(compared <= budget.max(1), "a move is no longer than its budget");
        Some(compared)
    }

    fn found(&mut self, found: Found) {
        if self.best.len() >= self.beam {
            if self.best.peek().is_none_or(|Reverse(worst)| found <= *worst) {
                return;
            }
            self.best.pop();
        }
        self.best.push(Reverse(found));
        self.open.push(found);
    }

    /// The nodes found so far, nearest first.
    pub(crate) fn into_found(self) -> Vec<Found> {
        // The least of the reversed order is the nearest.
        self.best.into_sorted_vec().into_iter().map(|Reverse(found)| found).collect()
    }
}

/// The nodes that a search has looked at.
#[derive(Debug)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    /// Sets a bit; false when it was set.
    fn set(&mut self, at: u32) -> bool {
        let (word, bit) = (&mut self.0[at as usize / 64], 1 << (at % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}
