//! Topology changes while things happen to a cluster: nodes leave, die for good and are removed or replaced, by another machine or
//! by the same with a new disk; repairs and cleanups in between. And the checker: each change completes.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rt::Group;
use rt_sim::{NodeId, Sim};

use crate::cluster::director::{Change, ClusterDirector};
use crate::cluster::nemesis::repair::repair_path;
use crate::cluster::node::{Place, Served};
use crate::cluster::plan::SEEDS;
use crate::cluster::plan::focus::Focus;
use crate::cluster::plan::ring_event::RingEvent;
use crate::plan::{one_in, pick};
use crate::rest;

/// A change that has not completed so long after all faults never will.
const TIME_MAX: Duration = Duration::from_secs(600);
/// How long a dead machine may be down until another begins to replace it.
const REPLACED_AFTER_MAX: Duration = Duration::from_secs(40);
/// With fewer members none of them may die for good: the rest decides nothing without it.
const VOTERS_MIN: usize = 3;
const ASK_PAUSE: Duration = Duration::from_secs(2);
const LOOK_PERIOD: Duration = Duration::from_millis(500);
/// How long a machine without its disk is left to itself, milliseconds at most.
const WIPED_MILLIS_MAX: u64 = 60_000;
const WIPED_LOOK_PAUSE: Duration = Duration::from_secs(1);

impl ClusterDirector {
    /// Begins something about the ring, if that is possible now; false when it is not.
    pub(crate) async fn change_ring(&mut self) -> bool {
        if self.plan.ring.is_empty() {
            return false;
        }
        let event = *pick(&mut self.rng, &self.plan.ring);
        if !event.moves_data() {
            self.maintain(event);
            return true;
        }
        // A second node that dies before all replicas are whole again may take the last one along.
        if self.change.is_some() || self.changed {
            return false;
        }
        self.begin_change(event).await
    }

    /// Begins this topology change, if it is possible now.
    pub(crate) async fn begin_change(&mut self, event: RingEvent) -> bool {
        let Some(subject) = self.subject(event) else { return false };
        let host = match rest::get(&self.rt, self.rest(subject), "/storage_service/hostid/local").await {
            Ok(page) => page.rsplit("\r\n").next().unwrap_or_default().trim().trim_matches('"').to_owned(),
            Err(_) => return false,
        };
        {
            let mut world = self.world.borrow_mut();
            world.stats.other_changes += 1;
            world.forget_seen();
            world.excuses.connections = true;
            world.excuses.errors |= event.loses_node();
        }
        self.changed = true;
        self.hints_lost |= event.loses_node() || !self.plan.faults.is_empty();
        let change = Change::new(event, subject);
        self.begin(&change, &host).await;
        self.change = Some(change);
        true
    }

    /// A node gets an empty disk and takes its own place.
    pub(crate) async fn replace_disk(&mut self, nth: usize) {
        {
            let mut world = self.world.borrow_mut();
            world.stats.other_changes += 1;
            world.forget_seen();
        }
        (self.changed, self.hints_lost) = (true, true);
        let change = Change::new(RingEvent::NewDisk, nth);
        self.begin(&change, "").await;
        self.change = Some(change);
    }

    async fn begin(&mut self, change: &Change, host: &str) {
        let subject = change.subject;
        match change.event {
            RingEvent::Leave => {
                self.nodes[subject].place.set(Place::Leaving);
                self.keep_asking(
                    change,
                    vec![self.rest(subject)],
                    "/storage_service/decommission".to_owned(),
                );
            }
            RingEvent::Remove => {
                self.bury(subject).await;
                self.ask_for_removal(change, host);
            }
            RingEvent::Replace => {
                self.bury(subject).await;
                let spare = self.next_joiner().expect("there was one");
                self.replace(subject, spare);
            }
            RingEvent::NewDisk => {
                self.bury(subject).await;
                if self.plan.focus == Some(Focus::Rings) && one_in(&mut self.details, 2) {
                    self.start_wiped(subject).await;
                }
                self.replace(subject, subject);
            }
            RingEvent::Cleanup | RingEvent::Repair => {}
        }
    }

    /// The others are asked to remove a node that has ended.
    pub(crate) fn ask_for_removal(&mut self, change: &Change, host: &str) {
        let others = self.present().into_iter().map(|nth| self.rest(nth)).collect();
        self.keep_asking(change, others, format!("/storage_service/remove_node?host_id={host}"));
    }

