//! Makes a placement in steps, and of the one before: a change of a ring moves the replicas of few of its ranges.

use schema::Replication;

use crate::placement::{PlacedRange, Placement, Replicas};
use crate::ring::{NodeIndex, Ring};
use crate::strategy::Strategy;

impl Placement {
    /// The placement of a replication on a ring. [`Replication::Local`] places nothing in a ring: every node keeps its own, so
    /// that the placement has no replicas.
    ///
    /// It takes tens of milliseconds for a thousand nodes of 256 tokens: [`PlacementBuilder`] does the same in steps.
    pub fn new(ring: &Ring, replication: &Replication) -> Self {
        let mut builder = PlacementBuilder::new(ring, replication);
        while !builder.advance(usize::MAX) {}
        builder.finish()
    }
}

/// A placement of which a part is made. [`PlacementBuilder::advance`] makes more of it, [`PlacementBuilder::finish`] gives it.
pub struct PlacementBuilder<'a> {
    ring: &'a Ring,
    replication: &'a Replication,
    strategy: Strategy,
    ranges: Vec<PlacedRange>,
    replicas: Vec<NodeIndex>,
    reused: Option<Reused<'a>>,
}

/// The ranges that a placement of an earlier ring has with the same replicas.
struct Reused<'a> {
    placement: &'a Placement,
    /// By range of the new ring: the place of the range in the earlier one, [`MOVED`] where its replicas may be others.
    places: Vec<u32>,
    /// The new indexes of the earlier ring's nodes.
    indexes: Vec<NodeIndex>,
}

/// No place in the earlier ring.
const MOVED: u32 = u32::MAX;
/// The index of a node that is not in the new ring: no range that is reused names it.
const GONE: NodeIndex = NodeIndex(u16::MAX);

impl<'a> PlacementBuilder<'a> {
    /// The placement that a replication makes of a ring, of which nothing is made yet.
    pub fn new(ring: &'a Ring, replication: &'a Replication) -> Self {
        let strategy = Strategy::new(ring, replication);
        let mut builder = Self {
            ring,
            replication,
            ranges: Vec::with_capacity(ring.tokens().len()),
            replicas: Vec::new(),
            reused: None,
            strategy,
        };
        if matches!(builder.strategy, Strategy::Everywhere) {
            builder.list_all_by_owner();
        }
        builder
    }

    /// The same, with `placement` that the same replication has made of an earlier ring: ranges that the difference between the rings
    /// does not touch are taken over. It is made anew where that would not pay.
    #[must_use]
    pub fn reusing(mut self, earlier: &'a Ring, placement: &'a Placement) -> Self {
        let is_of_earlier = earlier.tokens().len() == placement.range_count();
        if is_of_earlier && Strategy::new(earlier, self.replication).chooses_as(&self.strategy) {
            self.reused = self.compare(earlier, placement);
            self.replicas.reserve(placement.replica_count());
        }
        self
    }

    /// How many ranges are made of the earlier placement's.
    pub fn reused_ranges(&self) -> usize {
        self.reused.as_ref().map_or(0, |reused| reused.places.iter().filter(|place| **place != MOVED).count())
    }

    /// Makes ranges until about `steps_max` tokens have been looked at; whether all are made.
    pub fn advance(&mut self, steps_max: usize) -> bool {
        let tokens = self.ring.tokens();
        let mut steps = 0;
        while steps < steps_max
            && let Some((upto, owner)) = tokens.get(self.ranges.len())
        {
            steps += self.add(*upto, *owner);
        }
        self.ranges.len() == tokens.len()
    }

    /// The placement.
    ///
    /// # Panics
    /// When not all of it is made.
    pub fn finish(self) -> Placement {
        assert_eq!(self.ranges.len(), self.ring.tokens().len(), "every range is made");
        Placement::of_parts(self.ranges, self.replicas)
    }

