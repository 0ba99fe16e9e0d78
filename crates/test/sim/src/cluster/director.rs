//! The phases of a cluster's run: it comes up, and then in turns clients work under faults, and in a quiescent phase
//! everything is compared.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rt::{Group, Rt, Task};
use rt_sim::{NodeId, Rng, Sim};
use wire::Consistency;
use wire::client::ResultBody;

use crate::client::{Connection, Failure};
use crate::cluster::checks;
use crate::cluster::checks::{
    atomic, available, bounded, changes, durable, equal, kept, left_behind, repaired, resurrection, schema,
    truncation,
};
use crate::cluster::clients::bounded::Watcher;
use crate::cluster::clients::ddl::Changer;
use crate::cluster::clients::indexed::Indexer;
use crate::cluster::clients::replicating::Replicator;
use crate::cluster::clients::stamps::Stamper;
use crate::cluster::clients::steady::{self, Prober};
use crate::cluster::clients::truncating::Truncater;
use crate::cluster::clients::views::{BaseWriter, CLIENTS};
use crate::cluster::clients::worker::ClusterWorker;
use crate::cluster::health::{Health, Machine, Served};
use crate::cluster::models::ddl::SharedSchema;
use crate::cluster::models::indexed::{self, SharedIndexed};
use crate::cluster::models::lwt::LwtTables;
use crate::cluster::models::replicating::SharedCopied;
use crate::cluster::models::serial::{self, SharedRegisters};
use crate::cluster::models::stamps::{self, SharedStamps};
use crate::cluster::models::truncating::{self, SharedCut};
use crate::cluster::models::views;
use crate::cluster::plan::replication::Copies;
use crate::cluster::plan::{ClusterPlan, SEEDS};
use crate::cluster::ring::Change;
use crate::plan::{one_in, pick, shape};
use crate::session;
use crate::statement::Query;
use crate::table::Table;
use crate::world::{Excuses, SharedWorld};

/// A node that is not ready by then will not be. Each join that is ahead of one that takes a dead node's place may wait for the dead one twice for a minute.
const START_TIME_MAX: Duration = Duration::from_secs(900);
/// How long the nodes may take to find each other again after faults.
const REUNION_TIME_MAX: Duration = Duration::from_secs(300);
/// Longer than a request that a client has given up can take to be executed.
pub(crate) const SETTLE_TIME: Duration = Duration::from_secs(15);

/// Clients change the schema up to so long after each other, or more slowly when all are slow.
const CHANGE_PAUSE_MICROS: u64 = 150_000;
/// Draws of the client of timestamps, above those of all others.
const STAMPER_STREAM: u64 = 1 << 50;
/// Draws of the client of indexes.
const INDEXER_STREAM: u64 = 1 << 51;
/// The same for the clients of a table with views.
const BASE_WRITER_STREAM: u64 = 1 << 52;
/// How often a join may be retried before the quiescent phase.
const JOIN_TRIES: u32 = 6;
const JOIN_PAUSE: Duration = Duration::from_secs(10);
/// The checks of a quiescent phase, in this order.
const CHECKS: [&str; 21] = [
    "kept",
    "truncation",
    "left_behind",
    "delivered",
    "repaired",
    "resurrection",
    "replicating",
    "truncating",
    "indexed",
    "views",
    "changes",
    "durable",
    "atomic",
    "equal",
    "serial",
    "lwt",
    "stamps",
    "schema",
    "ddl",
    "bounded",
    "available",
];

/// How a node stands to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It has yet to join.
    Spare,
    /// It is in the cluster, or about to join it.
    Here,
    /// It leaves.
    Leaving,
    /// It has ended for good, and its place is to be taken from it.
    Dead,
    /// It is in the cluster no more.
    Gone,
}

/// A node of the cluster.
pub(crate) struct Member {
    pub(crate) id: NodeId,
    /// How often it was ready.
    pub(crate) ready: Arc<AtomicU64>,
    /// Shared with the checkers that need to know which nodes are healthy.
    pub(crate) place: Rc<Cell<Place>>,
    /// How often it was started, and the start after which it was ready last.
    pub(crate) served: Served,
    /// Started by a new node: its join may fail under faults.
    pub(crate) joins: bool,
    /// The address of the node that it replaces when it joins.
    pub(crate) replaces: Rc<RefCell<Option<IpAddr>>>,
    /// Something is done to it.
    pub(crate) faulty: bool,
    /// Its disk gave errors, after which it may take no more requests.
    pub(crate) disk_failed: bool,
    /// It was started when it had been ready so often, and has not been seen ready since.
    pub(crate) starts_from: Option<u64>,
    /// When it ended with writes that were not synced, and how often it had been ready then: once it is again, they are.
    pub(crate) unsynced_since: Option<(u64, u64)>,
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

