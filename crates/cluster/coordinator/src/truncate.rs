//! TRUNCATE: every node of the ring removes its rows of a table, each of its shards wholly or not at all.
//!
//! They do so twice. A node that has done it may receive older rows from one that has not yet: by a repair, a topology change, a
//! read that finds that replicas differ. When all have done it there are none left to send, and rows that were read before and are still
//! on their way are refused after the second time, because the node remembers when it truncated (`truncated_at`).
//!
//! A node refuses a request that reaches it late (`truncation_permit`): a TRUNCATE that failed takes effect within twice its time limit or not at all.
//!
//! Regardless of their clocks all nodes end with the same time: rounds of Paxos up to it are over (docs/design/lwt.md, *TRUNCATE*), and a
//! write that one voter takes for truncated and another for chosen afterwards would be neither.

use std::time::Duration;

use futures_util::future::join_all;
use replica::{ReplicaError, TableOperation};
use rt::{Instant, ShardId};
use schema::{Replication, Table, TableId};
use topology::NodeIndex;

use crate::admission::Admission;
use crate::context::Context;
use crate::peer_error::{self, PeerError};
use crate::shard_calls;
use crate::truncation_permit::TruncationPermit;
use crate::{ClusterView, RequestError};

/// A suffix of the client's error when it cannot name the shards that have truncated.
const WHOLLY_OR_NOT: &str = "It may go on: each shard of each node truncates its part of the table wholly or not at all; repeat the \
                             statement to be certain";

/// How often every node does it, at least.
const ROUNDS: usize = 2;
/// And at most, while their times differ: votes and hints of later times may come in between.
const ROUNDS_MAX: usize = 6;

const _: () =
    assert!(ROUNDS >= 2, "what a node was given before the others truncated is removed by the second round");
const _: () = assert!(ROUNDS <= ROUNDS_MAX, "a truncation ends");

/// Truncations by one shard's coordinator.
pub(crate) struct Truncations<'a> {
    context: &'a Context,
}

impl<'a> Truncations<'a> {
    pub(crate) fn new(context: &'a Context) -> Self {
        Self { context }
    }

    /// Removes everything from a table, on every node.
    pub(crate) async fn truncate(&self, table: &Table, deadline: Instant) -> Result<(), RequestError> {
        let view = self.context.view();
        // Not where this node is the only replica of all tokens either: the others' hints and batches are of before the truncation, too.
        if !view.is_alone() && self.context.maps().placement_of(table)?.1 != Replication::Local {
            return self.truncate_everywhere(&view, table, deadline).await;
        }
        let now = self.context.rt().wall_micros();
        let _under_way = self.context.fence().enter();
        match self.context.rt().timeout_at(deadline, self.truncate_here(table.id, now, deadline)).await {
            Ok(outcome) => outcome.map(|_| ()).map_err(RequestError::Truncate),
            Err(_) => Err(timed_out(0)),
        }
    }

    /// The time of the last truncation of a table on each shard of this node: rows read elsewhere before it are not written here after it.
    pub(crate) async fn truncated_at(&self, table: TableId) -> Vec<i64> {
        let times = join_all(self.context.port().ask_each(shard_calls::TruncatedAt { table })).await;
        assert_eq!(times.len(), self.shards(), "each shard says when it truncated the table");
        times
    }

    /// How many shards this node has.
    fn shards(&self) -> usize {
        usize::from(self.context.rt().shard_count())
    }

    /// A time behind every write, logged batch and hint that any shard has taken up, however the wall clock was moved meanwhile;
    /// [`i64::MIN`] when there was none.
    pub(crate) async fn behind_pending(&self) -> i64 {
        let latest = join_all(self.context.port().ask_each(shard_calls::LatestPending {})).await;
        assert_eq!(latest.len(), self.shards(), "each shard says when its last write began");
        let known = latest.into_iter().filter(|latest| *latest > i64::MIN);
        known.map(|latest| latest.saturating_add(1)).max().unwrap_or(i64::MIN)
    }

    /// Has every node build the views of a table from the beginning.
    pub(crate) async fn rebuild_views(&self, base: TableId, deadline: Instant) -> Result<(), RequestError> {
        let view = self.context.view();
        let one = |node: NodeIndex| {
            let view = &view;
            async move {
                if node != view.own() {
                    return self.context.remote().rebuild_views((view, node), base, deadline).await;
                }
                let rebuilt = async { self.rebuild_views_here(base).await.map_err(PeerError::Invalid) };
                self.context.here(deadline, rebuilt).await
            }
        };
        let nodes: Vec<NodeIndex> = view.indexes().collect();
        let results = join_all(nodes.iter().map(|node| one(*node))).await;
        judge(&view, &nodes, results).map(drop)
    }

