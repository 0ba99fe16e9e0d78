//! Hinted handoff: stores hints for down nodes, and delivers them when the nodes are up again.
//!
//! Crate `hints` stores them; this module knows the live nodes, since when one is down, and that a hint travels as every other
//! write does, with the time at which its write began.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::select;
use hints::{Brought, Hint, HintFigures, Hints, ReplayEnd, StoredHint};
use mutation::PartitionUpdate;
use replica::{Origin, Truncation, Write};
use rpc::Verb;
use rt::sync::Notify;
use rt::{Group, Instant, Task};
use schema::{Table, TableId};
use topology::{HostId, NodeShard};

use crate::admission::Admission;
use crate::context::Context;
use crate::message;
use crate::peer_error::{self, PeerError};
use crate::{ClusterView, Coordinator, HintKeeper};

/// How often it is looked whether there is something to deliver.
const PERIOD: Duration = Duration::from_secs(10);
/// How long a node may take for one hint.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// For how long a hint waits for a definition of its table that has its columns. A node that knew them when it stored the hint knows them after a
/// restart, too: a table that has not is another one with the id of the first (`WITH ID`), unless this node is yet to learn of a change.
const COLUMNS_TIME_MAX: Duration = Duration::from_secs(60);

/// The hinted handoff of one shard. Cheap to clone.
#[derive(Clone)]
pub struct Handoff(Rc<Inner>);

struct Inner {
    context: Context,
    hints: Hints,
    /// Bytes a second that the whole cluster may bring to a node; 0 for no limit.
    throttle_bytes: Cell<u64>,
    /// When the latest write began of which a hint was kept, in this life or one before.
    latest_micros: Cell<i64>,
    /// Down nodes, and since when.
    down_since: RefCell<BTreeMap<HostId, Instant>>,
    /// The nodes of the cluster have changed.
    changed: Notify,
    /// Nodes that have left the cluster in this process lifetime.
    left: RefCell<BTreeSet<HostId>>,
    /// Tables that lack columns of their hints, by id: the definition, since when, and whether hints were dropped for that.
    lacking: RefCell<BTreeMap<TableId, Lacking>>,
    /// The deliveries at present, by host.
    deliveries: RefCell<BTreeMap<HostId, Task<()>>>,
    stopping: Cell<bool>,
    task: RefCell<Option<Task<()>>>,
}

/// A table that lacks columns of its hints.
struct Lacking {
    table: Arc<Table>,
    since: Instant,
    is_reported: bool,
}

/// The coordinator's reference to it: weak, for it refers to the coordinator.
struct Keeper(Weak<Inner>);

impl HintKeeper for Keeper {
    fn keep(&self, host: HostId, table: &Table, update: Bytes, begun_micros: i64) -> bool {
        self.0.upgrade().is_some_and(|inner| inner.keep(host, table, update, begun_micros))
    }

    fn kept(&self) -> Vec<(HostId, HintFigures)> {
        self.0.upgrade().map(|inner| inner.hints.hosts()).unwrap_or_default()
    }

    fn latest_micros(&self) -> i64 {
        self.0.upgrade().map_or(i64::MIN, |inner| inner.latest_micros.get())
    }
}

/// Why a hint was not delivered; it is kept.
#[derive(Debug, thiserror::Error)]
enum NotDelivered {
    #[error("it is not in the cluster")]
    NotMember,
    #[error("the node is down")]
    Away,
    #[error("the hint cannot be read: {0}")]
    Unreadable(String),
    #[error("{0}")]
    Peer(String),
}

