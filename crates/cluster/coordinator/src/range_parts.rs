//! A token range as parts of about the same width, and for each part the shard of the node that is to work on it: for work whose rows need
//! not travel, such as aggregations. The body of such a request and its answer are the caller's, which serves [`rpc::Verb::Aggregate`] itself.

use std::sync::Arc;

use bytes::Bytes;
use mutation::{PartitionRange, RingPosition};
use rpc::{Messenger, Verb};
use rt::Instant;
use schema::Table;
use topology::{ClusterView, HostId, NodeIndex, NodeShard};

use crate::kind::Kind;
use crate::peer_error::malformed;
use crate::read::parts;
use crate::{Coordinator, RequestError};

/// Parts of the whole ring at most, where nodes and ranges do not make more.
const PARTS_MAX: i128 = 128;
/// Tokens of the whole ring.
const RING: i128 = 1 << 64;

/// A part of a token range.
#[derive(Clone, Debug, PartialEq)]
pub struct RangePart {
    /// Its tokens.
    pub range: PartitionRange,
    /// The node and the shard of it that work on it; none for this shard.
    pub by: Option<(HostId, u16)>,
}

impl Coordinator {
    /// The parts of a range in ring order, of about as many tokens as `width` says, or a 128th of the ring if that is more. The replicas of a part are the same, and it is given to
    /// one of them in this datacenter that is up, the first if possible, so that the parts of all nodes are given to all.
    ///
    /// # Errors
    /// When the table's keyspace is gone.
    pub fn range_parts(
        &self,
        table: &Arc<Table>,
        range: &PartitionRange,
        width: i128,
    ) -> Result<Vec<RangePart>, RequestError> {
        let context = self.context();
        if context.maps().kind(table)? != Kind::Replicated {
            return Ok(vec![RangePart { range: range.clone(), by: None }]);
        }
        let erm = context.maps().of(table)?;
        let mut out = Vec::new();
        for (range, replicas) in parts(erm.placement.now(), range, None) {
            for piece in split(&range, width.max(RING / PARTS_MAX)) {
                let by = worker(&erm.view, &replicas, (context.shard(), out.len()));
                out.push(RangePart { range: piece, by });
            }
        }
        Ok(out)
    }

    /// Answers such requests of other shards and nodes by `work`, which is given a body and the time by which the answer has to be there.
    pub fn serve_parts<W>(messenger: &Messenger, work: impl Fn(Bytes, Instant) -> W + 'static)
    where
        W: Future<Output = Result<Bytes, String>> + 'static,
    {
        messenger.serve(Verb::Aggregate, move |incoming| {
            let answer = work(incoming.body, incoming.deadline);
            async move { answer.await.map_err(malformed) }
        });
    }

    /// Has a shard of a node work on a part; its answer. The work continues when this is dropped.
    ///
    /// # Errors
    /// The reason why there is no answer: the node is down, slow, or of a version that does not know such requests, or it refused.
    pub async fn ask_for_part(
        &self,
        (host, shard): (HostId, u16),
        body: Bytes,
        deadline: Instant,
    ) -> Result<Bytes, String> {
        let view = self.context().view();
        let Some(node) = view.index_of(host) else { return Err("the node has left".to_owned()) };
        let to = NodeShard { node: view.node(node), shard };
        let answer = self.context().remote().call(to, Verb::Aggregate, body, deadline).await;
        answer.map_err(|error| error.message().to_owned())
    }
}

/// Pieces of a range that are no wider than this.
fn split(range: &PartitionRange, width: i128) -> Vec<PartitionRange> {
    assert!(width > 0, "a piece has a token");
    let (first, last) = (i128::from(range.start.token()), i128::from(range.end.token()));
    let count = ((last - first) / width).max(0) + 1;
    assert!(count <= RING / width + 1, "a range is no wider than the ring");
    let end_of = |part: i128| match i64::try_from(first + (last - first) * part / count) {
        Ok(token) if part < count => RingPosition::AfterToken(token),
        _ => range.end.clone(),
    };
    let start_of = |part: i128| if part == 0 { range.start.clone() } else { end_of(part) };
    (0..count).map(|part| PartitionRange { start: start_of(part), end: end_of(part + 1) }).collect()
}

/// The shard that works on the part of this number; none for this one.
fn worker(
    view: &ClusterView,
    replicas: &[NodeIndex],
    (own_shard, number): (u16, usize),
) -> Option<(HostId, u16)> {
    let is_near =
        |node: &NodeIndex| view.is_alive(*node) && view.datacenter(*node) == view.datacenter(view.own());
    let node = replicas.iter().copied().find(is_near).unwrap_or(view.own());
    let at = view.node(node);
    assert!(at.shards > 0, "a node has a shard");
    let shard = (number % usize::from(at.shards)) as u16;
    (node != view.own() || shard != own_shard).then_some((at.host, shard))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_range() {
        let (before, after) = (RingPosition::BeforeToken, RingPosition::AfterToken);
        let of = |start, end| PartitionRange { start, end };
        let narrow = RING / PARTS_MAX;
        for (range, width, count) in [
            (of(before(i64::MIN), after(i64::MAX)), narrow, 128),
            (of(before(i64::MIN), after(i64::MAX)), RING, 1),
            (of(before(i64::MIN), after(i64::MAX)), RING / 3 + 1, 3),
            (of(after(-7), before(1_000)), narrow, 1),
            (of(after(0), after(1 << 62)), narrow, 33),
            (of(after(5), after(5)), narrow, 1),
        ] {
            let pieces = split(&range, width);
            assert_eq!(pieces.len(), count, "{range:?}");
            assert_eq!((&pieces[0].start, &pieces[count - 1].end), (&range.start, &range.end));
            for pair in pieces.windows(2) {
                assert_eq!(pair[0].end, pair[1].start, "{range:?}");
                assert!(pair[0].start.token() < pair[1].start.token(), "{range:?}");
            }
            let widest =
                pieces.iter().map(|piece| i128::from(piece.end.token()) - i128::from(piece.start.token()));
            assert!(widest.max() <= Some(width), "{range:?}");
        }
    }
}
