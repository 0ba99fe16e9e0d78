//! A topology change in a simulated cluster: a node joins, leaves, is removed, is replaced or is rebuilt while clients write and read at QUORUM, and
//! a participant crashes in the middle. Checked: the change completes, and no acknowledged write is lost.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rt::{Group, Rt, Task};
use rt_sim::{NodeConfig, NodeId, Rng, Sim, Simulation};
use server::Config;
use wire::client::ResultBody;
use wire::{Consistency, Version};

use crate::client::{Connection, Failure, Speech};
use crate::plan::{one_in, pick};
use crate::rest;
use crate::statement::Query;

/// Nodes that are there at the begin; others may come.
const NODES: usize = 4;
/// Nodes that join while another is to replace a dead one.
const JOINERS: usize = 2;
const COPIES: usize = 3;
const WRITERS: usize = 3;
const DATACENTER: &str = "datacenter1";
/// The datacenter of the node that is rebuilt.
const OTHER_DATACENTER: &str = "other";
/// A change that is not over by then never is.
const CHANGE_TIME_MAX: Duration = Duration::from_secs(400);
/// A replacement of a dead node has completed by then, though others join.
const REPLACED_WITHIN: Duration = Duration::from_secs(45);
/// A simulated run is not longer.
const TIME_MAX: Duration = Duration::from_secs(3_000);
const PAUSE: Duration = Duration::from_millis(500);

/// A topology change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingChange {
    /// A node joins.
    Join,
    /// A node leaves.
    Decommission,
    /// A dead node is removed.
    Remove,
    /// A dead node is replaced by another.
    Replace,
    /// The same when a node is joining already that has to do without the dead one, and another waits to join.
    ReplaceAmongJoins,
    /// A node of another datacenter, which has joined without data, is rebuilt from the first.
    Rebuild,
}

impl RingChange {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Join, Self::Decommission, Self::Remove, Self::Replace, Self::ReplaceAmongJoins, Self::Rebuild];

    /// Whether there is a node more afterwards.
    fn brings_node(self) -> bool {
        matches!(self, Self::Join | Self::Replace | Self::ReplaceAmongJoins | Self::Rebuild)
    }

    /// Whether the subject dies for good before.
    fn of_dead_node(self) -> bool {
        matches!(self, Self::Remove | Self::Replace | Self::ReplaceAmongJoins)
    }

    /// How many nodes there are with those that come.
    fn machines(self) -> usize {
        NODES + 1 + if self == Self::ReplaceAmongJoins { JOINERS } else { 0 }
    }
}

/// The counters of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeStats {
    /// Writes that were acknowledged.
    pub acknowledged: u64,
    /// Reads with the expected result.
    pub reads: u64,
    /// Requests that were refused or not answered.
    pub failed: u64,
}

/// Runs a seed with a change; `crash` has a participant crash in the middle and come back.
///
/// # Errors
/// The first broken promise, the change's own error, or that the simulation stalled.
pub fn run_change(seed: u64, change: RingChange, crash: bool) -> Result<ChangeStats, String> {
    let config = rt_sim::Config { time_max: TIME_MAX, ..rt_sim::Config::default() };
    let simulation = Simulation::new(seed, config);
    let sim = simulation.handle();
    let mut rng = sim.rng(1);
    let subject = 1 + rng.below(NODES as u64 - 1) as usize;
    let replaced = Rc::new(Cell::new(None));
    let nodes: Vec<NodeId> =
        (0..change.machines()).map(|nth| add_node(&sim, nth, &mut rng, (change, &replaced))).collect();
    let shared = Rc::new(Shared {
        known: RefCell::default(),
        next: Cell::new(0),
        down: Cell::new(false),
        stats: Cell::default(),
        broken: RefCell::default(),
    });
    let (inner, known) = (sim.clone(), shared.clone());
    let outcome = Rc::new(RefCell::new(Ok(())));
    let told = outcome.clone();
    let ended = sim.block_on(move |rt| async move {
        let before_rebuild = Vec::new();
        let mut run = Run {
            rt,
            sim: inner,
            rng,
            nodes,
            subject,
            change,
            crash,
            replaced,
            before_rebuild,
            shared: known,
        };
        *told.borrow_mut() = run.run().await;
    });
    ended.map_err(|stalled| stalled.to_string())?;
    outcome.borrow().clone()?;
    match shared.broken.borrow().first() {
        Some(broken) => Err(broken.clone()),
        None => Ok(shared.stats.get()),
    }
}

