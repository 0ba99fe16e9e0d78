//! This node's part in its cluster, on shard 0: it founds or joins one, follows its members and their liveness, and when it joins it
//! fetches its share of the data before it lets clients in.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use cluster::group::{Group, GroupConfig, GroupError, Opened, ProposeError};
use cluster::liveness::{Liveness, LivenessConfig, LivenessDriver, Notice, OwnEndpoint};
use cluster::state::{ChangeStep, ClusterState, Command, Member, MemberStatus, Outcome, Refused};
use coordinator::{ClusterView, Coordinator, Phase, Replicated, ViewNode};
use futures_util::future::{Either, select};
use gossip::{DownReason, Key, Standing};
use rpc::Messenger;
use rt::{Instant, Rt, Task};
use schema::{Keyspace, Schema};
use topology::HostId;

use crate::first_seen::FirstSeen;
use crate::ignored;
use crate::{MembershipConfig, MembershipError};

/// How long a node tries to be let into its cluster.
const JOIN_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a node that has left waits to hear that it is out of the log.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(3);
/// The end of a change waits so long for the cluster's log to do without the votes of nodes that are gone.
const VOTE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a step of joining may wait for the others.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// This node's part in the cluster's log. The node has one before it opens its storage: the schema comes from there.
///
/// # Errors
/// [`MembershipError::Cluster`] with the operator's message, from [`Group::open`],
/// [`Blank::join`](cluster::group::Blank::join) or [`Blank::found_or_join`](cluster::group::Blank::found_or_join).
pub async fn open_group(
    rt: &Rt,
    messenger: &Messenger,
    own: &MembershipConfig,
    own_schema: Schema,
) -> Result<Group, MembershipError> {
    let failed = |error: &dyn std::fmt::Display| MembershipError::Cluster(error.to_string());
    let info = own.info(rt.shard_count());
    let config = GroupConfig {
        own: own_schema,
        replaces: own.replaces.clone(),
        token_count: own.initial_token.trim().is_empty().then_some(own.num_tokens.into()),
        new_cluster: own.new_cluster,
        rollback: Some(own.guard.clone()),
        unresolved_seeds: own.unresolved_seeds.iter().cloned().collect(),
        ..GroupConfig::new(&own.directory, own.cluster_name.clone(), own.host, info)
    };
    let seeds = &own.seeds;
    let opened = Group::open(rt, messenger, config).await.map_err(|error| failed(&error))?;
    let blank = match opened {
        Opened::Member(group) => return Ok(group),
        Opened::Blank(blank) => blank,
    };
    if let Some(dead) = &own.replaces {
        // Such a node never founds a cluster, regardless of its seeds.
        tracing::info!("looking for the cluster at {}, to take the place of {dead}", own.seeds_text);
        let deadline = rt.now() + JOIN_TIMEOUT;
        return blank.join(seeds, deadline).await.map_err(|error| failed(&error));
    }
    if seeds.iter().all(|seed| *seed == own.internode) && own.unresolved_seeds.is_empty() {
        return blank.start_first_node(own.tokens.clone()).await.map_err(|error| failed(&error));
    }
    tracing::info!("looking for the cluster at {}", own.seeds_text);
    let deadline = rt.now() + JOIN_TIMEOUT;
    blank.found_or_join(seeds, own.tokens.clone(), deadline).await.map_err(|error| failed(&error))
}

/// The state of this node in its cluster.
#[derive(Clone)]
pub struct Membership {
    rt: Rt,
    own: Rc<MembershipConfig>,
    group: Group,
    liveness: LivenessDriver,
    task: Rc<std::cell::RefCell<Option<Task<()>>>>,
    /// This node leaves: that it is removed is no surprise.
    leaves: Rc<Cell<bool>>,
    first_seen: FirstSeen,
}

