//! The shared state of a simulation's clients: the tables with their histories, timestamps, violations.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;

use model::{Clock, ColumnId, Explained, Partition, Seconds, Write};
use rt_sim::{NodeId, Sim};

use crate::api::ApiFailure;
use crate::batches::Batches;
use crate::client::Failure;
use crate::stats::Stats;
use crate::table::{Key, Table, shard_of, token};

/// The server's code of a request that it has no room for.
const OVERLOADED: i32 = 0x1001;
/// The same in an error's text.
const IS_OVERLOADED: &str = "(code 0x1001)";

/// How far back timestamps may lie; much less than the smallest `gc_grace_seconds`.
const BACK_MICROS_MAX: i64 = 1_500_000;

/// Errors that are excused at present.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Excuses {
    /// Requests may fail or time out: the disk has faults, or had some since the start.
    pub(crate) errors: bool,
    /// Connections may break.
    pub(crate) connections: bool,
}

/// One shard's part of a TRUNCATE: the number of the statement's first write, and the shard.
type ShardTruncation = (u64, u16);

/// Shared by the tasks of a simulation.
pub(crate) struct World {
    pub(crate) sim: Sim,
    /// The servers.
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) tables: Vec<Table>,
    pub(crate) failure: Option<String>,
    /// The checker of a quiescent phase that is at work.
    pub(crate) checking: Option<&'static str>,
    pub(crate) stats: Stats,
    pub(crate) excuses: Excuses,
    /// Nodes are far from each other.
    pub(crate) is_wide: bool,
    /// Nodes take so many connections only.
    pub(crate) limits_connections: bool,
    /// The clients shall end.
    pub(crate) down: bool,
    /// The clients shall wait.
    pub(crate) hold: bool,
    pub(crate) next_column: ColumnId,
    /// The node's shards in the present process lifetime.
    pub(crate) shards: u16,
    /// TRUNCATE statements, as writes of the partitions that were there: which shard each was sent to.
    truncations: BTreeMap<u64, ShardTruncation>,
    /// Of those, the ones that a reading has shown: whether it happened, and in which partition that was seen.
    truncations_seen: BTreeMap<ShardTruncation, (bool, Key)>,
    /// Writes that few replicas have acknowledged.
    promises: Vec<(usize, Key, u64)>,
    /// Logged batches of several partitions.
    pub(crate) batches: Batches,
    /// The number of times that readers' observations were reset.
    pub(crate) seen_epoch: u64,
    /// A node lost power then, and writes that it acknowledged may be gone, also if the acknowledgement arrives only now.
    doubted_upto: Option<u64>,
    next_write: u64,
    used: BTreeSet<i64>,
    /// No timestamp lies below: the server's clock moved there, so that tombstones may be gone early.
    floor: i64,
    /// The latest second that the server's clock has shown.
    latest: i64,
    /// The latest readings of wall clocks when they jumped, microseconds.
    clocks_before: BTreeMap<NodeId, i64>,
    /// How often wall clocks have jumped.
    jumps: u64,
}

/// A server's wall clock, microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wall {
    pub(crate) micros: i64,
    /// Its latest reading.
    pub(crate) latest: i64,
    /// How often any has jumped so far.
    pub(crate) jumps: u64,
}

/// Handle of the world.
pub(crate) type SharedWorld = Rc<RefCell<World>>;

/// The effect of a failed request on a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It may have happened.
    Unknown,
    /// It has not happened, and will not.
    Refused,
}

impl World {
    pub(crate) fn new(sim: Sim, nodes: Vec<NodeId>) -> Self {
        Self {
            sim,
            nodes,
            tables: Vec::new(),
            failure: None,
            checking: None,
            stats: Stats::default(),
            excuses: Excuses::default(),
            is_wide: false,
            limits_connections: false,
            down: false,
            hold: false,
            next_column: 0,
            shards: 1,
            truncations: BTreeMap::new(),
            truncations_seen: BTreeMap::new(),
            promises: Vec::new(),
            batches: Batches::default(),
            seen_epoch: 0,
            doubted_upto: None,
            next_write: 0,
            used: BTreeSet::new(),
            floor: 0,
            latest: 0,
            clocks_before: BTreeMap::new(),
            jumps: 0,
        }
    }

