//! The placement of a keyspace's data, for reads and, while replicas move, the one to come: which nodes are pending or leaving, and the ranges that
//! they stream.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::{NodeIndex, Placement, Replicas, TokenRange};

/// The replicas of each token of a keyspace or table, and those to come while replicas move. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DataPlacement {
    now: Arc<Placement>,
    /// By the other ring, or the other replication; and the places of that ring's nodes in the view.
    other: Option<(Arc<Placement>, Arc<[NodeIndex]>)>,
    switched: bool,
    /// The replication changes, and not the ring.
    is_altered: bool,
}

/// A range within which no placement changes, and its replicas.
pub(crate) struct RangeReplicas<'a> {
    range: TokenRange,
    /// The replicas by the placement of reads.
    pub(crate) now: &'a [NodeIndex],
    /// By the other ring's indexes, whose places in the view are `places`.
    there: &'a [NodeIndex],
    places: &'a [NodeIndex],
}

impl RangeReplicas<'_> {
    /// The replicas by the other placement.
    pub(crate) fn others(&self) -> impl Iterator<Item = NodeIndex> + '_ {
        self.there.iter().map(|node| self.places[usize::from(node.0)])
    }

    /// Whether both placements have the same replicas.
    fn stays(&self) -> bool {
        self.there.len() == self.now.len() && self.others().all(|node| self.now.contains(&node))
    }

    /// Whether a node is a replica by the placement of reads alone.
    fn loses(&self) -> bool {
        self.now.iter().any(|node| !self.others().any(|other| other == *node))
    }
}

impl DataPlacement {
    /// Replicas that stay where a placement has them, by the indexes of a view.
    pub fn at(placement: Placement) -> Self {
        Self::new(Arc::new(placement), None, false)
    }

    /// By a ring, and by another one with the places of its nodes in the view.
    pub fn new(
        now: Arc<Placement>,
        other: Option<(Arc<Placement>, Arc<[NodeIndex]>)>,
        switched: bool,
    ) -> Self {
        Self { now, other, switched, is_altered: false }
    }

    /// By two replications.
    pub fn altered(now: Arc<Placement>, other: (Arc<Placement>, Arc<[NodeIndex]>), switched: bool) -> Self {
        Self { now, other: Some(other), switched, is_altered: true }
    }

    /// The placement of reads.
    pub fn now(&self) -> &Placement {
        &self.now
    }

    /// The replicas of a token.
    pub fn replicas(&self, token: i64) -> &[NodeIndex] {
        self.now.replicas(token)
    }

    /// The pending replicas of a token, or the previous ones when reads have switched: they take its writes.
    pub fn pending(&self, token: i64) -> Replicas {
        let now = self.now.replicas(token);
        self.others(token).into_iter().filter(|node| !now.contains(node)).collect()
    }

    /// The replicas of a token in the ring, or by the replication, to be, or of before when reads have gone over.
    pub fn others(&self, token: i64) -> Replicas {
        let Some((other, places)) = &self.other else { return Replicas::new() };
        other.replicas(token).iter().map(|node| places[usize::from(node.0)]).collect()
    }

    /// Whether no replica of any token moves.
    pub fn is_settled(&self) -> bool {
        self.other.is_none()
    }

    /// Whether a node takes the writes of a token.
    pub fn takes(&self, node: NodeIndex, token: i64) -> bool {
        self.replicas(token).contains(&node) || self.others(token).contains(&node)
    }

    /// Whether all nodes that take the writes of one token take those of another, too.
    pub fn go_with(&self, token: i64, other: i64) -> bool {
        let mut nodes = self.replicas(token).iter().copied().chain(self.others(token));
        nodes.all(|node| self.takes(node, other))
    }

    /// Whether a node has the earlier writes of a token: it is a replica, or was until reads switched. A pending replica has not
    /// yet.
    pub fn is_complete(&self, node: NodeIndex, token: i64) -> bool {
        self.replicas(token).contains(&node) || self.switched && self.others(token).contains(&node)
    }

