//! Admission of requests: those by a stale topology version are refused, and a node that was refused catches up (`fence` has the state and
//! the rules).

use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::future::join_all;
use mutation::{DecoratedKey, PartitionUpdate};
use rpc::{Refusal, Verb};
use rt::sync::GateGuard;
use rt::{Group, Instant, ShardId};
use schema::Table;
use topology::{ClusterView, HostId, NodeIndex};

use crate::context::Context;
use crate::message::STAMP_LEN;
use crate::peer_error::{self, PeerError};
use crate::shard_calls::{CatchUp, Drain, EnforceTopology};

/// Time limit of a read of the log, for all requests that wait together.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// A source that has not heard of the change for so long is not waited for: another is used the next time.
const FENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// Admits requests by the topology versions that a shard knows.
#[derive(Clone, Copy)]
pub(crate) struct Admission<'a>(pub(crate) &'a Context);

impl Admission<'_> {
    /// Takes the number off a body that another node sent, unless its ring is over. The request is under way until the guard goes.
    pub(crate) fn admit(&self, mut body: Bytes) -> Result<(Bytes, GateGuard), Refusal> {
        let Some((number, _)) = body.split_first_chunk::<STAMP_LEN>() else {
            return Err(peer_error::malformed("a request without the number of its ring"));
        };
        let ring = u64::from_be_bytes(*number);
        let Some(guard) = self.0.fence().admit(ring).or_else(|| self.admit_all()) else {
            self.0.count(|stats| stats.refused_old_ring += 1);
            return Err(peer_error::stale_topology(ring));
        };
        body.advance(STAMP_LEN);
        Ok((body, guard))
    }

    /// Admits requests that use exactly the topology version that this shard has, until the guard goes.
    ///
    /// # Errors
    /// The topology version of this shard, when that is another one.
    pub(crate) fn admit_exactly(&self, topology: u64) -> Result<GateGuard, u64> {
        let own = self.0.view().topology_version();
        let guard = (own == topology).then(|| self.0.fence().enter()).flatten();
        guard.ok_or(own)
    }

    /// An injected bug lets everybody in.
    fn admit_all(&self) -> Option<GateGuard> {
        self.0.injected().no_fence.then(|| self.0.fence().enter()).flatten()
    }

    /// The same for this node's own requests.
    pub(crate) fn admit_own(&self, view: &ClusterView) -> Result<GateGuard, PeerError> {
        let ring = view.topology_version();
        self.0
            .fence()
            .admit(ring)
            .ok_or_else(|| PeerError::StaleTopology(peer_error::stale_topology(ring).message))
    }

    /// The same of writes: by an earlier topology version that is still valid this node may have been a replica, and have dropped its rows since.
    pub(crate) fn admit_own_writes(
        &self,
        view: &ClusterView,
        updates: &[PartitionUpdate],
    ) -> Result<GateGuard, PeerError> {
        let guard = self.admit_own(view)?;
        match self.check_owned(view.topology_version(), updates) {
            Ok(()) => Ok(guard),
            Err(refusal) => Err(PeerError::StaleTopology(refusal.message)),
        }
    }

    /// Refuses writes of tokens that this node does not own any more, which were sent by an earlier ring: they would lie here unseen, and
    /// come back with the tokens when their deletion has been forgotten.
    pub(crate) fn check_owned(&self, ring: u64, updates: &[PartitionUpdate]) -> Result<(), Refusal> {
        self.refuse_unless(ring, || updates.iter().all(|update| self.0.maps().takes(update)))
    }

    /// The same of a vote about a partition: a commit is a write, and a promise or acceptance of a former replica does not count.
    pub(crate) fn check_voter(&self, ring: u64, table: &Table, key: &DecoratedKey) -> Result<(), Refusal> {
        self.refuse_unless(ring, || self.0.maps().takes_token(table, key.token))
    }

    fn refuse_unless(&self, ring: u64, owns: impl FnOnce() -> bool) -> Result<(), Refusal> {
        let injected = self.0.injected();
        let late = self.0.fence().is_earlier(ring) && !injected.owns_everything && !injected.no_fence;
        if !late || owns() {
            return Ok(());
        }
        self.0.count(|stats| stats.refused_old_ring += 1);
        Err(peer_error::stale_topology(ring))
    }

    /// Waits until nothing is under way on this node that was let in before it had its ring; whether it is so in time.
    pub(crate) async fn settle(&self, patience: Duration) -> bool {
        self.enforce_here(self.0.view().topology_version(), self.0.rt().now() + patience).await
    }

    /// Waits until this node has a newer topology version than `ring`; whether it has.
    pub(crate) async fn catch_up(&self, ring: u64, deadline: Instant) -> bool {
        if self.0.rt().now() >= deadline {
            return false;
        }
        if self.0.view().topology_version() > ring {
            return true;
        }
        self.0.count(|stats| stats.caught_up += 1);
        let caught_up = self.0.port().ask(ShardId(0), CatchUp { topology: ring + 1, deadline }).await;
        let is_newer = self.0.view().topology_version() > ring;
        assert!(is_newer || !caught_up, "a topology version that is published is on every shard");
        caught_up
    }

    /// Shard 0: waits until all shards have the ring of a number; whether they have.
    pub(crate) async fn reach_ring(&self, ring: u64, deadline: Instant) -> bool {
        assert_eq!(self.0.shard(), 0, "shard 0 follows the cluster's log");
        let mut published = self.0.fence().published.reader();
        while *self.0.fence().published.get() < ring {
            self.ask_log();
            if !matches!(self.0.rt().timeout_at(deadline, published.changed()).await, Ok(Ok(()))) {
                return false;
            }
        }
        true
    }

    /// Shard 0: the same, and nothing is under way on any shard that was let in before.
    pub(crate) async fn enforce_ring(&self, ring: u64, deadline: Instant) -> bool {
        if !self.reach_ring(ring, deadline).await {
            return false;
        }
        let drained = join_all(self.0.port().ask_each(Drain { deadline })).await;
        assert_eq!(
            drained.len(),
            usize::from(self.0.rt().shard_count()),
            "each shard says whether it is done"
        );
        drained.into_iter().all(|in_time| in_time)
    }

    /// Waits until nothing is under way on this shard that was let in before it had its ring; whether it is so in time.
    pub(crate) async fn drain(&self, deadline: Instant) -> bool {
        self.0.rt().timeout_at(deadline, self.0.fence().drained()).await.is_ok()
    }

    /// Catches up with the log, once for all waiting requests.
    fn ask_log(&self) {
        let Some(group) = self.0.group().cloned() else { return };
        if self.0.fence().asking.replace(true) {
            return;
        }
        let context = self.0.clone();
        let ask = async move {
            let deadline = context.rt().now() + ASK_TIMEOUT;
            if let Err(error) = group.barrier(deadline).await {
                tracing::warn!(
                    "another node has a newer topology version, and the cluster's log does not answer: {error}"
                );
            }
            context.fence().asking.set(false);
        };
        self.0.rt().spawn(Group::Statement, ask).detach();
    }

    /// Waits until the live nodes have this node's ring and no request is under way that they had admitted before, so that no request needs to
    /// be refused when the earlier topology versions end: up to `patience`, for this is only smoother; the fence is the guarantee.
    pub(crate) async fn run_out(&self, patience: Duration) {
        let (view, deadline) = (self.0.view(), self.0.rt().now() + patience);
        let live = (0..view.nodes().len()).map(|at| NodeIndex(at as u16)).filter(|node| view.is_alive(*node));
        let asked = live.map(|node| self.enforce(&view, node, deadline));
        for why in join_all(asked).await.into_iter().filter_map(Result::err) {
            tracing::info!("a node may have requests under way that began before a topology change: {why}");
        }
    }

    /// Has a node learn this node's topology version, and waits until it has finished the requests that it had admitted before.
    async fn enforce(&self, view: &ClusterView, node: NodeIndex, deadline: Instant) -> Result<(), String> {
        let (ring, host) = (view.topology_version(), view.node(node).host);
        assert!(
            ring <= self.0.view().topology_version(),
            "others are not asked for what this shard does not have"
        );
        // The answer does not say of which generation it is: to a node that restarts meanwhile the request is sent again.
        let generation = self.0.view().generation(host);
        if self.0.fence().has_enforced(host, generation, ring) {
            return Ok(());
        }
        if node == view.own() {
            if !self.enforce_here(ring, deadline).await {
                return Err("not in time".to_owned());
            }
        } else {
            let number = Bytes::copy_from_slice(&ring.to_be_bytes());
            let asked = self.0.remote().call(view.first_shard(node), Verb::Ring, number, deadline).await;
            asked.map_err(|error| error.message().to_owned())?;
        }
        self.0.fence().note_enforced(host, generation, ring);
        Ok(())
    }

    /// The same of this node; whether it is so in time.
    pub(crate) async fn enforce_here(&self, ring: u64, deadline: Instant) -> bool {
        self.0.port().ask(ShardId(0), EnforceTopology { topology: ring, deadline }).await
    }

    /// Has a node from which files are fetched refuse coordinators that have not heard of the topology change: their writes there
    /// would be missed later.
    pub(crate) async fn fence_host(&self, host: HostId) -> Result<(), String> {
        let view = self.0.view();
        match view.index_of(host) {
            Some(index) => self.fence_sources(&view, &[index]).await,
            None => Ok(()),
        }
    }

    /// Has nodes from which ranges are fetched refuse coordinators that have not heard of the topology change: their writes there
    /// would be missed later.
    pub(crate) async fn fence_sources(
        &self,
        view: &ClusterView,
        sources: &[NodeIndex],
    ) -> Result<(), String> {
        if !view.is_changing() {
            return Ok(());
        }
        let deadline = self.0.rt().now() + FENCE_TIMEOUT;
        for source in sources {
            self.enforce(view, *source, deadline).await.map_err(|why| {
                let address = view.node(*source).internode;
                format!("{address} does not refuse yet writes of the previous topology version: {why}")
            })?;
        }
        Ok(())
    }
}
