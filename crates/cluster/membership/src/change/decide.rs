//! The next step of a node in the topology change of the cluster's log. Pure.
//!
//! Every node reads the log and does its part: pending replicas stream their ranges and report it, and one node coordinates. So nothing
//! has to be handed on when a node fails: it finds in the log where it was.

use std::collections::BTreeSet;

use cluster::state::{ChangeStep, ClusterState, Member, MemberStatus, TopologyChange};
use topology::HostId;

/// A part of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Nothing until something changes.
    Rest,
    /// Ensure that every node knows of the change, then have data streamed.
    Announce(u64),
    /// Stream the ranges that this node gains.
    Fetch(u64),
    /// Everyone has fetched: let reads go over.
    Switch(u64),
    /// See to it that every node reads from the pending topology version, then end the change.
    Finish(u64),
    /// Take a node out of the log that has left and is down.
    Forget(HostId),
}

/// A node's knowledge.
pub(crate) struct Context<'a> {
    pub(crate) state: &'a ClusterState,
    pub(crate) own: HostId,
    /// The pending replicas of the change.
    pub(crate) pending_nodes: &'a BTreeSet<HostId>,
    /// The nodes that an operator has named as dead for the change.
    pub(crate) ignored: &'a BTreeSet<HostId>,
    pub(crate) alive: &'a dyn Fn(HostId) -> bool,
}

impl Context<'_> {
    /// This node's next step.
    pub(crate) fn next(&self) -> Act {
        let Some(change) = &self.state.change else { return self.forget() };
        let conducts = self.conductor(change) == Some(self.own);
        match change.step {
            ChangeStep::Announced if conducts => Act::Announce(change.number),
            ChangeStep::Fetching
                if self.pending_nodes.contains(&self.own) && !change.fetched.contains(&self.own) =>
            {
                Act::Fetch(change.number)
            }
            ChangeStep::Fetching if conducts && self.waits_for(change).is_empty() => {
                Act::Switch(change.number)
            }
            ChangeStep::Switched if conducts => Act::Finish(change.number),
            _ => Act::Rest,
        }
    }

    /// The nodes that have yet to stream.
    pub(crate) fn waits_for(&self, change: &TopologyChange) -> Vec<HostId> {
        self.unfetched(change).filter(|host| !self.is_ignored(*host)).collect()
    }

    /// The nodes that gain ranges and will not have streamed them when the change is over.
    pub(crate) fn left_out(&self, change: &TopologyChange) -> Vec<HostId> {
        self.unfetched(change).filter(|host| self.is_ignored(*host)).collect()
    }

    fn unfetched<'s>(&'s self, change: &'s TopologyChange) -> impl Iterator<Item = HostId> + 's {
        let member = |host: &&HostId| self.state.member(**host).is_some();
        self.pending_nodes.difference(&change.fetched).filter(member).copied()
    }

    fn is_ignored(&self, host: HostId) -> bool {
        self.ignored.contains(&host) && !(self.alive)(host)
    }

    /// The node that coordinates the steps: the one under change, and the first of the others when no node changes, for one that is removed, and for one that
    /// joins and dies when reads have gone over to it.
    pub(crate) fn conductor(&self, change: &TopologyChange) -> Option<HostId> {
        if let Some(joins) = change.joins {
            // It cannot be given up any more: it becomes a member that is down, and can be removed or replaced.
            let is_dead = change.step == ChangeStep::Switched && joins != self.own && !(self.alive)(joins);
            return if is_dead { self.first() } else { Some(joins) };
        }
        if !change.alters.is_empty() {
            return self.first();
        }
        let leaves = change.leaves?;
        match self.state.member(leaves)?.status {
            MemberStatus::Leaving => Some(leaves),
            _ => self.first(),
        }
    }

    /// The first node in force that lives.
    fn first(&self) -> Option<HostId> {
        let members = self.state.members.iter();
        let mut in_force = members.filter(|(_, member)| member.status == MemberStatus::Normal);
        in_force.find(|(host, _)| **host == self.own || (self.alive)(**host)).map(|(host, _)| *host)
    }

    fn forget(&self) -> Act {
        let left = |host: &HostId| self.state.members[host].status == MemberStatus::Left;
        let gone = self.state.members.keys().find(|host| left(host) && !(self.alive)(**host));
        match gone {
            Some(host) if self.first() == Some(self.own) => Act::Forget(*host),
            _ => Act::Rest,
        }
    }
}

/// The live node that waits to take a dead node's place, and that `own`, which joins, lets go first: until then data lacks a replica, and
/// a join may need the dead node. None where `own` replaces a node itself.
pub(crate) fn replacement_ahead(
    state: &ClusterState,
    own: HostId,
    alive: impl Fn(HostId) -> bool,
) -> Option<HostId> {
    if state.member(own).is_none_or(|member| member.replaces.is_some()) {
        return None;
    }
    let mut members = state.members.iter();
    let waits = |member: &Member| member.replaces.is_some() && member.tokens.is_empty();
    members.find(|(host, member)| waits(member) && alive(**host)).map(|(host, _)| *host)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
