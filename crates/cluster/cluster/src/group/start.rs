//! How a node comes into its group: from its log, as the first of a new cluster, or let in by a seed.

use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use raft::{Membership, Snapshot, Stored};
use rpc::{Messenger, Refusal, RpcError, Target, Verb};
use rt::{Group as Tasks, Instant, Rt, ShardId};

use super::driver::Driver;
use super::error::{GroupError, JoinError};
use super::handle::Group;
use super::inner::{Applied, GroupConfig, Inner};
use super::log::{LogError, RaftLog};
use super::serve::{self, JoinResponder, JoinState};
use super::wire::{self, JoinAnswer, JoinRequest, code};
use crate::dropped::DropLog;
use crate::rollback::RollbackGuard;
use crate::state::{ClusterState, Command, Outcome, Refused};
use crate::store::{self, SchemaStore};

pub(super) const FOLDER: &str = "raft";
/// A file that is there when another node has said that this one was removed: it never serves its data again, also where no
/// other node can be reached at its next start.
const REMOVED_MARK: &str = "removed";
/// The schema of a node that has a log now.
const OLD_SCHEMA: &str = "schema.json.before-raft";
/// How long a seed is given to let a node in.
const JOIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of the question to the node's earlier address.
const ASK_TIMEOUT: Duration = Duration::from_secs(3);
/// Between two rounds over the seeds.
const JOIN_PAUSE: Duration = Duration::from_millis(500);
/// How long a node keeps announcing its address.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(10);

/// The state that a node finds on its disk at its start.
pub enum Opened {
    /// It belongs to a cluster.
    Member(Group),
    /// It belongs to none yet.
    Blank(Blank),
}

/// A node without a cluster.
pub struct Blank {
    rt: Rt,
    messenger: Messenger,
    config: GroupConfig,
    responder: JoinResponder,
}

/// The result of a round over the seeds.
enum Round {
    /// A seed lets the node in.
    Joined(JoinAnswer),
    /// Every seed has said that it has no cluster.
    NoCluster,
    /// No seed admits it, and for some seed it is unknown whether it has a cluster: the answer of each.
    Unknown(String),
}

impl Group {
    /// Opens this node's part of the group; its committed entries are applied again when this returns. To be called once a
    /// messenger, on shard 0.
    ///
    /// # Errors
    /// [`GroupError::Log`], [`GroupError::Disk`] and [`GroupError::BadLog`] when the log cannot be read or contradicts
    /// itself, [`GroupError::Snapshot`] and [`GroupError::Entry`] when this version cannot decode it,
    /// [`GroupError::OtherCluster`], [`GroupError::Removed`], [`GroupError::HostIdTaken`], [`GroupError::RolledBack`]
    /// and those of a changed place or token count when the node must not start.
    pub async fn open(rt: &Rt, messenger: &Messenger, config: GroupConfig) -> Result<Opened, GroupError> {
        assert_eq!(rt.shard(), ShardId(0), "the cluster's log lives on shard 0");
        let directory = config.directory.join(FOLDER);
        if rt.disk().exists(&config.directory.join(REMOVED_MARK)).await? {
            return Err(GroupError::Removed);
        }
        let responder = JoinResponder::open(messenger);
        let blank = |config: GroupConfig| {
            let (rt, messenger, responder) = (rt.clone(), messenger.clone(), responder.clone());
            config.rollback.iter().for_each(RollbackGuard::clear);
            Opened::Blank(Blank { rt, messenger, config, responder })
        };
        let Some((log, stored)) = RaftLog::open(rt, &directory).await? else { return Ok(blank(config)) };
        if stored.snapshot.is_none() {
            // It was admitted, and the group has not reached it since: it asks again, and gets the same number.
            return Ok(blank(config));
        }
        put_away_old_schema(rt, &config.directory).await?;
        let (group, driver) = begin(rt, messenger, config, log, stored).await?;
        let (state, config) = (group.inner.state(), &group.inner.config);
        if state.cluster_name != config.cluster_name {
            let (expected, found) = (config.cluster_name.clone(), state.cluster_name.clone());
            return Err(GroupError::OtherCluster { expected, found });
        }
        if state.was_removed(config.host) {
            return Err(GroupError::Removed);
        }
        group.check_place()?;
        if let Some(address) = group.lives_elsewhere().await {
            return Err(GroupError::HostIdTaken { address });
        }
        if let Some(guard) = &group.inner.config.rollback {
            group.inner.publish_peers();
            guard.check(messenger, &group.inner.witnesses()).await?;
        }
        if group.was_removed() {
            group.remember_removal().await;
            return Err(GroupError::Removed);
        }
        run(&group, driver, &responder);
        Ok(Opened::Member(group))
    }

