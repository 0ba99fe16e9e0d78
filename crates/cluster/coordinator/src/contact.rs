//! Which replicas a request asks, and when enough of them have answered. Pure.

use schema::Replication;
use smallvec::SmallVec;
use topology::{ClusterView, Consistency, HostId, NodeIndex, Replicas};

use crate::RequestError;

/// The answers that a consistency level needs of the replicas: so many answers from each of these groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs(SmallVec<[Need; 1]>);

/// Stands for a datacenter without nodes.
const NOWHERE: u16 = u16::MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Need {
    /// The datacenter whose replicas count; all when none.
    datacenter: Option<u16>,
    /// The replicas that count; all when none.
    among: Option<Replicas>,
    required: usize,
}

/// How many copies a replication keeps in all; with NetworkTopologyStrategy also where.
fn copies(replication: &Replication, view: &ClusterView) -> usize {
    match replication {
        Replication::Local => 1,
        Replication::Everywhere => view.ring().nodes().len(),
        Replication::Simple { factor } => *factor as usize,
        Replication::NetworkTopology { factors } => factors.values().map(|copies| *copies as usize).sum(),
    }
}

fn copies_in(replication: &Replication, view: &ClusterView, datacenter: u16) -> usize {
    match replication {
        Replication::NetworkTopology { factors } => {
            factors.get(view.datacenter_name(datacenter)).map_or(0, |copies| *copies as usize)
        }
        Replication::Everywhere => {
            let here = |index: &NodeIndex| view.datacenter(*index) == datacenter;
            view.ring().indexes().filter(here).count()
        }
        Replication::Local | Replication::Simple { .. } => copies(replication, view),
    }
}

impl Needs {
    /// The answers that `consistency` needs of a keyspace with this replication. `pending` nodes are about to become replicas: they take
    /// writes, and as many more answers are needed, so that a quorum stores it whichever nodes are the replicas afterwards.
    pub fn new(
        consistency: Consistency,
        replication: &Replication,
        view: &ClusterView,
        pending: &[NodeIndex],
    ) -> Self {
        let local = view.datacenter(view.own());
        let pending_in = |dc: u16| pending.iter().filter(|node| view.datacenter(**node) == dc).count();
        let one = |datacenter: Option<u16>, copies: usize, pending: usize| Need {
            datacenter,
            among: None,
            required: consistency.required(copies) + pending,
        };
        Self(match consistency {
            Consistency::LocalOne | Consistency::LocalQuorum | Consistency::LocalSerial => {
                smallvec::smallvec![one(Some(local), copies_in(replication, view, local), pending_in(local))]
            }
            Consistency::EachQuorum if let Replication::NetworkTopology { factors } = replication => factors
                .iter()
                .filter(|(_, copies)| **copies > 0)
                .map(|(name, copies)| {
                    let dc = view.datacenter_number(name).unwrap_or(NOWHERE);
                    one(Some(dc), *copies as usize, pending_in(dc))
                })
                .collect(),
            _ => smallvec::smallvec![one(None, copies(replication, view), pending.len())],
        })
    }

    /// The same when only these replicas count.
    #[must_use]
    pub fn among(mut self, replicas: &Replicas) -> Self {
        self.0.iter_mut().for_each(|need| need.among = Some(replicas.clone()));
        self
    }

    /// The needs of both.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        let mut both = self.0.iter().chain(&other.0);
        assert!(both.all(|need| need.among.is_some()), "each of two quorums is among its own replicas");
        self.0.extend(other.0);
        self
    }

    /// Answers of these nodes that are enough whichever of them answer.
    pub fn required_of(&self, nodes: &[NodeIndex]) -> usize {
        let enough = |need: &Need| match &need.among {
            None => need.required,
            Some(among) => need.required + nodes.iter().filter(|node| !among.contains(node)).count(),
        };
        if self.0.iter().any(|need| need.among.is_some()) {
            self.0.iter().map(enough).max().unwrap_or(0)
        } else {
            self.required()
        }
    }

    /// As if each group needed one answer less, where it needs several: an injected bug.
    pub(crate) fn one_short(mut self) -> Self {
        self.0.iter_mut().for_each(|need| need.required = need.required.saturating_sub(1).max(1));
        self
    }

    /// As if each group needed one answer more, of so many replicas: an injected bug.
    pub(crate) fn one_more(mut self, replicas: usize) -> Self {
        self.0.iter_mut().for_each(|need| need.required = (need.required + 1).min(replicas));
        self
    }

    /// Answers needed in all.
    pub fn required(&self) -> usize {
        self.0.iter().map(|need| need.required).sum()
    }

    /// Whether `nodes` can be enough. ANY is content with a hint, which this node can always store.
    ///
    /// # Errors
    /// [`RequestError::Unavailable`] when a group has fewer of `nodes` than it needs.
    pub fn check(
        &self,
        consistency: Consistency,
        view: &ClusterView,
        nodes: &[NodeIndex],
    ) -> Result<(), RequestError> {
        if consistency == Consistency::Any {
            return Ok(());
        }
        for need in &self.0 {
            let alive = nodes.iter().filter(|node| need.counts(view, **node)).count();
            if alive < need.required {
                let (required, alive) = (need.required as u32, alive as u32);
                return Err(RequestError::Unavailable { consistency, required, alive });
            }
        }
        Ok(())
    }

    /// Takes from `candidates`, the best first, those that are to be asked: as many of each group as it needs.
    ///
    /// # Errors
    /// As [`Needs::check`] of the candidates.
    pub fn choose(
        &self,
        consistency: Consistency,
        view: &ClusterView,
        candidates: &[NodeIndex],
    ) -> Result<Replicas, RequestError> {
        self.check(consistency, view, candidates)?;
        let mut chosen = Replicas::new();
        for need in &self.0 {
            let counting = candidates.iter().filter(|node| need.counts(view, **node));
            chosen.extend(counting.take(need.required).copied());
        }
        let is_enough = chosen.len() == self.required() || consistency == Consistency::Any;
        assert!(is_enough, "as many replicas are queried as the consistency level needs");
        debug_assert!(are_distinct(&chosen), "a replica is queried once");
        Ok(chosen)
    }
}

