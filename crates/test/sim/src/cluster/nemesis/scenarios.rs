//! Scripted faults for cases that chance hardly ever hits: a coordinator that ends in the middle of a logged batch, a
//! node that does not hear of a topology change and is used by clients all the same, a node that joins when a replica has just
//! missed something.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rt_sim::NodeId;

use crate::cluster::director::ClusterDirector;
use crate::cluster::plan::focus::Focus;
use crate::plan::{one_in, pick};

/// About how long a coordinator runs on after one of its replicas stopped hearing it, milliseconds: less than a write may take, or it
/// would know that there is a hint to store for that one.
const CUT_MILLIS: u64 = 1_200;
/// About how long a node that was ended is left alone afterwards, milliseconds.
const BACK_MILLIS: u64 = 1_500;
/// About how long clients ask a node that uses a stale topology version, milliseconds.
const DEAF_MILLIS: u64 = 15_000;
/// How long a node that joins may take that need not wait for another.
const JOINED_MAX: Duration = Duration::from_secs(30);
/// About how long a disk takes from one rotten bit to the next, milliseconds.
const ROT_MILLIS: u64 = 700;
/// The directory of a node's SSTables of the clients' keyspace.
const TABLES: &str = "/torc/data/k0";
/// About how long a replica is unreachable, milliseconds: longer than a write may take, and not so long that it is convicted.
const AWAY_MILLIS: u64 = 8_000;

impl ClusterDirector {
    /// Two nodes that are there.
    fn two(&mut self) -> (usize, usize) {
        let one = self.any_node();
        let others: Vec<usize> = self.present().into_iter().filter(|nth| *nth != one).collect();
        (one, *pick(&mut self.rng, &others))
    }

    /// Again and again a node does not reach one of its replicas any more, or no other node, and loses power soon after.
    pub(crate) async fn end_coordinators(&mut self, until: Duration) {
        self.excuse_all();
        while self.sim.now() < until && !self.failed() {
            let (node, replica) = self.two();
            let from = self.nodes[node].id;
            let alone = self.plan.focus == Some(Focus::Repairs) && one_in(&mut self.rng, 2);
            let deaf: Vec<NodeId> = match alone {
                true => self.nodes.iter().map(|other| other.id).filter(|other| *other != from).collect(),
                false => vec![self.nodes[replica].id],
            };
            deaf.iter().for_each(|to| self.sim.partition_one_way(from, *to));
            self.rest_about(CUT_MILLIS).await;
            self.world.borrow_mut().forget_seen();
            self.world.borrow_mut().stats.power_losses += 1;
            self.note_start(node);
            // Messages in flight go with its power; of a process that is killed they would still arrive.
            self.sim.restart(from);
            self.rt.sleep(Duration::from_millis(1)).await;
            deaf.iter().for_each(|to| self.sim.heal(from, *to));
            self.rest_about(BACK_MILLIS).await;
        }
    }

    /// Bits of one node's SSTables flip, again and again; its answers are right or errors. In the end its disk is
    /// replaced, and the others stream its data; or the damaged files are removed, and a repair restores their rows.
    pub(crate) async fn rot(&mut self, until: Duration) {
        self.excuse_all();
        let victim = self.any_node();
        let id = self.nodes[victim].id;
        self.world.borrow_mut().stats.disk_faults += 1;
        let mut rotten = BTreeSet::new();
        while self.sim.now() < until && !self.failed() {
            self.rest_about(ROT_MILLIS).await;
            let is_of_table =
                |path: &Path| path.starts_with(TABLES) && path.extension() == Some("db".as_ref());
            let files: Vec<(PathBuf, u64)> =
                self.sim.files(id).into_iter().filter(|(path, len)| is_of_table(path) && *len > 0).collect();
            if files.is_empty() {
                continue;
            }
            let (path, len) = pick(&mut self.rng, &files);
            let at = self.rng.below(*len);
            self.sim.corrupt_file(id, path, at, 1);
            rotten.insert(path.clone());
        }
        match self.plan.forces {
            true => self.rotten = Some((victim, rotten)),
            false => self.replace_disk(victim).await,
        }
    }

    /// Fault after fault hits the same few nodes, and no others. A node may join meanwhile.
    pub(crate) async fn fault_few(&mut self, until: Duration) {
        self.excuse_all();
        let mut victims = self.present();
        while victims.len() > self.plan.faulty_max {
            let nth = self.rng.below(victims.len() as u64) as usize;
            victims.swap_remove(nth);
        }
        while self.sim.now() < until && !self.failed() {
            let nth = *pick(&mut self.rng, &victims);
            if self.nodes[nth].faulty && one_in(&mut self.rng, 2) {
                self.relieve(nth);
            } else {
                // A node may end while its network or its disk is faulty.
                let fault = *pick(&mut self.rng, &self.plan.faults);
                self.inject(fault, nth);
            }
            if one_in(&mut self.rng, 4) {
                self.join_one();
            }
            self.rest_about(self.plan.fault_millis).await;
        }
    }

    /// A node joins while another is down for so long that nobody waits for it. That one comes back for clients and for a node that does not
    /// lead, and uses the previous topology version.
    pub(crate) async fn deafen(&mut self) {
        self.excuse_all();
        let (deaf, heard) = self.two();
        self.sim.isolate(self.nodes[deaf].id);
        if let Some(joiner) = self.next_joiner() {
            self.join_one();
            // Where the deaf one is a leaving replica the change waits for it a while.
            let begun = self.sim.now();
            while !self.is_ready(joiner) && self.sim.now() - begun < JOINED_MAX && !self.failed() {
                self.rt.sleep(Duration::from_millis(100)).await;
            }
        }
        for other in [self.nodes[heard].id, self.sim.client()] {
            self.sim.heal(self.nodes[deaf].id, other);
        }
        self.rest_about(DEAF_MILLIS).await;
    }

    /// Nodes join one after the other, each soon after a replica was down for a while.
    pub(crate) async fn join_past_stale(&mut self) {
        self.excuse_all();
        while let Some(joiner) = self.next_joiner() {
            let away = self.any_node();
            self.sim.isolate(self.nodes[away].id);
            self.rest_about(AWAY_MILLIS).await;
            self.relieve(away);
            self.rest_about(BACK_MILLIS).await;
            self.join_one();
            self.wait_ready(joiner).await;
            if self.failed() {
                return;
            }
        }
        self.rest_about(BACK_MILLIS).await;
    }
}