fn add_node(
    sim: &Sim,
    nth: usize,
    rng: &mut Rng,
    (change, replaced): (RingChange, &Rc<Cell<Option<IpAddr>>>),
) -> NodeId {
    let shards = *pick(rng, &[1, 1, 2]);
    let config = NodeConfig { shards, ..NodeConfig::default() };
    let (rack, replaced) = (format!("rack{}", rng.below(2)), replaced.clone());
    let empty = change == RingChange::Rebuild && nth == NODES;
    sim.add_node(config, move |info| {
        let replace = replaced.get().filter(|_| nth == NODES).map(|dead| dead.to_string());
        let config = Config {
            shards: info.shards,
            data_file_directories: PathBuf::from("/torc/data"),
            rpc_address: info.ip,
            listen_address: info.ip,
            api_address: info.ip,
            prometheus_port: 0,
            seeds: "10.0.0.1,10.0.0.2".to_owned(),
            rack: rack.clone(),
            commitlog_sync: "batch".into(),
            replace_address_first_boot: replace.unwrap_or_default(),
            datacenter: if empty { OTHER_DATACENTER } else { DATACENTER }.to_owned(),
            auto_bootstrap: !empty,
            // So slow that a crash comes in the middle.
            stream_throughput_outbound: if change == RingChange::Rebuild {
                server::Size(4 << 10)
            } else {
                Config::default().stream_throughput_outbound
            },
            // Timeouts by the world's clock are not under test.
            slow_query_log_timeout: std::time::Duration::ZERO,
            ..Config::default()
        };
        server::mains(config, info.shards, Arc::new(|_: &server::ReadyReport| {}))
    })
}

/// The writers' shared state.
struct Shared {
    /// Keys whose write was acknowledged.
    known: RefCell<Vec<i32>>,
    next: Cell<i32>,
    down: Cell<bool>,
    stats: Cell<ChangeStats>,
    broken: RefCell<Vec<String>>,
}

impl Shared {
    fn count(&self, change: impl FnOnce(&mut ChangeStats)) {
        let mut stats = self.stats.get();
        change(&mut stats);
        self.stats.set(stats);
    }
}

struct Run {
    rt: Rt,
    sim: Sim,
    rng: Rng,
    nodes: Vec<NodeId>,
    /// The node under change.
    subject: usize,
    change: RingChange,
    crash: bool,
    replaced: Rc<Cell<Option<IpAddr>>>,
    /// Keys that the rebuilt node has from nowhere but the rebuild.
    before_rebuild: Vec<i32>,
    shared: Rc<Shared>,
}

impl Run {
    async fn run(&mut self) -> Result<(), String> {
        for nth in 0..NODES {
            self.sim.start(self.nodes[nth]);
        }
        let all: Vec<usize> = (0..NODES).collect();
        self.wait_for_ring(&all).await?;
        let mut connection = self.connect(0).await?;
        for text in [
            format!(
                "CREATE KEYSPACE k WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': {COPIES}}}"
            ),
            "CREATE TABLE k.t (pk int PRIMARY KEY, v int)".to_owned(),
        ] {
            connection
                .query(&Query::text(&text), None)
                .await
                .map_err(|failure| format!("{text}: {failure}"))?;
        }
        let writers: Vec<Task<()>> = (0..WRITERS).map(|_| self.writer()).collect();
        self.rt.sleep(Duration::from_secs(2)).await;
        let changed = self.change_under_fire().await;
        self.rt.sleep(Duration::from_secs(2)).await;
        self.shared.down.set(true);
        for writer in writers {
            writer.await;
        }
        let stays = changed?;
        self.verify(&stays).await
    }

    fn ip(&self, nth: usize) -> IpAddr {
        self.sim.ip(self.nodes[nth])
    }

    async fn connect(&self, nth: usize) -> Result<Connection, String> {
        let mut last = String::new();
        for _ in 0..100 {
            match open(&self.rt, self.ip(nth)).await {
                Ok(connection) => return Ok(connection),
                Err(failure) => last = failure.to_string(),
            }
            self.rt.sleep(PAUSE).await;
        }
        Err(format!("node {nth} takes no connection: {last}"))
    }