    /// Records a violation; the first one is reported.
    pub(crate) fn fail(&mut self, text: impl Into<String>) {
        let text: String = text.into();
        let checker = match self.checking {
            Some(_) if text.contains(IS_OVERLOADED) => "checker overloaded: ".to_owned(),
            Some(name) if !text.starts_with("checker") => format!("checker {name}: "),
            _ => String::new(),
        };
        let text = format!("at {:.6} s: {checker}{text}", self.sim.now().as_secs_f64());
        self.failure.get_or_insert(text);
        self.down = true;
    }

    /// Virtual nanoseconds.
    pub(crate) fn now(&self) -> u64 {
        self.sim.now().as_nanos() as u64
    }

    /// The seconds that the servers' clocks show: the earliest and the latest.
    pub(crate) fn all_seconds(&mut self) -> Seconds {
        let seconds = self.nodes.iter().map(|node| self.sim.wall_micros(*node).div_euclid(1_000_000));
        let (first, last) =
            seconds.fold((i64::MAX, i64::MIN), |(first, last), at| (first.min(at), last.max(at)));
        self.latest = self.latest.max(last);
        (first, last)
    }

    /// The position of the node with this server.
    pub(crate) fn nth_at(&self, server: SocketAddr) -> usize {
        let nth = self.nodes.iter().position(|node| self.sim.ip(*node) == server.ip());
        nth.expect("clients connect to nodes")
    }

    /// The wall clock of a server.
    pub(crate) fn wall(&self, server: SocketAddr) -> Wall {
        let node = self.nodes.iter().copied().find(|node| self.sim.ip(*node) == server.ip());
        let micros = node.map_or(i64::MIN, |node| self.sim.wall_micros(node));
        let before = node.and_then(|node| self.clocks_before.get(&node));
        Wall { micros, latest: before.map_or(micros, |before| micros.max(*before)), jumps: self.jumps }
    }

    /// The wall clock of a node is about to jump.
    pub(crate) fn note_jump(&mut self, node: NodeId) {
        self.all_seconds();
        let now = self.sim.wall_micros(node);
        let before = self.clocks_before.entry(node).or_insert(now);
        *before = now.max(*before);
        self.jumps += 1;
    }

    /// When a read was made that was sent at `since`, when the servers' clocks showed `from`. A clock may have gone back meanwhile.
    pub(crate) fn clock(&mut self, since: u64, from: Seconds) -> Clock {
        let to = self.all_seconds();
        Clock { since, now: (from.0.min(to.0), from.1.max(to.1)), latest: self.latest }
    }

    /// The number of a new write.
    pub(crate) fn next_id(&mut self) -> u64 {
        self.next_write += 1;
        self.next_write
    }

    /// The client's clock in microseconds, the origin of timestamps.
    pub(crate) fn client_micros(&self) -> i64 {
        1_767_225_600_000_000 + (self.now() / 1_000) as i64
    }

    /// A timestamp that no write has had, even, `back` microseconds in the past as far as that is allowed.
    pub(crate) fn timestamp(&mut self, back: i64) -> i64 {
        let now = self.client_micros();
        let mut at = (now - back.clamp(0, BACK_MICROS_MAX)).max(self.floor) & !1;
        while !self.used.insert(at) {
            at += 2;
        }
        at
    }

    /// A timestamp that a recent write has had, for a tie.
    pub(crate) fn timestamp_again(&mut self) -> i64 {
        let recent = self.client_micros() - BACK_MICROS_MAX;
        let from = recent.max(self.floor + 2);
        match self.used.range(from..).next_back() {
            Some(at) => *at,
            None => self.timestamp(0),
        }
    }

    /// No later timestamp lies at or below the present ones.
    pub(crate) fn raise_floor(&mut self) {
        let last = self.used.last().copied().unwrap_or(0);
        self.floor = (last + 2).max(self.client_micros());
    }

    /// Notes a write that is about to be sent.
    pub(crate) fn begin(&mut self, table: usize, key: &Key, write: Write) {
        let now = self.now();
        self.tables[table].partitions.entry(key.clone()).or_default().begin(Rc::new(write), now);
    }

    /// Notes that writes are one TRUNCATE of a table: the part of one shard is truncated wholly or not at all.
    pub(crate) fn note_truncation(&mut self, table: usize, writes: &[(Key, u64)]) {
        let statement = writes.first().map_or(0, |(_, id)| *id);
        for (key, id) in writes {
            let shard = shard_of(token(&self.tables[table], key), self.shards);
            self.truncations.insert(*id, (statement, shard));
        }
    }

