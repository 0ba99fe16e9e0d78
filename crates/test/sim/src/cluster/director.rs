//! The state of a cluster's run, and the steps that everything above has in common: starting nodes and waiting for them, and asking one
//! of them. It injects no fault, and knows no checker and no phase of a run.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rt::{Rt, Task};
use rt_sim::{Rng, Sim};
use wire::Consistency;

use crate::client::{Connection, Failure};
use crate::cluster::models::ddl::SharedSchema;
use crate::cluster::models::indexed::SharedIndexed;
use crate::cluster::models::items::SharedItems;
use crate::cluster::models::lwt::LwtTables;
use crate::cluster::models::replicating::SharedCopied;
use crate::cluster::models::serial::SharedRegisters;
use crate::cluster::models::stamps::SharedStamps;
use crate::cluster::models::truncating::SharedCut;
use crate::cluster::node::{Member, Place, REST_PORT};
use crate::cluster::plan::ClusterPlan;
use crate::cluster::plan::replication::Copies;
use crate::cluster::plan::ring_event::RingEvent;
use crate::plan::pick;
use crate::session;
use crate::statement::Query;
use crate::world::SharedWorld;

/// A node that is not ready by then will not be. Each join that is ahead of one that takes a dead node's place may wait for the dead one twice for a minute.
const START_TIME_MAX: Duration = Duration::from_secs(900);
/// How long the nodes may take to find each other again after faults.
const REUNION_TIME_MAX: Duration = Duration::from_secs(300);
/// Longer than a request that a client has given up can take to be executed.
pub(crate) const SETTLE_TIME: Duration = Duration::from_secs(15);
/// How often a join may be retried before the quiescent phase.
const JOIN_TRIES: u32 = 6;
const JOIN_PAUSE: Duration = Duration::from_secs(10);

/// A topology change that was begun and is not known to be over.
pub(crate) struct Change {
    pub(crate) event: RingEvent,
    /// The node under change.
    pub(crate) subject: usize,
    /// Nobody has to ask for it any more.
    pub(crate) over: Rc<Cell<bool>>,
    /// The last answer to a request.
    pub(crate) progress: Rc<RefCell<String>>,
}

impl Change {
    /// One that is about to begin.
    pub(crate) fn new(event: RingEvent, subject: usize) -> Self {
        Self { event, subject, over: Rc::default(), progress: Rc::default() }
    }
}

/// Directs a run.
pub(crate) struct ClusterDirector {
    pub(crate) rt: Rt,
    pub(crate) sim: Sim,
    pub(crate) nodes: Vec<Member>,
    pub(crate) plan: Rc<ClusterPlan>,
    pub(crate) world: SharedWorld,
    /// The replication factor now.
    pub(crate) copies: Copies,
    pub(crate) registers: SharedRegisters,
    pub(crate) lwt: LwtTables,
    pub(crate) stamps: SharedStamps,
    pub(crate) schema: SharedSchema,
    pub(crate) cut: SharedCut,
    pub(crate) indexed: SharedIndexed,
    pub(crate) items: SharedItems,
    pub(crate) copied: SharedCopied,
    /// Draws that came later than others.
    pub(crate) details: Rng,
    pub(crate) rng: Rng,
    /// The topology change that is under way.
    pub(crate) change: Option<Change>,
    /// The ring was changed in this round.
    pub(crate) changed: bool,
    /// Hints may have been lost in this round, with a node that is gone.
    pub(crate) hints_lost: bool,
    /// When this round began: a hint of it is at most as old.
    pub(crate) began: Duration,
    /// A node whose files rot, and those files.
    pub(crate) rotten: Option<(usize, BTreeSet<PathBuf>)>,
    /// Requests to operators' interfaces that go on by themselves.
    pub(crate) asking: Vec<Task<()>>,
}

impl ClusterDirector {
    /// A node's address for clients.
    pub(crate) fn server(&self, nth: usize) -> SocketAddr {
        SocketAddr::new(self.sim.ip(self.nodes[nth].id), 9042)
    }

    /// A node's address for operators.
    pub(crate) fn rest(&self, nth: usize) -> SocketAddr {
        SocketAddr::new(self.ip(nth), REST_PORT)
    }

