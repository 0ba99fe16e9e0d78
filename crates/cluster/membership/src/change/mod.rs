//! Topology changes: this node's part in them, on shard 0. The next step follows from the cluster's log (`decide`), so that
//! a crash of anybody interrupts a change and does not end it.

mod allowed;
mod cleanup;
mod decide;
mod expected;
mod fetch;
mod fetch_reason;
mod files;
mod leave;
mod rebuild;
mod rebuilding;
mod requests;
mod streamer;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use cluster::state::{ChangeStep, ClusterState, Command, MemberStatus, TopologyChange};
use coordinator::Coordinator;
use futures_util::future::{Either, select};
use rt::sync::{Semaphore, Watch};
use rt::{Instant, Rt, Task};
use schema::TableId;
use topology::HostId;

use crate::MembershipError;
use crate::membership::Membership;
use crate::{NodeShards, ShardTask};
use decide::{Act, Context};
use fetch_reason::Gain;
pub use fetch_reason::{FetchReason, FetchedRanges};
pub use rebuild::Rebuild;
pub use requests::TopologyRequest;
pub use streamer::{FetchFigures, RangeStreamer};

/// How often the log is checked for a step, when nothing notifies of a change.
const PERIOD: Duration = Duration::from_secs(1);
/// Pause before a failed step is retried.
const RETRY_PAUSE: Duration = Duration::from_secs(3);
/// How long a node that joins without fetching asks the log which keyspaces there are.
const CATCH_UP_MAX: Duration = Duration::from_secs(30);
/// Pause before a joining node retries while another change is under way.
const TURN_PAUSE: Duration = Duration::from_millis(100);
/// How long a node that joins lets a replacement of a dead node go first, when nothing else is under way.
const GIVE_WAY_MAX: Duration = Duration::from_secs(10);
/// How long the end of a change waits for nodes that are down and could answer clients by the previous topology version.
const BLIND_WAIT: Duration = Duration::from_secs(60);
// Requests that those nodes admitted by the former replicas have ended by then.
const _: () = assert!(BLIND_WAIT.as_secs() >= coordinator::LEASE.as_secs() + 20);

/// This node's part in topology changes. Cheap to clone.
#[derive(Clone)]
pub struct TopologyChanges(Rc<Inner>);

struct Inner {
    rt: Rt,
    membership: Membership,
    coordinator: Coordinator,
    shards: Rc<dyn NodeShards>,
    /// A joining node streams its ranges.
    bootstrap: bool,
    /// So long a change waits for writes that are under way and began with an older view.
    write_time_max: Duration,
    /// The same of all requests.
    request_time_max: Duration,
    /// This node has left the cluster and serves no more.
    has_left: Watch<bool>,
    /// Held while data is streamed or dropped: a cleanup must not drop streamed data.
    data: Semaphore,
    /// The node's own directory, with the notes for a restart.
    directory: PathBuf,
    /// The topology change after which this node ran its last cleanup, once that is known.
    cleaned: Cell<Option<u64>>,
    /// The rebuild that is under way.
    rebuild: RefCell<Option<rebuild::Rebuild>>,
    rebuilding: RefCell<Option<Task<()>>>,
    /// There may be files of an abandoned stream on the disk: of this process or an earlier one.
    leftovers: Cell<bool>,
    /// The pending replicas by a topology version and a schema: all ranges of the ring have to be looked at for them.
    pending: RefCell<Option<Pending>>,
    /// Which change is held up by nodes that are down and might live, and since when.
    blind_since: Cell<Option<(u64, Instant)>>,
    /// Decommissions of this node that wait for another change.
    queued: Cell<usize>,
    /// How often operators have cancelled those.
    aborts: Cell<u64>,
    task: RefCell<Option<Task<()>>>,
}

/// The pending replicas by a state of the log.
struct Pending {
    topology_version: u64,
    schema_number: u64,
    nodes: Rc<BTreeSet<HostId>>,
}

