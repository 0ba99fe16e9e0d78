//! Faults of a cluster while clients work: nodes that end, stand still or lose power, a network that splits, slows down
//! or loses packets, clocks that jump, disks that fail.

use std::time::Duration;

use rt_sim::{LinkConfig, NodeId};

use crate::cluster::director::ClusterDirector;
use crate::cluster::plan::fault::Fault;
use crate::plan::{one_in, pick};

impl ClusterDirector {
    /// Injects faults until a time. Lasting ones end with the quiescent phase.
    pub(crate) async fn disturb(&mut self, until: Duration) {
        if self.plan.is_lossy {
            self.lose_packets();
        }
        while self.sim.now() < until && !self.failed() {
            let left = until - self.sim.now();
            let pause = Duration::from_micros(self.rng.below(self.plan.fault_millis * 1_000));
            self.rt.sleep(pause.min(left)).await;
            if left <= pause {
                return;
            }
            if one_in(&mut self.rng, if self.changed { 8 } else { 3 }) && self.change_ring().await {
                continue;
            }
            if self.plan.faults.is_empty() {
                self.join_one();
                continue;
            }
            let fault = *pick(&mut self.rng, &self.plan.faults);
            let faulty = self.nodes.iter().filter(|node| node.faulty).count();
            if self.next_joiner().is_some() && one_in(&mut self.rng, 3) {
                self.join_one();
                continue;
            }
            // A node may end while its network or its disk is faulty.
            let ends = matches!(fault, Fault::Kill | Fault::Power) && one_in(&mut self.rng, 3);
            if faulty >= self.plan.faulty_max && !(ends && faulty > 0) {
                self.relieve_one().await;
                continue;
            }
            let fits = |nth: &usize| {
                let node = &self.nodes[*nth];
                node.faulty == ends && (!ends || self.sim.is_running(node.id))
            };
            let free: Vec<usize> = self.standing().into_iter().filter(fits).collect();
            if free.is_empty() {
                continue;
            }
            let nth = *pick(&mut self.rng, &free);
            self.world.borrow_mut().excuses.errors = true;
            self.world.borrow_mut().excuses.connections = true;
            self.inject(fault, nth);
        }
    }

    pub(crate) fn inject(&mut self, fault: Fault, nth: usize) {
        let id = self.nodes[nth].id;
        self.nodes[nth].faulty = true;
        if fault.loses_memory() {
            self.world.borrow_mut().forget_seen();
        }
        match fault {
            Fault::Kill => {
                self.world.borrow_mut().stats.kills += 1;
                self.note_end(nth, false);
                self.sim.kill(id);
            }
            Fault::Power => {
                self.world.borrow_mut().stats.power_losses += 1;
                self.note_end(nth, true);
                self.sim.crash(id);
            }
            Fault::Blackout => self.black_out(),
            Fault::Pause => self.sim.pause(id),
            Fault::Isolate => self.sim.isolate(id),
            Fault::Split => {
                let side: Vec<NodeId> =
                    self.nodes.iter().map(|node| node.id).filter(|_| one_in(&mut self.rng, 2)).collect();
                for node in &self.nodes {
                    let crosses = |other: &&NodeId| **other != node.id && !side.contains(&node.id);
                    side.iter().filter(crosses).for_each(|other| self.sim.partition(node.id, *other));
                }
            }
            Fault::OneWay => {
                let other = pick(&mut self.rng, &self.nodes).id;
                if other != id {
                    self.sim.partition_one_way(id, other);
                }
            }
            Fault::Rift => {
                let other = pick(&mut self.rng, &self.nodes).id;
                if other != id {
                    self.sim.partition(id, other);
                }
            }
            Fault::SlowLinks => {
                let latency_max = Duration::from_millis(*pick(&mut self.rng, &[5, 50, 500]));
                self.set_links(nth, Some(LinkConfig { latency_max, ..LinkConfig::default() }));
            }
            Fault::LossyLinks => {
                let link = LinkConfig {
                    loss_per_million: *pick(&mut self.rng, &[1_000, 30_000, 300_000]),
                    reset_per_million: *pick(&mut self.rng, &[0, 1_000, 30_000]),
                    ..LinkConfig::default()
                };
                self.set_links(nth, Some(link));
            }
            Fault::ClockJump => {
                // Its earlier readings may have expired values for good, should it go back.
                self.world.borrow_mut().note_jump(id);
                let seconds = self.draw_jump();
                self.sim.jump_clock(id, seconds * 1_000_000 + self.rng.below(1_000_000) as i64);
                // This fault does not last.
                self.nodes[nth].faulty = false;
            }
            Fault::SlowDisk | Fault::FullDisk | Fault::DiskErrors => {
                self.world.borrow_mut().stats.disk_faults += 1;
                self.nodes[nth].disk_failed |= fault == Fault::DiskErrors;
                let rng = &mut self.rng;
                self.sim.configure_disk(id, |disk| fault.disk(rng, disk));
            }
        }
    }

