//! The effective replication map of one request: the replicas of its table, by one topology version.

use std::sync::Arc;

use schema::Replication;
use topology::Replicas;

use crate::contact::Needs;
use crate::view::{ClusterView, Copies};
use crate::{Canaries, Consistency};

/// What a request needs to know of its keyspace and of the cluster.
#[derive(Clone)]
pub(crate) struct EffectiveReplicationMap {
    pub(crate) view: Arc<ClusterView>,
    pub(crate) placement: Arc<Copies>,
    pub(crate) replication: Replication,
    /// How it will be, or was, while the keyspace's replicas move.
    pub(crate) other_replication: Option<Replication>,
    pub(crate) injected: Canaries,
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
        // Each replication has its own quorum: a read by either sees what is written by both.
        Some(other) => {
            let now = Needs::new(consistency, &erm.replication, &erm.view, &[]).among(&replicas);
            let others = erm.placement.others(token);
            now.and(Needs::new(consistency, other, &erm.view, &[]).among(&others))
        }
    };
    replicas.extend(pending);
    if erm.injected.long_write {
        let count = replicas.len();
        return (replicas, needs.one_more(count));
    }
    (replicas, needs)
}
