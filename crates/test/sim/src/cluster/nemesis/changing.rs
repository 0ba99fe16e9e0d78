//! Topology changes one after the other while clients work: a node alone that becomes a cluster, with the replication factor raised
//! beside it; and changes of all kinds with and without time between them, some of them interrupted, aborted and begun again, or forced.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cluster::director::{Change, ClusterDirector, SETTLE_TIME};
use crate::cluster::nemesis::repair::repair_all;
use crate::cluster::node::Place;
use crate::cluster::plan::fault::Fault;
use crate::cluster::plan::focus::Focus;
use crate::cluster::plan::grace::Grace;
use crate::cluster::plan::replication::Copies;
use crate::cluster::plan::ring_event::RingEvent;
use crate::plan::{one_in, pick};
use crate::rest;
use crate::statement::Query;

/// About how long a change lasts before it is forced or aborted, milliseconds.
const UNDER_WAY_MILLIS: u64 = 900;
/// About how long an ended node stays down, milliseconds.
const AWAY_MILLIS: u64 = 2_000;
/// About how long nothing changes, milliseconds, where there is time between two changes.
const GRACE_MILLIS: u64 = 8_000;
/// Logged batches of a coordinator that is dead for good are carried out by then: until then no other may die for good.
pub(crate) const BATCHES_TIME: Duration = Duration::from_secs(60);
/// A statement or a verb that is not accepted so long after all faults never will be.
const TIME_MAX: Duration = Duration::from_secs(600);
const ASK_PAUSE: Duration = Duration::from_secs(1);
/// Copies of everything, where there are nodes enough.
const COPIES_MAX: usize = 3;
/// Faults that interrupt a change.
const INTERRUPTIONS: [Fault; 4] = [Fault::Kill, Fault::Power, Fault::Pause, Fault::Isolate];

impl ClusterDirector {
    /// Nodes that clients ask although they have yet to join.
    pub(crate) fn later_servers(&self) -> Vec<usize> {
        let later = |nth: &usize| {
            self.plan.focus == Some(Focus::Growth) && self.nodes[*nth].place.get() == Place::Spare
        };
        (0..self.nodes.len()).filter(later).collect()
    }

    /// Nodes join one that was alone, and the replication factor follows.
    pub(crate) async fn grow(&mut self, until: Duration) {
        self.excuse_all();
        while let Some(joiner) = self.next_joiner() {
            self.rest_about(GRACE_MILLIS).await;
            self.join_one();
            if one_in(&mut self.rng, 2) {
                self.interrupt().await;
            }
            if one_in(&mut self.rng, 2) {
                self.wait_ready(joiner).await;
                self.raise_copies().await;
            }
            if self.failed() {
                return;
            }
        }
        for nth in self.present() {
            self.wait_ready(nth).await;
        }
        self.raise_copies().await;
        if one_in(&mut self.rng, 2) {
            self.interrupt().await;
        }
        let left = until.saturating_sub(self.sim.now());
        self.rt.sleep(left).await;
    }

    /// Raises the replication factor of the clients' keyspace to the number of nodes.
    async fn raise_copies(&mut self) {
        let ready = self.present().into_iter().filter(|nth| self.is_ready(*nth)).count();
        let copies = Copies::Anywhere(ready.min(COPIES_MAX));
        if self.copies == copies {
            return;
        }
        let text = format!("ALTER KEYSPACE k0 WITH replication = {{{}}}", copies.replication());
        self.copies = copies;
        (self.changed, self.hints_lost) = (true, true);
        let begun = self.sim.now();
        while !self.failed() {
            match self.alter(&text).await {
                Ok(()) => break,
                Err(problem) if self.sim.now() - begun > TIME_MAX => {
                    self.world.borrow_mut().fail(format!("checker ring: {text}: {problem}"));
                }
                Err(_) => self.rt.sleep(ASK_PAUSE).await,
            }
        }
        let mut world = self.world.borrow_mut();
        world.stats.schema_changes += 1;
        world.forget_seen();
    }

    async fn alter(&mut self, text: &str) -> Result<(), String> {
        let nth = self.any_node();
        let mut connection = self.connect(nth).await?;
        connection.query(&Query::text(text), None).await.map(drop).map_err(|failure| failure.to_string())
    }

    /// Somebody ends, or is cut off, in the middle of a change, and comes back.
    pub(crate) async fn interrupt(&mut self) {
        self.rest_about(UNDER_WAY_MILLIS).await;
        let standing = self.standing();
        let nth = *pick(&mut self.rng, &standing);
        if !self.sim.is_running(self.nodes[nth].id) {
            return;
        }
        let fault = *pick(&mut self.rng, &INTERRUPTIONS);
        self.inject(fault, nth);
        self.rest_about(AWAY_MILLIS).await;
        self.relieve(nth);
    }