impl Membership {
    /// Begins to gossip.
    pub fn start(rt: &Rt, messenger: &Messenger, own: MembershipConfig, group: Group) -> Self {
        let detector = gossip::DetectorConfig {
            threshold: own.phi_convict_threshold,
            ..gossip::DetectorConfig::default()
        };
        let config = gossip::Config {
            detector,
            ..gossip::Config::new(group.applied().state.full_name(), own.seeds.clone())
        };
        let location = &own.location;
        let text = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let endpoint = OwnEndpoint {
            host: own.host,
            generation: own.generation,
            address: own.internode,
            states: vec![
                (Key::DC, text(&location.datacenter)),
                (Key::RACK, text(&location.rack)),
                (Key::RELEASE_VERSION, text(&own.release_version)),
                (Key::NATIVE_ADDRESS, text(&own.native.to_string())),
                (Key::RPC_READY, text("false")),
                (Key::SCHEMA, text(&schema_version(&group.applied().state.schema))),
            ],
        };
        let stopping = rt.clone();
        let notices = move |notice: Notice| match notice {
            // The identity persists at the next start, whose generation is later than the clock's anyway.
            Notice::Generation(_) => {}
            Notice::HostIdTaken { address, .. } => {
                tracing::error!(
                    "another node runs with this one's host id at {address}: is its data directory a copy? This node stops"
                );
                stopping.request_stop();
            }
        };
        let config = LivenessConfig { rollback: Some(own.guard.clone()), ..LivenessConfig::new(config) };
        let liveness = LivenessDriver::start(rt, messenger, config, endpoint, notices);
        liveness.set_members(addresses(&group.applied().state));
        Self {
            rt: rt.clone(),
            own: Rc::new(own),
            group,
            liveness,
            task: Rc::default(),
            leaves: Rc::default(),
            first_seen: FirstSeen::default(),
        }
    }

    /// The cluster's log.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The liveness of all nodes, heartbeats included.
    pub fn liveness(&self) -> Liveness {
        self.liveness.snapshot()
    }

    /// How unlikely the silence of a node is by now, as the failure detector counts it: minus the decimal logarithm of its chance.
    pub fn phi(&self, host: HostId) -> f64 {
        self.liveness.phi(host)
    }

    /// The cluster as it is known now; it shares the rings and placements of `before` where only liveness has changed since.
    pub fn view(&self, before: Option<&ClusterView>) -> Option<ClusterView> {
        self.view_of(&self.group.applied().state, before)
    }

    /// The cluster as a state of the log makes it; shared parts are those of `before`, as in [`Membership::view`].
    pub fn view_of(&self, state: &ClusterState, before: Option<&ClusterView>) -> Option<ClusterView> {
        view(self.own.host, state, &self.liveness.current(), &self.new_members(state), before)
    }

    /// The joining members that this process has not known for long.
    fn new_members(&self, state: &ClusterState) -> BTreeSet<HostId> {
        self.first_seen.new_ones(joining(state), self.rt.now())
    }

    /// This node.
    pub fn host(&self) -> HostId {
        self.own.host
    }

    /// This node, and how it is configured.
    pub fn config(&self) -> &MembershipConfig {
        &self.own
    }

    /// Notifies the node's shards of every change from now on.
    pub fn follow(&self, coordinator: &Coordinator) {
        let (host, liveness) = (self.own.host, self.liveness.clone());
        let (rt, first_seen) = (self.rt.clone(), self.first_seen.clone());
        let maker = move |state: &ClusterState, before: &ClusterView| {
            liveness.set_members(addresses(state));
            liveness.set(vec![(Key::SCHEMA, Bytes::from(schema_version(&state.schema)))]);
            view(
                host,
                state,
                &liveness.current(),
                &first_seen.new_ones(joining(state), rt.now()),
                Some(before),
            )
        };
        coordinator.follow(&self.group, Box::new(maker));
        let liveness = self.liveness.clone();
        coordinator.set_gossip(move || liveness.snapshot());
        let (this, coordinator) = (self.clone(), coordinator.clone());
        let watch = async move {
            let mut version = 0;
            loop {
                let (newer, aged) =
                    (pin!(this.liveness.newer_than(version)), pin!(this.first_seen.aged(&this.rt)));
                if let Either::Left((liveness, _)) = select(newer, aged).await {
                    version = liveness.version;
                    this.report_addresses(&liveness);
                }
                if let Some(view) = this.view(Some(&coordinator.view())) {
                    coordinator.publish_view(view).await;
                }
            }
        };
        let this = self.clone();
        let ended = async move { this.stop_when_removed().await };
        let this = self.clone();
        let rolled_back = async move {
            let found = this.own.guard.rolled_back().await;
            tracing::error!("{found}");
            this.rt.request_stop();
        };
        let all = async move {
            futures_util::future::join3(watch, ended, rolled_back).await;
        };
        *self.task.borrow_mut() = Some(self.rt.spawn(rt::Group::Maintenance, all));
    }

