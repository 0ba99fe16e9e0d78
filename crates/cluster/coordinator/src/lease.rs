//! The lease on the former replicas: for how long a node uses them during a topology change without an answer of the cluster's log.
//!
//! A change ends without nodes that are down, for those that are dead for good would block it for ever. Such a node may be cut off but up:
//! together with others that are cut off with it, it could make a quorum of the previous replicas, answer from their old rows, and accept
//! writes that no reader sees any more. So before reads have switched, a coordinator uses replicas that the change moves only when the log has
//! confirmed less than [`LEASE`] ago that it has heard everything: a barrier, which needs the log's majority. The conductor waits longer
//! than that before it ends a change without a quorum of the previous replicas (`membership::change`), and by then the entry by which reads
//! switched is as old as the wait: a barrier that began after that entry would have brought it.
//!
//! One such node in each previous quorum is enough, and there is one: a node that fetches a range uses as many replicas as share one with every
//! quorum, and each has to know of the change before it is fetched from (docs/design/topology.md, *Lease*). Those that do not know of it are
//! refused by the others.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use rt::mesh::Port;
use rt::sync::Semaphore;
use rt::{Group, Instant, LocalBoxFuture, Rt, ShardId};

use crate::replication_map::EffectiveReplicationMap;
use crate::shard_calls::{ConfirmLog, NodeRequest, NodeResponse};
use crate::{Consistency, RequestError};

/// For how long a confirmation by the cluster's log counts, from when it was asked for.
pub const LEASE: Duration = Duration::from_secs(40);
/// A confirmation older than this is renewed in the background, so that no request has to wait for it, also when a topology change begins
/// while the log has no leader.
pub(crate) const RENEWED_AFTER: Duration = Duration::from_secs(20);
/// Time limit for a confirmation by the log.
pub(crate) const ASK_TIMEOUT: Duration = Duration::from_secs(3);
/// After a failure nobody asks again for so long.
const FAILURE_COUNTS: Duration = Duration::from_secs(1);

const _: () = assert!(
    RENEWED_AFTER.as_secs() + ASK_TIMEOUT.as_secs() < LEASE.as_secs(),
    "a confirmation is renewed before the lease ends"
);
const _: () =
    assert!(FAILURE_COUNTS.as_secs() < ASK_TIMEOUT.as_secs(), "a failure is not shown longer than it took");

/// Asks the cluster's log, until a deadline; whether it has confirmed.
pub type Confirm = Box<dyn Fn(Instant) -> LocalBoxFuture<bool>>;

/// One shard's confirmation. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Lease(Rc<Inner>);

struct Inner {
    rt: Rt,
    port: Port<NodeRequest, NodeResponse>,
    /// When the last confirmation was asked for.
    confirmed: Cell<Option<Instant>>,
    /// Until when a failure counts.
    failed_until: Cell<Instant>,
    /// The task that asks; the others wait for it.
    asking: Semaphore,
    /// How shard 0 confirms with the log, where it is not the group's.
    confirm: RefCell<Option<Rc<Confirm>>>,
}

impl Lease {
    pub(crate) fn new(rt: &Rt, port: &Port<NodeRequest, NodeResponse>) -> Self {
        Self(Rc::new(Inner {
            rt: rt.clone(),
            port: port.clone(),
            confirmed: Cell::new(None),
            failed_until: Cell::new(Instant::START),
            asking: Semaphore::new(1),
            confirm: RefCell::default(),
        }))
    }

    fn is_younger(&self, than: Duration, now: Instant) -> bool {
        self.0.confirmed.get().is_some_and(|at| now < at + than)
    }

    /// Asks `confirm` instead of the group for confirmations of the cluster's log from now on, on shard 0.
    pub(crate) fn confirm_with(&self, confirm: Confirm) {
        self.0.confirm.replace(Some(Rc::new(confirm)));
    }

    /// Waits until this node may use the replicas of a token, or of all tokens, at a level. Without a topology change it may.
    ///
    /// # Errors
    /// When the cluster's log has not confirmed for [`LEASE`] that this node has heard everything, and does not now.
    #[inline]
    pub(crate) async fn hold(
        &self,
        erm: &EffectiveReplicationMap,
        token: Option<i64>,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<(), RequestError> {
        if !erm.placement.is_leased(token) || erm.injected.no_lease {
            return Ok(());
        }
        self.hold_while_changing(consistency, deadline).await
    }

    async fn hold_while_changing(
        &self,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<(), RequestError> {
        if matches!(consistency, Consistency::Any | Consistency::One | Consistency::LocalOne) {
            return Ok(());
        }
        let now = self.0.rt.now();
        if self.is_younger(LEASE, now) {
            if !self.is_younger(RENEWED_AFTER, now) && now >= self.0.failed_until.get() {
                self.renew_besides();
            }
            return Ok(());
        }
        if now < self.0.failed_until.get() || !self.renew(deadline).await {
            return Err(RequestError::Overloaded(format!(
                "the topology changes, and this node has not reached a majority of the cluster's log for {} s: \
                 another node may read other replicas by now",
                LEASE.as_secs()
            )));
        }
        Ok(())
    }

    fn renew_besides(&self) {
        let Some(asking) = self.0.asking.try_acquire(1) else { return };
        let lease = self.clone();
        let renew = async move {
            lease.ask(lease.0.rt.now() + ASK_TIMEOUT).await;
            drop(asking);
        };
        self.0.rt.spawn(Group::Statement, renew).detach();
    }

    /// Asks for a confirmation, once for all waiting requests; whether there is one.
    async fn renew(&self, deadline: Instant) -> bool {
        let Ok(Ok(_asking)) = self.0.rt.timeout_at(deadline, self.0.asking.acquire(1)).await else {
            return false;
        };
        let now = self.0.rt.now();
        if self.is_younger(LEASE, now) {
            return true;
        }
        now >= self.0.failed_until.get() && self.ask(deadline.min(now + ASK_TIMEOUT)).await
    }

    async fn ask(&self, deadline: Instant) -> bool {
        let confirmed = self.0.port.ask(ShardId(0), ConfirmLog { deadline }).await;
        match confirmed {
            Some(at) => self.note_confirmed(at),
            None => self.0.failed_until.set(self.0.rt.now() + FAILURE_COUNTS),
        }
        confirmed.is_some()
    }

    /// The log has confirmed that this node has heard everything up to `at`.
    pub(crate) fn note_confirmed(&self, at: Instant) {
        assert!(at <= self.0.rt.now(), "a confirmation counts from when it was asked for");
        self.0.confirmed.set(self.0.confirmed.get().max(Some(at)));
    }

    /// Shard 0: when the log was asked, if it has confirmed that this node has heard everything up to then. Before the node follows a group,
    /// that is so only where it `is_alone`.
    pub(crate) async fn confirm_log(
        &self,
        group: Option<&cluster::group::Group>,
        is_alone: bool,
        deadline: Instant,
    ) -> Option<Instant> {
        assert_eq!(self.0.rt.shard(), ShardId(0), "shard 0 asks the cluster's log");
        let asked = self.0.rt.now();
        let confirm = self.0.confirm.borrow().clone();
        let confirmed = match (confirm, group) {
            (Some(confirm), _) => confirm(deadline).await,
            (None, Some(group)) => group.barrier(deadline).await.is_ok(),
            (None, None) => is_alone,
        };
        confirmed.then_some(asked)
    }
}
