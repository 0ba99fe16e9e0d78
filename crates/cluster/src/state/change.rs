//! A change of who owns what: a node joins, leaves, is removed or is replaced. One at a time: what each node is to fetch follows
//! from the ring of now and the ring to be, and that is true for one change only.
//!
//! The steps are in the log, so that whoever takes part in them finds after a crash where they were.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use topology::HostId;

use super::command::{Outcome, Refused};
use super::member::MemberStatus;
use super::{ClusterState, text};

/// How far a change has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ChangeStep {
    /// Not all nodes know of it: writes may miss those who gain ranges.
    Announced,
    /// Every write reaches those who gain, who fetch what was written before.
    Fetching,
    /// Everything is fetched. Reads ask the replicas to be, writes still go to all, until every node reads so.
    Switched,
}

/// A change of who owns what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopologyChange {
    /// Names it; the next one's is higher.
    pub number: u64,
    /// Who takes tokens.
    #[serde(with = "text::maybe_host", default)]
    pub joins: Option<HostId>,
    /// Who gives its tokens away: to all others, or to who replaces it.
    #[serde(with = "text::maybe_host", default)]
    pub leaves: Option<HostId>,
    /// How far it is.
    pub step: ChangeStep,
    /// Who has all that it gains.
    #[serde(with = "text::hosts", default)]
    pub fetched: BTreeSet<HostId>,
    /// [`ClusterState::topology_version`] since when requests go where this step has them go.
    #[serde(default)]
    pub since: u64,
}

impl TopologyChange {
    fn new(number: u64, joins: Option<HostId>, leaves: Option<HostId>, since: u64) -> Self {
        Self { number, joins, leaves, step: ChangeStep::Announced, fetched: BTreeSet::new(), since }
    }
}

impl ClusterState {
    /// Whether a change that is not of this host's place is under way.
    pub(super) fn check_no_other_change(&self, host: HostId) -> Result<(), Refused> {
        match &self.change {
            Some(change) if change.joins != Some(host) && change.leaves != Some(host) => {
                let other = change.joins.or(change.leaves).unwrap_or(host);
                Err(Refused::ChangeUnderWay { host: other })
            }
            _ => Ok(()),
        }
    }

    /// Begins a change, unless the same is under way. The caller raises the version of the topology.
    pub(super) fn begin_change(&mut self, joins: Option<HostId>, leaves: Option<HostId>) {
        let same = |change: &TopologyChange| change.joins == joins && change.leaves == leaves;
        if !self.change.as_ref().is_some_and(same) {
            self.last_change += 1;
            let since = self.topology_version + 1;
            self.change = Some(TopologyChange::new(self.last_change, joins, leaves, since));
        }
    }

    /// A host is not to have another place any more, or has it: there is no change of it.
    pub(super) fn end_change_of(&mut self, host: HostId) {
        let of = |change: &TopologyChange| change.joins == Some(host) || change.leaves == Some(host);
        let ended = self.change.take_if(|change| of(change));
        if let Some(change) = ended.as_ref().filter(|change| change.step == ChangeStep::Switched) {
            // Whoever does not read from the ring to be by now would ask those who get no writes any more.
            self.fence = change.since;
        }
        if let Some(change) = ended
            && let Some(leaves) = change.leaves
            && leaves != host
            && let Some(member) = self.members.get_mut(&leaves)
        {
            // Who replaced it has gone, and it is what it was.
            member.status = MemberStatus::Normal;
        }
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
            // What was fetched before all nodes knew of the change may lack writes.
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
                // Who has not heard of the change by now would write past those who fetch.
                self.fence = since;
            }
            self.topology_version = next;
        }
        Ok(self.done())
    }
}