impl TopologyChanges {
    /// The part of a node with this place in its cluster, whose own directory this is.
    pub fn new(
        rt: &Rt,
        membership: &Membership,
        coordinator: &Coordinator,
        shards: Rc<dyn NodeShards>,
    ) -> Self {
        let config = membership.config();
        Self(Rc::new(Inner {
            rt: rt.clone(),
            membership: membership.clone(),
            coordinator: coordinator.clone(),
            shards,
            bootstrap: config.auto_bootstrap,
            write_time_max: config.write_time_max,
            request_time_max: config.request_time_max,
            has_left: Watch::new(false),
            data: Semaphore::new(1),
            directory: config.directory.clone(),
            cleaned: Cell::new(None),
            rebuild: RefCell::default(),
            rebuilding: RefCell::default(),
            leftovers: Cell::new(true),
            pending: RefCell::default(),
            blind_since: Cell::new(None),
            queued: Cell::new(0),
            aborts: Cell::new(0),
            task: RefCell::default(),
        }))
    }

    /// Takes part from now on.
    pub fn start(&self) {
        let inner = Rc::clone(&self.0);
        let run = async move { inner.run(|_| false).await };
        *self.0.task.borrow_mut() = Some(self.0.rt.spawn(rt::Group::Maintenance, run));
        self.resume_rebuild();
    }

    /// Ends taking part; a step that is under way is done again after the next start.
    pub async fn stop(&self) {
        let tasks = [self.0.task.borrow_mut().take(), self.0.rebuilding.borrow_mut().take()];
        for task in tasks.into_iter().flatten() {
            task.cancel().await;
        }
    }

    /// A joining node: takes its tokens when no other change is under way, streams its data, and owns it.
    ///
    /// # Errors
    /// [`MembershipError::Cluster`] when tokens are not granted in time, the node was removed, or it may not join
    /// without streaming.
    pub async fn join(&self) -> Result<(), MembershipError> {
        let inner = &self.0;
        if !inner.bootstrap && !self.has_tokens() {
            inner.membership.catch_up(inner.rt.now() + CATCH_UP_MAX).await?;
            inner.check_may_join_unfetched()?;
        }
        inner.ignore_configured().map_err(MembershipError::Cluster)?;
        inner.take_tokens().await?;
        let replaced = inner.state().member(inner.own()).and_then(|member| member.replaces);
        let replaced = replaced.and_then(|replaced| inner.membership.number_of(replaced));
        inner.run(|state| inner.status_in(state) != Some(MemberStatus::Joining)).await;
        if let Some(number) = replaced {
            inner.membership.wait_until_voteless(number).await;
            inner.membership.announce_none_ignored();
        }
        Ok(())
    }

    /// Whether this node has left its cluster.
    pub fn has_left(&self) -> bool {
        *self.0.has_left.get()
    }

    /// Whether this node has its tokens, in force or not.
    pub fn has_tokens(&self) -> bool {
        self.0.state().member(self.0.own()).is_some_and(|member| !member.tokens.is_empty())
    }

    /// How this node takes part, by the log.
    pub fn status(&self) -> Option<MemberStatus> {
        self.0.status_in(&self.0.state())
    }
}

impl Inner {
    fn state(&self) -> std::sync::Arc<ClusterState> {
        self.membership.group().applied().state
    }

    fn own(&self) -> HostId {
        self.membership.host()
    }

    fn status_in(&self, state: &ClusterState) -> Option<MemberStatus> {
        state.member(self.own()).map(|member| member.status)
    }

    /// Whether this node may join without data, by its knowledge of the cluster's log.
    fn check_may_join_unfetched(&self) -> Result<(), MembershipError> {
        let location = &self.membership.config().location;
        allowed::join_unfetched(&self.state(), &location.datacenter).map_err(MembershipError::Cluster)
    }

    fn is_alive(&self, host: HostId) -> bool {
        host == self.own() || self.membership.liveness().is_alive(host)
    }

    /// Does this node's part until the state is as it is to be, or this node has left.
    async fn run(&self, done: impl Fn(&ClusterState) -> bool) {
        let mut states = self.membership.group().subscribe();
        let mut waited_for = Vec::new();
        loop {
            let state = self.state();
            if done(&state) || *self.has_left.get() {
                return;
            }
            let act = self.next(&state);
            if act != Act::Rest {
                if let Err(error) = self.perform(act).await {
                    tracing::warn!("a topology change is stalled and is tried again: {error}");
                    self.rt.sleep(RETRY_PAUSE).await;
                }
                continue;
            }
            self.log_waiting(&state, &mut waited_for);
            self.clean_when_due(&state).await;
            self.drop_leftovers(&state).await;
            let changed = std::pin::pin!(states.changed());
            let over = std::pin::pin!(self.rt.sleep(PERIOD));
            if let Either::Left((Err(_), _)) = select(changed, over).await {
                return;
            }
        }
    }

