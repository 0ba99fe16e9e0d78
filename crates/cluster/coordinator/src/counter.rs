//! Counter updates: one replica, the leader, adds the deltas to its part of the counters; the others receive the state.

use futures_util::future::join_all;
use mutation::PartitionUpdate;
use replica::{ReplicaError, TraceLog};
use rt::Instant;
use topology::{NodeIndex, Replicas};

use crate::admission::Admission;
use crate::contact::candidates;
use crate::context::Context;
use crate::ongoing::{Age, write_error};
use crate::peer_error::PeerError;
use crate::replication_map::{EffectiveReplicationMap, targets};
use crate::write::{Planned, Writes};
use crate::{RequestError, WriteOptions};

/// Counter updates of one shard.
pub(crate) struct CounterWrites<'a> {
    context: &'a Context,
}

impl<'a> CounterWrites<'a> {
    pub(crate) fn new(context: &'a Context) -> Self {
        Self { context }
    }

    /// Increments: one replica adds the deltas to its own counter shard and returns the state, which is sent to the others.
    pub(crate) async fn increment(
        &self,
        updates: Vec<PartitionUpdate>,
        options: WriteOptions,
    ) -> Result<(), RequestError> {
        for update in &updates {
            let (erm, token) = (self.context.maps().of(&update.table)?, Some(update.key.token));
            self.context.lease().hold(&erm, token, options.consistency, options.deadline).await?;
        }
        match <[PartitionUpdate; 1]>::try_from(updates) {
            // Awaited where it is, and not moved among others.
            Ok([update]) => self.increment_partition(update, options).await,
            Err(updates) => {
                let all = updates.into_iter().map(|update| self.increment_partition(update, options));
                join_all(all).await.into_iter().collect()
            }
        }
    }

    async fn increment_partition(
        &self,
        update: PartitionUpdate,
        options: WriteOptions,
    ) -> Result<(), RequestError> {
        loop {
            let erm = self.context.maps().of(&update.table)?;
            let view = &erm.view;
            let (replicas, needs) = targets(&erm, update.key.token, options.consistency);
            let live: Replicas = replicas.iter().copied().filter(|node| view.is_alive(*node)).collect();
            needs.check(options.consistency, view, &live)?;
            // A node that is only about to be a replica does not have the counter's earlier state.
            let leaders = erm.placement.replicas(update.key.token);
            let candidates = candidates(
                view,
                leaders,
                self.context.next_turn(),
                &self.context.read_latencies().slow_among(view, leaders),
            );
            let Some(leader) = candidates.first().copied() else {
                return Err(RequestError::Unavailable {
                    consistency: options.consistency,
                    required: 1,
                    alive: 0,
                });
            };
            assert!(replicas.contains(&leader), "a counter's leader is one of its replicas");
            // A truncation that comes while the leader counts removes its count.
            let age = Age::New(self.context.hinting().begin_write());
            let error = match self.count_at(&erm, leader, &update, options.deadline).await {
                Ok(_) if erm.is_only_here(update.key.token) => return Ok(()),
                Ok(update) => {
                    let write = Planned { erm, replicas, needs, update };
                    return Writes::new(self.context)
                        .write_partition(write, options, Some(leader), age)
                        .await;
                }
                Err(error) => error,
            };
            // It has not counted: there is another ring to count by. Without a lease there the error stays, for other partitions of
            // the batch may have been counted.
            if matches!(error, PeerError::StaleTopology(_))
                && Admission(&self.context).catch_up(view.topology_version(), options.deadline).await
            {
                let (later, token) = (self.context.maps().of(&update.table)?, Some(update.key.token));
                if self
                    .context
                    .lease()
                    .hold(&later, token, options.consistency, options.deadline)
                    .await
                    .is_ok()
                {
                    continue;
                }
            }
            let required = needs.required() as u32;
            return Err(write_error(&erm, &[(leader, error)], options, (0, required)));
        }
    }

    /// Has the leading replica of a counter add to it; the state since.
    async fn count_at(
        &self,
        erm: &EffectiveReplicationMap,
        leader: NodeIndex,
        update: &PartitionUpdate,
        deadline: Instant,
    ) -> Result<PartitionUpdate, PeerError> {
        let view = &erm.view;
        if leader == view.own() {
            let _under_way = Admission(&self.context).admit_own(view)?;
            return self
                .context
                .here(deadline, add_here(self.context, update.clone(), self.context.trace()))
                .await;
        }
        if erm.injected.repeated_increment {
            let _sent_again = self.context.remote().increment(view, leader, update, deadline).await;
        }
        self.context.remote().increment(view, leader, update, deadline).await
    }
}

/// Adds to counters on the shard of this node that owns them; the state since.
pub(crate) async fn add_here(
    context: &Context,
    update: PartitionUpdate,
    trace: Option<&TraceLog>,
) -> Result<PartitionUpdate, ReplicaError> {
    let Some(trace) = trace else { return context.replica().increment(update).await };
    let (name, shard) =
        (update.table.full_name(), context.replica().shard_of(update.table.id, update.key.token));
    trace.add(context.rt().now(), shard, "Acquiring counter locks");
    let counted = context.replica().increment(update).await;
    let said = match &counted {
        Ok(_) => format!("Added to the counters of {name}"),
        Err(error) => error.to_string(),
    };
    trace.add(context.rt().now(), shard, said);
    counted
}