    /// Remembers on disk that this node was removed from the cluster.
    pub async fn remember_removal(&self) {
        let Inner { rt, config, .. } = &*self.inner;
        let path = config.directory.join(REMOVED_MARK);
        if let Err(error) = rt.disk().write_atomically(&path, b"").await {
            tracing::warn!("that this node was removed cannot be stored at {}: {error}", path.display());
        }
    }

    /// Replicas are chosen by where nodes stand and by their tokens: one that owns tokens cannot stand elsewhere from one moment to
    /// the next, nor have more of them or fewer.
    fn check_place(&self) -> Result<(), GroupError> {
        let (state, config) = (self.inner.state(), &self.inner.config);
        let Some(member) = state.member(config.host).filter(|member| !member.tokens.is_empty()) else {
            return Ok(());
        };
        let (last, configured) = (&member.info.location, &config.info.location);
        for (what, last, configured) in [
            ("data center", &last.datacenter, &configured.datacenter),
            ("rack", &last.rack, &configured.rack),
        ] {
            if last != configured {
                let (configured, last) = (configured.to_string(), last.to_string());
                return Err(GroupError::StoodElsewhere { what, configured, last });
            }
        }
        let last = member.tokens.len();
        if let Some(configured) = config.token_count.filter(|configured| *configured != last) {
            return Err(GroupError::OtherTokenCount { configured, last });
        }
        Ok(())
    }

    /// The address of a node with this one's host id, if one answers at the address of its last process: two that run on copies of one
    /// log would both vote.
    async fn lives_elsewhere(&self) -> Option<SocketAddr> {
        let Inner { rt, messenger, config, .. } = &*self.inner;
        let last = self.inner.state().member(config.host)?.info.internode;
        if last == config.info.internode {
            return None;
        }
        let deadline = rt.now() + ASK_TIMEOUT;
        let answer = messenger.call(Target::Address(last), Verb::Echo, Bytes::new(), deadline).await;
        (answer == Err(RpcError::SameHost(last))).then_some(last)
    }
}

impl Blank {
    /// Founds a cluster with this node as its only member, in force, with these tokens. The schema of a node that had no log
    /// until now is adopted.
    ///
    /// # Errors
    /// [`GroupError::Store`] when the schema of a node without a log cannot be read, [`GroupError::Log`] and
    /// [`GroupError::Disk`] when the log cannot be created.
    pub async fn start_first_node(self, tokens: Vec<i64>) -> Result<Group, GroupError> {
        let Self { rt, messenger, config, responder } = self;
        responder.set(JoinState::Starting);
        let old = SchemaStore::open(&rt, &config.directory, config.own.clone()).await?;
        let schema = schema::Schema::clone(old.current());
        let (name, own) = (config.cluster_name.clone(), config.own.clone());
        let state = ClusterState::found(name, own, schema, config.host, config.info.clone(), tokens);
        let mut id = [0; 16];
        rt.fill_random(&mut id);
        id[6] = (id[6] & 0x0f) | 0x40;
        id[8] = (id[8] & 0x3f) | 0x80;
        let data = state.with_id(id).encode_in_steps().await.into();
        let snapshot = Snapshot { index: 1, term: 1, membership: Membership::alone(1), data };
        let hard_state = raft::HardState { term: 1, vote: 0, commit: 1 };
        let stored = Stored { hard_state, snapshot: Some(snapshot), entries: Vec::new() };
        let log = RaftLog::create(&rt, &config.directory.join(FOLDER), 1, &stored).await?;
        put_away_old_schema(&rt, &config.directory).await?;
        let (group, driver) = begin(&rt, &messenger, config, log, stored).await?;
        let founder = group.inner.host_of(1);
        assert_eq!(founder, Some(group.inner.config.host), "the founder has the number of the only vote");
        run(&group, driver, &responder);
        Ok(group)
    }

    /// Asks seeds to be let in, until one does or the deadline comes, and waits for the cluster's state. The node is joining then,
    /// and owns nothing.
    ///
    /// # Errors
    /// [`JoinError::NoSeeds`], [`JoinError::NoSeed`] when none admits it before the deadline, [`JoinError::Refused`]
    /// when the cluster never will, [`JoinError::NoState`] when the state does not arrive, [`JoinError::Group`] as
    /// [`Group::open`].
    pub async fn join(self, seeds: &[SocketAddr], deadline: Instant) -> Result<Group, JoinError> {
        let own = self.config.info.internode;
        let others: Vec<SocketAddr> = seeds.iter().copied().filter(|seed| *seed != own).collect();
        if others.is_empty() {
            return Err(JoinError::NoSeeds);
        }
        self.responder.set(JoinState::Blank { founds: false });
        let mut told = String::new();
        loop {
            let tried = match self.ask_all(&others, deadline).await? {
                Round::Joined(answer) => return self.enter(answer, deadline).await,
                Round::NoCluster => "no seed has a cluster: start the first of the seeds".to_owned(),
                Round::Unknown(tried) => tried,
            };
            if tried != told {
                tracing::info!("cannot join by any seed yet ({tried}); retrying");
                told.clone_from(&tried);
            }
            if self.rt.now() + JOIN_PAUSE >= deadline {
                return Err(JoinError::NoSeed { tried });
            }
            self.rt.sleep(JOIN_PAUSE).await;
        }
    }

