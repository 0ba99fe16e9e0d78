//! A topology change: a node joins, leaves, is removed or is replaced, or a keyspace's replication changes. One at a time: the streams of each node follow
//! from the current and the pending topology version, and that is true for one change only.
//!
//! The steps are in the log, so that every participant finds its step again after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schema::{Keyspace, Replication, Schema};
use topology::{HostId, Placement};

use super::ClusterState;
use super::command::{Outcome, Refused};
use super::member::MemberStatus;
use super::topology_change::{ChangeStep, TopologyChange};

/// The error of another change while replicas move.
pub(super) fn replicas_move(change: &TopologyChange) -> Refused {
    Refused::ReplicasMove { keyspace: change.alters.keys().next().cloned().unwrap_or_default() }
}

impl ClusterState {
    /// Whether a change that is not of this host's place is under way.
    pub(super) fn check_no_other_change(&self, host: HostId) -> Result<(), Refused> {
        match &self.change {
            Some(change) if !change.alters.is_empty() => Err(replicas_move(change)),
            Some(change) if change.joins != Some(host) && change.leaves != Some(host) => {
                let other = change.joins.or(change.leaves).unwrap_or(host);
                Err(Refused::ChangeUnderWay { host: other })
            }
            _ => Ok(()),
        }
    }

    /// Begins a change, unless the same is under way. The caller raises the version of the topology.
    pub(super) fn begin_change(&mut self, joins: Option<HostId>, leaves: Option<HostId>) {
        assert!(joins.is_some() || leaves.is_some(), "a change of places has a host");
        assert_ne!(joins, leaves, "a node does not replace itself");
        let same = |change: &TopologyChange| change.joins == joins && change.leaves == leaves;
        if !self.change.as_ref().is_some_and(same) {
            self.last_change += 1;
            let since = self.topology_version + 1;
            self.change = Some(TopologyChange::new(self.last_change, joins, leaves, since));
        }
    }

    /// Ends the change of a host that was aborted or has completed.
    pub(super) fn end_change_of(&mut self, host: HostId) {
        let of = |change: &TopologyChange| change.joins == Some(host) || change.leaves == Some(host);
        let ended = self.change.take_if(|change| of(change));
        if let Some(change) = ended.as_ref().filter(|change| change.step == ChangeStep::Switched) {
            // A node that does not read by the pending topology version by now would read from replicas that get no writes any more.
            self.fence = self.fence.max(change.since);
        }
        if let Some(change) = ended
            && let Some(leaves) = change.leaves
            && leaves != host
            && let Some(member) = self.members.get_mut(&leaves)
            && member.status == MemberStatus::Removing
        {
            // Its replacement has gone, and it gets its former status back.
            member.status = MemberStatus::Normal;
        }
    }

    /// The keyspaces whose replicas are other nodes by `changed` than by the schema of now, with the replication of now.
    pub(super) fn moved_by(&self, changed: &Schema) -> BTreeMap<String, Replication> {
        let altered = |keyspace: &Arc<Keyspace>| {
            let known = &self.schema.keyspace(&keyspace.name)?.replication;
            let of_one_node = |replication: &Replication| *replication == Replication::Local;
            let stays =
                *known == keyspace.replication || of_one_node(known) || of_one_node(&keyspace.replication);
            (!stays).then(|| (keyspace.clone(), known.clone()))
        };
        let altered: Vec<(Arc<Keyspace>, Replication)> = changed.keyspaces().filter_map(altered).collect();
        if altered.is_empty() {
            // As nearly always: the ring of a large cluster costs tens of milliseconds.
            return BTreeMap::new();
        }
        let Ok(ring) = self.ring_of(|status| status == MemberStatus::Normal) else { return BTreeMap::new() };
        let moves = |(keyspace, known): (Arc<Keyspace>, Replication)| {
            let [before, after] = [&known, &keyspace.replication].map(|one| Placement::new(&ring, one));
            let moves = before.ranges().any(|(range, replicas)| {
                let (these, those): (BTreeSet<_>, BTreeSet<_>) =
                    (replicas.iter().collect(), after.replicas(range.upto).iter().collect());
                these != those
            });
            moves.then(|| (keyspace.name.clone(), known))
        };
        altered.into_iter().filter_map(moves).collect()
    }