    /// The addresses from which live nodes gossip: the log's messages reach those there that it has elsewhere.
    fn report_addresses(&self, liveness: &Liveness) {
        let live = liveness.peers.iter().filter(|(host, _)| liveness.is_alive(**host));
        self.group.hosts_heard(&live.map(|(host, peer)| (*host, peer.endpoint.address)).collect());
    }

    /// A removed node must not serve its data: others own it now.
    async fn stop_when_removed(&self) {
        let (mut heard, mut states) = (self.group.removal(), self.group.subscribe());
        while !self.group.was_removed() {
            let (heard, state) = (pin!(heard.changed()), pin!(states.changed()));
            let (Either::Left((alive, _)) | Either::Right((alive, _))) = select(heard, state).await;
            if alive.is_err() {
                return;
            }
        }
        if !self.leaves.get() {
            tracing::error!(
                "this node was removed from its cluster and stops; clear its data directory to let it bootstrap again"
            );
            // Its clients go first, before the disk is waited for.
            self.rt.request_stop();
            self.group.remember_removal().await;
        }
    }

    /// Whether this node has yet to fetch its share of the data.
    pub fn is_joining(&self) -> bool {
        let state = self.group.applied().state;
        state.member(self.own.host).is_some_and(|member| member.status == MemberStatus::Joining)
    }

    /// Chooses this node's tokens; returns when it has them, or others' topology changes took too long.
    ///
    /// # Errors
    /// [`MembershipError::Cluster`] when the log does not decide in time or refuses for another reason than a topology
    /// change under way.
    pub async fn take_tokens(&self) -> Result<(), MembershipError> {
        let deadline = self.rt.now() + STEP_TIMEOUT;
        if !self.own.initial_token.is_empty() {
            tracing::warn!(
                "initial_token is for a cluster's first node; this one's tokens are chosen for balance"
            );
        }
        let configured = self.own.num_tokens;
        match self.group.take_tokens(configured, deadline).await {
            Ok(Outcome::Refused(Refused::ChangeUnderWay { .. } | Refused::ReplicasMove { .. })) => {
                return Ok(());
            }
            other => refused(other)?,
        }
        let state = self.group.applied().state;
        let count = state.member(self.own.host).map_or(0, |member| member.tokens.len());
        if count != 0 && count != usize::from(configured) {
            tracing::warn!(
                "this node takes the {count} tokens of the one that it replaces, and num_tokens is {configured}: set num_tokens \
                 to {count} before its next start, or it will refuse to start"
            );
        }
        Ok(())
    }

    /// That this node is removed from its cluster will be because it leaves.
    pub fn expect_removal(&self) {
        self.leaves.set(true);
    }

    /// Returns when every live node that is not being removed has applied the log up to now: an empty change has then
    /// come through. The result has the nodes that confirmed that they use it: not those that went down meanwhile, nor those that were
    /// reached after it.
    ///
    /// # Errors
    /// [`MembershipError::Cluster`] when a live node has not applied it within the timeout of a step, or the log cannot
    /// be read.
    pub async fn wait_for_everyone(&self) -> Result<BTreeSet<HostId>, MembershipError> {
        let goes = |host| {
            let state = self.group.applied().state;
            state.member(host).is_some_and(|member| member.status == MemberStatus::Removing)
        };
        self.wait_for(|host| self.liveness.current().is_alive(host) && !goes(host)).await
    }

    /// The same of this node's own shards.
    ///
    /// # Errors
    /// As [`Membership::wait_for_everyone`].
    pub async fn wait_for_itself(&self) -> Result<(), MembershipError> {
        self.wait_for(|host| host == self.own.host).await.map(|_| ())
    }

    async fn wait_for(&self, who: impl Fn(HostId) -> bool) -> Result<BTreeSet<HostId>, MembershipError> {
        let deadline = self.rt.now() + STEP_TIMEOUT;
        loop {
            let base = self.group.applied().state.schema.version();
            match self.group.change_schema(base, Vec::new(), deadline, &who).await {
                Ok(agreement) if agreement.behind.is_empty() => return Ok(agreement.confirmed),
                Ok(agreement) => {
                    let behind = agreement.behind.len();
                    return Err(MembershipError::Cluster(format!(
                        "{behind} live nodes did not take over the change in time"
                    )));
                }
                Err(cluster::group::ChangeSchemaError::Moved) if self.rt.now() < deadline => {}
                Err(error) => return Err(MembershipError::Cluster(error.to_string())),
            }
        }
    }

