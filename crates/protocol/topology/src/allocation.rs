//! The tokens of a node that joins, chosen so that every node keeps about as much as the others beside it.
//!
//! When replicas are spread over racks, the nodes of one rack share a replica, regardless of the other racks' tokens; in a
//! datacenter of one rack all its nodes share. So the balanced unit is the rack's own ring, or the datacenter's.

use crate::ring::{Location, NodeIndex, Ring};

/// Tokens for a node that joins a ring at `location`, ascending.
///
/// The node takes pieces of one size from whichever of its peers owns most, out of that peer's longest range. `seed` moves
/// the tokens of a first node, so that those of several racks and datacenters do not meet.
pub fn allocate(ring: &Ring, location: &Location, count: usize, seed: u64) -> Vec<i64> {
    assert!(count > 0, "a node has a token");
    let near = |index: &NodeIndex| ring.node(*index).location.datacenter == location.datacenter;
    let racks = ring.indexes().filter(near).any(|index| ring.node(index).location.rack != location.rack);
    let peer = |index| near(&index) && (!racks || ring.node(index).location.rack == location.rack);
    let mut peers = PeerRing::new(ring, peer);
    if peers.ranges.is_empty() {
        return first(ring, count, seed);
    }
    let members = peers.owned.iter().filter(|owned| owned.is_some()).count() as u128;
    let piece = (1u128 << 64) / (members + 1) / count as u128;
    let mut taken: Vec<i64> = (0..count).map(|_| peers.take(piece, ring)).collect();
    taken.sort_unstable();
    taken
}

/// Tokens at equal distances, none of which is taken.
fn first(ring: &Ring, count: usize, seed: u64) -> Vec<i64> {
    let step = ((1u128 << 64) / count as u128) as u64;
    let mut tokens: Vec<i64> =
        (0..count as u64).map(|at| free(ring, seed.wrapping_add(at.wrapping_mul(step)) as i64)).collect();
    tokens.sort_unstable();
    tokens
}

/// The next token that no node of the whole ring has.
fn free(ring: &Ring, mut token: i64) -> i64 {
    while ring.tokens().binary_search_by_key(&token, |(taken, _)| *taken).is_ok() {
        token = token.wrapping_add(1);
    }
    token
}

/// The ring of a node's peers alone, while tokens are taken out of it.
struct PeerRing {
    /// The token before the range, the range's length and owner.
    ranges: Vec<(i64, u128, NodeIndex)>,
    /// The share of each node of the whole ring; `None` for a node that is no peer.
    owned: Vec<Option<u128>>,
}

impl PeerRing {
    fn new(ring: &Ring, peer: impl Fn(NodeIndex) -> bool) -> Self {
        let tokens: Vec<(i64, NodeIndex)> =
            ring.tokens().iter().copied().filter(|(_, owner)| peer(*owner)).collect();
        let mut owned: Vec<Option<u128>> = ring.indexes().map(|index| peer(index).then_some(0)).collect();
        let mut ranges = Vec::with_capacity(tokens.len());
        for (at, (token, owner)) in tokens.iter().enumerate() {
            let before = tokens[(at + tokens.len() - 1) % tokens.len()].0;
            let length = match token.wrapping_sub(before) as u64 {
                0 => 1 << 64,
                length => u128::from(length),
            };
            *owned[usize::from(owner.0)].get_or_insert(0) += length;
            ranges.push((before, length, *owner));
        }
        Self { ranges, owned }
    }

    /// Takes a piece of about this length from the peer that owns most: the front of its longest range.
    fn take(&mut self, piece: u128, ring: &Ring) -> i64 {
        let owned = |owner: NodeIndex| self.owned[usize::from(owner.0)];
        let longest = self.ranges.iter_mut().max_by_key(|range| (owned(range.2), range.1, range.0));
        let (before, length, owner) = longest.expect("peers have ranges");
        // Its owner keeps at least half of the range, so that no range becomes a sliver.
        let piece = piece.min(*length / 2).max(1);
        let token = free(ring, before.wrapping_add(piece as u64 as i64));
        let piece = u128::from(token.wrapping_sub(*before) as u64);
        *before = token;
        *length = length.saturating_sub(piece);
        if let Some(owned) = &mut self.owned[usize::from(owner.0)] {
            *owned = owned.saturating_sub(piece);
        }
        token
    }
}