    fn next(&self, state: &ClusterState) -> Act {
        if self.status_in(state) == Some(MemberStatus::Left) {
            // Its leaving was interrupted after the last step.
            return Act::Rest;
        }
        self.with_context(state, |context| context.next())
    }

    fn with_context<T>(&self, state: &ClusterState, look: impl FnOnce(&Context<'_>) -> T) -> T {
        let pending_nodes = self.pending_nodes(state);
        let (ignored, alive) = (self.membership.ignored(state), |host| self.is_alive(host));
        let own = self.own();
        look(&Context { state, own, pending_nodes: &pending_nodes, ignored: &ignored, alive: &alive })
    }

    /// The pending replicas of the change that is under way.
    fn pending_nodes(&self, state: &ClusterState) -> Rc<BTreeSet<HostId>> {
        if state.change.as_ref().is_none_or(|change| change.step != ChangeStep::Fetching) {
            return Rc::default();
        }
        let (topology_version, schema_number) = (state.topology_version, state.schema_number);
        if let Some(known) = &*self.pending.borrow()
            && (known.topology_version, known.schema_number) == (topology_version, schema_number)
        {
            return known.nodes.clone();
        }
        let Some(view) = self.membership.view_of(state, Some(&self.coordinator.view())) else {
            return Rc::default();
        };
        let placed = view.place_each(state.schema.keyspaces());
        let pending_nodes = placed.iter().flat_map(|(_, copies)| copies.pending_nodes());
        let nodes: Rc<BTreeSet<HostId>> = Rc::new(pending_nodes.map(|index| view.node(index).host).collect());
        let pending = Pending { topology_version, schema_number, nodes: nodes.clone() };
        *self.pending.borrow_mut() = Some(pending);
        nodes
    }

    /// Logs, once each, the nodes for which a change that this node conducts waits.
    fn log_waiting(&self, state: &ClusterState, logged: &mut Vec<HostId>) {
        let Some(change) = state.change.as_ref().filter(|change| change.step == ChangeStep::Fetching) else {
            return;
        };
        let conducts = |context: &Context<'_>| context.conductor(change) == Some(self.own());
        let missing = self.with_context(state, |context| match conducts(context) {
            true => context.waits_for(change),
            false => Vec::new(),
        });
        if missing != *logged && !missing.is_empty() {
            tracing::info!("the topology change waits for streaming to {}", self.names(state, &missing));
        }
        *logged = missing;
    }

    /// Logs the nodes that gain ranges, are ignored, and have not streamed them.
    fn log_left_out(&self, state: &ClusterState) {
        let Some(change) = &state.change else { return };
        let left_out = self.with_context(state, |context| context.left_out(change));
        if !left_out.is_empty() {
            tracing::warn!(
                "the topology change continues although {} gains ranges and has not streamed them: remove or replace it; where it is started again instead, \
                 run `nodetool rebuild` on it before clients use it",
                self.names(state, &left_out)
            );
        }
    }

    fn names(&self, state: &ClusterState, hosts: &[HostId]) -> String {
        let name = |host: &HostId| {
            let address = state.member(*host).map(|member| member.info.internode.to_string());
            let down = match self.is_alive(*host) {
                true => String::new(),
                false => format!(" (down, host {})", TableId(host.0)),
            };
            format!("{}{down}", address.unwrap_or_default())
        };
        hosts.iter().map(name).collect::<Vec<_>>().join(", ")
    }

    /// The topology change that is under way and the nodes that hold it up; empty when there is none.
    fn progress(&self, state: &ClusterState) -> String {
        let Some(change) = &state.change else { return String::new() };
        let waits_for = match change.step {
            ChangeStep::Fetching => self.with_context(state, |context| context.waits_for(change)),
            // Its conductor waits for every node.
            ChangeStep::Announced | ChangeStep::Switched => Vec::new(),
        };
        let conductor = self.with_context(state, |context| context.conductor(change));
        let mut text = describe(state, change);
        if !waits_for.is_empty() {
            text.push_str(&format!("; it waits for streaming to {}", self.names(state, &waits_for)));
        }
        if let Some(conductor) = conductor.filter(|host| !self.is_alive(*host)) {
            text.push_str(&format!("; it continues when {} is back", self.names(state, &[conductor])));
        }
        text
    }

    async fn perform(&self, act: Act) -> Result<(), MembershipError> {
        match act {
            Act::Rest => Ok(()),
            Act::Announce(change) => self.announce(change).await,
            Act::Fetch(change) => self.fetch(change).await,
            Act::Switch(change) => {
                if self.status_in(&self.state()) == Some(MemberStatus::Leaving) {
                    self.hand_over().await;
                }
                self.log_left_out(&self.state());
                self.step(change, ChangeStep::Switched).await
            }
            Act::Finish(change) => self.finish(change).await,
            Act::Forget(host) => self.membership.propose(Command::RemoveMember { host }).await,
        }
    }

    async fn step(&self, change: u64, step: ChangeStep) -> Result<(), MembershipError> {
        self.membership.propose(Command::TakeStep { change, step }).await
    }

    /// Every node knows of the change, and all earlier writes have ended.
    async fn announce(&self, change: u64) -> Result<(), MembershipError> {
        self.membership.wait_for_everyone().await?;
        tracing::debug!("every live node knows of the topology change");
        self.coordinator.run_out(self.write_time_max).await;
        tracing::debug!("what began before it is done");
        self.step(change, ChangeStep::Fetching).await
    }

    async fn fetch(&self, change: u64) -> Result<(), MembershipError> {
        let joins = self.status_in(&self.state()) == Some(MemberStatus::Joining);
        if let (true, false, Err(why)) = (joins, self.bootstrap, self.check_may_join_unfetched()) {
            tracing::warn!(
                "this node streams its data although auto_bootstrap is false: tables were created since it began to join: {why}"
            );
        }
        // All shards use a view with the pending replicas.
        self.membership.wait_for_itself().await?;
        let is_over = |state: &ClusterState| state.change.as_ref().is_none_or(|now| now.number != change);
        let over = pin!(self.wait_until(is_over));
        // A rebuild or an operator's cleanup may take long, and another change need not need this node's ranges.
        let Either::Left((alone, over)) = select(pin!(self.data.acquire(1)), over).await else {
            return Ok(());
        };
        let _alone = alone.map_err(|_| MembershipError::Stopped)?;
        if !joins {
            self.drop_earlier(change).await?;
        }
        tracing::info!("streaming the pending ranges to this node");
        let gain = Gain::new(change);
        match select(pin!(self.fetch_all(FetchReason::Change(gain.clone()))), over).await {
            Either::Left((fetched, _)) => fetched?,
            Either::Right(((), fetching)) => {
                gain.give_up();
                // The shards end it before another one may begin.
                let _ = fetching.await;
                tracing::info!("streaming was given up: topology change {change} is not under way any more");
                return Ok(());
            }
        }
        let host = self.own();
        self.membership.propose(Command::Fetched { change, host }).await
    }

    /// Every node reads from the pending topology version: the change is complete. Requests of the older version are refused from then on, so that
    /// under way ends first.
    async fn finish(&self, change: u64) -> Result<(), MembershipError> {
        let confirmed = self.membership.wait_for_everyone().await?;
        self.check_reads_went_over(change, &confirmed)?;
        self.coordinator.run_out(self.write_time_max).await;
        let state = self.state();
        let Some(change) = state.change.as_ref().filter(|now| now.number == change) else { return Ok(()) };
        if !change.alters.is_empty() {
            let (number, names) = (change.number, describe(&state, change));
            self.membership.propose(Command::EndAlteration { change: number }).await?;
            tracing::info!("{names}: that is done");
            return Ok(());
        }
        match (change.joins, change.leaves) {
            (Some(host), _) => {
                self.membership.propose(Command::SetStatus { host, status: MemberStatus::Normal }).await
            }
            (None, Some(host)) if host == self.own() => {
                self.membership.propose(Command::SetStatus { host, status: MemberStatus::Left }).await?;
                self.leave().await
            }
            (None, Some(host)) => self.membership.propose(Command::RemoveMember { host }).await,
            (None, None) => Ok(()),
        }
    }

    /// Nodes that did not confirm it may not: those that have not observed the pending topology version should not make a quorum of the former replicas.
    /// The change waits for them, but not for ever: a dead node never answers.
    fn check_reads_went_over(
        &self,
        change: u64,
        confirmed: &BTreeSet<HostId>,
    ) -> Result<(), MembershipError> {
        let state = self.state();
        let Some(view) = self.membership.view_of(&state, Some(&self.coordinator.view())) else {
            return Ok(());
        };
        // One that is alive now may have been down when the others confirmed.
        let knows = |node| confirmed.contains(&view.node(node).host) || view.is_declared_dead(node);
        let placed = view.place_each(state.schema.keyspaces());
        match placed.into_iter().find(|(_, copies)| view.blind_quorum(copies, knows)) {
            Some((keyspace, _)) if self.has_waited_for_the_blind(change) => {
                tracing::warn!(
                    "the topology change ends without replicas of keyspace {} that are down: if one is partitioned and alive, \
                     its reads at ONE may be stale, and writes at ONE to it may be lost",
                    keyspace.name
                );
                Ok(())
            }
            Some((keyspace, _)) => Err(MembershipError::Cluster(format!(
                "too many replicas of keyspace {} are down to be certain that nobody reads by the previous topology version",
                keyspace.name
            ))),
            None => Ok(()),
        }
    }

    /// Whether a change was held up so long by nodes that are down that it is to be held up no longer.
    fn has_waited_for_the_blind(&self, change: u64) -> bool {
        let now = self.rt.now();
        match self.blind_since.get() {
            Some((held, since)) if held == change => now - since >= BLIND_WAIT,
            _ => {
                self.blind_since.set(Some((change, now)));
                false
            }
        }
    }

    /// A joining node waits until no other change is under way, and takes tokens.
    async fn take_tokens(&self) -> Result<(), MembershipError> {
        let has_tokens =
            |state: &ClusterState| state.member(self.own()).is_some_and(|member| !member.tokens.is_empty());
        let mut gives_way_until = None;
        while !has_tokens(&self.state()) {
            let state = self.state();
            let replaces = state.member(self.own()).is_some_and(|member| member.replaces.is_some());
            // Replicas that move because a replication was changed may wait for the dead node: its replacement comes first.
            let goes_first = |change: &&TopologyChange| {
                replaces && !change.alters.is_empty() && change.step != ChangeStep::Switched
            };
            if let Some(change) = state.change.as_ref().filter(|change| !goes_first(change)) {
                let number = change.number;
                tracing::info!(
                    "this node's join is queued behind another topology change: {}",
                    self.progress(&state)
                );
                let is_over =
                    |state: &ClusterState| state.change.as_ref().is_none_or(|now| now.number != number);
                self.wait_until(is_over).await;
                gives_way_until = None;
            }
            let state = self.state();
            let alive = |host| self.is_alive(host);
            if state.change.is_none()
                && decide::replacement_ahead(&state, self.own(), alive).is_some()
                && self.rt.now() < *gives_way_until.get_or_insert(self.rt.now() + GIVE_WAY_MAX)
            {
                self.rt.sleep(TURN_PAUSE).await;
                continue;
            }
            self.membership.take_tokens().await?;
            // Somebody may be about to change its place whose change is not in the state yet.
            if !has_tokens(&self.state()) && self.state().change.is_none() {
                self.rt.sleep(TURN_PAUSE).await;
            }
        }
        Ok(())
    }

    /// Has every shard carry out a task; the first failure when all have ended.
    async fn on_all(&self, task: ShardTask) -> Result<(), MembershipError> {
        self.shards.on_each(task).await.into_iter().try_for_each(|done| done.map(|_| ()))
    }
}

/// The node under change, and its step.
fn describe(state: &ClusterState, change: &TopologyChange) -> String {
    let address = |host: HostId| match state.member(host) {
        Some(member) => member.info.internode.to_string(),
        None => "a node".to_owned(),
    };
    let step = match change.step {
        ChangeStep::Announced => "announced",
        ChangeStep::Fetching => "fetching",
        ChangeStep::Switched => "switched",
    };
    if !change.alters.is_empty() {
        let names = change.alters.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        return format!("the replicas of keyspace {names} move, for its replication was changed ({step})");
    }
    match (change.joins, change.leaves) {
        (Some(joins), Some(leaves)) => format!("{} replaces {} ({step})", address(joins), address(leaves)),
        (Some(joins), None) => format!("{} joins ({step})", address(joins)),
        (None, Some(leaves)) => format!("{} leaves ({step})", address(leaves)),
        (None, None) => format!("a topology change ({step})"),
    }
}