    /// A node joins, or one leaves where none is left to join; somebody may end in the middle.
    pub(crate) async fn change_once(&mut self, until: Duration) {
        self.excuse_all();
        self.rest_about(UNDER_WAY_MILLIS).await;
        match self.next_joiner().is_some() {
            true => self.join_one(),
            false => drop(self.begin_change(RingEvent::Leave).await),
        }
        if one_in(&mut self.rng, 2) {
            self.interrupt().await;
        }
        let left = until.saturating_sub(self.sim.now());
        self.rt.sleep(left).await;
    }

    /// Changes the ring until a time, each change as soon as the one before has completed, or after a while.
    pub(crate) async fn change_again(&mut self, until: Duration) {
        self.excuse_all();
        let mut dies_from = Duration::ZERO;
        while self.sim.now() < until && !self.failed() {
            self.reuse_machines().await;
            let begun = match self.rng.below(5) {
                0 => {
                    let joins = self.next_joiner();
                    self.join_one();
                    joins.is_some()
                }
                1 | 2 => self.begin_change(RingEvent::Leave).await,
                _ if self.sim.now() < dies_from => false,
                _ => {
                    let event =
                        *pick(&mut self.rng, &[RingEvent::Remove, RingEvent::Replace, RingEvent::NewDisk]);
                    let begun = self.begin_change(event).await;
                    if begun {
                        dies_from = self.sim.now() + BATCHES_TIME;
                    }
                    begun
                }
            };
            if !begun {
                self.rest_about(UNDER_WAY_MILLIS).await;
                continue;
            }
            match self.rng.below(4) {
                0 => {}
                1 => self.interrupt().await,
                2 => self.take_back().await,
                _ => self.rest_about(UNDER_WAY_MILLIS).await,
            }
            self.finish_change().await;
            if one_in(&mut self.rng, 2) {
                self.rest_about(GRACE_MILLIS).await;
            }
        }
    }

    /// Waits until a change has completed, without faults.
    pub(crate) async fn finish_change(&mut self) {
        for nth in self.standing().into_iter().filter(|nth| self.nodes[*nth].faulty).collect::<Vec<_>>() {
            self.relieve(nth);
        }
        for nth in self.present() {
            self.wait_ready(nth).await;
        }
        self.settle_ring().await;
    }

    /// Aborts a change that is under way: a leaving node stays, or gets a second decommission; a joining one ends and is removed.
    async fn take_back(&mut self) {
        self.rest_about(UNDER_WAY_MILLIS).await;
        match self.change.take() {
            Some(change) if change.event == RingEvent::Leave => {
                let stays = one_in(&mut self.rng, 2);
                change.over.set(stays);
                let path = "/storage_service/abort_decommission";
                let answer = rest::post(&self.rt, self.rest(change.subject), path).await;
                self.world.borrow_mut().stats.aborts += u64::from(answer.is_ok());
                if !stays || !self.stays(change.subject).await {
                    self.change = Some(change);
                }
            }
            Some(change) => self.change = Some(change),
            None => self.take_join_back().await,
        }
    }

    /// Whether a node stays in the ring whose decommission nobody repeats. It may have left before the abort reached it.
    async fn stays(&mut self, nth: usize) -> bool {
        for task in std::mem::take(&mut self.asking) {
            task.await;
        }
        let begun = self.sim.now();
        while !self.failed() {
            // The node is expected to be in the ring; its absence is the finding.
            self.nodes[nth].place.set(Place::Here);
            let Some(problem) = self.ring_problem().await else { return true };
            self.nodes[nth].place.set(Place::Leaving);
            if self.ring_problem().await.is_none() {
                return false;
            }
            if self.sim.now() - begun > TIME_MAX {
                let text = format!("checker ring: a decommission that was aborted is not over: {problem}");
                self.world.borrow_mut().fail(text);
            }
            self.rt.sleep(ASK_PAUSE).await;
        }
        true
    }

    /// The node that joins ends for good, and is removed. Its machine may join anew.
    async fn take_join_back(&mut self) {
        let is_new = |nth: &usize| self.nodes[*nth].joins && !self.is_ready(*nth);
        let Some(joiner) = self.present().into_iter().find(is_new) else { return };
        self.bury(joiner).await;
        self.nodes[joiner].joins = false;
        // Its request is in the log by then, or never will be.
        self.rt.sleep(SETTLE_TIME).await;
        let Some(other) = self.present().into_iter().find(|nth| self.is_ready(*nth)) else { return };
        match self.host_of(joiner, other).await {
            Some(host) => {
                let change = Change::new(RingEvent::Remove, joiner);
                self.ask_for_removal(&change, &host);
                self.change = Some(change);
                self.world.borrow_mut().stats.aborts += 1;
            }
            None => self.nodes[joiner].place.set(Place::Gone),
        }
    }