    /// A node ends, and its disk is lost.
    pub(crate) async fn bury(&mut self, nth: usize) {
        self.world.borrow_mut().stats.kills += 1;
        let id = self.nodes[nth].id;
        self.nodes[nth].place.set(Place::Dead);
        self.nodes[nth].starts_from = None;
        self.sim.kill(id);
        // The kill takes effect after this turn.
        self.rt.sleep(Duration::from_millis(1)).await;
        self.sim.wipe_disk(id);
    }

    /// A machine whose disk was emptied is started as if nothing had happened. It must not serve before an operator names the node that it replaces: not
    /// the first seed either, which would have others believe in a second cluster.
    async fn start_wiped(&mut self, nth: usize) {
        let (id, ready) = (self.nodes[nth].id, self.nodes[nth].ready.load(Ordering::Relaxed));
        self.sim.start(id);
        let until = self.sim.now() + Duration::from_millis(self.details.below(WIPED_MILLIS_MAX));
        while self.sim.now() < until
            && (self.sim.is_running(id) || self.sim.now() + WIPED_LOOK_PAUSE >= until)
        {
            self.rt.sleep(WIPED_LOOK_PAUSE).await;
            if self.nodes[nth].ready.load(Ordering::Relaxed) > ready {
                let text = format!(
                    "checker ring: node {nth} serves with an empty disk, without being named the replacement of any node"
                );
                return self.world.borrow_mut().fail(text);
            }
        }
        self.sim.kill(id);
        self.rt.sleep(Duration::from_millis(1)).await;
        self.sim.wipe_disk(id);
    }

    /// A machine takes the place of a dead one, after a while.
    fn replace(&mut self, dead: usize, by: usize) {
        *self.nodes[by].replaces.borrow_mut() = Some(self.ip(dead));
        self.note_start(by);
        let after = Duration::from_millis(self.rng.below(REPLACED_AFTER_MAX.as_millis() as u64));
        start_after(&self.sim, self.nodes[by].id, &self.nodes[by].served, after);
    }

    /// Requests a change again and again, until it has completed.
    fn keep_asking(&mut self, change: &Change, servers: Vec<SocketAddr>, path: String) {
        let (rt, over, progress) = (self.rt.clone(), change.over.clone(), change.progress.clone());
        let mut rng = self.sim.rng(1_000 + self.rng.below(1 << 40));
        let asking = async move {
            while !over.get() {
                match rest::post(&rt, *pick(&mut rng, &servers), &path).await {
                    Ok(()) => return,
                    Err(answer) => *progress.borrow_mut() = answer,
                }
                rt.sleep(ASK_PAUSE).await;
            }
        };
        self.asking.push(self.rt.spawn(Group::Statement, asking));
    }

    /// A node for this change; only one without faults, and never so many that replicas have no node.
    pub(crate) fn subject(&mut self, event: RingEvent) -> Option<usize> {
        if event == RingEvent::Replace && self.next_joiner().is_none() {
            return None;
        }
        let whole = |nth: &usize| {
            let node = &self.nodes[*nth];
            !node.faulty && self.is_ready(*nth)
        };
        let present = self.present();
        if event.loses_node() && present.iter().filter(|nth| self.is_ready(**nth)).count() < VOTERS_MIN {
            return None;
        }
        let mut free: Vec<usize> = present.iter().copied().filter(whole).collect();
        // A joining node must find a seed that it knows.
        free.retain(|nth| present.iter().any(|other| *other < SEEDS && other != nth));
        if matches!(event, RingEvent::Leave | RingEvent::Remove) {
            free.retain(|nth| self.can_do_without(*nth));
        }
        if event.loses_node() && self.plan.operations.items {
            // Items are acknowledged by the replicas of one datacenter.
            free.retain(|nth| self.copies.of_datacenter(&self.plan.datacenters[*nth]) != Some(1));
        }
        if event == RingEvent::Replace {
            // The replicas of a datacenter stay there.
            let spare = self.next_joiner()?;
            free.retain(|nth| self.plan.datacenters[*nth] == self.plan.datacenters[spare]);
        }
        (!free.is_empty()).then(|| *pick(&mut self.rng, &free))
    }

    /// Whether the others have a place for each copy.
    fn can_do_without(&self, nth: usize) -> bool {
        let others = self.present().into_iter().filter(|other| *other != nth);
        let centers: Vec<&str> = others.map(|other| self.plan.datacenters[other].as_str()).collect();
        self.copies.fit(&centers)
    }