impl Handoff {
    /// Stores writes that `coordinator` cannot deliver in `hints` from now on, and delivers those stored there.
    pub fn start(coordinator: &Coordinator, hints: Hints) -> Self {
        let newest = hints.hosts().iter().map(|(_, figures)| figures.newest_micros).max();
        let handoff = Self(Rc::new(Inner {
            latest_micros: Cell::new(newest.unwrap_or(i64::MIN)),
            context: coordinator.context().clone(),
            throttle_bytes: Cell::new(hints.throttle()),
            hints,
            down_since: RefCell::default(),
            changed: Notify::new(),
            left: RefCell::default(),
            lacking: RefCell::default(),
            deliveries: RefCell::default(),
            stopping: Cell::new(false),
            task: RefCell::default(),
        }));
        handoff.0.note_view(&coordinator.view());
        coordinator.keep_hints_with(Box::new(Keeper(Rc::downgrade(&handoff.0))));
        let listener = Rc::downgrade(&handoff.0);
        coordinator.on_view_change(Box::new(move |old, new| {
            if let Some(inner) = listener.upgrade() {
                inner.view_changed(old, new);
            }
        }));
        let inner = Rc::clone(&handoff.0);
        let run = async move { inner.run().await };
        *handoff.0.task.borrow_mut() = Some(coordinator.context().rt().spawn(Group::Maintenance, run));
        handoff
    }

    /// The stored entries, with their figures and switches.
    pub fn hints(&self) -> &Hints {
        &self.0.hints
    }

    /// The hints of all nodes together on this shard.
    pub fn kept(&self) -> HintFigures {
        let mut sum = HintFigures::default();
        self.0.hints.hosts().iter().for_each(|(_, figures)| sum.merge(figures));
        sum
    }

    /// Changes how many bytes a second all nodes together may bring to one, of this shard's part; 0 for no limit.
    pub fn set_throttle(&self, bytes: u64) {
        self.0.throttle_bytes.set(bytes);
        self.0.share_throttle(&self.0.context.view());
    }

    /// Ends deliveries, and makes the stored hints durable. No more are stored.
    pub async fn stop(&self) {
        self.0.stopping.set(true);
        let task = self.0.task.borrow_mut().take();
        if let Some(task) = task {
            task.cancel().await;
        }
        let deliveries = std::mem::take(&mut *self.0.deliveries.borrow_mut());
        self.0.hints.stop().await;
        for delivery in deliveries.into_values() {
            delivery.await;
        }
        assert!(self.0.deliveries.borrow().is_empty(), "a shard that stops begins no delivery");
    }
}

impl Inner {
    fn keep(&self, host: HostId, table: &Table, update: Bytes, begun_micros: i64) -> bool {
        self.latest_micros.set(self.latest_micros.get().max(begun_micros));
        let (now, now_micros) = (self.context.rt().now(), self.context.rt().wall_micros());
        // By the monotonic clock: a wall clock that jumps by hours does not make an outage longer than max_hint_window.
        let down_since = self.down_since.borrow().get(&host).map(|since| now - *since);
        let hint = Hint {
            host,
            table: table.id.0,
            update,
            grace_seconds: crate::late::late_seconds(table),
            begun_micros,
            now_micros,
            down_since_micros: down_since.map(|down| now_micros - down.as_micros() as i64),
        };
        self.hints.store(hint).is_ok()
    }

    fn note_view(&self, view: &ClusterView) {
        let now = self.context.rt().now();
        let mut away = self.down_since.borrow_mut();
        for (index, node) in view.indexes().zip(view.nodes()) {
            if view.is_alive(index) {
                away.remove(&node.host);
            } else {
                away.entry(node.host).or_insert(now);
            }
        }
        drop(away);
        self.share_throttle(view);
    }

    /// A node that comes back is brought hints by all others at once: each takes its part of the rate.
    fn share_throttle(&self, view: &ClusterView) {
        let others = view.nodes().len().saturating_sub(1).max(1) as u64;
        match self.throttle_bytes.get() {
            0 => self.hints.set_throttle(0),
            bytes => self.hints.set_throttle((bytes / others).max(1)),
        }
    }