    /// Adds the next range; how many tokens that has looked at.
    fn add(&mut self, upto: i64, owner: NodeIndex) -> usize {
        let at = self.ranges.len();
        let start = self.replicas.len() as u32;
        if matches!(self.strategy, Strategy::Everywhere) {
            let count = self.ring.nodes().len() as u32;
            self.ranges.push(PlacedRange { upto, start: u32::from(owner.0) * count, count });
            return 1;
        }
        let mut walked = 1;
        match self.reused.as_ref().filter(|reused| reused.places[at] != MOVED) {
            Some(reused) => {
                let earlier = reused.placement.at(reused.places[at] as usize);
                self.replicas.extend(earlier.iter().map(|node| reused.indexes[usize::from(node.0)]));
            }
            None => {
                let mut replicas = Replicas::new();
                walked = self.strategy.choose(self.ring, at, &mut replicas);
                self.replicas.extend_from_slice(&replicas);
            }
        }
        let count = self.replicas.len() as u32 - start;
        self.ranges.push(PlacedRange { upto, start, count });
        walked.max(1)
    }

    /// The replicas of [`Replication::Everywhere`]: for each owner the nodes, itself first. All of its ranges share them.
    fn list_all_by_owner(&mut self) {
        for owner in self.ring.indexes() {
            self.replicas.push(owner);
            self.replicas.extend(self.ring.indexes().filter(|node| *node != owner));
        }
    }

    /// Which ranges have the replicas that they had by an earlier ring; none when most may have others.
    fn compare(&self, earlier: &Ring, placement: &'a Placement) -> Option<Reused<'a>> {
        let indexes = self.indexes_of(earlier)?;
        let (mut places, changes) = self.places_of(earlier, &indexes);
        if changes.len() > self.ring.tokens().len() / 4 {
            return None;
        }
        self.mark_moved(&mut places, &changes);
        Some(Reused { placement, places, indexes })
    }

    /// The indexes of an earlier ring's nodes; none when one of them stands elsewhere.
    fn indexes_of(&self, earlier: &Ring) -> Option<Vec<NodeIndex>> {
        let mut by_host: Vec<NodeIndex> = self.ring.indexes().collect();
        by_host.sort_unstable_by_key(|index| self.ring.node(*index).host);
        let mut indexes = Vec::with_capacity(earlier.nodes().len());
        for node in earlier.nodes() {
            let found = by_host.binary_search_by_key(&node.host, |index| self.ring.node(*index).host);
            let Ok(found) = found else {
                indexes.push(GONE);
                continue;
            };
            if self.ring.node(by_host[found]).location != node.location {
                return None;
            }
            indexes.push(by_host[found]);
        }
        Some(indexes)
    }

    /// The place of each range's token in an earlier ring where the same node owns it, and, ascending, the places in this ring where
    /// the rings differ: of a token of its own, and of the first token after one that is gone.
    fn places_of(&self, earlier: &Ring, indexes: &[NodeIndex]) -> (Vec<u32>, Vec<usize>) {
        let (tokens, earlier) = (self.ring.tokens(), earlier.tokens());
        let (mut places, mut changes) = (Vec::with_capacity(tokens.len()), Vec::new());
        let mut old = 0;
        for (at, (token, owner)) in tokens.iter().enumerate() {
            let before = old;
            while earlier.get(old).is_some_and(|(other, _)| other < token) {
                old += 1;
            }
            let is_known = earlier
                .get(old)
                .is_some_and(|(other, had)| other == token && indexes[usize::from(had.0)] == *owner);
            places.push(if is_known { old as u32 } else { MOVED });
            if !is_known || old > before {
                changes.push(at);
            }
            old += usize::from(earlier.get(old).is_some_and(|(other, _)| other == token));
        }
        // Those that are gone behind the last token are before the first.
        if old < earlier.len() && changes.first() != Some(&0) && !tokens.is_empty() {
            changes.insert(0, 0);
        }
        (places, changes)
    }

    /// Marks the ranges whose replicas are found by looking at a token where the rings differ, or behind it. Of two ranges the one that
    /// begins to look earlier has found its replicas no later (both strategies need more of the ring only for want of nodes or
    /// racks), so that nothing before the first one that ends earlier has to be looked at.
    fn mark_moved(&self, places: &mut [u32], changes: &[usize]) {
        let count = places.len();
        let mut replicas = Replicas::new();
        for (nth, change) in changes.iter().enumerate() {
            let previous = changes[(nth + changes.len() - 1) % changes.len()];
            // With one change alone, all of the ring may lie before it.
            let span = match (change + count - previous) % count {
                0 => count,
                span => span,
            };
            for distance in 1..=span {
                let at = (change + count - distance) % count;
                replicas.clear();
                if self.strategy.choose(self.ring, at, &mut replicas) <= distance {
                    break;
                }
                places[at] = MOVED;
            }
        }
    }
}
