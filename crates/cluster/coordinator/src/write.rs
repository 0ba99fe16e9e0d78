//! Writes to several replicas: every live one receives the write at once, the client is answered when enough of them acknowledged it, and
//! those that are down or do not answer get a hint.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use futures_util::future::{join_all, poll_fn};
use mutation::PartitionUpdate;
use replica::{Origin, ReplicaError, TraceLog, Truncation, Write};
use rpc::Verb;
use rt::{Group, Instant, sync::Notify};
use schema::TableId;
use smallvec::SmallVec;
use topology::{NodeIndex, Replicas};

use crate::contact::{Needs, Tally};
use crate::forward;
use crate::read::EffectiveReplicationMap;
use crate::remote::{self, PeerError};
use crate::view::ClusterView;
use crate::{Consistency, Coordinator, ReplicaFailure, RequestError, WriteKind, WriteOptions};

/// A write on its way to its replicas. Goes on when the client has been answered.
pub(crate) struct Ongoing {
    coordinator: Coordinator,
    erm: EffectiveReplicationMap,
    tally: RefCell<Tally>,
    errors: RefCell<Vec<(NodeIndex, PeerError)>>,
    /// ANY: a hint was kept, which is enough.
    hinted: Cell<bool>,
    changed: Notify,
    options: WriteOptions,
    age: Cell<Age>,
    /// The table was truncated after it began: that it was left out where it came late is as if it had come in time.
    truncated: Cell<bool>,
}

/// When a write began, microseconds since 1970.
#[derive(Clone, Copy)]
pub(crate) enum Age {
    /// Now: [`Coordinator::begin_write`].
    New(i64),
    /// Long ago, it comes late: what was truncated since is left out.
    Late(i64),
}

impl Age {
    /// Since when a write that comes late is due.
    fn late_since(self) -> Option<i64> {
        match self {
            Self::New(_) => None,
            Self::Late(since_micros) => Some(since_micros),
        }
    }

    /// What a truncation does to it: who writes now begins again, who comes late leaves out what was truncated.
    fn truncation(self) -> Truncation<'static> {
        match self {
            Self::New(begun_micros) => Truncation::Refuses(begun_micros),
            Self::Late(since_micros) => Truncation::LeavesOut(since_micros),
        }
    }

    fn begun_micros(self) -> i64 {
        match self {
            Self::New(begun_micros) | Self::Late(begun_micros) => begun_micros,
        }
    }
}

/// One partition's update, and where it goes.
pub(crate) struct Planned {
    erm: EffectiveReplicationMap,
    replicas: Replicas,
    needs: Needs,
    pub(crate) update: PartitionUpdate,
}

impl Coordinator {
    /// Writes updates, each to the replicas of its partition.
    pub(crate) async fn write_replicas(
        &self,
        updates: Vec<PartitionUpdate>,
        options: WriteOptions,
    ) -> Result<(), RequestError> {
        let writes = self.plan_with_lease(updates, &options).await?;
        self.write_planned(writes, options, Age::New(self.begin_write())).await
    }

    /// [`Coordinator::plan`], and waits until this node may use the replicas of all updates. To be done before any of them is sent:
    /// the refusal says that nothing was done.
    pub(crate) async fn plan_with_lease(
        &self,
        updates: Vec<PartitionUpdate>,
        options: &WriteOptions,
    ) -> Result<Vec<Planned>, RequestError> {
        let writes = self.plan(updates, options.consistency)?;
        for Planned { erm, update, .. } in &writes {
            self.hold_lease(erm, Some(update.key.token), options.consistency, options.deadline).await?;
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
            let erm = self.erm(&update.table)?;
            let (replicas, needs) = targets(&erm, update.key.token, consistency);
            let live: Replicas = replicas.iter().copied().filter(|node| erm.view.is_alive(*node)).collect();
            needs.check(consistency, &erm.view, &live)?;
            Ok(Planned { erm, replicas, needs, update })
        };
        updates.into_iter().map(one).collect()
    }

    /// Writes what was planned.
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

    /// Counts: one replica adds the deltas to its own part of the counters and tells the state, which the others are given.
    pub(crate) async fn increment_replicas(
        &self,
        updates: Vec<PartitionUpdate>,
        options: WriteOptions,
    ) -> Result<(), RequestError> {
        for update in &updates {
            let (erm, token) = (self.erm(&update.table)?, Some(update.key.token));
            self.hold_lease(&erm, token, options.consistency, options.deadline).await?;
        }
        let all = updates.into_iter().map(|update| self.increment_partition(update, options));
        join_all(all).await.into_iter().collect()
    }