    /// Runs the change to its end, through all crashes; returns the nodes that are in the ring then.
    async fn change_under_fire(&mut self) -> Result<Vec<usize>, String> {
        let subject = self.subject;
        let stays: Vec<usize> = match self.change {
            RingChange::Join | RingChange::Rebuild => (0..=NODES).collect(),
            RingChange::Decommission | RingChange::Remove => {
                (0..NODES).filter(|nth| *nth != subject).collect()
            }
            RingChange::Replace | RingChange::ReplaceAmongJoins => {
                (0..self.nodes.len()).filter(|nth| *nth != subject).collect()
            }
        };
        let host = self.host_of(subject).await?;
        if self.change.of_dead_node() {
            self.sim.kill(self.nodes[subject]);
            self.rt.sleep(Duration::from_secs(25)).await;
            self.replaced.set(Some(self.ip(subject)));
        }
        for joiner in NODES + 1..self.nodes.len() {
            self.sim.start(self.nodes[joiner]);
            self.rt.sleep(Duration::from_secs(10)).await;
        }
        let victim = self.victim();
        if self.change.brings_node() {
            self.sim.start(self.nodes[NODES]);
        }
        let rebuilding = match self.change {
            RingChange::Rebuild => Some(self.begin_rebuild(&stays).await?),
            _ => None,
        };
        let begun = self.sim.now();
        let crash_within = if rebuilding.is_some() { 3_000 } else { 14_000 };
        let crash_at = begun + Duration::from_millis(self.rng.below(crash_within));
        let back_at = crash_at + Duration::from_millis(200 + self.rng.below(30_000));
        let mut asked: Option<Task<Result<(), String>>> = None;
        let (mut crashed, mut back) = (!self.crash, !self.crash);
        let mut replaced = self.crash || self.change != RingChange::ReplaceAmongJoins;
        loop {
            replaced = replaced || self.is_replaced().await;
            if !replaced && self.sim.now() - begun > REPLACED_WITHIN {
                let state = self.describe().await;
                return Err(format!("node {subject} is not replaced after {REPLACED_WITHIN:?}: {state}"));
            }
            if !crashed && self.sim.now() >= crash_at {
                crashed = true;
                self.sim.kill(self.nodes[victim]);
            }
            if crashed && !back && self.sim.now() >= back_at {
                back = true;
                self.sim.start(self.nodes[victim]);
            }
            if asked.as_ref().is_none_or(Task::is_finished) {
                asked = self.ask(subject, &host);
            }
            if crashed && back && self.ring_is(&stays).await && self.is_rebuilt().await {
                return Ok(stays);
            }
            if self.sim.now() - begun > CHANGE_TIME_MAX {
                let state = self.describe().await;
                let (change, crash) = (self.change, self.crash);
                return Err(format!(
                    "{change:?} of node {subject} (crash of {victim}: {crash}) does not end: {state}"
                ));
            }
            self.rt.sleep(PAUSE).await;
        }
    }

    /// The node to crash: any participant that is to live.
    fn victim(&mut self) -> usize {
        let dead = self.change.of_dead_node().then_some(self.subject);
        let last = if self.change.brings_node() { NODES } else { NODES - 1 };
        // The one whose place changes is the most interesting.
        if dead.is_none_or(|_| last == NODES) && one_in(&mut self.rng, 2) {
            return if last == NODES { NODES } else { self.subject };
        }
        loop {
            let nth = self.rng.below(last as u64 + 1) as usize;
            if Some(nth) != dead {
                return nth;
            }
        }
    }

    /// Asks for the change, where somebody has to.
    fn ask(&mut self, subject: usize, host: &str) -> Option<Task<Result<(), String>>> {
        let (nth, path) = match self.change {
            RingChange::Decommission => (subject, "/storage_service/decommission".to_owned()),
            RingChange::Remove => {
                let others: Vec<usize> = (0..NODES).filter(|nth| *nth != subject).collect();
                (*pick(&mut self.rng, &others), format!("/storage_service/remove_node?host_id={host}"))
            }
            RingChange::Join | RingChange::Replace | RingChange::ReplaceAmongJoins | RingChange::Rebuild => {
                return None;
            }
        };
        let (rt, server) = (self.rt.clone(), SocketAddr::new(self.ip(nth), 10_000));
        // The caller may get an error that the node crashed, is still up or has left: only the ring counts.
        Some(self.rt.spawn(Group::Statement, async move { rest::post(&rt, server, &path).await }))
    }

