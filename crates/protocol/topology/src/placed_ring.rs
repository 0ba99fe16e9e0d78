//! A ring with the placements that replications make of it, computed once for all shards and keyspaces.

use std::sync::Arc;

use schema::Replication;

use crate::{Placement, PlacementBuilder, Ring};

/// A ring and its placements. Cheap to clone; equal to one of the same ring.
#[derive(Clone, Debug)]
pub struct PlacedRing {
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

    /// The ring.
    pub fn ring(&self) -> &Ring {
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

    /// Those of the replications, each once, whose placement is known neither here nor by an equal ring among `earlier`.
    pub fn missing(&self, replications: &[Replication], earlier: &[PlacedRing]) -> Vec<Replication> {
        let same = self.same(earlier);
        let mut missing: Vec<Replication> = Vec::new();
        for replication in replications {
            let known = self.known(replication).or_else(|| same?.known(replication));
            if known.is_none() && !missing.contains(replication) {
                missing.push(replication.clone());
            }
        }
        missing
    }

    /// Makes the placement of a replication in steps, of that of an earlier ring as far as the rings agree.
    pub fn builder<'a>(
        &'a self,
        replication: &'a Replication,
        earlier: &'a [PlacedRing],
    ) -> PlacementBuilder<'a> {
        let builder = PlacementBuilder::new(&self.ring, replication);
        match earlier.iter().find_map(|ring| Some((ring.ring(), ring.known_ref(replication)?))) {
            Some((ring, placement)) => builder.reusing(ring, placement),
            None => builder,
        }
    }

    /// The same with the placements of these replications and no others: of `computed`, of this ring, or shared with an equal one among
    /// `earlier`.
    ///
    /// # Panics
    /// When one of them is nowhere ([`PlacedRing::missing`]).
    #[must_use]
    pub fn placed(
        self,
        replications: &[Replication],
        earlier: &[PlacedRing],
        computed: &[(Replication, Arc<Placement>)],
    ) -> Self {
        let same = self.same(earlier);
        let mut placements: Vec<(Replication, Arc<Placement>)> = Vec::new();
        for replication in replications {
            if placements.iter().any(|(known, _)| known == replication) {
                continue;
            }
            let made = || computed.iter().find(|(made, _)| made == replication).map(|(_, it)| it.clone());
            let known = self.known(replication).or_else(|| same?.known(replication)).or_else(made);
            placements.push((replication.clone(), known.expect("each replication has a placement")));
        }
        let ring = same.map_or_else(|| self.ring.clone(), |same| same.ring.clone());
        Self { ring, placements: placements.into() }
    }

    fn same<'a>(&self, earlier: &'a [PlacedRing]) -> Option<&'a PlacedRing> {
        earlier.iter().find(|ring| *ring == self)
    }

    fn known_ref(&self, replication: &Replication) -> Option<&Placement> {
        let found = self.placements.iter().find(|(known, _)| known == replication);
        found.map(|(_, placement)| &**placement)
    }
}