    /// Whether replicas of a token, or of any, move and reads have not gone over yet.
    pub fn is_leased(&self, token: Option<i64>) -> bool {
        if !self.moves() {
            return false;
        }
        token.is_none_or(|token| !self.pending(token).is_empty() || !self.losing(token).is_empty())
    }

    /// Whether replicas move and reads have not gone over yet.
    fn moves(&self) -> bool {
        !self.switched && self.other.is_some()
    }

    /// The leaving replicas of a token, while reads still use them: rows that only they have must be fetched from them.
    pub fn losing(&self, token: i64) -> Replicas {
        if !self.moves() {
            return Replicas::new();
        }
        let stay = self.others(token);
        self.now.replicas(token).iter().copied().filter(|node| !stay.contains(node)).collect()
    }

    /// The pieces whose replicas move before reads have gone over.
    fn moving(&self) -> impl Iterator<Item = RangeReplicas<'_>> {
        let moves = self.moves();
        self.pieces().take_while(move |_| moves).filter(|piece| !piece.stays())
    }

    /// The nodes that fetch a range: those that will be replicas and are not yet. Where a replication has fewer replicas than before, also
    /// those that stay: a quorum of the remaining replicas must have all rows of a previous quorum.
    fn fetchers<'a>(&self, piece: &'a RangeReplicas<'_>) -> impl Iterator<Item = NodeIndex> + 'a {
        let all = self.is_altered && piece.loses();
        piece.others().filter(move |node| all || !piece.now.contains(node))
    }

    /// The ranges of which a node will be a replica and is not yet.
    pub fn gained(&self, node: NodeIndex) -> Vec<TokenRange> {
        let gains = |piece: &RangeReplicas<'_>| self.fetchers(piece).any(|fetcher| fetcher == node);
        self.moving().filter(gains).map(|piece| piece.range).collect()
    }

    /// The pending replicas of all ranges.
    pub fn pending_nodes(&self) -> BTreeSet<NodeIndex> {
        let mut nodes = BTreeSet::new();
        self.moving().for_each(|piece| nodes.extend(self.fetchers(&piece)));
        nodes
    }

    /// The ranges of which a node is a replica for reads.
    pub fn owned(&self, node: NodeIndex) -> Vec<TokenRange> {
        self.now.ranges_of(node).collect()
    }

    /// The ranges that a node keeps: as a replica, or as one that takes writes.
    pub fn kept(&self, node: NodeIndex) -> Vec<TokenRange> {
        let keeps = |piece: &RangeReplicas<'_>| {
            piece.now.contains(&node) || piece.others().any(|other| other == node)
        };
        self.pieces().filter(keeps).map(|piece| piece.range).collect()
    }

    /// The ring in pieces within which no placement changes, in its order: the tokens of both rings cut it.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = RangeReplicas<'_>> {
        let none: (Option<&Placement>, &[NodeIndex]) = (None, &[]);
        let (other, places) = self.other.as_ref().map_or(none, |(other, places)| (Some(&**other), places));
        let last = |placement: &Placement| placement.range_end(placement.range_count().wrapping_sub(1));
        let mut after = last(&self.now).max(other.and_then(last)).unwrap_or(i64::MAX);
        let (end, mut is_first) = (after, true);
        let (mut here, mut there) = (0, 0);
        std::iter::from_fn(move || {
            let ends = (self.now.range_end(here), other.and_then(|other| other.range_end(there)));
            let upto = match ends {
                (Some(here), Some(there)) => here.min(there),
                (None, None) => {
                    assert_eq!(after, end, "the pieces cover the ring once");
                    return None;
                }
                (here, there) => here.or(there)?,
            };
            assert!(is_first || upto > after, "the pieces of a ring are in its order and do not overlap");
            is_first = false;
            let range = TokenRange { after, upto };
            let replicas = (self.now.at(here), other.map_or(&[] as &[NodeIndex], |other| other.at(there)));
            let piece = RangeReplicas { range, now: replicas.0, there: replicas.1, places };
            after = upto;
            here += usize::from(ends.0 == Some(upto));
            there += usize::from(ends.1 == Some(upto));
            Some(piece)
        })
    }
}
