//! A topology change that is under way: a value of the cluster's state.

use std::collections::{BTreeMap, BTreeSet};

use schema::Replication;
use serde::{Deserialize, Serialize};
use topology::HostId;

use super::text;

/// How far a change has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ChangeStep {
    /// Not all nodes know of it: writes may miss pending replicas.
    Announced,
    /// Every write reaches the pending replicas, which stream older data.
    Fetching,
    /// Everything is fetched. Reads ask the replicas to be, writes still go to all, until every node reads so.
    Switched,
}

/// A change of the ownership of ranges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopologyChange {
    /// Names it; the next one's is higher.
    pub number: u64,
    /// The node that takes tokens.
    #[serde(with = "text::maybe_host", default)]
    pub joins: Option<HostId>,
    /// The node that gives its tokens away: to all others, or to the one that replaces it.
    #[serde(with = "text::maybe_host", default)]
    pub leaves: Option<HostId>,
    /// Keyspaces whose replicas move, with the replication of before; the schema has the one to be. Nobody's place changes then.
    #[serde(with = "text::replications", default)]
    pub alters: BTreeMap<String, Replication>,
    /// How far it is.
    pub step: ChangeStep,
    /// The nodes that have streamed all their ranges.
    #[serde(with = "text::hosts", default)]
    pub fetched: BTreeSet<HostId>,
    /// [`ClusterState::topology_version`] since when requests go where this step has them go.
    #[serde(default)]
    pub since: u64,
}

impl TopologyChange {
    pub(super) fn new(number: u64, joins: Option<HostId>, leaves: Option<HostId>, since: u64) -> Self {
        let (step, fetched, alters) = (ChangeStep::Announced, BTreeSet::new(), BTreeMap::new());
        Self { number, joins, leaves, alters, step, fetched, since }
    }
}