    /// Joins the cluster of the seeds, or founds it: the first seed of the list does when every other seed has said that it has no
    /// cluster, or, where that was asked for ([`GroupConfig::new_cluster`]), when no seed that answers has one. A seed that does not
    /// answer may have one: this node's disk may have been wiped. The same list on all nodes makes one cluster.
    ///
    /// # Errors
    /// Refused by the cluster, or not known until the deadline whether there is one.
    pub async fn found_or_join(
        self,
        seeds: &[SocketAddr],
        tokens: Vec<i64>,
        deadline: Instant,
    ) -> Result<Group, JoinError> {
        let own = self.config.info.internode;
        if seeds.first().is_some_and(|first| *first != own) && !self.config.new_cluster {
            return self.join(seeds, deadline).await;
        }
        self.responder.set(JoinState::Blank { founds: true });
        let others: Vec<SocketAddr> = seeds.iter().copied().filter(|seed| *seed != own).collect();
        let mut told = String::new();
        loop {
            let tried = match self.ask_all(&others, deadline).await? {
                Round::Joined(answer) => return self.enter(answer, deadline).await,
                Round::Unknown(tried) if !self.config.new_cluster => tried,
                Round::NoCluster | Round::Unknown(_) => return Ok(self.start_first_node(tokens).await?),
            };
            if tried != told {
                tracing::warn!(
                    "this node would found the cluster, and waits until it is known of every seed that it has none ({tried})"
                );
                told.clone_from(&tried);
            }
            if self.rt.now() + JOIN_PAUSE >= deadline {
                return Err(JoinError::Unsure { tried });
            }
            self.rt.sleep(JOIN_PAUSE).await;
        }
    }

    /// One round over the seeds: the first answer, or the answer of each. A refusal that time does not heal ends the round.
    async fn ask_all(&self, seeds: &[SocketAddr], deadline: Instant) -> Result<Round, JoinError> {
        let own = self.config.info.internode;
        let nowhere = self.config.unresolved_seeds.iter();
        let mut tried: Vec<String> = nowhere.map(|seed| format!("{seed}: it has no address")).collect();
        for seed in seeds {
            let until = deadline.min(self.rt.now() + JOIN_TIMEOUT);
            match self.ask(*seed, until).await {
                Ok(answer) if answer.is_readable() => return Ok(Round::Joined(answer)),
                Ok(answer) => {
                    let version = answer.state_version;
                    let reason = format!(
                        "the cluster's state has version {version}, which this node does not read; upgrade its software"
                    );
                    return Err(JoinError::Refused { seed: *seed, reason });
                }
                Err(RpcError::Refused(Refusal { code: code::JOIN_REFUSED, message })) => {
                    return Err(JoinError::Refused { seed: *seed, reason: message });
                }
                Err(RpcError::Mismatch(reason) | RpcError::Removed(reason)) => {
                    return Err(JoinError::Refused { seed: *seed, reason });
                }
                Err(RpcError::Refused(Refusal { code: code::BLANK, .. })) => {}
                // Of two that may both found a cluster, the one with the lower address does.
                Err(RpcError::Refused(Refusal { code: code::BLANK_FOUNDER, .. })) if own < *seed => {}
                // This node itself, by another address.
                Err(RpcError::SameHost(_)) => {}
                Err(error) => tried.push(format!("{seed}: {error}")),
            }
        }
        Ok(if tried.is_empty() { Round::NoCluster } else { Round::Unknown(tried.join("; ")) })
    }

    async fn ask(&self, seed: SocketAddr, deadline: Instant) -> Result<JoinAnswer, RpcError> {
        let GroupConfig { cluster_name, host, info, replaces, .. } = &self.config;
        let request = JoinRequest {
            cluster_name: cluster_name.clone(),
            host: *host,
            info: info.clone(),
            replaces: replaces.clone(),
        };
        let body = wire::encode_json(&request);
        let answer = self.messenger.call(Target::Address(seed), Verb::Join, body, deadline).await?;
        wire::decode_json(&answer).map_err(|error| RpcError::Mismatch(error.to_string()))
    }