    fn view_changed(&self, old: &ClusterView, new: &ClusterView) {
        self.note_view(new);
        for node in old.nodes() {
            if new.index_of(node.host).is_none() {
                self.down_since.borrow_mut().remove(&node.host);
                self.left.borrow_mut().insert(node.host);
            }
        }
        self.left.borrow_mut().retain(|host| new.index_of(*host).is_none());
        let own = new.node(new.own()).host;
        assert!(!self.down_since.borrow().contains_key(&own), "a node is not down to itself");
        self.changed.notify_one();
    }

    async fn run(self: Rc<Self>) {
        let rt = self.context.rt();
        loop {
            self.deliver_all();
            select(pin!(rt.sleep(PERIOD)), pin!(self.changed.notified())).await;
        }
    }

    /// Begins to deliver to every node that is there.
    fn deliver_all(self: &Rc<Self>) {
        let view = self.context.view();
        let mut deliveries = self.deliveries.borrow_mut();
        deliveries.retain(|_, delivery| !delivery.is_finished());
        for (host, _) in self.hints.hosts() {
            let away = view.index_of(host).is_some_and(|index| !view.is_alive(index));
            if away || deliveries.contains_key(&host) || self.stopping.get() {
                continue;
            }
            let inner = Rc::clone(self);
            let deliver = async move { inner.deliver_to(host).await };
            let known = deliveries.insert(host, self.context.rt().spawn(Group::Maintenance, deliver));
            assert!(known.is_none(), "a node is brought its hints by one task at a time");
        }
    }

    async fn deliver_to(&self, host: HostId) {
        let schema = self.context.schema();
        let grace = |table| schema.table_by_id(TableId(table)).map(|table| crate::late::late_seconds(table));
        let outcome = self.hints.replay_within(host, grace, |hint| self.deliver(host, hint)).await;
        let (delivered, left_out) = (outcome.delivered, outcome.left_out);
        let name = self.name(host);
        match outcome.end {
            ReplayEnd::Complete => {
                tracing::info!(
                    "delivered {delivered} hints to {name}, {left_out} more were too old or of no use"
                );
            }
            ReplayEnd::Failed(why) if delivered > 0 => {
                tracing::info!(
                    "delivered {delivered} hints to {name}, then failed: {why}; the delivery is retried"
                );
            }
            ReplayEnd::Failed(why) => tracing::debug!("no hints can be delivered to {name}: {why}"),
            ReplayEnd::Disk(_) | ReplayEnd::Cancelled | ReplayEnd::Busy => {}
        }
    }

    fn name(&self, host: HostId) -> String {
        let view = self.context.view();
        match view.index_of(host) {
            Some(index) => view.node(index).internode.to_string(),
            None => host.to_string(),
        }
    }

    /// Whether hints with columns that their table lacks are to be dropped by now: it has stayed as it is for [`COLUMNS_TIME_MAX`].
    fn drops_lacking(&self, table: &Arc<Table>, reason: &str) -> bool {
        let (now, mut lacking) = (self.context.rt().now(), self.lacking.borrow_mut());
        let new = || Lacking { table: table.clone(), since: now, is_reported: false };
        let known = lacking.entry(table.id).or_insert_with(new);
        if known.table != *table {
            *known = new();
        }
        let is_over = now - known.since >= COLUMNS_TIME_MAX;
        if is_over && !std::mem::replace(&mut known.is_reported, true) {
            tracing::warn!(
                "hints of {} are dropped, for they are of a table that had its id before: {reason}",
                table.full_name()
            );
        }
        is_over
    }