    /// The node of the other datacenter is in the ring, gets a copy of everything, and a rebuild of it is requested, once. Returns when it
    /// is at it; the caller's connection ends with the task.
    async fn begin_rebuild(&mut self, all: &[usize]) -> Result<Task<Result<(), String>>, String> {
        self.wait_for_ring(all).await?;
        let text = format!(
            "ALTER KEYSPACE k WITH replication = {{'class': 'NetworkTopologyStrategy', '{DATACENTER}': {COPIES}, \
             '{OTHER_DATACENTER}': 1}}"
        );
        self.before_rebuild = self.shared.known.borrow().clone();
        let altered = self.connect(0).await?.query(&Query::text(&text), None).await.map(drop);
        altered.map_err(|failure| format!("{text}: {failure}"))?;
        let (rt, server) = (self.rt.clone(), SocketAddr::new(self.ip(NODES), 10_000));
        let path = format!("/storage_service/rebuild?source_dc={DATACENTER}");
        let asked = self.rt.spawn(Group::Statement, async move { rest::post(&rt, server, &path).await });
        while self.is_rebuilt().await {
            if asked.is_finished() {
                return Err(format!("the rebuild ended at once: {:?}", asked.await));
            }
            self.rt.sleep(Duration::from_millis(10)).await;
        }
        Ok(asked)
    }

    /// Whether the replacement is in the ring, as the first node sees it, instead of the dead one.
    async fn is_replaced(&self) -> bool {
        let Ok(ring) = self.get(0, "/storage_service/tokens_endpoint").await else { return false };
        let has = |nth: usize| ring.contains(&format!("\"{}\"", self.ip(nth)));
        has(NODES) && !has(self.subject)
    }

    /// Whether the last node is not being rebuilt.
    async fn is_rebuilt(&self) -> bool {
        if self.change != RingChange::Rebuild {
            return true;
        }
        self.get(NODES, "/torc/topology").await.is_ok_and(|topology| topology.contains("\"rebuild\":null"))
    }

    async fn get(&self, nth: usize, path: &str) -> Result<String, String> {
        rest::get(&self.rt, SocketAddr::new(self.ip(nth), 10_000), path).await
    }

    async fn host_of(&self, nth: usize) -> Result<String, String> {
        let answer = self.get(nth, "/storage_service/hostid/local").await?;
        Ok(answer.rsplit("\r\n").next().unwrap_or_default().trim().trim_matches('"').to_owned())
    }

    /// Whether every node that stays has these in its ring, and nothing changes any more.
    async fn ring_is(&self, stays: &[usize]) -> bool {
        let expected: BTreeSet<String> = stays.iter().map(|nth| self.ip(*nth).to_string()).collect();
        for nth in stays {
            let Ok(topology) = self.get(*nth, "/torc/topology").await else { return false };
            let Ok(ring) = self.get(*nth, "/storage_service/tokens_endpoint").await else { return false };
            let all = expected.iter().all(|ip| ring.contains(&format!("\"{ip}\"")));
            let others = (0..self.nodes.len()).filter(|other| !stays.contains(other));
            let none = others.into_iter().all(|other| !ring.contains(&format!("\"{}\"", self.ip(other))));
            if !topology.contains("\"change\":null") || !all || !none {
                return false;
            }
            if open(&self.rt, self.ip(*nth)).await.is_err() {
                return false;
            }
        }
        true
    }

    async fn wait_for_ring(&self, stays: &[usize]) -> Result<(), String> {
        let begun = self.sim.now();
        while !self.ring_is(stays).await {
            if self.sim.now() - begun > CHANGE_TIME_MAX {
                return Err(format!("the nodes do not come up: {}", self.describe().await));
            }
            self.rt.sleep(PAUSE).await;
        }
        Ok(())
    }