    /// Whether a truncation happened in one partition and not in another of the same shard.
    fn check_truncations(&mut self, key: &Key, proofs: &[Explained]) -> Result<(), String> {
        let happened = proofs.iter().flat_map(|proof| proof.happened.iter().map(|id| (*id, true)));
        let not = proofs.iter().flat_map(|proof| proof.not_happened.iter().map(|id| (*id, false)));
        for (id, happened) in happened.chain(not) {
            let Some(part) = self.truncations.get(&id) else { continue };
            let (before, of) = self.truncations_seen.entry(*part).or_insert_with(|| (happened, key.clone()));
            if *before != happened {
                let (with, without) = if happened { (key, &*of) } else { (&*of, key) };
                return Err(format!(
                    "shard {} truncated a table in part: partition {with:?} is truncated, {without:?} is not (write {id})",
                    part.1
                ));
            }
        }
        Ok(())
    }

    /// Notes how a write ended, the same for all partitions of a batch.
    pub(crate) fn end(&mut self, table: usize, writes: &[(Key, u64)], outcome: Option<Outcome>) {
        let (now, seconds) = (self.now(), self.all_seconds());
        match outcome {
            None => self.stats.writes += 1,
            Some(Outcome::Unknown) => self.stats.unknown += 1,
            Some(Outcome::Refused) => {}
        }
        for (key, id) in writes {
            let Some(partition) = self.tables[table].partitions.get_mut(key) else { continue };
            match outcome {
                None if partition.begun(*id).is_some_and(|begun| Some(begun) <= self.doubted_upto) => {
                    partition.unknown(*id, seconds);
                }
                None => partition.acknowledge(*id, now, seconds),
                Some(Outcome::Unknown) => partition.unknown(*id, seconds),
                Some(Outcome::Refused) => partition.refuse(*id),
            }
        }
    }

    /// The effect of a failed request; one that nothing excuses is a violation.
    pub(crate) fn classify(&mut self, failure: &Failure, what: &str) -> Outcome {
        self.stats.errors += 1;
        let (outcome, excused) = match failure {
            Failure::Error(error) => match error.code() {
                // WriteTimeout, WriteFailure, CasWriteUnknown, ReadTimeout, ReadFailure, TruncateError, server error.
                0x1100 | 0x1500 | 0x1700 | 0x1200 | 0x1300 | 0x1003 | 0x0000 => {
                    (Outcome::Unknown, self.excuses.errors)
                }
                OVERLOADED => {
                    self.stats.overloaded += 1;
                    (Outcome::Refused, self.excuses.errors)
                }
                // Unavailable: of a batch, a part may have been stored already.
                0x1000 => (Outcome::Unknown, self.excuses.errors && self.nodes.len() > 1),
                _ => (Outcome::Unknown, false),
            },
            Failure::Connection(_) => (Outcome::Unknown, self.excuses.connections || self.down),
            Failure::Timeout => {
                (Outcome::Unknown, self.excuses.connections || self.excuses.errors || self.down)
            }
            Failure::Protocol(_) => (Outcome::Unknown, false),
        };
        if !excused {
            self.fail(format!("nothing excuses this failure: {failure}\n  statement: {what}"));
        }
        outcome
    }

    /// The same of a request to the DynamoDB API. That a condition does not hold, or a transaction holds an item, is no violation.
    pub(crate) fn classify_api(&mut self, failure: &ApiFailure, what: &str) -> Outcome {
        let (outcome, excused) = match failure {
            ApiFailure::Error { status, kind, .. } => match (kind.as_str(), status) {
                (
                    "ConditionalCheckFailedException"
                    | "DuplicateItemException"
                    | "TransactionConflictException"
                    | "TransactionCanceledException",
                    400,
                ) => return Outcome::Refused,
                ("TransactionInProgressException", 400) => (Outcome::Unknown, true),
                ("RequestLimitExceeded", 400) => (Outcome::Unknown, self.excuses.errors),
                // Not carried out in time, as requests that compete over slow links may not be.
                ("InternalServerError", 500) => (Outcome::Unknown, self.excuses.errors || self.is_wide),
                // Replicas are down.
                ("ServiceUnavailable", 503) => (Outcome::Unknown, self.excuses.errors),
                _ => (Outcome::Unknown, false),
            },
            ApiFailure::Connection(_) => (Outcome::Unknown, self.excuses.connections || self.down),
            ApiFailure::Timeout => {
                (Outcome::Unknown, self.excuses.connections || self.excuses.errors || self.down)
            }
            ApiFailure::Protocol(_) => (Outcome::Unknown, false),
        };
        self.stats.errors += 1;
        if !excused {
            self.fail(format!("nothing excuses this failure: {failure}\n  request: {what}"));
        }
        outcome
    }

