//! One search in steps: with thousands of dimensions, candidates and neighbours it takes many milliseconds, and other tasks of the thread run in
//! between.

use crate::graph::Found;
use crate::walk::{Descent, LevelSearch, comparisons_a_step};
use crate::{Graph, Quantised};

/// A search under way.
#[derive(Debug)]
pub struct Search<'a> {
    graph: &'a Graph,
    vector: &'a Quantised,
    count: usize,
    beam: usize,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Goes down from the graph's entry; the level under way.
    Descend(Descent, usize),
    /// Looks for the nearest nodes of the lowest level.
    Level(LevelSearch),
    Ended(Vec<Found>),
}

impl Graph {
    /// The nodes nearest to a vector, nearest first: at most `count`, among as many candidates as `beam` but at least `count`.
    ///
    /// # Panics
    /// When the vector has another count of dimensions.
    pub fn search(&self, vector: &Quantised, count: usize, beam: usize) -> Vec<Found> {
        let mut search = Search::begin(self, vector, count, beam);
        while !search.step() {}
        search.into_found()
    }
}

impl<'a> Search<'a> {
    /// Begins [`Graph::search`].
    ///
    /// # Panics
    /// When the vector has another count of dimensions.
    pub fn begin(graph: &'a Graph, vector: &'a Quantised, count: usize, beam: usize) -> Self {
        assert_eq!(vector.dimensions(), graph.dimensions(), "vectors of one index have one length");
        let stage = match graph.is_empty() || count == 0 {
            true => Stage::Ended(Vec::new()),
            false => {
                let entry = graph.found(vector.view(), graph.entry);
                Stage::Descend(Descent::from(entry), graph.levels() - 1)
            }
        };
        Self { graph, vector, count, beam, stage }
    }

    /// Works for some ten microseconds; true when the search has ended.
    pub fn step(&mut self) -> bool {
        let mut left = comparisons_a_step(self.graph);
        while left > 0 && !matches!(self.stage, Stage::Ended(_)) {
            let compared = self.advance(left);
            left = left.saturating_sub(compared.max(1));
        }
        matches!(self.stage, Stage::Ended(_))
    }

    /// Makes one move, with so many comparisons at most; their number.
    fn advance(&mut self, budget: usize) -> usize {
        let (graph, vector) = (self.graph, self.vector.view());
        match &mut self.stage {
            Stage::Descend(descent, level @ 1..) => {
                let (compared, is_nearest) = descent.advance(graph, vector, *level, budget);
                *level -= usize::from(is_nearest);
                compared
            }
            Stage::Descend(descent, _) => {
                let beam = self.beam.max(self.count);
                self.stage = Stage::Level(LevelSearch::new(graph, &[descent.near()], beam, 0));
                1
            }
            Stage::Level(search) => match search.visit(graph, vector, budget) {
                Some(compared) => compared,
                None => {
                    let Stage::Level(search) = std::mem::replace(&mut self.stage, Stage::Ended(Vec::new()))
                    else {
                        unreachable!("it is that stage");
                    };
                    let mut found = search.into_found();
                    found.truncate(self.count);
                    self.stage = Stage::Ended(found);
                    1
                }
            },
            Stage::Ended(_) => 0,
        }
    }

    /// The nodes that were found, nearest first.
    ///
    /// # Panics
    /// Before the search has ended.
    pub fn into_found(self) -> Vec<Found> {
        match self.stage {
            Stage::Ended(found) => found,
            _ => panic!("the search has not ended"),
        }
    }
}