    async fn describe(&self) -> String {
        let mut out = String::new();
        for nth in 0..self.nodes.len() {
            let id = self.nodes[nth];
            let state = match self.sim.is_running(id) {
                true => match self.get(nth, "/torc/topology").await {
                    Ok(answer) | Err(answer) => answer.rsplit("\r\n").next().unwrap_or_default().to_owned(),
                },
                false => format!("ended: {:?}", self.sim.exits(id)),
            };
            out.push_str(&format!("\n node {nth}: {state}"));
        }
        out
    }

    /// A client that writes keys of its own and reads acknowledged ones back, through any node.
    fn writer(&mut self) -> Task<()> {
        let (rt, shared) = (self.rt.clone(), self.shared.clone());
        let servers: Vec<IpAddr> = (0..self.nodes.len()).map(|nth| self.ip(nth)).collect();
        let mut rng = self.sim.rng(1_000 + self.rng.below(1 << 40));
        self.rt.spawn(Group::Statement, async move {
            while !shared.down.get() {
                let server = *pick(&mut rng, &servers);
                if let Ok(mut connection) = open(&rt, server).await {
                    work(&rt, &shared, &mut rng, &mut connection).await;
                }
                rt.sleep(Duration::from_millis(50)).await;
            }
        })
    }

    /// Every acknowledged write is there at QUORUM through every node, and at ALL.
    async fn verify(&self, stays: &[usize]) -> Result<(), String> {
        let known = self.shared.known.borrow().clone();
        let everywhere = stays.iter().map(|nth| (*nth, Consistency::Quorum, &known));
        // The rebuilt node is alone in its datacenter. It comes first: reads at QUORUM repair it.
        let alone = (self.change == RingChange::Rebuild).then_some((
            NODES,
            Consistency::LocalQuorum,
            &self.before_rebuild,
        ));
        let all = [(stays[0], Consistency::All, &known)];
        for (nth, consistency, keys) in alone.into_iter().chain(everywhere).chain(all) {
            let mut connection = self.connect(nth).await?;
            connection.consistency = consistency;
            for pk in keys {
                let found = find(&mut connection, *pk).await;
                let found = found.map_err(|failure| format!("node {nth} at {consistency:?}: {failure}"))?;
                if !found {
                    return Err(format!(
                        "key {pk} was acknowledged, and node {nth} does not find it at {consistency:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}

async fn open(rt: &Rt, server: IpAddr) -> Result<Connection, Failure> {
    let speech = Speech { version: Version::V5, compression: None, prepared: false };
    let mut connection = Connection::open(rt, SocketAddr::new(server, 9042), speech).await?;
    connection.consistency = Consistency::Quorum;
    Ok(connection)
}

/// Writes and reads until the connection breaks, or for a while.
async fn work(rt: &Rt, shared: &Shared, rng: &mut Rng, connection: &mut Connection) {
    for _ in 0..20 {
        if shared.down.get() {
            return;
        }
        rt.sleep(Duration::from_millis(20 + rng.below(60))).await;
        let pk = shared.next.replace(shared.next.get() + 1);
        let write = Query::text(format!("INSERT INTO k.t (pk, v) VALUES ({pk}, {pk})"));
        match connection.query(&write, None).await {
            Ok(ResultBody::Void) => {
                shared.known.borrow_mut().push(pk);
                shared.count(|stats| stats.acknowledged += 1);
            }
            Ok(other) => shared.broken.borrow_mut().push(format!("a write was answered with {other:?}")),
            Err(failure) => {
                shared.count(|stats| stats.failed += 1);
                if !matches!(failure, Failure::Error(_)) {
                    return;
                }
            }
        }
        let asked = {
            let known = shared.known.borrow();
            if known.is_empty() { continue } else { *pick(rng, &known) }
        };
        match find(connection, asked).await {
            Ok(true) => shared.count(|stats| stats.reads += 1),
            Ok(false) => {
                let text = format!("key {asked} was acknowledged, and a read at QUORUM did not find it");
                shared.broken.borrow_mut().push(text);
            }
            Err(Failure::Error(_)) => shared.count(|stats| stats.failed += 1),
            Err(_) => return,
        }
    }
}

async fn find(connection: &mut Connection, pk: i32) -> Result<bool, Failure> {
    let query = Query::text(format!("SELECT v FROM k.t WHERE pk = {pk}"));
    let rows = connection.rows(&query, 10).await?;
    Ok(rows == [vec![Some(pk.to_be_bytes().to_vec())]])
}