    /// Has this node build the views of a table from the beginning.
    pub(crate) async fn rebuild_views_here(&self, base: TableId) -> Result<(), String> {
        self.context.port().ask(ShardId(0), shard_calls::RebuildViews { base }).await
    }

    /// Every node of the ring, in the latest view of any of them, must be up: a down node would bring back its data.
    async fn truncate_everywhere(
        &self,
        view: &ClusterView,
        table: &Table,
        deadline: Instant,
    ) -> Result<(), RequestError> {
        let nodes: Vec<NodeIndex> = view.indexes().collect();
        let alive = nodes.iter().filter(|node| view.is_alive(**node)).count();
        if alive < nodes.len() {
            // As Cassandra and ScyllaDB, whose clients know an error of TRUNCATE by its code.
            let text = format!(
                "Error during truncate: Cannot achieve consistency level ALL: {alive} of {} nodes are alive",
                nodes.len()
            );
            return Err(RequestError::Truncate(text));
        }
        let permits = self.permits(view, &nodes, table.id, deadline).await;
        if self.is_superseded(view, &permits, deadline).await? {
            return Box::pin(self.truncate(table, deadline)).await;
        }
        let permits = judge(view, &nodes, permits)?;
        let permits: Vec<(NodeIndex, TruncationPermit)> = nodes.iter().copied().zip(permits).collect();
        let mut at_micros = i64::MIN;
        for round in 1..=ROUNDS_MAX {
            let began = self.context.rt().now();
            let results = self.truncate_once(view, &permits, (table.id, at_micros), deadline).await;
            // A node that joined meanwhile has to do it as often as the others.
            if self.is_superseded(view, &results, deadline).await? {
                return Box::pin(self.truncate(table, deadline)).await;
            }
            let times = judge(view, &nodes, results)?;
            let (first, last) = (times.iter().min(), times.iter().max());
            if round >= ROUNDS && first == last {
                break;
            }
            // Behind every write that arrives while the next round is on its way, as long as that does not take longer than this one.
            let took = i64::try_from((self.context.rt().now() - began).as_micros()).unwrap_or(0);
            at_micros = last.map_or(i64::MIN, |last| last.saturating_add(took).saturating_add(1));
        }
        Ok(())
    }

    /// Whether this node knows of a later topology version, or hears of it now because others refused this one.
    async fn is_superseded<T>(
        &self,
        view: &ClusterView,
        results: &[Result<T, PeerError>],
        deadline: Instant,
    ) -> Result<bool, RequestError> {
        let saw_newer_topology =
            results.iter().any(|result| matches!(result, Err(PeerError::StaleTopology(_))));
        let is_later = self.context.view().topology_version() > view.topology_version();
        if is_later && self.context.rt().now() >= deadline {
            return Err(timed_out(0));
        }
        Ok(is_later
            || saw_newer_topology
                && Admission(&self.context).catch_up(view.topology_version(), deadline).await)
    }

    /// Each node's permit to truncate on it. All of them first: where one cannot be asked, nothing is truncated.
    async fn permits(
        &self,
        view: &ClusterView,
        nodes: &[NodeIndex],
        table: TableId,
        deadline: Instant,
    ) -> Vec<Result<TruncationPermit, PeerError>> {
        let duration = deadline.duration_since(self.context.rt().now());
        let one = |node: NodeIndex| async move {
            if node == view.own() {
                return Ok(self.permit(duration));
            }
            self.context.remote().permit_truncation((view, node), table, (duration, deadline)).await
        };
        join_all(nodes.iter().map(|node| one(*node))).await
    }

    /// A permit to truncate on this node, for so long.
    pub(crate) fn permit(&self, duration: Duration) -> TruncationPermit {
        TruncationPermit::give(self.context.lifetime(), self.context.rt().now(), duration)
    }

