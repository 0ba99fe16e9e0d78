//! A machine whose disk is restored from an older image: its node must not serve, after any other events, until it is replaced with
//! an empty disk (docs/design/rollback.md).

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::cluster::director::ClusterDirector;
use crate::cluster::nemesis::changing::BATCHES_TIME;
use crate::cluster::node::Place;
use crate::cluster::plan::fault::Fault;
use crate::cluster::plan::ring_event::RingEvent;
use crate::plan::{one_in, pick};

/// About how long clients write before an image is taken, milliseconds.
const BEFORE_MILLIS: u64 = 4_000;
/// An image that is older than this when its node ends is noticed: the node has gossiped beyond the record of the image.
const WINDOW: Duration = Duration::from_secs(22);
/// About how much older it is, milliseconds.
const OLDER_MILLIS: u64 = 6_000;
/// About how long another node is faulty, milliseconds.
const AWAY_MILLIS: u64 = 3_000;
/// By then a node has found out that its disk was rolled back.
const REFUSED_MAX: Duration = Duration::from_secs(60);
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// The node's error then.
const REASON: &str = "disk was rolled back";

impl ClusterDirector {
    /// Restores the disk of a node from an image, again and again, and has the node replaced.
    pub(crate) async fn restore_disks(&mut self, until: Duration) {
        self.excuse_all();
        loop {
            self.rest_about(BEFORE_MILLIS).await;
            let Some(victim) = self.subject(RingEvent::NewDisk) else { continue };
            self.restore_disk(victim).await;
            if self.failed() {
                return;
            }
            self.replace_disk(victim).await;
            self.finish_change().await;
            // A second machine that loses its disk soon may take the last copy of a logged batch along.
            if self.sim.now() + WINDOW >= until || self.failed() {
                break;
            }
            self.rt.sleep(BATCHES_TIME).await;
        }
        let left = until.saturating_sub(self.sim.now());
        self.rt.sleep(left).await;
    }

    /// Takes an image of a node's disk, and later restores it. The node must say why it does not serve.
    async fn restore_disk(&mut self, victim: usize) {
        let id = self.nodes[victim].id;
        let image = self.sim.disk_image(id);
        if one_in(&mut self.rng, 2) {
            self.interrupt().await;
        }
        if one_in(&mut self.rng, 3) {
            self.world.borrow_mut().stats.kills += 1;
            self.note_end(victim, false);
            self.restart(victim);
        }
        for nth in self.present() {
            self.wait_ready(nth).await;
        }
        self.rt.sleep(WINDOW).await;
        self.rest_about(OLDER_MILLIS).await;
        let others: Vec<usize> = self.present().into_iter().filter(|nth| *nth != victim).collect();
        let faulty = one_in(&mut self.rng, 2).then(|| *pick(&mut self.rng, &others));
        if let Some(nth) = faulty {
            let fault = *pick(&mut self.rng, &[Fault::Kill, Fault::Pause, Fault::Isolate]);
            self.inject(fault, nth);
        }
        let power = one_in(&mut self.rng, 2);
        self.note_end(victim, power);
        self.nodes[victim].place.set(Place::Dead);
        self.nodes[victim].starts_from = None;
        match power {
            true => self.sim.crash(id),
            false => self.sim.kill(id),
        }
        // It takes effect after this turn.
        self.rt.sleep(Duration::from_millis(1)).await;
        self.rest_about(AWAY_MILLIS).await;
        self.sim.restore_disk(id, &image);
        self.world.borrow_mut().stats.rollbacks += 1;
        self.must_refuse(victim).await;
        if let Some(nth) = faulty {
            self.rest_about(AWAY_MILLIS).await;
            self.relieve(nth);
        }
    }

    /// Starts a node whose disk was rolled back.
    async fn must_refuse(&mut self, nth: usize) {
        let (id, ready) = (self.nodes[nth].id, self.nodes[nth].ready.load(Ordering::Relaxed));
        self.sim.start(id);
        let begun = self.sim.now();
        let problem = loop {
            self.rt.sleep(LOOK_PAUSE).await;
            if self.nodes[nth].ready.load(Ordering::Relaxed) > ready {
                break Some("serves".to_owned());
            }
            if !self.sim.is_running(id) {
                let said = format!("{:?}", self.sim.exits(id));
                break (!said.contains(REASON)).then(|| format!("has ended with {said}"));
            }
            if self.sim.now() - begun > REFUSED_MAX {
                break Some(format!("runs on after {REFUSED_MAX:?}"));
            }
        };
        if let Some(problem) = problem {
            let text = format!(
                "checker rollback: node {nth}, whose disk was restored from an older image, {problem}"
            );
            self.world.borrow_mut().fail(text);
        }
    }
}
