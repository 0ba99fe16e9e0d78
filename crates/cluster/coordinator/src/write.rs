//! Writes to several replicas: every live one receives the write at once, the client is answered when enough of them acknowledged it, and
//! those that are down or do not answer get a hint.

use std::pin::pin;
use std::rc::Rc;

use bytes::Bytes;
use futures_util::future::join_all;
use mutation::PartitionUpdate;
use replica::{Origin, Write};
use rt::{Group, Instant};
use smallvec::SmallVec;
use topology::{NodeIndex, Replicas};

use crate::admission::Admission;
use crate::contact::{Needs, Tally};
use crate::context::Context;
use crate::forward;
use crate::message;
use crate::ongoing::{Age, Ongoing, origin, write_error};
use crate::peer_error::PeerError;
use crate::replication_map::{EffectiveReplicationMap, targets};
use crate::{ClusterView, Consistency, RequestError, WriteOptions};

/// One partition's update, and where it goes.
pub(crate) struct Planned {
    pub(crate) erm: Rc<EffectiveReplicationMap>,
    pub(crate) replicas: Replicas,
    pub(crate) needs: Needs,
    pub(crate) update: PartitionUpdate,
}

/// A write that replicas refused, for it uses a stale topology version.
struct Refused<'a> {
    view: &'a ClusterView,
    options: WriteOptions,
    /// None for one that begins again.
    age: Option<Age>,
    /// The replica that has stored it already.
    acknowledged: Option<NodeIndex>,
    error: RequestError,
}

/// Writes of one shard to the replicas of their partitions.
#[derive(Clone, Copy)]
pub(crate) struct Writes<'a> {
    context: &'a Context,
}

impl<'a> Writes<'a> {
    pub(crate) fn new(context: &'a Context) -> Self {
        Self { context }
    }

    /// The replication map of updates of which this node is the only replica, if it is that of all of them.
    ///
    /// # Errors
    /// When their consistency level asks for more replicas than there are.
    pub(crate) fn only_here(
        &self,
        updates: &[PartitionUpdate],
        consistency: Consistency,
    ) -> Result<Option<Rc<EffectiveReplicationMap>>, RequestError> {
        let mut of_all = None;
        for update in updates {
            let erm = self.context.maps().of(&update.table)?;
            if !erm.is_only_here(update.key.token) {
                return Ok(None);
            }
            erm.check_only_here(consistency)?;
            of_all = Some(erm);
        }
        Ok(of_all)
    }

    /// Writes updates of which this node is the only replica: those of one shard all or none. Nothing of the write outlives it, no hint and no
    /// late message, so that a truncation comes before it or after it.
    pub(crate) async fn write_here(
        &self,
        erm: &EffectiveReplicationMap,
        updates: Vec<PartitionUpdate>,
        options: WriteOptions,
    ) -> Result<(), RequestError> {
        let context = self.context;
        let failed = |error: PeerError| write_error(erm, &[(erm.view.own(), error)], options, (0, 1));
        let _under_way = match Admission(&context).admit_own_writes(&erm.view, &updates) {
            Ok(guard) => guard,
            Err(error) => {
                let error = failed(error);
                let refused = Refused { view: &erm.view, options, age: None, acknowledged: None, error };
                return Box::pin(self.write_anew(refused, updates)).await;
            }
        };
        let write = Write::all(origin(options.kind), updates).traced(context.trace());
        let apply = pin!(context.replica().apply(write));
        context.here(options.deadline, apply).await.map_err(failed)
    }

