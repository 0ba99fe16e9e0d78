//! The nodes that have the data of a token range, for one that fetches it.

use mutation::{PartitionRange, RingPosition};
use topology::{NodeIndex, TokenRange};

use crate::Consistency;
use crate::contact::Needs;
use crate::replication_map::EffectiveReplicationMap;

/// A range of tokens as ranges that do not go around the ring's end.
pub fn partition_ranges(range: TokenRange) -> Vec<PartitionRange> {
    let (after, upto) = (RingPosition::AfterToken(range.after), RingPosition::AfterToken(range.upto));
    if range.after < range.upto {
        return vec![PartitionRange { start: after, end: upto }];
    }
    let PartitionRange { start, end } = PartitionRange::all();
    vec![PartitionRange { start, end: upto }, PartitionRange { start: after, end }]
}

/// The nodes that a range is fetched from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullFrom<'a> {
    /// So many of its replicas that they share one with every quorum that acknowledged a write. This node may be one.
    Quorum,
    /// The same without this node, as far as there are others.
    Others,
    /// So many of its replicas in a datacenter that they share one with a write at its LOCAL_QUORUM.
    Datacenter(&'a str),
}

/// The nodes that have a token's range, and the number of them that have each write at the consistency in question. There may be fewer
/// replicas than copies.
pub(crate) fn holders(
    erm: &EffectiveReplicationMap,
    token: i64,
    from: PullFrom<'_>,
) -> (Vec<NodeIndex>, usize) {
    let view = &erm.view;
    let all = erm.placement.replicas(token);
    let consistency = Consistency::Quorum;
    let (replicas, written) = match from {
        PullFrom::Quorum => {
            let written = Needs::new(consistency, &erm.replication, view, &[]).required();
            (all.to_vec(), written)
        }
        PullFrom::Others => {
            let written = Needs::new(consistency, &erm.replication, view, &[]).required();
            // This node may be one of those that acknowledged.
            (
                all.iter().copied().filter(|node| *node != view.own()).collect(),
                written.saturating_sub(1).max(1),
            )
        }
        PullFrom::Datacenter(name) => {
            let here = |node: &NodeIndex| view.node(*node).location.datacenter == name && *node != view.own();
            let replicas: Vec<NodeIndex> = all.iter().copied().filter(here).collect();
            let written = replicas.len() / 2 + 1;
            (replicas, written)
        }
    };
    assert!(written > 0, "a write at QUORUM is on a replica");
    let is_own = |node: &NodeIndex| *node == view.own();
    assert!(from == PullFrom::Quorum || !replicas.iter().any(is_own), "a node does not fetch from itself");
    (replicas, written)
}