    /// A node's address.
    pub(crate) fn ip(&self, nth: usize) -> IpAddr {
        self.sim.ip(self.nodes[nth].id)
    }

    /// A violation was found.
    pub(crate) fn failed(&self) -> bool {
        self.world.borrow().failure.is_some()
    }

    /// A node ends, by a power failure or not. Its unsynced writes stay doubtful until it has been ready again.
    pub(crate) fn note_end(&mut self, nth: usize, power: bool) {
        let now = self.world.borrow().now();
        let node = &mut self.nodes[nth];
        let ready = node.ready.load(Ordering::Relaxed);
        let since = match node.unsynced_since {
            Some((since, before)) if before == ready => since,
            _ => now,
        };
        node.unsynced_since = Some((since, ready));
        if let (true, Some(window)) = (power, self.plan.loss_window()) {
            let since = since.saturating_sub(window.as_nanos() as u64);
            self.world.borrow_mut().doubt_since(since);
            self.registers.borrow_mut().doubt_since(since, now);
        }
    }

    /// Starts a node that is down.
    pub(crate) fn start(&mut self, nth: usize) {
        self.note_start(nth);
        self.sim.start(self.nodes[nth].id);
    }

    /// Kills a node and starts it again. The kill takes effect after this turn: a start would find the node running.
    pub(crate) fn restart(&mut self, nth: usize) {
        self.note_start(nth);
        self.sim.kill(self.nodes[nth].id);
        self.sim.start(self.nodes[nth].id);
    }