    /// The host id of a node, as another one knows it.
    async fn host_of(&self, nth: usize, other: usize) -> Option<String> {
        let ids = rest::get(&self.rt, self.rest(other), "/storage_service/host_id").await.ok()?;
        let ids: Vec<&str> = rest::body(&ids).split('{').collect();
        let entry = ids.into_iter().find(|entry| entry.contains(&format!("\"{}\"", self.ip(nth))))?;
        let value = entry.split_once("\"value\":")?.1;
        Some(value.split('"').nth(1)?.to_owned())
    }

    /// An operator's repair of damaged files without another disk (docs/operations/damage.md): repairs, or removes all files of those
    /// SSTables while the node is down before that.
    async fn repair_damage(&mut self, nth: usize, damaged: &BTreeSet<PathBuf>) -> Result<(), String> {
        // Neither a count nor a deletion that others have purged is brought by a repair.
        let by_repair =
            self.plan.grace == Grace::Never && !damaged.iter().any(|path| self.holds_counts(path));
        if by_repair && one_in(&mut self.details, 2) {
            self.reunite().await;
            // A major compaction reads cached blocks first, and fails for each damaged SSTable.
            for _ in 0..=damaged.len() {
                let _ = rest::post(&self.rt, self.rest(nth), "/storage_service/keyspace_compaction/k0").await;
            }
            return repair_all(self, "k0").await;
        }
        let id = self.nodes[nth].id;
        self.world.borrow_mut().stats.kills += 1;
        self.note_end(nth, false);
        self.sim.kill(id);
        // The kill takes effect after this turn.
        self.rt.sleep(Duration::from_millis(1)).await;
        let of_sstable = |path: &Path| {
            let name = path.file_name()?.to_str()?.rsplit_once('-')?.0;
            Some(path.with_file_name(name))
        };
        let sstables: BTreeSet<PathBuf> = damaged.iter().filter_map(|path| of_sstable(path)).collect();
        for (path, _) in self.sim.files(id) {
            if of_sstable(&path).is_some_and(|name| sstables.contains(&name)) {
                self.sim.remove_file(id, &path);
            }
        }
        self.start(nth);
        self.wait_ready(nth).await;
        self.reunite().await;
        if self.failed() {
            return Ok(());
        }
        repair_all(self, "k0").await
    }

    /// Whether a file is of a table of counters.
    fn holds_counts(&self, path: &Path) -> bool {
        let directory = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        let Some((name, _id)) = directory.and_then(|name| name.rsplit_once('-')) else { return false };
        let world = self.world.borrow();
        world.tables.iter().any(|table| table.name == name && table.shape.is_counter())
    }

    /// An operator's actions after the clients have ended: forces the removal of a dead node, after which a repair must bring everything back.
    pub(crate) async fn after_work(&mut self) -> Result<(), String> {
        if !self.plan.forces || self.failed() {
            return Ok(());
        }
        if let Some((nth, files)) = self.rotten.take() {
            return self.repair_damage(nth, &files).await;
        }
        self.finish_change().await;
        self.reunite().await;
        self.rt.sleep(SETTLE_TIME).await;
        let Some(subject) = self.subject(RingEvent::Remove) else { return Ok(()) };
        let others: Vec<usize> = self.present().into_iter().filter(|nth| *nth != subject).collect();
        let Some(host) = self.host_of(subject, others[0]).await else {
            return Err(format!("checker ring: node {} has no host id of node {subject}", others[0]));
        };
        self.bury(subject).await;
        (self.changed, self.hints_lost) = (true, true);
        let change = Change::new(RingEvent::Remove, subject);
        let assassinates = one_in(&mut self.rng, 2);
        if !assassinates {
            self.ask_for_removal(&change, &host);
        }
        self.change = Some(change);
        let begun = self.sim.now();
        loop {
            self.rest_about(UNDER_WAY_MILLIS).await;
            let path = match assassinates {
                true => format!("/gossiper/assassinate/{}", self.ip(subject)),
                false => "/storage_service/force_remove_completion".to_owned(),
            };
            let nth = *pick(&mut self.rng, &others);
            let server = self.rest(nth);
            match rest::post(&self.rt, server, &path).await {
                Ok(()) => break,
                // It may be removed already.
                Err(_) if self.ring_problem().await.is_none() => break,
                Err(answer) if self.sim.now() - begun > TIME_MAX => {
                    return Err(format!("checker ring: {path}: {answer}"));
                }
                Err(_) => {}
            }
        }
        self.world.borrow_mut().stats.aborts += 1;
        self.settle_ring().await;
        self.reunite().await;
        if self.failed() {
            return Ok(());
        }
        repair_all(self, "k0").await?;
        if !self.plan.replications.is_empty() {
            repair_all(self, "k1").await?;
        }
        Ok(())
    }
}