    /// Has a node clean up or repair, and does not wait for it.
    fn maintain(&mut self, event: RingEvent) {
        self.world.borrow_mut().stats.repairs += 1;
        let present = self.present();
        let nth = *pick(&mut self.rng, &present);
        let server = self.rest(nth);
        let path = match event {
            RingEvent::Cleanup => "/storage_service/keyspace_cleanup/k0".to_owned(),
            _ => {
                let primary = one_in(&mut self.rng, 2);
                repair_path("k0", primary, !one_in(&mut self.details, 3))
            }
        };
        let rt = self.rt.clone();
        // A repair that cannot reach a replica fails, and a topology change excludes a cleanup: only the stored data count.
        let asking = async move { drop(rest::post(&rt, server, &path).await) };
        self.asking.push(self.rt.spawn(Group::Statement, asking));
    }

    /// Waits until the topology change has completed and every node knows. All faults have ended.
    pub(crate) async fn settle_ring(&mut self) {
        let begun = self.sim.now();
        while !self.failed() {
            let Some(problem) = self.ring_problem().await else { break };
            if self.sim.now() - begun > TIME_MAX {
                let progress = self.change.as_ref().map_or_else(String::new, |change| {
                    format!("; {:?} of node {}: {}", change.event, change.subject, change.progress.borrow())
                });
                let text = format!(
                    "checker ring: after {TIME_MAX:?} the ring is not the expected one: {problem}{progress}"
                );
                return self.world.borrow_mut().fail(text);
            }
            self.rt.sleep(LOOK_PERIOD).await;
        }
        if let Some(change) = self.change.take() {
            change.over.set(true);
            if change.event != RingEvent::NewDisk {
                self.nodes[change.subject].place.set(Place::Gone);
                self.sim.kill(self.nodes[change.subject].id);
            }
        }
        for task in std::mem::take(&mut self.asking) {
            task.await;
        }
    }

    /// Machines that are in the cluster no more may join it again, with an empty disk.
    pub(crate) async fn reuse_machines(&mut self) {
        for nth in 1..self.nodes.len() {
            if self.nodes[nth].place.get() == Place::Gone && one_in(&mut self.rng, 2) {
                let id = self.nodes[nth].id;
                self.sim.kill(id);
                self.rt.sleep(Duration::from_millis(1)).await;
                self.sim.wipe_disk(id);
                self.nodes[nth].place.set(Place::Spare);
                self.nodes[nth].starts_from = None;
                *self.nodes[nth].replaces.borrow_mut() = None;
            }
        }
    }

    /// Why the ring is not as it is to be.
    pub(crate) async fn ring_problem(&self) -> Option<String> {
        let present = self.present();
        for nth in &present {
            let problem = match self.ring_seen_by(*nth, &present).await {
                Ok(None) => continue,
                Ok(Some(problem)) | Err(problem) => problem,
            };
            return Some(format!("node {nth}: {problem}"));
        }
        None
    }

    async fn ring_seen_by(&self, nth: usize, present: &[usize]) -> Result<Option<String>, String> {
        let topology = rest::get(&self.rt, self.rest(nth), "/torc/topology").await?;
        if !topology.contains("\"change\":null") {
            return Ok(Some(topology.rsplit("\r\n").next().unwrap_or_default().to_owned()));
        }
        let ring = rest::get(&self.rt, self.rest(nth), "/storage_service/tokens_endpoint").await?;
        for other in 0..self.nodes.len() {
            let there = ring.contains(&format!("\"{}\"", self.ip(other)));
            if there != present.contains(&other) {
                return Ok(Some(format!("node {other} is in the ring: {there}")));
            }
        }
        Ok(None)
    }
}

/// Starts a machine after a while, unless a waiting task does so before: it may have left the cluster again by then, with an empty disk.
fn start_after(sim: &Sim, id: NodeId, served: &Served, after: Duration) {
    let (served, starts) = (served.clone(), served.starts());
    sim.after(after, move |sim| {
        if !sim.is_running(id) && served.starts() == starts {
            sim.start(id);
        }
    });
}

#[cfg(test)]
mod tests {
    use rt::{Rt, ShardMain};
    use rt_sim::{Config, NodeConfig, Simulation};

    use super::*;

    #[test]
    fn a_machine_that_was_started_meanwhile_is_not_started_again() {
        for before in [false, true] {
            let simulation = Simulation::new(1, Config::default());
            let sim = simulation.handle();
            let served = Served::default();
            let serves = served.clone();
            let id = sim.add_node(NodeConfig::default(), move |_| {
                serves.start();
                let main: ShardMain<Result<(), String>> = Box::new(|_: Rt| Box::pin(async { Ok(()) }));
                vec![main]
            });
            start_after(&sim, id, &served, Duration::from_secs(30));
            if before {
                simulation.run_for(Duration::from_secs(10));
                sim.start(id);
            }
            simulation.run_for(Duration::from_secs(60));
            assert!(!sim.is_running(id), "its process ends at once");
            assert_eq!(served.starts(), 1, "started before: {before}");
        }
    }
}
