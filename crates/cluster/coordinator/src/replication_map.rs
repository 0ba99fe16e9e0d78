//! The effective replication map of one request: the replicas of its table, by one topology version.

use std::sync::Arc;

use replica::Partitions;
use schema::Replication;
use topology::{ClusterView, DataPlacement, Replicas};

use crate::contact::Needs;
use crate::kind::Kind;
use crate::{Canaries, Consistency, RequestError};

/// The context of a request: its needs of its keyspace and of the cluster.
#[derive(Clone)]
pub(crate) struct EffectiveReplicationMap {
    pub(crate) view: Arc<ClusterView>,
    pub(crate) placement: Arc<DataPlacement>,
    pub(crate) replication: Replication,
    /// How it will be, or was, while the keyspace's replicas move.
    pub(crate) other_replication: Option<Replication>,
    pub(crate) injected: Canaries,
    /// Where the table's rows come from.
    pub(crate) kind: Kind,
}

impl EffectiveReplicationMap {
    /// Whether the table's rows are on replicas: neither computed nor each node's own.
    #[inline]
    pub(crate) fn is_replicated(&self) -> bool {
        self.kind == Kind::Replicated
    }

    /// Whether this node is the only replica of a token, and no replica moves: a request of it concerns no other node.
    #[inline]
    pub(crate) fn is_only_here(&self, token: i64) -> bool {
        self.placement.is_settled() && *self.placement.replicas(token) == [self.view.own()]
    }

    /// Whether this node is enough for a consistency level, where it is the only replica.
    ///
    /// # Errors
    /// When the level asks for more replicas than there are.
    #[inline]
    pub(crate) fn check_only_here(&self, consistency: Consistency) -> Result<(), RequestError> {
        // One replica of this datacenter is all that these ask for.
        if matches!(consistency, Consistency::Any | Consistency::One | Consistency::LocalOne) {
            return Ok(());
        }
        let needs = Needs::new(consistency, &self.replication, &self.view, &[]);
        needs.check(consistency, &self.view, &[self.view.own()])
    }

    /// [`Self::is_only_here`] of all that a read may return.
    #[inline]
    pub(crate) fn are_only_here(&self, partitions: &Partitions) -> bool {
        match partitions {
            Partitions::Keys(keys) => keys.iter().all(|key| self.is_only_here(key.token)),
            // Of several nodes each has a part, unless every one has everything.
            Partitions::Range(range) => self.view.nodes().len() == 1 && self.is_only_here(range.end.token()),
        }
    }
}

/// The replicas and pending replicas that receive a write of a token; and how many must acknowledge it.
pub(crate) fn targets(
    erm: &EffectiveReplicationMap,
    token: i64,
    consistency: Consistency,
) -> (Replicas, Needs) {
    let pending =
        if erm.injected.no_pending_writes { Default::default() } else { erm.placement.pending(token) };
    let mut replicas: Replicas = erm.placement.replicas(token).iter().copied().collect();
    let needs = match &erm.other_replication {
        None => Needs::new(consistency, &erm.replication, &erm.view, &pending),
        // Each replication has its own quorum: a read by either sees the writes by both.
        Some(other) => {
            let now = Needs::new(consistency, &erm.replication, &erm.view, &[]).among(&replicas);
            let others = erm.placement.others(token);
            now.and(Needs::new(consistency, other, &erm.view, &[]).among(&others))
        }
    };
    replicas.extend(pending);
    debug_assert!(crate::contact::are_distinct(&replicas), "a write is sent to a replica once");
    if erm.injected.long_write {
        let count = replicas.len();
        return (replicas, needs.one_more(count));
    }
    (replicas, needs)
}