/// Whether no node stands there twice.
pub(crate) fn are_distinct(nodes: &[NodeIndex]) -> bool {
    nodes.iter().enumerate().all(|(at, node)| !nodes[..at].contains(node))
}

impl Need {
    fn counts(&self, view: &ClusterView, node: NodeIndex) -> bool {
        self.datacenter.is_none_or(|dc| dc == view.datacenter(node))
            && self.among.as_ref().is_none_or(|among| among.contains(&node))
    }
}

/// The replicas that a read may ask, the best first: alive, near, and among equals another one each time. Those that have been `slow` of
/// late come after all others of their datacenter.
pub fn candidates(view: &ClusterView, replicas: &[NodeIndex], turn: usize, slow: &[HostId]) -> Replicas {
    let mut out: Replicas = replicas.iter().copied().filter(|node| view.is_alive(*node)).collect();
    if !out.is_empty() {
        let count = out.len();
        out.rotate_left(turn % count);
    }
    // Stable: the turn decides among nodes that are equally far away.
    out.sort_by_key(|node| {
        let distance = view.distance(*node);
        (distance >= ClusterView::OTHER_DATACENTER, slow.contains(&view.node(*node).host), distance)
    });
    assert!(out.len() <= replicas.len(), "only replicas are asked");
    debug_assert!(are_distinct(&out), "a replica is a candidate once");
    out
}

/// Counts answers until there are enough, or can no longer be.
#[derive(Clone, Debug)]
pub struct Tally {
    groups: SmallVec<[Group; 1]>,
    received: usize,
}

#[derive(Clone, Debug)]
struct Group {
    datacenter: Option<u16>,
    among: Option<Replicas>,
    required: usize,
    acknowledged: usize,
    /// Of which an answer may still come.
    open: usize,
    /// Of which an answer counts.
    asked: usize,
}

impl Tally {
    /// For a request that was sent to `asked`.
    pub fn new(needs: &Needs, view: &ClusterView, asked: &[NodeIndex]) -> Self {
        debug_assert!(are_distinct(asked), "a replica is queried once");
        let group = |need: &Need| {
            let open = asked.iter().filter(|node| need.counts(view, **node)).count();
            Group {
                datacenter: need.datacenter,
                among: need.among.clone(),
                required: need.required,
                acknowledged: 0,
                open,
                asked: open,
            }
        };
        Self { groups: needs.0.iter().map(group).collect(), received: 0 }
    }

    /// A node, of this datacenter, has answered.
    pub fn acknowledge(&mut self, node: NodeIndex, datacenter: u16) {
        let mut counted = false;
        for group in self.of(node, datacenter) {
            assert!(group.open > 0, "a node answers once");
            group.open -= 1;
            group.acknowledged += 1;
            assert!(group.acknowledged + group.open <= group.asked, "no more nodes answer than were asked");
            counted = true;
        }
        self.received += usize::from(counted);
    }

    /// A node, of this datacenter, will not answer.
    pub fn fail(&mut self, node: NodeIndex, datacenter: u16) {
        for group in self.of(node, datacenter) {
            assert!(group.open > 0, "a node fails once, and not after it answered");
            group.open -= 1;
            assert!(
                group.acknowledged + group.open < group.asked,
                "a node that failed does not count any more"
            );
        }
    }

    fn of(&mut self, node: NodeIndex, datacenter: u16) -> impl Iterator<Item = &mut Group> {
        self.groups.iter_mut().filter(move |group| {
            group.datacenter.is_none_or(|dc| dc == datacenter)
                && group.among.as_ref().is_none_or(|among| among.contains(&node))
        })
    }

    /// Whether enough have answered.
    pub fn is_met(&self) -> bool {
        self.groups.iter().all(|group| group.acknowledged >= group.required)
    }

    /// Whether too many have failed.
    pub fn is_hopeless(&self) -> bool {
        self.groups.iter().any(|group| group.acknowledged + group.open < group.required)
    }

    /// Whether a request that misses too many answers is to end now: not while all that failed were silent, which is a timeout, and others may
    /// still answer; the client's error says how many have.
    pub fn gives_up(&self, all_silent: bool) -> bool {
        self.is_hopeless() && !(all_silent && self.groups.iter().any(|group| group.open > 0))
    }

    /// Answers that count, so far.
    pub fn received(&self) -> u32 {
        self.received as u32
    }

    /// Answers that are needed.
    pub fn required(&self) -> u32 {
        self.groups.iter().map(|group| group.required as u32).sum()
    }
}

#[cfg(test)]
#[path = "contact_tests.rs"]
mod tests;