    /// By how many seconds a clock jumps.
    fn draw_jump(&mut self) -> i64 {
        let seconds = *pick(&mut self.rng, &[1, 15, 90, -3, -20]);
        if self.plan.hours && one_in(&mut self.details, 3) {
            return *pick(&mut self.details, &[3_600, 40_000, -3_600, -40_000]);
        }
        seconds
    }

    /// All machines lose power. They start again one after the other, as the fault of each ends.
    fn black_out(&mut self) {
        for nth in self.standing() {
            self.world.borrow_mut().stats.power_losses += 1;
            self.note_end(nth, true);
            self.sim.crash(self.nodes[nth].id);
            self.nodes[nth].faulty = true;
        }
    }

    /// One packet in seven between any two nodes is lost and sent again, while the others are as quick as ever: a read of two replicas
    /// soon after a write has a good chance that both have yet to hear of it.
    fn lose_packets(&self) {
        self.world.borrow_mut().excuses.errors = true;
        let link = LinkConfig { loss_per_million: 150_000, ..LinkConfig::default() };
        for one in &self.nodes {
            for other in self.nodes.iter().filter(|other| other.id != one.id) {
                self.sim.set_link(one.id, other.id, Some(link.clone()));
            }
        }
    }

    /// Sets the links between a node and all others, the clients included; none for those of the plan.
    pub(crate) fn set_links(&self, nth: usize, link: Option<LinkConfig>) {
        let id = self.nodes[nth].id;
        self.sim.set_link(id, self.sim.client(), link);
        self.sim.set_link(self.sim.client(), id, link);
        for other in (0..self.nodes.len()).filter(|other| *other != nth) {
            let link = link.or_else(|| self.plan.link(nth, other));
            self.sim.set_link(id, self.nodes[other].id, link);
            self.sim.set_link(self.nodes[other].id, id, link);
        }
    }

    /// Ends the faults of one node.
    async fn relieve_one(&mut self) {
        let faulty: Vec<usize> = self.standing().into_iter().filter(|nth| self.nodes[*nth].faulty).collect();
        if !faulty.is_empty() {
            let nth = *pick(&mut self.rng, &faulty);
            self.relieve(nth);
        }
    }

    /// Ends a node's faults: its network is whole, its disk works, its process runs.
    pub(crate) fn relieve(&mut self, nth: usize) {
        let id = self.nodes[nth].id;
        for other in self.nodes.iter().map(|node| node.id).chain([self.sim.client()]) {
            if other != id {
                self.sim.heal(id, other);
            }
        }
        self.set_links(nth, None);
        let healthy = self.plan.machine.disk();
        self.sim.configure_disk(id, |disk| *disk = healthy);
        self.sim.resume(id);
        let runs = self.sim.is_running(id);
        if self.nodes[nth].disk_failed && runs {
            // A shard whose disk failed takes no requests until its node is started again.
            self.world.borrow_mut().stats.kills += 1;
            self.note_end(nth, false);
            self.restart(nth);
        } else if !runs {
            self.start(nth);
        }
        self.nodes[nth].disk_failed = false;
        self.nodes[nth].faulty = false;
    }
}