    /// Puts the moving of replicas off, unless reads have gone over: a dead node is to be removed or replaced, and may be one that
    /// has to fetch.
    pub(super) fn defer_alteration(&mut self) {
        let is_early =
            |change: &mut TopologyChange| !change.alters.is_empty() && change.step != ChangeStep::Switched;
        if let Some(change) = self.change.take_if(is_early) {
            self.deferred.extend(change.alters);
            self.topology_version += 1;
        }
    }

    /// Resumes a deferred alteration, when no other change is under way.
    pub(super) fn resume_alteration(&mut self) {
        if self.change.is_none() && !self.deferred.is_empty() {
            let alters = std::mem::take(&mut self.deferred);
            self.begin_alteration(alters);
        }
    }

    /// Begins to move the replicas of keyspaces.
    pub(super) fn begin_alteration(&mut self, alters: BTreeMap<String, Replication>) {
        assert!(self.change.is_none(), "replicas move for one reason at a time");
        assert!(!alters.is_empty(), "an alteration moves the replicas of a keyspace");
        self.last_change += 1;
        self.topology_version += 1;
        let change = TopologyChange::new(self.last_change, None, None, self.topology_version);
        self.change = Some(TopologyChange { alters, ..change });
    }

    /// A keyspace whose replicas move is gone, or has the replication of before again: nothing is left to move.
    pub(super) fn end_void_alteration(&mut self) {
        let schema = &self.schema;
        let moves = |name: &str, before: &Replication| {
            schema.keyspace(name).is_some_and(|keyspace| keyspace.replication != *before)
        };
        self.deferred.retain(|name, before| moves(name, before));
        let Some(change) = self.change.as_mut().filter(|change| !change.alters.is_empty()) else { return };
        let count = change.alters.len();
        change.alters.retain(|name, before| moves(name, before));
        if change.alters.len() < count {
            self.topology_version += 1;
        }
        if change.alters.is_empty() {
            self.change = None;
        }
    }

    /// Every node reads by the pending replication: a request of the older one is refused.
    pub(super) fn end_alteration(&mut self, number: u64) -> Result<Outcome, Refused> {
        let change = self.change_numbered(number)?;
        if change.alters.is_empty() || change.step != ChangeStep::Switched {
            return Err(Refused::ChangeOver);
        }
        let since = change.since;
        self.fence = self.fence.max(since);
        self.change = None;
        self.topology_version += 1;
        Ok(self.done())
    }

    fn change_numbered(&mut self, number: u64) -> Result<&mut TopologyChange, Refused> {
        self.change.as_mut().filter(|change| change.number == number).ok_or(Refused::ChangeOver)
    }

    pub(super) fn note_fetched(&mut self, number: u64, host: HostId) -> Result<Outcome, Refused> {
        if !self.members.contains_key(&host) {
            return Err(Refused::UnknownHost { host });
        }
        let change = self.change_numbered(number)?;
        if change.step == ChangeStep::Announced {
            // Data streamed before all nodes knew of the change may lack writes.
            return Err(Refused::ChangeOver);
        }
        if change.fetched.insert(host) {
            self.topology_version += 1;
        }
        Ok(self.done())
    }

    pub(super) fn take_step(&mut self, number: u64, step: ChangeStep) -> Result<Outcome, Refused> {
        let next = self.topology_version + 1;
        let change = self.change_numbered(number)?;
        if step < change.step {
            return Err(Refused::ChangeOver);
        }
        if step != change.step {
            let (from, since) = (change.step, change.since);
            change.step = step;
            if step == ChangeStep::Switched {
                change.since = next;
            }
            if from == ChangeStep::Announced {
                // A node that does not know the change by now would not write to pending replicas.
                self.fence = self.fence.max(since);
            }
            self.topology_version = next;
        }
        Ok(self.done())
    }
}