    /// The node is admitted: a blank log with its number, and then the leader's messages.
    async fn enter(self, answer: JoinAnswer, deadline: Instant) -> Result<Group, JoinError> {
        let Self { rt, messenger, config, responder } = self;
        responder.set(JoinState::Starting);
        let directory = config.directory.join(FOLDER);
        let known = RaftLog::open(&rt, &directory).await.map_err(GroupError::from)?;
        let (log, stored) = match known {
            Some((log, stored)) if log.member() == answer.number => (log, stored),
            _ => {
                if rt.disk().is_dir(&directory).await.map_err(GroupError::from)? {
                    rt.disk().remove_dir_all(&directory).await.map_err(GroupError::from)?;
                }
                let stored = Stored::default();
                let log = RaftLog::create(&rt, &directory, answer.number, &stored).await;
                (log.map_err(GroupError::from)?, stored)
            }
        };
        assert_eq!(log.member(), answer.number, "the log is of the number that the cluster gave");
        let own = config.info.internode;
        let host = config.host;
        let (group, driver) = begin(&rt, &messenger, config, log, stored).await?;
        group.inner.cluster_id.set(answer.cluster_id);
        group.inner.greet(answer.peers.iter().filter(|peer| peer.host != host));
        run(&group, driver, &responder);
        let member = |applied: &Applied| applied.state.member(host).is_some();
        match group.wait_for(deadline, member).await {
            Some(_) => Ok(group),
            None => {
                group.stop().await;
                Err(JoinError::NoState { own })
            }
        }
    }
}

/// The driver, with the entries on disk applied. It does not run yet.
async fn begin(
    rt: &Rt,
    messenger: &Messenger,
    config: GroupConfig,
    log: RaftLog,
    stored: Stored,
) -> Result<(Group, Driver), GroupError> {
    let drops = DropLog::open(rt.disk(), &config.directory).await?;
    let state = ClusterState::unknown(config.cluster_name.clone(), config.own.clone());
    let applied = Applied { index: 0, state: Arc::new(state) };
    let inner = Inner::new(rt, messenger, config, applied);
    inner.drops.replace(drops.tables().to_vec());
    let weak = Rc::downgrade(&inner);
    messenger.on_removed(move |_| weak.upgrade().iter().for_each(|inner| inner.end_removed()));
    let driver = Driver::new(&inner, log, drops, stored).await?;
    let group = Group { inner, tasks: Rc::default() };
    Ok((group, driver))
}

/// Runs the driver, answers others, and notifies them of this node's address when it has moved.
fn run(group: &Group, driver: Driver, responder: &JoinResponder) {
    let rt = &group.inner.rt;
    group.tasks.borrow_mut().push(rt.spawn(Tasks::Maintenance, driver.run()));
    serve::serve(group, responder);
    group.inner.publish_peers();
    if let Some(guard) = group.inner.config.rollback.clone() {
        let inner = group.inner.clone();
        let asking = async move {
            guard.go_on(&inner.messenger, || inner.witnesses()).await;
            if let Some(found) = guard.found() {
                inner.stop.set(true);
                inner.end(&found.to_string());
                inner.wake.notify_one();
            }
        };
        group.tasks.borrow_mut().push(rt.spawn(Tasks::Maintenance, asking));
    }
    let (host, info) = (group.inner.config.host, group.inner.config.info.clone());
    let state = group.inner.state();
    if state.member(host).is_none_or(|member| member.info == info) {
        return;
    }
    let announcer = group.clone();
    let announce = async move {
        let mut told = false;
        loop {
            let command = Command::UpdateMember { host, info: info.clone() };
            let deadline = announcer.inner.rt.now() + ANNOUNCE_TIMEOUT;
            match announcer.propose(command, deadline).await {
                // The other one may have moved, too, and be about to say so.
                Ok(Outcome::Refused(why @ Refused::AddressTaken { .. })) => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!("the cluster does not accept this node's address yet: {why}");
                    }
                    announcer.inner.rt.sleep(ANNOUNCE_TIMEOUT).await;
                }
                Ok(Outcome::Refused(why)) => {
                    return tracing::error!("the cluster does not accept this node's description: {why}");
                }
                Ok(_) => return,
                Err(error) => tracing::warn!("this node's address or version is not announced yet: {error}"),
            }
            if announcer.inner.ended.get().is_some() {
                return;
            }
        }
    };
    let task = group.inner.rt.spawn(Tasks::Maintenance, announce);
    group.tasks.borrow_mut().push(task);
}

/// The schema is in the log now; its old file stays for emergencies under another name.
async fn put_away_old_schema(rt: &Rt, directory: &Path) -> Result<(), LogError> {
    let old = directory.join(store::FILE_NAME);
    if rt.disk().exists(&old).await? {
        rt.disk().rename(&old, directory.join(OLD_SCHEMA)).await?;
        rt.disk().sync_dir(directory).await?;
    }
    Ok(())
}