    async fn increment_partition(
        &self,
        update: PartitionUpdate,
        options: WriteOptions,
    ) -> Result<(), RequestError> {
        loop {
            let erm = self.erm(&update.table)?;
            let view = &erm.view;
            let (replicas, needs) = targets(&erm, update.key.token, options.consistency);
            let live: Replicas = replicas.iter().copied().filter(|node| view.is_alive(*node)).collect();
            needs.check(options.consistency, view, &live)?;
            // A node that is only about to be a replica does not have what the counter was.
            let leaders = erm.placement.replicas(update.key.token);
            let candidates =
                crate::contact::candidates(view, leaders, self.next_turn(), &self.slow_among(view, leaders));
            let Some(leader) = candidates.first().copied() else {
                return Err(RequestError::Unavailable {
                    consistency: options.consistency,
                    required: 1,
                    alive: 0,
                });
            };
            // A truncation that comes while the leader counts removes what it has counted to.
            let age = Age::New(self.begin_write());
            let error = match self.count_at(&erm, leader, &update, options.deadline).await {
                Ok(update) => {
                    let write = Planned { erm, replicas, needs, update };
                    return self.write_partition(write, options, Some(leader), age).await;
                }
                Err(error) => error,
            };
            // It has not counted: there is another ring to count by. Without a lease there the error stays, for other partitions of
            // the batch may have been counted.
            if matches!(error, PeerError::OldRing(_))
                && self.catch_up(view.ring_number(), options.deadline).await
            {
                let (later, token) = (self.erm(&update.table)?, Some(update.key.token));
                if self.hold_lease(&later, token, options.consistency, options.deadline).await.is_ok() {
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
            let _under_way = self.admit_own(view)?;
            return self.here(deadline, self.count_here(update.clone(), self.trace())).await;
        }
        if erm.injected.repeated_increment {
            let _sent_again = self.remote().increment(view, leader, update, deadline).await;
        }
        self.remote().increment(view, leader, update, deadline).await
    }

    /// Adds to counters on the shard of this node that owns them; the state since.
    pub(crate) async fn count_here(
        &self,
        update: PartitionUpdate,
        trace: Option<&TraceLog>,
    ) -> Result<PartitionUpdate, ReplicaError> {
        let Some(trace) = trace else { return self.replica().increment(update).await };
        let (name, shard) = (update.table.full_name(), self.replica().shard_of(update.key.token));
        trace.add(self.rt().now(), shard, "Acquiring counter locks");
        let counted = self.replica().increment(update).await;
        let said = match &counted {
            Ok(_) => format!("Added to the counters of {name}"),
            Err(error) => error.to_string(),
        };
        trace.add(self.rt().now(), shard, said);
        counted
    }

    /// Writes one partition to its replicas, but for the one that stored it already.
    async fn write_partition(
        &self,
        write: Planned,
        options: WriteOptions,
        has_it: Option<NodeIndex>,
        age: Age,
    ) -> Result<(), RequestError> {
        let Planned { erm, replicas, needs, update } = write;
        let view = erm.view.clone();
        let (live, away): (Replicas, Replicas) =
            replicas.iter().copied().partition(|node| view.is_alive(*node));
        // A replica that has the write counts also when it has been convicted since.
        let counted = |node: &NodeIndex| view.is_alive(*node) || has_it == Some(*node);
        let asked: Replicas = replicas.iter().copied().filter(counted).collect();
        let mut tally = Tally::new(&needs, &view, &asked);
        if let Some(node) = has_it {
            tally.acknowledge(node, view.datacenter(node));
        }
        let ongoing = Rc::new(Ongoing {
            coordinator: self.clone(),
            erm,
            tally: RefCell::new(tally),
            errors: RefCell::default(),
            hinted: Cell::new(false),
            changed: Notify::new(),
            options,
            age: Cell::new(age),
            truncated: Cell::new(false),
        });
        let token = update.key.token;
        let own = view.own();
        let others: Replicas =
            live.iter().copied().filter(|node| *node != own && Some(*node) != has_it).collect();
        // What comes late reaches each by itself.
        let direct_only = !view.is_wide() || age.late_since().is_some();
        let (direct, routes) = match direct_only {
            true => (others, SmallVec::new()),
            false => forward::routes(&view, &others, self.next_turn()),
        };
        let message = |update: &PartitionUpdate| {
            remote::begun_updates(&view, age.begun_micros(), std::slice::from_ref(update))
        };
        let mut body: Option<Bytes> = None;
        for route in routes {
            let body = body.get_or_insert_with(|| message(&update)).clone();
            self.count(|stats| stats.forwarded += 1);
            let send = ongoing.clone().forward(route, token, update.table.clone(), body);
            self.rt().spawn(Group::Statement, send).detach();
        }
        for node in direct {
            let body = body.get_or_insert_with(|| message(&update)).clone();
            let (ongoing, table) = (ongoing.clone(), update.table.clone());
            let send = async move { ongoing.send(node, token, &table, body).await };
            self.rt().spawn(Group::Statement, send).detach();
        }
        for node in away.iter().copied().filter(|node| Some(*node) != has_it) {
            let body = body.get_or_insert_with(|| message(&update));
            ongoing.hint(node, &update.table, body);
        }
        if live.contains(&own) && has_it != Some(own) {
            ongoing.apply_here(update).await;
        }
        match (ongoing.ended().await, body) {
            (Err(error), Some(body)) if ongoing.met_later_ring() => {
                Box::pin(self.write_anew(&ongoing, &body, has_it, error)).await
            }
            (ended, _) => ended,
        }
    }

    /// Replicas refused a write that went by a ring which is over: it goes by a later one, if this node hears of it in time.
    async fn write_anew(
        &self,
        before: &Ongoing,
        body: &Bytes,
        has_it: Option<NodeIndex>,
        error: RequestError,
    ) -> Result<(), RequestError> {
        let (view, options) = (before.view(), before.options);
        if !self.catch_up(view.ring_number(), options.deadline).await {
            return Err(error);
        }
        let schema = self.schema();
        let updates =
            remote::decode_updates(&body.slice(remote::BEGUN_LEN..), |id| schema.table_by_id(id).cloned());
        // Its table may be gone meanwhile.
        let Ok(updates) = updates else { return Err(error) };
        let has_it = has_it.map(|node| view.node(node).host);
        // Some may have it already: it must not be said that nothing was done.
        let planned = self.plan_with_lease(updates, &options).await.map_err(|_| error)?;
        let age = match before.age.get() {
            Age::New(_) => Age::New(self.begin_write()),
            late @ Age::Late(_) => late,
        };
        for write in planned {
            let host = has_it.and_then(|host| write.erm.view.index_of(host));
            let has_it = host.filter(|node| write.replicas.contains(node));
            self.write_partition(write, options, has_it, age).await?;
        }
        Ok(())
    }
}

impl Ongoing {
    pub(crate) fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    pub(crate) fn view(&self) -> &ClusterView {
        &self.erm.view
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.options.deadline
    }

    /// Writes to a replica.
    pub(crate) async fn send(&self, node: NodeIndex, token: i64, table: &schema::Table, body: Bytes) {
        let verb = match self.age.get() {
            Age::New(_) => Verb::Apply,
            Age::Late(_) => Verb::Hint,
        };
        self.send_as(node, token, table, (verb, body.clone(), &body)).await;
    }

    /// Writes to a replica with a message of its own; whether it has the write, whose body a hint would need.
    pub(crate) async fn send_as(
        &self,
        node: NodeIndex,
        token: i64,
        table: &schema::Table,
        (verb, message, body): (Verb, Bytes, &Bytes),
    ) -> bool {
        let peer = self.erm.view.node(node);
        let remote = self.coordinator.remote();
        let answer = remote.call(peer, token, verb, message, self.options.deadline).await;
        let mut answer = answer.and_then(|answer| remote::truncation_of(&answer));
        while let Ok(Some(at_micros)) = answer
            && !self.is_truncated(table.id)
        {
            let begun_micros = self.begin_behind(at_micros);
            let again = remote::begun_body(self.view(), begun_micros, &body[remote::BEGUN_LEN..]);
            let later = remote.call(peer, token, Verb::Apply, again, self.options.deadline).await;
            answer = later.and_then(|answer| remote::truncation_of(&answer));
        }
        let has_it = answer.is_ok();
        match answer {
            Ok(_) => self.acknowledged(node),
            Err(error) => {
                // It may come back to it, unless what was asked for is wrong.
                if !matches!(error, PeerError::Invalid(_)) {
                    self.hint(node, table, body);
                }
                self.failed(node, error);
            }
        }
        has_it
    }

    /// Whether the table was truncated on this node since the write began.
    fn is_truncated(&self, table: TableId) -> bool {
        let at_micros = self.coordinator.replica().truncated_at(table);
        self.truncated.get() || at_micros >= self.age.get().begun_micros()
    }

    /// A replica has truncated the table at `at_micros` and this node has not, be it that its turn comes, or that it was no node of the
    /// cluster then and its clock is behind. Either way the write is later: the truncation's second round, if there is one, is later still.
    fn begin_behind(&self, at_micros: i64) -> i64 {
        self.coordinator.replica().engine().note_truncation(at_micros);
        let begun_micros = self.coordinator.begin_write();
        self.age.set(Age::New(begun_micros));
        begun_micros
    }

    /// Applies on this node. Most updates are in memory at once; what takes longer goes on by itself, so that the client waits
    /// for this replica no longer than for the others.
    async fn apply_here(self: &Rc<Self>, update: PartitionUpdate) {
        let own = self.erm.view.own();
        let replica = self.coordinator.replica().clone();
        let (age, trace) = (self.age.get(), self.coordinator.trace().cloned());
        let origin = match (age, self.options.kind) {
            (Age::Late(_), _) => Origin::Batchlog,
            (Age::New(_), WriteKind::Counter) => Origin::Counter,
            (Age::New(_), WriteKind::Cas) => Origin::PaxosCommit,
            (Age::New(_), _) => Origin::Client,
        };
        let admitted = self.coordinator.admit_own_writes(&self.erm.view, std::slice::from_ref(&update));
        let under_way = match admitted {
            Ok(guard) => guard,
            Err(error) => return self.failed(own, error),
        };
        let mut apply = Box::pin(async move {
            let _under_way = under_way;
            let write = Write::one(origin, update).with_truncation(age.truncation());
            replica.apply(write.traced(trace.as_ref())).await
        });
        let at_once = poll_fn(|cx| Poll::Ready(apply.as_mut().poll(cx))).await;
        match at_once {
            Poll::Ready(result) => self.applied(own, result),
            Poll::Pending => {
                let ongoing = self.clone();
                let wait = async move { ongoing.applied(own, apply.await) };
                self.coordinator.rt().spawn(Group::Statement, wait).detach();
            }
        }
    }

    fn applied(&self, own: NodeIndex, result: Result<(), ReplicaError>) {
        match result {
            Ok(()) => self.acknowledged(own),
            Err(ReplicaError::Truncated(_)) => {
                self.truncated.set(true);
                self.acknowledged(own);
            }
            Err(error) => self.failed(own, error.into()),
        }
    }

    pub(crate) fn acknowledged(&self, node: NodeIndex) {
        let mut tally = self.tally.borrow_mut();
        tally.acknowledge(node, self.erm.view.datacenter(node));
        if tally.is_met() {
            self.changed.notify_all();
        }
    }

    fn failed(&self, node: NodeIndex, error: PeerError) {
        self.errors.borrow_mut().push((node, error));
        let mut tally = self.tally.borrow_mut();
        tally.fail(node, self.erm.view.datacenter(node));
        if tally.is_hopeless() {
            self.changed.notify_all();
        }
    }

    /// Whether a replica has refused it, for it uses a stale topology version.
    fn met_later_ring(&self) -> bool {
        self.errors.borrow().iter().any(|(_, error)| matches!(error, PeerError::OldRing(_)))
    }

    fn hint(&self, node: NodeIndex, table: &schema::Table, body: &Bytes) {
        let update = body.slice(remote::BEGUN_LEN..);
        // The state of a counter is no delta: it may come twice.
        let (host, begun_micros) = (self.erm.view.node(node).host, self.age.get().begun_micros());
        if self.coordinator.keep_hint(host, table, update, begun_micros) {
            self.hinted.set(true);
            self.changed.notify_all();
        }
    }

    /// Waits until enough replicas have it, too many have failed, or the time is over.
    async fn ended(&self) -> Result<(), RequestError> {
        let rt = self.coordinator.rt();
        loop {
            let changed = self.changed.notified();
            {
                let tally = self.tally.borrow();
                let any = self.options.consistency == Consistency::Any && self.hinted.get();
                if tally.is_met() || any {
                    return Ok(());
                }
                if tally.is_hopeless() {
                    return Err(self.error());
                }
            }
            if rt.timeout_at(self.options.deadline, changed).await.is_err() {
                return Err(self.error());
            }
        }
    }

    fn error(&self) -> RequestError {
        let counts = {
            let tally = self.tally.borrow();
            (tally.received(), tally.required())
        };
        write_error(&self.erm, &self.errors.borrow(), self.options, counts)
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

pub(crate) fn write_error(
    erm: &EffectiveReplicationMap,
    errors: &[(NodeIndex, PeerError)],
    options: WriteOptions,
    (received, required): (u32, u32),
) -> RequestError {
    let WriteOptions { consistency, kind, .. } = options;
    for (_, error) in errors {
        if let PeerError::Invalid(why) = error {
            return RequestError::Invalid(why.clone());
        }
    }
    let failures: Vec<ReplicaFailure> =
        errors.iter().filter_map(|(node, error)| error.failure(remote::address(&erm.view, *node))).collect();
    if failures.is_empty() {
        return RequestError::WriteTimeout { consistency, received, required, kind };
    }
    RequestError::WriteFailure { consistency, received, required, kind, failures }
}