    async fn deliver(&self, host: HostId, hint: StoredHint) -> Result<Brought, NotDelivered> {
        let rt = self.context.rt();
        rt.buggify("hints: the next is delivered").await;
        if rt.buggify_fails("hints: a delivery fails") {
            return Err(NotDelivered::Away);
        }
        let view = self.context.view();
        let index = view.index_of(host);
        // Before this node has a view of the cluster's log, it knows nobody.
        let has_left = || view.topology_version() > 0 || self.left.borrow().contains(&host);
        match index {
            Some(index) if !view.is_alive(index) => return Err(NotDelivered::Away),
            None if !has_left() => return Err(NotDelivered::NotMember),
            Some(_) | None => {}
        }
        let schema = self.context.schema();
        let table = TableId(hint.table);
        let truncated_at = self.context.replica().engine().truncated_at(table);
        let Some(definition) = schema.table_by_id(table).filter(|_| truncated_at < hint.begun_micros) else {
            // It was dropped or truncated since.
            return Ok(Brought::LeftOut);
        };
        let updates = match message::decode_updates(&hint.update, |id| schema.table_by_id(id).cloned()) {
            Ok(updates) => updates,
            Err(refusal)
                if refusal.code == peer_error::code::UNKNOWN_TABLE
                    && self.drops_lacking(definition, &refusal.message) =>
            {
                return Ok(Brought::LeftOut);
            }
            Err(refusal) => return Err(NotDelivered::Unreadable(refusal.message)),
        };
        let Some(first) = updates.first() else { return Ok(Brought::LeftOut) };
        let token = first.key.token;
        if let Some(index) = index {
            let takes = match self.context.maps().placement_of(&first.table) {
                Ok((placement, _)) => placement.takes(index, token),
                Err(_) => true,
            };
            if takes || self.context.injected().owns_everything {
                return self.bring(view.owner(index, first.table.id, token), &view, &hint).await;
            }
        }
        // It does not own the token any more, for it has left or lost the range: the current owner is to have the write.
        self.bring_to_owners(&view, updates, &hint).await
    }

    /// Brings a hint that is for a node which has its token no longer to those that have it. All of them have to be up: writes that the hint
    /// has must not become younger by another hint.
    async fn bring_to_owners(
        &self,
        view: &ClusterView,
        updates: Vec<PartitionUpdate>,
        hint: &StoredHint,
    ) -> Result<Brought, NotDelivered> {
        let Some(first) = updates.first() else { return Ok(Brought::LeftOut) };
        let token = first.key.token;
        let Ok((placement, _)) = self.context.maps().placement_of(&first.table) else {
            return Ok(Brought::LeftOut);
        };
        let owners = placement.replicas(token).iter().copied().chain(placement.pending(token));
        for owner in owners {
            if owner != view.own() {
                if !view.is_alive(owner) {
                    return Err(NotDelivered::Away);
                }
                self.bring(view.owner(owner, first.table.id, token), view, hint).await?;
                continue;
            }
            let failed = |why: String| NotDelivered::Peer(why);
            let admitted = Admission(&self.context).admit_own_writes(view, &updates);
            let _under_way = admitted.map_err(|error| failed(error.message().to_owned()))?;
            let write = Write::all(Origin::Hint, updates.clone());
            let write = write.with_truncation(Truncation::LeavesOut(hint.begun_micros));
            let applied = self.context.replica().apply(write).await;
            applied.map_err(|error| failed(error.to_string()))?;
        }
        Ok(Brought::Delivered)
    }

    /// Brings a hint to a node.
    async fn bring(
        &self,
        to: NodeShard<'_>,
        view: &ClusterView,
        hint: &StoredHint,
    ) -> Result<Brought, NotDelivered> {
        let deadline = self.context.rt().now() + DELIVERY_TIMEOUT;
        let body = message::begun_body(view, hint.begun_micros, &hint.update);
        match self.context.remote().call(to, Verb::Hint, body, deadline).await {
            Ok(_) => Ok(Brought::Delivered),
            // It will not be taken tomorrow either, and those behind it wait.
            Err(PeerError::Invalid(why)) => {
                tracing::warn!("a hint is dropped, for {} does not take it: {why}", to.node.internode);
                Ok(Brought::LeftOut)
            }
            Err(
                PeerError::Silent(why)
                | PeerError::Failed { message: why, .. }
                | PeerError::StaleTopology(why)
                | PeerError::RateLimited(why),
            ) => Err(NotDelivered::Peer(why)),
        }
    }
}
