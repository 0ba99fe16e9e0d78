//! Operators' requests: decommission, removenode and the like. Each is written into the cluster's log and then waited for; a second
//! request, or the end of the connection, does not change it.

use std::collections::BTreeSet;

use cluster::state::{ClusterState, Command, MemberStatus, Refused};
use futures_util::future::select;
use schema::TableId;
use topology::HostId;

use super::allowed::{self, Removal};
use super::{Inner, PERIOD, TURN_PAUSE, TopologyChanges};

/// The answer to a decommission that an operator took back.
const CANCELLED: &str = "the decommission was cancelled";

/// A topology change that an operator asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologyRequest {
    /// This node leaves; with `force` also when too few nodes stay for all replicas.
    Decommission {
        /// Also when replicas are lost.
        force: bool,
    },
    /// This node, which leaves, stays.
    AbortDecommission,
    /// A dead node goes, and the others stream its ranges from each other.
    Remove {
        /// The host.
        host: HostId,
        /// Other dead nodes, for whose data and whose streaming nobody waits.
        ignored: BTreeSet<HostId>,
    },
    /// A node that is being removed goes at once.
    ForceRemoval,
    /// This node, which only coordinates, enters the ring.
    Join,
    /// This node fetches all that it owns: from a datacenter, or from wherever there are replicas.
    Rebuild {
        /// Which datacenter.
        source: Option<String>,
    },
    /// The rebuild that is under way ends; streamed data stays.
    AbortRebuild,
    /// Data that this node does not own is dropped from these tables.
    Cleanup {
        /// Which tables.
        tables: Vec<TableId>,
    },
    /// A dead node goes at once, and nobody streams its ranges.
    Assassinate {
        /// The host.
        host: HostId,
    },
}

impl TopologyChanges {
    /// Runs an operator's topology change, and returns when it has completed.
    ///
    /// # Errors
    /// The operator's message when the change may not begin (another one is under way, too few nodes, an unknown host),
    /// is aborted, or is not decided in time.
    pub async fn ask(&self, request: TopologyRequest) -> Result<(), String> {
        let inner = &self.0;
        match request {
            TopologyRequest::Decommission { force } => inner.decommission(force).await,
            TopologyRequest::AbortDecommission => inner.abort_decommission().await,
            TopologyRequest::Remove { host, ignored } => inner.remove(host, &ignored).await,
            TopologyRequest::ForceRemoval => inner.force_removal().await,
            TopologyRequest::Assassinate { host } => inner.assassinate(host).await,
            TopologyRequest::Join => inner.join().await,
            TopologyRequest::Rebuild { source } => inner.rebuild(source).await,
            TopologyRequest::AbortRebuild => inner.abort_rebuild().await,
            TopologyRequest::Cleanup { tables } => inner.cleanup_asked(&tables).await,
        }
    }
}

impl Inner {
    async fn decommission(&self, force: bool) -> Result<(), String> {
        self.begin_to_leave(force).await?;
        tracing::info!("decommission: leaving the ring; the new replicas stream the ranges of this node");
        let over = |state: &ClusterState| {
            *self.has_left.get() || self.status_in(state) == Some(MemberStatus::Normal)
        };
        self.wait_until(over).await;
        match *self.has_left.get() {
            true => Ok(()),
            false => Err(CANCELLED.to_owned()),
        }
    }

    /// Has the log take over that this node leaves: after the replicas have moved of a keyspace whose replication was changed.
    async fn begin_to_leave(&self, force: bool) -> Result<(), String> {
        let (host, aborts) = (self.own(), self.aborts.get());
        let may_leave =
            |state: &ClusterState| allowed::decommission(state, host, force, |host| self.is_alive(host));
        loop {
            let state = self.state();
            may_leave(&state)?;
            if let Some(change) = state.change.as_ref().filter(|change| !change.alters.is_empty()) {
                let number = change.number;
                tracing::info!(
                    "decommission: queued behind another topology change: {}",
                    self.progress(&state)
                );
                let is_over = |state: &ClusterState| {
                    let same = state.change.as_ref().is_some_and(|change| change.number == number);
                    !same || self.aborts.get() != aborts || may_leave(state).is_err()
                };
                self.queued.set(self.queued.get() + 1);
                self.wait_until(is_over).await;
                self.queued.set(self.queued.get() - 1);
                if self.aborts.get() != aborts {
                    return Err(CANCELLED.to_owned());
                }
                continue;
            }
            for keyspace in allowed::expended(&state, host) {
                tracing::warn!(
                    "decommission: keyspace {keyspace} loses a replica, as fewer nodes stay than its replication factor; that is harmless"
                );
            }
            let status = MemberStatus::Leaving;
            let decided = self.membership.decide(Command::SetStatus { host, status }).await;
            match decided.map_err(|error| error.to_string())? {
                Ok(()) => return Ok(()),
                // This node has yet to read of it in the log.
                Err(Refused::ReplicasMove { .. }) => self.rt.sleep(TURN_PAUSE).await,
                Err(why) => return Err(self.explained(why)),
            }
        }
    }

    /// The ring is entered by the task that follows the log, as soon as there are tokens.
    async fn join(&self) -> Result<(), String> {
        if self.status_in(&self.state()) != Some(MemberStatus::Joining) {
            return Err("This node has already joined the ring.".to_owned());
        }
        self.take_tokens().await.map_err(|error| error.to_string())?;
        self.wait_until(|state| self.status_in(state) != Some(MemberStatus::Joining)).await;
        Ok(())
    }

