//! A write on its way to the replicas of its partition: sent, applied here, forwarded to other datacenters, hinted, and counted until the
//! client can be answered.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, join, join_all, poll_fn, select};
use mutation::PartitionUpdate;
use replica::{Origin, ReplicaError, Truncation, Write};
use rpc::Verb;
use rt::{Group, sync::Notify};
use schema::{Table, TableId};
use topology::{ClusterView, HostId, NodeIndex};

use crate::admission::Admission;
use crate::contact::Tally;
use crate::context::Context;
use crate::forward::{Expected, Route, encode};
use crate::message;
use crate::peer_error::{self, PeerError};
use crate::replication_map::EffectiveReplicationMap;
use crate::{Consistency, Operation, ReplicaFailure, RequestError, WriteKind, WriteOptions};

/// The one node is not waited for any longer, however much time the write has.
const PATIENCE_MAX: Duration = Duration::from_secs(1);

/// A write on its way to its replicas. Continues after the client has been answered.
pub(crate) struct Ongoing {
    context: Context,
    erm: Rc<EffectiveReplicationMap>,
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
    /// Now: [`Context::begin_write`].
    New(i64),
    /// Long ago, it is late: rows truncated since are left out.
    Late(i64),
}

impl Age {
    /// Since when a write that comes late is due.
    pub(crate) fn late_since(self) -> Option<i64> {
        match self {
            Self::New(_) => None,
            Self::Late(since_micros) => Some(since_micros),
        }
    }

    /// The effect of a truncation on it: a new write begins again, a late one leaves out truncated rows.
    fn truncation(self) -> Truncation<'static> {
        match self {
            Self::New(begun_micros) => Truncation::Refuses(begun_micros),
            Self::Late(since_micros) => Truncation::LeavesOut(since_micros),
        }
    }

    pub(crate) fn begun_micros(self) -> i64 {
        match self {
            Self::New(begun_micros) | Self::Late(begun_micros) => begun_micros,
        }
    }
}

impl Ongoing {
    /// A write by a replication map, which nobody has been sent yet; `tally` may count a replica that stored it already.
    pub(crate) fn new(
        context: &Context,
        erm: Rc<EffectiveReplicationMap>,
        tally: Tally,
        (options, age): (WriteOptions, Age),
    ) -> Rc<Self> {
        Rc::new(Self {
            context: context.clone(),
            erm,
            tally: RefCell::new(tally),
            errors: RefCell::default(),
            hinted: Cell::new(false),
            changed: Notify::new(),
            options,
            age: Cell::new(age),
            truncated: Cell::new(false),
        })
    }

    pub(crate) fn age(&self) -> Age {
        self.age.get()
    }