    /// The outcome on each node: at which time it truncated, not before `at_micros`.
    async fn truncate_once(
        &self,
        view: &ClusterView,
        permits: &[(NodeIndex, TruncationPermit)],
        (table, at_micros): (TableId, i64),
        deadline: Instant,
    ) -> Vec<Result<i64, PeerError>> {
        assert!(!permits.is_empty(), "this node is one of those that truncate");
        let at_micros = at_micros.max(self.context.rt().wall_micros()).max(self.behind_pending().await);
        let one = |(node, permit): (NodeIndex, TruncationPermit)| async move {
            if node != view.own() {
                let remote = self.context.remote();
                return remote.truncate((view, node), table, (at_micros, permit), deadline).await;
            }
            if self.context.fence().is_earlier(view.topology_version()) {
                return Err(PeerError::StaleTopology(
                    peer_error::stale_topology(view.topology_version()).message,
                ));
            }
            let truncated =
                async { self.truncate_by(permit, table, at_micros).await.map_err(PeerError::Invalid) };
            self.context.here(deadline, truncated).await
        };
        join_all(permits.iter().map(|of| one(*of))).await
    }

    /// [`Truncations::truncate_here`] by a permit of this node.
    pub(crate) async fn truncate_by(
        &self,
        permit: TruncationPermit,
        table: TableId,
        at_micros: i64,
    ) -> Result<i64, String> {
        let Some(expires) = permit.expires(self.context.lifetime()) else {
            return Err("the truncation began before this node was started".to_owned());
        };
        self.context.rt().buggify("truncate: a request waits behind its permit").await;
        self.truncate_here(table, at_micros, expires).await
    }

    /// Removes everything from a table on this node. Writes accepted up to `at_micros` that come late, and rows that this node
    /// has accepted at all, do not come back. Nothing is removed after `expires`. The recorded time; the error is a sentence
    /// for the client.
    async fn truncate_here(&self, table: TableId, at_micros: i64, expires: Instant) -> Result<i64, String> {
        // Not behind this node's own clock: rows that another has from a moment later must not count as older than this. And behind
        // the previous truncation: a reader that reads before and after this one is to see that there was one.
        let before = self.truncated_at(table).await.into_iter().max().unwrap_or(i64::MIN);
        let at_micros = at_micros.max(self.behind_pending().await).max(before.saturating_add(1));
        assert!(at_micros >= before, "the time of a truncation never goes back");
        assert!(expires > Instant::START, "a truncation has a time until which it is wanted");
        let operation = TableOperation::Truncate { at_micros, expires };
        let outcomes = self.context.replica().table_operation_on_each(table, operation).await;
        assert_eq!(outcomes.len(), self.shards(), "each shard truncates its part of the table");
        outcome(&outcomes).map(|()| at_micros)
    }
}

/// The answer of each node, or the first failure.
fn judge<T>(
    view: &ClusterView,
    nodes: &[NodeIndex],
    results: Vec<Result<T, PeerError>>,
) -> Result<Vec<T>, RequestError> {
    assert_eq!(nodes.len(), results.len(), "each node that was sent the truncation has a result");
    let received = results.iter().filter(|result| result.is_ok()).count();
    let mut answers = Vec::with_capacity(received);
    for (node, result) in nodes.iter().zip(results) {
        match result {
            Ok(answer) => answers.push(answer),
            Err(PeerError::Silent(_)) => return Err(timed_out(received)),
            Err(
                PeerError::Failed { message, .. }
                | PeerError::Invalid(message)
                | PeerError::StaleTopology(message)
                | PeerError::RateLimited(message),
            ) => {
                let address = peer_error::address(view, *node);
                return Err(RequestError::Truncate(format!("{message} (on {address})")));
            }
        }
    }
    assert_eq!(answers.len(), nodes.len(), "a truncation is done when every node has done it");
    Ok(answers)
}

fn timed_out(received: usize) -> RequestError {
    let text = format!(
        "Error during truncate: Truncate timed out - received only {received} responses. {WHOLLY_OR_NOT}"
    );
    RequestError::Truncate(text)
}

/// The client's message about a node's truncation, from the result of each shard.
fn outcome(outcomes: &[Result<(), ReplicaError>]) -> Result<(), String> {
    let failed: Vec<String> = outcomes
        .iter()
        .enumerate()
        .filter_map(|(shard, outcome)| outcome.as_ref().err().map(|error| format!("shard {shard}: {error}")))
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "Error during truncate: {} of {} shards failed and may still hold their part of the table, wholly or not at all; \
         the others are truncated. Repeat the statement when the cause is fixed ({})",
        failed.len(),
        outcomes.len(),
        failed.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncation_reports_the_shards_that_failed() {
        assert_eq!(outcome(&[Ok(()), Ok(())]), Ok(()));
        let failure = outcome(&[Ok(()), Err(ReplicaError::Stopped), Ok(())]).unwrap_err();
        assert!(failure.starts_with("Error during truncate: 1 of 3 shards failed"), "{failure}");
        assert!(failure.contains("(shard 1: the storage of this shard has stopped"), "{failure}");
    }
}