    /// Has the cluster's log take a change over.
    ///
    /// # Errors
    /// [`MembershipError::Cluster`] when the log does not decide in time, or the state refuses the command.
    pub async fn propose(&self, command: Command) -> Result<(), MembershipError> {
        self.decide(command).await?.map_err(|why| MembershipError::Cluster(why.to_string()))
    }

    /// The same, where the caller looks at why the state refuses a command.
    ///
    /// # Errors
    /// [`MembershipError::Cluster`] when the log does not decide in time.
    pub async fn decide(&self, command: Command) -> Result<Result<(), Refused>, MembershipError> {
        let deadline = self.rt.now() + STEP_TIMEOUT;
        match self.group.propose(command, deadline).await {
            Ok(Outcome::Refused(why)) => Ok(Err(why)),
            Ok(_) => Ok(Ok(())),
            Err(error) => Err(MembershipError::Cluster(error.to_string())),
        }
    }

    /// The number of a member in the cluster's log.
    pub fn number_of(&self, host: HostId) -> Option<u64> {
        self.group.applied().state.member(host).map(|member| member.number)
    }

    /// Waits until a node that has left or was removed has no vote on the cluster's log: after that its end, or another node's, costs no majority. Not for
    /// ever: without a majority nobody takes a vote away.
    pub async fn wait_until_voteless(&self, number: u64) {
        if !self.group.vote_is_gone(number, self.rt.now() + VOTE_TIMEOUT).await {
            tracing::warn!(
                "a node that has left is still a voter of the Raft group: keep the other nodes running until a majority of them has removed its vote"
            );
        }
    }

    /// Removes this node from the log. The answer may not reach it; when the proposal fails, the others remove the node once it is down.
    pub async fn remove_itself(&self) {
        let (host, deadline) = (self.own.host, self.rt.now() + REMOVAL_TIMEOUT);
        let proposed = self.group.propose(Command::RemoveMember { host }, deadline).await;
        if let Err(error) = proposed
            && !self.group.was_removed()
        {
            tracing::info!(
                "this node is taken out of the cluster's log by the others when it is down: {error}"
            );
        }
    }

    /// A node that comes back catches up with the log before it serves, if a majority answers. If none does, each node that can be reached
    /// has said before that this one was not removed.
    ///
    /// # Errors
    /// [`MembershipError::Cluster`] when this node's part of the group has ended, as when it was removed. An
    /// unreachable majority is no error.
    pub async fn catch_up(&self, deadline: Instant) -> Result<(), MembershipError> {
        let asked = pin!(self.group.ask_whether_removed(&self.own.seeds, deadline));
        let caught_up = match select(pin!(self.group.barrier(deadline)), asked).await {
            Either::Left((Err(ProposeError::NoLeader), asked)) => {
                asked.await;
                Err(ProposeError::NoLeader)
            }
            Either::Left((caught_up, _)) => caught_up,
            Either::Right((false, caught_up)) => caught_up.await,
            Either::Right((true, _)) => Err(ProposeError::NoLeader),
        };
        if self.was_removed() {
            self.group.remember_removal().await;
            return Err(MembershipError::Cluster(GroupError::Removed.to_string()));
        }
        match caught_up {
            Ok(_) => Ok(()),
            Err(ProposeError::Stopped(why)) => Err(MembershipError::Cluster(why)),
            Err(_) => {
                tracing::warn!(
                    "no majority of the cluster can be reached: this node serves by its last known state of it"
                );
                Ok(())
            }
        }
    }

    /// Whether this node was removed from its cluster, and did not leave it itself.
    pub fn was_removed(&self) -> bool {
        !self.leaves.get() && self.group.was_removed()
    }

    /// Whether this node's disk is current, as far as the nodes know that have answered since the start.
    ///
    /// # Errors
    /// [`MembershipError::Cluster`] when a node that did not answer at first knows that this node's disk was rolled
    /// back.
    pub fn check_disk(&self) -> Result<(), MembershipError> {
        self.own.guard.found().map_or(Ok(()), |found| Err(MembershipError::Cluster(found.to_string())))
    }