    async fn abort_decommission(&self) -> Result<(), String> {
        let host = self.own();
        if self.queued.get() > 0 {
            self.aborts.set(self.aborts.get() + 1);
            tracing::info!(
                "this node stays in the cluster: its decommission, which was queued, was cancelled"
            );
            return Ok(());
        }
        if self.status_in(&self.state()) != Some(MemberStatus::Leaving) {
            return Err("this node is not leaving".to_owned());
        }
        allowed::abort(&self.state(), host)?;
        self.propose(Command::SetStatus { host, status: MemberStatus::Normal }).await?;
        tracing::info!("this node stays in the cluster: its decommission was cancelled");
        Ok(())
    }

    async fn remove(&self, host: HostId, ignored: &BTreeSet<HostId>) -> Result<(), String> {
        let state = self.state();
        if state.was_removed(host) {
            return Err(
                "Host ID not found: that node was removed from the cluster, or has left it, already."
                    .to_owned(),
            );
        }
        match allowed::remove(&state, self.own(), host, self.is_alive(host))? {
            Removal::AtOnce => return self.remove_member(host).await,
            Removal::Fetch => {}
        }
        allowed::ignore(&state, ignored, |host| self.is_alive(host))?;
        if ignored.is_empty() {
            return self.remove_when_fetched(host).await;
        }
        self.ignore(&state, host, ignored);
        let removed = self.remove_when_fetched(host).await;
        self.membership.announce_none_ignored();
        removed
    }

    /// Has the topology change of a host go on without other dead nodes.
    fn ignore(&self, state: &ClusterState, subject: HostId, ignored: &BTreeSet<HostId>) {
        let hosts: Vec<HostId> = ignored.iter().copied().collect();
        tracing::warn!(
            "the topology change of host {} continues without the dead nodes {}: writes that only they and it have are missing afterwards; remove or replace \
             them next, and run repair",
            name(subject),
            self.names(state, &hosts)
        );
        self.membership.announce_ignored(subject, ignored);
    }

    /// A replacement: has its change go on without the dead nodes that its configuration names.
    ///
    /// # Errors
    /// The operator's message when a name is none of the cluster's nodes, or there are too many.
    pub(super) fn ignore_configured(&self) -> Result<(), String> {
        let (state, names) = (self.state(), &self.membership.config().ignored);
        let replaces = state.member(self.own()).is_some_and(|member| member.replaces.is_some());
        if !replaces || names.is_empty() {
            return Ok(());
        }
        let option = |why: String| format!("ignore_dead_nodes_for_replace: {why}");
        let mut ignored = BTreeSet::new();
        for named in names {
            match cluster::parse_id(named).map(|id| HostId(id.0)) {
                Some(host) if state.was_removed(host) => {}
                _ => _ = ignored.insert(allowed::find(&state, named).map_err(option)?),
            }
        }
        allowed::ignore(&state, &ignored, |_| false).map_err(option)?;
        self.ignore(&state, self.own(), &ignored);
        Ok(())
    }

    /// Removes a node when the others have streamed its ranges.
    async fn remove_when_fetched(&self, host: HostId) -> Result<(), String> {
        let number = self.membership.number_of(host);
        self.propose(Command::SetStatus { host, status: MemberStatus::Removing }).await?;
        tracing::info!("host {} is removed: the others stream its ranges from each other", name(host));
        let removing = |state: &ClusterState| {
            state.member(host).is_some_and(|member| member.status == MemberStatus::Removing)
        };
        self.wait_until(|state| !removing(state)).await;
        match self.state().was_removed(host) {
            true => self.has_no_vote(number).await,
            false => return Err("the removal was cancelled".to_owned()),
        }
        Ok(())
    }

    /// Takes a node out of the log, and its vote from it.
    async fn remove_member(&self, host: HostId) -> Result<(), String> {
        let number = self.membership.number_of(host);
        self.propose(Command::RemoveMember { host }).await?;
        self.has_no_vote(number).await;
        Ok(())
    }

    /// An operator whose request has returned may switch off the next node.
    async fn has_no_vote(&self, number: Option<u64>) {
        if let Some(number) = number {
            self.membership.wait_until_voteless(number).await;
        }
    }

    /// Ends a removal without waiting for data that is not fetched yet.
    async fn force_removal(&self) -> Result<(), String> {
        let Some(host) = allowed::being_removed(&self.state()) else {
            return Err("No nodes to force removal on, call 'removenode' first".to_owned());
        };
        tracing::warn!(
            "removenode force: host {} is removed before its ranges are streamed; run repair",
            name(host)
        );
        self.remove_member(host).await
    }

    /// Removes a dead node at once: nobody streams its ranges.
    async fn assassinate(&self, host: HostId) -> Result<(), String> {
        allowed::remove(&self.state(), self.own(), host, self.is_alive(host))?;
        tracing::warn!("assassinate: host {} is removed without streaming its data; run repair", name(host));
        self.remove_member(host).await
    }

    async fn propose(&self, command: Command) -> Result<(), String> {
        let decided = self.membership.decide(command).await.map_err(|error| error.to_string())?;
        decided.map_err(|why| self.explained(why))
    }

    /// Why a change is refused; where it is because of another one, with that one's progress as far as this node knows it.
    fn explained(&self, why: Refused) -> String {
        let is_other = matches!(why, Refused::ChangeUnderWay { .. } | Refused::ReplicasMove { .. });
        match Some(self.progress(&self.state())).filter(|progress| is_other && !progress.is_empty()) {
            Some(progress) => format!("{why}. Under way: {progress}"),
            None => why.to_string(),
        }
    }

    pub(super) async fn wait_until(&self, over: impl Fn(&ClusterState) -> bool) {
        let mut states = self.membership.group().subscribe();
        while !over(&self.state()) {
            let changed = std::pin::pin!(states.changed());
            let period = std::pin::pin!(self.rt.sleep(PERIOD));
            select(changed, period).await;
        }
    }
}

fn name(host: HostId) -> String {
    TableId(host.0).to_string()
}