    pub(crate) fn failed(&self) -> bool {
        self.world.borrow().failure.is_some()
    }

    /// The whole run.
    pub(crate) async fn run(mut self) {
        for (nth, drift) in self.plan.drifts.clone().into_iter().enumerate() {
            self.sim.set_clock_drift(self.nodes[nth].id, drift);
        }
        for nth in 0..self.nodes.len() {
            self.set_links(nth, None);
        }
        for nth in 0..self.plan.founders {
            self.start(nth);
            // The first one founds the cluster when every other seed has answered that it has none.
            if one_in(&mut self.rng, 2) && nth + 1 >= SEEDS.min(self.plan.founders) {
                self.wait_ready(nth).await;
            }
        }
        for nth in 0..self.plan.founders {
            self.wait_ready(nth).await;
        }
        self.reunite().await;
        self.create().await;
        for round in 0..self.plan.rounds {
            if self.failed() {
                return;
            }
            self.reuse_machines().await;
            if round + 1 == self.plan.rounds && !self.joins_in_scenarios() {
                // All that are left, at once.
                while self.next_joiner().is_some() {
                    self.join_one();
                }
            }
            self.work().await;
            self.quiesce().await;
        }
        self.world.borrow_mut().down = true;
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

    /// Makes a keyspace and tables.
    async fn create(&mut self) {
        if self.failed() {
            return;
        }
        let mut connection = match self.connect(0).await {
            Ok(connection) => connection,
            Err(problem) => return self.world.borrow_mut().fail(problem),
        };
        let class = self.copies.replication();
        self.change_schema(&mut connection, &format!("CREATE KEYSPACE k0 WITH replication = {{{class}}}"))
            .await;
        for number in 0..self.plan.machine.tables {
            let counter = number > 0 && (one_in(&mut self.rng, 2) || self.plan.counters);
            let options = self.plan.grace.options(&mut self.rng);
            let mut shape = shape(&mut self.rng, counter, &mut self.world.borrow_mut().next_column);
            if counter && self.plan.counters {
                shape.columns.truncate(1);
            }
            let mut table = Table::new("k0".to_owned(), format!("t{number}"), shape, options);
            table.scale = self.plan.scale;
            let text = table.create_text();
            self.world.borrow_mut().tables.push(table);
            self.change_schema(&mut connection, &text).await;
        }
        if self.plan.serial_percent > 0 {
            self.change_schema(&mut connection, &serial::create_text()).await;
        }
        for text in self.lwt.create_texts("k0") {
            self.change_schema(&mut connection, &text).await;
        }
        if self.plan.operations.stamps {
            self.change_schema(&mut connection, &stamps::create_text()).await;
        }
        if self.plan.truncates {
            self.change_schema(&mut connection, &truncating::create_text()).await;
            for text in indexed::create_texts() {
                self.change_schema(&mut connection, &text).await;
            }
        }
        if self.plan.views {
            for text in views::create_texts(self.plan.captured) {
                self.change_schema(&mut connection, &text).await;
            }
        }
        if self.plan.probes {
            self.change_schema(&mut connection, &available::create_text()).await;
            self.change_schema(&mut connection, &steady::create_text()).await;
        }
        for prepared in [kept::prepare(self).await, checks::replicating::prepare(self).await] {
            if let Err(problem) = prepared {
                self.world.borrow_mut().fail(problem);
            }
        }
        if let Some(window) = self.plan.loss_window() {
            self.rt.sleep(window).await;
        }
    }

    async fn change_schema(&mut self, connection: &mut Connection, text: &str) {
        let answer = connection.query(&Query::text(text), None).await;
        let mut world = self.world.borrow_mut();
        match answer {
            Ok(ResultBody::SchemaChange(_)) => world.stats.schema_changes += 1,
            Ok(other) => world.fail(format!("{text} was answered with {other:?}")),
            Err(failure) => world.fail(format!("{text}: {failure}")),
        }
    }

    /// Has clients work for a while, under whatever happens.
    async fn work(&mut self) {
        self.world.borrow_mut().down = false;
        (self.changed, self.hints_lost) = (false, false);
        self.began = self.sim.now();
        let length = self.plan.machine.lifetime_millis * 1_000;
        let until = self.sim.now() + Duration::from_micros(length / 4 + self.rng.below(length));
        let servers: Vec<SocketAddr> = self
            .present()
            .into_iter()
            .filter(|nth| self.is_ready(*nth))
            .chain(self.later_servers())
            .map(|nth| self.server(nth))
            .collect();
        let mut workers: Vec<_> = (0..self.plan.machine.workers)
            .map(|_| {
                let worker = ClusterWorker {
                    rt: self.rt.clone(),
                    world: self.world.clone(),
                    registers: self.registers.clone(),
                    lwt: self.lwt.clone(),
                    plan: self.plan.clone(),
                    servers: servers.clone(),
                    rng: self.sim.rng(1_000 + self.rng.below(1 << 40)),
                };
                self.rt.spawn(Group::Statement, worker.run())
            })
            .collect();
        for number in 0..self.plan.changers {
            let changer = Changer {
                rt: self.rt.clone(),
                world: self.world.clone(),
                schema: self.schema.clone(),
                servers: servers.clone(),
                rng: self.sim.rng(1_000 + self.rng.below(1 << 40)),
                pause_micros: CHANGE_PAUSE_MICROS.max(self.plan.pause_micros * 4),
                number,
            };
            workers.push(self.rt.spawn(Group::Statement, changer.run()));
        }
        workers.extend(self.begin_others(&servers));
        self.sim.set_buggify(self.plan.buggify);
        // Shorter time limits than usual may be too short now and then.
        self.world.borrow_mut().excuses.errors |= self.plan.buggify > 0 || self.plan.limits.is_some();
        self.inject_faults(until).await;
        self.sim.set_buggify(0);
        self.world.borrow_mut().down = true;
        for worker in workers {
            worker.await;
        }
        if let Err(problem) = self.after_work().await {
            self.world.borrow_mut().fail(problem);
        }
    }

    /// Clients with tables and keyspaces of their own, and the watcher of the nodes' limits.
    fn begin_others(&mut self, servers: &[SocketAddr]) -> Vec<Task<()>> {
        let mut tasks = Vec::new();
        if self.plan.watched {
            let watcher = Watcher {
                rt: self.rt.clone(),
                world: self.world.clone(),
                servers: servers.to_vec(),
                period: Duration::from_millis(self.plan.machine.lifetime_millis / 4),
            };
            tasks.push(self.rt.spawn(Group::Statement, watcher.run()));
        }
        if self.plan.probes {
            let prober = Prober {
                rt: self.rt.clone(),
                world: self.world.clone(),
                health: self.health(),
                plan: self.plan.clone(),
                copies: self.copies.total(),
                rng: self.sim.rng(1_000 + self.details.below(1 << 40)),
            };
            tasks.push(self.rt.spawn(Group::Statement, prober.run()));
        }
        if self.plan.operations.stamps {
            let stamper = Stamper {
                rt: self.rt.clone(),
                world: self.world.clone(),
                stamps: self.stamps.clone(),
                plan: self.plan.clone(),
                servers: servers.to_vec(),
                rng: self.sim.rng(STAMPER_STREAM + self.sim.now().as_nanos() as u64),
            };
            tasks.push(self.rt.spawn(Group::Statement, stamper.run()));
        }
        if self.plan.truncates {
            let truncater = Truncater {
                rt: self.rt.clone(),
                world: self.world.clone(),
                cut: self.cut.clone(),
                lwt: self.lwt.cut.clone(),
                plan: self.plan.clone(),
                servers: servers.to_vec(),
                rng: self.sim.rng(1_000 + self.details.below(1 << 40)),
            };
            tasks.push(self.rt.spawn(Group::Statement, truncater.run()));
            let indexer = Indexer {
                rt: self.rt.clone(),
                world: self.world.clone(),
                indexed: self.indexed.clone(),
                plan: self.plan.clone(),
                servers: servers.to_vec(),
                rng: self.sim.rng(INDEXER_STREAM + self.sim.now().as_nanos() as u64),
            };
            tasks.push(self.rt.spawn(Group::Statement, indexer.run()));
        }
        tasks.extend(self.begin_base_writers(servers));
        if !self.plan.replications.is_empty() {
            let replicator = Replicator {
                rt: self.rt.clone(),
                world: self.world.clone(),
                copied: self.copied.clone(),
                replications: self.plan.replications.clone(),
                pause_micros: self.plan.pause_micros,
                servers: servers.to_vec(),
                rng: self.sim.rng(1_000 + self.details.below(1 << 40)),
            };
            tasks.push(self.rt.spawn(Group::Statement, replicator.run()));
        }
        tasks
    }

    /// The clients of a table with materialized views, if there is one.
    fn begin_base_writers(&self, servers: &[SocketAddr]) -> impl Iterator<Item = Task<()>> {
        let now = self.sim.now().as_nanos() as u64;
        let clients = if self.plan.views { CLIENTS } else { 0 };
        (0..clients).map(move |number| {
            let writer = BaseWriter {
                rt: self.rt.clone(),
                world: self.world.clone(),
                plan: self.plan.clone(),
                servers: servers.to_vec(),
                rng: self.sim.rng(BASE_WRITER_STREAM + number + now),
            };
            self.rt.spawn(Group::Statement, writer.run())
        })
    }

    /// The record of healthy machines, from now on, when all are.
    fn health(&self) -> Health {
        let machine = |node: &Member| Machine {
            id: node.id,
            place: node.place.clone(),
            served: node.served.clone(),
            disk: self.plan.machine.disk(),
        };
        Health::new(&self.sim, self.nodes.iter().map(machine).collect())
    }

    /// Ends all faults, waits until the cluster has recovered, and compares everything.
    async fn quiesce(&mut self) {
        if self.failed() {
            return;
        }
        self.sim.heal_all();
        for nth in self.standing() {
            self.relieve(nth);
        }
        for nth in self.present() {
            self.wait_ready(nth).await;
        }
        self.settle_ring().await;
        self.reunite().await;
        self.rt.sleep(SETTLE_TIME).await;
        {
            let mut world = self.world.borrow_mut();
            world.excuses = Excuses::default();
            world.forget_seen();
        }
        for check in CHECKS {
            if self.failed() {
                return;
            }
            self.world.borrow_mut().checking = Some(check);
            let found = self.check(check).await;
            if let Err(problem) = found {
                self.world.borrow_mut().fail(problem);
            }
        }
        self.world.borrow_mut().checking = None;
        self.world.borrow_mut().raise_floor();
    }

    async fn check(&mut self, name: &str) -> Result<(), String> {
        let forgets = self.plan.faults.iter().any(|fault| fault.loses_memory());
        let delivered = !self.plan.grace.refuses_hints(self.sim.now() - self.began);
        let keeps_hints = self.plan.hints && delivered && !self.hints_lost && !forgets;
        match name {
            "kept" => kept::check(self).await,
            "truncation" => truncation::truncate(self).await,
            "left_behind" => left_behind::check(self).await,
            "delivered" if keeps_hints => {
                self.keep_promises();
                equal::check(self).await
            }
            "delivered" => Ok(()),
            "repaired" => repaired::check(self).await,
            "resurrection" => resurrection::check(self).await,
            "replicating" if !self.plan.replications.is_empty() => checks::replicating::check(self).await,
            "replicating" => Ok(()),
            "truncating" if self.plan.truncates => checks::truncating::check(self).await,
            "truncating" => Ok(()),
            "indexed" if self.plan.truncates => checks::indexed::check(self).await,
            "indexed" => Ok(()),
            "views" if self.plan.views => checks::views::check(self).await,
            "views" => Ok(()),
            "changes" if self.plan.captured => changes::check(self).await,
            "changes" => Ok(()),
            "durable" => durable::check(self).await,
            "atomic" => atomic::check(self),
            "equal" => equal::check(self).await,
            "serial" if self.plan.serial_percent > 0 => checks::serial::judge(self).await,
            "serial" => Ok(()),
            "lwt" => checks::lwt::judge(self).await,
            "stamps" if self.plan.operations.stamps => checks::stamps::check(self).await,
            "stamps" => Ok(()),
            "schema" => schema::check(self).await,
            "ddl" => checks::ddl::judge(self).await,
            "bounded" => bounded::check(self).await,
            "available" if self.plan.probes => available::check(self).await,
            "available" => Ok(()),
            other => panic!("no checker is called {other}"),
        }
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