    /// Announces to the others whether clients are served.
    pub fn set_ready(&self, ready: bool) {
        self.liveness.set(vec![(Key::RPC_READY, Bytes::from(ready.to_string()))]);
    }

    /// Announces to the others without which dead nodes the change of this host's place continues.
    pub(crate) fn announce_ignored(&self, subject: HostId, ignored: &BTreeSet<HostId>) {
        self.liveness.set(vec![(Key::IGNORED_NODES, ignored::announcement(subject, ignored))]);
    }

    /// Takes that back.
    pub(crate) fn announce_none_ignored(&self) {
        self.liveness.set(vec![(Key::IGNORED_NODES, Bytes::new())]);
    }

    /// The nodes that are named as dead for the topology change under way.
    pub(crate) fn ignored(&self, state: &ClusterState) -> BTreeSet<HostId> {
        ignored::named(state, &self.liveness.current())
    }

    /// Announces to the others how many bytes are stored here.
    pub fn set_load(&self, bytes: u64) {
        self.liveness.set(vec![(Key::LOAD, Bytes::from(bytes.to_string()))]);
    }

    /// Announces to the others that this node stops, and transfers its leaderships.
    pub async fn say_good_bye(&self) {
        let deadline = self.rt.now() + Duration::from_secs(2);
        self.group.step_down(deadline).await;
        self.liveness.stop().await;
    }

    /// Ends following.
    pub async fn stop(&self) {
        let task = self.task.borrow_mut().take();
        if let Some(task) = task {
            task.cancel().await;
        }
        self.group.stop().await;
    }

    /// Returns when every member is alive and has reached this node, or at the deadline. A client that then learns that this
    /// node serves, and restarts the next one, finds that nobody still has this one convicted.
    pub async fn hear_of_others(&self, deadline: Instant) {
        let mut version = 0;
        while self.rt.now() < deadline {
            let liveness = self.liveness.current();
            let state = self.group.applied().state;
            let met = |host: &HostId| {
                liveness.is_alive(*host) && (*host == self.own.host || self.liveness.is_reached_by(*host))
            };
            if state.members.keys().all(met) {
                return;
            }
            let news = std::pin::pin!(self.liveness.newer_than(version));
            let end = std::pin::pin!(self.rt.sleep_until(deadline));
            if let Either::Left((liveness, _)) = select(news, end).await {
                version = liveness.version;
            }
        }
    }
}

fn refused(outcome: Result<Outcome, cluster::group::ProposeError>) -> Result<(), MembershipError> {
    match outcome {
        Ok(Outcome::Refused(why)) => Err(MembershipError::Cluster(why.to_string())),
        Ok(_) => Ok(()),
        Err(error) => Err(MembershipError::Cluster(error.to_string())),
    }
}

fn schema_version(schema: &Schema) -> String {
    schema::TableId(schema.version()).to_string()
}

fn addresses(state: &ClusterState) -> BTreeMap<HostId, SocketAddr> {
    state.members.iter().map(|(host, member)| (*host, member.info.internode)).collect()
}

/// How keyspaces are replicated: while the replicas of one move, reads find it as it was until all is fetched.
fn replications(state: &ClusterState) -> BTreeMap<String, Replicated> {
    let change = state.change.as_ref();
    let switched = change.is_some_and(|change| change.step == ChangeStep::Switched);
    let replicated = |keyspace: &Keyspace| {
        let to_be = keyspace.replication.clone();
        if let Some(before) = state.deferred.get(&keyspace.name) {
            return Replicated { now: before.clone(), other: None };
        }
        match change.and_then(|change| change.alters.get(&keyspace.name)).cloned() {
            None => Replicated { now: to_be, other: None },
            Some(before) if switched => Replicated { now: to_be, other: Some(before) },
            Some(before) => Replicated { now: before, other: Some(to_be) },
        }
    };
    state.schema.keyspaces().map(|keyspace| (keyspace.name.clone(), replicated(keyspace))).collect()
}

/// The members that join.
fn joining(state: &ClusterState) -> impl Iterator<Item = HostId> {
    let joins = |(_, member): &(&HostId, &Member)| member.status == MemberStatus::Joining;
    state.members.iter().filter(joins).map(|(host, _)| *host)
}