    /// Takes and writes an update that has nothing to wait for: this node is the only replica, and [`Replica::apply_now`](replica::Replica::apply_now)
    /// takes it. When the write began, then; else the usual way is to be taken.
    #[inline]
    pub(crate) fn write_now(
        &self,
        update: &mut Option<PartitionUpdate>,
        consistency: Consistency,
    ) -> Option<Instant> {
        let (context, wanted) = (self.context, update.as_ref()?);
        let table = &wanted.table;
        if table.is_rate_limited() || table.options.cdc.enabled || context.trace().is_some() {
            return None;
        }
        let erm = context.maps().of(table).ok()?;
        if !erm.is_replicated() || !erm.is_only_here(wanted.key.token) {
            return None;
        }
        erm.check_only_here(consistency).ok()?;
        let admitted = Admission(&context).admit_own_writes(&erm.view, std::slice::from_ref(wanted));
        let _under_way = admitted.ok()?;
        let began = context.rt().now();
        context.replica().apply_now(Origin::Client, began, update);
        update.is_none().then_some(began)
    }

    /// Writes updates, each to the replicas of its partition.
    pub(crate) async fn write(
        &self,
        updates: Vec<PartitionUpdate>,
        options: WriteOptions,
    ) -> Result<(), RequestError> {
        let writes = self.plan_with_lease(updates, &options).await?;
        self.write_planned(writes, options, Age::New(self.context.hinting().begin_write())).await
    }

    /// [`Writes::plan`], and waits until this node may use the replicas of all updates. To be done before any of them is sent:
    /// the refusal says that nothing was done.
    pub(crate) async fn plan_with_lease(
        &self,
        updates: Vec<PartitionUpdate>,
        options: &WriteOptions,
    ) -> Result<Vec<Planned>, RequestError> {
        let writes = self.plan(updates, options.consistency)?;
        for Planned { erm, update, .. } in &writes {
            self.context
                .lease()
                .hold(erm, Some(update.key.token), options.consistency, options.deadline)
                .await?;
        }
        Ok(writes)
    }

    /// Finds where updates go. Fails when one of them cannot be written: nothing of a batch is sent then.
    pub(crate) fn plan(
        &self,
        updates: Vec<PartitionUpdate>,
        consistency: Consistency,
    ) -> Result<Vec<Planned>, RequestError> {
        let one = |update: PartitionUpdate| {
            let (erm, replicas, needs) = self.find_targets(&update, consistency)?;
            Ok(Planned { erm, replicas, needs, update })
        };
        updates.into_iter().map(one).collect()
    }

    /// Where an update goes, and how many have to acknowledge it.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] when too few of them are up, and those of the replication map.
    pub(crate) fn find_targets(
        &self,
        update: &PartitionUpdate,
        consistency: Consistency,
    ) -> Result<(Rc<EffectiveReplicationMap>, Replicas, Needs), RequestError> {
        let erm = self.context.maps().of(&update.table)?;
        let (replicas, needs) = targets(&erm, update.key.token, consistency);
        let live: Replicas = replicas.iter().copied().filter(|node| erm.view.is_alive(*node)).collect();
        needs.check(consistency, &erm.view, &live)?;
        Ok((erm, replicas, needs))
    }

    /// Carries out the planned writes.
    pub(crate) async fn write_planned(
        &self,
        mut writes: Vec<Planned>,
        options: WriteOptions,
        age: Age,
    ) -> Result<(), RequestError> {
        if writes.len() == 1 {
            let write = writes.pop().expect("there is one");
            return self.write_partition(write, options, None, age).await;
        }
        let all = writes.into_iter().map(|write| self.write_partition(write, options, None, age));
        join_all(all).await.into_iter().collect()
    }

