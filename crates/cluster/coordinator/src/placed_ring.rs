//! A ring with the placements that replications make of it, computed once for all shards and keyspaces.

use std::sync::Arc;

use rt::preempt::Pace;
use schema::Replication;
use topology::{Placement, PlacementBuilder, Ring};

/// Tokens of the ring that are looked at between two preemption points.
const TOKENS_STEP: usize = 1_024;

/// A ring and its placements. Cheap to clone; equal to one of the same ring.
#[derive(Clone, Debug)]
pub(crate) struct PlacedRing {
    ring: Arc<Ring>,
    /// Those of the keyspaces' replications, as far as they are computed, each once.
    placements: Arc<[(Replication, Arc<Placement>)]>,
}

impl PartialEq for PlacedRing {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.ring, &other.ring) || self.ring == other.ring
    }
}

impl PlacedRing {
    /// Without a placement.
    pub(crate) fn new(ring: Ring) -> Self {
        Self { ring: Arc::new(ring), placements: Arc::default() }
    }

    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Where a replication puts the ring's tokens, computed now if it is not known.
    pub(crate) fn place(&self, replication: &Replication) -> Arc<Placement> {
        self.known(replication).unwrap_or_else(|| Arc::new(Placement::new(&self.ring, replication)))
    }

    fn known(&self, replication: &Replication) -> Option<Arc<Placement>> {
        let found = self.placements.iter().find(|(known, _)| known == replication);
        found.map(|(_, placement)| placement.clone())
    }

    /// The same with the placements of these replications and no others. One that an equal ring among `earlier` has is shared, another is
    /// made of the placement of an earlier ring as far as the rings agree, in steps.
    pub(crate) async fn placed(self, replications: &[&Replication], earlier: &[PlacedRing]) -> Self {
        let same = earlier.iter().find(|ring| **ring == self);
        let mut placements: Vec<(Replication, Arc<Placement>)> = Vec::new();
        for replication in replications {
            if placements.iter().any(|(known, _)| known == *replication) {
                continue;
            }
            let known = self.known(replication).or_else(|| same?.known(replication));
            let placement = match known {
                Some(placement) => placement,
                None => Arc::new(self.compute(replication, earlier).await),
            };
            placements.push(((*replication).clone(), placement));
        }
        let is_placed = |wanted: &&Replication| placements.iter().any(|(known, _)| known == *wanted);
        assert!(replications.iter().all(is_placed), "each replication has a placement");
        let ring = same.map_or(self.ring, |same| same.ring.clone());
        Self { ring, placements: placements.into() }
    }

    async fn compute(&self, replication: &Replication, earlier: &[PlacedRing]) -> Placement {
        let mut pace = Pace::new();
        let known = earlier.iter().find_map(|ring| Some((ring.ring(), ring.known(replication)?)));
        let mut builder = PlacementBuilder::new(&self.ring, replication);
        if let Some((ring, placement)) = &known {
            builder = builder.reusing(ring, placement);
        }
        while !builder.advance(TOKENS_STEP) {
            pace.count(TOKENS_STEP);
            if pace.is_due() {
                pace.pause().await;
            }
        }
        builder.finish()
    }
}
