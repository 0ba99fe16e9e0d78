//! Which nodes are healthy while others are faulty: from the faults of machines and links, never from the nodes' own reports.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rt_sim::{DiskConfig, LinkConfig, NodeId, Sim};

use crate::cluster::node::{Place, Served};
use crate::cluster::plan::ClusterPlan;

/// After a fault a machine or link counts as healthy again when it has been so for this long: nodes start, find each other
/// and close the connections that hang.
const REUNION: Duration = Duration::from_secs(60);

/// A node as far as its health is concerned.
pub(crate) struct Machine {
    pub(crate) id: NodeId,
    pub(crate) place: Rc<Cell<Place>>,
    pub(crate) served: Served,
    /// Its disk when nothing is wrong with it.
    pub(crate) disk: DiskConfig,
}

/// Looks at the machines of a cluster.
pub(crate) struct Health {
    sim: Sim,
    machines: Vec<Machine>,
    /// When everything was healthy.
    begun: Duration,
}

impl Health {
    /// All machines that serve are healthy now.
    pub(crate) fn new(sim: &Sim, machines: Vec<Machine>) -> Self {
        Self { sim: sim.clone(), machines, begun: sim.now() }
    }

    /// How many machines there are.
    pub(crate) fn len(&self) -> usize {
        self.machines.len()
    }

    /// A machine's address for clients.
    pub(crate) fn server(&self, nth: usize) -> SocketAddr {
        SocketAddr::new(self.sim.ip(self.machines[nth].id), 9042)
    }

    /// Whether a coordinator and all members but so many are healthy and connected with each other, and the client with the
    /// coordinator; then how many are not.
    pub(crate) fn all_but(&self, plan: &ClusterPlan, coordinator: usize, but: usize) -> Option<usize> {
        let client = self.sim.client();
        let own = self.machines[coordinator].id;
        if !self.is_member(coordinator)
            || !self.is_healthy(coordinator)
            || !self.are_connected(own, client, LinkConfig::default())
        {
            return None;
        }
        let connected = |one: usize, other: usize| {
            let link = plan.link(one, other).unwrap_or_default();
            one == other || self.are_connected(self.machines[one].id, self.machines[other].id, link)
        };
        let members: Vec<usize> = (0..self.machines.len()).filter(|nth| self.is_member(*nth)).collect();
        let good = |nth: &usize| self.is_healthy(*nth) && connected(coordinator, *nth);
        let mut healthy: Vec<usize> = members.iter().copied().filter(good).collect();
        loop {
            // A node that is cut off from most of the others counts as the faulty one.
            let cut = |one: &usize| healthy.iter().filter(|other| !connected(*one, **other)).count();
            let others = healthy.iter().filter(|nth| **nth != coordinator);
            match others.map(|nth| (cut(nth), *nth)).max() {
                Some((1.., nth)) => healthy.retain(|other| *other != nth),
                _ => break,
            }
        }
        Some(members.len() - healthy.len()).filter(|others| *others <= but)
    }

    fn is_member(&self, nth: usize) -> bool {
        matches!(self.machines[nth].place.get(), Place::Here | Place::Leaving | Place::Dead)
    }

    fn is_healthy(&self, nth: usize) -> bool {
        let machine = &self.machines[nth];
        let state = self.sim.machine(machine.id);
        let whole = state.runs && state.disk == machine.disk && machine.served.serves();
        whole && machine.place.get() == Place::Here && self.is_settled(state.since)
    }

    fn are_connected(&self, one: NodeId, other: NodeId, as_usual: LinkConfig) -> bool {
        [(one, other), (other, one)].into_iter().all(|(from, to)| {
            let (link, since) = self.sim.link(from, to);
            link == Some(as_usual) && self.is_settled(since)
        })
    }

    /// Whether a state that began then has had its effect.
    fn is_settled(&self, since: Duration) -> bool {
        since <= self.begun || self.sim.now() - since >= REUNION
    }
}