    pub(crate) fn view(&self) -> &ClusterView {
        &self.erm.view
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
    async fn send_as(
        &self,
        node: NodeIndex,
        token: i64,
        table: &schema::Table,
        (verb, message, body): (Verb, Bytes, &Bytes),
    ) -> bool {
        assert_ne!(node, self.erm.view.own(), "a node applies its own part of a write");
        let to = self.view().owner(node, table.id, token);
        let remote = self.context.remote();
        let answer = remote.call(to, verb, message, self.options.deadline).await;
        let mut answer = answer.and_then(|answer| message::truncation_of(&answer));
        while let Ok(Some(at_micros)) = answer
            && !self.is_truncated(table.id)
        {
            let begun_micros = self.begin_behind(at_micros);
            let again = message::begun_body(self.view(), begun_micros, &body[message::BEGUN_LEN..]);
            let later = remote.call(to, Verb::Apply, again, self.options.deadline).await;
            answer = later.and_then(|answer| message::truncation_of(&answer));
        }
        let is_acknowledged = answer.is_ok();
        match answer {
            Ok(_) => self.acknowledged(node),
            Err(error) => {
                // It may come back to it, unless the request is invalid or too much: a hint would be a way around the limit.
                if !matches!(error, PeerError::Invalid(_) | PeerError::RateLimited(_)) {
                    self.hint(node, table, body);
                }
                self.failed(node, error);
            }
        }
        is_acknowledged
    }

    /// Whether the table was truncated on this node since the write began.
    fn is_truncated(&self, table: TableId) -> bool {
        let at_micros = self.context.replica().truncated_at(table);
        self.truncated.get() || at_micros >= self.age.get().begun_micros()
    }

    /// A replica has truncated the table at `at_micros` and this node has not, be it that its turn comes, or that it was no node of the
    /// cluster then and its clock is behind. Either way the write is later: the truncation's second round, if there is one, is later still.
    fn begin_behind(&self, at_micros: i64) -> i64 {
        self.context.replica().engine().note_truncation(at_micros);
        let begun_micros = self.context.hinting().begin_write();
        assert!(begun_micros >= at_micros, "a write that begins again is not before the truncation");
        self.age.set(Age::New(begun_micros));
        begun_micros
    }

    /// Applies on this node. Most updates are in memory at once; a slower one continues in the background, so that the client waits
    /// for this replica no longer than for the others.
    pub(crate) async fn apply_here(self: &Rc<Self>, update: PartitionUpdate) {
        let own = self.erm.view.own();
        let replica = self.context.replica().clone();
        let (age, trace) = (self.age.get(), self.context.trace().cloned());
        let origin = match age {
            Age::Late(_) => Origin::Batchlog,
            Age::New(_) => origin(self.options.kind),
        };
        let admitted =
            Admission(&self.context).admit_own_writes(&self.erm.view, std::slice::from_ref(&update));
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
                self.context.rt().spawn(Group::Statement, wait).detach();
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

    fn acknowledged(&self, node: NodeIndex) {
        let mut tally = self.tally.borrow_mut();
        tally.acknowledge(node, self.erm.view.datacenter(node));
        if tally.is_met() || tally.is_hopeless() {
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
    pub(crate) fn saw_newer_topology(&self) -> bool {
        self.errors.borrow().iter().any(|(_, error)| matches!(error, PeerError::StaleTopology(_)))
    }

    pub(crate) fn hint(&self, node: NodeIndex, table: &schema::Table, body: &Bytes) {
        assert_ne!(node, self.erm.view.own(), "hints are kept for other nodes");
        let update = body.slice(message::BEGUN_LEN..);
        // The state of a counter is no delta: it may come twice.
        let (host, begun_micros) = (self.erm.view.node(node).host, self.age.get().begun_micros());
        if self.context.keep_hint(host, table, update, begun_micros) {
            self.hinted.set(true);
            self.changed.notify_all();
        }
    }

    /// Waits until enough replicas have it, too many have failed, or the time is over.
    pub(crate) async fn ended(&self) -> Result<(), RequestError> {
        let rt = self.context.rt();
        loop {
            let changed = self.changed.notified();
            {
                let tally = self.tally.borrow();
                let any = self.options.consistency == Consistency::Any && self.hinted.get();
                if tally.is_met() || any {
                    return Ok(());
                }
                if tally.gives_up(peer_error::all_silent(&self.errors.borrow())) {
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

    /// Writes to replicas of another datacenter by way of one of them.
    pub(crate) async fn forward(self: Rc<Self>, route: Route, token: i64, table: Arc<Table>, body: Bytes) {
        let outcomes = self.context.forwarded();
        let others: Vec<(NodeIndex, Expected<'_>)> =
            route.others.iter().map(|node| (*node, Expected::new(outcomes))).collect();
        let view = self.view();
        let named: Vec<(HostId, u64)> =
            others.iter().map(|(node, expected)| (view.node(*node).host, expected.number)).collect();
        assert!(!others.is_empty(), "a write to one replica is sent to it directly");
        let message = encode(self.context.shard(), &named, &body);
        let broken = Notify::new();
        // A node that is silent for half of the time is not waited for with the other half.
        let now = self.context.rt().now();
        let patience = now + ((self.options.deadline - now) / 2).min(PATIENCE_MAX);
        let first = async {
            if !self.send_as(route.first, token, &table, (Verb::Forward, message, &body)).await {
                broken.notify_all();
            }
        };
        let each = others.into_iter().map(|(node, expected)| {
            // Before the first request: a notification reaches only tasks that wait already.
            let broken = broken.notified();
            let (ongoing, table, body) = (&self, &table, &body);
            async move {
                let reported = ongoing.context.rt().timeout_at(patience, select(expected, broken)).await;
                match reported {
                    Ok(Either::Left((true, _))) => ongoing.acknowledged(node),
                    Ok(_) | Err(_) => ongoing.send(node, token, table, body.clone()).await,
                }
            }
        });
        let each: Vec<_> = each.collect();
        join(first, join_all(each)).await;
    }
}

/// The origin of a write that does not come late.
pub(crate) fn origin(kind: WriteKind) -> Origin {
    match kind {
        WriteKind::Counter => Origin::Counter,
        WriteKind::Cas => Origin::PaxosCommit,
        _ => Origin::Client,
    }
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
    if let Some(limited) = peer_error::rate_limited(errors, Operation::Write) {
        return limited;
    }
    let failures: Vec<ReplicaFailure> = errors
        .iter()
        .filter_map(|(node, error)| error.failure(peer_error::address(&erm.view, *node)))
        .collect();
    if failures.is_empty() {
        return RequestError::WriteTimeout { consistency, received, required, kind };
    }
    RequestError::WriteFailure { consistency, received, required, kind, failures }
}