/// The cluster as requests are to see it, where joining nodes of `new` need not have been reached to be up; none when the node has no place in it.
fn view(
    own: HostId,
    state: &ClusterState,
    liveness: &Liveness,
    new: &BTreeSet<HostId>,
    before: Option<&ClusterView>,
) -> Option<ClusterView> {
    let node = |(host, member): (&HostId, &Member)| {
        let phase = match member.status {
            MemberStatus::Joining => Phase::Joining,
            MemberStatus::Normal => Phase::Normal,
            MemberStatus::Leaving => Phase::Leaving,
            MemberStatus::Removing => Phase::Removing,
            // Until its clients have gone it coordinates for them, by the ring of which it is no part.
            MemberStatus::Left => Phase::Joining,
        };
        let has_left = member.status == MemberStatus::Left;
        let said = |key| {
            let endpoint = liveness.endpoint(*host)?;
            let state = endpoint.states.get(&key)?;
            std::str::from_utf8(&state.value).ok().map(str::to_owned)
        };
        // A node that has just begun to join, and was not reached yet, is not dead: it is in the log, and its token is about to be known.
        let met = liveness
            .peers
            .get(host)
            .is_some_and(|peer| peer.standing != Standing::Down(DownReason::NotReached));
        let is_new = member.status == MemberStatus::Joining && !met && new.contains(host);
        // Nobody waits for a node that is being removed, though this node may not have convicted it yet.
        let goes = member.status == MemberStatus::Removing && *host != own;
        let alive = (liveness.is_alive(*host) || is_new) && !goes;
        // A change of the schema has been waited for at every live node: they have this node's.
        let schema_version = match alive || *host == own {
            true => None,
            false => said(Key::SCHEMA).and_then(|text| cluster::parse_id(&text)).map(|id| id.0),
        };
        ViewNode {
            host: *host,
            native: member.info.native,
            internode: member.info.internode,
            location: member.info.location.clone(),
            shards: member.info.shard_count.max(1),
            tokens: if has_left { Vec::new() } else { member.tokens.clone() },
            alive,
            phase,
            ready: *host == own || said(Key::RPC_READY).as_deref() == Some("true"),
            release_version: said(Key::RELEASE_VERSION)
                .unwrap_or_else(|| member.info.release_version.clone()),
            schema_version,
        }
    };
    let is_gone = |(host, member): &(&HostId, &Member)| member.status == MemberStatus::Left && **host != own;
    let (departed, nodes): (Vec<_>, Vec<_>) = state.members.iter().partition(is_gone);
    let [departed, nodes] =
        [departed, nodes].map(|members| members.into_iter().map(node).collect::<Vec<_>>());
    if !nodes.iter().any(|node| node.host == own) {
        return None;
    }
    let switched = state.change.as_ref().is_some_and(|change| change.step == ChangeStep::Switched);
    made(before, switched, own, nodes)
        .inspect_err(|error| tracing::error!("invalid ring of the cluster's members: {error}"))
        .ok()
        .map(|view| {
            let generations = liveness.peers.iter().map(|(host, peer)| (*host, peer.endpoint.generation));
            let view = view.with_departed(departed).with_generations(generations.collect());
            let view = view.with_ignored(ignored::named(state, liveness));
            with_log(view, state, |host| host == own || liveness.is_alive(host))
        })
}

/// The view of these nodes, from the one before where there was one.
fn made(
    before: Option<&ClusterView>,
    switched: bool,
    own: HostId,
    nodes: Vec<ViewNode>,
) -> Result<ClusterView, topology::RingError> {
    match before {
        Some(before) => ClusterView::after(before, nodes, switched),
        None if switched => ClusterView::switched(own, nodes),
        None => ClusterView::new(own, nodes),
    }
}

/// A view with all else that it has of a state of the log.
fn with_log(view: ClusterView, state: &ClusterState, is_here: impl Fn(HostId) -> bool) -> ClusterView {
    // One whose replacement is gone again may come back.
    let replaced = state.members.iter().filter(|(host, _)| is_here(**host));
    let replaced = replaced.filter_map(|(_, member)| member.replaces).collect();
    let present = state.members.values().filter(|member| member.status != MemberStatus::Left);
    let oldest = present.map(|member| member.info.state_version).min().unwrap_or(u32::MAX);
    let view = view.numbered(state.topology_version, state.fence).with_declared_dead(replaced);
    let view = view.with_oldest_version(oldest);
    view.replicating(replications(state))
}