    /// Writes one partition to its replicas, but for the one that stored it already.
    pub(crate) async fn write_partition(
        &self,
        write: Planned,
        options: WriteOptions,
        acknowledged: Option<NodeIndex>,
        age: Age,
    ) -> Result<(), RequestError> {
        let Planned { erm, replicas, needs, update } = write;
        let view = erm.view.clone();
        let (live, away): (Replicas, Replicas) =
            replicas.iter().copied().partition(|node| view.is_alive(*node));
        // A replica that has the write counts also when it has been convicted since.
        assert!(
            acknowledged.is_none_or(|node| replicas.contains(&node)),
            "a node that has acknowledged a write is a replica"
        );
        let counted = |node: &NodeIndex| view.is_alive(*node) || acknowledged == Some(*node);
        let asked: Replicas = replicas.iter().copied().filter(counted).collect();
        let mut tally = Tally::new(&needs, &view, &asked);
        if let Some(node) = acknowledged {
            tally.acknowledge(node, view.datacenter(node));
        }
        let ongoing = Ongoing::new(self.context, erm, tally, (options, age));
        let token = update.key.token;
        let own = view.own();
        assert!(!away.contains(&own), "a node is not down to itself");
        let others: Replicas =
            live.iter().copied().filter(|node| *node != own && Some(*node) != acknowledged).collect();
        // Late writes go to each directly.
        let direct_only = !view.is_wide() || age.late_since().is_some();
        let (direct, routes) = match direct_only {
            true => (others, SmallVec::new()),
            false => forward::routes(&view, &others, self.context.next_turn()),
        };
        let message = |update: &PartitionUpdate| {
            message::begun_updates(&view, age.begun_micros(), std::slice::from_ref(update))
        };
        let mut body: Option<Bytes> = None;
        for route in routes {
            let body = body.get_or_insert_with(|| message(&update)).clone();
            self.context.count(|stats| stats.forwarded += 1);
            let send = ongoing.clone().forward(route, token, update.table.clone(), body);
            self.context.rt().spawn(Group::Statement, send).detach();
        }
        for node in direct {
            let body = body.get_or_insert_with(|| message(&update)).clone();
            let (ongoing, table) = (ongoing.clone(), update.table.clone());
            let send = async move { ongoing.send(node, token, &table, body).await };
            self.context.rt().spawn(Group::Statement, send).detach();
        }
        for node in away.iter().copied().filter(|node| Some(*node) != acknowledged) {
            let body = body.get_or_insert_with(|| message(&update));
            ongoing.hint(node, &update.table, body);
        }
        if live.contains(&own) && acknowledged != Some(own) {
            ongoing.apply_here(update).await;
        }
        match (ongoing.ended().await, body) {
            (Err(error), Some(body)) if ongoing.saw_newer_topology() => {
                // Its table may be gone meanwhile.
                let Some(updates) = self.updates_of(&body) else { return Err(error) };
                let (view, age) = (ongoing.view(), ongoing.age().late_since().map(Age::Late));
                let refused = Refused { view, options, age, acknowledged, error };
                Box::pin(self.write_anew(refused, updates)).await
            }
            (ended, _) => ended,
        }
    }

    /// The updates of a write's message.
    fn updates_of(&self, body: &Bytes) -> Option<Vec<PartitionUpdate>> {
        let schema = self.context.schema();
        let table = |id| schema.table_by_id(id).cloned();
        message::decode_updates(&body.slice(message::BEGUN_LEN..), table).ok()
    }

    /// Retries writes that replicas have refused by a newer topology version, if this node observes one in time.
    ///
    /// # Errors
    /// That of the refusal where it does not, or where the write cannot begin: some replicas may have it already, and it must not be said that
    /// nothing was done.
    async fn write_anew(
        &self,
        refused: Refused<'_>,
        updates: Vec<PartitionUpdate>,
    ) -> Result<(), RequestError> {
        let Refused { view, options, age, acknowledged, error } = refused;
        if !Admission(&self.context).catch_up(view.topology_version(), options.deadline).await {
            return Err(error);
        }
        let acknowledged = acknowledged.map(|node| view.node(node).host);
        let planned = self.plan_with_lease(updates, &options).await.map_err(|_| error)?;
        let age = age.unwrap_or_else(|| Age::New(self.context.hinting().begin_write()));
        let one = |write: Planned| {
            let host = acknowledged.and_then(|host| write.erm.view.index_of(host));
            let acknowledged = host.filter(|node| write.replicas.contains(node));
            self.write_partition(write, options, acknowledged, age)
        };
        join_all(planned.into_iter().map(one)).await.into_iter().collect()
    }
}