    /// The same of a connection that did not come up: a node that has as many as it may have closes it.
    pub(crate) fn classify_startup(&mut self, failure: &Failure) {
        let before = self.excuses.connections;
        self.excuses.connections |= self.limits_connections;
        self.classify(failure, "STARTUP");
        self.excuses.connections = before;
    }

    /// Notes that a write was acknowledged by a replica or so: readers of others need not see it, but it must not be lost.
    pub(crate) fn promise(&mut self, table: usize, writes: Vec<(Key, u64)>) {
        self.end(table, &writes, Some(Outcome::Unknown));
        self.promises.extend(writes.into_iter().map(|(key, id)| (table, key, id)));
    }

    /// From now on the promised writes of a table have to be seen.
    pub(crate) fn keep_promises(&mut self, table: usize) {
        let (now, seconds) = (self.now(), self.all_seconds());
        let (kept, others) =
            std::mem::take(&mut self.promises).into_iter().partition(|(of, ..)| *of == table);
        self.promises = others;
        let kept: Vec<(usize, Key, u64)> = kept;
        for (_, key, id) in kept {
            if let Some(partition) = self.tables[table].partitions.get_mut(&key) {
                partition.acknowledge(id, now, seconds);
            }
        }
    }

    /// The observations of an answer bind later requests.
    pub(crate) fn note_seen(&mut self, table: usize, proofs: &[(Key, Vec<Explained>)]) {
        let now = self.now();
        for (key, proofs) in proofs {
            let Some(partition) = self.tables[table].partitions.get_mut(key) else { continue };
            proofs.iter().for_each(|proof| partition.note_seen(&proof.place, &proof.happened, now));
        }
    }

    /// A write that was seen before it was acknowledged may be gone: a node forgets, or replicas change.
    pub(crate) fn forget_seen(&mut self) {
        self.seen_epoch += 1;
        let partitions = self.tables.iter_mut().flat_map(|table| table.partitions.values_mut());
        partitions.for_each(Partition::forget_seen);
    }

    /// A table was truncated, with nothing under way.
    pub(crate) fn forget_table(&mut self, table: usize) {
        self.tables[table].partitions.clear();
        self.promises.retain(|(of, ..)| *of != table);
        self.batches.forget_table(table);
    }

    /// Writes acknowledged at or after a time may be gone.
    pub(crate) fn forget_since(&mut self, since: u64) {
        let partitions = self.tables.iter_mut().flat_map(|table| table.partitions.values_mut());
        partitions.for_each(|partition| partition.forget_since(since));
    }

    /// A node of a cluster lost power: writes acknowledged at or after a time, or under way, may be gone from it.
    pub(crate) fn doubt_since(&mut self, since: u64) {
        self.doubted_upto = Some(self.now());
        // Two parts of one may be gone from two nodes.
        self.batches = Batches::default();
        let partitions = self.tables.iter_mut().flat_map(|table| table.partitions.values_mut());
        partitions.for_each(|partition| partition.doubt_since(since));
    }

    /// Adds the observations of a partition.
    pub(crate) fn settle(&mut self, table: usize, key: &Key, proofs: &[Explained]) {
        let now = self.now();
        for proof in proofs {
            proof.happened.iter().for_each(|id| self.batches.prove(*id, true));
            proof.not_happened.iter().for_each(|id| self.batches.prove(*id, false));
        }
        let table = &mut self.tables[table];
        let Some(partition) = table.partitions.get_mut(key) else { return };
        if let Err(mismatch) = partition.settle(proofs, now) {
            let text = format!("{}.{}, partition {key:?}: {mismatch}", table.keyspace, table.name);
            return self.fail(text);
        }
        let name = table.full_name();
        if let Err(torn) = self.check_truncations(key, proofs) {
            self.fail(format!("{name}: {torn}"));
        }
    }
}