    /// The nodes that are in the cluster or about to join it.
    pub(crate) fn present(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|nth| self.nodes[*nth].place.get() == Place::Here).collect()
    }

    /// Those, and the one that leaves.
    pub(crate) fn standing(&self) -> Vec<usize> {
        let stands = |nth: &usize| matches!(self.nodes[*nth].place.get(), Place::Here | Place::Leaving);
        (0..self.nodes.len()).filter(stands).collect()
    }

    /// Whether a node has been ready since its last start, as far as that was directed.
    pub(crate) fn is_ready(&self, nth: usize) -> bool {
        let node = &self.nodes[nth];
        node.starts_from.is_none_or(|before| node.ready.load(Ordering::Relaxed) > before)
    }

    /// Any of them.
    pub(crate) fn any_node(&mut self) -> usize {
        let present = self.present();
        *pick(&mut self.rng, &present)
    }

    /// Any of them in a datacenter.
    pub(crate) fn any_node_of(&mut self, home: Option<usize>) -> usize {
        let all = self.present();
        let here: Vec<usize> =
            all.iter().copied().filter(|nth| home.is_none_or(|home| self.plan.home(*nth) == home)).collect();
        *pick(&mut self.rng, if here.is_empty() { &all } else { &here })
    }

    /// The next node that is yet to join.
    pub(crate) fn next_joiner(&self) -> Option<usize> {
        self.nodes.iter().position(|node| node.place.get() == Place::Spare)
    }

    /// Has another node join, if there is one.
    pub(crate) fn join_one(&mut self) {
        let Some(nth) = self.next_joiner() else { return };
        let mut world = self.world.borrow_mut();
        world.stats.joins += 1;
        // It streams at QUORUM, not the weaker writes that only some readers have seen.
        world.forget_seen();
        drop(world);
        self.start(nth);
    }

    /// A node is about to be started; one that was no member becomes one.
    pub(crate) fn note_start(&mut self, nth: usize) {
        self.world.borrow_mut().stats.starts += 1;
        let node = &mut self.nodes[nth];
        node.starts_from = Some(node.ready.load(Ordering::Relaxed));
        node.joins |= matches!(node.place.get(), Place::Spare | Place::Dead);
        if node.place.get() != Place::Leaving {
            node.place.set(Place::Here);
        }
    }

    /// Waits until a node that was started is ready.
    pub(crate) async fn wait_ready(&mut self, nth: usize) {
        let Some(before) = self.nodes[nth].starts_from.take() else { return };
        let mut tries = if std::mem::take(&mut self.nodes[nth].joins) { JOIN_TRIES } else { 0 };
        let begun = self.sim.now();
        while self.nodes[nth].ready.load(Ordering::Relaxed) <= before && !self.failed() {
            self.rt.sleep(Duration::from_millis(5)).await;
            let (id, exits) = (self.nodes[nth].id, self.sim.exits(self.nodes[nth].id));
            if !self.sim.is_running(id) && tries > 0 {
                // A join that failed under faults continues at its step. One whose address was another
                // node's may have to wait until that one is forgotten.
                tries -= 1;
                self.rt.sleep(JOIN_PAUSE).await;
                self.sim.start(id);
            } else if !self.sim.is_running(id) {
                return self.world.borrow_mut().fail(format!("node {nth} does not start: {exits:?}"));
            }
            if self.sim.now() - begun > START_TIME_MAX {
                return self
                    .world
                    .borrow_mut()
                    .fail(format!("node {nth} is not ready after {START_TIME_MAX:?}"));
            }
        }
    }

    /// A connection to a node that must take one.
    pub(crate) async fn connect(&mut self, nth: usize) -> Result<Connection, String> {
        let mut last = None;
        for _ in 0..50 {
            let speech = session::speech(&mut self.rng);
            match Connection::open(&self.rt, self.server(nth), speech).await {
                Ok(connection) => return Ok(connection),
                Err(failure) => last = Some(failure),
            }
            self.rt.sleep(Duration::from_millis(100)).await;
        }
        Err(format!(
            "node {nth} takes no connection: {}",
            last.map_or_else(String::new, |why| why.to_string())
        ))
    }

    /// Waits until every node knows all others and can ask them.
    pub(crate) async fn reunite(&mut self) {
        let begun = self.sim.now();
        let expected = self.present().len() - 1;
        loop {
            if self.failed() {
                return;
            }
            let mut missing = None;
            for nth in self.present() {
                match self.peers(nth).await {
                    Ok(peers) if peers == expected => {}
                    Ok(peers) => missing = Some(format!("node {nth} knows {peers} of {expected} others")),
                    Err(problem) => missing = Some(self.describe_absent(nth, &problem)),
                }
            }
            let Some(missing) = missing else { return };
            if self.sim.now() - begun > REUNION_TIME_MAX {
                let text =
                    format!("the nodes have not found each other after {REUNION_TIME_MAX:?}: {missing}");
                return self.world.borrow_mut().fail(text);
            }
            self.rt.sleep(Duration::from_millis(500)).await;
        }
    }

    /// Why a node does not answer, as far as its own error shows it.
    fn describe_absent(&self, nth: usize, problem: &str) -> String {
        let id = self.nodes[nth].id;
        match self.sim.is_running(id) {
            true => format!("node {nth}, which runs: {problem}"),
            false => format!("node {nth}, which has ended with {:?}: {problem}", self.sim.exits(id)),
        }
    }

    async fn peers(&mut self, nth: usize) -> Result<usize, String> {
        let mut connection = self.connect(nth).await?;
        let rows = connection.rows(&Query::text("SELECT peer FROM system.peers_v2"), 100).await;
        Ok(rows.map_err(|failure| failure.to_string())?.len())
    }

    /// From now on requests may fail and connections may break.
    pub(crate) fn excuse_all(&self) {
        let mut world = self.world.borrow_mut();
        (world.excuses.errors, world.excuses.connections) = (true, true);
    }

    /// From half a time to one and a half.
    pub(crate) async fn rest_about(&mut self, millis: u64) {
        let micros = millis * 500 + self.rng.below(millis * 1_000);
        self.rt.sleep(Duration::from_micros(micros)).await;
    }

    /// Writes that one or two replicas acknowledged have to be seen from now on.
    pub(crate) fn keep_promises(&mut self) {
        let mut world = self.world.borrow_mut();
        (0..world.tables.len()).for_each(|table| world.keep_promises(table));
    }

    /// The only answer to a question, at this consistency.
    pub(crate) async fn ask(
        &mut self,
        nth: usize,
        text: &str,
        consistency: Consistency,
    ) -> Result<Vec<Vec<Option<Vec<u8>>>>, String> {
        let mut connection = self.connect(nth).await?;
        connection.consistency = consistency;
        let rows = connection.rows(&Query::text(text), 1000).await;
        rows.map_err(|failure: Failure| format!("node {nth}: {text}: {failure}"))
    }
}
